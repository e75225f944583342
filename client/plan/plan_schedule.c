/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_schedule.h: the stages of a chunk and the border of a step, as events of plan_sim.h. What bounds the step
 * is found by the same walk as in a training (critical_path.h), from the simulated stages. Test:
 * tests/unit/test_plan_schedule.c
 */
#include "client/plan/plan_schedule.h"

#include <math.h>
#include <string.h>

#include "client/trace/critical_path.h"
#include "client/plan/plan_sim.h"
#include "common/base/mem.h"
#include "common/wire/chunk_order.h"
#include "common/wire/frame.h"
#include "common/wire/send_ahead.h"

#define STEPS         8
#define STEPS_COUNTED 3 /* the last ones, which are in the steady state */
#define BATCHES_AHEAD 3 /* of the loader, at most: job.c has fewer of large ones */
#define CONTROL_BYTES 64.0
#define FILLINGS      5 /* of a queue on the way */
#define CHUNKS_MOST   65536
#define BYTES_LEAST   4096 /* of what is simulated by itself */
#define BYTE_S_MOST   1.0

enum { CLIENT_COMPUTE, CLIENT_CODEC, SERVER_COMPUTE, SERVER_CODEC, LOADER };
enum { UP, DOWN };
enum { CONTROL, URGENT, BULK };

/* What frames and tasks are that are no stage of a chunk. */
enum { COMMIT = GP_AT_STAGES, COMMITTED, SQUARES, CHUNK_DONE, LOADED };

struct moment {
	double queued_s, begin_s, end_s;
};

struct play {
	const struct gp_plan_schedule *set;
	struct gp_sim sim;
	struct gp_critical_path *path; /* NULL: too many chunks */
	uint64_t step, next, done;     /* the step under way; the chunk that begins next; how many are through */
	uint64_t server_step, backwards;
	int batches;
	bool stepping, update_pending, all_committed, squares;
	double begin_s, end_s[STEPS];
	struct moment update, body_update;
	double squares_s, committed_s;
	struct gp_bound_by bound;
};

static uint64_t ns_of(double s)
{
	return (uint64_t)llround(s * 1e9);
}

static void note(struct play *p, enum gp_interval_stage stage, uint64_t number, struct moment m)
{
	const struct gp_interval i = {.stage = stage,
				      .number = number,
				      .queued_ns = ns_of(m.queued_s),
				      .begin_ns = ns_of(m.begin_s),
				      .end_ns = ns_of(m.end_s)};
	if (p->path)
		gp_critical_path_note(p->path, &i);
}

static void note_now(struct play *p, enum gp_interval_stage stage, uint64_t number)
{
	const double now = p->sim.now_s;
	note(p, stage, number, (struct moment){now, now, now});
}

static uint64_t chunks(const struct play *p)
{
	return (uint64_t)p->set->chunks;
}

/* --- what follows on what ----------------------------------------------------------------------------------------- */

/* The four stages of a direction have neighbouring numbers: encode, sent, received, decode. */
static enum gp_interval_stage encode_stage(enum gp_direction d)
{
	static const enum gp_interval_stage stage[GP_DIRECTIONS] = {GP_AT_ACT_UP_ENCODE, GP_AT_ACT_DOWN_ENCODE,
								    GP_AT_GRAD_UP_ENCODE, GP_AT_GRAD_DOWN_ENCODE};
	return stage[d];
}

static void encode(struct play *p, enum gp_direction d, uint64_t n)
{
	const int worker = gp_direction_info[d].up ? CLIENT_CODEC : SERVER_CODEC;
	gp_sim_submit(&p->sim, worker, (int)d, 0, encode_stage(d), n, p->set->flow[d].encode_s);
}

static void decode(struct play *p, enum gp_direction d, uint64_t n)
{
	const int worker = gp_direction_info[d].up ? SERVER_CODEC : CLIENT_CODEC;
	gp_sim_submit(&p->sim, worker, (int)d, 0, encode_stage(d) + 3, n, p->set->flow[d].decode_s);
}

static void send_frame(struct play *p, enum gp_direction d, uint64_t n)
{
	const bool urgent = gp_frame_class(gp_direction_info[d].frame) == GP_CLASS_URGENT;
	gp_sim_send(&p->sim, gp_direction_info[d].up ? UP : DOWN, urgent ? URGENT : BULK, encode_stage(d) + 1, n,
		    p->set->flow[d].wire_bytes);
}

static void send_control(struct play *p, int way, int what, uint64_t n)
{
	gp_sim_send(&p->sim, way, CONTROL, what, n, CONTROL_BYTES);
}

static void compute(struct play *p, enum gp_interval_stage stage, int priority, uint64_t n, double seconds)
{
	const bool server = stage == GP_AT_BODY_FORWARD || stage == GP_AT_BODY_BACKWARD || stage == GP_AT_BODY_UPDATE;
	gp_sim_submit(&p->sim, server ? SERVER_COMPUTE : CLIENT_COMPUTE, 0, priority, stage, n, seconds);
}

static int backward_order(const struct play *p, uint64_t n)
{
	return gp_order_backward(n % chunks(p), chunks(p), (uint64_t)p->set->window, p->set->ahead);
}

/* --- the client --------------------------------------------------------------------------------------------------- */

static void begin_chunks(struct play *p)
{
	const uint64_t end = (p->step + 1 + (p->set->ahead ? 1 : 0)) * chunks(p);
	while (p->stepping && p->next < end && p->next - p->done < (uint64_t)p->set->window)
		compute(p, GP_AT_HEAD_FORWARD, GP_ORDER_FORWARD, p->next++, p->set->head_forward_s);
}

static void begin_step(struct play *p)
{
	if (p->stepping || p->update_pending || p->batches == 0 || p->step == STEPS)
		return;
	p->batches--;
	p->stepping = true;
	begin_chunks(p);
}

static void load(struct play *p)
{
	gp_sim_submit(&p->sim, LOADER, 0, 0, LOADED, 0, p->set->load_s);
}

/* All chunks are through, and the step before is committed: the update, and COMMIT. */
static void finish_chunks(struct play *p)
{
	const bool measured = !p->set->clips || p->squares;
	if (!p->stepping || p->done < (p->step + 1) * chunks(p) || !p->all_committed || !measured)
		return;
	p->stepping = p->all_committed = p->squares = false;
	p->update_pending = true;
	send_control(p, UP, COMMIT, p->step);
	compute(p, GP_AT_UPDATE, 0, p->step * chunks(p), p->set->update_s);
}

static void walk_step(struct play *p, double end_s)
{
	const struct gp_critical_step step = {
		.begin_ns = ns_of(p->begin_s),
		.end_ns = ns_of(end_s),
		.first = p->step * chunks(p),
		.window = (uint32_t)p->set->window,
		.delay_ns = ns_of((p->set->up.delay_s + p->set->down.delay_s) / 2),
		.told = true,
		.update = {ns_of(p->update.queued_s), ns_of(p->update.begin_s), ns_of(p->update.end_s)},
		.squares_ns = ns_of(p->squares_s),
		.committed_ns = ns_of(p->committed_s),
		.body_update = {ns_of(p->body_update.queued_s), ns_of(p->body_update.begin_s),
				ns_of(p->body_update.end_s)}};
	struct gp_bound_by bound;
	if (!p->path || p->step + STEPS_COUNTED < STEPS)
		return;
	gp_critical_path_walk(p->path, &step, &bound);
	gp_bound_by_add(&p->bound, &bound);
}

static void end_step(struct play *p)
{
	walk_step(p, p->sim.now_s);
	p->end_s[p->step++] = p->begin_s = p->sim.now_s;
	p->squares_s = 0;
	p->update_pending = false;
}

static void end_chunk(struct play *p, uint64_t n)
{
	note_now(p, GP_AT_CHUNK_DONE, n);
	p->done++;
	begin_chunks(p);
	finish_chunks(p);
}

static void begin_head_backward(struct play *p, uint64_t n)
{
	if (p->set->head_backward_s > 0)
		compute(p, GP_AT_HEAD_BACKWARD, backward_order(p, n), n, p->set->head_backward_s);
	else
		end_chunk(p, n);
}

static void tail_done(struct play *p, uint64_t n)
{
	if (p->set->flow[GP_GRAD_UP].crosses)
		encode(p, GP_GRAD_UP, n);
	else
		begin_head_backward(p, n);
}

/* --- the server --------------------------------------------------------------------------------------------------- */

static void begin_forward(struct play *p, uint64_t n)
{
	compute(p, GP_AT_BODY_FORWARD, GP_ORDER_FORWARD, n, p->set->body_forward_s);
}

/* Chunks of the next step wait for COMMIT: the work of those that came before it is queued behind the update. */
static void act_up_decoded(struct play *p, uint64_t n)
{
	if (n / chunks(p) == p->server_step)
		begin_forward(p, n);
	else
		gp_sim_submit(&p->sim, SERVER_COMPUTE, 1, 0, GP_AT_BODY_FORWARD, n, p->set->body_forward_s);
}

static void note_gradients(struct play *p)
{
	if (++p->backwards % chunks(p) == 0 && p->set->clips)
		send_control(p, DOWN, SQUARES, 0);
}

static void body_backward_done(struct play *p, uint64_t n)
{
	note_gradients(p);
	if (p->set->flow[GP_GRAD_DOWN].crosses)
		encode(p, GP_GRAD_DOWN, n);
	else
		send_control(p, DOWN, CHUNK_DONE, n);
}

static void body_forward_done(struct play *p, uint64_t n)
{
	if (!p->set->flow[GP_GRAD_UP].crosses)
		note_gradients(p);
	encode(p, GP_ACT_DOWN, n);
}

/* What came ahead of COMMIT lies in lane 1, which nothing is taken from while its worker has one task at most: it is
 * moved. */
static void commit_arrived(struct play *p)
{
	struct gp_sim_queue *held = &p->sim.worker[SERVER_COMPUTE].lane[1].queue[0];
	p->server_step++;
	compute(p, GP_AT_BODY_UPDATE, 0, 0, p->set->body_update_s);
	for (; held->count > 0; held->count--) {
		begin_forward(p, held->job[held->first].number);
		held->first = (held->first + 1) % p->sim.room;
	}
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static void step_task_done(struct play *p, int what, struct moment m)
{
	if (what == GP_AT_UPDATE) {
		p->update = m;
		end_step(p);
	} else if (what == GP_AT_BODY_UPDATE) {
		p->body_update = m;
		send_control(p, DOWN, COMMITTED, 0);
	} else if (++p->batches < BATCHES_AHEAD) {
		load(p);
	}
}

static void chunk_task_done(struct play *p, enum gp_interval_stage stage, uint64_t n)
{
	switch (stage) {
	case GP_AT_HEAD_FORWARD:
		encode(p, GP_ACT_UP, n);
		break;
	case GP_AT_ACT_UP_ENCODE:
		send_frame(p, GP_ACT_UP, n);
		break;
	case GP_AT_ACT_UP_DECODE:
		act_up_decoded(p, n);
		break;
	case GP_AT_BODY_FORWARD:
		body_forward_done(p, n);
		break;
	case GP_AT_ACT_DOWN_ENCODE:
		send_frame(p, GP_ACT_DOWN, n);
		break;
	case GP_AT_ACT_DOWN_DECODE:
		compute(p, GP_AT_TAIL, GP_ORDER_FIRST, n, p->set->tail_s);
		break;
	case GP_AT_TAIL:
		tail_done(p, n);
		break;
	case GP_AT_GRAD_UP_ENCODE:
		send_frame(p, GP_GRAD_UP, n);
		break;
	case GP_AT_GRAD_UP_DECODE:
		compute(p, GP_AT_BODY_BACKWARD, backward_order(p, n), n, p->set->body_backward_s);
		break;
	case GP_AT_BODY_BACKWARD:
		body_backward_done(p, n);
		break;
	case GP_AT_GRAD_DOWN_ENCODE:
		send_frame(p, GP_GRAD_DOWN, n);
		break;
	case GP_AT_GRAD_DOWN_DECODE:
		begin_head_backward(p, n);
		break;
	default: /* GP_AT_HEAD_BACKWARD */
		end_chunk(p, n);
		break;
	}
}

static void task_done(void *arg, const struct gp_sim_job *job)
{
	struct play *p = arg;
	const struct moment m = {job->queued_s, job->begin_s, p->sim.now_s};
	if (job->what >= GP_AT_CHUNK_STAGES) {
		step_task_done(p, job->what, m);
	} else {
		note(p, (enum gp_interval_stage)job->what, job->number, m);
		chunk_task_done(p, (enum gp_interval_stage)job->what, job->number);
	}
	if (job->what == GP_AT_UPDATE || job->what == LOADED) {
		begin_step(p);
		finish_chunks(p); /* a step whose chunks were all begun, and are through, before */
	}
	if (job->what == GP_AT_UPDATE && p->batches == BATCHES_AHEAD - 1)
		load(p);
}

static void control_arrived(struct play *p, int what, uint64_t n)
{
	if (what == COMMIT) {
		commit_arrived(p);
	} else if (what == COMMITTED) {
		p->all_committed = true;
		p->committed_s = p->sim.now_s;
	} else if (what == SQUARES) {
		p->squares = true;
		p->squares_s = p->sim.now_s;
	} else {
		note_now(p, GP_AT_GRAD_DOWN_RECEIVED, n);
		begin_head_backward(p, n);
	}
	finish_chunks(p);
}

static void frame_arrived(void *arg, int way, const struct gp_sim_job *f)
{
	struct play *p = arg;
	(void)way;
	if (f->what >= GP_AT_STAGES) {
		control_arrived(p, f->what, f->number);
		return;
	}
	note(p, (enum gp_interval_stage)f->what, f->number, (struct moment){f->queued_s, f->begin_s, f->handed_s});
	note_now(p, (enum gp_interval_stage)(f->what + 1), f->number);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		if (encode_stage((enum gp_direction)d) + 1 == (enum gp_interval_stage)f->what)
			decode(p, (enum gp_direction)d, f->number);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static bool is_time(double s)
{
	return s >= 0 && s < 1e9;
}

static enum gp_status check(const struct gp_plan_schedule *s, struct gp_err *err)
{
	bool ok = is_time(s->head_forward_s) && is_time(s->tail_s) && is_time(s->head_backward_s) &&
		  is_time(s->body_forward_s) && is_time(s->body_backward_s) && is_time(s->update_s) &&
		  is_time(s->body_update_s) && is_time(s->load_s) && is_time(s->up.delay_s) &&
		  is_time(s->down.delay_s) && s->up.bytes_per_s >= 0 && s->down.bytes_per_s >= 0 &&
		  s->up.queue_bytes >= 0 && s->down.queue_bytes >= 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		ok = ok && is_time(s->flow[d].encode_s) && is_time(s->flow[d].decode_s) && s->flow[d].wire_bytes >= 0 &&
		     s->flow[d].wire_bytes < 1e15;
	for (int e = 0; e < GP_PLAN_ENDS; e++)
		ok = ok && s->end[e].processors >= 0 && s->end[e].threads > 0 && s->end[e].codec_threads > 0 &&
		     s->end[e].byte_s >= 0 && s->end[e].byte_s < BYTE_S_MOST;
	ok = ok && (s->kernel_bytes == 0 || s->kernel_bytes >= BYTES_LEAST) &&
	     (s->segment_bytes == 0 || s->segment_bytes >= BYTES_LEAST);
	if (!ok || s->chunks < 1 || s->chunks > CHUNKS_MOST || s->window < 1)
		GP_FAIL(err, GP_INVALID, "a step of %d chunks with these times cannot be predicted", s->chunks);
	return GP_OK;
}

static int lesser(int a, int b)
{
	return a < b ? a : b;
}

static void set_workers(struct play *p)
{
	const struct gp_plan_side *client = &p->set->end[GP_PLAN_CLIENT], *server = &p->set->end[GP_PLAN_SERVER];
	const int pool = p->set->same_machine ? 0 : 1;
	struct gp_sim_worker *w = p->sim.worker;
	w[CLIENT_COMPUTE] = (struct gp_sim_worker){.pool = 0, .threads = client->threads, .most = 1, .lanes = 1};
	w[CLIENT_CODEC] = (struct gp_sim_worker){
		.pool = 0, .threads = 1, .most = lesser(client->codec_threads, GP_DIRECTIONS), .lanes = GP_DIRECTIONS};
	w[SERVER_COMPUTE] = (struct gp_sim_worker){.pool = pool, .threads = server->threads, .most = 1, .lanes = 2};
	w[SERVER_CODEC] = (struct gp_sim_worker){.pool = pool,
						 .threads = 1,
						 .most = lesser(server->codec_threads, GP_DIRECTIONS),
						 .lanes = GP_DIRECTIONS};
	w[LOADER] = (struct gp_sim_worker){.pool = 0, .threads = 1, .most = 1, .lanes = 1};
	w[SERVER_COMPUTE].lane[1].busy = true; /* holds what waits for COMMIT */
	p->sim.mover[GP_PLAN_CLIENT] = (struct gp_sim_mover){.pool = 0, .byte_s = client->byte_s};
	p->sim.mover[GP_PLAN_SERVER] = (struct gp_sim_mover){.pool = pool, .byte_s = server->byte_s};
	p->sim.processors[0] = client->processors;
	p->sim.processors[1] = server->processors;
}

static struct gp_sim_way way_of(const struct gp_plan_schedule *s, const struct gp_plan_way *w, double segment_bytes)
{
	const uint32_t ahead = gp_send_ahead_at(w->bytes_per_s);
	return (struct gp_sim_way){.bytes_per_s = w->bytes_per_s,
				   .delay_s = w->delay_s,
				   .queue_bytes = w->queue_bytes,
				   .kernel_bytes = s->kernel_bytes > 0 ? s->kernel_bytes : ahead,
				   .writes_most = gp_send_ahead_writes(ahead, (uint32_t)segment_bytes)};
}

static void set_up(struct play *p)
{
	const struct gp_plan_schedule *s = p->set;
	set_workers(p);
	p->sim.room = 4 * (uint32_t)s->chunks + 8;
	p->sim.segments = 4 * p->sim.room + 64;
	p->sim.segment_bytes = s->segment_bytes > 0 ? s->segment_bytes : GP_SEGMENT_BYTES_SERVED;
	p->sim.way[UP] = way_of(s, &s->up, p->sim.segment_bytes);
	p->sim.way[DOWN] = way_of(s, &s->down, p->sim.segment_bytes);
	p->sim.done = task_done;
	p->sim.arrived = frame_arrived;
	p->sim.arg = p;
	p->all_committed = true;
}

static enum gp_status run(struct play *p, struct gp_err *err)
{
	GP_TRY(gp_sim_init(&p->sim, err));
	load(p);
	while (p->step < STEPS)
		if (!gp_sim_next(&p->sim))
			GP_FAIL(err, GP_INTERNAL, "the simulated step stands still");
	return GP_OK;
}

/* Sums of the counted steps become those of one. */
static void average(const struct play *p, struct gp_plan_time *out)
{
	*out = (struct gp_plan_time){.time_per_batch_s = (p->end_s[STEPS - 1] - p->end_s[STEPS - 1 - STEPS_COUNTED]) /
							 STEPS_COUNTED,
				     .bound = {.steps = p->path ? 1 : 0}};
	for (int b = 0; p->path && b < GP_BOUND_COUNT; b++)
		out->bound.ns[b] = p->bound.ns[b] / STEPS_COUNTED;
}

static enum gp_status find_once(const struct gp_plan_schedule *set, struct gp_plan_time *out, struct gp_err *err)
{
	struct play p = {.set = set};
	if (set->chunks <= GP_CRITICAL_CHUNKS_MAX)
		GP_TRY(gp_critical_path_new((uint32_t)set->chunks, &p.path, err));
	set_up(&p);
	const enum gp_status status = run(&p, err);
	if (status == GP_OK)
		average(&p, out);
	gp_sim_deinit(&p.sim);
	gp_critical_path_free(p.path);
	return status;
}

/* A queue on the way is now empty and now full, and a chunk that just misses its turn waits for a whole other one:
 * the mean of
 * several fillings is nearer to the truth than any of them. */
static enum gp_status find_with_queues(const struct gp_plan_schedule *s, struct gp_plan_time *out, struct gp_err *err)
{
	struct gp_plan_time sum = {0};
	for (int i = 0; i < FILLINGS; i++) {
		struct gp_plan_schedule set = *s;
		struct gp_plan_time t;
		set.up.queue_bytes = s->up.queue_bytes * i / (FILLINGS - 1);
		set.down.queue_bytes = s->down.queue_bytes * i / (FILLINGS - 1);
		GP_TRY(find_once(&set, &t, err));
		sum.time_per_batch_s += t.time_per_batch_s / FILLINGS;
		gp_bound_by_add(&sum.bound, &t.bound);
	}
	for (int b = 0; b < GP_BOUND_COUNT; b++)
		sum.bound.ns[b] /= FILLINGS;
	sum.bound.steps = sum.bound.steps > 0 ? 1 : 0;
	*out = sum;
	return GP_OK;
}

enum gp_status gp_plan_schedule_find(const struct gp_plan_schedule *s, struct gp_plan_time *out, struct gp_err *err)
{
	struct gp_plan_schedule set = *s;
	GP_TRY(check(s, err));
	set.window = lesser(set.window, set.chunks);
	const bool queues = s->up.queue_bytes > 0 || s->down.queue_bytes > 0;
	return queues ? find_with_queues(&set, out, err) : find_once(&set, out, err);
}

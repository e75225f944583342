/* SPDX-License-Identifier: Apache-2.0
 *
 * How the body of a session is made and freed: what it will need, where it is
 * placed, its memory and its plan. See body.h; what it does between is in
 * body.c. Test: tests/unit/test_server.c, tests/unit/test_body.c
 */
#include "server/body_impl.h"

#include "common/graph/clip.h"
#include "common/wire/control.h"

/* Where activations and gradients lie: NULL for the host. Rows of chunks that have fewer positions are gathered there. */
static const struct gp_codec_device *tensor_device(const struct gp_body *b)
{
	if (b->spec.session.lengths)
		return NULL;
	return b->dev->ops->codec_device ? b->dev->ops->codec_device(b->dev) : NULL;
}

struct gp_plan_spec gp_body_plan_spec(const struct gp_body *b)
{
	const struct gp_body_spec *spec = &b->spec;
	struct gp_plan_spec ps = {.graph = b->graph,
				  .batch = spec->session.chunk_samples,
				  .slots = spec->session.window,
				  .train = !spec->session.eval_only,
				  .calibrate = spec->session.calibrates,
				  .recompute = spec->session.recompute,
				  .maps = gp_session_maps(&b->spec.session),
				  .map_inputs = ~spec->session.data_inputs,
				  .grad_inputs = b->grad_inputs,
				  .seed = spec->session.seed,
				  .optim = spec->session.optim,
				  .decays = &b->spec.session.decays,
				  .undo = spec->session.undo,
				  .precision = spec->session.precision,
				  .params_given = spec->weights > 0 || spec->restore_step > 0,
				  .device_io = tensor_device(b) != NULL,
				  .stop = &b->stop};
	gp_session_coded(&b->spec.session, &ps);
	return ps;
}

static uint64_t squares_bytes(const struct gp_body_spec *spec)
{
	bool needed = spec->session.optim.clip_norm > 0.0 && !spec->session.eval_only;
	return needed ? (uint64_t)spec->graph->params * sizeof(double) : 0;
}

static uint64_t rows_bytes(const struct gp_body_spec *spec)
{
	return spec->session.lengths ? (uint64_t)spec->session.chunk_samples * sizeof(uint32_t) : 0;
}

/* What the body has besides plan and flows. */
static uint64_t own_bytes(const struct gp_body_spec *spec)
{
	return sizeof(struct gp_body) + gp_graph_bytes(spec->graph) +
	       (uint64_t)spec->session.window * (sizeof(struct body_slot) + rows_bytes(spec)) +
	       gp_body_staging_bytes(spec) + squares_bytes(spec) + gp_body_checkpoint_bytes(spec) +
	       gp_body_rank_bytes(spec);
}

static struct gp_flow_options flow_options(const struct gp_body *b)
{
	const struct gp_body_spec *spec = &b->spec;
	return (struct gp_flow_options){.seed = spec->session.seed,
					.slots = spec->session.window,
					.chunks = (uint32_t)spec->session.chunks,
					.undo = spec->session.undo && !spec->session.eval_only,
					.device = tensor_device(b),
					.slow = b->slow_codec,
					.stop = &b->stop};
}

static struct gp_body_need plan_need(const struct gp_body *b, const struct gp_plan_memory *memory)
{
	if (!b->dev->ops->memory)
		return (struct gp_body_need){.host = memory->total};
	return (struct gp_body_need){.host = memory->host, .device = memory->total};
}

/* A codec decides by itself what it has on the device and what on the host, so its bytes count in both accounts. */
static enum gp_status add_flows(struct gp_body *b, const struct gp_flow_list *list, struct gp_body_need *need,
				struct gp_err *err)
{
	const struct gp_flow_options all = flow_options(b);
	uint64_t frames, codecs;
	GP_TRY(gp_flows_estimate(list, &all, &frames, &codecs, err));
	const uint64_t copy = b->spec.state ? codecs : 0;
	if (!gp_add_ok(need->host, frames, &need->host) || !gp_add_ok(need->host, codecs, &need->host) ||
	    !gp_add_ok(need->host, copy, &need->host) ||
	    !gp_add_ok(need->device, all.device ? codecs : 0, &need->device))
		GP_FAIL(err, GP_INVALID, "the session's memory overflows");
	return GP_OK;
}

/* How long a codec holds its thread is settled before it begins, too. */
static enum gp_status check_codecs(const struct gp_body *b, const struct gp_flow_list *list, struct gp_err *err)
{
	const struct gp_flow_options all = flow_options(b);
	const double limit = b->spec.task_limit_s;
	for (int i = 0; limit > 0.0 && i < list->count; i++) {
		const struct gp_flow_spec *f = &list->flow[i];
		const struct gp_direction_info *d = &gp_direction_info[f->direction];
		uint64_t ns;
		GP_TRY(gp_flow_work(f, &all, &ns, err));
		if ((double)ns * 1e-9 > limit)
			GP_FAIL(err, GP_INVALID,
				"open: to %s %s of one chunk by %s%s may take %.3g s, and this server allows %.3g s "
				"(--task-time); use more --chunks, or a codec that computes less",
				d->up ? "decode" : "encode", d->name, f->codec->text,
				f->ladder ? ", and to try the other codecs that it may change to," : "",
				(double)ns * 1e-9, limit);
	}
	return GP_OK;
}

/* Each account has room for any of the ranks, and of the precisions where they are tried. */
static void raise_to(struct gp_body_need *most, const struct gp_body_need *need)
{
	most->host = need->host > most->host ? need->host : most->host;
	most->device = need->device > most->device ? need->device : most->device;
}

static enum gp_status add_plan(struct gp_body *b, const struct gp_plan_spec *spec, struct gp_body_need *most,
			       struct gp_err *err)
{
	struct gp_plan_memory memory;
	GP_TRY(b->dev->ops->plan_estimate(b->dev, spec, &memory, err));
	const struct gp_body_need need = plan_need(b, &memory);
	raise_to(most, &need);
	return GP_OK;
}

/* The plan, in any precision that it may get; before it, none is there but that of a trial. */
static enum gp_status estimate_plans(struct gp_body *b, struct gp_body_need *most, struct gp_err *err)
{
	struct gp_plan_spec spec = gp_body_plan_spec(b);
	if (!b->spec.session.choose_precision)
		return add_plan(b, &spec, most, err);
	for (int p = GP_PRECISION_FP32; p < GP_PRECISIONS; p = gp_precision_next(b->dev, p + 1)) {
		const struct gp_plan_spec trial = gp_precision_trial_spec(&spec, (enum gp_precision)p);
		spec.precision = (enum gp_precision)p;
		GP_TRY(add_plan(b, &spec, most, err));
		GP_TRY(add_plan(b, &trial, most, err));
	}
	return GP_OK;
}

static enum gp_status estimate_with(struct gp_body *b, struct gp_flow_list *list, struct gp_err *err)
{
	const struct gp_body_spec *spec = &b->spec;
	struct gp_body_need need = {0};
	GP_TRY(gp_flow_list_find(b->graph, &spec->session, list, err));
	b->grad_inputs = list->grad_inputs;
	GP_TRY(check_codecs(b, list, err));
	GP_TRY(estimate_plans(b, &need, err));
	raise_to(&b->plan_need, &need);
	GP_TRY(add_flows(b, list, &need, err));
	if (!gp_add_ok(need.host, own_bytes(spec), &need.host))
		GP_FAIL(err, GP_INVALID, "the session's memory overflows");
	raise_to(&b->need, &need);
	return GP_OK;
}

/* The list of flows is large, and nobody needs it but this and init_flows. */
static enum gp_status with_list(struct gp_body *b,
				enum gp_status (*fn)(struct gp_body *, struct gp_flow_list *, struct gp_err *),
				struct gp_err *err)
{
	struct gp_flow_list *list;
	GP_TRY(gp_alloc_array((void **)&list, 1, sizeof *list, err));
	const enum gp_status status = fn(b, list, err);
	gp_free(list);
	return status;
}

static enum gp_status estimate_now(struct gp_body *b, struct gp_err *err)
{
	return with_list(b, estimate_with, err);
}

static void run_estimate(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	task->status = gp_body_check_stop(b, &task->err);
	if (task->status == GP_OK)
		task->status = gp_body_estimate_ranks(b, estimate_now, &task->err);
}

enum gp_status gp_body_check_plan(struct gp_body *b, struct gp_err *err)
{
	struct gp_plan_memory memory;
	b->dev->ops->plan_memory(b->plan, &memory);
	const struct gp_body_need taken = plan_need(b, &memory);
	if (taken.host > b->plan_need.host || taken.device > b->plan_need.device)
		GP_FAIL(err, GP_INTERNAL, "the plan takes %llu and %llu bytes, not the %llu and %llu estimated",
			(unsigned long long)taken.host, (unsigned long long)taken.device,
			(unsigned long long)b->plan_need.host, (unsigned long long)b->plan_need.device);
	return GP_OK;
}

/* Pinning memory takes long, so this does not run on the loop's thread. */
static enum gp_status init_flows(struct gp_body *b, struct gp_flow_list *list, struct gp_err *err)
{
	struct gp_flow_options all = flow_options(b);
	all.share = &b->share;
	GP_TRY(gp_flow_list_find(b->graph, &b->spec.session, list, err));
	return gp_flows_init(&b->flows, list, &all, b->codec, b, err);
}

static enum gp_status reshape_flows(struct gp_body *b, struct gp_flow_list *list, struct gp_err *err)
{
	const struct gp_flow_options all = flow_options(b);
	GP_TRY(gp_flow_list_find(b->graph, &b->spec.session, list, err));
	return gp_flows_reshape(&b->flows, list, &all, err);
}

enum gp_status gp_body_reshape_flows(struct gp_body *b, struct gp_err *err)
{
	return with_list(b, reshape_flows, err);
}

static enum gp_status build(struct gp_body *b, struct gp_err *err)
{
	const struct gp_plan_spec ps = gp_body_plan_spec(b);
	GP_TRY(gp_body_check_stop(b, err));
	GP_TRY(with_list(b, init_flows, err));
	b->ahead = b->spec.session.decays.count == 0 && gp_flows_ahead(&b->flows, &b->spec.session);
	GP_TRY(gp_body_check_stop(b, err));
	GP_TRY(b->dev->ops->plan_new(b->dev, &ps, &b->plan, err));
	GP_TRY(gp_body_check_plan(b, err));
	GP_TRY(gp_body_list_parts(b, err));
	return b->spec.restore_step > 0 ? gp_body_restore(b, err) : GP_OK;
}

static void run_build(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	task->status = build(b, &task->err);
}

static void build_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	b->built = true;
	if (!gp_body_task_ok(b, task))
		return;
	gp_body_account_flows(b);
	if (b->spec.weights > 0)
		return;
	b->ready = true;
	b->cbs.ready(b->arg);
}

static enum gp_status init_squares(struct gp_body *b, struct gp_err *err)
{
	uint64_t bytes = squares_bytes(&b->spec);
	if (bytes == 0)
		return GP_OK;
	b->squares = gp_calloc(bytes, 1);
	if (!b->squares)
		GP_FAIL(err, GP_NOMEM, "out of memory for a session");
	return GP_OK;
}

/* What the channel sends in a step besides frames: COMMITTED, and GRAD_SQUARES where there is one. */
uint32_t gp_body_message_bytes(const struct gp_body *b)
{
	const uint32_t squares = GP_CONTROL_SQUARES_BYTES(b->squares ? gp_clip_sums(b->spec.graph) : 0);
	uint32_t most = squares;
	if (b->spec.intervals && most < GP_CONTROL_INTERVALS_BYTES)
		most = GP_CONTROL_INTERVALS_BYTES;
	if (gp_session_has_ladder(&b->spec.session) && most < GP_CONTROL_COMMITTED_BYTES)
		most = GP_CONTROL_COMMITTED_BYTES;
	return most;
}

static enum gp_status init_slots(struct gp_body *b, struct gp_err *err)
{
	b->slot = gp_calloc((size_t)b->spec.session.window, sizeof *b->slot);
	if (!b->slot)
		GP_FAIL(err, GP_NOMEM, "out of memory for a session");
	for (int i = 0; i < b->spec.session.window; i++) {
		b->slot[i].body = b;
		b->slot[i].index = i;
		b->slot[i].compute.arg = &b->slot[i];
		if (!b->spec.session.lengths)
			continue;
		b->slot[i].rows = gp_calloc((size_t)b->spec.session.chunk_samples, sizeof *b->slot[i].rows);
		if (!b->slot[i].rows)
			GP_FAIL(err, GP_NOMEM, "out of memory for a session");
	}
	return GP_OK;
}

/* Memory is taken only now that the owner has agreed to all of it; most of it by `build`. */
static enum gp_status take_memory(struct gp_body *b, struct gp_err *err)
{
	GP_TRY(init_slots(b, err));
	GP_TRY(init_squares(b, err));
	gp_body_reset_chunks(b);
	return gp_channel_reserve_control(b->ch, gp_body_message_bytes(b), err);
}

static void estimate_done(struct gp_task *task);

static void submit_estimate(struct gp_body *b)
{
	b->build = (struct gp_task){.run = run_estimate, .done = estimate_done, .arg = b};
	gp_worker_submit(&b->build_lane, &b->build, 0);
}

static void begin_estimates(struct gp_body *b)
{
	b->plan_need = b->need = (struct gp_body_need){0};
	b->estimated_step = b->step;
	submit_estimate(b);
}

/* Before anything is set aside for a run that cannot go on from there. */
static void restore_checked(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	if (gp_body_task_ok(b, task))
		begin_estimates(b);
}

static void enter_site(struct gp_body *b, const struct gp_body_site *at)
{
	b->at = *at;
	b->dev = at->dev;
	b->spec.session.lengths = b->asks_lengths && b->dev->ops->set_length;
	b->computing = (struct gp_lane_user){.share = &b->share};
	gp_lane_init(&b->compute, at->compute, &b->computing);
}

/* Nothing has been computed yet. */
static void move_to(struct gp_body *b, const struct gp_body_site *at)
{
	gp_lane_deinit(&b->compute);
	gp_share_move(&b->share, at->compute);
	enter_site(b, at);
	begin_estimates(b);
}

static void begin_build(struct gp_body *b)
{
	b->build = (struct gp_task){.run = run_build, .done = build_done, .arg = b};
	gp_worker_submit(&b->build_lane, &b->build, 0);
	b->planning = true;
	gp_body_params_submit(b);
}

static void estimate_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	struct gp_body_site at = b->at;
	struct gp_err err;
	if (!gp_body_task_ok(b, task))
		return;
	if (gp_body_next_ranks(b)) {
		submit_estimate(b);
		return;
	}
	enum gp_status status = b->cbs.estimated(b->arg, &b->need, &at, &err);
	if (status == GP_OK && at.dev != b->dev) {
		move_to(b, &at);
		return;
	}
	if (status == GP_OK)
		status = take_memory(b, &err);
	if (status != GP_OK) {
		gp_body_fail(b, status, &err);
		return;
	}
	gp_body_choose_precision(b, begin_build);
}

enum gp_status gp_body_new(const struct gp_body_site *at, const struct gp_body_workers *workers, struct gp_channel *ch,
			   const struct gp_body_spec *spec, const struct gp_body_cbs *cbs, void *arg,
			   struct gp_body **out, struct gp_err *err)
{
	struct gp_body *b = gp_calloc(1, sizeof *b);
	if (!b) {
		gp_graph_free(spec->graph);
		GP_FAIL(err, GP_NOMEM, "out of memory for a session");
	}
	b->ch = ch;
	b->spec = *spec;
	b->asks_lengths = spec->session.lengths;
	b->cbs = *cbs;
	b->arg = arg;
	b->codec = workers->codec;
	b->slow_codec = workers->slow_codec;
	gp_lane_init(&b->build_lane, workers->build, NULL);
	gp_share_init(&b->share, at->compute, spec->share > 0.0 ? spec->share : 1.0);
	enter_site(b, at);
	if (spec->state)
		gp_lane_init(&b->checkpoint.lane, workers->disk, NULL);
	b->step = b->checkpoint.step = spec->restore_step;
	enum gp_status status = gp_body_first_graph(b, err);
	if (status == GP_OK)
		status = gp_body_params_init(b, err);
	if (status != GP_OK) {
		gp_body_free(b);
		return status;
	}
	if (spec->restore_step > 0)
		gp_body_check_restore(b, restore_checked);
	else
		begin_estimates(b);
	*out = b;
	return GP_OK;
}

void gp_body_stop(struct gp_body *b)
{
	b->stopping = true;
	gp_stop_set(&b->stop);
	if (b->built)
		gp_flows_cancel(&b->flows);
}

enum gp_status gp_body_check_stop(const struct gp_body *b, struct gp_err *err)
{
	if (gp_stop_is_set(&b->stop))
		GP_FAIL(err, GP_CANCELED, "the session has ended");
	return GP_OK;
}

/* An estimate is rough, and the thread may have others to serve. */
#define OVERRUN 10.0

static double pass_s(uint64_t computing_ns, uint64_t since_ns, uint64_t now_ns)
{
	const uint64_t begin = computing_ns > since_ns ? computing_ns : since_ns;
	return computing_ns > 0 && now_ns > begin ? (double)(now_ns - begin) * 1e-9 : 0.0;
}

static bool is_overrun(const struct gp_body *b, double seconds)
{
	return seconds > b->spec.task_limit_s && seconds > OVERRUN * b->spec.task_s;
}

static double device_overrun_s(const struct gp_body *b, uint64_t since_ns, uint64_t now_ns)
{
	const double trial_s = pass_s(atomic_load(&b->trying_ns), since_ns, now_ns);
	if (is_overrun(b, trial_s))
		return trial_s;
	for (int i = 0; b->slot && i < b->spec.session.window; i++) {
		const double seconds = pass_s(atomic_load(&b->slot[i].computing_ns), since_ns, now_ns);
		if (is_overrun(b, seconds))
			return seconds;
	}
	return 0.0;
}

struct gp_body_overrun gp_body_overrun(const struct gp_body *b, uint64_t since_ns, uint64_t now_ns)
{
	struct gp_body_overrun o = {.what = "a pass over a chunk"};
	const struct gp_flow *flow;
	if (b->spec.task_limit_s <= 0.0)
		return o;
	o.seconds = device_overrun_s(b, since_ns, now_ns);
	if (o.seconds > 0.0 || !b->built)
		return o;
	o.seconds = gp_flows_overrun_s(&b->flows, OVERRUN, b->spec.task_limit_s, since_ns, now_ns, &flow);
	if (o.seconds > 0.0)
		snprintf(o.what, sizeof o.what, "the codec of %s", gp_direction_info[flow->direction].name);
	return o;
}

void gp_body_set_share(struct gp_body *b, double share)
{
	gp_share_set_weight(&b->share, share);
}

uint64_t gp_body_share_used(const struct gp_body *b)
{
	return gp_share_used(&b->share);
}

void gp_body_share_follow(struct gp_body *b, uint64_t used_ns)
{
	gp_share_follow(&b->share, used_ns);
}

struct gp_body_time gp_body_time_used(const struct gp_body *b)
{
	const uint64_t device_ns = atomic_load(&b->computing.total_ns);
	return (struct gp_body_time){device_ns, b->built ? gp_flows_codec_ns(&b->flows) : 0};
}

bool gp_body_takes_lengths(const struct gp_body *b)
{
	return b->spec.session.lengths;
}

bool gp_body_busy(const struct gp_body *b)
{
	int pending = b->build_lane.pending + b->compute.pending;
	if (b->built)
		pending += gp_flows_pending(&b->flows);
	return pending + b->checkpoint.lane.pending > 0;
}

bool gp_body_awaits_client(const struct gp_body *b)
{
	int sending = 0;
	for (int k = GP_CLASS_URGENT; b->ch && k < GP_CLASS_COUNT; k++)
		sending += gp_channel_backlog(b->ch, (enum gp_class)k);
	return sending > 0 || b->fetching || gp_body_in_step(b);
}

int gp_body_chunks_queued(const struct gp_body *b)
{
	int queued = 0;
	for (int i = 0; b->slot && i < b->spec.session.window; i++)
		queued += b->slot[i].state != SLOT_EMPTY && b->slot[i].state != SLOT_WAITING;
	return queued;
}

bool gp_body_between_steps(const struct gp_body *b)
{
	return !b->optim_pending && !gp_body_awaits_client(b);
}

uint64_t gp_body_steps(const struct gp_body *b)
{
	return b->step;
}

uint64_t gp_body_gains(const struct gp_body *b)
{
	return b->step + b->evaluated;
}

static void free_large(struct gp_body *b)
{
	if (b->plan)
		b->dev->ops->plan_free(b->plan);
	b->plan = NULL;
	gp_precision_probe_end(&b->choice.probe); /* it may have ended within a trial */
	gp_flows_deinit(&b->flows);
}

static void run_release(struct gp_task *task)
{
	free_large(task->arg);
}

static void release_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	b->cbs.idle(b->arg);
}

bool gp_body_release(struct gp_body *b)
{
	gp_require(b->stopping && !gp_body_busy(b));
	if (!b->built && !b->choice.probe.plan)
		return false;
	b->built = false; /* `flows` is that task's */
	b->build = (struct gp_task){.run = run_release, .done = release_done, .arg = b};
	gp_worker_submit(&b->build_lane, &b->build, 0);
	return true;
}

void gp_body_free(struct gp_body *b)
{
	if (!b)
		return;
	gp_require(!gp_body_busy(b));
	free_large(b);
	gp_lane_deinit(&b->build_lane);
	gp_lane_deinit(&b->compute);
	if (b->spec.state)
		gp_lane_deinit(&b->checkpoint.lane);
	gp_body_params_deinit(b);
	for (int i = 0; b->slot && i < b->spec.session.window; i++)
		gp_free(b->slot[i].rows);
	gp_free(b->slot);
	gp_free(b->checkpoint.part);
	gp_free(b->squares);
	gp_body_free_graphs(b);
	gp_free(b);
}

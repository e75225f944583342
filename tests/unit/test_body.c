/* SPDX-License-Identifier: Apache-2.0
 *
 * A body (server/body.h) whose link breaks at every place of a step and comes
 * back on another channel: the step done again has the frames of one that was
 * never disturbed, and so has all after it. A client of codecs alone is the
 * other end; the link is memory. Where the build emulates GPUs, all of it once
 * more with codecs that work in a GPU's memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/codec/codec_device.h"
#include "common/base/rng.h"
#include "kernels/cpu/plan/cpu_device.h"
#ifdef GP_CUDA_DEVICE
#include "kernels/cuda/codec/cuda_codec.h"
#endif
#include "server/body_impl.h"
#include "kernels/device_registry.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_linear.h"

enum { SAMPLES = 2, CHUNKS = 3, WINDOW = 2, STEPS = 3, OTHER_DATA = 1000, DEADLINE_S = 60, TRACE_BYTES = 1 << 18 };
#define SESSION 77u

/* One memory of each kind, on both ends. */
static const char *const codecs[GP_DIRECTIONS] = {
	"delta:samples=12+uniform:bits=4",
	"ef+topk:ratio=0.3+alq:bits=3,update=2",
	"topk:ratio=0.3+uniform:bits=6",
	"ef+poweriter:rank=2,iters=2+uniform:bits=8",
};

#define OK(expr)                                                                                                       \
	do {                                                                                                           \
		if ((expr) != GP_OK)                                                                                   \
			fail_msg("%s", err.text);                                                                      \
	} while (0)

/* The memory of an emulated GPU, in which a CPU's plan can work, too. */
static struct gp_codec_device card_memory;
static bool on_card;

static const struct gp_codec_device *codec_memory(struct gp_device *dev)
{
	(void)dev;
	return &card_memory;
}

static bool can_emulate(void)
{
#ifdef GP_CUDA_DEVICE
	if (gp_rt_is_emulated()) {
		gp_rt_one_memory();
		gp_cuda_codec_device(1, &card_memory);
	}
#endif
	return card_memory.ops != NULL;
}

static void open_device(struct gp_device **dev)
{
	static struct gp_device_ops ops;
	struct gp_err err;
	OK(gp_device_open("cpu", 1, dev, &err));
	ops = gp_cpu_device_ops;
	ops.codec_device = codec_memory;
	if (on_card)
		(*dev)->ops = &ops;
}

struct rig {
	uv_loop_t loop;
	struct gp_device *dev;
	struct gp_worker *compute, *codec;
	struct gp_body *body;
	struct gp_channel *ch[2]; /* server, client */
	int closed;
	bool linked;
	/* what the body reported */
	int ready, committed, params_sent, idle;
	/* the client */
	struct gp_flows flows;
	float *tensor[GP_DIRECTIONS][WINDOW];
	uint32_t sample[SAMPLES];
	int answers, params;
	bool trace_on;
	uint8_t *trace; /* payloads of every frame, in order */
	size_t traced;
};

static struct gp_flow *flow_of(struct rig *r, int d)
{
	return &r->flows.flow[d][0];
}

/* --- the two ends ------------------------------------------------------------------------------------------------ */

static void on_opened(void *arg)
{
	(void)arg;
}

static enum gp_status on_control(void *arg, struct gp_span msg, struct gp_err *err)
{
	(void)arg;
	(void)msg;
	GP_FAIL(err, GP_PROTO, "no message is sent here");
}

static void on_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct rig *r = arg;
	if (r->linked)
		fail_msg("the channel ended with status %d: %s", (int)status, err->text);
}

static enum gp_status server_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
				   struct gp_err *err)
{
	return gp_body_frame_begin(((struct rig *)arg)->body, head, out, err);
}

static enum gp_status server_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	(void)err;
	gp_body_frame(((struct rig *)arg)->body, f);
	return GP_OK;
}

static void server_sent(void *arg, struct gp_frame *f)
{
	gp_body_frame_sent(((struct rig *)arg)->body, f);
}

static void note(struct rig *r, const struct gp_frame *f)
{
	if (!r->trace_on)
		return;
	assert_true(r->traced + f->head.payload_len <= TRACE_BYTES);
	memcpy(r->trace + r->traced, f->payload, (size_t)f->head.payload_len);
	r->traced += (size_t)f->head.payload_len;
}

static enum gp_status client_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
				   struct gp_err *err)
{
	struct rig *r = arg;
	if (head->session != SESSION)
		GP_FAIL(err, GP_PROTO, "a frame of session %llu", (unsigned long long)head->session);
	if (head->type == GP_FRAME_PARAM_DOWN) {
		struct gp_frame *f = gp_calloc(1, sizeof *f);
		f->cap = (size_t)head->payload_len;
		f->payload = gp_calloc(1, f->cap);
		*out = f;
		return GP_OK;
	}
	struct gp_transfer *t;
	const bool eval = head->flags & GP_FRAME_FLAG_EVAL;
	const uint64_t number = eval ? head->chunk : head->step * CHUNKS + head->chunk;
	GP_TRY(gp_flows_take(&r->flows, head, (int)(number % WINDOW), &t, err));
	*out = &t->frame;
	return GP_OK;
}

static void free_param(struct gp_frame *f)
{
	gp_free(f->payload);
	gp_free(f);
}

static void client_decoded(struct gp_transfer *t)
{
	struct rig *r = t->arg;
	assert_int_equal(t->task.status, GP_OK);
	r->answers++;
}

static enum gp_status client_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	struct rig *r = arg;
	(void)err;
	if (f->head.type == GP_FRAME_PARAM_DOWN) {
		r->params++;
		free_param(f);
		return GP_OK;
	}
	note(r, f);
	struct gp_transfer *t = gp_transfer_of(f);
	gp_transfer_decode(t, r->tensor[t->flow->direction][t->slot], client_decoded);
	return GP_OK;
}

static void client_sent(void *arg, struct gp_frame *f)
{
	(void)arg;
	gp_transfer_sent(gp_transfer_of(f));
}

static void body_ready(void *arg)
{
	((struct rig *)arg)->ready++;
}

static void body_failed(void *arg, enum gp_status status, struct gp_err *err)
{
	(void)arg;
	fail_msg("the body failed with status %d: %s", (int)status, err->text);
}

static void body_committed(void *arg, uint64_t step)
{
	(void)step;
	((struct rig *)arg)->committed++;
}

static void body_params_sent(void *arg, uint32_t count)
{
	(void)count;
	((struct rig *)arg)->params_sent++;
}

static void body_idle(void *arg)
{
	((struct rig *)arg)->idle++;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

static void turn_until(struct rig *r, const int *counter, int value)
{
	const uint64_t begin = gp_now_ns();
	while (*counter < value) {
		uv_run(&r->loop, UV_RUN_ONCE);
		if (gp_now_ns() - begin > DEADLINE_S * UINT64_C(1000000000))
			fail_msg("nothing happened for a minute");
	}
}

static void connect_ends(struct rig *r)
{
	static const struct gp_channel_cbs cbs[2] = {
		{.frame_begin = server_begin, .frame = server_frame, .sent = server_sent},
		{.frame_begin = client_begin, .frame = client_frame, .sent = client_sent}};
	struct gp_conn *conn[2];
	struct gp_err err;
	r->linked = true;
	r->closed = 0;
	OK(gp_mem_pair(&r->loop, 0, &conn[0], &conn[1], &err));
	for (int i = 0; i < 2; i++) {
		struct gp_channel_cbs c = cbs[i];
		c.opened = on_opened;
		c.control = on_control;
		c.ended = on_ended;
		OK(gp_channel_new(&r->loop, conn[i], NULL, &c, r, &r->ch[i], &err));
	}
}

static struct gp_graph *build_graph(void)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {6, 5, 4}};
	struct gp_err err;
	struct gp_graph *g = gp_graph_new("body", &sample, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	int x = gp_graph_conv(g, "conv", 0, 8, 3, 1, 1, 1, true, &err);
	x = gp_graph_batch_norm(g, "bn", x, 1e-5f, 0.1f, &err);
	x = gp_graph_dropout(g, "drop", x, 0.2f, &err);
	assert_true(gp_graph_conv(g, "narrow", x, 6, 1, 1, 0, 1, true, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static struct gp_body_spec body_spec(void)
{
	struct gp_err err;
	struct gp_body_spec s = {.graph = build_graph(),
				 .session.optim = {.kind = GP_OPTIM_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f},
				 .id = SESSION,
				 .session.seed = 3,
				 .session.chunk_samples = SAMPLES,
				 .session.window = WINDOW,
				 .session.chunks = CHUNKS,
				 .session.calibrates = true,
				 .session.undo = true};
	for (int d = 0; d < GP_DIRECTIONS; d++)
		OK(gp_codec_spec_parse(codecs[d], &s.session.codec[d], &err));
	return s;
}

static void make_client(struct rig *r, const struct gp_body_spec *s)
{
	const struct gp_flow_options all = {
		.seed = s->session.seed, .slots = WINDOW, .chunks = CHUNKS, .undo = true, .client = true};
	struct gp_flow_list *list = gp_calloc(1, sizeof *list);
	struct gp_err err;
	OK(gp_flow_list_find(s->graph, &s->session, list, &err));
	assert_int_equal(list->count, GP_DIRECTIONS);
	OK(gp_flows_init(&r->flows, list, &all, r->codec, r, &err));
	gp_free(list);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		for (int i = 0; i < WINDOW; i++) {
			r->tensor[d][i] = gp_calloc((size_t)flow_of(r, d)->tensor_bytes, 1);
			assert_non_null(r->tensor[d][i]);
		}
}

static enum gp_status body_estimated(void *arg, const struct gp_body_need *need, struct gp_body_site *at,
				     struct gp_err *err)
{
	const struct rig *r = arg;
	(void)err;
	assert_true(need->host > 0 && (need->device > 0) == on_card);
	assert_ptr_equal(at->dev, r->dev);
	return GP_OK;
}

static void rig_init(struct rig *r)
{
	static const struct gp_body_cbs cbs = {.estimated = body_estimated,
					       .ready = body_ready,
					       .failed = body_failed,
					       .committed = body_committed,
					       .params_sent = body_params_sent,
					       .idle = body_idle};
	const struct gp_body_spec spec = body_spec();
	struct gp_err err;
	memset(r, 0, sizeof *r);
	r->trace = gp_calloc(TRACE_BYTES, 1);
	assert_non_null(r->trace);
	assert_int_equal(uv_loop_init(&r->loop), 0);
	open_device(&r->dev);
	OK(gp_worker_new(&r->loop, "compute", 1, &r->compute, &err));
	OK(gp_worker_new(&r->loop, "codec", 2, &r->codec, &err));
	const struct gp_body_workers workers = {.build = r->codec, .codec = r->codec};
	const struct gp_body_site at = {r->dev, r->compute};
	connect_ends(r);
	make_client(r, &spec);
	OK(gp_body_new(&at, &workers, r->ch[0], &spec, &cbs, r, &r->body, &err));
	turn_until(r, &r->ready, 1);
}

static void on_closed(void *arg)
{
	((struct rig *)arg)->closed++;
}

static bool client_busy(const struct rig *r)
{
	return gp_flows_pending(&r->flows) > 0;
}

/* Both ends notice, in this moment; what was under way is lost. */
static void cut(struct rig *r)
{
	r->linked = false;
	gp_body_detach(r->body);
	gp_flows_cancel(&r->flows);
	for (int i = 0; i < 2; i++)
		gp_channel_close(r->ch[i], false, on_closed, r);
	struct gp_frame *f;
	while ((f = gp_channel_take_partial(r->ch[1])))
		if (f->head.type == GP_FRAME_PARAM_DOWN)
			free_param(f);
	turn_until(r, &r->closed, 2);
	while (gp_body_busy(r->body) || client_busy(r))
		uv_run(&r->loop, UV_RUN_ONCE);
}

static void come_back(struct rig *r)
{
	connect_ends(r);
	gp_body_attach(r->body, r->ch[0]);
}

static void undo_both(struct rig *r)
{
	const uint64_t step = gp_body_steps(r->body);
	const int idle = r->idle;
	struct gp_err err;
	uint64_t hash;
	gp_body_rewind(r->body, step);
	assert_true(gp_body_busy(r->body));
	turn_until(r, &r->idle, idle + 1);
	OK(gp_body_rewound(r->body, &hash, &err));
	gp_flows_undo(&r->flows, step);
	assert_true(hash == gp_flows_state_hash(&r->flows));
}

static void rig_deinit(struct rig *r)
{
	cut(r);
	gp_body_free(r->body);
	gp_flows_deinit(&r->flows);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		for (int i = 0; i < WINDOW; i++)
			gp_free(r->tensor[d][i]);
	gp_worker_free(r->compute);
	gp_worker_free(r->codec);
	uv_run(&r->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&r->loop), 0);
	r->dev->ops->close(r->dev);
	gp_free(r->trace);
}

/* --- steps ------------------------------------------------------------------------------------------------------- */

static void client_encoded(struct gp_transfer *t)
{
	struct rig *r = t->arg;
	assert_int_equal(t->task.status, GP_OK);
	note(r, &t->frame);
	if (r->linked)
		gp_transfer_send(t, r->ch[1]);
}

static void send_tensor(struct rig *r, int d, uint32_t chunk, uint64_t data, uint8_t flags)
{
	const uint64_t step = gp_body_steps(r->body), n = flow_of(r, d)->tensor_bytes / sizeof(float);
	struct gp_transfer *t = &flow_of(r, d)->slot[(flags ? chunk : step * CHUNKS + chunk) % WINDOW];
	const struct gp_frame_head head = {.flags = flags, .chunk = chunk, .session = SESSION, .step = step};
	float *x = r->tensor[d][t->slot];
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal((uint64_t)d, data * CHUNKS + chunk, i);
	for (uint32_t i = 0; i < SAMPLES; i++)
		r->sample[i] = (uint32_t)(data * 5 + chunk * SAMPLES + i) % 12;
	t->sample = flags ? NULL : r->sample;
	gp_transfer_encode(t, &head, x, step * CHUNKS + chunk, client_encoded);
}

/* Two chunks under way: the second's activation goes before the first's gradient. */
static const struct action {
	int direction;
	uint32_t chunk;
} actions[2 * CHUNKS] = {{GP_ACT_UP, 0}, {GP_ACT_UP, 1},  {GP_GRAD_UP, 0},
			 {GP_ACT_UP, 2}, {GP_GRAD_UP, 1}, {GP_GRAD_UP, 2}};

static void act(struct rig *r, int action, uint64_t data)
{
	const int answers = r->answers;
	send_tensor(r, actions[action].direction, actions[action].chunk, data, 0);
	turn_until(r, &r->answers, answers + 1);
}

static void commit(struct rig *r)
{
	struct gp_err err;
	const struct gp_body_commit c = {.step = gp_body_steps(r->body), .lr = 0.01f};
	OK(gp_body_commit(r->body, &c, &err));
}

static void run_step(struct rig *r)
{
	const uint64_t step = gp_body_steps(r->body);
	const int committed = r->committed;
	r->trace_on = true;
	for (int i = 0; i < 2 * CHUNKS; i++)
		act(r, i, step);
	r->trace_on = false;
	commit(r);
	turn_until(r, &r->committed, committed + 1);
}

static void expect_same_body(struct rig *a, struct rig *b)
{
	const struct gp_graph *g = a->body->spec.graph;
	struct gp_err err;
	for (int i = 0; i < g->params; i++) {
		float *x = gp_calloc(g->param[i].count, sizeof *x), *y = gp_calloc(g->param[i].count, sizeof *y);
		OK(a->dev->ops->param_get(a->body->plan, i, x, &err));
		OK(b->dev->ops->param_get(b->body->plan, i, y, &err));
		assert_memory_equal(x, y, g->param[i].count * sizeof *x);
		gp_free(x);
		gp_free(y);
	}
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		assert_true(gp_codec_state_hash(flow_of(a, d)->codec) == gp_codec_state_hash(flow_of(b, d)->codec));
		assert_true(gp_codec_state_hash(a->body->flows.flow[d][0].codec) ==
			    gp_codec_state_hash(b->body->flows.flow[d][0].codec));
	}
}

/* Other data up to an action, which is under way for some turns of the loop when the link breaks. */
static void break_within(struct rig *r, int action, int turns)
{
	for (int i = 0; i < action; i++)
		act(r, i, OTHER_DATA);
	if (action < 2 * CHUNKS)
		send_tensor(r, actions[action].direction, actions[action].chunk, OTHER_DATA, 0);
	for (int i = 0; i < turns; i++)
		uv_run(&r->loop, UV_RUN_NOWAIT);
	cut(r);
	undo_both(r);
	come_back(r);
}

static void a_step_goes_on_wherever_the_link_broke(void **state)
{
	(void)state;
	struct rig whole, broken;
	rig_init(&whole);
	rig_init(&broken);
	for (int step = 0; step < STEPS; step++) {
		for (int action = 0; action <= 2 * CHUNKS; action++)
			break_within(&broken, action, 3 * action + step);
		run_step(&whole);
		run_step(&broken);
		assert_int_equal(broken.traced, whole.traced);
		assert_memory_equal(broken.trace, whole.trace, whole.traced);
		expect_same_body(&whole, &broken);
		whole.traced = broken.traced = 0;
	}
	rig_deinit(&whole);
	rig_deinit(&broken);
}

static void an_update_under_way_is_made_though_nobody_hears_of_it(void **state)
{
	(void)state;
	struct rig whole, broken;
	struct gp_err err;
	rig_init(&whole);
	rig_init(&broken);
	run_step(&whole);
	for (int i = 0; i < 2 * CHUNKS; i++)
		act(&broken, i, 0);
	commit(&broken);
	cut(&broken);
	assert_int_equal(broken.committed, 0);
	assert_true(broken.idle > 0);
	OK(gp_body_broken(broken.body, &err));
	assert_int_equal(gp_body_steps(broken.body), 1);
	undo_both(&broken);
	come_back(&broken);
	expect_same_body(&whole, &broken);
	run_step(&whole);
	run_step(&broken);
	expect_same_body(&whole, &broken);
	rig_deinit(&whole);
	rig_deinit(&broken);
}

static void only_the_commit_may_be_missing(void **state)
{
	(void)state;
	struct rig whole, broken;
	rig_init(&whole);
	rig_init(&broken);
	run_step(&whole);
	for (int i = 0; i < 2 * CHUNKS; i++)
		act(&broken, i, 0);
	cut(&broken);
	come_back(&broken);
	commit(&broken);
	turn_until(&broken, &broken.committed, 1);
	expect_same_body(&whole, &broken);
	rig_deinit(&whole);
	rig_deinit(&broken);
}

static void evaluations_and_parameters_are_asked_for_again(void **state)
{
	(void)state;
	struct rig r;
	struct gp_err err;
	rig_init(&r);
	run_step(&r);
	for (int turns = 0; turns < 12; turns++) {
		for (uint32_t chunk = 0; chunk < WINDOW; chunk++)
			send_tensor(&r, GP_ACT_UP, chunk, 0, GP_FRAME_FLAG_EVAL);
		for (int i = 0; i < turns; i++)
			uv_run(&r.loop, UV_RUN_NOWAIT);
		cut(&r);
		undo_both(&r);
		come_back(&r);
		OK(gp_body_fetch_params(r.body, &err));
		for (int i = 0; i < turns; i++)
			uv_run(&r.loop, UV_RUN_NOWAIT);
		cut(&r);
		undo_both(&r);
		come_back(&r);
	}
	r.params = r.params_sent = 0;
	OK(gp_body_fetch_params(r.body, &err));
	turn_until(&r, &r.params, r.body->spec.graph->params);
	turn_until(&r, &r.params_sent, 1);
	r.answers = 0;
	send_tensor(&r, GP_ACT_UP, 0, 0, GP_FRAME_FLAG_EVAL);
	turn_until(&r, &r.answers, 1);
	run_step(&r);
	rig_deinit(&r);
}

#define CALIBRATE (GP_FRAME_FLAG_EVAL | GP_FRAME_FLAG_CALIBRATE)

static void calibrate(struct rig *r, uint32_t chunk)
{
	const int answers = r->answers;
	send_tensor(r, GP_ACT_UP, chunk, 0, CALIBRATE);
	turn_until(r, &r->answers, answers + 1);
}

/* Chunk 1 has been computed when the link breaks, and comes again. */
static void statistics_taken_anew_know_no_broken_link(void **state)
{
	(void)state;
	struct rig whole, broken;
	rig_init(&whole);
	rig_init(&broken);
	run_step(&whole);
	run_step(&broken);
	for (uint32_t chunk = 0; chunk < 4; chunk++)
		calibrate(&whole, chunk);
	calibrate(&broken, 0);
	calibrate(&broken, 1);
	cut(&broken);
	undo_both(&broken);
	come_back(&broken);
	for (uint32_t chunk = 1; chunk < 4; chunk++)
		calibrate(&broken, chunk);
	expect_same_body(&whole, &broken);
	run_step(&whole);
	run_step(&broken);
	expect_same_body(&whole, &broken);
	rig_deinit(&whole);
	rig_deinit(&broken);
}

static void refuses(struct rig *r, uint32_t chunk, const char *why)
{
	struct gp_frame *f;
	struct gp_err err;
	const struct gp_transfer *t =
		&flow_of(r, GP_ACT_UP)->slot[chunk % WINDOW]; /* has been sent: a head that is right */
	struct gp_frame_head head = t->frame.head;
	head.chunk = chunk;
	assert_int_equal(gp_body_frame_begin(r->body, &head, &f, &err), GP_PROTO);
	if (!strstr(err.text, why))
		fail_msg("'%s' does not say '%s'", err.text, why);
}

static void chunks_with_calibrate_come_in_order_and_where_open_asked(void **state)
{
	(void)state;
	struct rig r;
	rig_init(&r);
	calibrate(&r, 0);
	calibrate(&r, 1);
	refuses(&r, 3, "not expected (next is 2)");
	calibrate(&r, 0);
	refuses(&r, 2, "not expected (next is 1)");
	run_step(&r);
	send_tensor(&r, GP_ACT_UP, 0, 0, GP_FRAME_FLAG_EVAL);
	turn_until(&r, &r.answers, r.answers + 1);
	calibrate(&r, 0);
	r.body->spec.session.calibrates = false;
	refuses(&r, 0, "has not asked for it");
	rig_deinit(&r);
}

static void fail_later(struct gp_task *t)
{
	t->status = gp_err_set(&t->err, GP_DEVICE, 0, __FILE__, __LINE__, "the device is gone");
}

static void on_failed_later(struct gp_task *t)
{
	(void)gp_body_task_ok(t->arg, t);
}

static void what_fails_without_a_link_is_told_before_it_goes_on(void **state)
{
	(void)state;
	struct rig r;
	struct gp_err err;
	struct gp_task task = {.run = fail_later, .done = on_failed_later};
	rig_init(&r);
	OK(gp_body_broken(r.body, &err));
	task.arg = r.body;
	gp_worker_submit(&r.body->compute, &task, 0);
	cut(&r);
	assert_int_equal(gp_body_broken(r.body, &err), GP_DEVICE);
	assert_string_equal(err.text, "the device is gone");
	come_back(&r);
	rig_deinit(&r);
}

static void a_body_without_a_link_can_be_given_up(void **state)
{
	(void)state;
	struct rig r;
	rig_init(&r);
	act(&r, 0, 0);
	send_tensor(&r, GP_ACT_UP, 1, 0, 0);
	cut(&r);
	gp_body_stop(r.body);
	assert_false(gp_body_busy(r.body));
	come_back(&r);
	rig_deinit(&r);
}

/* --- ranks that will come ----------------------------------------------------------------------------------------- */

static struct gp_body_spec decaying_spec(void)
{
	const struct gp_shape sample = {.ndim = 1, .dim = {12}};
	struct gp_err err;
	struct gp_body_spec s = {.graph = gp_graph_new("body", &sample, &err),
				 .id = SESSION,
				 .session.chunk_samples = SAMPLES,
				 .session.window = WINDOW,
				 .session.chunks = CHUNKS,
				 .session.undo = true};
	OK(gp_graph_begin_block(s.graph, "block", &err));
	assert_true(gp_graph_linear(s.graph, "decoder", 0, 12, false, &err) > 0);
	OK(gp_graph_finish(s.graph, &err));
	s.session.decays = (struct gp_decays){.count = 1, .decay = {{"encoder", "decoder", 0.5, 1, 3, 0}}};
	for (int d = 0; d < GP_DIRECTIONS; d++)
		OK(gp_codec_spec_parse("raw", &s.session.codec[d], &err));
	return s;
}

static atomic_bool gate_is_open;
static int turns_of_others, turns_before_estimated;

static void run_gate(struct gp_task *t)
{
	(void)t;
	while (!atomic_load(&gate_is_open))
		usleep(1000);
}

static void run_nothing(struct gp_task *t)
{
	(void)t;
}

static void ignore(struct gp_task *t)
{
	(void)t;
}

static void count_turn(struct gp_task *t)
{
	(void)t;
	turns_of_others++;
}

static enum gp_status ranks_estimated(void *arg, const struct gp_body_need *need, struct gp_body_site *at,
				      struct gp_err *err)
{
	(void)err;
	assert_true(need->host > 0);
	assert_ptr_equal(at->dev, ((struct rig *)arg)->dev);
	turns_before_estimated = turns_of_others;
	return GP_OK;
}

/* A schedule may have many changes, and each is estimated as long as a whole session without any. */
static void others_have_their_turns_between_the_estimates_of_ranks(void **state)
{
	(void)state;
	static const struct gp_body_cbs cbs = {
		.estimated = ranks_estimated, .ready = body_ready, .failed = body_failed, .idle = body_idle};
	const struct gp_body_spec spec = decaying_spec();
	struct gp_task gate = {.run = run_gate, .done = ignore}, other = {.run = run_nothing, .done = count_turn};
	struct gp_lane gate_lane, other_lane;
	struct gp_err err;
	struct rig r = {.closed = 0};
	turns_of_others = 0;
	atomic_store(&gate_is_open, false);
	assert_int_equal(uv_loop_init(&r.loop), 0);
	open_device(&r.dev);
	OK(gp_worker_new(&r.loop, "compute", 1, &r.compute, &err));
	OK(gp_worker_new(&r.loop, "codec", 1, &r.codec, &err));
	const struct gp_body_workers workers = {.build = r.codec, .codec = r.codec};
	const struct gp_body_site at = {r.dev, r.compute};
	connect_ends(&r);
	gp_lane_init(&gate_lane, r.codec, NULL);
	gp_lane_init(&other_lane, r.codec, NULL);
	gp_worker_submit(&gate_lane, &gate, 0);
	OK(gp_body_new(&at, &workers, r.ch[0], &spec, &cbs, &r, &r.body, &err));
	gp_worker_submit(&other_lane, &other, 0); /* behind the first estimate */
	atomic_store(&gate_is_open, true);
	turn_until(&r, &r.ready, 1);
	assert_int_equal(turns_before_estimated, 1);
	gp_lane_deinit(&gate_lane);
	gp_lane_deinit(&other_lane);
	rig_deinit(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_goes_on_wherever_the_link_broke),
		cmocka_unit_test(an_update_under_way_is_made_though_nobody_hears_of_it),
		cmocka_unit_test(only_the_commit_may_be_missing),
		cmocka_unit_test(evaluations_and_parameters_are_asked_for_again),
		cmocka_unit_test(statistics_taken_anew_know_no_broken_link),
		cmocka_unit_test(chunks_with_calibrate_come_in_order_and_where_open_asked),
		cmocka_unit_test(what_fails_without_a_link_is_told_before_it_goes_on),
		cmocka_unit_test(a_body_without_a_link_can_be_given_up),
		cmocka_unit_test(others_have_their_turns_between_the_estimates_of_ranks),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	on_card = can_emulate();
	if (on_card)
		failed += cmocka_run_group_tests_name("with codecs on a card", tests, NULL, NULL);
	return failed;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A body (server/body.h) and a client of codecs alone, joined by a link that is
 * memory: for test_body.c and test_body_ranks.c. Where the build emulates GPUs,
 * codecs can work in a GPU's memory. Not a test by itself.
 */
#ifndef GP_TEST_BODY_RIG_H
#define GP_TEST_BODY_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/codec/codec_device.h"
#include "kernels/cpu/plan/cpu_device.h"
#ifdef GP_CUDA_DEVICE
#include "kernels/cuda/codec/cuda_codec.h"
#endif
#include "server/body_impl.h"
#include "kernels/device_registry.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"

enum { SAMPLES = 2, CHUNKS = 3, WINDOW = 2, DEADLINE_S = 600, TRACE_BYTES = 1 << 18 };
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

static inline const struct gp_codec_device *codec_memory(struct gp_device *dev)
{
	(void)dev;
	return &card_memory;
}

static inline bool can_emulate(void)
{
#ifdef GP_CUDA_DEVICE
	if (gp_rt_is_emulated()) {
		gp_rt_one_memory();
		gp_cuda_codec_device(1, &card_memory);
	}
#endif
	return card_memory.ops != NULL;
}

static inline void open_device(struct gp_device **dev)
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

static inline struct gp_flow *flow_of(struct rig *r, int d)
{
	return &r->flows.flow[d][0];
}

/* --- the two ends ------------------------------------------------------------------------------------------------ */

static inline void on_opened(void *arg)
{
	(void)arg;
}

static inline enum gp_status on_control(void *arg, struct gp_span msg, struct gp_err *err)
{
	(void)arg;
	(void)msg;
	GP_FAIL(err, GP_PROTO, "no message is sent here");
}

static inline void on_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct rig *r = arg;
	if (r->linked)
		fail_msg("the channel ended with status %d: %s", (int)status, err->text);
}

static inline enum gp_status server_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
					  struct gp_err *err)
{
	return gp_body_frame_begin(((struct rig *)arg)->body, head, out, err);
}

static inline enum gp_status server_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	(void)err;
	gp_body_frame(((struct rig *)arg)->body, f);
	return GP_OK;
}

static inline void server_sent(void *arg, struct gp_frame *f)
{
	gp_body_frame_sent(((struct rig *)arg)->body, f);
}

static inline void note(struct rig *r, const struct gp_frame *f)
{
	if (!r->trace_on)
		return;
	assert_true(r->traced + f->head.payload_len <= TRACE_BYTES);
	memcpy(r->trace + r->traced, f->payload, (size_t)f->head.payload_len);
	r->traced += (size_t)f->head.payload_len;
}

static inline enum gp_status client_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
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

static inline void free_param(struct gp_frame *f)
{
	gp_free(f->payload);
	gp_free(f);
}

static inline void client_decoded(struct gp_transfer *t)
{
	struct rig *r = t->arg;
	assert_int_equal(t->task.status, GP_OK);
	r->answers++;
}

static inline enum gp_status client_frame(void *arg, struct gp_frame *f, struct gp_err *err)
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

static inline void client_sent(void *arg, struct gp_frame *f)
{
	(void)arg;
	gp_transfer_sent(gp_transfer_of(f));
}

static inline void body_ready(void *arg)
{
	((struct rig *)arg)->ready++;
}

static inline void body_failed(void *arg, enum gp_status status, struct gp_err *err)
{
	(void)arg;
	fail_msg("the body failed with status %d: %s", (int)status, err->text);
}

static inline void body_committed(void *arg, uint64_t step)
{
	(void)step;
	((struct rig *)arg)->committed++;
}

static inline void body_params_sent(void *arg, uint32_t count)
{
	(void)count;
	((struct rig *)arg)->params_sent++;
}

static inline void body_idle(void *arg)
{
	((struct rig *)arg)->idle++;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

static inline void turn_until(struct rig *r, const int *counter, int value)
{
	const uint64_t begin = gp_now_ns();
	while (*counter < value) {
		uv_run(&r->loop, UV_RUN_ONCE);
		if (gp_now_ns() - begin > DEADLINE_S * UINT64_C(1000000000))
			fail_msg("nothing happened for ten minutes");
	}
}

static inline void connect_ends(struct rig *r)
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

static inline struct gp_graph *build_graph(void)
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

static inline struct gp_body_spec body_spec(void)
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

static inline void make_client(struct rig *r, const struct gp_body_spec *s)
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

static inline enum gp_status body_estimated(void *arg, const struct gp_body_need *need, struct gp_body_site *at,
					    struct gp_err *err)
{
	const struct rig *r = arg;
	(void)err;
	assert_true(need->host > 0 && (need->device > 0) == on_card);
	assert_ptr_equal(at->dev, r->dev);
	return GP_OK;
}

static inline void rig_init(struct rig *r)
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

static inline void on_closed(void *arg)
{
	((struct rig *)arg)->closed++;
}

static inline bool client_busy(const struct rig *r)
{
	return gp_flows_pending(&r->flows) > 0;
}

/* Both ends notice, in this moment; what was under way is lost. */
static inline void cut(struct rig *r)
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

static inline void come_back(struct rig *r)
{
	connect_ends(r);
	gp_body_attach(r->body, r->ch[0]);
}

static inline void undo_both(struct rig *r)
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

static inline void rig_deinit(struct rig *r)
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

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: whatever a server sends, in whatever state, two training steps and
 * the fetching of the weights end in success or in one error with a text, and
 * nothing is left behind (client/session/client_session.c, client/engine/engine_split.c). The client
 * is the real one, but for sockets and threads.
 *
 * Input: one byte, what is trained (bits 0-2 codec, bit 3 clipping by norm, bit
 * 4 weights of ours, bit 5: a broken link is followed by another, bit 6: two
 * tensors each way, one of integers, instead of one, bit 7: the head is frozen, so
 * that the next step's chunks go ahead where the codec remembers nothing); then
 * session_fuzz.h; the commands are in enum op.
 */
#include "tests/fuzz/session_fuzz.h"

#include <stdlib.h>

#include "client/data/dataset.h"
#include "client/engine/engine.h"
#include "client/job/security.h"
#include "common/net/token.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/graph_part.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
enum gp_status __wrap_gp_tcp_connect(uv_loop_t *loop, const char *host, uint16_t port, uint64_t timeout_ms,
				     void (*done)(void *arg, struct gp_conn *c, const struct gp_err *err), void *arg,
				     struct gp_err *err);

enum op {
	OP_PREFACE,
	OP_WELCOME,
	OP_READY,
	OP_ACT_DOWN,
	OP_GRAD_DOWN,
	OP_GRAD_SQUARES,
	OP_COMMITTED,
	OP_PARAM_DOWN,
	OP_ALL_PARAMS,
	OP_PARAMS_DONE,
	OP_BYE,
	OP_ERROR,
	OP_CONTROL, /* any bytes as a message */
	OP_RECORD,  /* any kind of record */
	OP_BYTES,
	OP_CUT, /* the next connection plays the rest */
	OP_CHUNK_DONE,
	OPS
};

enum { BATCH = 4, CHUNKS = 2, STEPS = 2, CONNECTIONS = 4 };

static const char *const codecs[8] = {"raw",
				      "uniform:bits=4",
				      "topk:ratio=0.25+zstd",
				      "ef+uniform:bits=2",
				      "poweriter:rank=1,iters=1",
				      "delta:samples=8+uniform:bits=8",
				      "sortquant:bits=2,split=1",
				      "alq:bits=2,bucket=8"};

/* By bit 6 and bit 7 of the first byte; those of this input. */
static struct model {
	struct gp_graph *graph, *body;
	struct gp_weights *weights;
} models[2][2];
static const struct gp_graph *body;
static struct fuzz_peer peers[CONNECTIONS]; /* one after the other */
static int connections;
static const uint8_t *script;
static size_t script_size;
static uint16_t codec_id;

/* The connection, one turn after it was asked for. */
static struct {
	uv_idle_t idle;
	struct gp_conn *conn; /* NULL: there is nobody any more */
	void (*done)(void *arg, struct gp_conn *c, const struct gp_err *err);
	void *arg;
} connecting;

static void on_connecting(uv_idle_t *idle)
{
	static const struct gp_err refused = {.code = GP_PEER, .text = "connection refused"};
	uv_close((uv_handle_t *)idle, NULL);
	connecting.done(connecting.arg, connecting.conn, connecting.conn ? NULL : &refused);
}

static void put_welcome(struct fuzz_peer *p)
{
	Gpsplit__Limits limits = GPSPLIT__LIMITS__INIT;
	Gpsplit__Welcome welcome = GPSPLIT__WELCOME__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	const uint8_t with = fuzz_byte(&p->in);
	limits.window = with & 1 ? fuzz_number(&p->in, 4) : 8;
	limits.segment_bytes = with & 2 ? fuzz_number(&p->in, 4) : GP_SEGMENT_BYTES_DEFAULT;
	limits.step_timeout_ms = 3600000;
	welcome.version = with & 4 ? fuzz_number(&p->in, 4) : GP_PROTO_VERSION;
	welcome.session = 1;
	welcome.limits = with & 8 ? NULL : &limits;
	static const uint8_t token[GP_TOKEN_BYTES] = {1};
	welcome.resumed = with & 16;
	if (with & 64)
		welcome.resume_token = (ProtobufCBinaryData){sizeof token, (uint8_t *)token};
	welcome.last_step = with & 128 ? fuzz_byte(&p->in) : 0;
	welcome.checkpoint = with & 32 ? fuzz_byte(&p->in) : 0;
	welcome.keeps_place = (with & 64) && (with & 32);
	Gpsplit__Place place = GPSPLIT__PLACE__INIT;
	uint64_t act[4], grad[4];
	if (welcome.resumed && welcome.keeps_place) {
		const uint8_t more = fuzz_byte(&p->in); /* 0: one tensor each way, and small numbers */
		place.n_act = more ? more & 3 : 1;
		place.n_grad = more ? more >> 2 & 3 : 1;
		for (size_t i = 0; i < 4; i++) {
			act[i] = i < place.n_act ? fuzz_number(&p->in, more & 64 ? 4 : 1) : 0;
			grad[i] = i < place.n_grad ? fuzz_number(&p->in, more & 64 ? 4 : 1) : 0;
		}
		place.act = act;
		place.grad = grad;
		welcome.place = more & 128 ? NULL : &place;
	}
	m.body_case = GPSPLIT__CONTROL__BODY_WELCOME;
	m.welcome = &welcome;
	fuzz_put_control(p, &m);
}

static void put_ready(struct fuzz_peer *p)
{
	Gpsplit__Ready ready = GPSPLIT__READY__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	const uint8_t with = fuzz_byte(&p->in);
	ready.clips = !(with & 1);
	ready.lengths = with & 2;
	ready.intervals = with & 4;
	m.body_case = GPSPLIT__CONTROL__BODY_READY;
	m.ready = &ready;
	fuzz_put_control(p, &m);
}

static void put_grad_squares(struct fuzz_peer *p)
{
	double sum[16] = {0};
	Gpsplit__GradSquares squares = GPSPLIT__GRAD_SQUARES__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	squares.step = fuzz_byte(&p->in);
	squares.n_sum = fuzz_byte(&p->in) & 15;
	squares.sum = sum;
	sum[0] = fuzz_byte(&p->in);
	m.body_case = GPSPLIT__CONTROL__BODY_GRAD_SQUARES;
	m.grad_squares = &squares;
	fuzz_put_control(p, &m);
}

static void put_committed(struct fuzz_peer *p)
{
	Gpsplit__Committed committed = GPSPLIT__COMMITTED__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	committed.step = fuzz_byte(&p->in);
	m.body_case = GPSPLIT__CONTROL__BODY_COMMITTED;
	m.committed = &committed;
	fuzz_put_control(p, &m);
}

static void put_params_done(struct fuzz_peer *p)
{
	Gpsplit__ParamsDone done = GPSPLIT__PARAMS_DONE__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	done.count = (uint32_t)body->params + fuzz_byte(&p->in);
	m.body_case = GPSPLIT__CONTROL__BODY_PARAMS_DONE;
	m.params_done = &done;
	fuzz_put_control(p, &m);
}

static void put_error(struct fuzz_peer *p)
{
	Gpsplit__Error error = GPSPLIT__ERROR__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	char text[256] = "", *servers[1];
	error.code = fuzz_byte(&p->in);
	error.retry_ms = fuzz_byte(&p->in);
	const struct gp_span s = fuzz_bytes(&p->in, fuzz_byte(&p->in));
	if (s.len)
		memcpy(text, s.data, s.len);
	error.text = text;
	servers[0] =
		strchr(text, '\n') ? strchr(text, '\n') + 1 : text; /* behind it, or all of it: a name of a server */
	error.servers = servers;
	error.n_servers = 1;
	m.body_case = GPSPLIT__CONTROL__BODY_ERROR;
	m.error = &error;
	fuzz_put_control(p, &m);
}

static void put_bye(struct fuzz_peer *p)
{
	static const uint8_t bytes[2] = {10 << 3 | 2, 0};
	fuzz_put_control_bytes(p, (struct gp_span){bytes, sizeof bytes});
}

static void put_param(struct fuzz_peer *p, int index)
{
	const struct gp_frame_head head = {.type = GP_FRAME_PARAM_DOWN,
					   .chunk = (uint32_t)index,
					   .session = 1,
					   .step = STEPS,
					   .payload_len = body->param[index].count * sizeof(float)};
	uint8_t bytes[GP_FRAME_HEADER_BYTES + 256] = {0};
	struct gp_frame_head whole = head;
	whole.checksum = gp_frame_checksum(bytes + GP_FRAME_HEADER_BYTES, whole.payload_len);
	gp_require(head.payload_len <= 256);
	gp_frame_head_write(&whole, bytes);
	fuzz_put_record(p,
			(struct gp_record_head){.kind = GP_RECORD_SEGMENT,
						.klass = GP_CLASS_PARAM,
						.flags = GP_SEGMENT_FIRST | GP_SEGMENT_LAST},
			(struct gp_span){bytes, GP_FRAME_HEADER_BYTES + head.payload_len});
}

static void put_record(struct fuzz_peer *p)
{
	struct gp_record_head h = {.kind = fuzz_byte(&p->in), .klass = fuzz_byte(&p->in), .flags = fuzz_byte(&p->in)};
	fuzz_put_record(p, h, fuzz_bytes(&p->in, fuzz_number(&p->in, 2)));
}

static void put_tensor(struct fuzz_peer *p, enum gp_frame_type type, uint8_t tensor)
{
	const struct gp_frame_head like = {
		.type = (uint8_t)type, .tensor = tensor & 7, .session = 1, .length = tensor & 8 ? 2 : 0};
	fuzz_put_tensor(p, body, type == GP_FRAME_GRAD_DOWN, &like, codec_id, 0, BATCH / CHUNKS);
}

static void put_chunk_done(struct fuzz_peer *p)
{
	Gpsplit__ChunkDone done = GPSPLIT__CHUNK_DONE__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	done.step = fuzz_byte(&p->in);
	done.chunk = fuzz_byte(&p->in);
	m.body_case = GPSPLIT__CONTROL__BODY_CHUNK_DONE;
	m.chunk_done = &done;
	fuzz_put_control(p, &m);
}

static void command(struct fuzz_peer *p, uint8_t op)
{
	struct gp_span bytes;
	switch (op % OPS) {
	case OP_PREFACE:
		fuzz_put_preface(p);
		break;
	case OP_WELCOME:
		put_welcome(p);
		break;
	case OP_READY:
		put_ready(p);
		break;
	case OP_ACT_DOWN:
		put_tensor(p, GP_FRAME_ACT_DOWN, op / OPS);
		break;
	case OP_GRAD_DOWN:
		put_tensor(p, GP_FRAME_GRAD_DOWN, op / OPS);
		break;
	case OP_GRAD_SQUARES:
		put_grad_squares(p);
		break;
	case OP_COMMITTED:
		put_committed(p);
		break;
	case OP_PARAM_DOWN:
		put_param(p, fuzz_byte(&p->in) % body->params);
		break;
	case OP_ALL_PARAMS:
		for (int i = 0; i < body->params; i++)
			put_param(p, i);
		break;
	case OP_PARAMS_DONE:
		put_params_done(p);
		break;
	case OP_BYE:
		put_bye(p);
		break;
	case OP_ERROR:
		put_error(p);
		break;
	case OP_CUT:
		p->cut = true;
		break;
	case OP_CHUNK_DONE:
		put_chunk_done(p);
		break;
	case OP_CONTROL:
		fuzz_put_control_bytes(p, fuzz_bytes(&p->in, 1 + fuzz_number(&p->in, 2)));
		break;
	case OP_RECORD:
		put_record(p);
		break;
	default:
		bytes = fuzz_bytes(&p->in, fuzz_byte(&p->in));
		fuzz_put(p, bytes.data, bytes.len);
		break;
	}
}

enum gp_status __wrap_gp_tcp_connect(uv_loop_t *loop, const char *host, uint16_t port, uint64_t timeout_ms,
				     void (*done)(void *arg, struct gp_conn *c, const struct gp_err *err), void *arg,
				     struct gp_err *err)
{
	(void)host;
	(void)port;
	(void)timeout_ms;
	(void)err;
	connecting.conn = NULL;
	if (connections > 0) {
		const struct fuzz_peer *last = &peers[connections - 1];
		script = last->in.data;
		script_size = last->cut ? last->in.left : 0;
	}
	if (connections < CONNECTIONS && (connections == 0 || script_size > 0))
		connecting.conn = fuzz_peer_start(&peers[connections++], loop, script, script_size, command);
	connecting.done = done;
	connecting.arg = arg;
	uv_idle_init(loop, &connecting.idle);
	uv_idle_start(&connecting.idle, on_connecting);
	return GP_OK;
}

/* conv, batch norm and relu between a head and a tail. */
static struct gp_graph *image_model(void)
{
	const struct gp_shape input = {.ndim = 3, .dim = {2, 2, 1}};
	struct gp_err err;
	struct gp_graph *graph = gp_graph_new("fuzz", &input, &err);
	gp_require(graph && gp_graph_begin_block(graph, "head", &err) == GP_OK);
	int x = gp_graph_conv(graph, "h", 0, 2, 1, 1, 0, 1, true, &err);
	gp_require(gp_graph_begin_block(graph, "b", &err) == GP_OK);
	x = gp_graph_conv(graph, "c", x, 3, 1, 1, 0, 1, false, &err);
	x = gp_graph_batch_norm(graph, "n", x, 1e-5f, 0.1f, &err);
	x = gp_graph_unary(graph, GP_OP_RELU, "r", x, &err);
	gp_require(gp_graph_begin_block(graph, "tail", &err) == GP_OK);
	x = gp_graph_unary(graph, GP_OP_FLATTEN, "f", x, &err);
	x = gp_graph_linear(graph, "l", x, 2, true, &err);
	gp_require(x > 0 && gp_graph_finish(graph, &err) == GP_OK);
	return graph;
}

/* The mask goes to body and tail from the data, what the head makes goes to both, and two values of the body to the
 * tail. */
static struct gp_graph *words_model(void)
{
	const struct gp_type words = {GP_F32, {.ndim = 2, .dim = {2, 2}}}, mask = {GP_I32, {.ndim = 1, .dim = {2}}};
	struct gp_err err;
	struct gp_graph *g = gp_graph_new_empty("fuzz", &err);
	gp_require(g && gp_graph_add_input(g, "words", &words, &err) == 0);
	gp_require(gp_graph_add_input(g, "mask", &mask, &err) == 1);
	gp_graph_mark_sequence(g, 0);
	gp_graph_mark_sequence(g, 1);
	gp_require(gp_graph_begin_block(g, "head", &err) == GP_OK);
	const int head = gp_graph_linear(g, "h", 0, 3, true, &err);
	gp_require(gp_graph_begin_block(g, "b", &err) == GP_OK);
	const int layer = gp_graph_linear(g, "c", head, 3, true, &err);
	const int mean = gp_graph_masked_mean(g, "m", layer, 1, &err);
	const int more = gp_graph_linear(g, "d", mean, 3, true, &err);
	gp_require(gp_graph_begin_block(g, "tail", &err) == GP_OK);
	const int own = gp_graph_masked_mean(g, "o", head, 1, &err);
	int x = gp_graph_append(g, (struct gp_node){.op = GP_OP_ADD}, "s", 3, (const int[]){mean, more, own}, &err);
	x = gp_graph_linear(g, "l", x, 2, true, &err);
	gp_require(x > 0 && gp_graph_finish(g, &err) == GP_OK);
	return g;
}

static void make_models(void)
{
	struct gp_err err;
	for (int i = 0; i < 4; i++) {
		struct model *m = &models[i & 1][i >> 1];
		m->graph = i & 1 ? words_model() : image_model();
		if (i >> 1)
			gp_require(gp_graph_freeze_blocks(m->graph, 0, 1) == 2);
		gp_require(gp_graph_part(m->graph, 1, 2, &m->body, &err) == GP_OK);
		gp_require(gp_weights_new(m->graph, &m->weights, &err) == GP_OK);
	}
	setenv("OMP_NUM_THREADS", "1", 1);
	fuzz_quiet();
}

/* What both models read. */
static struct gp_batch make_batch(const struct gp_graph *graph)
{
	static float words[BATCH * 4];
	static int32_t mask[BATCH * 2], labels[BATCH];
	static uint32_t samples[BATCH];
	static struct gp_tensor_info info[2];
	for (int i = 0; i < graph->inputs; i++)
		info[i] = (struct gp_tensor_info){.name = graph->node[i].name, .type = graph->value[i].type};
	return (struct gp_batch){.tensors = graph->inputs,
				 .info = info,
				 .data = {words, mask},
				 .label_info = {.name = "label", .type = {.dtype = GP_I32}},
				 .label = labels,
				 .samples = samples,
				 .valid = BATCH,
				 .room = BATCH};
}

static enum gp_status train(struct gp_engine *e, const struct model *model, struct gp_err *err)
{
	const struct gp_batch batch = make_batch(model->graph);
	struct gp_step_result result;
	for (int i = 0; i < STEPS; i++)
		GP_TRY(e->ops->step(e, &batch, i + 1 < STEPS ? &batch : NULL, 0.1f, &result, err));
	return e->ops->get_weights(e, model->weights, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gp_err err = {0};
	struct gp_engine *engine = NULL;
	if (size < 1)
		return 0;
	if (!body)
		make_models();
	static const struct gp_client_security follows = {.follow = GP_FOLLOW_ANY};
	const struct model *model = &models[data[0] >> 6 & 1][data[0] >> 7];
	body = model->body;
	struct gp_engine_spec spec = {.graph = model->graph,
				      .device = "cpu",
				      .threads = 1,
				      .drop_padding = model->graph->inputs > 1 && (data[0] & 7) < 2,
				      .session.chunk_samples = BATCH / CHUNKS,
				      .session.chunks = CHUNKS,
				      .session.window = 2,
				      .session.seed = 1,
				      .session.optim = {.clip_norm = data[0] & 8 ? 1.0 : 0.0},
				      .init = data[0] & 16 ? model->weights : NULL,
				      .server = data[0] & 8 ? "127.0.0.1:1,localhost:2" : "127.0.0.1:1",
				      .security = &follows,
				      .cut = {.head = 1, .tail = 2},
				      .connect_timeout_s = 3600,
				      .idle_timeout_s = 3600,
				      .reconnect_for_s = data[0] & 32 ? 0.005 : 0};
	for (int i = 0; i < 4; i++)
		gp_require(gp_codec_spec_parse(codecs[data[0] & 7], &spec.session.codec[i], &err) == GP_OK);
	codec_id = spec.session.codec[0].stage[0].id;
	connections = 0;
	script = data + 1;
	script_size = size - 1;
	enum gp_status status = gp_engine_new_split(&spec, &engine, &err);
	if (status == GP_OK)
		status = train(engine, model, &err);
	gp_require(status == GP_OK || (err.code == status && err.text[0]));
	if (engine)
		engine->ops->free(engine);
	gp_require(inline_worker_idle());
	for (int i = 0; i < CONNECTIONS; i++)
		gp_require(!peers[i].conn);
	return 0;
}

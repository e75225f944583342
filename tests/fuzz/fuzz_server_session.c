/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: whatever a client sends, in whatever state, the session ends with
 * nothing left behind, and the server's books are even (server/link.c,
 * server/session.c, server/body.c), also when the link breaks and other connections
 * resume. The server is the real one, but for sockets and threads.
 *
 * Input: session_fuzz.h; the commands are in enum op.
 */
#include "tests/fuzz/session_fuzz.h"

#include <math.h>
#include <stdlib.h>

#include "common/codec/codec.h"
#include "common/wire/graph_msg.h"
#include "server/link.h"
#include "server/session.h"
#include "server/server.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum op {
	OP_PREFACE,
	OP_HELLO,
	OP_OPEN,
	OP_ACT_UP,
	OP_GRAD_UP,
	OP_PARAM_UP,
	OP_COMMIT,
	OP_FETCH,
	OP_BYE,
	OP_ERROR,
	OP_CONTROL, /* any bytes as a message */
	OP_RECORD,  /* any kind of record */
	OP_BYTES,
	OP_CUT, /* the next connection plays the rest */
	OPS
};

enum { CONNECTIONS = 4 };

static const char *const codecs[] = {"raw",
				     "uniform:bits=4",
				     "topk:ratio=0.25+zstd",
				     "ef+uniform:bits=2",
				     "poweriter:rank=1,iters=1",
				     "delta:samples=8+uniform:bits=8"};

/* For --compress; those behind the first four cannot hold what lies in memory. */
static const char *const map_codecs[] = {
	"uniform:bits=8", "bf16",     "smaq:main=6,outlier=8", "sortquant:bits=2,split=1", "topk:ratio=0.25",
	"bf16+zstd",      "none such"};

enum { MOST_BLOCKS = 7 };

static struct gp_server server;
static uv_loop_t loop;
static struct gp_graph *bodies[3];
static struct fuzz_peer peer;
static struct {
	const struct gp_graph *body;
	uint32_t samples;
	uint16_t codec;
	uint64_t data_inputs;
} opened; /* as the script's OPEN said */

static void put_place(struct fuzz_peer *p, const struct gp_body *body, uint64_t act[4], uint64_t grad[4],
		      Gpsplit__Place *out)
{
	const uint8_t count = fuzz_byte(&p->in);
	int up = count & 3, down = count >> 2 & 3;
	if (body)
		gp_body_tensors(body, &up, &down);
	gp_require(up < 4 && down < 4);
	const int shift = body ? 0 : 8 * (count >> 5 & 3);
	for (int i = 0; i < 4; i++) {
		act[i] = i < down ? (uint64_t)fuzz_number(&p->in, body ? 1 : 4) << shift : 0;
		grad[i] = i < up ? (uint64_t)fuzz_number(&p->in, body ? 1 : 4) << shift : 0;
	}
	out->act = act;
	out->grad = grad;
	out->n_act = (size_t)down;
	out->n_grad = (size_t)up;
	out->squares = count >> 4 & 1;
}

static void put_hello(struct fuzz_peer *p)
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	const uint8_t with = fuzz_byte(&p->in);
	char agent[64] = "";
	hello.version = with & 1 ? fuzz_number(&p->in, 4) : GP_PROTO_VERSION;
	const struct gp_span text = fuzz_bytes(&p->in, with & 2 ? fuzz_byte(&p->in) & 63 : 0);
	if (text.len)
		memcpy(agent, text.data, text.len);
	hello.agent = agent;
	if (with & 4) {
		const struct gp_span token = fuzz_bytes(&p->in, fuzz_byte(&p->in));
		hello.resume_token = (ProtobufCBinaryData){token.len, (uint8_t *)token.data};
		hello.last_step = fuzz_byte(&p->in);
	}
	const struct gp_server_session *s = server.sessions;
	if (with & 8 && s) { /* who knows the token; bit 4: and what its codecs remember */
		hello.resume_token = (ProtobufCBinaryData){GP_TOKEN_BYTES, (uint8_t *)s->token[0]};
		hello.last_step = fuzz_byte(&p->in);
		hello.state_hash = with & 16 && s->ready ? gp_body_state_hash(s->body) : 0;
	}
	Gpsplit__Place place = GPSPLIT__PLACE__INIT;
	uint64_t act[4], grad[4];
	if (with & 64) { /* bit 7: one that fits, but for its numbers */
		put_place(p, with & 128 && s && s->ready ? s->body : NULL, act, grad, &place);
		hello.place = &place;
	}
	if (with & 32)
		hello.run_id = (ProtobufCBinaryData){GP_RUN_ID_BYTES, (uint8_t *)"run run run run "};
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	fuzz_put_control(p, &m);
}

/* What is kept between forward and backward: bit 2 of `samples`: what crosses blocks, which may begin anywhere; bit 3: maps
 * that lie encoded. */
static void put_kept(struct fuzz_peer *p, uint8_t samples, uint32_t block[MOST_BLOCKS], Gpsplit__Open *open)
{
	open->recompute = samples & 4;
	open->n_block = open->recompute ? fuzz_byte(&p->in) % (MOST_BLOCKS + 1) : 0;
	open->block = block;
	for (size_t i = 0; i < open->n_block; i++)
		block[i] = fuzz_byte(&p->in);
	if (samples & 8)
		open->maps = (char *)map_codecs[fuzz_byte(&p->in) % (sizeof map_codecs / sizeof map_codecs[0])];
}

/* What else passes through codecs: bit 4 of `samples`, and a bit of the next byte for each, no_master and choose_precision. */
static void put_coded(struct fuzz_peer *p, uint8_t samples, Gpsplit__Open *open)
{
	char **const text[GP_STRUCTS] = {&open->grad_maps, &open->weights_codec, &open->weight_grads, &open->state};
	if (!(samples & 16))
		return;
	const uint8_t which = fuzz_byte(&p->in), codec = fuzz_byte(&p->in);
	for (int i = 0; i < GP_STRUCTS; i++)
		if (which >> i & 1)
			*text[i] = (char *)map_codecs[(codec + i) % (int)(sizeof map_codecs / sizeof map_codecs[0])];
	open->no_master = which & 16;
	open->choose_precision = which & 32;
}

static void put_open(struct fuzz_peer *p)
{
	struct gp_err err;
	struct gp_codec_spec spec;
	Gpsplit__Open open = GPSPLIT__OPEN__INIT;
	Gpsplit__Optimizer optimizer = GPSPLIT__OPTIMIZER__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	uint32_t block[MOST_BLOCKS];
	const uint8_t with = fuzz_byte(&p->in);
	const uint8_t samples = fuzz_byte(&p->in);
	opened.body = bodies[samples & 64 ? 2 : with >> 5 & 1];
	gp_require(gp_graph_to_msg(opened.body, &open.graph, &err) == GP_OK);
	open.optimizer = &optimizer;
	optimizer.kind = with & 3;
	optimizer.momentum = 0.5f;
	optimizer.beta1 = optimizer.beta2 = 0.5;
	optimizer.eps = 1e-3f;
	optimizer.clip_norm = with & 4 ? 1.0 : 0.0;
	open.weights = with & 8 ? (uint32_t)opened.body->params : 0;
	open.eval_only = with & 16;
	open.calibrates = samples & 128;
	open.lengths = samples & 64 && opened.body == bodies[1];
	open.chunk_samples = opened.samples = 1 + samples % 4;
	open.window = fuzz_byte(&p->in);
	open.chunks = fuzz_byte(&p->in);
	const char *codec = codecs[fuzz_byte(&p->in) % (sizeof codecs / sizeof codecs[0])];
	open.codec_act_up = open.codec_act_down = open.codec_grad_up = open.codec_grad_down = (char *)codec;
	gp_require(gp_codec_spec_parse(codec, &spec, &err) == GP_OK);
	opened.codec = spec.stage[0].id;
	open.frozen_inputs = with & 64 ? 1 : 0;
	opened.data_inputs = 0;
	if (with & 128) {
		open.frozen_inputs = fuzz_byte(&p->in);
		open.data_inputs = opened.data_inputs = fuzz_byte(&p->in);
	}
	put_kept(p, samples, block, &open);
	put_coded(p, samples, &open);
	m.body_case = GPSPLIT__CONTROL__BODY_OPEN;
	m.open = &open;
	fuzz_put_control(p, &m);
	gp_graph_msg_free(open.graph);
}

/* What a frame has to name: the session that the newest link has, or the next one. */
static uint64_t session_id(void)
{
	return server.links && server.links->session ? server.links->session->id : server.next_session + 1;
}

static void put_param(struct fuzz_peer *p)
{
	const int index = fuzz_byte(&p->in) % opened.body->params;
	fuzz_put_frame(p, &(struct gp_frame_head){.type = GP_FRAME_PARAM_UP, .session = session_id()},
		       opened.body->param[index].count * sizeof(float));
}

static void put_commit(struct fuzz_peer *p)
{
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	const uint8_t step = fuzz_byte(&p->in);
	commit.step = step & 0x7f;
	commit.checkpoint = step & 0x80;
	const uint32_t lr = fuzz_number(&p->in, 4), norm = fuzz_number(&p->in, 2);
	memcpy(&commit.lr, &lr, sizeof lr);
	commit.grad_norm = norm == 0xffff ? (double)NAN : norm;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	m.commit = &commit;
	fuzz_put_control(p, &m);
}

/* A message whose only field is an empty body. */
static void put_empty(struct fuzz_peer *p, uint8_t field)
{
	const uint8_t bytes[2] = {(uint8_t)(field << 3 | 2), 0};
	fuzz_put_control_bytes(p, (struct gp_span){bytes, sizeof bytes});
}

static void put_record(struct fuzz_peer *p)
{
	struct gp_record_head h = {.kind = fuzz_byte(&p->in), .klass = fuzz_byte(&p->in), .flags = fuzz_byte(&p->in)};
	fuzz_put_record(p, h, fuzz_bytes(&p->in, fuzz_number(&p->in, 2)));
}

static void put_tensor(struct fuzz_peer *p, enum gp_frame_type type, uint8_t tensor)
{
	const struct gp_frame_head like = {
		.type = (uint8_t)type, .tensor = tensor & 7, .session = session_id(), .length = tensor & 8 ? 2 : 0};
	fuzz_put_tensor(p, opened.body, type == GP_FRAME_ACT_UP, &like, opened.codec, opened.data_inputs,
			opened.samples);
}

static void command(struct fuzz_peer *p, uint8_t op)
{
	struct gp_span bytes;
	switch (op % OPS) {
	case OP_PREFACE:
		fuzz_put_preface(p);
		break;
	case OP_HELLO:
		put_hello(p);
		break;
	case OP_OPEN:
		put_open(p);
		break;
	case OP_ACT_UP:
		put_tensor(p, GP_FRAME_ACT_UP, op / OPS);
		break;
	case OP_GRAD_UP:
		put_tensor(p, GP_FRAME_GRAD_UP, op / OPS);
		break;
	case OP_PARAM_UP:
		put_param(p);
		break;
	case OP_COMMIT:
		put_commit(p);
		break;
	case OP_FETCH:
		put_empty(p, 7);
		break;
	case OP_BYE:
		put_empty(p, 10);
		break;
	case OP_ERROR:
		put_empty(p, 9);
		break;
	case OP_CUT:
		p->cut = true;
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

/* conv 1x1, batch norm, relu on (2,2,2): what a body needs to train, and little else. */
static struct gp_graph *image_body(void)
{
	const struct gp_shape input = {.ndim = 3, .dim = {2, 2, 2}};
	struct gp_err err;
	struct gp_graph *g = gp_graph_new("fuzz", &input, &err);
	gp_require(g && gp_graph_begin_block(g, "b", &err) == GP_OK);
	int x = gp_graph_conv(g, "c", 0, 3, 1, 1, 0, 1, false, &err);
	x = gp_graph_batch_norm(g, "n", x, 1e-5f, 0.1f, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "r", x, &err);
	gp_require(x > 0 && gp_graph_finish(g, &err) == GP_OK);
	return g;
}

/* Words and a mask of integers come, their mean and what a layer makes of it go. */
static struct gp_graph *words_body(void)
{
	const struct gp_type words = {GP_F32, {.ndim = 2, .dim = {2, 2}}}, mask = {GP_I32, {.ndim = 1, .dim = {2}}};
	struct gp_err err;
	struct gp_graph *g = gp_graph_new_empty("fuzz", &err);
	gp_require(g && gp_graph_add_input(g, "words", &words, &err) == 0);
	gp_require(gp_graph_add_input(g, "mask", &mask, &err) == 1);
	gp_graph_mark_sequence(g, 0);
	gp_graph_mark_sequence(g, 1);
	gp_require(gp_graph_begin_block(g, "b", &err) == GP_OK);
	const int x = gp_graph_linear(g, "c", 0, 3, true, &err);
	const int mean = gp_graph_masked_mean(g, "m", x, 1, &err);
	const int last = gp_graph_linear(g, "l", mean, 2, false, &err);
	gp_require(last > 0 && gp_graph_set_outputs(g, 2, (const int[]){mean, last}, &err) == GP_OK);
	gp_require(gp_graph_finish(g, &err) == GP_OK);
	return g;
}

/* A layer of an encoder, and its first row: a length comes that may be anything. */
static struct gp_graph *sequence_body(void)
{
	const struct gp_type x = {GP_F32, {.ndim = 2, .dim = {3, 4}}}, length = {GP_I32, {.ndim = 1, .dim = {1}}};
	const struct gp_layer_norm_attr norm = {.eps = 1e-5f, .p = 0.25f};
	const struct gp_attention_attr heads = {.heads = 2, .p = 0.25f};
	const struct gp_add_rows_attr rows = {.rows = 5, .first = 2, .step = 1};
	struct gp_err err;
	struct gp_graph *g = gp_graph_new_empty("fuzz", &err);
	gp_require(g && gp_graph_add_input(g, "x", &x, &err) == 0);
	gp_require(gp_graph_add_input(g, "length", &length, &err) == 1 && gp_graph_begin_block(g, "b", &err) == GP_OK);
	const int in = gp_graph_layer_norm(g, "n", gp_graph_add_rows(g, "p", 0, rows, &err), -1, norm, &err);
	const int a = gp_graph_attention(g, "a", (const int[]){in, in, in}, 1, heads, &err);
	const int middle = gp_graph_layer_norm(g, "m", a, in, norm, &err);
	const int wide = gp_graph_gelu(g, "g", gp_graph_linear(g, "c", middle, 3, true, &err), false, &err);
	const int first = gp_graph_take_row(g, "t", gp_graph_gelu(g, "h", wide, true, &err), 0, &err);
	const int last = gp_graph_unary(g, GP_OP_TANH, "y", first, &err);
	gp_require(last > 0 && gp_graph_set_outputs(g, 2, (const int[]){wide, last}, &err) == GP_OK);
	gp_require(gp_graph_finish(g, &err) == GP_OK);
	return g;
}

static void start_server(void)
{
	static const struct gp_server_settings set = {.listen = "127.0.0.1:0",
						      .device = "cpu",
						      .threads = 1,
						      .codec_threads = 1,
						      .max_sessions = 4,
						      .max_unopened = 16,
						      .session_memory_bytes = 4 << 20,
						      .window = 4,
						      .task_time_s = 0.1,
						      .handshake_timeout_s = 3600,
						      .step_timeout_s = 3600,
						      .measure_s = 3600,
						      .measure_bytes = 8 << 20,
						      .idle_timeout_s = 3600,
						      .resume_window_s = 3600};
	struct gp_err err = {0};
	setenv("OMP_NUM_THREADS", "1", 1);
	fuzz_quiet();
	uv_loop_init(&loop);
	gp_require(gp_server_start(&server, &loop, &set, &err) == GP_OK);
	bodies[0] = image_body();
	bodies[1] = words_body();
	bodies[2] = sequence_body();
}

/* Ends the sessions that wait for a link that does not come. */
static void end_sessions(void)
{
	for (struct gp_server_session *s = server.sessions, *next; s; s = next) {
		next = s->next;
		gp_server_session_end(s);
	}
	while (server.session_count > 0)
		uv_run(&loop, UV_RUN_ONCE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!bodies[0])
		start_server();
	server.next_link = server.next_session = 0;
	opened.body = bodies[0];
	opened.samples = 1;
	opened.codec = 1;
	opened.data_inputs = 0;
	int connections = 0;
	for (bool more = true; more;) {
		connections++;
		gp_server_link_new(&server, fuzz_peer_start(&peer, &loop, data, size, command));
		while (server.link_count > 0 || peer.conn)
			uv_run(&loop, UV_RUN_ONCE);
		data = peer.in.data;
		size = peer.in.left;
		more = peer.cut && connections < CONNECTIONS;
	}
	end_sessions();
	gp_require(server.memory_used_bytes == 0 && !server.links && !server.sessions && inline_worker_idle());
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Admitted clients that mean harm, for tests/e2e/attackers.sh and
 * tests/bench/hostile.sh: one kind of session after the other, without a pause,
 * for a bounded time or until SIGTERM.
 *
 * Usage: attacker PORT KIND SECONDS   (0: until SIGTERM)
 *   infinite  a chunk of 2^109, whose factors poweriter cannot multiply
 *   codecs    chains that compute for minutes: refused, each in its direction
 *   pools     2,000 global pools over what one transposed convolution made: refused
 *   graphs    a body of 4,000 nodes, which is opened and left
 *   wrong     the same, with a fault in its last node: refused
 * Prints: rounds N, of these refused N, and what the server said last
 */
#include "tests/unit/server_rig.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/graph/graph_part.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"

#define MANY_NODES 4000

/* Samples of one element: as large as a chunk may be. */
#define CHUNK_SAMPLES 1048576

static struct fixture server;
static struct gp_graph *graph;
static long rounds, refused;
static char said[256];

static void note_error(const Gpsplit__Control *m)
{
	refused++;
	snprintf(said, sizeof said, "%s", m->error->text);
}

static bool is(const Gpsplit__Control *m, Gpsplit__Control__BodyCase what)
{
	return m && m->body_case == what;
}

/* A server may have no room for a moment. */
static void welcome(struct raw_peer *c)
{
	while (!try_welcome(c, &server)) {
		const struct timespec turn = {.tv_nsec = 20000000};
		nanosleep(&turn, NULL);
	}
}

/* Whether the session is open; else what the server said is noted. */
static bool open_session(struct raw_peer *c, void (*spoil)(Gpsplit__Open *))
{
	welcome(c);
	put_open(c, graph, spoil);
	Gpsplit__Control *m = get_control(c);
	const bool ready = is(m, GPSPLIT__CONTROL__BODY_READY);
	if (is(m, GPSPLIT__CONTROL__BODY_ERROR))
		note_error(m);
	if (m)
		gpsplit__control__free_unpacked(m, NULL);
	return ready;
}

/* --- infinite ---------------------------------------------------------------------------------------------------- */

static struct gp_graph *graph_of(struct gp_shape input)
{
	struct gp_err err;
	struct gp_graph *g = gp_graph_new("g", &input, &err);
	assert_true(g && gp_graph_begin_block(g, "b", &err) == GP_OK);
	return g;
}

static struct gp_graph *infinite_graph(void)
{
	struct gp_err err;
	struct gp_graph *g = graph_of((struct gp_shape){.ndim = 3, .dim = {1, 1, 1}});
	assert_true(gp_graph_unary(g, GP_OP_RELU, "r", 0, &err) > 0 && gp_graph_finish(g, &err) == GP_OK);
	return g;
}

static void spoil_infinite(Gpsplit__Open *o)
{
	o->chunk_samples = CHUNK_SAMPLES;
	o->window = o->chunks = 1;
	o->codec_act_down = (char *)"ef+poweriter:rank=1,iters=1+qsgd:bits=1,bucket=1048576";
}

/* In as many segments as it takes. */
static void put_large_frame(struct raw_peer *c, const float *x, uint32_t len)
{
	uint8_t bytes[GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES];
	const struct gp_frame_head h = {.type = GP_FRAME_ACT_UP,
					.codec = c->codec,
					.session = c->session,
					.payload_len = len,
					.checksum = gp_frame_checksum((const uint8_t *)x, len)};
	for (uint32_t at = 0, part; at < len; at += part) {
		const uint32_t head = at == 0 ? GP_FRAME_HEADER_BYTES : 0, most = GP_SEGMENT_BYTES_MIN - head;
		part = len - at < most ? len - at : most;
		const struct gp_record_head r = {
			.kind = GP_RECORD_SEGMENT,
			.klass = (uint8_t)gp_frame_class(GP_FRAME_ACT_UP),
			.flags = (uint8_t)((at == 0 ? GP_SEGMENT_FIRST : 0) | (at + part == len ? GP_SEGMENT_LAST : 0)),
			.len = head + part};
		gp_record_head_write(&r, bytes);
		gp_frame_head_write(&h, bytes + GP_RECORD_HEADER_BYTES);
		put(c, bytes, GP_RECORD_HEADER_BYTES + head);
		put(c, (const uint8_t *)x + at, part);
	}
}

/* Until the whole answer has come, or the server has said why there is none. */
static void take_answer(struct raw_peer *c)
{
	for (;;) {
		uint8_t bytes[GP_RECORD_HEADER_BYTES];
		struct gp_record_head h;
		struct gp_err err;
		if (!get(c, bytes, sizeof bytes))
			return;
		if (gp_record_head_read(bytes, &h, &err) != GP_OK || h.len > c->body_cap || !get(c, c->body, h.len))
			return;
		if (h.kind == GP_RECORD_SEGMENT && (h.flags & GP_SEGMENT_LAST))
			return;
		if (h.kind != GP_RECORD_CONTROL)
			continue;
		Gpsplit__Control *m = gpsplit__control__unpack(NULL, h.len, c->body);
		if (is(m, GPSPLIT__CONTROL__BODY_ERROR))
			note_error(m);
		if (m)
			gpsplit__control__free_unpacked(m, NULL);
	}
}

static void go_infinite(struct raw_peer *c)
{
	static float x[CHUNK_SAMPLES];
	for (int i = 0; i < CHUNK_SAMPLES; i++)
		x[i] = ldexpf(1.0f, 109);
	if (!open_session(c, spoil_infinite))
		return;
	put_large_frame(c, x, sizeof x);
	take_answer(c);
}

/* --- codecs ------------------------------------------------------------------------------------------------------ */

static struct gp_graph *wide_graph(void)
{
	struct gp_err err;
	struct gp_graph *g = graph_of((struct gp_shape){.ndim = 3, .dim = {128, 128, 256}});
	assert_true(gp_graph_unary(g, GP_OP_RELU, "r", 0, &err) > 0 && gp_graph_finish(g, &err) == GP_OK);
	return g;
}

static void spoil_codecs(Gpsplit__Open *o)
{
	static const char *const chain[] = {
		"poweriter:rank=256,iters=64",
		"raw+zstd:level=19",
		"ef+poweriter:rank=256,iters=64+uniform:bits=8",
		"bitshuffle+zstd:level=19",
		"uniform:bits=8+zstd:level=19",
	};
	const char *one = chain[rounds % 5];
	char **of[] = {&o->codec_act_up, &o->codec_act_down, &o->codec_grad_up, &o->codec_grad_down};
	o->chunk_samples = 16;
	*of[(rounds / 5) % 4] = (char *)one;
	o->codec_act_down = (char *)one;
}

static void go_codecs(struct raw_peer *c)
{
	open_session(c, spoil_codecs);
}

/* --- pools, graphs ----------------------------------------------------------------------------------------------- */

static struct gp_graph *pools_graph(void)
{
	enum { POOLS = 2000 };
	struct gp_err err;
	struct gp_graph *g = graph_of((struct gp_shape){.ndim = 3, .dim = {2, 2, 1}});
	struct gp_node up = {.op = GP_OP_CONV2D_TRANSPOSE};
	gp_set_conv_attr(&up, (struct gp_conv_attr){.out_channels = 1,
						    .kernel_h = 1,
						    .kernel_w = 1,
						    .stride_h = 4096,
						    .stride_w = 4096,
						    .out_pad_h = 4095,
						    .out_pad_w = 4095,
						    .groups = 1});
	const int large = gp_graph_append(g, up, "up", 1, (const int[]){0}, &err);
	int sum = -1;
	for (int i = 0; i < POOLS; i++) {
		char name[2][16];
		snprintf(name[0], sizeof name[0], "p%d", i);
		snprintf(name[1], sizeof name[1], "s%d", i);
		const int pool = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, name[0], large, &err);
		sum = sum < 0 ? pool : gp_graph_sum(g, name[1], sum, pool, &err);
	}
	assert_true(sum > 0 && gp_graph_finish(g, &err) == GP_OK);
	return g;
}

static struct gp_graph *many_nodes(void)
{
	struct gp_err err;
	struct gp_graph *g = graph_of((struct gp_shape){.ndim = 3, .dim = {8, 8, 16}});
	for (int i = 0, at = 0; i < MANY_NODES; i++) {
		char name[16];
		snprintf(name, sizeof name, "n%d", i);
		at = i % 2 ? gp_graph_unary(g, GP_OP_RELU, name, at, &err)
			   : gp_graph_conv(g, name, at, 16, 1, 1, 0, 1, true, &err);
		assert_true(at > 0);
	}
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	return g;
}

static void go_open(struct raw_peer *c)
{
	open_session(c, NULL);
}

static void spoil_last_node(Gpsplit__Open *o)
{
	o->graph->node[o->graph->n_node - 1]->in[0] = UINT32_MAX;
}

static void go_wrong(struct raw_peer *c)
{
	open_session(c, spoil_last_node);
}

/* --- */

static const struct {
	const char *name;
	struct gp_graph *(*make)(void);
	void (*go)(struct raw_peer *c);
} kinds[] = {
	{"infinite", infinite_graph, go_infinite}, {"codecs", wide_graph, go_codecs}, {"pools", pools_graph, go_open},
	{"graphs", many_nodes, go_open},           {"wrong", many_nodes, go_wrong},
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static volatile sig_atomic_t stopped;

static void on_term(int number)
{
	(void)number;
	stopped = 1;
}

int main(int argc, char **argv)
{
	const size_t count = sizeof kinds / sizeof kinds[0];
	size_t k = 0;
	while (argc == 4 && k < count && strcmp(argv[2], kinds[k].name) != 0)
		k++;
	if (argc != 4 || k == count) {
		fprintf(stderr, "usage: attacker PORT infinite|codecs|pools|graphs|wrong SECONDS\n");
		return 2;
	}
	server.port = (uint16_t)atoi(argv[1]);
	graph = kinds[k].make();
	signal(SIGTERM, on_term);
	const double begin = now(), seconds = atof(argv[3]);
	for (; !stopped && (seconds <= 0.0 || now() - begin < seconds); rounds++) {
		struct raw_peer c;
		kinds[k].go(&c);
		client_close(&c);
	}
	gp_graph_free(graph);
	printf("rounds %ld refused %ld: %s\n", rounds, refused, said);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers that ask for what cannot be, or that take what they asked for too
 * slowly: refused before anything is taken for them (the process's peak of
 * resident memory moves by less than 1 MiB), while another session is served.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/codec/codec.h"
#include "common/wire/graph_msg.h"
#include "client/models/models.h"
#include "tests/sanitized.h"
#include "tests/unit/raw_peer.h"
#include "tests/unit/server_thread.h"
#include "common/graph/graph_part.h"
#include "common/graph/op.h"

enum { GROWTH_MOST = 1 << 20, BODY_CAP = 1 << 20 };

/* The peak begins anew. False where it cannot be measured. */
static bool forget_peak(void)
{
	if (IS_SANITIZED)
		return false; /* a sanitizer's own memory grows along */
	FILE *f = fopen("/proc/self/clear_refs", "w");
	if (!f)
		return false;
	const bool ok = fputs("5", f) >= 0;
	return fclose(f) == 0 && ok;
}

static uint64_t resident_bytes(void)
{
	unsigned long long pages = 0;
	FILE *statm = fopen("/proc/self/statm", "r");
	assert_non_null(statm);
	assert_int_equal(fscanf(statm, "%*u %llu", &pages), 1);
	fclose(statm);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* --- a client by hand -------------------------------------------------------------------------------------------- */

static void peer_open(struct raw_peer *c, uint16_t port, int receive_buffer)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct timeval patience = {.tv_sec = 20};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	c->fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	if (receive_buffer > 0)
		setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
	assert_int_equal(connect(c->fd, (struct sockaddr *)&a, sizeof a), 0);
	put_preface(c);
}

static void expect(struct raw_peer *c, Gpsplit__Control__BodyCase what)
{
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != what)
		fail_msg("got %s '%s'", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "");
	gpsplit__control__free_unpacked(m, NULL);
}

static void say_hello(struct raw_peer *c)
{
	put_hello(c, GP_PROTO_VERSION);
	expect(c, GPSPLIT__CONTROL__BODY_WELCOME);
}

static void put_open(struct raw_peer *c, Gpsplit__Graph *graph, void (*spoil)(Gpsplit__Open *))
{
	Gpsplit__Open open = GPSPLIT__OPEN__INIT;
	Gpsplit__Optimizer optimizer = GPSPLIT__OPTIMIZER__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	open.graph = graph;
	open.optimizer = &optimizer;
	open.chunk_samples = open.window = open.chunks = 1;
	open.codec_act_up = open.codec_act_down = open.codec_grad_up = open.codec_grad_down = (char *)"raw";
	if (spoil)
		spoil(&open);
	m.body_case = GPSPLIT__CONTROL__BODY_OPEN;
	m.open = &open;
	put_control(c, &m);
}

static void fetch(struct raw_peer *c)
{
	Gpsplit__FetchParams body = GPSPLIT__FETCH_PARAMS__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	m.body_case = GPSPLIT__CONTROL__BODY_FETCH_PARAMS;
	m.fetch_params = &body;
	put_control(c, &m);
}

/* --- graphs of one node ------------------------------------------------------------------------------------------ */

static struct {
	Gpsplit__Graph graph;
	Gpsplit__Node node, *nodes[1];
	Gpsplit__Input input, *inputs[1];
	int64_t shape[3];
	uint32_t in[2], attr[GP_NODE_MAX_ATTRS], output;
} g;

static void one_node(uint32_t op, int64_t a, int64_t b, int64_t c)
{
	gpsplit__graph__init(&g.graph);
	gpsplit__node__init(&g.node);
	gpsplit__input__init(&g.input);
	memset(g.attr, 0, sizeof g.attr);
	g.shape[0] = a;
	g.shape[1] = b;
	g.shape[2] = c;
	g.input.name = (char *)"input";
	g.input.shape = g.shape;
	g.input.n_shape = 3;
	g.inputs[0] = &g.input;
	g.output = 1;
	g.in[0] = g.in[1] = 0;
	g.graph.name = (char *)"hostile";
	g.graph.input = g.inputs;
	g.graph.n_input = 1;
	g.graph.output = &g.output;
	g.graph.n_output = 1;
	g.graph.node = g.nodes;
	g.graph.n_node = 1;
	g.nodes[0] = &g.node;
	g.node.op = op;
	g.node.name = (char *)"n";
	g.node.in = g.in;
	g.node.n_in = 1;
	g.node.attr = g.attr;
	g.node.n_attr = (size_t)gp_op_def((enum gp_op)op)->attrs;
}

static void relu(int64_t a, int64_t b, int64_t c)
{
	one_node(GP_OP_RELU, a, b, c);
}

static void conv(int64_t side, uint32_t channels, uint32_t kernel)
{
	one_node(GP_OP_CONV2D, side, side, 8);
	const uint32_t pad = kernel / 2, attr[] = {channels, kernel, kernel, 1, 1, pad, pad, pad, pad, 0, 0, 1, 0};
	memcpy(g.attr, attr, sizeof attr);
}

static void zero_dimension(void)
{
	relu(4, 0, 4);
}

static void negative_dimension(void)
{
	relu(4, -4, 4);
}

static void largest_dimension(void)
{
	relu(INT64_MAX, 1, 1);
}

static void product_that_overflows(void)
{
	relu((int64_t)1 << 31, (int64_t)1 << 31, 4);
}

static void four_gibibytes(void)
{
	relu(1 << 15, 1 << 15, 1);
}

static void terabytes_of_weights(void)
{
	conv(8, 1u << 24, 4096);
}

static void gigabytes_of_output(void)
{
	conv(1 << 10, 1u << 10, 1);
}

static void channels_over_every_limit(void)
{
	conv(8, UINT32_MAX, 1);
}

static void features_over_every_limit(void)
{
	one_node(GP_OP_LINEAR, 1, 1, 1);
	g.input.n_shape = 1;
	g.shape[0] = 1 << 20;
	g.attr[0] = 1u << 24;
}

static void shapes_that_lie(void)
{
	one_node(GP_OP_ADD, 4, 4, 4);
	g.in[1] = 1; /* itself */
	g.node.n_in = 2;
}

static void work_without_end(void)
{
	one_node(GP_OP_MAX_POOL, 4000, 4000, 1);
	static const uint32_t attr[] = {4000, 4000, 1, 1, 3999, 3999, 3999, 3999, 0};
	memcpy(g.attr, attr, sizeof attr);
}

static void modest(void)
{
	relu(64, 64, 16);
}

static void most_samples(Gpsplit__Open *o)
{
	o->chunk_samples = 1u << 20;
}

static void most_chunks_of_memory(Gpsplit__Open *o)
{
	o->chunks = 1u << 20;
	o->codec_act_down = (char *)"ef+uniform:bits=2"; /* remembers, per chunk, what it kept back */
}

static void samples_over_the_limit(Gpsplit__Open *o)
{
	o->chunk_samples = UINT32_MAX;
}

static void most_data_samples(Gpsplit__Open *o)
{
	o->codec_act_up = (char *)"delta:samples=16777216+uniform:bits=8";
}

static void a_long_codec(Gpsplit__Open *o)
{
	static char text[100001];
	memset(text, '+', sizeof text - 1);
	o->codec_act_up = text;
}

static const struct {
	void (*graph)(void);
	void (*spoil)(Gpsplit__Open *);
	const char *part;
} cases[] = {
	{zero_dimension, NULL, ""},
	{negative_dimension, NULL, ""},
	{largest_dimension, NULL, ""},
	{product_that_overflows, NULL, ""},
	{four_gibibytes, NULL, ""},
	{terabytes_of_weights, NULL, ""},
	{gigabytes_of_output, NULL, ""},
	{channels_over_every_limit, NULL, "out_channels"},
	{features_over_every_limit, NULL, ""},
	{shapes_that_lie, NULL, "earlier node"},
	{work_without_end, NULL, "one sample alone does not fit"},
	{modest, most_samples, ""},
	{modest, most_chunks_of_memory, ""},
	{modest, samples_over_the_limit, "chunk_samples"},
	{modest, most_data_samples, ""},
	{modest, a_long_codec, "codec_act_up"},
};

static struct gp_graph *cnn_body(void)
{
	struct gp_err err;
	struct gp_graph *whole, *body;
	const struct gp_model_options o = {.classes = 10};
	assert_int_equal(gp_model_build("cnn", &o, &whole, &err), GP_OK);
	assert_int_equal(gp_graph_part(whole, 1, whole->blocks - 1, &body, &err), GP_OK);
	gp_graph_free(whole);
	return body;
}

static void good_peer(struct raw_peer *c, uint16_t port, int receive_buffer)
{
	struct gp_err err;
	struct gp_graph *body = cnn_body();
	Gpsplit__Graph *m;
	assert_int_equal(gp_graph_to_msg(body, &m, &err), GP_OK);
	peer_open(c, port, receive_buffer);
	say_hello(c);
	put_open(c, m, NULL);
	expect(c, GPSPLIT__CONTROL__BODY_READY);
	gp_graph_msg_free(m);
	gp_graph_free(body);
}

static void refuse_one(struct raw_peer *c, struct raw_peer *good, uint16_t port, size_t i)
{
	peer_open(c, port, 0);
	say_hello(c);
	cases[i].graph();
	put_open(c, &g.graph, cases[i].spoil);
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != GPSPLIT__CONTROL__BODY_ERROR || !strstr(m->error->text, cases[i].part))
		fail_msg("case %zu: got %s '%s'", i, gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "");
	gpsplit__control__free_unpacked(m, NULL);
	close(c->fd);
	fetch(good);
	expect(good, GPSPLIT__CONTROL__BODY_PARAMS_DONE);
}

/* What a refusal takes, it takes every time; that pages of files come back, which the kernel had dropped, is no matter. */
static void refuse_without_growth(struct raw_peer *c, struct raw_peer *good, uint16_t port, size_t i)
{
	uint64_t growth = UINT64_MAX;
	for (int try = 0; try < 5 && growth > GROWTH_MOST; try++) {
		const bool measured = forget_peak();
		const uint64_t before = resident_bytes();
		refuse_one(c, good, port, i);
		const uint64_t peak = measured ? gp_mem_peak_rss_bytes() : 0;
		growth = peak > before ? peak - before : 0;
	}
	if (growth > GROWTH_MOST)
		fail_msg("case %zu: %.2f MiB more", i, (double)growth / 1048576);
}

static void opens_that_ask_for_the_impossible_are_refused_before_anything_is_taken(void **state)
{
	(void)state;
	static uint8_t room[2][BODY_CAP];
	struct raw_peer good = {.body = room[0], .body_cap = BODY_CAP}, c = {.body = room[1], .body_cap = BODY_CAP};
	struct server_thread *server = server_thread_start();
	memset(room, 1, sizeof room); /* resident from here on */
	good_peer(&good, server->port, 0);
	refuse_one(&c, &good, server->port, 0); /* whatever the first refusal brings with it */
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		refuse_without_growth(&c, &good, server->port, i);
	close(good.fd);
	server_thread_stop(server);
}

/* A client that asks for its weights and then does not read them keeps a session's place only so long. */
static void a_peer_that_does_not_read_is_dropped(void **state)
{
	(void)state;
	static uint8_t room[BODY_CAP];
	struct raw_peer c = {.body = room, .body_cap = BODY_CAP};
	struct server_thread *server;
	struct gp_server_settings set = server_thread_settings();
	set.step_timeout_s = 1;
	set.idle_timeout_s = 600;
	set.max_sessions = 1;
	server = server_thread_start_with(&set);
	good_peer(&c, server->port, 2048);
	fetch(&c);
	struct raw_peer next = {.body = room, .body_cap = BODY_CAP};
	for (int i = 0; i < 1000; i++) {
		Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
		Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
		hello.version = GP_PROTO_VERSION;
		m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
		m.hello = &hello;
		peer_open(&next, server->port, 0);
		put_control(&next, &m);
		Gpsplit__Control *answer = get_control(&next);
		assert_non_null(answer);
		const bool welcome = answer->body_case == GPSPLIT__CONTROL__BODY_WELCOME;
		assert_true(welcome || (answer->error->code == GP_BUSY && answer->error->retry_ms > 0));
		gpsplit__control__free_unpacked(answer, NULL);
		close(next.fd);
		if (welcome)
			break;
		assert_true(i < 999);
		usleep(10000);
	}
	close(c.fd);
	server_thread_stop(server);
}

/* 64 MiB of zeros in a few kilobytes, for a decoder of 64 elements. */
static void a_payload_that_unpacks_to_more_than_its_tensor_is_refused(void **state)
{
	(void)state;
	enum { ELEMENTS = 16 << 20 };
	static const char *const specs[] = {"raw+zstd", "uniform:bits=8+zstd", "topk:ratio=0.5+zstd", "uniform:bits=8+rans",
					    "bitshuffle+zstd"};
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		struct gp_err err;
		struct gp_codec_spec spec;
		struct gp_codec *large, *small;
		const struct gp_shape shape[2] = {{.ndim = 1, .dim = {ELEMENTS}}, {.ndim = 1, .dim = {64}}};
		if (gp_codec_spec_parse(specs[i], &spec, &err) != GP_OK)
			fail_msg("%s", err.text);
		assert_int_equal(gp_codec_new(&spec, &shape[0], 1, &large, &err), GP_OK);
		assert_int_equal(gp_codec_new(&spec, &shape[1], 1, &small, &err), GP_OK);
		float *x = gp_calloc(ELEMENTS, sizeof *x), y[64];
		uint8_t *payload = gp_calloc(gp_codec_bound(large), 1);
		size_t len;
		assert_int_equal(gp_codec_encode(large, x, 0, payload, gp_codec_bound(large), &len, &err), GP_OK);
		gp_free(x);
		gp_codec_free(large);
		const uint64_t calls = gp_mem_calls();
		assert_int_equal(gp_codec_decode(small, (struct gp_span){payload, len}, y, &err), GP_PROTO);
		assert_int_equal(gp_mem_calls(), calls);
		gp_codec_free(small);
		gp_free(payload);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_that_ask_for_the_impossible_are_refused_before_anything_is_taken),
		cmocka_unit_test(a_peer_that_does_not_read_is_dropped),
		cmocka_unit_test(a_payload_that_unpacks_to_more_than_its_tensor_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

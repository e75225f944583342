/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server (server/server.c) on loopback against clients that break the
 * protocol in one place each: the session ends with a reason, the daemon and
 * the next client do not notice. Checkpoints: test_server_checkpoints.c.
 */
#include "tests/unit/server_rig.h"

#include <math.h>

#include "kernels/loops/simd.h"
#include "tests/sanitized.h"
#include "tests/unit/bf16_reference.h"

/* Each test leaves the server as it was: a good client gets READY at the end of it. */

static void garbage_and_silence_end_only_their_own_connection(void **state)
{
	struct fixture *f = *state;
	static const char *const rubbish[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02", "", "gpsplit"};
	for (size_t i = 0; i < sizeof rubbish / sizeof rubbish[0]; i++) {
		struct raw_peer c;
		uint8_t byte;
		client_connect(&c, f);
		put(&c, rubbish[i], strlen(rubbish[i]));
		while (get(&c, &byte, 1))
			; /* the server's preface, perhaps a reason, then the end: within the handshake's time */
		client_close(&c);
	}
	still_serves(f);
}

static void a_wrong_version_is_told_so(void **state)
{
	struct raw_peer c;
	client_connect(&c, *state);
	put_preface(&c);
	put_hello(&c, 999);
	expect_error(&c, "version 999");
	client_close(&c);
	still_serves(*state);
}

static void messages_out_of_order_are_refused(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	client_connect(&c, f);
	put_preface(&c);
	put_open(&c, f->body, NULL);
	expect_error(&c, "open message is not expected");
	client_close(&c);
	until_welcome(&c, f);
	put_frame(&c, GP_FRAME_ACT_UP, 0, 0, 64, true);
	expect_error(&c, "act_up frame is not expected in state OPEN");
	client_close(&c);
	until_welcome(&c, f);
	put_hello(&c, GP_PROTO_VERSION);
	expect_error(&c, "hello message is not expected");
	client_close(&c);
	until_ready(&c, f);
	put_open(&c, f->body, NULL);
	expect_error(&c, "open message is not expected in state RUN");
	client_close(&c);
	still_serves(f);
}

/* More of them than the server takes, and none has a session's place. */
static void connections_that_say_nothing_keep_nobody_out(void **state)
{
	enum { SILENT = 40 }; /* 16 are allowed */
	struct fixture *f = *state;
	struct raw_peer silent[SILENT], c;
	uint8_t bytes[GP_PREFACE_BYTES];
	for (int i = 0; i < SILENT; i++)
		client_connect(&silent[i], f);
	client_connect(&c, f);
	put_preface(&c);
	put_hello(&c, GP_PROTO_VERSION);
	expect_control(&c, GPSPLIT__CONTROL__BODY_WELCOME);
	while (get(&silent[0], bytes, 1))
		; /* the oldest went first */
	for (int i = 0; i < SILENT; i++)
		client_close(&silent[i]);
	client_close(&c);
}

/* Without pages of files, which come and go as the kernel likes. */
static uint64_t resident_bytes(void)
{
	unsigned long long pages = 0, shared = 0;
	FILE *statm = fopen("/proc/self/statm", "r");
	assert_non_null(statm);
	assert_int_equal(fscanf(statm, "%*u %llu %llu", &pages, &shared), 2);
	fclose(statm);
	return (pages - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void a_connection_that_is_not_opened_costs_a_few_kilobytes(void **state)
{
	(void)state;
	enum { SILENT = 300, BYTES_MOST = 12 << 10 };
	struct gp_server_settings set = server_thread_settings();
	struct raw_peer silent[SILENT + 1] = {0};
	uint8_t byte;
	set.max_unopened = 2 * SILENT;
	set.handshake_timeout_s = 20;
	struct server_thread *server = server_thread_start_with(&set);
	silent[SILENT].fd = connect_to(server->port); /* what the first one brings with it */
	assert_true(get(&silent[SILENT], &byte, 1));
	const uint64_t before = resident_bytes();
	for (int i = 0; i < SILENT; i++) {
		silent[i].fd = connect_to(server->port);
		put(&silent[i], "gpsplit\n\1", 9); /* and falls silent within its preface */
	}
	for (int i = 0; i < SILENT; i++)
		assert_true(get(&silent[i], &byte, 1)); /* the server has it */
	const uint64_t after = resident_bytes();
	print_message("%.1f KiB for each\n", ((double)after - (double)before) / 1024 / SILENT);
	if (!IS_SANITIZED) /* a sanitizer's own memory grows along */
		assert_true(after < before + SILENT * (uint64_t)BYTES_MOST);
	for (int i = 0; i <= SILENT; i++)
		close(silent[i].fd);
	server_thread_stop(server);
}

static void spoil_window(Gpsplit__Open *o)
{
	o->window = 1000;
}

static void spoil_chunks(Gpsplit__Open *o)
{
	o->chunks = 0;
}

static void spoil_codec(Gpsplit__Open *o)
{
	o->codec_grad_up = (char *)"sortquant:bits=400";
}

static void spoil_samples(Gpsplit__Open *o)
{
	o->chunk_samples = 1 << 13;
}

static void spoil_weights(Gpsplit__Open *o)
{
	o->weights = 3;
}

static void spoil_optimizer(Gpsplit__Open *o)
{
	o->optimizer->kind = 77;
}

static void spoil_clip_norm(Gpsplit__Open *o)
{
	o->optimizer->clip_norm = -1;
}

static void spoil_clip_both(Gpsplit__Open *o)
{
	o->optimizer->clip_norm = o->optimizer->clip_value = 1;
}

static void spoil_graph_input(Gpsplit__Open *o)
{
	o->graph->input[0]->shape[0] = INT64_MAX;
}

static void spoil_graph_channels(Gpsplit__Open *o)
{
	for (size_t i = 0; i < o->graph->n_node; i++)
		if (o->graph->node[i]->op == GP_OP_CONV2D)
			o->graph->node[i]->attr[0] = 1u << 30;
}

static void spoil_graph_edge(Gpsplit__Open *o)
{
	o->graph->node[0]->in[0] = 4000000000u;
}

static void spoil_precision(Gpsplit__Open *o)
{
	o->precision = 77;
}

static void ask_for_bf16(Gpsplit__Open *o)
{
	o->precision = GP_PRECISION_BF16;
}

/* The server says beforehand what it can do; a client that asks for more all the same is refused. */
static void a_precision_that_the_processor_lacks_is_neither_offered_nor_given(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	gp_isa_limit(ISA_WITHOUT_BF16);
	client_connect(&c, f);
	put_preface(&c);
	put_hello(&c, GP_PROTO_VERSION);
	Gpsplit__Control *m = get_control(&c);
	assert_non_null(m);
	assert_int_equal(m->body_case, GPSPLIT__CONTROL__BODY_WELCOME);
	assert_int_equal(m->welcome->n_precision, 1);
	assert_int_equal(m->welcome->precision[0], GP_PRECISION_FP32);
	gpsplit__control__free_unpacked(m, NULL);
	put_open(&c, f->body, ask_for_bf16);
	expect_error(&c, "cannot compute in bf16");
	client_close(&c);
	gp_isa_limit(GP_ISA_AVX512);
	still_serves(f);
}

static void an_open_that_cannot_be_is_refused_with_the_reason(void **state)
{
	static const struct {
		void (*spoil)(Gpsplit__Open *);
		const char *part;
	} cases[] = {
		{spoil_window, "window is 1000"}, {spoil_chunks, "chunks is 0"}, {spoil_codec, "bits"},
		{spoil_samples, "MiB"},           {spoil_weights, "3 weights"},  {spoil_optimizer, ""},
		{spoil_graph_input, ""},          {spoil_graph_channels, ""},    {spoil_graph_edge, ""},
		{spoil_clip_norm, "clip-norm"},   {spoil_clip_both, "exclude"},  {spoil_precision, "no precision 77"},
	};
	struct fixture *f = *state;
	uint64_t resident = gp_mem_peak_rss_bytes();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct raw_peer c;
		until_welcome(&c, f);
		put_open(&c, f->body, cases[i].spoil);
		expect_error(&c, cases[i].part);
		client_close(&c);
	}
	assert_true(gp_mem_peak_rss_bytes() < resident + (64 << 20));
	still_serves(f);
}

static void frames_out_of_place_are_refused(void **state)
{
	struct fixture *f = *state;
	uint32_t act = (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
	static const struct {
		enum gp_frame_type type;
		uint64_t step;
		uint32_t chunk;
		const char *part;
	} cases[] = {
		{GP_FRAME_ACT_UP, 1, 0, "step 1"},
		{GP_FRAME_ACT_UP, 0, 1, "chunk 1 is not expected"},
		{GP_FRAME_GRAD_UP, 0, 0, "not expected"},
		{GP_FRAME_ACT_DOWN, 0, 0, "act_down frame is not expected in state RUN"},
		{GP_FRAME_PARAM_UP, 0, 0, "not expected"},
		{GP_FRAME_ACT_UP, 0, UINT32_MAX, "not expected"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct raw_peer c;
		until_ready(&c, f);
		put_frame(&c, cases[i].type, cases[i].step, cases[i].chunk, 64, true);
		expect_error(&c, cases[i].part);
		client_close(&c);
	}
	struct raw_peer c;
	until_ready(&c, f);
	c.codec = 4;
	put_frame(&c, GP_FRAME_ACT_UP, 0, 0, 64, true);
	expect_error(&c, "codec 4");
	client_close(&c);
	until_ready(&c, f);
	put_frame(&c, GP_FRAME_ACT_UP, 0, 0, 100, true); /* raw needs the whole tensor */
	expect_error(&c, "act_up of chunk 0");
	client_close(&c);
	until_ready(&c, f);
	if (act < GP_SEGMENT_BYTES_MAX - GP_FRAME_HEADER_BYTES) {
		put_frame(&c, GP_FRAME_ACT_UP, 0, 0, act, false);
		assert_null(get_control(&c)); /* what the link has damaged cuts it, without a word */
	}
	client_close(&c);
	still_serves(f);
}

/* The codec thread comes back to a session whose connection is gone already. */
static void clients_that_vanish_while_their_chunks_are_computed_leave_nothing(void **state)
{
	struct fixture *f = *state;
	uint32_t act = (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
	assert_true(act < GP_SEGMENT_BYTES_MAX - GP_FRAME_HEADER_BYTES);
	for (int i = 0; i < 20; i++) {
		struct raw_peer c;
		struct linger hard = {.l_onoff = 1, .l_linger = 0}; /* a reset: no wait for anything */
		until_ready(&c, f);
		put_frame(&c, GP_FRAME_ACT_UP, 0, 0, act, true);
		put_frame(&c, GP_FRAME_ACT_UP, 0, 1, act, true);
		usleep((useconds_t)(i % 10) * 500);
		setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
		client_close(&c);
	}
	still_serves(f);
}

static void a_commit_before_its_chunks_is_refused(void **state)
{
	struct raw_peer c;
	until_ready(&c, *state);
	put_commit(&c, 0, 0.1f);
	expect_error(&c, "commit of step 0 after 0 of 2 chunks");
	client_close(&c);
	still_serves(*state);
}

static void clip_by_norm(Gpsplit__Open *o)
{
	o->optimizer->clip_norm = 1.0;
}

static void a_step_with_clipping_is_measured_before_it_is_committed(void **state)
{
	struct fixture *f = *state;
	static const double norms[] = {1.0, 0.0, (double)INFINITY, (double)NAN};
	for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++) {
		struct raw_peer c;
		until_ready_with(&c, f, clip_by_norm);
		put_step(&c, f);
		get_answers(&c, 2, 1);
		put_commit_with_norm(&c, 0, 0.1f, norms[i]);
		expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
		client_close(&c);
	}
	still_serves(f);
}

static void a_norm_that_cannot_be_is_refused(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	until_ready_with(&c, f, clip_by_norm);
	put_step(&c, f);
	get_answers(&c, 2, 1);
	put_commit_with_norm(&c, 0, 0.1f, -1.0);
	expect_error(&c, "gradient norm of -1");
	client_close(&c);
	until_ready(&c, f);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	put_commit_with_norm(&c, 0, 0.1f, 1.0);
	expect_error(&c, "without clip_norm");
	client_close(&c);
	still_serves(f);
}

static void sessions_over_the_limit_are_told_to_come_back(void **state)
{
	struct raw_peer c[5];
	for (int i = 0; i < 4; i++)
		until_ready(&c[i], *state);
	client_connect(&c[4], *state);
	put_preface(&c[4]);
	put_hello(&c[4], GP_PROTO_VERSION);
	expect_error(&c[4], "no room");
	for (int i = 0; i < 5; i++)
		client_close(&c[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(garbage_and_silence_end_only_their_own_connection, setup_impatient,
						teardown),
		cmocka_unit_test_setup_teardown(connections_that_say_nothing_keep_nobody_out, setup, teardown),
		cmocka_unit_test(a_connection_that_is_not_opened_costs_a_few_kilobytes),
		cmocka_unit_test_setup_teardown(a_wrong_version_is_told_so, setup, teardown),
		cmocka_unit_test_setup_teardown(messages_out_of_order_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(an_open_that_cannot_be_is_refused_with_the_reason, setup, teardown),
		cmocka_unit_test_setup_teardown(a_precision_that_the_processor_lacks_is_neither_offered_nor_given,
						setup, teardown),
		cmocka_unit_test_setup_teardown(frames_out_of_place_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(clients_that_vanish_while_their_chunks_are_computed_leave_nothing,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_commit_before_its_chunks_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(a_step_with_clipping_is_measured_before_it_is_committed, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_norm_that_cannot_be_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(sessions_over_the_limit_are_told_to_come_back, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

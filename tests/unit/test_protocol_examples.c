/* SPDX-License-Identifier: Apache-2.0
 *
 * The hex examples of proto/PROTOCOL.md are what the code writes and reads.
 * Every block of the page must be known here, and every name here on the page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include <ctype.h>

#include "common/wire/frame.h"
#include "common/wire/flows.h"
#include "common/wire/place.h"
#include "proto/gpsplit.pb-c.h"

#define BLOCKS_MAX      32
#define BLOCK_BYTES_MAX 256

struct block {
	char name[64];
	uint8_t bytes[BLOCK_BYTES_MAX];
	size_t len;
};

static struct block blocks[BLOCKS_MAX];
static int block_count;

static void add_line(struct block *b, const char *line)
{
	unsigned byte;
	int used;
	while (sscanf(line, " %2x%n", &byte, &used) == 1) {
		assert_true(b->len < BLOCK_BYTES_MAX);
		b->bytes[b->len++] = (uint8_t)byte;
		line += used;
	}
	while (isspace((unsigned char)*line))
		line++;
	if (*line && *line != '#')
		fail_msg("block %s: cannot read '%s'", b->name, line);
}

static int read_page(void **state)
{
	(void)state;
	char line[512];
	struct block *b = NULL;
	FILE *f = fopen("proto/PROTOCOL.md", "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof line, f)) {
		if (b && strncmp(line, "```", 3) == 0) {
			b = NULL;
		} else if (b) {
			add_line(b, line);
		} else if (strncmp(line, "```hex ", 7) == 0) {
			assert_true(block_count < BLOCKS_MAX);
			b = &blocks[block_count++];
			assert_int_equal(sscanf(line + 7, "%63s", b->name), 1);
		}
	}
	fclose(f);
	return 0;
}

static const struct block *find(const char *name)
{
	for (int i = 0; i < block_count; i++)
		if (strcmp(blocks[i].name, name) == 0)
			return &blocks[i];
	fail_msg("PROTOCOL.md has no block '%s'", name);
	return NULL;
}

static void expect(const char *name, const uint8_t *bytes, size_t len)
{
	const struct block *b = find(name);
	assert_int_equal(b->len, len);
	assert_memory_equal(b->bytes, bytes, len);
}

static void the_page_has_exactly_the_examples_that_are_tested(void **state)
{
	(void)state;
	const char *const names[] = {
		"preface",
		"refused-preface-http",
		"refused-preface-version",
		"control-commit",
		"control-commit-told",
		"control-grad-squares",
		"control-commit-norm",
		"control-commit-rank",
		"control-committed-rank",
		"control-commit-rung",
		"control-committed-rung",
		"control-error-servers",
		"control-hello-resume",
		"control-hello-place",
		"control-welcome-resumed",
		"control-commit-checkpoint",
		"control-committed-checkpoint",
		"control-committed-checkpoint-error",
		"control-measure",
		"control-probe",
		"control-probed",
		"control-intervals",
		"refused-record-reserved",
		"refused-record-length",
		"refused-record-checksum",
		"ping",
		"pong",
		"frame-grad-up",
		"segments-act-up",
	};
	const int count = sizeof names / sizeof *names;
	for (int i = 0; i < count; i++)
		find(names[i]);
	assert_int_equal(block_count, count);
}

static void the_preface_is_the_one_we_send(void **state)
{
	(void)state;
	uint8_t bytes[GP_PREFACE_BYTES];
	uint16_t version = 0;
	struct gp_err err;
	gp_preface_write(bytes);
	expect("preface", bytes, sizeof bytes);
	assert_int_equal(gp_preface_read(find("preface")->bytes, &version, &err), GP_OK);
	assert_int_equal(version, GP_PROTO_VERSION);
}

static void expect_control(const char *name, const Gpsplit__Control *control)
{
	uint8_t bytes[128];
	const size_t len = gpsplit__control__pack(control, bytes + GP_RECORD_HEADER_BYTES);
	const struct gp_record_head h = {.kind = GP_RECORD_CONTROL,
					 .len = (uint32_t)len,
					 .body_sum = gp_control_checksum(bytes + GP_RECORD_HEADER_BYTES, len)};
	gp_record_head_write(&h, bytes);
	expect(name, bytes, GP_RECORD_HEADER_BYTES + len);
}

static void a_commit_is_packed_as_shown(void **state)
{
	(void)state;
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Control control = GPSPLIT__CONTROL__INIT;
	commit.step = 3;
	commit.lr = 0.1f;
	control.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	control.commit = &commit;
	expect_control("control-commit", &control);
	commit.grad_norm = 2.5;
	expect_control("control-commit-norm", &control);
	Gpsplit__Told told = GPSPLIT__TOLD__INIT;
	commit.grad_norm = 0.0;
	commit.told = &told;
	told.loss = 2.5;
	expect_control("control-commit-told", &control);
}

static void intervals_are_packed_as_shown(void **state)
{
	(void)state;
	int64_t number[] = {5, 0, 1, 0, 40, 900, 16, 0, -1, 60, 0, 25};
	Gpsplit__Intervals intervals = GPSPLIT__INTERVALS__INIT;
	Gpsplit__Control control = GPSPLIT__CONTROL__INIT;
	intervals.step = 6;
	intervals.base_ns = 1000000;
	intervals.number = number;
	intervals.n_number = 12;
	intervals.ping = 7;
	intervals.ping_ns = 998000;
	control.body_case = GPSPLIT__CONTROL__BODY_INTERVALS;
	control.intervals = &intervals;
	expect_control("control-intervals", &control);
}

static void ranks_are_packed_as_shown(void **state)
{
	(void)state;
	uint32_t rank[] = {691, 384};
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Committed committed = GPSPLIT__COMMITTED__INIT;
	Gpsplit__Control control = GPSPLIT__CONTROL__INIT;
	commit.step = committed.step = 299;
	commit.lr = 0.1f;
	commit.rank = committed.rank = rank;
	commit.n_rank = committed.n_rank = 2;
	control.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	control.commit = &commit;
	expect_control("control-commit-rank", &control);
	control.body_case = GPSPLIT__CONTROL__BODY_COMMITTED;
	control.committed = &committed;
	expect_control("control-committed-rank", &control);
}

static void rungs_are_packed_as_shown(void **state)
{
	(void)state;
	uint32_t rung[] = {2, 0, 0, 1};
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Committed committed = GPSPLIT__COMMITTED__INIT;
	Gpsplit__Control control = GPSPLIT__CONTROL__INIT;
	commit.step = committed.step = 7;
	commit.lr = 0.1f;
	commit.rung = committed.rung = rung;
	commit.n_rung = committed.n_rung = 4;
	control.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	control.commit = &commit;
	expect_control("control-commit-rung", &control);
	control.body_case = GPSPLIT__CONTROL__BODY_COMMITTED;
	control.committed = &committed;
	expect_control("control-committed-rung", &control);
}

static void checkpoints_are_asked_for_and_answered_as_shown(void **state)
{
	(void)state;
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Committed committed = GPSPLIT__COMMITTED__INIT;
	Gpsplit__Control control = GPSPLIT__CONTROL__INIT;
	commit.step = 99;
	commit.lr = 0.1f;
	commit.checkpoint = true;
	control.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	control.commit = &commit;
	expect_control("control-commit-checkpoint", &control);
	committed.step = 99;
	committed.checkpoint = true;
	control.body_case = GPSPLIT__CONTROL__BODY_COMMITTED;
	control.committed = &committed;
	expect_control("control-committed-checkpoint", &control);
	committed.checkpoint = false;
	committed.checkpoint_error = (char *)"disk full";
	expect_control("control-committed-checkpoint-error", &control);
}

static void probes_are_packed_as_shown(void **state)
{
	(void)state;
	Gpsplit__Measure measure = GPSPLIT__MEASURE__INIT;
	Gpsplit__Probe probe = GPSPLIT__PROBE__INIT;
	Gpsplit__Probed probed = GPSPLIT__PROBED__INIT;
	Gpsplit__Control control = GPSPLIT__CONTROL__INIT;
	control.body_case = GPSPLIT__CONTROL__BODY_MEASURE;
	control.measure = &measure;
	expect_control("control-measure", &control);
	probe.number = 2;
	probe.bytes = 65536;
	probe.tag = 0x0102030405060708;
	control.body_case = GPSPLIT__CONTROL__BODY_PROBE;
	control.probe = &probe;
	expect_control("control-probe", &control);
	probed.number = 2;
	probed.kind = 1;
	probed.tag = 0x090a0b0c0d0e0f10;
	control.body_case = GPSPLIT__CONTROL__BODY_PROBED;
	control.probed = &probed;
	expect_control("control-probed", &control);
}

static void sums_of_squares_are_packed_as_shown(void **state)
{
	(void)state;
	Gpsplit__GradSquares squares = GPSPLIT__GRAD_SQUARES__INIT;
	Gpsplit__Control control = GPSPLIT__CONTROL__INIT;
	double sum[2] = {4.0, 0.25};
	squares.step = 3;
	squares.n_sum = 2;
	squares.sum = sum;
	control.body_case = GPSPLIT__CONTROL__BODY_GRAD_SQUARES;
	control.grad_squares = &squares;
	expect_control("control-grad-squares", &control);
}

static void other_servers_are_named_as_shown(void **state)
{
	(void)state;
	Gpsplit__Error error = GPSPLIT__ERROR__INIT;
	Gpsplit__Control control = GPSPLIT__CONTROL__INIT;
	char text[] = "full", server[] = "gpu-2:4400", *servers[] = {server};
	error.code = GP_BUSY;
	error.text = text;
	error.retry_ms = 1000;
	error.servers = servers;
	error.n_servers = 1;
	control.body_case = GPSPLIT__CONTROL__BODY_ERROR;
	control.error = &error;
	expect_control("control-error-servers", &control);
}

static void resuming_is_asked_for_and_granted_as_shown(void **state)
{
	(void)state;
	uint8_t token[2][32], run_id[16];
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Welcome welcome = GPSPLIT__WELCOME__INIT;
	Gpsplit__Control control = GPSPLIT__CONTROL__INIT;
	memset(token[0], 0x11, sizeof token[0]);
	memset(token[1], 0x33, sizeof token[1]);
	memset(run_id, 0x22, sizeof run_id);
	hello.version = welcome.version = GP_PROTO_VERSION;
	hello.resume_token = (ProtobufCBinaryData){sizeof token[0], token[0]};
	hello.last_step = 3;
	hello.run_id = (ProtobufCBinaryData){sizeof run_id, run_id};
	hello.state_hash = 5;
	control.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	control.hello = &hello;
	expect_control("control-hello-resume", &control);
	welcome.session = 7;
	welcome.resume_token = (ProtobufCBinaryData){sizeof token[1], token[1]};
	welcome.last_step = 2;
	welcome.resumed = true;
	control.body_case = GPSPLIT__CONTROL__BODY_WELCOME;
	control.welcome = &welcome;
	expect_control("control-welcome-resumed", &control);
}

static void a_place_within_a_step_is_told_as_shown(void **state)
{
	(void)state;
	const struct gp_place here = {.act = {14}, .grad = {12}};
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Place place = GPSPLIT__PLACE__INIT;
	Gpsplit__Control control = GPSPLIT__CONTROL__INIT;
	gp_place_write(&here, 1, 1, &place);
	hello.version = GP_PROTO_VERSION;
	hello.last_step = 3;
	hello.place = &place;
	control.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	control.hello = &hello;
	expect_control("control-hello-place", &control);
}

/* The value that PROTOCOL.md section 5.6 names. */
static void codecs_without_memory_have_the_hash_as_shown(void **state)
{
	(void)state;
	struct gp_flow none[GP_DIRECTIONS] = {{0}};
	struct gp_flows flows = {.tensors = {1, 1, 1, 1}};
	for (int d = 0; d < GP_DIRECTIONS; d++)
		flows.flow[d] = &none[d];
	assert_true(gp_flows_state_hash(&flows) == UINT64_C(0xa057271c9071c99d));
}

static void heartbeats_look_as_shown(void **state)
{
	(void)state;
	uint8_t bytes[GP_RECORD_HEADER_BYTES + GP_PING_BYTES] = {0};
	for (int i = 0; i < GP_PING_BYTES; i++)
		bytes[GP_RECORD_HEADER_BYTES + i] = (uint8_t)(i + 1);
	const struct gp_record_head ping = {.kind = GP_RECORD_PING, .len = GP_PING_BYTES};
	const struct gp_record_head pong = {.kind = GP_RECORD_PONG, .len = GP_PING_BYTES};
	gp_record_head_write(&ping, bytes);
	expect("ping", bytes, sizeof bytes);
	gp_record_head_write(&pong, bytes);
	expect("pong", bytes, sizeof bytes);
}

static void a_frame_in_one_segment_looks_as_shown(void **state)
{
	(void)state;
	uint8_t bytes[GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES + 8];
	uint8_t *payload = bytes + GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES;
	const float values[2] = {1.0f, -2.0f};
	memcpy(payload, values, sizeof values);
	const struct gp_record_head record = {
		.kind = GP_RECORD_SEGMENT,
		.klass = (uint8_t)gp_frame_class(GP_FRAME_GRAD_UP),
		.flags = GP_SEGMENT_FIRST | GP_SEGMENT_LAST,
		.len = GP_FRAME_HEADER_BYTES + 8,
	};
	const struct gp_frame_head frame = {
		.type = GP_FRAME_GRAD_UP,
		.codec = 1,
		.chunk = 2,
		.session = 1,
		.step = 5,
		.payload_len = 8,
		.checksum = gp_frame_checksum(payload, 8),
	};
	gp_record_head_write(&record, bytes);
	gp_frame_head_write(&frame, bytes + GP_RECORD_HEADER_BYTES);
	expect("frame-grad-up", bytes, sizeof bytes);
	assert_int_equal(gp_frame_wire_bytes(8, GP_SEGMENT_BYTES_DEFAULT), sizeof bytes);
}

static void a_frame_of_two_segments_is_cut_as_shown(void **state)
{
	(void)state;
	const struct block *b = find("segments-act-up");
	struct gp_record_head first, last;
	struct gp_err err;
	assert_int_equal(b->len, 2 * GP_RECORD_HEADER_BYTES);
	assert_int_equal(gp_record_head_read(b->bytes, &first, &err), GP_OK);
	assert_int_equal(gp_record_head_read(b->bytes + GP_RECORD_HEADER_BYTES, &last, &err), GP_OK);
	assert_int_equal(first.klass, gp_frame_class(GP_FRAME_ACT_UP));
	assert_int_equal(first.flags, GP_SEGMENT_FIRST);
	assert_int_equal(first.len, GP_SEGMENT_BYTES_DEFAULT);
	assert_int_equal(last.klass, gp_frame_class(GP_FRAME_ACT_UP));
	assert_int_equal(last.flags, GP_SEGMENT_LAST);
	assert_int_equal(first.len + last.len, GP_FRAME_HEADER_BYTES + 200000);
	assert_int_equal(gp_frame_wire_bytes(200000, GP_SEGMENT_BYTES_DEFAULT), 200000 + 64 + 32);
}

static void what_the_page_calls_refused_is_refused(void **state)
{
	(void)state;
	int prefaces = 0, records = 0;
	for (int i = 0; i < block_count; i++) {
		const struct block *b = &blocks[i];
		struct gp_record_head h;
		uint16_t version;
		struct gp_err err;
		if (strncmp(b->name, "refused-preface", 15) == 0) {
			assert_int_equal(b->len, GP_PREFACE_BYTES);
			assert_int_equal(gp_preface_read(b->bytes, &version, &err), GP_PROTO);
			prefaces++;
		} else if (strncmp(b->name, "refused-record", 14) == 0) {
			assert_int_equal(b->len, GP_RECORD_HEADER_BYTES);
			/* The checksum is right except in the one example about it. */
			const bool wrong_sum = strstr(b->name, "checksum");
			assert_int_equal(gp_record_head_read(b->bytes, &h, &err), wrong_sum ? GP_DAMAGED : GP_PROTO);
			assert_int_equal(strstr(err.text, "checksum") != NULL, wrong_sum);
			records++;
		}
	}
	assert_int_equal(prefaces, 2);
	assert_int_equal(records, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_page_has_exactly_the_examples_that_are_tested),
		cmocka_unit_test(the_preface_is_the_one_we_send),
		cmocka_unit_test(a_commit_is_packed_as_shown),
		cmocka_unit_test(ranks_are_packed_as_shown),
		cmocka_unit_test(rungs_are_packed_as_shown),
		cmocka_unit_test(checkpoints_are_asked_for_and_answered_as_shown),
		cmocka_unit_test(probes_are_packed_as_shown),
		cmocka_unit_test(sums_of_squares_are_packed_as_shown),
		cmocka_unit_test(other_servers_are_named_as_shown),
		cmocka_unit_test(resuming_is_asked_for_and_granted_as_shown),
		cmocka_unit_test(a_place_within_a_step_is_told_as_shown),
		cmocka_unit_test(codecs_without_memory_have_the_hash_as_shown),
		cmocka_unit_test(intervals_are_packed_as_shown),
		cmocka_unit_test(heartbeats_look_as_shown),
		cmocka_unit_test(a_frame_in_one_segment_looks_as_shown),
		cmocka_unit_test(a_frame_of_two_segments_is_cut_as_shown),
		cmocka_unit_test(what_the_page_calls_refused_is_refused),
	};
	return cmocka_run_group_tests(tests, read_page, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of preface, record and frame headers (common/wire/frame.h). Whole examples
 * are in PROTOCOL.md, see test_protocol_examples.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/wire/frame.h"

static void a_record_header_survives_writing_and_reading(void **state)
{
	(void)state;
	const struct gp_record_head heads[] = {
		{GP_RECORD_CONTROL, 0, 0, 1, 0},
		{GP_RECORD_CONTROL, 0, 0, GP_CONTROL_BYTES_MAX, 0},
		{GP_RECORD_PING, 0, 0, 8, 0},
		{GP_RECORD_PONG, 0, 0, 8, 0},
		{GP_RECORD_SEGMENT, GP_CLASS_URGENT, GP_SEGMENT_FIRST | GP_SEGMENT_LAST, 64, 0},
		{GP_RECORD_SEGMENT, GP_CLASS_BULK, 0, 1, 0},
		{GP_RECORD_SEGMENT, GP_CLASS_PARAM, GP_SEGMENT_LAST, GP_SEGMENT_BYTES_MAX, 0},
	};
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		uint8_t bytes[GP_RECORD_HEADER_BYTES];
		struct gp_record_head back;
		struct gp_err err;
		gp_record_head_write(&heads[i], bytes);
		assert_int_equal(gp_record_head_read(bytes, &back, &err), GP_OK);
		assert_int_equal(back.kind, heads[i].kind);
		assert_int_equal(back.klass, heads[i].klass);
		assert_int_equal(back.flags, heads[i].flags);
		assert_int_equal(back.len, heads[i].len);
	}
}

static void a_frame_header_survives_writing_and_reading(void **state)
{
	(void)state;
	const struct gp_frame_head h = {
		.type = GP_FRAME_GRAD_DOWN,
		.codec = 0xfedc,
		.chunk = 0x89abcdef,
		.session = 0x0123456789abcdef,
		.step = 0xfedcba9876543210,
		.payload_len = UINT64_MAX,
		.checksum = 0x1122334455667788,
	};
	uint8_t bytes[GP_FRAME_HEADER_BYTES];
	struct gp_frame_head back;
	struct gp_err err;
	gp_frame_head_write(&h, bytes);
	assert_int_equal(gp_frame_head_read(bytes, &back, &err), GP_OK);
	assert_int_equal(back.type, h.type);
	assert_int_equal(back.flags, h.flags);
	assert_int_equal(back.codec, h.codec);
	assert_int_equal(back.chunk, h.chunk);
	assert_true(back.session == h.session && back.step == h.step);
	assert_true(back.payload_len == h.payload_len && back.checksum == h.checksum);
}

static void a_frame_header_with_a_type_or_flag_that_does_not_exist_is_refused(void **state)
{
	(void)state;
	const struct {
		uint8_t type, flags;
		bool good;
	} cases[] = {
		{0, 0, false},
		{GP_FRAME_TYPE_COUNT, 0, false},
		{255, 0, false},
		{GP_FRAME_ACT_UP, GP_FRAME_FLAG_CALIBRATE, false},
		{GP_FRAME_ACT_UP, 0x04, false},
		{GP_FRAME_ACT_UP, GP_FRAME_FLAG_EVAL | 0x04, false},
		{GP_FRAME_GRAD_UP, GP_FRAME_FLAG_EVAL | GP_FRAME_FLAG_CALIBRATE, false},
		{GP_FRAME_ACT_UP, GP_FRAME_FLAG_EVAL | GP_FRAME_FLAG_CALIBRATE, true},
		{GP_FRAME_ACT_DOWN, GP_FRAME_FLAG_EVAL | GP_FRAME_FLAG_CALIBRATE, true},
		{GP_FRAME_GRAD_UP, GP_FRAME_FLAG_EVAL, false},
		{GP_FRAME_PARAM_DOWN, GP_FRAME_FLAG_EVAL, false},
		{GP_FRAME_ACT_UP, GP_FRAME_FLAG_EVAL, true},
		{GP_FRAME_ACT_DOWN, GP_FRAME_FLAG_EVAL, true},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct gp_frame_head h = {.type = cases[i].type, .flags = cases[i].flags};
		struct gp_frame_head back = {.type = 99};
		uint8_t bytes[GP_FRAME_HEADER_BYTES];
		struct gp_err err;
		gp_frame_head_write(&h, bytes);
		assert_int_equal(gp_frame_head_read(bytes, &back, &err), cases[i].good ? GP_OK : GP_PROTO);
		assert_int_equal(back.type, cases[i].good ? cases[i].type : 99); /* untouched on failure */
	}
}

static void a_preface_with_impossible_versions_or_reserved_bytes_is_refused(void **state)
{
	(void)state;
	const struct {
		int at;
		uint8_t value;
		enum gp_status status;
	} cases[] = {
		{0, 'G', GP_DAMAGED}, {7, '\r', GP_PROTO}, {8, 0, GP_DAMAGED},  {10, 0, GP_DAMAGED},
		{10, 3, GP_DAMAGED},  {12, 1, GP_DAMAGED}, {15, 1, GP_DAMAGED}, {9, 1, GP_OK},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t bytes[GP_PREFACE_BYTES];
		uint16_t version = 0;
		struct gp_err err;
		gp_preface_write(bytes);
		bytes[cases[i].at] = cases[i].value;
		assert_int_equal(gp_preface_read(bytes, &version, &err), cases[i].status);
		assert_int_equal(version, cases[i].status == GP_OK ? GP_PROTO_VERSION : 0);
	}
}

static void wire_bytes_count_the_frame_header_and_one_record_header_per_segment(void **state)
{
	(void)state;
	const uint32_t seg = GP_SEGMENT_BYTES_MIN;
	assert_int_equal(gp_frame_wire_bytes(0, seg), 64 + 16);
	assert_int_equal(gp_frame_wire_bytes(1, seg), 64 + 16 + 1);
	assert_int_equal(gp_frame_wire_bytes(seg - 64, seg), seg + 16);
	assert_int_equal(gp_frame_wire_bytes(seg - 63, seg), seg + 1 + 32);
	assert_int_equal(gp_frame_wire_bytes(10ull * seg, seg), 10ull * seg + 64 + 11 * 16);
}

static void every_frame_type_has_a_name_and_a_class(void **state)
{
	(void)state;
	assert_string_equal(gp_frame_type_name(GP_FRAME_ACT_UP), "act_up");
	assert_string_equal(gp_frame_type_name(GP_FRAME_PARAM_DOWN), "param_down");
	assert_string_equal(gp_frame_type_name((enum gp_frame_type)0), "?");
	assert_string_equal(gp_frame_type_name((enum gp_frame_type)200), "?");
	assert_int_equal(gp_frame_class(GP_FRAME_ACT_UP), GP_CLASS_BULK);
	assert_int_equal(gp_frame_class(GP_FRAME_GRAD_DOWN), GP_CLASS_BULK);
	assert_int_equal(gp_frame_class(GP_FRAME_ACT_DOWN), GP_CLASS_URGENT);
	assert_int_equal(gp_frame_class(GP_FRAME_GRAD_UP), GP_CLASS_URGENT);
	assert_int_equal(gp_frame_class(GP_FRAME_PARAM_UP), GP_CLASS_PARAM);
	assert_int_equal(gp_frame_class(GP_FRAME_PARAM_DOWN), GP_CLASS_PARAM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_header_survives_writing_and_reading),
		cmocka_unit_test(a_frame_header_survives_writing_and_reading),
		cmocka_unit_test(a_frame_header_with_a_type_or_flag_that_does_not_exist_is_refused),
		cmocka_unit_test(a_preface_with_impossible_versions_or_reserved_bytes_is_refused),
		cmocka_unit_test(wire_bytes_count_the_frame_header_and_one_record_header_per_segment),
		cmocka_unit_test(every_frame_type_has_a_name_and_a_class),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The channel over a pair in memory: what crosses, in which order, and what a
 * hostile peer leads to (PROTOCOL.md sections 2-4); with --tls the same inside
 * TLS. Silence, ends and death: test_channel_life.c. TCP: test_channel_tcp.c.
 */
#include "tests/unit/channel_pair.h"

static void control_messages_cross_in_one_byte_reads(void **state)
{
	(void)state;
	struct pair p;
	pair_open(&p, 1, NULL);
	send_text(&p.a, "hello");
	rig_run_until(&p.loop, &p.b.controls, 1);
	assert_int_equal(p.b.opened, 1);
	assert_int_equal(p.b.control_len, 5);
	assert_memory_equal(p.b.control, "hello", 5);
	send_text(&p.b, "welcome");
	rig_run_until(&p.loop, &p.a.controls, 1);
	assert_memory_equal(p.a.control, "welcome", 7);
	pair_close(&p);
}

static void frames_of_every_length_cross_intact(void **state)
{
	(void)state;
	const size_t seg = GP_SEGMENT_BYTES_MIN;
	const size_t lengths[] = {0, 1, 63, seg - 65, seg - 64, seg - 63, 2 * seg - 64, 2 * seg, 5 * seg + 17};
	const size_t chunks[] = {0, 1, 7, 4096};
	const struct gp_channel_options o = {.segment_bytes = GP_SEGMENT_BYTES_MIN};
	for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
		struct pair p;
		pair_open(&p, chunks[c], &o);
		for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
			struct gp_frame *f = rig_frame_new(GP_FRAME_ACT_UP, lengths[i]);
			gp_channel_send_frame(p.a.ch, f);
			rig_run_until(&p.loop, &p.b.frames, (int)i + 1);
			rig_run_until(&p.loop, &p.a.sent, (int)i + 1);
			assert_int_equal(p.b.ended, 0);
			rig_frame_free(f);
		}
		pair_close(&p);
	}
}

static void an_urgent_frame_waits_for_two_segments_of_a_bulk_frame_at_most(void **state)
{
	(void)state;
	struct pair p;
	const size_t seg = GP_SEGMENT_BYTES_DEFAULT;
	pair_open(&p, 0, NULL);
	struct gp_frame *bulk = rig_frame_new(GP_FRAME_ACT_UP, 13 << 20);
	struct gp_frame *urgent = rig_frame_new(GP_FRAME_GRAD_UP, 1000);
	gp_channel_send_frame(p.a.ch, bulk);
	while (!p.b.bulk || p.b.bulk->at < 3 * seg)
		uv_run(&p.loop, UV_RUN_ONCE);
	const uint64_t before = p.b.bulk->at;
	gp_channel_send_frame(p.a.ch, urgent);
	rig_run_until(&p.loop, &p.b.frames, 1);
	assert_int_equal(p.b.events[0], GP_FRAME_GRAD_UP);
	assert_true(p.b.bulk_at_urgent - before <= 2 * seg);
	rig_run_until(&p.loop, &p.b.frames, 2);
	assert_int_equal(p.b.events[1], GP_FRAME_ACT_UP);
	rig_run_until(&p.loop, &p.a.sent, 2);
	pair_close(&p);
	rig_frame_free(bulk);
	rig_frame_free(urgent);
}

static void a_less_urgent_frame_never_overtakes(void **state)
{
	(void)state;
	struct pair p;
	struct gp_frame *f[4];
	const enum gp_frame_type types[4] = {GP_FRAME_PARAM_UP, GP_FRAME_ACT_UP, GP_FRAME_GRAD_UP, GP_FRAME_ACT_UP};
	pair_open(&p, 0, NULL);
	for (int i = 0; i < 4; i++)
		f[i] = rig_frame_new(types[i], 1 << 20);
	for (int i = 0; i < 4; i++)
		gp_channel_send_frame(p.a.ch, f[i]);
	assert_int_equal(gp_channel_backlog(p.a.ch, GP_CLASS_BULK), 2);
	rig_run_until(&p.loop, &p.b.frames, 4);
	rig_run_until(&p.loop, &p.a.sent, 4);
	const uint8_t order[4] = {GP_FRAME_GRAD_UP, GP_FRAME_ACT_UP, GP_FRAME_ACT_UP, GP_FRAME_PARAM_UP};
	assert_memory_equal(p.b.events, order, 4);
	assert_int_equal(gp_channel_backlog(p.a.ch, GP_CLASS_BULK), 0);
	pair_close(&p);
	for (int i = 0; i < 4; i++)
		rig_frame_free(f[i]);
}

static void a_peer_that_speaks_something_else_is_named_and_refused(void **state)
{
	(void)state;
	struct duel d;
	duel_open(&d, NULL);
	duel_write(&d, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
	duel_expect(&d, GP_PROTO, "memory:b: does not speak gpsplit (it began with \"GET / HT\")");
	assert_int_equal(d.e.opened, 0);
	duel_close(&d);
	duel_open(&d, NULL);
	duel_write(&d, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00\x00\x00\x00", 16);
	duel_expect(&d, GP_PROTO, "looks like TLS");
	duel_close(&d);
}

static void a_version_that_cannot_be_spoken_is_refused_with_both_ranges(void **state)
{
	(void)state;
	struct duel d;
	uint8_t preface[GP_PREFACE_BYTES];
	gp_preface_write(preface);
	preface[8] = 9;
	preface[10] = 7;
	duel_open(&d, NULL);
	duel_write(&d, preface, sizeof preface);
	duel_expect(&d, GP_PROTO, "speaks protocol versions 7 to 9, this program 2 to 2");
	duel_close(&d);
}

static void a_peer_of_a_newer_version_that_still_speaks_ours_is_welcome(void **state)
{
	(void)state;
	struct duel d;
	uint8_t preface[GP_PREFACE_BYTES];
	gp_preface_write(preface);
	preface[8] = 9;
	duel_open(&d, NULL);
	duel_write(&d, preface, sizeof preface);
	rig_run_until(&d.loop, &d.e.opened, 1);
	assert_int_equal(d.e.ended, 0);
	duel_close(&d);
}

static void any_changed_bit_of_a_record_header_ends_the_channel(void **state)
{
	(void)state;
	for (int bit = 0; bit < 8 * GP_RECORD_HEADER_BYTES; bit++) {
		struct duel d;
		const struct gp_record_head h = {GP_RECORD_CONTROL, 0, 0, 5, 0};
		duel_open(&d, NULL);
		duel_preface(&d);
		gp_record_head_write(&h, d.head);
		d.head[bit / 8] ^= (uint8_t)(1 << bit % 8);
		duel_write(&d, d.head, sizeof d.head);
		duel_expect(&d, GP_DAMAGED, "checksum is wrong");
		duel_close(&d);
	}
}

static void any_changed_bit_of_a_frame_header_ends_the_channel_before_a_buffer_is_asked_for(void **state)
{
	(void)state;
	for (int bit = 0; bit < 8 * GP_FRAME_HEADER_BYTES; bit++) {
		struct duel d;
		uint8_t bytes[GP_FRAME_HEADER_BYTES];
		const struct gp_frame_head h = {.type = GP_FRAME_ACT_UP, .payload_len = 10};
		duel_open(&d, NULL);
		duel_preface(&d);
		duel_record(&d, GP_RECORD_SEGMENT, GP_CLASS_BULK, GP_SEGMENT_FIRST | GP_SEGMENT_LAST, 74);
		gp_frame_head_write(&h, bytes);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		duel_write(&d, bytes, sizeof bytes);
		duel_expect(&d, GP_DAMAGED, "checksum is wrong");
		assert_int_equal(d.e.begins, 0);
		duel_close(&d);
	}
}

static void lengths_above_a_limit_are_refused_before_anything_is_allocated(void **state)
{
	(void)state;
	const struct {
		uint64_t payload_len;
		const char *text;
	} cases[] = {
		{UINT64_MAX, "the limit is 1000000"},
		{UINT64_MAX - 63, "the limit is 1000000"},
		{4ull << 30, "the limit is 1000000"},
		{1000001, "the limit is 1000000"},
	};
	const struct gp_channel_options o = {.frame_bytes_max = 1000000, .control_bytes_max = 1000};
	struct duel d;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		duel_open(&d, &o);
		duel_preface(&d);
		const uint64_t calls = gp_mem_calls();
		duel_frame(&d, GP_FRAME_ACT_UP, GP_CLASS_BULK, GP_SEGMENT_FIRST, 64, cases[i].payload_len);
		duel_expect(&d, GP_PROTO, cases[i].text);
		assert_int_equal(d.e.begins, 0);
		assert_int_equal(gp_mem_calls(), calls);
		duel_close(&d);
	}
	const uint32_t control[] = {1001, GP_CONTROL_BYTES_MAX, GP_CONTROL_BYTES_MAX + 1, UINT32_MAX};
	for (size_t i = 0; i < sizeof control / sizeof *control; i++) {
		duel_open(&d, &o);
		duel_preface(&d);
		const uint64_t calls = gp_mem_calls();
		duel_record(&d, GP_RECORD_CONTROL, 0, 0, control[i]);
		duel_expect(&d, GP_PROTO, "sent a control message of");
		assert_int_equal(gp_mem_calls(), calls);
		duel_close(&d);
	}
}

static void the_limit_itself_is_allowed(void **state)
{
	(void)state;
	const struct gp_channel_options o = {.frame_bytes_max = 1000, .control_bytes_max = 1000};
	static const uint8_t bytes[1000];
	struct duel d;
	duel_open(&d, &o);
	duel_preface(&d);
	d.e.verify = false;
	duel_control(&d, bytes, 1000, 0);
	duel_frame(&d, GP_FRAME_ACT_UP, GP_CLASS_BULK, GP_SEGMENT_FIRST | GP_SEGMENT_LAST, 1064, 1000);
	duel_write(&d, bytes, 1000);
	rig_run_until(&d.loop, &d.e.frames, 1);
	assert_int_equal(d.e.controls, 1);
	assert_int_equal(d.e.ended, 0);
	duel_close(&d);
}

/* One flipped bit in COMMIT's learning rate would train another model. */
static void a_damaged_control_message_is_not_delivered(void **state)
{
	(void)state;
	static const uint8_t bytes[9] = {0x2a, 7, 8, 3, 0x15, 0xcd, 0xcc, 0xcc, 0x3d};
	struct duel d;
	duel_open(&d, NULL);
	duel_preface(&d);
	duel_control(&d, bytes, sizeof bytes, 1);
	duel_expect(&d, GP_DAMAGED, "control message whose checksum is wrong");
	assert_int_equal(d.e.controls, 0);
	duel_close(&d);
}

static void a_control_length_that_lies_costs_only_what_arrives(void **state)
{
	(void)state;
	struct duel d;
	static const uint8_t bytes[20000];
	duel_open(&d, NULL);
	duel_preface(&d);
	const uint64_t calls = gp_mem_calls();
	duel_record(&d, GP_RECORD_CONTROL, 0, 0, GP_CONTROL_BYTES_MAX);
	duel_write(&d, bytes, 4000);
	assert_int_equal(gp_mem_calls(), calls + 1); /* of 4 KiB */
	duel_write(&d, bytes, 20000);
	assert_int_equal(gp_mem_calls(), calls + 2);
	duel_close(&d);
}

/* Nobody may sit on the memory of an OPEN for as long as a training lasts. */
static void memory_of_a_long_message_goes_when_none_as_long_may_follow(void **state)
{
	(void)state;
	struct duel d;
	static const uint8_t bytes[20000];
	duel_open(&d, NULL);
	duel_preface(&d);
	d.e.lower_control_to = 4096;
	const struct gp_record_head h = {GP_RECORD_CONTROL, 0, 0, sizeof bytes,
					 gp_control_checksum(bytes, sizeof bytes)};
	gp_record_head_write(&h, d.head);
	duel_write(&d, d.head, GP_RECORD_HEADER_BYTES);
	duel_write(&d, bytes, 19000);
	const uint64_t calls = gp_mem_calls();
	duel_write(&d, bytes, 1000);
	rig_run_until(&d.loop, &d.e.controls, 1);
	assert_int_equal(gp_mem_calls(), calls + 1); /* 4 KiB in its place */
	duel_control(&d, bytes, 4096, 0);
	rig_run_until(&d.loop, &d.e.controls, 2);
	assert_int_equal(gp_mem_calls(), calls + 1);
	duel_close(&d);
}

static void segments_out_of_order_end_the_channel(void **state)
{
	(void)state;
	const uint8_t first = GP_SEGMENT_FIRST, last = GP_SEGMENT_LAST, both = first | last;
	static const uint8_t bytes[GP_SEGMENT_BYTES_MAX];
	struct duel d;

	duel_open(&d, NULL);
	duel_preface(&d);
	duel_record(&d, GP_RECORD_SEGMENT, GP_CLASS_BULK, last, 100);
	duel_expect(&d, GP_PROTO, "a bulk segment that belongs to no frame");
	duel_close(&d);

	duel_open(&d, NULL);
	duel_preface(&d);
	duel_frame(&d, GP_FRAME_ACT_UP, GP_CLASS_BULK, first, 64, 1000);
	duel_record(&d, GP_RECORD_SEGMENT, GP_CLASS_BULK, first, 64);
	duel_expect(&d, GP_PROTO, "began a bulk frame while another is under way");
	duel_close(&d);

	duel_open(&d, NULL);
	duel_preface(&d);
	duel_frame(&d, GP_FRAME_ACT_UP, GP_CLASS_BULK, first, 164, 1000);
	duel_write(&d, bytes, 100);
	duel_record(&d, GP_RECORD_SEGMENT, GP_CLASS_BULK, last, 901);
	duel_expect(&d, GP_PROTO, "past the 1000 bytes of its frame");
	duel_close(&d);

	duel_open(&d, NULL);
	duel_preface(&d);
	duel_frame(&d, GP_FRAME_ACT_UP, GP_CLASS_BULK, first, 164, 1000);
	duel_write(&d, bytes, 100);
	duel_record(&d, GP_RECORD_SEGMENT, GP_CLASS_BULK, last, 899);
	duel_expect(&d, GP_PROTO, "ended a bulk frame 1 bytes too early");
	duel_close(&d);

	duel_open(&d, NULL);
	duel_preface(&d);
	duel_frame(&d, GP_FRAME_GRAD_UP, GP_CLASS_URGENT, first, 164, 100);
	duel_expect(&d, GP_PROTO, "without its last-segment flag");
	duel_close(&d);

	duel_open(&d, NULL);
	duel_preface(&d);
	duel_frame(&d, GP_FRAME_ACT_UP, GP_CLASS_URGENT, both, 164, 100);
	duel_expect(&d, GP_PROTO, "sent a act_up frame in class urgent");
	duel_close(&d);
}

static void records_that_no_one_may_send_end_the_channel(void **state)
{
	(void)state;
	const struct {
		struct gp_record_head h;
		const char *text;
	} cases[] = {
		{{0, 0, 0, 8, 0}, "unknown kind 0"},
		{{5, 0, 0, 8, 0}, "unknown kind 5"},
		{{GP_RECORD_CONTROL, 1, 0, 8, 0}, "both must be 0"},
		{{GP_RECORD_CONTROL, 0, 1, 8, 0}, "both must be 0"},
		{{GP_RECORD_CONTROL, 0, 0, 0, 0}, "control message of 0 bytes"},
		{{GP_RECORD_PING, 0, 0, 9, 0}, "heartbeat of 9 bytes"},
		{{GP_RECORD_PONG, 0, 0, 0, 0}, "heartbeat of 0 bytes"},
		{{GP_RECORD_SEGMENT, 0, 3, 64, 0}, "unknown class 0"},
		{{GP_RECORD_SEGMENT, 4, 3, 64, 0}, "unknown class 4"},
		{{GP_RECORD_SEGMENT, 1, 4, 64, 0}, "unknown flags 0x04"},
		{{GP_RECORD_SEGMENT, 1, 1, 63, 0}, "segment of 63 bytes"},
		{{GP_RECORD_SEGMENT, 1, 0, 0, 0}, "segment of 0 bytes"},
		{{GP_RECORD_SEGMENT, 1, 0, GP_SEGMENT_BYTES_MAX + 1, 0}, "segment of 262145 bytes"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct duel d;
		duel_open(&d, NULL);
		duel_preface(&d);
		duel_record(&d, cases[i].h.kind, cases[i].h.klass, cases[i].h.flags, cases[i].h.len);
		duel_expect(&d, GP_PROTO, cases[i].text);
		duel_close(&d);
	}
}

static void a_frame_that_the_owner_refuses_ends_the_channel_with_the_owners_words(void **state)
{
	(void)state;
	struct duel d;
	duel_open(&d, NULL);
	duel_preface(&d);
	d.e.fail_begin = true;
	duel_frame(&d, GP_FRAME_ACT_UP, GP_CLASS_BULK, GP_SEGMENT_FIRST | GP_SEGMENT_LAST, 65, 1);
	duel_expect(&d, GP_PROTO, "the owner does not want this frame");
	duel_close(&d);
}

static void a_payload_that_was_changed_fails_its_checksum(void **state)
{
	(void)state;
	struct pair p;
	pair_open(&p, 0, NULL);
	struct gp_frame *f = rig_frame_new(GP_FRAME_GRAD_DOWN, 1000);
	f->payload[999] ^= 1;
	gp_channel_send_frame(p.a.ch, f);
	rig_run_until(&p.loop, &p.b.ended, 1);
	assert_int_equal(p.b.status, GP_DAMAGED);
	assert_non_null(strstr(p.b.err.text, "checksum of grad_down frame"));
	pair_close(&p);
	rig_frame_free(f);
}

static void frames_of_different_classes_are_taken_in_between_and_half_ones_come_back(void **state)
{
	(void)state;
	struct duel d;
	static const uint8_t bytes[200];
	duel_open(&d, NULL);
	duel_preface(&d);
	d.e.verify = false;
	duel_frame(&d, GP_FRAME_PARAM_UP, GP_CLASS_PARAM, GP_SEGMENT_FIRST, 164, 1000);
	duel_write(&d, bytes, 100);
	duel_frame(&d, GP_FRAME_ACT_UP, GP_CLASS_BULK, GP_SEGMENT_FIRST, 164, 300);
	duel_write(&d, bytes, 100);
	duel_frame(&d, GP_FRAME_GRAD_UP, GP_CLASS_URGENT, GP_SEGMENT_FIRST | GP_SEGMENT_LAST, 164, 100);
	duel_write(&d, bytes, 100);
	assert_int_equal(d.e.frames, 1);
	duel_record(&d, GP_RECORD_SEGMENT, GP_CLASS_BULK, GP_SEGMENT_LAST, 200);
	duel_write(&d, bytes, 200);
	assert_int_equal(d.e.frames, 2);
	const struct gp_kind_account *act = &gp_channel_account(d.e.ch)->received.kind[GP_FRAME_ACT_UP];
	assert_true(act->timed_bytes >= 200 + GP_RECORD_HEADER_BYTES &&
		    act->timed_bytes <= 300 + GP_RECORD_HEADER_BYTES);
	assert_int_equal(gp_channel_account(d.e.ch)->received.kind[GP_FRAME_PARAM_UP].timed_bytes,
			 0); /* not whole yet */
	/* In the sum of all kinds each byte counts once: the frame of parameters was under way all the time. */
	const struct gp_dir_account *all = &gp_channel_account(d.e.ch)->received;
	assert_true(all->timed_bytes >= 400 && all->timed_bytes < all->wire_bytes && all->timed_ns > 0);
	assert_null(gp_channel_take_partial(d.e.ch)); /* not while it lives */
	duel_record(&d, GP_RECORD_SEGMENT, GP_CLASS_URGENT, GP_SEGMENT_LAST, 1);
	duel_expect(&d, GP_PROTO, "belongs to no frame");
	struct gp_frame *f = gp_channel_take_partial(d.e.ch);
	assert_non_null(f);
	assert_int_equal(f->head.type, GP_FRAME_PARAM_UP);
	assert_int_equal(f->at, 100);
	assert_null(gp_channel_take_partial(d.e.ch));
	rig_frame_free(f);
	duel_close(&d);
}

int main(int argc, char **argv)
{
	(void)argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(control_messages_cross_in_one_byte_reads),
		cmocka_unit_test(frames_of_every_length_cross_intact),
		cmocka_unit_test(an_urgent_frame_waits_for_two_segments_of_a_bulk_frame_at_most),
		cmocka_unit_test(a_less_urgent_frame_never_overtakes),
		cmocka_unit_test(a_peer_that_speaks_something_else_is_named_and_refused),
		cmocka_unit_test(a_version_that_cannot_be_spoken_is_refused_with_both_ranges),
		cmocka_unit_test(a_peer_of_a_newer_version_that_still_speaks_ours_is_welcome),
		cmocka_unit_test(any_changed_bit_of_a_record_header_ends_the_channel),
		cmocka_unit_test(any_changed_bit_of_a_frame_header_ends_the_channel_before_a_buffer_is_asked_for),
		cmocka_unit_test(lengths_above_a_limit_are_refused_before_anything_is_allocated),
		cmocka_unit_test(the_limit_itself_is_allowed),
		cmocka_unit_test(a_damaged_control_message_is_not_delivered),
		cmocka_unit_test(memory_of_a_long_message_goes_when_none_as_long_may_follow),
		cmocka_unit_test(a_control_length_that_lies_costs_only_what_arrives),
		cmocka_unit_test(segments_out_of_order_end_the_channel),
		cmocka_unit_test(records_that_no_one_may_send_end_the_channel),
		cmocka_unit_test(a_frame_that_the_owner_refuses_ends_the_channel_with_the_owners_words),
		cmocka_unit_test(a_payload_that_was_changed_fails_its_checksum),
		cmocka_unit_test(frames_of_different_classes_are_taken_in_between_and_half_ones_come_back),
	};
	return argc > 1 ? cmocka_run_group_tests_name("channel inside TLS", tests, use_tls, leave_tls)
			: cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The channel over a pair in memory: what crosses, in which order, and what a
 * hostile or dying peer leads to (PROTOCOL.md sections 2-4); with --tls the same
 * inside TLS. TCP is test_channel_tcp.c.
 */
#include "channel_rig.h"

#include "common/fault.h"
#include "tests/unit/tls_files.h"

struct pair {
	uv_loop_t loop;
	struct rig_end a, b;
	struct gp_conn *ca, *cb; /* valid while their channel lives */
};

static void pair_open_as(struct pair *p, size_t chunk, const struct gp_channel_options *a,
			 const struct gp_channel_options *b)
{
	memset(p, 0, sizeof *p);
	uv_loop_init(&p->loop);
	rig_join(&p->loop, chunk, &p->ca, &p->cb);
	rig_open(&p->loop, &p->a, p->ca, a);
	rig_open(&p->loop, &p->b, p->cb, b);
}

static void pair_open(struct pair *p, size_t chunk, const struct gp_channel_options *o)
{
	pair_open_as(p, chunk, o, o);
}

static void pair_close(struct pair *p)
{
	rig_close_and_wait(&p->loop, &p->a);
	rig_close_and_wait(&p->loop, &p->b);
	rig_finish_loop(&p->loop);
}

static void send_text(struct rig_end *e, const char *text)
{
	struct gp_err err;
	const struct gp_span msg = {(const uint8_t *)text, strlen(text)};
	assert_int_equal(gp_channel_send_control(e->ch, msg, &err), GP_OK);
}

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

/* A channel against a peer that is bytes. */
struct duel {
	uv_loop_t loop;
	struct rig_end e;
	struct rig_raw raw;
	uint8_t head[GP_RECORD_HEADER_BYTES];
};

static void duel_open(struct duel *d, const struct gp_channel_options *o)
{
	struct gp_conn *a, *b;
	memset(d, 0, sizeof *d);
	uv_loop_init(&d->loop);
	rig_join(&d->loop, 0, &a, &b);
	rig_open(&d->loop, &d->e, a, o);
	rig_raw_init(&d->raw, b);
	b->ops->read_start(b);
}

static void duel_write(struct duel *d, const void *bytes, size_t len)
{
	rig_raw_write(&d->raw, bytes, len);
	while (d->raw.written < d->raw.writes && !d->raw.ended)
		uv_run(&d->loop, UV_RUN_ONCE);
}

static void duel_preface(struct duel *d)
{
	static uint8_t preface[GP_PREFACE_BYTES];
	gp_preface_write(preface);
	duel_write(d, preface, sizeof preface);
	assert_int_equal(d->e.opened, 1);
}

static void duel_record(struct duel *d, uint8_t kind, uint8_t klass, uint8_t flags, uint32_t len)
{
	const struct gp_record_head h = {kind, klass, flags, len, 0};
	gp_record_head_write(&h, d->head);
	duel_write(d, d->head, sizeof d->head);
}

/* A control record; `damage` is xored into its body's checksum. */
static void duel_control(struct duel *d, const uint8_t *body, uint32_t len, uint32_t damage)
{
	const struct gp_record_head h = {GP_RECORD_CONTROL, GP_CLASS_CONTROL, 0, len,
					 gp_control_checksum(body, len) ^ damage};
	gp_record_head_write(&h, d->head);
	duel_write(d, d->head, sizeof d->head);
	duel_write(d, body, len);
}

/* The first segment's record header and a frame header. */
static void duel_frame(struct duel *d, enum gp_frame_type type, enum gp_class klass, uint8_t flags, uint32_t len,
		       uint64_t payload_len)
{
	static uint8_t bytes[GP_FRAME_HEADER_BYTES];
	const struct gp_frame_head h = {.type = (uint8_t)type, .payload_len = payload_len};
	duel_record(d, GP_RECORD_SEGMENT, (uint8_t)klass, flags, len);
	gp_frame_head_write(&h, bytes);
	duel_write(d, bytes, sizeof bytes);
}

static void duel_expect(struct duel *d, enum gp_status status, const char *text)
{
	rig_run_until(&d->loop, &d->e.ended, 1);
	assert_int_equal(d->e.ended, 1);
	assert_int_equal(d->e.status, status);
	if (!strstr(d->e.err.text, text))
		fail_msg("expected '%s' in '%s'", text, d->e.err.text);
}

static void duel_close(struct duel *d)
{
	rig_close_and_wait(&d->loop, &d->e);
	rig_raw_close(&d->loop, &d->raw);
	rig_finish_loop(&d->loop);
	assert_true(d->e.ended <= 1);
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
	duel_expect(&d, GP_PROTO, "speaks protocol versions 7 to 9, this program 1 to 1");
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
		duel_expect(&d, GP_PROTO, "checksum is wrong");
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
		duel_expect(&d, GP_PROTO, "checksum is wrong");
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
	duel_expect(&d, GP_PROTO, "control message whose checksum is wrong");
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
	assert_int_equal(p.b.status, GP_PROTO);
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

static void a_ping_is_answered_with_its_own_bytes(void **state)
{
	(void)state;
	struct duel d;
	duel_open(&d, NULL);
	duel_preface(&d);
	duel_record(&d, GP_RECORD_PING, 0, 0, 8);
	duel_write(&d, "\x01\x02\x03\x04\x05\x06\x07\x08", 8);
	while (d.raw.in_len < GP_PREFACE_BYTES + GP_RECORD_HEADER_BYTES + 8)
		uv_run(&d.loop, UV_RUN_ONCE);
	struct gp_record_head h;
	struct gp_err err;
	assert_int_equal(gp_record_head_read(d.raw.in + GP_PREFACE_BYTES, &h, &err), GP_OK);
	assert_int_equal(h.kind, GP_RECORD_PONG);
	assert_memory_equal(d.raw.in + GP_PREFACE_BYTES + GP_RECORD_HEADER_BYTES, "\x01\x02\x03\x04\x05\x06\x07\x08",
			    8);
	duel_close(&d);
}

static void a_flood_of_pings_makes_no_queue(void **state)
{
	(void)state;
	struct duel d;
	enum { PINGS = 10000, BYTES = GP_RECORD_HEADER_BYTES + 8 };
	uint8_t *flood = calloc(PINGS, BYTES);
	const struct gp_record_head h = {GP_RECORD_PING, 0, 0, 8, 0};
	for (int i = 0; i < PINGS; i++)
		gp_record_head_write(&h, flood + i * BYTES);
	duel_open(&d, NULL);
	duel_preface(&d);
	while (d.raw.in_len < GP_PREFACE_BYTES)
		uv_run(&d.loop, UV_RUN_ONCE);
	d.raw.c->ops->read_stop(d.raw.c);
	const uint64_t calls = gp_mem_calls();
	duel_write(&d, flood, PINGS * BYTES);
	assert_int_equal(gp_mem_calls(), calls);
	d.raw.c->ops->read_start(d.raw.c);
	for (int i = 0; i < 100; i++)
		uv_run(&d.loop, UV_RUN_NOWAIT);
	assert_true(d.raw.in_len <= GP_PREFACE_BYTES + 4 * BYTES);
	assert_int_equal(d.e.ended, 0);
	duel_close(&d);
	free(flood);
}

static const struct gp_channel_options hasty = {
	.heartbeat_ms = 20,
	.idle_timeout_ms = 200,
	.write_timeout_ms = 200,
	.preface_timeout_ms = 200,
};

static void a_peer_that_says_nothing_is_noticed_before_and_after_its_preface(void **state)
{
	(void)state;
	struct duel d;
	duel_open(&d, &hasty);
	duel_expect(&d, GP_TIMEOUT, "memory:b did not say who it is within 0.2 s");
	duel_close(&d);
	duel_open(&d, &hasty);
	duel_preface(&d);
	duel_expect(&d, GP_TIMEOUT, "memory:b sent nothing for 0.2 s");
	duel_close(&d);
}

static void heartbeats_keep_a_silent_channel_alive_and_measure_the_round_trip(void **state)
{
	(void)state;
	struct pair p;
	pair_open(&p, 0, &hasty);
	const struct gp_account *a = gp_channel_account(p.a.ch);
	const uint64_t begin = gp_now_ns();
	while (gp_now_ns() - begin < 800 * 1000000ull || a->sent.heartbeat_bytes < 4 * 24 ||
	       !gp_channel_rtt_us(p.a.ch)) {
		uv_run(&p.loop, UV_RUN_ONCE);
		assert_true(gp_now_ns() - begin < RIG_DEADLINE_NS);
		assert_int_equal(p.a.ended + p.b.ended, 0);
	}
	assert_int_equal(a->sent.heartbeat_bytes % rig_wire(24), 0);
	pair_close(&p);
}

/* The peer's own heartbeats, every 2 s, come too late for it; once in silence, once while this end sends without a pause. */
static void a_deadline_shorter_than_the_peers_heartbeats_is_kept_by_ours(void **state)
{
	(void)state;
	const struct gp_channel_options short_deadline = {.idle_timeout_ms = 300};
	for (int sends = 0; sends < 2; sends++) {
		struct pair p;
		pair_open_as(&p, 0, &short_deadline, NULL);
		const uint64_t begin = gp_now_ns();
		while (gp_now_ns() - begin < 900 * 1000000ull) {
			if (sends && p.a.ended == 0)
				send_text(&p.a, "and on");
			uv_run(&p.loop, UV_RUN_ONCE);
		}
		if (p.a.ended)
			fail_msg("%s", p.a.err.text);
		pair_close(&p);
	}
}

static void a_peer_that_never_reads_is_noticed_and_the_frame_comes_back(void **state)
{
	(void)state;
	struct duel d;
	struct gp_channel_options o = hasty;
	o.idle_timeout_ms = 60000;
	duel_open(&d, &o);
	duel_preface(&d);
	while (d.raw.in_len < GP_PREFACE_BYTES)
		uv_run(&d.loop, UV_RUN_ONCE);
	d.raw.c->ops->read_stop(d.raw.c);
	struct gp_frame *f = rig_frame_new(GP_FRAME_ACT_UP, 1 << 20);
	gp_channel_send_frame(d.e.ch, f);
	duel_expect(&d, GP_TIMEOUT, "memory:b took no bytes for 0.2 s");
	assert_int_equal(d.e.sent, 0); /* its writes are still under way */
	rig_close(&d.e, true);
	rig_run_until(&d.loop, &d.e.closed, 1);
	assert_int_equal(d.e.sent, 1);
	duel_close(&d);
	rig_frame_free(f);
}

static void a_paused_channel_waits_without_blaming_the_peer(void **state)
{
	(void)state;
	struct pair p;
	pair_open(&p, 0, &hasty);
	rig_run_until(&p.loop, &p.b.opened, 1);
	gp_channel_pause(p.b.ch, true);
	send_text(&p.a, "later");
	const uint64_t begin = gp_now_ns();
	while (gp_now_ns() - begin < 500 * 1000000ull)
		uv_run(&p.loop, UV_RUN_ONCE);
	assert_int_equal(p.b.controls, 0);
	assert_int_equal(p.b.ended, 0);
	gp_channel_pause(p.b.ch, false);
	rig_run_until(&p.loop, &p.b.controls, 1);
	pair_close(&p);
}

static void control_messages_that_nobody_reads_end_the_channel_at_the_limit(void **state)
{
	(void)state;
	struct duel d;
	struct gp_err err;
	static const uint8_t bytes[1000];
	const struct gp_channel_options o = {.control_queue_bytes_max = 10000};
	duel_open(&d, &o);
	duel_preface(&d);
	d.raw.c->ops->read_stop(d.raw.c);
	int taken = 0;
	while (gp_channel_send_control(d.e.ch, (struct gp_span){bytes, sizeof bytes}, &err) == GP_OK)
		assert_true(++taken < 100);
	assert_int_equal(err.code, GP_NOMEM);
	assert_int_equal(taken, 9);     /* 9 x 1016 */
	assert_int_equal(d.e.ended, 0); /* not inside the call */
	duel_expect(&d, GP_NOMEM, "does not read");
	duel_close(&d);
}

static void the_last_word_reaches_the_peer_when_closing_with_flush(void **state)
{
	(void)state;
	struct pair p;
	pair_open(&p, 3, NULL);
	send_text(&p.a, "first");
	send_text(&p.a, "last");
	rig_close(&p.a, true);
	rig_run_until(&p.loop, &p.b.ended, 1);
	assert_int_equal(p.b.controls, 2);
	assert_memory_equal(p.b.control, "last", 4);
	assert_int_equal(p.b.status, GP_OK);
	rig_close(&p.b, false);
	rig_run_until(&p.loop, &p.a.closed, 1);
	assert_int_equal(p.a.ended, 0); /* it was the one to close */
	pair_close(&p);
}

static void a_broken_rule_still_allows_a_last_word(void **state)
{
	(void)state;
	struct pair p;
	pair_open(&p, 0, NULL);
	p.b.fail_control = true;
	struct gp_frame *f = rig_frame_new(GP_FRAME_GRAD_DOWN, 5 << 20);
	gp_channel_send_frame(p.b.ch, f); /* gets stuck behind the error */
	send_text(&p.a, "nonsense");
	rig_run_until(&p.loop, &p.b.ended, 1);
	assert_int_equal(p.b.status, GP_INVALID);
	send_text(&p.b, "your message is nonsense");
	rig_close(&p.b, true);
	rig_run_until(&p.loop, &p.a.controls, 1);
	assert_memory_equal(p.a.control, "your message is nonsense", 24);
	rig_close(&p.a, false);
	rig_run_until(&p.loop, &p.b.closed, 1);
	assert_int_equal(p.b.sent, 1);
	pair_close(&p);
	rig_frame_free(f);
}

static void a_peer_that_never_hangs_up_does_not_hold_the_close(void **state)
{
	(void)state;
	struct duel d;
	duel_open(&d, NULL);
	duel_preface(&d);
	rig_close(&d.e, true);
	rig_run_until(&d.loop, &d.e.closed, 1);
	assert_int_equal(d.raw.ended, 1);
	duel_close(&d);
}

static void an_end_within_a_message_is_an_error_and_between_messages_is_not(void **state)
{
	(void)state;
	struct duel d;
	duel_open(&d, NULL);
	duel_preface(&d);
	d.raw.c->ops->shutdown(d.raw.c);
	duel_expect(&d, GP_OK, "closed the connection");
	duel_close(&d);
	duel_open(&d, NULL);
	duel_preface(&d);
	duel_record(&d, GP_RECORD_CONTROL, 0, 0, 5);
	duel_write(&d, "hel", 3);
	d.raw.c->ops->shutdown(d.raw.c);
	duel_expect(&d, GP_PEER, "in the middle of a message");
	duel_close(&d);
	duel_open(&d, NULL);
	d.raw.c->ops->shutdown(d.raw.c);
	duel_expect(&d, GP_PEER, "before it said who it is");
	duel_close(&d);
}

/* A short session of every kind of record, both ways; 0 when the link died before it was through. */
static bool play_session(struct pair *p, struct gp_frame *f[4])
{
	struct gp_err err;
	const struct gp_span msg = {(const uint8_t *)"to and fro", 10};
	(void)!gp_channel_send_control(p->a.ch, msg, &err);
	(void)!gp_channel_send_control(p->b.ch, msg, &err);
	for (int i = 0; i < 4; i++)
		gp_channel_send_frame(i % 2 ? p->b.ch : p->a.ch, f[i]);
	while (!p->a.ended && !p->b.ended && p->a.frames + p->b.frames < 4)
		uv_run(&p->loop, UV_RUN_ONCE);
	return !p->a.ended && !p->b.ended;
}

static void session_frames(struct gp_frame *f[4])
{
	f[0] = rig_frame_new(GP_FRAME_ACT_UP, 300);
	f[1] = rig_frame_new(GP_FRAME_ACT_DOWN, 200);
	f[2] = rig_frame_new(GP_FRAME_GRAD_UP, 100);
	f[3] = rig_frame_new(GP_FRAME_GRAD_DOWN, 0);
}

static void a_link_cut_at_any_byte_ends_both_sides_once_and_returns_every_frame(void **state)
{
	(void)state;
	bool through = false;
	for (uint64_t at = 0; !through; at += rig_tls_server ? 37 : 1) { /* a handshake each */
		struct pair p;
		struct gp_frame *f[4];
		session_frames(f);
		pair_open(&p, 16, NULL);
		rig_cut_after(at % 2 ? p.ca : p.cb, at / 2);
		through = play_session(&p, f);
		if (!through) {
			rig_run_until(&p.loop, &p.a.ended, 1);
			rig_run_until(&p.loop, &p.b.ended, 1);
			assert_int_equal(p.a.status, GP_PEER);
			assert_int_equal(p.b.status, GP_PEER);
		}
		pair_close(&p);
		assert_int_equal(p.a.sent, 2);
		assert_int_equal(p.b.sent, 2);
		assert_true(p.a.ended <= 1 && p.b.ended <= 1);
		assert_true(at < 20000);
		for (int i = 0; i < 4; i++)
			rig_frame_free(f[i]);
	}
}

static void a_channel_may_be_closed_in_any_callback(void **state)
{
	(void)state;
	for (int place = RIG_IN_OPENED; place < RIG_PLACES; place++) {
		for (int flush = 0; flush < 2; flush++) {
			struct pair p;
			struct gp_frame *f[4];
			session_frames(f);
			pair_open(&p, 50, NULL);
			p.b.close_in = (enum rig_place)place;
			p.b.close_flush = flush;
			if (place == RIG_IN_ENDED)
				rig_cut_after(p.ca, rig_tls_server ? 1800 : 100);
			play_session(&p, f);
			rig_close_and_wait(&p.loop, &p.a);
			rig_run_until(&p.loop, &p.b.closed, 1);
			pair_close(&p);
			assert_int_equal(p.b.closed, 1);
			assert_int_equal(p.b.ended, place == RIG_IN_ENDED);
			assert_int_equal(p.a.sent, 2);
			assert_int_equal(p.b.sent, 2);
			for (int i = 0; i < 4; i++)
				rig_frame_free(f[i]);
		}
	}
}

static void a_frame_sent_on_a_dead_channel_comes_back(void **state)
{
	(void)state;
	struct pair p;
	struct gp_frame *f = rig_frame_new(GP_FRAME_ACT_UP, 10);
	struct gp_err err;
	pair_open(&p, 0, NULL);
	rig_cut_after(p.ca, 3);
	rig_run_until(&p.loop, &p.a.ended, 1);
	gp_channel_send_frame(p.a.ch, f);
	assert_int_equal(p.a.sent, 0);
	rig_run_until(&p.loop, &p.a.sent, 1);
	assert_int_equal(gp_channel_send_control(p.a.ch, (struct gp_span){(const uint8_t *)"x", 1}, &err), GP_PEER);
	pair_close(&p);
	rig_frame_free(f);
}

static void an_owner_that_sends_again_in_sent_does_not_hold_a_dying_channel(void **state)
{
	(void)state;
	struct pair p;
	struct gp_frame *f = rig_frame_new(GP_FRAME_ACT_UP, 10);
	pair_open(&p, 0, NULL);
	p.a.resend = 1 << 20;
	rig_cut_after(p.ca, 3000);
	gp_channel_send_frame(p.a.ch, f);
	rig_run_until(&p.loop, &p.a.ended, 1); /* comes through, although frames keep coming */
	assert_true(p.a.sent < 1000);
	p.a.resend = 0;
	pair_close(&p);
	rig_frame_free(f);
}

static void every_byte_is_accounted_for_by_kind(void **state)
{
	(void)state;
	struct pair p;
	const size_t len = 5 * GP_SEGMENT_BYTES_DEFAULT + 1;
	pair_open(&p, 1000, &hasty);
	struct gp_frame *f[2] = {rig_frame_new(GP_FRAME_ACT_UP, len), rig_frame_new(GP_FRAME_GRAD_UP, 77)};
	send_text(&p.a, "a message");
	gp_channel_send_frame(p.a.ch, f[0]);
	gp_channel_send_frame(p.a.ch, f[1]);
	rig_run_until(&p.loop, &p.b.frames, 2);
	rig_run_until(&p.loop, &p.a.sent, 2);
	const struct gp_dir_account *s = &gp_channel_account(p.a.ch)->sent;
	const struct gp_dir_account *r = &gp_channel_account(p.b.ch)->received;
	while (!s->heartbeat_bytes || r->wire_bytes < s->wire_bytes)
		uv_run(&p.loop, UV_RUN_ONCE);
	assert_true(rig_tls_server ? s->preface_bytes > 16 : s->preface_bytes == 16); /* and the handshake */
	assert_int_equal(s->control_bytes, rig_wire(16 + 9));
	assert_int_equal(r->preface_bytes, s->preface_bytes);
	assert_int_equal(r->control_bytes, s->control_bytes);
	assert_int_equal(s->kind[GP_FRAME_ACT_UP].frames, 1);
	assert_int_equal(s->kind[GP_FRAME_ACT_UP].payload_bytes, len);
	assert_int_equal(s->kind[GP_FRAME_ACT_UP].tensor_bytes, 2 * len);
	/* five segments and one of 65 bytes: with TLS, of 8 full records and a small one */
	const uint64_t tls = rig_tls_server ? (5 * 9 + 1) * 22 : 0;
	assert_int_equal(s->kind[GP_FRAME_ACT_UP].wire_bytes, gp_frame_wire_bytes(len, GP_SEGMENT_BYTES_DEFAULT) + tls);
	assert_int_equal(s->kind[GP_FRAME_GRAD_UP].wire_bytes, rig_wire(16 + 64 + 77));
	assert_int_equal(rig_sum(s), p.ca->bytes_written);
	assert_int_equal(rig_sum(r), p.cb->bytes_read);
	assert_int_equal(s->wire_bytes, p.ca->bytes_written);
	assert_int_equal(r->wire_bytes, p.cb->bytes_read);
	assert_memory_equal(&s->kind[GP_FRAME_ACT_UP], &r->kind[GP_FRAME_ACT_UP],
			    offsetof(struct gp_kind_account, stage_ns));
	assert_true(r->active_ns > 0 && r->active_bytes > 0);
	assert_true(rig_tls_server ||
		    r->active_bytes <= rig_sum(r) - r->preface_bytes - r->control_bytes - r->heartbeat_bytes);
	assert_true(gp_dir_bandwidth(r) > 0 && gp_dir_bandwidth(s) > 0);
	pair_close(&p);
	rig_frame_free(f[0]);
	rig_frame_free(f[1]);
}

static void running_out_of_memory_at_opening_is_an_error_and_closes_the_connection(void **state)
{
	(void)state;
	static const struct gp_channel_cbs none = {0};
#ifndef GP_FAULTS
	skip();
#endif
	uv_loop_t loop;
	struct gp_conn *a, *b;
	struct rig_raw raw = {0};
	struct gp_channel *ch;
	struct gp_err err;
	uv_loop_init(&loop);
	assert_int_equal(gp_mem_pair(&loop, 0, &a, &b, &err), GP_OK);
	rig_raw_init(&raw, b);
	b->ops->read_start(b);
	gp_fault_arm(GP_FAULT_ALLOC, 1);
	assert_int_equal(gp_channel_new(&loop, a, NULL, &none, NULL, &ch, &err), GP_NOMEM);
	gp_fault_arm(GP_FAULT_ALLOC, 0);
	rig_run_until(&loop, &raw.ended, 1);
	rig_raw_close(&loop, &raw);
	rig_finish_loop(&loop);
}

/* GRAD_SQUARES of a large body is such a message, in every step. */
static void messages_of_the_reserved_size_are_sent_without_allocating(void **state)
{
	(void)state;
	enum { BYTES = 30000, MESSAGES = 50 };
	static uint8_t bytes[BYTES + 1];
	struct duel d;
	struct gp_err err;
	duel_open(&d, NULL);
	duel_preface(&d);
	assert_int_equal(gp_channel_reserve_control(d.e.ch, BYTES, &err), GP_OK);
	const uint64_t calls = gp_mem_calls();
	for (int i = 0; i < MESSAGES; i++) {
		assert_int_equal(gp_channel_send_control(d.e.ch, (struct gp_span){bytes, BYTES}, &err), GP_OK);
		while (d.e.drained <= i)
			uv_run(&d.loop, UV_RUN_ONCE);
	}
	assert_int_equal(gp_mem_calls(), calls);
	assert_int_equal(gp_channel_send_control(d.e.ch, (struct gp_span){bytes, BYTES + 1}, &err), GP_OK);
	assert_int_equal(gp_mem_calls(), calls + 1);
	duel_close(&d);
}

static int use_tls(void **state)
{
	if (tls_files_make(state))
		return -1;
	rig_tls_server = tls_server("server", "ca");
	rig_tls_client = tls_client("client", "ca");
	return 0;
}

static int leave_tls(void **state)
{
	gp_tls_free(rig_tls_server);
	gp_tls_free(rig_tls_client);
	return tls_files_remove(state);
}

int main(int argc, char **argv)
{
	(void)argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_the_reserved_size_are_sent_without_allocating),
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
		cmocka_unit_test(a_control_length_that_lies_costs_only_what_arrives),
		cmocka_unit_test(segments_out_of_order_end_the_channel),
		cmocka_unit_test(records_that_no_one_may_send_end_the_channel),
		cmocka_unit_test(a_frame_that_the_owner_refuses_ends_the_channel_with_the_owners_words),
		cmocka_unit_test(a_payload_that_was_changed_fails_its_checksum),
		cmocka_unit_test(frames_of_different_classes_are_taken_in_between_and_half_ones_come_back),
		cmocka_unit_test(a_ping_is_answered_with_its_own_bytes),
		cmocka_unit_test(a_flood_of_pings_makes_no_queue),
		cmocka_unit_test(a_peer_that_says_nothing_is_noticed_before_and_after_its_preface),
		cmocka_unit_test(heartbeats_keep_a_silent_channel_alive_and_measure_the_round_trip),
		cmocka_unit_test(a_deadline_shorter_than_the_peers_heartbeats_is_kept_by_ours),
		cmocka_unit_test(a_peer_that_never_reads_is_noticed_and_the_frame_comes_back),
		cmocka_unit_test(a_paused_channel_waits_without_blaming_the_peer),
		cmocka_unit_test(control_messages_that_nobody_reads_end_the_channel_at_the_limit),
		cmocka_unit_test(the_last_word_reaches_the_peer_when_closing_with_flush),
		cmocka_unit_test(a_broken_rule_still_allows_a_last_word),
		cmocka_unit_test(a_peer_that_never_hangs_up_does_not_hold_the_close),
		cmocka_unit_test(an_end_within_a_message_is_an_error_and_between_messages_is_not),
		cmocka_unit_test(a_link_cut_at_any_byte_ends_both_sides_once_and_returns_every_frame),
		cmocka_unit_test(a_channel_may_be_closed_in_any_callback),
		cmocka_unit_test(a_frame_sent_on_a_dead_channel_comes_back),
		cmocka_unit_test(an_owner_that_sends_again_in_sent_does_not_hold_a_dying_channel),
		cmocka_unit_test(every_byte_is_accounted_for_by_kind),
		cmocka_unit_test(running_out_of_memory_at_opening_is_an_error_and_closes_the_connection),
	};
	return argc > 1 ? cmocka_run_group_tests_name("channel inside TLS", tests, use_tls, leave_tls)
			: cmocka_run_group_tests(tests, NULL, NULL);
}

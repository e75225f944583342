/* SPDX-License-Identifier: Apache-2.0
 *
 * The channel over a pair in memory: what crosses, in which order, and what a
 * hostile or dying peer leads to (PROTOCOL.md sections 2-4). TCP is
 * test_channel_tcp.c.
 */
#include "channel_rig.h"

struct pair {
	uv_loop_t loop;
	struct rig_end a, b;
	struct gp_conn *ca, *cb; /* valid while their channel lives */
};

static void pair_open(struct pair *p, size_t chunk, const struct gp_channel_options *o)
{
	struct gp_err err;
	memset(p, 0, sizeof *p);
	uv_loop_init(&p->loop);
	assert_int_equal(gp_mem_pair(&p->loop, chunk, &p->ca, &p->cb, &err), GP_OK);
	rig_open(&p->loop, &p->a, p->ca, o);
	rig_open(&p->loop, &p->b, p->cb, o);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(control_messages_cross_in_one_byte_reads),
		cmocka_unit_test(frames_of_every_length_cross_intact),
		cmocka_unit_test(an_urgent_frame_waits_for_two_segments_of_a_bulk_frame_at_most),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

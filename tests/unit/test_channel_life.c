/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a channel over a pair in memory: heartbeats, deadlines, the last
 * word, links cut at any byte, owners that close it in a callback; what it
 * counts and allocates (PROTOCOL.md sections 3.3 and 3.4); with --tls the same inside TLS.
 */
#include "tests/unit/channel_pair.h"

#include "common/base/fault.h"

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

/* More of it than is kept waits with the peer. */
static void what_comes_while_a_channel_is_held_is_delivered_later(void **state)
{
	(void)state;
	struct pair p;
	pair_open(&p, 0, NULL);
	rig_run_until(&p.loop, &p.b.opened, 1);
	gp_channel_hold(p.b.ch);
	struct gp_frame *f = rig_frame_new(GP_FRAME_ACT_UP, 4 << 20);
	gp_channel_send_frame(p.a.ch, f);
	send_text(&p.a, "later");
	while (gp_channel_account(p.b.ch)->received.wire_bytes < 256 << 10)
		uv_run(&p.loop, UV_RUN_ONCE);
	for (int i = 0; i < 20; i++)
		uv_run(&p.loop, UV_RUN_NOWAIT);
	assert_true(gp_channel_account(p.b.ch)->received.wire_bytes < 4 << 20);
	assert_int_equal(p.b.begins + p.b.controls + p.b.ended, 0);
	gp_channel_go_on(p.b.ch);
	rig_run_until(&p.loop, &p.b.frames, 1);
	rig_run_until(&p.loop, &p.b.controls, 1);
	assert_int_equal(p.b.begins, 1);
	rig_run_until(&p.loop, &p.a.sent, 1);
	rig_frame_free(f);
	pair_close(&p);
}

static void the_end_of_the_connection_is_noticed_while_a_channel_is_held(void **state)
{
	(void)state;
	struct pair p;
	pair_open(&p, 0, NULL);
	rig_run_until(&p.loop, &p.b.opened, 1);
	gp_channel_hold(p.b.ch);
	send_text(&p.a, "never");
	rig_close(&p.a, true);
	rig_run_until(&p.loop, &p.b.ended, 1);
	assert_int_equal(p.b.controls, 0);
	rig_run_until(&p.loop, &p.a.closed, 1);
	rig_close_and_wait(&p.loop, &p.b);
	rig_finish_loop(&p.loop);
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

int main(int argc, char **argv)
{
	(void)argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_the_reserved_size_are_sent_without_allocating),
		cmocka_unit_test(a_ping_is_answered_with_its_own_bytes),
		cmocka_unit_test(a_flood_of_pings_makes_no_queue),
		cmocka_unit_test(a_peer_that_says_nothing_is_noticed_before_and_after_its_preface),
		cmocka_unit_test(heartbeats_keep_a_silent_channel_alive_and_measure_the_round_trip),
		cmocka_unit_test(a_deadline_shorter_than_the_peers_heartbeats_is_kept_by_ours),
		cmocka_unit_test(a_peer_that_never_reads_is_noticed_and_the_frame_comes_back),
		cmocka_unit_test(a_paused_channel_waits_without_blaming_the_peer),
		cmocka_unit_test(what_comes_while_a_channel_is_held_is_delivered_later),
		cmocka_unit_test(the_end_of_the_connection_is_noticed_while_a_channel_is_held),
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
	return argc > 1 ? cmocka_run_group_tests_name("channel life inside TLS", tests, use_tls, leave_tls)
			: cmocka_run_group_tests(tests, NULL, NULL);
}

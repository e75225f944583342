/* SPDX-License-Identifier: Apache-2.0
 *
 * What a server takes for progress within a step (PROTOCOL.md section 5.4): the time in which it was not the client's turn
 * does not count, and a frame that crosses slowly is progress all the while.
 */
#include "tests/unit/server_rig.h"

enum {
	TIMEOUT_S = 10,
	PIECE = 32768, /* bytes in a segment */
	TOGETHER = 3,  /* segments that are sent without a pause */
	PAUSES = 3,
	PAUSE_S = 4 /* PAUSES of them are longer than TIMEOUT_S */
};

static int impatient(void **state)
{
	struct gp_server_settings set = server_thread_settings();
	set.step_timeout_s = TIMEOUT_S;
	return setup_with(state, &set);
}

static uint32_t sample_bytes(const struct fixture *f)
{
	return (uint32_t)(gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
}

/* Samples whose tensor has so many pieces that there is one behind each pause. */
static int large_chunk(const struct fixture *f)
{
	return (int)(((PAUSES + 1) * TOGETHER * PIECE + sample_bytes(f) - 1) / sample_bytes(f));
}

static int chunk_samples;

static void set_chunk(Gpsplit__Open *open)
{
	open->chunk_samples = (uint32_t)chunk_samples;
}

/* A tensor of zeros that goes up in segments. */
struct slow_frame {
	struct raw_peer *peer;
	uint8_t *payload;
	struct gp_frame_head head;
	uint32_t sent;
};

static void begin_frame(struct slow_frame *s, struct raw_peer *peer, uint32_t len)
{
	*s = (struct slow_frame){.peer = peer, .payload = gp_calloc(len, 1)};
	s->head = (struct gp_frame_head){.type = GP_FRAME_ACT_UP,
					 .codec = peer->codec,
					 .session = peer->session,
					 .payload_len = len,
					 .checksum = gp_frame_checksum(s->payload, len)};
}

static void put_piece(struct slow_frame *s)
{
	const uint32_t left = (uint32_t)s->head.payload_len - s->sent, n = left < PIECE ? left : PIECE;
	const uint32_t head = s->sent == 0 ? GP_FRAME_HEADER_BYTES : 0;
	uint8_t bytes[GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES];
	const struct gp_record_head r = {
		.kind = GP_RECORD_SEGMENT,
		.klass = (uint8_t)gp_frame_class(GP_FRAME_ACT_UP),
		.flags = (uint8_t)((head > 0 ? GP_SEGMENT_FIRST : 0) | (n == left ? GP_SEGMENT_LAST : 0)),
		.len = head + n};
	gp_record_head_write(&r, bytes);
	gp_frame_head_write(&s->head, bytes + GP_RECORD_HEADER_BYTES);
	put(s->peer, bytes, GP_RECORD_HEADER_BYTES + head);
	put(s->peer, s->payload + s->sent, n);
	s->sent += n;
}

static void end_frame(struct slow_frame *s)
{
	while (s->sent < s->head.payload_len)
		put_piece(s);
	gp_free(s->payload);
}

/* One client sends a tensor for longer than the timeout. Another one was silent for as long before its step began: that does
 * not count when the server looks at its clock in the middle of the client's first frame. */
static void only_a_client_that_does_nothing_in_its_turn_runs_out_of_time(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer slow, silent;
	struct slow_frame frame;
	chunk_samples = large_chunk(f);
	until_ready_with(&slow, f, set_chunk);
	until_ready_with(&silent, f, set_chunk);
	begin_frame(&frame, &slow, (uint32_t)chunk_samples * sample_bytes(f));
	for (int i = 0; i < PAUSES; i++) {
		for (int k = 0; k < TOGETHER; k++)
			put_piece(&frame);
		sleep(PAUSE_S);
	}
	end_frame(&frame);
	get_answers(&slow, 1, 0);

	begin_frame(&frame, &silent, (uint32_t)chunk_samples * sample_bytes(f));
	put_piece(&frame);
	usleep(700000); /* the server looks every 250 ms */
	end_frame(&frame);
	get_answers(&silent, 1, 0);
	client_close(&silent);
	client_close(&slow);
}

/* The other half of a tensor never comes. */
static void a_client_that_stops_within_a_frame_is_given_up(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	struct slow_frame frame;
	chunk_samples = large_chunk(f);
	until_ready_with(&c, f, set_chunk);
	begin_frame(&frame, &c, (uint32_t)chunk_samples * sample_bytes(f));
	put_piece(&frame);
	expect_error(&c, "no progress within a step for 10 s");
	gp_free(frame.payload);
	client_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(only_a_client_that_does_nothing_in_its_turn_runs_out_of_time, impatient,
						teardown),
		cmocka_unit_test_setup_teardown(a_client_that_stops_within_a_frame_is_given_up, impatient, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server and chunks of their own sequence length (PROTOCOL.md section
 * 4.4): chunks of several lengths are answered with as many positions, and what
 * a peer cannot have sent by the rules ends its session alone.
 */
#include "tests/unit/server_rig.h"

#include "common/base/little_endian.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"

enum { MOST = 12, FEATURES = 3, SAMPLES = 2, WORDS = 0, MASK = 1, PAYLOAD = 1024 };

#define OK(expr)                                                                                                       \
	do {                                                                                                           \
		if ((expr) != GP_OK)                                                                                   \
			fail_msg("%s", err.text);                                                                      \
	} while (0)

/* Inputs: words (f32) and a mask (i32), sequences both. Outputs: what a layer makes of each word, and their mean. */
static struct gp_graph *words_and_mask(bool sequences)
{
	struct gp_err err;
	struct gp_graph *g = gp_graph_new_empty("body", &err);
	const int words = gp_graph_add_input(g, "words", &(struct gp_type){GP_F32, {2, {MOST, FEATURES}}}, &err);
	const int mask = gp_graph_add_input(g, "mask", &(struct gp_type){GP_I32, {1, {MOST}}}, &err);
	if (sequences) {
		gp_graph_mark_sequence(g, words);
		gp_graph_mark_sequence(g, mask);
	}
	OK(gp_graph_begin_block(g, "body", &err));
	const int layer = gp_graph_linear(g, "layer", words, FEATURES, true, &err);
	const int mean = gp_graph_masked_mean(g, "mean", layer, mask, &err);
	OK(gp_graph_set_outputs(g, 2, (const int[]){layer, mean}, &err));
	OK(gp_graph_finish(g, &err));
	return g;
}

static int setup_words(void **state, bool sequences)
{
	const struct gp_server_settings set = server_thread_settings();
	struct fixture *f = gp_calloc(1, sizeof *f);
	f->server = server_thread_start_with(&set);
	f->port = f->server->port;
	f->body = words_and_mask(sequences);
	*state = f;
	return 0;
}

static int setup_sequences(void **state)
{
	return setup_words(state, true);
}

static int setup_fixed(void **state)
{
	return setup_words(state, false);
}

static void ask(Gpsplit__Open *o)
{
	o->lengths = true;
}

static void ask_with_feedback(Gpsplit__Open *o)
{
	o->lengths = true;
	o->codec_act_up = (char *)"ef+uniform:bits=4";
}

/* --- frames ------------------------------------------------------------------------------------------------------ */

static void put_payload(struct raw_peer *c, struct gp_frame_head h, const void *payload, uint32_t len)
{
	uint8_t bytes[GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES + PAYLOAD];
	const struct gp_record_head r = {.kind = GP_RECORD_SEGMENT,
					 .klass = (uint8_t)gp_frame_class(h.type),
					 .flags = GP_SEGMENT_FIRST | GP_SEGMENT_LAST,
					 .len = GP_FRAME_HEADER_BYTES + len};
	assert_true(len <= PAYLOAD);
	h.codec = c->codec;
	h.session = c->session;
	h.payload_len = len;
	h.checksum = gp_frame_checksum(payload, len);
	gp_record_head_write(&r, bytes);
	gp_frame_head_write(&h, bytes + GP_RECORD_HEADER_BYTES);
	memcpy(bytes + GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES, payload, len);
	put(c, bytes, GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES + len);
}

/* Rows of ones behind their counts. */
static void put_rows(struct raw_peer *c, struct gp_frame_head h, uint32_t first, uint32_t second)
{
	uint8_t payload[PAYLOAD];
	const float one = 1.0f;
	const uint32_t len = 8 + (first + second) * FEATURES * 4;
	assert_true(len <= PAYLOAD);
	gp_put_le(payload, first, 4);
	gp_put_le(payload + 4, second, 4);
	for (uint32_t at = 8; at < len; at += 4)
		memcpy(payload + at, &one, sizeof one);
	put_payload(c, h, payload, len);
}

static void put_words(struct raw_peer *c, uint32_t chunk, uint32_t length, uint32_t first, uint32_t second)
{
	put_rows(c, (struct gp_frame_head){.type = GP_FRAME_ACT_UP, .chunk = chunk, .length = length}, first, second);
}

static void put_mask(struct raw_peer *c, uint32_t chunk, uint32_t length, uint32_t positions)
{
	int32_t mask[PAYLOAD / 4];
	for (uint32_t i = 0; i < SAMPLES * positions; i++)
		mask[i] = 1;
	put_payload(c,
		    (struct gp_frame_head){.type = GP_FRAME_ACT_UP, .chunk = chunk, .length = length, .tensor = MASK},
		    mask, SAMPLES * positions * 4);
}

static void put_chunk(struct raw_peer *c, uint32_t chunk, uint32_t length)
{
	put_words(c, chunk, length, length, 1);
	put_mask(c, chunk, length, length);
}

/* --- what is allowed --------------------------------------------------------------------------------------------- */

static void chunks_of_several_lengths_are_answered(void **state)
{
	struct raw_peer c;
	until_ready_with(&c, *state, ask);
	put_chunk(&c, 0, 8);
	put_chunk(&c, 1, MOST);
	get_answers(&c, 4, 0);
	for (uint32_t chunk = 0; chunk < 2; chunk++) {
		const uint32_t length = chunk ? MOST : 8;
		const uint32_t mean_bytes = SAMPLES * FEATURES * 4;
		const float mean[SAMPLES * FEATURES] = {1};
		put_rows(&c, (struct gp_frame_head){.type = GP_FRAME_GRAD_UP, .chunk = chunk, .length = length}, length,
			 1);
		put_payload(
			&c,
			(struct gp_frame_head){.type = GP_FRAME_GRAD_UP, .chunk = chunk, .length = length, .tensor = 1},
			mean, mean_bytes);
	}
	get_answers(&c, 2, 0);
	put_commit(&c, 0, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	client_close(&c);
}

/* All samples of a chunk may be empty, as those that fill up the last batch of an evaluation are. */
static void a_chunk_without_rows_is_answered(void **state)
{
	struct raw_peer c;
	until_ready_with(&c, *state, ask);
	put_words(&c, 0, 8, 0, 0);
	put_mask(&c, 0, 8, 8);
	get_answers(&c, 2, 0);
	client_close(&c);
}

/* --- what is not ------------------------------------------------------------------------------------------------- */

static void no_multiple(struct raw_peer *c)
{
	put_words(c, 0, 9, 1, 1);
}

static void too_long(struct raw_peer *c)
{
	put_words(c, 0, 16, 1, 1);
}

static void far_too_long(struct raw_peer *c)
{
	put_words(c, 0, UINT32_MAX - 7, 1, 1);
}

static void two_lengths(struct raw_peer *c)
{
	put_words(c, 0, 8, 1, 1);
	put_mask(c, 0, MOST, MOST);
}

static void gradient_of_another_length(struct raw_peer *c)
{
	put_chunk(c, 0, 8);
	get_answers(c, 2, 0);
	put_rows(c, (struct gp_frame_head){.type = GP_FRAME_GRAD_UP, .length = MOST}, 1, 1);
}

/* Fits a chunk of all positions, but not this one. */
static void payload_of_more_positions(struct raw_peer *c)
{
	put_words(c, 0, 8, MOST, 8);
}

static void more_rows_than_positions(struct raw_peer *c)
{
	put_words(c, 0, 8, 9, 0);
}

static void counts_cut_short(struct raw_peer *c)
{
	put_payload(c, (struct gp_frame_head){.type = GP_FRAME_ACT_UP, .length = 8}, (const uint8_t[7]){0}, 7);
}

static void fewer_rows_than_counted(struct raw_peer *c)
{
	uint8_t payload[8 + FEATURES * 4] = {0};
	gp_put_le(payload, 2, 4);
	put_payload(c, (struct gp_frame_head){.type = GP_FRAME_ACT_UP, .length = 8}, payload, sizeof payload);
}

static void integers_of_all_positions(struct raw_peer *c)
{
	put_mask(c, 0, 8, MOST);
}

static void lengths_that_cannot_be_end_the_session(void **state)
{
	static const struct {
		void (*send)(struct raw_peer *c);
		const char *text;
	} wrong[] = {
		{no_multiple, "act_up of 9 positions; a chunk of this session has a multiple of 8 below, or 12"},
		{too_long, "act_up of 16 positions"},
		{far_too_long, "act_up of 4294967288 positions"},
		{two_lengths, "act_up of chunk 0, tensor 1, has 12 positions, but the chunk has 8"},
		{gradient_of_another_length, "grad_up of chunk 0, tensor 0, has 12 positions, but the chunk has 8"},
		{payload_of_more_positions, "act_up of 248 bytes is over the 200 its codec can need"},
		{more_rows_than_positions, "sample 0 has 9 rows in a chunk of 8 positions"},
		{counts_cut_short, "shorter than its counts of rows"},
		{fewer_rows_than_counted, "raw payload has 12 bytes instead of 24"},
		{integers_of_all_positions, "act_up of 96 bytes is over the 64 its codec can need"},
	};
	const struct fixture *f = *state;
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct raw_peer c;
		until_ready_with(&c, f, ask);
		wrong[i].send(&c);
		expect_error(&c, wrong[i].text);
		client_close(&c);
	}
	still_serves(f);
}

static void a_length_that_open_has_not_asked_for_is_refused(void **state)
{
	struct raw_peer c;
	until_ready(&c, *state);
	put_words(&c, 0, 8, 1, 1);
	expect_error(&c, "have no length of their own");
	client_close(&c);
}

static void expect_refused(const struct fixture *f, void (*spoil)(Gpsplit__Open *), const char *text)
{
	struct raw_peer c;
	until_welcome(&c, f);
	put_open(&c, f->body, spoil);
	expect_error(&c, text);
	client_close(&c);
}

static void a_codec_that_remembers_places_is_refused(void **state)
{
	expect_refused(*state, ask_with_feedback, "remembers tensors of one length");
}

static void lengths_of_a_body_without_sequences_are_refused(void **state)
{
	expect_refused(*state, ask, "whose body has no sequences");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(chunks_of_several_lengths_are_answered, setup_sequences, teardown),
		cmocka_unit_test_setup_teardown(a_chunk_without_rows_is_answered, setup_sequences, teardown),
		cmocka_unit_test_setup_teardown(lengths_that_cannot_be_end_the_session, setup_sequences, teardown),
		cmocka_unit_test_setup_teardown(a_length_that_open_has_not_asked_for_is_refused, setup_sequences,
						teardown),
		cmocka_unit_test_setup_teardown(a_codec_that_remembers_places_is_refused, setup_sequences, teardown),
		cmocka_unit_test_setup_teardown(lengths_of_a_body_without_sequences_are_refused, setup_fixed, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

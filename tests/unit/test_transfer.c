/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers (common/wire/transfer.h): a tensor through a frame and back on a codec
 * worker; damage is found; a frame that is still being sent is not overwritten.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/wire/transfer.h"

enum { ELEMENTS = 3 * 5 * 7 };

struct fixture {
	uv_loop_t loop;
	struct gp_worker *worker;
	struct gp_flow out, in;
	struct gp_kind_account account;
	float x[ELEMENTS], y[ELEMENTS];
	int finished;
};

static void on_done(struct gp_transfer *t)
{
	struct fixture *f = t->arg;
	f->finished++;
}

static void fixture_init(struct fixture *f, const char *codec)
{
	struct gp_err err;
	struct gp_codec_spec spec;
	struct gp_shape shape = {.ndim = 3, .dim = {3, 5, 7}};
	memset(f, 0, sizeof *f);
	for (int i = 0; i < ELEMENTS; i++)
		f->x[i] = (float)(i - 40) * 0.37f;
	assert_int_equal(gp_codec_spec_parse(codec, &spec, &err), GP_OK);
	assert_int_equal(uv_loop_init(&f->loop), 0);
	assert_int_equal(gp_worker_new(&f->loop, "codec", 2, &f->worker, &err), GP_OK);
	struct gp_flow_options all = {.seed = 1, .slots = 2, .chunks = 2, .undo = true, .client = true};
	const struct gp_flow_spec flow = {.direction = GP_ACT_UP,
					  .type = {GP_F32, shape},
					  .has_gradient = true,
					  .codec = &spec,
					  .row_positions = shape.dim[1]};
	assert_int_equal(gp_flow_init(&f->out, &flow, &all, NULL, f->worker, f, &err), GP_OK);
	all.client = false;
	assert_int_equal(gp_flow_init(&f->in, &flow, &all, NULL, f->worker, f, &err), GP_OK);
	f->out.account = &f->account;
}

static void fixture_deinit(struct fixture *f)
{
	gp_flow_deinit(&f->out);
	gp_flow_deinit(&f->in);
	gp_worker_free(f->worker);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0);
}

static void wait_for(struct fixture *f, int finished)
{
	while (f->finished < finished)
		uv_run(&f->loop, UV_RUN_ONCE);
}

static void carry(struct fixture *f, int slot)
{
	struct gp_transfer *from = &f->out.slot[slot], *to = &f->in.slot[slot];
	to->frame.head = from->frame.head;
	assert_true(from->frame.head.payload_len <= to->frame.cap);
	memcpy(to->frame.payload, from->frame.payload, from->frame.head.payload_len);
}

static void a_tensor_comes_back_as_it_was(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, "raw");
	struct gp_frame_head head = {.chunk = 3, .step = 9, .session = 1};
	gp_transfer_encode(&f.out.slot[1], &head, f.x, 0, on_done);
	wait_for(&f, 1);
	assert_int_equal(f.out.slot[1].task.status, GP_OK);
	assert_int_equal(f.out.slot[1].frame.head.type, GP_FRAME_ACT_UP);
	assert_int_equal(f.out.slot[1].frame.head.step, 9);
	carry(&f, 1);
	gp_transfer_decode(&f.in.slot[1], f.y, on_done);
	wait_for(&f, 2);
	assert_int_equal(f.in.slot[1].task.status, GP_OK);
	assert_memory_equal(f.x, f.y, sizeof f.x);
	for (int again = 0; again < 10000 && f.account.stage_ns[GP_STAGE_ENCODE] == 0;
	     again++) { /* clocks are coarse */
		gp_transfer_encode(&f.out.slot[1], &head, f.x, 0, on_done);
		wait_for(&f, 3 + again);
	}
	assert_true(f.account.stage_ns[GP_STAGE_ENCODE] > 0);
	fixture_deinit(&f);
}

/* There are 3 samples of 5 rows of 7 numbers. */
static void rows_without_padding_are_counted(void **state)
{
	(void)state;
	static const uint32_t rows[] = {5, 0, 2};
	struct fixture f;
	fixture_init(&f, "raw");
	f.in.account = &f.account;
	const struct gp_frame_head head = {.chunk = 3, .step = 9, .session = 1};
	gp_transfer_encode(&f.out.slot[0], &head, f.x, 0, on_done);
	wait_for(&f, 1);
	carry(&f, 0);
	gp_transfer_decode(&f.in.slot[0], f.y, on_done); /* nothing was told */
	wait_for(&f, 2);
	assert_int_equal(f.in.total.row_bytes, f.in.total.tensor_bytes);
	assert_int_equal(f.account.padding_bytes, 0);
	gp_transfer_tell_rows(&f.in.slot[0], rows);
	gp_transfer_decode(&f.in.slot[0], f.y, on_done);
	wait_for(&f, 3);
	assert_int_equal(f.in.total.row_bytes, (15 + 7) * 7 * sizeof(float));
	assert_int_equal(f.account.padding_bytes, 8 * 7 * sizeof(float));
	f.in.row_positions = 0; /* a tensor without rows */
	gp_transfer_tell_rows(&f.in.slot[0], rows);
	gp_transfer_decode(&f.in.slot[0], f.y, on_done);
	wait_for(&f, 4);
	assert_int_equal(f.account.padding_bytes, 8 * 7 * sizeof(float));
	fixture_deinit(&f);
}

/* Without a link, and without a trace in what is sent or remembered. */
static void check_peer(const char *spec)
{
	struct fixture f;
	struct gp_codec *codec;
	struct gp_err err;
	float seen[ELEMENTS];
	fixture_init(&f, spec);
	struct gp_frame_head head = {.chunk = 1, .step = 4};
	struct gp_transfer *t = &f.out.slot[0];
	gp_transfer_encode(t, &head, f.x, 9, on_done);
	wait_for(&f, 1);
	const uint64_t sum = gp_frame_checksum(t->frame.payload, t->frame.head.payload_len);
	const uint64_t state = gp_codec_state_hash(f.out.codec);
	assert_int_equal(gp_flow_open_peer(&f.out, NULL, &codec, &err), GP_OK);
	assert_int_equal(gp_transfer_decode_as_peer(t, codec, seen, &err), GP_OK);
	gp_codec_free(codec);
	assert_true(gp_frame_checksum(t->frame.payload, t->frame.head.payload_len) == sum);
	assert_true(gp_codec_state_hash(f.out.codec) == state);
	carry(&f, 0);
	gp_transfer_decode(&f.in.slot[0], f.y, on_done);
	wait_for(&f, 2);
	assert_memory_equal(seen, f.y, sizeof seen);
	assert_memory_not_equal(seen, f.x, sizeof seen);
	fixture_deinit(&f);
}

static void what_the_other_end_will_have_is_known_before_it_is_sent(void **state)
{
	(void)state;
	check_peer("uniform:bits=4");
	check_peer("ef+uniform:bits=3");
	check_peer("topk:ratio=0.3+uniform:bits=8");
	check_peer("qsgd:bits=4");
}

static void damage_on_the_way_is_found(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, "uniform:bits=8");
	struct gp_frame_head head = {.chunk = 3};
	gp_transfer_encode(&f.out.slot[0], &head, f.x, 0, on_done);
	wait_for(&f, 1);
	carry(&f, 0);
	f.in.slot[0].frame.payload[f.in.slot[0].frame.head.payload_len / 2] ^= 1;
	gp_transfer_decode(&f.in.slot[0], f.y, on_done);
	wait_for(&f, 2);
	assert_int_equal(f.in.slot[0].task.status, GP_DAMAGED);
	assert_non_null(strstr(f.in.slot[0].task.err.text, "chunk 3"));
	carry(&f, 0); /* a good one behind it: its codec may remember what did not come */
	gp_transfer_decode(&f.in.slot[0], f.y, on_done);
	wait_for(&f, 3);
	assert_int_equal(f.in.slot[0].task.status, GP_DAMAGED);
	gp_flow_forget_damage(&f.in);
	gp_transfer_decode(&f.in.slot[0], f.y, on_done);
	wait_for(&f, 4);
	assert_int_equal(f.in.slot[0].task.status, GP_OK);
	fixture_deinit(&f);
}

static void a_frame_with_the_channel_is_not_overwritten(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, "raw");
	struct gp_frame_head head = {.chunk = 1};
	struct gp_transfer *t = &f.out.slot[0];
	gp_transfer_encode(t, &head, f.x, 0, on_done);
	wait_for(&f, 1);
	t->with_channel = true;
	uint64_t sum = gp_frame_checksum(t->frame.payload, t->frame.head.payload_len);
	f.x[0] = 1e9f;
	gp_transfer_encode(t, &head, f.x, 0, on_done);
	for (int i = 0; i < 10; i++)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	assert_int_equal(f.finished, 1);
	assert_true(sum == gp_frame_checksum(t->frame.payload, t->frame.head.payload_len));
	gp_transfer_sent(t);
	wait_for(&f, 2);
	assert_false(sum == gp_frame_checksum(t->frame.payload, t->frame.head.payload_len));
	fixture_deinit(&f);
}

/* Both ends begin a step, whose number travels in the head, and take it back; then it is the same again. */
static void a_flow_goes_back_to_where_the_step_began(void **state)
{
	(void)state;
	struct fixture f;
	uint64_t before = 0;
	fixture_init(&f, "delta:samples=9+uniform:bits=2");
	for (int round = 0; round < 6; round++) {
		const uint32_t sample[3] = {1, 5, 7};
		const bool same = round % 2 == 1; /* a step again, as the round before it */
		struct gp_frame_head head = {.step = (uint64_t)round / 2};
		f.out.slot[0].sample = sample;
		f.x[3] = (float)(round / 2);
		const uint64_t memory = gp_codec_state_hash(f.out.codec);
		gp_transfer_encode(&f.out.slot[0], &head, f.x, 0, on_done);
		wait_for(&f, 2 * round + 1);
		carry(&f, 0);
		gp_transfer_decode(&f.in.slot[0], f.y, on_done);
		wait_for(&f, 2 * round + 2);
		assert_int_equal(f.in.slot[0].task.status, GP_OK);
		assert_true(same == (f.out.slot[0].frame.head.checksum == before));
		before = f.out.slot[0].frame.head.checksum;
		assert_true(gp_codec_state_hash(f.out.codec) != memory);
		if (same)
			continue;
		gp_flow_undo(&f.out, head.step);
		gp_flow_undo(&f.in, head.step);
		assert_true(gp_codec_state_hash(f.out.codec) == memory);
		assert_true(gp_codec_state_hash(f.in.codec) == memory);
	}
	fixture_deinit(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tensor_comes_back_as_it_was),
		cmocka_unit_test(rows_without_padding_are_counted),
		cmocka_unit_test(what_the_other_end_will_have_is_known_before_it_is_sent),
		cmocka_unit_test(damage_on_the_way_is_found),
		cmocka_unit_test(a_frame_with_the_channel_is_not_overwritten),
		cmocka_unit_test(a_flow_goes_back_to_where_the_step_began),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of bytes on their way (client/link/link_queue.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client/link/link_queue.h"
#include "common/base/fault.h"

static struct gp_link_queue queue_of(size_t cap)
{
	struct gp_link_queue q = {0};
	struct gp_err err;
	assert_int_equal(gp_link_queue_init(&q, cap, &err), GP_OK);
	return q;
}

/* Takes `len` bytes and checks that they count up from `first`. */
static void take_and_check(struct gp_link_queue *q, size_t len, uint8_t first)
{
	uv_buf_t bufs[2];
	size_t seen = 0;
	const unsigned count = gp_link_queue_peek(q, len, bufs);
	for (unsigned b = 0; b < count; b++)
		for (size_t i = 0; i < bufs[b].len; i++)
			assert_int_equal((uint8_t)bufs[b].base[i], (uint8_t)(first + seen++));
	assert_int_equal(seen, len);
	gp_link_queue_take(q, len);
}

static void put_counting(struct gp_link_queue *q, size_t len, uint8_t first, uint64_t due_ns)
{
	uint8_t bytes[256];
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(first + i);
	gp_link_queue_put(q, bytes, len, due_ns);
}

static void bytes_come_out_in_order_around_the_end_of_the_ring(void **state)
{
	(void)state;
	struct gp_link_queue q = queue_of(10);
	uint8_t in = 0, out = 0;
	for (int turn = 0; turn < 200; turn++) {
		const size_t n = 1 + (size_t)turn % gp_link_queue_room(&q);
		put_counting(&q, n, in, 0);
		in += (uint8_t)n;
		const size_t m = 1 + (size_t)turn % gp_link_queue_due(&q, 0);
		take_and_check(&q, m, out);
		out += (uint8_t)m;
	}
	gp_link_queue_deinit(&q);
}

static void bytes_are_due_piece_by_piece(void **state)
{
	(void)state;
	struct gp_link_queue q = queue_of(100);
	assert_true(gp_link_queue_empty(&q));
	assert_true(gp_link_queue_next_ns(&q) == UINT64_MAX);
	put_counting(&q, 10, 0, 1000);
	put_counting(&q, 20, 10, 2000);
	put_counting(&q, 0, 30, 2500);
	assert_int_equal(gp_link_queue_room(&q), 70);
	assert_int_equal(gp_link_queue_next_ns(&q), 1000);
	assert_int_equal(gp_link_queue_due(&q, 999), 0);
	assert_int_equal(gp_link_queue_due(&q, 1000), 10);
	take_and_check(&q, 4, 0);
	assert_int_equal(gp_link_queue_due(&q, 1999), 6);
	assert_int_equal(gp_link_queue_due(&q, 2000), 26);
	take_and_check(&q, 6, 4);
	assert_int_equal(gp_link_queue_next_ns(&q), 2000);
	take_and_check(&q, 20, 10);
	assert_true(gp_link_queue_empty(&q));
	gp_link_queue_deinit(&q);
}

static void when_stamps_run_out_bytes_come_later_and_none_is_lost(void **state)
{
	(void)state;
	struct gp_link_queue q = queue_of(2 * GP_LINK_PIECES);
	for (unsigned i = 0; i < 2 * GP_LINK_PIECES; i++)
		put_counting(&q, 1, (uint8_t)i, i);
	assert_int_equal(gp_link_queue_room(&q), 0);
	assert_int_equal(gp_link_queue_due(&q, GP_LINK_PIECES - 2), GP_LINK_PIECES - 1);
	assert_int_equal(gp_link_queue_due(&q, 2 * GP_LINK_PIECES - 2), GP_LINK_PIECES - 1);
	assert_int_equal(gp_link_queue_due(&q, 2 * GP_LINK_PIECES - 1), 2 * GP_LINK_PIECES);
	take_and_check(&q, 2 * GP_LINK_PIECES, 0);
	gp_link_queue_deinit(&q);
}

static void a_flipped_byte_is_the_one_at_that_position(void **state)
{
	(void)state;
	struct gp_link_queue q = queue_of(8);
	uv_buf_t bufs[2];
	put_counting(&q, 6, 0, 0);
	take_and_check(&q, 6, 0);
	put_counting(&q, 6, 6, 0);
	gp_link_queue_flip(&q, 9);
	assert_int_equal(gp_link_queue_peek(&q, 6, bufs), 2);
	assert_int_equal(bufs[0].len, 2);
	assert_int_equal((uint8_t)bufs[1].base[1], 9 ^ 1);
	bufs[1].base[1] ^= 1;
	take_and_check(&q, 6, 6);
	gp_link_queue_deinit(&q);
}

static void without_memory_there_is_an_error_and_no_leak(void **state)
{
	(void)state;
	for (uint64_t nth = 1; nth <= 2; nth++) {
		struct gp_link_queue q = {0};
		struct gp_err err;
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		enum gp_status status = gp_link_queue_init(&q, 100, &err);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
#ifdef GP_FAULTS
		assert_int_equal(status, GP_NOMEM);
		assert_null(q.bytes);
#else
		assert_int_equal(status, GP_OK);
#endif
		gp_link_queue_deinit(&q);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_out_in_order_around_the_end_of_the_ring),
		cmocka_unit_test(bytes_are_due_piece_by_piece),
		cmocka_unit_test(when_stamps_run_out_bytes_come_later_and_none_is_lost),
		cmocka_unit_test(a_flipped_byte_is_the_one_at_that_position),
		cmocka_unit_test(without_memory_there_is_an_error_and_no_leak),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

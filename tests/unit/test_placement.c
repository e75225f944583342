/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is shared by what is in use at different times. See
 * kernels/plan/placement.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/fault.h"
#include "common/base/rng.h"
#include "kernels/plan/placement.h"

enum { CASES = 300, MOST = 60, MOMENTS = 40 };

static struct gp_err err;
static uint64_t draws;

static int draw(int low, int high)
{
	return low + (int)(gp_rng_u32(5, 0, draws++) % (uint32_t)(high - low + 1));
}

/* Sizes that often are equal, as those of layers; some of nothing. */
static int draw_pieces(struct gp_piece piece[MOST])
{
	const int count = draw(0, MOST);
	for (int i = 0; i < count; i++) {
		const int first = draw(0, MOMENTS - 1);
		piece[i] = (struct gp_piece){.bytes = (uint64_t)(64 * draw(0, 9)), .first = first};
		piece[i].last = draw(first, MOMENTS - 1);
	}
	return count;
}

static void check_apart(const struct gp_piece *a, const struct gp_piece *b)
{
	if (a->last < b->first || b->last < a->first)
		return;
	assert_true(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset || !a->bytes || !b->bytes);
}

/* Most bytes that are in use at one moment: no layout takes less. */
static uint64_t busiest_moment(const struct gp_piece *piece, int count)
{
	uint64_t most = 0;
	for (int t = 0; t < MOMENTS; t++) {
		uint64_t sum = 0;
		for (int i = 0; i < count; i++)
			sum += piece[i].first <= t && t <= piece[i].last ? piece[i].bytes : 0;
		most = sum > most ? sum : most;
	}
	return most;
}

static void what_is_in_use_together_never_overlaps(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct gp_piece piece[MOST];
		uint64_t total, end = 0;
		const int count = draw_pieces(piece);
		assert_int_equal(gp_place_pieces(piece, count, &total, &err), GP_OK);
		for (int a = 0; a < count; a++) {
			for (int b = 0; b < a; b++)
				check_apart(&piece[a], &piece[b]);
			end = piece[a].offset + piece[a].bytes > end ? piece[a].offset + piece[a].bytes : end;
		}
		assert_true(total == end);
		assert_true(total >= busiest_moment(piece, count));
	}
}

/* Value after value, each in use until the next one is there: the largest neighbours are all it takes, gaps are used. */
static void a_chain_takes_what_its_busiest_moment_does(void **state)
{
	(void)state;
	struct gp_piece chain[] = {{.bytes = 100, .first = 0, .last = 1},
				   {.bytes = 300, .first = 1, .last = 2},
				   {.bytes = 200, .first = 2, .last = 3},
				   {.bytes = 100, .first = 3, .last = 4},
				   {.bytes = 200, .first = 4, .last = 5}};
	uint64_t total;
	assert_int_equal(gp_place_pieces(chain, 5, &total, &err), GP_OK);
	assert_int_equal(total, 500);
	assert_int_equal(total, busiest_moment(chain, 5));
	assert_int_equal(chain[3].offset, 200); /* between the two that are there with it */
}

static void what_is_always_in_use_shares_nothing(void **state)
{
	(void)state;
	struct gp_piece piece[MOST];
	uint64_t total, sum = 0;
	for (int i = 0; i < MOST; i++) {
		piece[i] = (struct gp_piece){.bytes = (uint64_t)i, .first = 0, .last = MOMENTS};
		sum += piece[i].bytes;
	}
	assert_int_equal(gp_place_pieces(piece, MOST, &total, &err), GP_OK);
	assert_int_equal(total, sum);
}

static void the_same_pieces_lie_at_the_same_place_again(void **state)
{
	(void)state;
	struct gp_piece once[MOST], again[MOST];
	uint64_t total[2];
	const int count = draw_pieces(once);
	memcpy(again, once, (size_t)count * sizeof *once);
	assert_int_equal(gp_place_pieces(once, count, &total[0], &err), GP_OK);
	assert_int_equal(gp_place_pieces(again, count, &total[1], &err), GP_OK);
	assert_int_equal(total[0], total[1]);
	for (int i = 0; i < count; i++)
		assert_int_equal(once[i].offset, again[i].offset);
}

static void no_pieces_take_no_room(void **state)
{
	(void)state;
	uint64_t total = 7;
	assert_int_equal(gp_place_pieces(NULL, 0, &total, &err), GP_OK);
	assert_int_equal(total, 0);
}

#ifdef GP_FAULTS
static void a_failed_allocation_is_an_error(void **state)
{
	(void)state;
	struct gp_piece piece = {.bytes = 1};
	uint64_t total = 7;
	gp_fault_arm(GP_FAULT_ALLOC, 1);
	assert_int_equal(gp_place_pieces(&piece, 1, &total, &err), GP_NOMEM);
	gp_fault_arm(GP_FAULT_ALLOC, 0);
	assert_int_equal(total, 7);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_in_use_together_never_overlaps),
		cmocka_unit_test(a_chain_takes_what_its_busiest_moment_does),
		cmocka_unit_test(what_is_always_in_use_shares_nothing),
		cmocka_unit_test(the_same_pieces_lie_at_the_same_place_again),
		cmocka_unit_test(no_pieces_take_no_room),
#ifdef GP_FAULTS
		cmocka_unit_test(a_failed_allocation_is_an_error),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

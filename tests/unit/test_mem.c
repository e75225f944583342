/* SPDX-License-Identifier: Apache-2.0
 *
 * Counted memory (common/base/mem.h) and fault switches (common/base/fault.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/base/fault.h"
#include "common/base/mem.h"

static void every_allocation_is_counted(void **state)
{
	(void)state;
	uint64_t before = gp_mem_calls();
	void *a = gp_calloc(3, 5);
	void *b = gp_alloc_aligned(100);
	char *c = gp_strdup("name");
	assert_int_equal(gp_mem_calls() - before, 3);
	assert_int_equal((uintptr_t)b % 64, 0);
	assert_string_equal(c, "name");
	gp_free(a);
	gp_free_aligned(b);
	gp_free(c);
}

static void products_that_overflow_are_refused(void **state)
{
	(void)state;
	/* Through volatile: a compiler that sees the sizes warns about them. */
	volatile size_t huge = SIZE_MAX / 2;
	struct gp_err err;
	void *p = NULL;
	assert_null(gp_realloc(NULL, huge, 4));
	assert_null(gp_alloc_aligned(SIZE_MAX - huge % 2));
	assert_int_equal(gp_alloc_array(&p, huge, 4, &err), GP_NOMEM);
	assert_null(p);
	uint64_t out = 7;
	assert_false(gp_mul_ok(UINT64_MAX, 2, &out));
	assert_false(gp_add_ok(UINT64_MAX, 1, &out));
	assert_true(gp_mul_ok(1u << 31, 2, &out));
	assert_int_equal(out, 1ull << 32);
}

static void the_armed_allocation_fails_once(void **state)
{
	(void)state;
#ifdef GP_FAULTS
	gp_fault_arm(GP_FAULT_ALLOC, 2);
	void *first = gp_calloc(1, 1);
	void *second = gp_calloc(1, 1);
	void *third = gp_calloc(1, 1);
	assert_non_null(first);
	assert_null(second);
	assert_non_null(third);
	gp_free(first);
	gp_free(third);
#else
	skip();
#endif
}

static void fault_switches_are_read_to_the_letter(void **state)
{
	(void)state;
#ifdef GP_FAULTS
	static const char *const wrong[] = {"",         "alloc",    "alloc:",          "alloc:0",  "alloc:x",
					    "alloc:1,", "alloc:1;", "write:2 alloc:1", "malloc:1", "alloc:-1"};
	uint64_t nth[GP_FAULT_KINDS];
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		if (gp_fault_parse(wrong[i], nth))
			fail_msg("'%s' was taken", wrong[i]);
	assert_true(gp_fault_parse("write:3,alloc:17,read:2", nth));
	assert_int_equal(nth[GP_FAULT_READ], 2);
	assert_int_equal(nth[GP_FAULT_ALLOC], 17);
	assert_int_equal(nth[GP_FAULT_WRITE], 3);
	assert_int_equal(nth[GP_FAULT_FSYNC], 0);
	assert_int_equal(nth[GP_FAULT_SEND], 0);
#else
	skip();
#endif
}

static void peak_memory_grows_with_what_is_touched(void **state)
{
	(void)state;
	uint64_t before = gp_mem_peak_rss_bytes();
	assert_true(before > 0);
	enum { BYTES = 64 << 20 };
	volatile uint8_t *p = gp_alloc_aligned(BYTES);
	for (size_t i = 0; i < BYTES; i += 4096)
		p[i] = 1;
	assert_true(gp_mem_peak_rss_bytes() >= before + BYTES / 2);
	gp_free_aligned((void *)p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_is_counted),
		cmocka_unit_test(products_that_overflow_are_refused),
		cmocka_unit_test(the_armed_allocation_fails_once),
		cmocka_unit_test(fault_switches_are_read_to_the_letter),
		cmocka_unit_test(peak_memory_grows_with_what_is_touched),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

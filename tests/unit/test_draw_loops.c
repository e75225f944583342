/* SPDX-License-Identifier: Apache-2.0
 *
 * Random words in bulk (kernels/loops/draw_loops.h) against one block at a time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/base/isa.h"
#include "common/base/rng.h"
#include "kernels/loops/codec_loops.h"
#include "kernels/loops/draw_loops.h"

static void check(uint64_t seed, uint64_t stream, uint64_t first, size_t blocks)
{
	for (int k = 0; k < 3; k++) {
		uint32_t expected[4], *out = malloc(16 * blocks + 4);
		setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
		memcpy(out + 4 * blocks, "stop", 4);
		gp_draw_words_choose()(seed, stream, first, blocks, out);
		for (size_t i = 0; i < blocks; i++) {
			gp_rng_block(seed, stream, first + i, expected);
			assert_memory_equal(out + 4 * i, expected, sizeof expected);
		}
		assert_memory_equal(out + 4 * blocks, "stop", 4);
		free(out);
	}
	unsetenv("GP_SIMD");
}

static void every_instruction_set_draws_the_words_of_the_generator(void **state)
{
	(void)state;
	for (size_t blocks = 0; blocks < 70; blocks++)
		check(0x0123456789abcdef, gp_rng_stream(GP_RNG_ROUNDING, 77), 3 * blocks, blocks);
}

static void counters_carry_into_their_upper_half(void **state)
{
	(void)state;
	check(UINT64_MAX, UINT64_MAX, UINT32_MAX - 20, 64);
	check(1, 2, (UINT64_C(5) << 32) - 1, 33);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_instruction_set_draws_the_words_of_the_generator),
		cmocka_unit_test(counters_carry_into_their_upper_half),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

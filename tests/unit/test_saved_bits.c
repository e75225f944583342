/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks of activations and small codes in words of bits: whatever the length,
 * also of values that are not numbers, with each instruction set.
 * See kernels/cpu/math/saved_bits.h.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/rng.h"
#include "kernels/cpu/math/saved_bits.h"
#include "tests/unit/each_isa.h"

enum { MOST = 300 };

/* Values around where the gradient begins and ends to pass. */
static void fill(float *x, int64_t n)
{
	const float edges[] = {0.0f, -0.0f, 6.0f, 1e-42f, -1e-42f, 5.9999995f, 6.0000005f, NAN, INFINITY, -INFINITY};
	for (int64_t i = 0; i < n; i++)
		x[i] = i % 3 ? 4.0f * gp_rng_normal(3, 1, (uint64_t)i) : edges[i / 3 % 10];
}

static float gradient_of(float out, float dout, bool six)
{
	return out > 0.0f && (!six || out < 6.0f) ? dout : 0.0f;
}

static void masks_let_the_same_gradients_pass(void **state)
{
	(void)state;
	float out[MOST], dout[MOST], dx[MOST + 1], want[MOST];
	uint32_t mask[MOST / GP_MASK_GRAIN + 2];
	fill(out, MOST);
	for (int i = 0; i < MOST; i++)
		dout[i] = gp_rng_normal(3, 2, (uint64_t)i);
	dout[5] = NAN;
	for (int64_t n = 0; n <= MOST; n++)
		for (int six = 0; six < 2; six++) {
			const int64_t words = gp_bits_words(n, 1);
			assert_int_equal(gp_mask_bytes(n), 4 * words);
			mask[words] = 0x5a5a5a5a;
			gp_mask_of(out, mask, n, six);
			assert_int_equal(mask[words], 0x5a5a5a5a);
			for (int64_t i = 0; i < n; i++)
				want[i] = gradient_of(out[i], dout[i], six);
			dx[n] = 7.0f;
			gp_mask_gradient(dx, dout, mask, n);
			assert_memory_equal(dx, want, (size_t)n * sizeof *dx);
			assert_true(dx[n] == 7.0f);
			memcpy(dx, dout, (size_t)n * sizeof *dx);
			gp_mask_gradient(dx, dx, mask, n);
			assert_memory_equal(dx, want, (size_t)n * sizeof *dx);
		}
}

static void codes_come_back(void **state)
{
	(void)state;
	int32_t codes[MOST + 32], back[MOST + 32];
	uint32_t words[MOST + 1];
	for (int bits = 1; bits <= 32; bits *= 2)
		for (int64_t n = 1; n <= MOST; n += n < 70 ? 1 : 23) {
			const uint32_t most = bits == 32 ? INT32_MAX : (uint32_t)(((uint64_t)1 << bits) - 1);
			const int64_t count = gp_bits_words(n, bits);
			for (int64_t i = 0; i < n; i++)
				codes[i] = (int32_t)(i % 5 ? gp_rng_u32(4, (uint64_t)bits, (uint64_t)i) & most : most);
			words[count] = 0x5a5a5a5a;
			gp_bits_pack(codes, words, n, bits);
			assert_int_equal(words[count], 0x5a5a5a5a);
			gp_bits_unpack(words, back, n, bits);
			assert_memory_equal(back, codes, (size_t)n * sizeof *back);
		}
}

static void a_window_of_so_many_places_takes_so_many_bits(void **state)
{
	(void)state;
	const int64_t counts[] = {1, 2, 3, 4, 5, 9, 16, 17, 256, 257, 65536, 65537};
	const int bits[] = {1, 1, 2, 2, 4, 4, 4, 8, 8, 16, 16, 32};
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		assert_int_equal(gp_bits_for(counts[i]), bits[i]);
	assert_int_equal(gp_bits_words(17, 2), 2);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(masks_let_the_same_gradients_pass),
		cmocka_unit_test(codes_come_back),
		cmocka_unit_test(a_window_of_so_many_places_takes_so_many_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return each_isa(run);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The AVX2 and AVX-512 codec loops against the portable ones, bit for bit:
 * every width, lengths around every register size, unaligned memory, and no
 * byte written outside of what the interface allows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/codec/codec_cells.h"
#include "common/base/isa.h"
#include "common/base/rng.h"
#include "kernels/loops/codec_loops.h"

enum { MOST = 1100, GUARD = 64, FILL = 0xa5 };

static const struct gp_codec_loops *const reference = &gp_codec_loops_portable;

/* The loops to compare; NULL ends. */
static const struct gp_codec_loops *other(int index)
{
	return index < (int)gp_isa_best() ? gp_codec_loops_named(gp_isa_name((enum gp_isa)(index + 1))) : NULL;
}

static const size_t sizes[] = {1,  2,  7,  8,  9,   15,  16,  17,  31,   32,   33,
			       47, 63, 64, 65, 127, 128, 129, 511, 1000, 1024, 1025};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void draw(float *x, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(seed, 1, i) * (i % 5 == 0 ? 100 : 1);
}

static void assert_guard(const uint8_t *p)
{
	for (int i = 0; i < GUARD; i++)
		assert_int_equal(p[i], FILL);
}

static void range_agrees_and_notices_every_nonfinite_lane(void **state)
{
	(void)state;
	const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
	float x[MOST + 1], lo[2], hi[2];
	for (int k = 0; other(k); k++)
		for (int s = 0; s < SIZES; s++) {
			draw(x, MOST + 1, (uint64_t)s);
			assert_true(reference->range(x + 1, sizes[s], &lo[0], &hi[0]));
			assert_true(other(k)->range(x + 1, sizes[s], &lo[1], &hi[1]));
			assert_memory_equal(&lo[0], &lo[1], sizeof lo[0]);
			assert_memory_equal(&hi[0], &hi[1], sizeof hi[0]);
			for (size_t at = 0; at < sizes[s]; at += 1 + sizes[s] / 40) {
				float saved = x[1 + at];
				x[1 + at] = bad[at % 4];
				assert_false(reference->range(x + 1, sizes[s], &lo[0], &hi[0]));
				assert_false(other(k)->range(x + 1, sizes[s], &lo[1], &hi[1]));
				x[1 + at] = saved;
			}
		}
}

static void range_of_zeros_is_positive_zero(void **state)
{
	(void)state;
	float x[40], lo, hi;
	for (int k = -1; k < 0 || other(k); k++)
		for (int i = 0; i < 40; i++) {
			for (int j = 0; j < 40; j++)
				x[j] = j == i ? 0.0f : -0.0f;
			assert_true((k < 0 ? reference : other(k))->range(x, 40, &lo, &hi));
			assert_true(!signbit(lo) && !signbit(hi));
		}
}

static void sift_agrees(void **state)
{
	(void)state;
	float x[MOST], chosen[2][MOST + GP_SIFT_SLACK];
	for (int k = 0; other(k); k++)
		for (int s = 0; s < SIZES; s++)
			for (int count = 1; count <= GP_SIFT_WINDOWS; count++) {
				struct gp_window w[2][GP_SIFT_WINDOWS];
				draw(x, MOST, (uint64_t)s);
				x[0] = 0.5f;
				x[sizes[s] - 1] = NAN;
				for (int i = 0; i < count; i++)
					w[0][i] = w[1][i] = (struct gp_window){.lo = (float)i - 0.5f,
									       .hi = (float)i + 0.25f,
									       .choose = i != 1,
									       .inside = 3};
				size_t a = reference->sift(x, sizes[s], w[0], count, chosen[0]);
				size_t b = other(k)->sift(x, sizes[s], w[1], count, chosen[1]);
				assert_int_equal(a, b);
				assert_memory_equal(chosen[0], chosen[1], a * sizeof chosen[0][0]);
				for (int i = 0; i < count; i++) {
					assert_int_equal(w[0][i].at_or_below, w[1][i].at_or_below);
					assert_int_equal(w[0][i].inside, w[1][i].inside);
				}
			}
}

/* A table whose partitions begin at equal steps of the rank. */
static void fill_table(struct gp_quant_table *t, int bits, int split)
{
	*t = (struct gp_quant_table){.bits = bits, .split = split};
	for (int p = 0; p < 1 << split; p++) {
		float width = 900.0f / (float)(1 << split);
		t->min[p] = -450 + width * (float)p;
		t->step[p] = p % 7 == 6 ? 0 : width / (float)((1 << bits) - 1);
		t->divisor[p] = t->step[p] > 0 ? t->step[p] : 1;
	}
}

static void codes_and_values_agree_for_every_split(void **state)
{
	(void)state;
	float x[MOST], y[2][MOST];
	uint16_t codes[2][MOST + GUARD];
	struct gp_quant_table t;
	for (int split = 0; split <= GP_QUANT_MAX_SPLIT; split++)
		for (int bits = split ? 1 : 2; bits + split <= 16; bits += 1 + bits / 3) {
			fill_table(&t, bits, split);
			for (int s = 0; s < SIZES; s++)
				for (int k = 0; other(k); k++) {
					const size_t n = sizes[s];
					draw(x, n, (uint64_t)s);
					memset(codes, FILL, sizeof codes);
					reference->quantize(&t, x, n, codes[0]);
					other(k)->quantize(&t, x, n, codes[1]);
					assert_memory_equal(codes[0], codes[1], sizeof codes[0]);
					memset(y, FILL, sizeof y);
					reference->dequantize(&t, codes[0], n, y[0]);
					other(k)->dequantize(&t, codes[0], n, y[1]);
					assert_memory_equal(y[0], y[1], sizeof y[0]);
				}
		}
}

/* Values of several kinds: crowded at zero, with exact zeros, far from zero, ties, denormals, either sign. */
static float value_of(int kind, size_t i)
{
	const float g = gp_rng_normal(7, (uint64_t)kind, i);
	switch (kind) {
	case 0:
		return g;
	case 1:
		return g < 0 ? -0.0f : g;
	case 2:
		return 1000 + g;
	case 3:
		return (float)(int)(8 * g);
	case 4:
		return g * 1e-40f;
	case 5:
		return expf(12 * g);
	default:
		return -1 - fabsf(g);
	}
}

static int ascending(const void *a, const void *b)
{
	const float p = *(const float *)a, q = *(const float *)b;
	return (p > q) - (p < q);
}

/* 2^split partitions that begin at equal steps of the rank of x[0..n), as sortquant makes them. */
static float rank_table(struct gp_quant_table *t, int bits, int split, const float *values, size_t n)
{
	static float sorted[20000];
	*t = (struct gp_quant_table){.bits = bits, .split = split};
	memcpy(sorted, values, n * sizeof *values);
	qsort(sorted, n, sizeof *sorted, ascending);
	for (size_t p = 0, parts = (size_t)1 << split; p < parts; p++) {
		t->min[p] = sorted[n * p / parts] + 0.0f;
		t->step[p] = (sorted[n * (p + 1) / parts - 1] - t->min[p]) / (float)((1 << bits) - 1);
		t->divisor[p] = t->step[p] > 0 ? t->step[p] : 1;
	}
	return sorted[n - 1];
}

static void looking_partitions_up_gives_what_searching_gives(void **state)
{
	(void)state;
	enum { N = 20000 };
	static float x[N];
	static uint16_t codes[2][GP_QUANT_BLOCK];
	static struct gp_cells cells;
	struct gp_quant_table t;
	int looked_up = 0;
	for (int kind = 0; kind < 7; kind++)
		for (int split = 3; split <= 8; split++) {
			for (size_t i = 0; i < N; i++)
				x[i] = value_of(kind, i);
			gp_cells_init(&cells, reference, &t, rank_table(&t, 8, split, x, N), N);
			looked_up += !cells.direct;
			for (size_t at = 0; at < N; at += GP_QUANT_BLOCK) {
				const size_t n = N - at < GP_QUANT_BLOCK ? N - at : GP_QUANT_BLOCK;
				reference->quantize(&t, x + at, n, codes[0]);
				gp_cells_quantize(&cells, x + at, n, codes[1]);
				assert_memory_equal(codes[0], codes[1], n * sizeof codes[0][0]);
			}
		}
	print_message("%d of 28 tables with more than 16 partitions are looked up\n", looked_up);
	assert_true(looked_up >= 14);
}

static void halfway_quotients_round_to_even(void **state)
{
	(void)state;
	const float x[] = {0,          0.5f, 1,    1.5f, 2,    2.5f, 3.5f, 4.5f, 0.49999997f,
			   1.5000001f, 5,    5.5f, 6,    6.5f, 7,    7.5f, 100};
	const uint16_t expected[] = {0, 0, 1, 2, 2, 2, 4, 4, 0, 2, 5, 6, 6, 6, 7, 7, 7};
	const struct gp_quant_table t = {.bits = 3, .step = {1}, .divisor = {1}};
	uint16_t codes[17];
	for (int k = -1; k < 0 || other(k); k++) {
		(k < 0 ? reference : other(k))->quantize(&t, x, 17, codes);
		assert_memory_equal(codes, expected, sizeof codes);
	}
}

static void packing_agrees_at_every_width_and_stays_in_bounds(void **state)
{
	(void)state;
	uint16_t codes[MOST], back[MOST];
	uint8_t packed[2][2 * MOST + 2 * GUARD];
	for (int k = -1; k < 0 || other(k); k++)
		for (int width = 1; width <= 16; width++)
			for (int s = 0; s < SIZES; s++) {
				const struct gp_codec_loops *l = k < 0 ? reference : other(k);
				const size_t n = sizes[s], bytes = (n * (size_t)width + 7) / 8;
				for (size_t i = 0; i < n; i++)
					codes[i] = (uint16_t)(gp_rng_u32(3, 1, i) >> (32 - width));
				memset(packed, FILL, sizeof packed);
				reference->pack(codes, n, width, packed[0] + GUARD);
				l->pack(codes, n, width, packed[1] + GUARD);
				assert_memory_equal(packed[0], packed[1], sizeof packed[0]);
				assert_guard(packed[1]);
				assert_guard(packed[1] + GUARD + bytes);
				uint8_t *exact = malloc(bytes);
				memcpy(exact, packed[1] + GUARD, bytes);
				memset(back, FILL, sizeof back);
				l->unpack(exact, n, width, back);
				assert_memory_equal(back, codes, n * sizeof codes[0]);
				assert_true(back[n] == (FILL << 8 | FILL));
				free(exact);
			}
}

static void codes_are_packed_least_significant_bit_first(void **state)
{
	(void)state;
	const uint16_t codes[] = {1, 2, 3, 31, 0, 16};
	const uint8_t expected[] = {0x41, 0x8c, 0x0f, 0x20};
	uint8_t packed[4];
	for (int k = -1; k < 0 || other(k); k++) {
		(k < 0 ? reference : other(k))->pack(codes, 6, 5, packed);
		assert_memory_equal(packed, expected, sizeof packed);
	}
}

/* Every half, and floats around every half: the whole format is checked. */
static void halves_agree_everywhere(void **state)
{
	(void)state;
	uint8_t in[128], out[2][128];
	float y[2][64], x[64];
	for (int k = 0; other(k); k++)
		for (uint32_t base = 0; base < 65536; base += 64) {
			for (uint32_t i = 0; i < 64; i++) {
				in[2 * i] = (uint8_t)(base + i);
				in[2 * i + 1] = (uint8_t)((base + i) >> 8);
			}
			bool finite = reference->from_fp16(in, 64, y[0]);
			assert_int_equal(finite, other(k)->from_fp16(in, 64, y[1]));
			if (finite)
				assert_memory_equal(y[0], y[1], sizeof y[0]);
			for (int i = 0; finite && i < 64; i++)
				x[i] = y[0][i] * (1 + (float)(i % 9 - 4) * 0x1p-12f);
			if (finite && reference->to_fp16(x, 64, out[0])) {
				assert_true(other(k)->to_fp16(x, 64, out[1]));
				assert_memory_equal(out[0], out[1], sizeof out[0]);
			}
			finite = reference->from_bf16(in, 64, y[0]);
			assert_int_equal(finite, other(k)->from_bf16(in, 64, y[1]));
			if (finite)
				assert_memory_equal(y[0], y[1], sizeof y[0]);
			for (int i = 0; finite && i < 64; i++)
				x[i] = y[0][i] * (1 + (float)(i % 9 - 4) * 0x1p-9f);
			if (finite && reference->to_bf16(x, 64, out[0])) {
				assert_true(other(k)->to_bf16(x, 64, out[1]));
				assert_memory_equal(out[0], out[1], sizeof out[0]);
			}
		}
}

static void halves_agree_on_tails_and_refuse_what_overflows(void **state)
{
	(void)state;
	const float bad[] = {NAN, INFINITY, -INFINITY, 3.4e38f, -3.4028235e38f};
	float x[MOST], y[2][MOST];
	uint8_t out[2][2 * MOST];
	for (int k = 0; other(k); k++)
		for (int s = 0; s < SIZES; s++) {
			const size_t n = sizes[s];
			draw(x, n, (uint64_t)s);
			memset(out, FILL, sizeof out);
			assert_true(reference->to_fp16(x, n, out[0]) && other(k)->to_fp16(x, n, out[1]));
			assert_memory_equal(out[0], out[1], sizeof out[0]);
			assert_true(reference->from_fp16(out[0], n, y[0]) && other(k)->from_fp16(out[0], n, y[1]));
			assert_memory_equal(y[0], y[1], n * sizeof y[0][0]);
			assert_true(reference->to_bf16(x, n, out[0]) && other(k)->to_bf16(x, n, out[1]));
			assert_memory_equal(out[0], out[1], sizeof out[0]);
			for (size_t at = 0; at < n; at += 1 + n / 20) {
				float saved = x[at];
				x[at] = bad[at % 5];
				assert_false(reference->to_fp16(x, n, out[0]) || other(k)->to_fp16(x, n, out[1]));
				assert_false(reference->to_bf16(x, n, out[0]) || other(k)->to_bf16(x, n, out[1]));
				x[at] = saved;
			}
		}
}

static void the_environment_chooses_among_what_can_run(void **state)
{
	(void)state;
	for (enum gp_isa isa = GP_ISA_PORTABLE; isa <= GP_ISA_AVX512; isa++) {
		const char *name = gp_isa_name(isa);
		setenv("GP_SIMD", name, 1);
		if (gp_codec_loops_named(name))
			assert_ptr_equal(gp_codec_loops_choose(), gp_codec_loops_named(name));
		else
			assert_non_null(gp_codec_loops_choose());
	}
	setenv("GP_SIMD", "abacus", 1);
	assert_non_null(gp_codec_loops_choose());
	unsetenv("GP_SIMD");
	assert_null(gp_codec_loops_named("abacus"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(range_agrees_and_notices_every_nonfinite_lane),
		cmocka_unit_test(range_of_zeros_is_positive_zero),
		cmocka_unit_test(sift_agrees),
		cmocka_unit_test(codes_and_values_agree_for_every_split),
		cmocka_unit_test(looking_partitions_up_gives_what_searching_gives),
		cmocka_unit_test(halfway_quotients_round_to_even),
		cmocka_unit_test(packing_agrees_at_every_width_and_stays_in_bounds),
		cmocka_unit_test(codes_are_packed_least_significant_bit_first),
		cmocka_unit_test(halves_agree_everywhere),
		cmocka_unit_test(halves_agree_on_tails_and_refuse_what_overflows),
		cmocka_unit_test(the_environment_chooses_among_what_can_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

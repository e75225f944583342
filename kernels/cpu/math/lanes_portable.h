/* SPDX-License-Identifier: Apache-2.0
 *
 * lanes.h in vectors of four floats, which the compiler knows on every
 * processor; only for that header. lanes_avx512.h says what the functions give.
 *
 * Threads: any; pure functions. Test: tests/unit/test_lanes.c
 */
#ifndef GP_CPU_LANES_PORTABLE_H
#define GP_CPU_LANES_PORTABLE_H

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define LANES_FOURS (LANES / 4)

typedef float lanes_floats __attribute__((vector_size(16)));
typedef int32_t lanes_ints __attribute__((vector_size(16))); /* of comparisons: all bits of a lane, or none */
typedef uint32_t lanes_bits __attribute__((vector_size(16)));
typedef double lanes_doubles __attribute__((vector_size(16)));
typedef int64_t lanes_longs __attribute__((vector_size(16)));

struct lanes {
	lanes_floats v[LANES_FOURS];
};

#define LANES_TILE_VECTORS    1
#define LANES_TILE_ROWS(wide) 4

GP_INLINE struct lanes lanes_load(const float *at)
{
	struct lanes x;
	memcpy(&x, at, sizeof x);
	return x;
}

GP_INLINE void lanes_store(float *at, struct lanes x)
{
	memcpy(at, &x, sizeof x);
}

GP_INLINE lanes_floats lanes_choose(lanes_ints mask, lanes_floats yes, lanes_floats no)
{
	return (lanes_floats)((mask & (lanes_ints)yes) | (~mask & (lanes_ints)no));
}

#ifdef __SSE2__ /* x86 without fused multiply-adds */
/*
 * a b + c, still to be rounded to float: the product is exact, and the sum is rounded to odd: where it is not exact and its
 * last bit is 0, it becomes the neighbour on the other side of the exact sum, whose last bit is 1. What is then rounded to
 * float is as if only that had been (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
 */
GP_INLINE lanes_doubles lanes_fma_odd(lanes_doubles a, lanes_doubles b, lanes_doubles c)
{
	const lanes_doubles product = a * b, sum = product + c;
	const lanes_doubles part = sum - product, rest = (product - (sum - part)) + (c - part);
	const lanes_longs above = rest > 0.0, below = rest < 0.0; /* neither where the sum is infinite or NaN */
	const lanes_longs even = ((lanes_longs)sum & 1) - 1;
	const lanes_longs step = (~(above ^ (sum > 0.0)) & 2) - 1; /* 1: away from zero; -1: towards it */
	return (lanes_doubles)((lanes_longs)sum + (step & even & (above | below)));
}

/* Converted by instructions: of conversions element by element gcc 12.2 made wrong code with -O2. */
GP_INLINE lanes_floats lanes_fma_four(lanes_floats a, lanes_floats b, lanes_floats c)
{
	const lanes_doubles low = lanes_fma_odd(_mm_cvtps_pd(a), _mm_cvtps_pd(b), _mm_cvtps_pd(c));
	const lanes_doubles high = lanes_fma_odd(_mm_cvtps_pd(_mm_movehl_ps(a, a)), _mm_cvtps_pd(_mm_movehl_ps(b, b)),
						 _mm_cvtps_pd(_mm_movehl_ps(c, c)));
	return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
#else
GP_INLINE lanes_floats lanes_fma_four(lanes_floats a, lanes_floats b, lanes_floats c)
{
	for (int i = 0; i < 4; i++)
		c[i] = __builtin_fmaf(a[i], b[i], c[i]);
	return c;
}
#endif

GP_INLINE lanes_ints lanes_words_from(const uint32_t *word, uint32_t threshold)
{
	const int32_t half = INT32_MIN;
	lanes_ints words;
	memcpy(&words, word, sizeof words);
	return (words ^ half) >= ((int32_t)threshold ^ half);
}

/* A function of every vector, in which `i` is its number. */
/* clang-format off */
#define LANES_EACH(name, params, value)                                                                                \
	GP_INLINE struct lanes lanes_##name params                                                                     \
	{                                                                                                              \
		struct lanes out;                                                                                      \
		_Pragma("GCC unroll 4")                                                                                \
		for (int i = 0; i < LANES_FOURS; i++)                                                                  \
			out.v[i] = (value);                                                                            \
		return out;                                                                                            \
	}
/* clang-format on */
LANES_EACH(all, (float x), ((lanes_floats){x, x, x, x}))
LANES_EACH(add, (struct lanes a, struct lanes b), a.v[i] + b.v[i])
LANES_EACH(subtract, (struct lanes a, struct lanes b), a.v[i] - b.v[i])
LANES_EACH(multiply, (struct lanes a, struct lanes b), a.v[i] * b.v[i])
LANES_EACH(fma, (struct lanes a, struct lanes b, struct lanes c), lanes_fma_four(a.v[i], b.v[i], c.v[i]))
LANES_EACH(larger, (struct lanes a, struct lanes b), lanes_choose(a.v[i] > b.v[i], a.v[i], b.v[i]))
LANES_EACH(smaller, (struct lanes a, struct lanes b), lanes_choose(a.v[i] < b.v[i], a.v[i], b.v[i]))
LANES_EACH(unless_below, (struct lanes x, float limit, struct lanes y),
	   lanes_choose(x.v[i] < limit, (lanes_floats){0}, y.v[i]))
LANES_EACH(unless_word_below, (const uint32_t *word, uint32_t threshold, struct lanes y),
	   lanes_choose(lanes_words_from(word + 4 * i, threshold), y.v[i], (lanes_floats){0}))
LANES_EACH(power, (struct lanes x), (lanes_floats)(((lanes_bits)x.v[i] << 23) + (127u << 23)))
#undef LANES_EACH

GP_INLINE float lanes_sum(struct lanes x)
{
	const lanes_floats four = (x.v[0] + x.v[2]) + (x.v[1] + x.v[3]);
	return (four[0] + four[2]) + (four[1] + four[3]);
}

GP_INLINE float lanes_largest(struct lanes x)
{
	float largest = x.v[0][0];
	for (int i = 1; i < LANES; i++)
		largest = x.v[i / 4][i % 4] > largest ? x.v[i / 4][i % 4] : largest;
	return largest;
}

GP_INLINE void lanes_turn(struct lanes row[LANES])
{
	float all[LANES][LANES];
	for (int i = 0; i < LANES; i++)
		lanes_store(all[i], row[i]);
	for (int i = 0; i < LANES; i++)
		for (int j = 0; j < LANES; j++)
			row[j].v[i / 4][i % 4] = all[i][j];
}

#endif

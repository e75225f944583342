/* SPDX-License-Identifier: Apache-2.0
 *
 * The Walsh-Hadamard transform with AVX2. See hadamard_loops.h for what it
 * gives, hadamard_loops_portable.c for the reference and for blocks smaller than
 * a register. Test: tests/unit/test_codec_hadamard.c
 */
#include "kernels/loops/hadamard_loops.h"

#include <stdbool.h>

#include "kernels/loops/avx2.h"

#define REST gp_hadamard_loops_portable

enum { LANES = 8, GROUP = 8, GROUP_LEVELS = 6, ACROSS = 16 }; /* a group: registers transformed without memory */

/* What is done with every element of a pass: signs, the factor, and the largest magnitude so far. */
struct turn {
	const uint32_t *sign;
	bool before, after; /* when elements get their signs: before the transform, or after it */
	__m256 factor;
	__m256i top;
};

/* --- inside a register ------------------------------------------------------------------------------------------ */

/* `other` has the partner of each element; `sign` is -1 for those that are the second of a pair, else 1. The product is
 * exact, so a sum is rounded once. */
GP_INLINE __m256 level(__m256 v, __m256 other, __m256 sign)
{
	return _mm256_fmadd_ps(v, sign, other);
}

GP_INLINE __m256 inside(__m256 v)
{
	v = level(v, _mm256_permute_ps(v, 0xb1), _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1));
	v = level(v, _mm256_permute_ps(v, 0x4e), _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1));
	return level(v, _mm256_permute2f128_ps(v, v, 0x01), _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1));
}

GP_INLINE __m256 signed_by(__m256 v, const uint32_t *sign)
{
	return _mm256_xor_ps(v, _mm256_loadu_ps((const float *)sign));
}

/* The tensor comes from far away before it is transformed, and is at hand on the way back: asks for the line that comes a
 * page later, which need not exist, as processors do not follow a stream over the end of a page by themselves. */
GP_INLINE __m256 taken(const struct turn *t, const float *x, size_t sign)
{
	if (t->before && sign / LANES % 2 == 0)
		_mm_prefetch((const char *)((uintptr_t)x + 4096), _MM_HINT_T0);
	const __m256 v = _mm256_loadu_ps(x);
	return t->before ? signed_by(v, t->sign + sign) : v;
}

/* Writes v, which has all its levels, times the factor and, going back, with its signs. */
GP_INLINE void put(struct turn *t, __m256 v, size_t sign, float *y)
{
	v = _mm256_mul_ps(v, t->factor);
	const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
	t->top = _mm256_max_epi32(t->top, magnitude);
	_mm256_storeu_ps(y, t->after ? signed_by(v, t->sign + sign) : v);
}

/* --- between registers ------------------------------------------------------------------------------------------ */

GP_INLINE void level_between(__m256 *v, int h)
{
#pragma GCC unroll 16
	for (int i = 0; i < h; i++) {
		const __m256 a = v[i], b = v[i + h];
		v[i] = _mm256_add_ps(a, b);
		v[i + h] = _mm256_sub_ps(a, b);
	}
}

GP_INLINE void between(__m256 *v, int count)
{
#pragma GCC unroll 16
	for (int i = 0; count >= 2 && i < count; i += 2)
		level_between(v + i, 1);
#pragma GCC unroll 16
	for (int i = 0; count >= 4 && i < count; i += 4)
		level_between(v + i, 2);
#pragma GCC unroll 16
	for (int i = 0; count >= 8 && i < count; i += 8)
		level_between(v + i, 4);
	if (count >= 16)
		level_between(v, 8);
}

/* --- blocks ----------------------------------------------------------------------------------------------------- */

/* The levels within `count` registers in a row. `sign`: place of their first element in the block. `whole`: they are a whole
 * block, which `put` ends; else more levels follow. */
GP_INLINE void group(struct turn *t, int count, bool whole, size_t sign, const float *x, float *y)
{
	__m256 v[GROUP];
#pragma GCC unroll 16
	for (int i = 0; i < count; i++)
		v[i] = inside(taken(t, x + i * LANES, sign + (size_t)(i * LANES)));
	between(v, count);
#pragma GCC unroll 16
	for (int i = 0; i < count; i++) {
		if (whole)
			put(t, v[i], sign + (size_t)(i * LANES), y + i * LANES);
		else
			_mm256_storeu_ps(y + i * LANES, v[i]);
	}
}

/* The levels above a group's, over `count` groups. */
GP_INLINE void across(struct turn *t, int count, float *y)
{
	for (size_t at = 0; at < GROUP * LANES; at += LANES) {
		__m256 v[ACROSS];
#pragma GCC unroll 16
		for (int i = 0; i < count; i++)
			v[i] = _mm256_loadu_ps(y + at + i * GROUP * LANES);
		between(v, count);
#pragma GCC unroll 16
		for (int i = 0; i < count; i++)
			put(t, v[i], at + (size_t)(i * GROUP * LANES), y + at + i * GROUP * LANES);
	}
}

GP_INLINE void small_blocks(struct turn *t, int count, const float *x, size_t n, float *y)
{
	const size_t size = (size_t)count * LANES;
	for (size_t at = 0; at < n; at += size)
		group(t, count, true, 0, x + at, y + at);
}

GP_INLINE void large_blocks(struct turn *t, int count, const float *x, size_t n, float *y)
{
	const size_t size = (size_t)count * GROUP * LANES;
	for (size_t at = 0; at < n; at += size) {
		for (size_t i = 0; i < size; i += GROUP * LANES)
			group(t, GROUP, false, i, x + at + i, y + at + i);
		across(t, count, y + at);
	}
}

GP_INLINE uint32_t largest(__m256i v)
{
	uint32_t lane[LANES], top = 0;
	_mm256_storeu_si256((__m256i *)lane, v);
	for (int i = 0; i < LANES; i++)
		top = lane[i] > top ? lane[i] : top;
	return top;
}

GP_INLINE uint32_t turn(const uint32_t *sign, int levels, bool back, const float *x, size_t n, float *y)
{
	struct turn t = {.sign = sign,
			 .before = !back,
			 .after = back,
			 .factor = _mm256_set1_ps(gp_hadamard_factor(levels)),
			 .top = _mm256_setzero_si256()};
	switch (levels) {
	case 3:
		small_blocks(&t, 1, x, n, y);
		break;
	case 4:
		small_blocks(&t, 2, x, n, y);
		break;
	case 5:
		small_blocks(&t, 4, x, n, y);
		break;
	case GROUP_LEVELS:
		small_blocks(&t, GROUP, x, n, y);
		break;
	case GROUP_LEVELS + 1:
		large_blocks(&t, 2, x, n, y);
		break;
	case GROUP_LEVELS + 2:
		large_blocks(&t, 4, x, n, y);
		break;
	case GROUP_LEVELS + 3:
		large_blocks(&t, 8, x, n, y);
		break;
	default:
		large_blocks(&t, ACROSS, x, n, y);
		break;
	}
	return largest(t.top);
}

static uint32_t forward(const uint32_t *sign, int levels, const float *x, size_t n, float *y)
{
	return levels < 3 ? REST.forward(sign, levels, x, n, y) : turn(sign, levels, false, x, n, y);
}

static uint32_t backward(const uint32_t *sign, int levels, const float *x, size_t n, float *y)
{
	return levels < 3 ? REST.backward(sign, levels, x, n, y) : turn(sign, levels, true, x, n, y);
}

const struct gp_hadamard_loops gp_hadamard_loops_avx2 = {.forward = forward, .backward = backward};

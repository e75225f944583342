/* SPDX-License-Identifier: Apache-2.0
 *
 * The Walsh-Hadamard transform with AVX-512. See hadamard_loops.h for what it
 * gives, hadamard_loops_portable.c for the reference and for blocks smaller than
 * a register. Test: tests/unit/test_codec_hadamard.c
 */
#include "kernels/loops/hadamard_loops.h"

#include <stdbool.h>

#include "kernels/loops/avx512.h"

#define REST gp_hadamard_loops_portable

enum { LANES = 16, GROUP = 16, GROUP_LEVELS = 8 }; /* a group: registers that are transformed without memory */

/* What is done with every element of a pass: signs, the factor, and the largest magnitude so far. */
struct turn {
	const uint32_t *sign;
	bool before, after; /* when elements get their signs: before the transform, or after it */
	__m512 factor;
	__m512i top;
};

/* --- inside a register ------------------------------------------------------------------------------------------ */

/* `other` has the partner of each element; `sign` is -1 for those that are the second of a pair, else 1. The product is
 * exact, so a sum is rounded once. */
GP_INLINE __m512 level(__m512 v, __m512 other, __m512 sign)
{
	return _mm512_fmadd_ps(v, sign, other);
}

GP_INLINE __m512 signs_of(__mmask16 second)
{
	return _mm512_mask_blend_ps(second, _mm512_set1_ps(1), _mm512_set1_ps(-1));
}

/* Blocks of 8, or of 16. */
GP_INLINE __m512 inside(__m512 v, bool eight)
{
	v = level(v, _mm512_permute_ps(v, 0xb1), signs_of(0xaaaa));
	v = level(v, _mm512_permute_ps(v, 0x4e), signs_of(0xcccc));
	v = level(v, _mm512_shuffle_f32x4(v, v, 0xb1), signs_of(0xf0f0));
	return eight ? v : level(v, _mm512_shuffle_f32x4(v, v, 0x4e), signs_of(0xff00));
}

GP_INLINE __m512 signed_by(__m512 v, const uint32_t *sign)
{
	return _mm512_xor_ps(v, _mm512_castsi512_ps(_mm512_loadu_si512(sign)));
}

/* The tensor comes from far away before it is transformed, and is at hand on the way back: asks for the line that comes a
 * page later, which need not exist, as processors do not follow a stream over the end of a page by themselves. */
GP_INLINE __m512 taken(const struct turn *t, const float *x, size_t sign)
{
	if (t->before)
		_mm_prefetch((const char *)((uintptr_t)x + 4096), _MM_HINT_T0);
	const __m512 v = _mm512_loadu_ps(x);
	return t->before ? signed_by(v, t->sign + sign) : v;
}

/* Writes v, which has all its levels, times the factor and, going back, with its signs. */
GP_INLINE void put(struct turn *t, __m512 v, size_t sign, float *y)
{
	v = _mm512_mul_ps(v, t->factor);
	const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
	t->top = _mm512_max_epi32(t->top, magnitude);
	_mm512_storeu_ps(y, t->after ? signed_by(v, t->sign + sign) : v);
}

/* --- between registers ------------------------------------------------------------------------------------------ */

GP_INLINE void level_between(__m512 *v, int h)
{
#pragma GCC unroll 16
	for (int i = 0; i < h; i++) {
		const __m512 a = v[i], b = v[i + h];
		v[i] = _mm512_add_ps(a, b);
		v[i + h] = _mm512_sub_ps(a, b);
	}
}

GP_INLINE void between(__m512 *v, int count)
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
GP_INLINE void group(struct turn *t, int count, bool eight, bool whole, size_t sign, const float *x, float *y)
{
	__m512 v[GROUP];
#pragma GCC unroll 16
	for (int i = 0; i < count; i++)
		v[i] = inside(taken(t, x + i * LANES, sign + (size_t)(i * LANES)), eight);
	between(v, count);
#pragma GCC unroll 16
	for (int i = 0; i < count; i++) {
		if (whole)
			put(t, v[i], sign + (size_t)(i * LANES), y + i * LANES);
		else
			_mm512_storeu_ps(y + i * LANES, v[i]);
	}
}

/* The levels above a group's, over `count` groups. */
GP_INLINE void across(struct turn *t, int count, float *y)
{
	for (size_t at = 0; at < GROUP * LANES; at += LANES) {
		__m512 v[GROUP];
#pragma GCC unroll 16
		for (int i = 0; i < count; i++)
			v[i] = _mm512_loadu_ps(y + at + i * GROUP * LANES);
		between(v, count);
#pragma GCC unroll 16
		for (int i = 0; i < count; i++)
			put(t, v[i], at + (size_t)(i * GROUP * LANES), y + at + i * GROUP * LANES);
	}
}

GP_INLINE void small_blocks(struct turn *t, int count, bool eight, const float *x, size_t n, float *y)
{
	const size_t size = (size_t)count * LANES;
	for (size_t at = 0; at < n; at += size)
		group(t, count, eight, true, 0, x + at, y + at);
}

GP_INLINE void large_blocks(struct turn *t, int count, const float *x, size_t n, float *y)
{
	const size_t size = (size_t)count * GROUP * LANES;
	for (size_t at = 0; at < n; at += size) {
		for (size_t i = 0; i < size; i += GROUP * LANES)
			group(t, GROUP, false, false, i, x + at + i, y + at + i);
		across(t, count, y + at);
	}
}

GP_INLINE uint32_t turn(const uint32_t *sign, int levels, bool back, const float *x, size_t n, float *y)
{
	uint32_t twice[LANES];
	struct turn t = {.sign = sign,
			 .before = !back,
			 .after = back,
			 .factor = _mm512_set1_ps(gp_hadamard_factor(levels)),
			 .top = _mm512_setzero_si512()};
	switch (levels) {
	case 3:
		for (int i = 0; i < LANES; i++)
			twice[i] = sign[i % 8];
		t.sign = twice;
		small_blocks(&t, 1, true, x, n, y);
		break;
	case 4:
		small_blocks(&t, 1, false, x, n, y);
		break;
	case 5:
		small_blocks(&t, 2, false, x, n, y);
		break;
	case 6:
		small_blocks(&t, 4, false, x, n, y);
		break;
	case 7:
		small_blocks(&t, 8, false, x, n, y);
		break;
	case GROUP_LEVELS:
		small_blocks(&t, GROUP, false, x, n, y);
		break;
	case GROUP_LEVELS + 1:
		large_blocks(&t, 2, x, n, y);
		break;
	default:
		large_blocks(&t, 4, x, n, y);
		break;
	}
	return (uint32_t)_mm512_reduce_max_epi32(t.top);
}

/* What does not fill a register is the reference's. */
static size_t here(int levels, size_t n)
{
	return levels < 3 ? 0 : n / LANES * LANES;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t forward(const uint32_t *sign, int levels, const float *x, size_t n, float *y)
{
	const size_t m = here(levels, n);
	const uint32_t top = m ? turn(sign, levels, false, x, m, y) : 0;
	return m == n ? top : larger(top, REST.forward(sign, levels, x + m, n - m, y + m));
}

static uint32_t backward(const uint32_t *sign, int levels, const float *x, size_t n, float *y)
{
	const size_t m = here(levels, n);
	const uint32_t top = m ? turn(sign, levels, true, x, m, y) : 0;
	return m == n ? top : larger(top, REST.backward(sign, levels, x + m, n - m, y + m));
}

const struct gp_hadamard_loops gp_hadamard_loops_avx512 = {.forward = forward, .backward = backward};

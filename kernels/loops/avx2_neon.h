/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2's intrinsics on ARM64: SIMDe's, but for those that it leaves to the compiler element by element, and what it does not
 * have (BMI2, POPCNT). Only for avx2.h, which says what it is for.
 *
 * Threads: any; pure functions of what they are given. Test: tests/unit/test_codec_loops.c and those of the other loops
 */
#ifndef GP_LOOPS_AVX2_NEON_H
#define GP_LOOPS_AVX2_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpointer-arith"
#ifndef __clang__ /* gcc at -O1 with sanitizers, of what is set in a loop */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <simde/x86/avx2.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#pragma GCC diagnostic pop

#define GP_NEON static inline __attribute__((always_inline))

/* A register of AVX2 in two of NEON. */
struct gp_neon_floats {
	float32x4_t v[2];
};
struct gp_neon_words {
	uint32x4_t v[2];
};

GP_NEON struct gp_neon_floats gp_neon_floats(simde__m256 x)
{
	struct gp_neon_floats to;
	memcpy(&to, &x, sizeof to);
	return to;
}

GP_NEON simde__m256 gp_neon_ps(float32x4_t low, float32x4_t high)
{
	const struct gp_neon_floats from = {{low, high}};
	simde__m256 to;
	memcpy(&to, &from, sizeof to);
	return to;
}

GP_NEON struct gp_neon_words gp_neon_words(simde__m256i x)
{
	struct gp_neon_words to;
	memcpy(&to, &x, sizeof to);
	return to;
}

GP_NEON simde__m256i gp_neon_si256(uint32x4_t low, uint32x4_t high)
{
	const struct gp_neon_words from = {{low, high}};
	simde__m256i to;
	memcpy(&to, &from, sizeof to);
	return to;
}

/* --- fused multiply-adds: SIMDe rounds the products of doubles ---------------------------------------------------- */

GP_NEON simde__m256 gp_neon_fmadd_ps(simde__m256 a, simde__m256 b, simde__m256 c)
{
	const struct gp_neon_floats x = gp_neon_floats(a), y = gp_neon_floats(b), z = gp_neon_floats(c);
	return gp_neon_ps(vfmaq_f32(z.v[0], x.v[0], y.v[0]), vfmaq_f32(z.v[1], x.v[1], y.v[1]));
}

GP_NEON simde__m256d gp_neon_fmadd_pd(simde__m256d a, simde__m256d b, simde__m256d c)
{
	float64x2_t x[2], y[2], z[2];
	memcpy(x, &a, sizeof x);
	memcpy(y, &b, sizeof y);
	memcpy(z, &c, sizeof z);
	z[0] = vfmaq_f64(z[0], x[0], y[0]);
	z[1] = vfmaq_f64(z[1], x[1], y[1]);
	memcpy(&c, z, sizeof z);
	return c;
}

#undef _mm256_fmadd_ps
#define _mm256_fmadd_ps(a, b, c) gp_neon_fmadd_ps(a, b, c)
#undef _mm256_fmadd_pd
#define _mm256_fmadd_pd(a, b, c) gp_neon_fmadd_pd(a, b, c)

/* --- floats to integers: what does not fit, and NaN, is the least one on x86; NEON takes the nearest, and 0 --------- */

GP_NEON uint32x4_t gp_neon_fit(float32x4_t x, int32x4_t n)
{
	const uint32x4_t fits = vcltq_f32(x, vdupq_n_f32(0x1p31f));
	return vbslq_u32(fits, vreinterpretq_u32_s32(n), vdupq_n_u32(0x80000000u));
}

GP_NEON simde__m256i gp_neon_cvtps_epi32(simde__m256 a)
{
	const struct gp_neon_floats x = gp_neon_floats(a);
	return gp_neon_si256(gp_neon_fit(x.v[0], vcvtnq_s32_f32(x.v[0])), gp_neon_fit(x.v[1], vcvtnq_s32_f32(x.v[1])));
}

GP_NEON simde__m256i gp_neon_cvttps_epi32(simde__m256 a)
{
	const struct gp_neon_floats x = gp_neon_floats(a);
	return gp_neon_si256(gp_neon_fit(x.v[0], vcvtq_s32_f32(x.v[0])), gp_neon_fit(x.v[1], vcvtq_s32_f32(x.v[1])));
}

#undef _mm256_cvtps_epi32
#define _mm256_cvtps_epi32(a) gp_neon_cvtps_epi32(a)
#undef _mm256_cvttps_epi32
#define _mm256_cvttps_epi32(a) gp_neon_cvttps_epi32(a)

/* --- half precision ----------------------------------------------------------------------------------------------- */

GP_NEON float32x4_t gp_neon_half_values(uint16x4_t halves)
{
	return vcvt_f32_f16(vreinterpret_f16_u16(halves));
}

/* The least half that is at least x: the nearest one, or the next one above it; -0 for what is too small and negative. */
GP_NEON uint16x4_t gp_neon_half_above(float32x4_t x)
{
	const uint16x4_t nearest = vreinterpret_u16_f16(vcvt_f16_f32(x));
	const uint16x4_t next =
		vorr_u16(vcltz_s16(vreinterpret_s16_u16(nearest)), vdup_n_u16(1)); /* -1 where negative */
	const uint16x4_t below = vmovn_u32(vcltq_f32(gp_neon_half_values(nearest), x));
	return vadd_u16(nearest, vand_u16(below, next));
}

/* Which is the mode that programs have. */
GP_NEON uint16x4_t gp_neon_half_nearest(float32x4_t x)
{
	return vreinterpret_u16_f16(vcvt_f16_f32(x));
}

#ifndef _MM_FROUND_NO_EXC /* not one of SIMDe's names */
#define _MM_FROUND_NO_EXC 0x08
#endif

/* rounding: _MM_FROUND_TO_NEAREST_INT or _MM_FROUND_TO_POS_INF, and what says nothing about the result. */
GP_NEON simde__m128i gp_neon_cvtps_ph(simde__m256 a, int rounding)
{
	const struct gp_neon_floats x = gp_neon_floats(a);
	const bool up = (rounding & 3) == _MM_FROUND_TO_POS_INF;
	const uint16x4_t low = up ? gp_neon_half_above(x.v[0]) : gp_neon_half_nearest(x.v[0]);
	const uint16x4_t high = up ? gp_neon_half_above(x.v[1]) : gp_neon_half_nearest(x.v[1]);
	const uint16x8_t halves = vcombine_u16(low, high);
	simde__m128i to;
	memcpy(&to, &halves, sizeof to);
	return to;
}

GP_NEON simde__m256 gp_neon_cvtph_ps(simde__m128i a)
{
	float16x8_t halves;
	memcpy(&halves, &a, sizeof halves);
	return gp_neon_ps(vcvt_f32_f16(vget_low_f16(halves)), vcvt_f32_f16(vget_high_f16(halves)));
}

#undef _mm256_cvtps_ph
#define _mm256_cvtps_ph(a, rounding) gp_neon_cvtps_ph(a, rounding)
#undef _mm256_cvtph_ps
#define _mm256_cvtph_ps(a) gp_neon_cvtph_ps(a)

/* --- sign bits of eight lanes ----------------------------------------------------------------------------------- */

GP_NEON int gp_neon_movemask_ps(simde__m256 a)
{
	struct gp_neon_words x;
	const int32_t at[4] = {0, 1, 2, 3}, behind[4] = {4, 5, 6, 7};
	memcpy(&x, &a, sizeof x);
	const uint32x4_t low = vshlq_u32(vshrq_n_u32(x.v[0], 31), vld1q_s32(at));
	const uint32x4_t high = vshlq_u32(vshrq_n_u32(x.v[1], 31), vld1q_s32(behind));
	return (int)vaddvq_u32(vorrq_u32(low, high));
}

#undef _mm256_movemask_ps
#define _mm256_movemask_ps(a) gp_neon_movemask_ps(a)

/* --- lanes in any order ----------------------------------------------------------------------------------------- */

GP_NEON uint8x16_t gp_neon_look_up(uint8x16x2_t table, uint32x4_t index)
{
	const uint32x4_t first = vmulq_n_u32(vandq_u32(index, vdupq_n_u32(7)), 0x04040404u);
	return vqtbl2q_u8(table, vreinterpretq_u8_u32(vaddq_u32(first, vdupq_n_u32(0x03020100u))));
}

GP_NEON simde__m256i gp_neon_permute(simde__m256i a, simde__m256i order)
{
	const struct gp_neon_words x = gp_neon_words(a), index = gp_neon_words(order);
	const uint8x16x2_t table = {{vreinterpretq_u8_u32(x.v[0]), vreinterpretq_u8_u32(x.v[1])}};
	return gp_neon_si256(vreinterpretq_u32_u8(gp_neon_look_up(table, index.v[0])),
			     vreinterpretq_u32_u8(gp_neon_look_up(table, index.v[1])));
}

#undef _mm256_permutevar8x32_epi32
#define _mm256_permutevar8x32_epi32(a, order) gp_neon_permute(a, order)
#undef _mm256_permutevar8x32_ps
#define _mm256_permutevar8x32_ps(a, order) _mm256_castsi256_ps(gp_neon_permute(_mm256_castps_si256(a), order))

/* --- shifts by a count that is constant only once it is inlined: gcc sees that in SIMDe's, clang does not ------------ */

#ifdef __clang__

/* Left by n bits, right where it is negative. */
GP_NEON simde__m256i gp_neon_shift_32(simde__m256i a, int n)
{
	const struct gp_neon_words x = gp_neon_words(a);
	return gp_neon_si256(vshlq_u32(x.v[0], vdupq_n_s32(n)), vshlq_u32(x.v[1], vdupq_n_s32(n)));
}

GP_NEON uint32x4_t gp_neon_shift_halves(uint32x4_t x, int n)
{
	return vreinterpretq_u32_u16(vshlq_u16(vreinterpretq_u16_u32(x), vdupq_n_s16((int16_t)n)));
}

GP_NEON simde__m256i gp_neon_shift_16(simde__m256i a, int n)
{
	const struct gp_neon_words x = gp_neon_words(a);
	return gp_neon_si256(gp_neon_shift_halves(x.v[0], n), gp_neon_shift_halves(x.v[1], n));
}

GP_NEON uint32x4_t gp_neon_shift_pairs(uint32x4_t x, int n)
{
	return vreinterpretq_u32_u64(vshlq_u64(vreinterpretq_u64_u32(x), vdupq_n_s64(n)));
}

GP_NEON simde__m256i gp_neon_shift_64(simde__m256i a, int n)
{
	const struct gp_neon_words x = gp_neon_words(a);
	return gp_neon_si256(gp_neon_shift_pairs(x.v[0], n), gp_neon_shift_pairs(x.v[1], n));
}

#undef _mm256_slli_epi32
#define _mm256_slli_epi32(a, bits) gp_neon_shift_32(a, bits)
#undef _mm256_srli_epi32
#define _mm256_srli_epi32(a, bits) gp_neon_shift_32(a, -(bits))
#undef _mm256_srli_epi16
#define _mm256_srli_epi16(a, bits) gp_neon_shift_16(a, -(bits))
#undef _mm256_srli_epi64
#define _mm256_srli_epi64(a, bits) gp_neon_shift_64(a, -(bits))

#endif

/* --- BMI2 and POPCNT -------------------------------------------------------------------------------------------- */

/* Fast for a bit per byte. */
GP_NEON uint64_t gp_neon_pdep(uint64_t x, uint64_t mask)
{
	uint64_t to = 0;
	if (mask == 0x0101010101010101u) { /* bit i to byte i */
		const uint64_t spread = (x & 0xff) * 0x0101010101010101u & 0x8040201008040201u;
		return (spread + 0x7f7f7f7f7f7f7f7fu) >> 7 & mask;
	}
	for (; mask; mask &= mask - 1, x >>= 1)
		if (x & 1)
			to |= mask & -mask;
	return to;
}

/* Bytes of x where the mask has a byte of ones, moved to the front. */
GP_NEON uint64_t gp_neon_pext_bytes(uint64_t x, uint64_t mask)
{
	uint64_t to = 0;
	for (int i = 0, at = 0; i < 64; i += 8) {
		const uint64_t byte = mask >> i & 0xff;
		to |= (x >> i & byte) << at;
		at += (int)(byte & 8);
	}
	return to;
}

#define _pdep_u64(x, mask) gp_neon_pdep(x, mask)
#define _pext_u64(x, mask) gp_neon_pext_bytes(x, mask)
#undef _mm_popcnt_u32
#define _mm_popcnt_u32(x) __builtin_popcount(x)
#undef _mm_popcnt_u64
#define _mm_popcnt_u64(x) __builtin_popcountll(x)

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * lanes.h in four registers of ARM64's NEON; only for that header.
 * lanes_avx512.h says what the functions give.
 *
 * Threads: any; pure functions. Test: tests/unit/test_lanes.c
 */
#ifndef GP_CPU_LANES_NEON_H
#define GP_CPU_LANES_NEON_H

#include <arm_neon.h>

#define LANES_FOURS (LANES / 4)

struct lanes {
	float32x4_t v[LANES_FOURS];
};

/* 24 of the 32 registers hold the tile, four a row of the right side. */
#define LANES_TILE_VECTORS    1
#define LANES_TILE_ROWS(wide) 6

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

/* Where the mask is all ones y, where it is zeros 0. */
GP_INLINE float32x4_t lanes_where(uint32x4_t mask, float32x4_t y)
{
	return vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(y)));
}

GP_INLINE float32x4_t lanes_power_of(float32x4_t x)
{
	const uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(x), 23);
	return vreinterpretq_f32_u32(vaddq_u32(n, vdupq_n_u32(127u << 23)));
}

/* Not vmaxq_f32, which gives NaN where one of both is: AVX takes the second. */
LANES_EACH(load, (const float *at), vld1q_f32(at + 4 * i))
LANES_EACH(all, (float x), vdupq_n_f32(x))
LANES_EACH(add, (struct lanes a, struct lanes b), vaddq_f32(a.v[i], b.v[i]))
LANES_EACH(subtract, (struct lanes a, struct lanes b), vsubq_f32(a.v[i], b.v[i]))
LANES_EACH(multiply, (struct lanes a, struct lanes b), vmulq_f32(a.v[i], b.v[i]))
LANES_EACH(fma, (struct lanes a, struct lanes b, struct lanes c), vfmaq_f32(c.v[i], a.v[i], b.v[i]))
LANES_EACH(larger, (struct lanes a, struct lanes b), vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]))
LANES_EACH(smaller, (struct lanes a, struct lanes b), vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]))
LANES_EACH(unless_below, (struct lanes x, float limit, struct lanes y),
	   lanes_where(vmvnq_u32(vcltq_f32(x.v[i], vdupq_n_f32(limit))), y.v[i]))
LANES_EACH(unless_word_below, (const uint32_t *word, uint32_t threshold, struct lanes y),
	   lanes_where(vcgeq_u32(vld1q_u32(word + 4 * i), vdupq_n_u32(threshold)), y.v[i]))
LANES_EACH(power, (struct lanes x), lanes_power_of(x.v[i]))
#undef LANES_EACH

GP_INLINE void lanes_store(float *at, struct lanes x)
{
#pragma GCC unroll 4
	for (int i = 0; i < LANES_FOURS; i++)
		vst1q_f32(at + 4 * i, x.v[i]);
}

GP_INLINE float lanes_sum(struct lanes x)
{
	const float32x4_t four = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
	const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
	return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

GP_INLINE float lanes_largest(struct lanes x)
{
	const float32x4_t a = vbslq_f32(vcgtq_f32(x.v[0], x.v[2]), x.v[0], x.v[2]);
	const float32x4_t b = vbslq_f32(vcgtq_f32(x.v[1], x.v[3]), x.v[1], x.v[3]);
	const float32x4_t four = vbslq_f32(vcgtq_f32(a, b), a, b);
	float largest = four[0];
	for (int i = 1; i < 4; i++)
		largest = four[i] > largest ? four[i] : largest;
	return largest;
}

/* Four rows of four floats. */
GP_INLINE void lanes_turn_four(float32x4_t row[4])
{
	const float32x4x2_t a = vtrnq_f32(row[0], row[1]), b = vtrnq_f32(row[2], row[3]);
	for (int i = 0; i < 2; i++) {
		row[i] = vcombine_f32(vget_low_f32(a.val[i]), vget_low_f32(b.val[i]));
		row[i + 2] = vcombine_f32(vget_high_f32(a.val[i]), vget_high_f32(b.val[i]));
	}
}

GP_INLINE void lanes_turn(struct lanes row[LANES])
{
	struct lanes turned[LANES];
#pragma GCC unroll 4
	for (int i = 0; i < LANES_FOURS; i++)
#pragma GCC unroll 4
		for (int j = 0; j < LANES_FOURS; j++) {
			float32x4_t block[4];
			for (int k = 0; k < 4; k++)
				block[k] = row[4 * i + k].v[j];
			lanes_turn_four(block);
			for (int k = 0; k < 4; k++)
				turned[4 * j + k].v[i] = block[k];
		}
	for (int i = 0; i < LANES; i++)
		row[i] = turned[i];
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Scales and zero points of `block` on the device: what kernels/loops/block_loops.c
 * does for one block or channel, operation by operation, so that scales and
 * codes are the host's bit for bit. Formulas: common/CODECS.md, "block".
 *
 * Only for k_codec_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_codec_block.c
 */
#ifndef GPK_SCALES_H
#define GPK_SCALES_H

#include <math.h>

#include "kernels/cuda/codec/gpk_codec.h"
#include "kernels/cuda/codec/k_codec_block.h"

/* Added to a number below 2^22 in magnitude it leaves the nearest integer, ties to even, in the lowest bits. */
#define GPK_ROUNDER      0x1.8p23f
#define GPK_ROUNDER_BITS 0x4b400000

/* Exponents of the unit, as common/codec/stages/block.c has them. */
#define GPK_UNIT_LOW   27u
#define GPK_UNIT_HIGH  250u
#define GPK_UNIT_BELOW 4u

GPK_DEVICE float gpk_rint(float v)
{
	return v + GPK_ROUNDER - GPK_ROUNDER;
}

/* NaN becomes `low`. */
GPK_DEVICE float gpk_clamped(float v, float low, float high)
{
	return fminf(fmaxf(v, low), high);
}

/* --- units and scales -------------------------------------------------------------------------------------------- */

GPK_DEVICE float gpk_top_level(const struct gp_block_form &form)
{
	return (float)(form.asym ? (1 << form.bits) - 1 : (1 << (form.bits - 1)) - 1);
}

/* The unit, which is a power of two, and the one that multiplies as it divides. */
GPK_DEVICE void gpk_use_unit(struct gp_block_form *form, float unit)
{
	form->unit = unit;
	form->by_unit = __uint_as_float((254u << 23) - __float_as_uint(unit));
}

/* Under which a scale of this reach becomes a half between 16 and 32. */
GPK_DEVICE float gpk_unit_for(const struct gp_block_form &form, float reach)
{
	const uint32_t exponent = __float_as_uint(reach / gpk_top_level(form)) >> 23;
	const uint32_t unit = exponent < GPK_UNIT_LOW + GPK_UNIT_BELOW    ? GPK_UNIT_LOW
			      : exponent > GPK_UNIT_HIGH + GPK_UNIT_BELOW ? GPK_UNIT_HIGH
									  : exponent - GPK_UNIT_BELOW;
	return __uint_as_float(unit << 23);
}

/* The least half that is at least t >= 0; the largest for what is more. */
GPK_DEVICE uint32_t gpk_half_above(float t)
{
	if (!(t <= GP_HALF_MOST))
		return 0x7bff;
	if (t >= 0x1p-14f)
		return (__float_as_uint(t) + 0x1fffu - (112u << 23)) >> 13;
	const float scaled = t * 0x1p24f;
	const uint32_t whole = (uint32_t)scaled;
	return whole + ((float)whole < scaled ? 1 : 0);
}

GPK_DEVICE float gpk_half_value(uint32_t h)
{
	return h < 0x400 ? (float)h * 0x1p-24f : __uint_as_float((h + (112u << 10)) << 13);
}

/* The exponent of the least power of two that is at least t, from 1 to 254. */
GPK_DEVICE uint32_t gpk_power_above(float t)
{
	const uint32_t exponent = (__float_as_uint(t) + 0x7fffffu) >> 23;
	return exponent < 1 ? 1 : exponent > 254 ? 254 : exponent;
}

GPK_DEVICE uint32_t gpk_scale_code(const struct gp_block_form &form, float reach)
{
	const float t = reach / gpk_top_level(form);
	return form.e8m0 ? gpk_power_above(t) : gpk_half_above(t * form.by_unit);
}

GPK_DEVICE float gpk_scale_value(const struct gp_block_form &form, uint32_t code)
{
	return form.e8m0 ? __uint_as_float(code << 23) : gpk_half_value(code) * form.unit;
}

/* Ratio `k` of those that clip=mse tries. */
GPK_DEVICE float gpk_clip_ratio(int k)
{
	return 1 - (float)k * GP_BLOCK_RATIO_STEP;
}

/* --- steps ------------------------------------------------------------------------------------------------------- */

GPK_DEVICE struct gp_block_step gpk_step_with(const struct gp_block_form &form, float scale, float zero)
{
	const float top = gpk_top_level(form), inverse = scale > 0 ? 1 / scale : 0;
	if (!form.asym)
		return {scale, inverse, -top, top, (float)(1 << (form.bits - 1))};
	return {scale, inverse, -zero, top - zero, zero};
}

/* The zero point of a clipped range is that of the range that its scale covers. */
GPK_DEVICE struct gp_block_step gpk_step_of(const struct gp_block_form &form, float scale, float reach, float least)
{
	if (!form.asym)
		return gpk_step_with(form, scale, 0);
	const float top = gpk_top_level(form), covered = scale * top, inverse = scale > 0 ? 1 / scale : 0;
	const float low = covered < reach ? least * (covered / reach) : least;
	return gpk_step_with(form, scale, gpk_rint(gpk_clamped(-low * inverse, 0, top)));
}

/* What is left of x when it has been coded; added up in fp64, where its square is exact. */
GPK_DEVICE double gpk_add_error(double sum, float x, const struct gp_block_step &step)
{
	const float level = gpk_rint(gpk_clamped(x * step.inverse, step.low, step.high));
	const double d = (double)(x - level * step.scale);
	return fma(d, d, sum);
}

GPK_DEVICE unsigned gpk_nearest_code(float x, const struct gp_block_step &step)
{
	const float level = gpk_clamped(x * step.inverse, step.low, step.high);
	return (unsigned)(__float_as_int(level + GPK_ROUNDER) - GPK_ROUNDER_BITS + (int)step.zero);
}

/* `draw`: (h + 1/2) / 2^16. */
GPK_DEVICE unsigned gpk_drawn_code(float x, const struct gp_block_step &step, float draw)
{
	const float level = gpk_clamped(x * step.inverse, step.low, step.high);
	return (unsigned)(int)fminf(level + step.zero + draw, step.high + step.zero + 0.5f);
}

/* Draws of the eight elements from `at` on, or zeros where none are wanted. */
template <bool DRAWN> GPK_DEVICE void gpk_draw8(uint64_t seed, uint64_t stream, int64_t at, uint32_t draws[4])
{
	if (DRAWN)
		gpk_rng_block(seed, stream, (uint64_t)at / 8, draws);
}

template <bool DRAWN> GPK_DEVICE unsigned gpk_code_of(float x, const struct gp_block_step &step, uint32_t draws, int i)
{
	return DRAWN ? gpk_drawn_code(x, step, gpk_draw_of(draws, i % 2)) : gpk_nearest_code(x, step);
}

/* --- in a payload ------------------------------------------------------------------------------------------------ */

/* Scales lie at any address. */
GPK_DEVICE void gpk_put_scale(const struct gp_block_form &form, const struct gpk_block_body &body, int64_t i,
			      uint32_t code, float zero)
{
	if (form.e8m0) {
		body.scales[i] = (uint8_t)code;
	} else {
		body.scales[2 * i] = (uint8_t)code;
		body.scales[2 * i + 1] = (uint8_t)(code >> 8);
	}
	if (form.asym)
		body.zeros[i] = (uint8_t)zero;
}

GPK_DEVICE uint32_t gpk_scale_at(const struct gp_block_form &form, const struct gpk_block_body &body, int64_t i)
{
	return form.e8m0 ? body.scales[i] : body.scales[2 * i] | (uint32_t)body.scales[2 * i + 1] << 8;
}

GPK_DEVICE int gpk_zero_at(const struct gp_block_form &form, const struct gpk_block_body &body, int64_t i)
{
	return form.asym ? body.zeros[i] : 1 << (form.bits - 1);
}

/* Whether an encoder can have written it. */
GPK_DEVICE bool gpk_scale_fine(const struct gp_block_form &form, uint32_t code, int zero)
{
	const bool number = form.e8m0 ? code >= 1 && code <= 254 : code < 0x7c00;
	return number && gpk_finite(gpk_top_level(form) * gpk_scale_value(form, code)) &&
	       (!form.asym || zero <= (int)gpk_top_level(form));
}

#endif

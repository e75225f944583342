/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks with a scale of their own, compiled once for each instruction set: the
 * loops are plain C that compilers make vectors of, so all of them give the same
 * bits. See block_loops.h. Test: tests/unit/test_codec_block.c
 */
#include "kernels/loops/block_loops.h"

#include <string.h>

#include "kernels/loops/mx_format.h"
#include "kernels/loops/simd.h"
#include "kernels/loops/versions.h"

/* Added to a number below 2^22 in magnitude it leaves the nearest integer, ties to even, in the lowest bits. */
#define ROUNDER      0x1.8p23f
#define ROUNDER_BITS 0x4b400000
#define MAGNITUDE    0x7fffffff

GP_INLINE int32_t bits_of(float v)
{
	int32_t u;
	memcpy(&u, &v, sizeof u);
	return u;
}

GP_INLINE float float_of(int32_t u)
{
	float v;
	memcpy(&v, &u, sizeof v);
	return v;
}

GP_INLINE float smaller(float a, float b)
{
	return a < b ? a : b;
}

GP_INLINE float larger(float a, float b)
{
	return a > b ? a : b;
}

/* NaN becomes `low`. */
GP_INLINE float clamped(float v, float low, float high)
{
	return smaller(larger(v, low), high);
}

GP_INLINE size_t block_at(size_t at, size_t n, size_t size)
{
	return n - at < size ? n - at : size;
}

/* --- scales of `block` ------------------------------------------------------------------------------------------ */

GP_INLINE float top_of(const struct gp_block_form *form)
{
	return (float)(form->asym ? (1 << form->bits) - 1 : (1 << (form->bits - 1)) - 1);
}

/* The least half that is at least t >= 0; the largest for what is more. */
GP_INLINE unsigned half_above(float t)
{
	if (!(t <= GP_HALF_MOST))
		return 0x7bff;
	if (t >= 0x1p-14f)
		return ((unsigned)bits_of(t) + 0x1fff - (112u << 23)) >> 13;
	const float scaled = t * 0x1p24f;
	const unsigned whole = (unsigned)scaled;
	return whole + ((float)whole < scaled);
}

GP_INLINE float half_value(unsigned h)
{
	return h < 0x400 ? (float)h * 0x1p-24f : float_of((int32_t)((h + (112u << 10)) << 13));
}

/* The exponent of the least power of two that is at least t, from 1 to 254. */
GP_INLINE unsigned power_above(float t)
{
	const unsigned exponent = ((unsigned)bits_of(t) + 0x7fffff) >> 23;
	return exponent < 1 ? 1 : exponent > 254 ? 254 : exponent;
}

GP_INLINE unsigned scale_code(const struct gp_block_form *form, float reach)
{
	const float t = reach / top_of(form);
	return form->e8m0 ? power_above(t) : half_above(t * form->by_unit);
}

GP_INLINE float scale_value(const struct gp_block_form *form, unsigned code)
{
	return form->e8m0 ? float_of((int32_t)(code << 23)) : half_value(code) * form->unit;
}

GP_INLINE struct gp_block_step step_of(const struct gp_block_form *form, float scale, float least)
{
	const float top = top_of(form), inverse = scale > 0 ? 1 / scale : 0;
	if (!form->asym)
		return (struct gp_block_step){scale, inverse, -top, top, (float)(1 << (form->bits - 1))};
	const float zero = clamped(-least * inverse, 0, top) + ROUNDER - ROUNDER;
	return (struct gp_block_step){scale, inverse, -zero, top - zero, zero};
}

float gp_block_top(const struct gp_block_form *form)
{
	return top_of(form);
}

unsigned gp_block_scale_code(const struct gp_block_form *form, float reach)
{
	return scale_code(form, reach);
}

float gp_block_scale_value(const struct gp_block_form *form, unsigned code)
{
	return scale_value(form, code);
}

/* The zero point of a clipped range is that of the range that its scale covers. */
GP_INLINE float clipped_least(const struct gp_block_form *form, float scale, float reach, float least)
{
	const float covered = scale * top_of(form);
	return covered < reach ? least * (covered / reach) : least;
}

struct gp_block_step gp_block_step_of(const struct gp_block_form *form, float scale, float reach, float least)
{
	return step_of(form, scale, clipped_least(form, scale, reach, least));
}

/* --- blocks in a row -------------------------------------------------------------------------------------------- */

GP_INLINE uint32_t magnitude_of(const float *restrict x, size_t n)
{
	int32_t top = 0;
#pragma omp simd reduction(max : top)
	for (size_t i = 0; i < n; i++) {
		const int32_t u = bits_of(x[i]) & MAGNITUDE;
		top = u > top ? u : top;
	}
	return (uint32_t)top;
}

/* Least and most, zero being among them. */
GP_INLINE void range_of(const float *restrict x, size_t n, float *least, float *most)
{
	float low = 0, high = 0;
#pragma omp simd reduction(min : low) reduction(max : high)
	for (size_t i = 0; i < n; i++) {
		low = x[i] < low ? x[i] : low;
		high = x[i] > high ? x[i] : high;
	}
	*least = low;
	*most = high;
}

/* Its reach: the largest magnitude, or the range. Returns its bits, or the largest magnitude's where that is more. */
GP_INLINE uint32_t reach_of(const struct gp_block_form *form, const float *x, size_t n, float *reach, float *least)
{
	const uint32_t top = magnitude_of(x, n);
	float most = 0;
	*least = 0;
	if (!form->asym) {
		*reach = float_of((int32_t)top);
		return top;
	}
	range_of(x, n, least, &most);
	*reach = most - *least;
	const uint32_t bits = (uint32_t)(bits_of(*reach) & MAGNITUDE);
	return bits > top ? bits : top;
}

GP_INLINE float error_of(float x, const struct gp_block_step *step)
{
	const float level = clamped(x * step->inverse, step->low, step->high) + ROUNDER - ROUNDER;
	return x - level * step->scale;
}

/* Sum of squared errors: lane i mod 16, in fp64, where the squares are exact; then the lanes in ascending order. */
GP_INLINE double squared_error(const float *restrict x, size_t n, const struct gp_block_step *step)
{
	const struct gp_block_step s = *step;
	double lane[GP_BLOCK_LANES] = {0}, sum = 0;
	size_t i = 0;
	for (; i + GP_BLOCK_LANES <= n; i += GP_BLOCK_LANES) {
#pragma omp simd
		for (size_t k = 0; k < GP_BLOCK_LANES; k++) {
			const double d = (double)error_of(x[i + k], &s);
			lane[k] += d * d;
		}
	}
	for (size_t k = 0; i + k < n; k++) {
		const double d = (double)error_of(x[i + k], &s);
		lane[k] += d * d;
	}
	for (size_t k = 0; k < GP_BLOCK_LANES; k++)
		sum += lane[k];
	return sum;
}

/* The first of the ratios that has the least error. */
GP_INLINE unsigned least_error(const struct gp_block_form *form, const float *x, size_t n, float reach, float least)
{
	unsigned best = scale_code(form, reach), last = 0;
	double lowest = 0;
	for (int k = 0; k < GP_BLOCK_RATIOS; k++) {
		const unsigned code = scale_code(form, reach * (1 - (float)k * GP_BLOCK_RATIO_STEP));
		if (k && code == last)
			continue;
		last = code;
		const float scale = scale_value(form, code);
		const struct gp_block_step step = step_of(form, scale, clipped_least(form, scale, reach, least));
		const double error = squared_error(x, n, &step);
		if (k == 0 || error < lowest) {
			lowest = error;
			best = code;
		}
	}
	return best;
}

GP_INLINE void code_nearest(const struct gp_block_step *step, const float *restrict x, size_t n,
			    uint16_t *restrict codes)
{
	const float inverse = step->inverse, low = step->low, high = step->high;
	const int32_t zero = (int32_t)step->zero - ROUNDER_BITS;
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		codes[i] = (uint16_t)(bits_of(clamped(x[i] * inverse, low, high) + ROUNDER) + zero);
}

/* The next lower level or the one above it, as (h + 1/2) * 2^-16 says. */
GP_INLINE int32_t drawn(float level, float zero, float high, uint16_t h)
{
	const float draw = ((float)h + 0.5f) * 0x1p-16f;
	return (int32_t)smaller(level + zero + draw, high + zero + 0.5f);
}

GP_INLINE void code_drawn(const struct gp_block_step *step, const float *restrict x, size_t n,
			  const uint16_t *restrict draws, uint16_t *restrict codes)
{
	const struct gp_block_step s = *step;
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		codes[i] = (uint16_t)drawn(clamped(x[i] * s.inverse, s.low, s.high), s.zero, s.high, draws[i]);
}

GP_INLINE uint32_t encode_block(const struct gp_block_form *form, const float *x, size_t n, const uint16_t *draws,
				uint8_t *scale, uint8_t *zero, uint16_t *codes)
{
	float reach, least;
	const uint32_t top = reach_of(form, x, n, &reach, &least);
	const unsigned code = form->mse ? least_error(form, x, n, reach, least) : scale_code(form, reach);
	const float value = scale_value(form, code);
	const struct gp_block_step step = step_of(form, value, clipped_least(form, value, reach, least));
	scale[0] = (uint8_t)code;
	if (!form->e8m0)
		scale[1] = (uint8_t)(code >> 8);
	if (form->asym)
		*zero = (uint8_t)step.zero;
	if (form->stochastic)
		code_drawn(&step, x, n, draws, codes);
	else
		code_nearest(&step, x, n, codes);
	return top;
}

GP_INLINE uint32_t encode_body(const struct gp_block_form *form, const float *x, size_t n, const uint16_t *draws,
			       uint8_t *scales, uint8_t *zeros, uint16_t *codes)
{
	const size_t step = form->e8m0 ? 1 : 2;
	uint32_t top = 0;
	for (size_t at = 0; at < n; at += form->size, scales += step, zeros++) {
		const size_t here = block_at(at, n, form->size);
		const uint32_t reach = encode_block(form, x + at, here, draws + at, scales, zeros, codes + at);
		top = reach > top ? reach : top;
	}
	return top;
}

GP_INLINE uint32_t reach_body(const struct gp_block_form *form, const float *x, size_t n)
{
	uint32_t top = 0;
	float reach, least;
	for (size_t at = 0; at < n; at += form->size) {
		const uint32_t here = reach_of(form, x + at, block_at(at, n, form->size), &reach, &least);
		top = here > top ? here : top;
	}
	return top;
}

GP_INLINE void value_block(const uint16_t *restrict codes, size_t n, float scale, int32_t zero, float *restrict x)
{
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		x[i] = (float)((int32_t)codes[i] - zero) * scale;
}

GP_INLINE void decode_body(const struct gp_block_form *form, const uint8_t *scales, const uint8_t *zeros,
			   const uint16_t *codes, size_t n, float *x)
{
	const size_t step = form->e8m0 ? 1 : 2;
	for (size_t at = 0; at < n; at += form->size, scales += step, zeros++) {
		const unsigned code = form->e8m0 ? scales[0] : scales[0] | (unsigned)scales[1] << 8;
		const int32_t zero = form->asym ? *zeros : 1 << (form->bits - 1);
		value_block(codes + at, block_at(at, n, form->size), scale_value(form, code), zero, x + at);
	}
}

GP_INLINE bool codes_within_body(const uint16_t *codes, size_t n, uint16_t mask, uint16_t least, uint16_t most)
{
	uint16_t low = mask, high = 0;
#pragma omp simd reduction(min : low) reduction(max : high)
	for (size_t i = 0; i < n; i++) {
		const uint16_t code = codes[i] & mask;
		low = code < low ? code : low;
		high = code > high ? code : high;
	}
	return low >= least && high <= most;
}

/* --- a scale for each channel ----------------------------------------------------------------------------------- */

GP_INLINE int32_t widen_row(const float *restrict x, size_t n, float *restrict least, float *restrict most)
{
	int32_t top = 0;
#pragma omp simd reduction(max : top)
	for (size_t i = 0; i < n; i++) {
		const int32_t u = bits_of(x[i]) & MAGNITUDE;
		top = u > top ? u : top;
		least[i] = x[i] < least[i] ? x[i] : least[i];
		most[i] = x[i] > most[i] ? x[i] : most[i];
	}
	return top;
}

GP_INLINE uint32_t channel_range_body(const struct gp_block_channels *c, const float *x, uint64_t n)
{
	int32_t top = 0;
	for (uint64_t at = 0; at < n; at += c->count) {
		const size_t here = n - at < c->count ? (size_t)(n - at) : c->count;
		const int32_t row = widen_row(x + at, here, c->least, c->most);
		top = row > top ? row : top;
	}
	return (uint32_t)top;
}

GP_INLINE void add_errors(const struct gp_block_channels *c, const float *restrict x, size_t n)
{
	const float *restrict scale = c->scale, *restrict inverse = c->inverse, *restrict low = c->low,
			      *restrict high = c->high;
	double *restrict error = c->error;
#pragma omp simd
	for (size_t i = 0; i < n; i++) {
		const float level = clamped(x[i] * inverse[i], low[i], high[i]) + ROUNDER - ROUNDER;
		const double d = (double)(x[i] - level * scale[i]);
		error[i] += d * d;
	}
}

GP_INLINE void channel_error_body(const struct gp_block_channels *c, const float *x, uint64_t n)
{
	for (uint64_t at = 0; at < n; at += c->count)
		add_errors(c, x + at, n - at < c->count ? (size_t)(n - at) : c->count);
}

GP_INLINE void code_row(const struct gp_block_channels *c, size_t first, const float *restrict x, size_t n,
			const uint16_t *restrict draws, uint16_t *restrict codes)
{
	const float *restrict inverse = c->inverse + first, *restrict low = c->low + first,
			      *restrict high = c->high + first, *restrict zero = c->zero + first;
	if (draws) {
#pragma omp simd
		for (size_t i = 0; i < n; i++)
			codes[i] = (uint16_t)drawn(clamped(x[i] * inverse[i], low[i], high[i]), zero[i], high[i],
						   draws[i]);
		return;
	}
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		codes[i] = (uint16_t)(bits_of(clamped(x[i] * inverse[i], low[i], high[i]) + ROUNDER) - ROUNDER_BITS +
				      (int32_t)zero[i]);
}

GP_INLINE void channel_encode_body(const struct gp_block_channels *c, size_t first, const float *x, size_t n,
				   const uint16_t *draws, uint16_t *codes)
{
	for (size_t at = 0, here; at < n; at += here, first = 0) {
		here = block_at(at, n, c->count - first);
		code_row(c, first, x + at, here, draws ? draws + at : NULL, codes + at);
	}
}

GP_INLINE void value_row(const float *restrict scale, const float *restrict zero, const uint16_t *restrict codes,
			 size_t n, float *restrict x)
{
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		x[i] = ((float)codes[i] - zero[i]) * scale[i];
}

GP_INLINE void channel_decode_body(const struct gp_block_channels *c, size_t first, const uint16_t *codes, size_t n,
				   float *x)
{
	for (size_t at = 0, here; at < n; at += here, first = 0) {
		here = block_at(at, n, c->count - first);
		value_row(c->scale + first, c->zero + first, codes + at, here, x + at);
	}
}

/* --- small floating-point numbers ------------------------------------------------------------------------------- */

int gp_mx_emax(enum gp_mx_format format)
{
	return gp_mx_smalls[format].emax;
}

int gp_mx_numbers(enum gp_mx_format format)
{
	return gp_mx_smalls[format].numbers;
}

int gp_mx_width(enum gp_mx_format format)
{
	return 1 + gp_mx_smalls[format].exponent + gp_mx_smalls[format].mantissa;
}

/* Bits of a magnitude to the format, to nearest, ties to even, saturating. */
GP_INLINE int32_t narrow(const struct gp_mx_small *f, int32_t u)
{
	const int shift = 23 - f->mantissa;
	const float magic = f->step * 0x1p23f;
	u = u < f->largest ? u : f->largest;
	const int32_t odd = u >> shift & 1;
	const int32_t normal = (u + ((1 << (shift - 1)) - 1 - ((127 - f->bias) << 23)) + odd) >> shift;
	const int32_t below = bits_of(float_of(u) + magic) - bits_of(magic);
	return u < f->normal ? below : normal;
}

/* Chosen by a mask: of a branch no compiler makes a vector here. */
GP_INLINE float widen(const struct gp_mx_small *f, int32_t magnitude)
{
	const int32_t normal = (magnitude << (23 - f->mantissa)) + ((127 - f->bias) << 23);
	const int32_t below = bits_of((float)magnitude * f->step), small = -(int32_t)(magnitude < 1 << f->mantissa);
	return float_of((below & small) | (normal & ~small));
}

GP_INLINE void narrow_row(const struct gp_mx_small *f, const float *restrict x, size_t n, float inverse,
			  uint16_t *restrict codes)
{
	const int width = f->exponent + f->mantissa;
#pragma omp simd
	for (size_t i = 0; i < n; i++) {
		const uint32_t sign = (uint32_t)bits_of(x[i]) >> 31;
		const int32_t magnitude = narrow(f, bits_of(x[i] * inverse) & MAGNITUDE);
		codes[i] = (uint16_t)(magnitude | (int32_t)(sign << width));
	}
}

GP_INLINE void widen_row_of(const struct gp_mx_small *f, const uint16_t *restrict codes, size_t n, float scale,
			    float *restrict x)
{
	const int width = f->exponent + f->mantissa;
#pragma omp simd
	for (size_t i = 0; i < n; i++) {
		const int32_t code = codes[i];
		const uint32_t sign = (uint32_t)(code >> width) << 31;
		const float value = widen(f, code & ((1 << width) - 1)) * scale;
		x[i] = float_of((int32_t)((uint32_t)bits_of(value) | sign));
	}
}

GP_INLINE uint32_t mx_block(const struct gp_mx_small *f, const float *x, size_t n, uint8_t *scale, uint16_t *codes)
{
	const uint32_t top = magnitude_of(x, n);
	int exponent = (int)(top >> 23) - f->emax;
	exponent = exponent < 0 ? 0 : exponent;
	*scale = (uint8_t)exponent;
	narrow_row(f, x, n, float_of((254 - exponent) << 23), codes);
	return top;
}

GP_INLINE uint32_t mx_row(const struct gp_mx_small *f, const float *x, size_t n, uint8_t *scales, uint16_t *codes)
{
	uint32_t top = 0, here;
	size_t at = 0;
	for (; at + GP_MX_BLOCK <= n; at += GP_MX_BLOCK) {
		here = mx_block(f, x + at, GP_MX_BLOCK, scales + at / GP_MX_BLOCK, codes + at);
		top = here > top ? here : top;
	}
	if (at == n)
		return top;
	here = mx_block(f, x + at, n - at, scales + at / GP_MX_BLOCK, codes + at);
	return here > top ? here : top;
}

GP_INLINE float power_value(unsigned exponent)
{
	return exponent ? float_of((int32_t)(exponent << 23)) : 0x1p-127f;
}

GP_INLINE void mx_values(const struct gp_mx_small *f, const uint8_t *scales, const uint16_t *codes, size_t n, float *x)
{
	size_t at = 0;
	for (; at + GP_MX_BLOCK <= n; at += GP_MX_BLOCK)
		widen_row_of(f, codes + at, GP_MX_BLOCK, power_value(scales[at / GP_MX_BLOCK]), x + at);
	if (at < n)
		widen_row_of(f, codes + at, n - at, power_value(scales[at / GP_MX_BLOCK]), x + at);
}

/* One copy of the loops for each format. */
#define FORMATS(X) X(GP_MX_E2M1) X(GP_MX_E2M3) X(GP_MX_E3M2) X(GP_MX_E4M3) X(GP_MX_E5M2)

GP_INLINE uint32_t mx_encode_body(enum gp_mx_format format, const float *x, size_t n, uint8_t *scales, uint16_t *codes)
{
#define ENCODE(name)                                                                                                   \
	case name:                                                                                                     \
		return mx_row(&gp_mx_smalls[name], x, n, scales, codes);
	switch (format) {
		FORMATS(ENCODE)
	case GP_MX_FORMATS:
		break;
	}
	return 0;
}

GP_INLINE void mx_decode_body(enum gp_mx_format format, const uint8_t *scales, const uint16_t *codes, size_t n,
			      float *x)
{
#define DECODE(name)                                                                                                   \
	case name:                                                                                                     \
		mx_values(&gp_mx_smalls[name], scales, codes, n, x);                                                   \
		break;
	switch (format) {
		FORMATS(DECODE)
	case GP_MX_FORMATS:
		break;
	}
}

/* Scales of up to NV_BLOCKS blocks side by side, and the factors of their elements. */
GP_INLINE void nv_scales(float whole, const float *restrict largest, size_t n, int32_t *restrict scale,
			 float *restrict inverse)
{
	const float six = 6 * whole;
#pragma omp simd
	for (size_t i = 0; i < n; i++) {
		scale[i] = narrow(&gp_mx_smalls[GP_MX_E4M3], bits_of(largest[i] / six) & MAGNITUDE);
		const float value = widen(&gp_mx_smalls[GP_MX_E4M3], scale[i]) * whole;
		inverse[i] = value > 0 ? 1 / value : 0;
	}
}

enum { NV_BLOCKS = 64, NV_ELEMENTS = NV_BLOCKS * GP_NVFP4_BLOCK };

/* n up to NV_ELEMENTS. */
GP_INLINE void nv_row(float whole, const float *x, size_t n, uint8_t *scales, uint16_t *codes)
{
	float largest[NV_BLOCKS], inverse[NV_BLOCKS];
	int32_t scale[NV_BLOCKS];
	const size_t full = n / GP_NVFP4_BLOCK, rest = n % GP_NVFP4_BLOCK, blocks = full + (rest > 0);
	for (size_t i = 0; i < full; i++)
		largest[i] = float_of((int32_t)magnitude_of(x + i * GP_NVFP4_BLOCK, GP_NVFP4_BLOCK));
	if (rest)
		largest[full] = float_of((int32_t)magnitude_of(x + full * GP_NVFP4_BLOCK, rest));
	nv_scales(whole, largest, blocks, scale, inverse);
	for (size_t i = 0; i < blocks; i++)
		scales[i] = (uint8_t)scale[i];
	for (size_t i = 0; i < full; i++)
		narrow_row(&gp_mx_smalls[GP_MX_E2M1], x + i * GP_NVFP4_BLOCK, GP_NVFP4_BLOCK, inverse[i],
			   codes + i * GP_NVFP4_BLOCK);
	if (rest)
		narrow_row(&gp_mx_smalls[GP_MX_E2M1], x + full * GP_NVFP4_BLOCK, rest, inverse[full],
			   codes + full * GP_NVFP4_BLOCK);
}

GP_INLINE void nv_encode_body(float whole, const float *x, size_t n, uint8_t *scales, uint16_t *codes)
{
	for (size_t at = 0; at < n; at += NV_ELEMENTS)
		nv_row(whole, x + at, block_at(at, n, NV_ELEMENTS), scales + at / GP_NVFP4_BLOCK, codes + at);
}

GP_INLINE void nv_decode_body(float whole, const uint8_t *scales, const uint16_t *codes, size_t n, float *x)
{
	const struct gp_mx_small *scale = &gp_mx_smalls[GP_MX_E4M3], *element = &gp_mx_smalls[GP_MX_E2M1];
	size_t at = 0;
	for (; at + GP_NVFP4_BLOCK <= n; at += GP_NVFP4_BLOCK)
		widen_row_of(element, codes + at, GP_NVFP4_BLOCK, widen(scale, scales[at / GP_NVFP4_BLOCK]) * whole,
			     x + at);
	if (at < n)
		widen_row_of(element, codes + at, n - at, widen(scale, scales[at / GP_NVFP4_BLOCK]) * whole, x + at);
}

/* --- one table for each instruction set ------------------------------------------------------------------------- */

#define CLONE(set, target, result, name, params, args)                                                                 \
	target static result name##_##set params                                                                       \
	{                                                                                                              \
		return name##_body args;                                                                               \
	}
#define LOOPS(set, target)                                                                                             \
	CLONE(set, target, uint32_t, encode,                                                                           \
	      (const struct gp_block_form *form, const float *x, size_t n, const uint16_t *draws, uint8_t *scales,     \
	       uint8_t *zeros, uint16_t *codes),                                                                       \
	      (form, x, n, draws, scales, zeros, codes))                                                               \
	CLONE(set, target, uint32_t, reach, (const struct gp_block_form *form, const float *x, size_t n),              \
	      (form, x, n))                                                                                            \
	CLONE(set, target, void, decode,                                                                               \
	      (const struct gp_block_form *form, const uint8_t *scales, const uint8_t *zeros, const uint16_t *codes,   \
	       size_t n, float *x),                                                                                    \
	      (form, scales, zeros, codes, n, x))                                                                      \
	CLONE(set, target, bool, codes_within,                                                                         \
	      (const uint16_t *codes, size_t n, uint16_t mask, uint16_t least, uint16_t most),                         \
	      (codes, n, mask, least, most))                                                                           \
	CLONE(set, target, uint32_t, channel_range, (const struct gp_block_channels *c, const float *x, uint64_t n),   \
	      (c, x, n))                                                                                               \
	CLONE(set, target, void, channel_error, (const struct gp_block_channels *c, const float *x, uint64_t n),       \
	      (c, x, n))                                                                                               \
	CLONE(set, target, void, channel_encode,                                                                       \
	      (const struct gp_block_channels *c, size_t first, const float *x, size_t n, const uint16_t *draws,       \
	       uint16_t *codes),                                                                                       \
	      (c, first, x, n, draws, codes))                                                                          \
	CLONE(set, target, void, channel_decode,                                                                       \
	      (const struct gp_block_channels *c, size_t first, const uint16_t *codes, size_t n, float *x),            \
	      (c, first, codes, n, x))                                                                                 \
	CLONE(set, target, uint32_t, mx_encode,                                                                        \
	      (enum gp_mx_format format, const float *x, size_t n, uint8_t *scales, uint16_t *codes),                  \
	      (format, x, n, scales, codes))                                                                           \
	CLONE(set, target, void, mx_decode,                                                                            \
	      (enum gp_mx_format format, const uint8_t *scales, const uint16_t *codes, size_t n, float *x),            \
	      (format, scales, codes, n, x))                                                                           \
	CLONE(set, target, void, nv_encode, (float whole, const float *x, size_t n, uint8_t *scales, uint16_t *codes), \
	      (whole, x, n, scales, codes))                                                                            \
	CLONE(set, target, void, nv_decode,                                                                            \
	      (float whole, const uint8_t *scales, const uint16_t *codes, size_t n, float *x),                         \
	      (whole, scales, codes, n, x))                                                                            \
	const struct gp_block_loops gp_block_loops_##set = {                                                           \
		.encode = encode_##set,                                                                                \
		.reach = reach_##set,                                                                                  \
		.decode = decode_##set,                                                                                \
		.codes_within = codes_within_##set,                                                                    \
		.channel_range = channel_range_##set,                                                                  \
		.channel_error = channel_error_##set,                                                                  \
		.channel_encode = channel_encode_##set,                                                                \
		.channel_decode = channel_decode_##set,                                                                \
		.mx_encode = mx_encode_##set,                                                                          \
		.mx_decode = mx_decode_##set,                                                                          \
		.nv_encode = nv_encode_##set,                                                                          \
		.nv_decode = nv_decode_##set,                                                                          \
	};

LOOPS(portable, )
#if defined(__x86_64__)
LOOPS(avx2, __attribute__((target("avx2"))))
LOOPS(avx512, __attribute__((target(GP_CPU_AVX512_TARGET))))
#else
LOOPS(avx2, )
#endif

const struct gp_block_loops *gp_block_loops_choose(void)
{
	static const struct gp_block_loops *const loops[] = GP_LOOP_VERSIONS(&gp_block_loops);
	return loops[gp_isa_wanted()];
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit floating point in plain C: the reference, and what runs where there is
 * no AVX2. See fp8_loops.h. Test: tests/unit/test_fp8_loops.c
 */
#include "kernels/loops/fp8_loops.h"

#include <math.h>
#include <string.h>

#include "kernels/loops/codec_loops.h"
#include "kernels/loops/versions.h"

static uint32_t float_bits(float v)
{
	uint32_t u;
	memcpy(&u, &v, sizeof u);
	return u;
}

static float bits_float(uint32_t u)
{
	float v;
	memcpy(&v, &u, sizeof v);
	return v;
}

/* u: bits of a finite magnitude. Above the format's smallest normal number the exponent is rebased and the mantissa
 * rounded; below it, adding a power of two leaves the rounded multiple of the smallest subnormal in the low bits. */
static uint32_t round_magnitude(uint32_t u, uint32_t largest, uint32_t smallest_normal, int shift, uint32_t rebase,
				float magic)
{
	u = u < largest ? u : largest;
	if (u < smallest_normal)
		return float_bits(bits_float(u) + magic) - float_bits(magic);
	return (u - rebase + (1u << (shift - 1)) - 1 + (u >> shift & 1)) >> shift;
}

static uint32_t magnitude_to_e5m2(uint32_t u)
{
	return round_magnitude(u, 0x47600000u, 0x38800000u, 21, 112u << 23, 0x1p7f);
}

static uint32_t magnitude_to_e4m3(uint32_t u)
{
	return round_magnitude(u, 0x43e00000u, 0x3c800000u, 20, 120u << 23, 0x1p14f);
}

static bool to_e5m2(const float *x, size_t n, uint8_t *out)
{
	bool finite = true;
	for (size_t i = 0; i < n; i++) {
		const uint32_t u = float_bits(x[i]), magnitude = u & 0x7fffffffu;
		finite &= magnitude < 0x7f800000u;
		out[i] = (uint8_t)(magnitude_to_e5m2(magnitude) | (u >> 24 & 0x80u));
	}
	return finite;
}

static bool to_e4m3(const float *x, size_t n, uint8_t *out)
{
	bool finite = true;
	for (size_t i = 0; i < n; i++) {
		const uint32_t u = float_bits(x[i]), magnitude = u & 0x7fffffffu;
		finite &= magnitude < 0x7f800000u;
		out[i] = (uint8_t)(magnitude_to_e4m3(magnitude) | (u >> 24 & 0x80u));
	}
	return finite;
}

/* The mantissa in place, the exponent off by the difference of the biases: a factor puts that right, and makes normal
 * numbers of subnormals. */
static float widen(uint32_t byte, int shift, float factor)
{
	const float v = bits_float((byte & 0x7fu) << shift) * factor;
	return bits_float(float_bits(v) | (byte & 0x80u) << 24);
}

static bool from_e5m2(const uint8_t *in, size_t n, float *x)
{
	bool numbers = true;
	for (size_t i = 0; i < n; i++) {
		numbers &= (in[i] & 0x7fu) < 0x7cu;
		x[i] = widen(in[i], 21, 0x1p112f);
	}
	return numbers;
}

static bool from_e4m3(const uint8_t *in, size_t n, float *x)
{
	bool numbers = true;
	for (size_t i = 0; i < n; i++) {
		numbers &= (in[i] & 0x7fu) < 0x7fu;
		x[i] = widen(in[i], 20, 0x1p120f);
	}
	return numbers;
}

/* Bits of a magnitude as exponent and 1 + z: subnormals made normal, zero as one. */
static uint32_t normalize(uint32_t u, int *exponent)
{
	*exponent = 0;
	if (u == 0)
		return 0x3f800000u;
	if (u < 0x00800000u) {
		u = float_bits(bits_float(u) * 0x1p32f);
		*exponent = -32;
	}
	*exponent += (int)(u >> 23) - 127;
	return (u & 0x007fffffu) | 0x3f800000u;
}

/* Lane by lane, so that the products round alike in every version. */
static void add_block(const float *x, size_t n, struct gp_log_sum *sum)
{
	float lane[GP_LOG_LANES];
	for (int k = 0; k < GP_LOG_LANES; k++)
		lane[k] = 1;
	for (size_t i = 0; i < n; i++) {
		const uint32_t u = float_bits(x[i]) & 0x7fffffffu, counted = u ? u : 0x3f800000u;
		int exponent;
		lane[i % GP_LOG_LANES] *= bits_float(normalize(u, &exponent));
		sum->exponents += exponent;
		sum->largest = counted > sum->largest ? counted : sum->largest;
	}
	gp_log_sum_take(sum, lane);
}

/* Not finite: the sums mean nothing then, but must not overflow the integers. */
static void add_logs(const float *x, size_t n, struct gp_log_sum *sum)
{
	sum->product = sum->product > 0 ? sum->product : 1;
	for (size_t at = 0; at < n; at += GP_LOG_BLOCK)
		add_block(x + at, n - at < GP_LOG_BLOCK ? n - at : GP_LOG_BLOCK, sum);
}

static float log2_of(uint32_t u)
{
	int exponent;
	const float z = bits_float(normalize(u, &exponent)) - 1;
	const float p = fmaf(z, fmaf(z, fmaf(z, GP_LOG2_P3, GP_LOG2_P2), GP_LOG2_P1), GP_LOG2_P0);
	return fmaf(z, p, (float)exponent);
}

/* Bits of 2^t. */
static uint32_t exp2_of(float t)
{
	t = t > GP_S2FP8_LOW ? t : GP_S2FP8_LOW;
	t = t < GP_S2FP8_HIGH ? t : GP_S2FP8_HIGH;
	const float whole = floorf(t), f = t - whole;
	const float p = fmaf(f, fmaf(f, fmaf(f, GP_EXP2_Q2, GP_EXP2_Q1), GP_EXP2_Q0), 1);
	return float_bits(p) + ((uint32_t)(int)whole << 23);
}

/* Over half precision; u: bits of 2^GP_S2FP8_LOW to 2^GP_S2FP8_HIGH. */
static uint32_t squeezed_to_e5m2(uint32_t u)
{
	const uint32_t half = round_magnitude(u, 0x477fe000u, 0x38800000u, 13, 112u << 23, 0.5f);
	return (half + 0x80) >> 8;
}

static void to_s2fp8(const float *x, size_t n, float alpha, float beta, uint8_t *out)
{
	for (size_t i = 0; i < n; i++) {
		const uint32_t u = float_bits(x[i]), magnitude = u & 0x7fffffffu;
		const float t = magnitude ? fmaf(alpha, log2_of(magnitude), beta) : GP_S2FP8_LOW;
		out[i] = (uint8_t)(squeezed_to_e5m2(exp2_of(t)) | (u >> 24 & 0x80u));
	}
}

static bool from_s2fp8(const uint8_t *in, size_t n, const float table[128], float *x)
{
	bool numbers = true;
	for (size_t i = 0; i < n; i++) {
		numbers &= (in[i] & 0x7fu) < 0x7cu;
		x[i] = bits_float(float_bits(table[in[i] & 0x7fu]) | (in[i] & 0x80u) << 24);
	}
	return numbers;
}

const struct gp_fp8_loops gp_fp8_loops_portable = {
	.to_e5m2 = to_e5m2,
	.to_e4m3 = to_e4m3,
	.from_e5m2 = from_e5m2,
	.from_e4m3 = from_e4m3,
	.add_logs = add_logs,
	.to_s2fp8 = to_s2fp8,
	.from_s2fp8 = from_s2fp8,
};

const struct gp_fp8_loops *gp_fp8_loops_choose(void)
{
	static const struct gp_fp8_loops *const loops[] = GP_LOOP_VERSIONS(&gp_fp8_loops);
	return loops[gp_isa_wanted()];
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The Walsh-Hadamard transform in plain C, the reference of the others. See
 * hadamard_loops.h. Test: tests/unit/test_codec_hadamard.c
 */
#include "kernels/loops/hadamard_loops.h"
#include "kernels/loops/versions.h"

#include <stdbool.h>
#include <string.h>

static float signed_by(float v, uint32_t sign)
{
	uint32_t u;
	memcpy(&u, &v, sizeof u);
	u ^= sign;
	memcpy(&v, &u, sizeof v);
	return v;
}

static uint32_t magnitude(float v)
{
	uint32_t u;
	memcpy(&u, &v, sizeof u);
	return u & 0x7fffffff;
}

float gp_hadamard_factor(int levels)
{
	const float whole = 1 / (float)(1 << levels / 2);
	return levels % 2 ? 0x1.6a09e6p-1f * whole : whole;
}

/* One level of a block of n elements. */
static void add_and_subtract(float *v, size_t n, size_t h)
{
	for (size_t at = 0; at < n; at += 2 * h) {
		float *low = v + at, *high = low + h;
#pragma omp simd
		for (size_t i = 0; i < h; i++) {
			const float a = low[i], b = high[i];
			low[i] = a + b;
			high[i] = a - b;
		}
	}
}

static uint32_t turn_block(const uint32_t *sign, size_t n, float factor, bool back, const float *x, float *y)
{
	uint32_t top = 0;
	for (size_t i = 0; i < n; i++)
		y[i] = back ? x[i] : signed_by(x[i], sign[i]);
	for (size_t h = 1; h < n; h *= 2)
		add_and_subtract(y, n, h);
	for (size_t i = 0; i < n; i++) {
		const float v = y[i] * factor;
		top = magnitude(v) > top ? magnitude(v) : top;
		y[i] = back ? signed_by(v, sign[i]) : v;
	}
	return top;
}

static uint32_t turn(const uint32_t *sign, int levels, bool back, const float *x, size_t n, float *y)
{
	const size_t size = (size_t)1 << levels;
	const float factor = gp_hadamard_factor(levels);
	uint32_t top = 0;
	for (size_t at = 0; at < n; at += size) {
		const uint32_t here = turn_block(sign, size, factor, back, x + at, y + at);
		top = here > top ? here : top;
	}
	return top;
}

static uint32_t forward(const uint32_t *sign, int levels, const float *x, size_t n, float *y)
{
	return turn(sign, levels, false, x, n, y);
}

static uint32_t backward(const uint32_t *sign, int levels, const float *x, size_t n, float *y)
{
	return turn(sign, levels, true, x, n, y);
}

const struct gp_hadamard_loops gp_hadamard_loops_portable = {.forward = forward, .backward = backward};

const struct gp_hadamard_loops *gp_hadamard_loops_choose(void)
{
	static const struct gp_hadamard_loops *const loops[] = GP_LOOP_VERSIONS(&gp_hadamard_loops);
	return loops[gp_isa_wanted()];
}

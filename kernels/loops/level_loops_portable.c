/* SPDX-License-Identifier: Apache-2.0
 *
 * Level quantizers in plain C: the reference, and the choice between the
 * versions. See level_loops.h. Test: tests/unit/test_level_loops.c
 */
#include "kernels/loops/level_loops.h"

#include <math.h>
#include <string.h>

#include "kernels/loops/codec_loops.h"
#include "kernels/loops/versions.h"

void gp_level_table_set(struct gp_level_table *t, int bits, const float *level, int count)
{
	const int all = 1 << bits;
	t->bits = bits;
	for (int i = 0; i < all; i++)
		t->level[i] = i < count ? level[i] : INFINITY;
	t->tree[0] = 0;
	for (int round = 0; round < bits; round++)
		for (int i = 0; i < 1 << round; i++)
			t->tree[(1 << round) + i] = t->level[(2 * i + 1) << (bits - 1 - round)];
}

static double squares(const float *x, size_t n)
{
	double lane[GP_LEVEL_LANES] = {0};
	for (size_t i = 0; i < n; i++)
		lane[i % GP_LEVEL_LANES] += (double)x[i] * (double)x[i];
	for (int half = GP_LEVEL_LANES / 2; half > 0; half /= 2)
		for (int k = 0; k < half; k++)
			lane[k] += lane[k + half];
	return lane[0];
}

static uint32_t largest(const float *x, size_t n)
{
	uint32_t top = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t u;
		memcpy(&u, &x[i], sizeof u);
		u &= 0x7fffffffu;
		top = u > top ? u : top;
	}
	return top;
}

static uint16_t code_of(const struct gp_level_table *t, float r, uint16_t h)
{
	float l = -1, u = 1;
	int j = 1;
	for (int round = 0; round < t->bits; round++) {
		const float pivot = t->tree[j];
		const int right = r >= pivot;
		l = right ? pivot : l;
		u = right ? u : pivot;
		j = 2 * j + right;
	}
	const float draw = ((float)h + 0.5f) * 0x1p-16f;
	return (uint16_t)(j - (1 << t->bits) + (draw * (u - l) < r - l));
}

static void quantize(const struct gp_level_table *t, const float *x, size_t n, float norm, const uint16_t *draws,
		     uint16_t *codes)
{
	for (size_t i = 0; i < n; i++)
		codes[i] = code_of(t, x[i] / norm, draws[i]);
}

static void dequantize(const struct gp_level_table *t, const uint16_t *codes, size_t n, float norm, float *x)
{
	for (size_t i = 0; i < n; i++)
		x[i] = t->level[codes[i]] * norm;
}

const struct gp_level_loops gp_level_loops_portable = {
	.squares = squares,
	.largest = largest,
	.quantize = quantize,
	.dequantize = dequantize,
};

const struct gp_level_loops *gp_level_loops_choose(void)
{
	static const struct gp_level_loops *const loops[] = GP_LOOP_VERSIONS(&gp_level_loops);
	return loops[gp_isa_wanted()];
}

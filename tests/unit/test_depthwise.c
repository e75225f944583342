/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise 3x3 rows against the plain sums in double, for odd sizes, strides
 * and paddings, images smaller than the filter, and channels that fill no
 * vector, with AVX2, AVX-512 or NEON, which give the same bits. Skipped where
 * the processor has none of them.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "kernels/cpu/math/depthwise.h"
#include "tests/unit/each_isa.h"
#include "tests/unit/same_bits.h"

#define BITS 0x295501aab4a2ab13u /* of all results, on every processor */

struct bed {
	struct gp_dw g;
	int64_t in, out, weights; /* floats */
	float *x, *dy, *weight, *got;
};

static const int64_t shapes[][2] = {{1, 1}, {2, 1}, {1, 4}, {3, 3}, {4, 7}, {9, 8}, {14, 13}};
static const int64_t channels[] = {1, 5, 16, 24, 48, 51};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void fill(float *v, int64_t count, uint64_t stream)
{
	for (int64_t i = 0; i < count; i++)
		v[i] = 2.0f * gp_rng_uniform(9, gp_rng_stream(GP_RNG_SYNTHETIC, stream), (uint64_t)i) - 1.0f;
}

static float *make(int64_t count)
{
	float *v = gp_calloc((size_t)count, sizeof *v);
	assert_non_null(v);
	return v;
}

static struct bed make_bed(const int64_t *shape, int64_t c, int64_t stride, int64_t pad_before, int64_t pad_after)
{
	struct bed b = {.g = {.h = shape[0], .w = shape[1], .channels = c, .stride = stride}};
	b.g.pad_top = b.g.pad_left = pad_before;
	b.g.out_h = (shape[0] + pad_before + pad_after - 3) / stride + 1;
	b.g.out_w = (shape[1] + pad_before + pad_after - 3) / stride + 1;
	b.g.lanes = gp_depthwise_lanes(c);
	b.in = b.g.h * b.g.w * c;
	b.out = b.g.out_h * b.g.out_w * c;
	b.weights = GP_DW_TAPS * b.g.lanes;
	b.x = make(b.in);
	b.dy = make(b.out);
	b.weight = make(b.weights);
	b.got = make(b.in + b.out + b.weights + 1);
	fill(b.x, b.in, 0);
	fill(b.dy, b.out, 1);
	fill(b.weight, b.weights, 2);
	b.got[b.in + b.out + b.weights] = 7.0f;
	return b;
}

static void drop_bed(struct bed *b)
{
	gp_free(b->x);
	gp_free(b->dy);
	gp_free(b->weight);
	gp_free(b->got);
}

/* Calls `visit` for every product of the convolution: input, output and weight positions. */
typedef void (*visit_fn)(const struct bed *b, double *want, int64_t x, int64_t y, int64_t w);

static void visit_all(const struct bed *b, visit_fn visit, double *want)
{
	const struct gp_dw *g = &b->g;
	for (int64_t i = 0; i < b->out * GP_DW_TAPS; i++) {
		int64_t t = i % GP_DW_TAPS, y = i / GP_DW_TAPS, c = y % g->channels, pixel = y / g->channels;
		int64_t iy = pixel / g->out_w * g->stride - g->pad_top + t / 3;
		int64_t ix = pixel % g->out_w * g->stride - g->pad_left + t % 3;
		if (iy >= 0 && iy < g->h && ix >= 0 && ix < g->w)
			visit(b, want, (iy * g->w + ix) * g->channels + c, y, t * g->lanes + c);
	}
}

static void add_forward(const struct bed *b, double *want, int64_t x, int64_t y, int64_t w)
{
	want[y] += (double)b->x[x] * (double)b->weight[w];
}

static void add_data(const struct bed *b, double *want, int64_t x, int64_t y, int64_t w)
{
	want[x] += (double)b->dy[y] * (double)b->weight[w];
}

static void add_weights(const struct bed *b, double *want, int64_t x, int64_t y, int64_t w)
{
	want[w] += (double)b->dy[y] * (double)b->x[x];
}

static void check(const struct bed *b, const float *got, int64_t count, visit_fn visit, const char *what)
{
	double *want = gp_calloc((size_t)count, sizeof *want);
	assert_non_null(want);
	visit_all(b, visit, want);
	for (int64_t i = 0; i < count; i++)
		if (!(fabs((double)got[i] - want[i]) < 1e-4))
			fail_msg("%s, %lldx%lldx%lld stride %lld pad %lld, element %lld: %g instead of %g", what,
				 (long long)b->g.h, (long long)b->g.w, (long long)b->g.channels, (long long)b->g.stride,
				 (long long)b->g.pad_top, (long long)i, (double)got[i], want[i]);
	gp_free(want);
}

/* Everything from the beginning. */
static void compute(struct bed *b)
{
	const struct gp_dw *g = &b->g;
	const int64_t c = g->channels;
	float *y = b->got, *dx = y + b->out, *grad = dx + b->in;
	memset(grad, 0, (size_t)b->weights * sizeof *grad);
	for (int64_t oy = 0; oy < g->out_h; oy++) {
		gp_depthwise_forward_row(g, y + oy * g->out_w * c, (struct gp_dw_rows){b->x, 0}, b->weight, oy);
		gp_depthwise_weights_row(g, grad, (struct gp_dw_rows){b->x, 0}, b->dy + oy * g->out_w * c, oy);
	}
	for (int64_t iy = 0; iy < g->h; iy++)
		gp_depthwise_data_row(g, dx + iy * g->w * c, (struct gp_dw_rows){b->dy, 0}, b->weight, iy);
}

/* The bits of the results, on from those before. */
static uint64_t run_shape(uint64_t bits, const int64_t *shape, int64_t c, int64_t stride, int64_t before, int64_t after)
{
	struct bed b = make_bed(shape, c, stride, before, after);
	float *y = b.got, *dx = y + b.out, *grad = dx + b.in;
	compute(&b);
	check(&b, y, b.out, add_forward, "forward");
	check(&b, dx, b.in, add_data, "input gradient");
	check(&b, grad, b.weights, add_weights, "weight gradient");
	assert_true(b.got[b.in + b.out + b.weights] == 7.0f);
	bits = bits_of(bits, b.got, b.in + b.out + b.weights);
	drop_bed(&b);
	return bits;
}

static void rows_are_right_for_all_geometries_and_the_same_on_every_processor(void **state)
{
	(void)state;
	uint64_t bits = BITS_BEGIN;
	if (!gp_depthwise_supported())
		skip();
	for (size_t s = 0; s < COUNT(shapes); s++)
		for (size_t c = 0; c < COUNT(channels); c++)
			for (int64_t stride = 1; stride <= 2; stride++)
				for (int64_t before = 0; before <= 2; before++)
					for (int64_t after = 0; after <= 2; after++)
						if (shapes[s][0] + before + after >= 3 &&
						    shapes[s][1] + before + after >= 3)
							bits = run_shape(bits, shapes[s], channels[c], stride, before,
									 after);
	assert_int_equal(bits, BITS);
}

static int all_tests(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_are_right_for_all_geometries_and_the_same_on_every_processor)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return each_isa(all_tests);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Winograd's 3x3 convolutions, both strides, run as a plan of one convolution: against plain
 * sums in double, for images that tiles do not divide, every padding, channels
 * that fill no vector, one image and several blocks of tiles; accumulation over
 * chunks; the same outputs and dx, bit for bit, with every number of threads
 * and in every batch.
 * With AVX2, AVX-512 or NEON, which give the same bits; skipped where the processor has none of them.
 */
#include <math.h>
#include <string.h>

#include "common/graph/device.h"
#include "kernels/device_registry.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/loops/simd.h"
#include "kernels/cpu/math/winograd.h"
#include "tests/sanitized.h"
#include "tests/unit/each_isa.h"
#include "tests/unit/ok.h"
#include "tests/unit/same_bits.h"
#include "common/graph/ops/op_conv.h"

#define TOLERANCE   5e-6 /* relative L2 */
#define MAX_THREADS 3
#define EVERY       4 /* of the convolutions in runs that take a part of them */
#define BITS        0x89a4862c0afcfc9eu /* of all results, on every processor */

struct conv {
	int images, h, w, in, out;
	int top, bottom, left, right;
	int stride;
};

static const struct conv convs[] = {
	/* whole tiles, and the small kinds */
	{2, 8, 8, 16, 16, 1, 1, 1, 1, 1},
	{3, 4, 4, 32, 48, 1, 1, 1, 1, 1},
	{5, 2, 2, 32, 64, 1, 1, 1, 1, 1},
	{1, 2, 2, 80, 16, 1, 1, 1, 1, 1},
	{7, 1, 1, 48, 32, 1, 1, 1, 1, 1},
	/* tiles that stand out, one image */
	{1, 5, 7, 16, 32, 1, 1, 1, 1, 1},
	{1, 9, 3, 64, 16, 1, 1, 1, 1, 1},
	{2, 3, 3, 16, 16, 1, 1, 1, 1, 1},
	{2, 1, 2, 16, 16, 1, 1, 1, 1, 1},
	{1, 13, 6, 16, 80, 1, 1, 1, 1, 1},
	/* other padding, also of small images */
	{2, 6, 5, 16, 16, 0, 0, 0, 0, 1},
	{1, 4, 7, 24, 16, 2, 0, 1, 2, 1},
	{2, 2, 2, 16, 32, 2, 2, 2, 2, 1},
	{2, 2, 2, 16, 16, 1, 0, 1, 1, 1},
	{2, 1, 1, 16, 16, 2, 2, 1, 1, 1},
	/* channels that fill no vector */
	{2, 6, 6, 17, 24, 1, 1, 1, 1, 1},
	{1, 5, 5, 40, 19, 1, 1, 1, 1, 1},
	{3, 2, 2, 33, 70, 1, 1, 1, 1, 1},
	{3, 1, 1, 19, 17, 1, 1, 1, 1, 1},
	/* stride 2: whole tiles, tiles that stand out, odd images, other padding behind */
	{2, 8, 8, 64, 128, 1, 1, 1, 1, 2},
	{3, 4, 4, 256, 48, 1, 1, 1, 1, 2},
	{2, 7, 9, 65, 131, 1, 1, 1, 1, 2},
	{1, 12, 5, 512, 16, 1, 0, 1, 2, 2},
	{5, 3, 4, 17, 500, 1, 1, 1, 0, 2},
	{2, 1, 1, 96, 96, 1, 1, 1, 1, 2},
	{2, 2, 1, 129, 64, 1, 2, 1, 1, 2},
	{1, 15, 16, 80, 144, 1, 1, 1, 1, 2},
	{70, 8, 8, 128, 64, 1, 1, 1, 1, 2},
	/* several blocks of tiles and several panels */
	{20, 15, 16, 16, 16, 1, 1, 1, 1, 1},
	{3, 14, 14, 80, 144, 1, 1, 1, 1, 1},
	{33, 4, 4, 144, 33, 1, 1, 1, 1, 1},
	{300, 2, 2, 32, 16, 1, 1, 1, 1, 1},
	{260, 1, 1, 16, 80, 1, 1, 1, 1, 1},
};

#define CONVS (sizeof convs / sizeof convs[0])

/* A plan of one convolution with everything that goes in and comes out. */
struct bed {
	struct conv c;
	int out_h, out_w;
	uint64_t x_count, y_count, w_count;
	float *x, *dy, *weight;
	float *y, *dx, *grad; /* results */
};

static float *make(uint64_t count)
{
	float *v = gp_calloc(count, sizeof *v);
	assert_non_null(v);
	return v;
}

static float *draw(uint64_t count, uint64_t stream)
{
	float *v = make(count);
	for (uint64_t i = 0; i < count; i++)
		v[i] = 2.0f * gp_rng_uniform(11, gp_rng_stream(GP_RNG_SYNTHETIC, stream), i) - 1.0f;
	return v;
}

static struct bed make_bed(const struct conv *c)
{
	struct bed b = {.c = *c};
	b.out_h = (c->h + c->top + c->bottom - 3) / c->stride + 1;
	b.out_w = (c->w + c->left + c->right - 3) / c->stride + 1;
	b.x_count = (uint64_t)c->images * (uint64_t)(c->h * c->w * c->in);
	b.y_count = (uint64_t)c->images * (uint64_t)(b.out_h * b.out_w * c->out);
	b.w_count = (uint64_t)c->out * (uint64_t)c->in * 9;
	b.x = draw(b.x_count, 0);
	b.dy = draw(b.y_count, 1);
	b.weight = draw(b.w_count, 2);
	b.y = make(b.y_count);
	b.dx = make(b.x_count);
	b.grad = make(b.w_count);
	return b;
}

static void drop_bed(struct bed *b)
{
	float *const all[] = {b->x, b->dy, b->weight, b->y, b->dx, b->grad};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		gp_free(all[i]);
}

static struct gp_graph *graph_of(const struct conv *c)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {c->h, c->w, c->in}};
	struct gp_node n = {.op = GP_OP_CONV2D, .name = "conv", .inputs = 1, .in = {0}};
	gp_set_conv_attr(&n, (struct gp_conv_attr){c->out, 3, 3, c->stride, c->stride, c->top, c->bottom, c->left,
						   c->right, 0, 0, 1, false});
	int index;
	struct gp_graph *g = gp_graph_new("one_conv", &sample, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	OK(gp_graph_add(g, &n, &index, &err));
	OK(gp_graph_finish(g, &err));
	return g;
}

/* Runs images [first, first + images) of a bed, `chunks` times, and keeps the results there. */
static void run_images(struct bed *b, int first, int images, int threads, int chunks)
{
	struct gp_device *dev;
	struct gp_plan *plan;
	struct gp_graph *g = graph_of(&b->c);
	OK(gp_device_open("cpu", threads, &dev, &err));
	struct gp_plan_spec spec = {.graph = g, .batch = images, .slots = 1, .train = true, .grad_inputs = 1};
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	if (gp_wino_supported())
		assert_ptr_equal(((struct cpu_plan *)plan)->node[1].op, &gp_cpu_winograd);
	OK(dev->ops->param_set(plan, 0, b->weight, &err));
	uint64_t x = b->x_count / (uint64_t)b->c.images, y = b->y_count / (uint64_t)b->c.images;
	uint64_t at_x = x * (uint64_t)first, at_y = y * (uint64_t)first;
	x *= (uint64_t)images * sizeof(float);
	y *= (uint64_t)images * sizeof(float);
	for (int chunk = 0; chunk < chunks; chunk++) {
		memcpy(dev->ops->buffer(plan, 0, GP_BUF_INPUT, 0), b->x + at_x, x);
		memcpy(dev->ops->buffer(plan, 0, GP_BUF_GRAD_OUTPUT, 0), b->dy + at_y, y);
		OK(dev->ops->forward(plan, 0, GP_TRAIN, 0, &err));
		OK(dev->ops->backward(plan, 0, &err));
	}
	memcpy(b->y + at_y, dev->ops->buffer(plan, 0, GP_BUF_OUTPUT, 0), y);
	memcpy(b->dx + at_x, dev->ops->buffer(plan, 0, GP_BUF_GRAD_INPUT, 0), x);
	OK(dev->ops->grad_get(plan, 0, b->grad, &err));
	dev->ops->plan_free(plan);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static void run(struct bed *b, int threads, int chunks)
{
	run_images(b, 0, b->c.images, threads, chunks);
}

/* --- plain sums ------------------------------------------------------------------------------------------------- */

struct sums {
	double *y, *dx, *grad;
};

/* Pixel x of all input channels and pixel y of all output channels meet in tap t. */
static void add_products(const struct bed *b, struct sums *s, uint64_t x, uint64_t y, uint64_t t)
{
	const uint64_t in = (uint64_t)b->c.in, out = (uint64_t)b->c.out;
	for (uint64_t o = 0; o < out; o++) {
		const double dy = (double)b->dy[y * out + o];
		double sum = 0.0;
		for (uint64_t i = 0; i < in; i++) {
			uint64_t w = (o * in + i) * 9 + t;
			sum += (double)b->x[x * in + i] * (double)b->weight[w];
			s->dx[x * in + i] += dy * (double)b->weight[w];
			s->grad[w] += dy * (double)b->x[x * in + i];
		}
		s->y[y * out + o] += sum;
	}
}

static void add_up(const struct bed *b, struct sums *s)
{
	const struct conv *c = &b->c;
	for (int y = 0; y < c->images * b->out_h * b->out_w; y++) {
		int image = y / (b->out_h * b->out_w), oy = y / b->out_w % b->out_h, ox = y % b->out_w;
		for (int t = 0; t < 9; t++) {
			int iy = oy * c->stride - c->top + t / 3, ix = ox * c->stride - c->left + t % 3;
			if (iy >= 0 && iy < c->h && ix >= 0 && ix < c->w)
				add_products(b, s, (uint64_t)((image * c->h + iy) * c->w + ix), (uint64_t)y,
					     (uint64_t)t);
		}
	}
}

static void expect_close(const struct conv *c, const char *what, const float *got, const double *want, uint64_t n,
			 double factor)
{
	double diff = 0.0, norm = 0.0;
	for (uint64_t i = 0; i < n; i++) {
		double d = (double)got[i] - factor * want[i];
		diff += d * d;
		norm += factor * want[i] * factor * want[i];
	}
	if (!(sqrt(diff) <= TOLERANCE * sqrt(norm)))
		fail_msg("%s of %dx%dx%dx%d to %d channels, stride %d, padding %d %d %d %d: relative L2 error %.3g",
			 what, c->images, c->h, c->w, c->in, c->out, c->stride, c->top, c->bottom, c->left, c->right,
			 sqrt(diff / norm));
}

static void check_conv(const struct conv *c, int threads, int chunks)
{
	struct bed b = make_bed(c);
	struct sums s = {gp_calloc(b.y_count, sizeof(double)), gp_calloc(b.x_count, sizeof(double)),
			 gp_calloc(b.w_count, sizeof(double))};
	assert_true(s.y && s.dx && s.grad);
	run(&b, threads, chunks);
	add_up(&b, &s);
	expect_close(c, "output", b.y, s.y, b.y_count, 1.0);
	expect_close(c, "input gradient", b.dx, s.dx, b.x_count, 1.0);
	expect_close(c, "weight gradient", b.grad, s.grad, b.w_count, (double)chunks);
	gp_free(s.y);
	gp_free(s.dx);
	gp_free(s.grad);
	drop_bed(&b);
}

/* --- tests ------------------------------------------------------------------------------------------------------ */

static void convolutions_are_right_for_all_geometries(void **state)
{
	(void)state;
	if (!gp_wino_supported())
		skip();
	for (size_t i = 0; i < CONVS; i++)
		check_conv(&convs[i], 1, 1);
}

static void gradients_add_up_over_chunks(void **state)
{
	(void)state;
	if (!gp_wino_supported())
		skip();
	for (size_t i = 0; i < CONVS; i++)
		check_conv(&convs[i], 2, 3);
}

static void most_channels_are_right_within_tolerance(void **state)
{
	(void)state;
	if (!gp_wino_supported())
		skip();
	check_conv(&(struct conv){2, 4, 4, 512, 16, 1, 1, 1, 1, 1}, 1, 1);
	check_conv(&(struct conv){1, 4, 3, 16, 512, 1, 1, 1, 1, 1}, 1, 1);
	check_conv(&(struct conv){1, 2, 2, 512, 512, 1, 1, 1, 1, 1}, 1, 1);
	check_conv(&(struct conv){1, 5, 8, 512, 48, 1, 1, 1, 1, 2}, 1, 1);
	check_conv(&(struct conv){1, 8, 8, 48, 512, 1, 1, 1, 1, 2}, 1, 1);
}

/* One partial sum per thread: the same within rounding. */
static void expect_same_gradient(const struct bed *one, const struct bed *many)
{
	double *want = gp_calloc(one->w_count, sizeof *want);
	assert_non_null(want);
	for (uint64_t i = 0; i < one->w_count; i++)
		want[i] = (double)one->grad[i];
	expect_close(&one->c, "weight gradient", many->grad, want, one->w_count, 1.0);
	gp_free(want);
}

static void threads_change_no_bit_of_the_data(void **state)
{
	(void)state;
	if (!gp_wino_supported())
		skip();
	for (size_t i = 0; i < CONVS; i++) {
		if (left_to_plain_runs(EVERY, (int)i))
			continue;
		struct bed one = make_bed(&convs[i]);
		run(&one, 1, 2);
		for (int threads = 2; threads <= MAX_THREADS; threads++) {
			struct bed many = make_bed(&convs[i]);
			run(&many, threads, 2);
			assert_memory_equal(one.y, many.y, one.y_count * sizeof(float));
			assert_memory_equal(one.dx, many.dx, one.x_count * sizeof(float));
			expect_same_gradient(&one, &many);
			drop_bed(&many);
		}
		drop_bed(&one);
	}
}

static void a_gradient_is_the_same_again(void **state)
{
	(void)state;
	if (!gp_wino_supported())
		skip();
	for (size_t i = 0; i < CONVS; i++) {
		if (left_to_plain_runs(EVERY, (int)i))
			continue;
		struct bed first = make_bed(&convs[i]), again = make_bed(&convs[i]);
		run(&first, MAX_THREADS, 2);
		run(&again, MAX_THREADS, 2);
		assert_memory_equal(first.grad, again.grad, first.w_count * sizeof(float));
		drop_bed(&first);
		drop_bed(&again);
	}
}

static void an_image_does_not_depend_on_its_batch(void **state)
{
	(void)state;
	if (!gp_wino_supported())
		skip();
	for (size_t i = 0; i < CONVS; i++) {
		if (left_to_plain_runs(EVERY, (int)i))
			continue;
		struct bed all = make_bed(&convs[i]), alone = make_bed(&convs[i]);
		int last = convs[i].images - 1;
		run(&all, 1, 1);
		run_images(&alone, last, 1, 1, 1);
		uint64_t x = all.x_count / (uint64_t)convs[i].images, y = all.y_count / (uint64_t)convs[i].images;
		assert_memory_equal(all.y + y * (uint64_t)last, alone.y + y * (uint64_t)last, y * sizeof(float));
		assert_memory_equal(all.dx + x * (uint64_t)last, alone.dx + x * (uint64_t)last, x * sizeof(float));
		drop_bed(&all);
		drop_bed(&alone);
	}
}

static bool fits(int kernel, int stride, int groups, int in, int out, bool bias)
{
	const struct gp_shape shape = {.ndim = 3, .dim = {8, 8, in}};
	struct gp_node n = {.op = GP_OP_CONV2D};
	gp_set_conv_attr(&n,
			 (struct gp_conv_attr){out, kernel, kernel, stride, stride, 1, 1, 1, 1, 0, 0, groups, bias});
	return gp_cpu_winograd_fits(&n, &shape);
}

static void other_convolutions_and_processors_are_left_alone(void **state)
{
	(void)state;
	assert_true(fits(3, 1, 1, 32, 32, false) == gp_wino_supported());
	assert_false(fits(5, 1, 1, 32, 32, false));
	assert_true(fits(3, 2, 1, 64, 128, false) == gp_wino_supported());
	assert_false(fits(3, 2, 1, 32, 64, false));
	assert_false(fits(3, 3, 1, 32, 32, false));
	assert_false(fits(3, 1, 2, 32, 32, false));
	assert_false(fits(3, 1, 1, 3, 32, false));
	assert_false(fits(3, 1, 1, 32, 8, false));
	assert_false(fits(3, 1, 1, 32, 2048, false));
	assert_false(fits(3, 1, 1, 32, 32, true));
	const enum gp_isa isa = gp_isa();
	gp_isa_limit(GP_ISA_PORTABLE);
	bool without = fits(3, 1, 1, 32, 32, false);
	gp_isa_limit(isa);
	assert_false(without);
}

static void every_processor_gives_the_same_bits(void **state)
{
	(void)state;
	uint64_t bits = BITS_BEGIN;
	if (!gp_wino_supported())
		skip();
	for (size_t i = 0; i < CONVS; i++) {
		struct bed b = make_bed(&convs[i]);
		run(&b, 1, 2);
		bits = bits_of(bits, b.y, (int64_t)b.y_count);
		bits = bits_of(bits, b.dx, (int64_t)b.x_count);
		bits = bits_of(bits, b.grad, (int64_t)b.w_count);
		drop_bed(&b);
	}
	assert_int_equal(bits, BITS);
}

static int all_tests(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(convolutions_are_right_for_all_geometries),
		cmocka_unit_test(gradients_add_up_over_chunks),
		cmocka_unit_test(most_channels_are_right_within_tolerance),
		cmocka_unit_test(threads_change_no_bit_of_the_data),
		cmocka_unit_test(a_gradient_is_the_same_again),
		cmocka_unit_test(an_image_does_not_depend_on_its_batch),
		cmocka_unit_test(other_convolutions_and_processors_are_left_alone),
		cmocka_unit_test(every_processor_gives_the_same_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	return each_isa(all_tests);
}

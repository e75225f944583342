/* SPDX-License-Identifier: Apache-2.0
 *
 * start=pca of convolutions: their error is that of the best linear map of patches.
 */
#include <string.h>

#include "client/data/data_internal.h"
#include "client/insert/eigen.h"
#include "client/insert/insert_fit.h"
#include "client/insert/insert_pca.h"
#include "common/base/rng.h"
#include "common/graph/ops/op_conv.h"
#include "tests/unit/ok.h"

enum { SAMPLES = 64, BATCH = 16, CHANNELS = 3, MOST = 18 * 20 * CHANNELS, FEATURES = 4 * CHANNELS };

/* --- samples in memory ------------------------------------------------------------------------------------------- */

static float pixels[SAMPLES][MOST];
/* More samples than those in memory: 1 in the first number of the first 512, in the second number of the others. */
static uint32_t rare;

static enum gp_status write_sample(const struct gp_dataset *d, uint32_t index, struct gp_data_scratch *scratch,
				   void *const *tensor, struct gp_err *e)
{
	(void)scratch, (void)e;
	if (!rare) {
		memcpy(tensor[0], pixels[index], gp_tensor_bytes(&d->tensor[0]));
		return GP_OK;
	}
	memset(tensor[0], 0, gp_tensor_bytes(&d->tensor[0]));
	((float *)tensor[0])[index < GP_PCA_SAMPLES ? 0 : 1] = 1;
	return GP_OK;
}

static int32_t label_of(const struct gp_dataset *d, uint32_t index)
{
	(void)d, (void)index;
	return 0;
}

static const struct gp_dataset_class memory = {.info = {.name = "memory"}, .write = write_sample, .label = label_of};

static struct gp_dataset data_of(int height, int width)
{
	const struct gp_shape shape = {.ndim = 3, .dim = {height, width, CHANNELS}};
	return (struct gp_dataset){.class = &memory,
				   .samples = rare ? rare : SAMPLES,
				   .classes = 1,
				   .tensors = 1,
				   .tensor = {{.name = "image", .type = {GP_F32, shape}}}};
}

static double normal(const char *what, int index)
{
	return (double)gp_rng_normal(5, gp_rng_stream(GP_RNG_INIT, gp_rng_name_id(what)), (uint64_t)index);
}

/* A feature of the patch of 2x2 at (top,left), in the order of a convolution's weights: (C,2,2). */
static float *place(int sample, int width, int top, int left, int feature)
{
	const int row = top + feature / 2 % 2, column = left + feature % 2;
	return &pixels[sample][(row * width + column) * CHANNELS + feature / 4];
}

static void fill_patch(int sample, int width, int top, int left, int directions)
{
	const int number = (sample / 2 * 100 + top / 2 * (width / 2) + left / 2) * FEATURES;
	for (int d = 0; d < directions; d++) {
		const double z = normal("z", number + d) * (sample % 2 ? -1 : 1) / (d + 1);
		for (int f = 0; f < FEATURES; f++)
			*place(sample, width, top, left, f) += (float)(z * normal("direction", d * FEATURES + f));
	}
}

/*
 * Patches are sums of `directions`, the same for all, about a mean of each channel; at the bottom and at the right of odd
 * sizes, behind the last patch, stands the mean. Every other sample has the opposite of the one before it, so that the
 * mean is exact.
 */
static void fill(int height, int width, int directions, double mean)
{
	for (int s = 0; s < SAMPLES; s++) {
		for (int i = 0; i < height * width * CHANNELS; i++)
			pixels[s][i] = (float)(mean * (i % CHANNELS + 1));
		for (int top = 0; top + 2 <= height; top += 2)
			for (int left = 0; left + 2 <= width; left += 2)
				fill_patch(s, width, top, left, directions);
	}
}

/* --- a model that gives its input to the cut -------------------------------------------------------------------- */

static struct gp_graph *build(const struct gp_shape *shape)
{
	static const char *const block[] = {"head", "body", "tail"};
	struct gp_graph *g = gp_graph_new("maps", shape, &err);
	int x = 0;
	assert_non_null(g);
	for (int i = 0; i < 3; i++) {
		OK(gp_graph_begin_block(g, block[i], &err));
		x = gp_graph_conv(g, block[i], x, CHANNELS, 1, 1, 0, 1, false, &err);
		assert_true(x >= 0);
	}
	OK(gp_graph_finish(g, &err));
	return g;
}

static void make_identity(struct gp_weights *w)
{
	float *const value = w->value[gp_graph_find_param(w->graph, "head.weight")];
	for (int i = 0; i < CHANNELS * CHANNELS; i++)
		value[i] = i % (CHANNELS + 1) == 0;
}

/* The relative error that `text` starts with. */
static double error_of(const char *text, int height, int width)
{
	const struct gp_cut cut = {1, 2};
	const struct gp_loader_spec order = {.batch = BATCH, .prefetch = 1};
	struct gp_dataset data = data_of(height, width);
	struct gp_graph *plain = build(&data.tensor[0].type.shape), *whole = build(&data.tensor[0].type.shape);
	struct gp_insertion ins;
	struct gp_insert_fit fit = {
		.from = {.plain = plain, .cut = &cut, .ins = &ins, .device = "cpu", .threads = 1, .batch = BATCH},
		.check_batches = (rare ? rare : SAMPLES) / BATCH};
	struct gp_insert_error error;
	OK(gp_insertion_parse(NULL, text, NULL, &ins, &err));
	OK(gp_insert(&whole, &cut, &ins, &err));
	OK(gp_weights_new(whole, &fit.from.weights, &err));
	gp_weights_init(fit.from.weights, 1);
	make_identity(fit.from.weights);
	OK(gp_loader_new(&data, &order, &fit.from.loader, &err));
	OK(gp_loader_new(&data, &order, &fit.checks, &err));
	assert_true(gp_insert_wants_pca(&ins.end[GP_INSERT_UP]));
	OK(gp_insert_pca(&fit.from, GP_INSERT_UP, &err));
	OK(gp_insert_fit(&fit, GP_INSERT_UP, &error, &err));
	gp_loader_free(fit.checks);
	gp_loader_free(fit.from.loader);
	gp_weights_free(fit.from.weights);
	gp_graph_free(whole);
	gp_graph_free(plain);
	return error.before;
}

/* --- the best there is ------------------------------------------------------------------------------------------- */

/* Sums of products of the features of all patches, about the means, and what the squares themselves add up to. */
static double sum_products(int height, int width, double mean, double a[FEATURES * FEATURES])
{
	const int across = width / 2;
	double x[FEATURES], all = 0;
	for (int p = 0; p < SAMPLES * (height / 2) * across; p++) {
		const int of_sample = p % (height / 2 * across), sample = p / (height / 2 * across);
		for (int f = 0; f < FEATURES; f++) {
			x[f] = (double)*place(sample, width, of_sample / across * 2, of_sample % across * 2, f);
			all += x[f] * x[f];
			x[f] -= mean * (f / 4 + 1);
		}
		for (int i = 0; i < FEATURES * FEATURES; i++)
			a[i] += x[i / FEATURES] * x[i % FEATURES];
	}
	return all;
}

/* The relative error of `out` directions about the means, for maps of even sides. */
static double best_error(int height, int width, int out, double mean)
{
	double a[FEATURES * FEATURES] = {0}, value[FEATURES], lost = 0;
	const double all = sum_products(height, width, mean, a);
	OK(gp_eigen_symmetric(a, value, FEATURES, &err));
	for (int i = out; i < FEATURES; i++)
		lost += value[i];
	return sqrt(lost / all);
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

static void assert_near(double got, double want, double tolerance)
{
	if (!(fabs(got - want) <= tolerance))
		fail_msg("%.9f, not %.9f", got, want);
}

static void patches_of_few_directions_come_back(void **state)
{
	(void)state;
	fill(6, 8, 4, 3);
	assert_near(error_of("conv:out=4,k=2,s=2,start=pca", 6, 8), 0, 1e-5);
	assert_true(error_of("conv:out=3,k=2,s=2,start=pca", 6, 8) > 1e-3);
	assert_near(error_of("conv:out=5,k=2,s=2,bias=0,start=pca", 6, 8), 0, 1e-5);
	assert_true(error_of("conv:out=4,k=2,s=2,bias=0,start=pca", 6, 8) > 1e-3);
}

/* What is behind the last whole patch is in no direction, and comes back as the bias. */
static void what_the_stride_leaves_over_is_no_patch(void **state)
{
	(void)state;
	fill(7, 9, 4, 3);
	assert_near(error_of("conv:out=4,k=2,s=2,start=pca", 7, 9), 0, 1e-5);
	fill(5, 8, 4, 0);
	assert_near(error_of("conv:out=4,k=2,s=2,bias=0,start=pca", 5, 8), 0, 1e-5);
}

static void no_other_directions_are_better(void **state)
{
	(void)state;
	fill(6, 8, FEATURES, 0);
	assert_near(error_of("conv:out=5,k=2,s=2,bias=0,start=pca", 6, 8), best_error(6, 8, 5, 0), 1e-6);
	fill(6, 8, FEATURES, 2);
	assert_near(error_of("conv:out=5,k=2,s=2,start=pca", 6, 8), best_error(6, 8, 5, 2), 1e-6);
	assert_near(error_of("conv:out=5,k=2,s=2,bias=0,start=pca", 6, 8), best_error(6, 8, 5, 0), 1e-6);
	assert_near(error_of("conv:out=12,k=2,s=2,start=pca", 6, 8), 0, 1e-6);
}

/* Those that are read have a mean that is only near that of all, which takes a direction of its own. */
static void of_many_patches_some_are_read(void **state)
{
	(void)state;
	assert_true(9 * 10 > GP_PCA_ROWS);
	fill(18, 20, 4, 0);
	assert_near(error_of("conv:out=4,k=2,s=2,bias=0,start=pca", 18, 20), 0, 1e-5);
	fill(18, 20, 4, 3);
	assert_near(error_of("conv:out=5,k=2,s=2,start=pca", 18, 20), 0, 1e-5);
}

/* An even number of columns, of which those that are read of one sample are all even. */
static void every_column_of_a_map_is_read(void **state)
{
	(void)state;
	memset(pixels, 0, sizeof pixels);
	for (int s = 0; s < SAMPLES; s++)
		for (int i = 0; i < 18 * 20; i++)
			pixels[s][i * CHANNELS + i % 20 % 2] = 1;
	assert_near(error_of("linear:rank=2,dim=feature,start=pca", 18, 20), 0, 1e-5);
	memset(pixels, 0, sizeof pixels);
	for (int s = 0; s < SAMPLES; s++)
		for (int i = 0; i < 18 * 20; i++)
			pixels[s][i * CHANNELS + i % 20 / 2 % 2] = 1;
	assert_near(error_of("conv:out=2,k=2,s=2,bias=0,start=pca", 18, 20), 0, 1e-5);
}

static void many_features_in_few_patches_take_more_samples(void **state)
{
	(void)state;
	rare = 2048;
	const double error = error_of("conv:out=2,k=4,s=4,bias=0,start=pca", 4, 4);
	rare = GP_PCA_SAMPLES + BATCH; /* an epoch is read, and no more */
	const double short_epoch = error_of("conv:out=2,k=4,s=4,bias=0,start=pca", 4, 4);
	rare = 0;
	assert_near(error, 0, 1e-5);
	assert_near(short_epoch, 0, 1e-5);
}

static void a_second_set_works_on_what_the_first_makes(void **state)
{
	(void)state;
	fill(6, 8, FEATURES, 0);
	const double one = error_of("conv:out=3,k=2,s=2,bias=0,start=pca", 6, 8);
	assert_near(error_of("conv:out=8,k=2,s=2,bias=0,start=pca/conv:out=3,k=1,s=1,bias=0,start=pca", 6, 8), one,
		    1e-6);
	assert_near(error_of("conv:out=8,k=2,s=2,start=pca/linear:rank=3,dim=feature,start=pca", 6, 8), one, 1e-6);
}

static void a_kernel_of_one_is_linear(void **state)
{
	(void)state;
	fill(6, 8, FEATURES, 2);
	assert_near(error_of("conv:out=2,k=1,s=1,bias=0,start=pca", 6, 8),
		    error_of("linear:rank=2,dim=feature,start=pca", 6, 8), 1e-6);
}

static void more_channels_than_a_patch_has_numbers_are_refused(void **state)
{
	(void)state;
	const struct gp_shape shape = {.ndim = 3, .dim = {6, 8, CHANNELS}};
	const struct gp_cut cut = {1, 2};
	struct gp_graph *g = build(&shape);
	struct gp_insertion ins;
	OK(gp_insertion_parse(NULL, "conv:out=13,k=2,s=2,start=pca", NULL, &ins, &err));
	assert_int_equal(gp_insert(&g, &cut, &ins, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "out=13 is above the 12 numbers of a patch"));
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patches_of_few_directions_come_back),
		cmocka_unit_test(what_the_stride_leaves_over_is_no_patch),
		cmocka_unit_test(no_other_directions_are_better),
		cmocka_unit_test(of_many_patches_some_are_read),
		cmocka_unit_test(every_column_of_a_map_is_read),
		cmocka_unit_test(many_features_in_few_patches_take_more_samples),
		cmocka_unit_test(a_second_set_works_on_what_the_first_makes),
		cmocka_unit_test(a_kernel_of_one_is_linear),
		cmocka_unit_test(more_channels_than_a_patch_has_numbers_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

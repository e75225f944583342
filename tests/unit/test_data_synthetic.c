/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic images (client/data/data_synthetic.c).
 */
#include "tests/unit/data_files.h"

#include <math.h>

enum { PIXELS = 3 * 16 * 16, CLASSES = 5 };
static const char spec[] = "synthetic:shape=3x16x16,classes=5,samples=200";
static const struct gp_dataset_options as_is;

static void defaults_follow_the_model(void **state)
{
	struct gp_dataset_options wants = {.shape = {.ndim = 3, .dim = {12, 20, 1}}};
	(void)state;
	struct gp_dataset *d = open_data("synthetic", GP_SPLIT_TRAIN, &wants);
	assert_true(gp_shape_equal(gp_dataset_shape(d), &wants.shape));
	assert_int_equal(gp_dataset_classes(d), 10);
	assert_int_equal(gp_dataset_samples(d), 10000);
	gp_dataset_free(d);
	d = open_data("synthetic:samples=50,limit=7", GP_SPLIT_TRAIN, &as_is);
	assert_int_equal(gp_dataset_samples(d), 7);
	assert_int_equal(gp_dataset_shape(d)->dim[1], 32);
	gp_dataset_free(d);
	d = open_data("synthetic:samples=50", GP_SPLIT_VAL, &as_is);
	assert_int_equal(gp_dataset_samples(d), 10);
	gp_dataset_free(d);
}

static void samples_are_reproducible_and_differ(void **state)
{
	float a[PIXELS], b[PIXELS];
	(void)state;
	struct gp_dataset *d = open_data(spec, GP_SPLIT_TRAIN, &as_is), *e = open_data(spec, GP_SPLIT_TRAIN, &as_is);
	struct gp_dataset *val = open_data(spec, GP_SPLIT_VAL, &as_is);
	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(load_sample(d, 0, i, a), load_sample(e, 0, i, b));
		assert_memory_equal(a, b, sizeof a);
		load_sample(d, 0, i + CLASSES, b);
		assert_memory_not_equal(a, b, sizeof a);
		load_sample(val, 0, i, b);
		assert_memory_not_equal(a, b, sizeof a);
	}
	gp_dataset_free(d);
	gp_dataset_free(e);
	gp_dataset_free(val);
}

/* Mean image of every class over the training samples. */
static void class_means(const struct gp_dataset *d, double mean[CLASSES][PIXELS])
{
	float image[PIXELS];
	int count[CLASSES] = {0};
	memset(mean, 0, sizeof(double) * CLASSES * PIXELS);
	for (uint32_t i = 0; i < gp_dataset_samples(d); i++) {
		int32_t label = load_sample(d, 0, i, image);
		count[label]++;
		for (int p = 0; p < PIXELS; p++)
			mean[label][p] += image[p];
	}
	for (int c = 0; c < CLASSES; c++)
		for (int p = 0; p < PIXELS; p++)
			mean[c][p] /= count[c];
}

static void nearest_class_mean_recognises_validation_samples(void **state)
{
	static double mean[CLASSES][PIXELS];
	float image[PIXELS];
	int right = 0;
	(void)state;
	struct gp_dataset *d = open_data(spec, GP_SPLIT_TRAIN, &as_is), *val = open_data(spec, GP_SPLIT_VAL, &as_is);
	class_means(d, mean);
	for (uint32_t i = 0; i < gp_dataset_samples(val); i++) {
		int32_t label = load_sample(val, 0, i, image), best = 0;
		double least = INFINITY;
		for (int c = 0; c < CLASSES; c++) {
			double distance = 0;
			for (int p = 0; p < PIXELS; p++)
				distance += (image[p] - mean[c][p]) * (image[p] - mean[c][p]);
			if (distance < least) {
				least = distance;
				best = c;
			}
		}
		right += best == label;
	}
	assert_true(right >= 38); /* of 40 */
	gp_dataset_free(d);
	gp_dataset_free(val);
}

static void noise_is_as_wide_as_asked(void **state)
{
	float quiet[PIXELS], loud[PIXELS];
	double squares = 0;
	static const char *const specs[] = {"synthetic:shape=3x16x16,noise=0", "synthetic:shape=3x16x16,noise=0.25"};
	(void)state;
	struct gp_dataset *a = open_data(specs[0], GP_SPLIT_TRAIN, &as_is),
			  *b = open_data(specs[1], GP_SPLIT_TRAIN, &as_is);
	for (uint32_t i = 0; i < 20; i++) {
		load_sample(a, 0, i, quiet);
		load_sample(b, 0, i, loud);
		for (int p = 0; p < PIXELS; p++)
			squares += (loud[p] - quiet[p]) * (loud[p] - quiet[p]);
	}
	/* uniform on a quarter of the 8-bit range, in units of std = 0.25; a little is lost where values are clamped */
	double deviation = sqrt(squares / (20.0 * PIXELS)), wanted = 0.25 / sqrt(12) / 0.25;
	assert_true(deviation > 0.8 * wanted && deviation < 1.05 * wanted);
	gp_dataset_free(a);
	gp_dataset_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_follow_the_model),
		cmocka_unit_test(samples_are_reproducible_and_differ),
		cmocka_unit_test(nearest_class_mean_recognises_validation_samples),
		cmocka_unit_test(noise_is_as_wide_as_asked),
	};
	return cmocka_run_group_tests(tests, make_data_dir, remove_data_dir);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Geometry, augmentation and normalisation (client/data/data_transform.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/data/data_internal.h"

static struct gp_data_scratch scratch;

static int free_scratch(void **state)
{
	(void)state;
	gp_data_scratch_deinit(&scratch);
	return 0;
}

/* A dataset of images of that size (0: any) with mean 0.5, std 0.25. */
static struct gp_dataset source(int height, int width, int channels)
{
	return (struct gp_dataset){
		.class = height ? &gp_data_idx : &gp_data_folder,
		.source_height = height,
		.source_width = width,
		.source_channels = channels,
		.pad_when_near = true,
		.flip = true,
		.mean = {0.5f, 0.5f, 0.5f},
		.std = {0.25f, 0.25f, 0.25f},
	};
}

static void init(struct gp_dataset *d, enum gp_split split, int height, int width, int channels)
{
	struct gp_data_spec spec = {.augment = -1, .flip = -1};
	struct gp_dataset_options options = {.shape = {.ndim = 3, .dim = {height, width, channels}}, .augment = true};
	struct gp_err err;
	assert_int_equal(gp_transform_init(d, &spec, split, &options, &err), GP_OK);
}

static void apply(const struct gp_dataset *d, const struct gp_image *image, uint32_t epoch, uint32_t sample, float *out)
{
	struct gp_draw draw = {9, epoch, sample};
	struct gp_err err = {0};
	if (gp_transform_apply(&d->transform, image, &draw, &scratch, out, &err) != GP_OK)
		fail_msg("%s", err.text);
}

static float normal(int v)
{
	return ((float)v / 255.0f - 0.5f) / 0.25f;
}

/* A picture whose bytes all differ from their neighbours. */
static struct gp_image picture(uint8_t *pixels, int height, int width, int channels)
{
	for (int i = 0; i < height * width * channels; i++)
		pixels[i] = (uint8_t)(1 + i * 7 % 251);
	return (struct gp_image){pixels, height, width, channels, (size_t)(width * channels)};
}

static void a_little_larger_input_gets_a_black_border(void **state)
{
	uint8_t pixels[28 * 28];
	float out[32 * 32];
	(void)state;
	struct gp_dataset d = source(28, 28, 1);
	struct gp_image image = picture(pixels, 28, 28, 1);
	init(&d, GP_SPLIT_VAL, 32, 32, 1);
	assert_int_equal(d.tensor[0].type.shape.dim[0], 32);
	apply(&d, &image, 0, 0, out);
	for (int y = 0; y < 32; y++)
		for (int x = 0; x < 32; x++) {
			bool inside = y >= 2 && y < 30 && x >= 2 && x < 30;
			assert_true(out[y * 32 + x] == normal(inside ? pixels[(y - 2) * 28 + x - 2] : 0));
		}
}

static void other_inputs_are_resized(void **state)
{
	uint8_t pixels[28 * 28 * 3], wanted[64 * 48 * 3];
	float out[64 * 48 * 3];
	struct gp_err err;
	(void)state;
	struct gp_dataset d = source(28, 28, 3);
	struct gp_image image = picture(pixels, 28, 28, 3);
	init(&d, GP_SPLIT_VAL, 64, 48, 3);
	apply(&d, &image, 0, 0, out);
	assert_int_equal(gp_image_resize(&image, 64, 48, &(struct gp_window){0, 0, 64, 48}, &scratch, wanted, &err),
			 GP_OK);
	for (size_t i = 0; i < sizeof wanted; i++)
		assert_true(out[i] == normal(wanted[i]));
}

static void gray_becomes_three_equal_channels(void **state)
{
	uint8_t pixels[6 * 6];
	float out[6 * 6 * 3], large[20 * 20 * 3];
	(void)state;
	struct gp_dataset d = source(6, 6, 1);
	struct gp_image image = picture(pixels, 6, 6, 1);
	init(&d, GP_SPLIT_VAL, 6, 6, 3);
	apply(&d, &image, 0, 0, out);
	for (int i = 0; i < 36; i++)
		for (int c = 0; c < 3; c++)
			assert_true(out[3 * i + c] == normal(pixels[i]));
	init(&d, GP_SPLIT_VAL, 20, 20, 3);
	apply(&d, &image, 0, 0, large);
	for (int i = 0; i < 400; i++)
		assert_true(large[3 * i] == large[3 * i + 1] && large[3 * i] == large[3 * i + 2]);
}

/* True when `out` is the image seen shifted by (dy,dx), black outside, perhaps mirrored. */
static bool is_view(const uint8_t *pixels, int side, int dy, int dx, bool mirror, const float *out)
{
	for (int y = 0; y < side; y++)
		for (int x = 0; x < side; x++) {
			int from_y = y + dy, from_x = x + dx, v = 0;
			if (from_y >= 0 && from_y < side && from_x >= 0 && from_x < side)
				v = pixels[from_y * side + (mirror ? side - 1 - from_x : from_x)];
			if (out[y * side + x] != normal(v))
				return false;
		}
	return true;
}

static void crops_shift_and_mirror_within_their_bounds(void **state)
{
	enum { SIDE = 32, SHIFT = 4, SPAN = 2 * SHIFT + 1, DRAWS = 2000 };
	static uint8_t pixels[SIDE * SIDE];
	static float out[SIDE * SIDE];
	int seen[SPAN][SPAN][2] = {0}, distinct = 0;
	(void)state;
	struct gp_dataset d = source(SIDE, SIDE, 1);
	struct gp_image image = picture(pixels, SIDE, SIDE, 1);
	init(&d, GP_SPLIT_TRAIN, SIDE, SIDE, 1);
	for (uint32_t i = 0; i < DRAWS; i++) {
		int found = 0;
		apply(&d, &image, 0, i, out);
		for (int view = 0; view < SPAN * SPAN * 2; view++) {
			int dy = view / 2 / SPAN, dx = view / 2 % SPAN, mirror = view % 2;
			if (!is_view(pixels, SIDE, dy - SHIFT, dx - SHIFT, mirror, out))
				continue;
			found++;
			distinct += !seen[dy][dx][mirror]++;
		}
		assert_int_equal(found, 1);
	}
	assert_int_equal(distinct, SPAN * SPAN * 2);
}

static void draws_depend_on_seed_epoch_and_sample_only(void **state)
{
	uint8_t pixels[32 * 32];
	float a[32 * 32], b[32 * 32];
	int same_epoch = 0, same_sample = 0;
	(void)state;
	struct gp_dataset d = source(32, 32, 1);
	struct gp_image image = picture(pixels, 32, 32, 1);
	init(&d, GP_SPLIT_TRAIN, 32, 32, 1);
	for (uint32_t i = 0; i < 50; i++) {
		apply(&d, &image, 3, i, a);
		apply(&d, &image, 3, i, b);
		assert_memory_equal(a, b, sizeof a);
		apply(&d, &image, 4, i, b);
		same_epoch += memcmp(a, b, sizeof a) == 0;
		apply(&d, &image, 3, i + 1, b);
		same_sample += memcmp(a, b, sizeof a) == 0;
	}
	assert_true(same_epoch < 5 && same_sample < 5);
}

static bool augments(enum gp_split split, int spec_augment, bool wanted)
{
	struct gp_dataset d = source(32, 32, 1);
	struct gp_data_spec spec = {.augment = spec_augment, .flip = -1};
	struct gp_dataset_options options = {.augment = wanted};
	struct gp_err err;
	assert_int_equal(gp_transform_init(&d, &spec, split, &options, &err), GP_OK);
	return d.transform.augment;
}

static void only_training_is_augmented_and_the_text_decides(void **state)
{
	(void)state;
	assert_true(augments(GP_SPLIT_TRAIN, -1, true));
	assert_false(augments(GP_SPLIT_TRAIN, -1, false));
	assert_false(augments(GP_SPLIT_TRAIN, 0, true));
	assert_true(augments(GP_SPLIT_TRAIN, 1, false));
	assert_false(augments(GP_SPLIT_VAL, 1, true));
}

static void validation_photographs_are_scaled_then_cut_in_the_middle(void **state)
{
	static uint8_t pixels[400 * 300 * 3], wanted[112 * 112 * 3];
	static float out[112 * 112 * 3];
	struct gp_err err;
	(void)state;
	struct gp_dataset d = source(0, 0, 3);
	struct gp_image image = picture(pixels, 400, 300, 3);
	init(&d, GP_SPLIT_VAL, 112, 112, 3);
	apply(&d, &image, 0, 0, out);
	/* the shorter side becomes 112 * 256/224 = 128, the other 170 */
	struct gp_window window = {(170 - 112) / 2, (128 - 112) / 2, 112, 112};
	assert_int_equal(gp_image_resize(&image, 170, 128, &window, &scratch, wanted, &err), GP_OK);
	for (size_t i = 0; i < sizeof wanted; i++)
		assert_true(out[i] == normal(wanted[i]));
}

static void small_validation_photographs_are_only_enlarged_to_size(void **state)
{
	static uint8_t pixels[100 * 120 * 3], wanted[112 * 112 * 3];
	static float out[112 * 112 * 3];
	struct gp_err err;
	(void)state;
	struct gp_dataset d = source(0, 0, 3);
	struct gp_image image = picture(pixels, 100, 120, 3);
	init(&d, GP_SPLIT_VAL, 112, 112, 3);
	apply(&d, &image, 0, 0, out);
	struct gp_window window = {0, (134 - 112) / 2, 112, 112};
	assert_int_equal(gp_image_resize(&image, 112, 134, &window, &scratch, wanted, &err), GP_OK);
	for (size_t i = 0; i < sizeof wanted; i++)
		assert_true(out[i] == normal(wanted[i]));
}

static void photographs_of_any_size_fill_the_input(void **state)
{
	static const int sizes[][2] = {{1, 1}, {1, 300}, {300, 1}, {16, 16}, {17, 1000}, {90, 61}};
	static uint8_t pixels[17 * 1000 * 3];
	float out[16 * 16 * 3];
	(void)state;
	memset(pixels, 200, sizeof pixels);
	for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
		for (uint32_t i = 0; i < 40; i++) {
			struct gp_dataset d = source(0, 0, 3);
			struct gp_image image = {pixels, sizes[k][0], sizes[k][1], 3, (size_t)sizes[k][1] * 3};
			init(&d, i % 2 ? GP_SPLIT_TRAIN : GP_SPLIT_VAL, 16, 16, 3);
			apply(&d, &image, 0, i, out);
			for (int p = 0; p < 16 * 16 * 3; p++)
				assert_true(out[p] == normal(200));
		}
}

static void training_boxes_vary_in_place_size_and_side(void **state)
{
	/* Bright to the right: the mean of a crop tells where it was, its slope how wide and whether mirrored. */
	enum { SIDE = 200, DRAWS = 200 };
	static uint8_t pixels[SIDE * SIDE * 3];
	float out[16 * 16 * 3];
	int mirrored = 0, small = 0, left = 0, right = 0;
	(void)state;
	for (int i = 0; i < SIDE * SIDE; i++)
		memset(pixels + 3 * i, i % SIDE, 3);
	struct gp_dataset d = source(0, 0, 3);
	struct gp_image image = {pixels, SIDE, SIDE, 3, SIDE * 3};
	init(&d, GP_SPLIT_TRAIN, 16, 16, 3);
	for (uint32_t i = 0; i < DRAWS; i++) {
		apply(&d, &image, 0, i, out);
		float slope = out[45] - out[0], centre = (out[45] + out[0]) / 2;
		mirrored += slope < 0;
		small += slope * slope < (normal(100) - normal(0)) * (normal(100) - normal(0));
		left += centre < normal(80);
		right += centre > normal(120);
	}
	assert_in_range(mirrored, 70, 130);
	assert_in_range(small, 10, 120);
	assert_in_range(left, 20, 120);
	assert_in_range(right, 20, 120);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_little_larger_input_gets_a_black_border),
		cmocka_unit_test(other_inputs_are_resized),
		cmocka_unit_test(gray_becomes_three_equal_channels),
		cmocka_unit_test(crops_shift_and_mirror_within_their_bounds),
		cmocka_unit_test(draws_depend_on_seed_epoch_and_sample_only),
		cmocka_unit_test(only_training_is_augmented_and_the_text_decides),
		cmocka_unit_test(validation_photographs_are_scaled_then_cut_in_the_middle),
		cmocka_unit_test(small_validation_photographs_are_only_enlarged_to_size),
		cmocka_unit_test(photographs_of_any_size_fill_the_input),
		cmocka_unit_test(training_boxes_vary_in_place_size_and_side),
	};
	return cmocka_run_group_tests(tests, NULL, free_scratch);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures given by their paths (client/data/data_files.c): prepared like another
 * dataset's validation images, and what is refused.
 */
#include "tests/unit/data_files.h"

#include <math.h>
#include <png.h>

enum { PIXELS_MAX = 256 * 256 * 3 };

static struct gp_dataset_options none;

static void write_png(const char *name, int width, int height, int channels, const uint8_t *pixels)
{
	png_image png = {.version = PNG_IMAGE_VERSION,
			 .width = (png_uint_32)width,
			 .height = (png_uint_32)height,
			 .format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
	assert_true(png_image_write_to_file(&png, data_path(name), 0, pixels, 0, NULL));
}

static void write_plain(const char *name, int width, int height, uint8_t red, uint8_t green, uint8_t blue)
{
	static uint8_t pixels[PIXELS_MAX];
	for (int i = 0; i < width * height; i++) {
		pixels[3 * i] = red;
		pixels[3 * i + 1] = green;
		pixels[3 * i + 2] = blue;
	}
	write_png(name, width, height, 3, pixels);
}

/* Opens a dataset from `count` names in the test's folder. */
static struct gp_dataset *open_files(const struct gp_dataset *like, const char *const *names, int count)
{
	char path[4][256];
	const char *paths[4];
	struct gp_dataset *d = NULL;
	struct gp_err err = {0};
	for (int i = 0; i < count; i++) {
		snprintf(path[i], sizeof path[i], "%s", data_path(names[i]));
		paths[i] = path[i];
	}
	if (gp_dataset_from_files(like, paths, count, &d, &err) != GP_OK)
		fail_msg("%s", err.text);
	return d;
}

static void a_picture_of_a_sample_is_that_sample(void **state)
{
	(void)state;
	static const char *const specs[] = {"synthetic:shape=3x20x24,samples=20", "synthetic:shape=1x20x24,samples=20"};
	static const char *const names[] = {"sample.png"};
	static float want[PIXELS_MAX], got[PIXELS_MAX];
	for (int i = 0; i < 2; i++) {
		struct gp_dataset *like = open_data(specs[i], GP_SPLIT_VAL, &none);
		struct gp_data_scratch scratch = {0};
		struct gp_image image;
		struct gp_err err = {0};
		assert_int_equal(like->class->read(like, 3, &scratch, &image, &err), GP_OK);
		write_png("sample.png", image.width, image.height, image.channels, image.pixels);
		load_sample(like, 0, 3, want);
		struct gp_dataset *d = open_files(like, names, 1);
		size_t bytes = gp_shape_elements(gp_dataset_shape(like)) * sizeof(float);
		gp_dataset_free(like);
		assert_int_equal(load_sample(d, 0, 0, got), 0);
		assert_memory_equal(got, want, bytes);
		assert_int_equal(gp_dataset_classes(d), 10);
		assert_string_equal(gp_dataset_class_name(d, 7), "class 7");
		gp_dataset_free(d);
		gp_data_scratch_deinit(&scratch);
	}
}

static void other_sizes_are_scaled_and_cut_and_colours_become_grey(void **state)
{
	(void)state;
	static const char *const names[] = {"wide.png", "tall.png", "tiny.png"};
	static float got[PIXELS_MAX];
	struct gp_dataset_options padded = {.shape = {.ndim = 3, .dim = {18, 18, 1}}};
	struct gp_dataset *like = open_data("synthetic:shape=1x16x16,samples=5,mean=0,std=1", GP_SPLIT_VAL, &padded);
	write_plain("wide.png", 100, 30, 255, 0, 0);
	write_plain("tall.png", 5, 200, 0, 255, 0);
	write_plain("tiny.png", 1, 1, 0, 0, 255);
	struct gp_dataset *d = open_files(like, names, 3);
	static const float luma[] = {76, 150, 29};
	assert_int_equal(gp_dataset_samples(d), 3);
	for (uint32_t i = 0; i < 3; i++) {
		load_sample(d, 0, i, got);
		assert_true(fabsf(got[9 * 18 + 9] - luma[i] / 255) < 1e-6f);
	}
	gp_dataset_free(d);
	gp_dataset_free(like);
}

/* The middle of a picture twice as wide as high is what is seen. */
static void the_centre_is_kept(void **state)
{
	(void)state;
	static uint8_t pixels[16 * 32 * 3];
	static float got[PIXELS_MAX];
	static const char *const names[] = {"halves.png"};
	struct gp_dataset *like = open_data("synthetic:shape=3x16x16,samples=5,mean=0,std=1", GP_SPLIT_VAL, &none);
	for (int y = 0; y < 16; y++)
		for (int x = 0; x < 32; x++)
			memset(pixels + 3 * (y * 32 + x), x < 8 || x >= 24 ? 255 : 0, 3);
	write_png("halves.png", 32, 16, 3, pixels);
	struct gp_dataset *d = open_files(like, names, 1);
	load_sample(d, 0, 0, got);
	for (int i = 0; i < 16 * 16 * 3; i++)
		assert_true(got[i] == 0);
	gp_dataset_free(d);
	gp_dataset_free(like);
}

static void folders_are_listed_in_order(void **state)
{
	(void)state;
	static const char *const names[] = {"album/b.png", "album"};
	struct gp_dataset *like = open_data("pictures:size=8,classes=3", GP_SPLIT_VAL, &none);
	assert_int_equal(mkdir(data_path("album"), 0700), 0);
	write_plain("album/b.png", 8, 8, 1, 2, 3);
	write_plain("album/a.png", 8, 8, 1, 2, 3);
	write_data_file("album/notes.txt", "x", 1);
	struct gp_dataset *d = open_files(like, names, 2);
	assert_int_equal(gp_dataset_samples(d), 3);
	assert_string_equal(gp_dataset_file(d, 0), data_path("album/b.png"));
	assert_string_equal(gp_dataset_file(d, 1), data_path("album/a.png"));
	assert_string_equal(gp_dataset_file(d, 2), data_path("album/b.png"));
	gp_dataset_free(d);
	gp_dataset_free(like);
}

static void expect_refused(const struct gp_dataset *like, const char *name, const char *message)
{
	const char *path = data_path(name);
	struct gp_dataset *d = NULL;
	struct gp_err err = {0};
	assert_int_equal(gp_dataset_from_files(like, &path, 1, &d, &err), GP_INVALID);
	assert_null(d);
	assert_message(&err, message);
}

static void what_is_no_picture_is_refused(void **state)
{
	(void)state;
	static const char *const names[] = {"text.png"};
	static float image[PIXELS_MAX];
	struct gp_dataset *like = open_data("pictures:size=8,classes=3", GP_SPLIT_VAL, &none);
	struct gp_data_scratch scratch = {0};
	struct gp_draw draw = {0};
	struct gp_err err = {0};
	int32_t label;
	expect_refused(like, "nowhere.png", "no file or folder DIR/nowhere.png");
	assert_int_equal(mkdir(data_path("empty"), 0700), 0);
	expect_refused(like, "empty", "no *.jpg, *.jpeg or *.png in DIR/empty (folders in it are not searched)");
	write_data_file("text.png", "hello", 5);
	struct gp_dataset *d = open_files(like, names, 1);
	assert_int_equal(gp_dataset_load(d, &draw, &scratch, (void *[]){image}, &label, &err), GP_INVALID);
	assert_message(&err, "DIR/text.png: neither JPEG nor PNG by its content; convert or remove it");
	gp_data_scratch_deinit(&scratch);
	gp_dataset_free(d);
	gp_dataset_free(like);
}

static void pictures_alone_are_no_dataset(void **state)
{
	(void)state;
	struct gp_dataset *d = open_data("pictures", GP_SPLIT_VAL, &none);
	struct gp_loader_spec spec = {.batch = 1, .prefetch = 1};
	struct gp_loader *l = NULL;
	struct gp_err err = {0};
	assert_int_equal(gp_dataset_classes(d), 1000);
	assert_int_equal(gp_loader_new(d, &spec, &l, &err), GP_INVALID);
	assert_string_equal(err.text, "dataset pictures has no samples of its own");
	gp_dataset_free(d);
	assert_open_fails("pictures", GP_SPLIT_TRAIN, GP_INVALID,
			  "dataset pictures has no images of its own; it says how `gpclient infer` prepares some");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_picture_of_a_sample_is_that_sample),
		cmocka_unit_test(other_sizes_are_scaled_and_cut_and_colours_become_grey),
		cmocka_unit_test(the_centre_is_kept),
		cmocka_unit_test(folders_are_listed_in_order),
		cmocka_unit_test(what_is_no_picture_is_refused),
		cmocka_unit_test(pictures_alone_are_no_dataset),
	};
	return cmocka_run_group_tests(tests, make_data_dir, remove_data_dir);
}

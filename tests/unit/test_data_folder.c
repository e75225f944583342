/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of pictures (client/data/data_folder.c).
 */
#include "tests/unit/data_files.h"

#include <png.h>
#include <turbojpeg.h>

#include "common/base/fault.h"

enum { SIDE = 16 };

static const struct gp_dataset_options as_is;

static void make_dir(const char *name)
{
	assert_int_equal(mkdir(data_path(name), 0700), 0);
}

/* A picture of one color, by the ending of its name. */
static void write_picture(const char *name, uint8_t color)
{
	uint8_t pixels[SIDE * SIDE * 3];
	memset(pixels, color, sizeof pixels);
	if (strstr(name, ".png")) {
		png_image png = {.version = PNG_IMAGE_VERSION, .width = SIDE, .height = SIDE, .format = PNG_FORMAT_RGB};
		assert_true(png_image_write_to_file(&png, data_path(name), 0, pixels, 0, NULL));
		return;
	}
	tjhandle h = tjInitCompress();
	unsigned char *bytes = NULL;
	unsigned long size = 0;
	assert_int_equal(tjCompress2(h, pixels, SIDE, 0, SIDE, TJPF_RGB, &bytes, &size, TJSAMP_420, 95, 0), 0);
	write_data_file(name, bytes, size);
	tjFree(bytes);
	tjDestroy(h);
}

static int make_pictures(void **state)
{
	if (make_data_dir(state))
		return -1;
	make_dir("train");
	make_dir("train/zebra");
	make_dir("train/ant");
	make_dir("train/.hidden");
	write_picture("train/zebra/b.jpg", 200);
	write_picture("train/zebra/a.PNG.png", 100);
	write_picture("train/ant/x.JPEG", 50);
	write_picture("train/ant/y.jpg", 60);
	write_picture("train/ant/z.jpg", 70);
	write_data_file("train/ant/notes.txt", "x", 1);
	write_data_file("train/ant/.hidden.jpg", "x", 1);
	write_data_file("train/LIST", "x", 1);
	make_dir("val");
	make_dir("val/zebra");
	write_picture("val/zebra/q.png", 0);
	return 0;
}

static int gray_of(const struct gp_dataset *d, uint32_t index, int *label)
{
	float image[8 * 8 * 3];
	*label = load_sample(d, 0, index, image);
	return (int)(image[0] * 255.0f + 0.5f);
}

static void classes_and_files_are_sorted_by_name(void **state)
{
	static const int grays[] = {50, 60, 70, 100, 200}, labels[] = {0, 0, 0, 1, 1};
	(void)state;
	struct gp_dataset *d = open_data(data_spec("folder", ",size=8,mean=0,std=1"), GP_SPLIT_TRAIN, &as_is);
	assert_int_equal(gp_dataset_samples(d), 5);
	assert_int_equal(gp_dataset_classes(d), 2);
	assert_string_equal(gp_dataset_class_name(d, 0), "ant");
	assert_string_equal(gp_dataset_class_name(d, 1), "zebra");
	assert_int_equal(gp_dataset_shape(d)->dim[0], 8);
	assert_int_equal(gp_dataset_shape(d)->dim[2], 3);
	for (uint32_t i = 0; i < 5; i++) {
		int label, gray = gray_of(d, i, &label);
		assert_in_range(gray, grays[i] - 1, grays[i] + 1);
		assert_int_equal(label, labels[i]);
	}
	gp_dataset_free(d);
}

static void validation_uses_the_labels_of_training(void **state)
{
	int label;
	(void)state;
	struct gp_dataset *d = open_data(data_spec("folder", ",size=8,mean=0,std=1"), GP_SPLIT_VAL, &as_is);
	assert_int_equal(gp_dataset_samples(d), 1);
	assert_int_equal(gp_dataset_classes(d), 2);
	assert_int_equal(gray_of(d, 0, &label), 0);
	assert_int_equal(label, 1);
	gp_dataset_free(d);
	char from[256];
	strcpy(from, data_path("val"));
	assert_int_equal(rename(from, data_path("test")), 0);
	gp_dataset_free(open_data(data_spec("folder", ""), GP_SPLIT_VAL, &as_is));
}

static void a_limit_takes_classes_in_turn(void **state)
{
	int label;
	(void)state;
	struct gp_dataset *d = open_data(data_spec("folder", ",size=8,limit=3,mean=0,std=1"), GP_SPLIT_TRAIN, &as_is);
	assert_int_equal(gp_dataset_samples(d), 3);
	for (uint32_t i = 0; i < 3; i++) {
		gray_of(d, i, &label);
		assert_int_equal(label, i % 2);
	}
	gp_dataset_free(d);
}

static void the_model_decides_the_size(void **state)
{
	struct gp_dataset_options options = {.shape = {.ndim = 3, .dim = {12, 20, 3}}};
	struct gp_dataset *d = open_data(data_spec("folder", ""), GP_SPLIT_TRAIN, &options);
	struct gp_err err;
	(void)state;
	assert_int_equal(gp_dataset_shape(d)->dim[0], 12);
	assert_int_equal(gp_dataset_shape(d)->dim[1], 20);
	gp_dataset_free(d);
	d = open_data(data_spec("folder", ""), GP_SPLIT_TRAIN, &as_is);
	assert_int_equal(gp_dataset_shape(d)->dim[0], 224);
	gp_dataset_free(d);
	d = NULL;
	assert_int_equal(gp_dataset_open(data_spec("folder", ",size=16"), GP_SPLIT_TRAIN, &options, &d, &err),
			 GP_INVALID);
	assert_message(&err, "dataset folder: size=16 differs from the model's input 12x20x3; leave one out");
}

static void assert_fails(enum gp_split split, const char *wanted)
{
	assert_open_fails(data_spec("folder", ""), split, GP_INVALID, wanted);
}

static void missing_and_empty_folders_are_named(void **state)
{
	char from[256];
	(void)state;
	make_dir("train/empty");
	assert_fails(GP_SPLIT_TRAIN,
		     "no *.jpg, *.jpeg or *.png in class folder DIR/train/empty; add some or remove it");
	make_dir("val/dog");
	assert_fails(GP_SPLIT_VAL, "class folder DIR/val/dog has no counterpart in train; rename or remove it");
	strcpy(from, data_path("val"));
	assert_int_equal(rename(from, data_path("moved")), 0);
	assert_fails(GP_SPLIT_VAL,
		     "no folder val or test in DIR; pictures are expected as DIR/val/CLASS/*.jpg or *.png");
	strcpy(from, data_path("train"));
	assert_int_equal(rename(from, data_path("moved/train")), 0);
	assert_fails(GP_SPLIT_TRAIN, "no folder train in DIR; pictures are expected as DIR/train/CLASS/*.jpg or *.png");
	make_dir("train");
	assert_fails(GP_SPLIT_TRAIN,
		     "no class folders in DIR/train; pictures are expected as DIR/train/CLASS/*.jpg or *.png");
	assert_open_fails("folder:no/such", GP_SPLIT_TRAIN, GP_INVALID,
			  "no folder no/such; give one with train/CLASS/*.jpg and val/CLASS/*.jpg");
}

static void assert_sample_fails(const char *wanted)
{
	struct gp_dataset *d = open_data(data_spec("folder", ",size=8"), GP_SPLIT_TRAIN, &as_is);
	struct gp_data_scratch scratch = {0};
	struct gp_err err = {0};
	struct gp_draw draw = {0};
	float image[8 * 8 * 3];
	int32_t label;
	assert_int_equal(gp_dataset_load(d, &draw, &scratch, (void *[]){image}, &label, &err), GP_INVALID);
	assert_message(&err, wanted);
	gp_data_scratch_deinit(&scratch);
	gp_dataset_free(d);
}

static void unreadable_pictures_are_named_when_they_are_needed(void **state)
{
	(void)state;
	write_data_file("train/ant/a.jpg", "", 0);
	assert_sample_fails("DIR/train/ant/a.jpg: an empty file, not an image; replace or remove it");
	write_data_file("train/ant/a.jpg", "hello, world", 12);
	assert_sample_fails("DIR/train/ant/a.jpg: neither JPEG nor PNG by its content; convert or remove it");
	unlink(data_path("train/ant/a.jpg"));
	assert_int_equal(symlink("nowhere", data_path("train/ant/a.jpg")), 0);
	assert_sample_fails("cannot open DIR/train/ant/a.jpg: No such file or directory");
	unlink(data_path("train/ant/a.jpg"));
	make_dir("train/ant/a.jpg");
	assert_sample_fails("DIR/train/ant/a.jpg is not a regular file");
}

#ifdef GP_FAULTS
static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	for (uint64_t nth = 1;; nth++) {
		struct gp_dataset *d = NULL;
		struct gp_err err;
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		enum gp_status status = gp_dataset_open(data_spec("folder", ""), GP_SPLIT_TRAIN, &as_is, &d, &err);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		if (status == GP_OK) {
			gp_dataset_free(d);
			assert_true(nth > 10);
			break;
		}
		assert_int_equal(status, GP_NOMEM);
	}
}
#endif

int main(void)
{
#define WITH_PICTURES(test) cmocka_unit_test_setup_teardown(test, make_pictures, remove_data_dir)
	const struct CMUnitTest tests[] = {
		WITH_PICTURES(classes_and_files_are_sorted_by_name),
		WITH_PICTURES(validation_uses_the_labels_of_training),
		WITH_PICTURES(a_limit_takes_classes_in_turn),
		WITH_PICTURES(the_model_decides_the_size),
		WITH_PICTURES(missing_and_empty_folders_are_named),
		WITH_PICTURES(unreadable_pictures_are_named_when_they_are_needed),
#ifdef GP_FAULTS
		WITH_PICTURES(every_failed_allocation_is_reported_and_leaks_nothing),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * IDX datasets (client/data/data_idx.c): plain and gzip files, and damaged ones.
 */
#include "tests/unit/data_files.h"

enum { COUNT = 6, SIDE = 5, IMAGE = SIDE * SIDE, IMAGES_SIZE = 16 + COUNT * IMAGE, LABELS_SIZE = 8 + COUNT };

static uint8_t images[IMAGES_SIZE], labels[LABELS_SIZE];

static void put_big_endian(uint8_t *at, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void make_content(void)
{
	put_big_endian(images, 0x803);
	put_big_endian(images + 4, COUNT);
	put_big_endian(images + 8, SIDE);
	put_big_endian(images + 12, SIDE);
	for (int i = 0; i < COUNT * IMAGE; i++)
		images[16 + i] = (uint8_t)(i * 37);
	put_big_endian(labels, 0x801);
	put_big_endian(labels + 4, COUNT);
	for (int i = 0; i < COUNT; i++)
		labels[8 + i] = (uint8_t)(i % 3);
}

static int make_files(void **state)
{
	if (make_data_dir(state))
		return -1;
	make_content();
	write_data_file("train-images-idx3-ubyte", images, sizeof images);
	write_data_file("train-labels-idx1-ubyte", labels, sizeof labels);
	write_data_file_gz("t10k-images-idx3-ubyte.gz", images, sizeof images);
	write_data_file_gz("t10k-labels-idx1-ubyte.gz", labels, sizeof labels);
	return 0;
}

static const struct gp_dataset_options as_is;

static void plain_and_gzip_files_give_the_same_samples(void **state)
{
	float image[IMAGE];
	(void)state;
	for (int split = 0; split < 2; split++) {
		struct gp_dataset *d = open_data(data_spec("idx", ",mean=0,std=1"), (enum gp_split)split, &as_is);
		assert_int_equal(gp_dataset_samples(d), COUNT);
		assert_int_equal(gp_dataset_classes(d), 3);
		assert_string_equal(gp_dataset_class_name(d, 2), "class 2");
		assert_string_equal(gp_dataset_class_name(d, 3), "?");
		assert_int_equal(gp_dataset_shape(d)->dim[0], SIDE);
		assert_int_equal(gp_dataset_shape(d)->dim[2], 1);
		for (uint32_t i = 0; i < COUNT; i++) {
			assert_int_equal(load_sample(d, 0, i, image), i % 3);
			for (uint32_t p = 0; p < IMAGE; p++)
				assert_true(image[p] == (float)images[16 + i * IMAGE + p] / 255.0f);
		}
		gp_dataset_free(d);
	}
}

static void limit_keeps_the_first_samples(void **state)
{
	(void)state;
	struct gp_dataset *d = open_data(data_spec("idx", ",limit=4"), GP_SPLIT_VAL, &as_is);
	assert_int_equal(gp_dataset_samples(d), 4);
	assert_int_equal(gp_dataset_classes(d), 3);
	gp_dataset_free(d);
}

static void fashion_mnist_has_ten_named_classes(void **state)
{
	(void)state;
	struct gp_dataset *d = open_data(data_spec("fashion-mnist", ""), GP_SPLIT_TRAIN, &as_is);
	assert_int_equal(gp_dataset_classes(d), 10);
	assert_string_equal(gp_dataset_class_name(d, 9), "Ankle boot");
	gp_dataset_free(d);
}

static void assert_train_fails(const char *name, const char *wanted)
{
	assert_open_fails(data_spec(name, ""), GP_SPLIT_TRAIN, GP_INVALID, wanted);
}

static void missing_files_are_named(void **state)
{
	(void)state;
	unlink(data_path("train-labels-idx1-ubyte"));
	assert_train_fails("idx",
			   "no train-labels-idx1-ubyte[.gz] in DIR; give the folder that holds the four IDX files");
	assert_open_fails("idx:no/such/folder", GP_SPLIT_TRAIN, GP_INVALID,
			  "cannot open no/such/folder: No such file or directory");
}

static void wrong_kinds_of_file_are_refused(void **state)
{
	(void)state;
	write_data_file("train-images-idx3-ubyte", labels, sizeof labels);
	assert_train_fails("idx", "DIR/train-images-idx3-ubyte: magic number 0x00000801 instead of 0x00000803; "
				  "it is not an IDX file of images");
	write_data_file("train-images-idx3-ubyte", images, 3);
	assert_train_fails("idx", "DIR/train-images-idx3-ubyte ends too early; fetch the file again");
	unlink(data_path("train-images-idx3-ubyte"));
	assert_int_equal(mkdir(data_path("train-images-idx3-ubyte"), 0700), 0);
	assert_train_fails("idx", "DIR/train-images-idx3-ubyte is not a regular file");
}

static void truncated_and_overlong_files_are_refused(void **state)
{
	uint8_t longer[IMAGES_SIZE + 1];
	(void)state;
	write_data_file("train-images-idx3-ubyte", images, sizeof images - 100);
	assert_train_fails("idx", "DIR/train-images-idx3-ubyte ends too early: its header declares 150 bytes; "
				  "fetch the file again");
	write_data_file("train-images-idx3-ubyte", images, sizeof images - 1);
	assert_train_fails("idx", "DIR/train-images-idx3-ubyte ends too early; fetch the file again");
	memcpy(longer, images, sizeof images);
	longer[IMAGES_SIZE] = 0;
	write_data_file("train-images-idx3-ubyte", longer, sizeof longer);
	assert_train_fails("idx", "DIR/train-images-idx3-ubyte is longer than its header says; is it an IDX file?");
}

static void headers_are_checked_before_anything_is_allocated(void **state)
{
	(void)state;
	put_big_endian(images + 4, 0xffffffff);
	write_data_file("train-images-idx3-ubyte", images, sizeof images);
	assert_train_fails("idx", "DIR/train-images-idx3-ubyte: its header declares 107374182375 bytes; "
				  "at most 4294967296 are read");
	put_big_endian(images + 4, 100000000);
	write_data_file("train-images-idx3-ubyte", images, sizeof images);
	assert_train_fails("idx", "DIR/train-images-idx3-ubyte ends too early: its header declares 2500000000 bytes; "
				  "fetch the file again");
	put_big_endian(images + 4, 0);
	write_data_file("train-images-idx3-ubyte", images, sizeof images);
	assert_train_fails("idx", "DIR/train-images-idx3-ubyte holds no images");
	put_big_endian(images + 4, COUNT);
	put_big_endian(images + 8, 5000);
	write_data_file("train-images-idx3-ubyte", images, sizeof images);
	assert_train_fails("idx",
			   "DIR/train-images-idx3-ubyte: images of 5000 x 5 pixels; 1 to 4096 a side are possible");
}

static void damaged_gzip_data_is_noticed(void **state)
{
	static uint8_t bytes[4096];
	(void)state;
	FILE *f = fopen(data_path("t10k-images-idx3-ubyte.gz"), "rb");
	size_t size = fread(bytes, 1, sizeof bytes, f);
	fclose(f);
	bytes[size - 6] ^= 1; /* the checksum at the end */
	write_data_file("t10k-images-idx3-ubyte.gz", bytes, size);
	assert_open_fails(
		data_spec("idx", ""), GP_SPLIT_VAL, GP_INVALID,
		"DIR/t10k-images-idx3-ubyte.gz: damaged gzip data (incorrect data check); fetch the file again");
	write_data_file("t10k-images-idx3-ubyte.gz", bytes, size / 2);
	assert_open_fails(data_spec("idx", ""), GP_SPLIT_VAL, GP_INVALID,
			  "DIR/t10k-images-idx3-ubyte.gz ends too early; fetch the file again");
}

static void labels_must_match_the_images(void **state)
{
	(void)state;
	labels[8 + 4] = 10;
	write_data_file("train-labels-idx1-ubyte", labels, sizeof labels);
	assert_train_fails("fashion-mnist", "DIR/train-labels-idx1-ubyte: label 10 of sample 4 is out of range (0..9)");
	put_big_endian(labels + 4, COUNT - 1);
	write_data_file("train-labels-idx1-ubyte", labels, sizeof labels - 1);
	assert_train_fails("idx", "DIR/train-images-idx3-ubyte holds 6 images, but DIR/train-labels-idx1-ubyte holds "
				  "5 labels; they do not belong together");
}

static void model_inputs_that_do_not_fit_are_refused(void **state)
{
	struct gp_dataset *d = NULL;
	struct gp_err err;
	struct gp_dataset_options options = {.shape = {.ndim = 3, .dim = {8, 8, 2}}};
	(void)state;
	assert_int_equal(gp_dataset_open(data_spec("idx", ""), GP_SPLIT_TRAIN, &options, &d, &err), GP_INVALID);
	assert_message(&err,
		       "dataset idx has 1 channel, but the model wants 2; give the model an input of 1 or 3 channels");
	options.shape = (struct gp_shape){.ndim = 2, .dim = {128, 64}};
	assert_int_equal(gp_dataset_open(data_spec("idx", ""), GP_SPLIT_TRAIN, &options, &d, &err), GP_INVALID);
	assert_message(&err, "dataset idx holds images (H,W,C), but the model wants samples of shape 128x64");
	assert_null(d);
}

#ifdef GP_FAULTS
#include "common/base/fault.h"

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	for (uint64_t nth = 1;; nth++) {
		struct gp_dataset *d = NULL;
		struct gp_err err;
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		enum gp_status status = gp_dataset_open(data_spec("idx", ""), GP_SPLIT_TRAIN, &as_is, &d, &err);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		if (status == GP_OK) {
			gp_dataset_free(d);
			if (nth > 7)
				break;
		} else {
			assert_int_equal(status, GP_NOMEM);
			assert_null(d);
		}
	}
}
#endif

int main(void)
{
#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, make_files, remove_data_dir)
	const struct CMUnitTest tests[] = {
		WITH_FILES(plain_and_gzip_files_give_the_same_samples),
		WITH_FILES(limit_keeps_the_first_samples),
		WITH_FILES(fashion_mnist_has_ten_named_classes),
		WITH_FILES(missing_files_are_named),
		WITH_FILES(wrong_kinds_of_file_are_refused),
		WITH_FILES(truncated_and_overlong_files_are_refused),
		WITH_FILES(headers_are_checked_before_anything_is_allocated),
		WITH_FILES(damaged_gzip_data_is_noticed),
		WITH_FILES(labels_must_match_the_images),
		WITH_FILES(model_inputs_that_do_not_fit_are_refused),
#ifdef GP_FAULTS
		WITH_FILES(every_failed_allocation_is_reported_and_leaks_nothing),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

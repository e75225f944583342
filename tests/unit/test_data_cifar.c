/* SPDX-License-Identifier: Apache-2.0
 *
 * CIFAR-10 and CIFAR-100 binary files (client/data/data_cifar.c).
 */
#include "tests/unit/data_files.h"

enum { PLANE = 1024, RECORD10 = 1 + 3 * PLANE, RECORD100 = 2 + 3 * PLANE };

static const struct gp_dataset_options as_is;

/* Pixel p of channel c of record i. */
static uint8_t value(int i, int c, int p)
{
	return (uint8_t)(i * 50 + c * 5 + p % 200);
}

static void write_records(const char *name, int first, int count, int label_bytes)
{
	static uint8_t bytes[8 * RECORD100];
	uint8_t *at = bytes;
	for (int i = first; i < first + count; i++) {
		if (label_bytes == 2)
			*at++ = 99; /* coarse: not looked at */
		*at++ = (uint8_t)i;
		for (int c = 0; c < 3; c++)
			for (int p = 0; p < PLANE; p++)
				*at++ = value(i, c, p);
	}
	write_data_file(name, bytes, (size_t)(at - bytes));
}

static void assert_samples(const struct gp_dataset *d, int first)
{
	float image[3 * PLANE];
	for (uint32_t i = 0; i < gp_dataset_samples(d); i++) {
		assert_int_equal(load_sample(d, 0, i, image), first + (int)i);
		for (int p = 0; p < PLANE; p++)
			for (int c = 0; c < 3; c++)
				assert_true(image[3 * p + c] == (float)value(first + (int)i, c, p) / 255.0f);
	}
}

static void cifar10_reads_the_batches_there_are(void **state)
{
	(void)state;
	write_records("data_batch_1.bin", 0, 2, 1);
	write_records("data_batch_3.bin", 2, 3, 1);
	write_records("test_batch.bin", 4, 1, 1);
	struct gp_dataset *d = open_data(data_spec("cifar10", ",mean=0,std=1"), GP_SPLIT_TRAIN, &as_is);
	assert_int_equal(gp_dataset_samples(d), 5);
	assert_int_equal(gp_dataset_classes(d), 10);
	assert_string_equal(gp_dataset_class_name(d, 0), "airplane");
	assert_samples(d, 0);
	gp_dataset_free(d);
	d = open_data(data_spec("cifar10", ",mean=0,std=1"), GP_SPLIT_VAL, &as_is);
	assert_int_equal(gp_dataset_samples(d), 1);
	assert_samples(d, 4);
	gp_dataset_free(d);
	d = open_data(data_spec("cifar10", ",limit=3"), GP_SPLIT_TRAIN, &as_is);
	assert_int_equal(gp_dataset_samples(d), 3);
	gp_dataset_free(d);
	d = open_data(data_spec("cifar10", ",limit=2"), GP_SPLIT_TRAIN, &as_is);
	assert_int_equal(gp_dataset_samples(d), 2);
	gp_dataset_free(d);
}

static void cifar100_uses_fine_labels_and_names(void **state)
{
	(void)state;
	write_records("train.bin", 60, 3, 2);
	write_records("test.bin", 1, 2, 2);
	write_data_file("fine_label_names.txt", "apple\naquarium_fish\n", 20);
	struct gp_dataset *d = open_data(data_spec("cifar100", ",mean=0,std=1"), GP_SPLIT_TRAIN, &as_is);
	assert_int_equal(gp_dataset_classes(d), 100);
	assert_string_equal(gp_dataset_class_name(d, 1), "aquarium_fish");
	assert_string_equal(gp_dataset_class_name(d, 60), "class 60");
	assert_samples(d, 60);
	gp_dataset_free(d);
}

static void statistics_of_the_dataset_are_the_default(void **state)
{
	float image[3 * PLANE];
	(void)state;
	write_records("data_batch_1.bin", 0, 1, 1);
	struct gp_dataset *d = open_data(data_spec("cifar10", ""), GP_SPLIT_TRAIN, &as_is);
	load_sample(d, 0, 0, image);
	assert_true(image[0] == (0.0f - 0.4914f) / 0.2470f);
	assert_true(image[1] == (5.0f / 255.0f - 0.4822f) / 0.2435f);
	gp_dataset_free(d);
}

static void assert_train_fails(const char *wanted)
{
	assert_open_fails(data_spec("cifar10", ""), GP_SPLIT_TRAIN, GP_INVALID, wanted);
}

static void bad_files_are_refused(void **state)
{
	static uint8_t bytes[RECORD10];
	(void)state;
	assert_train_fails("no data_batch_1.bin to data_batch_5.bin in DIR; give the folder cifar-10-batches-bin");
	assert_open_fails(data_spec("cifar10", ""), GP_SPLIT_VAL, GP_INVALID,
			  "cannot open DIR/test_batch.bin: No such file or directory");
	write_data_file("data_batch_1.bin", "", 0);
	assert_train_fails("DIR/data_batch_1.bin is empty; fetch the file again");
	write_data_file("data_batch_1.bin", bytes, RECORD10 - 1);
	assert_train_fails(
		"DIR/data_batch_1.bin has 3072 bytes, not a multiple of 3073: truncated or not a CIFAR-10 file");
	bytes[0] = 10;
	write_data_file("data_batch_1.bin", bytes, RECORD10);
	assert_train_fails("DIR/data_batch_1.bin: label 10 of record 0 is out of range (0..9)");
	unlink(data_path("data_batch_1.bin"));
	assert_int_equal(mkdir(data_path("data_batch_1.bin"), 0700), 0);
	assert_train_fails("DIR/data_batch_1.bin is not a regular file");
}

static void three_channels_do_not_become_one(void **state)
{
	struct gp_dataset *d = NULL;
	struct gp_err err;
	struct gp_dataset_options options = {.shape = {.ndim = 3, .dim = {32, 32, 1}}};
	(void)state;
	write_records("data_batch_1.bin", 0, 1, 1);
	assert_int_equal(gp_dataset_open(data_spec("cifar10", ""), GP_SPLIT_TRAIN, &options, &d, &err), GP_INVALID);
	assert_message(&err,
		       "dataset cifar10 has 3 channels, but the model wants 1; give the model an input of 3 channels");
}

/* What size=8 makes of sample 0: its bytes resized, then normalised. */
static void assert_resized(const struct gp_dataset *d, int label)
{
	static uint8_t stored[3 * PLANE], wanted[3 * 64];
	float image[3 * 64];
	struct gp_data_scratch scratch = {0};
	struct gp_err err;
	for (int p = 0; p < PLANE; p++)
		for (int c = 0; c < 3; c++)
			stored[3 * p + c] = value(label, c, p);
	const struct gp_image whole = {stored, 32, 32, 3, 3 * 32};
	assert_int_equal(gp_image_resize(&whole, 8, 8, &(struct gp_window){0, 0, 8, 8}, &scratch, wanted, &err), GP_OK);
	gp_data_scratch_deinit(&scratch);
	assert_int_equal(load_sample(d, 0, 0, image), label);
	for (int i = 0; i < 3 * 64; i++)
		assert_true(image[i] == (float)wanted[i] / 255.0f);
}

static void assert_side(const struct gp_dataset *d, int side)
{
	assert_int_equal(gp_dataset_shape(d)->dim[0], side);
	assert_int_equal(gp_dataset_shape(d)->dim[1], side);
}

static void size_resizes_the_pictures(void **state)
{
	(void)state;
	write_records("data_batch_1.bin", 2, 1, 1);
	write_records("train.bin", 60, 1, 2);
	struct gp_dataset *d = open_data(data_spec("cifar10", ",size=8,mean=0,std=1"), GP_SPLIT_TRAIN, &as_is);
	assert_side(d, 8);
	assert_resized(d, 2);
	gp_dataset_free(d);
	d = open_data(data_spec("cifar100", ",size=8,mean=0,std=1"), GP_SPLIT_TRAIN, &as_is);
	assert_side(d, 8);
	assert_resized(d, 60);
	gp_dataset_free(d);
	d = open_data(data_spec("cifar10", ",size=96"), GP_SPLIT_TRAIN, &as_is);
	assert_side(d, 96);
	gp_dataset_free(d);
	d = open_data(data_spec("cifar10", ",size=32,mean=0,std=1"), GP_SPLIT_TRAIN, &as_is);
	assert_samples(d, 2);
	gp_dataset_free(d);
}

static void size_and_the_input_of_the_model_agree(void **state)
{
	struct gp_dataset *d = NULL;
	struct gp_err err;
	const struct gp_dataset_options options = {.shape = {.ndim = 3, .dim = {96, 96, 3}}};
	const struct gp_preparation saved = {.shape = {.ndim = 3, .dim = {96, 96, 3}}, .std = {1, 1, 1}};
	const struct gp_dataset_options like = {.like = &saved};
	(void)state;
	write_records("data_batch_1.bin", 0, 1, 1);
	d = open_data(data_spec("cifar10", ",size=96"), GP_SPLIT_TRAIN, &options);
	assert_side(d, 96);
	gp_dataset_free(d);
	d = open_data(data_spec("cifar10", ""), GP_SPLIT_TRAIN, &like); /* weights that were trained on 96x96 */
	assert_side(d, 96);
	gp_dataset_free(d);
	d = open_data(data_spec("cifar10", ",size=64"), GP_SPLIT_TRAIN, &like); /* the text has the last word */
	assert_side(d, 64);
	gp_dataset_free(d);
	assert_int_equal(gp_dataset_open(data_spec("cifar10", ",size=64"), GP_SPLIT_TRAIN, &options, &d, &err),
			 GP_INVALID);
	assert_message(&err, "dataset cifar10: size=64 differs from the model's input 96x96x3; leave one out");
	assert_open_fails(data_spec("cifar10", ",size=4"), GP_SPLIT_TRAIN, GP_USAGE,
			  "dataset cifar10: size: 4 is out of range (8..4096)");
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_data_dir, remove_data_dir)
	const struct CMUnitTest tests[] = {
		IN_FOLDER(cifar10_reads_the_batches_there_are),       IN_FOLDER(cifar100_uses_fine_labels_and_names),
		IN_FOLDER(statistics_of_the_dataset_are_the_default), IN_FOLDER(bad_files_are_refused),
		IN_FOLDER(three_channels_do_not_become_one),          IN_FOLDER(size_resizes_the_pictures),
		IN_FOLDER(size_and_the_input_of_the_model_agree),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

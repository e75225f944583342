/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding bad files (client/data/data_check.c, data_look.c) and leaving samples
 * out.
 */
#include "tests/unit/data_files.h"

#include <png.h>
#include <stdatomic.h>
#include <turbojpeg.h>

#include "client/data/data_check.h"

enum { SIDE = 24, FILES = 40, ROOM = 1 << 16 };

/* A picture whose pixels all differ, so that it has a body to damage; returns its bytes. */
static size_t make_picture(const char *name, uint8_t seed, uint8_t bytes[ROOM])
{
	uint8_t pixels[SIDE * SIDE * 3];
	uint32_t x = seed + 1u;
	for (size_t i = 0; i < sizeof pixels; i++)
		pixels[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
	if (strstr(name, ".png")) {
		png_image png = {.version = PNG_IMAGE_VERSION, .width = SIDE, .height = SIDE, .format = PNG_FORMAT_RGB};
		png_alloc_size_t size = ROOM;
		assert_true(png_image_write_to_memory(&png, bytes, &size, 0, pixels, 0, NULL));
		return size;
	}
	tjhandle h = tjInitCompress();
	unsigned char *made = NULL;
	unsigned long size = 0;
	assert_int_equal(tjCompress2(h, pixels, SIDE, 0, SIDE, TJPF_RGB, &made, &size, TJSAMP_420, 95, 0), 0);
	assert_true(size <= ROOM);
	memcpy(bytes, made, size);
	tjFree(made);
	tjDestroy(h);
	return size;
}

static int make_pictures(void **state)
{
	uint8_t bytes[ROOM];
	char name[64];
	if (make_data_dir(state))
		return -1;
	assert_int_equal(mkdir(data_path("train"), 0700) | mkdir(data_path("train/a"), 0700), 0);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "train/a/%02d.%s", i, i % 2 ? "png" : "jpg");
		size_t size = make_picture(name, (uint8_t)i, bytes);
		if (i == 7)
			size -= 10; /* the end is missing */
		if (i == 20)
			size = 0;
		if (i == 11)
			bytes[size / 2] ^= 0xff; /* a checksum: the header cannot tell */
		if (i == 30)
			bytes[0] = 'x';
		write_data_file(name, bytes, size);
	}
	return 0;
}

static struct gp_bad_samples checked(const struct gp_dataset *d, enum gp_check_depth depth, int threads)
{
	const struct gp_check_options o = {.depth = depth, .threads = threads};
	struct gp_bad_samples bad = {0};
	struct gp_err err = {0};
	assert_int_equal(gp_data_check(d, &o, &bad, &err), GP_OK);
	assert_int_equal(bad.checked, FILES);
	return bad;
}

static void assert_bad(const struct gp_bad_samples *bad, const uint32_t *want, uint32_t count)
{
	assert_int_equal(bad->count, count);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(bad->list[i].sample, want[i]);
		assert_non_null(strstr(bad->list[i].text, bad->list[i].file));
	}
}

static const struct gp_dataset_options as_is;

static void the_same_files_are_bad_with_any_number_of_threads(void **state)
{
	static const uint32_t headers[] = {7, 20, 30}, all[] = {7, 11, 20, 30};
	(void)state;
	struct gp_dataset *d = open_data(data_spec("folder", ",size=8"), GP_SPLIT_TRAIN, &as_is);
	for (int threads = 1; threads < 100; threads *= 5) {
		struct gp_bad_samples bad = checked(d, GP_CHECK_HEADERS, threads);
		assert_bad(&bad, headers, 3);
		gp_bad_samples_deinit(&bad);
		bad = checked(d, GP_CHECK_ALL, threads);
		assert_bad(&bad, all, 4);
		gp_bad_samples_deinit(&bad);
	}
	gp_dataset_free(d);
}

static void what_is_left_out_is_not_loaded_and_the_rest_keeps_its_order(void **state)
{
	(void)state;
	struct gp_err err = {0};
	static float before[FILES][8 * 8 * 3], after[8 * 8 * 3];
	struct gp_dataset *d = open_data(data_spec("folder", ",size=8"), GP_SPLIT_TRAIN, &as_is);
	struct gp_bad_samples bad = checked(d, GP_CHECK_ALL, 2);
	for (uint32_t i = 0; i < FILES; i++)
		if (i != 7 && i != 11 && i != 20 && i != 30)
			load_sample(d, 0, i, before[i]);
	assert_int_equal(gp_dataset_leave_out(d, &bad, &err), GP_OK);
	assert_int_equal(gp_dataset_samples(d), FILES - 4);
	for (uint32_t i = 0, source = 0; i < FILES - 4; i++, source++) {
		while (source == 7 || source == 11 || source == 20 || source == 30)
			source++;
		load_sample(d, 0, i, after);
		assert_memory_equal(after, before[source], sizeof after);
	}
	gp_bad_samples_deinit(&bad);
	/* Once more, on what is left: nothing is bad. */
	const struct gp_check_options o = {.depth = GP_CHECK_ALL, .threads = 3};
	assert_int_equal(gp_data_check(d, &o, &bad, &err), GP_OK);
	assert_true(bad.count == 0 && bad.checked == FILES - 4);
	gp_dataset_free(d);
}

static void not_all_samples_can_be_left_out(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_bad_samples bad = {0};
	struct gp_dataset *d = open_data(data_spec("folder", ",size=8,limit=3"), GP_SPLIT_TRAIN, &as_is);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(gp_bad_samples_add(&bad, i, "f", "f: odd", &err), GP_OK);
	assert_int_equal(gp_dataset_leave_out(d, &bad, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "not one of 3 samples"));
	assert_int_equal(gp_dataset_samples(d), 3);
	gp_bad_samples_deinit(&bad);
	gp_dataset_free(d);
}

/* Any part of a file is not a whole one, and never more than is there is read. */
static void no_part_of_a_picture_looks_whole(void **state)
{
	static const char *const names[] = {"part.jpg", "part.png"};
	uint8_t bytes[ROOM];
	(void)state;
	for (size_t k = 0; k < 2; k++) {
		const size_t size = make_picture(names[k], 3, bytes);
		write_data_file(names[k], bytes, size);
		assert_true(gp_picture_looks_whole(data_path(names[k])));
		for (size_t i = 0; i < size; i += i < 800 ? 1 : 61) {
			write_data_file(names[k], bytes, i);
			assert_false(gp_picture_looks_whole(data_path(names[k])));
		}
	}
	assert_false(gp_picture_looks_whole(data_path("train")));
	assert_false(gp_picture_looks_whole(data_path("no-such")));
}

/* A damaged picture, whatever is damaged, does no harm to those that are decoded after it. */
static void a_good_picture_is_good_after_a_damaged_one(void **state)
{
	(void)state;
	uint8_t good[ROOM], bad[ROOM], want[SIDE * SIDE * 3];
	struct gp_data_scratch scratch = {0};
	struct gp_image image;
	struct gp_err err = {0};
	const size_t size = make_picture("x.jpg", 1, good);
	const struct gp_span span = {good, size};
	int refused = 0;
	assert_int_equal(gp_image_decode(&span, "x.jpg", &scratch, &image, &err), GP_OK);
	memcpy(want, image.pixels, sizeof want);
	for (size_t at = 4; at + 40 < size; at += 8) {
		memcpy(bad, good, size);
		memset(bad + at, 0, 40);
		refused += gp_image_decode(&(struct gp_span){bad, size}, "bad.jpg", &scratch, &image, &err) != GP_OK;
		if (gp_image_decode(&span, "x.jpg", &scratch, &image, &err) != GP_OK)
			fail_msg("after damage at byte %zu: %s", at, err.text);
		assert_memory_equal(image.pixels, want, sizeof want);
	}
	assert_true(refused > 10);
	gp_data_scratch_deinit(&scratch);
}

/* A picture with something behind its end is as good as the decoder says. */
static void an_odd_end_is_left_to_the_decoder(void **state)
{
	uint8_t bytes[ROOM];
	struct gp_err err = {0};
	(void)state;
	const size_t size = make_picture("odd.jpg", 3, bytes);
	memcpy(bytes + size, "more", 4);
	write_data_file("odd.jpg", bytes, size + 4);
	assert_false(gp_picture_looks_whole(data_path("odd.jpg")));
	char *const path = strdup(data_path("odd.jpg"));
	struct gp_dataset *d, *like = open_data("pictures:size=8", GP_SPLIT_VAL, &as_is);
	assert_int_equal(gp_dataset_from_files(like, (const char *const *)&path, 1, &d, &err), GP_OK);
	const struct gp_check_options o = {.depth = GP_CHECK_HEADERS, .threads = 1};
	struct gp_bad_samples bad = {0};
	assert_int_equal(gp_data_check(d, &o, &bad, &err), GP_OK);
	assert_true(bad.checked == 1 && bad.count == 0);
	gp_dataset_free(d);
	gp_dataset_free(like);
	free(path);
}

static void a_header_that_claims_too_much_is_bad(void **state)
{
	uint8_t bytes[ROOM];
	(void)state;
	const size_t size = make_picture("large.png", 3, bytes);
	bytes[16] = 1; /* 2^24 pixels wide and more */
	write_data_file("large.png", bytes, size);
	assert_false(gp_picture_looks_whole(data_path("large.png")));
}

static void each_file_of_a_format_is_told_of(void **state)
{
	static uint8_t records[2 * 3073];
	struct gp_err err = {0};
	struct gp_bad_samples bad = {0};
	(void)state;
	write_data_file("data_batch_1.bin", records, sizeof records);
	write_data_file("data_batch_3.bin", records, 100);
	records[3073] = 10;
	write_data_file("data_batch_4.bin", records, sizeof records);
	assert_int_equal(gp_data_check_files(data_spec("cifar10", ""), GP_SPLIT_TRAIN, &bad, &err), GP_OK);
	assert_true(bad.checked == 3 && bad.count == 2);
	assert_non_null(strstr(bad.list[0].text, "data_batch_3.bin has 100 bytes"));
	assert_non_null(strstr(bad.list[1].text, "label 10 of record 1"));
	gp_bad_samples_deinit(&bad);
	assert_int_equal(gp_data_check_files(data_spec("idx", ""), GP_SPLIT_VAL, &bad, &err), GP_OK);
	assert_true(bad.checked == 2 && bad.count == 2);
	assert_non_null(strstr(bad.list[1].text, "no t10k-labels-idx1-ubyte[.gz]"));
	gp_bad_samples_deinit(&bad);
	assert_int_equal(gp_data_check_files("synthetic", GP_SPLIT_VAL, &bad, &err), GP_OK);
	assert_int_equal(bad.checked, 0);
	assert_int_equal(gp_data_check_files("syntetic", GP_SPLIT_VAL, &bad, &err), GP_USAGE);
}

static void one_class_and_a_wrong_scale_are_suspicious(void **state)
{
	(void)state;
	static const struct {
		const char *rest;
		unsigned want;
	} cases[] = {{",size=8", GP_DOUBT_ONE_CLASS},
		     {",size=8,mean=127.5,std=127.5", GP_DOUBT_ONE_CLASS | GP_DOUBT_STATISTICS},
		     {",size=8,mean=0,std=255", GP_DOUBT_ONE_CLASS | GP_DOUBT_STATISTICS}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_dataset *d = open_data(data_spec("folder", cases[i].rest), GP_SPLIT_TRAIN, &as_is);
		assert_int_equal(gp_dataset_doubts(d), cases[i].want);
		gp_dataset_free(d);
	}
	struct gp_dataset *d = open_data("synthetic:shape=3x8x8,mean=0.5,std=1", GP_SPLIT_TRAIN, &as_is);
	assert_int_equal(gp_dataset_doubts(d), 0);
	gp_dataset_free(d);
}

struct seen {
	atomic_int count; /* the loader's thread goes on */
};

static void on_bad(void *arg, uint32_t sample, const struct gp_err *why)
{
	struct seen *seen = arg;
	assert_true(sample < FILES && why->code == GP_INVALID);
	seen->count++;
}

static void a_loader_may_go_on_past_what_cannot_be_read(void **state)
{
	(void)state;
	struct seen seen = {0};
	struct gp_loader *l;
	struct gp_batch *b;
	struct gp_err err = {0};
	struct gp_dataset *d = open_data(data_spec("folder", ",size=8,mean=2,std=1"), GP_SPLIT_TRAIN, &as_is);
	const struct gp_loader_spec spec = {.batch = FILES, .prefetch = 1, .on_bad = on_bad, .on_bad_arg = &seen};
	assert_int_equal(gp_loader_new(d, &spec, &l, &err), GP_OK);
	assert_int_equal(gp_loader_next(l, &b, &err), GP_OK);
	assert_true(seen.count >= 4); /* the thread may be at the next batch already */
	for (int i = 0; i < FILES; i++) {
		const bool bad = i == 7 || i == 11 || i == 20 || i == 30;
		assert_int_equal(((float *)b->data[0])[i * 8 * 8 * 3] == 0, bad);
	}
	gp_loader_give_back(l, b);
	gp_loader_free(l);
	gp_dataset_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_files_are_bad_with_any_number_of_threads),
		cmocka_unit_test(what_is_left_out_is_not_loaded_and_the_rest_keeps_its_order),
		cmocka_unit_test(not_all_samples_can_be_left_out),
		cmocka_unit_test(no_part_of_a_picture_looks_whole),
		cmocka_unit_test(a_good_picture_is_good_after_a_damaged_one),
		cmocka_unit_test(an_odd_end_is_left_to_the_decoder),
		cmocka_unit_test(a_header_that_claims_too_much_is_bad),
		cmocka_unit_test(each_file_of_a_format_is_told_of),
		cmocka_unit_test(one_class_and_a_wrong_scale_are_suspicious),
		cmocka_unit_test(a_loader_may_go_on_past_what_cannot_be_read),
	};
	return cmocka_run_group_tests(tests, make_pictures, remove_data_dir);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing (gp_image_resize) against PIL's bilinear filter: first bytes and the
 * CRC-32 of all. The table comes from tests/tools/dump_resize.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <zlib.h>

#include "client/data/data_image.h"

struct resize_case {
	int height, width, channels, new_height, new_width;
	uint32_t crc;
	uint8_t first[6];
};

static const struct resize_case cases[] = {
	{28, 28, 1, 32, 32, 0x2a306b81, {0, 11, 22, 33, 45, 56}},
	{32, 32, 3, 32, 32, 0x915d3d35, {0, 29, 58, 13, 42, 71}},
	{32, 32, 3, 224, 224, 0x2d3e7959, {0, 29, 58, 0, 29, 58}},
	{240, 320, 3, 128, 128, 0xb1696734, {18, 47, 76, 48, 77, 106}},
	{7, 5, 1, 3, 9, 0x3a73bece, {6, 11, 18, 26, 34, 41}},
	{100, 33, 3, 10, 11, 0xe4f5a2a6, {61, 90, 119, 112, 139, 157}},
	{13, 64, 1, 13, 20, 0x473da12b, {18, 56, 98, 139, 180, 215}},
	{64, 13, 3, 20, 13, 0x0ae500bc, {10, 39, 68, 24, 53, 82}},
	{1, 1, 3, 4, 4, 0xb4fe818e, {0, 29, 58, 0, 29, 58}},
	{300, 400, 3, 1, 1, 0x174d282b, {125, 125, 125, 0, 0, 0}},
};

/* The formula of dump_resize.py. */
static uint8_t *formula(int h, int w, int c)
{
	uint8_t *pixels = malloc((size_t)(h * w * c)), *at = pixels;
	assert_non_null(pixels);
	for (int y = 0; y < h; y++)
		for (int x = 0; x < w; x++)
			for (int k = 0; k < c; k++)
				*at++ = (uint8_t)((y * 7 + x * 13 + k * 29 + x * y) % 251);
	return pixels;
}

static uint8_t *resize(const struct gp_image *image, int h, int w, struct gp_window window)
{
	struct gp_data_scratch scratch = {0};
	struct gp_err err = {0};
	uint8_t *out = malloc((size_t)(window.height * window.width * image->channels));
	assert_non_null(out);
	assert_int_equal(gp_image_resize(image, h, w, &window, &scratch, out, &err), GP_OK);
	gp_data_scratch_deinit(&scratch);
	return out;
}

static void resizing_equals_pil_to_the_bit(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct resize_case *k = &cases[i];
		uint8_t *pixels = formula(k->height, k->width, k->channels);
		struct gp_image image = {pixels, k->height, k->width, k->channels, (size_t)(k->width * k->channels)};
		uint8_t *out = resize(&image, k->new_height, k->new_width,
				      (struct gp_window){0, 0, k->new_height, k->new_width});
		size_t bytes = (size_t)(k->new_height * k->new_width * k->channels);
		assert_memory_equal(out, k->first, bytes < 6 ? bytes : 6);
		assert_int_equal(crc32(0, out, (unsigned)bytes), k->crc);
		free(out);
		free(pixels);
	}
}

static void a_window_is_that_part_of_the_whole(void **state)
{
	(void)state;
	uint8_t *pixels = formula(60, 90, 3);
	struct gp_image image = {pixels, 60, 90, 3, 270};
	uint8_t *whole = resize(&image, 40, 50, (struct gp_window){0, 0, 40, 50});
	uint8_t *part = resize(&image, 40, 50, (struct gp_window){7, 11, 20, 30});
	for (size_t y = 0; y < 20; y++)
		assert_memory_equal(part + y * 90, whole + (y + 7) * 150 + 33, 90);
	free(part);
	free(whole);
	free(pixels);
}

static void a_part_of_an_image_does_not_see_its_surroundings(void **state)
{
	(void)state;
	uint8_t *pixels = formula(60, 90, 1), alone[20 * 30];
	struct gp_image part = {pixels + 5 * 90 + 8, 20, 30, 1, 90}, copy = {alone, 20, 30, 1, 30};
	for (size_t y = 0; y < 20; y++)
		memcpy(alone + y * 30, part.pixels + y * 90, 30);
	uint8_t *a = resize(&part, 9, 9, (struct gp_window){0, 0, 9, 9});
	uint8_t *b = resize(&copy, 9, 9, (struct gp_window){0, 0, 9, 9});
	assert_memory_equal(a, b, 81);
	free(a);
	free(b);
	free(pixels);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resizing_equals_pil_to_the_bit),
		cmocka_unit_test(a_window_is_that_part_of_the_whole),
		cmocka_unit_test(a_part_of_an_image_does_not_see_its_surroundings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

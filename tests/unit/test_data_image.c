/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding JPEG and PNG (gp_image_decode). The files are made here, with the
 * libraries' own encoders.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <png.h>
#include <turbojpeg.h>

#include "client/data/data_image.h"

enum { HEIGHT = 20, WIDTH = 24, FILE_MAX = 1 << 16 };

static uint8_t file[FILE_MAX];
static size_t file_size;

static void gradient(uint8_t *pixels, int channels)
{
	for (int y = 0; y < HEIGHT; y++)
		for (int x = 0; x < WIDTH; x++)
			for (int c = 0; c < channels; c++)
				*pixels++ = (uint8_t)(40 + 4 * x + 3 * y + 20 * c);
}

static void make_jpeg(int format, int subsampling)
{
	uint8_t pixels[HEIGHT * WIDTH * 4];
	gradient(pixels, tjPixelSize[format]);
	tjhandle h = tjInitCompress();
	unsigned char *out = NULL;
	unsigned long size = 0;
	assert_int_equal(tjCompress2(h, pixels, WIDTH, 0, HEIGHT, format, &out, &size, subsampling, 98, 0), 0);
	assert_true(size <= sizeof file);
	memcpy(file, out, size);
	file_size = size;
	tjFree(out);
	tjDestroy(h);
}

static void make_png(uint32_t format, const void *pixels)
{
	png_image png = {.version = PNG_IMAGE_VERSION, .width = WIDTH, .height = HEIGHT, .format = format};
	png_alloc_size_t size = sizeof file;
	assert_true(png_image_write_to_memory(&png, file, &size, 0, pixels, 0, NULL));
	file_size = size;
}

static enum gp_status decode(struct gp_data_scratch *scratch, struct gp_image *image, struct gp_err *err)
{
	return gp_image_decode(&(struct gp_span){file, file_size}, "x", scratch, image, err);
}

/* Decodes and compares with value(y, x, c), at most `tolerance` off. */
static void assert_decodes_to(int (*value)(int y, int x, int c), int tolerance)
{
	struct gp_data_scratch scratch = {0};
	struct gp_image image;
	struct gp_err err = {0};
	if (decode(&scratch, &image, &err) != GP_OK)
		fail_msg("%s", err.text);
	assert_int_equal(image.height, HEIGHT);
	assert_int_equal(image.width, WIDTH);
	assert_int_equal(image.channels, 3);
	for (int y = 0; y < HEIGHT; y++)
		for (int x = 0; x < WIDTH; x++)
			for (int c = 0; c < 3; c++) {
				int got = image.pixels[(size_t)y * image.stride + (size_t)(3 * x + c)];
				if (abs(got - value(y, x, c)) > tolerance)
					fail_msg("(%d,%d,%d) is %d, not %d", y, x, c, got, value(y, x, c));
			}
	gp_data_scratch_deinit(&scratch);
}

static int color_value(int y, int x, int c)
{
	return 40 + 4 * x + 3 * y + 20 * c;
}

static int gray_value(int y, int x, int c)
{
	(void)c;
	return 40 + 4 * x + 3 * y;
}

static int ink_value(int y, int x, int c)
{
	return (color_value(y, x, c) * color_value(y, x, 3) + 127) / 255;
}

static void assert_refused(const char *wanted)
{
	struct gp_data_scratch scratch = {0};
	struct gp_image image;
	struct gp_err err = {0};
	assert_int_equal(decode(&scratch, &image, &err), GP_INVALID);
	if (!strstr(err.text, wanted))
		fail_msg("'%s' is not in '%s'", wanted, err.text);
	gp_data_scratch_deinit(&scratch);
}

static void jpeg_in_color_gray_and_cmyk_becomes_rgb(void **state)
{
	(void)state;
	make_jpeg(TJPF_RGB, TJSAMP_444);
	assert_decodes_to(color_value, 4);
	make_jpeg(TJPF_GRAY, TJSAMP_GRAY);
	assert_decodes_to(gray_value, 4);
	make_jpeg(TJPF_CMYK, TJSAMP_444);
	assert_decodes_to(ink_value, 6);
}

static void png_in_color_gray_and_alpha_becomes_rgb(void **state)
{
	(void)state;
	uint8_t pixels[HEIGHT * WIDTH * 4];
	gradient(pixels, 3);
	make_png(PNG_FORMAT_RGB, pixels);
	assert_decodes_to(color_value, 0);
	gradient(pixels, 1);
	make_png(PNG_FORMAT_GRAY, pixels);
	assert_decodes_to(gray_value, 0);
	gradient(pixels, 4); /* the fourth value is alpha: it is dropped, not applied */
	make_png(PNG_FORMAT_RGBA, pixels);
	assert_decodes_to(color_value, 0);
}

/* Palette and 16-bit files need libpng's own writer. */
static void append_bytes(png_structp png, png_bytep bytes, png_size_t size)
{
	(void)png;
	assert_true(file_size + size <= sizeof file);
	memcpy(file + file_size, bytes, size);
	file_size += size;
}

static void flush_nothing(png_structp png)
{
	(void)png;
}

static void make_png_rows(int bits, int color, int bytes_per_pixel, uint8_t *pixels, const png_color *palette)
{
	file_size = 0;
	png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
	png_infop info = png_create_info_struct(png);
	assert_non_null(info);
	png_set_write_fn(png, NULL, append_bytes, flush_nothing);
	png_set_IHDR(png, info, WIDTH, HEIGHT, bits, color, PNG_INTERLACE_ADAM7, PNG_COMPRESSION_TYPE_DEFAULT,
		     PNG_FILTER_TYPE_DEFAULT);
	if (palette)
		png_set_PLTE(png, info, palette, 256);
	png_bytep rows[HEIGHT];
	for (int y = 0; y < HEIGHT; y++)
		rows[y] = pixels + (size_t)(y * WIDTH * bytes_per_pixel);
	png_set_rows(png, info, rows);
	png_write_png(png, info, PNG_TRANSFORM_IDENTITY, NULL);
	png_destroy_write_struct(&png, &info);
}

static void png_with_palette_or_16_bits_or_interlace_becomes_rgb(void **state)
{
	(void)state;
	uint8_t pixels[HEIGHT * WIDTH * 6];
	png_color palette[256];
	for (int i = 0; i < 256; i++)
		palette[i] = (png_color){(uint8_t)i, (uint8_t)(i + 20), (uint8_t)(i + 40)};
	gradient(pixels, 1);
	make_png_rows(8, PNG_COLOR_TYPE_PALETTE, 1, pixels, palette);
	assert_decodes_to(color_value, 0);
	uint8_t bytes[HEIGHT * WIDTH * 3];
	gradient(bytes, 3);
	for (size_t i = 0; i < sizeof bytes; i++)
		pixels[2 * i] = pixels[2 * i + 1] = bytes[i]; /* v * 257 of 65535 is v of 255 */
	make_png_rows(16, PNG_COLOR_TYPE_RGB, 6, pixels, NULL);
	assert_decodes_to(color_value, 0);
}

static void damaged_files_are_refused(void **state)
{
	(void)state;
	make_jpeg(TJPF_RGB, TJSAMP_420);
	file_size -= 20;
	assert_refused("x: damaged JPEG (Premature end of JPEG file); replace or remove it");
	file_size = 200;
	assert_refused("x: damaged JPEG (no picture in it); replace or remove it");
	file_size = 20;
	assert_refused("x: damaged JPEG");
	uint8_t pixels[HEIGHT * WIDTH * 3];
	gradient(pixels, 3);
	make_png(PNG_FORMAT_RGB, pixels);
	file_size /= 2;
	assert_refused("x: damaged PNG (ends too early); replace or remove it");
	make_png(PNG_FORMAT_RGB, pixels);
	file[60] ^= 0xff; /* within the compressed data: a wrong checksum */
	assert_refused("x: damaged PNG");
	file_size = 0;
	assert_refused("x: an empty file, not an image; replace or remove it");
	memcpy(file, "GIF89a..", 8);
	file_size = 8;
	assert_refused("x: neither JPEG nor PNG by its content; convert or remove it");
}

/* libjpeg tells of the bytes, which harm nothing, and then not of the end that is missing. */
static void an_end_is_missed_behind_stray_bytes(void **state)
{
	(void)state;
	struct gp_data_scratch scratch = {0};
	struct gp_image image;
	struct gp_err err;
	make_jpeg(TJPF_RGB, TJSAMP_420);
	size_t at = 2;
	while (!(file[at] == 0xff && file[at + 1] == 0xda))
		at++;
	assert_true(file_size + 3 <= sizeof file);
	memmove(file + at + 3, file + at, file_size - at);
	memcpy(file + at, "\1\2\3", 3);
	file_size += 3;
	assert_int_equal(decode(&scratch, &image, &err), GP_OK);
	assert_true(file_size + 4 <= sizeof file);
	memcpy(file + file_size, "\xff\xda\0\2", 4); /* what a camera has put behind the picture */
	file_size += 4;
	assert_int_equal(decode(&scratch, &image, &err), GP_OK);
	gp_data_scratch_deinit(&scratch);
	file_size -= 24;
	assert_refused("x: damaged JPEG (");
}

static void a_huge_claim_is_refused_before_allocation(void **state)
{
	(void)state;
	make_jpeg(TJPF_RGB, TJSAMP_444);
	for (size_t i = 0; i + 9 < file_size; i++)
		if (file[i] == 0xff && file[i + 1] == 0xc0) {
			memcpy(file + i + 5, "\xff\xdc\xff\xdc", 4);
			break;
		}
	assert_refused("x: an image of 65500 x 65500 pixels is too large (at most 65500 a side, 64 Mi in all)");
}

static void scratch_is_used_again(void **state)
{
	(void)state;
	struct gp_data_scratch scratch = {0};
	struct gp_image image;
	struct gp_err err;
	make_jpeg(TJPF_RGB, TJSAMP_420);
	assert_int_equal(decode(&scratch, &image, &err), GP_OK);
	uint64_t before = gp_mem_calls();
	for (int i = 0; i < 3; i++)
		assert_int_equal(decode(&scratch, &image, &err), GP_OK);
	assert_int_equal(gp_mem_calls(), before);
	gp_data_scratch_deinit(&scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jpeg_in_color_gray_and_cmyk_becomes_rgb),
		cmocka_unit_test(png_in_color_gray_and_alpha_becomes_rgb),
		cmocka_unit_test(png_with_palette_or_16_bits_or_interlace_becomes_rgb),
		cmocka_unit_test(damaged_files_are_refused),
		cmocka_unit_test(an_end_is_missed_behind_stray_bytes),
		cmocka_unit_test(a_huge_claim_is_refused_before_allocation),
		cmocka_unit_test(scratch_is_used_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding JPEG (TurboJPEG) and PNG (libpng) from memory to 8-bit RGB, and the
 * scratch memory that images go through. Reads no files.
 * Test: tests/unit/test_data_image.c; fuzz: fuzz_image.c
 */
#include "common/data_image.h"

#include <png.h>
#include <string.h>
#include <turbojpeg.h>

enum gp_status gp_bytes_reserve(struct gp_bytes *b, uint64_t size, struct gp_err *err)
{
	if (size <= b->size)
		return GP_OK;
	uint8_t *data = size <= SIZE_MAX / 2 ? gp_alloc_aligned((size_t)size) : NULL;
	if (!data)
		GP_FAIL(err, GP_NOMEM, "out of memory: an image needs %llu bytes", (unsigned long long)size);
	gp_free_aligned(b->data);
	b->data = data;
	b->size = (size_t)size;
	return GP_OK;
}

void gp_data_scratch_deinit(struct gp_data_scratch *s)
{
	struct gp_bytes *const all[] = {&s->file, &s->pixels, &s->rows, &s->resized, &s->taps};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		gp_free_aligned(all[i]->data);
	if (s->jpeg)
		tjDestroy(s->jpeg);
	*s = (struct gp_data_scratch){0};
}

/* Checked before anything is allocated: a header of some bytes may claim 65535 x 65535. */
static enum gp_status check_size(const char *name, uint64_t width, uint64_t height, struct gp_err *err)
{
	if (width < 1 || height < 1 || width > GP_IMAGE_SIDE_MAX || height > GP_IMAGE_SIDE_MAX ||
	    width * height > GP_IMAGE_PIXELS_MAX)
		GP_FAIL(err, GP_INVALID,
			"%s: an image of %llu x %llu pixels is too large (at most %u a side, %u Mi in all)", name,
			(unsigned long long)width, (unsigned long long)height, GP_IMAGE_SIDE_MAX,
			GP_IMAGE_PIXELS_MAX >> 20);
	return GP_OK;
}

static struct gp_image rgb_image(const struct gp_data_scratch *scratch, int width, int height)
{
	return (struct gp_image){.pixels = scratch->pixels.data,
				 .height = height,
				 .width = width,
				 .channels = 3,
				 .stride = (size_t)width * 3};
}

/* Four bytes per pixel to three, in place: what is printed is ink times black, both stored inverted (Adobe). */
static void cmyk_to_rgb(uint8_t *pixels, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const uint8_t *in = pixels + 4 * i;
		unsigned black = in[3], ink[3] = {in[0], in[1], in[2]};
		for (int c = 0; c < 3; c++)
			pixels[3 * i + (size_t)c] = (uint8_t)((ink[c] * black + 127) / 255);
	}
}

/* A short stream is an error; other warnings (stray bytes between markers) leave the image whole enough, as in PIL. */
static bool jpeg_failed(tjhandle jpeg)
{
	return tjGetErrorCode(jpeg) != TJERR_WARNING || strncmp(tjGetErrorStr2(jpeg), "Premature end", 13) == 0;
}

static enum gp_status decode_jpeg(const struct gp_span *bytes, const char *name, struct gp_data_scratch *scratch,
				  struct gp_image *out, struct gp_err *err)
{
	if (!scratch->jpeg && !(scratch->jpeg = tjInitDecompress()))
		GP_FAIL(err, GP_NOMEM, "cannot start the JPEG decoder: %s", tjGetErrorStr2(NULL));
	tjhandle jpeg = scratch->jpeg;
	int width, height, subsampling, colors;
	if (tjDecompressHeader3(jpeg, bytes->data, bytes->len, &width, &height, &subsampling, &colors) &&
	    jpeg_failed(jpeg))
		GP_FAIL(err, GP_INVALID, "%s: damaged JPEG (%s); replace or remove it", name, tjGetErrorStr2(jpeg));
	GP_TRY(check_size(name, (uint64_t)width, (uint64_t)height, err));
	bool cmyk = colors == TJCS_CMYK || colors == TJCS_YCCK;
	size_t count = (size_t)width * (size_t)height;
	GP_TRY(gp_bytes_reserve(&scratch->pixels, count * (cmyk ? 4 : 3), err));
	if (tjDecompress2(jpeg, bytes->data, bytes->len, scratch->pixels.data, width, 0, height,
			  cmyk ? TJPF_CMYK : TJPF_RGB, TJFLAG_LIMITSCANS) &&
	    jpeg_failed(jpeg))
		GP_FAIL(err, GP_INVALID, "%s: damaged JPEG (%s); replace or remove it", name, tjGetErrorStr2(jpeg));
	if (cmyk)
		cmyk_to_rgb(scratch->pixels.data, count);
	*out = rgb_image(scratch, width, height);
	return GP_OK;
}

static void drop_alpha(uint8_t *pixels, size_t count)
{
	for (size_t i = 0; i < count; i++)
		memmove(pixels + 3 * i, pixels + 4 * i, 3);
}

static enum gp_status decode_png(const struct gp_span *bytes, const char *name, struct gp_data_scratch *scratch,
				 struct gp_image *out, struct gp_err *err)
{
	png_image png = {.version = PNG_IMAGE_VERSION};
	enum gp_status status = GP_OK;
	if (!png_image_begin_read_from_memory(&png, bytes->data, bytes->len))
		GP_FAIL(err, GP_INVALID, "%s: damaged PNG (%s); replace or remove it", name, png.message);
	png.format = PNG_FORMAT_RGBA;
	png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* 16-bit files are brighter pictures, not linear light */
	size_t count = (size_t)png.width * png.height;
	if ((status = check_size(name, png.width, png.height, err)) != GP_OK)
		goto out;
	if ((status = gp_bytes_reserve(&scratch->pixels, (uint64_t)count * 4, err)) != GP_OK)
		goto out;
	if (!png_image_finish_read(&png, NULL, scratch->pixels.data, 0, NULL)) {
		status = gp_err_set(err, GP_INVALID, 0, __FILE__, __LINE__,
				    "%s: damaged PNG (%s); replace or remove it", name, png.message);
		goto out;
	}
	drop_alpha(scratch->pixels.data, count);
	*out = rgb_image(scratch, (int)png.width, (int)png.height);
out:
	png_image_free(&png);
	return status;
}

enum gp_status gp_image_decode(const struct gp_span *bytes, const char *name, struct gp_data_scratch *scratch,
			       struct gp_image *out, struct gp_err *err)
{
	static const uint8_t jpeg_magic[] = {0xff, 0xd8, 0xff}, png_magic[] = {0x89, 'P', 'N', 'G'};
	if (bytes->len == 0)
		GP_FAIL(err, GP_INVALID, "%s: an empty file, not an image; replace or remove it", name);
	if (bytes->len > sizeof png_magic && memcmp(bytes->data, jpeg_magic, sizeof jpeg_magic) == 0)
		return decode_jpeg(bytes, name, scratch, out, err);
	if (bytes->len > sizeof png_magic && memcmp(bytes->data, png_magic, sizeof png_magic) == 0)
		return decode_png(bytes, name, scratch, out, err);
	GP_FAIL(err, GP_INVALID, "%s: neither JPEG nor PNG by its content; convert or remove it", name);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See picture_png.h. Test: tests/unit/test_picture_png.c
 */
#include "client/data/picture_png.h"

#include <errno.h>
#include <png.h>
#include <stdio.h>
#include <string.h>

static enum gp_status failed(const png_image *png, struct gp_err *err)
{
	GP_FAIL(err, GP_NOMEM, "cannot make a PNG of %ux%u: %s", png->width, png->height, png->message);
}

enum gp_status gp_picture_png(const struct gp_image *picture, struct gp_bytes *out, size_t *len, struct gp_err *err)
{
	gp_require(picture->channels == 1 || picture->channels == 3);
	png_image png = {.version = PNG_IMAGE_VERSION,
			 .width = (png_uint_32)picture->width,
			 .height = (png_uint_32)picture->height,
			 .format = picture->channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
	png_alloc_size_t size = 0;
	if (!png_image_write_to_memory(&png, NULL, &size, 0, picture->pixels, (png_int_32)picture->stride, NULL))
		return failed(&png, err);
	GP_TRY(gp_bytes_reserve(out, size, err));
	if (!png_image_write_to_memory(&png, out->data, &size, 0, picture->pixels, (png_int_32)picture->stride, NULL))
		return failed(&png, err);
	*len = size;
	return GP_OK;
}

static enum gp_status write_file(const char *path, const uint8_t *bytes, size_t len, struct gp_err *err)
{
	FILE *f = fopen(path, "we");
	if (!f)
		GP_FAIL(err, GP_INVALID, "cannot create %s: %s", path, strerror(errno));
	const bool written = fwrite(bytes, 1, len, f) == len;
	if (fclose(f) != 0 || !written)
		GP_FAIL(err, GP_IO, "cannot write %s: %s", path, strerror(errno));
	return GP_OK;
}

enum gp_status gp_picture_png_file(const struct gp_image *picture, const char *path, struct gp_err *err)
{
	struct gp_bytes png = {0};
	size_t len;
	enum gp_status status = gp_picture_png(picture, &png, &len, err);
	if (status == GP_OK)
		status = write_file(path, png.data, len, err);
	gp_free_aligned(png.data);
	return status;
}

/* RFC 4648, section 4. */
static void write_base64(const uint8_t *in, size_t len, char *out)
{
	static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	for (size_t i = 0; i < len; i += 3) {
		const size_t left = len - i;
		const uint32_t three = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
				       (left > 2 ? (uint32_t)in[i + 2] : 0);
		*out++ = digit[three >> 18];
		*out++ = digit[three >> 12 & 63];
		*out++ = left > 1 ? digit[three >> 6 & 63] : '=';
		*out++ = left > 2 ? digit[three & 63] : '=';
	}
	*out = '\0';
}

enum gp_status gp_picture_png_url(const struct gp_image *picture, char **out, struct gp_err *err)
{
	static const char prefix[] = "data:image/png;base64,";
	struct gp_bytes png = {0};
	void *text = NULL;
	size_t len;
	enum gp_status status = gp_picture_png(picture, &png, &len, err);
	if (status == GP_OK)
		status = gp_alloc_array(&text, sizeof prefix + (len + 2) / 3 * 4, 1, err);
	if (status == GP_OK) {
		memcpy(text, prefix, sizeof prefix - 1);
		write_base64(png.data, len, (char *)text + sizeof prefix - 1);
		*out = text;
	}
	gp_free_aligned(png.data);
	return status;
}

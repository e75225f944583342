/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding JPEG (TurboJPEG) and PNG (libpng) from memory to 8-bit RGB, and the
 * scratch memory that images go through. Reads no files.
 * Test: tests/unit/test_data_image.c; fuzz: fuzz_image.c
 */
#include "client/data/data_image.h"

#include <png.h>
#include <setjmp.h>
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

enum { JPEG_MARK = 0xFF, JPEG_FIRST_RESTART = 0xD0, JPEG_LAST_RESTART = 0xD7, JPEG_BEGIN = 0xD8, JPEG_END = 0xD9 };

/* The code of the next marker, 0 where there is none; *at is behind it then. Stray bytes, and coded data, in which 0xFF has
 * a 0 or a restart behind it, are passed over. */
static int next_marker(const struct gp_span *bytes, size_t *at)
{
	for (; *at + 1 < bytes->len; ++*at) {
		const int code = bytes->data[*at + 1];
		const bool restart = code >= JPEG_FIRST_RESTART && code <= JPEG_LAST_RESTART;
		if (bytes->data[*at] != JPEG_MARK || code == 0 || code == JPEG_MARK || code == JPEG_BEGIN || restart)
			continue;
		*at += 2;
		return code;
	}
	return 0;
}

/* Whether the picture has an end: that of a small one within a segment is passed over with it, and what somebody has put behind
 * the picture is not looked at. */
static bool jpeg_ends(const struct gp_span *bytes)
{
	size_t at = 0;
	for (int code = next_marker(bytes, &at); code != 0; code = next_marker(bytes, &at)) {
		if (code == JPEG_END)
			return true;
		if (at + 2 > bytes->len)
			return false;
		at += (size_t)bytes->data[at] << 8 | bytes->data[at + 1];
	}
	return false;
}

/* A short stream is an error; other warnings (stray bytes between markers) leave the image whole enough, as in PIL. Only the
 * first warning is told: behind another one, the stream may be short all the same (jpeg_ends). */
static bool jpeg_failed(tjhandle jpeg)
{
	return tjGetErrorCode(jpeg) != TJERR_WARNING || strncmp(tjGetErrorStr2(jpeg), "Premature end", 13) == 0;
}

static enum gp_status refuse_jpeg(tjhandle jpeg, const char *name, struct gp_err *err)
{
	const char *why = tjGetErrorStr2(jpeg);
	if (strstr(why, "subsampling"))
		GP_FAIL(err, GP_INVALID,
			"%s: a JPEG whose colors are sampled in a way that is not supported (%s); convert it to 4:2:0 "
			"or 4:4:4",
			name, why);
	GP_FAIL(err, GP_INVALID, "%s: damaged JPEG (%s); replace or remove it", name, why);
}

static enum gp_status decode_jpeg_with(tjhandle jpeg, const struct gp_span *bytes, const char *name,
				       struct gp_data_scratch *scratch, struct gp_image *out, struct gp_err *err)
{
	int width = 0, height = 0, subsampling = 0, colors = 0;
	if (tjDecompressHeader3(jpeg, bytes->data, bytes->len, &width, &height, &subsampling, &colors) &&
	    jpeg_failed(jpeg))
		return refuse_jpeg(jpeg, name, err);
	if (width < 1 || height < 1) /* the header may hold tables and no picture */
		GP_FAIL(err, GP_INVALID, "%s: damaged JPEG (no picture in it); replace or remove it", name);
	GP_TRY(check_size(name, (uint64_t)width, (uint64_t)height, err));
	bool cmyk = colors == TJCS_CMYK || colors == TJCS_YCCK;
	size_t count = (size_t)width * (size_t)height;
	GP_TRY(gp_bytes_reserve(&scratch->pixels, count * (cmyk ? 4 : 3), err));
	if (tjDecompress2(jpeg, bytes->data, bytes->len, scratch->pixels.data, width, 0, height,
			  cmyk ? TJPF_CMYK : TJPF_RGB, TJFLAG_LIMITSCANS) &&
	    (jpeg_failed(jpeg) || !jpeg_ends(bytes)))
		return refuse_jpeg(jpeg, name, err);
	if (cmyk)
		cmyk_to_rgb(scratch->pixels.data, count);
	*out = rgb_image(scratch, width, height);
	return GP_OK;
}

/* A decoder of its own for each picture: one keeps its tables, and those of a damaged picture make the next ones fail. */
static enum gp_status decode_jpeg(const struct gp_span *bytes, const char *name, struct gp_data_scratch *scratch,
				  struct gp_image *out, struct gp_err *err)
{
	tjhandle jpeg = tjInitDecompress();
	if (!jpeg)
		GP_FAIL(err, GP_NOMEM, "cannot start the JPEG decoder: %s", tjGetErrorStr2(NULL));
	const enum gp_status status = decode_jpeg_with(jpeg, bytes, name, scratch, out, err);
	tjDestroy(jpeg);
	return status;
}

/* One PNG being read; libpng's errors come back through `jump`. */
struct png_reader {
	struct gp_span left;
	jmp_buf jump;
	png_structp png;
	png_infop info;
	enum gp_status status; /* of our own failures */
	char text[128];        /* of libpng's */
};

static void png_fail(png_structp png, png_const_charp text)
{
	struct png_reader *r = png_get_error_ptr(png);
	snprintf(r->text, sizeof r->text, "%s", text);
	longjmp(r->jump, 1);
}

static void png_ignore(png_structp png, png_const_charp text)
{
	(void)png;
	(void)text;
}

static void png_take(png_structp png, png_bytep to, size_t size)
{
	struct png_reader *r = png_get_io_ptr(png);
	if (size > r->left.len)
		png_error(png, "ends too early");
	memcpy(to, r->left.data, size);
	r->left.data += size;
	r->left.len -= size;
}

/* Whatever it is becomes 8-bit RGB; no gamma is applied, as in PIL. */
static void png_ask_for_rgb(struct png_reader *r)
{
	png_set_expand(r->png);
	png_set_scale_16(r->png);
	png_set_strip_alpha(r->png);
	png_set_gray_to_rgb(r->png);
	png_set_interlace_handling(r->png);
	png_read_update_info(r->png, r->info);
}

/* Row pointers lie in scratch->rows, which nothing else uses before the resize. */
static enum gp_status png_make_room(struct png_reader *r, const char *name, struct gp_data_scratch *scratch,
				    struct gp_image *out, struct gp_err *err)
{
	uint32_t width = png_get_image_width(r->png, r->info), height = png_get_image_height(r->png, r->info);
	GP_TRY(check_size(name, width, height, err));
	GP_TRY(gp_bytes_reserve(&scratch->pixels, (uint64_t)width * height * 3, err));
	GP_TRY(gp_bytes_reserve(&scratch->rows, (uint64_t)height * sizeof(png_bytep), err));
	*out = rgb_image(scratch, (int)width, (int)height);
	png_bytep *rows = (png_bytep *)(void *)scratch->rows.data;
	for (uint32_t y = 0; y < height; y++)
		rows[y] = scratch->pixels.data + (size_t)y * out->stride;
	return GP_OK;
}

/* All that may jump. Sets r->status and `err` for our own failures, r->text for libpng's. */
static void png_read_all(struct png_reader *r, const char *name, struct gp_data_scratch *scratch, struct gp_image *out,
			 struct gp_err *err)
{
	if (setjmp(r->jump))
		return;
	png_set_read_fn(r->png, r, png_take);
	png_set_user_limits(r->png, GP_IMAGE_SIDE_MAX, GP_IMAGE_SIDE_MAX);
	png_read_info(r->png, r->info);
	r->status = png_make_room(r, name, scratch, out, err);
	if (r->status != GP_OK)
		return;
	png_ask_for_rgb(r);
	if (png_get_rowbytes(r->png, r->info) != out->stride)
		png_error(r->png, "an unexpected kind of pixel");
	png_read_image(r->png, (png_bytepp)(void *)scratch->rows.data);
	png_read_end(r->png, NULL);
}

static enum gp_status decode_png(const struct gp_span *bytes, const char *name, struct gp_data_scratch *scratch,
				 struct gp_image *out, struct gp_err *err)
{
	struct png_reader r = {.left = *bytes};
	struct gp_image image = {0};
	r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, png_fail, png_ignore);
	r.info = r.png ? png_create_info_struct(r.png) : NULL;
	if (!r.info) {
		png_destroy_read_struct(&r.png, NULL, NULL);
		GP_FAIL(err, GP_NOMEM, "cannot start the PNG decoder: out of memory");
	}
	png_read_all(&r, name, scratch, &image, err);
	png_destroy_read_struct(&r.png, &r.info, NULL);
	if (r.text[0])
		GP_FAIL(err, GP_INVALID, "%s: damaged PNG (%s); replace or remove it", name, r.text);
	if (r.status == GP_OK)
		*out = image;
	return r.status;
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

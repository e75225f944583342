/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit images: decoding JPEG and PNG from memory, and resizing as PIL does
 * (what torchvision models were trained and are evaluated with). Knows nothing
 * of datasets.
 *
 * Threads: any; nothing here is kept between calls. Tests: tests/unit/test_data_image.c,
 * test_data_resize.c; fuzz: fuzz_image.c
 */
#ifndef GP_DATA_IMAGE_H
#define GP_DATA_IMAGE_H

#include "common/base/mem.h"

struct gp_image { /* (H,W,C), borrowed */
	const uint8_t *pixels;
	int height, width, channels;
	size_t stride; /* bytes from row to row */
};

/* Memory that grows to what the largest image needs and is used again: a steady loader allocates nothing but a JPEG decoder. */
struct gp_bytes {
	uint8_t *data;
	size_t size;
};
struct gp_data_scratch { /* start with {0} */
	struct gp_bytes file, pixels, rows, resized, taps;
};
enum gp_status gp_bytes_reserve(struct gp_bytes *b, uint64_t size, struct gp_err *err);
void gp_data_scratch_deinit(struct gp_data_scratch *s);

/* More pixels than this are refused before anything is allocated. */
#define GP_IMAGE_PIXELS_MAX (64u << 20)
#define GP_IMAGE_SIDE_MAX   65500u

/*
 * JPEG (also grayscale, CMYK, YCCK) or PNG (any kind) to RGB in scratch->pixels. Alpha is dropped and the EXIF
 * orientation ignored, as torchvision's loader does. `name` is for messages.
 */
enum gp_status gp_image_decode(const struct gp_span *bytes, const char *name, struct gp_data_scratch *scratch,
			       struct gp_image *out, struct gp_err *err);

struct gp_window {
	int top, left, height, width;
};
/*
 * The part `window` of `src` resized to full_height x full_width, into dst (window height, width, C). Bilinear with the
 * filter widened when shrinking (PIL's Image.BILINEAR, to the bit). Uses scratch->rows and ->taps. dst must not overlap src.
 */
enum gp_status gp_image_resize(const struct gp_image *src, int full_height, int full_width,
			       const struct gp_window *window, struct gp_data_scratch *scratch, uint8_t *dst,
			       struct gp_err *err);

#endif

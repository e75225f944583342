/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit pictures as PNG: in memory, or in a file. The way back is data_image.h.
 *
 * Threads: any; no state. Test: tests/unit/test_picture_png.c
 */
#ifndef GP_PICTURE_PNG_H
#define GP_PICTURE_PNG_H

#include "client/data/data_image.h"

/* A picture has 1 channel (grey) or 3 (RGB). The bytes are in out->data, *len of them; `out` grows, and is the caller's to free
 * (gp_free_aligned). */
enum gp_status gp_picture_png(const struct gp_image *picture, struct gp_bytes *out, size_t *len, struct gp_err *err);
/* Writes the file anew. GP_INVALID: it cannot be made; GP_IO: nor written. */
enum gp_status gp_picture_png_file(const struct gp_image *picture, const char *path, struct gp_err *err);
/* "data:image/png;base64,...", on the heap: free with gp_free. */
enum gp_status gp_picture_png_url(const struct gp_image *picture, char **out, struct gp_err *err);

#endif

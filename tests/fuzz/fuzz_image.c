/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes give a picture of a checked size, that can be resized, or an error.
 */
#include <stdlib.h>

#include "client/data/data_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct gp_window window = {0, 0, 8, 8};
	struct gp_data_scratch scratch = {0};
	struct gp_image image = {0};
	struct gp_err err = {0};
	uint8_t out[8 * 8 * 3];
	if (gp_image_decode(&(struct gp_span){data, size}, "x", &scratch, &image, &err) == GP_OK) {
		if (image.height < 1 || image.width < 1 || image.channels != 3 ||
		    (uint64_t)image.height * (uint64_t)image.width > GP_IMAGE_PIXELS_MAX)
			abort();
		if (gp_image_resize(&image, 8, 8, &window, &scratch, out, &err) != GP_OK)
			abort();
	} else if (!err.text[0]) {
		abort();
	}
	gp_data_scratch_deinit(&scratch);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch of pictures that a test made itself, for engines and `capture`.
 */
#ifndef GP_PICTURE_BATCH_H
#define GP_PICTURE_BATCH_H

#include "client/data/dataset.h"

/* `images` is (valid, sample), `labels` and `samples` have `valid` elements; `samples` may be NULL where no codec asks. The
 * batch is good until the next call. */
static inline struct gp_batch picture_batch(float *images, const struct gp_shape *sample, int32_t *labels,
					    uint32_t *samples, int valid)
{
	static struct gp_tensor_info info;
	info = (struct gp_tensor_info){.name = "image", .type = {GP_F32, *sample}};
	return (struct gp_batch){.tensors = 1,
				 .info = &info,
				 .data = {images},
				 .label_info = {.name = "label", .type = {.dtype = GP_I32}},
				 .label = labels,
				 .samples = samples,
				 .valid = valid,
				 .room = valid};
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * `budget` of `block` on a GPU: reaches come to the host, which chooses the bits
 * of each block as it does for itself, and where their codes lie. A part of
 * cuda_block.c.
 *
 * Threads: as struct gp_codec. Test: tests/unit/test_cuda_codec_block.c
 */
#ifndef GP_CUDA_BUDGET_H
#define GP_CUDA_BUDGET_H

#include "common/codec/stages/block_budget.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/k_codec_budget.h"

struct gp_cuda_budget {
	struct gp_codec_site *site;
	struct gp_budget_blocks blocks;
	uint64_t bits;                        /* of all codes, at most */
	float *reach;                         /* device; of each block, */
	float *held;                          /* and on the host, pinned */
	struct gpk_block_place *place, *told; /* device, and on the host, pinned */
	uint16_t *width;                      /* host */
	uint32_t *histogram;
	struct gp_budget_groups groups; /* of the last payload */
};

/* Bytes that gp_cuda_budget_open takes. */
uint64_t gp_cuda_budget_bytes(uint64_t n, uint64_t size);
/* For tensors of n elements. GP_NOMEM; *b is then to be closed, too. */
enum gp_status gp_cuda_budget_open(struct gp_cuda_budget *b, struct gp_codec_site *site, uint64_t n, uint64_t size,
				   double budget, struct gp_err *err);
void gp_cuda_budget_close(struct gp_cuda_budget *b); /* also when it was never opened */

/* Waits for the reaches of x, and chooses. *form gets its unit. False: the tensor cannot be coded, or the device failed. */
bool gp_cuda_budget_choose(struct gp_cuda_budget *b, struct gp_block_form *form, const float *x);
/* The widths as they travel, gp_cuda_budget_width_bytes of them. */
uint64_t gp_cuda_budget_width_bytes(const struct gp_cuda_budget *b);
void gp_cuda_budget_write_widths(const struct gp_cuda_budget *b, uint8_t *out);
/* What gp_cuda_budget_choose gives, of a payload whose widths begin at `at`: they and the codes are its last bytes. */
enum gp_status gp_cuda_budget_read(struct gp_cuda_budget *b, struct gp_span in, uint64_t at, struct gp_err *err);
/* Queued: where each block's codes lie, for kernels. The pass that calls it waits for the stream. */
void gp_cuda_budget_place(const struct gp_cuda_budget *b);
/* For codes_written: `at` is where the codes begin. */
int gp_cuda_budget_codes(const struct gp_cuda_budget *b, uint64_t at, struct gp_codec_codes *out);

#endif

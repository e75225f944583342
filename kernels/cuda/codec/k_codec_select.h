/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact order statistics on the device, without sorting: for sortquant (values
 * at many ranks) and topk (the k-th magnitude). One pass over the tensor counts
 * the upper 12 bits of all keys and sets aside the elements of the cells that
 * a sample says will be asked for; two looks at those few count the other 20
 * bits where a wanted rank is. Where the sample was wrong, or too many elements
 * were chosen, the two looks are at the whole tensor: slower, and as exact.
 *
 * A key orders elements as an unsigned integer: of values that of
 * common/codec/codec_histogram.h, with -0 as +0; of magnitudes the float's bits without the
 * sign, shifted left by one.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec_select.c
 */
#ifndef GP_K_CODEC_SELECT_H
#define GP_K_CODEC_SELECT_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPK_SELECT_MOST 512 /* ranks */

/* What was found at a rank. */
struct gpk_wanted {
	uint32_t key;
	uint32_t before, equal; /* elements with this key of lower rank; with this key in all */
	uint32_t row;           /* used on the way */
};

struct gpk_select {
	int64_t n;            /* 1 .. 2^31 */
	int ranks;            /* 1 .. GPK_SELECT_MOST */
	bool magnitudes;      /* else values */
	const uint32_t *rank; /* device: ascending, each below n */
	void *room;           /* device: gpk_select_bytes */
};

uint64_t gpk_select_bytes(int64_t n, int ranks);
/* Device addresses in the room, for kernels that are queued behind: what was found, rank by rank; and whether some
 * element is not finite (1), so that nothing was. */
const struct gpk_wanted *gpk_select_found(const struct gpk_select *s);
const uint32_t *gpk_select_bad(const struct gpk_select *s);
/* x: n elements; faster when aligned to 16 bytes. */
void gpk_select_run(struct gp_rt_stream *stream, const struct gpk_select *s, const float *x);

#ifdef __cplusplus
}
#endif
#endif

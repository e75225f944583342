/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of `uniform` and of what needs a tensor's range. Pointers are
 * device memory; payloads as gpk_codec.h says.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec.c
 */
#ifndef GP_K_CODEC_UNIFORM_H
#define GP_K_CODEC_UNIFORM_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zeroed before gpk_range, whose answer it is: as keys (gpk_key_of_float), so that zeros mean nothing seen. */
struct gpk_range {
	uint32_t inverted_min, max; /* ~key of the smallest, key of the largest */
	uint32_t bad;               /* not 0: some element is not finite; or, from a quantizer: it cannot be coded */
	uint32_t unused;
};

/* Range of x[0..n), n >= 1. */
void gpk_range(struct gp_rt_stream *s, const float *x, int64_t n, struct gpk_range *range);
/* From x and its range: min and step to `table` (2 floats) and codes of `bits` bits to `codes`; sets range->bad where
 * the levels overflow, and then, as where it was set, writes no codes. */
void gpk_uniform_encode(struct gp_rt_stream *s, const float *x, int64_t n, int bits, struct gpk_range *range,
			float *table, uint8_t *codes);
/* x[i] = code * step + min. */
void gpk_uniform_decode(struct gp_rt_stream *s, const uint8_t *codes, int64_t n, int bits, float min, float step,
			float *x);

#ifdef __cplusplus
}
#endif
#endif

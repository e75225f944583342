/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of the level quantizers. Formulas: common/CODECS.md, "Level
 * quantizers". Pointers are device memory unless it says otherwise; codes as
 * gpk_codec.h says, norms aligned to 4 bytes.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec.c
 */
#ifndef GP_K_CODEC_LEVEL_H
#define GP_K_CODEC_LEVEL_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Levels as gp_level_table's: host memory, copied at the launch. */
struct gpk_levels {
	int bits, count;
	const float *level; /* 2^bits, ascending, the first -1; infinite from `count` on */
};

/* The norm of each bucket of x[0..n): L2, added up in the host's order, or the largest magnitude. *bad becomes 1 where one
 * is not finite. n < 2^32. */
void gpk_level_norms(struct gp_rt_stream *s, const float *x, int64_t n, int64_t bucket, bool l2, float *norms,
		     uint32_t *bad);
/* Codes of x, element i rounded with half i mod 8 of Philox block i div 8. */
void gpk_level_encode(struct gp_rt_stream *s, const float *x, int64_t n, int64_t bucket,
		      const struct gpk_levels *levels, uint64_t seed, uint64_t stream, const float *norms,
		      uint8_t *codes);
/* Both, in one pass over x where buckets are 2^4 to 2^11 elements. */
void gpk_level_quantize(struct gp_rt_stream *s, const float *x, int64_t n, int64_t bucket, bool l2,
			const struct gpk_levels *levels, uint64_t seed, uint64_t stream, float *norms, uint8_t *codes,
			uint32_t *bad);
/* *bad becomes 1 where a norm is negative or not finite, or a code has no level; x is then unspecified. */
void gpk_level_decode(struct gp_rt_stream *s, const float *norms, const uint8_t *codes, int64_t n, int64_t bucket,
		      const struct gpk_levels *levels, float *x, uint32_t *bad);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of small floating-point numbers under scales of blocks: the MX
 * formats and NVFP4. Formulas and layouts: common/CODECS.md. Pointers are device
 * memory, of n elements; codes as gpk_codec.h says, scales at any address, a byte for
 * each GP_MX_BLOCK or GP_NVFP4_BLOCK elements.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec_block.c
 */
#ifndef GP_K_CODEC_MX_H
#define GP_K_CODEC_MX_H

#include "kernels/cuda/codec/k_codec_uniform.h"
#include "kernels/loops/block_loops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *bad becomes 1 where an element is not finite; the rest is then unspecified. */
void gpk_mx_encode(struct gp_rt_stream *s, enum gp_mx_format format, const float *x, int64_t n, uint8_t *scales,
		   uint8_t *codes, uint32_t *bad);
/* *bad becomes 1 where a scale or a code is none that an encoder writes; x is then unspecified. */
void gpk_mx_decode(struct gp_rt_stream *s, enum gp_mx_format format, const uint8_t *scales, const uint8_t *codes,
		   int64_t n, float *x, uint32_t *bad);

/* The tensor's scale follows from the range of x (gpk_range); *whole becomes it. Of a range that is not finite the rest is
 * unspecified. */
void gpk_nvfp4_encode(struct gp_rt_stream *s, const float *x, int64_t n, const struct gpk_range *range, float *whole,
		      uint8_t *scales, uint8_t *codes);
/* *bad as above. */
void gpk_nvfp4_decode(struct gp_rt_stream *s, float whole, const uint8_t *scales, const uint8_t *codes, int64_t n,
		      float *x, uint32_t *bad);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers: 16-bit codes to packed ones and back. Quantizers pack as they go
 * (gpk_codec.h); these are for codes that already lie in memory.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec_kernels.c
 */
#ifndef GP_K_CODEC_BITS_H
#define GP_K_CODEC_BITS_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Codes of `width` 1..16 bits. `codes` device memory aligned to 16 bytes, `packed` as gpk_codec.h says: also writes up to
 * 32 bytes behind (n * width + 7) / 8. The last byte is filled up with zeros. */
void gpk_pack_codes(struct gp_rt_stream *s, const uint16_t *codes, int64_t n, int width, uint8_t *packed);
void gpk_unpack_codes(struct gp_rt_stream *s, const uint8_t *packed, int64_t n, int width, uint16_t *codes);

#ifdef __cplusplus
}
#endif
#endif

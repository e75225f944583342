/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of the number formats: fp16, bf16, fp8, s2fp8. Pointers are device
 * memory, payloads aligned to 16 bytes with room for 16 more behind them.
 * `*bad` becomes 1 where an element (encode) or a pattern (decode) is not
 * finite; results are then unspecified.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec.c
 */
#ifndef GP_K_CODEC_FORMAT_H
#define GP_K_CODEC_FORMAT_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum gpk_format { GPK_FP16, GPK_BF16, GPK_E5M2, GPK_E4M3 };

void gpk_format_encode(struct gp_rt_stream *s, enum gpk_format format, const float *x, int64_t n, uint8_t *out,
		       uint32_t *bad);
void gpk_format_decode(struct gp_rt_stream *s, enum gpk_format format, const uint8_t *in, int64_t n, float *x,
		       uint32_t *bad);

/* s2fp8: sum and largest of log2|x| of a part of x. */
struct gpk_log_sum {
	double product;    /* in [1, 2) */
	int64_t exponents; /* the sum is exponents + log2(product) */
	uint32_t largest;  /* bits of the largest magnitude */
	uint32_t unused;
};
#define GPK_LOG_PARTS 4096
/* alpha and beta of x to head[2]; `room`: GPK_LOG_PARTS sums. */
void gpk_s2fp8_measure(struct gp_rt_stream *s, const float *x, int64_t n, struct gpk_log_sum *room, float *head,
		       uint32_t *bad);
/* x finite; head as measured. */
void gpk_s2fp8_encode(struct gp_rt_stream *s, const float *x, int64_t n, const float *head, uint8_t *out);
/* E5M2 to +-table[magnitude]; `table` is host memory, copied at once. */
void gpk_s2fp8_decode(struct gp_rt_stream *s, const uint8_t *in, int64_t n, const float table[128], float *x,
		      uint32_t *bad);

#ifdef __cplusplus
}
#endif
#endif

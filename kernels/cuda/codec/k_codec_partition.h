/* SPDX-License-Identifier: Apache-2.0
 *
 * Partitions of sortquant on the device: the table from what a selection
 * found, codes of a tensor and back. Arithmetic and bytes are those of
 * common/codec/stages/quant.c and kernels/loops/codec_loops.h.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec_select.c
 */
#ifndef GP_K_CODEC_PARTITION_H
#define GP_K_CODEC_PARTITION_H

#include "kernels/cuda/codec/k_codec_select.h"
#include "kernels/cuda/codec/k_codec_uniform.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPK_PARTITIONS_MOST 256

/* On the device. As struct gp_quant_table, and whether it can be used: the tensor is finite, and so is every level. */
struct gpk_partitions {
	float min[GPK_PARTITIONS_MOST], step[GPK_PARTITIONS_MOST], divisor[GPK_PARTITIONS_MOST];
	uint32_t good;
};

/* Where partition p begins and ends: which of the wanted ranks, or an end of gpk_range. */
enum { GPK_RANGE_MIN = 0xfffe, GPK_RANGE_MAX = 0xffff };
struct gpk_limits {
	uint16_t begin, end;
};

/* One element out of each of `count` equal stretches of x[0..n), by the numbers of gp_rng_block(seed, stream, ...). */
void gpk_draw_sample(struct gp_rt_stream *s, const float *x, int64_t n, uint64_t seed, uint64_t stream, int64_t count,
		     float *sample);

/* limits: device, 1 << split of them. range: of the whole tensor, or NULL where every element was selected from.
 * Writes (min, step) of each partition to `out` as well, and `good` to *answer. */
void gpk_partition_table(struct gp_rt_stream *s, const struct gpk_select *select, const struct gpk_limits *limits,
			 const struct gpk_range *range, int bits, int split, struct gpk_partitions *table, float *out,
			 uint32_t *answer);

/* Packed codes of x[0..n) to `codes`, aligned to 8 bytes: whole words of 4 bytes, the last filled up with zeros. Nothing
 * when the table is not good. */
void gpk_partition_encode(struct gp_rt_stream *s, const struct gpk_partitions *table, int bits, int split,
			  const float *x, int64_t n, uint32_t *codes);
/* The reverse. `table`: (min, step) of each partition, in device memory; whatever the bytes are, x is written whole.
 * Reads up to 8 bytes behind the last code's word. */
void gpk_partition_decode(struct gp_rt_stream *s, const float *table, int bits, int split, const uint32_t *codes,
			  int64_t n, float *x);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stages of `kmeans` share, the host's (kmeans.c) and a GPU's
 * (kernels/cuda/codec/cuda_kmeans.c): sizes, cells, and what a payload has to
 * be. The levels: lloyd.h.
 *
 * Threads: any (pure functions). Test: tests/unit/test_codec_kmeans.c
 */
#ifndef GP_CODEC_KMEANS_H
#define GP_CODEC_KMEANS_H

#include "common/codec/codec_impl.h"
#include "kernels/loops/codec_loops.h"

size_t gp_kmeans_bytes(int bits, uint64_t n);
/* Where the cells of 2^bits ascending levels begin, from the tensor's least element on: cell i halfway between levels i - 1
 * and i. Together with `divisor` a table of partitions without levels of their own (gp_quant_table, bits = 0). */
void gp_kmeans_cells(int bits, const float *level, float least, float *min, float *divisor);
/* GP_PROTO for a wrong length, a level that is not finite and bits set behind the last code. */
enum gp_status gp_kmeans_read_levels(int bits, struct gp_span in, uint64_t n, float *level, struct gp_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * How `sortquant` cuts a tensor into partitions, for the stages that do it: the
 * host's (sortquant.c) and a GPU's (kernels/cuda/codec/cuda_sortquant.c).
 *
 * Threads: any (pure functions). Test: tests/unit/test_codec_sortquant.c
 */
#ifndef GP_CODEC_SORTQUANT_H
#define GP_CODEC_SORTQUANT_H

#include "common/codec/codec_impl.h"

struct gp_sortquant_cut {
	uint64_t n;
	uint64_t chosen;  /* elements that are quantized: n, or what pruning leaves */
	uint64_t sampled; /* of the chosen ones, from which partitions are found; 0: exact, from all */
	int bits, split;
	int parts;    /* at most 2^split; the others are empty, at the tensor's max */
	bool chunked; /* partitions=p: their sizes are those of `chunk`, from the top */
};

struct gp_sortquant_cut gp_sortquant_cut_of(const double *value, uint64_t n);
/* How many of n elements are in the partitions below p, p <= 2^split. */
uint64_t gp_sortquant_first_rank(const struct gp_sortquant_cut *c, uint64_t n, int p);

#endif

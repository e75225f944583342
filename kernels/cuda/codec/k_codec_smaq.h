/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of `smaq`. Formula: common/CODECS.md, "smaq". Pointers are device
 * memory; codes and extras as gpk_codec.h says.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec.c
 */
#ifndef GP_K_CODEC_SMAQ_H
#define GP_K_CODEC_SMAQ_H

#include <stdbool.h>

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a payload's head says, and whether the tensor can be coded. */
struct gpk_smaq_head {
	float mean, std;
	uint32_t outliers;
	uint32_t bad; /* not 0: not finite, or out of range; the others then mean nothing */
};

/* The same for every tensor of a codec. */
struct gpk_smaq {
	int width, extra_width, low_bits;     /* as struct gp_smaq_coder and gp_smaq */
	float main_scale, outlier_scale, top; /* scales: numbers of levels, 2^-10 to 2^16 */
	float main_step, outlier_step;        /* 1 / scale */
	float half;  /* added to the number of levels before that is truncated: 1/2 for the nearest one, else 0 */
	bool drawn;  /* round=stochastic: adds a draw for each element instead */
	float reach; /* |mean| + reach * std has to be finite */
};

#define GPK_SMAQ_PARTS  4096
#define GPK_SMAQ_BLOCKS 4224 /* 32 on each of 132 multiprocessors */
/* Device memory: of both ways `sums`; the encoder's, gpk_smaq_tiles(n) of each, the others. */
struct gpk_smaq_room {
	double *parts;    /* 2 * GPK_SMAQ_PARTS */
	uint32_t *sums;   /* GPK_SMAQ_BLOCKS: outliers of a block's tiles */
	uint32_t *counts; /* outliers before a tile, of the same block's */
	uint16_t *extras; /* 2048 per tile, before they are packed; NULL where extra_width is 0 */
};
int64_t gpk_smaq_tiles(int64_t n);

/* Mean and deviation of x to *head, which was zeroed. */
void gpk_smaq_measure(struct gp_rt_stream *s, const struct gpk_smaq *q, const float *x, int64_t n,
		      const struct gpk_smaq_room *room, struct gpk_smaq_head *head);
/* Where q->drawn: gp_rng_block of common/base/rng.h with this seed and stream. */
struct gpk_smaq_draws {
	uint64_t seed, stream;
};

/* Codes of x, and the extras packed to `extras`, which was zeroed as far as `n` of them reach; head->outliers. */
void gpk_smaq_encode(struct gp_rt_stream *s, const struct gpk_smaq *q, const float *x, int64_t n,
		     const struct gpk_smaq_room *room, struct gpk_smaq_head *head, struct gpk_smaq_draws draws,
		     uint8_t *codes, uint8_t *extras);
/* x from codes and `count` extras. Where the codes have another number of outliers, *head, which was zeroed, has it in
 * `outliers`, and x is unspecified. */
void gpk_smaq_decode(struct gp_rt_stream *s, const struct gpk_smaq *q, float mean, float std, const uint8_t *codes,
		     const uint8_t *extras, uint32_t count, int64_t n, const struct gpk_smaq_room *room,
		     struct gpk_smaq_head *head, float *x);

#ifdef __cplusplus
}
#endif
#endif

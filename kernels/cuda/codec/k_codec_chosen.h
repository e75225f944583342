/* SPDX-License-Identifier: Apache-2.0
 *
 * Which elements of a tensor are chosen, on the device: bits from a threshold,
 * chosen elements together and apart again, and the distances of topk's
 * payloads. Results are those of kernels/loops/topk_loops.h and
 * common/codec/codec_indices.c. Test: tests/unit/test_cuda_codec_select.c
 *
 * Bits: element i is bit i % 32 of word i / 32, which is the host's order of
 * words of 64 as well. A warp works on a tile of GPK_TILE elements or codes.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h).
 */
#ifndef GP_K_CODEC_KEPT_H
#define GP_K_CODEC_KEPT_H

#include "kernels/cuda/codec/k_codec_select.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPK_TILE       1024
#define GPK_KEPT_PARTS (2112 * 9) /* sums of blocks and of their warps */

static inline int64_t gpk_tiles(int64_t n)
{
	return (n + GPK_TILE - 1) / GPK_TILE;
}
/* Words of n bits, whole tiles of them. */
static inline int64_t gpk_bit_words(int64_t n)
{
	return gpk_tiles(n) * (GPK_TILE / 32);
}

/* Answers, in device memory; all 0 before. */
struct gpk_chosen_told {
	uint32_t bad;        /* an element is not finite; or a place is past the last element */
	uint32_t chosen;     /* bits set */
	uint32_t width;      /* of distances; 0: a bitmap takes no more */
	uint32_t codes;      /* written */
	uint32_t used;       /* codes read until the last chosen element was found; 0: it was not */
	uint32_t longer[17]; /* by width: codes that distances take beyond one for each */
};

/* What the functions below work with. All of it device memory. */
struct gpk_chosen {
	int64_t n, chosen;
	uint32_t *bits;    /* gpk_bit_words(n) */
	uint32_t *ties;    /* the same; for gpk_chosen_mark */
	uint32_t *part[2]; /* GPK_KEPT_PARTS each; part[1] for gpk_chosen_mark and gpk_distances_read */
	uint32_t *first;   /* gpk_tiles(n): chosen elements before a tile; for gpk_distances_read */
	struct gpk_chosen_told *told;
};

/* bits of the `chosen` largest magnitudes of x, of equal ones the first; their values together, and (or NULL) their
 * places. `select`: has been run over x with one rank, n - chosen. Nothing useful when that was bad, which is told. */
void gpk_chosen_mark(struct gp_rt_stream *s, const struct gpk_chosen *b, const struct gpk_select *select,
		     const float *x, float *values, uint32_t *places);
/* Parts of bits that came from elsewhere. Bits past the n-th must be 0. */
void gpk_chosen_count(struct gp_rt_stream *s, const struct gpk_chosen *b);
/* The values of the elements whose bits are set, after gpk_chosen_count; at most `chosen`. told.chosen; told.bad: some element
 * of x, chosen or not, is not finite. */
void gpk_chosen_gather(struct gp_rt_stream *s, const struct gpk_chosen *b, const float *x, float *values);
/* The reverse, after gpk_chosen_count: x written whole, 0 where no bit is set; told.chosen. Reads values[0..chosen). */
void gpk_chosen_scatter(struct gp_rt_stream *s, const struct gpk_chosen *b, const float *values, float *x);

/* Distances of the places (ascending) as codes of the best width, to packed[0..n / 32 + 1) words, which are 0 before;
 * told.width and told.codes. Nothing is written when told.bad is set or a bitmap takes no more. */
void gpk_distances_write(struct gp_rt_stream *s, const struct gpk_chosen *b, const uint32_t *places, uint32_t *packed);
/* The reverse: bits (0 before) from up to `codes` codes; told.used and told.bad. */
void gpk_distances_read(struct gp_rt_stream *s, const struct gpk_chosen *b, const uint32_t *packed, int width,
			int64_t codes);
/* As gpk_chosen_scatter, after gpk_distances_read, which has counted; without told.chosen. */
void gpk_distances_scatter(struct gp_rt_stream *s, const struct gpk_chosen *b, const float *values, float *x);

#ifdef __cplusplus
}
#endif
#endif

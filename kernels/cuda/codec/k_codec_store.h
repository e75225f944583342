/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers that keep arrays encoded in device memory, as
 * common/codec/codec_store.h and moment_store.h do on the host: the same codecs,
 * blocks, layout and values. A block of threads codes a block of elements by
 * itself, so nothing is asked of the host between, and a launch can be part of a
 * graph. Codes whose parameters are sums can differ as common/CODECS.md says ("On a GPU").
 *
 * What lies at `store` and in a room begins at a multiple of 64 bytes.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_stored.c
 */
#ifndef GP_K_CODEC_STORE_H
#define GP_K_CODEC_STORE_H

#include "kernels/cuda/codec/k_codec_smaq.h"
#include "kernels/cuda/codec/piece.h"
#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum gpk_store_kind {
	GPK_STORE_FP16,
	GPK_STORE_BF16,
	GPK_STORE_E5M2,
	GPK_STORE_E4M3,
	GPK_STORE_S2FP8,
	GPK_STORE_UNIFORM,
	GPK_STORE_SORTQUANT,
	GPK_STORE_SMAQ,
};

/* A codec of what lies in memory; cuda_stored.h makes it of a spec. */
struct gpk_store {
	enum gpk_store_kind kind;
	int width;            /* bits of a code */
	int split, parts;     /* sortquant: bits of a partition's number, partitions */
	bool chunked;         /* sortquant: struct gp_sortquant_cut */
	struct gpk_smaq smaq; /* smaq */
	uint64_t block_bytes; /* of a whole block of an array */
};

/* x, n elements of `type`, to gp_store_bytes of codes, and back. */
void gpk_store_encode(struct gp_rt_stream *s, const struct gpk_store *q, enum gp_rt_type type, const void *x, int64_t n,
		      uint8_t *store);
void gpk_store_decode(struct gp_rt_stream *s, const struct gpk_store *q, enum gp_rt_type type, const uint8_t *store,
		      int64_t n, void *x);

/* Blocks of an array, or pieces, that are worked on at once where each needs a room. */
int gpk_store_slots(uint64_t blocks);
/* x becomes what decoding its code gives. `room`: q->block_bytes for each of gpk_store_slots. */
void gpk_store_round_trip(struct gp_rt_stream *s, const struct gpk_store *q, enum gp_rt_type type, void *x, int64_t n,
			  uint8_t *room);
/* The same of parameters: those at `from` to `to`, which may be the same place. `piece` is device memory. */
void gpk_store_round_trip_pieces(struct gp_rt_stream *s, const struct gpk_store *q, const struct gpk_piece *piece,
				 int pieces, const float *from, float *to, uint8_t *room);

/*
 * State of `pieces` pieces whose arrays are at `state`, to and from a room, each at its own place of it, in PyTorch's order.
 * What is 0 comes back as 0. Of each piece array `which` (0 or 1) is encoded, with its own stream's draws from `first_draw` on
 * (gp_moment_first_draw of moment_store.h). gpk_moments_most: floats of a room, where not all pieces together have fewer; at
 * least one piece's.
 */
int64_t gpk_moments_most(void);
void gpk_moments_encode(struct gp_rt_stream *s, const struct gpk_store *q, const struct gpk_piece *piece, int pieces,
			const float *room, int which, uint64_t first_draw, uint8_t *state);
void gpk_moments_decode(struct gp_rt_stream *s, const struct gpk_store *q, const struct gpk_piece *piece, int pieces,
			const uint8_t *state, float *room);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters cut into the blocks in which they are coded (codec_store.h), for
 * kernels that walk over many of them in one launch. A block is a run of
 * elements in PyTorch's order, whatever the order in device memory, so that the
 * same values share a scale on every device, and state that was written down on
 * one continues on another.
 *
 * Threads: any (plain data). Test: tests/unit/test_cuda_stored.c
 */
#ifndef GP_CUDA_PIECE_H
#define GP_CUDA_PIECE_H

#include <stdint.h>

/* As GP_STORE_BLOCK of codec_store.h, which kernels do not see; cuda_stored.c compares the two. */
#define GPK_STORE_BLOCK 65536

/* Lies in device memory, in tables. */
struct gpk_piece {
	int64_t at;    /* where the parameter begins among all, in floats */
	uint64_t code; /* where its array of encoded state begins among all, in bytes */
	int64_t count; /* elements of the parameter */
	int64_t room;  /* where its moments are decoded, in floats (k_codec_store.h) */
	int64_t first; /* the piece's first, in PyTorch's order; it has GPK_STORE_BLOCK, or those that are left */
	/* For codecs that round stochastically: the stream of draws (gp_rng_block) of each moment. */
	uint64_t stream[2];
	/* PyTorch's shape, and how far apart elements along each axis lie in device memory. dim[0] 0: as PyTorch has them. */
	int64_t dim[4], step[4];
};

#endif

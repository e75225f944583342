/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). A draw is a pure function of (seed,
 * stream, index), so initialisation, shuffling, augmentation, dropout and
 * stochastic rounding give the same draws on any number of threads. Integers and
 * uniform draws are the same on every machine, too; a normal draw only where the
 * C library's `log` and `cos` are (gp_rng_normal). No state.
 *
 * Threads: any. Test: tests/unit/test_rng.c
 */
#ifndef GP_RNG_H
#define GP_RNG_H

#include <stdint.h>

/* What a stream is for: the top byte of a stream id, so that uses never overlap. Pinned: they reach both ends. */
enum gp_rng_use {
	GP_RNG_INIT = 1,
	GP_RNG_SHUFFLE = 2,
	GP_RNG_AUGMENT = 3,
	GP_RNG_DROPOUT = 4,
	GP_RNG_ROUNDING = 5,
	GP_RNG_SYNTHETIC = 6,
	GP_RNG_SAMPLE = 7,
	GP_RNG_LINK = 8,    /* of the emulated link: faults and jitter; stays on this side */
	GP_RNG_BUCKETS = 9, /* of batches by length; stays on this side, too */
	GP_RNG_MASK = 10,   /* which tokens of a text are to be guessed; likewise */
	GP_RNG_SIGNS = 11,  /* of the codec `hadamard` */
	GP_RNG_PARTS = 12,  /* which samples a client's part of a training set has; stays on this side */
};

/* Four 32-bit words for counter (index, stream) under key `seed`. */
void gp_rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);

static inline uint64_t gp_rng_stream(enum gp_rng_use use, uint64_t id)
{
	return (uint64_t)use << 56 | (id & 0x00ffffffffffffffULL);
}

/* FNV-1a of a name, for streams that belong to a named thing (a parameter). */
uint64_t gp_rng_name_id(const char *name);

/* One 32-bit draw, and one in [0, 1) with 24 bits. */
uint32_t gp_rng_u32(uint64_t seed, uint64_t stream, uint64_t index);
float gp_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* Standard normal (Box-Muller on one block). The logarithm and the cosine are the C library's, and libraries may
 * differ in the last bit: equal on two machines only where they have the same one for the same kind of processor. */
float gp_rng_normal(uint64_t seed, uint64_t stream, uint64_t index);
/* Uniform in [0, bound) without modulo bias worth noticing (64-bit multiply). bound > 0. */
uint32_t gp_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint32_t bound);
/* Fisher-Yates shuffle of perm[0..n) which is first set to 0..n-1. */
void gp_rng_permutation(uint64_t seed, uint64_t stream, uint32_t *perm, uint32_t n);

#endif

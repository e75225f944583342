/* SPDX-License-Identifier: Apache-2.0
 *
 * What dropout draws for an element (struct gpk_dropout), for the kernels that
 * drop elements: k_elementwise.cu, k_layer_norm.cu. Only for k_*.cu.
 *
 * Threads: those of a kernel, on the device. Tests: tests/unit/test_cuda_ops.c,
 * tests/unit/test_plan_length.c
 */
#ifndef GPK_DROPOUT_H
#define GPK_DROPOUT_H

#include "kernels/cuda/ops/k_elementwise.h"
#include "kernels/cuda/runtime/gpk_rng.h"

#define GPK_DROPOUT_WORDS 4 /* of a block of draws */

/* Element i, or the number n of all, as they are counted where positions are missing. */
GPK_DEVICE int64_t gpk_dropout_place(const struct gpk_dropout &d, int64_t i)
{
	return d.missing ? i + i / d.sample * d.missing : i;
}

/* The block in which element i of n, at that place, has its word. */
GPK_DEVICE uint64_t gpk_dropout_block(const struct gpk_dropout &d, int64_t n, int64_t place)
{
	const uint64_t all = (uint64_t)gpk_dropout_place(d, n);
	return *d.draw * ((all + GPK_DROPOUT_WORDS - 1) / GPK_DROPOUT_WORDS) + (uint64_t)place / GPK_DROPOUT_WORDS;
}

/* The word of element i of n. */
GPK_DEVICE uint32_t gpk_dropout_word(const struct gpk_dropout &d, int64_t n, int64_t i)
{
	uint32_t word[GPK_DROPOUT_WORDS];
	const int64_t place = gpk_dropout_place(d, i);
	gpk_rng_block(d.seed, d.stream, gpk_dropout_block(d, n, place), word);
	return word[place % GPK_DROPOUT_WORDS];
}

/* The words of elements i to i + 3 of n, i being a multiple of 4: most often a block, else pieces of two. */
GPK_DEVICE void gpk_dropout_words(const struct gpk_dropout &d, int64_t n, int64_t i, uint32_t *word)
{
	const int64_t place = gpk_dropout_place(d, i);
	if (place % GPK_DROPOUT_WORDS == 0)
		gpk_rng_block(d.seed, d.stream, gpk_dropout_block(d, n, place), word);
	else
		for (int k = 0; k < GPK_DROPOUT_WORDS; k++)
			word[k] = gpk_dropout_word(d, n, i + k);
}

#endif

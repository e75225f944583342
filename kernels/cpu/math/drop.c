/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout of arrays. See drop.h. Test: tests/unit/test_layer_norm.c
 */
#include "kernels/cpu/math/drop.h"

#include <string.h>

#include "kernels/cpu/math/float_bits.h"

enum { WORDS = 4, PIECE = 256 }; /* words of a block; words that are drawn at a time */

struct gp_drop gp_drop_of(float p, uint64_t seed, uint64_t stream, uint64_t draw, int64_t elements)
{
	return (struct gp_drop){.words = gp_draw_words_choose(),
				.seed = seed,
				.stream = stream,
				.first_block = draw * (((uint64_t)elements + WORDS - 1) / WORDS),
				.threshold = (uint32_t)((double)p * 0x1p32),
				.keep = (float)(1.0 / (1.0 - (double)p))};
}

/* A value that falls is 0, even of a NaN. */
GP_INLINE float dropped(float x, uint32_t word, uint32_t threshold, float keep)
{
	return gp_float_choose(word < threshold ? UINT32_MAX : 0, 0.0f, x * keep);
}

GP_INLINE void drop_body(float *out, const float *x, const uint32_t *word, uint32_t threshold, float keep, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		out[i] = dropped(x[i], word[i], threshold, keep);
}
GP_CPU_CLONES(drop, (float *out, const float *x, const uint32_t *word, uint32_t threshold, float keep, int64_t n),
	      (out, x, word, threshold, keep, n))

GP_INLINE void drop_and_add_body(float *out, const float *x, const float *residual, const uint32_t *word,
				 uint32_t threshold, float keep, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		out[i] = dropped(x[i], word[i], threshold, keep) + residual[i];
}
GP_CPU_CLONES(drop_and_add,
	      (float *out, const float *x, const float *residual, const uint32_t *word, uint32_t threshold, float keep,
	       int64_t n),
	      (out, x, residual, word, threshold, keep, n))

GP_INLINE void add_body(float *out, const float *x, const float *residual, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		out[i] = x[i] + residual[i];
}
GP_CPU_CLONES(add, (float *out, const float *x, const float *residual, int64_t n), (out, x, residual, n))

static void keep_all(float *out, const float *x, const float *residual, int64_t n)
{
	if (residual)
		add(out, x, residual, n);
	else if (out != x)
		memcpy(out, x, (size_t)n * sizeof *out);
}

/* Behind the first, pieces begin with a block. */
void gp_drop_values(const struct gp_drop *d, int64_t first, float *out, const float *x, const float *residual,
		    int64_t n)
{
	uint32_t word[PIECE];
	if (d->threshold == 0) {
		keep_all(out, x, residual, n);
		return;
	}
	for (int64_t done = 0, take; done < n; done += take) {
		const int64_t skip = (first + done) % WORDS, left = n - done;
		take = left < PIECE - skip ? left : PIECE - skip;
		d->words(d->seed, d->stream, d->first_block + (uint64_t)(first + done) / WORDS,
			 (size_t)((skip + take + WORDS - 1) / WORDS), word);
		if (residual)
			drop_and_add(out + done, x + done, residual + done, word + skip, d->threshold, d->keep, take);
		else
			drop(out + done, x + done, word + skip, d->threshold, d->keep, take);
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of tall, row-major matrices with small ones, as 1x1
 * convolutions over channels-last images need them. Own kernels for AVX2,
 * AVX-512 and NEON; gp_gemm_supported tells whether this processor can run them
 * (otherwise the convolution stays with oneDNN, or with plain loops). Which ones
 * they are depends on gp_isa: what one has packed is not for the others.
 *
 * Arithmetic: every element of a product is one chain of fused
 * multiply-adds over the inner index, ascending, from zero or a bias; a row's result
 * does not depend on which rows are computed with it. The transposed product
 * adds such chains over GEMM_BLOCK rows each. So all instruction sets give the
 * same bits.
 *
 * Glossary: panel = some neighbouring columns of the small matrix (up to 64
 * with AVX-512, 24 with AVX2, 16 with NEON), stored row after row, padded with zeros to whole
 * vectors.
 *
 * Only for kernels/cpu.
 *
 * Threads: any; a call starts none, callers share rows out. Test: tests/unit/test_cpu_ops.c
 */
#ifndef GP_CPU_GEMM_H
#define GP_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/math/finish.h"

#define GEMM_BLOCK 128 /* rows of a transposed product that are summed up before they are added */

bool gp_gemm_supported(void);

/* Floats of a vector. */
int64_t gp_gemm_lanes(void);
/* Floats of a packed (k, n) matrix. */
int64_t gp_gemm_packed_count(int64_t k, int64_t n);
/* Packs b (k, n); transposed: it lies in memory as (n, k). */
void gp_gemm_pack(float *packed, const float *b, int64_t k, int64_t n, bool transposed);

/*
 * What will be read next: products given one ask memory for a line of it with every step of their inner index, so that
 * it is in L2 when its turn comes. They move `at` on; nothing else depends on it.
 */
#define GEMM_FETCHES 3
struct gp_fetch {
	struct gp_fetch_range {
		const float *at, *end;
	} range[GEMM_FETCHES];
};

/* c (rows, n) = a (rows, k) packed (k, n). */
void gp_gemm(float *c, const float *a, const float *packed, int64_t rows, int64_t k, int64_t n);
void gp_gemm_fetching(float *c, const float *a, const float *packed, int64_t rows, int64_t k, int64_t n,
		      struct gp_fetch *next);
/* The same, of sums that begin with a bias and are limited. */
void gp_gemm_finished(float *c, const float *a, const float *packed, int64_t rows, int64_t k, int64_t n,
		      const struct gp_finish *finish, struct gp_fetch *next);
/* c (m, n) += a' b with a (rows, m) and b (rows, n); or = with `fresh`. */
void gp_gemm_transposed(float *c, const float *a, const float *b, int64_t rows, int64_t m, int64_t n, bool fresh,
			struct gp_fetch *next);

/* Columns of a wider matrix: rows begin `stride` floats apart. */
struct gp_gemm_operand {
	const float *at;
	int64_t stride;
};
/* c (m, n) = a' b with a (rows, m) and b (rows, n). */
void gp_gemm_transposed_block(float *c, struct gp_gemm_operand a, struct gp_gemm_operand b, int64_t rows, int64_t m,
			      int64_t n);

/*
 * The same products of operands rounded to bfloat16, where gp_bf16_supported (bf16.h). What is multiplied lies in
 * pairs: two neighbours along the inner index in 32 bits, the first in the lower half, an odd end filled with zero.
 * An instruction multiplies and adds a pair at once: products are exact, values too small to be normal are zero, and a row's
 * result depends on no other row. With vdpbf16ps of x86 every addition to an element's chain rounds to the nearest. BFDOT of
 * ARM64 adds the two products first and their sum to the chain then, and rounds both to odd: of a sum that is no float, to
 * that one of the two around it whose last bit is 1. So these products, unlike all others here, differ between x86 and ARM64,
 * by rounding.
 */

/* Pairs along an inner index of k. */
static inline int64_t gp_gemm_bf16_pairs(int64_t k)
{
	return (k + 1) / 2;
}
/* out (rows, pairs(k)) from in (rows, k): the left operand of gp_gemm_bf16. */
void gp_gemm_bf16_pair_columns(uint32_t *out, const float *in, int64_t rows, int64_t k);
/* out (pairs(rows), n) from in (rows, n): either operand of gp_gemm_bf16_transposed. */
void gp_gemm_bf16_pair_rows(uint32_t *out, const float *in, int64_t rows, int64_t n);
/* The same from n columns of a wider matrix, whose rows begin `stride` floats apart. */
void gp_gemm_bf16_pair_some(uint32_t *out, const float *in, int64_t stride, int64_t rows, int64_t n);
/* Rows of k whose pairs stay in the caches until they are multiplied: a multiple of every tile's height. */
int64_t gp_gemm_bf16_rows_at_once(int64_t k);

/* Words of a packed (k, n) matrix. */
int64_t gp_gemm_bf16_packed_count(int64_t k, int64_t n);
void gp_gemm_bf16_pack(uint32_t *packed, const float *b, int64_t k, int64_t n, bool transposed);

/* c (rows, n) = a (rows, k) packed (k, n), a in pairs along k. */
void gp_gemm_bf16(float *c, const uint32_t *a, const uint32_t *packed, int64_t rows, int64_t k, int64_t n,
		  struct gp_fetch *next);
/* c (m, n) += a' b with a (rows, m) and b (rows, n), both in pairs along rows; or = with `fresh`. */
void gp_gemm_bf16_transposed(float *c, const uint32_t *a, const uint32_t *b, int64_t rows, int64_t m, int64_t n,
			     bool fresh, struct gp_fetch *next);

#endif

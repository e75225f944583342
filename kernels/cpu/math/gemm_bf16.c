/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls gemm.h's products of bfloat16 pairs, of which there is one version for each kind of processor. Where
 * gp_bf16_supported says no, nobody calls. Test: tests/unit/test_gemm_bf16.c
 */
#include "kernels/cpu/math/gemm.h"

#include "kernels/cpu/math/gemm_kernels.h"

#define TILE_ROWS  24         /* a multiple of every tile's height */
#define PAIR_BYTES (64 << 10) /* of rows paired for one product */

#if defined(__x86_64__)
static const struct gp_gemm_bf16_kernels *const kernels = &gp_gemm_bf16_avx512;
#elif defined(__aarch64__)
static const struct gp_gemm_bf16_kernels *const kernels = &gp_gemm_bf16_neon;
#else
static const struct gp_gemm_bf16_kernels *const kernels = NULL;
#endif

void gp_gemm_bf16_pair_columns(uint32_t *out, const float *in, int64_t rows, int64_t k)
{
	kernels->pair_columns(out, in, rows, k);
}

void gp_gemm_bf16_pair_rows(uint32_t *out, const float *in, int64_t rows, int64_t n)
{
	kernels->pair_rows(out, in, n, rows, n);
}

void gp_gemm_bf16_pair_some(uint32_t *out, const float *in, int64_t stride, int64_t rows, int64_t n)
{
	kernels->pair_rows(out, in, stride, rows, n);
}

int64_t gp_gemm_bf16_rows_at_once(int64_t k)
{
	const int64_t rows = PAIR_BYTES / ((int64_t)sizeof(uint32_t) * gp_gemm_bf16_pairs(k)) / TILE_ROWS * TILE_ROWS;
	return rows < TILE_ROWS ? TILE_ROWS : rows;
}

int64_t gp_gemm_bf16_packed_count(int64_t k, int64_t n)
{
	return kernels->packed_count(k, n);
}

void gp_gemm_bf16_pack(uint32_t *packed, const float *b, int64_t k, int64_t n, bool transposed)
{
	kernels->pack(packed, b, k, n, transposed);
}

void gp_gemm_bf16(float *c, const uint32_t *a, const uint32_t *packed, int64_t rows, int64_t k, int64_t n,
		  struct gp_fetch *next)
{
	kernels->multiply(c, a, packed, rows, k, n, next);
}

void gp_gemm_bf16_transposed(float *c, const uint32_t *a, const uint32_t *b, int64_t rows, int64_t m, int64_t n,
			     bool fresh, struct gp_fetch *next)
{
	kernels->multiply_transposed(c, a, b, rows, m, n, fresh, next);
}

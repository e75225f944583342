/* SPDX-License-Identifier: Apache-2.0
 *
 * The versions of gemm.h's products, one for each instruction set. Only for gemm.c and gemm_bf16.c, which choose, for
 * gemm_body.h, of which those of floats are made, and for gemm_bf16_body.h, of which those of pairs are.
 *
 * Threads: any; constants. Test: tests/unit/test_gemm.c
 */
#ifndef GP_CPU_GEMM_KERNELS_H
#define GP_CPU_GEMM_KERNELS_H

#include "kernels/cpu/math/gemm.h"

/* What gemm.h says of gp_gemm_NAME; multiply is gp_gemm_fetching, or with `finish`, which may be NULL, gp_gemm_finished. */
struct gp_gemm_kernels {
	int64_t lanes;
	int64_t (*packed_count)(int64_t k, int64_t n);
	void (*pack)(float *packed, const float *b, int64_t k, int64_t n, bool transposed);
	void (*multiply)(float *c, const float *a, const float *packed, int64_t rows, int64_t k, int64_t n,
			 const struct gp_finish *finish, struct gp_fetch *next);
	void (*multiply_transposed)(float *c, struct gp_gemm_operand a, struct gp_gemm_operand b, int64_t rows,
				    int64_t m, int64_t n, bool fresh, struct gp_fetch *next);
};

extern const struct gp_gemm_kernels gp_gemm_avx2, gp_gemm_avx512, gp_gemm_neon;

/* What gemm.h says of gp_gemm_bf16_NAME; pair_rows is gp_gemm_bf16_pair_some, multiply gp_gemm_bf16. */
struct gp_gemm_bf16_kernels {
	void (*pair_columns)(uint32_t *out, const float *in, int64_t rows, int64_t k);
	void (*pair_rows)(uint32_t *out, const float *in, int64_t stride, int64_t rows, int64_t n);
	int64_t (*packed_count)(int64_t k, int64_t n);
	void (*pack)(uint32_t *packed, const float *b, int64_t k, int64_t n, bool transposed);
	void (*multiply)(float *c, const uint32_t *a, const uint32_t *packed, int64_t rows, int64_t k, int64_t n,
			 struct gp_fetch *next);
	void (*multiply_transposed)(float *c, const uint32_t *a, const uint32_t *b, int64_t rows, int64_t m, int64_t n,
				    bool fresh, struct gp_fetch *next);
};

extern const struct gp_gemm_bf16_kernels gp_gemm_bf16_avx512, gp_gemm_bf16_neon;

/* The functions of gemm_body.h, in this order. */
#define GP_GEMM_KERNELS                                                                                                \
	{                                                                                                              \
		VEC_LANES, packed_count, pack, multiply, multiply_transposed                                           \
	}

/* The functions of gemm_bf16_body.h, in this order. */
#define GP_GEMM_BF16_KERNELS                                                                                           \
	{                                                                                                              \
		pair_columns, pair_rows, packed_count, pack, multiply, multiply_transposed                             \
	}

#endif

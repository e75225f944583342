/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the version of gemm.h's products of floats. Test: tests/unit/test_gemm.c
 */
#include "kernels/cpu/math/gemm.h"

#include "kernels/cpu/math/gemm_kernels.h"
#include "kernels/cpu/math/vec_versions.h"

static const struct gp_gemm_kernels *kernels(void)
{
	static const struct gp_gemm_kernels *const versions[] = GP_VEC_VERSIONS(gp_gemm);
	return versions[gp_isa()];
}

bool gp_gemm_supported(void)
{
	return gp_vec_supported();
}

int64_t gp_gemm_lanes(void)
{
	return kernels()->lanes;
}

int64_t gp_gemm_packed_count(int64_t k, int64_t n)
{
	return kernels()->packed_count(k, n);
}

void gp_gemm_pack(float *packed, const float *b, int64_t k, int64_t n, bool transposed)
{
	kernels()->pack(packed, b, k, n, transposed);
}

void gp_gemm_fetching(float *c, const float *a, const float *packed, int64_t rows, int64_t k, int64_t n,
		      struct gp_fetch *next)
{
	kernels()->multiply(c, a, packed, rows, k, n, NULL, next);
}

void gp_gemm(float *c, const float *a, const float *packed, int64_t rows, int64_t k, int64_t n)
{
	kernels()->multiply(c, a, packed, rows, k, n, NULL, NULL);
}

void gp_gemm_finished(float *c, const float *a, const float *packed, int64_t rows, int64_t k, int64_t n,
		      const struct gp_finish *finish, struct gp_fetch *next)
{
	kernels()->multiply(c, a, packed, rows, k, n, finish, next);
}

void gp_gemm_transposed(float *c, const float *a, const float *b, int64_t rows, int64_t m, int64_t n, bool fresh,
			struct gp_fetch *next)
{
	kernels()->multiply_transposed(c, (struct gp_gemm_operand){a, m}, (struct gp_gemm_operand){b, n}, rows, m, n,
				       fresh, next);
}

void gp_gemm_transposed_block(float *c, struct gp_gemm_operand a, struct gp_gemm_operand b, int64_t rows, int64_t m,
			      int64_t n)
{
	kernels()->multiply_transposed(c, a, b, rows, m, n, true, NULL);
}

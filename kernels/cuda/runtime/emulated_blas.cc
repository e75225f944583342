/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of emulated builds: oneDNN's sgemm, or plain loops where it is
 * not there, behind the same rounding of operands as the device's. See blas.h. Test: tests/unit/test_cuda_rt.c
 */
#include "kernels/cuda/runtime/blas.h"

#ifdef GP_ONEDNN
#include <dnnl.h>
#endif
#include <new>
#include <vector>

#include "kernels/cuda/runtime/gpk.h"

extern "C" {
#include "common/base/fault.h"
}

struct gp_blas {
	struct gp_rt_stream *stream;
	enum gp_precision precision;
};

namespace
{

float rounded(float v, enum gp_precision precision)
{
	gpk_bf16 b;
	if (precision == GP_PRECISION_BF16) {
		gpk_put(&b, v);
		return gpk_get(b);
	}
	if (precision == GP_PRECISION_TF32) /* nearest, ties away */
		return std::isfinite(v) ? __uint_as_float((__float_as_uint(v) + 0x1000u) & 0xffffe000u) : v;
	return v;
}

/* Matrix `i` of a batch as dense floats, rows x columns of what lies there. */
std::vector<float> dense(const struct gp_matrix *m, int64_t rows, int64_t columns, int i, enum gp_precision precision)
{
	std::vector<float> out((size_t)(rows * columns));
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < columns; c++) {
			const int64_t at = i * m->between + r * m->stride + c;
			const float v = m->type == GP_RT_BF16 ? gpk_get(static_cast<const gpk_bf16 *>(m->data)[at])
							      : static_cast<const float *>(m->data)[at];
			out[(size_t)(r * columns + c)] = rounded(v, precision);
		}
	return out;
}

void store(const struct gp_matrix *c, int64_t m, int64_t n, int i, float beta, const std::vector<float> &product)
{
	for (int64_t r = 0; r < m; r++)
		for (int64_t k = 0; k < n; k++) {
			const int64_t at = i * c->between + r * c->stride + k;
			const float v = product[(size_t)(r * n + k)];
			if (c->type == GP_RT_BF16) {
				gpk_bf16 *to = const_cast<gpk_bf16 *>(static_cast<const gpk_bf16 *>(c->data)) + at;
				gpk_put(to, beta != 0 ? v + beta * gpk_get(*to) : v);
			} else {
				float *to = const_cast<float *>(static_cast<const float *>(c->data)) + at;
				*to = beta != 0 ? v + beta * *to : v;
			}
		}
}

/* z (m, n) = alpha x y, x and y dense and transposed where they are. */
void multiply(const struct gp_matrix *a, const struct gp_matrix *b, int64_t m, int64_t n, int64_t k, float alpha,
	      const float *x, const float *y, float *z)
{
#ifdef GP_ONEDNN
	dnnl_sgemm(a->transposed ? 'T' : 'N', b->transposed ? 'T' : 'N', m, n, k, alpha, x, a->transposed ? m : k, y,
		   b->transposed ? k : n, 0, z, n);
#else
	for (int64_t r = 0; r < m; r++)
		for (int64_t i = 0; i < k; i++) {
			const float left = alpha * x[a->transposed ? i * m + r : r * k + i];
			for (int64_t c = 0; c < n; c++)
				z[r * n + c] += left * y[b->transposed ? c * k + i : i * n + c];
		}
#endif
}

/* The same, each sum from its last product to its first, as a card's library may order them. */
void multiply_backwards(const struct gp_matrix *a, const struct gp_matrix *b, int64_t m, int64_t n, int64_t k,
			float alpha, const float *x, const float *y, float *z)
{
	for (int64_t r = 0; r < m; r++)
		for (int64_t i = k - 1; i >= 0; i--) {
			const float left = alpha * x[a->transposed ? i * m + r : r * k + i];
			for (int64_t c = 0; c < n; c++)
				z[r * n + c] += left * y[b->transposed ? c * k + i : i * n + c];
		}
}

} // namespace

extern "C" {

uint64_t gp_blas_bytes(void)
{
	return 0;
}

enum gp_status gp_blas_check(struct gp_err *err)
{
	(void)err;
	return GP_OK;
}

enum gp_status gp_blas_new(struct gp_rt_stream *s, enum gp_precision precision, struct gp_blas **out,
			   struct gp_err *err)
{
	gp_blas *b = new (std::nothrow) gp_blas{s, precision};
	if (!b)
		GP_FAIL(err, GP_NOMEM, "out of memory for a matrix library's handle");
	*out = b;
	return GP_OK;
}

void gp_blas_free(struct gp_blas *b)
{
	delete b;
}

void gp_blas_gemm(struct gp_blas *b, int64_t m, int64_t n, int64_t k, float alpha, const struct gp_matrix *a,
		  const struct gp_matrix *bm, float beta, const struct gp_matrix *c, int batch)
{
	gp_rt_tally_note("product", 0);
	if (gp_rt_tallied())
		return;
	if (gp_fault_hit(GP_FAULT_PRODUCT)) {
		gpk_emulated_fail(b->stream);
		return;
	}
	const struct gp_matrix ma = *a, mb = *bm, mc = *c;
	const enum gp_precision precision = b->precision;
	gpk_emulated_queue(b->stream, [=] {
		for (int i = 0; i < batch; i++) {
			const std::vector<float> x =
				dense(&ma, ma.transposed ? k : m, ma.transposed ? m : k, i, precision);
			const std::vector<float> y =
				dense(&mb, mb.transposed ? n : k, mb.transposed ? k : n, i, precision);
			std::vector<float> z((size_t)(m * n));
			(gpk_emulates_card() ? multiply_backwards : multiply)(&ma, &mb, m, n, k, alpha, x.data(),
									      y.data(), z.data());
			store(&mc, m, n, i, beta, z);
		}
	});
}

} // extern "C"

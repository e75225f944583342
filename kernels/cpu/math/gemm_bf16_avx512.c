/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of bfloat16 pairs with AVX512_BF16: gemm_body.h's tiles,
 * panels and blocks with a pair in the place of a float, so that the inner
 * index is half as long. See gemm.h. Test: tests/unit/test_gemm_bf16.c
 */
#include <string.h>

#include "kernels/cpu/math/gemm_kernels.h"
#include "kernels/cpu/math/gemm_parts.h"

#define LINES 2 /* asked for with every step of the inner index, which is half as long as that of floats */

/* --- making pairs ----------------------------------------------------------------------------------------------- */

/* Up to 32 neighbours in a row: pairs of them. */
GP_INLINE __m512i pair_neighbours(const float *in, int64_t left)
{
	return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(vec_first(left - VEC_LANES), in + VEC_LANES),
					    _mm512_maskz_loadu_ps(vec_first(left), in));
}

/* Each lane of one row with the same lane of the next. */
GP_INLINE __m512i pair_lanes(__m512 low, __m512 high)
{
	const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
					     21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
	return _mm512_permutexvar_epi16(zip, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

static void pair_row(uint32_t *out, const float *in, int64_t k)
{
	int64_t i = 0;
	for (; i + 2 * VEC_LANES <= k; i += 2 * VEC_LANES)
		_mm512_storeu_si512(out + i / 2, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(in + i + VEC_LANES),
									      _mm512_loadu_ps(in + i)));
	if (i < k)
		_mm512_mask_storeu_epi32(out + i / 2, vec_first((k - i + 1) / 2), pair_neighbours(in + i, k - i));
}

static void pair_columns(uint32_t *out, const float *in, int64_t rows, int64_t k)
{
	if (k % 2 == 0) {
		pair_row(out, in, rows * k);
		return;
	}
	for (int64_t r = 0; r < rows; r++)
		pair_row(out + r * gp_gemm_bf16_pairs(k), in + r * k, k);
}

/* high NULL: zeros. */
static void pair_two_rows(uint32_t *out, const float *low, const float *high, int64_t n)
{
	for (int64_t j = 0; j < n; j += VEC_LANES) {
		const __mmask16 lanes = vec_first(n - j);
		const __m512 second = high ? _mm512_maskz_loadu_ps(lanes, high + j) : _mm512_setzero_ps();
		_mm512_mask_storeu_epi32(out + j, lanes, pair_lanes(_mm512_maskz_loadu_ps(lanes, low + j), second));
	}
}

static void pair_rows(uint32_t *out, const float *in, int64_t rows, int64_t n)
{
	for (int64_t r = 0; r < rows; r += 2)
		pair_two_rows(out + r / 2 * n, in + r * n, r + 1 < rows ? in + (r + 1) * n : NULL, n);
}

/* --- packing ---------------------------------------------------------------------------------------------------- */

static int64_t packed_count(int64_t k, int64_t n)
{
	return gp_gemm_bf16_pairs(k) * panels_of(n).vectors * VEC_LANES;
}

/* One vector of up to 16 columns that are rows in memory; lanes without a column become 0. */
static void pack_vector(uint32_t *packed, const float *b, int64_t k, int64_t columns, int64_t width)
{
	for (int64_t i = 0; i < k; i += 2 * VEC_LANES) {
		const int64_t pairs = gp_gemm_bf16_pairs(k - i) < VEC_LANES ? gp_gemm_bf16_pairs(k - i) : VEC_LANES;
		__m512 row[VEC_LANES];
		for (int64_t j = 0; j < VEC_LANES; j++)
			row[j] = j < columns ? (__m512)pair_neighbours(b + j * k + i, k - i) : _mm512_setzero_ps();
		gp_turn(row);
		for (int64_t r = 0; r < pairs; r++)
			_mm512_storeu_ps((float *)packed + (i / 2 + r) * width, row[r]);
	}
}

/* A panel whose columns are rows in memory. */
static void pack_columns(uint32_t *packed, const float *b, int64_t k, int64_t columns, int64_t width)
{
	for (int64_t j = 0; j < columns; j += VEC_LANES)
		pack_vector(packed + j, b + j * k, k, columns - j, width);
}

static void pack_rows(uint32_t *packed, const float *b, int64_t k, int64_t columns, int64_t width, int64_t row_stride)
{
	for (int64_t i = 0; i < k; i += 2)
		pair_two_rows(packed + i / 2 * width, b + i * row_stride, i + 1 < k ? b + (i + 1) * row_stride : NULL,
			      columns);
}

static void clear_columns(uint32_t *packed, int64_t pairs, int64_t from, int64_t width)
{
	for (int64_t i = 0; from < width && i < pairs; i++)
		memset(packed + i * width + from, 0, (size_t)(width - from) * sizeof *packed);
}

static void pack(uint32_t *packed, const float *b, int64_t k, int64_t n, bool transposed)
{
	const struct panels p = panels_of(n);
	const int64_t pairs = gp_gemm_bf16_pairs(k);
	for (int64_t panel = 0; panel < p.count; panel++) {
		int64_t from = panel_at(&p, panel) * VEC_LANES, width = panel_at(&p, panel + 1) * VEC_LANES - from;
		int64_t columns = n - from < width ? n - from : width;
		if (transposed)
			pack_columns(packed, b + from * k, k, columns, width);
		else
			pack_rows(packed, b + from, k, columns, width, n);
		clear_columns(packed, pairs, columns, width);
		packed += pairs * width;
	}
}

/* --- c = a b ---------------------------------------------------------------------------------------------------- */

/* mr rows of k pairs by one panel; mask: lanes of the last vector that exist. */
GP_INLINE void product_tile(float *c, int64_t ldc, const uint32_t *a, int64_t k, const uint32_t *b, __mmask16 mask,
			    struct ahead ahead, const int mr, const int nv)
{
	__m512 sum[8][MAX_NV];
#pragma GCC unroll 8
	for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			sum[i][j] = _mm512_setzero_ps();
	will_write(c + mr * ldc, ldc, mr, nv);
	for (int64_t l = 0; l < k; l++, b += nv * VEC_LANES) {
		__m512bh bv[MAX_NV];
#pragma GCC unroll 2
		for (int line = 0; line < LINES; line++)
			fetch(&ahead, LINES * l + line);
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			bv[j] = (__m512bh)_mm512_loadu_si512(b + j * VEC_LANES);
#pragma GCC unroll 8
		for (int i = 0; i < mr; i++) {
			const __m512bh av = (__m512bh)_mm512_set1_epi32((int)a[i * k + l]);
#pragma GCC unroll 4
			for (int j = 0; j < nv; j++)
				sum[i][j] = _mm512_dpbf16_ps(sum[i][j], av, bv[j]);
		}
	}
#pragma GCC unroll 8
	for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
		for (int j = 0; j < nv - 1; j++)
			_mm512_storeu_ps(c + i * ldc + j * VEC_LANES, sum[i][j]);
		_mm512_mask_storeu_ps(c + i * ldc + (nv - 1) * VEC_LANES, mask, sum[i][nv - 1]);
	}
}

typedef void (*tile_fn)(float *c, int64_t ldc, const uint32_t *a, int64_t k, const uint32_t *b, __mmask16 mask,
			struct ahead ahead);

#define PRODUCT(mr, nv)                                                                                                \
	static void product_##mr##_##nv(float *c, int64_t ldc, const uint32_t *a, int64_t k, const uint32_t *b,        \
					__mmask16 mask, struct ahead ahead)                                            \
	{                                                                                                              \
		product_tile(c, ldc, a, k, b, mask, ahead, mr, nv);                                                    \
	}
PRODUCT(8, 1)
PRODUCT(4, 1)
PRODUCT(2, 1)
PRODUCT(1, 1)
PRODUCT(8, 2)
PRODUCT(4, 2)
PRODUCT(2, 2)
PRODUCT(1, 2)
PRODUCT(8, 3)
PRODUCT(4, 3)
PRODUCT(2, 3)
PRODUCT(1, 3)
PRODUCT(6, 4)
PRODUCT(4, 4)
PRODUCT(2, 4)
PRODUCT(1, 4)

#define SIZES 4
static const struct {
	int mr;
	tile_fn run;
} product_tiles[MAX_NV][SIZES] = {
	{{8, product_8_1}, {4, product_4_1}, {2, product_2_1}, {1, product_1_1}},
	{{8, product_8_2}, {4, product_4_2}, {2, product_2_2}, {1, product_1_2}},
	{{8, product_8_3}, {4, product_4_3}, {2, product_2_3}, {1, product_1_3}},
	{{6, product_6_4}, {4, product_4_4}, {2, product_2_4}, {1, product_1_4}},
};

/* `rows` rows of a product over k pairs. */
struct product_job {
	float *c;
	const uint32_t *a;
	int64_t rows, k, n;
	struct gp_fetch *next;
};

static void product_panel(const struct product_job *job, int64_t column, const uint32_t *b, int64_t nv, __mmask16 mask)
{
	const int64_t k = job->k;
	int64_t r = 0;
	for (int size = 0; size < SIZES; size++) {
		const int mr = product_tiles[nv - 1][size].mr;
		for (; r + mr <= job->rows; r += mr)
			product_tiles[nv - 1][size].run(job->c + r * job->n + column, job->n, job->a + r * k, k, b,
							mask, take(job->next, LINES * k, b));
	}
}

static void multiply(float *c, const uint32_t *a, const uint32_t *packed, int64_t rows, int64_t k, int64_t n,
		     struct gp_fetch *next)
{
	const struct panels p = panels_of(n);
	const int64_t pairs = gp_gemm_bf16_pairs(k), block = block_rows(pairs, n);
	for (int64_t r = 0; r < rows; r += block) {
		const struct product_job job = {c + r * n, a + r * pairs, rows - r < block ? rows - r : block, pairs,
						n,         next};
		for (int64_t panel = 0; panel < p.count; panel++) {
			int64_t from = panel_at(&p, panel), to = panel_at(&p, panel + 1);
			product_panel(&job, from * VEC_LANES, packed + from * VEC_LANES * pairs, to - from,
				      vec_first(n - (to - 1) * VEC_LANES));
		}
	}
}

/* --- c (+)= a' b ------------------------------------------------------------------------------------------------ */

/* `rows` rows of pairs of a (rows, m) and b (rows, n). */
struct transposed_job {
	int64_t m, n, rows;
	bool fresh;
	struct gp_fetch *next;
};

/* Columns [0, mr) of a, one panel of b. */
GP_INLINE void transposed_tile(float *c, const uint32_t *a, const uint32_t *b, const struct transposed_job *job,
			       __mmask16 mask, struct ahead ahead, const int mr, const int nv)
{
	__m512 sum[16][MAX_NV];
#pragma GCC unroll 16
	for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			sum[i][j] = _mm512_setzero_ps();
	for (int64_t l = 0; l < job->rows; l++, a += job->m, b += job->n) {
		__m512bh bv[MAX_NV];
#pragma GCC unroll 2
		for (int line = 0; line < LINES; line++)
			fetch(&ahead, LINES * l + line);
#pragma GCC unroll 4
		for (int j = 0; j < nv - 1; j++)
			bv[j] = (__m512bh)_mm512_loadu_si512(b + j * VEC_LANES);
		bv[nv - 1] = (__m512bh)_mm512_maskz_loadu_epi32(mask, b + (nv - 1) * VEC_LANES);
#pragma GCC unroll 16
		for (int i = 0; i < mr; i++) {
			const __m512bh av = (__m512bh)_mm512_set1_epi32((int)a[i]);
#pragma GCC unroll 4
			for (int j = 0; j < nv; j++)
				sum[i][j] = _mm512_dpbf16_ps(sum[i][j], av, bv[j]);
		}
	}
#pragma GCC unroll 16
	for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++) {
			const __mmask16 lanes = j == nv - 1 ? mask : (__mmask16)0xffff;
			float *at = c + i * job->n + j * VEC_LANES;
			if (!job->fresh)
				sum[i][j] = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, at), sum[i][j]);
			_mm512_mask_storeu_ps(at, lanes, sum[i][j]);
		}
	}
}

typedef void (*transposed_fn)(float *c, const uint32_t *a, const uint32_t *b, const struct transposed_job *job,
			      __mmask16 mask, struct ahead ahead);

#define TRANSPOSED(mr, nv)                                                                                             \
	static void transposed_##mr##_##nv(float *c, const uint32_t *a, const uint32_t *b,                             \
					   const struct transposed_job *job, __mmask16 mask, struct ahead ahead)       \
	{                                                                                                              \
		transposed_tile(c, a, b, job, mask, ahead, mr, nv);                                                    \
	}
TRANSPOSED(16, 1)
TRANSPOSED(8, 1)
TRANSPOSED(4, 1)
TRANSPOSED(1, 1)
TRANSPOSED(12, 2)
TRANSPOSED(8, 2)
TRANSPOSED(4, 2)
TRANSPOSED(1, 2)
TRANSPOSED(8, 3)
TRANSPOSED(4, 3)
TRANSPOSED(2, 3)
TRANSPOSED(1, 3)
TRANSPOSED(6, 4)
TRANSPOSED(4, 4)
TRANSPOSED(2, 4)
TRANSPOSED(1, 4)

static const struct {
	int mr;
	transposed_fn run;
} transposed_tiles[MAX_NV][SIZES] = {
	{{16, transposed_16_1}, {8, transposed_8_1}, {4, transposed_4_1}, {1, transposed_1_1}},
	{{12, transposed_12_2}, {8, transposed_8_2}, {4, transposed_4_2}, {1, transposed_1_2}},
	{{8, transposed_8_3}, {4, transposed_4_3}, {2, transposed_2_3}, {1, transposed_1_3}},
	{{6, transposed_6_4}, {4, transposed_4_4}, {2, transposed_2_4}, {1, transposed_1_4}},
};

static void transposed_panel(float *c, const uint32_t *a, const uint32_t *b, const struct transposed_job *job,
			     int64_t nv, __mmask16 mask)
{
	int64_t i = 0;
	for (int size = 0; size < SIZES; size++) {
		const int mr = transposed_tiles[nv - 1][size].mr;
		for (; i + mr <= job->m; i += mr)
			transposed_tiles[nv - 1][size].run(c + i * job->n, a + i, b, job, mask,
							   take(job->next, LINES * job->rows, c));
	}
}

static void multiply_transposed(float *c, const uint32_t *a, const uint32_t *b, int64_t rows, int64_t m, int64_t n,
				bool fresh, struct gp_fetch *next)
{
	const struct panels p = panels_of(n);
	const int64_t pairs = gp_gemm_bf16_pairs(rows), block = GEMM_BLOCK / 2;
	struct transposed_job job = {.m = m, .n = n, .fresh = fresh, .next = next};
	if (rows == 0 && fresh)
		memset(c, 0, (size_t)(m * n) * sizeof *c);
	for (int64_t r = 0; r < pairs; r += block, job.fresh = false) {
		job.rows = pairs - r < block ? pairs - r : block;
		for (int64_t panel = 0; panel < p.count; panel++) {
			int64_t from = panel_at(&p, panel), to = panel_at(&p, panel + 1);
			transposed_panel(c + from * VEC_LANES, a + r * m, b + r * n + from * VEC_LANES, &job, to - from,
					 vec_first(n - (to - 1) * VEC_LANES));
		}
	}
}

const struct gp_gemm_bf16_kernels gp_gemm_bf16_avx512 = {
	.pair_columns = pair_columns,
	.pair_rows = pair_rows,
	.packed_count = packed_count,
	.pack = pack,
	.multiply = multiply,
	.multiply_transposed = multiply_transposed,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of bfloat16 pairs, for gemm_bf16_avx512.c and gemm_bf16_neon.c: gemm_body.h's tiles, panels and blocks with
 * a pair in the place of a float, so that the inner index is half as long. See gemm.h. Who includes this has defined, over
 * vec.h,
 *   gp_pairs            a register of VEC_LANES pairs,
 *   pairs_of_neighbours up to 2 * VEC_LANES neighbours of a row as pairs, zeros behind them; bits in a gp_vec,
 *   pairs_of_rows       each lane of one row with the same lane of the next; bits in a gp_vec,
 *   pairs_store         the first lanes of such bits into memory,
 *   pairs_load, pairs_load_first, pairs_all, pairs_scalars   what vec.h's functions of these names do with floats,
 *   pairs_dot           to each sum the products of the pair there and of pair `i` of the left side.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_gemm_bf16.c
 */
#ifndef GP_CPU_GEMM_BF16_BODY_H
#define GP_CPU_GEMM_BF16_BODY_H

#include <string.h>

#include "kernels/cpu/math/gemm_kernels.h"
#include "kernels/cpu/math/gemm_parts.h"

#define LINES 2 /* asked for with every step of the inner index, which is half as long as that of floats */

/* --- making pairs ----------------------------------------------------------------------------------------------- */

static void pair_row(uint32_t *out, const float *in, int64_t k)
{
	int64_t i = 0;
	for (; i + 2 * VEC_LANES <= k; i += 2 * VEC_LANES)
		pairs_store(out + i / 2, VEC_ALL, pairs_of_neighbours(in + i, 2 * VEC_LANES));
	if (i < k)
		pairs_store(out + i / 2, vec_first((k - i + 1) / 2), pairs_of_neighbours(in + i, k - i));
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
		const gp_vec_mask lanes = vec_first(n - j);
		const gp_vec second = high ? vec_load_first(lanes, high + j) : vec_zero();
		pairs_store(out + j, lanes, pairs_of_rows(vec_load_first(lanes, low + j), second));
	}
}

static void pair_rows(uint32_t *out, const float *in, int64_t stride, int64_t rows, int64_t n)
{
	for (int64_t r = 0; r < rows; r += 2)
		pair_two_rows(out + r / 2 * n, in + r * stride, r + 1 < rows ? in + (r + 1) * stride : NULL, n);
}

/* --- packing ---------------------------------------------------------------------------------------------------- */

static int64_t packed_count(int64_t k, int64_t n)
{
	return gp_gemm_bf16_pairs(k) * panels_of(n).vectors * VEC_LANES;
}

/* One vector of columns that are rows in memory; lanes without a column become 0. */
static void pack_vector(uint32_t *packed, const float *b, int64_t k, int64_t columns, int64_t width)
{
	for (int64_t i = 0; i < k; i += 2 * VEC_LANES) {
		const int64_t pairs = gp_gemm_bf16_pairs(k - i) < VEC_LANES ? gp_gemm_bf16_pairs(k - i) : VEC_LANES;
		gp_vec row[VEC_LANES];
		for (int64_t j = 0; j < VEC_LANES; j++)
			row[j] = j < columns ? pairs_of_neighbours(b + j * k + i, k - i) : vec_zero();
		vec_turn(row);
		for (int64_t r = 0; r < pairs; r++)
			pairs_store(packed + (i / 2 + r) * width, VEC_ALL, row[r]);
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

/* `steps` steps of the inner index, which counts k pairs; a is their first column. */
GP_INLINE void product_steps(gp_vec (*sum)[MAX_NV], const uint32_t *a, int64_t k, const uint32_t *b, const int steps,
			     const int mr, const int nv)
{
	gp_pairs left[8];
#pragma GCC unroll 4
	for (int s = 0; s < steps; s++, b += nv * VEC_LANES) {
		gp_pairs bv[MAX_NV];
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			bv[j] = pairs_load(b + j * VEC_LANES);
#pragma GCC unroll 8
		for (int i = 0; i < mr; i++) {
			if (s == 0 && steps == 1) /* no ?: of clang's bfloat16x8_t */
				left[i] = pairs_all(a[i * k]);
			else if (s == 0)
				left[i] = pairs_scalars(a + i * k);
#pragma GCC unroll 4
			for (int j = 0; j < nv; j++)
				sum[i][j] = pairs_dot(left[i], s, bv[j], sum[i][j]);
		}
	}
}

GP_INLINE void fetch_lines(const struct ahead *ahead, int64_t step)
{
#pragma GCC unroll 2
	for (int line = 0; line < LINES; line++)
		fetch(ahead, LINES * step + line);
}

/* mr rows of k pairs by one panel; mask: lanes of the last vector that exist. */
GP_INLINE void product_tile(float *c, int64_t ldc, const uint32_t *a, int64_t k, const uint32_t *b, gp_vec_mask mask,
			    struct ahead ahead, const int mr, const int nv)
{
	gp_vec sum[8][MAX_NV];
#pragma GCC unroll 8
	for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			sum[i][j] = vec_zero();
	will_write(c + mr * ldc, ldc, mr, nv);
	int64_t l = 0;
	for (; l + VEC_SCALARS <= k; l += VEC_SCALARS, b += VEC_SCALARS * nv * VEC_LANES) {
#pragma GCC unroll 4
		for (int s = 0; s < VEC_SCALARS; s++)
			fetch_lines(&ahead, l + s);
		product_steps(sum, a + l, k, b, VEC_SCALARS, mr, nv);
	}
	for (; VEC_SCALARS > 1 && l < k; l++, b += nv * VEC_LANES)
		product_steps(sum, a + l, k, b, 1, mr, nv);
#pragma GCC unroll 8
	for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
		for (int j = 0; j < nv - 1; j++)
			vec_store(c + i * ldc + j * VEC_LANES, sum[i][j]);
		vec_store_first(c + i * ldc + (nv - 1) * VEC_LANES, mask, sum[i][nv - 1]);
	}
}

typedef void (*tile_fn)(float *c, int64_t ldc, const uint32_t *a, int64_t k, const uint32_t *b, gp_vec_mask mask,
			struct ahead ahead);

#define PRODUCT(mr, nv)                                                                                                \
	static void product_##mr##_##nv(float *c, int64_t ldc, const uint32_t *a, int64_t k, const uint32_t *b,        \
					gp_vec_mask mask, struct ahead ahead)                                          \
	{                                                                                                              \
		product_tile(c, ldc, a, k, b, mask, ahead, mr, nv);                                                    \
	}
/* clang-format off */
#define PRODUCT_ROW(nv, a, b, c, d) PRODUCT(a, nv) PRODUCT(b, nv) PRODUCT(c, nv) PRODUCT(d, nv)
PRODUCT_TILES(PRODUCT_ROW)

#define PRODUCT_ENTRY(nv, a, b, c, d)                                                                                  \
	{{a, product_##a##_##nv}, {b, product_##b##_##nv}, {c, product_##c##_##nv}, {d, product_##d##_##nv}},
static const struct {
	int mr;
	tile_fn run;
} product_tiles[MAX_NV][SIZES] = {PRODUCT_TILES(PRODUCT_ENTRY)};
/* clang-format on */

/* `rows` rows of a product over k pairs. */
struct product_job {
	float *c;
	const uint32_t *a;
	int64_t rows, k, n;
	struct gp_fetch *next;
};

static void product_panel(const struct product_job *job, int64_t column, const uint32_t *b, int64_t nv,
			  gp_vec_mask mask)
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
			       gp_vec_mask mask, struct ahead ahead, const bool masked, const int mr, const int nv)
{
	const int group = mr % VEC_SCALARS == 0 ? VEC_SCALARS : 1;
	gp_vec sum[16][MAX_NV];
#pragma GCC unroll 16
	for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			sum[i][j] = vec_zero();
	for (int64_t l = 0; l < job->rows; l++, a += job->m, b += job->n) {
		gp_pairs bv[MAX_NV], left = pairs_all(a[0]);
		fetch_lines(&ahead, l);
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			if (masked && j == nv - 1)
				bv[j] = pairs_load_first(mask, b + j * VEC_LANES);
			else
				bv[j] = pairs_load(b + j * VEC_LANES);
#pragma GCC unroll 16
		for (int i = 0; i < mr; i++) {
			if (i % group == 0 && group == 1)
				left = pairs_all(a[i]);
			else if (i % group == 0)
				left = pairs_scalars(a + i);
#pragma GCC unroll 4
			for (int j = 0; j < nv; j++)
				sum[i][j] = pairs_dot(left, i % group, bv[j], sum[i][j]);
		}
	}
#pragma GCC unroll 16
	for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++) {
			const gp_vec_mask lanes = masked && j == nv - 1 ? mask : VEC_ALL;
			float *at = c + i * job->n + j * VEC_LANES;
			if (!job->fresh)
				sum[i][j] = vec_add(vec_load_first(lanes, at), sum[i][j]);
			vec_store_first(at, lanes, sum[i][j]);
		}
	}
}

typedef void (*transposed_fn)(float *c, const uint32_t *a, const uint32_t *b, const struct transposed_job *job,
			      gp_vec_mask mask, struct ahead ahead);

#define TRANSPOSED(mr, nv)                                                                                             \
	static void transposed_##mr##_##nv(float *c, const uint32_t *a, const uint32_t *b,                             \
					   const struct transposed_job *job, gp_vec_mask mask, struct ahead ahead)     \
	{                                                                                                              \
		if (mask == VEC_ALL)                                                                                   \
			transposed_tile(c, a, b, job, mask, ahead, false, mr, nv);                                     \
		else                                                                                                   \
			transposed_tile(c, a, b, job, mask, ahead, true, mr, nv);                                      \
	}
/* clang-format off */
#define TRANSPOSED_ROW(nv, a, b, c, d) TRANSPOSED(a, nv) TRANSPOSED(b, nv) TRANSPOSED(c, nv) TRANSPOSED(d, nv)
TRANSPOSED_TILES(TRANSPOSED_ROW)

#define TRANSPOSED_ENTRY(nv, a, b, c, d)                                                                               \
	{{a, transposed_##a##_##nv}, {b, transposed_##b##_##nv}, {c, transposed_##c##_##nv}, {d, transposed_##d##_##nv}},
static const struct {
	int mr;
	transposed_fn run;
} transposed_tiles[TRANSPOSED_NV][SIZES] = {TRANSPOSED_TILES(TRANSPOSED_ENTRY)};
/* clang-format on */

static void transposed_panel(float *c, const uint32_t *a, const uint32_t *b, const struct transposed_job *job,
			     int64_t nv, gp_vec_mask mask)
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
	const struct panels p = panels_within(n, TRANSPOSED_NV);
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

#endif

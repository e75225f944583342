/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products over vec.h, for gemm_avx2.c, gemm_avx512.c and gemm_neon.c: micro-kernels of MR rows x NV vectors held in
 * registers. Zen 4 starts one 512-bit fused multiply-add per cycle, so that 8 independent sums hide its latency, and AVX2
 * processors start two per cycle; larger tiles save loads. With 16 registers a tile has 12 sums, 4 x 3 or 6 x 2. NEON
 * multiplies with any float of a register, so that four of the left side are loaded at once. See gemm.h.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_gemm.c, tests/unit/test_cpu_ops.c
 */
#ifndef GP_CPU_GEMM_BODY_H
#define GP_CPU_GEMM_BODY_H

#include <string.h>

#include "kernels/cpu/math/gemm_kernels.h"
#include "kernels/cpu/math/gemm_parts.h"

#define AHEAD 2 /* tiles whose rows of a are asked for: no hardware follows so many short streams */

static int64_t packed_count(int64_t k, int64_t n)
{
	return k * panels_of(n).vectors * VEC_LANES;
}

/* One vector of columns that are rows in memory; lanes without a column become 0. */
static void pack_vector(float *packed, const float *b, int64_t k, int64_t columns, int64_t width, int64_t col_stride)
{
	for (int64_t i = 0; i < k; i += VEC_LANES) {
		const int64_t rows = k - i < VEC_LANES ? k - i : VEC_LANES;
		gp_vec row[VEC_LANES];
		for (int64_t j = 0; j < VEC_LANES; j++)
			row[j] = j < columns ? vec_load_first(vec_first(rows), b + i + j * col_stride) : vec_zero();
		vec_turn(row);
		for (int64_t r = 0; r < rows; r++)
			vec_store(packed + (i + r) * width, row[r]);
	}
}

/* A panel whose columns are rows in memory. */
static void pack_columns(float *packed, const float *b, int64_t k, int64_t columns, int64_t width, int64_t col_stride)
{
	for (int64_t j = 0; j < columns; j += VEC_LANES)
		pack_vector(packed + j, b + j * col_stride, k, columns - j, width, col_stride);
}

static void pack_rows(float *packed, const float *b, int64_t k, int64_t columns, int64_t width, int64_t row_stride)
{
	for (int64_t i = 0; i < k; i++)
		for (int64_t j = 0; j < columns; j += VEC_LANES)
			vec_store(packed + i * width + j,
				  vec_load_first(vec_first(columns - j), b + i * row_stride + j));
}

static void clear_columns(float *packed, int64_t k, int64_t from, int64_t width)
{
	for (int64_t i = 0; from < width && i < k; i++)
		for (int64_t j = from; j < width; j++)
			packed[i * width + j] = 0.0f;
}

static void pack(float *packed, const float *b, int64_t k, int64_t n, bool transposed)
{
	const struct panels p = panels_of(n);
	for (int64_t panel = 0; panel < p.count; panel++) {
		int64_t from = panel_at(&p, panel) * VEC_LANES, width = panel_at(&p, panel + 1) * VEC_LANES - from;
		int64_t columns = n - from < width ? n - from : width;
		if (transposed)
			pack_columns(packed, b + from * k, k, columns, width, k);
		else
			pack_rows(packed, b + from, k, columns, width, n);
		clear_columns(packed, k, columns, width);
		packed += k * width;
	}
}

/* --- c = a b ---------------------------------------------------------------------------------------------------- */

/* `steps` steps of the inner index; a is their first column. */
GP_INLINE void product_steps(gp_vec (*sum)[MAX_NV], const float *a, int64_t k, const float *b, const int steps,
			     const int mr, const int nv)
{
	gp_vec left[8];
#pragma GCC unroll 4
	for (int s = 0; s < steps; s++, b += nv * VEC_LANES) {
		gp_vec bv[MAX_NV];
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			bv[j] = vec_load(b + j * VEC_LANES);
#pragma GCC unroll 8
		for (int i = 0; i < mr; i++) {
			if (s == 0)
				left[i] = steps == 1 ? vec_all(a[i * k]) : vec_scalars(a + i * k);
#pragma GCC unroll 4
			for (int j = 0; j < nv; j++)
				sum[i][j] = vec_fma_scalar(left[i], s, bv[j], sum[i][j]);
		}
	}
}

GP_INLINE void limit_sums(gp_vec (*sum)[MAX_NV], const struct gp_finish *finish, const int mr, const int nv)
{
	const gp_vec low = vec_all(finish->low), high = vec_all(finish->high);
#pragma GCC unroll 8
	for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			sum[i][j] = vec_limit(sum[i][j], low, high);
}

/* mr rows of one panel; mask: lanes of the last vector that exist. finish: of the panel, if finished. */
GP_INLINE void product_tile(float *c, int64_t ldc, const float *a, int64_t k, const float *b, gp_vec_mask mask,
			    struct ahead ahead, const struct gp_finish *finish, const bool finished, const int mr,
			    const int nv)
{
	gp_vec sum[8][MAX_NV];
#pragma GCC unroll 8
	for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			sum[i][j] = finished ? vec_load(finish->bias + j * VEC_LANES) : vec_zero();
	will_write(c + (WRITE_AHEAD ? WRITE_AHEAD : mr) * ldc, ldc, mr, nv);
	int64_t l = 0;
	for (; l + VEC_SCALARS <= k; l += VEC_SCALARS, b += VEC_SCALARS * nv * VEC_LANES) {
#pragma GCC unroll 4
		for (int s = 0; s < VEC_SCALARS; s++)
			fetch(&ahead, l + s);
		product_steps(sum, a + l, k, b, VEC_SCALARS, mr, nv);
	}
	for (; VEC_SCALARS > 1 && l < k; l++, b += nv * VEC_LANES)
		product_steps(sum, a + l, k, b, 1, mr, nv);
	if (finished)
		limit_sums(sum, finish, mr, nv);
#pragma GCC unroll 8
	for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
		for (int j = 0; j < nv - 1; j++)
			vec_store(c + i * ldc + j * VEC_LANES, sum[i][j]);
		vec_store_first(c + i * ldc + (nv - 1) * VEC_LANES, mask, sum[i][nv - 1]);
	}
}

typedef void (*tile_fn)(float *c, int64_t ldc, const float *a, int64_t k, const float *b, gp_vec_mask mask,
			struct ahead ahead);
typedef void (*finished_fn)(float *c, int64_t ldc, const float *a, int64_t k, const float *b, gp_vec_mask mask,
			    struct ahead ahead, const struct gp_finish *finish);

#define PRODUCT(mr, nv)                                                                                                \
	static void product_##mr##_##nv(float *c, int64_t ldc, const float *a, int64_t k, const float *b,              \
					gp_vec_mask mask, struct ahead ahead)                                          \
	{                                                                                                              \
		product_tile(c, ldc, a, k, b, mask, ahead, NULL, false, mr, nv);                                       \
	}                                                                                                              \
	static void finished_##mr##_##nv(float *c, int64_t ldc, const float *a, int64_t k, const float *b,             \
					 gp_vec_mask mask, struct ahead ahead, const struct gp_finish *finish)         \
	{                                                                                                              \
		product_tile(c, ldc, a, k, b, mask, ahead, finish, true, mr, nv);                                      \
	}
/* clang-format off */
#define PRODUCT_ROW(nv, a, b, c, d) PRODUCT(a, nv) PRODUCT(b, nv) PRODUCT(c, nv) PRODUCT(d, nv)
PRODUCT_TILES(PRODUCT_ROW)

#define PRODUCT_TILE(mr, nv) {mr, product_##mr##_##nv, finished_##mr##_##nv}
#define PRODUCT_ENTRY(nv, a, b, c, d)                                                                                  \
	{PRODUCT_TILE(a, nv), PRODUCT_TILE(b, nv), PRODUCT_TILE(c, nv), PRODUCT_TILE(d, nv)},
static const struct {
	int mr;
	tile_fn run;
	finished_fn run_finished;
} product_tiles[MAX_NV][SIZES] = {PRODUCT_TILES(PRODUCT_ENTRY)};
/* clang-format on */

/* `rows` rows of a product, and where it reads ahead: in `next`, or (NULL) in its own left side. finish: NULL, none. */
struct product_job {
	float *c;
	const float *a;
	int64_t rows, k, n;
	const struct gp_finish *finish;
	struct gp_fetch *next;
};

/* Rows from r on by one panel of b, as high as that tile is. */
static void product_rows(const struct product_job *job, int64_t r, int64_t column, const float *b, int64_t nv, int size,
			 gp_vec_mask mask)
{
	const int mr = product_tiles[nv - 1][size].mr;
	float *c = job->c + r * job->n + column;
	const float *a = job->a + r * job->k;
	struct ahead ahead = {job->a + (r + AHEAD * mr) * job->k, mr};
	if (job->next)
		ahead = take(job->next, job->k, b);
	if (!job->finish) {
		product_tiles[nv - 1][size].run(c, job->n, a, job->k, b, mask, ahead);
		return;
	}
	const struct gp_finish finish = gp_finish_from(job->finish, column);
	product_tiles[nv - 1][size].run_finished(c, job->n, a, job->k, b, mask, ahead, &finish);
}

static void product_panel(const struct product_job *job, int64_t column, const float *b, int64_t nv, gp_vec_mask mask)
{
	int64_t r = 0;
	for (int size = 0; size < SIZES; size++) {
		const int mr = product_tiles[nv - 1][size].mr;
		for (; r + mr <= job->rows; r += mr)
			product_rows(job, r, column, b, nv, size, mask);
	}
}

static void multiply(float *c, const float *a, const float *packed, int64_t rows, int64_t k, int64_t n,
		     const struct gp_finish *finish, struct gp_fetch *next)
{
	const struct panels p = panels_of(n);
	const int64_t block = block_rows(k, n);
	for (int64_t r = 0; r < rows; r += block) {
		const struct product_job job = {.c = c + r * n,
						.a = a + r * k,
						.rows = rows - r < block ? rows - r : block,
						.k = k,
						.n = n,
						.finish = finish,
						.next = next};
		for (int64_t panel = 0; panel < p.count; panel++) {
			int64_t from = panel_at(&p, panel), to = panel_at(&p, panel + 1);
			product_panel(&job, from * VEC_LANES, packed + from * VEC_LANES * k, to - from,
				      vec_first(n - (to - 1) * VEC_LANES));
		}
	}
}

/* --- c (+)= a' b ------------------------------------------------------------------------------------------------ */

/* `rows` rows of two matrices; rows of a, b and c begin lda, ldb and ldc floats apart. */
struct transposed_job {
	int64_t lda, ldb, ldc, rows;
	bool fresh;
	struct gp_fetch *next;
};

/* Columns [0, mr) of a, one panel of b. */
GP_INLINE void transposed_tile(float *c, const float *a, const float *b, const struct transposed_job *job,
			       gp_vec_mask mask, struct ahead ahead, const bool masked, const int mr, const int nv)
{
	const int group = mr % VEC_SCALARS == 0 ? VEC_SCALARS : 1;
	gp_vec sum[16][MAX_NV];
#pragma GCC unroll 16
	for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			sum[i][j] = vec_zero();
	for (int64_t l = 0; l < job->rows; l++, a += job->lda, b += job->ldb) {
		gp_vec bv[MAX_NV], left = vec_zero();
		fetch(&ahead, l);
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++)
			bv[j] = masked && j == nv - 1 ? vec_load_first(mask, b + j * VEC_LANES)
						      : vec_load(b + j * VEC_LANES);
#pragma GCC unroll 16
		for (int i = 0; i < mr; i++) {
			if (i % group == 0)
				left = group == 1 ? vec_all(a[i]) : vec_scalars(a + i);
#pragma GCC unroll 4
			for (int j = 0; j < nv; j++)
				sum[i][j] = vec_fma_scalar(left, i % group, bv[j], sum[i][j]);
		}
	}
#pragma GCC unroll 16
	for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
		for (int j = 0; j < nv; j++) {
			const gp_vec_mask lanes = masked && j == nv - 1 ? mask : VEC_ALL;
			float *at = c + i * job->ldc + j * VEC_LANES;
			if (!job->fresh)
				sum[i][j] = vec_add(vec_load_first(lanes, at), sum[i][j]);
			vec_store_first(at, lanes, sum[i][j]);
		}
	}
}

typedef void (*transposed_fn)(float *c, const float *a, const float *b, const struct transposed_job *job,
			      gp_vec_mask mask, struct ahead ahead);

#define TRANSPOSED(mr, nv)                                                                                             \
	static void transposed_##mr##_##nv(float *c, const float *a, const float *b, const struct transposed_job *job, \
					   gp_vec_mask mask, struct ahead ahead)                                       \
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

static void transposed_panel(float *c, const float *a, int64_t m, const float *b, const struct transposed_job *job,
			     int64_t nv, gp_vec_mask mask)
{
	int64_t i = 0;
	for (int size = 0; size < SIZES; size++) {
		const int mr = transposed_tiles[nv - 1][size].mr;
		for (; i + mr <= m; i += mr)
			transposed_tiles[nv - 1][size].run(c + i * job->ldc, a + i, b, job, mask,
							   take(job->next, job->rows, c));
	}
}

static void multiply_transposed(float *c, struct gp_gemm_operand a, struct gp_gemm_operand b, int64_t rows, int64_t m,
				int64_t n, bool fresh, struct gp_fetch *next)
{
	const struct panels p = panels_within(n, TRANSPOSED_NV);
	struct transposed_job job = {.lda = a.stride, .ldb = b.stride, .ldc = n, .fresh = fresh, .next = next};
	if (rows == 0 && fresh)
		memset(c, 0, (size_t)(m * n) * sizeof *c);
	for (int64_t r = 0; r < rows; r += GEMM_BLOCK, job.fresh = false) {
		job.rows = rows - r < GEMM_BLOCK ? rows - r : GEMM_BLOCK;
		for (int64_t panel = 0; panel < p.count; panel++) {
			int64_t from = panel_at(&p, panel), to = panel_at(&p, panel + 1);
			transposed_panel(c + from * VEC_LANES, a.at + r * a.stride, m,
					 b.at + r * b.stride + from * VEC_LANES, &job, to - from,
					 vec_first(n - (to - 1) * VEC_LANES));
		}
	}
}

#endif

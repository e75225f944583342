/* SPDX-License-Identifier: Apache-2.0
 *
 * Products are separate multiplications and additions, as everywhere in codecs
 * (gpk.h). Tiles of T'T and of products go through shared memory; a block has
 * a sample's subspace iteration, whose rows its warps make orthogonal to one
 * that is done. See k_codec_factor.h.
 * Test: tests/unit/test_cuda_codec_poweriter.c
 */
#include "kernels/cuda/codec/k_codec_factor.h"

#include "kernels/cuda/codec/gpk_codec.h"

#define THREADS    256
#define WARPS      (THREADS / GPK_WARP)
#define SIDE       16  /* a block's threads as a square */
#define GRAM_TILE  32  /* of T'T: two by two numbers of each thread */
#define DEEP       16  /* rows or columns in shared memory at a time */
#define SUMMED     128 /* rows whose T'T is summed in fp32: GP_FACTOR_BLOCK */
#define MOST_R     256
#define SPLIT_UPTO 64  /* matrices so small are summed by many blocks, each of which has SUMMED rows */
#define ROWS       64  /* of a tile of a product */
#define ATTEMPTS   100 /* draws of a row; the first has always done */
#define IN_SHARED  (40 * 1024)
#define DOTS       4 /* chains of a scalar product */

/* --- T'T -------------------------------------------------------------------------------------------------------- */

static int64_t summed_blocks(int64_t tall)
{
	return gpk_div_up(tall, SUMMED);
}

static bool is_split(int64_t tall, int64_t small)
{
	return small <= SPLIT_UPTO && tall > SUMMED;
}

extern "C" uint64_t gpk_factor_partials(int64_t batch, int64_t tall, int64_t small)
{
	return is_split(tall, small) ? (uint64_t)(batch * summed_blocks(tall) * small * small) : 0;
}

/* Element (row, column) of a sample's T. */
GPK_DEVICE float element(const struct gpk_factor &f, const float *x, int64_t row, int64_t column)
{
	return f.transposed ? x[column * f.tall + row] : x[row * f.small + column];
}

/* DEEP rows of GRAM_TILE columns from `column` on, 0 where there are none. Neighbouring threads read neighbours. */
GPK_DEVICE void stage_columns(const struct gpk_factor &f, const float *x, int64_t row, int64_t end, int64_t column,
			      float (*to)[GRAM_TILE + 1])
{
	for (int at = (int)threadIdx.x; at < DEEP * GRAM_TILE; at += THREADS) {
		const int r = f.transposed ? at % DEEP : at / GRAM_TILE, c = f.transposed ? at / DEEP : at % GRAM_TILE;
		to[r][c] = row + r < end && column + c < f.small ? element(f, x, row + r, column + c) : 0;
	}
}

/* Adds rows from..end of a tile of T'T; Sum is what they are added in. */
template <typename Sum>
GPK_DEVICE void add_rows(const struct gpk_factor &f, const float *x, int64_t from, int64_t end, int64_t i, int64_t j,
			 Sum sum[2][2])
{
	GPK_SHARED(float, left, [DEEP][GRAM_TILE + 1]);
	GPK_SHARED(float, right, [DEEP][GRAM_TILE + 1]);
	const int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
	for (int64_t row = from; row < end; row += DEEP) {
		const int count = end - row < DEEP ? (int)(end - row) : DEEP;
		stage_columns(f, x, row, end, i, left);
		stage_columns(f, x, row, end, j, right);
		__syncthreads();
		for (int r = 0; r < count; r++)
			for (int m = 0; m < 2; m++)
				for (int k = 0; k < 2; k++)
					sum[m][k] += (Sum)left[r][ty + m * SIDE] * (Sum)right[r][tx + k * SIDE];
		__syncthreads();
	}
}

/* T'T is symmetric, bit for bit. */
template <typename T> GPK_DEVICE void store_tile(T *to, int64_t small, int64_t i, int64_t j, const T sum[2][2])
{
	const int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
	for (int m = 0; m < 2; m++)
		for (int k = 0; k < 2; k++) {
			const int64_t row = i + ty + m * SIDE, column = j + tx + k * SIDE;
			if (row >= small || column >= small)
				continue;
			to[row * small + column] = sum[m][k];
			to[column * small + row] = sum[m][k];
		}
}

/* Grid: samples and their tiles, then (Split) blocks of rows, which are added up by add_partials. */
template <bool Split, bool Exact> GPK_KERNEL take_gram(struct gpk_factor f, const float *x, int tiles, int64_t blocks)
{
	const int64_t sample = blockIdx.x / (tiles * tiles), squared = f.small * f.small;
	const int64_t i = (int64_t)(blockIdx.x / tiles % tiles) * GRAM_TILE,
		      j = (int64_t)(blockIdx.x % tiles) * GRAM_TILE;
	double wide[2][2] = {{0, 0}, {0, 0}};
	if (j < i || (Exact && !f.sample[sample].exact))
		return;
	x += sample * f.tall * f.small;
	if (Exact)
		add_rows<double>(f, x, 0, f.tall, i, j, wide);
	for (int64_t b = blockIdx.z; b < blocks && !Exact; b += gridDim.z) {
		float sum[2][2] = {{0, 0}, {0, 0}};
		const int64_t end = (b + 1) * SUMMED;
		add_rows<float>(f, x, b * SUMMED, end < f.tall ? end : f.tall, i, j, sum);
		if (Split)
			store_tile(f.partial + (sample * blocks + b) * squared, f.small, i, j, sum);
		for (int at = 0; at < 4; at++)
			wide[at / 2][at % 2] += (double)sum[at / 2][at % 2];
	}
	if (!Split)
		store_tile(f.gram + sample * squared, f.small, i, j, wide);
}

GPK_KERNEL add_partials(struct gpk_factor f, int64_t blocks)
{
	const int64_t squared = f.small * f.small, step = (int64_t)gridDim.x * THREADS;
	for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < f.batch * squared; at += step) {
		const float *from = f.partial + at / squared * blocks * squared + at % squared;
		double sum = 0;
		for (int64_t b = 0; b < blocks; b++)
			sum += (double)from[b * squared];
		f.gram[at] = sum;
	}
}

static void queue_gram(struct gp_rt_stream *s, const struct gpk_factor *f, const float *x)
{
	const int tiles = (int)gpk_div_up(f->small, GRAM_TILE);
	const int64_t blocks = summed_blocks(f->tall);
	const unsigned grid = (unsigned)(f->batch * tiles * tiles);
	if (!is_split(f->tall, f->small)) {
		GPK_LAUNCH(s, (take_gram<false, false>), grid, THREADS, 0, *f, x, tiles, blocks);
		return;
	}
	GPK_LAUNCH(s, (take_gram<true, false>), dim3(grid, 1, (unsigned)(blocks < 65535 ? blocks : 65535)), THREADS, 0,
		   *f, x, tiles, blocks);
	GPK_LAUNCH(s, add_partials, gpk_blocks(f->batch * f->small * f->small, THREADS, 2112), THREADS, 0, *f, blocks);
}

static void queue_exact_gram(struct gp_rt_stream *s, const struct gpk_factor *f, const float *x)
{
	const int tiles = (int)gpk_div_up(f->small, GRAM_TILE);
	GPK_LAUNCH(s, (take_gram<false, true>), (unsigned)(f->batch * tiles * tiles), THREADS, 0, *f, x, tiles,
		   (int64_t)0);
}

/* --- vectors of a warp ------------------------------------------------------------------------------------------ */

/* As gp_factor_dot: every fourth term to each of four sums. Every lane gets it. */
GPK_DEVICE double warp_dot(const double *a, const double *b, int64_t n)
{
	const int lane = (int)threadIdx.x % GPK_WARP;
	double part = 0, sum = 0;
	GPK_UNROLL_BY(8) /* so that only the sums follow one another */
	for (int64_t i = lane; i < n && lane < DOTS; i += DOTS)
		part += a[i] * b[i];
	for (int l = 0; l < DOTS; l++)
		sum += __shfl_sync(GPK_ALL_LANES, part, l);
	return sum;
}

/* a += c * b; a *= c. */
GPK_DEVICE void warp_add(double *a, double c, const double *b, int64_t n)
{
	for (int64_t i = (int)threadIdx.x % GPK_WARP; i < n; i += GPK_WARP)
		a[i] += c * b[i];
	__syncwarp();
}

GPK_DEVICE void warp_scale(double *a, double c, int64_t n)
{
	for (int64_t i = (int)threadIdx.x % GPK_WARP; i < n; i += GPK_WARP)
		a[i] *= c;
	__syncwarp();
}

/* --- iteration -------------------------------------------------------------------------------------------------- */

GPK_DEVICE bool begin_row(double *v, int64_t n)
{
	const double before = warp_dot(v, v, n);
	if (!(before > 0))
		return false;
	warp_scale(v, 1 / sqrt(before), n);
	return true;
}

/* Takes the directions of the rows before row k out of it. */
GPK_DEVICE void sweep(double *v, int64_t k, int64_t n)
{
	for (int64_t l = 0; l < k; l++)
		warp_add(v + k * n, -warp_dot(v + k * n, v + l * n, n), v + l * n, n);
}

GPK_DEVICE bool end_row(const struct gpk_factor &f, double *v)
{
	const double after = sqrt(warp_dot(v, v, f.small));
	if (!(after > f.nothing_left))
		return false;
	warp_scale(v, 1 / after, f.small);
	return true;
}

GPK_DEVICE void draw_row(const struct gpk_factor &f, double *v, int64_t sample, int64_t k, int attempt)
{
	const uint64_t row = (uint64_t)(sample * f.r + k), stream = f.stream | (row * 4 + (uint64_t)attempt);
	for (int64_t i = (int)threadIdx.x % GPK_WARP; i < f.small; i += GPK_WARP) {
		uint32_t word[4];
		gpk_rng_block(f.seed, stream, (uint64_t)i / 4, word);
		const uint32_t w = i % 4 == 0 ? word[0] : i % 4 == 1 ? word[1] : i % 4 == 2 ? word[2] : word[3];
		v[i] = (double)((float)(w >> 8) * 0x1p-24f) - 0.5;
	}
	__syncwarp();
}

/* Row k, out of which the rows before it were taken once already. One that depends on them is drawn anew. */
GPK_DEVICE void finish_row(const struct gpk_factor &f, double *v, int64_t sample, int64_t k, bool begun)
{
	double *const row = v + k * f.small;
	if (begun)
		sweep(v, k, f.small);
	bool done = begun && end_row(f, row);
	for (int attempt = 0; !done && attempt < ATTEMPTS; attempt++) {
		draw_row(f, row, sample, k, attempt);
		if (!begin_row(row, f.small))
			continue;
		sweep(v, k, f.small);
		sweep(v, k, f.small);
		done = end_row(f, row);
	}
}

/* The host's modified Gram-Schmidt: the first of a row's two sweeps goes along with the rows before it. */
GPK_DEVICE void orthonormalize(const struct gpk_factor &f, double *v, int64_t sample)
{
	GPK_SHARED(bool, begun, [MOST_R]);
	const int warp = (int)threadIdx.x / GPK_WARP, lane = (int)threadIdx.x % GPK_WARP;
	const int64_t n = f.small;
	for (int64_t k = warp; k < f.r; k += WARPS) {
		const bool has = begin_row(v + k * n, n);
		if (lane == 0)
			begun[k] = has;
	}
	__syncthreads();
	for (int64_t l = 0; l < f.r; l++) {
		if (warp == 0)
			finish_row(f, v, sample, l, begun[l]);
		__syncthreads();
		for (int64_t k = l + 1 + warp; k < f.r; k += WARPS)
			if (begun[k])
				warp_add(v + k * n, -warp_dot(v + k * n, v + l * n, n), v + l * n, n);
		__syncthreads();
	}
}

/* w = v g, four rows at a time. */
GPK_DEVICE void apply(const struct gpk_factor &f, double *w, const double *v, const double *gram)
{
	const int64_t n = f.small, groups = (f.r + 3) / 4;
	for (int64_t at = threadIdx.x; at < groups * n; at += THREADS) {
		const int64_t j = at % n, k = at / n * 4;
		double sum[4] = {0, 0, 0, 0};
		const double *row[4];
		for (int m = 0; m < 4; m++)
			row[m] = v + (k + m < f.r ? k + m : k) * n;
		for (int64_t i = 0; i < n; i++) {
			const double g = gram[i * n + j];
			for (int m = 0; m < 4; m++)
				sum[m] += row[m][i] * g;
		}
		for (int m = 0; m < 4 && k + m < f.r; m++)
			w[(k + m) * n + j] = sum[m];
	}
	__syncthreads();
}

GPK_DEVICE void copy_all(double *to, const double *from, int64_t count)
{
	for (int64_t i = threadIdx.x; i < count; i += THREADS)
		to[i] = from[i];
	__syncthreads();
}

GPK_DEVICE void make_steps(const struct gpk_factor &f, double *v, double *w, const double *gram, int64_t sample,
			   int steps)
{
	for (int i = 0; i < steps; i++) {
		apply(f, w, v, gram);
		copy_all(v, w, f.r * f.small);
		orthonormalize(f, v, sample);
	}
}

/* The diagonal's sum, in its order. */
GPK_DEVICE double trace_of(const double *gram, int64_t n)
{
	GPK_SHARED(double, part, [THREADS]);
	double sum = 0;
	for (int64_t from = 0; from < n; from += THREADS) {
		const int64_t i = from + threadIdx.x;
		__syncthreads();
		part[threadIdx.x] = i < n ? gram[i * n + i] : 0;
		__syncthreads();
		for (int k = 0; k < THREADS && from + k < n; k++)
			sum += part[k];
	}
	return sum;
}

/* What V leaves of the squared norm. */
GPK_DEVICE double rest_of(const struct gpk_factor &f, double *w, const double *v, const double *gram, double trace)
{
	GPK_SHARED(double, part, [MOST_R]);
	apply(f, w, v, gram);
	for (int64_t k = threadIdx.x / GPK_WARP; k < f.r; k += WARPS) {
		const double dot = warp_dot(v + k * f.small, w + k * f.small, f.small);
		if (threadIdx.x % GPK_WARP == 0)
			part[k] = dot;
	}
	__syncthreads();
	for (int64_t k = 0; k < f.r; k++)
		trace -= part[k];
	return trace;
}

/* A block has one sample. Again: those whose T'T was computed in fp64, from where they are. */
template <bool Again> GPK_KERNEL iterate(struct gpk_factor f, int steps, bool in_shared)
{
	GPK_SHARED_DYNAMIC(double, room);
	const int64_t sample = blockIdx.x, count = f.r * f.small;
	struct gpk_factor_sample *const told = &f.sample[sample];
	const double *const gram = f.gram + sample * f.small * f.small;
	double *const out = f.v + sample * count;
	double *const v = in_shared ? room : out, *const w = in_shared ? room + count : f.w + sample * count;
	if (Again && !told->exact)
		return;
	if (in_shared)
		copy_all(v, out, count);
	const double trace = trace_of(gram, f.small);
	bool exact = false, fine = trace <= f.most_trace;
	if (!Again) {
		const bool usable = trace > f.least_trace && trace <= 0x1.fffffffffffffp1023;
		orthonormalize(f, v, sample);
		if (usable)
			make_steps(f, v, w, gram, sample, steps);
		exact = !usable || rest_of(f, w, v, gram, trace) < f.exact_share * trace;
	} else if (fine) {
		make_steps(f, v, w, gram, sample, steps);
	}
	if (in_shared)
		copy_all(out, v, count);
	if (threadIdx.x != 0)
		return;
	if (!Again)
		told->exact = exact;
	if (!exact && !fine)
		f.told->bad = 1;
}

extern "C" void gpk_factor_iterate(struct gp_rt_stream *s, const struct gpk_factor *f, const float *x, int steps)
{
	const uint64_t bytes = (uint64_t)(2 * f->r * f->small) * sizeof(double);
	const bool in_shared = bytes <= IN_SHARED;
	queue_gram(s, f, x);
	GPK_LAUNCH(s, iterate<false>, (unsigned)f->batch, THREADS, in_shared ? bytes : 0, *f, steps, in_shared);
	queue_exact_gram(s, f, x);
	GPK_LAUNCH(s, iterate<true>, (unsigned)f->batch, THREADS, in_shared ? bytes : 0, *f, steps, in_shared);
}

/* --- V as a factor ---------------------------------------------------------------------------------------------- */

/* Where element i of row k of V' lies in a small factor. */
GPK_DEVICE int64_t place_of(const struct gpk_factor &f, int64_t at)
{
	const int64_t sample = at / (f.r * f.small), k = at / f.small % f.r, i = at % f.small;
	return sample * f.r * f.small + (f.transposed ? i * f.r + k : k * f.small + i);
}

GPK_KERNEL load_start(struct gpk_factor f, const float *start)
{
	const int64_t step = (int64_t)gridDim.x * THREADS;
	for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < f.batch * f.r * f.small; at += step)
		f.v[at] = start ? (double)start[place_of(f, at)] : 0;
}

GPK_KERNEL store_basis(struct gpk_factor f, float *out)
{
	const int64_t step = (int64_t)gridDim.x * THREADS;
	for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < f.batch * f.r * f.small; at += step)
		out[place_of(f, at)] = (float)f.v[at];
}

static unsigned blocks_of_v(const struct gpk_factor *f)
{
	return gpk_blocks(f->batch * f->r * f->small, THREADS, 2112);
}

extern "C" void gpk_factor_start(struct gp_rt_stream *s, const struct gpk_factor *f, const float *start)
{
	GPK_LAUNCH(s, load_start, blocks_of_v(f), THREADS, 0, *f, start);
}

extern "C" void gpk_factor_basis(struct gp_rt_stream *s, const struct gpk_factor *f, float *small_factor)
{
	GPK_LAUNCH(s, store_basis, blocks_of_v(f), THREADS, 0, *f, small_factor);
}

/* --- products --------------------------------------------------------------------------------------------------- */

/* A matrix per sample: distances between rows, columns and samples. One of the first two is 1. */
struct view {
	float *at;
	int64_t row, column, sample;
};

struct product {
	struct view out, a, b;
	int64_t rows, depth, columns;
	int row_tiles, column_tiles;
};

/* (high, wide) of `v` from (row, column) on, 0 where there is none. Neighbouring threads read neighbours. */
template <int High, int Wide>
GPK_DEVICE void stage(const struct view &v, const float *at, int64_t row, int64_t rows, int64_t column, int64_t columns,
		      float (*to)[Wide + 1])
{
	for (int i = (int)threadIdx.x; i < High * Wide; i += THREADS) {
		const int r = v.column == 1 ? i / Wide : i % High, c = v.column == 1 ? i % Wide : i / High;
		const bool there = row + r < rows && column + c < columns;
		to[r][c] = there ? at[(row + r) * v.row + (column + c) * v.column] : 0;
	}
}

/* Tiles of ROWS * Wide numbers, four rows and Wide / SIDE columns of each thread, summed along the depth in its order. */
template <int Wide> GPK_KERNEL multiply(struct product p, uint32_t *bad)
{
	GPK_SHARED(float, left, [ROWS][DEEP + 1]);
	GPK_SHARED(float, right, [DEEP][Wide + 1]);
	enum { HIGH = ROWS / SIDE, ACROSS = Wide / SIDE };
	const int tiles = p.row_tiles * p.column_tiles, tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
	const int64_t sample = blockIdx.x / tiles, row = (int64_t)(blockIdx.x / p.column_tiles % p.row_tiles) * ROWS,
		      column = (int64_t)(blockIdx.x % p.column_tiles) * Wide;
	float sum[HIGH][ACROSS];
	for (int m = 0; m < HIGH; m++)
		for (int k = 0; k < ACROSS; k++)
			sum[m][k] = 0;
	for (int64_t from = 0; from < p.depth; from += DEEP) {
		const int count = p.depth - from < DEEP ? (int)(p.depth - from) : DEEP;
		stage<ROWS, DEEP>(p.a, p.a.at + sample * p.a.sample, row, p.rows, from, p.depth, left);
		stage<DEEP, Wide>(p.b, p.b.at + sample * p.b.sample, from, p.depth, column, p.columns, right);
		__syncthreads();
		for (int l = 0; l < count; l++)
			for (int m = 0; m < HIGH; m++)
				for (int k = 0; k < ACROSS; k++)
					sum[m][k] += left[ty + m * SIDE][l] * right[l][tx + k * SIDE];
		__syncthreads();
	}
	bool finite = true;
	for (int m = 0; m < HIGH; m++)
		for (int k = 0; k < ACROSS; k++) {
			const int64_t i = row + ty + m * SIDE, j = column + tx + k * SIDE;
			if (i >= p.rows || j >= p.columns)
				continue;
			p.out.at[sample * p.out.sample + i * p.out.row + j * p.out.column] = sum[m][k];
			finite &= gpk_finite(sum[m][k]);
		}
	gpk_flag(bad, !finite);
}

static void queue_product(struct gp_rt_stream *s, int64_t batch, struct product p, uint32_t *bad)
{
	const int wide = p.columns <= 16 ? 16 : 64;
	p.row_tiles = (int)gpk_div_up(p.rows, ROWS);
	p.column_tiles = (int)gpk_div_up(p.columns, wide);
	const unsigned grid = (unsigned)(batch * p.row_tiles * p.column_tiles);
	if (wide == 16)
		GPK_LAUNCH(s, multiply<16>, grid, THREADS, 0, p, bad);
	else
		GPK_LAUNCH(s, multiply<64>, grid, THREADS, 0, p, bad);
}

extern "C" void gpk_factor_project(struct gp_rt_stream *s, const struct gpk_factor *f, const float *x,
				   const float *small_factor, float *tall_factor)
{
	struct product p = {};
	p.rows = f->tall;
	p.depth = f->small;
	p.columns = f->r;
	const int64_t n = f->tall * f->small, v = f->r * f->small, t = f->tall * f->r;
	p.a = f->transposed ? view{(float *)x, 1, f->tall, n} : view{(float *)x, f->small, 1, n};
	p.b = f->transposed ? view{(float *)small_factor, f->r, 1, v} : view{(float *)small_factor, 1, f->small, v};
	p.out = f->transposed ? view{tall_factor, 1, f->tall, t} : view{tall_factor, f->r, 1, t};
	queue_product(s, f->batch, p, &f->told->bad);
}

extern "C" void gpk_factor_join(struct gp_rt_stream *s, int64_t batch, int64_t rows, int64_t cols, int64_t r,
				const float *left, const float *right, float *x, struct gpk_factor_told *told)
{
	struct product p = {};
	p.rows = rows;
	p.depth = r;
	p.columns = cols;
	p.a = view{(float *)left, r, 1, rows * r};
	p.b = view{(float *)right, cols, 1, r * cols};
	p.out = view{x, cols, 1, rows * cols};
	queue_product(s, batch, p, &told->bad);
}

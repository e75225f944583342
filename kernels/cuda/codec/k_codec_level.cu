/* SPDX-License-Identifier: Apache-2.0
 *
 * Level quantizers: one pass for the norms, one for the codes, one back. L2
 * norms are reproduced bit for bit: sixteen threads have a bucket, each what
 * one of the host's lanes adds up, in its order (kernels/loops/level_loops.h).
 * See k_codec_level.h. Test: tests/unit/test_cuda_codec.c
 */
#include "kernels/cuda/codec/k_codec_level.h"

#include <math.h>

#include "kernels/cuda/codec/gpk_codec.h"
#include "kernels/cuda/runtime/gpk_rows.h"

#define LANES                     16   /* GP_LEVEL_LANES */
#define MOST                      256  /* GP_LEVEL_MOST */
#define CELLS                     256  /* of [-1, 1] */
#define PIECE                     4096 /* elements of a bucket whose largest a warp finds */
#define BLOCKS_OF(threads_wanted) gpk_blocks((threads_wanted), GPK_CODEC_THREADS, GPK_CODEC_MOST_BLOCKS)
#ifdef __CUDACC__
#define TABLE_BLOCKS 2112
#else
#define TABLE_BLOCKS GPK_CODEC_MOST_BLOCKS
#endif

/* --- norms ------------------------------------------------------------------------------------------------------- */

GPK_DEVICE bool put_norm(float *norms, int64_t bucket, float norm)
{
	norms[bucket] = norm;
	return !gpk_finite(norm);
}

/* The square is exact, so that this rounds once, as the host's product and sum do. */
GPK_DEVICE double add_square(double sum, float x)
{
	return fma((double)x, (double)x, sum);
}

/* A bucket of at most LANES elements: each is a lane. */
GPK_DEVICE double few_squares(const float *x, int64_t n)
{
	double lane[LANES];
	for (int k = 0; k < LANES; k++)
		lane[k] = k < n ? (double)x[k] * (double)x[k] : 0;
	for (int half = LANES / 2; half > 0; half /= 2)
		for (int k = 0; k < half; k++)
			lane[k] += lane[k + half];
	return lane[0];
}

GPK_DEVICE uint32_t few_largest(const float *x, int64_t n)
{
	uint32_t top = 0;
	for (int64_t i = 0; i < n; i++)
		top = gpk_magnitude(x[i]) > top ? gpk_magnitude(x[i]) : top;
	return top;
}

/* A thread has a bucket. */
GPK_KERNEL small_norms(const float *x, int64_t n, int64_t bucket, bool l2, float *norms, uint32_t *bad)
{
	const int64_t buckets = (n + bucket - 1) / bucket, step = (int64_t)gridDim.x * GPK_CODEC_THREADS;
	bool raised = false;
	for (int64_t b = (int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x; b < buckets; b += step) {
		const int64_t at = b * bucket, here = n - at < bucket ? n - at : bucket;
		const float norm =
			l2 ? (float)sqrt(few_squares(x + at, here)) : __uint_as_float(few_largest(x + at, here));
		raised |= put_norm(norms, b, norm);
	}
	gpk_flag(bad, raised);
}

/* Half a warp has a bucket; warps stay together. */
GPK_KERNEL l2_norms(const float *x, int64_t n, int64_t bucket, float *norms, uint32_t *bad)
{
	const int64_t buckets = (n + bucket - 1) / bucket, warps = (int64_t)gridDim.x * GPK_CODEC_THREADS / GPK_WARP;
	const int lane = (int)threadIdx.x % LANES, side = (int)threadIdx.x % GPK_WARP / LANES;
	bool raised = false;
	for (int64_t w = ((int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x) / GPK_WARP; w * 2 < buckets;
	     w += warps) {
		const int64_t b = w * 2 + side, end = (b + 1) * bucket < n ? (b + 1) * bucket : n;
		double sum = 0;
		GPK_UNROLL_BY(8)
		for (int64_t i = b * bucket + lane; i < end; i += LANES)
			sum = add_square(sum, x[i]);
		for (int half = LANES / 2; half > 0; half /= 2)
			sum += __shfl_down_sync(GPK_ALL_LANES, sum, half, LANES);
		if (lane == 0 && b < buckets)
			raised |= put_norm(norms, b, (float)sqrt(sum));
	}
	gpk_flag(bad, raised);
}

/* A warp has a piece of a bucket. Of several pieces the norms begin as zeros. */
GPK_KERNEL largest_norms(const float *x, int64_t n, int64_t bucket, int64_t pieces, uint32_t *norms, uint32_t *bad)
{
	const int64_t buckets = (n + bucket - 1) / bucket, warps = (int64_t)gridDim.x * GPK_CODEC_THREADS / GPK_WARP;
	const int lane = (int)threadIdx.x % GPK_WARP;
	uint32_t raised = 0;
	for (int64_t w = ((int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x) / GPK_WARP; w < buckets * pieces;
	     w += warps) {
		const int64_t b = w / pieces, first = b * bucket + w % pieces * PIECE;
		int64_t end = (b + 1) * bucket < n ? (b + 1) * bucket : n;
		uint32_t top = 0;
		end = pieces > 1 && first + PIECE < end ? first + PIECE : end;
		GPK_UNROLL_BY(8)
		for (int64_t i = first + lane; i < end; i += GPK_WARP)
			top = gpk_magnitude(x[i]) > top ? gpk_magnitude(x[i]) : top;
		for (int d = GPK_WARP / 2; d > 0; d /= 2) {
			const uint32_t other = __shfl_xor_sync(GPK_ALL_LANES, top, d);
			top = other > top ? other : top;
		}
		raised |= top >= 0x7f800000u;
		if (lane == 0 && pieces > 1)
			atomicMax(&norms[b], top);
		else if (lane == 0)
			norms[b] = top;
	}
	gpk_flag(bad, raised);
}

extern "C" void gpk_level_norms(struct gp_rt_stream *s, const float *x, int64_t n, int64_t bucket, bool l2,
				float *norms, uint32_t *bad)
{
	const int64_t buckets = gpk_div_up(n, bucket), pieces = gpk_div_up(bucket < n ? bucket : n, PIECE);
	if (bucket <= LANES) {
		GPK_LAUNCH(s, small_norms, BLOCKS_OF(buckets), GPK_CODEC_THREADS, 0, x, n, bucket, l2, norms, bad);
	} else if (l2) {
		GPK_LAUNCH(s, l2_norms, BLOCKS_OF(buckets * LANES), GPK_CODEC_THREADS, 0, x, n, bucket, norms, bad);
	} else {
		if (pieces > 1)
			gp_rt_fill(s, norms, 0, (size_t)buckets * sizeof *norms);
		GPK_LAUNCH(s, largest_norms, BLOCKS_OF(buckets * pieces * GPK_WARP), GPK_CODEC_THREADS, 0, x, n, bucket,
			   pieces, (uint32_t *)norms, bad);
	}
}

/* --- codes ------------------------------------------------------------------------------------------------------- */

struct levels {
	int bits, count;
	bool apart;  /* by 2^-30 at least, so that nobody sees what gpk_quotient makes of tiny numbers */
	bool sparse; /* no two in a cell and what belongs to it */
	float level[MOST];
};

static bool are_apart(const struct gpk_levels *l, float least)
{
	bool apart = true;
	for (int i = 1; i < l->count; i++)
		apart &= l->level[i] - l->level[i - 1] >= least && (l->level[i] == 0 || fabsf(l->level[i]) >= least);
	return apart;
}

static struct levels given(const struct gpk_levels *from)
{
	struct levels l;
	l.bits = from->bits;
	l.count = from->count;
	l.apart = are_apart(from, 0x1p-30f);
	l.sparse = are_apart(from, 4.0f / CELLS);
	memcpy(l.level, from->level, sizeof(float) << from->bits);
	return l;
}

/* Where a number is among the levels: [-1, 1] is cut into cells, which say the last level below them, and the next. From
 * there a number goes up to its own level: where they are sparse, one step at most. A search takes as many as a code has
 * bits. */
struct alignas(8) cell {
	float next;
	uint32_t code;
};

struct search {
	float2 level[MOST + 1]; /* a level, and how far above it the next is */
	struct cell cell[CELLS + 1];
};

/* The block. */
GPK_DEVICE void make_search(struct search *s, const struct levels &l)
{
	const int all = 1 << l.bits, i = (int)threadIdx.x;
	for (int c = i; c <= all; c += GPK_CODEC_THREADS) {
		const float level = c < all ? l.level[c] : INFINITY;
		s->level[c] = make_float2(level, c + 1 < all ? l.level[c + 1] - level : 0);
	}
	__syncthreads();
	for (int k = i; k <= CELLS; k += GPK_CODEC_THREADS) {
		/* A number may be rounded into the cell above it. */
		const float begin = (float)(2 * k - CELLS) / CELLS - 0x1p-20f;
		uint32_t c = 0;
		for (int half = all / 2; half > 0; half /= 2)
			c += s->level[c + half].x <= begin ? half : 0;
		s->cell[k].next = s->level[c + 1].x;
		s->cell[k].code = c;
	}
	__syncthreads();
}

/* `draw`: (h + 1/2) / 2^16. No r leads past the last level: behind it lies an infinite one. */
template <bool Sparse> GPK_DEVICE unsigned code_of(const struct search *s, float r, float draw)
{
	r = fminf(r, 1);
	const struct cell cell = s->cell[(unsigned)(gpk_saturate(__fmaf_rn(r, 0.5f, 0.5f)) * CELLS)];
	unsigned c = cell.code + (r >= cell.next);
	while (!Sparse && r >= s->level[c + 1].x)
		c++;
	const float2 at = s->level[c];
	return c + (draw * at.y < r - at.x);
}

/* Draws of eight elements, and of no code behind the last. */
template <bool Sparse>
GPK_DEVICE void round_all(const struct search *s, const float r[8], uint64_t seed, uint64_t stream, int64_t at,
			  int64_t n, unsigned code[8])
{
	uint32_t draws[4];
	gpk_rng_block(seed, stream, (uint64_t)at / 8, draws);
	for (int i = 0; i < 8; i++)
		code[i] = code_of<Sparse>(s, r[i], gpk_draw_of(draws[i / 2], i % 2));
	if (at + 8 <= n)
		return;
	for (int i = 0; i < 8; i++)
		code[i] = at + i < n ? code[i] : 0;
}

/* v / norm, all by the same. */
GPK_DEVICE void divide_all(const float v[8], float norm, bool apart, float r[8])
{
	const float by = norm > 0 ? norm : 1, reciprocal = 1 / by;
	const bool quick = apart && gpk_divides(by);
	for (int i = 0; i < 8; i++)
		r[i] = quick ? gpk_quotient(v[i], by, reciprocal) : v[i] / by;
}

/* Norms of elements in a row. */
struct walk {
	const float *norms;
	uint32_t bucket, number, rest; /* elements of a bucket, its number, what is left of it */
	float norm;
};

GPK_DEVICE struct walk walk_from(const float *norms, struct gpk_divisor bucket, int64_t at, int64_t n)
{
	struct walk w = {norms, bucket.by, 0, 0, 0};
	uint32_t inside = (uint32_t)at;
	if (at >= n)
		return w;
	w.number = gpk_split(&inside, bucket);
	w.rest = w.bucket - inside;
	w.norm = norms[w.number];
	return w;
}

/* To the element behind, which exists. */
GPK_DEVICE void walk_on(struct walk *w)
{
	if (--w->rest)
		return;
	w->rest = w->bucket;
	w->norm = w->norms[++w->number];
}

template <bool Sparse>
GPK_KERNEL encode(const float *x, int64_t n, struct gpk_divisor bucket, struct levels levels, uint64_t seed,
		  uint64_t stream, const float *norms, uint8_t *codes)
{
	GPK_CODEC_ROOM(room);
	GPK_SHARED(struct search, search, [1]);
	make_search(search, levels);
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		const int64_t at = tile * GPK_CODEC_TILE + threadIdx.x * GPK_CODEC_GROUP;
		struct walk w = walk_from(norms, bucket, at, n);
		unsigned code[8];
		float v[8], r[8];
		gpk_load8(x, at, n, 0, v);
		if (w.rest >= 8) {
			divide_all(v, w.norm, levels.apart, r);
		} else {
			for (int i = 0; i < 8; i++) {
				if (i && at + i < n)
					walk_on(&w);
				r[i] = v[i] / (w.norm > 0 ? w.norm : 1);
			}
		}
		round_all<Sparse>(search, r, seed, stream, at, n, code);
		gpk_store_codes(codes, levels.bits, tile, n, code, room);
	}
}

/* Blocks make tables before they begin. */
static unsigned blocks_for(int64_t n)
{
	return gpk_blocks(n, GPK_CODEC_TILE, TABLE_BLOCKS);
}

extern "C" void gpk_level_encode(struct gp_rt_stream *s, const float *x, int64_t n, int64_t bucket,
				 const struct gpk_levels *levels, uint64_t seed, uint64_t stream, const float *norms,
				 uint8_t *codes)
{
	const struct levels l = given(levels);
	const struct gpk_divisor by = gpk_divisor_of(bucket);
	if (l.sparse)
		GPK_LAUNCH(s, encode<true>, blocks_for(n), GPK_CODEC_THREADS, 0, x, n, by, l, seed, stream, norms,
			   codes);
	else
		GPK_LAUNCH(s, encode<false>, blocks_for(n), GPK_CODEC_THREADS, 0, x, n, by, l, seed, stream, norms,
			   codes);
}

/* The block: L2 norms of the `buckets` buckets of 2^shift elements in a tile. Sixteen threads have one; both halves of a
 * warp come. */
GPK_DEVICE void find_l2(const float *values, int shift, int buckets, float *norm)
{
	const int team = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
	for (int b = team; b - team % 2 < buckets; b += GPK_CODEC_THREADS / LANES) {
		const float *const v = values + ((b < buckets ? b : 0) << shift);
		double sum = 0;
		GPK_UNROLL_BY(8)
		for (int i = lane; i < 1 << shift; i += LANES)
			sum = add_square(sum, v[i]);
		for (int half = LANES / 2; half > 0; half /= 2)
			sum += __shfl_down_sync(GPK_ALL_LANES, sum, half, LANES);
		if (b < buckets && lane == 0)
			norm[b] = (float)sqrt(sum);
	}
}

/* The block: the largest magnitudes, of eight elements of each thread. `norm` holds zeros, as bits. */
GPK_DEVICE void find_largest(const float v[8], int shift, uint32_t *norm)
{
	const int threads = 1 << shift >> 3; /* that share a bucket */
	uint32_t top = 0;
	for (int i = 0; i < 8; i++)
		top = max(top, gpk_magnitude(v[i]));
	for (int d = 1; d < GPK_WARP && d < threads; d *= 2)
		top = max(top, __shfl_xor_sync(GPK_ALL_LANES, top, d));
	if ((int)threadIdx.x % (threads < GPK_WARP ? threads : GPK_WARP) == 0)
		atomicMax(&norm[threadIdx.x * GPK_CODEC_GROUP >> shift], top);
}

/* Norms and codes by tiles, which are whole buckets of 2^shift elements. */
template <bool L2, bool Sparse>
GPK_KERNEL encode_tiles(const float *x, int64_t n, int shift, struct levels levels, uint64_t seed, uint64_t stream,
			float *norms, uint8_t *codes, uint32_t *bad)
{
	GPK_CODEC_ROOM(room);
	GPK_SHARED(struct search, search, [1]);
	GPK_SHARED(float4, quads, [L2 ? GPK_CODEC_TILE / 4 : 1]);
	GPK_SHARED(float, norm, [GPK_CODEC_TILE / LANES]);
	const int t = (int)threadIdx.x, buckets = GPK_CODEC_TILE >> shift;
	bool raised = false;
	make_search(search, levels);
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		const int64_t at = tile * GPK_CODEC_TILE + t * GPK_CODEC_GROUP;
		unsigned code[8];
		float v[8], r[8];
		gpk_load8(x, at, n, 0, v);
		if (L2) {
			quads[2 * t] = make_float4(v[0], v[1], v[2], v[3]);
			quads[2 * t + 1] = make_float4(v[4], v[5], v[6], v[7]);
		} else if (t < buckets) {
			norm[t] = 0;
		}
		__syncthreads();
		if (L2)
			find_l2(reinterpret_cast<const float *>(quads), shift, buckets, norm);
		else
			find_largest(v, shift, reinterpret_cast<uint32_t *>(norm));
		__syncthreads();
		if (t < buckets && tile * GPK_CODEC_TILE + ((int64_t)t << shift) < n)
			raised |= put_norm(norms, tile * buckets + t, norm[t]);
		divide_all(v, norm[t * GPK_CODEC_GROUP >> shift], levels.apart, r);
		round_all<Sparse>(search, r, seed, stream, at, n, code);
		gpk_store_codes(codes, levels.bits, tile, n, code, room);
		__syncthreads();
	}
	gpk_flag(bad, raised);
}

template <bool L2>
static void queue_tiles(struct gp_rt_stream *s, const float *x, int64_t n, int shift, const struct levels &l,
			uint64_t seed, uint64_t stream, float *norms, uint8_t *codes, uint32_t *bad)
{
	if (l.sparse)
		GPK_LAUNCH(s, (encode_tiles<L2, true>), blocks_for(n), GPK_CODEC_THREADS, 0, x, n, shift, l, seed,
			   stream, norms, codes, bad);
	else
		GPK_LAUNCH(s, (encode_tiles<L2, false>), blocks_for(n), GPK_CODEC_THREADS, 0, x, n, shift, l, seed,
			   stream, norms, codes, bad);
}

extern "C" void gpk_level_quantize(struct gp_rt_stream *s, const float *x, int64_t n, int64_t bucket, bool l2,
				   const struct gpk_levels *levels, uint64_t seed, uint64_t stream, float *norms,
				   uint8_t *codes, uint32_t *bad)
{
	int shift = 0;
	while ((int64_t)1 << shift < bucket)
		shift++;
	if ((int64_t)1 << shift != bucket || bucket < LANES || bucket > GPK_CODEC_TILE) {
		gpk_level_norms(s, x, n, bucket, l2, norms, bad);
		gpk_level_encode(s, x, n, bucket, levels, seed, stream, norms, codes);
	} else if (l2) {
		queue_tiles<true>(s, x, n, shift, given(levels), seed, stream, norms, codes, bad);
	} else {
		queue_tiles<false>(s, x, n, shift, given(levels), seed, stream, norms, codes, bad);
	}
}

/* The block: the levels, to shared memory. */
GPK_DEVICE void share(float *to, const struct levels &l)
{
	for (int i = (int)threadIdx.x; i < 1 << l.bits; i += GPK_CODEC_THREADS)
		to[i] = l.level[i];
	__syncthreads();
}

GPK_KERNEL decode(const float *norms, const uint8_t *codes, int64_t n, struct gpk_divisor bucket, struct levels levels,
		  float *x, uint32_t *bad)
{
	GPK_CODEC_ROOM(room);
	GPK_SHARED(float, table, [MOST]);
	bool raised = false;
	share(table, levels);
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		gpk_load_codes(codes, levels.bits, tile, n, room);
		for (int half = 0; half < 2; half++) {
			const int local = half * (GPK_CODEC_TILE / 2) + (int)threadIdx.x * 4;
			const int64_t at = tile * GPK_CODEC_TILE + local;
			struct walk w = walk_from(norms, bucket, at, n);
			unsigned code[4];
			float v[4];
			gpk_codes4(room, levels.bits, local, code);
			for (int i = 0; i < 4; i++) {
				v[i] = 0;
				if (at + i >= n)
					continue;
				if (i)
					walk_on(&w);
				raised |= !(w.norm >= 0) || !gpk_finite(w.norm) || (int)code[i] >= levels.count;
				v[i] = table[code[i]] * w.norm;
			}
			gpk_store4(x, at, n, v);
		}
		__syncthreads();
	}
	gpk_flag(bad, raised);
}

extern "C" void gpk_level_decode(struct gp_rt_stream *s, const float *norms, const uint8_t *codes, int64_t n,
				 int64_t bucket, const struct gpk_levels *levels, float *x, uint32_t *bad)
{
	GPK_LAUNCH(s, decode, blocks_for(n), GPK_CODEC_THREADS, 0, norms, codes, n, gpk_divisor_of(bucket),
		   given(levels), x, bad);
}

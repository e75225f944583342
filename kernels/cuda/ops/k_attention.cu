/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in tiles. See k_attention.h. A warp has 16 rows of queries and walks
 * all keys and values, N at a time, by way of shared memory: scores, their
 * exponentials against the largest so far, and the product with the values stay
 * in its registers. Backward is two such walks, so that nobody adds to what
 * another block adds to: over the keys for the gradient of queries, and over the
 * queries for those of keys and values.
 *
 * Products are those of tensor cores (bf16, TF32), or loops in fp32 over the same tiles, with sums where tensor cores would
 * have them: lane l has rows l / 4 and l / 4 + 8, of scores columns l % 4 * 2 + {0, 1} of each 8, of the results those that
 * gpk_deep_column says. So a product's scores are the next one's weights as they are: of bf16 two pairs are a word of A, of
 * TF32 the sum's depth is taken in the order 0 2 4 6 1 3 5 7.
 *
 * A row of shared memory is one position's D elements. Its chunks of 16 bytes are exchanged by `row % 8`: 8 rows at one
 * chunk, and 4 even rows (or odd ones) at 2 neighbouring chunks, lie in 8 different places, and so meet in no bank.
 *
 * Test: tests/unit/test_cuda_attention.c
 */
#include "kernels/cuda/ops/gpk_attention.h"

#include "kernels/cuda/runtime/gpk_tiles.h"

#define STRIP     16 /* rows of a warp */
#define MOST_WIDE 64 /* columns of a tile: a mask of 32 bits says which of a lane's weights dropout has kept */
#define MOST_BACK 32 /* the same in backward, where a lane has two sets of them in its registers */

/*
 * Where fp32 is read as it is, any card has to do: 48 KiB of shared memory. Else up to 96 KiB, one block of which fits on
 * every multiprocessor from 8.0 on; 64 KiB where that is enough, so that there are more of them.
 */
constexpr unsigned shared_of(bool exact, bool back, unsigned pitch)
{
	return (exact ? 48 : back && pitch <= 256 ? 64 : 96) << 10;
}

/* Columns of a tile, of which there are two at once for each of two operands beside those that are held. */
constexpr int columns_of(unsigned shared, unsigned held, unsigned pitch, int most)
{
	const int columns = (int)((shared - held) / (4 * pitch));
	return columns < most ? columns : most;
}

/* Heads of up to Wide columns of Type. Exact: products in fp32. Back: two operands are held for the whole walk, not one. */
template <typename Type, int Wide, bool Exact, bool Back> struct kind {
	using T = Type;
	static constexpr int D = Wide, WARPS = Exact && Wide > 64 ? 2 : 4, THREADS = WARPS * GPK_WARP;
	static constexpr int ROWS = WARPS * STRIP, CHUNK = GPK_CHUNK_BYTES / sizeof(T), CHUNKS = D / CHUNK;
	static constexpr unsigned PITCH = CHUNKS < 8 ? 8 * GPK_CHUNK_BYTES : CHUNKS * GPK_CHUNK_BYTES;
	static constexpr unsigned HELD = (Back ? 2 : 1) * ROWS * PITCH;
	static constexpr int N = columns_of(shared_of(Exact, Back, PITCH), HELD, PITCH, Back ? MOST_BACK : MOST_WIDE);
	static constexpr int ALONG = N / 8;
	static constexpr int STAGES = 2;
	static constexpr unsigned TILE = N * PITCH, STAGE = 2 * TILE, SHARED = HELD + STAGES * STAGE;
	static constexpr bool EXACT = Exact;
	using weights = float[ALONG][4];
	using results = float[D / 8][4];
};

/* --- shared memory ------------------------------------------------------------------------------------------------ */

template <typename S> GPK_DEVICE unsigned char *chunk_of(unsigned char *tile, unsigned row, unsigned chunk)
{
	return tile + row * S::PITCH + (chunk ^ row % 8) * GPK_CHUNK_BYTES;
}

/* What a head's rows are read by. */
struct source {
	int64_t stride;
	int32_t tokens, width;
	bool whole; /* every chunk of a row is 16 bytes of it, aligned */
};

/* `left` elements and zeros. */
template <typename T> GPK_DEVICE void copy_chunk(unsigned char *to, const T *from, int32_t left)
{
	constexpr int CHUNK = GPK_CHUNK_BYTES / sizeof(T);
	gpk_pack<T, CHUNK> p;
	GPK_UNROLL
	for (int e = 0; e < CHUNK; e++)
		p.of[e] = e < left ? from[e] : T{};
	*reinterpret_cast<gpk_pack<T, CHUNK> *>(to) = p;
}

/* `rows` positions from `first` on of a head that begins at `head`; zeros for those that are no tokens, and to D. */
template <typename S>
GPK_DEVICE void load_rows(unsigned char *tile, int rows, const typename S::T *head, struct source from, int32_t first)
{
	for (unsigned i = threadIdx.x; i < (unsigned)(rows * S::CHUNKS); i += S::THREADS) {
		const unsigned row = i / S::CHUNKS, chunk = i % S::CHUNKS;
		const int32_t column = (int32_t)(chunk * S::CHUNK);
		const bool live = first + (int32_t)row < from.tokens && column < from.width;
		const typename S::T *const at = live ? head + (first + (int32_t)row) * from.stride + column : head;
		unsigned char *const to = chunk_of<S>(tile, row, chunk);
		if (from.whole && !S::EXACT)
			gpk_copy_async(to, at, !live);
		else if (from.whole)
			*reinterpret_cast<uint4 *>(to) = live ? *reinterpret_cast<const uint4 *>(at) : uint4{};
		else
			copy_chunk(to, at, live ? from.width - column : 0);
	}
}

/* --- products ----------------------------------------------------------------------------------------------------- */

GPK_DEVICE float word_of(const float4 &v, int i)
{
	return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

GPK_DEVICE float dot(const float4 &x, const float4 &y)
{
	return x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
}

template <typename S> GPK_DEVICE float4 floats_of(unsigned char *tile, unsigned row, unsigned chunk)
{
	return *reinterpret_cast<const float4 *>(chunk_of<S>(tile, row, chunk));
}

/* sum += x y', x the warp's rows. */
template <typename S>
GPK_DEVICE void multiply_rows_exactly(typename S::weights &sum, unsigned char *x, unsigned char *y)
{
	const unsigned lane = threadIdx.x % GPK_WARP;
	GPK_UNROLL_BY(2)
	for (unsigned c = 0; c < S::CHUNKS; c++) {
		const float4 high = floats_of<S>(x, lane / 4, c), low = floats_of<S>(x, lane / 4 + 8, c);
		GPK_UNROLL
		for (unsigned j = 0; j < S::ALONG; j++)
			GPK_UNROLL
		for (unsigned e = 0; e < 2; e++) {
			const float4 column = floats_of<S>(y, 8 * j + lane % 4 * 2 + e, c);
			sum[j][e] += dot(high, column);
			sum[j][2 + e] += dot(low, column);
		}
	}
}

template <typename T> GPK_DEVICE void as_operands(uint32_t (&words)[4])
{
	GPK_UNROLL
	for (int k = 0; k < 4; k++)
		words[k] = gpk_operand<T>(words[k]);
}

template <typename S> GPK_DEVICE void multiply_rows(typename S::weights &sum, unsigned char *x, unsigned char *y)
{
	using T = typename S::T;
	const unsigned lane = threadIdx.x % GPK_WARP;
	if constexpr (S::EXACT) {
		multiply_rows_exactly<S>(sum, x, y);
	} else {
		GPK_UNROLL
		for (unsigned c = 0; c < S::CHUNKS; c += 2) {
			uint32_t a[4], b[4];
			gpk_load_fragments(a, chunk_of<S>(x, lane % 16, c + lane / 16));
			as_operands<T>(a);
			GPK_UNROLL
			for (unsigned j = 0; j < S::ALONG; j += 2) {
				gpk_load_fragments(b,
						   chunk_of<S>(y, 8 * j + lane % 8 + lane / 16 * 8, c + lane / 8 % 2));
				as_operands<T>(b);
				gpk_mma<T>(sum[j], a, &b[0]);
				gpk_mma<T>(sum[j + 1], a, &b[2]);
			}
		}
	}
}

/* A row's weights are with four lanes: each is handed to the others. */
template <typename S>
GPK_DEVICE void multiply_deep_exactly(typename S::results &sum, const typename S::weights &weight, unsigned char *y)
{
	const unsigned lane = threadIdx.x % GPK_WARP;
	GPK_UNROLL
	for (unsigned m = 0; m < S::ALONG; m++)
		GPK_UNROLL
	for (unsigned k = 0; k < 8; k++) {
		const int from = (int)(lane / 4 * 4 + k / 2);
		const float high = __shfl_sync(GPK_ALL_LANES, weight[m][k % 2], from),
			    low = __shfl_sync(GPK_ALL_LANES, weight[m][2 + k % 2], from);
		GPK_UNROLL
		for (unsigned c = 0; c < S::D / 32; c++)
			GPK_UNROLL
		for (unsigned e = 0; e < 2; e++) {
			const float4 v = floats_of<S>(y, 8 * m + k, 8 * c + lane % 4 * 2 + e);
			GPK_UNROLL
			for (unsigned j = 0; j < 4; j++) {
				sum[4 * c + j][e] += high * word_of(v, j);
				sum[4 * c + j][2 + e] += low * word_of(v, j);
			}
		}
	}
}

template <typename S>
GPK_DEVICE void multiply_deep_tf32(typename S::results &sum, const typename S::weights &weight, unsigned char *y)
{
	const unsigned lane = threadIdx.x % GPK_WARP;
	GPK_UNROLL
	for (unsigned m = 0; m < S::ALONG; m++) {
		uint32_t a[4] = {__float_as_uint(weight[m][0]), __float_as_uint(weight[m][2]),
				 __float_as_uint(weight[m][1]), __float_as_uint(weight[m][3])};
		as_operands<float>(a);
		GPK_UNROLL
		for (unsigned c = 0; c < S::D / 32; c++) {
			const float4 even = floats_of<S>(y, 8 * m + lane % 4 * 2, 8 * c + lane / 4),
				     odd = floats_of<S>(y, 8 * m + lane % 4 * 2 + 1, 8 * c + lane / 4);
			GPK_UNROLL
			for (unsigned j = 0; j < 4; j++) {
				const uint32_t b[2] = {gpk_operand<float>(__float_as_uint(word_of(even, j))),
						       gpk_operand<float>(__float_as_uint(word_of(odd, j)))};
				gpk_mma<float>(sum[4 * c + j], a, b);
			}
		}
	}
}

GPK_DEVICE uint32_t bf16_pair(float low, float high)
{
	gpk_bf16 a, b;
	gpk_put(&a, low);
	gpk_put(&b, high);
	return a.bits | (uint32_t)b.bits << 16;
}

template <typename S>
GPK_DEVICE void multiply_deep_bf16(typename S::results &sum, const typename S::weights &weight, unsigned char *y)
{
	GPK_UNROLL
	for (unsigned m = 0; m < S::ALONG; m += 2) {
		const uint32_t a[4] = {bf16_pair(weight[m][0], weight[m][1]), bf16_pair(weight[m][2], weight[m][3]),
				       bf16_pair(weight[m + 1][0], weight[m + 1][1]),
				       bf16_pair(weight[m + 1][2], weight[m + 1][3])};
		GPK_UNROLL
		for (unsigned c = 0; c < S::D / 32; c++) {
			uint32_t b[2][4];
			gpk_load_deep_b<gpk_bf16>(b, y, S::PITCH, 8 * m, 4 * c);
			GPK_UNROLL
			for (unsigned j = 0; j < 4; j++)
				gpk_mma<gpk_bf16>(sum[4 * c + j], a, &b[j / 2][j % 2 * 2]);
		}
	}
}

/* sum += weight y, over the N rows of y. */
template <typename S>
GPK_DEVICE void multiply_deep(typename S::results &sum, const typename S::weights &weight, unsigned char *y)
{
	if constexpr (S::EXACT)
		multiply_deep_exactly<S>(sum, weight, y);
	else if constexpr (sizeof(typename S::T) == 4)
		multiply_deep_tf32<S>(sum, weight, y);
	else
		multiply_deep_bf16<S>(sum, weight, y);
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* Where a warp is: its first row, and the tile's first column. */
struct spot {
	int32_t strip, at;
};

struct dropping {
	uint64_t draw;
	uint32_t threshold; /* 0: nothing is dropped */
	float scale;
};

GPK_DEVICE struct dropping dropping_of(const struct gpk_attention &a)
{
	if (!a.drop.threshold)
		return {0, 0, 1.0f};
	return {*a.drop.draw, a.drop.threshold, a.drop.scale};
}

/*
 * Bit 4 j + e: weight [j][e] of this lane is kept. Rows are queries, columns keys. Two neighbouring lanes need two words each
 * of a block of draws in either of their rows: each draws one of the two and hands on what is the other's.
 */
template <typename S>
GPK_DEVICE uint32_t kept_of_queries(const struct gpk_attention &a, const struct gpk_head &h, struct dropping d,
				    struct spot p)
{
	const unsigned lane = threadIdx.x % GPK_WARP;
	const bool odd = lane % 2;
	uint32_t kept = 0, word[GPK_ATTENTION_WORDS];
	if (!d.threshold)
		return ~kept;
	GPK_UNROLL
	for (unsigned j = 0; j < S::ALONG; j++) {
		gpk_attention_draw(a, h, d.draw, p.strip + (int32_t)(lane / 4 + (odd ? 8 : 0)),
				   p.at + (int32_t)(8 * j + lane % 4 / 2 * 4), word);
		const uint32_t first = __shfl_xor_sync(GPK_ALL_LANES, odd ? word[0] : word[2], 1),
			       second = __shfl_xor_sync(GPK_ALL_LANES, odd ? word[1] : word[3], 1);
		const uint32_t theirs = (first >= d.threshold) | (second >= d.threshold) << 1,
			       ours = ((odd ? word[2] : word[0]) >= d.threshold) |
				      ((odd ? word[3] : word[1]) >= d.threshold) << 1;
		kept |= (odd ? theirs | ours << 2 : ours | theirs << 2) << 4 * j;
	}
	return kept;
}

GPK_DEVICE uint32_t word_of(const uint32_t (&word)[GPK_ATTENTION_WORDS], unsigned i)
{
	return i & 2 ? (i & 1 ? word[3] : word[2]) : (i & 1 ? word[1] : word[0]);
}

/* The same where rows are keys, columns queries: four lanes need a word each of the blocks of four columns. */
template <typename S>
GPK_DEVICE uint32_t kept_of_keys(const struct gpk_attention &a, const struct gpk_head &h, struct dropping d,
				 struct spot p)
{
	const unsigned lane = threadIdx.x % GPK_WARP, mine = lane / 4 % 4;
	uint32_t kept = 0, word[GPK_ATTENTION_WORDS];
	if (!d.threshold)
		return ~kept;
	GPK_UNROLL
	for (unsigned j = 0; j < S::ALONG; j++) {
		gpk_attention_draw(a, h, d.draw, p.at + (int32_t)(8 * j + lane % 4 * 2 + mine % 2),
				   p.strip + (int32_t)(mine / 2 * 8 + lane / 16 * 4), word);
		GPK_UNROLL
		for (unsigned by = 0; by < 4; by++) {
			const uint32_t drawn = __shfl_xor_sync(GPK_ALL_LANES, word_of(word, mine ^ by), (int)(4 * by));
			kept |= (uint32_t)(drawn >= d.threshold) << (4 * j + (mine ^ by));
		}
	}
	return kept;
}

/* --- results ------------------------------------------------------------------------------------------------------ */

/* Row `half` of the lane's two: times `factor`, or zeros. */
template <typename S>
GPK_DEVICE void give_row(typename S::T *row, const typename S::results &sum, int half, bool live, float factor,
			 int32_t width, bool whole)
{
	using T = typename S::T;
	constexpr int V = sizeof(T) == 4 ? 4 : 2; /* neighbouring columns that a lane has */
	GPK_UNROLL
	for (int c = 0; c < S::D / 4 / V; c++) {
		/* of fp32 those of four sums at one e; of bf16 both of one sum */
		const int first = V == 4 ? c / 2 * 4 : c, e = 2 * half + (V == 4 ? c % 2 : 0);
		const int32_t column = (int32_t)gpk_deep_column<T>((unsigned)first, (unsigned)e);
		float v[V];
		GPK_UNROLL
		for (int k = 0; k < V; k++)
			v[k] = live ? sum[V == 4 ? first + k : first][V == 4 ? e : e + k] * factor : 0.0f;
		if (whole && column < width)
			gpk_write<T, V>(row + column, v);
		for (int k = 0; k < V && !whole; k++)
			if (column + k < width)
				gpk_put(&row[column + k], v[k]);
	}
}

/* The warp's rows, all that are positions. */
template <typename S>
GPK_DEVICE void give_strip(const struct gpk_attention &a, struct source of, typename S::T *head, int32_t strip,
			   const typename S::results &sum, const float (&factor)[2])
{
	GPK_UNROLL
	for (int half = 0; half < 2; half++) {
		const int32_t row = strip + (int32_t)(threadIdx.x % GPK_WARP / 4) + 8 * half;
		if (row < a.positions)
			give_row<S>(head + row * of.stride, sum, half, row < of.tokens, factor[half], of.width,
				    of.whole);
	}
}

/* --- a block's work ----------------------------------------------------------------------------------------------- */

/* The head and the rows of a block, and of its warp. */
struct share {
	struct gpk_head h;
	struct source from;
	int32_t first, strip;
	unsigned strip_bytes;
};

template <typename S> GPK_DEVICE struct share share_of(const struct gpk_attention &a)
{
	const unsigned tiles = (unsigned)gpk_div_up(a.positions, S::ROWS), warp = threadIdx.x / GPK_WARP;
	struct share w;
	w.h = gpk_head_of(a, blockIdx.x / tiles);
	w.from = {w.h.stride, w.h.tokens, (int32_t)a.width,
		  a.width * (int64_t)sizeof(typename S::T) % GPK_CHUNK_BYTES == 0};
	w.first = (int32_t)(blockIdx.x % tiles) * S::ROWS;
	w.strip = w.first + (int32_t)warp * STRIP;
	w.strip_bytes = warp * STRIP * S::PITCH;
	return w;
}

/* Walks the head's tokens in tiles of two operands; take(stage, first column) by warps that have any of the rows. */
template <typename S, typename Take>
GPK_DEVICE void walk_tiles(unsigned char *stages, const struct share &w, const void *one, const void *two, Take take)
{
	using T = typename S::T;
	const T *const first = (const T *)one + w.h.at, *const second = (const T *)two + w.h.at;
	const int32_t steps = w.first < w.from.tokens ? (int32_t)gpk_div_up(w.from.tokens, S::N) : 0;
	int32_t next = 0, at = 0;
	gpk_tile_walk<S>(
		stages, S::STAGE, steps,
		[&](unsigned char *stage) {
			load_rows<S>(stage, S::N, first, w.from, next);
			load_rows<S>(stage + S::TILE, S::N, second, w.from, next);
			next += S::N;
		},
		[&](unsigned char *stage) {
			if (w.strip < w.from.tokens)
				take(stage, at);
			at += S::N;
		});
}

template <typename S> GPK_DEVICE float scale_of(const struct gpk_attention &a)
{
	return 1.0f / sqrtf((float)a.width);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

GPK_DEVICE float quad_sum(float v)
{
	v += __shfl_xor_sync(GPK_ALL_LANES, v, 1);
	return v + __shfl_xor_sync(GPK_ALL_LANES, v, 2);
}

GPK_DEVICE float quad_largest(float v)
{
	for (int by = 1; by <= 2; by++) {
		const float other = __shfl_xor_sync(GPK_ALL_LANES, v, by);
		v = other > v ? other : v;
	}
	return v;
}

/* By row, of which a lane has two: the largest score so far, and the lane's part of the sum of exponentials against it. */
struct softmax {
	float largest[2], sum[2];
};

/* Scores become weights against the largest score by now; what was added up before is put right. */
template <typename S>
GPK_DEVICE void soften(struct softmax &m, typename S::weights &weight, typename S::results &sum, float scale,
		       int32_t columns)
{
	const int32_t mine = (int32_t)(threadIdx.x % 4 * 2);
	GPK_UNROLL
	for (int half = 0; half < 2; half++) {
		float largest = m.largest[half];
		GPK_UNROLL
		for (int j = 0; j < S::ALONG; j++)
			GPK_UNROLL
		for (int e = 0; e < 2; e++) {
			float &w = weight[j][2 * half + e];
			w = 8 * j + mine + e < columns ? w * scale : -INFINITY;
			largest = w > largest ? w : largest;
		}
		largest = quad_largest(largest);
		const float base = largest == -INFINITY ? 0.0f : largest, before = expf(m.largest[half] - base);
		m.largest[half] = largest;
		m.sum[half] *= before;
		GPK_UNROLL
		for (int j = 0; j < S::ALONG; j++)
			GPK_UNROLL
		for (int e = 0; e < 2; e++) {
			float &w = weight[j][2 * half + e];
			w = expf(w - base);
			m.sum[half] += w;
		}
		GPK_UNROLL
		for (int j = 0; j < S::D / 8; j++) {
			sum[j][2 * half] *= before;
			sum[j][2 * half + 1] *= before;
		}
	}
}

template <typename S> GPK_DEVICE void drop_weights(typename S::weights &weight, uint32_t kept, float scale)
{
	GPK_UNROLL
	for (int j = 0; j < S::ALONG; j++)
		GPK_UNROLL
	for (int e = 0; e < 4; e++)
		weight[j][e] = kept >> (4 * j + e) & 1 ? weight[j][e] * scale : 0.0f;
}

template <typename S> GPK_KERNEL GPK_BOUNDS(S::THREADS) attend(struct gpk_attention a, typename S::T *out)
{
	GPK_SHARED_DYNAMIC(unsigned char, room);
	using T = typename S::T;
	const struct share w = share_of<S>(a);
	const struct dropping d = dropping_of(a);
	const float scale = scale_of<S>(a);
	struct softmax m = {{-INFINITY, -INFINITY}, {}};
	typename S::results sum = {};
	float factor[2];
	load_rows<S>(room, S::ROWS, (const T *)a.q + w.h.at, w.from, w.first);
	walk_tiles<S>(room + S::HELD, w, a.k, a.v, [&](unsigned char *stage, int32_t at) {
		typename S::weights weight = {};
		multiply_rows<S>(weight, room + w.strip_bytes, stage);
		soften<S>(m, weight, sum, scale, w.from.tokens - at);
		if (d.threshold)
			drop_weights<S>(weight, kept_of_queries<S>(a, w.h, d, {w.strip, at}), d.scale);
		multiply_deep<S>(sum, weight, stage + S::TILE);
	});
	GPK_UNROLL
	for (int half = 0; half < 2; half++) {
		const float all = quad_sum(m.sum[half]);
		const int32_t row = w.strip + (int32_t)(threadIdx.x % GPK_WARP / 4) + 8 * half;
		factor[half] = 1.0f / all;
		if (threadIdx.x % 4 == 0 && row < w.from.tokens)
			a.log[w.h.first_row + row] = m.largest[half] + logf(all);
	}
	give_strip<S>(a, w.from, out + w.h.at, w.strip, sum, factor);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

#define EXPECTERS 4 /* warps of a block */

/* A row's mean, by its weights, of their gradients: what the softmax takes from each (Dao et al. 2022, algorithm 4). */
template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(EXPECTERS *GPK_WARP)
	expect(struct gpk_attention a, const T *GPK_RESTRICT out, const T *GPK_RESTRICT dout, float *expected)
{
	const int64_t rows = a.samples * a.heads * a.positions;
	for (int64_t row = (int64_t)blockIdx.x * EXPECTERS + threadIdx.x / GPK_WARP; row < rows;
	     row += (int64_t)gridDim.x * EXPECTERS) {
		const struct gpk_head h = gpk_head_of(a, row / a.positions);
		const int64_t i = row % a.positions, at = h.at + i * h.stride;
		float sum = 0, x[V], y[V];
		for (int64_t c = threadIdx.x % GPK_WARP * V; c < a.width && i < h.tokens; c += GPK_WARP * V) {
			gpk_read<T, V>(x, out + at + c);
			gpk_read<T, V>(y, dout + at + c);
			GPK_UNROLL
			for (int k = 0; k < V; k++)
				sum += x[k] * y[k];
		}
		sum = gpk_warp_sum(sum);
		if (threadIdx.x % GPK_WARP == 0)
			expected[row] = sum;
	}
}

/* What backward makes of one score and its weight's gradient: what v's gradient is weighed with, and the score's own. */
GPK_DEVICE void backward_of(float &score, float &gradient, bool live, float scale, float log, float expected,
			    float keep)
{
	const float weight = live ? expf(score * scale - log) : 0.0f;
	score = weight * keep;
	gradient = live ? weight * (keep * gradient - expected) * scale : 0.0f;
}

template <typename S>
GPK_KERNEL GPK_BOUNDS(S::THREADS) query_gradients(struct gpk_attention a, struct gpk_attention_grads g)
{
	GPK_SHARED_DYNAMIC(unsigned char, room);
	using T = typename S::T;
	const struct share w = share_of<S>(a);
	const struct dropping d = dropping_of(a);
	const float scale = scale_of<S>(a);
	unsigned char *const queries = room, *const douts = room + S::ROWS * S::PITCH;
	const int32_t row = w.strip + (int32_t)(threadIdx.x % GPK_WARP / 4), mine = (int32_t)(threadIdx.x % 4 * 2);
	float log[2] = {}, expected[2] = {};
	typename S::results sum = {};
	for (int half = 0; half < 2; half++)
		if (row + 8 * half < w.from.tokens) {
			log[half] = a.log[w.h.first_row + row + 8 * half];
			expected[half] = g.room[w.h.first_row + row + 8 * half];
		}
	load_rows<S>(queries, S::ROWS, (const T *)a.q + w.h.at, w.from, w.first);
	load_rows<S>(douts, S::ROWS, (const T *)g.dout + w.h.at, w.from, w.first);
	walk_tiles<S>(room + S::HELD, w, a.k, a.v, [&](unsigned char *stage, int32_t at) {
		typename S::weights weight = {}, gradient = {};
		multiply_rows<S>(weight, queries + w.strip_bytes, stage);
		multiply_rows<S>(gradient, douts + w.strip_bytes, stage + S::TILE);
		const uint32_t kept = kept_of_queries<S>(a, w.h, d, {w.strip, at});
		GPK_UNROLL
		for (int j = 0; j < S::ALONG; j++)
			GPK_UNROLL
		for (int e = 0; e < 4; e++)
			backward_of(weight[j][e], gradient[j][e],
				    row + e / 2 * 8 < w.from.tokens && at + 8 * j + mine + e % 2 < w.from.tokens, scale,
				    log[e / 2], expected[e / 2], kept >> (4 * j + e) & 1 ? d.scale : 0.0f);
		multiply_deep<S>(sum, gradient, stage);
	});
	give_strip<S>(a, w.from, (T *)g.dq + w.h.at, w.strip, sum, {1, 1});
}

template <typename S>
GPK_KERNEL GPK_BOUNDS(S::THREADS) key_gradients(struct gpk_attention a, struct gpk_attention_grads g)
{
	GPK_SHARED_DYNAMIC(unsigned char, room);
	using T = typename S::T;
	const struct share w = share_of<S>(a);
	const struct dropping d = dropping_of(a);
	const float scale = scale_of<S>(a);
	unsigned char *const keys = room, *const values = room + S::ROWS * S::PITCH;
	const int32_t row = w.strip + (int32_t)(threadIdx.x % GPK_WARP / 4), mine = (int32_t)(threadIdx.x % 4 * 2);
	typename S::results sum_keys = {}, sum_values = {};
	load_rows<S>(keys, S::ROWS, (const T *)a.k + w.h.at, w.from, w.first);
	load_rows<S>(values, S::ROWS, (const T *)a.v + w.h.at, w.from, w.first);
	walk_tiles<S>(room + S::HELD, w, a.q, g.dout, [&](unsigned char *stage, int32_t at) {
		typename S::weights weight = {}, gradient = {};
		multiply_rows<S>(weight, keys + w.strip_bytes, stage);
		multiply_rows<S>(gradient, values + w.strip_bytes, stage + S::TILE);
		const uint32_t kept = kept_of_keys<S>(a, w.h, d, {w.strip, at});
		GPK_UNROLL
		for (int j = 0; j < S::ALONG; j++)
			GPK_UNROLL
		for (int e = 0; e < 2; e++) {
			const int32_t column = at + 8 * j + mine + e;
			const bool live = column < w.from.tokens;
			const float log = live ? a.log[w.h.first_row + column] : 0.0f,
				    expected = live ? g.room[w.h.first_row + column] : 0.0f;
			GPK_UNROLL
			for (int k = e; k < 4; k += 2)
				backward_of(weight[j][k], gradient[j][k], live && row + k / 2 * 8 < w.from.tokens,
					    scale, log, expected, kept >> (4 * j + k) & 1 ? d.scale : 0.0f);
		}
		multiply_deep<S>(sum_values, weight, stage + S::TILE);
		multiply_deep<S>(sum_keys, gradient, stage);
	});
	if (g.dk)
		give_strip<S>(a, w.from, (T *)g.dk + w.h.at, w.strip, sum_keys, {1, 1});
	if (g.dv)
		give_strip<S>(a, w.from, (T *)g.dv + w.h.at, w.strip, sum_values, {1, 1});
}

/* --- launch ------------------------------------------------------------------------------------------------------- */

#define MOST_BLOCKS 2112

/* Blocks of any shared memory; those of exact kinds run on every card. */
#define LAUNCH_AS(s, S, kernel, a, ...)                                                                                \
	do {                                                                                                           \
		const unsigned blocks = (unsigned)((a)->samples * (a)->heads * gpk_div_up((a)->positions, S::ROWS));   \
		if constexpr (S::EXACT)                                                                                \
			GPK_LAUNCH(s, kernel<S>, blocks, S::THREADS, S::SHARED, *(a), __VA_ARGS__);                    \
		else                                                                                                   \
			GPK_LAUNCH_LARGE(s, kernel<S>, blocks, S::THREADS, S::SHARED, *(a), __VA_ARGS__);              \
	} while (0)

template <typename T, int D, bool EXACT>
static void forward_as(struct gp_rt_stream *s, const struct gpk_attention *a, void *out)
{
	using S = kind<T, D, EXACT, false>;
	LAUNCH_AS(s, S, attend, a, (T *)out);
}

template <typename T, int D, bool EXACT>
static void backward_as(struct gp_rt_stream *s, const struct gpk_attention *a, const struct gpk_attention_grads *g)
{
	using S = kind<T, D, EXACT, true>;
	if (g->dq)
		LAUNCH_AS(s, S, query_gradients, a, *g);
	if (g->dk || g->dv)
		LAUNCH_AS(s, S, key_gradients, a, *g);
}

/* Runs the rest with T, D and EXACT as they are for the heads' width, the type and the precision. */
#define BY_WIDTH(width, D, ...)                                                                                        \
	do {                                                                                                           \
		if ((width) <= 32) {                                                                                   \
			constexpr int D = 32;                                                                          \
			__VA_ARGS__;                                                                                   \
		} else if ((width) <= 64) {                                                                            \
			constexpr int D = 64;                                                                          \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			constexpr int D = GPK_ATTENTION_WIDEST;                                                        \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

#define BY_KIND(type, a, T, D, EXACT, ...)                                                                             \
	BY_WIDTH((a)->width, D, {                                                                                      \
		if ((type) == GP_RT_BF16) {                                                                            \
			using T = gpk_bf16;                                                                            \
			constexpr bool EXACT = false;                                                                  \
			__VA_ARGS__;                                                                                   \
		} else if ((a)->precision == GP_PRECISION_FP32) {                                                      \
			using T = float;                                                                               \
			constexpr bool EXACT = true;                                                                   \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			using T = float;                                                                               \
			constexpr bool EXACT = false;                                                                  \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	})

extern "C" void gpk_attention_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_attention *a,
				      void *out)
{
	if (a->width > GPK_ATTENTION_WIDEST)
		gpk_attention_forward_plain(s, type, a, out);
	else
		BY_KIND(type, a, T, D, EXACT, forward_as<T, D, EXACT>(s, a, out));
}

extern "C" uint64_t gpk_attention_room(int64_t samples, int64_t positions, int64_t heads)
{
	return (uint64_t)(samples * heads * positions) * sizeof(float);
}

extern "C" void gpk_attention_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_attention *a,
				       const struct gpk_attention_grads *g)
{
	const unsigned blocks = gpk_blocks(a->samples * a->heads * a->positions, EXPECTERS, MOST_BLOCKS);
	if (a->width > GPK_ATTENTION_WIDEST) {
		gpk_attention_backward_plain(s, type, a, g);
		return;
	}
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(a->width, T, V, {
			    GPK_LAUNCH(s, (expect<T, V>), blocks, EXPECTERS * GPK_WARP, 0, *a, (const T *)g->out,
				       (const T *)g->dout, g->room);
		    }));
	BY_KIND(type, a, T, D, EXACT, backward_as<T, D, EXACT>(s, a, g));
}

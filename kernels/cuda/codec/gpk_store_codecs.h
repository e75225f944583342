/* SPDX-License-Identifier: Apache-2.0
 *
 * The codecs that an array in memory may be kept in, as one block of threads
 * works them on up to 65536 elements. Each is a struct of
 *
 *   table       what all elements of the block share, in shared memory
 *   measure     finds it; false: some element is not representable. Reads a gpk_limited_run
 *   head_bytes, put_head, get_head      the payload before its codes; put_head also what only get_head needs
 *   code, value of one element          a code has q.width bits
 *
 * and `smaq` has more behind its codes (k_codec_store.cu). Payloads and arithmetic are those of common/codec/stages; sums
 * have an order of their own, as common/CODECS.md says ("On a GPU"). Only for k_codec_*.cu and gpk_*.h.
 *
 * To add one: a struct here, a row in BY_CODEC of k_codec_store.cu, and what cuda_stored.c makes of its spec.
 *
 * Threads: those of a kernel, on the device; all GPK_STORE_THREADS of a block call together, but code and value.
 * Test: tests/unit/test_cuda_stored.c
 */
#ifndef GPK_STORE_CODECS_H
#define GPK_STORE_CODECS_H

#include "kernels/cuda/codec/gpk_format.h"
#include "kernels/cuda/codec/gpk_ranks.h"
#include "kernels/cuda/codec/gpk_smaq.h"
#include "kernels/cuda/codec/gpk_store.h"
#include "kernels/cuda/codec/k_codec_store.h"

#define GPK_STORE_WARPS (GPK_STORE_THREADS / GPK_WARP)

/* Where a thread's elements begin; the next are GPK_STORE_TILE further on. */
GPK_DEVICE int gpk_store_first(void)
{
	return (int)threadIdx.x * GPK_STORE_GROUP;
}

/* --- fp16, bf16, fp8 ---------------------------------------------------------------------------------------------- */

template <typename Format> struct gpk_store_format {
	static const bool has_extras = false;
	struct table {
		int none;
	};
	template <typename Run> GPK_DEVICE bool measure(const struct gpk_store &, const Run &x, int n, table *)
	{
		uint32_t bad = 0;
		for (int at = gpk_store_first(); at < n; at += GPK_STORE_TILE) {
			float v[GPK_STORE_GROUP];
			gpk_at8(x, at, n, v);
			for (int i = 0; i < GPK_STORE_GROUP; i++)
				(void)Format::to(v[i], &bad);
		}
		return !__syncthreads_or((int)bad);
	}
	GPK_DEVICE int head_bytes(const struct gpk_store &)
	{
		return 0;
	}
	GPK_DEVICE void put_head(const struct gpk_store &, const table *, uint8_t *)
	{
	}
	GPK_DEVICE void get_head(const struct gpk_store &, table *, const uint8_t *)
	{
	}
	GPK_DEVICE unsigned code(const struct gpk_store &, const table *, float v)
	{
		uint32_t bad = 0;
		return Format::to(v, &bad) & ((1u << (8 * Format::bytes)) - 1);
	}
	GPK_DEVICE float value(const struct gpk_store &, const table *, unsigned code)
	{
		uint32_t bad = 0;
		return Format::from(code, &bad);
	}
};

/* --- s2fp8 -------------------------------------------------------------------------------------------------------- */

/* 2^y, and log2 of a magnitude of E5M2, as common/codec/stages/fp8.c has them. */
GPK_DEVICE double gpk_exp2_exact(double y)
{
	const double whole = floor(y), z = (y - whole) * 0.693147180559945309;
	double sum = 1;
	for (int k = 18; k > 0; k--)
		sum = 1 + z / k * sum;
	return ldexp(sum, (int)whole);
}

GPK_DEVICE double gpk_log2_e5m2(int m)
{
	const double fraction[4] = {0, 0.321928094887362348, 0.584962500721156181, 0.807354922057604107};
	const double small[4] = {0, -16, -15, -14.4150374992788438};
	return m < 4 ? small[m] : (m >> 2) - 15 + fraction[m & 3];
}

struct gpk_store_s2fp8 {
	static const bool has_extras = false;
	struct table {
		float head[2]; /* alpha, beta */
		float of[128]; /* by magnitude, for `value` */
	};
	template <typename Run> GPK_DEVICE bool measure(const struct gpk_store &, const Run &x, int n, table *t)
	{
		const int teams = GPK_STORE_THREADS / GP_LOG_LANES;
		GPK_SHARED(struct gpk_log_sum, part, [GPK_STORE_THREADS / GP_LOG_LANES]);
		const int lane = (int)threadIdx.x % GP_LOG_LANES, team = (int)threadIdx.x / GP_LOG_LANES;
		struct gpk_log_sum sum = {1, 0, 0, 0};
		for (int first = 0; first < n; first += teams * GP_LOG_BLOCK) {
			const int at = first + team * GP_LOG_BLOCK, end = at + GP_LOG_BLOCK < n ? at + GP_LOG_BLOCK : n;
			const struct gpk_log_sum one = join_lanes(add_lane(x, at + lane, end));
			add_sum(&sum, &one);
		}
		__syncthreads(); /* it may still be read from the last time */
		if (lane == 0)
			part[team] = sum;
		join_parts(part, teams);
		if (threadIdx.x == 0 && part[0].largest < 0x7f800000u)
			put_parameters(&part[0], n, t->head);
		__syncthreads();
		return part[0].largest < 0x7f800000u;
	}
	GPK_DEVICE int head_bytes(const struct gpk_store &)
	{
		return 8;
	}
	GPK_DEVICE void put_head(const struct gpk_store &, const table *t, uint8_t *head)
	{
		if (threadIdx.x < 2)
			gpk_put_word(head + 4 * threadIdx.x, __float_as_uint(t->head[threadIdx.x]));
	}
	GPK_DEVICE void get_head(const struct gpk_store &, table *t, const uint8_t *head)
	{
		const double largest = 0x1.fffffep127;
		const float alpha = __uint_as_float(gpk_get_word(head)), beta = __uint_as_float(gpk_get_word(head + 4));
		const int m = (int)threadIdx.x;
		if (m >= 128)
			return;
		const double y = (gpk_log2_e5m2(m) - (double)beta) / (double)alpha;
		const double v = y > 128 ? largest : y < -160 ? 0 : gpk_exp2_exact(y);
		t->of[m] = m == 0 ? 0.0f : v < largest ? (float)v : (float)largest;
	}
	GPK_DEVICE unsigned code(const struct gpk_store &, const table *t, float v)
	{
		return squeeze(v, t->head[0], t->head[1]);
	}
	GPK_DEVICE float value(const struct gpk_store &, const table *t, unsigned code)
	{
		return __uint_as_float(__float_as_uint(t->of[code & 0x7fu]) | (code & 0x80u) << 24);
	}
};

/* --- uniform ------------------------------------------------------------------------------------------------------ */

/* The block: keys of the smallest and the largest element. False: some are not finite. */
template <typename Run> GPK_DEVICE bool gpk_store_range(const Run &x, int n, float *min, float *max)
{
	GPK_SHARED(uint32_t, room, [GPK_STORE_WARPS]);
	uint32_t low = 0, high = 0, bad = 0;
	for (int at = gpk_store_first(); at < n; at += GPK_STORE_TILE) {
		float v[GPK_STORE_GROUP];
		gpk_at8(x, at, n, v);
		for (int i = 0; i < GPK_STORE_GROUP && at + i < n; i++) {
			const uint32_t key = gpk_key_of_float(v[i]);
			low = ~key > low ? ~key : low;
			high = key > high ? key : high;
			bad |= !gpk_finite(v[i]);
		}
	}
	low = gpk_block_max(low, room);
	high = gpk_block_max(high, room);
	*min = gpk_float_of_key(~low);
	*max = gpk_float_of_key(high);
	return !gpk_block_max(bad, room);
}

/* Levels between two values; false where they cannot be computed. */
struct gpk_levels {
	float min, step, divisor;
};

GPK_DEVICE bool gpk_levels_between(struct gpk_levels *l, int bits, float min, float max)
{
	const float top = (float)((1 << bits) - 1);
	l->min = min;
	l->step = (max - min) / top;
	l->divisor = l->step > 0 ? l->step : 1;
	return gpk_finite(top * l->step + min);
}

GPK_DEVICE void gpk_put_levels(uint8_t *to, const struct gpk_levels *l)
{
	gpk_put_word(to, __float_as_uint(l->min));
	gpk_put_word(to + 4, __float_as_uint(l->step));
}

GPK_DEVICE void gpk_get_levels(const uint8_t *from, struct gpk_levels *l)
{
	l->min = __uint_as_float(gpk_get_word(from));
	l->step = __uint_as_float(gpk_get_word(from + 4));
}

GPK_DEVICE unsigned gpk_level_of(const struct gpk_levels &l, int bits, float v)
{
	const int top = (1 << bits) - 1, level = __float2int_rn((v - l.min) / l.divisor);
	return (unsigned)(level < top ? level : top);
}

struct gpk_store_uniform {
	static const bool has_extras = false;
	struct table {
		struct gpk_levels levels;
	};
	template <typename Run> GPK_DEVICE bool measure(const struct gpk_store &q, const Run &x, int n, table *t)
	{
		float min, max;
		struct gpk_levels l;
		const bool finite = gpk_store_range(x, n, &min, &max), fits = gpk_levels_between(&l, q.width, min, max);
		if (threadIdx.x == 0)
			t->levels = l;
		__syncthreads();
		return finite && fits;
	}
	GPK_DEVICE int head_bytes(const struct gpk_store &)
	{
		return 8;
	}
	GPK_DEVICE void put_head(const struct gpk_store &, const table *t, uint8_t *head)
	{
		if (threadIdx.x == 0)
			gpk_put_levels(head, &t->levels);
	}
	GPK_DEVICE void get_head(const struct gpk_store &, table *t, const uint8_t *head)
	{
		if (threadIdx.x == 0)
			gpk_get_levels(head, &t->levels);
	}
	GPK_DEVICE unsigned code(const struct gpk_store &q, const table *t, float v)
	{
		return gpk_level_of(t->levels, q.width, v);
	}
	GPK_DEVICE float value(const struct gpk_store &, const table *t, unsigned code)
	{
		return (float)code * t->levels.step + t->levels.min;
	}
};

/* --- sortquant ---------------------------------------------------------------------------------------------------- */

/* Elements in the partitions below p: gp_sortquant_first_rank of common/codec/stages/sortquant.c. */
GPK_DEVICE uint32_t gpk_first_rank(const struct gpk_store &q, uint32_t n, uint32_t p)
{
	const uint32_t parts = (uint32_t)q.parts, extra = n % parts;
	if (p >= parts)
		return n;
	if (!q.chunked)
		return n / parts * p + (p < extra ? p : extra);
	const uint32_t above = (n / parts + (extra > 0)) * (parts - p);
	return above < n ? n - above : 0;
}

/* Partitions below which there is nothing, beside the first. */
GPK_DEVICE int gpk_empty_parts(const struct gpk_store &q, uint32_t n)
{
	int empty = 0;
	while (empty + 1 < q.parts && gpk_first_rank(q, n, (uint32_t)empty + 1) == 0)
		empty++;
	return empty;
}

struct gpk_store_sortquant {
	static const bool has_extras = false;
	struct table {
		struct gpk_levels of[GPK_RANKS_MOST];
	};
	/* Partition p; `first`: that with the first rank among those in `r`. */
	GPK_DEVICE bool find(const struct gpk_store &q, const struct gpk_ranks *r, uint32_t n, int first, int p,
			     float min, float max, struct gpk_levels *out)
	{
		const uint32_t from = gpk_first_rank(q, n, (uint32_t)p), to = gpk_first_rank(q, n, (uint32_t)p + 1);
		const bool begins = p > 0 && from > 0 && from<n, ends = to> 0 && to < n;
		const float begin = begins ? gpk_float_of_key(r->key[p - first]) : p == 0 || from == 0 ? min : max;
		const float end = ends ? gpk_float_of_key(r->before[p + 1 - first]) : to ? max : min;
		return gpk_levels_between(out, q.width - q.split, begin, end);
	}
	template <typename Run> GPK_DEVICE bool measure(const struct gpk_store &q, const Run &x, int n, table *t)
	{
		GPK_SHARED(struct gpk_ranks, ranks, [1]);
		const int p = (int)threadIdx.x, first = gpk_empty_parts(q, (uint32_t)n) + 1;
		float min, max;
		if (!gpk_store_range(x, n, &min, &max))
			return false;
		if (p == 0)
			ranks[0].count = 0;
		__syncthreads();
		const uint32_t rank = gpk_first_rank(q, (uint32_t)n, (uint32_t)p);
		const bool inside = p >= first && p < q.parts && rank < (uint32_t)n;
		if (inside) {
			ranks[0].left[p - first] = rank;
			atomicAdd(&ranks[0].count, 1);
		}
		__syncthreads();
		gpk_ranks_select(&ranks[0], x, n);
		const bool fits = p >= 1 << q.split || find(q, ranks, (uint32_t)n, first, p, min, max, &t->of[p]);
		return !__syncthreads_or(!fits);
	}
	GPK_DEVICE int head_bytes(const struct gpk_store &q)
	{
		return 8 << q.split;
	}
	GPK_DEVICE void put_head(const struct gpk_store &q, const table *t, uint8_t *head)
	{
		if ((int)threadIdx.x < 1 << q.split)
			gpk_put_levels(head + 8 * threadIdx.x, &t->of[threadIdx.x]);
	}
	GPK_DEVICE void get_head(const struct gpk_store &q, table *t, const uint8_t *head)
	{
		if ((int)threadIdx.x < 1 << q.split)
			gpk_get_levels(head + 8 * threadIdx.x, &t->of[threadIdx.x]);
	}
	GPK_DEVICE unsigned code(const struct gpk_store &q, const table *t, float v)
	{
		const int bits = q.width - q.split;
		unsigned p = 0;
		for (unsigned half = 1u << q.split >> 1; half; half >>= 1)
			p += v >= t->of[p + half].min ? half : 0;
		return p << bits | gpk_level_of(t->of[p], bits, v);
	}
	GPK_DEVICE float value(const struct gpk_store &q, const table *t, unsigned code)
	{
		const int bits = q.width - q.split;
		const struct gpk_levels &l = t->of[code >> bits];
		return (float)(code & ((1u << bits) - 1)) * l.step + l.min;
	}
};

/* --- smaq --------------------------------------------------------------------------------------------------------- */

struct gpk_store_smaq {
	static const bool has_extras = true;
	struct table {
		struct gpk_smaq_head head;
		float divisor;
	};
	template <typename Run> GPK_DEVICE bool measure(const struct gpk_store &q, const Run &x, int n, table *t)
	{
		GPK_SHARED(double, room, [2 * GPK_STORE_WARPS]);
		const float origin = gpk_at(x, 0);
		double sum = 0, squares = 0;
		for (int at = gpk_store_first(); at < n; at += GPK_STORE_TILE) {
			float v[GPK_STORE_GROUP];
			gpk_at8(x, at, n, v);
			for (int i = 0; i < GPK_STORE_GROUP && at + i < n; i++) {
				const double d = (double)v[i] - (double)origin;
				sum += d;
				squares += d * d;
			}
		}
		add_up(&sum, &squares, room);
		if (threadIdx.x == 0) {
			gpk_smaq_put_head(&t->head, q.smaq.reach, origin, sum, squares, n);
			t->divisor = t->head.std > 0 ? t->head.std : INFINITY;
		}
		__syncthreads();
		return !t->head.bad;
	}
	/* Thread 0 gets both. */
	GPK_DEVICE void add_up(double *sum, double *squares, double *room)
	{
		for (int half = GPK_WARP / 2; half > 0; half /= 2) {
			*sum += __shfl_down_sync(GPK_ALL_LANES, *sum, half);
			*squares += __shfl_down_sync(GPK_ALL_LANES, *squares, half);
		}
		__syncthreads(); /* it may still be read from the last time */
		if (threadIdx.x % GPK_WARP == 0) {
			room[threadIdx.x / GPK_WARP * 2] = *sum;
			room[threadIdx.x / GPK_WARP * 2 + 1] = *squares;
		}
		__syncthreads();
		for (int w = 1; w < GPK_STORE_WARPS && threadIdx.x == 0; w++) {
			*sum += room[w * 2];
			*squares += room[w * 2 + 1];
		}
	}
	GPK_DEVICE int head_bytes(const struct gpk_store &)
	{
		return 12;
	}
	/* Its last word, how many outliers there are, is known behind the codes. */
	GPK_DEVICE void put_head(const struct gpk_store &, const table *t, uint8_t *head)
	{
		if (threadIdx.x > 0)
			return;
		gpk_put_word(head, __float_as_uint(t->head.mean));
		gpk_put_word(head + 4, __float_as_uint(t->head.std));
	}
	GPK_DEVICE void get_head(const struct gpk_store &, table *t, const uint8_t *head)
	{
		if (threadIdx.x > 0)
			return;
		t->head.mean = __uint_as_float(gpk_get_word(head));
		t->head.std = __uint_as_float(gpk_get_word(head + 4));
		t->head.outliers = gpk_get_word(head + 8);
	}
	GPK_DEVICE struct number number_at(const struct gpk_store &q, const table *t, float v, float added)
	{
		const float d = v - t->head.mean;
		return number_of(q.smaq, d, d / t->divisor, added);
	}
	GPK_DEVICE bool is_outlier(const struct gpk_store &q, unsigned code)
	{
		return code >> (q.smaq.low_bits + 1) & 1u;
	}
	GPK_DEVICE float value(const struct gpk_store &q, const table *t, unsigned code, unsigned extra)
	{
		const unsigned m = (code & ((1u << q.smaq.low_bits) - 1)) | extra << q.smaq.low_bits;
		return value_of(q.smaq, code >> q.smaq.low_bits, m, t->head.mean, t->head.std);
	}
};

#endif

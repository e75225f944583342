/* SPDX-License-Identifier: Apache-2.0
 *
 * Order statistics of up to 65536 elements, found by one block of threads: digit
 * by digit, most significant first, each by counting the elements that share the
 * digits found so far. Only for k_codec_*.cu and gpk_*.h; whole tensors:
 * gpk_select.h.
 *
 * Threads: those of a kernel, on the device; all GPK_STORE_THREADS of a block call together.
 * Test: tests/unit/test_cuda_stored.c
 */
#ifndef GPK_RANKS_H
#define GPK_RANKS_H

#include "kernels/cuda/codec/gpk_scan.h"
#include "kernels/cuda/codec/gpk_store.h"

#define GPK_RANKS_MOST    256
#define GPK_RANKS_AT_ONCE (GPK_STORE_THREADS / GPK_WARP) /* a warp looks through the counts of one */
#define GPK_RANKS_BINS    256

/* In shared memory. */
struct gpk_ranks {
	int count;
	uint32_t left[GPK_RANKS_MOST];   /* ranks, from 0 and ascending; then those among elements of the same key */
	uint32_t key[GPK_RANKS_MOST];    /* found: of the elements at these ranks */
	uint32_t before[GPK_RANKS_MOST]; /* found: of those one rank below; the rank is at least 1 */
	uint32_t bins[GPK_RANKS_AT_ONCE][GPK_RANKS_BINS];
};

/* How many ranks are looked for at once, and in how many copies of their counts, so that fewer threads meet at one. */
struct gpk_ranks_pass {
	int from, count, copies, shift;
};

template <typename Run>
GPK_DEVICE void gpk_ranks_count(struct gpk_ranks *r, const Run &x, int n, struct gpk_ranks_pass p)
{
	const int copy = (int)threadIdx.x % p.copies;
	for (int i = (int)threadIdx.x; i < GPK_RANKS_AT_ONCE * GPK_RANKS_BINS; i += GPK_STORE_THREADS)
		r->bins[i / GPK_RANKS_BINS][i % GPK_RANKS_BINS] = 0;
	__syncthreads();
	for (int i = (int)threadIdx.x; i < n; i += GPK_STORE_THREADS) {
		const uint32_t key = gpk_key_of_value(gpk_at(x, i)), digit = key >> p.shift & 255u;
		for (int k = 0; k < p.count; k++)
			if (p.shift == 24 || key >> (p.shift + 8) == r->key[p.from + k] >> (p.shift + 8))
				atomicAdd(&r->bins[k * p.copies + copy][digit], 1u);
	}
	__syncthreads();
}

/* A warp: the digit of one rank. */
GPK_DEVICE void gpk_ranks_find(struct gpk_ranks *r, struct gpk_ranks_pass p)
{
	const int each = GPK_RANKS_BINS / GPK_WARP, k = (int)threadIdx.x / GPK_WARP, first = gpk_lane() * each;
	uint32_t sum = 0;
	for (int i = 0; k < p.count && i < each * p.copies; i++)
		sum += r->bins[k * p.copies + i / each][first + i % each];
	const uint32_t upto = gpk_warp_prefix_few(sum), left = k < p.count ? r->left[p.from + k] : 0;
	uint32_t before = upto - sum;
	__syncwarp();
	if (left < before || left >= upto)
		return;
	for (int bin = first; bin < first + each; bin++) {
		uint32_t here = 0;
		for (int c = 0; c < p.copies; c++)
			here += r->bins[k * p.copies + c][bin];
		if (left < before + here) {
			r->key[p.from + k] |= (uint32_t)bin << p.shift;
			r->left[p.from + k] = left - before;
			return;
		}
		before += here;
	}
}

/* The largest keys below those found: an element counts for the first that is larger. */
template <typename Run> GPK_DEVICE void gpk_ranks_look_before(struct gpk_ranks *r, const Run &x, int n)
{
	for (int i = (int)threadIdx.x; i < n; i += GPK_STORE_THREADS) {
		const uint32_t key = gpk_key_of_value(gpk_at(x, i));
		int low = 0, high = r->count;
		while (low < high) {
			const int middle = (low + high) / 2;
			if (r->key[middle] > key)
				high = middle;
			else
				low = middle + 1;
		}
		if (low < r->count && key > *(volatile uint32_t *)&r->before[low])
			atomicMax(&r->before[low], key);
	}
	__syncthreads();
	/* Where equal elements go on below the rank, so does the one before it. */
	for (int k = (int)threadIdx.x; k < r->count; k += GPK_STORE_THREADS)
		r->before[k] = r->left[k] > 0 ? r->key[k] : r->before[k];
	__syncthreads();
}

/* `count` and `left` are there for all. */
template <typename Run> GPK_DEVICE void gpk_ranks_select(struct gpk_ranks *r, const Run &x, int n)
{
	for (int k = (int)threadIdx.x; k < r->count; k += GPK_STORE_THREADS)
		r->key[k] = r->before[k] = 0;
	__syncthreads();
	for (int shift = 24; shift >= 0; shift -= 8)
		for (int from = 0; from < r->count; from += GPK_RANKS_AT_ONCE) {
			const int rest = r->count - from, count = rest < GPK_RANKS_AT_ONCE ? rest : GPK_RANKS_AT_ONCE;
			const struct gpk_ranks_pass p = {from, count, GPK_RANKS_AT_ONCE / count, shift};
			gpk_ranks_count(r, x, n, p);
			gpk_ranks_find(r, p);
			__syncthreads();
		}
	if (r->count > 0)
		gpk_ranks_look_before(r, x, n);
}

#endif

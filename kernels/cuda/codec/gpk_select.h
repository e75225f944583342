/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside selection: what its kernels for few ranks (k_codec_select.cu) and for
 * many (k_codec_select_many.cu) share: rooms, keys, and the way from a counter
 * to the next digit. Callers: k_codec_select.h.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_codec_select.c
 */
#ifndef GPK_SELECT_H
#define GPK_SELECT_H

#include "kernels/cuda/codec/gpk_scan.h"
#include "kernels/cuda/codec/k_codec_select.h"

#define GPK_SELECT_TOP  4096 /* counters of the first digit */
#define GPK_SELECT_REST 20   /* bits behind it */
#define GPK_SELECT_FEW  10   /* ranks whose counters of the other digits fit into a block's memory */

/* All zero when a selection begins, as are the counters behind it. */
struct gpk_select_state {
	uint32_t ticket[8];
	uint32_t bad, zeros, chosen, over_all;    /* over_all: the digits are counted over all elements */
	uint32_t below, largest, settled, unused; /* of one magnitude: count_window */
	uint32_t from_end, upto, looked, spare;   /* its cells: TOP - from_end to upto - 1 */
	uint32_t predicted[GPK_SELECT_TOP / 32];  /* cells to set aside */
	uint32_t sample[GPK_SELECT_TOP], top[GPK_SELECT_TOP], window[GPK_SELECT_TOP];
	uint32_t row[GPK_SELECT_TOP]; /* cells that hold a wanted rank: 1 and their row of counters */
};

/* A row of counters for each rank, at most. */
struct gpk_select_rooms {
	struct gpk_select_state *state;
	uint32_t *middle, *low, *low_row; /* (ranks, 2^middle_bits), (ranks, 2^low_bits), as middle */
	uint32_t *marked;                 /* bits: low_row is not 0 */
	struct gpk_wanted *found;
	uint32_t *chosen;
	uint32_t chosen_room;
	int ranks, middle_bits, low_bits;
	int64_t n;
	const uint32_t *rank;
};

/* The other digits of more ranks than GPK_SELECT_FEW. */
void gpk_select_many(struct gp_rt_stream *stream, const struct gpk_select_rooms *r, bool magnitudes, const float *x);

template <bool Magnitudes> GPK_DEVICE uint32_t gpk_select_key(float v)
{
	return Magnitudes ? __float_as_uint(v) << 1 : gpk_key_of_value(v);
}

/* Zeros are counted apart: their digits behind the first are 0. */
template <bool Magnitudes> GPK_DEVICE uint32_t gpk_select_zero(void)
{
	return Magnitudes ? 0 : 0x80000000u;
}

/* The first lane that says so. One always does, unless the device failed: then any. */
GPK_DEVICE int gpk_first_lane(bool says)
{
	return (__ffs((int)__ballot_sync(GPK_ALL_LANES, says)) - 1) & (GPK_WARP - 1);
}

/* By one warp: the counter of `count`, a power of two, that holds rank `before` of `f`, which becomes the rank inside of it.
 * `first` more are in counter 0. Fresh: other blocks of this grid have counted. */
template <bool Fresh>
GPK_DEVICE uint32_t gpk_select_descend(const uint32_t *bins, int count, uint32_t first, struct gpk_wanted *f)
{
	const int lane = gpk_lane();
	uint32_t rank = f->before, equal = 0;
	int base = 0;
	for (int wide = count; wide > 1;) {
		const int each = wide > GPK_WARP ? wide / GPK_WARP : 1;
		uint32_t sum = base == 0 && lane == 0 ? first : 0;
		GPK_UNROLL_BY(8)
		for (int i = lane * each; i < (lane + 1) * each && i < wide; i++)
			sum = gpk_add_counts(sum, Fresh ? gpk_fresh(&bins[base + i]) : bins[base + i]);
		const uint32_t upto = gpk_warp_prefix(sum);
		const int part = gpk_first_lane(upto > rank);
		rank -= __shfl_sync(GPK_ALL_LANES, upto - sum, part);
		equal = __shfl_sync(GPK_ALL_LANES, sum, part);
		base += part * each;
		wide = each;
	}
	if (lane == 0) {
		f->before = rank;
		f->equal = equal;
	}
	return (uint32_t)base;
}

/* By one warp: the next digit of a rank. */
template <bool Magnitudes, bool Last, bool Fresh>
GPK_DEVICE void gpk_select_next(const struct gpk_select_rooms &r, struct gpk_wanted *f)
{
	const int shift = Last ? 0 : r.low_bits, bits = Last ? r.low_bits : r.middle_bits;
	const uint32_t key = f->key, row = f->row, *const bins = (Last ? r.low : r.middle) + ((size_t)row << bits);
	const bool zero = (uint64_t)key >> (shift + bits) == gpk_select_zero<Magnitudes>() >> (shift + bits);
	const uint32_t zeros = Fresh ? gpk_fresh(&r.state->zeros) : r.state->zeros;
	__syncwarp();
	const uint32_t digit = gpk_select_descend<Fresh>(bins, 1 << bits, zero ? zeros : 0, f);
	if (gpk_lane() == 0)
		f->key = key | digit << shift;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What tiled products on tensor cores have in common (k_conv_tiles.cu,
 * k_conv_weight.cu; of attention the walk alone): the shapes of tiles, how many parts a sum is cut into, and
 * the sum of those parts. Only for k_*.cu and gpk_*.h. Test: tests/unit/test_cuda_tiles.c
 *
 * Counted for a card of compute capability 9.0, whose tensor cores do 16 x 8 x 32 bytes of a product in about 6.5 cycles
 * of a quarter of a multiprocessor, and whose shared memory moves 128 bytes in a cycle. Of 128 bytes of depth, cycles:
 *
 *   tile (warp)             into shared memory   fragments   together   tensor cores   shared memory for 64 x 64
 *   64 x 64   (32 x 32)            128              256         384          208          384
 *   128 x 64  (64 x 32)            192              384         576          416          288
 *   128 x 128 (64 x 64)            256              512         768          832          192
 *
 * What comes from L2 falls in the same proportion, 16, 24 and 32 KiB for each of these steps, and all multiprocessors at
 * full speed ask for more than it has. So a large tile is the better one where there are enough of them to keep every
 * multiprocessor busy, or where the depth can be cut into parts until there are. Parts are written in fp32 and added by
 * another kernel, in their order.
 *
 * Nothing here depends on the card that is there: the same layer gives the same bits everywhere.
 *
 * Threads: any (pure functions), on the host and in kernels.
 */
#ifndef GPK_TILES_H
#define GPK_TILES_H

#include "kernels/cuda/runtime/gpk_mma.h"
#include "kernels/cuda/runtime/gpk_rows.h"

/* HIGH x WIDE sums by THREADS threads, of which a warp has WARP_HIGH x WARP_WIDE. */
template <int High, int Wide, int WarpHigh, int WarpWide, int Stages> struct gpk_tile_shape {
	static constexpr int HIGH = High, WIDE = Wide, WARP_HIGH = WarpHigh, WARP_WIDE = WarpWide, STAGES = Stages;
	static constexpr int WARPS_ACROSS = Wide / WarpWide, THREADS = High / WarpHigh * WARPS_ACROSS * GPK_WARP;
	static constexpr int UP = WarpHigh / 16, ALONG = WarpWide / 8; /* a warp's products of 16 x 8 */
};

#define GPK_TILES_MULTIPROCESSORS 132
#define GPK_TILES_MOST_PARTS      64
#define GPK_TILES_MOST_BYTES      ((int64_t)32 << 20) /* of parts */
#define GPK_TILES_FED             104 /* multiprocessors whose tiles L2 can bring, by a guess on the high side */
/* In steps of a quarter of the smallest tile, about 130 cycles: another kernel, and what it takes to write and read. */
#define GPK_TILES_SUMS_COST       16
#define GPK_TILES_SUMS_BYTES      ((int64_t)400 << 10)

/* A sum of `steps` steps in `parts` parts of `each` steps, the last one with what is left. */
struct gpk_tile_parts {
	int64_t parts, each, cost;
};

/* Into how many parts the sums of `blocks` tiles are cut. A step of a tile costs `unit`; a part takes `bytes`. */
static inline struct gpk_tile_parts gpk_tile_parts_of(int64_t blocks, int64_t steps, int64_t unit, int64_t bytes)
{
	const int64_t fed = blocks * steps * unit / GPK_TILES_FED;
	const int64_t whole = gpk_div_up(blocks, GPK_TILES_MULTIPROCESSORS) * steps * unit;
	struct gpk_tile_parts best = {1, steps, whole > fed ? whole : fed};
	for (int64_t parts = 2; parts <= GPK_TILES_MOST_PARTS && parts * bytes <= GPK_TILES_MOST_BYTES; parts++) {
		const int64_t each = gpk_div_up(steps, parts);
		const int64_t walk = gpk_div_up(blocks * parts, GPK_TILES_MULTIPROCESSORS) * each * unit;
		const int64_t cost =
			(walk > fed ? walk : fed) + GPK_TILES_SUMS_COST + 2 * parts * bytes / GPK_TILES_SUMS_BYTES;
		if (gpk_div_up(steps, each) == parts && cost < best.cost)
			best = {parts, each, cost};
	}
	return best;
}

/* A warp's operands of 16 rows of bf16, or 8 of fp32, along the depth. */
template <typename S> struct gpk_tile_operands {
	uint32_t a[S::UP][4], b[S::ALONG / 2][4];
};

template <typename T, typename S>
GPK_DEVICE void gpk_tile_multiply(struct gpk_tile_operands<S> &o, float (&sum)[S::UP][S::ALONG][4])
{
	GPK_UNROLL
	for (int k = 0; k < 4; k++) {
		GPK_UNROLL
		for (int i = 0; i < S::UP; i++)
			o.a[i][k] = gpk_operand<T>(o.a[i][k]);
		GPK_UNROLL
		for (int j = 0; j < S::ALONG / 2; j++)
			o.b[j][k] = gpk_operand<T>(o.b[j][k]);
	}
	GPK_UNROLL
	for (int i = 0; i < S::UP; i++)
		GPK_UNROLL
	for (int j = 0; j < S::ALONG; j++)
		gpk_mma<T>(sum[i][j], o.a[i], &o.b[j / 2][j % 2 * 2]);
}

/*
 * Walks stages in shared memory: `load(stage)` queues the copies of the next step, `multiply(stage)` takes one in. While
 * a step is multiplied, those of the next STAGES - 1 are under way. A group is ended for every step, with or without
 * copies in it, so that to wait for all but STAGES - 2 groups is to wait for this step's.
 */
template <typename S, typename Load, typename Multiply>
GPK_DEVICE void gpk_tile_walk(unsigned char *room, unsigned stage_bytes, int32_t steps, Load load, Multiply multiply)
{
	unsigned char *const end = room + S::STAGES * stage_bytes, *filled = room, *next = room;
	for (int32_t step = 0; step < S::STAGES - 1; step++, filled += stage_bytes) {
		if (step < steps)
			load(filled);
		gpk_copies_end_group();
	}
	for (int32_t step = 0; step < steps; step++) {
		gpk_copies_wait<S::STAGES - 2>(); /* this step's are there, */
		__syncthreads();                  /* everybody's, and nobody reads the stage that is filled next */
		if (step + S::STAGES - 1 < steps)
			load(filled);
		gpk_copies_end_group();
		multiply(next);
		filled = filled + stage_bytes == end ? room : filled + stage_bytes;
		next = next + stage_bytes == end ? room : next + stage_bytes;
	}
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What codecs' kernels (k_codec_*.cu) share: elements and packed codes by
 * tiles of a block, and the number of a float that orders it. Codes of `width`
 * 1..16 bits, least significant first, as common/CODECS.md, "Packed codes". A
 * tile is 2048 elements: its codes begin at a multiple of 256 bytes, whatever
 * the width.
 *
 * A block has GPK_CODEC_THREADS threads, all of which call the functions that
 * say "the block". Codes in device memory begin at a multiple of 16 bytes and
 * have 32 bytes behind them that may be read and written (a site's payload
 * room has). Floats need not be aligned to more than 4 bytes, but are faster at 16.
 *
 * Only for k_codec_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_codec.c
 */
#ifndef GPK_CODEC_H
#define GPK_CODEC_H

#include "kernels/cuda/runtime/gpk_rng.h"

#define GPK_CODEC_THREADS    256
#define GPK_CODEC_GROUP      8 /* elements whose codes are `width` whole bytes */
#define GPK_CODEC_TILE       (GPK_CODEC_THREADS * GPK_CODEC_GROUP)
/* Shared memory for the packed codes of a tile, and what a read of a code may touch behind them. */
#define GPK_CODEC_ROOM(name) GPK_SHARED(uint4, name, [GPK_CODEC_TILE * 16 / 8 / 16 + 1])

/* Most blocks of a launch; on an emulated device so few that tests see what comes behind a block's first tile. */
#ifdef __CUDACC__
#define GPK_CODEC_MOST_BLOCKS (1 << 14)
#else
#define GPK_CODEC_MOST_BLOCKS 5
#endif

/* Blocks for n elements: each takes every gridDim-th tile. */
static inline unsigned gpk_codec_blocks(int64_t n)
{
	return gpk_blocks(n, GPK_CODEC_TILE, GPK_CODEC_MOST_BLOCKS);
}

static inline int64_t gpk_codec_tiles(int64_t n)
{
	return gpk_div_up(n, GPK_CODEC_TILE);
}

/* --- elements ---------------------------------------------------------------------------------------------------- */

GPK_DEVICE bool gpk_aligned16(const void *p)
{
	return ((uintptr_t)p & 15) == 0;
}

/* x[at..at + 4), `behind` in the places from n on. `at` is a multiple of 4. */
GPK_DEVICE void gpk_load4(const float *x, int64_t at, int64_t n, float behind, float v[4])
{
	if (at + 4 <= n && gpk_aligned16(x)) {
		const float4 all = *reinterpret_cast<const float4 *>(x + at);
		v[0] = all.x;
		v[1] = all.y;
		v[2] = all.z;
		v[3] = all.w;
		return;
	}
	for (int i = 0; i < 4; i++)
		v[i] = at + i < n ? x[at + i] : behind;
}

GPK_DEVICE void gpk_load8(const float *x, int64_t at, int64_t n, float behind, float v[8])
{
	gpk_load4(x, at, n, behind, v);
	gpk_load4(x, at + 4, n, behind, v + 4);
}

GPK_DEVICE void gpk_store4(float *x, int64_t at, int64_t n, const float v[4])
{
	if (at + 4 <= n && gpk_aligned16(x)) {
		*reinterpret_cast<float4 *>(x + at) = make_float4(v[0], v[1], v[2], v[3]);
		return;
	}
	for (int i = 0; i < 4; i++)
		if (at + i < n)
			x[at + i] = v[i];
}

/* Bits of a magnitude; 0x7f800000 and above are not finite. */
GPK_DEVICE uint32_t gpk_magnitude(float v)
{
	return __float_as_uint(v) & 0x7fffffffu;
}

GPK_DEVICE bool gpk_finite(float v)
{
	return gpk_magnitude(v) < 0x7f800000u;
}

/* Unsigned numbers in the order of the floats, -0 just below +0; and back, with -0 as +0. */
GPK_DEVICE uint32_t gpk_key_of_float(float v)
{
	const uint32_t u = __float_as_uint(v);
	return u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
}

GPK_DEVICE float gpk_float_of_key(uint32_t key)
{
	return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key) + 0.0f;
}

/* --- quotients --------------------------------------------------------------------------------------------------- */

/* Whether gpk_quotient may divide by it. */
GPK_DEVICE bool gpk_divides(float by)
{
	return by >= 0x1p-40f && by <= 0x1p40f;
}

/*
 * a / by, rounded as division rounds, for many a: `reciprocal` is 1 / by. Two corrections (Markstein, "Computation of
 * elementary functions on the IBM RISC System/6000 processor", 1990): five instructions without a branch, where division
 * takes nine and one. Quotients below 2^-60 may differ in their last bits, and -0 may become +0.
 */
GPK_DEVICE float gpk_quotient(float a, float by, float reciprocal)
{
	const float q = a * reciprocal, near = __fmaf_rn(__fmaf_rn(-q, by, a), reciprocal, q);
	return __fmaf_rn(__fmaf_rn(-near, by, a), reciprocal, near);
}

/* v in 0..1; 0 where it is no number. */
GPK_DEVICE float gpk_saturate(float v)
{
#ifdef __CUDACC__
	return __saturatef(v);
#else
	return v > 0 ? v < 1 ? v : 1 : 0;
#endif
}

/* --- draws -------------------------------------------------------------------------------------------------------- */

/* Half `i` of a word h, as (h + 1/2) / 2^16: bits of a number in 1..2. */
GPK_DEVICE float gpk_draw_of(uint32_t word, int i)
{
	const uint32_t h = (i ? word >> 9 : word << 7) & 0x7fff80u;
	return __uint_as_float(0x3f800040u | h) - 1;
}

/* --- packed codes ------------------------------------------------------------------------------------------------ */

/* Four codes. In pairs and by products: a shift of 64 bits for each would take three times the instructions. */
GPK_DEVICE uint64_t gpk_pack4(const unsigned code[4], int width)
{
	const uint32_t by = 1u << width;
	return code[0] + code[1] * by + ((uint64_t)(code[2] + code[3] * by) << (2 * width));
}

/* Eight codes as `width` bytes: the lower and the upper 64 bits of them. */
GPK_DEVICE void gpk_pack8(const unsigned code[8], int width, uint64_t *low, uint64_t *high)
{
	const uint64_t a = gpk_pack4(code, width), b = gpk_pack4(code + 4, width);
	*low = width == 16 ? a : a | b << (4 * width);
	*high = width == 16 ? b : b >> (64 - 4 * width);
}

/* `bytes` bytes of packed codes, a multiple of T's. */
template <typename T> GPK_DEVICE void gpk_put_packed(uint8_t *to, int bytes, uint64_t low, uint64_t high)
{
	const int bits = 8 * (int)sizeof(T);
	for (int i = 0; i * (int)sizeof(T) < bytes; i++)
		reinterpret_cast<T *>(to)[i] = (T)(i * bits < 64 ? low >> (i * bits) : high >> (i * bits - 64));
}

/* Bytes of a tile's codes that hold elements, by whole groups. */
GPK_DEVICE int gpk_tile_bytes(int width, int64_t tile, int64_t n)
{
	const int64_t left = n - tile * GPK_CODEC_TILE;
	const int here = (int)(left < GPK_CODEC_TILE ? left : (int64_t)GPK_CODEC_TILE);
	return (here + GPK_CODEC_GROUP - 1) / GPK_CODEC_GROUP * width;
}

/*
 * The block: writes the codes of a tile, 8 of each thread: thread t's are those of the elements t * 8 .. t * 8 + 7 of
 * the tile, 0 behind n. `codes`: where the codes of the tensor begin. `room`: GPK_CODEC_ROOM.
 */
GPK_DEVICE void gpk_store_codes(uint8_t *codes, int width, int64_t tile, int64_t n, const unsigned code[8], uint4 *room)
{
	const int t = (int)threadIdx.x, bytes = gpk_tile_bytes(width, tile, n);
	uint8_t *const out = codes + tile * (GPK_CODEC_THREADS * width);
	uint64_t low, high;
	gpk_pack8(code, width, &low, &high);
	if ((width & (width - 1)) == 0) { /* threads' bytes are words of their own */
		if (t * width >= bytes)
			return;
		switch (width) {
		case 1:
			out[t] = (uint8_t)low;
			break;
		case 2:
			reinterpret_cast<uint16_t *>(out)[t] = (uint16_t)low;
			break;
		case 4:
			reinterpret_cast<uint32_t *>(out)[t] = (uint32_t)low;
			break;
		case 8:
			reinterpret_cast<uint2 *>(out)[t] = make_uint2((unsigned)low, (unsigned)(low >> 32));
			break;
		default:
			reinterpret_cast<uint4 *>(out)[t] = make_uint4((unsigned)low, (unsigned)(low >> 32),
								       (unsigned)high, (unsigned)(high >> 32));
		}
		return;
	}
	uint8_t *const mine = reinterpret_cast<uint8_t *>(room) + t * width;
	if (width % 4 == 0)
		gpk_put_packed<uint32_t>(mine, width, low, high);
	else if (width % 2 == 0)
		gpk_put_packed<uint16_t>(mine, width, low, high);
	else
		gpk_put_packed<uint8_t>(mine, width, low, high);
	__syncthreads();
	if (t * 16 < bytes)
		reinterpret_cast<uint4 *>(out)[t] = room[t];
	__syncthreads();
}

/* The block: a tile's codes into `room`, for gpk_codes4. Before the next tile comes __syncthreads. */
GPK_DEVICE void gpk_load_codes(const uint8_t *codes, int width, int64_t tile, int64_t n, uint4 *room)
{
	const int t = (int)threadIdx.x;
	const uint8_t *const in = codes + tile * (GPK_CODEC_THREADS * width);
	if (t * 16 < gpk_tile_bytes(width, tile, n))
		room[t] = reinterpret_cast<const uint4 *>(in)[t];
	__syncthreads();
}

/* Codes of the elements at..at + 3 of the tile in `room`, at a multiple of 4, side by side from bit 0 on; anything behind
 * n, and above them. */
GPK_DEVICE uint64_t gpk_packed4(const uint4 *room, int width, int at)
{
	const uint32_t *const words = reinterpret_cast<const uint32_t *>(room);
	const int bit = at * width, word = bit >> 5, shift = bit & 31;
	const uint64_t held = ((uint64_t)words[word + 1] << 32 | words[word]) >> shift;
	return width > 8 && shift ? held | (uint64_t)words[word + 2] << (64 - shift) : held;
}

/* The same, one by one. */
GPK_DEVICE void gpk_codes4(const uint4 *room, int width, int at, unsigned code[4])
{
	const uint64_t held = gpk_packed4(room, width, at);
	const unsigned mask = (1u << width) - 1;
	if (width <= 8) {
		uint32_t four = (uint32_t)held;
		for (int i = 0; i < 4; i++, four >>= width)
			code[i] = four & mask;
		return;
	}
	for (int i = 0; i < 4; i++)
		code[i] = (unsigned)(held >> (i * width)) & mask;
}

/* --- answers ----------------------------------------------------------------------------------------------------- */

/* The block: largest of all threads' values; every thread gets it. `room`: shared, a word per warp. */
GPK_DEVICE uint32_t gpk_block_max(uint32_t v, uint32_t *room)
{
	for (int d = GPK_WARP / 2; d > 0; d /= 2) {
		const uint32_t other = __shfl_xor_sync(GPK_ALL_LANES, v, d);
		v = other > v ? other : v;
	}
	if (threadIdx.x % GPK_WARP == 0)
		room[threadIdx.x / GPK_WARP] = v;
	__syncthreads();
	for (unsigned w = 0; w < blockDim.x / GPK_WARP; w++)
		v = room[w] > v ? room[w] : v;
	__syncthreads();
	return v;
}

/* Sets *flag where a thread of the warp says so: as good as always none does. All threads of a warp. */
GPK_DEVICE void gpk_flag(uint32_t *flag, bool raised)
{
	if (__any_sync(GPK_ALL_LANES, raised) && threadIdx.x % GPK_WARP == 0)
		atomicOr(flag, 1u);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel file (k_*.cu in kernels/cuda/ops and kernels/cuda/codec) is written with. The same source is
 * compiled by nvcc, and by the host's C++ compiler in emulated builds, where
 * emulate.h gives threadIdx, __syncthreads, shuffles and atomics.
 *
 *   GPK_KERNEL name(args)              a kernel;   GPK_DEVICE  a function of it
 *   GPK_KERNEL GPK_BOUNDS(256) name(args)   one of at most 256 threads;   GPK_UNROLL, GPK_UNROLL_BY(4)  before a loop
 *   GPK_SHARED(float, tile, [32][33]); shared memory of fixed size
 *   GPK_SHARED_DYNAMIC(float, room);   float *room: the bytes that the launch gave
 *   GPK_LAUNCH(stream, (kernel<T, 4>), grid, block, shared_bytes, args...)
 *   GPK_LAUNCH_LARGE(...)              the same where shared_bytes may be more than 48 KiB
 *   GPK_RESIDENT(stream, (kernel<T, 4>), threads)   how many blocks of it, without shared_bytes, a card holds at once
 *
 * Launchers are `extern "C" void gpk_<what>_forward(struct gp_rt_stream *, ...)`, declared in a header that C reads
 * (k_*.h), and only queue. Element types of tensors are float or gpk_bf16; arithmetic is in float: gpk_get, gpk_put.
 *
 * Rules: no printf, no assert, no recursion, no warp operation or barrier that
 * part of the named threads do not reach, no spinning on another block. Sums
 * have an order that depends on sizes alone (no float atomics): results are
 * reproducible. Files whose results must equal the CPU codecs' bit for bit are
 * named k_codec_*.cu and are compiled without contraction (--fmad=false).
 *
 * Threads: those of a kernel, on the device; on the host any, one at a time for a stream.
 * Test: tests/unit/test_cuda_ops.c, tests/unit/test_emulator.cc
 */
#ifndef GPK_H
#define GPK_H

#include <stdint.h>

#include "kernels/cuda/runtime/rt.h"
#include "kernels/cuda/runtime/rt_tally.h"

#define GPK_RESIDENT_GUESS 264 /* two blocks on each of 132 multiprocessors */

#ifdef __CUDACC__
#include "kernels/cuda/runtime/native.h"
#define GPK_KERNEL                   static __global__ void
#define GPK_DEVICE                   static __device__ __forceinline__
#define GPK_SHARED(type, name, dims) __shared__ type name dims
#define GPK_SHARED_DYNAMIC(type, name)                                                                                 \
	extern __shared__ __align__(16) unsigned char gpk_room[];                                                      \
	type *const name = reinterpret_cast<type *>(gpk_room)
#define GPK_LAUNCH(stream, kernel, grid, block, shared, ...)                                                           \
	(gp_rt_tally_note(#kernel, gpk_blocks_of(dim3(grid))),                                                         \
	 kernel<<<(grid), (block), (shared), gp_rt_native(stream)>>>(__VA_ARGS__), gp_rt_launched(stream))
static inline uint64_t gpk_blocks_of(dim3 grid)
{
	return (uint64_t)grid.x * grid.y * grid.z;
}
#define GPK_LAUNCH_LARGE(stream, kernel, grid, block, shared, ...)                                                     \
	(gp_rt_native(stream), cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (shared)),    \
	 GPK_LAUNCH(stream, kernel, grid, block, shared, __VA_ARGS__))
/*
 * How many blocks of `threads` threads without dynamic shared memory a card holds at once, by the registers that the kernel
 * takes. The driver knows that without asking the card; a launch that is captured asks once for all its replays.
 */
static inline int64_t gpk_ask_resident(struct gp_rt_stream *s, const void *kernel, int threads)
{
	int device = 0, processors = 0, blocks = 0;
	gp_rt_native(s);
	if (cudaGetDevice(&device) == cudaSuccess &&
	    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess &&
	    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0) == cudaSuccess && blocks > 0)
		return (int64_t)processors * blocks;
	cudaGetLastError();
	return GPK_RESIDENT_GUESS;
}
#define GPK_RESIDENT(stream, kernel, threads) gpk_ask_resident(stream, (const void *)kernel, threads)
#define GPK_RESTRICT                          __restrict__
#define GPK_PRAGMA(...)                       _Pragma(#__VA_ARGS__)
#define GPK_UNROLL                            _Pragma("unroll")
#define GPK_UNROLL_BY(n)                      GPK_PRAGMA(unroll n)
#define GPK_BOUNDS(...)                       __launch_bounds__(__VA_ARGS__)
#else
#include "kernels/cuda/emulator/emulate.h"
#endif

#define GPK_WARP      32
#define GPK_ALL_LANES 0xffffffffu

/* A bf16 as it lies in memory; the same on both sides. */
struct gpk_bf16 {
	uint16_t bits;
};

GPK_DEVICE float gpk_get(float v)
{
	return v;
}
GPK_DEVICE float gpk_get(gpk_bf16 v)
{
	return __uint_as_float((uint32_t)v.bits << 16);
}
GPK_DEVICE void gpk_put(float *at, float v)
{
	*at = v;
}
/* Nearest, even; NaN stays NaN. From 8.0 on an instruction of its own: the same bits, but for which NaN it is. */
GPK_DEVICE void gpk_put(gpk_bf16 *at, float v)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(at->bits) : "f"(v));
#else
	const uint32_t u = __float_as_uint(v);
	const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
	at->bits = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
#endif
}

#ifdef __CUDACC__
#define GPK_BOTH static __host__ __device__ __forceinline__
#else
#define GPK_BOTH static inline
#endif

/* Called in kernels and by their launchers. */
GPK_BOTH int64_t gpk_div_up(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}
/* Blocks of `block` threads for n elements, at most `most` (kernels walk on by the grid's width). */
static inline unsigned gpk_blocks(int64_t n, int block, int64_t most)
{
	const int64_t blocks = gpk_div_up(n, block);
	return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* Runs f with a null pointer of the element type. */
#define GPK_BY_TYPE(type, T, ...)                                                                                      \
	do {                                                                                                           \
		if ((type) == GP_RT_BF16) {                                                                            \
			using T = gpk_bf16;                                                                            \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			using T = float;                                                                               \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

/* Sums over a warp; every lane gets it. */
GPK_DEVICE float gpk_warp_sum(float v)
{
	for (int d = GPK_WARP / 2; d > 0; d /= 2)
		v += __shfl_xor_sync(GPK_ALL_LANES, v, d);
	return v;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's kernel language on the host, for builds with GP_CUDA=emulated: the
 * arithmetic of every kernel runs in tests, under sanitizers, on machines
 * without a GPU. Not fast, and not a model of a GPU's memory: blocks run one
 * after another, threads of a block one after another between barriers.
 *
 * A block's threads are fibers. A fiber runs one thread until that ends or
 * waits (barrier, warp operation); the next thread then begins on another
 * fiber, so a kernel without waits costs a loop. A block in which nobody can go
 * on stops the program with a message: that kernel would hang on a GPU.
 *
 * With GP_EMULATE_ORDER=reverse in the environment the last thread and the last block go first: what two threads do to
 * one place without a barrier between then comes out differently. Tests of kernels run in both orders.
 *
 * With GP_EMULATE_CARD=1 it does what a card may do and the emulated device else does not: sums of products are made in
 * another order and cut off where a card cuts them, others take memory meanwhile, absurd sizes are another error than a lack
 * of memory. Tests then take the limits that they have for cards.
 *
 * Only included by gpk.h.
 *
 * Threads: all of this runs under one lock (emulated_rt.cc).
 * Test: tests/unit/test_cuda_rt.c
 */
#ifndef GP_EMULATE_H
#define GP_EMULATE_H

#include <cmath>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

/* Every byte that nobody wrote: NaNs, and numbers that lead nowhere. */
#define GPK_UNWRITTEN 0xff

/* GP_EMULATE_CARD=1. */
bool gpk_emulates_card(void);

struct dim3 {
	unsigned x, y, z;
	dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
	{
	}
};

struct uint4;

struct gpk_emulated_thread {
	dim3 thread, block, block_dim, grid_dim;
	unsigned lane, warp;
	unsigned char *room; /* dynamic shared memory */
};
extern gpk_emulated_thread gpk_emulated;

#define threadIdx (gpk_emulated.thread)
#define blockIdx  (gpk_emulated.block)
#define blockDim  (gpk_emulated.block_dim)
#define gridDim   (gpk_emulated.grid_dim)

#define GPK_KERNEL   static void
#define GPK_DEVICE   static inline
#define GPK_RESTRICT __restrict__
#define GPK_UNROLL
#define GPK_UNROLL_BY(n)
#define GPK_BOUNDS(...)
/* Blocks never overlap, so one copy will do. */
#define GPK_SHARED(type, name, dims)                                                                                   \
	static type name dims;                                                                                         \
	gpk_emulated_shared(&name, sizeof name)
#define GPK_SHARED_DYNAMIC(type, name) type *const name = reinterpret_cast<type *>(gpk_emulated.room)
#define GPK_LAUNCH(stream, kernel, grid, block, shared, ...)                                                           \
	GPK_LAUNCH_UP_TO(GPK_SHARED_BYTES, stream, kernel, grid, block, shared, __VA_ARGS__)
#define GPK_LAUNCH_LARGE(stream, kernel, grid, block, shared, ...)                                                     \
	GPK_LAUNCH_UP_TO(GPK_SHARED_LARGE_BYTES, stream, kernel, grid, block, shared, __VA_ARGS__)
#define GPK_LAUNCH_UP_TO(most, stream, kernel, grid, block, shared, ...)                                               \
	gpk_emulated_launch((stream), #kernel, {dim3(grid), dim3(block), (shared), (most)}, gpk_pointers(__VA_ARGS__), \
			    gpk_bind(kernel, __VA_ARGS__))

#define GPK_RESIDENT(stream, kernel, threads) ((void)(stream), (int64_t)GPK_RESIDENT_GUESS)

/* Shared memory of a block, declared and dynamic together: on any card; and from 8.0 on, where a launch asks for it. */
#define GPK_SHARED_BYTES       (48 * 1024)
#define GPK_SHARED_LARGE_BYTES (99 * 1024)

struct gpk_shape {
	dim3 grid, block;
	size_t shared, most_shared;
};

/* Queues a kernel; arguments are copied now, as a launch does. `given`: those that are addresses. emulated_rt.cc */
void gpk_emulated_launch(struct gp_rt_stream *s, const char *kernel, struct gpk_shape shape,
			 std::vector<const void *> given, std::function<void()> body);
/* Queues other work of a stream (copies, matrix products), or records it while capturing. emulated_rt.cc */
void gpk_emulated_queue(struct gp_rt_stream *s, std::function<void()> work);
/* As gp_rt_fail on a card: the next wait on the stream, or the end of its capture, says that something failed. */
void gpk_emulated_fail(struct gp_rt_stream *s);
/* Ends the program when no card takes such a launch. emulate.cc */
void gpk_emulated_check(const char *kernel, struct gpk_shape shape);
/* Runs a grid now. emulate.cc */
void gpk_emulated_run(const char *kernel, struct gpk_shape shape, const std::function<void()> &body);

/* The launch converts arguments to the parameters' types, as CUDA does. */
template <typename... Params, typename... Args> std::function<void()> gpk_bind(void (*kernel)(Params...), Args... args)
{
	return [kernel, args...] { kernel(static_cast<Params>(args)...); };
}

static inline void gpk_add_pointer(std::vector<const void *> &all, const volatile void *p)
{
	all.push_back(const_cast<const void *>(p));
}
template <typename T> std::enable_if_t<!std::is_pointer_v<T>> gpk_add_pointer(std::vector<const void *> &, const T &)
{
}
template <typename... Args> std::vector<const void *> gpk_pointers(Args... args)
{
	std::vector<const void *> all;
	(gpk_add_pointer(all, args), ...);
	return all;
}

/* Shared memory of the block, whenever one of its threads comes by. */
void gpk_emulated_shared(void *p, size_t bytes);
/* All threads of the block, none of which may have ended. */
void gpk_emulated_barrier(void);
/* Hands `value` to the warp and waits for its lanes in `mask`; returns their 32 values. */
const uint64_t *gpk_emulated_exchange(unsigned mask, uint64_t value);

/*
 * Copies that run on their own, done as late as on a device: in the gpk_emulated_copies_wait of this thread that leaves
 * fewer groups than were ended since. Who reads before that, or before a barrier behind it, finds what was there.
 * Without `from`: zeros. What a thread has not waited for when it ends is never copied.
 */
void gpk_emulated_copy(struct uint4 *to, const struct uint4 *from);
void gpk_emulated_copies_end_group(void);
void gpk_emulated_copies_wait(unsigned left);

#define __syncthreads() gpk_emulated_barrier()
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
	gpk_emulated_exchange(mask, 0);
}

template <typename T> static inline T gpk_from_lane(unsigned mask, T v, unsigned lane)
{
	static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
	uint64_t bits = 0;
	T out;
	memcpy(&bits, &v, sizeof v);
	const uint64_t *all = gpk_emulated_exchange(mask, bits);
	memcpy(&out, &all[lane % 32], sizeof out);
	return out;
}
template <typename T> static inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32)
{
	const unsigned base = gpk_emulated.lane / (unsigned)width * (unsigned)width;
	return gpk_from_lane(mask, v, base + (unsigned)lane % (unsigned)width);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32)
{
	const unsigned to = gpk_emulated.lane ^ (unsigned)by,
		       base = gpk_emulated.lane / (unsigned)width * (unsigned)width;
	return gpk_from_lane(mask, v, to < base + (unsigned)width ? to : gpk_emulated.lane);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32)
{
	const unsigned in = gpk_emulated.lane % (unsigned)width;
	return gpk_from_lane(mask, v, in >= by ? gpk_emulated.lane - by : gpk_emulated.lane);
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32)
{
	const unsigned in = gpk_emulated.lane % (unsigned)width;
	return gpk_from_lane(mask, v, in + by < (unsigned)width ? gpk_emulated.lane + by : gpk_emulated.lane);
}
unsigned __ballot_sync(unsigned mask, int predicate);
static inline int __any_sync(unsigned mask, int predicate)
{
	return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
	return __ballot_sync(mask, !predicate) == 0;
}
int __syncthreads_or(int predicate);
/* Counted, for what follows. */
void __threadfence(void);
static inline void __threadfence_block()
{
}

template <typename T> static inline T gpk_swap_in(T *at, T v)
{
	const T old = *at;
	*at = v;
	return old;
}
template <typename T, typename V> static inline T atomicAdd(T *at, V v)
{
	return gpk_swap_in(at, (T)(*at + (T)v));
}
template <typename T, typename V> static inline T atomicMin(T *at, V v)
{
	return gpk_swap_in(at, (T)v < *at ? (T)v : *at);
}
template <typename T, typename V> static inline T atomicMax(T *at, V v)
{
	return gpk_swap_in(at, (T)v > *at ? (T)v : *at);
}
template <typename T, typename V> static inline T atomicOr(T *at, V v)
{
	return gpk_swap_in(at, (T)(*at | (T)v));
}
template <typename T, typename V> static inline T atomicExch(T *at, V v)
{
	return gpk_swap_in(at, (T)v);
}
template <typename T, typename V> static inline T atomicCAS(T *at, V expected, V v)
{
	return gpk_swap_in(at, *at == (T)expected ? (T)v : *at);
}
/* What blocks count with who comes last: every thread of the block must have fenced off what it wrote, or the program
 * stops. emulate.cc */
unsigned atomicInc(unsigned *at, unsigned most);

static inline uint32_t __float_as_uint(float v)
{
	uint32_t u;
	memcpy(&u, &v, sizeof u);
	return u;
}
static inline float __uint_as_float(uint32_t u)
{
	float v;
	memcpy(&v, &u, sizeof v);
	return v;
}
static inline int __float_as_int(float v)
{
	return (int)__float_as_uint(v);
}
static inline float __int_as_float(int i)
{
	return __uint_as_float((uint32_t)i);
}
static inline int __popc(unsigned v)
{
	return __builtin_popcount(v);
}
static inline int __popcll(unsigned long long v)
{
	return __builtin_popcountll(v);
}
static inline int __ffs(int v)
{
	return __builtin_ffs(v);
}
static inline int __clz(int v)
{
	return v ? __builtin_clz((unsigned)v) : 32;
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
	return (unsigned)(((uint64_t)a * b) >> 32);
}
template <typename T> static inline T __ldcg(const T *at)
{
	return *at;
}
template <typename T> static inline T __ldg(const T *at)
{
	return *at;
}
static inline float __fadd_rn(float a, float b)
{
	return a + b;
}
static inline float __fsub_rn(float a, float b)
{
	return a - b;
}
static inline float __fmul_rn(float a, float b)
{
	return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
	return a / b;
}
static inline float __fsqrt_rn(float a)
{
	return sqrtf(a);
}
static inline float __fmaf_rn(float a, float b, float c)
{
	return fmaf(a, b, c);
}
static inline int __float2int_rn(float v)
{
	return (int)rintf(v);
}
static inline unsigned __float2uint_rn(float v)
{
	return (unsigned)rintf(v);
}
static inline float rsqrtf(float v)
{
	return 1.0f / sqrtf(v);
}
template <typename T> static inline T min(T a, T b)
{
	return b < a ? b : a;
}
template <typename T> static inline T max(T a, T b)
{
	return a < b ? b : a;
}

struct alignas(8) float2 {
	float x, y;
};
struct alignas(16) float4 {
	float x, y, z, w;
};
struct alignas(8) uint2 {
	unsigned x, y;
};
struct alignas(16) uint4 {
	unsigned x, y, z, w;
};
static inline float2 make_float2(float x, float y)
{
	return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
	return {x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
	return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
	return {x, y, z, w};
}

#endif

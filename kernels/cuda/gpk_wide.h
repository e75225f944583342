/* SPDX-License-Identifier: Apache-2.0
 *
 * 16 bytes of a tensor at a time, as floats: 4 of fp32, 8 of bf16. For kernel
 * files (gpk.h). Addresses are aligned to 16 bytes: every tensor begins at 256.
 *
 *   float v[GPK_WIDE(T)]; gpk_load(&x[i], v); ... gpk_store(&y[i], v);
 *
 * Test: tests/unit/test_cuda_ops.c
 */
#ifndef GPK_WIDE_H
#define GPK_WIDE_H

#include "kernels/cuda/gpk.h"

#define GPK_WIDE(T) ((int)(16 / sizeof(T)))

GPK_DEVICE uint4 gpk_raw_load(const void *at)
{
#ifdef __CUDACC__
	return *reinterpret_cast<const uint4 *>(at);
#else
	uint4 v;
	memcpy(&v, __builtin_assume_aligned(at, 16), sizeof v);
	return v;
#endif
}

GPK_DEVICE void gpk_raw_store(void *at, uint4 v)
{
#ifdef __CUDACC__
	*reinterpret_cast<uint4 *>(at) = v;
#else
	memcpy(__builtin_assume_aligned(at, 16), &v, sizeof v);
#endif
}

GPK_DEVICE void gpk_load(const float *at, float v[4])
{
	const uint4 raw = gpk_raw_load(at);
	v[0] = __uint_as_float(raw.x);
	v[1] = __uint_as_float(raw.y);
	v[2] = __uint_as_float(raw.z);
	v[3] = __uint_as_float(raw.w);
}

GPK_DEVICE void gpk_unpack(unsigned two, float *low, float *high)
{
	*low = __uint_as_float(two << 16);
	*high = __uint_as_float(two & 0xffff0000u);
}

GPK_DEVICE unsigned gpk_packed(float low, float high)
{
	gpk_bf16 a, b;
	gpk_put(&a, low);
	gpk_put(&b, high);
	return (unsigned)a.bits | (unsigned)b.bits << 16;
}

GPK_DEVICE void gpk_load(const gpk_bf16 *at, float v[8])
{
	const uint4 raw = gpk_raw_load(at);
	gpk_unpack(raw.x, &v[0], &v[1]);
	gpk_unpack(raw.y, &v[2], &v[3]);
	gpk_unpack(raw.z, &v[4], &v[5]);
	gpk_unpack(raw.w, &v[6], &v[7]);
}

GPK_DEVICE void gpk_store(float *at, const float v[4])
{
	gpk_raw_store(at, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
				     __float_as_uint(v[3])));
}

GPK_DEVICE void gpk_store(gpk_bf16 *at, const float v[8])
{
	gpk_raw_store(at, make_uint4(gpk_packed(v[0], v[1]), gpk_packed(v[2], v[3]), gpk_packed(v[4], v[5]),
				     gpk_packed(v[6], v[7])));
}

#endif

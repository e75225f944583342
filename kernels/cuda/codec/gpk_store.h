/* SPDX-License-Identifier: Apache-2.0
 *
 * For kernels that keep arrays encoded (k_codec_store.h): where the elements of
 * a block lie, what becomes of those that no codec can represent, and codes of
 * 1..16 bits packed at any multiple of 4 bytes. The layout and the values are
 * those of common/codec/codec_store.c. Only for k_codec_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_stored.c
 */
#ifndef GPK_STORE_H
#define GPK_STORE_H

#include "kernels/cuda/codec/gpk_codec.h"
#include "kernels/cuda/codec/gpk_piece.h"

/* Threads of a block, which codes one block of elements at a time. */
#define GPK_STORE_THREADS 512
#define GPK_STORE_GROUP   8 /* neighbours of a thread: their codes are `width` whole bytes */
#define GPK_STORE_TILE    (GPK_STORE_THREADS * GPK_STORE_GROUP)

/* --- elements ----------------------------------------------------------------------------------------------------- */

/* Side by side, as values within a plan lie. */
template <typename T> struct gpk_run {
	T *x;
};

template <typename T> GPK_DEVICE float gpk_at(const gpk_run<T> &r, int64_t i)
{
	return gpk_get(r.x[i]);
}

template <typename T> GPK_DEVICE void gpk_set(const gpk_run<T> &r, int64_t i, float v)
{
	gpk_put(&r.x[i], v);
}

/* Elements of a parameter, read and written in two places. */
struct gpk_param_run {
	const float *from;
	float *to;
	struct gpk_piece piece;
};

GPK_DEVICE float gpk_at(const struct gpk_param_run &r, int64_t i)
{
	return r.from[gpk_piece_place(r.piece, i)];
}

GPK_DEVICE void gpk_set(const struct gpk_param_run &r, int64_t i, float v)
{
	r.to[gpk_piece_place(r.piece, i)] = v;
}

/* Elements at..at + 7, as far as there are n. */
template <typename Run> GPK_DEVICE void gpk_at8(const Run &r, int64_t at, int64_t n, float v[8])
{
	for (int i = 0; i < 8; i++)
		v[i] = at + i < n ? gpk_at(r, at + i) : 0;
}

GPK_DEVICE void gpk_at8(const gpk_run<float> &r, int64_t at, int64_t n, float v[8])
{
	gpk_load8(r.x, at, n, 0, v);
}

template <typename Run> GPK_DEVICE void gpk_set8(const Run &r, int64_t at, int64_t n, const float v[8])
{
	for (int i = 0; i < 8; i++)
		if (at + i < n)
			gpk_set(r, at + i, v[i]);
}

GPK_DEVICE void gpk_set8(const gpk_run<float> &r, int64_t at, int64_t n, const float v[8])
{
	gpk_store4(r.x, at, n, v);
	gpk_store4(r.x, at + 4, n, v + 4);
}

/* --- draws --------------------------------------------------------------------------------------------------------- */

/* For codecs that round stochastically: the run's element i takes draw first + i of `stream` (gpk_rng_block with seed 0);
 * `first` is a multiple of 8. */
struct gpk_store_draws {
	uint64_t stream, first;
};
/* For what is never rounded stochastically. */
#define GPK_NO_DRAWS (gpk_store_draws{0, 0})

/* --- what is not representable ------------------------------------------------------------------------------------ */

/* On: magnitudes up to `most`, and 0 in place of NaN. */
struct gpk_limit {
	bool on;
	float most;
};

GPK_DEVICE float gpk_limited(float v, struct gpk_limit l)
{
	if (!l.on)
		return v;
	return v != v ? 0.0f : v > l.most ? l.most : v < -l.most ? -l.most : v;
}

/* A run whose elements are read so. */
template <typename Run> struct gpk_limited_run {
	const Run &run;
	struct gpk_limit limit;
};

template <typename Run> GPK_DEVICE float gpk_at(const gpk_limited_run<Run> &r, int64_t i)
{
	return gpk_limited(gpk_at(r.run, i), r.limit);
}

template <typename Run> GPK_DEVICE void gpk_at8(const gpk_limited_run<Run> &r, int64_t at, int64_t n, float v[8])
{
	gpk_at8(r.run, at, n, v);
	for (int i = 0; i < 8; i++)
		v[i] = gpk_limited(v[i], r.limit);
}

/* The k-th that is tried, as common/codec/codec_store.c does. */
#define GPK_LIMITS 5
GPK_DEVICE float gpk_limit_of(int k)
{
	return k == 0 ? 0x1.fffffep125f : k == 1 ? 0x1.fffffep116f : k == 2 ? 57344.0f : k == 3 ? 448.0f : 0.0f;
}

/* --- packed codes ------------------------------------------------------------------------------------------------- */

GPK_DEVICE uint32_t gpk_packed_bytes(uint32_t count, int width)
{
	return (count * (uint32_t)width + 7) / 8;
}

/* Words that codes of that width may be moved in, where they begin at a multiple of 4 bytes. */
template <typename T> GPK_DEVICE void gpk_get_packed(const uint8_t *from, int bytes, uint64_t *low, uint64_t *high)
{
	const int bits = 8 * (int)sizeof(T);
	for (int i = 0; i * (int)sizeof(T) < bytes; i++) {
		const uint64_t word = reinterpret_cast<const T *>(from)[i];
		if (i * bits < 64)
			*low |= word << (i * bits);
		else
			*high |= word << (i * bits - 64);
	}
}

/* Eight codes, of which the first has that number: `bytes` are those of all `codes`, behind which nothing is touched. */
GPK_DEVICE void gpk_put_group(uint8_t *codes, int width, uint32_t first, uint32_t bytes, const unsigned code[8])
{
	const uint32_t at = first / GPK_STORE_GROUP * (uint32_t)width;
	uint64_t low, high;
	gpk_pack8(code, width, &low, &high);
	if (at + (uint32_t)width > bytes)
		gpk_put_packed<uint8_t>(codes + at, (int)(bytes - at), low, high);
	else if (width % 4 == 0)
		gpk_put_packed<uint32_t>(codes + at, width, low, high);
	else if (width % 2 == 0)
		gpk_put_packed<uint16_t>(codes + at, width, low, high);
	else
		gpk_put_packed<uint8_t>(codes + at, width, low, high);
}

/* Those behind the last are 0. */
GPK_DEVICE void gpk_get_group(const uint8_t *codes, int width, uint32_t first, uint32_t bytes, unsigned code[8])
{
	const uint32_t at = first / GPK_STORE_GROUP * (uint32_t)width;
	const unsigned mask = (1u << width) - 1;
	uint64_t low = 0, high = 0;
	if (at + (uint32_t)width > bytes)
		gpk_get_packed<uint8_t>(codes + at, (int)(bytes - at), &low, &high);
	else if (width % 4 == 0)
		gpk_get_packed<uint32_t>(codes + at, width, &low, &high);
	else if (width % 2 == 0)
		gpk_get_packed<uint16_t>(codes + at, width, &low, &high);
	else
		gpk_get_packed<uint8_t>(codes + at, width, &low, &high);
	for (int i = 0; i < GPK_STORE_GROUP; i++) {
		const int bit = i * width;
		uint64_t v = bit < 64 ? low >> bit : high >> (bit - 64);
		if (bit < 64 && bit + width > 64)
			v |= high << (64 - bit);
		code[i] = (unsigned)v & mask;
	}
}

/* One code that begins at any bit. */
GPK_DEVICE unsigned gpk_get_code(const uint8_t *packed, int width, uint32_t number)
{
	const uint32_t bit = number * (uint32_t)width;
	const int shift = (int)(bit % 8);
	const uint8_t *const from = packed + bit / 8;
	uint32_t held = 0;
	for (int i = 0; 8 * i < shift + width; i++)
		held |= (uint32_t)from[i] << (8 * i);
	return held >> shift & ((1u << width) - 1);
}

/* Words of 4 bytes, at a multiple of 4. */
GPK_DEVICE uint32_t gpk_get_word(const uint8_t *from)
{
	return *reinterpret_cast<const uint32_t *>(from);
}

GPK_DEVICE void gpk_put_word(uint8_t *to, uint32_t v)
{
	*reinterpret_cast<uint32_t *>(to) = v;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Pixels and planes, by tiles of 16 pixels and 16 channels. See plane_loops.h.
 * Test: tests/unit/test_codec_rans_planes.c
 */
#include "kernels/loops/plane_loops.h"

#include "kernels/loops/simd.h"

enum { TILE = 16 };

typedef uint8_t vec __attribute__((vector_size(TILE)));

#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else /* before 12, gcc has no other */
#define PICK(a, b, ...) __builtin_shuffle(a, b, (vec){__VA_ARGS__})
#endif

GP_INLINE vec load(const uint8_t *p)
{
	vec v;
	__builtin_memcpy(&v, p, TILE);
	return v;
}

GP_INLINE void store(vec v, uint8_t *p)
{
	__builtin_memcpy(p, &v, TILE);
}

GP_INLINE vec first_halves(vec a, vec b)
{
	return PICK(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

GP_INLINE vec second_halves(vec a, vec b)
{
	return PICK(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/* Rows become columns: byte c of row r has the number 16 r + c, 8 bits, and each round rotates them to the left by one, so that
 * four rounds exchange r and c. */
GP_INLINE void turn(vec *v)
{
	for (int round = 0; round < 4; round++) {
		vec t[TILE];
#pragma GCC unroll 8
		for (int i = 0; i < TILE / 2; i++) {
			t[2 * i] = first_halves(v[i], v[i + TILE / 2]);
			t[2 * i + 1] = second_halves(v[i], v[i + TILE / 2]);
		}
#pragma GCC unroll 16
		for (int i = 0; i < TILE; i++)
			v[i] = t[i];
	}
}

GP_INLINE void split_tile(const uint8_t *pixels, size_t channels, const size_t *place, uint8_t *planes)
{
	vec v[TILE];
	for (size_t i = 0; i < TILE; i++)
		v[i] = load(pixels + i * channels);
	turn(v);
	for (size_t i = 0; i < TILE; i++)
		store(v[i], planes + place[i]);
}

GP_INLINE void join_tile(const uint8_t *planes, size_t channels, const size_t *place, uint8_t *pixels)
{
	vec v[TILE];
	for (size_t i = 0; i < TILE; i++)
		v[i] = load(planes + place[i]);
	turn(v);
	for (size_t i = 0; i < TILE; i++)
		store(v[i], pixels + i * channels);
}

/* The last tile ends with n: what it has in common with the one before is written twice. */
GP_INLINE size_t begin_of(size_t at, size_t n)
{
	return at + TILE <= n ? at : n - TILE;
}

GP_INLINE void split_body(const uint8_t *pixels, size_t n, size_t channels, const size_t *place, uint8_t *planes)
{
	if (n < TILE || channels < TILE) {
		for (size_t c = 0; c < channels; c++)
			for (size_t i = 0; i < n; i++)
				planes[place[c] + i] = pixels[i * channels + c];
		return;
	}
	for (size_t at = 0; at < n; at += TILE)
		for (size_t c = 0; c < channels; c += TILE) {
			const size_t i = begin_of(at, n), k = begin_of(c, channels);
			split_tile(pixels + i * channels + k, channels, place + k, planes + i);
		}
}

GP_INLINE void join_body(const uint8_t *planes, size_t n, size_t channels, const size_t *place, uint8_t *pixels)
{
	if (n < TILE || channels < TILE) {
		for (size_t c = 0; c < channels; c++)
			for (size_t i = 0; i < n; i++)
				pixels[i * channels + c] = planes[place[c] + i];
		return;
	}
	for (size_t at = 0; at < n; at += TILE)
		for (size_t c = 0; c < channels; c += TILE) {
			const size_t i = begin_of(at, n), k = begin_of(c, channels);
			join_tile(planes + i, channels, place + k, pixels + i * channels + k);
		}
}

GP_CPU_CLONES(split, (const uint8_t *pixels, size_t n, size_t channels, const size_t *place, uint8_t *planes),
	      (pixels, n, channels, place, planes))
GP_CPU_CLONES(join, (const uint8_t *planes, size_t n, size_t channels, const size_t *place, uint8_t *pixels),
	      (planes, n, channels, place, pixels))

void gp_planes_split(const uint8_t *pixels, size_t n, size_t channels, const size_t *place, uint8_t *planes)
{
	split(pixels, n, channels, place, planes);
}

void gp_planes_join(const uint8_t *planes, size_t n, size_t channels, const size_t *place, uint8_t *pixels)
{
	join(planes, n, channels, place, pixels);
}

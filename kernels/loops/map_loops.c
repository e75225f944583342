/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of codes and what their neighbours foretell. See map_loops.h.
 * Test: tests/unit/test_codec_rans_map.c
 */
#include "kernels/loops/map_loops.h"

#include "kernels/loops/simd.h"

/* Where corner lies between left and up, left + up - corner does, too, and does not leave the range of a byte. */
GP_INLINE uint8_t foretell(uint8_t left, uint8_t up, uint8_t corner)
{
	const uint8_t most = left > up ? left : up, least = left > up ? up : left;
	const uint8_t between = (uint8_t)(left + up - corner);
	return corner >= most ? least : corner <= least ? most : between;
}

GP_INLINE void differences(const uint8_t *restrict row, const uint8_t *restrict before, size_t n, uint8_t mask,
			   uint8_t *restrict out)
{
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)(row[i] - before[i]) & mask;
}

/* A row is there: no pixel needs the one before. */
GP_INLINE void residuals_foretold(const uint8_t *row, const uint8_t *left, const uint8_t *up, const uint8_t *corner,
				  size_t n, uint8_t mask, uint8_t *restrict out)
{
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)(row[i] - foretell(left[i], up[i], corner[i])) & mask;
}

GP_INLINE void residuals_body(const uint8_t *row, const uint8_t *up, size_t n, size_t channels, uint8_t mask,
			      uint8_t *restrict out)
{
	const size_t first = channels < n ? channels : n;
	if (up)
		differences(row, up, first, mask, out);
	else
		__builtin_memcpy(out, row, first);
	if (!up && n > first)
		differences(row + first, row, n - first, mask, out + first);
	if (up && n > first)
		residuals_foretold(row + first, row, up + first, up, n - first, mask, out + first);
}

/* Channels that are restored in one go. Pixels have 16 and more of them, mostly, and few are a multiple of 64. */
typedef uint8_t vec __attribute__((vector_size(16)));
typedef uint8_t half __attribute__((vector_size(8)));

/* foretell, where `choose` takes the first of two where a mask of vectors has all bits. */
#define FORETELL(type, name)                                                                                           \
	GP_INLINE type choose_##name(type mask, type a, type b)                                                        \
	{                                                                                                              \
		return (a & mask) | (b & ~mask);                                                                       \
	}                                                                                                              \
	GP_INLINE void restore_##name(uint8_t *row, const uint8_t *left, const uint8_t *up, const uint8_t *corner,     \
				      uint8_t mask)                                                                    \
	{                                                                                                              \
		type r, l, u, c;                                                                                       \
		__builtin_memcpy(&r, row, sizeof r);                                                                   \
		__builtin_memcpy(&l, left, sizeof l);                                                                  \
		__builtin_memcpy(&u, up, sizeof u);                                                                    \
		__builtin_memcpy(&c, corner, sizeof c);                                                                \
		const type above = (type)(l > u), most = choose_##name(above, l, u),                                   \
			   least = choose_##name(above, u, l);                                                         \
		const type inner = choose_##name((type)(c <= least), most, l + u - c);                                 \
		r = (r + choose_##name((type)(c >= most), least, inner)) & mask;                                       \
		__builtin_memcpy(row, &r, sizeof r);                                                                   \
	}

FORETELL(vec, vec)
FORETELL(half, half)

GP_INLINE void sums(uint8_t *restrict row, const uint8_t *restrict before, size_t n, uint8_t mask)
{
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		row[i] = (uint8_t)(row[i] + before[i]) & mask;
}

GP_INLINE void restore_pixel(uint8_t *row, const uint8_t *up, size_t channels, uint8_t mask)
{
	const uint8_t *left = row - channels, *corner = up - channels;
	size_t k = 0;
	for (; k + sizeof(vec) <= channels; k += sizeof(vec))
		restore_vec(row + k, left + k, up + k, corner + k, mask);
	for (; k + sizeof(half) <= channels; k += sizeof(half))
		restore_half(row + k, left + k, up + k, corner + k, mask);
	for (; k < channels; k++)
		row[k] = (uint8_t)(row[k] + foretell(left[k], up[k], corner[k])) & mask;
}

/* A pixel after the other, as each needs the one before. */
GP_INLINE void restore_body(uint8_t *row, const uint8_t *up, size_t n, size_t channels, uint8_t mask)
{
	if (up)
		sums(row, up, channels < n ? channels : n, mask);
	for (size_t i = channels; i < n; i += channels) {
		if (up)
			restore_pixel(row + i, up + i, channels, mask);
		else
			sums(row + i, row + i - channels, channels, mask);
	}
}

GP_CPU_CLONES(residuals, (const uint8_t *row, const uint8_t *up, size_t n, size_t channels, uint8_t mask, uint8_t *out),
	      (row, up, n, channels, mask, out))
GP_CPU_CLONES(restore, (uint8_t * row, const uint8_t *up, size_t n, size_t channels, uint8_t mask),
	      (row, up, n, channels, mask))

void gp_map_residuals(const uint8_t *row, const uint8_t *up, size_t n, size_t channels, uint8_t mask, uint8_t *out)
{
	residuals(row, up, n, channels, mask, out);
}

void gp_map_restore(uint8_t *row, const uint8_t *up, size_t n, size_t channels, uint8_t mask)
{
	restore(row, up, n, channels, mask);
}

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
	for (size_t i = first; up && i < n; i += channels)
#pragma omp simd
		for (size_t k = 0; k < channels; k++)
			out[i + k] = (uint8_t)(row[i + k] -
					       foretell(row[i + k - channels], up[i + k], up[i + k - channels])) &
				     mask;
}

GP_INLINE void sums(uint8_t *restrict row, const uint8_t *restrict before, size_t n, uint8_t mask)
{
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		row[i] = (uint8_t)(row[i] + before[i]) & mask;
}

GP_INLINE void sums_foretold(uint8_t *restrict row, const uint8_t *restrict left, const uint8_t *restrict up,
			     const uint8_t *restrict corner, size_t n, uint8_t mask)
{
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		row[i] = (uint8_t)(row[i] + foretell(left[i], up[i], corner[i])) & mask;
}

/* A pixel after the other, as each needs the one before. */
GP_INLINE void restore_body(uint8_t *row, const uint8_t *up, size_t n, size_t channels, uint8_t mask)
{
	if (up)
		sums(row, up, channels < n ? channels : n, mask);
	for (size_t i = channels; i < n; i += channels) {
		if (up)
			sums_foretold(row + i, row + i - channels, up + i, up + i - channels, channels, mask);
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

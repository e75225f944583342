/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of a piece of a parameter (piece.h) on the device. Only for k_*.cu and
 * gpk_*.h.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_stored.c
 */
#ifndef GPK_PIECE_H
#define GPK_PIECE_H

#include "kernels/cuda/codec/piece.h"
#include "kernels/cuda/runtime/gpk.h"

GPK_DEVICE int gpk_piece_elements(const struct gpk_piece &p)
{
	const int64_t left = p.count - p.first;
	return (int)(left < GPK_STORE_BLOCK ? left : (int64_t)GPK_STORE_BLOCK);
}

/* Where the piece's element i lies among all parameters. */
GPK_DEVICE int64_t gpk_piece_place(const struct gpk_piece &p, int64_t i)
{
	int64_t left = p.first + i, place = p.at;
	if (p.dim[0] == 0)
		return place + left;
	for (int axis = 3; axis > 0; axis--) {
		place += left % p.dim[axis] * p.step[axis];
		left /= p.dim[axis];
	}
	return place + left * p.step[0];
}

#endif

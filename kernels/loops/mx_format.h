/* SPDX-License-Identifier: Apache-2.0
 *
 * The small floating-point numbers of the MX formats and of NVFP4, as constants
 * for loops that are compiled once for each. Formats: common/CODECS.md.
 *
 * Threads: any; these are constants. Test: tests/unit/test_codec_block.c
 */
#ifndef GP_MX_FORMAT_H
#define GP_MX_FORMAT_H

#include "kernels/loops/block_loops.h"

/* A format of `exponent` and `mantissa` bits: largest number and smallest normal one as bits of a float. */
struct gp_mx_small {
	int exponent, mantissa, bias, emax;
	int32_t largest, normal, numbers; /* magnitudes from `numbers` on are none */
	float step;                       /* of the subnormals */
};

static const struct gp_mx_small gp_mx_smalls[GP_MX_FORMATS] = {
	[GP_MX_E2M1] = {2, 1, 1, 2, 0x40c00000, 0x3f800000, 8, 0x1p-1f},
	[GP_MX_E2M3] = {2, 3, 1, 2, 0x40f00000, 0x3f800000, 32, 0x1p-3f},
	[GP_MX_E3M2] = {3, 2, 3, 4, 0x41e00000, 0x3e800000, 32, 0x1p-4f},
	[GP_MX_E4M3] = {4, 3, 7, 8, 0x43e00000, 0x3c800000, 0x7f, 0x1p-9f},
	[GP_MX_E5M2] = {5, 2, 15, 15, 0x47600000, 0x38800000, 0x7c, 0x1p-16f},
};

#endif

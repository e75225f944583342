/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks with a scale, coded and packed in registers, with AVX2 (and F16C). The loops are in
 * packed_body.h. Test: tests/unit/test_packed_loops.c
 */
#include "kernels/loops/packed_loops.h"

#include "kernels/loops/packed_vec_avx2.h"

#include "kernels/loops/codec_loops.h"

static const struct gp_packed_parts parts = {&gp_block_loops_avx2, &gp_codec_loops_avx2};

#include "kernels/loops/packed_body.h"

const struct gp_packed_loops gp_packed_loops_avx2 = GP_PACKED_LOOPS;

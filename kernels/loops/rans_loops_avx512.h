/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two AVX-512 versions of the loops of rans_loops.h share.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test: tests/unit/test_codec_rans_loops.c
 */
#ifndef GP_RANS_LOOPS_AVX512_H
#define GP_RANS_LOOPS_AVX512_H

#include "kernels/loops/rans_loops.h"

/* For AVX-512 with VBMI, VBMI2 and BITALG; gp_rans_loops_vbmi knows whether this processor has them. */
extern const struct gp_rans_loops gp_rans_loops_vbmi_avx512;

bool gp_rans_fill_avx512(uint8_t *symbols, size_t n, uint8_t escape, const uint8_t **listed, const uint8_t *end);
void gp_rans_narrow_avx512(const uint16_t *codes, size_t n, uint8_t *symbols);
void gp_rans_widen_avx512(const uint8_t *symbols, size_t n, uint16_t *codes);

#endif

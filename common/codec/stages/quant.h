/* SPDX-License-Identifier: Apache-2.0
 *
 * What `uniform` and `sortquant` share: a table of (min, step) per partition
 * and packed codes behind it, as a payload. Layout: CODECS.md.
 *
 * Threads: one at a time, as for the codec that uses it (common/codec/codec.h). Test:
 * tests/unit/test_codec.c
 */
#ifndef GP_CODEC_QUANT_H
#define GP_CODEC_QUANT_H

#include "common/codec/codec_impl.h"
#include "kernels/loops/codec_loops.h"

/* Payload bytes of n elements. */
uint64_t gp_quant_bytes(int bits, int split, uint64_t n);
/* Partition p covers min..max. False when its levels cannot be computed in fp32 (max - min overflows). */
bool gp_quant_set(struct gp_quant_table *t, int p, float min, float max);
/* Writes gp_quant_bytes(...) bytes. Elements are in t->min[0]..max. */
void gp_quant_write(const struct gp_codec_loops *loops, const struct gp_quant_table *t, float max, const float *x,
		    uint64_t n, uint8_t *out);
/* t->bits and t->split are given, the rest is read. GP_PROTO for a wrong length, for a table that gives values that are
 * not finite and for bits set behind the last code. */
enum gp_status gp_quant_read_table(struct gp_quant_table *t, struct gp_span in, uint64_t n, struct gp_err *err);
/* The same, and the elements. */
enum gp_status gp_quant_read(const struct gp_codec_loops *loops, struct gp_quant_table *t, struct gp_span in,
			     uint64_t n, float *x, struct gp_err *err);

#endif

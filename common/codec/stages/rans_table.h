/* SPDX-License-Identifier: Apache-2.0
 *
 * The frequencies of the symbols of a piece, out of 4096, as `rans` codes with them
 * and sends them. A symbol that is too rare for a frequency of its own, or that is
 * not in the sample, is coded as the escape, and listed. All in integers, so that
 * every machine makes the same table. Layout: common/CODECS.md, section rans.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_codec_rans_loops.c
 */
#ifndef GP_RANS_TABLE_H
#define GP_RANS_TABLE_H

#include "common/codec/codec_impl.h"
#include "kernels/loops/rans_loops.h"

enum { GP_RANS_SYMBOLS = 256, GP_RANS_TABLE_BYTES = 4 + 2 * GP_RANS_SYMBOLS };

struct gp_rans_table {
	uint16_t freq[GP_RANS_SYMBOLS]; /* add up to 4096; 0: the symbol has no frequency */
	bool escapes;                   /* some symbol of the width has no frequency */
	uint8_t escape;                 /* the symbol that stands for those; itself one of them */
};

/* Makes the table of symbols of `width` 1..8 bits from counts that add up to total, 1 to 2^32 - 1. */
void gp_rans_table_fit(struct gp_rans_table *t, const uint32_t *counts, uint64_t total, int width);
/* Bits that symbols of these counts take, to the next 1/256, listed symbols' bytes included; times 256. */
uint64_t gp_rans_table_cost(const struct gp_rans_table *t, const uint32_t *counts);
/* log2(v) * 256, rounded down, 1 <= v <= 4096. */
unsigned gp_rans_log2(unsigned v);
/* For encoding. What decoding needs, the loops make of `freq`. */
void gp_rans_table_entries(const struct gp_rans_table *t, uint32_t *entry);
/* Returns the bytes written, at most GP_RANS_TABLE_BYTES. */
size_t gp_rans_table_write(const struct gp_rans_table *t, uint8_t *out);
/* Cuts a table off `in`. GP_PROTO: none that symbols of this width can have. */
enum gp_status gp_rans_table_read(struct gp_rans_table *t, struct gp_span *in, int width, struct gp_err *err);

#endif

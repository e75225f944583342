/* SPDX-License-Identifier: Apache-2.0
 *
 * `rans:predict=map`: packed codes of feature maps (N,H,W,C) become what is left of
 * them when each is foretold from its neighbours (kernels/loops/map_loops.h), packed
 * likewise, and back. A sample says whether that will take fewer bits.
 * Layout: common/CODECS.md, section rans.
 *
 * Threads: one at a time. Test: tests/unit/test_codec_rans_map.c
 */
#ifndef GP_RANS_MAP_H
#define GP_RANS_MAP_H

#include "common/codec/codec_impl.h"
#include "common/codec/stages/rans_table.h"
#include "kernels/loops/codec_loops.h"

struct gp_rans_map {
	size_t row, channels;     /* codes of a row and of a pixel */
	uint64_t rows, image;     /* rows of the tensor, 0: it is none that can be foretold; and of an image */
	uint8_t *line[3];         /* of `row` codes each */
	uint16_t *unpacked;       /* of `row` codes */
	uint8_t *residuals;       /* as many bytes as a payload has; NULL on an end that only decodes */
	struct gp_rans_table fit; /* of the sample */
	struct gp_rans_counts of_codes, of_residuals;
	const struct gp_rans_loops *loops;
	const struct gp_codec_loops *packing;
};

/* Bytes that open takes, for payloads of up to setup->n bytes. */
uint64_t gp_rans_map_bytes(const struct gp_codec_setup *setup);
enum gp_status gp_rans_map_open(struct gp_rans_map *m, const struct gp_codec_setup *setup, struct gp_err *err);
void gp_rans_map_close(struct gp_rans_map *m);
/* Codes of the tensor; 0: of such a tensor nothing is foretold. */
uint64_t gp_rans_map_codes(const struct gp_rans_map *m);
/*
 * `in` with residuals in place of `codes`, which are gp_rans_map_codes and lie in it, in memory of `m`. False: they would take
 * no fewer bits, or the pass is to end.
 */
bool gp_rans_map_foretell(struct gp_rans_map *m, const struct gp_codec_pass *pass, const struct gp_codec_codes *codes,
			  struct gp_span in, struct gp_span *out);
/* The codes of `width` bits from `bytes` on, of which residuals are there. GP_CANCELED. */
enum gp_status gp_rans_map_restore(struct gp_rans_map *m, const struct gp_codec_pass *pass, int width, uint8_t *bytes,
				   struct gp_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What `rans` does to the packed codes of a tensor before it codes them, and back:
 * with predict=map codes of feature maps (N,H,W,C) become what is left of them when
 * each is foretold from its neighbours (kernels/loops/map_loops.h); with
 * tables=channel the codes of each channel, the last dimension, come one after
 * another (kernels/loops/plane_loops.h), so that channels have tables of their own
 * (rans_channels.h). A sample says which of them will take fewer bits.
 * Layout: common/CODECS.md, section rans.
 *
 * Threads: one at a time. Test: tests/unit/test_codec_rans_map.c, test_codec_rans_planes.c
 */
#ifndef GP_RANS_ORDER_H
#define GP_RANS_ORDER_H

#include "common/codec/codec_impl.h"
#include "common/codec/stages/rans_channels.h"
#include "common/codec/stages/rans_table.h"
#include "kernels/loops/codec_loops.h"

/* What was done to codes: bits of a body's first byte. */
enum { GP_RANS_FORETOLD = 1 << 4, GP_RANS_PLANES = 1 << 5 };

struct gp_rans_order {
	bool predict, tables;      /* the keys; `tables`: and the tensor has as many channels as there may be */
	bool predicts, by_channel; /* what can be done to codes of the tensors of these passes */
	size_t channels;
	size_t row; /* codes of a row, a multiple of 8; where nothing is foretold, any 8 to 64 pixels are one */
	uint64_t rows, image; /* rows of the tensor, 0: nothing can be done; and of an image */
	size_t room;          /* codes for which there is memory in a line */
	uint8_t *line[3];
	uint16_t *unpacked; /* of a row */
	uint8_t *arranged;  /* as many bytes as a payload has; NULL on an end that only decodes */
	uint8_t *planes;    /* a byte for each code; NULL without `tables` */
	size_t *place;      /* of each channel: where its plane begins in `planes`; NULL without `tables` */
	struct gp_rans_channels groups;
	struct gp_rans_table fit; /* of the sample */
	struct gp_rans_counts counts[GP_RANS_KINDS];
	uint64_t counted; /* rows */
	const struct gp_rans_loops *loops;
	const struct gp_codec_loops *packing;
};

/* Bytes that open takes, for payloads of up to setup->n bytes. The two flags are the keys. */
uint64_t gp_rans_order_bytes(const struct gp_codec_setup *setup, bool predict, bool tables);
/* GP_NOMEM; *o is to be closed then, too. */
enum gp_status gp_rans_order_open(struct gp_rans_order *o, const struct gp_codec_setup *setup, bool predict,
				  bool tables, struct gp_err *err);
void gp_rans_order_close(struct gp_rans_order *o);
/* From here on tensors have this shape, of no more elements than that of open and with its last dimension; one of a single
 * dimension is that of pixels of that tensor, one after another. Nothing is done to tensors of other shapes. */
void gp_rans_order_reshape(struct gp_rans_order *o, const struct gp_shape *shape);
/* Codes of the tensor; 0: nothing can be done to them. */
uint64_t gp_rans_order_codes(const struct gp_rans_order *o);
/* Codes of a channel, where there are codes. */
uint64_t gp_rans_order_pixels(const struct gp_rans_order *o);
/*
 * Returns what was done to `codes`, which are gp_rans_order_codes and lie in `in`: *out is `in` with the others in their place,
 * in memory of `o`, until the next call. With GP_RANS_PLANES *plan says how the channels follow each other. 0: they are to
 * stay as they are, or the pass is to end; *out is as it was.
 */
int gp_rans_order_arrange(struct gp_rans_order *o, const struct gp_codec_pass *pass, const struct gp_codec_codes *codes,
			  struct gp_span in, struct gp_span *out, const struct gp_rans_plan **plan);
/* For GP_RANS_PLANES: the channel of each plane, u16 each, is cut off `in`. GP_PROTO: not each channel once. */
enum gp_status gp_rans_order_read(struct gp_rans_order *o, struct gp_span *in, struct gp_err *err);
/* Undoes `done` to the codes of `width` bits from `bytes` on. GP_CANCELED. */
enum gp_status gp_rans_order_restore(struct gp_rans_order *o, const struct gp_codec_pass *pass, int done, int width,
				     uint8_t *bytes, struct gp_err *err);

#endif

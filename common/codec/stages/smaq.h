/* SPDX-License-Identifier: Apache-2.0
 *
 * What `smaq` of the host and of devices share: scales, sizes, and the head of
 * a payload. Layout: CODECS.md.
 *
 * Threads: any (pure functions). Test: tests/unit/test_codec_smaq.c
 */
#ifndef GP_CODEC_SMAQ_H
#define GP_CODEC_SMAQ_H

#include "common/codec/codec_impl.h"
#include "kernels/loops/draw_loops.h"
#include "kernels/loops/smaq_loops.h"

enum { GP_SMAQ_HEAD = 12 };

/* Standard deviations up to which a code has the main width; outliers are clamped at key `reach`. */
#define GP_SMAQ_MAIN_REACH 1.0f

struct gp_smaq_coder {
	uint64_t n;
	int width, extra_width; /* of codes and extras; 0: the extras are all 0, and none is written */
	float reach; /* |mean| + reach * std has to be finite: a little over the key, as the rounding of scales may go over it */
	struct gp_smaq values;
};

/* Everything but mean and deviation. */
void gp_smaq_init(struct gp_smaq_coder *c, const double *value, uint64_t n);
/* Whether it rounds stochastically: an encoder wants a draw for each element. */
bool gp_smaq_draws(const double *value);
/* Bytes of `count` codes of `width` bits. */
uint64_t gp_smaq_packed_bytes(uint64_t count, int width);
/* Whether every value that codes can say is finite. */
bool gp_smaq_usable(const struct gp_smaq_coder *c);
void gp_smaq_write_head(const struct gp_smaq *v, uint64_t count, uint8_t out[GP_SMAQ_HEAD]);
/* Takes mean and deviation, gives codes, extras and the number of these. GP_PROTO: also for bits behind the last ones. How
 * many outliers the codes have is not looked at. */
enum gp_status gp_smaq_read_head(struct gp_smaq_coder *c, struct gp_span in, struct gp_span *codes,
				 struct gp_span *extras, uint64_t *count, struct gp_err *err);

#endif

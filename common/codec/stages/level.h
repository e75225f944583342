/* SPDX-License-Identifier: Apache-2.0
 *
 * What the level quantizers share: the tensor in buckets, a norm each, and
 * packed codes of levels in [-1, 1] that elements are rounded to at random.
 * Does not choose the levels: qsgd.c has fixed ones, alq.c fits
 * them. Formulas and layout: CODECS.md, "Level quantizers".
 *
 * Threads: one at a time, as for the codec that uses it (common/codec/codec.h). Test:
 * tests/unit/test_codec_level.c
 */
#ifndef GP_CODEC_LEVEL_H
#define GP_CODEC_LEVEL_H

#include "common/codec/codec_impl.h"
#include "kernels/loops/codec_loops.h"
#include "kernels/loops/draw_loops.h"
#include "kernels/loops/level_loops.h"

#define GP_LEVEL_BUCKET_MAX 1048576

enum gp_level_norm { GP_LEVEL_L2, GP_LEVEL_LARGEST };

/* Aligned like its table: gp_alloc_aligned. */
struct gp_level_coder {
	uint64_t n, bucket, seed;
	int count, bits; /* levels, and bits of a code: 2^bits >= count */
	enum gp_level_norm norm;
	const struct gp_codec_loops *codes;
	const struct gp_level_loops *loops;
	gp_draw_words *draw;
	struct gp_level_table table;
};

void gp_level_init(struct gp_level_coder *c, const struct gp_codec_setup *setup, int bits, uint64_t bucket,
		   enum gp_level_norm norm);
/* One of the quantizers with fixed levels, from its keys. */
enum gp_level_kind { GP_LEVEL_QSGD, GP_LEVEL_QSGDINF, GP_LEVEL_NUQSGD, GP_LEVEL_TERNGRAD };
void gp_level_init_fixed(struct gp_level_coder *c, enum gp_level_kind kind, const double *value,
			 const struct gp_codec_setup *setup);
/* The levels from now on: ascending from -1 to 1, at most 2^bits. */
void gp_level_set(struct gp_level_coder *c, const float *level, int count);

uint64_t gp_level_buckets(const struct gp_level_coder *c);
/* Bytes of the norms, and of norms and codes. */
uint64_t gp_level_norm_bytes(uint64_t bucket, uint64_t n);
uint64_t gp_level_bytes(int bits, uint64_t bucket, uint64_t n);
/* As `work` of a stage: `element_ns` for an element that is encoded, and what a bucket takes beside its elements. */
uint64_t gp_level_work(uint64_t bucket, const struct gp_codec_setup *setup, uint64_t element_ns);

/* Writes the norms. False when one is not finite: x is not, or is too large. */
bool gp_level_write_norms(const struct gp_level_coder *c, const float *x, uint8_t *norms);
/* Writes the codes behind the norms, `norms` being what gp_level_write_norms wrote. False: the pass was stopped. */
bool gp_level_write_codes(const struct gp_level_coder *c, const struct gp_codec_pass *pass, const float *x,
			  uint8_t *norms);
/* `in`: norms and codes. GP_PROTO for what cannot have been written; the first looks at the length and the last bits. */
enum gp_status gp_level_check(const struct gp_level_coder *c, struct gp_span in, struct gp_err *err);
enum gp_status gp_level_read(const struct gp_level_coder *c, const struct gp_codec_pass *pass, struct gp_span in,
			     float *x, struct gp_err *err);

/* 2^bits levels: evenly spaced; and +-multiplier^j for j below 2^(bits - 1), products in fp32 one after another. */
void gp_level_uniform(float *level, int bits);
void gp_level_exponential(float *level, int bits, float multiplier);

#endif

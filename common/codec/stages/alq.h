/* SPDX-License-Identifier: Apache-2.0
 *
 * What `alq` and `amq` of the host and of devices share: state, which buckets
 * a fit looks at, the fit, and the levels at the head of a payload. Where the
 * elements and norms lie, and how they are coded, is the caller's.
 *
 * Threads: one at a time, as for the codec that uses it (common/codec/codec.h). Test:
 * tests/unit/test_codec_alq.c
 */
#ifndef GP_CODEC_ALQ_H
#define GP_CODEC_ALQ_H

#include "common/codec/stages/level.h"

/* Buckets that a fit looks at, and elements of each. */
enum { GP_ADAPTIVE_ROWS = 64, GP_ADAPTIVE_ROW = 4096 };

struct gp_adaptive {
	int bits, fit;
	bool multiplier; /* amq */
	uint32_t update, chunks;
	struct gp_level_coder *coder;
	/* State of the encoder, per chunk. */
	uint32_t *age; /* passes since the fit, modulo update: 0 asks for one */
	float *fitted; /* 2^bits levels, or a multiplier; all 0 before the first fit */
	/* With undo, the same again. */
	uint32_t *backup_age;
	float *backup_fitted;
};

/* The beginning of a bucket, on the host. */
struct gp_adaptive_row {
	uint64_t first, n; /* elements of the tensor */
	double norm;       /* > 0 */
	const float *x;    /* the caller's: n elements */
};

/* As the slots of struct gp_codec_ops with these names; `value` of either codec. */
enum gp_status gp_adaptive_open(const double *value, const struct gp_codec_setup *setup, bool multiplier,
				struct gp_adaptive **out, struct gp_err *err);
void gp_adaptive_close(struct gp_adaptive *a); /* NULL is fine */
uint64_t gp_adaptive_bytes(const double *value, const struct gp_codec_setup *setup, bool multiplier);
int gp_adaptive_regions(const struct gp_adaptive *a, struct gp_codec_region *out);
bool gp_adaptive_loaded(const struct gp_adaptive *a);

/* Whether this pass fits levels to its tensor: always does one of an evaluation. */
bool gp_adaptive_fits(const struct gp_adaptive *a, const struct gp_codec_pass *pass);
/* For such a pass, from the norms of all buckets (as in the payload): the rows, but for their x. Returns how many: 0 where
 * all drawn ones are zeros. */
int gp_adaptive_sample(const struct gp_adaptive *a, const struct gp_codec_pass *pass, const uint8_t *norms,
		       struct gp_adaptive_row *rows);
/* The coder takes the levels of a pass that does not fit. */
void gp_adaptive_use_last(const struct gp_adaptive *a, const struct gp_codec_pass *pass);
/* The coder takes levels fitted to the rows. The chunk's state of them is moved on, but for an evaluation. */
void gp_adaptive_use_fitted(const struct gp_adaptive *a, const struct gp_codec_pass *pass,
			    const struct gp_adaptive_row *rows, int count);
/* Called for a pass without a fit, once its tensor is known to be coded: the chunk's state moves on. */
void gp_adaptive_passed(const struct gp_adaptive *a, const struct gp_codec_pass *pass);

/* Bytes before the norms: the multiplier, or the levels but for the ends. */
uint64_t gp_adaptive_head_bytes(const struct gp_adaptive *a);
void gp_adaptive_write_head(const struct gp_adaptive *a, uint8_t *out);
/* The coder takes the levels of a payload; `rest` gets what is behind them. GP_PROTO. */
enum gp_status gp_adaptive_read_head(const struct gp_adaptive *a, struct gp_span in, struct gp_span *rest,
				     struct gp_err *err);

#endif

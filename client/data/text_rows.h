/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of a table of texts as tokens, all of them in memory: made once, on
 * several threads, in the table's order whatever their number is.
 *
 * Threads: one makes them, with threads of its own; any may read them then.
 * Test: tests/unit/test_data_texts.c
 */
#ifndef GP_TEXT_ROWS_H
#define GP_TEXT_ROWS_H

#include "client/data/text_table.h"
#include "client/text/tokenizer.h"

struct gp_text_rows { /* start with {0} */
	struct gp_text_part *part;
	uint32_t parts, rows_per_part;
	int longest;  /* row, in tokens */
	uint32_t cut; /* rows that had more than `most` tokens */
};

struct gp_text_making {
	int64_t threads;   /* at most; 0: one for each processor */
	const char *cache; /* (optional) a folder: text_cache.h */
	/* (optional) On the caller's thread, after each part of the rows that this one has made. */
	void (*progress)(void *arg, uint32_t done, uint32_t of);
	void *progress_arg;
};

/* Rows of at most `most` tokens. Errors name the line of `path`. */
enum gp_status gp_text_rows_make(const struct gp_tokenizer *t, const char *path, const struct gp_table *table, int most,
				 const struct gp_text_making *how, struct gp_text_rows *out, struct gp_err *err);
/* Rows that were made before: `bytes` has a u32, little-endian, for the tokens of each row, one for those of segment 0, and
 * one for each token. The caller has compared them with what is possible. */
enum gp_status gp_text_rows_restore(const uint8_t *bytes, uint32_t count, uint32_t cut, struct gp_text_rows *out,
				    struct gp_err *err);
void gp_text_rows_deinit(struct gp_text_rows *r);
/* The tokens of a row, and how many they are. */
const int32_t *gp_text_rows_at(const struct gp_text_rows *r, uint32_t row, int *count);
/* How many of them, the first ones, are of segment 0 (tokenizer.h); the others are of segment 1. */
int gp_text_rows_first_segment(const struct gp_text_rows *r, uint32_t row);

#endif

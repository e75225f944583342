/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of texts: files of lines with a tab between their columns (TSV, without
 * quotation marks that mean something), of which one column holds a text, maybe
 * another the second text of a pair, and one the label.
 *
 * Threads: any, one at a time for a table. Tests: tests/unit/test_data_texts.c;
 * fuzz: fuzz_text_table.c
 */
#ifndef GP_TEXT_TABLE_H
#define GP_TEXT_TABLE_H

#include "common/base/status.h"
#include "common/base/text.h"

#include <stdint.h>

#define GP_TABLE_BYTES_MAX ((size_t)1 << 30)

/* Each names a column by the word above it in the first line, or by its number from 1 on ("4"; then the first line is a
 * row like any other, unless `header`). */
struct gp_table_form {
	const char *text, *pair, *label; /* pair, label: NULL where there is none */
	bool header;                     /* the first line has the names of the columns; needed where one is named */
};

struct gp_table_row {
	struct gp_text text, pair, label; /* in the table's memory; at NULL: not there */
	uint32_t line;                    /* from 1 on, in the file */
};

struct gp_table { /* start with {0} */
	char *memory;
	struct gp_table_row *row;
	uint32_t rows;
};

#define GP_TABLE_WHY 240

/* Who is told of bad rows, in their order; these are left out of the table. */
struct gp_table_watch {
	/* (optional) Of a row of the right form: false, and why not, where it is bad nevertheless. */
	bool (*judge)(void *arg, const struct gp_table_row *row, char why[GP_TABLE_WHY]);
	void (*tell)(void *arg, uint32_t line, const char *why);
	void *arg;
};

/* GP_INVALID names the file, its line and what is wrong: a column that is not there, a row without it, an empty text or
 * label. Empty lines are left out. */
enum gp_status gp_table_read(const char *path, const struct gp_table_form *form, struct gp_table *out,
			     struct gp_err *err);
/* The same, which goes on behind a bad row. There may be no row in the end. */
enum gp_status gp_table_read_watched(const char *path, const struct gp_table_form *form,
				     const struct gp_table_watch *watch, struct gp_table *out, struct gp_err *err);
void gp_table_deinit(struct gp_table *t);

#endif

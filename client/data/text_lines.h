/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts without labels: the lines of files or of standard input, each a text, or
 * with a tab in it a pair of texts.
 *
 * Threads: any, one at a time for a list. Test: tests/unit/test_data_texts.c
 */
#ifndef GP_TEXT_LINES_H
#define GP_TEXT_LINES_H

#include "client/data/text_table.h"

#define GP_STANDARD_INPUT "-"

/* A line that is no text: blank, too long, half a pair, or three texts. */
struct gp_bad_line {
	const char *path;   /* among those that were given */
	const char *why;    /* static */
	uint32_t line, row; /* `row`: how many rows stand before it */
};

struct gp_text_lines {           /* start with {0} */
	struct gp_table table;   /* without labels; its memory is that of all files */
	const char **path;       /* of each row, among those that were given */
	struct gp_bad_line *bad; /* in their order */
	uint32_t bad_count;
	char **memory; /* of each file */
	int files;
};

/* Every line that is not empty, of all files in their order; the paths must outlive it, "-" is standard input. There may be
 * bad lines alone, and no row. GP_INVALID names the file: it is no text, or there is nothing in any of them. */
enum gp_status gp_text_lines_read(const char *const *path, int count, struct gp_text_lines *out, struct gp_err *err);
void gp_text_lines_deinit(struct gp_text_lines *l);

#endif

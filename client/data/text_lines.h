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

struct gp_text_lines {         /* start with {0} */
	struct gp_table table; /* without labels; its memory is that of all files */
	const char **path;     /* of each row, among those that were given */
	char **memory;         /* of each file */
	int files;
};

/* Every line that is not empty, of all files in their order; the paths must outlive it, "-" is standard input. GP_INVALID
 * names the file, and the line: no text at all, one that is too long, half a pair. */
enum gp_status gp_text_lines_read(const char *const *path, int count, struct gp_text_lines *out, struct gp_err *err);
void gp_text_lines_deinit(struct gp_text_lines *l);

#endif

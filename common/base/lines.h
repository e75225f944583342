/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of a text file that somebody wrote by hand, one after another, with
 * their numbers. A line that is too long, or holds a zero byte, is an error: so
 * are files without an end, such as /dev/zero.
 *
 * Threads: any, one at a time for a file. Test: tests/unit/test_token_file.c, tests/unit/test_limits.c
 */
#ifndef GP_LINES_H
#define GP_LINES_H

#include "common/base/status.h"

struct gp_lines {
	FILE *file;
	const char *path; /* the caller's */
	int line;         /* of the one that was read last; 1 is the first */
};

/* GP_INVALID: it cannot be opened. Ends with gp_lines_close. */
enum gp_status gp_lines_open(struct gp_lines *l, const char *path, struct gp_err *err);
void gp_lines_close(struct gp_lines *l);
/* The next line, with what ends it, into text[size]; *more is false at the end of the file. GP_INVALID has "PATH:LINE: ". */
enum gp_status gp_lines_next(struct gp_lines *l, char *text, int size, bool *more, struct gp_err *err);

#endif

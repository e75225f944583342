/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that is there whole or not at all: it is written under a name of its own beside the place that it is for, and
 * gets its name when all of it is written. What was there before stays until then. Symbolic links at its place are
 * followed.
 *
 * Threads: any, one at a time for a file. Test: tests/unit/test_new_file.c
 */
#ifndef GP_NEW_FILE_H
#define GP_NEW_FILE_H

#include <limits.h>

#include "common/base/status.h"

struct gp_new_file {
	int fd; /* to write to */
	char target[PATH_MAX], temp[PATH_MAX];
};

/* GP_INVALID: what is there is no regular file, or no file can be made beside it. */
enum gp_status gp_new_file_begin(struct gp_new_file *f, const char *path, struct gp_err *err);
/* `written` GP_OK: the file gets its name; else, and where that fails, nothing of it stays. Returns `written`, with *err as
 * it is, or why it has no name. */
enum gp_status gp_new_file_end(struct gp_new_file *f, enum gp_status written, struct gp_err *err);
/* Before hours of work, not after: whether gp_new_file_begin could do it. */
enum gp_status gp_new_file_check(const char *path, struct gp_err *err);

#endif

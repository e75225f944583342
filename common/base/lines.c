/* SPDX-License-Identifier: Apache-2.0
 *
 * See lines.h. Test: tests/unit/test_token_file.c, tests/unit/test_limits.c
 */
#include "common/base/lines.h"

#include <errno.h>
#include <string.h>

enum gp_status gp_lines_open(struct gp_lines *l, const char *path, struct gp_err *err)
{
	FILE *f = fopen(path, "r");
	if (!f)
		GP_FAIL(err, GP_INVALID, "%s: %s", path, strerror(errno));
	*l = (struct gp_lines){.file = f, .path = path};
	return GP_OK;
}

void gp_lines_close(struct gp_lines *l)
{
	fclose(l->file);
	l->file = NULL;
}

enum gp_status gp_lines_next(struct gp_lines *l, char *text, int size, bool *more, struct gp_err *err)
{
	*more = fgets(text, size, l->file) != NULL;
	l->line++;
	if (!*more && ferror(l->file))
		GP_FAIL(err, GP_INVALID, "%s: %s", l->path, strerror(errno));
	if (*more && !strchr(text, '\n') && !feof(l->file))
		GP_FAIL(err, GP_INVALID, "%s:%d: a line is at most %d characters of text", l->path, l->line, size - 2);
	return GP_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See new_file.h. Test: tests/unit/test_new_file.c
 */
#include "common/base/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/durable.h"

/* Where `path` leads, links followed, into target[PATH_MAX]. */
static enum gp_status find_target(const char *path, char *target, struct gp_err *err)
{
	struct stat st;
	if (!*path)
		GP_FAIL(err, GP_INVALID, "the name of a file to write is empty");
	if (lstat(path, &st) != 0) { /* nothing is there; whatever else is wrong, creating a file beside it tells */
		if (snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX)
			GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", path);
		return GP_OK;
	}
	if (!realpath(path, target))
		return gp_fail_os(err, GP_INVALID, "follow the link", path);
	if (stat(target, &st) != 0 || !S_ISREG(st.st_mode))
		GP_FAIL(err, GP_INVALID, "%s is there and is not a regular file: it will not be replaced", path);
	return GP_OK;
}

enum gp_status gp_new_file_check(const char *path, struct gp_err *err)
{
	char target[PATH_MAX];
	GP_TRY(find_target(path, target, err));
	if (access(dirname(target), W_OK | X_OK) != 0)
		return gp_fail_os(err, GP_INVALID, "write to the folder of", path);
	return GP_OK;
}

enum gp_status gp_new_file_begin(struct gp_new_file *f, const char *path, struct gp_err *err)
{
	GP_TRY(find_target(path, f->target, err));
	for (unsigned attempt = 0; attempt < 100; attempt++) {
		if (snprintf(f->temp, PATH_MAX, "%s.tmp.%ld.%u", f->target, (long)getpid(), attempt) >= PATH_MAX)
			GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", f->target);
		f->fd = open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (f->fd >= 0)
			return GP_OK;
		if (errno != EEXIST)
			break;
	}
	return gp_fail_os(err, GP_INVALID, "create", errno == EEXIST ? f->temp : f->target);
}

enum gp_status gp_new_file_end(struct gp_new_file *f, enum gp_status written, struct gp_err *err)
{
	if (close(f->fd) != 0 && written == GP_OK)
		written = gp_fail_os(err, GP_IO, "close", f->target);
	if (written == GP_OK && rename(f->temp, f->target) != 0)
		written = gp_fail_os(err, GP_IO, "rename into place", f->target);
	if (written != GP_OK)
		unlink(f->temp);
	return written;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See file_mode.h. Test: tests/unit/test_file_mode.c
 */
#include "common/base/file_mode.h"

#include <sys/stat.h>
#include <unistd.h>

/* As "install -m 640 -g GROUP" by root makes it for a service that is not root: it may read the file, and not change it. */
static bool is_lent(const struct stat *st)
{
	return st->st_uid == 0 && geteuid() != 0 && !(st->st_mode & (S_IWGRP | S_IROTH | S_IWOTH));
}

bool gp_file_is_exposed(const char *path, unsigned *mode)
{
	struct stat st;
	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || !(st.st_mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH)))
		return false;
	if (is_lent(&st))
		return false;
	*mode = st.st_mode & 07777;
	return true;
}

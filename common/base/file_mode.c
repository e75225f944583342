/* SPDX-License-Identifier: Apache-2.0
 *
 * See file_mode.h. Test: tests/unit/test_file_mode.c
 */
#include "common/base/file_mode.h"

#include <sys/stat.h>

bool gp_file_is_exposed(const char *path, unsigned *mode)
{
	struct stat st;
	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || !(st.st_mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH)))
		return false;
	*mode = st.st_mode & 07777;
	return true;
}

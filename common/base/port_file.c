/* SPDX-License-Identifier: Apache-2.0
 *
 * --port-file. See port_file.h. Test: tests/e2e (every script reads one)
 */
#include "common/base/port_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum gp_status gp_port_file_write(const char *path, uint16_t port, struct gp_err *err)
{
	char temporary[4096];
	snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
	FILE *f = fopen(temporary, "w");
	if (!f)
		GP_FAIL(err, GP_INVALID, "--port-file: cannot make %s: %s", path, strerror(errno));
	bool ok = fprintf(f, "%u\n", port) > 0;
	ok = fclose(f) == 0 && ok;
	if (!ok || rename(temporary, path) != 0) {
		unlink(temporary);
		GP_FAIL(err, GP_IO, "--port-file %s: cannot be written", path);
	}
	return GP_OK;
}

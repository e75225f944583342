/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that hold secrets: whether others on this machine may read or change them.
 *
 * Threads: any. Test: tests/unit/test_file_mode.c
 */
#ifndef GP_FILE_MODE_H
#define GP_FILE_MODE_H

#include <stdbool.h>

/* True where the group or the world may read or write the file; *mode is its mode then. False for a file of root that a process
 * which is not root may read as one of its group, and nobody but root may change; for what is no file, as a pipe; and for what
 * is not there: whoever opens it says so. */
bool gp_file_is_exposed(const char *path, unsigned *mode);

/* The warning, for gp_log: what (as "--tls-key"), path, mode and path once more. */
#define GP_FILE_EXPOSED_TEXT "%s: others on this machine may read or change %s (mode %04o): chmod 600 %s"

#endif

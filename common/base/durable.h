/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that survive a crash: writing and reading whole, syncing files and
 * directories, removing a folder of ours. Where GP_FAULT's write, fsync and read
 * strike.
 *
 * Threads: any, one at a time for a file or folder. Tests:
 * tests/unit/test_safetensors.c, tests/unit/test_checkpoint.c
 */
#ifndef GP_DURABLE_H
#define GP_DURABLE_H

#include <dirent.h>

#include "common/base/status.h"

/* GP_FAIL with errno: "cannot DOING PATH: why". */
enum gp_status gp_fail_os(struct gp_err *err, enum gp_status code, const char *doing, const char *path);
/* `path` is for the message. */
enum gp_status gp_write_all(int fd, const void *data, uint64_t len, const char *path, struct gp_err *err);
/* Reads `len` bytes from where the file stands. GP_IO: the disk fails; GP_INVALID: the file ends before. A file is read
 * and not mapped, because a page that the disk cannot give ends the process by SIGBUS. */
enum gp_status gp_read_all(int fd, void *data, uint64_t len, const char *path, struct gp_err *err);
enum gp_status gp_sync_fd(int fd, const char *path, struct gp_err *err);
/* Syncs the directory itself, that is, what was renamed, made or removed in it. One that cannot be synced is no
 * error. */
enum gp_status gp_sync_folder(const char *folder, struct gp_err *err);
/* Writes and syncs a new file with these bytes and mode 0600. It must not be there yet; after a failure a part of it
 * may be. */
enum gp_status gp_write_file(const char *path, const void *data, uint64_t len, struct gp_err *err);
/* opendir with close-on-exec; NULL, and errno says why, where the folder cannot be read. The caller closes it. Threads that
 * share a process with the loop use this one: ThreadSanitizer does not see opendir open a descriptor, and takes whoever had
 * its number before for a rival. */
DIR *gp_open_folder(const char *path);
/* Makes the folder, mode 0700, and those above it; one that is there is fine. */
enum gp_status gp_make_folder(const char *path, struct gp_err *err);
/* Removes a folder and the files in it; folders in it are an error. It is fine when there is none. Where `path` is
 * anything else than a folder, its name is removed, so that what a symbolic link points to stays. */
enum gp_status gp_remove_folder(const char *path, struct gp_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that survive a crash. See durable.h.
 */
#include "common/base/durable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/fault.h"

#define WRITE_BYTES_MAX (1u << 30) /* of one call */
#define READ_BYTES_MAX  (1u << 30)

enum gp_status gp_fail_os(struct gp_err *err, enum gp_status code, const char *doing, const char *path)
{
	int os = errno;
	return gp_err_set(err, code, os, __FILE__, __LINE__, "cannot %s %s: %s", doing, path, strerror(os));
}

enum gp_status gp_write_all(int fd, const void *data, uint64_t len, const char *path, struct gp_err *err)
{
	const uint8_t *p = data;
	while (len) {
		ssize_t n = -1;
		if (gp_fault_hit(GP_FAULT_WRITE))
			errno = ENOSPC;
		else
			n = write(fd, p, len < WRITE_BYTES_MAX ? len : WRITE_BYTES_MAX);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return gp_fail_os(err, GP_IO, "write", path);
		p += n;
		len -= (uint64_t)n;
	}
	return GP_OK;
}

enum gp_status gp_read_all(int fd, void *data, uint64_t len, const char *path, struct gp_err *err)
{
	uint8_t *p = data;
	while (len) {
		ssize_t n = -1;
		if (gp_fault_hit(GP_FAULT_READ))
			errno = EIO;
		else
			n = read(fd, p, len < READ_BYTES_MAX ? len : READ_BYTES_MAX);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return gp_fail_os(err, GP_IO, "read", path);
		if (n == 0)
			GP_FAIL(err, GP_INVALID, "%s ends %llu bytes early: it was cut while it was read", path,
				(unsigned long long)len);
		p += n;
		len -= (uint64_t)n;
	}
	return GP_OK;
}

enum gp_status gp_sync_fd(int fd, const char *path, struct gp_err *err)
{
	int rc = 0;
	if (gp_fault_hit(GP_FAULT_FSYNC)) {
		errno = EIO;
		rc = -1;
	} else {
		do
			rc = fsync(fd);
		while (rc != 0 && errno == EINTR);
	}
	return rc == 0 ? GP_OK : gp_fail_os(err, GP_IO, "sync", path);
}

/* Filesystems that cannot sync a directory say EINVAL; there is nothing more to do then. */
enum gp_status gp_sync_folder(const char *folder, struct gp_err *err)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return gp_fail_os(err, GP_IO, "open", folder);
	enum gp_status status = gp_sync_fd(fd, folder, err);
	close(fd);
	return status == GP_OK || err->os_code == EINVAL ? GP_OK : status;
}

enum gp_status gp_write_file(const char *path, const void *data, uint64_t len, struct gp_err *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return gp_fail_os(err, GP_IO, "create", path);
	enum gp_status status = gp_write_all(fd, data, len, path, err);
	if (status == GP_OK)
		status = gp_sync_fd(fd, path, err);
	if (close(fd) != 0 && status == GP_OK)
		status = gp_fail_os(err, GP_IO, "close", path);
	return status;
}

enum gp_status gp_make_folder(const char *path, struct gp_err *err)
{
	char part[PATH_MAX];
	struct stat st;
	if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part || !*path)
		GP_FAIL(err, GP_INVALID, "'%.100s' is no name of a folder", path);
	for (char *at = part + 1; *at; at++) {
		if (*at != '/')
			continue;
		*at = '\0';
		mkdir(part, 0700); /* what went wrong shows below */
		*at = '/';
	}
	if (mkdir(path, 0700) == 0)
		return GP_OK;
	if (errno == EEXIST && stat(path, &st) == 0)
		errno = S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
	return errno == 0 ? GP_OK : gp_fail_os(err, GP_INVALID, "make the folder", path);
}

static enum gp_status remove_files(DIR *d, const char *path, struct gp_err *err)
{
	for (const struct dirent *e; (e = readdir(d));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    unlinkat(dirfd(d), e->d_name, 0) != 0)
			return gp_fail_os(err, GP_IO, "remove a file of", path);
	return GP_OK;
}

static DIR *open_folder(const char *path, int flags)
{
	const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d && fd >= 0)
		close(fd);
	return d;
}

DIR *gp_open_folder(const char *path)
{
	return open_folder(path, 0);
}

enum gp_status gp_remove_folder(const char *path, struct gp_err *err)
{
	DIR *d = open_folder(path, O_NOFOLLOW); /* a link may lead to anything, and those files are not ours */
	if (!d && errno == ENOENT)
		return GP_OK;
	if (!d && (errno == ENOTDIR || errno == ELOOP) && unlink(path) == 0)
		return GP_OK;
	if (!d)
		return gp_fail_os(err, GP_IO, "remove", path);
	enum gp_status status = remove_files(d, path, err);
	closedir(d);
	if (status == GP_OK && rmdir(path) != 0)
		status = gp_fail_os(err, GP_IO, "remove", path);
	return status;
}

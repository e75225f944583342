/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors files atomically: a temporary file beside the target,
 * fsync, rename, fsync of the directory. Tensors are laid out in name order, so
 * equal content gives equal bytes. Reading is in safetensors.c.
 * Test: tests/unit/test_safetensors.c (walks GP_FAULT_WRITE and GP_FAULT_FSYNC)
 */
#include "common/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "common/fault.h"
#include "common/mem.h"

#define DATA_ALIGN 8 /* the header is padded with spaces so that the data starts aligned */

static enum gp_status fail_os(struct gp_err *err, enum gp_status code, const char *doing, const char *path)
{
	int os = errno;
	return gp_err_set(err, code, os, __FILE__, __LINE__, "cannot %s %s: %s", doing, path, strerror(os));
}

/* --- the header ------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	const struct gp_st_item *const *p = a, *const *q = b;
	return strcmp((*p)->name, (*q)->name);
}

static json_t *shape_json(const struct gp_shape *s)
{
	json_t *list = json_array();
	for (int i = 0; i < s->ndim; i++)
		json_array_append_new(list, json_integer(s->dim[i]));
	return list;
}

static enum gp_status add_metadata(json_t *header, const struct gp_st_pair *meta, int count, struct gp_err *err)
{
	if (count == 0)
		return GP_OK;
	json_t *pairs = json_object();
	for (int i = 0; i < count; i++) {
		if (json_object_set_new(pairs, meta[i].key, json_string(meta[i].value)) != 0) {
			json_decref(pairs);
			GP_FAIL(err, GP_INVALID, "metadata '%.60s' is not valid UTF-8", meta[i].key);
		}
	}
	json_object_set_new(header, "__metadata__", pairs);
	return GP_OK;
}

static enum gp_status add_entry(json_t *header, const struct gp_st_item *item, uint64_t *offset, struct gp_err *err)
{
	uint64_t count, end;
	GP_TRY(gp_shape_count(&item->shape, INT64_MAX / sizeof(float), &count, err));
	if (!gp_add_ok(*offset, count * sizeof(float), &end) || end > INT64_MAX)
		GP_FAIL(err, GP_INVALID, "the file would pass 2^63 bytes");
	if (json_object_get(header, item->name))
		GP_FAIL(err, GP_INVALID, "the name is used twice");
	json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape_json(&item->shape),
				  "data_offsets", (json_int_t)*offset, (json_int_t)end);
	if (json_object_set_new(header, item->name, entry) != 0)
		GP_FAIL(err, GP_INVALID, "the name is not valid UTF-8");
	*offset = end;
	return GP_OK;
}

/* The header's JSON text; the caller frees it with free(), as it is jansson's. */
static enum gp_status build_header(const struct gp_st_item *const *sorted, int count, const struct gp_st_pair *meta,
				   int meta_count, char **text, struct gp_err *err)
{
	uint64_t offset = 0;
	json_t *header = json_object();
	enum gp_status status = add_metadata(header, meta, meta_count, err);
	for (int i = 0; i < count && status == GP_OK; i++) {
		status = add_entry(header, sorted[i], &offset, err);
		if (status != GP_OK)
			gp_err_prefix(err, "tensor '%.100s'", sorted[i]->name);
	}
	char *json = status == GP_OK ? json_dumps(header, JSON_COMPACT) : NULL;
	json_decref(header);
	GP_TRY(status);
	if (!json)
		GP_FAIL(err, GP_NOMEM, "out of memory for a safetensors header");
	*text = json;
	return GP_OK;
}

/* --- the file --------------------------------------------------------------------------------------------------- */

static enum gp_status write_all(int fd, const void *data, uint64_t len, const char *path, struct gp_err *err)
{
	const uint8_t *p = data;
	while (len) {
		ssize_t n = -1;
		if (gp_fault_hit(GP_FAULT_WRITE))
			errno = ENOSPC;
		else
			n = write(fd, p, len < (1u << 30) ? len : (1u << 30));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_os(err, GP_IO, "write", path);
		p += n;
		len -= (uint64_t)n;
	}
	return GP_OK;
}

static enum gp_status sync_fd(int fd, const char *path, struct gp_err *err)
{
	int rc = 0;
	if (gp_fault_hit(GP_FAULT_FSYNC)) {
		errno = EIO;
		rc = -1;
	} else {
		rc = fsync(fd);
	}
	return rc == 0 ? GP_OK : fail_os(err, GP_IO, "sync", path);
}

/* A new file beside `path`; its name is left in temp[PATH_MAX]. */
static enum gp_status create_temp(const char *path, char *temp, int *out, struct gp_err *err)
{
	for (unsigned attempt = 0; attempt < 100; attempt++) {
		if (snprintf(temp, PATH_MAX, "%s.tmp.%ld.%u", path, (long)getpid(), attempt) >= PATH_MAX)
			GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", path);
		int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd >= 0) {
			*out = fd;
			return GP_OK;
		}
		if (errno != EEXIST)
			break;
	}
	return fail_os(err, GP_INVALID, "create", temp);
}

static enum gp_status write_content(int fd, const char *header, const struct gp_st_item *const *sorted, int count,
				    const char *path, struct gp_err *err)
{
	static const char spaces[DATA_ALIGN + 1] = "        ";
	uint64_t len = strlen(header), pad = (DATA_ALIGN - len % DATA_ALIGN) % DATA_ALIGN;
	uint64_t field = len + pad; /* little-endian host, checked in safetensors.c */
	GP_TRY(write_all(fd, &field, sizeof field, path, err));
	GP_TRY(write_all(fd, header, len, path, err));
	GP_TRY(write_all(fd, spaces, pad, path, err));
	for (int i = 0; i < count; i++)
		GP_TRY(write_all(fd, sorted[i]->data, gp_shape_elements(&sorted[i]->shape) * sizeof(float), path, err));
	return sync_fd(fd, path, err);
}

/* Makes the rename durable. Filesystems that cannot sync a directory say EINVAL; there is nothing more to do then. */
static enum gp_status sync_directory(const char *path, struct gp_err *err)
{
	char copy[PATH_MAX];
	snprintf(copy, sizeof copy, "%s", path);
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return fail_os(err, GP_IO, "open the directory of", path);
	enum gp_status status = sync_fd(fd, path, err);
	close(fd);
	if (status == GP_OK || err->os_code == EINVAL)
		return GP_OK;
	return gp_err_prefix(err, "the new file is in place, but a power failure may undo that");
}

static enum gp_status write_file(const char *path, const char *header, const struct gp_st_item *const *sorted,
				 int count, struct gp_err *err)
{
	char temp[PATH_MAX];
	int fd = -1;
	GP_TRY(create_temp(path, temp, &fd, err));
	enum gp_status status = write_content(fd, header, sorted, count, path, err);
	if (close(fd) != 0 && status == GP_OK)
		status = fail_os(err, GP_IO, "close", path);
	if (status == GP_OK && rename(temp, path) != 0)
		status = fail_os(err, GP_IO, "rename into place", path);
	if (status != GP_OK) {
		unlink(temp);
		return status;
	}
	return sync_directory(path, err);
}

enum gp_status gp_st_write(const char *path, const struct gp_st_item *items, int count, const struct gp_st_pair *meta,
			   int meta_count, struct gp_err *err)
{
	const struct gp_st_item **sorted;
	char *header = NULL;
	GP_TRY(gp_alloc_array((void **)&sorted, (size_t)count, sizeof(*sorted), err));
	for (int i = 0; i < count; i++)
		sorted[i] = &items[i];
	qsort(sorted, (size_t)count, sizeof(*sorted), by_name);
	enum gp_status status = build_header(sorted, count, meta, meta_count, &header, err);
	if (status == GP_OK)
		status = write_file(path, header, sorted, count, err);
	else
		gp_err_prefix(err, "%s", path);
	free(header);
	gp_free(sorted);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors files atomically: a temporary file beside the target,
 * fsync, rename, fsync of the directory. The target is a regular file or
 * nothing yet, behind any links: a rename would replace whatever is there, be
 * it a device. Tensors are laid out in name order, so
 * equal content gives equal bytes. Reading is in safetensors.c.
 * Test: tests/unit/test_safetensors.c (walks GP_FAULT_WRITE and GP_FAULT_FSYNC)
 */
#include "common/store/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/durable.h"
#include "common/base/mem.h"

#define DATA_ALIGN 8 /* the header is padded with spaces so that the data starts aligned */

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
	GP_TRY(gp_shape_count_or_zero(&item->shape, INT64_MAX / sizeof(double), &count, err));
	if (!gp_add_ok(*offset, count * gp_st_dtype_bytes(item->dtype), &end) || end > INT64_MAX)
		GP_FAIL(err, GP_INVALID, "the file would pass 2^63 bytes");
	if (json_object_get(header, item->name))
		GP_FAIL(err, GP_INVALID, "the name is used twice");
	json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", gp_st_dtype_name(item->dtype), "shape",
				  shape_json(&item->shape), "data_offsets", (json_int_t)*offset, (json_int_t)end);
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

/* --- the target ------------------------------------------------------------------------------------------------- */

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

enum gp_status gp_st_check_target(const char *path, struct gp_err *err)
{
	char target[PATH_MAX];
	GP_TRY(find_target(path, target, err));
	if (access(dirname(target), W_OK | X_OK) != 0)
		return gp_fail_os(err, GP_INVALID, "write to the folder of", path);
	return GP_OK;
}

/* --- the file --------------------------------------------------------------------------------------------------- */

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
	return gp_fail_os(err, GP_INVALID, "create", temp);
}

static uint64_t item_bytes(const struct gp_st_item *item)
{
	return gp_shape_elements(&item->shape) * gp_st_dtype_bytes(item->dtype);
}

static enum gp_status write_content(int fd, const char *header, const struct gp_st_item *const *sorted, int count,
				    const char *path, struct gp_err *err)
{
	static const char spaces[DATA_ALIGN + 1] = "        ";
	uint64_t len = strlen(header), pad = (DATA_ALIGN - len % DATA_ALIGN) % DATA_ALIGN;
	uint64_t field = len + pad; /* little-endian, as the host is (mem.h) */
	GP_TRY(gp_write_all(fd, &field, sizeof field, path, err));
	GP_TRY(gp_write_all(fd, header, len, path, err));
	GP_TRY(gp_write_all(fd, spaces, pad, path, err));
	for (int i = 0; i < count; i++)
		GP_TRY(gp_write_all(fd, sorted[i]->data, item_bytes(sorted[i]), path, err));
	return gp_sync_fd(fd, path, err);
}

/* Makes the rename durable. */
static enum gp_status sync_directory(const char *path, struct gp_err *err)
{
	char copy[PATH_MAX];
	snprintf(copy, sizeof copy, "%s", path);
	if (gp_sync_folder(dirname(copy), err) == GP_OK)
		return GP_OK;
	return gp_err_prefix(err, "the new file is in place, but a power failure may undo that");
}

static enum gp_status write_file(const char *path, const char *header, const struct gp_st_item *const *sorted,
				 int count, struct gp_err *err)
{
	char target[PATH_MAX], temp[PATH_MAX];
	int fd = -1;
	GP_TRY(find_target(path, target, err));
	GP_TRY(create_temp(target, temp, &fd, err));
	enum gp_status status = write_content(fd, header, sorted, count, path, err);
	if (close(fd) != 0 && status == GP_OK)
		status = gp_fail_os(err, GP_IO, "close", path);
	if (status == GP_OK && rename(temp, target) != 0)
		status = gp_fail_os(err, GP_IO, "rename into place", path);
	if (status != GP_OK) {
		unlink(temp);
		return status;
	}
	return sync_directory(target, err);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors files atomically: a new file beside the target
 * (new_file.h), fsync, rename, fsync of the directory. Tensors are laid out in
 * name order, so equal content gives equal bytes. Reading is in safetensors.c.
 * Test: tests/unit/test_safetensors.c (walks GP_FAULT_WRITE and GP_FAULT_FSYNC)
 */
#include "common/store/safetensors.h"

#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>

#include "common/base/durable.h"
#include "common/base/mem.h"
#include "common/base/new_file.h"

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

enum gp_status gp_st_check_target(const char *path, struct gp_err *err)
{
	return gp_new_file_check(path, err);
}

/* --- the file --------------------------------------------------------------------------------------------------- */

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
	struct gp_new_file f;
	GP_TRY(gp_new_file_begin(&f, path, err));
	GP_TRY(gp_new_file_end(&f, write_content(f.fd, header, sorted, count, path, err), err));
	return sync_directory(f.target, err);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Safetensors files: reading (into memory, everything checked: a file is not
 * trusted) and writing (atomically: temporary file, fsync, rename). Format:
 * u64 little-endian header length, JSON header, raw data.
 *
 * Threads: any; an open file may be read by several at once. Test:
 * tests/unit/test_safetensors.c
 */
#ifndef GP_SAFETENSORS_H
#define GP_SAFETENSORS_H

#include "common/base/mem.h"
#include "common/base/shape.h"

/* GP_ST_OTHER: a tensor whose values cannot be read here, because it has another type or more than GP_MAX_DIMS
 * dimensions. The other tensors of its file can be read all the same. */
enum gp_st_dtype { GP_ST_F32, GP_ST_F16, GP_ST_BF16, GP_ST_F64, GP_ST_I32, GP_ST_I64, GP_ST_U8, GP_ST_OTHER };
const char *gp_st_dtype_name(enum gp_st_dtype dtype); /* as in the file: "F32" */
uint64_t gp_st_dtype_bytes(enum gp_st_dtype dtype);

struct gp_st_tensor {
	const char *name; /* owned by the file */
	enum gp_st_dtype dtype;
	const char *type;      /* as in the file: "F32", "F8_E4M3"; owned by it */
	int dims;              /* as in the file */
	struct gp_shape shape; /* GP_ST_OTHER: 0 elements; others may have a dimension of 0 too */
	uint64_t count;
	const void *data; /* into the file's bytes; may be unaligned */
	uint64_t bytes;
};

struct gp_st_file;

/* Reads the whole file. GP_IO: the disk fails. */
enum gp_status gp_st_open(const char *path, struct gp_st_file **out, struct gp_err *err);
/* The same on borrowed memory (fuzzing, tests). */
enum gp_status gp_st_parse(const void *bytes, size_t len, const char *label, struct gp_st_file **out,
			   struct gp_err *err);
void gp_st_close(struct gp_st_file *f);
int gp_st_count(const struct gp_st_file *f);
const struct gp_st_tensor *gp_st_at(const struct gp_st_file *f, int index);          /* name order */
const struct gp_st_tensor *gp_st_find(const struct gp_st_file *f, const char *name); /* NULL if absent */
/* The whole file. */
struct gp_span gp_st_bytes(const struct gp_st_file *f);
/* Value of a __metadata__ key, NULL if absent. */
const char *gp_st_metadata(const struct gp_st_file *f, const char *key);
/* Converts F32, F16, BF16, F64 to `count` floats; GP_INVALID for integers, GP_UNSUPPORTED for GP_ST_OTHER. The
 * message names no tensor: the caller does. */
enum gp_status gp_st_read_f32(const struct gp_st_tensor *t, float *out, struct gp_err *err);

struct gp_st_item { /* one tensor to write */
	const char *name;
	struct gp_shape shape;
	const void *data;
	enum gp_st_dtype dtype;
};
struct gp_st_pair {
	const char *key, *value;
};
/*
 * Writes `path` whole or not at all: on failure nothing new is left behind and
 * an older file stays as it was. (Only when the last step, syncing the
 * directory, fails, the new file is in place and complete, and the error says
 * so.) Items in any order; names unique; the file has them in name order.
 * GP_INVALID when something else than a regular file is there; a link is
 * followed and stays, the file that it leads to is replaced.
 */
enum gp_status gp_st_write(const char *path, const struct gp_st_item *items, int count, const struct gp_st_pair *meta,
			   int meta_count, struct gp_err *err);
/* Asked before much work is done for the file: GP_INVALID when gp_st_write would refuse to write there. */
enum gp_status gp_st_check_target(const char *path, struct gp_err *err);

#endif

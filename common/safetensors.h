/* SPDX-License-Identifier: Apache-2.0
 *
 * Safetensors files: reading (memory-mapped, everything checked: a file is not
 * trusted) and writing (atomically: temporary file, fsync, rename). Format:
 * u64 little-endian header length, JSON header, raw data.
 * Test: tests/unit/test_safetensors.c
 */
#ifndef GP_SAFETENSORS_H
#define GP_SAFETENSORS_H

#include "common/shape.h"

enum gp_dtype { GP_F32, GP_F16, GP_BF16, GP_F64, GP_I32, GP_I64, GP_U8 };

struct gp_st_tensor {
	const char *name; /* owned by the file */
	enum gp_dtype dtype;
	struct gp_shape shape;
	uint64_t count;
	const void *data; /* into the mapping; may be unaligned */
};

struct gp_st_file;

enum gp_status gp_st_open(const char *path, struct gp_st_file **out, struct gp_err *err);
/* The same on borrowed memory (fuzzing, tests). */
enum gp_status gp_st_parse(const void *bytes, size_t len, const char *label, struct gp_st_file **out,
                           struct gp_err *err);
void gp_st_close(struct gp_st_file *f);
int gp_st_count(const struct gp_st_file *f);
const struct gp_st_tensor *gp_st_at(const struct gp_st_file *f, int index); /* name order */
const struct gp_st_tensor *gp_st_find(const struct gp_st_file *f, const char *name); /* NULL if absent */
/* Value of a __metadata__ key, NULL if absent. */
const char *gp_st_metadata(const struct gp_st_file *f, const char *key);
/* Converts F32, F16, BF16, F64 to `count` floats; GP_INVALID for integers. */
enum gp_status gp_st_read_f32(const struct gp_st_tensor *t, float *out, struct gp_err *err);

struct gp_st_item { /* one fp32 tensor to write */
	const char *name;
	struct gp_shape shape;
	const float *data;
};
struct gp_st_pair {
	const char *key, *value;
};
/*
 * Writes `path` whole or not at all: on failure nothing new is left behind and
 * an older file stays as it was. (Only when the last step, syncing the
 * directory, fails, the new file is in place and complete, and the error says
 * so.) Items in any order; names unique; the file has them in name order.
 */
enum gp_status gp_st_write(const char *path, const struct gp_st_item *items, int count, const struct gp_st_pair *meta,
                           int meta_count, struct gp_err *err);

#endif

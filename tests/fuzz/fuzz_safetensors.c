/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any bytes give a refused file or tensors that lie inside those
 * bytes, are found by name and can be read (common/store/safetensors.h).
 */
#include <string.h>

#include "common/base/mem.h"
#include "common/store/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensor(const struct gp_st_file *f, const struct gp_st_tensor *t)
{
	struct gp_err err;
	const struct gp_span all = gp_st_bytes(f);
	gp_require(t->count == gp_shape_elements(&t->shape));
	gp_require(t->bytes <= all.len && (const uint8_t *)t->data >= all.data);
	gp_require((size_t)((const uint8_t *)t->data - all.data) <= all.len - t->bytes);
	gp_require(t->dtype == GP_ST_OTHER ? t->count == 0 : t->bytes == t->count * gp_st_dtype_bytes(t->dtype));
	float *out = gp_calloc(t->count, sizeof *out);
	gp_require(out && gp_st_find(f, t->name) == t);
	if (gp_st_read_f32(t, out, &err) != GP_OK)
		gp_require(t->dtype == GP_ST_I32 || t->dtype == GP_ST_I64 || t->dtype == GP_ST_U8 || t->dtype == GP_ST_OTHER);
	gp_free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gp_err err = {0};
	struct gp_st_file *f = NULL;
	if (gp_st_parse(data, size, "fuzz", &f, &err) != GP_OK) {
		gp_require(!f && strncmp(err.text, "fuzz: ", 6) == 0);
		return 0;
	}
	for (int i = 0; i < gp_st_count(f); i++)
		check_tensor(f, gp_st_at(f, i));
	gp_require(!gp_st_find(f, "\x01"));
	gp_st_metadata(f, "format");
	gp_st_close(f);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any bytes give a refused file or tensors that lie inside those
 * bytes, are found by name and can be read (common/store/safetensors.h); and what
 * the file says about its model is refused, or bounded and printable, and can be
 * written again (client/weights/saved_model.h).
 */
#include <string.h>

#include "client/weights/saved_model.h"
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
		gp_require(t->dtype == GP_ST_I32 || t->dtype == GP_ST_I64 || t->dtype == GP_ST_U8 ||
			   t->dtype == GP_ST_OTHER);
	gp_free(out);
}

static void check_text(const char *text, size_t most)
{
	gp_require(strlen(text) < most);
	for (; *text; text++)
		gp_require((unsigned char)*text >= 0x20 && *text != 0x7f);
}

static void check_saved(const struct gp_st_file *f)
{
	struct gp_err err = {0};
	struct gp_saved_model m;
	struct gp_saved_pairs pairs;
	struct gp_model_difference d;
	char text[GP_SAVED_TEXT];
	if (gp_saved_model_parse(f, "fuzz", &m, &err) != GP_OK) {
		gp_require(err.code == GP_INVALID && strncmp(err.text, "fuzz: ", 6) == 0);
		return;
	}
	check_text(m.model, sizeof m.model);
	check_text(m.run, sizeof m.run);
	for (int i = 0; i < gp_saved_model_labels(&m); i++)
		check_text(gp_saved_model_label(&m, i), GP_SAVED_LABEL);
	gp_saved_model_data(&m, text);
	gp_model_compare(m.model, "cnn:width=1,classes=3", &d);
	gp_model_spec_drop(m.model, "classes");
	gp_require(gp_saved_pairs_make(&m, &pairs, &err) == GP_OK && pairs.count <= GP_WEIGHTS_PAIRS);
	gp_saved_pairs_deinit(&pairs);
	gp_saved_model_deinit(&m);
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
	check_saved(f);
	gp_st_close(f);
	return 0;
}

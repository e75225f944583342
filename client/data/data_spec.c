/* SPDX-License-Identifier: Apache-2.0
 *
 * Dataset texts, read by common/base/spec.h: what every family takes (folder,
 * limit, part) and what those of pictures take (augment, flip, mean, std, and the
 * forms of a size and a shape). What one family alone takes it reads itself, in
 * its `configure`. Test: tests/unit/test_data_spec.c
 */
#include "client/data/data_internal.h"

#include <string.h>

enum { SIDE_MIN = 8, SIDE_MAX = 4096 };

/* One number, or one per channel: "0.5" or "0.485/0.456/0.406". */
static bool parse_statistics(struct gp_text text, double least, float out[3], int *count)
{
	const struct gp_value_form form = {.type = GP_VALUE_REAL, .min = least, .max = 1e6};
	char why[GP_VALUE_WHY];
	struct gp_text part;
	union gp_value v;
	int n = 0;
	while (gp_text_cut(&text, '/', &part)) {
		if (n == 3 || !gp_value_parse(&form, part, &v, why))
			return false;
		out[n++] = (float)v.real;
	}
	*count = n;
	return n != 2;
}

static enum gp_status read_statistics(struct gp_spec *s, struct gp_data_spec *out, struct gp_err *err)
{
	struct gp_text text;
	if (gp_spec_given(s, "mean", &text) && !parse_statistics(text, -1e6, out->mean, &out->mean_count))
		return gp_spec_refuse(s, "mean", text, "one number or three as a/b/c, on the scale 0..1", err);
	if (gp_spec_given(s, "std", &text) && !parse_statistics(text, 1e-6, out->std, &out->std_count))
		return gp_spec_refuse(s, "std", text, "one positive number or three as a/b/c, on the scale 0..1", err);
	return GP_OK;
}

/* -1 when it is not given. */
static enum gp_status read_switch(struct gp_spec *s, const char *key, int *out, struct gp_err *err)
{
	struct gp_text text;
	bool yes = false;
	GP_TRY(gp_spec_bool(s, key, &yes, err));
	*out = gp_spec_given(s, key, &text) ? yes : -1;
	return GP_OK;
}

enum gp_status gp_data_read_side(struct gp_spec *s, int *side, struct gp_err *err)
{
	int64_t v = *side;
	GP_TRY(gp_spec_int(s, "size", SIDE_MIN, SIDE_MAX, &v, err));
	*side = (int)v;
	return GP_OK;
}

enum gp_status gp_data_read_shape(struct gp_spec *s, struct gp_shape *shape, struct gp_err *err)
{
	struct gp_text text;
	struct gp_shape v;
	char copy[64];
	if (!gp_spec_given(s, "shape", &text))
		return GP_OK;
	if (!gp_text_copy(text, copy, sizeof copy) || !gp_shape_parse_chw(copy, &v) ||
	    (v.dim[2] != 1 && v.dim[2] != 3) || v.dim[0] > SIDE_MAX || v.dim[1] > SIDE_MAX)
		return gp_spec_refuse(s, "shape", text,
				      "CxHxW with 1 or 3 channels and at most 4096 pixels a side, such as 3x32x32",
				      err);
	*shape = v;
	return GP_OK;
}

enum gp_status gp_data_read_classes(struct gp_spec *s, int *classes, struct gp_err *err)
{
	int64_t v = *classes;
	GP_TRY(gp_spec_int(s, "classes", 2, 100000, &v, err));
	*classes = (int)v;
	return GP_OK;
}

static enum gp_status read_folder(const struct gp_dataset_class *class, struct gp_text arg, char *dir,
				  struct gp_err *err)
{
	if (!gp_text_copy(arg, dir, GP_DATA_DIR_ROOM))
		GP_FAIL(err, GP_USAGE, "dataset %s: its folder is longer than %d characters", class->info.name,
			GP_DATA_DIR_ROOM - 1);
	if (class->dir == GP_SPEC_ARG_NEEDED && !dir[0])
		GP_FAIL(err, GP_USAGE, "dataset %s needs a folder: %s:DIR", class->info.name, class->info.name);
	return GP_OK;
}

enum gp_status gp_data_spec_read(struct gp_dataset *d, struct gp_spec *s, struct gp_data_spec *out, struct gp_err *err)
{
	struct gp_data_spec spec = {.augment = -1, .flip = -1};
	char where[48];
	snprintf(where, sizeof where, "dataset %s", d->class->info.name);
	GP_TRY(gp_spec_pairs(s, where, d->class->dir, d->class->info.options, err));
	GP_TRY(read_folder(d->class, s->arg, spec.dir, err));
	GP_TRY(gp_spec_int(s, "limit", 1, UINT32_MAX, &spec.limit, err));
	GP_TRY(gp_data_part_read(s, &spec.part, err));
	if (d->class->configure)
		GP_TRY(d->class->configure(d, s, err));
	if (d->class->read) {
		GP_TRY(read_switch(s, "augment", &spec.augment, err));
		GP_TRY(read_switch(s, "flip", &spec.flip, err));
		GP_TRY(read_statistics(s, &spec, err));
	}
	GP_TRY(gp_spec_done(s, err));
	*out = spec;
	return GP_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Dataset texts: "DIR,key=value,..." to struct gp_data_spec. Knows the forms of
 * the values, not their meaning. Test: tests/unit/test_data_spec.c
 */
#include "client/data/data_internal.h"

#include <math.h>
#include <string.h>

#include "common/options/options.h"

enum { ITEM_MAX = 512 };

static bool parse_whole(const char *text, int64_t min, int64_t max, int64_t *out)
{
	int64_t v;
	if (!gp_parse_i64(text, &v) || v < min || v > max)
		return false;
	*out = v;
	return true;
}

static bool parse_switch(const char *text, int *out)
{
	if ((text[0] != '0' && text[0] != '1') || text[1])
		return false;
	*out = text[0] - '0';
	return true;
}

/* One number, or one per channel: "0.5" or "0.485/0.456/0.406". */
static bool parse_statistics(const char *text, bool positive, float out[3], int *count)
{
	char part[64];
	int n = 0;
	for (;; text++) {
		size_t len = strcspn(text, "/");
		double v;
		if (n == 3 || len >= sizeof part)
			return false;
		memcpy(part, text, len);
		part[len] = '\0';
		if (!gp_parse_real(part, &v) || fabs(v) > 1e6 || (positive && v < 1e-6))
			return false;
		out[n++] = (float)v;
		text += len;
		if (!*text)
			break;
	}
	*count = n;
	return n != 2;
}

/* One or three channels, as pictures have. */
static bool parse_shape(const char *text, struct gp_shape *out)
{
	struct gp_shape s;
	if (!gp_shape_parse_chw(text, &s) || (s.dim[2] != 1 && s.dim[2] != 3) || s.dim[0] > 4096 || s.dim[1] > 4096)
		return false;
	*out = s;
	return true;
}

struct spec_key {
	const char *name;
	bool common; /* for every family; others only where the family's `keys` say so */
	const char *form;
};
static const struct spec_key spec_keys[] = {
	{"limit", true, "a number of samples, at least 1"},
	{"augment", true, "0 or 1"},
	{"flip", true, "0 or 1"},
	{"mean", true, "one number or three as a/b/c, on the scale 0..1"},
	{"std", true, "one positive number or three as a/b/c, on the scale 0..1"},
	{"size", false, "pixels, 8 to 4096"},
	{"shape", false, "CxHxW with 1 or 3 channels and at most 4096 pixels a side, such as 3x32x32"},
	{"classes", false, "2 to 100000"},
	{"samples", false, "1 to 100000000"},
	{"noise", false, "0 to 8"},
	{"seed", false, "a whole number, at least 0"},
};
enum { SPEC_KEYS = sizeof spec_keys / sizeof spec_keys[0] };

static bool parse_value(const char *key, const char *value, struct gp_data_spec *out)
{
	if (strcmp(key, "limit") == 0)
		return parse_whole(value, 1, UINT32_MAX, &out->limit);
	if (strcmp(key, "augment") == 0)
		return parse_switch(value, &out->augment);
	if (strcmp(key, "flip") == 0)
		return parse_switch(value, &out->flip);
	if (strcmp(key, "mean") == 0)
		return parse_statistics(value, false, out->mean, &out->mean_count);
	if (strcmp(key, "std") == 0)
		return parse_statistics(value, true, out->std, &out->std_count);
	if (strcmp(key, "size") == 0)
		return parse_whole(value, 8, 4096, &out->size);
	if (strcmp(key, "shape") == 0)
		return parse_shape(value, &out->shape);
	if (strcmp(key, "classes") == 0)
		return parse_whole(value, 2, 100000, &out->classes);
	if (strcmp(key, "samples") == 0)
		return parse_whole(value, 1, 100000000, &out->samples);
	if (strcmp(key, "seed") == 0)
		return parse_whole(value, 0, INT64_MAX, &out->seed);
	gp_require(strcmp(key, "noise") == 0);
	return gp_parse_real(value, &out->noise) && out->noise >= 0 && out->noise <= 8;
}

/* True when `name` is one of the '|'-separated keys. */
static bool listed(const char *keys, const char *name)
{
	size_t len = strlen(name);
	for (; keys; keys = strchr(keys, '|'), keys = keys ? keys + 1 : NULL)
		if (strcspn(keys, "|") == len && strncmp(keys, name, len) == 0)
			return true;
	return false;
}

static enum gp_status unknown_key(const struct gp_dataset_class *class, const char *key, struct gp_err *err)
{
	const char *known[SPEC_KEYS];
	int count = 0;
	for (int i = 0; i < SPEC_KEYS; i++)
		if (spec_keys[i].common || listed(class->keys, spec_keys[i].name))
			known[count++] = spec_keys[i].name;
	const char *near = gp_nearest_name(key, known, count);
	if (near)
		GP_FAIL(err, GP_USAGE, "dataset %s has no option '%.60s'; did you mean '%s'?", class->info.name, key,
			near);
	GP_FAIL(err, GP_USAGE, "dataset %s has no option '%.60s'; known: %s", class->info.name, key,
		class->info.options);
}

static enum gp_status parse_option(const struct gp_dataset_class *class, char *item, struct gp_data_spec *out,
				   struct gp_err *err)
{
	char *equals = strchr(item, '=');
	if (!equals)
		GP_FAIL(err, GP_USAGE, "dataset %s: '%.60s' is not key=value; known: %s", class->info.name, item,
			class->info.options);
	*equals = '\0';
	for (int i = 0; i < SPEC_KEYS; i++) {
		if (strcmp(spec_keys[i].name, item) != 0)
			continue;
		if (!spec_keys[i].common && !listed(class->keys, item))
			break;
		if (!parse_value(item, equals + 1, out))
			GP_FAIL(err, GP_USAGE, "dataset %s: %s=%.60s: it must be %s", class->info.name, item,
				equals + 1, spec_keys[i].form);
		return GP_OK;
	}
	return unknown_key(class, item, err);
}

/* The first item is the folder where the family has one; an optional folder is recognised by not being key=value. */
static bool is_dir(const struct gp_dataset_class *class, const char *item)
{
	if (class->dir == GP_DATA_DIR_OPTIONAL)
		return !strchr(item, '=') || strchr(item, '/');
	return class->dir == GP_DATA_DIR_NEEDED;
}

static enum gp_status parse_item(const struct gp_dataset_class *class, bool first, char *item, struct gp_data_spec *out,
				 struct gp_err *err)
{
	if (!first || !is_dir(class, item))
		return parse_option(class, item, out, err);
	strcpy(out->dir, item);
	return GP_OK;
}

enum gp_status gp_data_spec_parse(const struct gp_dataset_class *class, const char *args, struct gp_data_spec *out,
				  struct gp_err *err)
{
	struct gp_data_spec spec = {.augment = -1, .flip = -1, .noise = 0.5};
	const char *rest = args ? args : "";
	for (bool first = true; *rest; first = false) {
		char item[ITEM_MAX];
		size_t len = strcspn(rest, ",");
		if (len >= sizeof item)
			GP_FAIL(err, GP_USAGE, "dataset %s: a part of its text is longer than %d characters",
				class->info.name, ITEM_MAX - 1);
		memcpy(item, rest, len);
		item[len] = '\0';
		if (len)
			GP_TRY(parse_item(class, first, item, &spec, err));
		rest += len + (rest[len] == ',');
	}
	if (class->dir == GP_DATA_DIR_NEEDED && !spec.dir[0])
		GP_FAIL(err, GP_USAGE, "dataset %s needs a folder: %s:DIR", class->info.name, class->info.name);
	*out = spec;
	return GP_OK;
}

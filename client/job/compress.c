/* SPDX-License-Identifier: Apache-2.0
 *
 * See compress.h. Test: tests/unit/test_compress.c
 */
#include "client/job/compress.h"

#include <string.h>

#include "common/codec/codec_store.h"

/* Structures: those of enum gp_structure, and two more. */
enum { MAPS = GP_STRUCTS, MASTER, STRUCTURES };

static const char *name_of(int structure)
{
	return structure == MAPS ? "maps" : structure == MASTER ? "weights-master" : gp_structure_name[structure];
}

/* The structure whose name and = stand there; -1: none. */
static int structure_at(const char *text)
{
	for (int i = 0; i < STRUCTURES; i++) {
		const size_t len = strlen(name_of(i));
		if (strncmp(text, name_of(i), len) == 0 && text[len] == '=')
			return i;
	}
	return -1;
}

/* Up to the comma before the next structure, or the end. */
static size_t length_of(const char *spec)
{
	const char *at = spec;
	while ((at = strchr(at, ',')) != NULL)
		if (structure_at(++at) >= 0)
			return (size_t)(at - 1 - spec);
	return strlen(spec);
}

static enum gp_status read_spec(const char *text, size_t len, bool may_draw, struct gp_codec_spec *out,
				struct gp_err *err)
{
	char spec[GP_CODEC_SPEC_MAX];
	if (len >= sizeof spec)
		GP_FAIL(err, GP_USAGE, "a spec of %zu characters is too long; %zu are possible", len, sizeof spec - 1);
	memcpy(spec, text, len);
	spec[len] = '\0';
	GP_TRY(gp_codec_spec_parse(spec, out, err));
	return gp_store_check(out, may_draw, err);
}

static enum gp_status read_master(const char *text, size_t len, bool *no_master, struct gp_err *err)
{
	*no_master = len == 3 && memcmp(text, "off", 3) == 0;
	if (!*no_master && !(len == 2 && memcmp(text, "on", 2) == 0))
		GP_FAIL(err, GP_USAGE, "weights-master is '%.*s'; it may be on or off", (int)(len < 40 ? len : 40),
			text);
	return GP_OK;
}

/* `seen`: a bit for each structure. */
static enum gp_status read_item(const char **text, struct gp_session_spec *s, uint32_t *seen, struct gp_err *err)
{
	const int i = structure_at(*text);
	if (i < 0)
		GP_FAIL(err, GP_USAGE,
			"'%.40s' does not begin with maps=, grad-maps=, weights=, weight-grads= or state=", *text);
	if (*seen >> i & 1)
		GP_FAIL(err, GP_USAGE, "%s= is given twice", name_of(i));
	*seen |= 1u << i;
	const char *spec = *text + strlen(name_of(i)) + 1;
	const size_t len = length_of(spec);
	if (i == MASTER)
		GP_TRY(read_master(spec, len, &s->no_master, err));
	else
		GP_TRY(read_spec(spec, len, i == GP_STRUCT_STATE, i == MAPS ? &s->maps : &s->coded[i], err));
	*text = spec + len + (spec[len] == ',');
	return GP_OK;
}

static enum gp_status read_items(const char *text, struct gp_session_spec *s, struct gp_err *err)
{
	uint32_t seen = 0;
	do
		GP_TRY(read_item(&text, s, &seen, err));
	while (*text);
	if ((seen >> MASTER & 1) && s->coded[GP_STRUCT_WEIGHTS].stages == 0)
		GP_FAIL(err, GP_USAGE, "weights-master= needs weights=");
	return GP_OK;
}

enum gp_status gp_compress_parse(const char *text, struct gp_session_spec *out, struct gp_err *err)
{
	out->maps = (struct gp_codec_spec){0};
	memset(out->coded, 0, sizeof out->coded);
	out->no_master = false;
	if (!text)
		return GP_OK;
	return read_items(text, out, err) == GP_OK ? GP_OK : gp_err_prefix(err, "--compress");
}

static size_t put(char *text, size_t at, const char *name, const char *value)
{
	return at + (size_t)snprintf(text + at, GP_COMPRESS_TEXT - at, "%s%s=%s", at > 0 ? "," : "", name, value);
}

const char *gp_compress_text(const struct gp_session_spec *s, char text[GP_COMPRESS_TEXT])
{
	size_t at = 0;
	text[0] = '\0';
	if (s->maps.stages > 0)
		at = put(text, at, name_of(MAPS), s->maps.text);
	for (int i = 0; i < GP_STRUCTS; i++)
		if (s->coded[i].stages > 0)
			at = put(text, at, name_of(i), s->coded[i].text);
	if (s->no_master)
		put(text, at, name_of(MASTER), "off");
	return text;
}

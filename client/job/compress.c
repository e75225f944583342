/* SPDX-License-Identifier: Apache-2.0
 *
 * See compress.h. Test: tests/unit/test_compress.c
 */
#include "client/job/compress.h"

#include <string.h>

#include "common/codec/codec_store.h"

/* Those behind the first may be compressed some day. */
static const char *const structures[] = {"maps", "grad-maps", "weights", "weight-grads", "state", "weights-master"};
enum { MAPS, STRUCTURES = sizeof structures / sizeof structures[0] };

/* The structure whose name and = stand there; -1: none. */
static int structure_at(const char *text)
{
	for (int i = 0; i < STRUCTURES; i++) {
		const size_t len = strlen(structures[i]);
		if (strncmp(text, structures[i], len) == 0 && text[len] == '=')
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

static enum gp_status read_spec(const char *text, size_t len, struct gp_codec_spec *out, struct gp_err *err)
{
	char spec[GP_CODEC_SPEC_MAX];
	if (len >= sizeof spec)
		GP_FAIL(err, GP_USAGE, "a spec of %zu characters is too long; %zu are possible", len, sizeof spec - 1);
	memcpy(spec, text, len);
	spec[len] = '\0';
	GP_TRY(gp_codec_spec_parse(spec, out, err));
	return gp_store_check(out, err);
}

static enum gp_status read_item(const char **text, struct gp_codec_spec *maps, struct gp_err *err)
{
	const int i = structure_at(*text);
	if (i < 0)
		GP_FAIL(err, GP_USAGE, "'%.40s' does not begin with maps=", *text);
	if (i != MAPS)
		GP_FAIL(err, GP_USAGE, "%s cannot be compressed yet; maps can", structures[i]);
	if (maps->stages > 0)
		GP_FAIL(err, GP_USAGE, "maps= stands there twice");
	const char *spec = *text + strlen(structures[i]) + 1;
	const size_t len = length_of(spec);
	GP_TRY(read_spec(spec, len, maps, err));
	*text = spec + len + (spec[len] == ',');
	return GP_OK;
}

enum gp_status gp_compress_parse(const char *text, struct gp_codec_spec *maps, struct gp_err *err)
{
	*maps = (struct gp_codec_spec){0};
	if (!text)
		return GP_OK;
	do
		if (read_item(&text, maps, err) != GP_OK)
			return gp_err_prefix(err, "--compress");
	while (*text);
	return GP_OK;
}

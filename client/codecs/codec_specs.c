/* SPDX-License-Identifier: Apache-2.0
 *
 * See codec_specs.h. Test: tests/unit/test_cmd_codec.c
 */
#include "client/codecs/codec_specs.h"

#include <string.h>

#include "common/codec/codec.h"

/* A comma in a list of specs ends one unless a key follows, "bits=8" or the like: that still belongs to the stage. */
static bool comma_separates(const char *behind)
{
	return behind[strspn(behind, "abcdefghijklmnopqrstuvwxyz0123456789_-")] != '=';
}

/* Length of the spec that `text` begins with. */
static size_t spec_length(const char *text)
{
	size_t n = 0;
	while (text[n] && !strchr("; \t\n", text[n]) && !(text[n] == ',' && comma_separates(text + n + 1)))
		n++;
	return n;
}

enum gp_status gp_codec_specs_each(const char *list, const char *flag,
				   enum gp_status (*fn)(void *arg, const char *spec, struct gp_err *err), void *arg,
				   struct gp_err *err)
{
	char spec[GP_CODEC_SPEC_MAX];
	while (*(list += strspn(list, ",; \t\n"))) {
		const size_t length = spec_length(list);
		if (length >= sizeof spec)
			GP_FAIL(err, GP_USAGE, "%s: '%.40s...' is too long for a codec", flag, list);
		memcpy(spec, list, length);
		spec[length] = '\0';
		GP_TRY(fn(arg, spec, err));
		list += length;
	}
	return GP_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any text is refused with a one-line error, or accepted with a
 * canonical form that parses to the same spec and, for each shape, has a bound
 * or a one-line reason why it cannot take it.
 */
#include "common/codec/codec.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void measure(const struct gp_codec_spec *spec, const struct gp_shape *shape)
{
	struct gp_err err = {0};
	uint64_t bytes;
	const enum gp_status status = gp_codec_bound_for(spec, shape, &bytes, &err);
	gp_require(status == GP_OK || (status == GP_INVALID && err.text[0] && !strpbrk(err.text, "\r\n\033")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gp_codec_spec spec, again;
	struct gp_err err = {0};
	const struct gp_shape rows = {.ndim = 2, .dim = {3, 17}}, images = {.ndim = 4, .dim = {2, 8, 8, 5}};
	char *text = malloc(size + 1);
	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (gp_codec_spec_parse(text, &spec, &err) == GP_OK) {
		gp_require(gp_codec_spec_parse(spec.text, &again, &err) == GP_OK);
		gp_require(memcmp(&spec, &again, sizeof spec) == 0);
		measure(&spec, &rows);
		measure(&spec, &images);
		gp_codec_spec_lossless(&spec);
	} else {
		gp_require(err.text[0] && !strpbrk(err.text, "\r\n\033"));
	}
	free(text);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any bytes decode to a tensor of the shape or to GP_PROTO, with every
 * codec. Input: one byte codec, one byte each for keys and loops, two
 * bytes element count, payload.
 */
#include "common/base/isa.h"
#include "common/codec/codec.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 5, ELEMENTS_MAX = 4096 };

/* Some spec of the codec that `data` chooses, with keys that may be refused. */
static bool choose_spec(const uint8_t *data, struct gp_codec_spec *spec)
{
	struct gp_err err = {0};
	char text[64];
	int codecs = 0;
	while (gp_codec_info(codecs))
		codecs++;
	char keys[256];
	const struct gp_codec_info *info = gp_codec_info(data[0] % codecs);
	gp_codec_keys_text(data[0] % codecs, keys, sizeof keys);
	if (strstr(keys, "zero="))
		snprintf(text, sizeof text, "%s:bits=%d,size=%d,zero=%s,scale=%s", info->name, 2 + data[1] % 7,
			 16 + data[2] % 40, data[1] & 64 ? "asym" : "sym", data[1] & 128 ? "e8m0" : "fp16");
	else if (strstr(keys, "split="))
		snprintf(text, sizeof text, "%s:bits=%d,split=%d", info->name, 1 + data[1] % 16, data[2] % 9);
	else if (strstr(keys, "bits="))
		snprintf(text, sizeof text, "%s:bits=%d", info->name, 1 + data[1] % 16);
	else
		snprintf(text, sizeof text, "%s", info->name);
	return gp_codec_spec_parse(text, spec, &err) == GP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static float x[ELEMENTS_MAX];
	struct gp_codec_spec spec;
	struct gp_codec *c;
	struct gp_err err = {0};
	if (size < HEAD || !choose_spec(data, &spec))
		return 0;
	const struct gp_shape shape = {.ndim = 1, .dim = {1 + (data[3] | data[4] << 8) % ELEMENTS_MAX}};
	setenv("GP_SIMD", gp_isa_name((enum gp_isa)(data[2] / 9 % 3)), 1);
	if (gp_codec_new(&spec, &shape, 0, &c, &err) != GP_OK)
		return 0;
	enum gp_status status = gp_codec_decode(c, (struct gp_span){data + HEAD, size - HEAD}, x, &err);
	gp_require(status == GP_OK || status == GP_PROTO);
	if (status == GP_OK)
		gp_require(size - HEAD <= gp_codec_bound(c));
	gp_codec_free(c);
	return 0;
}

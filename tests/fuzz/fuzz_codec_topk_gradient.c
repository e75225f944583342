/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of a top-k gradient, which takes its places from the activation
 * decoded before it. Property: whatever bytes came as the activation, any bytes
 * as the gradient decode to a tensor of the shape or to GP_PROTO.
 *
 * Input: as in codec_fuzz.h; then two bytes, the length of the activation's
 * payload, that payload, and the gradient's.
 */
#include "codec_fuzz.h"

enum { LENGTH = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode_both(const struct gp_codec_spec *spec, const struct gp_shape *shape, struct gp_span activation,
			struct gp_span gradient)
{
	static float x[CODEC_FUZZ_ELEMENTS];
	struct gp_codec *act = NULL, *grad = NULL;
	struct gp_err err = {0};
	struct gp_codec_options options = {.role = GP_CODEC_DECODES, .has_gradient = true};
	if (gp_codec_open(spec, shape, &options, &act, &err) != GP_OK)
		return;
	options = (struct gp_codec_options){.role = GP_CODEC_DECODES, .activation = act};
	gp_require(gp_codec_open(spec, shape, &options, &grad, &err) == GP_OK);
	enum gp_status status = gp_codec_decode(act, activation, x, &err);
	gp_require(status == GP_OK || status == GP_PROTO);
	if (status == GP_OK)
		codec_fuzz_decode(grad, false, gradient);
	gp_codec_free(grad);
	gp_codec_free(act);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"topk:ratio=0.1", "topk:ratio=0.5+uniform:bits=8"};
	if (size < CODEC_FUZZ_HEAD + LENGTH)
		return 0;
	const struct gp_shape shape = codec_fuzz_shape(data);
	const uint8_t *payload = data + CODEC_FUZZ_HEAD + LENGTH;
	size_t left = size - CODEC_FUZZ_HEAD - LENGTH, first = data[CODEC_FUZZ_HEAD] | data[CODEC_FUZZ_HEAD + 1] << 8;
	if (first > left)
		return 0;
	codec_fuzz_loops(data[1]);
	decode_both(codec_fuzz_spec(specs, data[0] % 2), &shape, (struct gp_span){payload, first},
		    (struct gp_span){payload + first, left - first});
	return 0;
}

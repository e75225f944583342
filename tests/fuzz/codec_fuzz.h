/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzz targets of the codecs' decoders share. Property: with every
 * spec of the target, any bytes decode to a tensor of the shape or to GP_PROTO;
 * nothing else is read or allocated. A codec with memory then decodes the same
 * bytes once more, with the memory that they left.
 *
 * Input: one byte spec, one instruction set, four dimensions, one number of
 * them, one flags; then the payload. tests/tools/codec_seeds.c writes seeds.
 */
#ifndef GP_CODEC_FUZZ_H
#define GP_CODEC_FUZZ_H

#include "common/codec.h"

enum { CODEC_FUZZ_HEAD = 8, CODEC_FUZZ_ELEMENTS = 4096, CODEC_FUZZ_EVAL = 1 };

/* One dimension of up to 4096 elements, or up to four of up to 8. */
static inline struct gp_shape codec_fuzz_shape(const uint8_t *data)
{
	struct gp_shape shape = {.ndim = 1 + data[6] % 4};
	if (shape.ndim == 1)
		shape.dim[0] = 1 + (data[2] | data[3] << 8) % CODEC_FUZZ_ELEMENTS;
	for (int i = 0; i < shape.ndim && shape.ndim > 1; i++)
		shape.dim[i] = 1 + data[2 + i] % 8;
	return shape;
}

static inline void codec_fuzz_decode(struct gp_codec *c, bool eval, struct gp_span payload)
{
	static float x[CODEC_FUZZ_ELEMENTS];
	struct gp_err err = {0};
	const uint64_t before = gp_mem_calls();
	for (int i = 0; i < 2; i++) {
		const struct gp_codec_pass pass = {.chunk = (uint32_t)i, .eval = eval};
		enum gp_status status = gp_codec_decode_pass(c, &pass, payload, x, &err);
		gp_require(status == GP_OK || status == GP_PROTO);
		if (status == GP_OK)
			gp_require(payload.len <= gp_codec_bound(c));
		if (status != GP_OK || gp_codec_state_bytes(c) == 32) /* nothing but head and checksum: no memory */
			break;
	}
	gp_require(gp_mem_calls() == before);
}

static inline int codec_fuzz(const char *const *specs, int count, const uint8_t *data, size_t size)
{
	static const char *const simd[] = {"portable", "avx2", "avx512"};
	struct gp_codec_spec spec;
	struct gp_codec *c;
	struct gp_err err = {0};
	if (size < CODEC_FUZZ_HEAD)
		return 0;
	const struct gp_shape shape = codec_fuzz_shape(data);
	const struct gp_codec_options options = {.role = GP_CODEC_DECODES, .has_gradient = true};
	gp_require(gp_codec_spec_parse(specs[data[0] % count], &spec, &err) == GP_OK);
	setenv("GP_SIMD", simd[data[1] % 3], 1);
	if (gp_codec_open(&spec, &shape, &options, &c, &err) == GP_OK) {
		codec_fuzz_decode(c, data[7] & CODEC_FUZZ_EVAL,
				  (struct gp_span){data + CODEC_FUZZ_HEAD, size - CODEC_FUZZ_HEAD});
		gp_codec_free(c);
	}
	return 0;
}

#endif

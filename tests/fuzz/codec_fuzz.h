/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzz targets of the codecs' decoders share. Property: with every
 * spec of the target, any bytes decode to a tensor of the shape or to GP_PROTO;
 * nothing else is read or allocated. A codec that remembers then decodes the same
 * bytes once more, with the memory that they left, and takes all of it back.
 *
 * Input: one byte spec, one instruction set, four dimensions, one number of
 * them, one flags; then the payload. tests/tools/codec_seeds.c writes seeds.
 */
#ifndef GP_CODEC_FUZZ_H
#define GP_CODEC_FUZZ_H

#include <string.h>

#include "common/base/isa.h"
#include "common/codec/codec.h"

enum {
	CODEC_FUZZ_HEAD = 8,
	CODEC_FUZZ_ELEMENTS = 4096,
	CODEC_FUZZ_EVAL = 1,
	CODEC_FUZZ_SHORT = 2, /* the tensor is smaller than the one that the codec was opened for, where it can be */
	CODEC_FUZZ_SPECS = 64,
	CODEC_FUZZ_KEPT = 256
};

/* One dimension of up to 640 elements, of up to 4096 where the byte is large, or up to four of up to 8. */
static inline struct gp_shape codec_fuzz_shape(const uint8_t *data)
{
	struct gp_shape shape = {.ndim = 1 + data[6] % 4};
	if (shape.ndim == 1)
		shape.dim[0] = 1 + (data[2] | data[3] << 8) % (data[6] < 240 ? 640 : CODEC_FUZZ_ELEMENTS);
	for (int i = 0; i < shape.ndim && shape.ndim > 1; i++)
		shape.dim[i] = 1 + data[2 + i] % 8;
	return shape;
}

static inline void codec_fuzz_decode(struct gp_codec *c, bool eval, struct gp_span payload)
{
	static float x[CODEC_FUZZ_ELEMENTS];
	struct gp_err err = {0};
	const uint64_t before = gp_mem_calls(), memory = gp_codec_state_hash(c);
	for (int i = 0; i < 2; i++) {
		const struct gp_codec_pass pass = {.chunk = (uint32_t)i, .eval = eval};
		enum gp_status status = gp_codec_decode_pass(c, &pass, payload, x, &err);
		gp_require(status == GP_OK || status == GP_PROTO);
		if (status == GP_OK)
			gp_require(payload.len <= gp_codec_bound(c));
		if (status != GP_OK || gp_codec_state_bytes(c) == 32) /* nothing but head and checksum: no memory */
			break;
	}
	gp_codec_undo(c, 0);
	gp_require(gp_codec_state_hash(c) == memory);
	gp_require(gp_mem_calls() == before);
}

/* The spec of that number, parsed once: the same array every time. */
static inline const struct gp_codec_spec *codec_fuzz_spec(const char *const *specs, int index)
{
	static struct gp_codec_spec parsed[CODEC_FUZZ_SPECS];
	struct gp_err err = {0};
	gp_require(index < CODEC_FUZZ_SPECS);
	if (parsed[index].stages == 0)
		gp_require(gp_codec_spec_parse(specs[index], &parsed[index], &err) == GP_OK);
	return &parsed[index];
}

/* Chooses the loops of the instances made from now on. */
static inline void codec_fuzz_loops(uint8_t byte)
{
	static int last = -1;
	if (byte % 3 == last)
		return;
	last = byte % 3;
	setenv("GP_SIMD", gp_isa_name((enum gp_isa)last), 1);
}

/*
 * An instance for these first bytes of the input. Kept for the inputs that begin alike, because making one takes longer
 * than most decodes; codec_fuzz_decode leaves its memory as it was, and checks that. NULL: the chain refuses the shape.
 */
static inline struct gp_codec *codec_fuzz_instance(const char *const *specs, int count, const uint8_t *data)
{
	static struct {
		uint8_t head[CODEC_FUZZ_HEAD - 1];
		struct gp_codec *c;
	} kept[CODEC_FUZZ_KEPT];
	const uint8_t head[CODEC_FUZZ_HEAD - 1] = {
		(uint8_t)(data[0] % count), data[1] % 3, data[2], data[3], data[4], data[5], data[6]};
	struct gp_err err = {0};
	unsigned at = 0;
	for (int i = 0; i < CODEC_FUZZ_HEAD - 1; i++)
		at = at * 31 + head[i];
	at %= CODEC_FUZZ_KEPT;
	if (kept[at].c && memcmp(kept[at].head, head, sizeof head) == 0)
		return kept[at].c;
	const struct gp_shape shape = codec_fuzz_shape(data);
	const struct gp_codec_options options = {.role = GP_CODEC_DECODES, .has_gradient = true, .undo = true};
	gp_codec_free(kept[at].c);
	kept[at].c = NULL;
	codec_fuzz_loops(data[1]);
	memcpy(kept[at].head, head, sizeof head);
	if (gp_codec_open(codec_fuzz_spec(specs, head[0]), &shape, &options, &kept[at].c, &err) != GP_OK)
		kept[at].c = NULL;
	return kept[at].c;
}

/* Half of the elements, or of the positions. False: such a tensor cannot be. */
static inline bool codec_fuzz_shorten(const struct gp_codec_spec *spec, struct gp_shape *shape)
{
	const enum gp_codec_lengths lengths = gp_codec_spec_lengths(spec);
	struct gp_err err = {0};
	uint64_t bound;
	if (lengths == GP_CODEC_ELEMENTS)
		*shape = (struct gp_shape){.ndim = 1, .dim = {(int64_t)(gp_shape_elements(shape) / 2)}};
	else if (lengths == GP_CODEC_SEQUENCES && shape->ndim == 3)
		shape->dim[1] = (shape->dim[1] + 1) / 2;
	else
		return false;
	return gp_codec_bound_for(spec, shape, &bound, &err) == GP_OK;
}

static inline int codec_fuzz(const char *const *specs, int count, const uint8_t *data, size_t size)
{
	if (size < CODEC_FUZZ_HEAD)
		return 0;
	struct gp_codec *c = codec_fuzz_instance(specs, count, data);
	const struct gp_codec_spec *spec = codec_fuzz_spec(specs, data[0] % count);
	const struct gp_span payload = {data + CODEC_FUZZ_HEAD, size - CODEC_FUZZ_HEAD};
	const struct gp_shape whole = codec_fuzz_shape(data);
	struct gp_shape shape = whole;
	const bool shorter = c && data[7] & CODEC_FUZZ_SHORT && codec_fuzz_shorten(spec, &shape);
	if (!c)
		return 0;
	if (shorter)
		gp_codec_resize(c, &shape);
	codec_fuzz_decode(c, data[7] & CODEC_FUZZ_EVAL, payload);
	if (shorter)
		gp_codec_resize(c, &whole);
	return 0;
}

#endif

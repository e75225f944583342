/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs: tensor <-> payload. A spec ("sortquant:bits=6,split=2") is parsed
 * once; an instance is made per shape (and, for stateful codecs, per session,
 * direction and chunk) and owns all memory it needs, so that encode and decode
 * allocate nothing.
 *
 * Threads: one instance is used by one thread at a time; different instances
 * are independent. CPU loops have portable, AVX2 and AVX-512 versions, chosen
 * at run time and bit-identical (kernels/cpu/codec_loops.h).
 *
 * Trust: decode is total. Any byte string gives a tensor of the agreed shape or
 * GP_PROTO, without allocation and without reading outside the payload.
 *
 * To add a codec: codec_NAME.c with a const vtable, a row in codec_registry.c,
 * a section in CODECS.md and PROTOCOL.md, a golden or round-trip test.
 * Tests: tests/unit/test_codec*.c, tests/golden
 */
#ifndef GP_CODEC_H
#define GP_CODEC_H

#include "common/mem.h"
#include "common/shape.h"

#define GP_CODEC_MAX_STAGES 6
#define GP_CODEC_SPEC_MAX 256

struct gp_codec_stage_spec {
	uint16_t id;       /* wire id of the codec, pinned in codec_registry.c */
	double value[8];   /* per key, in the order of the codec's key table */
};

/* A parsed chain. Plain data: may be copied. */
struct gp_codec_spec {
	char text[GP_CODEC_SPEC_MAX]; /* canonical form: every key written out, parse(text) gives the same spec */
	int stages;
	struct gp_codec_stage_spec stage[GP_CODEC_MAX_STAGES];
};

/* GP_USAGE names the stage, the key and what is allowed. Safe on text from a peer. */
enum gp_status gp_codec_spec_parse(const char *text, struct gp_codec_spec *out, struct gp_err *err);
/* True when decode(encode(x)) == x bit for bit, for every x. */
bool gp_codec_spec_lossless(const struct gp_codec_spec *spec);

struct gp_codec;

/* `shape` with batch, channels last: (N,H,W,C), (N,S,F), (N,F) or any. `seed` feeds stochastic rounding and sampling. */
enum gp_status gp_codec_new(const struct gp_codec_spec *spec, const struct gp_shape *shape, uint64_t seed,
                            struct gp_codec **out, struct gp_err *err);
void gp_codec_free(struct gp_codec *c);

/* Most payload bytes encode can ever produce, and decode can ever accept, for this shape. */
size_t gp_codec_bound(const struct gp_codec *c);
/* The same from the spec and shape alone, for checking a quota before allocating. */
enum gp_status gp_codec_bound_for(const struct gp_codec_spec *spec, const struct gp_shape *shape, uint64_t *bytes,
                                  struct gp_err *err);

struct gp_codec_stats {
	uint64_t encoded, decoded;     /* tensors */
	uint64_t raw_fallbacks;        /* non-finite tensors that travelled as raw */
};

/* x: shape's elements. out: `cap` >= gp_codec_bound bytes. *len gets the payload length. `draw` numbers the random draws (the step). */
enum gp_status gp_codec_encode(struct gp_codec *c, const float *x, uint64_t draw, uint8_t *out, size_t cap,
                               size_t *len, struct gp_err *err);
/* x is written whole on success and unspecified on failure. */
enum gp_status gp_codec_decode(struct gp_codec *c, struct gp_span in, float *x, struct gp_err *err);
void gp_codec_get_stats(const struct gp_codec *c, struct gp_codec_stats *out);

struct gp_codec_info {
	const char *name, *summary, *keys; /* keys: "bits=1..16 (8)" */
	bool lossless;
};
/* Codecs by index, NULL past the end: for `gpclient codec list` and for error texts. */
const struct gp_codec_info *gp_codec_info(int index);

#endif

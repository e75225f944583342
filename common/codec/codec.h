/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs: tensor <-> payload. A spec ("topk:ratio=0.1+uniform:bits=8+zstd") is
 * parsed once; an instance is made per shape, session and direction and owns
 * all memory it needs, so that encode and decode allocate nothing.
 *
 * State: some stages remember (what error feedback kept back, the start of a
 * power iteration, the last visit of a sample). They remember per chunk of the
 * step, inside the instance; scratch is shared by the chunks, because one
 * instance works on one chunk at a time. State can be saved, loaded and
 * hashed, and, where that was asked for, taken back to the start of the step
 * under way. An evaluation neither reads nor changes it.
 *
 * Threads: one instance is used by one thread at a time; different instances
 * are independent, but for a gradient's that was given the activation's: a
 * chunk's gradient is coded between that chunk's activation and its next. CPU
 * loops have portable, AVX2 and AVX-512 versions, chosen at run time and
 * bit-identical (kernels/loops/codec_loops.h).
 *
 * Trust: decode is total. Any byte string gives a tensor of the agreed shape or
 * GP_PROTO, without allocation and without reading outside the payload.
 *
 * To add a codec: CODECS.md, last section. Inside: codec_impl.h.
 * Tests: tests/unit/test_codec*.c, tests/golden
 */
#ifndef GP_CODEC_H
#define GP_CODEC_H

#include "common/base/mem.h"
#include "common/base/shape.h"
#include "common/base/stop.h"

#define GP_CODEC_MAX_STAGES 8
#define GP_CODEC_SPEC_MAX   256

struct gp_codec_stage_spec {
	uint16_t id;     /* wire id of the codec, pinned in codec_table.h */
	double value[8]; /* per key, in the order of the codec's key table; of a word its index */
};

/* A parsed chain. Plain data: may be copied. */
struct gp_codec_spec {
	/* Canonical: keys are written out, but for some that have their default; parsed, it gives the same spec. */
	char text[GP_CODEC_SPEC_MAX];
	int stages;
	struct gp_codec_stage_spec stage[GP_CODEC_MAX_STAGES];
};

/* GP_USAGE names the stage, the key and what is allowed. Safe on text from a peer. */
enum gp_status gp_codec_spec_parse(const char *text, struct gp_codec_spec *out, struct gp_err *err);
/* True when decode(encode(x)) == x bit for bit, for every x. */
bool gp_codec_spec_lossless(const struct gp_codec_spec *spec);

/* Writes the number of samples of a data set (1..2^24) into every key "samples" that was left at 0. */
enum gp_status gp_codec_spec_set_samples(struct gp_codec_spec *spec, uint32_t samples, struct gp_err *err);

struct gp_codec;
struct gp_codec_device;

/* What an instance is for; the other way then fails, and takes no memory. */
enum gp_codec_role { GP_CODEC_BOTH, GP_CODEC_ENCODES, GP_CODEC_DECODES };

struct gp_codec_options {
	uint64_t seed; /* of stochastic rounding and sampling; the same value twice gives the same draws */
	enum gp_codec_role role;
	uint32_t chunks;   /* of a step: each has its own state; 0 counts as 1 */
	bool has_gradient; /* an activation: leave the masks that its gradient's instance reuses */
	bool undo;         /* gp_codec_undo will be called: backs up what was remembered when a step began */
	/* (optional) For a gradient: the instance of its activation at this end, made with has_gradient, of the same
	 * shape; outlives this one. */
	const struct gp_codec *activation;
	/* (optional) Where the tensors lie that encode and decode are given, and which stages may work there:
	 * codec_device.h. Outlives the instance. NULL: on the host. Payloads always lie on the host. */
	const struct gp_codec_device *device;
};

/* `shape` with batch, channels last: (N,H,W,C), (N,S,F), (N,F) or any; a dimension may be 0. */
enum gp_status gp_codec_open(const struct gp_codec_spec *spec, const struct gp_shape *shape,
			     const struct gp_codec_options *options, struct gp_codec **out, struct gp_err *err);
/* The same with a seed and every other option 0. */
enum gp_status gp_codec_new(const struct gp_codec_spec *spec, const struct gp_shape *shape, uint64_t seed,
			    struct gp_codec **out, struct gp_err *err);
void gp_codec_free(struct gp_codec *c);

/* Most payload bytes encode can ever produce, and decode can ever accept, for this shape. */
size_t gp_codec_bound(const struct gp_codec *c);
/* The same bound, and the bytes that gp_codec_open allocates (rounded up a little), found from the spec and shape
 * alone, to check a quota before allocating. GP_INVALID says why the chain cannot take this shape. */
enum gp_status gp_codec_bound_for(const struct gp_codec_spec *spec, const struct gp_shape *shape, uint64_t *bytes,
				  struct gp_err *err);
enum gp_status gp_codec_bytes_for(const struct gp_codec_spec *spec, const struct gp_shape *shape,
				  const struct gp_codec_options *options, uint64_t *bytes, struct gp_err *err);
/* Nanoseconds that one pass takes, found in the same way: on one slow core, at worst, in the role of the options (both
 * ways for GP_CODEC_BOTH). UINT64_MAX: more than 64 bits hold. */
enum gp_status gp_codec_work_for(const struct gp_codec_spec *spec, const struct gp_shape *shape,
				 const struct gp_codec_options *options, uint64_t *ns, struct gp_err *err);

/* Whether a chain codes tensors that are smaller than the one it was opened for, and which. */
enum gp_codec_lengths {
	GP_CODEC_ONE_SHAPE, /* none: it remembers a value for each place of the tensor (ef, delta) */
	GP_CODEC_ELEMENTS,  /* any with fewer elements: it works on single elements */
	GP_CODEC_SEQUENCES, /* (N,S,F) with a smaller S: it works along the sequence */
};
enum gp_codec_lengths gp_codec_spec_lengths(const struct gp_codec_spec *spec);
/*
 * From here on passes, and gp_codec_bound, are those of an instance that was opened for this shape, whose dimensions, or
 * elements, are at most those the codec was opened for, and may be 0. One of a single dimension is taken for rows of the tensor
 * that the codec was opened for, one after another. A starting value that was remembered for another shape is
 * not used. On the host only, and only for shapes that gp_codec_spec_lengths allows.
 */
void gp_codec_resize(struct gp_codec *c, const struct gp_shape *shape);

struct gp_codec_stats {
	uint64_t encoded, decoded; /* tensors */
	uint64_t raw_fallbacks;    /* encoded tensors that travelled raw, or in part: not finite, or too large */
	/* Payloads that byte stage i (gp_codec_byte_stage) left as they were, because it would not have paid: of those
	 * encoded, or, where the instance only decodes, of those decoded. */
	uint64_t skipped[GP_CODEC_MAX_STAGES];
};

/* Name of the chain's byte stage i, in the order in which an encoder applies them; NULL past the last. Static. */
const char *gp_codec_byte_stage(const struct gp_codec_spec *spec, int i);

/* One tensor's place in the run. */
struct gp_codec_pass {
	uint64_t draw;          /* encode: numbers the random draws; step * chunks + chunk */
	uint64_t first;         /* encode: number of x[0]'s draw, a multiple of 8; 0 for what crosses a link */
	uint64_t step;          /* whose passes gp_codec_undo takes back. The same on both ends */
	uint32_t chunk;         /* whose state; taken modulo the options' chunks */
	bool eval;              /* state is left alone. The same on both ends */
	const uint32_t *sample; /* (optional) encode: number in the data set of each of the shape's N samples */
	/* (optional) Any thread may set it, for good: the pass then ends after the part of its work that it is in, with
	 * GP_CANCELED. Until a gp_codec_undo of its step the instance is of no use. */
	const struct gp_stop *stop;
};

/* x: shape's elements. out: `cap` >= gp_codec_bound bytes. *len gets the payload length. GP_DEVICE, which ends the use of
 * this instance: the device of `options.device` failed. Of decode as well. */
enum gp_status gp_codec_encode_pass(struct gp_codec *c, const struct gp_codec_pass *pass, const float *x, uint8_t *out,
				    size_t cap, size_t *len, struct gp_err *err);
/* x is written as a whole on success and unspecified on failure; an instance that has state must not be used after
 * a failure. */
enum gp_status gp_codec_decode_pass(struct gp_codec *c, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				    struct gp_err *err);
/* A pass of chunk 0, for callers that have only one. */
enum gp_status gp_codec_encode(struct gp_codec *c, const float *x, uint64_t draw, uint8_t *out, size_t cap, size_t *len,
			       struct gp_err *err);
enum gp_status gp_codec_decode(struct gp_codec *c, struct gp_span in, float *x, struct gp_err *err);
void gp_codec_get_stats(const struct gp_codec *c, struct gp_codec_stats *out);

/* Puts the state back to where it was before the first pass of `step`, so that the step may be done again. `step`
 * is the latest one that had passes; where it had none, or the codec remembers nothing, nothing changes. Only for
 * instances opened with `undo`. */
void gp_codec_undo(struct gp_codec *c, uint64_t step);

/* Whether passes of this instance leave behind what later ones use. (A saved state has bytes even where none do.) */
bool gp_codec_remembers(const struct gp_codec *c);
/* State of an instance. Between two passes; a copy only fits an instance of the same spec, shape and options. */
size_t gp_codec_state_bytes(const struct gp_codec *c);
/* GP_DEVICE, which only an instance on a device can say. */
enum gp_status gp_codec_state_save(const struct gp_codec *c, uint8_t *out, struct gp_err *err);
/* GP_INVALID, and the state as it was, for bytes that gp_codec_state_save of such an instance cannot have written.
 * GP_DEVICE. */
enum gp_status gp_codec_state_load(struct gp_codec *c, struct gp_span in, struct gp_err *err);
/* XXH3-64 of all that is remembered; and of what both ends must remember alike, which is equal for an encoder and
 * the decoder of its payloads. 0 where there is nothing, or the device failed. */
uint64_t gp_codec_state_hash(const struct gp_codec *c);
uint64_t gp_codec_state_shared_hash(const struct gp_codec *c);

/* One key: a number ("bits", 1..16, 8 when not given), or one of some words. */
struct gp_codec_key {
	const char *name;
	double min, max, initial; /* of words: first and last index */
	bool or_zero;             /* 0 is allowed beside min..max */
	int decimals;             /* digits allowed behind the point */
	const char *words;        /* "e5m2|e4m3"; NULL: a number */
	bool later;               /* came when specs of the codec were in use: not written out where it is initial */
	const char *help;
};

struct gp_codec_info {
	const char *name, *summary;
	bool lossless; /* of a byte stage always */
	/* Specs that the tests, the fuzz target and bench_codec try, NULL behind the last: whole chains where the codec
	 * needs another stage. A fuzz input names one by its place, so a new one goes to the end. */
	const char *const *examples;
};
/* Codecs by index, NULL past the end: for `gpclient codec list` and for error texts. */
const struct gp_codec_info *gp_codec_info(int index);
const char *gp_codec_kind_name(int index);
/* Key k of that codec, NULL past the end. */
const struct gp_codec_key *gp_codec_key_info(int index, int k);
/* "bits=1..16 (8), format=e5m2|e4m3 (e5m2)" into text[size]; returns text. */
const char *gp_codec_keys_text(int index, char *text, size_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the codec family: the table of one codec (keys, bounds, functions)
 * that codec_table.h lists, codec_spec.c reads and codec_tree.c and
 * codec_chain.c drive. Not for callers of codecs: they include common/codec/codec.h.
 *
 * A chain is   wrapper? transform* quantizer byte-stage*
 *   wrapper     tensor -> tensor of the same shape, with a state (ef, delta)
 *   transform   tensor -> 1 or 2 tensors and side bytes (top-k, low rank, ...)
 *   quantizer   tensor -> bytes; exactly one, `raw` when none is written
 *   byte stage  bytes -> bytes, lossless (zstd, ...)
 * codec_order.c enforces the order. The stages before the bytes form a tree:
 * each tensor that a transform gives has its own instance of the next stage.
 *
 * Invariants of every codec:
 * - open allocates everything; encode, decode, split, join allocate nothing.
 * - What a payload may need and the memory an instance takes follow from values
 *   and shape alone (bound, shapes, bytes): they are checked before open.
 * - Nothing that arrives in a payload is believed before it is checked; every
 *   length but the right one is GP_PROTO. Tests flip and cut every byte.
 * - A tensor that is not finite is not coded: encode or split say false before
 *   they have changed any state, and the driver sends the tensor raw. Neither
 *   end's state then changes.
 * - The same input gives the same bytes for every instruction set and kind of
 *   processor, but for s2fp8 and smaq on a GPU (CODECS.md). What mathematics
 *   libraries give differs: common/base/exact_math.h.
 * - What may take seconds looks between its parts whether it is to stop
 *   (gp_codec_stopped): encode and split then say false, decode, join and expand
 *   GP_CANCELED. Wrappers do not look, as they change what they remember as they go,
 *   and stages that take a few nanoseconds for an element, as uniform, fp16, topk
 *   and zstd's expand, end first.
 *
 * Threads: an instance is used by one thread at a time (common/codec/codec.h). Test:
 * tests/unit/test_codec.c, tests/unit/test_codec_tree.c
 */
#ifndef GP_CODEC_IMPL_H
#define GP_CODEC_IMPL_H

#include <string.h>

#include "common/base/value.h"
#include "common/codec/codec.h"
#include "common/codec/codec_table.h"

#define GP_CODEC_MAX_KEYS     8
#define GP_CODEC_MAX_PARTS    2 /* tensors a transform gives */
#define GP_CODEC_MAX_REGIONS  8
#define GP_CODEC_MAX_CODES    16 /* pieces of packed codes in a payload, and nodes of a tree */
#define GP_CODEC_MAX_ELEMENTS (UINT64_C(1) << 31)
#define GP_CODEC_ELEMENT_NS   4 /* of a stage that reads an element, computes a little and writes it */

/* The ids on the wire: GP_CODEC_ID_raw and so on. */
#define GP_CODEC_ID(id, name, gpu) GP_CODEC_ID_##name = (id),
enum gp_codec_id { GP_CODECS(GP_CODEC_ID) };
#undef GP_CODEC_ID

/* For info.examples. */
#define GP_EXAMPLES(...) ((const char *const[]){__VA_ARGS__, NULL})

struct gp_codec_site;

enum gp_codec_kind { GP_CODEC_WRAPPER, GP_CODEC_TRANSFORM, GP_CODEC_QUANTIZER, GP_CODEC_BYTES };

/* Which elements of each chunk's activation a top-k has chosen, for its gradient. Made by the driver for an activation's
 * first transform whose ops set `masks`; that stage's split and join write it, the gradient's read it. Host memory, as
 * either may work there; with a device, memory that this copies from and to at full speed. */
struct gp_codec_mask {
	uint64_t n;
	size_t words;     /* per chunk */
	uint64_t *bits;   /* chunks * words; element i is bit i % 64 of word i / 64 */
	uint64_t *chosen; /* per chunk: bits set; 0: no mask, the last activation of this chunk was not split */
	uint64_t *among;  /* per chunk: elements of the tensor out of which they were chosen */
};

/* What a stage is opened for. */
struct gp_codec_setup {
	struct gp_shape shape;      /* byte stages: of the tensor that the chain was opened for */
	uint64_t n;                 /* elements of shape, >= 1; byte stages: most bytes of their input */
	uint64_t seed;              /* differs between the stages of a chain */
	uint32_t chunks;            /* >= 1 */
	bool encodes, decodes;      /* what this state will be asked to do; both, under a wrapper */
	bool undo;                  /* state may be taken back to where a step began */
	int unit;                   /* byte stages: what the quantizer's `unit` says */
	struct gp_codec_mask *mask; /* write it; or NULL */
	const struct gp_codec_mask *activation_mask; /* reuse it; or NULL. A wrapper's: the stage behind it reuses it */
	uint64_t chosen;                             /* elements that the stage which reuses it chooses */
	struct gp_codec_site *site;                  /* a device's stages: where they work; NULL to `bytes` */
};

/* The bits of the chunk's last activation, where this pass reuses them: they are as many, out of as many elements.
 * NULL: it does not, as after an activation that travelled raw. `mask` may be NULL. */
static inline const uint64_t *gp_codec_mask_bits(const struct gp_codec_mask *mask, const struct gp_codec_pass *pass,
						 uint64_t chosen, uint64_t n)
{
	if (!mask || pass->eval || mask->chosen[pass->chunk] != chosen || mask->among[pass->chunk] != n)
		return NULL;
	return mask->bits + pass->chunk * mask->words;
}

/* The tensors that a transform gives, in the order they travel, and most bytes beside them. */
struct gp_codec_parts {
	int count;
	struct gp_shape shape[GP_CODEC_MAX_PARTS];
	uint64_t side_bound;
};

/* Where packed codes lie in some bytes: `count` codes of `width` bits, from byte `at` on. */
struct gp_codec_codes {
	uint64_t at, count;
	int width; /* 0: there are none; -1: `codes_written` knows */
};

/* Where a quantizer gets a tensor's elements piece by piece: those of x, or what a transform's `piece` makes of x. */
struct gp_codec_source {
	const struct gp_codec_ops *ops; /* of the transform; NULL: the elements are those of x */
	void *state;
	const float *x;
};

/* Where a quantizer says how many elements of x it has decoded, from the first on: a transform's `join_piece` goes on. */
struct gp_codec_sink {
	const struct gp_codec_ops *ops; /* of the transform; NULL: the elements stay as they are */
	void *state;
	float *x;
	uint64_t done; /* joined */
};

/* A piece of state: flat, of fixed size and address, without pointers. Numbers lie in host order (little-endian). */
struct gp_codec_region {
	void *data;
	size_t bytes;
	bool shared; /* an encoder and its decoder have equal bytes here after each pass */
	/* With setup.undo, as many bytes, for what codec_undo.c backs up: both are then `chunks` pieces of equal size, and a
	 * pass touches its chunk's alone. NULL: the stage's `undo` sees to it. */
	void *backup;
	bool on_device; /* data and backup lie on the stage's device: gp_codec_region_get, _put, _back_up */
};

struct gp_codec_ops {
	uint16_t id; /* on the wire: GP_CODEC_ID_NAME. A GPU's stages leave it, kind, info and keys to the host's */
	enum gp_codec_kind kind;
	struct gp_codec_info info;
	int keys;
	struct gp_codec_key key[GP_CODEC_MAX_KEYS];
	/* (optional) rules between keys, each already in its own range. NULL: none. */
	enum gp_status (*check)(const double *value, struct gp_err *err);

	/* All kinds. `value` has the keys' values in table order and lives as long as the state. */
	enum gp_status (*open)(const double *value, const struct gp_codec_setup *setup, void **state,
			       struct gp_err *err);
	void (*close)(void *state); /* NULL is fine */
	/* (optional) bytes that open takes. NULL: a few KiB. May saturate at UINT64_MAX. */
	uint64_t (*bytes)(const double *value, const struct gp_codec_setup *setup);
	/* (optional) nanoseconds that a pass over a tensor takes on one slow core, encoding where setup says so, else
	 * decoding; it errs upwards. May saturate at UINT64_MAX. NULL: GP_CODEC_ELEMENT_NS for each of setup.n. A GPU's
	 * stages leave it to the host's. */
	uint64_t (*work)(const double *value, const struct gp_codec_setup *setup);
	/* (optional) what the state remembers from pass to pass: fills regions, returns how many. NULL: nothing. */
	int (*regions)(void *state, struct gp_codec_region *out);
	/* (optional) after the regions were loaded from a file: false when they cannot be worked with. */
	bool (*loaded)(void *state);
	/* (optional) with setup.undo: the pass that comes is its chunk's first of a step, and copies the chunk's regions to
	 * `backup` as it goes. NULL: they are copied before it. */
	void (*back_up)(void *state);
	/* (optional) with setup.undo: regions without `backup` as before the first pass of that step, if there were any. */
	void (*undo)(void *state, uint64_t step);

	/* Quantizers: n elements. */
	/* Most bytes `encode` writes and `decode` takes. */
	uint64_t (*bound)(const double *value, uint64_t n);
	/* False when x cannot be represented (non-finite, range overflow): the chain then sends it as raw. Lossless
	 * codecs always return true. *len <= bound. */
	bool (*encode)(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len);
	/* Total: GP_PROTO for whatever encode cannot have written. Under a wrapper the encoder's state decodes what it
	 * has just encoded, which must leave its state as it is. */
	enum gp_status (*decode)(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				 struct gp_err *err);
	/* (optional) both, by pieces: in one go with the transform before it, without its tensor in memory. `encode_from` is
	 * also false where it wants the whole tensor, before it has changed any state; `encode` is called then. The bytes
	 * are the same. */
	bool (*encode_from)(void *state, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			    uint8_t *out, size_t *len);
	enum gp_status (*decode_to)(void *state, const struct gp_codec_pass *pass, struct gp_span in,
				    struct gp_codec_sink *sink, struct gp_err *err);
	/* (optional) passes from here on are over n elements, from 1 to those of the setup, exactly as after an `open` for n;
	 * what is remembered stays. NULL: always over all. */
	void (*resize)(void *state, const double *value, uint64_t n);
	/* `reshape` below, in place of it, also of a byte stage: where the shape says more than the elements do. One of a single
	 * dimension is that of rows of the setup's tensor, one after another. */
	/* (optional) bytes of one element's code, for bitshuffle. NULL: 1. */
	int (*unit)(const double *value);
	/* (optional) where the codes lie in a body of `len` bytes that was coded from n elements, for byte stages that
	 * model codes. NULL: it has only bytes. */
	struct gp_codec_codes (*codes)(const double *value, uint64_t n, size_t len);

	/* (optional) in place of `codes` where it says so by a width below 0: what the last encode has written, ascending. Fills
	 * at most GP_CODEC_MAX_CODES / 2, returns how many. */
	int (*codes_written)(void *state, struct gp_codec_codes *out);

	/* Transforms and wrappers. */
	/* Why no other transform makes sense behind this one: what it gives is no feature map any more. NULL: one does. */
	const char *last_because;
	bool masks; /* can hand a mask from an activation to its gradient (setup.mask, setup.activation_mask) */
	/* Works along the dimensions between the first and the last: makes no sense of rows that lie one after another
	 * without those of padding between them, nor of places that an earlier stage has mixed. */
	bool needs_shape;
	/* (optional) elements in a row that become mixed with each other, beginning with the first; NULL: none. A stage
	 * behind it that needs the shape is refused where the last dimension is no multiple of it. */
	uint64_t (*mixes)(const double *value);
	/* (optional) passes from here on are over a tensor of that shape, which `shapes` takes, without a dimension larger
	 * than the setup's, exactly as after an `open` for it; but what is remembered of a tensor of another shape is not
	 * used. NULL: always of the setup's. */
	void (*reshape)(void *state, const double *value, const struct gp_shape *shape);
	/* GP_INVALID: this shape cannot be transformed, and why. Runs on shapes and values from a peer. */
	enum gp_status (*shapes)(const double *value, const struct gp_shape *shape, struct gp_codec_parts *out,
				 struct gp_err *err);
	/* x -> tensor[0..count) and side bytes. False: as `encode`. *side_len <= side_bound. */
	bool (*split)(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor,
		      uint8_t *side, size_t *side_len);
	/* The reverse. Total, as `decode`; tensors may hold anything. */
	enum gp_status (*join)(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			       const float *const *tensor, float *x, struct gp_err *err);
	/* (optional) both, for transforms that give one tensor of the same shape and no side bytes and have no state that
	 * passes change: split and join by pieces, for quantizers with `encode_from` and `decode_to`. Elements at..at+n - 1
	 * of the tensor to `out`; false: as `split`. */
	bool (*piece)(void *state, const float *x, uint64_t at, size_t n, float *out);
	/* x[0..ready) are decoded, and the first *done of them joined: joins in place what it can of the others; all of
	 * them where `ready` is the whole tensor. */
	enum gp_status (*join_piece)(void *state, float *x, uint64_t *done, uint64_t ready, struct gp_err *err);
	/* (optional) after split: the tensors as the other end will decode them. */
	void (*learn)(void *state, const struct gp_codec_pass *pass, const float *const *tensor);
	/* (optional) when a tensor travels or arrives raw instead. */
	void (*passed)(void *state, const struct gp_codec_pass *pass);

	/* Byte stages. */
	bool rearranges; /* shortens nothing itself: only makes sense before a stage that does */
	/* (optional) before each squeeze: where codes lie in its input, ascending; at most GP_CODEC_MAX_CODES. None when
	 * another stage before this one was not skipped. A hint: any bytes come back, whatever was told. */
	void (*tell)(void *state, const struct gp_codec_codes *codes, int count);
	/* Writes at most cap = in.len bytes. False: does not pay, `out` is unspecified. */
	bool (*squeeze)(void *state, const struct gp_codec_pass *pass, struct gp_span in, uint8_t *out, size_t *len);
	/* Total. Exactly `len` bytes, len <= setup.n. */
	enum gp_status (*expand)(void *state, const struct gp_codec_pass *pass, struct gp_span in, uint8_t *out,
				 size_t len, struct gp_err *err);
};

#define GP_CODEC_DECLARE(id, name, gpu) extern const struct gp_codec_ops gp_codec_##name;
GP_CODECS(GP_CODEC_DECLARE)
#undef GP_CODEC_DECLARE

/* Elements at..at+n - 1, in `room` or where they are anyway. NULL: they cannot be represented. */
static inline const float *gp_codec_source_at(const struct gp_codec_source *source, uint64_t at, size_t n, float *room)
{
	if (!source->ops)
		return source->x + at;
	return source->ops->piece(source->state, source->x, at, n, room) ? room : NULL;
}

static inline enum gp_status gp_codec_sink_ready(struct gp_codec_sink *sink, uint64_t ready, struct gp_err *err)
{
	return sink->ops ? sink->ops->join_piece(sink->state, sink->x, &sink->done, ready, err) : GP_OK;
}

/* For `codes`: all of them are the last bytes of the body. */
static inline struct gp_codec_codes gp_codec_codes_at_end(int width, uint64_t count, size_t len)
{
	return (struct gp_codec_codes){.at = len - (count * (uint64_t)width + 7) / 8, .count = count, .width = width};
}

/* codec_work.c: what `work` says, or is when there is none; of both ways where the setup has both. */
uint64_t gp_codec_stage_work(const struct gp_codec_ops *ops, const double *value, const struct gp_codec_setup *setup);
/* For `work`: sums and products that stop at UINT64_MAX. */
uint64_t gp_codec_work_add(uint64_t a, uint64_t b);
uint64_t gp_codec_work_times(uint64_t a, uint64_t b);

/* codec_stop.c: whether the pass is to end. One load of a flag, so that each part of some 0.1 s at most may ask. */
bool gp_codec_stopped(const struct gp_codec_pass *pass);
static inline enum gp_status gp_codec_check_stop(const struct gp_codec_pass *pass, struct gp_err *err)
{
	if (gp_codec_stopped(pass))
		GP_FAIL(err, GP_CANCELED, "the codec was stopped");
	return GP_OK;
}

/* Registry. NULL past the end, for an unknown id, for an unknown name. */
const struct gp_codec_ops *gp_codec_ops_at(int index);
const struct gp_codec_ops *gp_codec_ops_by_id(uint16_t id);
const struct gp_codec_ops *gp_codec_ops_by_name(const char *name);

/* codec_key.c */
struct gp_value_form gp_codec_key_form(const struct gp_codec_key *key);
/* The shortest text that is read as `value`. Returns `text`. */
const char *gp_codec_key_print(const struct gp_codec_key *key, double value, char text[GP_SHOWN]);
/* gp_codec_keys_text of one codec. */
const char *gp_codec_ops_keys_text(const struct gp_codec_ops *ops, char *text, size_t size);

/* codec_order.c: whether the stages make sense one after another; adds `raw` where a quantizer is missing. */
enum gp_status gp_codec_order_check(struct gp_codec_spec *spec, struct gp_err *err);

/* Little-endian scalars of payloads. */
static inline void gp_put_u32(uint8_t *out, uint32_t v)
{
	out[0] = (uint8_t)v;
	out[1] = (uint8_t)(v >> 8);
	out[2] = (uint8_t)(v >> 16);
	out[3] = (uint8_t)(v >> 24);
}

static inline uint32_t gp_get_u32(const uint8_t *in)
{
	return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static inline void gp_put_f32(uint8_t *out, float v)
{
	uint32_t u;
	memcpy(&u, &v, sizeof u);
	gp_put_u32(out, u);
}

static inline float gp_get_f32(const uint8_t *in)
{
	uint32_t u = gp_get_u32(in);
	float v;
	memcpy(&v, &u, sizeof v);
	return v;
}

/* 1 for NaN and the infinities. Or-ed together over a loop it leaves that loop a vector loop. */
static inline uint32_t gp_not_finite(float v)
{
	uint32_t u;
	memcpy(&u, &v, sizeof u);
	return (u & UINT32_C(0x7f800000)) == UINT32_C(0x7f800000);
}

static inline void gp_put_f32s(uint8_t *out, const float *x, size_t n)
{
	memcpy(out, x, 4 * n);
}

static inline void gp_get_f32s(float *x, const uint8_t *in, size_t n)
{
	memcpy(x, in, 4 * n);
}

#endif

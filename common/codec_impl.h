/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the codec family: the table of one codec (keys, bounds, encode and
 * decode) that codec_registry.c lists, codec_spec.c reads and codec_chain.c
 * drives. Not for callers of codecs: they include common/codec.h.
 *
 * A chain is   transform* quantizer byte-stage*
 *   transform   tensor -> tensor(s) and side bytes (top-k, low rank, ...)
 *   quantizer   tensor -> bytes; exactly one, `raw` when none is written
 *   byte stage  bytes -> bytes, lossless (zstd, ...)
 * The parser enforces this order. Only quantizers exist so far; a kind's slots
 * come with its first codec. They have a place in codec_chain.c: a quantizer
 * is opened for an element count, not for the chain, so a transform opens one
 * per tensor it gives; the raw form is decided per quantized tensor, under
 * whatever a transform or byte stage puts around it.
 */
#ifndef GP_CODEC_IMPL_H
#define GP_CODEC_IMPL_H

#include <string.h>

#include "common/codec.h"

#define GP_CODEC_MAX_KEYS     8
#define GP_CODEC_MAX_ELEMENTS (UINT64_C(1) << 31)

enum gp_codec_kind { GP_CODEC_TRANSFORM, GP_CODEC_QUANTIZER, GP_CODEC_BYTES };

/* One integer key: "bits", allowed 1..16, 8 when not given. */
struct gp_codec_key {
	const char *name;
	double min, max, initial;
};

struct gp_codec_ops {
	uint16_t id; /* on the wire: pinned, never reused */
	enum gp_codec_kind kind;
	struct gp_codec_info info;
	int keys;
	struct gp_codec_key key[GP_CODEC_MAX_KEYS];
	/* (optional) rules between keys, each already in its own range. NULL: none. */
	enum gp_status (*check)(const double *value, struct gp_err *err);

	/* Quantizers. `value` has the keys' values in table order, n >= 1 elements. */
	/* Most bytes `encode` writes and `decode` takes. */
	uint64_t (*bound)(const double *value, uint64_t n);
	enum gp_status (*open)(const double *value, uint64_t n, uint64_t seed, void **state, struct gp_err *err);
	void (*close)(void *state);
	/* False when x cannot be represented (non-finite, range overflow): the chain then sends it as raw. Lossless
	 * codecs always return true. *len <= bound. */
	bool (*encode)(void *state, const float *x, uint64_t draw, uint8_t *out, size_t *len);
	/* Total: GP_PROTO for whatever encode cannot have written. */
	enum gp_status (*decode)(void *state, struct gp_span in, float *x, struct gp_err *err);
};

extern const struct gp_codec_ops gp_codec_raw, gp_codec_fp16, gp_codec_bf16, gp_codec_uniform, gp_codec_sortquant;

/* Registry. NULL past the end, for an unknown id, for an unknown name. */
const struct gp_codec_ops *gp_codec_ops_at(int index);
const struct gp_codec_ops *gp_codec_ops_by_id(uint16_t id);
const struct gp_codec_ops *gp_codec_ops_by_name(const char *name);

/* Little-endian scalars of payloads. */
static inline void gp_put_f32(uint8_t *out, float v)
{
	uint32_t u;
	memcpy(&u, &v, sizeof u);
	out[0] = (uint8_t)u;
	out[1] = (uint8_t)(u >> 8);
	out[2] = (uint8_t)(u >> 16);
	out[3] = (uint8_t)(u >> 24);
}

static inline float gp_get_f32(const uint8_t *in)
{
	uint32_t u = in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
	float v;
	memcpy(&v, &u, sizeof v);
	return v;
}

static inline void gp_put_f32s(uint8_t *out, const float *x, size_t n)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	memcpy(out, x, 4 * n);
#else
	for (size_t i = 0; i < n; i++)
		gp_put_f32(out + 4 * i, x[i]);
#endif
}

static inline void gp_get_f32s(float *x, const uint8_t *in, size_t n)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	memcpy(x, in, 4 * n);
#else
	for (size_t i = 0; i < n; i++)
		x[i] = gp_get_f32(in + 4 * i);
#endif
}

#endif

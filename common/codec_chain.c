/* SPDX-License-Identifier: Apache-2.0
 *
 * An instance of a codec chain: checks the shape, owns the stages' state, and
 * frames a lossy quantizer's bytes with the form they have (coded, or raw for
 * a tensor that the quantizer cannot represent). Payload head: CODECS.md.
 * Test: tests/unit/test_codec.c; fuzz: tests/fuzz/fuzz_codec_decode.c
 */
#include "common/codec_impl.h"

/* Head of a payload of a lossy chain: the form and three zero bytes, which keep what follows aligned. */
enum { HEAD_BYTES = 4, FORM_CODED = 0, FORM_RAW = 1 };

struct gp_codec {
	const struct gp_codec_ops *quantizer;
	void *state;
	uint64_t n;
	size_t bound; /* of the whole payload */
	struct gp_codec_stats stats;
};

/* The one quantizer: the parser has put it where it belongs. */
static const struct gp_codec_stage_spec *quantizer_of(const struct gp_codec_spec *spec)
{
	for (int i = 0; i < spec->stages; i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_by_id(spec->stage[i].id);
		if (ops && ops->kind == GP_CODEC_QUANTIZER)
			return &spec->stage[i];
	}
	return NULL;
}

static enum gp_status measure(const struct gp_codec_spec *spec, const struct gp_shape *shape, uint64_t *n,
			      uint64_t *bytes, struct gp_err *err)
{
	const struct gp_codec_stage_spec *stage = quantizer_of(spec);
	gp_require(stage);
	const struct gp_codec_ops *ops = gp_codec_ops_by_id(stage->id);
	GP_TRY(gp_shape_count(shape, GP_CODEC_MAX_ELEMENTS, n, err));
	*bytes = ops->bound(stage->value, *n);
	if (!ops->info.lossless)
		*bytes = HEAD_BYTES + (*bytes > 4 * *n ? *bytes : 4 * *n);
	return GP_OK;
}

enum gp_status gp_codec_bound_for(const struct gp_codec_spec *spec, const struct gp_shape *shape, uint64_t *bytes,
				  struct gp_err *err)
{
	uint64_t n;
	return measure(spec, shape, &n, bytes, err);
}

enum gp_status gp_codec_new(const struct gp_codec_spec *spec, const struct gp_shape *shape, uint64_t seed,
			    struct gp_codec **out, struct gp_err *err)
{
	uint64_t n, bytes;
	void *p;
	GP_TRY(measure(spec, shape, &n, &bytes, err));
	GP_TRY(gp_alloc_array(&p, 1, sizeof **out, err));
	struct gp_codec *c = p;
	const struct gp_codec_stage_spec *stage = quantizer_of(spec);
	*c = (struct gp_codec){.quantizer = gp_codec_ops_by_id(stage->id), .n = n, .bound = bytes};
	enum gp_status status = c->quantizer->open(stage->value, n, seed, &c->state, err);
	if (status != GP_OK) {
		gp_free(c);
		return status;
	}
	*out = c;
	return GP_OK;
}

void gp_codec_free(struct gp_codec *c)
{
	if (!c)
		return;
	c->quantizer->close(c->state);
	gp_free(c);
}

size_t gp_codec_bound(const struct gp_codec *c)
{
	return c->bound;
}

static void encode_lossy(struct gp_codec *c, const float *x, uint64_t draw, uint8_t *out, size_t *len)
{
	size_t body;
	memset(out, 0, HEAD_BYTES);
	out[0] = FORM_CODED;
	if (!c->quantizer->encode(c->state, x, draw, out + HEAD_BYTES, &body)) {
		out[0] = FORM_RAW;
		gp_put_f32s(out + HEAD_BYTES, x, c->n);
		body = 4 * c->n;
		c->stats.raw_fallbacks++;
	}
	*len = HEAD_BYTES + body;
}

enum gp_status gp_codec_encode(struct gp_codec *c, const float *x, uint64_t draw, uint8_t *out, size_t cap, size_t *len,
			       struct gp_err *err)
{
	if (cap < c->bound)
		GP_FAIL(err, GP_INTERNAL, "encoding needs room for %zu bytes and got %zu", c->bound, cap);
	if (c->quantizer->info.lossless)
		c->quantizer->encode(c->state, x, draw, out, len);
	else
		encode_lossy(c, x, draw, out, len);
	c->stats.encoded++;
	return GP_OK;
}

static enum gp_status decode_lossy(struct gp_codec *c, struct gp_span in, float *x, struct gp_err *err)
{
	if (in.len < HEAD_BYTES)
		GP_FAIL(err, GP_PROTO, "payload of %zu bytes is shorter than its head", in.len);
	if (in.data[1] || in.data[2] || in.data[3] || in.data[0] > FORM_RAW)
		GP_FAIL(err, GP_PROTO, "payload head %02x %02x %02x %02x is not known", in.data[0], in.data[1],
			in.data[2], in.data[3]);
	const struct gp_span body = {in.data + HEAD_BYTES, in.len - HEAD_BYTES};
	if (in.data[0] == FORM_CODED)
		return c->quantizer->decode(c->state, body, x, err);
	if (body.len != 4 * c->n)
		GP_FAIL(err, GP_PROTO, "payload in raw form has %zu bytes instead of %llu", in.len,
			(unsigned long long)(HEAD_BYTES + 4 * c->n));
	gp_get_f32s(x, body.data, c->n);
	return GP_OK;
}

enum gp_status gp_codec_decode(struct gp_codec *c, struct gp_span in, float *x, struct gp_err *err)
{
	if (c->quantizer->info.lossless)
		GP_TRY(c->quantizer->decode(c->state, in, x, err));
	else
		GP_TRY(decode_lossy(c, in, x, err));
	c->stats.decoded++;
	return GP_OK;
}

void gp_codec_get_stats(const struct gp_codec *c, struct gp_codec_stats *out)
{
	*out = c->stats;
}

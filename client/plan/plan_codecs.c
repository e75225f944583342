/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_codecs.h. Test: tests/unit/test_plan_measure.c
 */
#include "client/plan/plan_codecs.h"

#include <math.h>
#include <stdio.h>

#include "client/plan/plan_blocks.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/wire/frame.h"

enum { REPEATS_LEAST = 3, REPEATS_MOST = 64, WARMUP = 1, WARMUP_THAT_REMEMBERS = 4 };

/* One tensor and its codec. */
struct coder {
	const struct gp_captured *tensor; /* NULL: there is none */
	struct gp_codec *codec;
	uint8_t *payload;
	float *decoded;
	size_t len;
	int repeats;
	double encode_s[REPEATS_MOST], decode_s[REPEATS_MOST], rel_err;
};

static double seconds_since(uint64_t ns)
{
	return (double)(gp_now_ns() - ns) * 1e-9;
}

static uint64_t elements_of(const struct gp_captured *t)
{
	return gp_shape_elements(&t->type.shape);
}

static enum gp_status open_coder(struct coder *c, const struct gp_codec_spec *spec, const struct coder *activation,
				 struct gp_err *err)
{
	struct gp_codec_spec filled = *spec;
	const struct gp_codec_options options = {.has_gradient = !activation,
						 .activation = activation ? activation->codec : NULL};
	const struct gp_shape *shape = &c->tensor->type.shape;
	if (shape->dim[0] > 0 && shape->dim[0] <= 1 << 24)
		GP_TRY(gp_codec_spec_set_samples(&filled, (uint32_t)shape->dim[0], err));
	GP_TRY(gp_codec_open(&filled, shape, &options, &c->codec, err));
	c->payload = gp_alloc_aligned(gp_codec_bound(c->codec));
	c->decoded = gp_alloc_aligned(elements_of(c->tensor) * sizeof(float));
	if (!c->payload || !c->decoded)
		GP_FAIL(err, GP_NOMEM, "no memory for a tensor to try codecs on");
	return GP_OK;
}

static void close_coder(struct coder *c)
{
	gp_codec_free(c->codec);
	gp_free_aligned(c->payload);
	gp_free_aligned(c->decoded);
}

/* As a transfer does both, with the checksum of the frame. Without numbers of samples, so that for `delta` each pass is
 * a first visit: the bytes and the error of a run's first epoch. How much less differences take later does not follow
 * from one capture, and to code the same samples again would leave differences of nearly nothing. */
static enum gp_status code(struct coder *c, int pass, struct gp_err *err)
{
	const int at = pass < 0 ? 0 : pass;
	uint64_t begin = gp_now_ns();
	GP_TRY(gp_codec_encode(c->codec, c->tensor->data, 0, c->payload, gp_codec_bound(c->codec), &c->len, err));
	const uint64_t sum = gp_frame_checksum(c->payload, c->len);
	c->encode_s[at] = seconds_since(begin);
	begin = gp_now_ns();
	const bool same = gp_frame_checksum(c->payload, c->len) == sum;
	GP_TRY(gp_codec_decode(c->codec, (struct gp_span){c->payload, c->len}, c->decoded, err));
	c->decode_s[at] = seconds_since(begin);
	c->repeats = at + 1;
	gp_require(same);
	return GP_OK;
}

static double error_of(const struct coder *c)
{
	const float *x = c->tensor->data;
	double error = 0, all = 0;
	for (uint64_t i = 0; i < elements_of(c->tensor); i++) {
		const double v = (double)x[i], d = v - (double)c->decoded[i];
		if (!isfinite(v))
			continue;
		error += d * d;
		all += v * v;
	}
	return error > 0 ? sqrt(error / fmax(all, 1e-300)) : 0;
}

/* Activation and gradient in turns, as the second may use what the first leaves behind. */
static enum gp_status repeat(struct coder *c, double seconds, struct gp_err *err)
{
	bool remembers = false;
	for (int k = 0; k < GP_CODED; k++)
		remembers |= c[k].codec && gp_codec_remembers(c[k].codec);
	const uint64_t begin = gp_now_ns();
	for (int pass = -(remembers ? WARMUP_THAT_REMEMBERS : WARMUP); pass < REPEATS_MOST; pass++) {
		if (pass >= REPEATS_LEAST && seconds_since(begin) > seconds)
			break;
		for (int k = 0; k < GP_CODED; k++)
			if (c[k].codec)
				GP_TRY(code(&c[k], pass, err));
		for (int k = 0; k < GP_CODED && pass == 0; k++)
			c[k].rel_err = c[k].codec ? error_of(&c[k]) : 0;
	}
	return GP_OK;
}

static void add(struct coder *c, struct gp_plan_coding *sum)
{
	if (!c->codec)
		return;
	sum->elements += (double)elements_of(c->tensor);
	sum->payload_bytes += (double)c->len;
	sum->encode_s += gp_plan_median(c->encode_s, c->repeats);
	sum->decode_s += gp_plan_median(c->decode_s, c->repeats);
	sum->rel_err = fmax(sum->rel_err, c->rel_err);
}

/* What does not fit is said of that one; memory that is short is a failure. */
static enum gp_status note_misfit(enum gp_status status, const struct gp_err *why, struct gp_plan_coding *out,
				  struct gp_err *err)
{
	if (status == GP_OK)
		return GP_OK;
	if (status == GP_NOMEM) {
		*err = *why;
		return status;
	}
	out->fits = false;
	snprintf(out->why, sizeof out->why, "%s", why->text);
	return GP_OK;
}

static enum gp_status measure_pair(struct coder *c, const struct gp_codec_spec *const spec[GP_CODED], double seconds,
				   struct gp_plan_coding out[GP_CODED], struct gp_err *err)
{
	struct gp_err why = {0};
	enum gp_status status = open_coder(&c[GP_CODED_ACT], spec[GP_CODED_ACT], NULL, &why);
	if (status != GP_OK)
		return note_misfit(status, &why, &out[GP_CODED_ACT], err);
	if (c[GP_CODED_GRAD].tensor)
		status = open_coder(&c[GP_CODED_GRAD], spec[GP_CODED_GRAD], &c[GP_CODED_ACT], &why);
	if (status == GP_OK)
		status = repeat(c, seconds, &why);
	if (status != GP_OK)
		return note_misfit(status, &why, &out[c[GP_CODED_GRAD].tensor ? GP_CODED_GRAD : GP_CODED_ACT], err);
	for (int k = 0; k < GP_CODED; k++)
		add(&c[k], &out[k]);
	return GP_OK;
}

/* The gradient of an activation: the first one of its shape that no other has. */
static const struct gp_captured *gradient_of(const struct gp_capture *all, const struct gp_captured *act,
					     enum gp_direction d, uint64_t *taken)
{
	for (int i = 0; i < all->count && i < 64; i++) {
		const struct gp_captured *t = &all->tensor[i];
		if (t->direction != d || *taken >> i & 1 || !gp_shape_equal(&t->type.shape, &act->type.shape))
			continue;
		*taken |= (uint64_t)1 << i;
		return t;
	}
	return NULL;
}

enum gp_status gp_plan_codecs_measure(const struct gp_capture *capture, bool first,
				      const struct gp_codec_spec *const spec[GP_CODED], double seconds,
				      struct gp_plan_coding out[GP_CODED], struct gp_err *err)
{
	const enum gp_direction act = first ? GP_ACT_UP : GP_ACT_DOWN, grad = gp_direction_info[act].partner;
	uint64_t taken = 0;
	out[GP_CODED_ACT] = out[GP_CODED_GRAD] = (struct gp_plan_coding){.fits = true};
	for (int i = 0; i < capture->count; i++) {
		const struct gp_captured *t = &capture->tensor[i];
		struct coder *c;
		if (t->direction != act || t->type.dtype != GP_F32)
			continue;
		GP_TRY(gp_alloc_array((void **)&c, GP_CODED, sizeof *c, err));
		c[GP_CODED_ACT].tensor = t;
		c[GP_CODED_GRAD].tensor = gradient_of(capture, t, grad, &taken);
		const enum gp_status status = measure_pair(c, spec, seconds, out, err);
		close_coder(&c[GP_CODED_GRAD]);
		close_coder(&c[GP_CODED_ACT]);
		gp_free(c);
		if (status != GP_OK)
			return status;
	}
	return GP_OK;
}

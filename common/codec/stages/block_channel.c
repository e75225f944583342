/* SPDX-License-Identifier: Apache-2.0
 *
 * `block` with a scale for each channel of the tensor, in place of each block.
 * Formulas and layout: CODECS.md. The loops: kernels/loops/block_loops.h.
 * Test: tests/unit/test_codec_block.c
 */
#include <math.h>

#include "common/codec/stages/block.h"

enum { PART = 1 << 22 };

/* The arrays of so many channels. */
void gp_block_place_channels(struct gp_block *b, size_t n)
{
	b->channels = n;
	b->channel = (struct gp_block_channels){.count = n,
						.least = b->floats,
						.most = b->floats + n,
						.scale = b->floats + 2 * n,
						.inverse = b->floats + 3 * n,
						.low = b->floats + 4 * n,
						.high = b->floats + 5 * n,
						.zero = b->floats + 6 * n,
						.error = b->least_error + n};
}

enum gp_status gp_block_open_channels(struct gp_block *b, struct gp_err *err)
{
	void *p;
	const size_t n = b->most;
	GP_TRY(gp_alloc_array(&p, 7 * n, sizeof *b->floats, err));
	b->floats = p;
	GP_TRY(gp_alloc_array(&p, 2 * n, sizeof *b->least_error, err));
	b->least_error = p;
	GP_TRY(gp_alloc_array(&p, n, sizeof *b->chosen, err));
	b->chosen = p;
	gp_block_place_channels(b, n);
	return GP_OK;
}

static void set_channel(struct gp_block *b, size_t i, float scale, float reach)
{
	const struct gp_block_channels *c = &b->channel;
	const struct gp_block_step step = gp_block_step_of(&b->form, scale, reach, c->least[i]);
	c->scale[i] = step.scale;
	c->inverse[i] = step.inverse;
	c->low[i] = step.low;
	c->high[i] = step.high;
	c->zero[i] = step.zero;
}

static float channel_reach(const struct gp_block *b, size_t i)
{
	const float least = b->channel.least[i], most = b->channel.most[i];
	return fabsf(b->form.asym ? most - least : fmaxf(-least, most)); /* of zeros 0, not -0 */
}

/* Parts of whole rows, so that a pass can be stopped between them. */
static uint64_t part_of(const struct gp_block *b)
{
	return (PART + b->channels - 1) / b->channels * b->channels;
}

/* False: not finite, or stopped. *top: the largest reach. */
static bool measure_channels(struct gp_block *b, const struct gp_codec_pass *pass, const float *x, float *top)
{
	const uint64_t part = part_of(b);
	memset(b->channel.least, 0, 2 * b->channels * sizeof(float));
	for (uint64_t at = 0; at < b->n; at += part)
		if (gp_codec_stopped(pass) ||
		    b->loops->channel_range(&b->channel, x + at, b->n - at < part ? b->n - at : part) >= 0x7f800000u)
			return false;
	*top = 0;
	for (size_t i = 0; i < b->channels; i++)
		*top = fmaxf(*top, channel_reach(b, i));
	return isfinite(*top);
}

/* One of the ratios for all channels; where it is better it is chosen. */
static bool try_ratio(struct gp_block *b, const struct gp_codec_pass *pass, const float *x, int k)
{
	const float ratio = 1 - (float)k * GP_BLOCK_RATIO_STEP;
	const uint64_t part = part_of(b);
	memset(b->channel.error, 0, b->channels * sizeof *b->channel.error);
	for (size_t i = 0; i < b->channels; i++) {
		const float reach = channel_reach(b, i);
		const unsigned code = gp_block_scale_code(&b->form, reach * ratio);
		set_channel(b, i, gp_block_scale_value(&b->form, code), reach);
	}
	for (uint64_t at = 0; at < b->n; at += part) {
		if (gp_codec_stopped(pass))
			return false;
		b->loops->channel_error(&b->channel, x + at, b->n - at < part ? b->n - at : part);
	}
	for (size_t i = 0; i < b->channels; i++)
		if (k == 0 || b->channel.error[i] < b->least_error[i]) {
			b->least_error[i] = b->channel.error[i];
			b->chosen[i] = (uint16_t)gp_block_scale_code(&b->form, channel_reach(b, i) * ratio);
		}
	return true;
}

static bool choose_scales(struct gp_block *b, const struct gp_codec_pass *pass, const float *x)
{
	for (size_t i = 0; !b->form.mse && i < b->channels; i++)
		b->chosen[i] = (uint16_t)gp_block_scale_code(&b->form, channel_reach(b, i));
	for (int k = 0; b->form.mse && k < GP_BLOCK_RATIOS; k++)
		if (!try_ratio(b, pass, x, k))
			return false;
	for (size_t i = 0; i < b->channels; i++)
		set_channel(b, i, gp_block_scale_value(&b->form, b->chosen[i]), channel_reach(b, i));
	return true;
}

static void write_scales(const struct gp_block *b, uint8_t *out)
{
	if (!b->form.e8m0) {
		gp_put_f32(out, b->form.unit);
		out += 4;
	}
	for (size_t i = 0; i < b->channels; i++) {
		*out++ = (uint8_t)b->chosen[i];
		if (!b->form.e8m0)
			*out++ = (uint8_t)(b->chosen[i] >> 8);
	}
	for (size_t i = 0; b->form.asym && i < b->channels; i++)
		*out++ = (uint8_t)b->channel.zero[i];
}

bool gp_block_encode_channels(struct gp_block *b, const struct gp_codec_pass *pass, const float *x, uint8_t *out)
{
	float top;
	if (!measure_channels(b, pass, x, &top))
		return false;
	if (!b->form.e8m0)
		gp_block_set_unit(&b->form, top);
	uint32_t bits;
	memcpy(&bits, &top, sizeof bits);
	if (!gp_block_usable(&b->form, bits) || !choose_scales(b, pass, x))
		return false;
	write_scales(b, out);
	out += gp_block_head_bytes(b);
	for (uint64_t at = 0; at < b->n; at += GP_BLOCK_LARGEST, out += GP_BLOCK_LARGEST / 8 * b->form.bits) {
		const size_t here = gp_block_tile_at(b, at, GP_BLOCK_LARGEST);
		if (gp_codec_stopped(pass))
			return false;
		const uint16_t *draws = gp_block_draws_at(b, pass, at, here);
		b->loops->channel_encode(&b->channel, (size_t)(at % b->channels), x + at, here,
					 b->form.stochastic ? draws : NULL, b->codes);
		b->packing->pack(b->codes, here, b->form.bits, out);
	}
	return true;
}

void gp_block_read_channels(struct gp_block *b, const uint8_t *scales, const uint8_t *zeros)
{
	for (size_t i = 0; i < b->channels; i++) {
		b->channel.scale[i] = gp_block_scale_value(&b->form, gp_block_code_at(&b->form, scales, i));
		b->channel.zero[i] = b->form.asym ? (float)zeros[i] : (float)(1 << (b->form.bits - 1));
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * `block` on a GPU: the payloads are the host's byte for byte. Nothing waits
 * between the passes: the unit is found on the device, and whether a scale was
 * too large for it is told with the payload, as is whether the tensor can be
 * coded at all. See common/codec/stages/block.c. Test: tests/unit/test_cuda_codec.c,
 * tests/unit/test_cuda_codec_block.c
 */
#include <math.h>

#include "common/base/rng.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_channel.h"

enum { BITS, SIZE, ZERO, SCALE, CLIP, DIM, ROUND };
enum { SMALLEST = 16, UNIT_LOW = 27, UNIT_HIGH = 250 }; /* elements of a block; exponents of the unit */

struct block {
	struct gp_codec_site *site;
	uint64_t n;
	uint64_t seed;
	struct gp_block_form form;
	uint64_t channels; /* dim=channel, and enough elements to each; else 0 */
	size_t scales_at, zeros_at, codes_at, bytes;
	void *room; /* of channels; device memory */
};

/* --- open ------------------------------------------------------------------------------------------------------- */

/* With fewer than 16 elements to a channel, blocks have scales. */
static uint64_t channels_of(const double *value, const struct gp_codec_setup *setup)
{
	const int last = setup->shape.ndim - 1;
	const uint64_t channels = value[DIM] > 0 && last > 0 ? (uint64_t)setup->shape.dim[last] : 0;
	return channels && setup->n / SMALLEST >= channels ? channels : 0;
}

static uint64_t room_bytes(const double *value, const struct gp_codec_setup *setup)
{
	const uint64_t channels = channels_of(value, setup);
	return channels ? gpk_channel_room((int64_t)(setup->n / channels), (int64_t)channels, setup->encodes) : 0;
}

static uint64_t memory(const double *value, const struct gp_codec_setup *setup)
{
	return 4096 + room_bytes(value, setup);
}

static void close_block(void *state)
{
	struct block *b = state;
	if (!b)
		return;
	gp_cuda_codec_free(b->site, b->room);
	gp_free(b);
}

static void lay_out(struct block *b)
{
	const uint64_t scales = b->channels ? b->channels : (b->n + b->form.size - 1) / b->form.size;
	b->scales_at = b->form.e8m0 ? 0 : 4;
	b->zeros_at = b->scales_at + scales * (b->form.e8m0 ? 1 : 2);
	b->codes_at = b->zeros_at + (b->form.asym ? scales : 0);
	b->bytes = b->codes_at + (b->n * (uint64_t)b->form.bits + 7) / 8;
}

static enum gp_status open_block(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	const uint64_t room = room_bytes(value, setup);
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct block), err));
	struct block *b = p;
	*b = (struct block){.site = setup->site,
			    .n = setup->n,
			    .seed = setup->seed,
			    .form = {.bits = (int)value[BITS],
				     .size = (size_t)value[SIZE],
				     .asym = value[ZERO] > 0,
				     .e8m0 = value[SCALE] > 0,
				     .mse = value[CLIP] > 0,
				     .stochastic = value[ROUND] > 0},
			    .channels = channels_of(value, setup)};
	lay_out(b);
	const enum gp_status status = room ? gp_cuda_codec_alloc(b->site, room, &b->room, err) : GP_OK;
	if (status != GP_OK) {
		b->room = NULL;
		close_block(b);
		return status;
	}
	*state = b;
	return GP_OK;
}

/* A payload in the payload room, its codes aligned. */
static struct gpk_block_body body_of(const struct block *b)
{
	uint8_t *const begin = gp_cuda_codec_body(b->site, b->codes_at % 256);
	return (struct gpk_block_body){
		.scales = begin + b->scales_at, .zeros = begin + b->zeros_at, .codes = begin + b->codes_at};
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* By answer->unit, or for channels by the unit that they find. Waits. False: the device failed. */
static bool write_payload(const struct block *b, const struct gp_codec_pass *pass, const float *x, uint8_t *out)
{
	struct gp_codec_site *const p = b->site;
	const struct gpk_block_body body = body_of(b);
	const struct gpk_block_draws draws = {b->seed, gp_rng_stream(GP_RNG_ROUNDING, pass->draw)};
	if (b->channels)
		gpk_channel_encode(p->stream, &b->form, x, (int64_t)(b->n / b->channels), (int64_t)b->channels, &draws,
				   &body, b->room, p->note);
	else
		gpk_block_encode(p->stream, &b->form, x, (int64_t)b->n, &draws, &body, p->note);
	gp_rt_copy_down(p->stream, out + b->scales_at, body.scales, b->bytes - b->scales_at);
	gp_cuda_codec_tell(p, sizeof(struct gpk_block_answer));
	return gp_cuda_codec_wait(p);
}

static float number(uint32_t bits)
{
	float v;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* The form with the unit that the scales of the last payload have. */
static struct gp_block_form used_form(const struct block *b)
{
	const struct gpk_block_answer *const told = b->site->told;
	struct gp_block_form form = b->form;
	form.unit = told->unit;
	form.by_unit = 1 / told->unit;
	return form;
}

/* Whether some scale was too large to be a half. */
static bool unit_too_small(const struct gp_block_form *f, uint32_t reach)
{
	return !f->e8m0 && reach < 0x7f800000u && number(reach) / gp_block_top(f) * f->by_unit > GP_HALF_MOST;
}

/* Whether every value that a block of this reach, the largest, gives is finite. */
static bool usable(const struct gp_block_form *f, uint32_t reach)
{
	if (reach >= 0x7f800000u)
		return false;
	const float scale = gp_block_scale_value(f, gp_block_scale_code(f, number(reach)));
	return isfinite(gp_block_top(f) * scale);
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	const struct block *b = state;
	struct gp_codec_site *const p = b->site;
	const struct gpk_block_answer *const told = p->told;
	*len = b->bytes;
	if (!b->channels)
		gpk_block_guess(p->stream, &b->form, x, (int64_t)b->n, p->note);
	if (!write_payload(b, pass, x, out))
		return false;
	struct gp_block_form form = used_form(b);
	if (!b->channels && unit_too_small(&form, told->top)) {
		gpk_block_unit(p->stream, &b->form, p->note);
		if (!write_payload(b, pass, x, out))
			return false;
		form = used_form(b);
	}
	if (!form.e8m0)
		gp_put_f32(out, form.unit);
	return usable(&form, told->top);
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

/* What the host can see: lengths, what is behind the last code, the unit. */
static enum gp_status check_head(const struct block *b, struct gp_span in, float *unit, struct gp_err *err)
{
	const int used = (int)(b->n * (uint64_t)b->form.bits % 8);
	if (in.len != b->bytes)
		GP_FAIL(err, GP_PROTO, "block payload has %zu bytes instead of %zu", in.len, b->bytes);
	if (used && in.data[in.len - 1] >> used)
		GP_FAIL(err, GP_PROTO, "block payload has bits set behind its last code");
	*unit = 1;
	if (b->form.e8m0)
		return GP_OK;
	const uint32_t bits = gp_get_u32(in.data), exponent = bits >> 23;
	*unit = gp_get_f32(in.data);
	if (bits & 0x7fffff || exponent < UNIT_LOW || exponent > UNIT_HIGH)
		GP_FAIL(err, GP_PROTO,
			"block payload has the unit %g, which is not a power of two from 2^-100 to 2^123",
			(double)*unit);
	return GP_OK;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	const struct block *b = state;
	struct gp_codec_site *const p = b->site;
	const struct gpk_block_body body = body_of(b);
	float unit;
	(void)pass;
	GP_TRY(check_head(b, in, &unit, err));
	gp_cuda_codec_up(p, in, b->codes_at % 256);
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	if (b->channels)
		gpk_channel_decode(p->stream, &b->form, &body, (int64_t)(b->n / b->channels), (int64_t)b->channels,
				   unit, b->room, x, p->note);
	else
		gpk_block_decode(p->stream, &b->form, &body, (int64_t)b->n, unit, x, p->note);
	gp_cuda_codec_tell(p, sizeof(uint32_t));
	if (!gp_cuda_codec_wait(p))
		GP_FAIL(err, GP_DEVICE, "%s", p->why.text);
	if (*(const uint32_t *)p->told)
		GP_FAIL(err, GP_PROTO, "block payload has a scale, a zero point or a code that is out of range");
	return GP_OK;
}

const struct gp_codec_ops gp_cuda_codec_block = {
	.open = open_block,
	.close = close_block,
	.bytes = memory,
	.encode = encode,
	.decode = decode,
};

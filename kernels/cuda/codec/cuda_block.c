/* SPDX-License-Identifier: Apache-2.0
 *
 * `block` on a GPU: the payloads are the host's byte for byte. Nothing waits
 * between the passes: the unit is found on the device, and whether a scale was
 * too large for it is told with the payload, as is whether the tensor can be
 * coded at all. See common/codec/stages/block.c. Test: tests/unit/test_cuda_codec.c,
 * tests/unit/test_cuda_codec_block.c
 */
#include "common/base/rng.h"
#include "common/codec/stages/block.h"
#include "kernels/cuda/codec/cuda_budget.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_channel.h"

enum { BITS, SIZE, ZERO, SCALE, CLIP, DIM, ROUND, BUDGET };
enum { UNIT_LOW = 27, UNIT_HIGH = 250 }; /* exponents of the unit */

struct block {
	struct gp_codec_site *site;
	uint64_t n;
	uint64_t seed;
	struct gp_block_form form;
	uint64_t channels; /* dim=channel, and enough elements to each; else 0 */
	size_t scales_at, zeros_at, widths_at, codes_at;
	size_t bytes; /* of a payload without a budget */
	void *room;   /* device memory that a pass over channels works in */
	bool has_budget;
	struct gp_cuda_budget budget;
};

/* --- open ------------------------------------------------------------------------------------------------------- */

/* 0 also with fewer than 16 elements to a channel: blocks have scales then. */
static uint64_t channels_of(const double *value, const struct gp_codec_setup *setup)
{
	const int last = setup->shape.ndim - 1;
	const uint64_t channels = value[DIM] > 0 && last > 0 ? (uint64_t)setup->shape.dim[last] : 0;
	return channels && setup->n / GP_BLOCK_SMALLEST >= channels ? channels : 0;
}

static uint64_t room_bytes(const double *value, const struct gp_codec_setup *setup)
{
	const uint64_t channels = channels_of(value, setup);
	return channels ? gpk_channel_room((int64_t)(setup->n / channels), (int64_t)channels, setup->encodes) : 0;
}

static uint64_t memory(const double *value, const struct gp_codec_setup *setup)
{
	return 4096 + room_bytes(value, setup) +
	       (value[BUDGET] > 0 ? gp_cuda_budget_bytes(setup->n, (uint64_t)value[SIZE]) : 0);
}

static void close_block(void *state)
{
	struct block *b = state;
	if (!b)
		return;
	gp_cuda_codec_free(b->site, b->room);
	gp_cuda_budget_close(&b->budget);
	gp_free(b);
}

static void lay_out(struct block *b)
{
	const uint64_t scales = b->channels ? b->channels : (b->n + b->form.size - 1) / b->form.size;
	b->scales_at = gp_block_unit_bytes(&b->form);
	b->zeros_at = b->scales_at + scales * gp_block_scale_bytes(&b->form);
	b->widths_at = b->zeros_at + (b->form.asym ? scales : 0);
	b->codes_at = b->widths_at + (b->has_budget ? gp_cuda_budget_width_bytes(&b->budget) : 0);
	b->bytes = b->codes_at + gp_block_code_bytes(b->form.bits, b->n);
}

static enum gp_status open_rooms(struct block *b, const double *value, const struct gp_codec_setup *setup,
				 struct gp_err *err)
{
	const uint64_t room = room_bytes(value, setup);
	void *p;
	if (room) {
		GP_TRY(gp_cuda_codec_alloc(b->site, room, &p, err));
		b->room = p;
	}
	if (b->has_budget)
		GP_TRY(gp_cuda_budget_open(&b->budget, b->site, b->n, b->form.size, value[BUDGET], err));
	return GP_OK;
}

static enum gp_status open_block(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
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
			    .channels = channels_of(value, setup),
			    .has_budget = value[BUDGET] > 0};
	const enum gp_status status = open_rooms(b, value, setup, err);
	if (status != GP_OK) {
		close_block(b);
		return status;
	}
	lay_out(b);
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

static struct gpk_block_draws draws_of(const struct block *b, const struct gp_codec_pass *pass)
{
	return (struct gpk_block_draws){b->seed, gp_rng_stream(GP_RNG_ROUNDING, pass->draw)};
}

/* Scales and codes by answer->unit; for channels, by the unit that their pass finds. Waits. False: the device failed. */
static bool write_payload(const struct block *b, const struct gp_codec_pass *pass, const float *x, uint8_t *out)
{
	struct gp_codec_site *const p = b->site;
	const struct gpk_block_body body = body_of(b);
	const struct gpk_block_draws draws = draws_of(b, pass);
	if (b->channels)
		gpk_channel_encode(p->stream, &b->form, x, (int64_t)(b->n / b->channels), (int64_t)b->channels, &draws,
				   &body, b->room, p->note);
	else
		gpk_block_encode(p->stream, &b->form, x, (int64_t)b->n, &draws, &body, p->note);
	gp_rt_copy_down(p->stream, out + b->scales_at, body.scales, b->bytes - b->scales_at);
	gp_cuda_codec_tell(p, sizeof(struct gpk_block_answer));
	return gp_cuda_codec_wait(p);
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
	return !f->e8m0 && reach < 0x7f800000u &&
	       gp_block_reach_value(reach) / gp_block_top(f) * f->by_unit > GP_HALF_MOST;
}

static bool encode_budget(struct block *b, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct gp_codec_site *const p = b->site;
	const struct gpk_block_body body = body_of(b);
	const struct gpk_block_draws draws = draws_of(b, pass);
	struct gp_block_form form = b->form;
	if (!gp_cuda_budget_choose(&b->budget, &form, x))
		return false;
	gp_cuda_budget_place(&b->budget);
	const uint64_t codes = b->budget.groups.at[GP_BUDGET_MOST + 1];
	*len = b->codes_at + codes;
	gpk_budget_encode(p->stream, &form, x, (int64_t)b->n, &draws, b->budget.place, &body);
	gp_rt_copy_down(p->stream, out + b->scales_at, body.scales, b->widths_at - b->scales_at);
	gp_rt_copy_down(p->stream, out + b->codes_at, body.codes, codes);
	if (!form.e8m0)
		gp_put_f32(out, form.unit);
	gp_cuda_budget_write_widths(&b->budget, out + b->widths_at);
	return gp_cuda_codec_wait(p);
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct block *b = state;
	struct gp_codec_site *const p = b->site;
	const struct gpk_block_answer *const told = p->told;
	if (b->has_budget)
		return encode_budget(b, pass, x, out, len);
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
	return gp_block_usable(&form, told->top);
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

static enum gp_status check_length(const struct block *b, struct gp_span in, struct gp_err *err)
{
	if (in.len != b->bytes)
		GP_FAIL(err, GP_PROTO, "block payload has %zu bytes instead of %zu", in.len, b->bytes);
	return gp_block_check_filling(b->n * (uint64_t)b->form.bits, in.data + in.len, err);
}

static enum gp_status read_unit(struct gp_block_form *form, const uint8_t *in, struct gp_err *err)
{
	const uint32_t bits = gp_get_u32(in), exponent = bits >> 23;
	form->unit = form->by_unit = 1;
	if (form->e8m0)
		return GP_OK;
	if (bits & 0x7fffff || exponent < UNIT_LOW || exponent > UNIT_HIGH)
		GP_FAIL(err, GP_PROTO,
			"block payload has the unit %g, which is not a power of two from 2^-100 to 2^123",
			(double)gp_get_f32(in));
	form->unit = gp_get_f32(in);
	form->by_unit = 1 / form->unit;
	return GP_OK;
}

/* A payload whose lengths are right. *bad becomes what kernels find wrong with it. */
static void queue_values(const struct block *b, const struct gp_block_form *form, float *x, uint32_t *bad)
{
	struct gp_rt_stream *const s = b->site->stream;
	const struct gpk_block_body body = body_of(b);
	const int64_t n = (int64_t)b->n, channels = (int64_t)b->channels;
	gp_rt_fill(s, bad, 0, sizeof *bad);
	if (b->has_budget) {
		gp_cuda_budget_place(&b->budget);
		gpk_budget_decode(s, form, &body, b->budget.place, n, x, bad);
	} else if (channels) {
		gpk_channel_decode(s, form, &body, n / channels, channels, form->unit, b->room, x, bad);
	} else {
		gpk_block_decode(s, form, &body, n, form->unit, x, bad);
	}
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	struct block *b = state;
	struct gp_codec_site *const p = b->site;
	struct gp_block_form form = b->form;
	(void)pass;
	if (b->has_budget)
		GP_TRY(gp_cuda_budget_read(&b->budget, in, b->widths_at, err));
	else
		GP_TRY(check_length(b, in, err));
	GP_TRY(read_unit(&form, in.data, err));
	gp_cuda_codec_up(p, in, b->codes_at % 256);
	queue_values(b, &form, x, p->note);
	gp_cuda_codec_tell(p, sizeof(uint32_t));
	if (!gp_cuda_codec_wait(p))
		GP_FAIL(err, GP_DEVICE, "%s", p->why.text);
	if (*(const uint32_t *)p->told)
		GP_FAIL(err, GP_PROTO, "block payload has a scale, a zero point or a code that is out of range");
	return GP_OK;
}

static int codes_written(void *state, struct gp_codec_codes *out)
{
	const struct block *b = state;
	return gp_cuda_budget_codes(&b->budget, b->codes_at, out);
}

const struct gp_codec_ops gp_cuda_codec_block = {
	.open = open_block,
	.close = close_block,
	.bytes = memory,
	.codes_written = codes_written,
	.encode = encode,
	.decode = decode,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * `smaq` on a GPU. Mean and deviation are sums in another order than the
 * host's and may differ in their last bit; codes are then within one level. The
 * number of outliers, and with it the payload's length, is known only after the
 * codes: it is waited for while those come down, and the extras follow. See common/codec/stages/smaq.c.
 * Test: tests/unit/test_cuda_codec.c
 */
#include "common/base/rng.h"
#include "common/codec/stages/smaq.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/cuda_stored.h"
#include "kernels/cuda/codec/k_codec_smaq.h"

enum { KEY_MAIN, KEY_OUTLIER, SLACK = 16 };

struct smaq {
	struct gp_codec_site *site;
	uint64_t seed;
	struct gp_smaq_coder coder;
	struct gpk_smaq numbers;
	struct gpk_smaq_room room;
	uint8_t *extras; /* packed; NULL where there are none */
};

/* Bytes of each room. */
struct sizes {
	uint64_t parts, sums, counts, extras, packed;
};

static struct sizes sizes_of(int extra_width, const struct gp_codec_setup *setup)
{
	const uint64_t tiles = (uint64_t)gpk_smaq_tiles((int64_t)setup->n);
	struct sizes s = {.sums = GPK_SMAQ_BLOCKS * sizeof(uint32_t)};
	if (setup->encodes) {
		s.parts = 2 * GPK_SMAQ_PARTS * sizeof(double);
		s.counts = tiles * sizeof(uint32_t);
	}
	if (setup->encodes && extra_width)
		s.extras = tiles * 2048 * sizeof(uint16_t);
	if (extra_width)
		s.packed = gp_smaq_packed_bytes(setup->n, extra_width) + SLACK;
	return s;
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	const struct sizes s = sizes_of((int)value[KEY_OUTLIER] - (int)value[KEY_MAIN], setup);
	return 4096 + s.parts + s.sums + s.counts + s.extras + s.packed;
}

static void close_smaq(void *state)
{
	struct smaq *s = state;
	if (!s)
		return;
	gp_cuda_codec_free(s->site, s->room.parts);
	gp_cuda_codec_free(s->site, s->room.sums);
	gp_cuda_codec_free(s->site, s->room.counts);
	gp_cuda_codec_free(s->site, s->room.extras);
	gp_cuda_codec_free(s->site, s->extras);
	gp_free(s);
}

static enum gp_status take_room(struct gp_codec_site *p, uint64_t bytes, void **out, struct gp_err *err)
{
	*out = NULL;
	return bytes ? gp_cuda_codec_alloc(p, bytes, out, err) : GP_OK;
}

static enum gp_status take_rooms(struct smaq *s, const struct sizes *bytes, struct gp_err *err)
{
	void *p;
	GP_TRY(take_room(s->site, bytes->parts, &p, err));
	s->room.parts = p;
	GP_TRY(take_room(s->site, bytes->sums, &p, err));
	s->room.sums = p;
	GP_TRY(take_room(s->site, bytes->counts, &p, err));
	s->room.counts = p;
	GP_TRY(take_room(s->site, bytes->extras, &p, err));
	s->room.extras = p;
	GP_TRY(take_room(s->site, bytes->packed, &p, err));
	s->extras = p;
	return GP_OK;
}

static enum gp_status open_smaq(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct smaq), err));
	struct smaq *s = p;
	const struct gp_smaq_coder *c = &s->coder;
	s->site = setup->site;
	s->seed = setup->seed;
	gp_smaq_init(&s->coder, value, setup->n);
	s->numbers = gp_cuda_smaq_numbers(value);
	const struct sizes bytes = sizes_of(c->extra_width, setup);
	const enum gp_status status = take_rooms(s, &bytes, err);
	if (status != GP_OK) {
		close_smaq(s);
		return status;
	}
	*state = s;
	return GP_OK;
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct smaq *s = state;
	struct gp_codec_site *const p = s->site;
	const struct gp_smaq_coder *c = &s->coder;
	const struct gpk_smaq_head *const told = p->told;
	const uint64_t code_bytes = gp_smaq_packed_bytes(c->n, c->width);
	uint8_t *const codes = gp_cuda_codec_body(p, 0);
	*len = 0;
	gp_rt_fill(p->stream, p->note, 0, sizeof *told);
	if (s->extras)
		gp_rt_fill(p->stream, s->extras, 0, gp_smaq_packed_bytes(c->n, c->extra_width) + SLACK);
	gpk_smaq_measure(p->stream, &s->numbers, x, (int64_t)c->n, &s->room, p->note);
	const struct gpk_smaq_draws draws = {s->seed, gp_rng_stream(GP_RNG_ROUNDING, pass->draw)};
	gpk_smaq_encode(p->stream, &s->numbers, x, (int64_t)c->n, &s->room, p->note, draws, codes, s->extras);
	gp_cuda_codec_ask(p, sizeof *told);
	gp_rt_copy_down(p->stream, out + GP_SMAQ_HEAD, codes, code_bytes);
	if (!gp_cuda_codec_answer(p) || told->bad || told->outliers > c->n)
		return false;
	const uint64_t extra_bytes = gp_smaq_packed_bytes(told->outliers, c->extra_width);
	s->coder.values.mean = told->mean;
	s->coder.values.std = told->std;
	gp_smaq_write_head(&c->values, told->outliers, out);
	if (extra_bytes)
		gp_rt_copy_down(p->stream, out + GP_SMAQ_HEAD + code_bytes, s->extras, extra_bytes);
	*len = GP_SMAQ_HEAD + code_bytes + extra_bytes;
	return true;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	struct smaq *s = state;
	struct gp_codec_site *const p = s->site;
	const struct gpk_smaq_head *const told = p->told;
	struct gp_span codes, extras;
	uint64_t count;
	(void)pass;
	GP_TRY(gp_smaq_read_head(&s->coder, in, &codes, &extras, &count, err));
	const uint8_t *const body = gp_cuda_codec_up(p, codes, 0);
	if (extras.len)
		gp_rt_copy_up(p->stream, s->extras, extras.data, extras.len);
	gp_rt_fill(p->stream, p->note, 0, sizeof *told);
	gpk_smaq_decode(p->stream, &s->numbers, s->coder.values.mean, s->coder.values.std, body, s->extras,
			(uint32_t)count, (int64_t)s->coder.n, &s->room, p->note, x);
	gp_cuda_codec_tell(p, sizeof *told);
	if (!gp_cuda_codec_wait(p))
		GP_FAIL(err, GP_DEVICE, "%s", p->why.text);
	if (told->outliers != count)
		GP_FAIL(err, GP_PROTO, "smaq payload has %lu outliers and names %llu", (unsigned long)told->outliers,
			(unsigned long long)count);
	return GP_OK;
}

const struct gp_codec_ops gp_cuda_codec_smaq = {
	.open = open_smaq,
	.close = close_smaq,
	.bytes = state_bytes,
	.encode = encode,
	.decode = decode,
};

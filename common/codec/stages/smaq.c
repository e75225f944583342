/* SPDX-License-Identifier: Apache-2.0
 *
 * `smaq`: values as numbers of standard deviations from the mean, in codes of
 * two widths (SmaQ: smart quantization for DNN training by exploiting value
 * clustering, Shoghi et al., IEEE CAL 2021). Codes of one width for all
 * elements, then what the outliers' codes are longer. Formula and layout:
 * CODECS.md. Test: tests/unit/test_codec_smaq.c
 */
#include <math.h>

#include "common/base/rng.h"
#include "common/codec/stages/smaq.h"
#include "kernels/loops/codec_loops.h"

enum { MAIN, OUTLIER, ROUND, REACH };
enum { ROUND_TRUNC, ROUND_NEAREST, ROUND_STOCHASTIC };
enum { HEAD = GP_SMAQ_HEAD, BLOCK = GP_QUANT_BLOCK };

struct smaq {
	struct gp_smaq_coder coder;
	const struct gp_codec_loops *packing;
	const struct gp_smaq_loops *loops;
	gp_draw_words *draw; /* round=stochastic, else NULL */
	uint64_t seed;
	union {
		uint32_t word[BLOCK / 2];
		uint16_t half[BLOCK];
	} draws;
	uint16_t codes[BLOCK], extras[2 * BLOCK + GP_SMAQ_SLACK];
};

uint64_t gp_smaq_packed_bytes(uint64_t count, int width)
{
	return (count * (uint64_t)width + 7) / 8;
}

static uint64_t bound(const double *value, uint64_t n)
{
	const int width = (int)value[MAIN], longer = (int)value[OUTLIER] - width;
	return HEAD + gp_smaq_packed_bytes(n, width) + gp_smaq_packed_bytes(n, longer);
}

/* Those of all elements; the outliers' extras behind them are other numbers. */
static struct gp_codec_codes codes(const double *value, uint64_t n, size_t len)
{
	(void)len;
	return (struct gp_codec_codes){.at = HEAD, .count = n, .width = (int)value[MAIN]};
}

static enum gp_status check(const double *value, struct gp_err *err)
{
	if (value[OUTLIER] < value[MAIN])
		GP_FAIL(err, GP_USAGE, "outlier=%d has to be at least main=%d", (int)value[OUTLIER], (int)value[MAIN]);
	return GP_OK;
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	(void)setup;
	return sizeof(struct smaq);
}

bool gp_smaq_draws(const double *value)
{
	return (int)value[ROUND] == ROUND_STOCHASTIC;
}

void gp_smaq_init(struct gp_smaq_coder *c, const double *value, uint64_t n)
{
	const int width = (int)value[MAIN], outlier = (int)value[OUTLIER];
	memset(c, 0, sizeof *c);
	c->n = n;
	c->width = width;
	c->extra_width = outlier - width;
	c->values.low_bits = width - 2;
	c->values.half = (int)value[ROUND] == ROUND_NEAREST ? 0.5f : 0.0f;
	c->values.main_scale = (float)((1 << (width - 2)) - 1) / GP_SMAQ_MAIN_REACH;
	c->values.top = (float)((1 << (outlier - 2)) - 1);
	c->values.outlier_scale = c->values.top / ((float)value[REACH] - GP_SMAQ_MAIN_REACH);
	c->reach = 1.01f * (float)value[REACH];
}

static enum gp_status open_smaq(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct smaq), err));
	struct smaq *s = p;
	gp_smaq_init(&s->coder, value, setup->n);
	s->packing = gp_codec_loops_choose();
	s->loops = gp_smaq_loops_choose();
	s->draw = gp_smaq_draws(value) ? gp_draw_words_choose() : NULL;
	s->seed = setup->seed;
	*state = s;
	return GP_OK;
}

/* Whether every value that codes can say is finite. */
bool gp_smaq_usable(const struct gp_smaq_coder *c)
{
	return c->values.std >= 0 && isfinite(fabsf(c->values.mean) + c->reach * c->values.std);
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* Mean and unbiased standard deviation, from differences to the first element: a constant is exact. */
static bool measure(struct smaq *s, const float *x)
{
	struct gp_smaq_sums lanes = {0};
	double sum = 0, squares = 0;
	s->loops->add(x, s->coder.n, x[0], &lanes);
	for (int i = 0; i < GP_SMAQ_LANES; i++) {
		sum += lanes.sum[i];
		squares += lanes.squares[i];
	}
	const double n = (double)s->coder.n, variance = s->coder.n > 1 ? fmax(squares - sum * sum / n, 0) / (n - 1) : 0;
	if (!isfinite(x[0]) || !isfinite(squares))
		return false;
	s->coder.values.mean = (float)((double)x[0] + sum / n);
	s->coder.values.std = (float)sqrt(variance);
	s->coder.values.divisor = s->coder.values.std > 0 ? s->coder.values.std : INFINITY;
	return gp_smaq_usable(&s->coder);
}

void gp_smaq_write_head(const struct gp_smaq *v, uint64_t count, uint8_t out[GP_SMAQ_HEAD])
{
	gp_put_f32(out, v->mean);
	gp_put_f32(out + 4, v->std);
	gp_put_u32(out + 8, (uint32_t)count);
}

/* Random bits for the elements from `at` on; NULL: none are wanted. */
static const uint16_t *draws_at(struct smaq *s, const struct gp_codec_pass *pass, uint64_t at, size_t n)
{
	const uint64_t stream = gp_rng_stream(GP_RNG_ROUNDING, pass->draw);
	if (!s->draw)
		return NULL;
	s->draw(s->seed, stream, (pass->first + at) / 8, (n + 7) / 8, s->draws.word);
	return s->draws.half;
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct smaq *s = state;
	uint8_t *codes = out + HEAD, *extras = codes + gp_smaq_packed_bytes(s->coder.n, s->coder.width);
	uint64_t count = 0;
	size_t waiting = 0;
	if (!measure(s, x))
		return false;
	for (uint64_t i = 0; i < s->coder.n; i += BLOCK) {
		const size_t here = s->coder.n - i < BLOCK ? (size_t)(s->coder.n - i) : BLOCK;
		if (gp_codec_stopped(pass))
			return false;
		const size_t found = s->loops->quantize(&s->coder.values, x + i, here, draws_at(s, pass, i, here),
							s->codes, s->extras + waiting);
		s->packing->pack(s->codes, here, s->coder.width, codes + i / 8 * (uint64_t)s->coder.width);
		count += found;
		waiting = s->coder.extra_width ? waiting + found : 0;
		if (waiting >= BLOCK) {
			s->packing->pack(s->extras, BLOCK, s->coder.extra_width, extras);
			extras += gp_smaq_packed_bytes(BLOCK, s->coder.extra_width);
			waiting -= BLOCK;
			memmove(s->extras, s->extras + BLOCK, waiting * sizeof s->extras[0]);
		}
	}
	if (waiting)
		s->packing->pack(s->extras, waiting, s->coder.extra_width, extras);
	gp_smaq_write_head(&s->coder.values, count, out);
	*len = HEAD + gp_smaq_packed_bytes(s->coder.n, s->coder.width) +
	       gp_smaq_packed_bytes(count, s->coder.extra_width);
	return true;
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

/* Packed extras not yet unpacked, and those unpacked but not yet used: at the front of `extras`. */
struct extras {
	struct gp_span packed;
	uint64_t packed_count;
	size_t ready;
};

/* Whether the bits behind the last of `count` codes are zero. */
static bool filled_with_zeros(struct gp_span packed, uint64_t count, int width)
{
	const unsigned used = (unsigned)(count * (uint64_t)width % 8);
	return used == 0 || packed.data[packed.len - 1] >> used == 0;
}

/* Enough extras for a block, with zeros where the payload has no more. */
static void refill(struct smaq *s, struct extras *e)
{
	const size_t more = e->packed_count < BLOCK ? (size_t)e->packed_count : BLOCK;
	if (e->ready >= BLOCK || s->coder.extra_width == 0)
		return;
	if (more) {
		const size_t bytes = gp_smaq_packed_bytes(more, s->coder.extra_width);
		s->packing->unpack(e->packed.data, more, s->coder.extra_width, s->extras + e->ready);
		e->packed = (struct gp_span){e->packed.data + bytes, e->packed.len - bytes};
		e->packed_count -= more;
		e->ready += more;
	}
	for (size_t i = e->ready; i < BLOCK + GP_SMAQ_SLACK; i++)
		s->extras[i] = 0;
}

enum gp_status gp_smaq_read_head(struct gp_smaq_coder *c, struct gp_span in, struct gp_span *codes,
				 struct gp_span *extras, uint64_t *count, struct gp_err *err)
{
	if (in.len < HEAD)
		GP_FAIL(err, GP_PROTO, "smaq payload of %zu bytes is shorter than its head", in.len);
	c->values.mean = gp_get_f32(in.data);
	c->values.std = gp_get_f32(in.data + 4);
	*count = gp_get_u32(in.data + 8);
	if (!gp_smaq_usable(c))
		GP_FAIL(err, GP_PROTO, "smaq payload has mean %g and standard deviation %g, which is out of range",
			(double)c->values.mean, (double)c->values.std);
	const uint64_t code_bytes = gp_smaq_packed_bytes(c->n, c->width),
		       extra_bytes = gp_smaq_packed_bytes(*count, c->extra_width);
	if (*count > c->n || in.len != HEAD + code_bytes + extra_bytes)
		GP_FAIL(err, GP_PROTO, "smaq payload of %zu bytes names %llu outliers of %llu elements", in.len,
			(unsigned long long)*count, (unsigned long long)c->n);
	*codes = (struct gp_span){in.data + HEAD, code_bytes};
	*extras = (struct gp_span){codes->data + code_bytes, extra_bytes};
	if (!filled_with_zeros(*codes, c->n, c->width) || !filled_with_zeros(*extras, *count, c->extra_width))
		GP_FAIL(err, GP_PROTO, "smaq payload has bits behind its last code");
	return GP_OK;
}

/* The codes tell the outliers: no more and no fewer than the head does. */
static enum gp_status read_codes(struct smaq *s, const struct gp_codec_pass *pass, const uint8_t *codes,
				 struct extras *e, uint64_t count, float *x, struct gp_err *err)
{
	for (uint64_t i = 0; i < s->coder.n; i += BLOCK) {
		const size_t here = s->coder.n - i < BLOCK ? (size_t)(s->coder.n - i) : BLOCK;
		GP_TRY(gp_codec_check_stop(pass, err));
		refill(s, e);
		s->packing->unpack(codes + i / 8 * (uint64_t)s->coder.width, here, s->coder.width, s->codes);
		const size_t used = s->loops->dequantize(&s->coder.values, s->codes, here, s->extras, x + i);
		if (used > count)
			GP_FAIL(err, GP_PROTO, "smaq payload has more outliers than it names");
		count -= used;
		if (s->coder.extra_width == 0)
			continue;
		e->ready -= used;
		memmove(s->extras, s->extras + used, e->ready * sizeof s->extras[0]);
	}
	if (count)
		GP_FAIL(err, GP_PROTO, "smaq payload has %llu outliers fewer than it names", (unsigned long long)count);
	return GP_OK;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	struct smaq *s = state;
	struct gp_span codes, packed;
	uint64_t count;
	GP_TRY(gp_smaq_read_head(&s->coder, in, &codes, &packed, &count, err));
	struct extras e = {.packed = packed, .packed_count = count};
	if (s->coder.extra_width == 0)
		memset(s->extras, 0, sizeof s->extras);
	return read_codes(s, pass, codes.data, &e, count, x, err);
}

/* Mean, deviation, codes of two lengths; a random number each. */
static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	return gp_codec_work_times(setup->n, !setup->encodes ? 6 : gp_smaq_draws(value) ? 16 : 8);
}

static void resize(void *state, const double *value, uint64_t n)
{
	(void)value;
	((struct smaq *)state)->coder.n = n;
}

const struct gp_codec_ops gp_codec_smaq = {
	.id = GP_CODEC_ID_smaq,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "smaq",
		 .summary = "standard deviations from the mean, short codes within one and longer ones beyond",
		 .examples = GP_EXAMPLES("smaq:main=6,outlier=8", "smaq:main=3,outlier=16", "smaq:main=5,outlier=5",
					 "smaq:main=4,outlier=6", "smaq:main=5,outlier=6", "smaq:main=7,outlier=12",
					 "smaq:main=8,outlier=8", "smaq:main=6,outlier=8,round=nearest",
					 "smaq:main=3,outlier=4,round=nearest", "smaq:main=6,outlier=8,reach=12",
					 "smaq:main=5,outlier=9,round=nearest,reach=30",
					 "smaq:main=6,outlier=8,round=stochastic,reach=16")},
	.keys = 4,
	.key = {{.name = "main",
		 .min = 3,
		 .max = 16,
		 .initial = 6,
		 .help = "bits of a code within 1 standard deviation"},
		{.name = "outlier",
		 .min = 3,
		 .max = 16,
		 .initial = 8,
		 .help = "bits of a code within `reach`; beyond is clamped. Both widths include flag and sign"},
		{.name = "round",
		 .words = "trunc|nearest|stochastic",
		 .max = ROUND_STOCHASTIC,
		 .later = true,
		 .help = "trunc: to the level towards the mean, as in the experiments that it comes from; nearest: to "
			 "the nearest level, with half the error; stochastic: up or down at random, so that the mean "
			 "error is 0"},
		{.name = "reach",
		 .min = 1.5,
		 .max = 1000,
		 .initial = 2.5,
		 .decimals = 2,
		 .later = true,
		 .help = "standard deviations at which values are clamped; more keeps larger values, in coarser steps "
			 "beyond 1 deviation: for heavy tails, such as those of gradients"}},
	.check = check,
	.resize = resize,
	.bound = bound,
	.codes = codes,
	.bytes = state_bytes,
	.work = work,
	.open = open_smaq,
	.close = gp_free,
	.encode = encode,
	.decode = decode,
};

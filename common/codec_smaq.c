/* SPDX-License-Identifier: Apache-2.0
 *
 * `smaq`: values as numbers of standard deviations from the mean, in codes of
 * two widths (SmaQ: smart quantization for DNN training by exploiting value
 * clustering, Shoghi et al., IEEE CAL 2021). Codes of one width for all
 * elements, then what the outliers' codes are longer. Formula and layout:
 * CODECS.md. Test: tests/unit/test_codec_smaq.c
 */
#include <math.h>

#include "common/codec_impl.h"
#include "kernels/cpu/codec_loops.h"
#include "kernels/cpu/smaq_loops.h"

enum { MAIN, OUTLIER };
enum { HEAD = 12, BLOCK = GP_QUANT_BLOCK };

/* Standard deviations up to which a code has the main width, and at which outliers are clamped. */
#define MAIN_REACH    1.0f
#define OUTLIER_REACH 2.5f

struct smaq {
	uint64_t n;
	int width, extra_width; /* of codes and extras; 0: the extras are all 0, and none is written */
	const struct gp_codec_loops *packing;
	const struct gp_smaq_loops *loops;
	struct gp_smaq values;
	uint16_t codes[BLOCK], extras[2 * BLOCK + GP_SMAQ_SLACK];
};

static uint64_t packed_bytes(uint64_t n, int width)
{
	return (n * (uint64_t)width + 7) / 8;
}

static uint64_t bound(const double *value, uint64_t n)
{
	const int width = (int)value[MAIN], longer = (int)value[OUTLIER] - width;
	return HEAD + packed_bytes(n, width) + packed_bytes(n, longer);
}

static enum gp_status check(const double *value, struct gp_err *err)
{
	if (value[OUTLIER] < value[MAIN])
		GP_FAIL(err, GP_USAGE, "outlier=%d has to be at least main=%d", (int)value[OUTLIER], (int)value[MAIN]);
	return GP_OK;
}

static uint64_t memory(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	(void)setup;
	return sizeof(struct smaq);
}

static enum gp_status open_smaq(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct smaq), err));
	struct smaq *s = p;
	const int width = (int)value[MAIN], outlier = (int)value[OUTLIER];
	s->n = setup->n;
	s->width = width;
	s->extra_width = outlier - width;
	s->packing = gp_codec_loops_choose();
	s->loops = gp_smaq_loops_choose();
	s->values.low_bits = width - 2;
	s->values.main_scale = (float)((1 << (width - 2)) - 1) / MAIN_REACH;
	s->values.top = (float)((1 << (outlier - 2)) - 1);
	s->values.outlier_scale = s->values.top / (OUTLIER_REACH - MAIN_REACH);
	*state = s;
	return GP_OK;
}

/* Whether every value that codes can say is finite; the rounding of scales may go a little over the reach. */
static bool usable(const struct gp_smaq *v)
{
	return v->std >= 0 && isfinite(fabsf(v->mean) + 1.01f * OUTLIER_REACH * v->std);
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* Mean and unbiased standard deviation, from differences to the first element: a constant is exact. */
static bool measure(struct smaq *s, const float *x)
{
	struct gp_smaq_sums lanes = {0};
	double sum = 0, squares = 0;
	s->loops->add(x, s->n, x[0], &lanes);
	for (int i = 0; i < GP_SMAQ_LANES; i++) {
		sum += lanes.sum[i];
		squares += lanes.squares[i];
	}
	const double n = (double)s->n, variance = s->n > 1 ? fmax(squares - sum * sum / n, 0) / (n - 1) : 0;
	if (!isfinite(x[0]) || !isfinite(squares))
		return false;
	s->values.mean = (float)((double)x[0] + sum / n);
	s->values.std = (float)sqrt(variance);
	s->values.divisor = s->values.std > 0 ? s->values.std : INFINITY;
	return usable(&s->values);
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	(void)pass;
	struct smaq *s = state;
	uint8_t *codes = out + HEAD, *extras = codes + packed_bytes(s->n, s->width);
	uint64_t count = 0;
	size_t waiting = 0;
	if (!measure(s, x))
		return false;
	for (uint64_t i = 0; i < s->n; i += BLOCK) {
		const size_t here = s->n - i < BLOCK ? (size_t)(s->n - i) : BLOCK;
		const size_t found = s->loops->quantize(&s->values, x + i, here, s->codes, s->extras + waiting);
		s->packing->pack(s->codes, here, s->width, codes + i / 8 * (uint64_t)s->width);
		count += found;
		waiting = s->extra_width ? waiting + found : 0;
		if (waiting >= BLOCK) {
			s->packing->pack(s->extras, BLOCK, s->extra_width, extras);
			extras += packed_bytes(BLOCK, s->extra_width);
			waiting -= BLOCK;
			memmove(s->extras, s->extras + BLOCK, waiting * sizeof s->extras[0]);
		}
	}
	if (waiting)
		s->packing->pack(s->extras, waiting, s->extra_width, extras);
	gp_put_f32(out, s->values.mean);
	gp_put_f32(out + 4, s->values.std);
	gp_put_u32(out + 8, (uint32_t)count);
	*len = HEAD + packed_bytes(s->n, s->width) + packed_bytes(count, s->extra_width);
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
	if (e->ready >= BLOCK || s->extra_width == 0)
		return;
	if (more) {
		const size_t bytes = packed_bytes(more, s->extra_width);
		s->packing->unpack(e->packed.data, more, s->extra_width, s->extras + e->ready);
		e->packed = (struct gp_span){e->packed.data + bytes, e->packed.len - bytes};
		e->packed_count -= more;
		e->ready += more;
	}
	for (size_t i = e->ready; i < BLOCK + GP_SMAQ_SLACK; i++)
		s->extras[i] = 0;
}

static enum gp_status read_head(struct smaq *s, struct gp_span in, uint64_t *count, struct gp_err *err)
{
	if (in.len < HEAD)
		GP_FAIL(err, GP_PROTO, "smaq payload of %zu bytes is shorter than its head", in.len);
	s->values.mean = gp_get_f32(in.data);
	s->values.std = gp_get_f32(in.data + 4);
	*count = gp_get_u32(in.data + 8);
	if (!usable(&s->values))
		GP_FAIL(err, GP_PROTO, "smaq payload has mean %g and standard deviation %g, which is out of range",
			(double)s->values.mean, (double)s->values.std);
	const uint64_t expected = HEAD + packed_bytes(s->n, s->width) + packed_bytes(*count, s->extra_width);
	if (*count > s->n || in.len != expected)
		GP_FAIL(err, GP_PROTO, "smaq payload of %zu bytes names %llu outliers of %llu elements", in.len,
			(unsigned long long)*count, (unsigned long long)s->n);
	return GP_OK;
}

/* The codes tell the outliers: no more and no fewer than the head does. */
static enum gp_status read_codes(struct smaq *s, const uint8_t *codes, struct extras *e, uint64_t count, float *x,
				 struct gp_err *err)
{
	for (uint64_t i = 0; i < s->n; i += BLOCK) {
		const size_t here = s->n - i < BLOCK ? (size_t)(s->n - i) : BLOCK;
		refill(s, e);
		s->packing->unpack(codes + i / 8 * (uint64_t)s->width, here, s->width, s->codes);
		const size_t used = s->loops->dequantize(&s->values, s->codes, here, s->extras, x + i);
		if (used > count)
			GP_FAIL(err, GP_PROTO, "smaq payload has more outliers than it names");
		count -= used;
		if (s->extra_width == 0)
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
	(void)pass;
	struct smaq *s = state;
	uint64_t count;
	GP_TRY(read_head(s, in, &count, err));
	const struct gp_span codes = {in.data + HEAD, packed_bytes(s->n, s->width)};
	const struct gp_span packed = {codes.data + codes.len, in.len - HEAD - codes.len};
	if (!filled_with_zeros(codes, s->n, s->width) || !filled_with_zeros(packed, count, s->extra_width))
		GP_FAIL(err, GP_PROTO, "smaq payload has bits behind its last code");
	struct extras e = {.packed = packed, .packed_count = count};
	if (s->extra_width == 0)
		memset(s->extras, 0, sizeof s->extras);
	return read_codes(s, codes.data, &e, count, x, err);
}

const struct gp_codec_ops gp_codec_smaq = {
	.id = 8,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "smaq",
		 .summary = "standard deviations from the mean, short codes within one and longer ones beyond"},
	.keys = 2,
	.key = {{.name = "main",
		 .min = 3,
		 .max = 16,
		 .initial = 6,
		 .help = "bits of a code within 1 standard deviation"},
		{.name = "outlier",
		 .min = 3,
		 .max = 16,
		 .initial = 8,
		 .help = "bits of a code within 2.5; beyond is clamped. Both widths include flag and sign"}},
	.check = check,
	.bound = bound,
	.memory = memory,
	.open = open_smaq,
	.close = gp_free,
	.encode = encode,
	.decode = decode,
};

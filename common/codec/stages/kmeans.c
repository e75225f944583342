/* SPDX-License-Identifier: Apache-2.0
 *
 * `kmeans`: 2^bits levels placed where they leave the smallest squared error
 * (lloyd.c); each element becomes the nearest. The codebook travels in
 * the payload. Formula and layout: CODECS.md. Test: tests/unit/test_codec_kmeans.c
 *
 * Searching the nearest level is what `quantize` does for partitions: here a
 * partition is the cell of a level, and has no levels of its own (bits = 0).
 */
#include "common/codec/stages/kmeans.h"

#include <float.h>
#include <math.h>

#include "common/codec/codec_cells.h"
#include "common/codec/stages/lloyd.h"

struct kmeans {
	uint64_t n;
	const struct gp_codec_loops *loops;
	struct gp_lloyd *lloyd;      /* NULL: does not encode */
	struct gp_quant_table cells; /* encode: where they begin; decode: their levels */
};

size_t gp_kmeans_bytes(int bits, uint64_t n)
{
	return ((size_t)4 << bits) + (n * (uint64_t)bits + 7) / 8;
}

static uint64_t bound(const double *value, uint64_t n)
{
	return gp_kmeans_bytes((int)value[0], n);
}

static struct gp_codec_codes codes(const double *value, uint64_t n, size_t len)
{
	return gp_codec_codes_at_end((int)value[0], n, len);
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	return sizeof(struct kmeans) + (setup->encodes ? gp_lloyd_bytes() : 0);
}

static void close_kmeans(void *state)
{
	struct kmeans *k = state;
	if (!k)
		return;
	gp_lloyd_free(k->lloyd);
	gp_free(k);
}

static enum gp_status open_kmeans(const double *value, const struct gp_codec_setup *setup, void **state,
				  struct gp_err *err)
{
	void *s;
	GP_TRY(gp_alloc_array(&s, 1, sizeof(struct kmeans), err));
	struct kmeans *k = s;
	k->n = setup->n;
	k->loops = gp_codec_loops_choose();
	k->cells.split = (int)value[0];
	enum gp_status status = setup->encodes ? gp_lloyd_new(&k->lloyd, err) : GP_OK;
	if (status != GP_OK) {
		gp_free(k);
		return status;
	}
	*state = k;
	return GP_OK;
}

void gp_kmeans_cells(int bits, const float *level, float least, float *min, float *divisor)
{
	for (int i = 0; i < 1 << bits; i++) {
		min[i] = i ? (float)(((double)level[i - 1] + (double)level[i]) / 2) : least;
		divisor[i] = FLT_MAX; /* every quotient rounds to 0 or 1: any, above the only level */
	}
}

static bool write_codes(struct kmeans *k, const struct gp_codec_pass *pass, float max, const float *x, uint8_t *out)
{
	uint16_t codes[GP_QUANT_BLOCK];
	struct gp_cells cells;
	const int bits = k->cells.split;
	gp_cells_init(&cells, k->loops, &k->cells, max, k->n);
	for (uint64_t at = 0; at < k->n; at += GP_QUANT_BLOCK, out += GP_QUANT_BLOCK / 8 * bits) {
		const size_t count = k->n - at < GP_QUANT_BLOCK ? k->n - at : GP_QUANT_BLOCK;
		if (gp_codec_stopped(pass))
			return false;
		gp_cells_quantize(&cells, x + at, count, codes);
		k->loops->pack(codes, count, bits, out);
	}
	return true;
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct kmeans *k = state;
	const int levels = 1 << k->cells.split;
	float min, max, level[1 << GP_QUANT_MAX_SPLIT];
	if (!k->loops->range(x, k->n, &min, &max) || !isfinite(max - min))
		return false;
	gp_lloyd_fit(k->lloyd, x, k->n, min, max, level, levels);
	gp_put_f32s(out, level, (size_t)levels);
	gp_kmeans_cells(k->cells.split, level, min, k->cells.min, k->cells.divisor);
	*len = gp_kmeans_bytes(k->cells.split, k->n);
	return write_codes(k, pass, max, x, out + 4 * levels);
}

enum gp_status gp_kmeans_read_levels(int bits, struct gp_span in, uint64_t n, float *level, struct gp_err *err)
{
	const int used = (int)(n * (uint64_t)bits % 8);
	if (in.len != gp_kmeans_bytes(bits, n))
		GP_FAIL(err, GP_PROTO, "codebook payload has %zu bytes instead of %zu", in.len,
			gp_kmeans_bytes(bits, n));
	if (used && in.data[in.len - 1] >> used)
		GP_FAIL(err, GP_PROTO, "codebook payload has bits set behind its last code");
	gp_get_f32s(level, in.data, (size_t)1 << bits);
	for (int i = 0; i < 1 << bits; i++)
		if (!isfinite(level[i]))
			GP_FAIL(err, GP_PROTO, "level %d of a payload is %g, which is not finite", i, (double)level[i]);
	return GP_OK;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	struct kmeans *k = state;
	uint16_t codes[GP_QUANT_BLOCK];
	const int bits = k->cells.split;
	GP_TRY(gp_kmeans_read_levels(bits, in, k->n, k->cells.min, err));
	memset(k->cells.step, 0, ((size_t)1 << bits) * sizeof k->cells.step[0]);
	const uint8_t *packed = in.data + (4 << bits);
	for (uint64_t at = 0; at < k->n; at += GP_QUANT_BLOCK, packed += GP_QUANT_BLOCK / 8 * bits) {
		const size_t count = k->n - at < GP_QUANT_BLOCK ? k->n - at : GP_QUANT_BLOCK;
		GP_TRY(gp_codec_check_stop(pass, err));
		k->loops->unpack(packed, count, bits, codes);
		k->loops->dequantize(&k->cells, codes, count, x + at);
	}
	return GP_OK;
}

#define FIT_NS   UINT64_C(10000000) /* of a histogram, which is as large for every tensor, */
#define LEVEL_NS UINT64_C(150000)   /* and of each level in all iterations */

/* Counting goes to memory anywhere. */
static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	const uint64_t fit = FIT_NS + (LEVEL_NS << (int)value[0]);
	const uint64_t ns = gp_codec_work_times(setup->n, setup->encodes ? 20 : GP_CODEC_ELEMENT_NS);
	return gp_codec_work_add(ns, setup->encodes ? fit : 0);
}

static void resize(void *state, const double *value, uint64_t n)
{
	(void)value;
	((struct kmeans *)state)->n = n;
}

const struct gp_codec_ops gp_codec_kmeans = {
	.id = GP_CODEC_ID_kmeans,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "kmeans",
		 .summary = "2^bits levels of least squared error, a codebook fitted per tensor",
		 .examples = GP_EXAMPLES("kmeans:bits=4", "kmeans:bits=1", "kmeans:bits=8", "kmeans:bits=2",
					 "kmeans:bits=3")},
	.keys = 1,
	.key = {{.name = "bits", .min = 1, .max = 8, .initial = 4, .help = "bits of a code"}},
	.resize = resize,
	.bound = bound,
	.codes = codes,
	.open = open_kmeans,
	.close = close_kmeans,
	.encode = encode,
	.decode = decode,
	.bytes = state_bytes,
	.work = work,
};

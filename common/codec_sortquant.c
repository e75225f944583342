/* SPDX-License-Identifier: Apache-2.0
 *
 * `sortquant`: 2^split partitions of equal population (sizes as PyTorch's
 * tensor_split of the ascending sort), each quantized on its own. Nothing is
 * sorted: the partitions' first and last values are order statistics
 * (codec_select.c), and an element belongs to the last partition that begins
 * at or below it. Equal values that straddle a boundary therefore all fall
 * into the upper partition, whose min they are: they are restored exactly.
 * With sample=k the partitions tile min..max at quantiles of k elements.
 * Formula and layout: CODECS.md. Test: tests/unit/test_codec.c, test_codec_golden.c
 */
#include "common/codec_quant.h"
#include "common/codec_select.h"
#include "common/rng.h"

#define MAX_PARTS (1 << GP_QUANT_MAX_SPLIT)

enum { KEY_BITS, KEY_SPLIT, KEY_SAMPLE };

struct sortquant {
	uint64_t n, seed;
	const struct gp_codec_loops *loops;
	struct gp_select *select; /* over n elements, or over `sampled` of them */
	uint64_t sampled;         /* 0: exact */
	float *sample;
	struct gp_quant_table table;
};

static enum gp_status check(const double *value, struct gp_err *err)
{
	int width = (int)(value[KEY_BITS] + value[KEY_SPLIT]);
	if (width < 2 || width > 16)
		GP_FAIL(err, GP_USAGE, "bits=%.0f with split=%.0f is not allowed; bits + split is in 2..16",
			value[KEY_BITS], value[KEY_SPLIT]);
	return GP_OK;
}

static uint64_t bound(const double *value, uint64_t n)
{
	return gp_quant_bytes((int)value[KEY_BITS], (int)value[KEY_SPLIT], n);
}

static int unit(const double *value)
{
	return value[KEY_BITS] + value[KEY_SPLIT] == 16 ? 2 : 1;
}

/* codec_select.c keeps copies of elements. */
static uint64_t memory(const double *value, const struct gp_codec_setup *setup)
{
	const uint64_t sampled = (uint64_t)value[KEY_SAMPLE];
	const bool exact = sampled == 0 || sampled >= setup->n;
	return sizeof(struct sortquant) + gp_select_bytes(exact ? setup->n : sampled) + (exact ? 0 : 4 * sampled);
}

static void close_sortquant(void *state)
{
	struct sortquant *q = state;
	if (!q)
		return;
	gp_select_free(q->select);
	gp_free(q->sample);
	gp_free(q);
}

static enum gp_status allocate_scratch(struct sortquant *q, struct gp_err *err)
{
	void *p;
	GP_TRY(gp_select_new(q->loops, q->sampled ? q->sampled : q->n, &q->select, err));
	if (!q->sampled)
		return GP_OK;
	GP_TRY(gp_alloc_array(&p, q->sampled, sizeof *q->sample, err));
	q->sample = p;
	return GP_OK;
}

static enum gp_status open_sortquant(const double *value, const struct gp_codec_setup *setup, void **state,
				     struct gp_err *err)
{
	const uint64_t n = setup->n;
	void *s;
	GP_TRY(gp_alloc_array(&s, 1, sizeof(struct sortquant), err));
	struct sortquant *q = s;
	q->n = n;
	q->seed = setup->seed;
	q->loops = gp_codec_loops_choose();
	q->sampled = (uint64_t)value[KEY_SAMPLE] < n ? (uint64_t)value[KEY_SAMPLE] : 0;
	q->table.bits = (int)value[KEY_BITS];
	q->table.split = (int)value[KEY_SPLIT];
	enum gp_status status = allocate_scratch(q, err);
	if (status != GP_OK) {
		close_sortquant(q);
		return status;
	}
	*state = q;
	return GP_OK;
}

/* Rank of the first element of partition p of n elements: the first n % parts partitions have one more. */
static uint64_t first_rank(uint64_t n, int parts, int p)
{
	uint64_t extra = n % (uint64_t)parts;
	return n / (uint64_t)parts * (uint64_t)p + ((uint64_t)p < extra ? (uint64_t)p : extra);
}

/* Partitions begin and end at exact order statistics. With n < parts the last ones are empty: they stay at the
 * tensor's max, where they catch the elements equal to it. */
static bool exact_table(struct sortquant *q, const float *x)
{
	float min, max;
	uint64_t rank[2 * MAX_PARTS] = {0};
	float value[2 * MAX_PARTS];
	const int parts = 1 << q->table.split;
	int full = q->n < (uint64_t)parts ? (int)q->n : parts, count = 0;
	for (int p = 1; p < full; p++) {
		rank[count++] = first_rank(q->n, parts, p) - 1;
		rank[count++] = first_rank(q->n, parts, p);
	}
	if (!gp_select_ranks(q->select, x, rank, count, value, &min, &max))
		return false;
	bool fits = true;
	for (int p = 0; p < full; p++)
		fits &= gp_quant_set(&q->table, p, p ? value[2 * p - 1] : min, p + 1 < full ? value[2 * p] : max);
	for (int p = full; p < parts; p++)
		fits &= gp_quant_set(&q->table, p, max, max);
	return fits;
}

/* One element out of each of `sampled` equal stretches of x. */
static void draw_sample(struct sortquant *q, const float *x, uint64_t draw)
{
	uint64_t stream = gp_rng_stream(GP_RNG_SAMPLE, draw);
	uint32_t word[4];
	for (uint64_t i = 0; i < q->sampled; i++) {
		if (i % 4 == 0)
			gp_rng_block(q->seed, stream, i / 4, word);
		uint64_t begin = i * q->n / q->sampled, end = (i + 1) * q->n / q->sampled;
		q->sample[i] = x[begin + (uint64_t)((unsigned __int128)(end - begin) * word[i % 4] >> 32)];
	}
}

/* Partitions tile min..max, so that no element lies outside of one. */
static bool sampled_table(struct sortquant *q, const float *x, uint64_t draw)
{
	uint64_t rank[MAX_PARTS] = {0};
	float min, max; /* of the sample: not needed */
	float value[MAX_PARTS + 1];
	const int parts = 1 << q->table.split;
	draw_sample(q, x, draw);
	for (int p = 1; p < parts; p++) {
		uint64_t r = first_rank(q->sampled, parts, p);
		rank[p - 1] = r < q->sampled ? r : q->sampled - 1;
	}
	if (!q->loops->range(x, q->n, &value[0], &value[parts]) ||
	    !gp_select_ranks(q->select, q->sample, rank, parts - 1, value + 1, &min, &max))
		return false;
	bool fits = true;
	for (int p = 0; p < parts; p++)
		fits &= gp_quant_set(&q->table, p, value[p], value[p + 1]);
	return fits;
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct sortquant *q = state;
	if (!(q->sampled ? sampled_table(q, x, pass->draw) : exact_table(q, x)))
		return false;
	gp_quant_write(q->loops, &q->table, x, q->n, out);
	*len = gp_quant_bytes(q->table.bits, q->table.split, q->n);
	return true;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	(void)pass;
	struct sortquant *q = state;
	return gp_quant_read(q->loops, &q->table, in, q->n, x, err);
}

const struct gp_codec_ops gp_codec_sortquant = {
	.id = 5,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "sortquant", .summary = "2^split partitions of equal population with 2^bits levels each"},
	.keys = 3,
	.key = {[KEY_BITS] = {.name = "bits", .min = 1, .max = 16, .initial = 6, .help = "bits of a level"},
		[KEY_SPLIT] = {.name = "split", .max = 8, .initial = 2, .help = "bits of a partition"},
		[KEY_SAMPLE] = {.name = "sample",
				.max = 1 << 20,
				.help = "partitions from so many elements; 0: exact, from all"}},
	.check = check,
	.bound = bound,
	.open = open_sortquant,
	.close = close_sortquant,
	.encode = encode,
	.decode = decode,
	.unit = unit,
	.memory = memory,
};

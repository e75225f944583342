/* SPDX-License-Identifier: Apache-2.0
 *
 * `sortquant`: 2^split partitions of equal population (sizes as PyTorch's
 * tensor_split of the ascending sort), each quantized on its own. Nothing is
 * sorted: the partitions' first and last values are order statistics
 * (codec_select.c), and an element belongs to the last partition that begins
 * at or below it. Equal values that straddle a boundary therefore all fall
 * into the upper partition, whose min they are: they are restored exactly.
 * With sample=k the partitions tile min..max at quantiles of k elements.
 * partitions=p cuts into p instead, with the sizes of `chunk` of the descending
 * sort, and prune=r chooses the share r of largest magnitudes (prune.c):
 * together the first form that the experiments had.
 * Formula and layout: CODECS.md. Test: tests/unit/test_codec_sortquant.c,
 * test_codec.c, test_codec_golden.c
 */
#include "common/codec/stages/sortquant.h"

#include "common/codec/stages/prune.h"
#include "common/codec/stages/quant.h"
#include "common/codec/codec_select.h"
#include "common/base/rng.h"

#define MAX_PARTS (1 << GP_QUANT_MAX_SPLIT)

enum { KEY_BITS, KEY_SPLIT, KEY_SAMPLE, KEY_PARTITIONS, KEY_PRUNE };

enum { SPLIT_DEFAULT = 2 };

struct sortquant {
	struct gp_sortquant_cut cut;
	uint64_t seed;
	const struct gp_codec_loops *loops;
	struct gp_prune *prune;   /* NULL: all are chosen */
	struct gp_select *select; /* over the chosen elements, or over `sampled` of them */
	float *sample;
	struct gp_quant_table table;
};

/* Bits of a partition's number. */
static int split_of(const double *value)
{
	int split = 0;
	if (value[KEY_PARTITIONS] == 0)
		return (int)value[KEY_SPLIT];
	while (1 << split < (int)value[KEY_PARTITIONS])
		split++;
	return split;
}

static enum gp_status check(const double *value, struct gp_err *err)
{
	const int split = split_of(value), width = (int)value[KEY_BITS] + split;
	const double partitions = value[KEY_PARTITIONS];
	if (partitions > 0 && value[KEY_SPLIT] != SPLIT_DEFAULT)
		GP_FAIL(err, GP_USAGE,
			"split=%.0f and partitions=%.0f exclude each other: partitions replace the 2^split",
			value[KEY_SPLIT], partitions);
	if (partitions > 0 && (width < 2 || width > 16))
		GP_FAIL(err, GP_USAGE,
			"bits=%.0f with partitions=%.0f is not allowed; bits and the %d bits of a partition's number "
			"are 2..16 together",
			value[KEY_BITS], partitions, split);
	if (width < 2 || width > 16)
		GP_FAIL(err, GP_USAGE, "bits=%.0f with split=%.0f is not allowed; bits + split is in 2..16",
			value[KEY_BITS], value[KEY_SPLIT]);
	if (value[KEY_PRUNE] <= 0)
		GP_FAIL(err, GP_USAGE, "prune=0 would choose nothing; it is the share that is chosen, 1 for all");
	return GP_OK;
}

static bool prunes(const double *value)
{
	return value[KEY_PRUNE] < 1;
}

static uint64_t chosen_of(const double *value, uint64_t n)
{
	return prunes(value) ? gp_prune_chosen(value[KEY_PRUNE], n) : n;
}

/* 0: exact. */
static uint64_t sampled_of(const double *value, uint64_t chosen)
{
	return (uint64_t)value[KEY_SAMPLE] < chosen ? (uint64_t)value[KEY_SAMPLE] : 0;
}

struct gp_sortquant_cut gp_sortquant_cut_of(const double *value, uint64_t n)
{
	struct gp_sortquant_cut c = {.n = n,
				     .chosen = chosen_of(value, n),
				     .bits = (int)value[KEY_BITS],
				     .split = split_of(value),
				     .chunked = value[KEY_PARTITIONS] > 0};
	c.sampled = sampled_of(value, c.chosen);
	c.parts = c.chunked ? (int)value[KEY_PARTITIONS] : 1 << c.split;
	return c;
}

static uint64_t bound(const double *value, uint64_t n)
{
	return (prunes(value) ? gp_prune_bitmap_bytes(n) : 0) +
	       gp_quant_bytes((int)value[KEY_BITS], split_of(value), chosen_of(value, n));
}

static int unit(const double *value)
{
	return (int)value[KEY_BITS] + split_of(value) == 16 ? 2 : 1;
}

static struct gp_codec_codes codes(const double *value, uint64_t n, size_t len)
{
	return gp_codec_codes_at_end((int)value[KEY_BITS] + split_of(value), chosen_of(value, n), len);
}

/* codec_select.c makes copies of elements. */
static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	const uint64_t chosen = chosen_of(value, setup->n), sampled = sampled_of(value, chosen);
	uint64_t sum = sizeof(struct sortquant) + 4 * sampled;
	if (prunes(value))
		sum += gp_prune_bytes(setup->n, chosen, setup->encodes);
	return sum + (setup->encodes ? gp_select_bytes(sampled ? sampled : chosen, 2 << split_of(value)) : 0);
}

static void close_sortquant(void *state)
{
	struct sortquant *q = state;
	if (!q)
		return;
	gp_prune_free(q->prune);
	gp_select_free(q->select);
	gp_free(q->sample);
	gp_free(q);
}

static enum gp_status allocate_scratch(struct sortquant *q, bool encodes, struct gp_err *err)
{
	void *p;
	const struct gp_sortquant_cut *c = &q->cut;
	if (c->chosen < c->n)
		GP_TRY(gp_prune_new(c->n, c->chosen, encodes, &q->prune, err));
	if (!encodes)
		return GP_OK;
	GP_TRY(gp_select_new(q->loops, c->sampled ? c->sampled : c->chosen, 2 << c->split, &q->select, err));
	if (!c->sampled)
		return GP_OK;
	GP_TRY(gp_alloc_array(&p, c->sampled, sizeof *q->sample, err));
	q->sample = p;
	return GP_OK;
}

static enum gp_status open_sortquant(const double *value, const struct gp_codec_setup *setup, void **state,
				     struct gp_err *err)
{
	void *s;
	GP_TRY(gp_alloc_array(&s, 1, sizeof(struct sortquant), err));
	struct sortquant *q = s;
	q->cut = gp_sortquant_cut_of(value, setup->n);
	q->seed = setup->seed;
	q->loops = gp_codec_loops_choose();
	q->table.bits = q->cut.bits;
	q->table.split = q->cut.split;
	enum gp_status status = allocate_scratch(q, setup->encodes, err);
	if (status != GP_OK) {
		close_sortquant(q);
		return status;
	}
	*state = q;
	return GP_OK;
}

/* tensor_split: the first n % parts partitions have one element more. chunk of the descending sort: all have
 * ceil(n / parts) from the top down, the lowest what is left. */
uint64_t gp_sortquant_first_rank(const struct gp_sortquant_cut *c, uint64_t n, int p)
{
	const uint64_t parts = (uint64_t)c->parts, extra = n % parts, at = (uint64_t)p;
	if (at >= parts)
		return n;
	if (!c->chunked)
		return n / parts * at + (at < extra ? at : extra);
	const uint64_t above = (n / parts + (extra > 0)) * (parts - at);
	return above < n ? n - above : 0;
}

/* Partitions begin and end at exact order statistics, *top is the tensor's max. With fewer elements than partitions
 * some are empty: the first ones stay at the tensor's min, the last ones at its max, where they catch the elements
 * equal to it. */
static bool exact_table(struct sortquant *q, const float *x, float *top)
{
	uint64_t rank[2 * MAX_PARTS] = {0};
	float value[2 * MAX_PARTS], min, max;
	int count = 0;
	for (int p = 1; p < q->cut.parts; p++) {
		const uint64_t first = gp_sortquant_first_rank(&q->cut, q->cut.chosen, p);
		if (first > 0 && first < q->cut.chosen) {
			rank[count++] = first - 1;
			rank[count++] = first;
		}
	}
	if (!gp_select_ranks(q->select, x, rank, count, value, &min, &max))
		return false;
	bool fits = true;
	float begin = min;
	*top = max;
	for (int p = 0, at = 0; p < 1 << q->cut.split; p++) {
		const uint64_t next = gp_sortquant_first_rank(&q->cut, q->cut.chosen, p + 1);
		const bool inside = next > 0 && next < q->cut.chosen;
		const float end = inside ? value[at] : next ? max : min;
		fits &= gp_quant_set(&q->table, p, begin, end);
		begin = inside ? value[at + 1] : end;
		at += inside ? 2 : 0;
	}
	return fits;
}

/* One element out of each of `sampled` equal stretches of x. */
static void draw_sample(struct sortquant *q, const float *x, uint64_t draw)
{
	uint64_t stream = gp_rng_stream(GP_RNG_SAMPLE, draw);
	uint32_t word[4];
	for (uint64_t i = 0; i < q->cut.sampled; i++) {
		if (i % 4 == 0)
			gp_rng_block(q->seed, stream, i / 4, word);
		uint64_t begin = i * q->cut.chosen / q->cut.sampled, end = (i + 1) * q->cut.chosen / q->cut.sampled;
		q->sample[i] = x[begin + (uint64_t)((unsigned __int128)(end - begin) * word[i % 4] >> 32)];
	}
}

/* Partitions tile min..max, so that no element lies outside of one. */
static bool sampled_table(struct sortquant *q, const float *x, uint64_t draw, float *top)
{
	uint64_t rank[MAX_PARTS] = {0};
	float min, max; /* of the sample: not needed */
	float value[MAX_PARTS + 1];
	const int slots = 1 << q->cut.split;
	draw_sample(q, x, draw);
	for (int p = 1; p < q->cut.parts; p++) {
		const uint64_t r = gp_sortquant_first_rank(&q->cut, q->cut.sampled, p);
		rank[p - 1] = r < q->cut.sampled ? r : q->cut.sampled - 1;
	}
	if (!q->loops->range(x, q->cut.chosen, &value[0], &value[slots]) ||
	    !gp_select_ranks(q->select, q->sample, rank, q->cut.parts - 1, value + 1, &min, &max))
		return false;
	*top = value[slots];
	for (int p = q->cut.parts; p < slots; p++)
		value[p] = *top;
	bool fits = true;
	for (int p = 0; p < slots; p++)
		fits &= gp_quant_set(&q->table, p, value[p], value[p + 1]);
	return fits;
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct sortquant *q = state;
	const size_t bitmap = q->prune ? gp_prune_bitmap_bytes(q->cut.n) : 0;
	if (q->prune && !gp_prune_split(q->prune, x, out))
		return false;
	const float *chosen = q->prune ? gp_prune_values(q->prune) : x;
	float max;
	if (!(q->cut.sampled ? sampled_table(q, chosen, pass->draw, &max) : exact_table(q, chosen, &max)))
		return false;
	gp_quant_write(q->loops, &q->table, max, chosen, q->cut.chosen, out + bitmap);
	*len = bitmap + gp_quant_bytes(q->table.bits, q->table.split, q->cut.chosen);
	return true;
}

static enum gp_status decode_pruned(struct sortquant *q, struct gp_span in, float *x, struct gp_err *err)
{
	const size_t bitmap = gp_prune_bitmap_bytes(q->cut.n);
	if (in.len < bitmap)
		GP_FAIL(err, GP_PROTO, "a payload of %zu bytes ends inside its bitmap", in.len);
	GP_TRY(gp_prune_check(q->prune, in.data, err));
	GP_TRY(gp_quant_read(q->loops, &q->table, (struct gp_span){in.data + bitmap, in.len - bitmap}, q->cut.chosen,
			     gp_prune_values(q->prune), err));
	gp_prune_join(q->prune, in.data, x);
	return GP_OK;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	(void)pass;
	struct sortquant *q = state;
	if (q->prune)
		return decode_pruned(q, in, x, err);
	return gp_quant_read(q->loops, &q->table, in, q->cut.n, x, err);
}

/* Two passes to find the bounds of partitions, one to encode. */
static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	return gp_codec_work_times(setup->n, setup->encodes ? 16 : 6);
}

static void resize(void *state, const double *value, uint64_t n)
{
	struct sortquant *q = state;
	q->cut = gp_sortquant_cut_of(value, n);
	if (q->prune)
		gp_prune_resize(q->prune, n, q->cut.chosen);
	if (q->select)
		gp_select_resize(q->select, q->cut.sampled ? q->cut.sampled : q->cut.chosen);
}

const struct gp_codec_ops gp_codec_sortquant = {
	.id = GP_CODEC_ID_sortquant,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "sortquant",
		 .summary = "2^split partitions of equal population with 2^bits levels each",
		 .examples = GP_EXAMPLES(
			 "sortquant:bits=6,split=2", "sortquant:bits=5,partitions=5",
			 "sortquant:bits=6,partitions=4,prune=0.3", "sortquant:bits=2,split=8",
			 "sortquant:bits=1,split=1", "sortquant:bits=2,split=2", "sortquant:bits=2,split=8,sample=3",
			 "sortquant:bits=3,split=0", "sortquant:bits=3,split=3", "sortquant:bits=4,split=2",
			 "sortquant:bits=5,partitions=3,prune=0.3", "sortquant:bits=6,prune=0.3,partitions=3",
			 "sortquant:bits=6,split=2,sample=64", "sortquant:bits=6,split=2,sample=4096",
			 "sortquant:bits=7,split=4,sample=300", "sortquant:bits=8,split=0",
			 "sortquant:bits=8,partitions=4,prune=0.3", "sortquant:bits=8,split=8",
			 "sortquant:bits=9,split=3", "sortquant:bits=9,split=5", "sortquant:bits=10,split=6",
			 "sortquant:bits=12,split=4")},
	.keys = 5,
	.key = {[KEY_BITS] = {.name = "bits", .min = 1, .max = 16, .initial = 6, .help = "bits of a level"},
		[KEY_SPLIT] = {.name = "split", .max = 8, .initial = SPLIT_DEFAULT, .help = "bits of a partition"},
		[KEY_SAMPLE] = {.name = "sample",
				.max = 1 << 20,
				.help = "partitions from so many elements; 0: exact, from all"},
		[KEY_PARTITIONS] = {.name = "partitions",
				    .max = MAX_PARTS,
				    .help = "so many partitions, as the first form cut them; 0: 2^split"},
		[KEY_PRUNE] = {.name = "prune",
			       .max = 1,
			       .initial = 1,
			       .decimals = 4,
			       .help = "share of elements chosen, largest magnitudes first; the rest become 0"}},
	.check = check,
	.resize = resize,
	.bound = bound,
	.open = open_sortquant,
	.close = close_sortquant,
	.encode = encode,
	.decode = decode,
	.unit = unit,
	.codes = codes,
	.bytes = state_bytes,
	.work = work,
};

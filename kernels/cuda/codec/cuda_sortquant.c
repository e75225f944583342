/* SPDX-License-Identifier: Apache-2.0
 *
 * `sortquant` on a GPU: partitions by selection (k_codec_select.h), codes in
 * one pass (k_codec_partition.h), pruning by topk's kernels (k_codec_chosen.h).
 * Payloads and tensors are those of common/codec/stages/sortquant.c, bit for bit.
 * Nothing but the payload comes back to the host: the table is computed where
 * the tensor lies. Test: tests/unit/test_cuda_codec_select.c
 */
#include "common/codec/stages/sortquant.h"

#include "common/codec/stages/prune.h"
#include "common/codec/stages/quant.h"
#include "common/base/rng.h"
#include "kernels/cuda/runtime/carve.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_chosen.h"
#include "kernels/cuda/codec/k_codec_partition.h"

struct sortquant {
	struct gp_codec_site *site;
	struct gp_sortquant_cut cut;
	uint64_t seed;
	void *room;
	/* Only an encoder has these. */
	struct gpk_select select; /* over the chosen elements, or a sample of them */
	struct gpk_limits *limits;
	struct gpk_partitions *table;
	struct gpk_range *range; /* of all chosen elements; NULL where all are selected from */
	float *sample;
	/* With pruning. */
	struct gpk_select largest;
	struct gpk_chosen bits;
	float *values; /* chosen elements */
};

/* What the place's note holds. */
struct note {
	struct gpk_chosen_told bits;
	uint32_t good;
};

/* --- open ------------------------------------------------------------------------------------------------------- */

static bool prunes(const struct sortquant *q)
{
	return q->cut.chosen < q->cut.n;
}

/* The ranks at which partitions begin and end, and which of them each partition has. */
struct plan {
	uint32_t rank[GPK_SELECT_MOST];
	int ranks;
	struct gpk_limits limits[GPK_PARTITIONS_MOST];
};

static void plan_exact(const struct gp_sortquant_cut *c, struct plan *out)
{
	uint16_t begin = 0;
	out->rank[0] = 0;
	out->ranks = 1;
	for (int p = 1; p < c->parts; p++) {
		const uint64_t first = gp_sortquant_first_rank(c, c->chosen, p);
		if (first > 0 && first < c->chosen) {
			out->rank[out->ranks++] = (uint32_t)(first - 1);
			out->rank[out->ranks++] = (uint32_t)first;
		}
	}
	const uint16_t last = (uint16_t)out->ranks;
	out->rank[out->ranks++] = (uint32_t)(c->chosen - 1);
	for (int p = 0, at = 1; p < 1 << c->split; p++) {
		const uint64_t next = gp_sortquant_first_rank(c, c->chosen, p + 1);
		const bool inside = next > 0 && next < c->chosen;
		const uint16_t end = (uint16_t)(inside ? at : next ? last : 0);
		out->limits[p] = (struct gpk_limits){begin, end};
		begin = (uint16_t)(inside ? at + 1 : end);
		at += inside ? 2 : 0;
	}
}

static uint16_t sampled_limit(const struct gp_sortquant_cut *c, int p)
{
	return (uint16_t)(p == 0 ? GPK_RANGE_MIN : p < c->parts ? p - 1 : GPK_RANGE_MAX);
}

static void plan_sampled(const struct gp_sortquant_cut *c, struct plan *out)
{
	out->rank[0] = 0; /* one partition asks for none */
	for (int p = 1; p < c->parts; p++) {
		const uint64_t rank = gp_sortquant_first_rank(c, c->sampled, p);
		out->rank[p - 1] = (uint32_t)(rank < c->sampled ? rank : c->sampled - 1);
	}
	out->ranks = c->parts > 1 ? c->parts - 1 : 1;
	for (int p = 0; p < 1 << c->split; p++)
		out->limits[p] = (struct gpk_limits){sampled_limit(c, p), sampled_limit(c, p + 1)};
}

static void plan_cut(const struct gp_sortquant_cut *c, struct plan *out)
{
	if (c->sampled)
		plan_sampled(c, out);
	else
		plan_exact(c, out);
}

static void carve_pruning(struct sortquant *q, bool encodes, struct gp_carve *c)
{
	const int64_t n = (int64_t)q->cut.n;
	q->bits = (struct gpk_chosen){.n = n, .chosen = (int64_t)q->cut.chosen};
	q->bits.bits = gp_carve(c, 4 * (uint64_t)gpk_bit_words(n));
	q->bits.part[0] = gp_carve(c, 4 * GPK_KEPT_PARTS);
	q->values = gp_carve(c, 4 * q->cut.chosen);
	if (!encodes)
		return;
	q->bits.ties = gp_carve(c, 4 * (uint64_t)gpk_bit_words(n));
	q->bits.part[1] = gp_carve(c, 4 * GPK_KEPT_PARTS);
	q->largest = (struct gpk_select){.n = n, .ranks = 1, .magnitudes = true};
	q->largest.rank = gp_carve(c, sizeof(uint32_t));
	q->largest.room = gp_carve(c, gpk_select_bytes(n, 1));
}

/* Rooms on the device; with c->base NULL only their size. */
static void carve(struct sortquant *q, bool encodes, int ranks, struct gp_carve *c)
{
	if (prunes(q))
		carve_pruning(q, encodes, c);
	if (!encodes)
		return;
	const uint64_t from = q->cut.sampled ? q->cut.sampled : q->cut.chosen;
	q->select = (struct gpk_select){.n = (int64_t)from, .ranks = ranks};
	q->select.rank = gp_carve(c, 4 * (uint64_t)ranks);
	q->select.room = gp_carve(c, gpk_select_bytes((int64_t)from, ranks));
	q->limits = gp_carve(c, sizeof(struct gpk_limits) << q->cut.split);
	q->table = gp_carve(c, sizeof *q->table);
	if (!q->cut.sampled)
		return;
	q->range = gp_carve(c, sizeof *q->range);
	q->sample = gp_carve(c, 4 * q->cut.sampled);
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	struct sortquant q = {.cut = gp_sortquant_cut_of(value, setup->n)};
	struct gp_carve c = {0};
	struct plan plan;
	plan_cut(&q.cut, &plan);
	carve(&q, setup->encodes, plan.ranks, &c);
	return sizeof q + c.bytes;
}

static void close_sortquant(void *state)
{
	struct sortquant *q = state;
	if (q)
		gp_cuda_codec_free(q->site, q->room);
	gp_free(q);
}

static enum gp_status send_plan(struct sortquant *q, const struct plan *plan, struct gp_err *err)
{
	const uint32_t largest = (uint32_t)(q->cut.n - q->cut.chosen);
	struct gp_rt_stream *const s = q->site->stream;
	gp_rt_copy_up(s, (void *)(uintptr_t)q->select.rank, plan->rank, 4 * (size_t)plan->ranks);
	gp_rt_copy_up(s, q->limits, plan->limits, sizeof(struct gpk_limits) << q->cut.split);
	if (prunes(q))
		gp_rt_copy_up(s, (void *)(uintptr_t)q->largest.rank, &largest, sizeof largest);
	return gp_rt_stream_wait(s, err);
}

static enum gp_status make_rooms(struct sortquant *q, bool encodes, struct gp_err *err)
{
	struct gp_carve c = {0};
	struct plan plan;
	plan_cut(&q->cut, &plan);
	carve(q, encodes, plan.ranks, &c);
	if (c.bytes == 0)
		return GP_OK;
	GP_TRY(gp_cuda_codec_alloc(q->site, c.bytes, &q->room, err));
	c = (struct gp_carve){.base = q->room};
	carve(q, encodes, plan.ranks, &c);
	q->bits.told = q->site->note;
	gp_rt_fill(q->site->stream, q->room, 0, c.bytes); /* what a device that fails leaves undone does no harm */
	return encodes ? send_plan(q, &plan, err) : gp_rt_stream_wait(q->site->stream, err);
}

static enum gp_status open_sortquant(const double *value, const struct gp_codec_setup *setup, void **state,
				     struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct sortquant), err));
	struct sortquant *q = p;
	*q = (struct sortquant){.site = setup->site, .cut = gp_sortquant_cut_of(value, setup->n), .seed = setup->seed};
	enum gp_status status = make_rooms(q, setup->encodes, err);
	if (status != GP_OK) {
		close_sortquant(q);
		return status;
	}
	*state = q;
	return GP_OK;
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* The chosen elements, together. */
static const float *queue_pruning(struct sortquant *q, const float *x)
{
	struct gp_rt_stream *const s = q->site->stream;
	gpk_select_run(s, &q->largest, x);
	gpk_chosen_mark(s, &q->bits, &q->largest, x, q->values, NULL);
	return q->values;
}

static void queue_selection(struct sortquant *q, const struct gp_codec_pass *pass, const float *x)
{
	struct gp_rt_stream *const s = q->site->stream;
	const int64_t n = (int64_t)q->cut.chosen;
	if (!q->cut.sampled) {
		gpk_select_run(s, &q->select, x);
		return;
	}
	gp_rt_fill(s, q->range, 0, sizeof *q->range);
	gpk_range(s, x, n, q->range);
	gpk_draw_sample(s, x, n, q->seed, gp_rng_stream(GP_RNG_SAMPLE, pass->draw), (int64_t)q->cut.sampled, q->sample);
	gpk_select_run(s, &q->select, q->sample);
}

/* All of it is queued before anybody knows whether the tensor can be coded: a raw one overwrites what was copied. */
static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct sortquant *q = state;
	const struct gp_sortquant_cut *const c = &q->cut;
	struct gp_rt_stream *const s = q->site->stream;
	struct note *const note = q->site->note, *const told = q->site->told;
	const size_t bitmap = prunes(q) ? gp_prune_bitmap_bytes(c->n) : 0,
		     body = gp_quant_bytes(c->bits, c->split, c->chosen);
	uint8_t *const piece = gp_cuda_codec_body(q->site, 0);
	uint32_t *const codes = (uint32_t *)(void *)(piece + ((size_t)8 << c->split));
	gp_rt_fill(s, note, 0, sizeof *note);
	const float *const chosen = prunes(q) ? queue_pruning(q, x) : x;
	queue_selection(q, pass, chosen);
	gpk_partition_table(s, &q->select, q->limits, q->range, c->bits, c->split, q->table, (float *)(void *)piece,
			    &note->good);
	gpk_partition_encode(s, q->table, c->bits, c->split, chosen, (int64_t)c->chosen, codes);
	gp_cuda_codec_tell(q->site, sizeof *told);
	if (bitmap)
		gp_rt_copy_down(s, out, q->bits.bits, bitmap);
	gp_rt_copy_down(s, out + bitmap, piece, body);
	*len = bitmap + body;
	return gp_cuda_codec_wait(q->site) && told->good && !told->bits.bad;
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

static enum gp_status queue_values(struct sortquant *q, struct gp_span in, float *x, struct gp_err *err)
{
	const struct gp_sortquant_cut *const c = &q->cut;
	struct gp_quant_table table = {.bits = c->bits, .split = c->split};
	GP_TRY(gp_quant_read_table(&table, in, c->chosen, err));
	uint8_t *const piece = gp_cuda_codec_up(q->site, in, 0);
	gpk_partition_decode(q->site->stream, (const float *)(void *)piece, c->bits, c->split,
			     (const uint32_t *)(void *)(piece + ((size_t)8 << c->split)), (int64_t)c->chosen, x);
	return GP_OK;
}

/* A bitmap is counted where it will be used: by the device, which is waited for. */
static enum gp_status decode_pruned(struct sortquant *q, struct gp_span in, float *x, struct gp_err *err)
{
	const uint64_t n = q->cut.n, bitmap = gp_prune_bitmap_bytes(n);
	const struct gpk_chosen_told *const told = q->site->told;
	struct gp_rt_stream *const s = q->site->stream;
	if (in.len < bitmap)
		GP_FAIL(err, GP_PROTO, "a payload of %zu bytes ends inside its bitmap", in.len);
	if (n % 8 && in.data[n / 8] >> n % 8)
		GP_FAIL(err, GP_PROTO, "a payload's bitmap has bits set behind its last element");
	GP_TRY(queue_values(q, (struct gp_span){in.data + bitmap, in.len - bitmap}, q->values, err));
	gp_rt_fill(s, q->site->note, 0, sizeof *told);
	gp_rt_fill(s, q->bits.bits, 0, 4 * (size_t)gpk_bit_words((int64_t)n));
	gp_rt_copy_up(s, q->bits.bits, in.data, bitmap);
	gpk_chosen_count(s, &q->bits);
	gpk_chosen_scatter(s, &q->bits, q->values, x);
	gp_cuda_codec_tell(q->site, sizeof *told);
	if (!gp_cuda_codec_wait(q->site))
		GP_FAIL(err, GP_DEVICE, "the device failed");
	if (told->chosen != q->cut.chosen)
		GP_FAIL(err, GP_PROTO, "a payload's bitmap chooses %u elements instead of %llu", told->chosen,
			(unsigned long long)q->cut.chosen);
	return GP_OK;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	struct sortquant *q = state;
	(void)pass;
	return prunes(q) ? decode_pruned(q, in, x, err) : queue_values(q, in, x, err);
}

const struct gp_codec_ops gp_cuda_codec_sortquant = {
	.bytes = state_bytes,
	.open = open_sortquant,
	.close = close_sortquant,
	.encode = encode,
	.decode = decode,
};

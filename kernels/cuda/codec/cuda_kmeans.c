/* SPDX-License-Identifier: Apache-2.0
 *
 * `kmeans` on a GPU: it counts, and writes codes; the host fits levels to the
 * counts with common/codec/stages/lloyd.c, which costs little beside either. Counts
 * are integers, so payloads and tensors are those of common/codec/stages/kmeans.c,
 * bit for bit. Test: tests/unit/test_cuda_codec_select.c
 */
#include "common/codec/stages/kmeans.h"

#include <math.h>

#include "common/codec/codec_histogram.h"
#include "common/codec/stages/lloyd.h"
#include "kernels/cuda/runtime/carve.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_bins.h"
#include "kernels/cuda/codec/k_codec_partition.h"
#include "kernels/cuda/codec/k_codec_uniform.h"

/* What the device finds out, laid out alike there and on the host. */
struct found {
	struct gpk_range range;
	float drawn[GP_LLOYD_SAMPLE + 1];
	uint64_t low[GP_LLOYD_BINS];
	uint32_t count[GP_LLOYD_BINS];
};

/* What the host tells it. */
struct levels {
	struct gpk_partitions cells;          /* of an encoder */
	float table[2 * GPK_PARTITIONS_MOST]; /* of a decoder: levels, each before a step of 0 */
};

struct kmeans {
	struct gp_codec_site *site;
	uint64_t n;
	int bits;
	struct gp_lloyd *lloyd; /* NULL: does not encode */
	void *room;
	struct found *found, *told; /* device, pinned */
	struct levels *levels, *given;
};

static void carve(struct kmeans *k, bool encodes, struct gp_carve *c)
{
	k->levels = gp_carve(c, sizeof *k->levels);
	if (encodes)
		k->found = gp_carve(c, sizeof *k->found);
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	struct kmeans k;
	struct gp_carve c = {0};
	(void)value;
	carve(&k, setup->encodes, &c);
	return sizeof k + c.bytes + sizeof(struct levels) +
	       (setup->encodes ? sizeof(struct found) + gp_lloyd_bytes() : 0);
}

static void close_kmeans(void *state)
{
	struct kmeans *k = state;
	if (!k)
		return;
	gp_cuda_codec_free(k->site, k->room);
	gp_cuda_codec_free_pinned(k->site, k->told);
	gp_cuda_codec_free_pinned(k->site, k->given);
	gp_lloyd_free(k->lloyd);
	gp_free(k);
}

static enum gp_status make_rooms(struct kmeans *k, bool encodes, struct gp_err *err)
{
	struct gp_carve c = {0};
	void *p;
	carve(k, encodes, &c);
	GP_TRY(gp_cuda_codec_alloc(k->site, c.bytes, &k->room, err));
	c = (struct gp_carve){.base = k->room};
	carve(k, encodes, &c);
	GP_TRY(gp_cuda_codec_alloc_pinned(k->site, sizeof *k->given, &p, err));
	k->given = p;
	gp_rt_fill(k->site->stream, k->room, 0, c.bytes); /* what a device that fails leaves undone does no harm */
	GP_TRY(gp_rt_stream_wait(k->site->stream, err));
	if (!encodes)
		return GP_OK;
	GP_TRY(gp_cuda_codec_alloc_pinned(k->site, sizeof *k->told, &p, err));
	k->told = p;
	return gp_lloyd_new(&k->lloyd, err);
}

static enum gp_status open_kmeans(const double *value, const struct gp_codec_setup *setup, void **state,
				  struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct kmeans), err));
	struct kmeans *k = p;
	*k = (struct kmeans){.site = setup->site, .n = setup->n, .bits = (int)value[0]};
	enum gp_status status = make_rooms(k, setup->encodes, err);
	if (status != GP_OK) {
		close_kmeans(k);
		return status;
	}
	*state = k;
	return GP_OK;
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* Range and typical values; false when the tensor cannot be coded. */
static bool look(struct kmeans *k, const float *x, int drawn, float *min, float *max)
{
	struct gp_rt_stream *const s = k->site->stream;
	const size_t bytes = offsetof(struct found, low);
	gp_rt_fill(s, k->found, 0, sizeof *k->found);
	gpk_range(s, x, (int64_t)k->n, &k->found->range);
	gpk_bins_draw(s, x, (int64_t)k->n, drawn, k->found->drawn);
	gp_rt_copy_down(s, k->told, k->found, bytes);
	if (!gp_cuda_codec_wait(k->site) || k->told->range.bad)
		return false;
	*min = gp_float_of_key(~k->told->range.inverted_min);
	*max = gp_float_of_key(k->told->range.max);
	return isfinite(*max - *min);
}

static bool count(struct kmeans *k, const float *x, float center, float scale)
{
	struct gp_rt_stream *const s = k->site->stream;
	const size_t from = offsetof(struct found, low), bytes = sizeof *k->found - from;
	const struct gpk_bins bins = {.low_bits = GP_LLOYD_LOW_BITS,
				      .side = GP_LLOYD_SIDE,
				      .first = GP_LLOYD_FIRST,
				      .count = k->found->count,
				      .low = k->found->low};
	gpk_bins_count(s, &bins, x, (int64_t)k->n, center, scale);
	gp_rt_copy_down(s, k->told->low, k->found->low, bytes);
	return gp_cuda_codec_wait(k->site);
}

static void queue_codes(struct kmeans *k, const float *x, const float *level, float min, uint8_t *out)
{
	struct gp_rt_stream *const s = k->site->stream;
	const size_t head = (size_t)4 << k->bits;
	uint8_t *const codes = gp_cuda_codec_body(k->site, 0);
	gp_kmeans_cells(k->bits, level, min, k->given->cells.min, k->given->cells.divisor);
	k->given->cells.good = 1;
	gp_rt_copy_up(s, &k->levels->cells, &k->given->cells, sizeof k->given->cells);
	gpk_partition_encode(s, &k->levels->cells, 0, k->bits, x, (int64_t)k->n, (uint32_t *)(void *)codes);
	gp_rt_copy_down(s, out + head, codes, gp_kmeans_bytes(k->bits, k->n) - head);
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct kmeans *k = state;
	const int levels = 1 << k->bits, drawn = k->n < GP_LLOYD_SAMPLE ? (int)k->n : GP_LLOYD_SAMPLE;
	float min, max, level[GPK_PARTITIONS_MOST];
	(void)pass;
	if (!look(k, x, drawn, &min, &max))
		return false;
	const float center = gp_lloyd_center(k->told->drawn, drawn), scale = gp_lloyd_scale(center, min, max);
	if (!count(k, x, center, scale))
		return false;
	gp_lloyd_fit_bins(k->lloyd, k->told->count, k->told->low, center, scale, min, max, level, levels);
	gp_put_f32s(out, level, (size_t)levels);
	queue_codes(k, x, level, min, out);
	*len = gp_kmeans_bytes(k->bits, k->n);
	return true;
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	struct kmeans *k = state;
	float level[GPK_PARTITIONS_MOST];
	const size_t head = (size_t)4 << k->bits;
	(void)pass;
	GP_TRY(gp_kmeans_read_levels(k->bits, in, k->n, level, err));
	for (int i = 0; i < 1 << k->bits; i++) {
		k->given->table[2 * i] = level[i];
		k->given->table[2 * i + 1] = 0;
	}
	gp_rt_copy_up(k->site->stream, k->levels->table, k->given->table, 2 * head);
	const uint8_t *const codes = gp_cuda_codec_up(k->site, (struct gp_span){in.data + head, in.len - head}, 0);
	gpk_partition_decode(k->site->stream, k->levels->table, 0, k->bits, (const uint32_t *)(const void *)codes,
			     (int64_t)k->n, x);
	return GP_OK;
}

const struct gp_codec_ops gp_cuda_codec_kmeans = {
	.bytes = state_bytes,
	.open = open_kmeans,
	.close = close_kmeans,
	.encode = encode,
	.decode = decode,
};

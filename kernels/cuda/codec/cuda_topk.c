/* SPDX-License-Identifier: Apache-2.0
 *
 * `topk` on a GPU: the k-th magnitude by selection (k_codec_select.h), then
 * bits, values and indices in three looks (k_codec_chosen.h). Payloads, tensors
 * and masks are those of common/codec/stages/topk.c, bit for bit. Masks lie on the
 * host, where the gradient's stage may be, and go there and back as bits.
 * Test: tests/unit/test_cuda_codec_select.c
 */
#include "common/codec/codec_indices.h"
#include "common/codec/stages/prune.h"
#include "kernels/cuda/runtime/carve.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_chosen.h"

enum { WIDTH_MIN = 2, WIDTH_MAX = 16 }; /* of distances: codec_indices.c */

struct topk {
	struct gp_codec_site *site;
	uint64_t n, k;
	void *room;
	struct gpk_select select; /* of an encoder */
	struct gpk_chosen bits;
	uint32_t *places;
	struct gp_codec_mask *mask;
	const struct gp_codec_mask *activation;
};

/* --- open ------------------------------------------------------------------------------------------------------- */

static void carve(struct topk *t, bool encodes, struct gp_carve *c)
{
	const int64_t n = (int64_t)t->n;
	t->bits = (struct gpk_chosen){.n = n, .chosen = (int64_t)t->k};
	t->bits.bits = gp_carve(c, 4 * (uint64_t)gpk_bit_words(n));
	t->bits.part[0] = gp_carve(c, 4 * GPK_KEPT_PARTS);
	t->bits.part[1] = gp_carve(c, 4 * GPK_KEPT_PARTS);
	t->bits.first = gp_carve(c, 4 * (uint64_t)gpk_tiles(n));
	if (!encodes)
		return;
	t->bits.ties = gp_carve(c, 4 * (uint64_t)gpk_bit_words(n));
	t->places = gp_carve(c, 4 * t->k);
	t->select = (struct gpk_select){.n = n, .ranks = 1, .magnitudes = true};
	t->select.rank = gp_carve(c, sizeof(uint32_t));
	t->select.room = gp_carve(c, gpk_select_bytes(n, 1));
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	struct topk t = {.n = setup->n, .k = gp_prune_chosen(value[0], setup->n)};
	struct gp_carve c = {0};
	carve(&t, setup->encodes, &c);
	return sizeof t + c.bytes;
}

static void close_topk(void *state)
{
	struct topk *t = state;
	if (t)
		gp_cuda_codec_free(t->site, t->room);
	gp_free(t);
}

static enum gp_status make_rooms(struct topk *t, bool encodes, struct gp_err *err)
{
	const uint32_t rank = (uint32_t)(t->n - t->k);
	struct gp_carve c = {0};
	carve(t, encodes, &c);
	GP_TRY(gp_cuda_codec_alloc(t->site, c.bytes, &t->room, err));
	c = (struct gp_carve){.base = t->room};
	carve(t, encodes, &c);
	t->bits.told = t->site->note;
	gp_rt_fill(t->site->stream, t->room, 0, c.bytes); /* what a device that fails leaves undone does no harm */
	if (encodes)
		gp_rt_copy_up(t->site->stream, (void *)(uintptr_t)t->select.rank, &rank, sizeof rank);
	return gp_rt_stream_wait(t->site->stream, err);
}

static enum gp_status open_topk(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct topk), err));
	struct topk *t = p;
	*t = (struct topk){.site = setup->site,
			   .n = setup->n,
			   .k = gp_prune_chosen(value[0], setup->n),
			   .mask = setup->mask,
			   .activation = setup->activation_mask};
	enum gp_status status = make_rooms(t, setup->encodes, err);
	if (status != GP_OK) {
		close_topk(t);
		return status;
	}
	*state = t;
	return GP_OK;
}

/* --- masks ------------------------------------------------------------------------------------------------------ */

static size_t mask_bytes(const struct topk *t)
{
	return gp_indices_words(t->n) * sizeof(uint64_t);
}

static const uint64_t *activation_bits(const struct topk *t, const struct gp_codec_pass *pass)
{
	return gp_codec_mask_bits(t->activation, pass, t->k, t->n);
}

static void leave_mask(const struct topk *t, const struct gp_codec_pass *pass, uint64_t chosen)
{
	if (t->mask && !pass->eval)
		t->mask->chosen[pass->chunk] = chosen;
}

/* The bits of this pass, to where the gradient will look for them, if it will. */
static void queue_mask(const struct topk *t, const struct gp_codec_pass *pass)
{
	if (t->mask && !pass->eval)
		gp_rt_copy_down(t->site->stream, t->mask->bits + pass->chunk * t->mask->words, t->bits.bits,
				mask_bytes(t));
	leave_mask(t, pass, t->k);
}

static void passed(void *state, const struct gp_codec_pass *pass)
{
	leave_mask(state, pass, 0);
}

/* The device's bits from the host's, the rest of their last tile 0, and answers. */
static void queue_bits(const struct topk *t, const void *bits, size_t bytes)
{
	struct gp_rt_stream *const s = t->site->stream;
	gp_rt_fill(s, t->site->note, 0, sizeof(struct gpk_chosen_told));
	gp_rt_fill(s, t->bits.bits, 0, 4 * (size_t)gpk_bit_words((int64_t)t->n));
	if (bits)
		gp_rt_copy_up(s, t->bits.bits, bits, bytes);
}

/* --- split ------------------------------------------------------------------------------------------------------ */

static bool split_given(struct topk *t, const uint64_t *given, const float *x, float *chosen)
{
	const struct gpk_chosen_told *const told = t->site->told;
	queue_bits(t, given, mask_bytes(t));
	gpk_chosen_count(t->site->stream, &t->bits);
	gpk_chosen_gather(t->site->stream, &t->bits, x, chosen);
	gp_cuda_codec_tell(t->site, sizeof *told);
	return gp_cuda_codec_wait(t->site) && !told->bad;
}

/* Indices in the form that the device has chosen, which is what had to be waited for. */
static size_t queue_side(struct topk *t, const uint32_t *packed, uint8_t *side)
{
	const struct gpk_chosen_told *const told = t->site->told;
	const size_t bitmap = gp_indices_bound(t->n) - 1, bytes = ((size_t)told->codes * told->width + 7) / 8;
	side[0] = (uint8_t)told->width;
	gp_require(bytes <= bitmap);
	gp_rt_copy_down(t->site->stream, side + 1, told->width ? packed : t->bits.bits, told->width ? bytes : bitmap);
	return 1 + (told->width ? bytes : bitmap);
}

static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	struct topk *t = state;
	struct gp_rt_stream *const s = t->site->stream;
	const struct gpk_chosen_told *const told = t->site->told;
	const uint64_t *given = activation_bits(t, pass);
	uint32_t *const packed = (uint32_t *)(void *)gp_cuda_codec_body(t->site, 0);
	*side_len = 0;
	if (given)
		return split_given(t, given, x, tensor[0]);
	gp_rt_fill(s, t->site->note, 0, sizeof *told);
	gp_rt_fill(s, packed, 0, (size_t)gp_indices_bound(t->n) + 3);
	gpk_select_run(s, &t->select, x);
	gpk_chosen_mark(s, &t->bits, &t->select, x, tensor[0], t->places);
	gpk_distances_write(s, &t->bits, t->places, packed);
	gp_cuda_codec_tell(t->site, sizeof *told);
	if (!gp_cuda_codec_wait(t->site) || told->bad)
		return false;
	*side_len = queue_side(t, packed, side);
	queue_mask(t, pass);
	return true;
}

/* --- join ------------------------------------------------------------------------------------------------------- */

static enum gp_status queue_bitmap(struct topk *t, struct gp_span in, struct gp_err *err)
{
	const uint64_t n = t->n;
	if (in.len != (n + 7) / 8)
		GP_FAIL(err, GP_PROTO, "bitmap of %llu elements has %zu bytes", (unsigned long long)n, in.len);
	if (n % 8 && in.data[n / 8] >> n % 8)
		GP_FAIL(err, GP_PROTO, "bitmap names elements past the last");
	queue_bits(t, in.data, in.len);
	return GP_OK;
}

static enum gp_status queue_indices(struct topk *t, struct gp_span side, struct gp_err *err)
{
	if (side.len == 0)
		GP_FAIL(err, GP_PROTO, "indices are missing");
	const int width = side.data[0];
	if (width == 0)
		return queue_bitmap(t, (struct gp_span){side.data + 1, side.len - 1}, err);
	if (width < WIDTH_MIN || width > WIDTH_MAX)
		GP_FAIL(err, GP_PROTO, "indices of %d bits are not possible", width);
	queue_bits(t, NULL, 0);
	const uint32_t *const packed = (const uint32_t *)(const void *)(gp_cuda_codec_up(t->site, side, 1) + 1);
	gpk_distances_read(t->site->stream, &t->bits, packed, width, (int64_t)((side.len - 1) * 8 / (size_t)width));
	return GP_OK;
}

/* What only the device could see: whether the indices name k elements, with nothing behind them. */
static enum gp_status check_indices(const struct topk *t, struct gp_span side, struct gp_err *err)
{
	const struct gpk_chosen_told *const told = t->site->told;
	const uint64_t bits = (uint64_t)told->used * side.data[0];
	if (told->bad)
		GP_FAIL(err, GP_PROTO, "indices go past the last element");
	if (side.data[0] == 0 && told->chosen != t->k)
		GP_FAIL(err, GP_PROTO, "bitmap names %u elements instead of %llu", told->chosen,
			(unsigned long long)t->k);
	if (side.data[0] == 0)
		return GP_OK;
	if (told->used == 0 || side.len - 1 != (bits + 7) / 8 || (bits % 8 && side.data[side.len - 1] >> bits % 8))
		GP_FAIL(err, GP_PROTO, "%zu bytes of indices do not hold %llu", side.len - 1, (unsigned long long)t->k);
	return GP_OK;
}

static void queue_scatter(struct topk *t, bool counted, const float *chosen, float *x)
{
	if (counted) {
		gpk_distances_scatter(t->site->stream, &t->bits, chosen, x);
		return;
	}
	gpk_chosen_count(t->site->stream, &t->bits);
	gpk_chosen_scatter(t->site->stream, &t->bits, chosen, x);
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	struct topk *t = state;
	const uint64_t *given = activation_bits(t, pass);
	if (given && side.len > 0)
		GP_FAIL(err, GP_PROTO, "%zu bytes of indices where the activation's are to be used", side.len);
	if (given) {
		queue_bits(t, given, mask_bytes(t));
		queue_scatter(t, false, tensor[0], x);
		return GP_OK;
	}
	leave_mask(t, pass, 0);
	GP_TRY(queue_indices(t, side, err));
	queue_scatter(t, side.data[0] != 0, tensor[0], x);
	gp_cuda_codec_tell(t->site, sizeof(struct gpk_chosen_told));
	if (!gp_cuda_codec_wait(t->site))
		GP_FAIL(err, GP_DEVICE, "the device failed");
	GP_TRY(check_indices(t, side, err));
	queue_mask(t, pass);
	return GP_OK;
}

const struct gp_codec_ops gp_cuda_codec_topk = {
	.bytes = state_bytes,
	.open = open_topk,
	.close = close_topk,
	.split = split,
	.join = join,
	.passed = passed,
};

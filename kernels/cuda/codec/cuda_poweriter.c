/* SPDX-License-Identifier: Apache-2.0
 *
 * `poweriter` on a GPU: all samples of a tensor at once, each of its steps in
 * the host's order (k_codec_factor.h), so that factors, state and tensors are
 * those of common/codec/stages/poweriter.c bit for bit. What a chunk starts from lies
 * on the host and goes there and back as the small factors that it is.
 * Test: tests/unit/test_cuda_codec_poweriter.c
 */
#include "common/codec/stages/poweriter.h"

#include "common/base/rng.h"
#include "kernels/loops/codec_loops.h"
#include "kernels/cuda/runtime/carve.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_factor.h"

enum { RANK, ITERS };

struct poweriter {
	struct gp_codec_site *site;
	struct gp_poweriter_sizes size;
	int steps;
	uint32_t chunks;
	/* State of an encoder, on the host: per chunk whether it has a start, and the small factors of the last pass. With
	 * undo, the same again. */
	uint32_t *warm, *backup_warm;
	float *start, *backup_start;
	/* On the device. */
	void *room;
	struct gpk_factor factor;
	float *from; /* a chunk's start */
};

/* Elements of the small factors. */
static uint64_t start_count(const struct gp_poweriter_sizes *s)
{
	return (uint64_t)(s->batch * s->r * s->small);
}

static void carve(struct poweriter *p, struct gp_carve *c)
{
	const struct gp_poweriter_sizes *const s = &p->size;
	const uint64_t start = start_count(s);
	struct gpk_factor *const f = &p->factor;
	f->gram = gp_carve(c, 8 * (uint64_t)(s->batch * s->small * s->small));
	f->v = gp_carve(c, 8 * start);
	f->w = gp_carve(c, 8 * start);
	f->partial = gp_carve(c, 4 * gpk_factor_partials(s->batch, s->tall, s->small));
	f->sample = gp_carve(c, (uint64_t)s->batch * sizeof *f->sample);
	p->from = gp_carve(c, 4 * start);
}

static uint64_t host_bytes(const struct poweriter *p, const struct gp_codec_setup *setup)
{
	const uint64_t once = p->chunks * (sizeof *p->warm + start_count(&p->size) * sizeof *p->start);
	return setup->encodes ? once << setup->undo : 0;
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	struct poweriter p = {.chunks = setup->chunks};
	struct gp_carve c = {0};
	struct gp_err err;
	if (gp_poweriter_sizes_of(value, &setup->shape, &p.size, &err) != GP_OK)
		return UINT64_MAX;
	if (setup->encodes)
		carve(&p, &c);
	return sizeof p + c.bytes + host_bytes(&p, setup);
}

static void close_poweriter(void *state)
{
	struct poweriter *p = state;
	if (!p)
		return;
	gp_cuda_codec_free(p->site, p->room);
	gp_free(p->warm);
	gp_free(p->backup_warm);
	gp_free(p->start);
	gp_free(p->backup_start);
	gp_free(p);
}

static enum gp_status make_state(struct poweriter *p, uint32_t **warm, float **start, struct gp_err *err)
{
	void *at;
	GP_TRY(gp_alloc_array(&at, p->chunks, sizeof **warm, err));
	*warm = at;
	GP_TRY(gp_alloc_array(&at, p->chunks, start_count(&p->size) * sizeof **start, err));
	*start = at;
	return GP_OK;
}

static enum gp_status make_encoder(struct poweriter *p, const struct gp_codec_setup *setup, struct gp_err *err)
{
	const struct gp_poweriter_sizes *const s = &p->size;
	struct gp_carve c = {0};
	GP_TRY(make_state(p, &p->warm, &p->start, err));
	if (setup->undo)
		GP_TRY(make_state(p, &p->backup_warm, &p->backup_start, err));
	p->factor = (struct gpk_factor){.batch = s->batch,
					.tall = s->tall,
					.small = s->small,
					.r = s->r,
					.transposed = s->rows < s->cols,
					.seed = setup->seed,
					.stream = gp_rng_stream(GP_RNG_SAMPLE, 0),
					.least_trace = GP_POWERITER_EXACT_MEAN * (double)(s->rows * s->cols),
					.exact_share = GP_POWERITER_EXACT_SHARE,
					.nothing_left = GP_POWERITER_NOTHING_LEFT,
					.most_trace = GP_POWERITER_LARGEST_NORM * GP_POWERITER_LARGEST_NORM,
					.told = p->site->note};
	carve(p, &c);
	GP_TRY(gp_cuda_codec_alloc(p->site, c.bytes, &p->room, err));
	c = (struct gp_carve){.base = p->room};
	carve(p, &c);
	gp_rt_fill(p->site->stream, p->room, 0, c.bytes); /* what a device that fails leaves undone does no harm */
	return gp_rt_stream_wait(p->site->stream, err);
}

static enum gp_status open_poweriter(const double *value, const struct gp_codec_setup *setup, void **state,
				     struct gp_err *err)
{
	struct gp_poweriter_sizes size;
	void *block;
	GP_TRY(gp_poweriter_sizes_of(value, &setup->shape, &size, err));
	GP_TRY(gp_alloc_array(&block, 1, sizeof(struct poweriter), err));
	struct poweriter *p = block;
	*p = (struct poweriter){.site = setup->site, .size = size, .steps = (int)value[ITERS], .chunks = setup->chunks};
	enum gp_status status = setup->encodes ? make_encoder(p, setup, err) : GP_OK;
	if (status == GP_OK)
		*state = p;
	else
		close_poweriter(p);
	return status;
}

/* --- state ------------------------------------------------------------------------------------------------------ */

static int regions(void *state, struct gp_codec_region *out)
{
	struct poweriter *p = state;
	if (!p->start)
		return 0;
	out[0] = (struct gp_codec_region){
		.data = p->warm, .bytes = p->chunks * sizeof *p->warm, .backup = p->backup_warm};
	out[1] = (struct gp_codec_region){.data = p->start,
					  .bytes = p->chunks * (size_t)start_count(&p->size) * sizeof *p->start,
					  .backup = p->backup_start};
	return 2;
}

static bool loaded(void *state)
{
	const struct poweriter *p = state;
	float min, max;
	bool good = !p->start ||
		    gp_codec_loops_choose()->range(p->start, p->chunks * (size_t)start_count(&p->size), &min, &max);
	for (uint32_t c = 0; p->start && c < p->chunks; c++)
		good &= p->warm[c] <= 1;
	return good;
}

static float *start_of(const struct poweriter *p, const struct gp_codec_pass *pass)
{
	return p->start + pass->chunk * start_count(&p->size);
}

/* --- split and join --------------------------------------------------------------------------------------------- */

/* Where the chunk's last pass ended, or nothing; returns how many steps are to be made. */
static int queue_start(struct poweriter *p, const struct gp_codec_pass *pass)
{
	struct gp_rt_stream *const s = p->site->stream;
	const bool warm = !pass->eval && p->warm[pass->chunk];
	if (warm)
		gp_rt_copy_up(s, p->from, start_of(p, pass), start_count(&p->size) * sizeof *p->from);
	gpk_factor_start(s, &p->factor, warm ? p->from : NULL);
	return p->steps + (warm ? 0 : GP_POWERITER_COLD_STEPS);
}

static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	struct poweriter *p = state;
	struct gp_rt_stream *const s = p->site->stream;
	const struct gpk_factor_told *const told = p->site->told;
	const bool tall = !p->factor.transposed;
	float *const small_factor = tensor[tall], *const tall_factor = tensor[!tall];
	(void)side;
	*side_len = 0;
	gp_rt_fill(s, p->site->note, 0, sizeof *told);
	gpk_factor_iterate(s, &p->factor, x, queue_start(p, pass));
	gpk_factor_basis(s, &p->factor, small_factor);
	gpk_factor_project(s, &p->factor, x, small_factor, tall_factor);
	gp_cuda_codec_tell(p->site, sizeof *told);
	if (!gp_cuda_codec_wait(p->site) || told->bad)
		return false;
	if (pass->eval)
		return true;
	gp_rt_copy_down(s, start_of(p, pass), small_factor, start_count(&p->size) * sizeof *p->start);
	p->warm[pass->chunk] = 1;
	return true;
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	struct poweriter *p = state;
	const struct gp_poweriter_sizes *const s = &p->size;
	const struct gpk_factor_told *const told = p->site->told;
	(void)pass;
	if (side.len)
		GP_FAIL(err, GP_PROTO, "poweriter has %zu side bytes instead of none", side.len);
	gp_rt_fill(p->site->stream, p->site->note, 0, sizeof *told);
	gpk_factor_join(p->site->stream, s->batch, s->rows, s->cols, s->r, tensor[0], tensor[1], x, p->site->note);
	gp_cuda_codec_tell(p->site, sizeof *told);
	if (!gp_cuda_codec_wait(p->site))
		GP_FAIL(err, GP_DEVICE, "the device failed");
	if (told->bad)
		GP_FAIL(err, GP_PROTO, "poweriter has factors whose product is not finite");
	return GP_OK;
}

const struct gp_codec_ops gp_cuda_codec_poweriter = {
	.bytes = state_bytes,
	.open = open_poweriter,
	.close = close_poweriter,
	.regions = regions,
	.loaded = loaded,
	.split = split,
	.join = join,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * A flow (transfer.h): what its codec and its frames need, opening and closing it.
 * Test: tests/unit/test_transfer.c
 */
#include "common/wire/transfer.h"

#include <string.h>

#include "common/codec/codec_device.h"

static enum gp_status check_frame_bytes(uint64_t bytes, struct gp_err *err)
{
	if (bytes > GP_FRAME_BYTES_MAX)
		GP_FAIL(err, GP_INVALID,
			"the tensor of one chunk needs a frame of %llu bytes, over the %llu possible; use more chunks",
			(unsigned long long)bytes, (unsigned long long)GP_FRAME_BYTES_MAX);
	return GP_OK;
}

/* Directions draw apart, and so do the tensors of one. */
#define DIRECTION_SEED UINT64_C(0xd1342543de82ef95)
#define TENSOR_SEED    UINT64_C(0x9e3779b97f4a7c15)

static struct gp_codec_options codec_options(const struct gp_flow_spec *spec, const struct gp_flow_options *all)
{
	const struct gp_direction_info *d = &gp_direction_info[spec->direction];
	return (struct gp_codec_options){
		.seed = all->seed + (uint64_t)d->frame * DIRECTION_SEED + (uint64_t)spec->tensor * TENSOR_SEED,
		.role = d->up == all->client ? GP_CODEC_ENCODES : GP_CODEC_DECODES,
		.chunks = all->chunks,
		.has_gradient = spec->has_gradient,
		.undo = all->undo,
		.device = all->device,
	};
}

static bool encodes(const struct gp_flow_spec *spec, const struct gp_flow_options *all)
{
	return gp_direction_info[spec->direction].up == all->client;
}

/* Whether this end gathers rows before it encodes them. */
static bool packs(const struct gp_flow_spec *spec, const struct gp_flow_options *all)
{
	return spec->leaves_out && encodes(spec, all);
}

static bool surveys(const struct gp_flow_spec *spec, const struct gp_flow_options *all)
{
	return spec->ladder && spec->survey_every > 0 && encodes(spec, all);
}

static struct gp_survey_spec survey_spec(const struct gp_flow_spec *spec, const struct gp_flow_options *all)
{
	return (struct gp_survey_spec){.ladder = spec->ladder, .shape = spec->type.shape, .device = all->device};
}

/* What one chain needs. */
struct codec_need {
	uint64_t bound, bytes, ns;
};

static enum gp_status need_of(const struct gp_flow_spec *spec, const struct gp_flow_options *all,
			      const struct gp_codec_spec *codec, struct codec_need *out, struct gp_err *err)
{
	const struct gp_codec_options options = codec_options(spec, all);
	GP_TRY(gp_codec_bound_for(codec, &spec->type.shape, &out->bound, err));
	GP_TRY(gp_codec_bytes_for(codec, &spec->type.shape, &options, &out->bytes, err));
	return gp_codec_work_for(codec, &spec->type.shape, &options, &out->ns, err);
}

static void raise_need(struct codec_need *most, const struct codec_need *n)
{
	most->bound = n->bound > most->bound ? n->bound : most->bound;
	most->bytes = n->bytes > most->bytes ? n->bytes : most->bytes;
	most->ns = n->ns > most->ns ? n->ns : most->ns;
}

/* A survey comes on top of a pass. */
static enum gp_status add_survey(const struct gp_flow_spec *spec, const struct gp_flow_options *all,
				 struct codec_need *need, struct gp_err *err)
{
	const struct gp_survey_spec s = survey_spec(spec, all);
	uint64_t bytes, ns;
	if (!surveys(spec, all))
		return GP_OK;
	GP_TRY(gp_survey_estimate(&s, &bytes, &ns, err));
	if (!gp_add_ok(need->bytes, bytes, &need->bytes))
		GP_FAIL(err, GP_INVALID, "a survey's memory overflows");
	need->ns = gp_add_ok(need->ns, ns, &need->ns) ? need->ns : UINT64_MAX;
	return GP_OK;
}

/* The most that any rung needs. */
static enum gp_status most_needed(const struct gp_flow_spec *spec, const struct gp_flow_options *all,
				  struct codec_need *out, struct gp_err *err)
{
	GP_TRY(need_of(spec, all, spec->codec, out, err));
	for (int i = 0; spec->ladder && i < spec->ladder->rungs; i++) {
		struct gp_codec_spec rung;
		struct codec_need n;
		gp_codec_ladder_rung(spec->ladder, i, &rung);
		GP_TRY(need_of(spec, all, &rung, &n, err));
		raise_need(out, &n);
	}
	return add_survey(spec, all, out, err);
}

enum gp_status gp_flow_estimate(const struct gp_flow_spec *spec, const struct gp_flow_options *all, uint64_t *frames,
				uint64_t *codec, struct gp_err *err)
{
	struct codec_need need;
	uint64_t bound, packed = 0;
	GP_TRY(most_needed(spec, all, &need, err));
	bound = need.bound;
	*codec = need.bytes;
	const uint64_t rows = spec->leaves_out ? (uint64_t)spec->type.shape.dim[0] * GP_ROW_COUNT_BYTES : 0;
	if (packs(spec, all))
		packed = gp_shape_elements(&spec->type.shape) * sizeof(float);
	bound += rows; /* of counts in front of the payload */
	GP_TRY(check_frame_bytes(bound, err));
	if (!gp_mul_ok(bound + rows + sizeof(struct gp_transfer), (uint64_t)all->slots, frames) ||
	    !gp_add_ok(*frames, packed, frames))
		GP_FAIL(err, GP_INVALID, "frame buffers of %d chunks overflow", all->slots);
	return GP_OK;
}

enum gp_status gp_flow_work(const struct gp_flow_spec *spec, const struct gp_flow_options *all, uint64_t *ns,
			    struct gp_err *err)
{
	struct codec_need need;
	GP_TRY(most_needed(spec, all, &need, err));
	*ns = need.ns;
	return GP_OK;
}

static enum gp_status init_rows(const struct gp_flow *f, struct gp_transfer *t, struct gp_err *err)
{
	void *rows;
	if (!f->leaves_out)
		return GP_OK;
	GP_TRY(gp_alloc_array(&rows, (size_t)f->samples, sizeof *t->rows, err));
	t->rows = rows;
	return GP_OK;
}

static enum gp_status init_packed(struct gp_flow *f, const struct gp_flow_spec *spec, const struct gp_flow_options *all,
				  struct gp_err *err)
{
	if (!packs(spec, all))
		return GP_OK;
	f->packed = gp_alloc_aligned(f->tensor_bytes);
	if (!f->packed)
		GP_FAIL(err, GP_NOMEM, "out of memory for the rows of a tensor");
	return GP_OK;
}

/* Bytes of a frame with the flow's codec. */
static size_t cap_of(const struct gp_flow *f)
{
	return gp_codec_bound(f->codec) + (f->leaves_out ? (size_t)f->samples * GP_ROW_COUNT_BYTES : 0);
}

static enum gp_status init_slots(struct gp_flow *d, int slots, void *arg, struct gp_err *err)
{
	const size_t cap = cap_of(d);
	GP_TRY(check_frame_bytes(d->frame_bytes, err));
	d->slot = gp_calloc((size_t)slots, sizeof *d->slot);
	if (!d->slot)
		GP_FAIL(err, GP_NOMEM, "out of memory for %d transfers", slots);
	while (d->slots < slots) {
		struct gp_transfer *t = &d->slot[d->slots];
		t->flow = d;
		t->slot = d->slots++; /* gp_flow_deinit frees what it gets, should the rest fail */
		t->arg = arg;
		t->frame.owner = t;
		t->frame.cap = cap;
		t->frame.tensor_bytes = d->tensor_bytes;
		GP_TRY(gp_codec_alloc_payload(d->device, d->frame_bytes, &t->frame.payload, err));
		GP_TRY(init_rows(d, t, err));
	}
	return GP_OK;
}

/* Behind positions and samples. */
static void set_shape(struct gp_flow *f, const struct gp_flow_spec *spec)
{
	const int64_t elements = (int64_t)gp_shape_elements(&spec->type.shape);
	f->type = spec->type;
	f->tensor_bytes = (uint64_t)elements * gp_dtype_bytes(spec->type.dtype);
	if (f->positions > 0)
		f->width = elements / (f->samples * f->positions);
}

static void set_codec(struct gp_flow *f, const struct gp_codec_spec *codec)
{
	f->along = gp_codec_spec_lengths(codec) == GP_CODEC_SEQUENCES;
	f->spec = *codec;
	f->codec_id = codec->stages > 0 ? codec->stage[0].id : 0;
}

bool gp_flow_takes_lengths(const struct gp_flow_spec *spec)
{
	return gp_codec_spec_lengths(spec->codec) != GP_CODEC_ONE_SHAPE;
}

enum gp_status gp_flow_init(struct gp_flow *f, const struct gp_flow_spec *spec, const struct gp_flow_options *all,
			    const struct gp_flow *activation, struct gp_worker *worker, void *arg, struct gp_err *err)
{
	const struct gp_shape *shape = &spec->type.shape;
	struct gp_codec_options options = codec_options(spec, all);
	options.activation = activation ? activation->codec : NULL;
	memset(f, 0, sizeof *f);
	f->direction = spec->direction;
	f->tensor = spec->tensor;
	f->device = all->device;
	f->stop = all->stop;
	f->chunks = all->chunks;
	f->positions = spec->positions;
	f->leaves_out = spec->leaves_out;
	f->row_positions = spec->row_positions;
	f->ladder = spec->ladder;
	f->survey_every = surveys(spec, all) ? spec->survey_every : 0;
	f->seed = options.seed;
	f->samples = shape->dim[0];
	set_shape(f, spec);
	set_codec(f, spec->codec);
	struct codec_need need = {0};
	enum gp_status status = most_needed(spec, all, &need, err);
	const bool slow = all->slow && need.ns > GP_FLOW_SLOW_NS;
	f->work_ns = need.ns;
	f->frame_bytes = (size_t)need.bound + (f->leaves_out ? (size_t)f->samples * GP_ROW_COUNT_BYTES : 0);
	gp_lane_init(&f->lane, slow ? all->slow : worker, slow ? all->slow_user : all->user);
	if (status == GP_OK)
		status = gp_codec_bytes_for(spec->codec, shape, &options, &f->codec_bytes, err);
	if (status == GP_OK)
		status = gp_codec_open(spec->codec, shape, &options, &f->codec, err);
	if (status == GP_OK)
		status = init_packed(f, spec, all, err);
	if (status == GP_OK)
		status = init_slots(f, all->slots, arg, err);
	if (status != GP_OK)
		gp_flow_deinit(f);
	return status;
}

void gp_flow_deinit(struct gp_flow *f)
{
	for (int i = 0; f->slot && i < f->slots; i++) {
		gp_codec_free_payload(f->device, f->slot[i].frame.payload);
		gp_free(f->slot[i].rows);
	}
	gp_free(f->slot);
	gp_free_aligned(f->packed);
	gp_codec_free(f->codec);
	gp_lane_deinit(&f->lane);
	memset(f, 0, sizeof *f);
}

void gp_flow_close(struct gp_flow *f)
{
	gp_require(f->lane.pending == 0);
	gp_codec_free(f->codec);
	f->codec = NULL;
	f->past = f->stats;
}

/* Where the rows of one tensor are packed, and the time that a pass may take, there is enough for the smaller one. */
enum gp_status gp_flow_reopen(struct gp_flow *f, const struct gp_flow_spec *spec, const struct gp_flow_options *all,
			      const struct gp_flow *activation, struct gp_err *err)
{
	const struct gp_shape *shape = &spec->type.shape;
	struct gp_codec_options options = codec_options(spec, all);
	options.activation = activation ? activation->codec : NULL;
	GP_TRY(gp_codec_bytes_for(spec->codec, shape, &options, &f->codec_bytes, err));
	GP_TRY(gp_codec_open(spec->codec, shape, &options, &f->codec, err));
	const size_t cap = cap_of(f);
	if (cap > f->frame_bytes)
		GP_FAIL(err, GP_INVALID, "%s would need frames of %zu bytes, more than the %zu that were allocated",
			gp_direction_info[f->direction].name, cap, f->frame_bytes);
	set_shape(f, spec);
	set_codec(f, spec->codec);
	for (int i = 0; i < f->slots; i++) {
		f->slot[i].frame.cap = cap;
		f->slot[i].encoded = false;
	}
	return GP_OK;
}

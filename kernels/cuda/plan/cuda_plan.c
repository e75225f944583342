/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA device, and life of its plans: one block of device memory, one of
 * pinned host memory, the streams, and everything given back. What a plan consists
 * of is decided in cuda_plan_build.c and cuda_plan_layout.c; cuda_plan_run.c runs it. See
 * cuda_plan.h. Test: tests/unit/test_cuda_plan.c
 */
#include "kernels/cuda/plan/cuda_device.h"

#include <errno.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/ops/k_loss.h"
#include "kernels/cuda/ops/k_optim.h"
#include "kernels/cuda/plan/cuda_code.h"
#include "kernels/cuda/plan/cuda_moments.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"
#include "kernels/cuda/runtime/pinned_pool.h"
#include "kernels/plan/plan_check.h"

/* --- device ----------------------------------------------------------------------------------------------------- */

static enum gp_status parse_index(const char *arg, int *out, struct gp_err *err)
{
	char *end;
	if (!arg) {
		*out = 0;
		return GP_OK;
	}
	errno = 0;
	const long n = strtol(arg, &end, 10);
	if (*arg < '0' || *arg > '9' || *end || errno || n > 1023 || (*arg == '0' && arg[1]))
		GP_FAIL(err, GP_USAGE, "\"%.32s\" is no number of a GPU; they count from 0", arg);
	*out = (int)n;
	return GP_OK;
}

#define LEAST_MAJOR 7
#define LEAST_MINOR 5

static enum gp_status check_card(const struct gp_rt_info *info, int index, struct gp_err *err)
{
	if (info->emulated || info->major > LEAST_MAJOR || (info->major == LEAST_MAJOR && info->minor >= LEAST_MINOR))
		return GP_OK;
	GP_FAIL(err, GP_DEVICE, "GPU %d (%.64s) has compute capability %d.%d; this program needs %d.%d", index,
		info->name, info->major, info->minor, LEAST_MAJOR, LEAST_MINOR);
}

static enum gp_status cuda_open(const char *arg, int threads, struct gp_device **out, struct gp_err *err)
{
	int index;
	struct gp_rt_info info;
	GP_TRY(parse_index(arg, &index, err));
	GP_TRY(gp_rt_open(index, &info, err));
	GP_TRY(check_card(&info, index, err));
	GP_TRY(gp_blas_check(err));
	struct cuda_device *dev = gp_calloc(1, sizeof *dev);
	if (!dev)
		GP_FAIL(err, GP_NOMEM, "out of memory for a CUDA device");
	dev->base = (struct gp_device){.ops = gp_cuda_ops(), .threads = threads};
	snprintf(dev->base.name, sizeof dev->base.name, index ? "%s:%d" : "%s", dev->base.ops->name, index);
	snprintf(dev->base.card, sizeof dev->base.card, "%.*s", GP_DEVICE_CARD - 1, info.name);
	dev->index = index;
	dev->info = info;
	gp_cuda_codec_device(index, &dev->codecs);
	*out = &dev->base;
	return GP_OK;
}

static void cuda_close(struct gp_device *base)
{
	gp_free(base);
}

/* Tensor cores multiply bf16 and TF32 from Ampere on. */
static bool cuda_supports(const struct gp_device *base, enum gp_precision precision)
{
	const struct cuda_device *dev = (const struct cuda_device *)base;
	if (precision == GP_PRECISION_FP32)
		return true;
	return (precision == GP_PRECISION_BF16 || precision == GP_PRECISION_TF32) &&
	       (dev->info.emulated || dev->info.major >= 8);
}

static enum gp_status cuda_memory(struct gp_device *base, uint64_t *total, uint64_t *unused, struct gp_err *err)
{
	return gp_rt_memory(((struct cuda_device *)base)->index, total, unused, err);
}

static const struct gp_codec_device *cuda_codec_memory(struct gp_device *base)
{
	return &((struct cuda_device *)base)->codecs;
}

static enum gp_status cuda_check(struct gp_device *base, struct gp_err *err)
{
	return gp_rt_check(((struct cuda_device *)base)->index, err);
}

/* --- life of a plan --------------------------------------------------------------------------------------------- */

static enum gp_status begin_plan(struct gp_device *base, const struct gp_plan_spec *spec, struct cuda_plan **out,
				 struct gp_err *err)
{
	struct cuda_plan *p = gp_calloc(1, sizeof *p);
	if (!p)
		GP_FAIL(err, GP_NOMEM, "out of memory for the plan of %s", spec->graph->name);
	p->base = (struct gp_plan){.ops = base->ops, .spec = *spec};
	p->dev = (struct cuda_device *)base;
	*out = p;
	return GP_OK;
}

static void free_slots(struct cuda_plan *p)
{
	for (int s = 0; p->slot && s < p->base.spec.slots; s++) {
		for (int r = 0; r < CUDA_RUNS; r++)
			gp_rt_graph_free(p->slot[s].graph[r]);
		gp_rt_event_free(p->slot[s].done);
		gp_free(p->slot[s].io);
		gp_free(p->slot[s].host);
	}
	gp_free(p->slot);
}

void gp_cuda_plan_release(struct cuda_plan *p)
{
	const int nodes = p->node ? p->base.spec.graph->nodes : 0;
	struct gp_err ignored; /* what failed before was told */
	for (int t = 0; t < CUDA_TRACKS; t++)
		if (p->track[t].stream)
			(void)gp_rt_stream_wait(p->track[t].stream, &ignored);
	free_slots(p);
	gp_rt_graph_free(p->packs_graph);
	gp_cuda_profile_free(p);
	gp_rt_event_free(p->done);
	gp_rt_event_free(p->backwards_done);
	gp_rt_event_free(p->update_done);
	gp_rt_event_free(p->dout_done);
	for (int i = 0; i < CUDA_WEIGHTS_BEHIND; i++)
		gp_rt_event_free(p->job_done[i]);
	for (int t = 0; t < CUDA_TRACKS; t++) {
		gp_blas_free(p->track[t].blas);
		gp_rt_stream_free(p->track[t].stream);
	}
	gp_rt_free(p->dev->index, p->block);
	gp_rt_free_pinned(p->dev->index, p->host_room);
	for (int i = 0; i < nodes; i++)
		gp_free(p->node[i].state);
	gp_walk_deinit(&p->walk);
	gp_free(p->param);
	gp_free(p->node);
	gp_free(p);
}

static void cuda_plan_free(struct gp_plan *plan)
{
	if (plan)
		gp_cuda_plan_release((struct cuda_plan *)plan);
}

static enum gp_status cuda_plan_estimate(struct gp_device *dev, const struct gp_plan_spec *spec,
					 struct gp_plan_memory *out, struct gp_err *err)
{
	struct cuda_plan *p;
	GP_TRY(begin_plan(dev, spec, &p, err));
	enum gp_status status = gp_cuda_plan_build(p, err);
	if (status == GP_OK)
		*out = p->memory;
	gp_cuda_plan_release(p);
	return status;
}

static enum gp_status cuda_plan_maps(struct gp_device *dev, const struct gp_plan_spec *spec, uint64_t *maps,
				     struct gp_err *err)
{
	struct cuda_plan *p;
	GP_TRY(begin_plan(dev, spec, &p, err));
	enum gp_status status = gp_cuda_plan_build(p, err);
	if (status == GP_OK)
		gp_walk_count_maps(&p->walk, maps);
	gp_cuda_plan_release(p);
	return status;
}

/* --- the block of device memory --------------------------------------------------------------------------------- */

/* One array of state of all parameters. */
static uint64_t state_bytes(const struct cuda_plan *p)
{
	return gp_cuda_moments_codec(p) ? p->state_bytes : p->trained_floats * sizeof(float);
}

struct cuda_parts gp_cuda_parts(const struct cuda_plan *p)
{
	const uint64_t states = (uint64_t)gp_cuda_optim_states(&p->base);
	struct cuda_parts m = {
		.values = gp_cuda_align(p->value_floats * sizeof(float)),
		.packs = p->pack_bytes,
		.undo = gp_cuda_undo_bytes(p),
		.merged = gp_cuda_align(p->merged_doubles * sizeof(double)),
		.moment = gp_cuda_align(states * state_bytes(p)),
		.coding = gp_cuda_coding_bytes(p),
		.extra = p->at.bytes,
	};
	for (int t = 0; t < CUDA_TRACKS; t++)
		m.scratch[t] = p->track[t].scratch_bytes;
	if (p->type != GP_RT_F32)
		m.narrow = gp_cuda_align(p->value_floats * gp_rt_type_bytes(p->type));
	if (gp_cuda_keeps_decoded(p))
		m.decoded = gp_cuda_align(p->trained_floats * sizeof(float));
	if (p->base.spec.train)
		m.grads = gp_cuda_align(p->trained_floats * sizeof(float));
	return m;
}

static uint64_t loss_rows(const struct cuda_plan *p)
{
	return (uint64_t)p->base.spec.batch * (uint64_t)gp_plan_label_rows(&p->base);
}

static uint64_t place(struct cuda_plan *p, uint64_t bytes)
{
	const uint64_t at = p->at.bytes;
	p->at.bytes += gp_cuda_align(bytes);
	return at;
}

void gp_cuda_extra_plan(struct cuda_plan *p)
{
	const uint64_t chunks = gp_cuda_squares_chunks(p);
	p->at.draws = place(p, (uint64_t)p->base.spec.slots * CUDA_SLOT_WORDS * sizeof(uint64_t));
	p->at.labels = place(p, loss_rows(p) * sizeof(int32_t));
	p->at.rows = place(p, loss_rows(p) * sizeof(struct gpk_loss_row));
	p->at.chunks = place(p, chunks * sizeof(struct gpk_squares_chunk));
	p->at.partials = place(p, chunks * sizeof(double));
	p->at.firsts = place(p, (uint64_t)(gp_cuda_trained_params(p) + 1) * sizeof(int32_t));
	p->at.sums = place(p, (uint64_t)gp_cuda_trained_params(p) * sizeof(double));
	p->at.pieces = place(p, (uint64_t)p->pieces * sizeof(struct gpk_piece));
}

/* Takes the next `bytes`; NULL for nothing. */
static void *cut(char **at, uint64_t bytes)
{
	char *const piece = *at;
	*at += bytes;
	return bytes ? piece : NULL;
}

uint64_t gp_cuda_host_bytes(const struct cuda_plan *p)
{
	const uint64_t io = (uint64_t)p->base.spec.slots * p->walk.all_io_bytes;
	return p->at.bytes + (p->base.spec.device_io ? 0 : io);
}

static void cut_slot(struct cuda_plan *p, int s, char **at, char **host)
{
	struct cuda_slot *slot = &p->slot[s];
	slot->arena = cut(at, p->walk.slot_bytes);
	slot->draw = (uint64_t *)(p->extra + p->at.draws) + CUDA_SLOT_WORDS * s;
	slot->host_draw = (uint64_t *)(p->host_room + p->at.draws) + CUDA_SLOT_WORDS * s;
	for (int port = 0; port < gp_walk_ports(&p->walk); port++) {
		slot->io[port] = cut(at, p->walk.io_bytes[port]);
		if (slot->host)
			slot->host[port] = cut(host, p->walk.io_bytes[port]);
	}
}

static void cut_block(struct cuda_plan *p)
{
	const struct cuda_parts m = gp_cuda_parts(p);
	char *at = p->block, *host = p->host_room + p->at.bytes;
	p->values = cut(&at, m.values);
	p->decoded = cut(&at, m.decoded);
	p->narrow = cut(&at, m.narrow);
	p->packs = cut(&at, m.packs);
	p->undo = cut(&at, m.undo);
	p->merged = cut(&at, m.merged);
	p->grads = cut(&at, m.grads);
	void *const moment = cut(&at, m.moment);
	p->moment = gp_cuda_moments_codec(p) ? NULL : moment;
	p->state = gp_cuda_moments_codec(p) ? moment : NULL;
	p->coding = cut(&at, m.coding);
	for (int t = 0; t < CUDA_TRACKS; t++)
		p->track[t].scratch = cut(&at, m.scratch[t]);
	p->extra = cut(&at, m.extra);
	for (int s = 0; s < p->base.spec.slots; s++)
		cut_slot(p, s, &at, &host);
	gp_require((uint64_t)(at - p->block) + gp_cuda_blas_bytes(p) == p->memory.total);
	gp_require(gp_pinned_bytes((uint64_t)(host - p->host_room)) == p->memory.host);
}

static enum gp_status take_block(struct cuda_plan *p, struct gp_err *err)
{
	void *block;
	const enum gp_status status = gp_rt_alloc(p->dev->index, p->memory.total - gp_cuda_blas_bytes(p), &block, err);
	if (status == GP_NOMEM)
		return gp_err_prefix(err, "%s takes %llu MiB of the GPU (%d samples per chunk, %d in flight)",
				     p->base.spec.graph->name, (unsigned long long)(p->memory.total >> 20),
				     p->base.spec.batch, p->base.spec.slots);
	GP_TRY(status);
	p->block = block;
	return GP_OK;
}

static enum gp_status make_slot(struct cuda_plan *p, struct cuda_slot *slot, struct gp_err *err)
{
	const size_t ports = (size_t)gp_walk_ports(&p->walk);
	void *io, *host;
	*slot = (struct cuda_slot){0};
	GP_TRY(gp_alloc_array(&io, ports, sizeof *slot->io, err));
	slot->io = io;
	if (p->base.spec.device_io)
		return GP_OK;
	GP_TRY(gp_alloc_array(&host, ports, sizeof *slot->host, err));
	slot->host = host;
	return GP_OK;
}

static enum gp_status take_memory(struct cuda_plan *p, struct gp_err *err)
{
	void *slots, *host;
	GP_TRY(take_block(p, err));
	GP_TRY(gp_rt_alloc_pinned(p->dev->index, p->memory.host, &host, err));
	p->host_room = host;
	memset(host, 0, p->memory.host);
	GP_TRY(gp_alloc_array(&slots, (size_t)p->base.spec.slots, sizeof *p->slot, err));
	p->slot = slots;
	for (int s = 0; s < p->base.spec.slots; s++)
		GP_TRY(make_slot(p, &p->slot[s], err));
	cut_block(p);
	return GP_OK;
}

/* Buffers of the edge begin as zeros, as on the CPU: some rows of a chunk may never be filled. */
static enum gp_status start_memory(struct cuda_plan *p, struct gp_err *err)
{
	const struct cuda_parts m = gp_cuda_parts(p);
	if (p->grads)
		gp_rt_fill(p->stream, p->grads, 0, m.grads);
	if (p->moment)
		gp_rt_fill(p->stream, p->moment, 0, m.moment);
	for (int s = 0; s < p->base.spec.slots; s++)
		for (int port = 0; port < gp_walk_ports(&p->walk); port++)
			if (p->slot[s].io[port])
				gp_rt_fill(p->stream, p->slot[s].io[port], 0, p->walk.io_bytes[port]);
	gp_cuda_bn_forget(p);
	gp_cuda_squares_table(p);
	gp_cuda_pieces_fill(p);
	gp_rt_copy_up(p->stream, p->extra, p->host_room, p->at.bytes);
	gp_cuda_moments_clear(p);
	return gp_cuda_params_start(p, err);
}

static enum gp_status make_events(struct cuda_plan *p, struct gp_err *err)
{
	GP_TRY(gp_rt_event_new(p->dev->index, &p->done, err));
	GP_TRY(gp_rt_event_new(p->dev->index, &p->backwards_done, err));
	GP_TRY(gp_rt_event_new(p->dev->index, &p->update_done, err));
	GP_TRY(gp_rt_event_new(p->dev->index, &p->dout_done, err));
	for (int i = 0; i < CUDA_WEIGHTS_BEHIND; i++)
		GP_TRY(gp_rt_event_new(p->dev->index, &p->job_done[i], err));
	for (int s = 0; s < p->base.spec.slots; s++)
		GP_TRY(gp_rt_event_new(p->dev->index, &p->slot[s].done, err));
	return GP_OK;
}

static enum gp_status make_tracks(struct cuda_plan *p, struct gp_err *err)
{
	for (int t = 0; t < gp_cuda_tracks(p); t++) {
		struct cuda_track *track = &p->track[t];
		GP_TRY(gp_rt_stream_new(p->dev->index, false, &track->stream, err));
		GP_TRY(gp_blas_new(track->stream, p->base.spec.precision, &track->blas, err));
	}
	p->stream = p->track[CUDA_FORWARDS].stream;
	return GP_OK;
}

static enum gp_status finish_plan(struct cuda_plan *p, struct gp_err *err)
{
	GP_TRY(gp_cuda_plan_build(p, err));
	GP_TRY(take_memory(p, err));
	GP_TRY(make_tracks(p, err));
	GP_TRY(make_events(p, err));
	GP_TRY(start_memory(p, err));
	return gp_cuda_wait(p, err);
}

static enum gp_status cuda_plan_new(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **out,
				    struct gp_err *err)
{
	struct cuda_plan *p;
	GP_TRY(begin_plan(dev, spec, &p, err));
	enum gp_status status = finish_plan(p, err);
	if (status != GP_OK) {
		gp_cuda_plan_release(p);
		return status;
	}
	*out = &p->base;
	return GP_OK;
}

/* --- what others may look at ------------------------------------------------------------------------------------ */

struct gp_rt_stream *gp_cuda_behind_all(struct cuda_plan *p)
{
	struct gp_rt_stream *backwards = p->track[CUDA_BACKWARDS].stream;
	if (backwards) {
		gp_rt_event_record(p->backwards_done, backwards);
		gp_rt_stream_after(p->stream, p->backwards_done);
	}
	return p->stream;
}

enum gp_status gp_cuda_wait(struct cuda_plan *p, struct gp_err *err)
{
	gp_rt_event_record(p->done, p->stream);
	GP_TRY(gp_rt_event_wait(p->done, err));
	return GP_OK;
}

enum gp_status gp_cuda_check_training(const struct gp_plan *plan, struct gp_err *err)
{
	if (!plan->spec.train)
		GP_FAIL(err, GP_INTERNAL, "the plan of %s was made for evaluation only", plan->spec.graph->name);
	return GP_OK;
}

static void *cuda_buffer(struct gp_plan *plan, int slot, enum gp_plan_buf which, int index)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots && (unsigned)which < 4);
	const int port = gp_walk_port(&p->walk, which, index);
	if (port < 0)
		return NULL;
	return plan->spec.device_io ? p->slot[slot].io[port] : p->slot[slot].host[port];
}

static void cuda_plan_memory(const struct gp_plan *plan, struct gp_plan_memory *out)
{
	*out = ((const struct cuda_plan *)plan)->memory;
}

#define CUDA_OPS(device_name, text)                                                                                    \
	{                                                                                                              \
		.name = device_name, .summary = text, .open = cuda_open, .close = cuda_close,                          \
		.supports = cuda_supports, .memory = cuda_memory, .check = cuda_check,                                 \
		.codec_device = cuda_codec_memory, .plan_estimate = cuda_plan_estimate, .plan_maps = cuda_plan_maps,   \
		.plan_new = cuda_plan_new, .plan_free = cuda_plan_free, .buffer = cuda_buffer,                         \
		.set_length = gp_cuda_set_length, .optim_code_bytes = gp_cuda_optim_code_bytes,                        \
		.optim_code_get = gp_cuda_optim_code_get, .optim_code_set = gp_cuda_optim_code_set,                    \
		.forward = gp_cuda_forward, .backward = gp_cuda_backward, .queue_forward = gp_cuda_queue_forward,      \
		.queue_backward = gp_cuda_queue_backward, .wait = gp_cuda_wait_for, .loss = gp_cuda_loss,              \
		.grad_squares = gp_cuda_grad_squares, .grad_scale = gp_cuda_grad_scale,                                \
		.grad_clamp = gp_cuda_grad_clamp, .optim_step = gp_cuda_optim_step,                                    \
		.queue_optim_step = gp_cuda_queue_optim_step, .tie_grads = gp_cuda_tie_grads,                          \
		.tie_values = gp_cuda_tie_values, .step_undo = gp_cuda_step_undo,                                      \
		.optim_states = gp_cuda_optim_states, .optim_get = gp_cuda_optim_get, .optim_set = gp_cuda_optim_set,  \
		.optim_count_get = gp_cuda_optim_count_get, .optim_count_set = gp_cuda_optim_count_set,                \
		.param_get = gp_cuda_param_get, .param_set = gp_cuda_param_set, .grad_get = gp_cuda_grad_get,          \
		.node_get = gp_cuda_node_get, .plan_memory = cuda_plan_memory, .profile = gp_cuda_profile,             \
	}

static const struct gp_device_ops on_card = CUDA_OPS("cuda", "a GPU of NVIDIA's");
static const struct gp_device_ops on_host = CUDA_OPS("cuda-emulated", "the GPU's kernels on this machine's processor, "
								      "to test them");

const struct gp_device_ops *gp_cuda_ops(void)
{
	return gp_rt_is_emulated() ? &on_host : &on_card;
}

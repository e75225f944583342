/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers between tensors and frames. See transfer.h.
 * Test: tests/unit/test_transfer.c
 */
#include "common/wire/transfer.h"

#include <string.h>

#include "common/codec/codec_device.h"
#include "common/base/log.h"

static struct gp_codec_pass pass_of(const struct gp_transfer *t)
{
	return (struct gp_codec_pass){.draw = t->draw,
				      .step = t->frame.head.step,
				      .chunk = t->frame.head.chunk,
				      .eval = t->frame.head.flags & GP_FRAME_FLAG_EVAL,
				      .sample = t->sample};
}

static void run_encode(struct gp_task *task)
{
	struct gp_transfer *t = task->arg;
	struct gp_frame *f = &t->frame;
	size_t len = 0;
	struct gp_codec_stats before, after;
	const struct gp_codec_pass pass = pass_of(t);
	gp_codec_get_stats(t->direction->codec, &before);
	task->status =
		gp_codec_encode_pass(t->direction->codec, &pass, t->tensor, f->payload, f->cap, &len, &task->err);
	if (task->status != GP_OK)
		return;
	gp_codec_get_stats(t->direction->codec, &after);
	t->travelled_raw = after.raw_fallbacks > before.raw_fallbacks;
	f->head.payload_len = len;
	f->head.checksum = gp_frame_checksum(f->payload, len);
}

static void run_decode(struct gp_task *task)
{
	struct gp_transfer *t = task->arg;
	struct gp_frame *f = &t->frame;
	const struct gp_codec_pass pass = pass_of(t);
	const struct gp_span payload = {f->payload, f->head.payload_len};
	task->status = gp_frame_verify(f, &task->err);
	if (task->status == GP_OK)
		task->status = gp_codec_decode_pass(t->direction->codec, &pass, payload, t->tensor, &task->err);
	if (task->status != GP_OK)
		gp_err_prefix(&task->err, "%s of chunk %u", gp_frame_type_name(t->direction->type), f->head.chunk);
}

/* A tensor with NaN or infinity travels raw; the log says so once per direction. */
static void note_travelled_raw(struct gp_direction *d)
{
	if (d->raw_noted++ == 0)
		gp_log(codec, GP_LOG_WARN, "a tensor of %s is not finite (or too large for its codec): it travels raw",
		       gp_frame_type_name(d->type));
}

static void encode_done(struct gp_task *task)
{
	struct gp_transfer *t = task->arg;
	if (t->travelled_raw)
		note_travelled_raw(t->direction);
	if (t->direction->account)
		t->direction->account->stage_ns[GP_STAGE_ENCODE] += task->end_ns - task->start_ns;
	t->done(t);
}

static void decode_done(struct gp_task *task)
{
	struct gp_transfer *t = task->arg;
	if (t->direction->account) {
		t->direction->account->stage_ns[GP_STAGE_DECODE] += task->end_ns - task->start_ns;
		t->direction->account->stage_ns[GP_STAGE_WAIT] += task->start_ns - task->queued_ns;
	}
	t->done(t);
}

static enum gp_status check_frame_bytes(uint64_t bytes, struct gp_err *err)
{
	if (bytes > GP_FRAME_BYTES_MAX)
		GP_FAIL(err, GP_INVALID,
			"the tensor of one chunk needs a frame of %llu bytes, over the %llu possible; use more chunks",
			(unsigned long long)bytes, (unsigned long long)GP_FRAME_BYTES_MAX);
	return GP_OK;
}

/* Each direction has random draws of its own. */
#define DIRECTION_SEED UINT64_C(0xd1342543de82ef95)

static struct gp_codec_options codec_options(enum gp_frame_type type, const struct gp_directions *all)
{
	const bool up = type == GP_FRAME_ACT_UP || type == GP_FRAME_GRAD_UP;
	const bool act = type == GP_FRAME_ACT_UP || type == GP_FRAME_ACT_DOWN;
	return (struct gp_codec_options){
		.seed = all->seed + (uint64_t)type * DIRECTION_SEED,
		.role = up == all->client ? GP_CODEC_ENCODES : GP_CODEC_DECODES,
		.chunks = all->chunks,
		.has_gradient = act && all->train,
		.undo = all->undo && all->train,
		.device = all->device,
	};
}

enum gp_status gp_direction_estimate(enum gp_frame_type type, const struct gp_codec_spec *spec,
				     const struct gp_shape *shape, const struct gp_directions *all, uint64_t *bytes,
				     struct gp_err *err)
{
	const struct gp_codec_options options = codec_options(type, all);
	uint64_t bound, frames, codec;
	GP_TRY(gp_codec_bound_for(spec, shape, &bound, err));
	GP_TRY(check_frame_bytes(bound, err));
	GP_TRY(gp_codec_bytes_for(spec, shape, &options, &codec, err));
	if (!gp_mul_ok(bound, (uint64_t)all->slots, &frames) || !gp_add_ok(frames, codec, bytes))
		GP_FAIL(err, GP_INVALID, "frame buffers of %d chunks, and what %s remembers of them, overflow",
			all->slots, spec->text);
	return GP_OK;
}

enum gp_status gp_direction_codec_bytes(enum gp_frame_type type, const struct gp_codec_spec *spec,
					const struct gp_shape *shape, const struct gp_directions *all, uint64_t *bytes,
					struct gp_err *err)
{
	const struct gp_codec_options options = codec_options(type, all);
	return gp_codec_bytes_for(spec, shape, &options, bytes, err);
}

static enum gp_status init_slots(struct gp_direction *d, int slots, void *arg, struct gp_err *err)
{
	size_t cap = gp_codec_bound(d->codec);
	GP_TRY(check_frame_bytes(cap, err));
	d->slot = gp_calloc((size_t)slots, sizeof *d->slot);
	if (!d->slot)
		GP_FAIL(err, GP_NOMEM, "out of memory for %d transfers", slots);
	for (; d->slots < slots; d->slots++) {
		struct gp_transfer *t = &d->slot[d->slots];
		t->direction = d;
		t->slot = d->slots;
		t->arg = arg;
		t->frame.owner = t;
		t->frame.cap = cap;
		t->frame.tensor_bytes = d->tensor_bytes;
		GP_TRY(gp_codec_alloc_payload(d->device, cap, &t->frame.payload, err));
	}
	return GP_OK;
}

enum gp_status gp_direction_init(struct gp_direction *d, enum gp_frame_type type, const struct gp_codec_spec *spec,
				 const struct gp_shape *shape, const struct gp_directions *all,
				 const struct gp_direction *activation, struct gp_worker *worker, void *arg,
				 struct gp_err *err)
{
	struct gp_codec_options options = codec_options(type, all);
	options.activation = activation ? activation->codec : NULL;
	memset(d, 0, sizeof *d);
	d->type = type;
	d->device = all->device;
	d->tensor_bytes = gp_shape_elements(shape) * sizeof(float);
	d->codec_id = spec->stages > 0 ? spec->stage[0].id : 0;
	gp_lane_init(&d->lane, worker);
	enum gp_status status = gp_codec_bytes_for(spec, shape, &options, &d->codec_bytes, err);
	if (status == GP_OK)
		status = gp_codec_open(spec, shape, &options, &d->codec, err);
	if (status == GP_OK)
		status = init_slots(d, all->slots, arg, err);
	if (status != GP_OK)
		gp_direction_deinit(d);
	return status;
}

void gp_direction_deinit(struct gp_direction *d)
{
	for (int i = 0; d->slot && i < d->slots; i++)
		gp_codec_free_payload(d->device, d->slot[i].frame.payload);
	gp_free(d->slot);
	gp_codec_free(d->codec);
	gp_lane_deinit(&d->lane);
	memset(d, 0, sizeof *d);
}

static void submit_encode(struct gp_transfer *t)
{
	t->waiting = false;
	t->frame.head = t->head;
	t->task.run = run_encode;
	t->task.done = encode_done;
	t->task.arg = t;
	gp_worker_submit(&t->direction->lane, &t->task, 0);
}

void gp_transfer_encode(struct gp_transfer *t, const struct gp_frame_head *head, float *tensor, uint64_t draw,
			void (*done)(struct gp_transfer *t))
{
	t->head = *head;
	t->head.type = (uint8_t)t->direction->type;
	t->head.codec = t->direction->codec_id;
	t->tensor = tensor;
	t->draw = draw;
	t->done = done;
	t->waiting = t->with_channel;
	if (!t->waiting)
		submit_encode(t);
}

void gp_transfer_decode(struct gp_transfer *t, float *tensor, void (*done)(struct gp_transfer *t))
{
	t->tensor = tensor;
	t->done = done;
	t->task.run = run_decode;
	t->task.done = decode_done;
	t->task.arg = t;
	gp_worker_submit(&t->direction->lane, &t->task, 0);
}

void gp_transfer_send(struct gp_transfer *t, struct gp_channel *ch)
{
	t->with_channel = true;
	gp_channel_send_frame(ch, &t->frame);
}

void gp_transfer_sent(struct gp_transfer *t)
{
	t->with_channel = false;
	if (t->waiting)
		submit_encode(t);
}

void gp_direction_undo(struct gp_direction *d, uint64_t step)
{
	gp_require(d->lane.pending == 0);
	if (d->codec)
		gp_codec_undo(d->codec, step);
}

void gp_direction_cancel(struct gp_direction *d)
{
	for (int i = 0; i < d->slots; i++)
		d->slot[i].waiting = false;
	d->account = NULL; /* it goes with the channel, perhaps before the last task comes back */
}

uint64_t gp_directions_state_hash(const struct gp_direction d[4])
{
	uint8_t bytes[4 * sizeof(uint64_t)];
	for (size_t i = 0; i < sizeof bytes; i += sizeof(uint64_t)) {
		const struct gp_codec *c = d[i / sizeof(uint64_t)].codec;
		uint64_t hash = c ? gp_codec_state_shared_hash(c) : 0;
		for (size_t k = 0; k < sizeof hash; k++, hash >>= 8)
			bytes[i + k] = (uint8_t)hash;
	}
	return gp_frame_checksum(bytes, sizeof bytes);
}

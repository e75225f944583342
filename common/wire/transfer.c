/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers between tensors and frames. See transfer.h.
 * Test: tests/unit/test_transfer.c
 */
#include "common/wire/transfer.h"

#include <string.h>

#include "common/base/little_endian.h"
#include "common/base/log.h"
#include "common/codec/codec_device.h"

static struct gp_codec_pass pass_of(const struct gp_transfer *t)
{
	return (struct gp_codec_pass){.draw = t->draw,
				      .step = t->frame.head.step,
				      .chunk = t->frame.head.chunk,
				      .eval = t->frame.head.flags & GP_FRAME_FLAG_EVAL,
				      .sample = t->sample,
				      .stop = t->flow->stop};
}

static enum gp_status check_stop(const struct gp_flow *f, struct gp_err *err)
{
	if (gp_stop_is_set(f->stop))
		GP_FAIL(err, GP_CANCELED, "%s was stopped", gp_direction_info[f->direction].name);
	return GP_OK;
}

static enum gp_status begin_pass(struct gp_flow *f, struct gp_err *err)
{
	GP_TRY(check_stop(f, err));
	atomic_store(&f->running_ns, gp_now_ns());
	return GP_OK;
}

static void end_pass(struct gp_flow *f)
{
	atomic_store(&f->running_ns, 0);
}

/* --- chunks of their own length. PROTOCOL.md section 4.4 ----------------------------------------------------------- */

static bool is_short(const struct gp_flow *f, uint32_t length)
{
	return f->positions > 0 && length > 0;
}

uint64_t gp_flow_tensor_bytes(const struct gp_flow *f, uint32_t length)
{
	return is_short(f, length) ? f->tensor_bytes / (uint64_t)f->positions * length : f->tensor_bytes;
}

uint64_t gp_flow_uncompressed_bytes(const struct gp_flow *f, uint32_t length)
{
	return is_short(f, length) ? f->uncompressed_bytes / (uint64_t)f->positions * length : f->uncompressed_bytes;
}

/* The shape of a chunk's tensor with so many positions. */
static struct gp_shape shape_of(const struct gp_flow *f, uint32_t length)
{
	struct gp_shape shape = f->type.shape;
	if (is_short(f, length))
		shape.dim[1] = length;
	return shape;
}

uint64_t gp_flow_payload_bound(const struct gp_flow *f, uint32_t length)
{
	const struct gp_shape shape = shape_of(f, length);
	const uint64_t counts = f->leaves_out && length > 0 ? (uint64_t)f->samples * GP_ROW_COUNT_BYTES : 0;
	struct gp_err err;
	uint64_t bound;
	if (f->positions == 0 || gp_codec_bound_for(&f->spec, &shape, &bound, &err) != GP_OK)
		return f->slot[0].frame.cap;
	return counts + bound;
}

void gp_transfer_set_rows(struct gp_transfer *t, const uint32_t *rows)
{
	if (t->rows)
		memcpy(t->rows, rows, (size_t)t->flow->samples * sizeof *rows);
}

static uint64_t sum_of_rows(const struct gp_transfer *t)
{
	uint64_t sum = 0;
	for (int64_t n = 0; n < t->flow->samples; n++)
		sum += t->rows[n];
	return sum;
}

void gp_transfer_tell_rows(struct gp_transfer *t, const uint32_t *rows)
{
	t->rows_known = t->flow->row_positions > 0;
	t->known_rows = 0;
	for (int64_t n = 0; t->rows_known && n < t->flow->samples; n++)
		t->known_rows += rows[n];
}

/* Bytes of the tensor without padding, for the figures, as far as this end knows. */
static uint64_t row_bytes(const struct gp_transfer *t)
{
	const struct gp_flow *f = t->flow;
	if (f->leaves_out && t->frame.head.length > 0)
		return sum_of_rows(t) * (uint64_t)f->width * sizeof(float);
	if (t->rows_known)
		return t->known_rows * (t->frame.tensor_bytes / (uint64_t)(f->samples * f->row_positions));
	return t->frame.tensor_bytes;
}

/* The rows of all samples, one after another, or along the sequence, with zeros for the padding between them. */
static const float *gather(const struct gp_transfer *t, const float *tensor, bool along)
{
	const struct gp_flow *f = t->flow;
	const uint64_t width = (uint64_t)f->width, sample = t->frame.head.length * width;
	float *to = f->packed;
	for (int64_t n = 0; n < f->samples; n++) {
		const uint64_t count = t->rows[n] * width;
		memcpy(to, tensor + (uint64_t)n * sample, count * sizeof *to);
		if (along)
			memset(to + count, 0, (sample - count) * sizeof *to);
		to += along ? sample : count;
	}
	return f->packed;
}

/* The reverse, in place: from the last sample on, so that nothing is overwritten before it has moved. */
static void scatter(const struct gp_transfer *t, float *tensor)
{
	const struct gp_flow *f = t->flow;
	const uint64_t width = (uint64_t)f->width, sample = t->frame.head.length * width;
	uint64_t at = sum_of_rows(t) * width;
	for (int64_t n = f->samples - 1; n >= 0; n--) {
		const uint64_t count = t->rows[n] * width;
		float *to = tensor + (uint64_t)n * sample;
		at -= count;
		if (!f->along)
			memmove(to, tensor + at, count * sizeof *to);
		memset(to + count, 0, (sample - count) * sizeof *to);
	}
}

/* What comes: rows one after another, or the tensor with as many positions as the chunk has. */
static struct gp_shape coded_shape(const struct gp_transfer *t, bool along)
{
	const struct gp_flow *f = t->flow;
	const uint32_t length = t->frame.head.length;
	if (f->leaves_out && length > 0 && !along)
		return (struct gp_shape){.ndim = 1, .dim = {(int64_t)sum_of_rows(t) * f->width}};
	return shape_of(f, length);
}

/* The codec is told what comes. */
static void resize_codec(const struct gp_transfer *t, struct gp_codec *codec)
{
	const struct gp_shape shape = coded_shape(t, t->flow->along);
	if (t->flow->positions > 0)
		gp_codec_resize(codec, &shape);
}

/* The counts in front of a payload, which the peer may have made up. */
static enum gp_status read_rows(struct gp_transfer *t, struct gp_span *payload, struct gp_err *err)
{
	const size_t bytes = (size_t)t->flow->samples * GP_ROW_COUNT_BYTES;
	if (payload->len < bytes)
		GP_FAIL(err, GP_PROTO, "a payload of %zu bytes is shorter than its counts of rows", payload->len);
	for (int64_t n = 0; n < t->flow->samples; n++) {
		t->rows[n] = (uint32_t)gp_get_le(payload->data + (size_t)n * GP_ROW_COUNT_BYTES, GP_ROW_COUNT_BYTES);
		if (t->rows[n] > t->frame.head.length)
			GP_FAIL(err, GP_PROTO, "sample %lld has %u rows in a chunk of %u positions", (long long)n,
				t->rows[n], t->frame.head.length);
	}
	*payload = (struct gp_span){payload->data + bytes, payload->len - bytes};
	return GP_OK;
}

/* The first chunk of a training that there is, and then of every so many steps. */
static bool is_surveyed(const struct gp_transfer *t)
{
	const struct gp_flow *f = t->flow;
	const struct gp_frame_head *head = &t->frame.head;
	return f->survey_every > 0 && head->chunk == 0 && !(head->flags & GP_FRAME_FLAG_EVAL) &&
	       (!f->survey.done || head->step % f->survey_every == 0);
}

/* Rows one after another, to an instance that is opened for them alone: with the channels of the whole tensor. */
static struct gp_shape surveyed_shape(const struct gp_transfer *t, bool along)
{
	struct gp_shape shape = coded_shape(t, along);
	const struct gp_shape *whole = &t->flow->type.shape;
	if (shape.ndim != 1 || whole->ndim < 3 || shape.dim[0] == 0)
		return shape;
	const int64_t channels = whole->dim[whole->ndim - 1];
	return (struct gp_shape){.ndim = 2, .dim = {shape.dim[0] / channels, channels}};
}

/* Behind the encoding, of whose rows there is no more use: rungs that work along the sequence cannot take rows, and the others
 * take both, so that all are tried on the same. */
static enum gp_status survey(struct gp_transfer *t, const struct gp_codec_pass *pass, const float *coded,
			     struct gp_err *err)
{
	struct gp_flow *f = t->flow;
	if (!is_surveyed(t))
		return GP_OK;
	const bool along = gp_codec_ladder_lengths(f->ladder) == GP_CODEC_SEQUENCES;
	const bool again = along != f->along && f->leaves_out && t->frame.head.length > 0;
	const struct gp_survey_spec spec = {
		.ladder = f->ladder, .shape = surveyed_shape(t, along), .seed = f->seed, .device = f->device};
	return gp_survey_run(&spec, pass, again ? gather(t, t->tensor, along) : coded, &f->survey, err);
}

static enum gp_status encode(struct gp_transfer *t, size_t *len, struct gp_err *err)
{
	struct gp_flow *flow = t->flow;
	const struct gp_codec_pass pass = pass_of(t);
	const uint32_t length = t->frame.head.length;
	const float *tensor = t->tensor;
	size_t counts = 0;
	resize_codec(t, flow->codec);
	if (flow->leaves_out && length > 0) {
		for (int64_t n = 0; n < flow->samples; n++, counts += GP_ROW_COUNT_BYTES)
			gp_put_le(t->frame.payload + counts, t->rows[n], GP_ROW_COUNT_BYTES);
		tensor = gather(t, tensor, flow->along);
	}
	GP_TRY(gp_codec_encode_pass(flow->codec, &pass, tensor, t->frame.payload + counts, t->frame.cap - counts, len,
				    err));
	*len += counts;
	return survey(t, &pass, tensor, err);
}

static enum gp_status decode(struct gp_transfer *t, struct gp_codec *codec, float *tensor, struct gp_err *err)
{
	const struct gp_codec_pass pass = pass_of(t);
	const bool fewer = t->flow->leaves_out && t->frame.head.length > 0;
	struct gp_span payload = {t->frame.payload, t->frame.head.payload_len};
	if (fewer)
		GP_TRY(read_rows(t, &payload, err));
	resize_codec(t, codec);
	GP_TRY(gp_codec_decode_pass(codec, &pass, payload, tensor, err));
	if (fewer)
		scatter(t, tensor);
	return GP_OK;
}

static void run_encode(struct gp_task *task)
{
	struct gp_transfer *t = task->arg;
	struct gp_frame *f = &t->frame;
	size_t len = 0;
	struct gp_codec_stats before;
	gp_codec_get_stats(t->flow->codec, &before);
	task->status = begin_pass(t->flow, &task->err);
	if (task->status == GP_OK)
		task->status = encode(t, &len, &task->err);
	end_pass(t->flow);
	gp_codec_get_stats(t->flow->codec, &t->stats);
	if (task->status != GP_OK)
		return;
	t->travelled_raw = t->stats.raw_fallbacks > before.raw_fallbacks;
	f->head.payload_len = len;
	f->head.checksum = gp_frame_checksum(f->payload, len);
}

/* A codec that remembers could not decode what comes behind a frame that is missing. */
static enum gp_status verify(struct gp_flow *flow, const struct gp_frame *f, struct gp_err *err)
{
	if (flow->damaged)
		GP_FAIL(err, GP_DAMAGED, "the frame comes behind one that was damaged");
	const enum gp_status status = gp_frame_verify(f, err);
	flow->damaged = status != GP_OK;
	return status;
}

static void run_decode(struct gp_task *task)
{
	struct gp_transfer *t = task->arg;
	struct gp_frame *f = &t->frame;
	task->status = begin_pass(t->flow, &task->err);
	if (task->status == GP_OK)
		task->status = verify(t->flow, f, &task->err);
	if (task->status == GP_OK)
		task->status = decode(t, t->flow->codec, t->tensor, &task->err);
	end_pass(t->flow);
	gp_codec_get_stats(t->flow->codec, &t->stats);
	if (task->status != GP_OK)
		gp_err_prefix(&task->err, "%s of chunk %u", gp_direction_info[t->flow->direction].name, f->head.chunk);
}

/* A tensor with NaN or infinity travels raw; the log says so once per flow. */
static void note_travelled_raw(struct gp_flow *d)
{
	if (d->raw_noted++ == 0)
		gp_log(codec, GP_LOG_WARN, "a tensor of %s is not finite (or too large for its codec): it travels raw",
		       gp_direction_info[d->direction].name);
}

static void take_stats(struct gp_transfer *t)
{
	const struct gp_codec_stats *past = &t->flow->past;
	struct gp_codec_stats *sum = &t->flow->stats;
	*sum = t->stats;
	sum->encoded += past->encoded;
	sum->decoded += past->decoded;
	sum->raw_fallbacks += past->raw_fallbacks;
	for (int i = 0; i < GP_CODEC_MAX_STAGES; i++)
		sum->skipped[i] += past->skipped[i];
}

/* Returns the bytes of padding. */
static uint64_t count_rows(struct gp_transfer *t)
{
	const uint64_t bytes = row_bytes(t);
	t->flow->total.row_bytes += bytes;
	return t->frame.tensor_bytes - bytes;
}

static void encode_done(struct gp_task *task)
{
	struct gp_transfer *t = task->arg;
	take_stats(t);
	t->encoded = task->status == GP_OK;
	if (t->encoded && !(t->frame.head.flags & GP_FRAME_FLAG_EVAL))
		t->flow->made = t->draw + 1;
	if (t->travelled_raw)
		note_travelled_raw(t->flow);
	if (t->flow->account)
		t->flow->account->stage_ns[GP_STAGE_ENCODE] += task->end_ns - task->start_ns;
	t->done(t);
}

static void decode_done(struct gp_task *task)
{
	struct gp_transfer *t = task->arg;
	take_stats(t);
	const uint64_t padding = task->status == GP_OK ? count_rows(t) : 0;
	if (t->flow->account) {
		t->flow->account->padding_bytes += padding;
		t->flow->account->stage_ns[GP_STAGE_DECODE] += task->end_ns - task->start_ns;
		t->flow->account->stage_ns[GP_STAGE_WAIT] += task->start_ns - task->queued_ns;
	}
	t->done(t);
}

static void submit_encode(struct gp_transfer *t)
{
	t->waiting = false;
	t->frame.head = t->head;
	t->frame.tensor_bytes = gp_flow_tensor_bytes(t->flow, t->head.length);
	t->frame.uncompressed_bytes = gp_flow_uncompressed_bytes(t->flow, t->head.length);
	t->task.run = run_encode;
	t->task.done = encode_done;
	t->task.arg = t;
	gp_worker_submit(&t->flow->lane, &t->task, 0);
}

void gp_transfer_encode(struct gp_transfer *t, const struct gp_frame_head *head, void *tensor, uint64_t draw,
			void (*done)(struct gp_transfer *t))
{
	t->head = *head;
	t->head.type = (uint8_t)gp_direction_info[t->flow->direction].frame;
	t->head.tensor = (uint16_t)t->flow->tensor;
	t->head.codec = t->flow->codec_id;
	t->tensor = tensor;
	t->draw = draw;
	t->done = done;
	t->encoded = false;
	t->waiting = t->with_channel;
	if (!t->waiting)
		submit_encode(t);
}

enum gp_status gp_flow_open_peer(const struct gp_flow *f, const struct gp_flow *activation, struct gp_codec **out,
				 struct gp_err *err)
{
	const struct gp_codec_options options = {
		.role = GP_CODEC_DECODES, .chunks = f->chunks, .activation = activation ? activation->codec : NULL};
	return gp_codec_open(&f->spec, &f->type.shape, &options, out, err);
}

enum gp_status gp_transfer_decode_as_peer(struct gp_transfer *t, struct gp_codec *codec, float *tensor,
					  struct gp_err *err)
{
	gp_require(t->encoded && t->task.status == GP_OK);
	return decode(t, codec, tensor, err);
}

static void count_frame(struct gp_transfer *t)
{
	struct gp_flow *f = t->flow;
	f->total.frames++;
	const uint64_t plain = t->frame.uncompressed_bytes;
	f->total.tensor_bytes += t->frame.tensor_bytes;
	f->total.uncompressed_bytes += plain ? plain : t->frame.tensor_bytes;
	f->total.payload_bytes += t->frame.head.payload_len;
}

void gp_transfer_decode(struct gp_transfer *t, void *tensor, void (*done)(struct gp_transfer *t))
{
	t->tensor = tensor;
	t->done = done;
	count_frame(t);
	t->task.run = run_decode;
	t->task.done = decode_done;
	t->task.arg = t;
	gp_worker_submit(&t->flow->lane, &t->task, 0);
}

void gp_transfer_send(struct gp_transfer *t, struct gp_channel *ch)
{
	t->with_channel = true;
	count_frame(t);
	t->frame.padding_bytes = count_rows(t);
	gp_channel_send_frame(ch, &t->frame);
}

void gp_transfer_sent(struct gp_transfer *t)
{
	t->with_channel = false;
	if (t->waiting)
		submit_encode(t);
}

static struct gp_transfer *slot_of(const struct gp_flow *f, uint64_t number)
{
	return &f->slot[number % (uint64_t)f->slots];
}

enum gp_status gp_flow_check_due(const struct gp_flow *f, uint64_t due, uint64_t first, struct gp_err *err)
{
	const uint64_t made = f->made > first ? f->made : first;
	bool kept = due <= made && made - due <= (uint64_t)f->slots;
	for (uint64_t n = due; kept && n < made; n++) {
		const struct gp_transfer *t = slot_of(f, n);
		kept = t->encoded && !(t->frame.head.flags & GP_FRAME_FLAG_EVAL) && t->draw == n;
	}
	if (!kept)
		GP_FAIL(err, GP_PROTO, "the peer waits for %s of chunk %llu, but the next to be made is chunk %llu",
			gp_direction_info[f->direction].name, (unsigned long long)due, (unsigned long long)made);
	return GP_OK;
}

void gp_flow_send_again(struct gp_flow *f, uint64_t due, uint64_t session, struct gp_channel *ch)
{
	for (uint64_t n = due; n < f->made; n++) {
		struct gp_transfer *t = slot_of(f, n);
		t->frame.head.session = session;
		gp_transfer_send(t, ch);
	}
}

void gp_flow_begin_at(struct gp_flow *f, uint64_t step)
{
	for (int i = 0; i < f->slots; i++)
		f->slot[i].encoded = false;
	f->made = step * f->chunks;
}

void gp_flow_undo(struct gp_flow *f, uint64_t step)
{
	gp_require(f->lane.pending == 0);
	gp_flow_begin_at(f, step);
	if (f->codec)
		gp_codec_undo(f->codec, step);
}

void gp_flow_forget_damage(struct gp_flow *f)
{
	gp_require(f->lane.pending == 0);
	f->damaged = false;
}

void gp_flow_lose_account(struct gp_flow *f)
{
	f->account = NULL; /* it goes with the channel, perhaps before the last task comes back */
}

void gp_flow_cancel(struct gp_flow *f)
{
	for (int i = 0; i < f->slots; i++)
		f->slot[i].waiting = false;
	gp_flow_lose_account(f);
}

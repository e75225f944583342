/* SPDX-License-Identifier: Apache-2.0
 *
 * Split training: what the privacy meter (privacy_meter.h) gets to see of a step, and
 * when it measures. Of what goes up a decoder like the server's makes a tensor, once it
 * is encoded; what comes down is there as decoded.
 *
 * Threads: see engine_split.h. Test: tests/e2e/privacy.sh
 */
#include "client/engine/engine_split.h"

#include "client/privacy/privacy_meter.h"
#include "common/base/loop.h"

static bool is_due(const struct split_engine *e, const struct gp_transfer *t)
{
	return e->train && t->flow->type.dtype == GP_F32 && gp_privacy_due(e->base.spec.privacy, t->frame.head.step);
}

static enum gp_status put(struct split_engine *e, const struct gp_transfer *t, const float *x, struct gp_err *err)
{
	const struct gp_flow *f = t->flow;
	const size_t samples = (size_t)gp_split_chunk_samples(e);
	const struct gp_privacy_tensor tensor = {.done = t->frame.head.step,
						 .direction = f->direction,
						 .tensor = f->tensor,
						 .first = (int)t->frame.head.chunk * (int)samples,
						 .samples = (int)samples,
						 .each = (size_t)gp_flow_tensor_bytes(f, t->frame.head.length) /
							 sizeof *x / samples,
						 .room = (size_t)f->tensor_bytes / sizeof *x / samples,
						 .x = x};
	return gp_privacy_put(e->base.spec.privacy, &tensor, err);
}

/* A decoder for this tensor alone: it remembers nothing, and the flow's codec may be another one at the next step. */
static enum gp_status put_encoded(struct split_engine *e, struct gp_transfer *t, struct gp_err *err)
{
	const struct gp_direction_info *d = &gp_direction_info[t->flow->direction];
	const struct gp_flow *activation = d->gradient ? &e->flows.flow[d->partner][t->flow->tensor] : NULL;
	float *x = gp_privacy_scratch(e->base.spec.privacy, (size_t)t->flow->tensor_bytes / sizeof *x);
	struct gp_codec *codec;
	if (!x)
		GP_FAIL(err, GP_NOMEM, "out of memory for a tensor that the privacy meter decodes");
	GP_TRY(gp_flow_open_peer(t->flow, activation, &codec, err));
	enum gp_status status = gp_transfer_decode_as_peer(t, codec, x, err);
	gp_codec_free(codec);
	return status == GP_OK ? put(e, t, x, err) : status;
}

void gp_split_privacy_encoded(struct split_engine *e, struct gp_transfer *t)
{
	struct gp_err err;
	if (is_due(e, t) && put_encoded(e, t, &err) != GP_OK)
		gp_client_session_fail(&e->session, err.code, err.text);
}

void gp_split_privacy_decoded(struct split_engine *e, struct gp_transfer *t)
{
	struct gp_err err;
	if (is_due(e, t) && put(e, t, t->tensor, &err) != GP_OK)
		gp_client_session_fail(&e->session, err.code, err.text);
}

/* --- behind a step ----------------------------------------------------------------------------------------------- */

static void run_measure(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	task->status = gp_privacy_measure(e->base.spec.privacy, e->measured.done, e->measured.batch, e->measured.report,
					  &task->err);
}

static void measure_done(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	e->measured.ended = true;
	if (task->status != GP_OK)
		gp_client_session_fail(&e->session, task->status, task->err.text);
}

/* Off the loop's thread: heartbeats go on meanwhile. */
enum gp_status gp_split_privacy_measure(struct gp_engine *base, const struct gp_batch *batch,
					struct gp_privacy_report *out, struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	e->measured.done = e->step - 1;
	e->measured.batch = batch;
	e->measured.report = out;
	e->measured.ended = false;
	e->measured.task = (struct gp_task){.run = run_measure, .done = measure_done, .arg = e};
	gp_worker_submit(&e->data, &e->measured.task, 0);
	const enum gp_status status = gp_client_session_wait_here(&e->session, &e->measured.ended, err);
	while (e->data.pending > 0) /* the batch must not be left to a task that nobody waits for */
		gp_loop_turn(&e->loop);
	return status;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

/* Numbers of a sample in the direction that has most of them. */
static uint64_t most_numbers(const struct split_engine *e)
{
	uint64_t sum[GP_DIRECTIONS] = {0}, most = 1;
	for (int i = 0; i < e->cross->list.count; i++) {
		const struct gp_flow_spec *f = &e->cross->list.flow[i];
		sum[f->direction] += gp_shape_elements(&f->type.shape) / (uint64_t)gp_split_chunk_samples(e);
		most = sum[f->direction] > most ? sum[f->direction] : most;
	}
	return most;
}

void gp_split_privacy_begin(struct split_engine *e)
{
	if (e->base.spec.privacy)
		gp_privacy_set_size(e->base.spec.privacy, gp_session_batch(&e->base.spec.session), most_numbers(e));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What of a body outlives the server: written after a commit whose client asks
 * for it, or at the end of a server that is told to stop, and read by OPEN's
 * restore_step. See body.h; PROTOCOL.md section 5.7.
 *
 * After a commit the next step's frames may follow at once. So the codecs'
 * state and the plan are copied by tasks on their own lanes, ahead of what
 * those frames bring; only the copies go to disk, on a lane that is not waited
 * for by the step. Test: tests/unit/test_server_checkpoints.c,
 * tests/e2e/killed.sh
 */
#include <inttypes.h>
#include <string.h>

#include "common/wire/graph_msg.h"
#include "server/body_impl.h"
#include "server/body_intervals.h"

static enum gp_status describe(const struct gp_body *b, struct gp_session_words **out, struct gp_err *err)
{
	struct gp_session_words *words;
	GP_TRY(gp_alloc_array((void **)&words, 1, sizeof *words, err));
	enum gp_status status = gp_session_spec_describe(&b->spec.session, b->spec.graph, words, err);
	if (status == GP_OK)
		*out = words;
	else
		gp_free(words);
	return status;
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static void run_check(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	const struct gp_body_spec *spec = &b->spec;
	struct gp_session_words *words;
	task->status = describe(b, &words, &task->err);
	if (task->status == GP_OK) {
		task->status =
			gp_state_dir_check(spec->state, spec->run_id, spec->restore_step, &words->pairs, &task->err);
		gp_free(words);
	}
	if (task->status != GP_OK)
		gp_err_prefix(&task->err, "open: restore_step");
}

void gp_body_check_restore(struct gp_body *b, void (*done)(struct gp_task *))
{
	struct gp_body_checkpoint *k = &b->checkpoint;
	k->write = (struct gp_task){.run = run_check, .done = done, .arg = b};
	gp_worker_submit(&k->lane, &k->write, 0);
}

/* Each half is whole, but they do not belong to one training, and this server has no other for this client. */
static enum gp_status check_hash(const struct gp_body *b, struct gp_err *err)
{
	const struct gp_body_spec *spec = &b->spec;
	const uint64_t ours = gp_body_state_hash(b);
	if (spec->state_hash == 0 || spec->state_hash == ours)
		return GP_OK;
	gp_err_set(err, GP_PROTO, 0, __FILE__, __LINE__,
		   "at step %" PRIu64 " the codecs of the client remember %016" PRIx64 ", those here %016" PRIx64,
		   spec->restore_step, spec->state_hash, ours);
	return gp_state_dir_discard(spec->state, spec->run_id, spec->restore_step,
				    "does not fit the client's (the codecs of both ends remember different things)",
				    err);
}

struct loading {
	const struct gp_st_file *state;
	enum gp_status status;
	struct gp_err *err;
};

static void load_codec(struct gp_flow *flow, void *arg)
{
	struct loading *l = arg;
	char name[24];
	if (l->status == GP_OK)
		l->status = gp_snapshot_load_codec(l->state, gp_flow_name(flow, name), flow->codec, l->err);
}

static enum gp_status load(struct gp_body *b, const struct gp_st_file *state, struct gp_err *err)
{
	GP_TRY(gp_snapshot_load_plan(state, b->spec.restore_step, b->plan, err));
	struct loading l = {state, GP_OK, err};
	gp_flows_each(&b->flows, load_codec, &l);
	return l.status;
}

/* Compute thread; nobody else uses the codecs before READY. */
enum gp_status gp_body_restore(struct gp_body *b, struct gp_err *err)
{
	const struct gp_body_spec *spec = &b->spec;
	struct gp_checkpoint *c;
	GP_TRY(gp_state_dir_load(spec->state, spec->run_id, spec->restore_step, &c, err));
	enum gp_status status = load(b, c->state, err);
	gp_checkpoint_close(c);
	if (status == GP_INVALID) /* its sums are right: who wrote it was another server, or not one at all */
		return gp_state_dir_discard(spec->state, spec->run_id, spec->restore_step,
					    "does not load (a part of it is missing, or has another shape)", err);
	return status == GP_OK ? check_hash(b, err) : status;
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

uint64_t gp_body_checkpoint_bytes(const struct gp_body_spec *spec)
{
	return spec->state ? gp_snapshot_plan_bytes(spec->graph, gp_session_codec(&spec->session, GP_STRUCT_STATE)) : 0;
}

static void free_parts(struct gp_body_checkpoint *k)
{
	for (int i = 0; i < k->parts; i++)
		gp_snapshot_deinit(&k->part[i].copy);
	gp_free(k->items);
	k->items = NULL;
}

/* COMMITTED, with what became of the checkpoint. */
static void tell(struct gp_body *b, enum gp_status status, const struct gp_err *err)
{
	struct gp_body_checkpoint *k = &b->checkpoint;
	k->asked = false;
	b->optim_pending = false;
	if (status == GP_OK) {
		k->step = b->step;
		k->written++;
		k->failure = (struct gp_err){.code = GP_OK};
	} else {
		k->failure = *err;
		k->failures++;
	}
	if (status != GP_OK && b->cbs.checkpoint_failed)
		b->cbs.checkpoint_failed(b->arg, b->step, err->text);
	if (b->stopping || !b->ch)
		b->cbs.idle(b->arg);
	else
		b->cbs.checkpointed(b->arg, b->step - 1, status == GP_OK ? NULL : err->text);
}

static void run_write(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	struct gp_body_checkpoint *k = &b->checkpoint;
	struct gp_session_words *words;
	task->status = describe(b, &words, &task->err);
	if (task->status != GP_OK)
		return;
	task->status = gp_state_dir_write_leased(b->spec.state, b->spec.run_id, b->spec.lease, b->step, &words->pairs,
						 k->items, k->item_count, k->stay, &task->err);
	gp_free(words);
}

static void note_written(struct gp_body_checkpoint *k, const struct gp_task *task)
{
	k->ns += task->end_ns - task->start_ns;
	for (int i = 0; i < k->item_count && task->status == GP_OK; i++)
		k->bytes += gp_shape_elements(&k->items[i].shape) * gp_st_dtype_bytes(k->items[i].dtype);
}

static void write_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	note_written(&b->checkpoint, task);
	free_parts(&b->checkpoint);
	gp_body_note_step(b, GP_AT_BODY_CHECKPOINT, task);
	gp_body_tell_intervals(b);
	tell(b, task->status, &task->err);
}

static enum gp_status gather(struct gp_body *b, struct gp_err *err)
{
	struct gp_body_checkpoint *k = &b->checkpoint;
	k->item_count = 0;
	if (b->optim.status != GP_OK) {
		*err = b->optim.err;
		return err->code;
	}
	for (int i = 0; i < k->parts; i++) {
		if (k->part[i].task.status != GP_OK) {
			*err = k->part[i].task.err;
			return err->code;
		}
		k->item_count += k->part[i].copy.count;
	}
	GP_TRY(gp_alloc_array((void **)&k->items, (size_t)k->item_count, sizeof *k->items, err));
	int at = 0;
	for (int i = 0; i < k->parts; i++)
		for (int j = 0; j < k->part[i].copy.count; j++)
			k->items[at++] = k->part[i].copy.item[j];
	return GP_OK;
}

static void copied(struct gp_task *task)
{
	struct gp_body_part *part = task->arg;
	struct gp_body *b = part->body;
	struct gp_body_checkpoint *k = &b->checkpoint;
	struct gp_err err;
	if (--k->copying > 0)
		return;
	enum gp_status status = gather(b, &err);
	if (status != GP_OK) {
		free_parts(k);
		tell(b, status, &err);
		return;
	}
	k->write = (struct gp_task){.run = run_write, .done = write_done, .arg = b};
	gp_worker_submit(&k->lane, &k->write, 0);
}

static void run_copy_codec(struct gp_task *task)
{
	struct gp_body_part *part = task->arg;
	char name[24];
	task->status =
		gp_snapshot_add_codec(&part->copy, gp_flow_name(part->flow, name), part->flow->codec, &task->err);
}

static void run_copy_plan(struct gp_task *task)
{
	struct gp_body_part *part = task->arg;
	task->status = gp_snapshot_add_plan(&part->copy, part->body->plan, &task->err);
}

static void start_copy(struct gp_body_part *part, struct gp_lane *lane, void (*run)(struct gp_task *))
{
	part->task = (struct gp_task){.run = run, .done = copied, .arg = part};
	gp_worker_submit(lane, &part->task, 0);
}

static void list_flow(struct gp_flow *flow, void *arg)
{
	struct gp_body_checkpoint *k = arg;
	k->part[k->parts++].flow = flow;
}

/* Once: the flows stay where they are. */
enum gp_status gp_body_list_parts(struct gp_body *b, struct gp_err *err)
{
	struct gp_body_checkpoint *k = &b->checkpoint;
	int flows = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		flows += b->flows.used[d];
	k->part = gp_calloc((size_t)flows + 1, sizeof *k->part);
	if (!k->part)
		GP_FAIL(err, GP_NOMEM, "out of memory for a session");
	gp_flows_each(&b->flows, list_flow, k);
	k->parts++; /* the plan */
	for (int i = 0; i < k->parts; i++)
		k->part[i].body = b;
	return GP_OK;
}

/* Every lane runs the copy before whatever is submitted from here on. */
static void start_copies(struct gp_body *b)
{
	struct gp_body_checkpoint *k = &b->checkpoint;
	k->asked = b->optim_pending = true;
	k->copying = k->parts;
	for (int i = 0; i < k->parts; i++) {
		struct gp_body_part *part = &k->part[i];
		if (part->flow)
			start_copy(part, &part->flow->lane, run_copy_codec);
		else
			start_copy(part, &b->compute, run_copy_plan);
	}
}

/* Copies hold up the device: none is made of what could not be written. */
static enum gp_status check_checkpoint(const struct gp_body *b, struct gp_err *err)
{
	uint64_t bytes = 0; /* of parameters alone */
	if (!b->spec.state)
		GP_FAIL(err, GP_UNSUPPORTED, GP_BODY_NO_CHECKPOINTS);
	for (int i = 0; i < b->graph->params; i++)
		bytes += b->graph->param[i].follows ? 0 : b->graph->param[i].count * sizeof(float);
	return gp_state_dir_check_share(b->spec.state, b->spec.run_id, bytes, err);
}

void gp_body_checkpoint(struct gp_body *b)
{
	struct gp_body_checkpoint *k = &b->checkpoint;
	gp_require(b->optim_pending && !k->asked);
	k->stay = GP_CHECKPOINTS_STAY;
	k->refused = check_checkpoint(b, &k->refusal) != GP_OK;
	if (!k->refused)
		start_copies(b);
}

uint64_t gp_body_checkpoint_step(const struct gp_body *b)
{
	return b->checkpoint.step;
}

bool gp_body_keeps_checkpoints(const struct gp_body *b)
{
	return b->spec.state && b->ready && !b->spec.session.eval_only;
}

const char *gp_body_checkpoint_failure(const struct gp_body *b)
{
	return b->broken != GP_OK ? b->broken_err.text : b->checkpoint.failure.text;
}

void gp_body_checkpoint_refuse(struct gp_body *b)
{
	const struct gp_err err = b->checkpoint.refusal;
	b->checkpoint.refused = false;
	tell(b, err.code, &err);
}

static void run_undo(struct gp_task *task)
{
	gp_body_undo(task->arg);
}

static void undone(struct gp_task *task)
{
	start_copies(task->arg);
}

bool gp_body_checkpoint_at_rest(struct gp_body *b)
{
	gp_require(b->stopping && !gp_body_busy(b));
	if (!b->built || b->changing || !gp_body_keeps_checkpoints(b) || b->broken != GP_OK || b->step == 0 ||
	    b->checkpoint.step == b->step)
		return false;
	b->checkpoint.stay =
		GP_CHECKPOINTS_MAX; /* the client does not have this one, so it must not push out one that both have */
	gp_body_reset_chunks(b);
	b->build = (struct gp_task){.run = run_undo, .done = undone, .arg = b};
	gp_worker_submit(&b->build_lane, &b->build, 0);
	return true;
}

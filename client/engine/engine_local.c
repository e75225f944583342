/* SPDX-License-Identifier: Apache-2.0
 *
 * Training in one process with no link: the reference that split training has
 * to equal bit for bit. See engine.h. Test: tests/e2e/parity.sh
 */
#include <math.h>
#include <string.h>

#include "client/engine/engine.h"
#include "client/engine/batch_labels.h"
#include "client/engine/batch_map.h"
#include "client/engine/eval_metrics.h"
#include "client/train/run_state.h"
#include "client/trace/timeline.h"
#include "client/log/value_log.h"
#include "common/graph/clip.h"
#include "common/graph/tie.h"
#include "common/base/mem.h"
#include "common/graph/plan_profile.h"
#include "common/graph/plan_replace.h"
#include "kernels/device_registry.h"

/* With a device that works by itself a chunk begins while the backward of the one before is under way, in turn. */
#define SLOTS 2

struct local_engine {
	struct gp_engine base;
	struct gp_device *device;
	struct gp_plan *plan;
	struct gp_graph *ranked; /* the model with the ranks of now, where decays have changed them; NULL: spec.graph */
	const struct gp_plan_profile *profile;
	struct gp_batch_map map; /* of the batch at hand */
	bool queued[SLOTS];      /* the slot's backward is under way */
	uint64_t compute_ns;
	uint64_t body_ns, tail_ns; /* of the plan's profile, until the step before */
	double *squares;           /* with clip_norm */
	struct gp_tie tie;
};

static int chunk_samples(const struct gp_engine_spec *spec)
{
	return spec->session.chunk_samples;
}

static int chunk_valid(const struct gp_engine_spec *spec, const struct gp_batch *batch, int chunk)
{
	int samples = chunk_samples(spec), left = batch->valid - chunk * samples;
	return left < 0 ? 0 : left > samples ? samples : left;
}

static enum gp_status wait_for_slot(struct local_engine *e, int slot, struct gp_err *err)
{
	if (!e->queued[slot])
		return GP_OK;
	e->queued[slot] = false;
	return e->device->ops->wait(e->plan, slot, err);
}

static enum gp_status wait_for_all(struct local_engine *e, struct gp_err *err)
{
	for (int s = 0; s < SLOTS; s++)
		GP_TRY(wait_for_slot(e, s, err));
	return GP_OK;
}

static uint64_t first_of_step(const struct local_engine *e)
{
	return e->base.steps * (uint64_t)e->base.spec.session.chunks;
}

static int slot_of(const struct local_engine *e, int chunk)
{
	return chunk % e->plan->spec.slots;
}

/* `labels`: of the chunk, whose loss comes next; NULL: every row of the outputs is wanted. */
static enum gp_status forward_chunk(struct local_engine *e, const struct gp_batch *batch, int chunk, enum gp_mode mode,
				    uint64_t draw, const void *labels, struct gp_err *err)
{
	const struct gp_device_ops *ops = e->device->ops;
	const int slot = slot_of(e, chunk);
	const struct gp_engine_spec *spec = &e->base.spec;
	const size_t samples = (size_t)chunk_samples(spec);
	const size_t first = (size_t)chunk * samples;
	const bool drops = spec->drop_padding && ops->set_length;
	const uint32_t length = drops ? gp_batch_map_length(&e->map, batch, first, samples, NULL) : 0;
	GP_TRY(wait_for_slot(e, slot, err));
	gp_plan_set_length(e->plan, slot, length);
	gp_plan_set_labels(e->plan, slot, labels, chunk_valid(spec, batch, chunk));
	gp_batch_map_copy(&e->map, batch, first, samples, length, e->plan, slot, NULL);
	return ops->forward(e->plan, slot, mode, draw, err);
}

/* `scale`: of the gradients. */
static enum gp_status run_chunk(struct local_engine *e, const struct gp_batch *batch, int chunk, bool train,
				float scale, struct gp_step_result *sum, struct gp_err *err)
{
	const struct gp_device_ops *ops = e->device->ops;
	const struct gp_engine_spec *spec = &e->base.spec;
	const size_t samples = (size_t)chunk_samples(spec);
	const int slot = slot_of(e, chunk);
	const int valid = chunk_valid(spec, batch, chunk);
	const void *labels = gp_batch_labels(batch, (size_t)chunk * samples);
	struct gp_loss_result loss;
	const uint64_t draw = e->base.steps * (uint64_t)spec->session.chunks + (uint64_t)chunk;
	const uint64_t begin = gp_now_ns();
	GP_TRY(forward_chunk(e, batch, chunk, train ? GP_TRAIN : GP_EVAL, draw, labels, err));
	const uint64_t forwarded = gp_now_ns();
	GP_TRY(ops->loss(e->plan, slot, labels, valid, train, scale, &loss, err));
	const uint64_t lost = gp_now_ns();
	if (!train && e->base.metrics)
		gp_metrics_add(e->base.metrics, ops->buffer(e->plan, slot, GP_BUF_OUTPUT, 0), labels, valid);
	if (train)
		GP_TRY(ops->queue_backward(e->plan, slot, err));
	if (train) {
		gp_timeline_note_times(e->base.timeline, GP_AT_MODEL_FORWARD, draw, begin, forwarded);
		gp_timeline_note_times(e->base.timeline, GP_AT_MODEL_LOSS, draw, forwarded, lost);
		gp_timeline_note_times(e->base.timeline, GP_AT_MODEL_BACKWARD, draw, lost, gp_now_ns());
	}
	e->queued[slot] = train && ops->wait;
	sum->loss_sum += loss.loss_sum;
	sum->correct += (uint64_t)loss.correct;
	sum->samples += (uint64_t)loss.labelled;
	return GP_OK;
}

static enum gp_status run_batch(struct local_engine *e, const struct gp_batch *batch, bool train,
				struct gp_step_result *sum, struct gp_err *err)
{
	uint64_t begin = gp_now_ns();
	const float scale = gp_batch_gradient_scale(batch, gp_session_batch(&e->base.spec.session));
	GP_TRY(gp_batch_map_of(e->base.spec.graph, batch, &e->map, err));
	GP_TRY(gp_batch_labels_check(e->base.spec.graph, batch, err));
	for (int c = 0; c < e->base.spec.session.chunks; c++)
		if (chunk_valid(&e->base.spec, batch, c) > 0)
			GP_TRY(run_chunk(e, batch, c, train, scale, sum, err));
	GP_TRY(wait_for_all(e, err));
	e->compute_ns += gp_now_ns() - begin;
	return GP_OK;
}

/* The norm of all gradients when they are to be clipped by it, else NaN. */
static enum gp_status measure_norm(struct local_engine *e, double *norm, struct gp_err *err)
{
	*norm = NAN;
	if (!e->squares)
		return GP_OK;
	GP_TRY(e->device->ops->grad_squares(e->plan, e->squares, err));
	*norm = sqrt(gp_clip_add(0.0, e->squares, gp_clip_sums(e->base.spec.graph)));
	return GP_OK;
}

/* --- ranks. PROTOCOL.md section 5.3, as the server does it --------------------------------------------------------- */

static const struct gp_graph *graph_of(const struct local_engine *e)
{
	return e->ranked ? e->ranked : e->base.spec.graph;
}

/* Where the model would be cut: in a split run of the same options maps, and their gradients, are those of the parts. */
static void set_cuts(const struct local_engine *e, struct gp_plan_spec *out)
{
	const struct gp_graph *g = graph_of(e);
	const struct gp_cut *cut = &e->base.spec.cut;
	if ((!out->maps && !out->coded[GP_STRUCT_GRAD_MAPS]) || cut->head <= 0 || cut->tail <= cut->head ||
	    cut->tail >= g->blocks)
		return;
	out->cuts[0] = g->block[cut->head].first_node;
	out->cuts[1] = g->block[cut->tail].first_node;
}

static struct gp_plan_spec plan_spec(const struct local_engine *e)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	const bool train = !spec->session.eval_only;
	struct gp_plan_spec out = {.graph = graph_of(e),
				   .batch = chunk_samples(spec),
				   .slots = e->device->ops->wait && train && spec->session.chunks > 1 ? SLOTS : 1,
				   .train = train,
				   .calibrate = spec->session.calibrates,
				   .recompute = spec->session.recompute,
				   .maps = gp_session_maps(&spec->session),
				   .seed = spec->session.seed,
				   .optim = spec->session.optim,
				   .decays = &spec->session.decays,
				   .loss = spec->loss,
				   .precision = spec->session.precision};
	gp_session_coded(&spec->session, &out);
	set_cuts(e, &out);
	return out;
}

/* A device that works by itself would have to be waited for after each node. */
static bool measures_parts(const struct local_engine *e)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	return !spec->session.eval_only && !e->device->ops->wait && spec->cut.head > 0 &&
	       spec->cut.tail > spec->cut.head;
}

static enum gp_status begin_profile(struct local_engine *e, struct gp_err *err)
{
	e->body_ns = e->tail_ns = 0;
	if (!e->base.spec.profile && !measures_parts(e))
		return GP_OK;
	return gp_plan_profile_begin(e->plan, &e->profile, err);
}

/* What of the step behind us would have been the body's and the tail's, if the model were cut: for bound_by. */
static void note_parts(struct local_engine *e)
{
	const struct gp_graph *g = graph_of(e);
	const struct gp_cut *cut = &e->base.spec.cut;
	if (!e->profile || !measures_parts(e))
		return;
	uint64_t body = 0, tail = e->profile->loss.ns[0];
	for (int i = 0; i < g->nodes; i++) {
		const int block = gp_graph_block_of(g, i);
		const uint64_t ns = e->profile->node[i].ns[0] + e->profile->node[i].ns[1];
		body += block >= cut->head && block < cut->tail ? ns : 0;
		tail += block >= cut->tail ? ns : 0;
	}
	gp_timeline_note_parts(e->base.timeline, body - e->body_ns, tail - e->tail_ns);
	e->body_ns = body;
	e->tail_ns = tail;
}

typedef enum gp_status (*replace_fn)(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **plan,
				     struct gp_err *err);

/* To the ranks behind e->base.steps, with a plan that goes on with what the one before it had, or begins. */
static enum gp_status set_ranks(struct local_engine *e, replace_fn replace, struct gp_err *err)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	struct gp_graph *unused = e->ranked;
	GP_TRY(gp_decays_graph(&spec->session.decays, spec->graph, e->base.steps, &e->ranked, err));
	const struct gp_plan_spec ps = plan_spec(e);
	const enum gp_status status = replace(e->device, &ps, &e->plan, err);
	if (e->plan && e->plan->spec.graph != e->ranked) { /* nothing has changed */
		struct gp_graph *const next = e->ranked;
		e->ranked = unused;
		unused = next;
	}
	gp_graph_free(unused);
	return status == GP_OK ? begin_profile(e, err) : status;
}

static enum gp_status change_ranks_if_due(struct local_engine *e, struct gp_err *err)
{
	if (!gp_decays_change_at(&e->base.spec.session.decays, e->base.steps))
		return GP_OK;
	return set_ranks(e, gp_plan_replace, err);
}

static enum gp_status write_checkpoint(struct local_engine *e, const struct gp_step_result *r, struct gp_err *err)
{
	struct gp_snapshot s = {0};
	const struct gp_run_progress step = {r->loss_sum, r->correct, r->samples};
	enum gp_status status = gp_snapshot_add_plan(&s, e->plan, err);
	if (status == GP_OK)
		status = gp_run_state_write(e->base.spec.run, e->base.steps, &s, &step, err);
	gp_snapshot_deinit(&s);
	return status;
}

static enum gp_status checkpoint_if_due(struct local_engine *e, const struct gp_step_result *r, struct gp_err *err)
{
	struct gp_run_state *run = e->base.spec.run;
	if (!gp_run_state_due(run, e->base.steps))
		return GP_OK;
	const uint64_t begin = gp_now_ns();
	if (write_checkpoint(e, r, err) != GP_OK)
		return gp_run_state_failed(run, e->base.steps, err);
	gp_timeline_note_times(e->base.timeline, GP_AT_CHECKPOINT, first_of_step(e) - 1, begin, gp_now_ns());
	gp_run_state_confirm(run, e->base.steps);
	return GP_OK;
}

static enum gp_status local_step(struct gp_engine *base, const struct gp_batch *batch, const struct gp_batch *next,
				 float lr, struct gp_step_result *out, struct gp_err *err)
{
	(void)next;
	struct local_engine *e = (struct local_engine *)base;
	struct gp_step_result sum = {0};
	GP_TRY(run_batch(e, batch, true, &sum, err));
	uint64_t begin = gp_now_ns();
	GP_TRY(gp_tie_gradients(&e->tie, err));
	GP_TRY(measure_norm(e, &sum.grad_norm, err));
	if (gp_value_log_wants(base->values, base->steps))
		gp_value_log_add_plan(base->values, base->steps, e->plan, "model");
	GP_TRY(gp_clip_update(e->plan, lr, sum.grad_norm, err));
	GP_TRY(gp_tie_updated(&e->tie, err));
	const uint64_t updated = gp_now_ns();
	e->compute_ns += updated - begin;
	gp_timeline_note_times(e->base.timeline, GP_AT_UPDATE, first_of_step(e), begin, updated);
	note_parts(e);
	e->base.steps++;
	GP_TRY(change_ranks_if_due(e, err));
	GP_TRY(checkpoint_if_due(e, &sum, err));
	*out = sum;
	return GP_OK;
}

static enum gp_status local_next(struct gp_engine *base, struct gp_loader *loader, struct gp_batch **out,
				 struct gp_err *err)
{
	(void)base;
	return gp_loader_next(loader, out, err);
}

static enum gp_status local_evaluate(struct gp_engine *base, struct gp_loader *loader, uint32_t batches,
				     struct gp_step_result *out, struct gp_err *err)
{
	struct local_engine *e = (struct local_engine *)base;
	struct gp_step_result sum = {0};
	for (uint32_t i = 0; i < batches; i++) {
		struct gp_batch *batch;
		GP_TRY(gp_loader_next(loader, &batch, err));
		enum gp_status status = run_batch(e, batch, false, &sum, err);
		gp_loader_give_back(loader, batch);
		GP_TRY(status);
	}
	*out = sum;
	return GP_OK;
}

static enum gp_status calibrate_batch(struct local_engine *e, const struct gp_batch *batch, uint64_t *number,
				      struct gp_err *err)
{
	const uint64_t begin = gp_now_ns();
	GP_TRY(gp_batch_map_of(e->base.spec.graph, batch, &e->map, err));
	for (int c = 0; c < e->base.spec.session.chunks; c++)
		GP_TRY(forward_chunk(e, batch, c, GP_CALIBRATE, (*number)++, NULL, err));
	e->compute_ns += gp_now_ns() - begin;
	return GP_OK;
}

static enum gp_status local_calibrate(struct gp_engine *base, struct gp_loader *loader, uint32_t batches,
				      const struct gp_engine_watch *watch, struct gp_err *err)
{
	struct local_engine *e = (struct local_engine *)base;
	uint64_t number = 0;
	for (uint32_t i = 0; i < batches && (i == 0 || gp_engine_goes_on(watch, i)); i++) {
		struct gp_batch *batch;
		GP_TRY(gp_loader_next(loader, &batch, err));
		const enum gp_status status = calibrate_batch(e, batch, &number, err);
		gp_loader_give_back(loader, batch);
		GP_TRY(status);
	}
	return GP_OK;
}

static enum gp_status predict_batch(struct local_engine *e, const struct gp_batch *batch, float *out,
				    struct gp_err *err)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	size_t classes = gp_shape_elements(gp_graph_output_shape(spec->graph));
	uint64_t begin = gp_now_ns();
	GP_TRY(gp_batch_map_of(spec->graph, batch, &e->map, err));
	for (int c = 0; c < spec->session.chunks; c++) {
		size_t valid = (size_t)chunk_valid(spec, batch, c);
		if (valid == 0)
			break;
		GP_TRY(forward_chunk(e, batch, c, GP_EVAL, 0, NULL, err));
		memcpy(out + (size_t)(c * chunk_samples(spec)) * classes,
		       e->device->ops->buffer(e->plan, slot_of(e, c), GP_BUF_OUTPUT, 0),
		       valid * classes * sizeof(float));
	}
	e->compute_ns += gp_now_ns() - begin;
	return GP_OK;
}

static enum gp_status local_predict(struct gp_engine *base, struct gp_loader *loader, float *out,
				    struct gp_batch **batch, struct gp_err *err)
{
	struct gp_batch *next;
	GP_TRY(gp_loader_next(loader, &next, err));
	enum gp_status status = predict_batch((struct local_engine *)base, next, out, err);
	if (status == GP_OK)
		*batch = next;
	else
		gp_loader_give_back(loader, next);
	return status;
}

static enum gp_status local_get_weights(struct gp_engine *base, struct gp_weights *w, struct gp_err *err)
{
	struct local_engine *e = (struct local_engine *)base;
	GP_TRY(gp_weights_fit(w, &base->spec.session.decays, base->spec.graph, base->steps, err));
	for (int i = 0; i < w->graph->params; i++)
		GP_TRY(e->device->ops->param_get(e->plan, i, w->value[i], err));
	return GP_OK;
}

static void local_figures(struct gp_engine *base, struct gp_engine_figures *out)
{
	struct local_engine *e = (struct local_engine *)base;
	struct gp_plan_memory memory;
	e->device->ops->plan_memory(e->plan, &memory);
	*out = (struct gp_engine_figures){
		.precision = base->spec.session.precision,
		.client_precision = base->spec.session.precision,
		.choice = &base->choice,
		.compute_ns = e->compute_ns,
		.memory_bytes = memory.total,
	};
}

static void local_print_profile(struct gp_engine *base, FILE *f)
{
	struct local_engine *e = (struct local_engine *)base;
	gp_plan_profile_print(f, "model", e->plan, e->profile);
}

static void local_free(struct gp_engine *base)
{
	struct local_engine *e = (struct local_engine *)base;
	if (e->plan)
		e->device->ops->plan_free(e->plan);
	if (e->device)
		e->device->ops->close(e->device);
	gp_graph_free(e->ranked);
	gp_timeline_free(e->base.timeline);
	gp_value_log_free(e->base.values);
	gp_free(e->squares);
	gp_free(e);
}

static enum gp_status load_checkpoint(struct local_engine *e, uint64_t step, struct gp_err *err)
{
	struct gp_run_state *run = e->base.spec.run;
	struct gp_checkpoint *c;
	GP_TRY(gp_run_state_load(run, step, &c, err));
	enum gp_status status = gp_snapshot_load_plan(c->state, step, e->plan, err);
	if (status == GP_OK)
		gp_run_state_begin(run, c);
	gp_checkpoint_close(c);
	return status;
}

static enum gp_status resume(struct local_engine *e, struct gp_err *err)
{
	struct gp_run_state *run = e->base.spec.run;
	const uint64_t step = e->base.steps = run ? gp_run_state_newest(run) : 0;
	if (step > 0 && e->base.spec.session.decays.count > 0)
		GP_TRY(set_ranks(e, gp_plan_renew, err));
	if (step > 0)
		GP_TRY(load_checkpoint(e, step, err));
	if (run)
		gp_run_state_tell(run, step);
	return GP_OK;
}

static enum gp_status choose_precision(struct local_engine *e, struct gp_err *err)
{
	const struct gp_plan_spec ps = plan_spec(e);
	struct gp_session_spec *s = &e->base.spec.session;
	struct gp_engine_choice *c = &e->base.choice;
	if (!s->choose_precision)
		return GP_OK;
	GP_TRY(gp_precision_choose(e->device, &ps, 1, &c->body, &s->precision, err));
	c->body_made = true;
	s->choose_precision = false;
	return GP_OK;
}

static enum gp_status make_plan(struct local_engine *e, struct gp_err *err)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	GP_TRY(gp_decays_check(&spec->session.decays, spec->graph, err));
	GP_TRY(gp_device_open(spec->device, spec->threads, &e->device, err));
	GP_TRY(choose_precision(e, err));
	const struct gp_plan_spec ps = plan_spec(e);
	GP_TRY(e->device->ops->plan_new(e->device, &ps, &e->plan, err));
	for (int i = 0; spec->init && i < spec->graph->params; i++)
		GP_TRY(e->device->ops->param_set(e->plan, i, spec->init->value[i], err));
	if (!spec->session.eval_only && spec->session.optim.clip_norm > 0.0) {
		e->squares = gp_calloc((size_t)gp_clip_sums(spec->graph) + 1, sizeof *e->squares);
		if (!e->squares)
			GP_FAIL(err, GP_NOMEM, "out of memory for an engine");
	}
	return begin_profile(e, err);
}

enum gp_status gp_engine_new_local(const struct gp_engine_spec *spec, struct gp_engine **out, struct gp_err *err)
{
	static const struct gp_engine_ops ops = {.name = "local",
						 .step = local_step,
						 .next = local_next,
						 .evaluate = local_evaluate,
						 .calibrate = local_calibrate,
						 .predict = local_predict,
						 .get_weights = local_get_weights,
						 .figures = local_figures,
						 .print_profile = local_print_profile,
						 .free = local_free};
	struct local_engine *e = gp_calloc(1, sizeof *e);
	if (!e)
		GP_FAIL(err, GP_NOMEM, "out of memory for an engine");
	e->base.ops = &ops;
	e->base.spec = *spec;
	if (spec->session.eval_only)
		e->base.spec.session.decays.count = 0;
	enum gp_status status = make_plan(e, err);
	if (status == GP_OK && !spec->session.eval_only)
		status = gp_timeline_new((uint32_t)spec->session.chunks, false, spec->trace, &e->base.timeline, err);
	if (status == GP_OK)
		status = resume(e, err);
	if (status == GP_OK)
		status = gp_tie_find(spec->graph, e->plan, e->plan, &e->tie, err);
	if (status == GP_OK)
		status = gp_tie_values(&e->tie, err);
	if (status != GP_OK) {
		local_free(&e->base);
		return status;
	}
	*out = &e->base;
	return GP_OK;
}

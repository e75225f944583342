/* SPDX-License-Identifier: Apache-2.0
 *
 * Split training: how its engine is made and freed, its weights and figures.
 * What it does between is in engine_split.c.
 * Test: tests/e2e/parity.sh, tests/unit/test_engine.c
 */
#include "client/engine/engine_split.h"

#include <stdio.h>
#include <string.h>

#include "client/engine/batch_labels.h"
#include "client/insert/insert.h"
#include "client/log/value_log.h"
#include "common/base/loop.h"
#include "common/graph/clip.h"
#include "common/graph/graph_part.h"
#include "common/graph/plan_profile.h"
#include "kernels/device_registry.h"

#define FETCH_WORTH_A_LINE 64e6 /* bytes: over 100 Mbit/s more than 5 s */

/* Weights and figures. */

static enum gp_status get_part(struct split_engine *e, struct gp_plan *plan, const struct gp_graph *part,
			       struct gp_weights *w, struct gp_err *err)
{
	for (int i = 0; i < part->params; i++) {
		int whole = gp_graph_find_param(w->graph, part->param[i].name);
		GP_TRY(e->device->ops->param_get(plan, i, w->value[whole], err));
	}
	return GP_OK;
}

static enum gp_status set_part(struct split_engine *e, struct gp_plan *plan, const struct gp_graph *part,
			       struct gp_err *err)
{
	const struct gp_weights *w = e->base.spec.init;
	for (int i = 0; w && i < part->params; i++) {
		int whole = gp_graph_find_param(w->graph, part->param[i].name);
		GP_TRY(e->device->ops->param_set(plan, i, w->value[whole], err));
	}
	return GP_OK;
}

/* Over a slow link they may take longer than many steps. */
static void announce_fetch(const struct split_engine *e)
{
	const double bytes = 4 * (double)e->cross->parts.body->param_elements;
	if (bytes >= FETCH_WORTH_A_LINE)
		fprintf(stderr, "fetching the body's parameters from the server: %.1f MB\n", bytes * 1e-6);
}

static enum gp_status split_get_weights(struct gp_engine *base, struct gp_weights *w, struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	GP_TRY(gp_weights_fit(w, &base->spec.session.decays, base->spec.graph, e->step, err));
	GP_TRY(get_part(e, e->head_plan, e->cross->parts.head, w, err));
	GP_TRY(get_part(e, e->tail_plan, e->cross->parts.tail, w, err));
	announce_fetch(e);
	return gp_client_session_fetch(&e->session, w, err);
}

static void add_flow_bytes(struct gp_flow *flow, void *arg)
{
	uint64_t *sum = arg;
	*sum += flow->codec_bytes;
	for (int i = 0; i < flow->slots; i++)
		*sum += flow->slot[i].frame.cap;
}

uint64_t gp_split_memory_bytes(struct split_engine *e)
{
	struct gp_plan_memory head, tail;
	e->device->ops->plan_memory(e->head_plan, &head);
	e->device->ops->plan_memory(e->tail_plan, &tail);
	uint64_t sum = head.total + tail.total;
	gp_flows_each(&e->flows, add_flow_bytes, &sum);
	return sum;
}

static void add_flow_figures(struct gp_flow *flow, void *arg)
{
	struct gp_engine_figures *out = arg;
	struct gp_codec_stats *sum = &out->codec[flow->direction];
	sum->encoded += flow->stats.encoded;
	sum->decoded += flow->stats.decoded;
	sum->raw_fallbacks += flow->stats.raw_fallbacks;
	for (int i = 0; i < GP_CODEC_MAX_STAGES; i++)
		sum->skipped[i] += flow->stats.skipped[i];
}

static void split_figures(struct gp_engine *base, struct gp_engine_figures *out)
{
	struct split_engine *e = (struct split_engine *)base;
	*out = (struct gp_engine_figures){.precision = base->spec.session.precision,
					  .client_precision = base->spec.client_precision,
					  .choice = &base->choice,
					  .compute_ns = e->compute_ns,
					  .memory_bytes = gp_split_memory_bytes(e),
					  .server_memory_bytes = e->session.server_memory_bytes,
					  .server_device_bytes = e->session.server_device_bytes,
					  .server_limit_bytes = e->session.server_limit_bytes,
					  .server_device = e->session.server_device,
					  .server = gp_client_session_server(&e->session),
					  .of_several = e->session.servers.count > 1,
					  .window = e->session.window,
					  .flows = &e->flows,
					  .body = e->cross->parts.body,
					  .codec_use = gp_split_codecs_use(e),
					  .reconnects = e->session.reconnects};
	gp_client_session_figures(&e->session, &out->account, &out->tcp, &out->rtt_us);
	if (out->tcp.valid)
		out->rtt_us = out->tcp.rtt_us;
	gp_flows_each(&e->flows, add_flow_figures, out);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		for (int i = 0; e->flows.used[d] > 0 && i < GP_CODEC_MAX_STAGES; i++)
			out->byte_stage[d][i] = gp_codec_byte_stage(&base->spec.session.codec[d], i);
}

static void split_print_profile(struct gp_engine *base, FILE *f)
{
	struct split_engine *e = (struct split_engine *)base;
	gp_plan_profile_print(f, "head", e->head_plan, e->head_profile);
	gp_plan_profile_print(f, "tail", e->tail_plan, e->tail_profile);
}

/* Life. */

static void free_lanes(struct split_engine *e)
{
	while (e->compute.pending + e->data.pending + gp_flows_pending(&e->flows) > 0)
		gp_loop_turn(&e->loop);
	gp_flows_deinit(&e->flows);
	gp_lane_deinit(&e->compute);
	gp_lane_deinit(&e->data);
}

static void free_slots(struct split_engine *e)
{
	for (int i = 0; e->slot && i < e->base.spec.session.window; i++) {
		for (int k = 0; e->slot[i].data && k < e->cross->parts.body->inputs; k++)
			gp_free(e->slot[i].data[k]);
		gp_free(e->slot[i].data);
		gp_free(e->slot[i].labels);
		gp_free(e->slot[i].rows);
	}
	gp_free(e->slot);
	e->slot = NULL;
}

static void free_plans(struct split_engine *e)
{
	if (e->head_plan)
		e->device->ops->plan_free(e->head_plan);
	if (e->tail_plan)
		e->device->ops->plan_free(e->tail_plan);
	e->head_plan = e->tail_plan = NULL;
}

static void split_free(struct gp_engine *base)
{
	struct split_engine *e = (struct split_engine *)base;
	gp_flows_cancel(&e->flows);
	if (e->session_open)
		gp_client_session_close(&e->session);
	free_lanes(e);
	gp_worker_free(e->compute_worker);
	gp_worker_free(e->codec_worker);
	gp_worker_free(e->data_worker);
	if (e->loop_open) {
		uv_run(&e->loop, UV_RUN_DEFAULT);
		uv_loop_close(&e->loop);
	}
	free_plans(e);
	if (e->device)
		e->device->ops->close(e->device);
	free_slots(e);
	gp_free(e->squares);
	if (e->cross != e->first_cross)
		gp_crossing_free(e->cross);
	gp_crossing_free(e->first_cross);
	gp_crossing_free(e->next_cross);
	gp_timeline_free(e->base.timeline);
	gp_value_log_free(e->base.values);
	gp_split_codecs_deinit(e);
	gp_free(e);
}

static enum gp_status make_workers(struct split_engine *e, struct gp_err *err)
{
	GP_TRY(gp_loop_init(&e->loop, err));
	e->loop_open = true;
	GP_TRY(gp_worker_new(&e->loop, "gp-compute", 1, &e->compute_worker, err));
	GP_TRY(gp_worker_new(&e->loop, "gp-codec", 1, &e->codec_worker, err));
	GP_TRY(gp_worker_new(&e->loop, "gp-data", 1, &e->data_worker, err));
	gp_lane_init(&e->compute, e->compute_worker, NULL);
	gp_lane_init(&e->data, e->data_worker, NULL);
	return GP_OK;
}

static struct gp_plan_spec plan_spec(const struct split_engine *e, const struct gp_graph *part)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	struct gp_plan_spec ps = {.graph = part,
				  .batch = gp_split_chunk_samples(e),
				  .slots = spec->session.window,
				  .train = !spec->session.eval_only,
				  .calibrate = spec->session.calibrates,
				  .recompute = spec->session.recompute,
				  .maps = gp_session_maps(&spec->session),
				  .seed = spec->session.seed,
				  .optim = spec->session.optim,
				  .decays = &spec->session.decays,
				  .undo = !spec->session.eval_only && spec->reconnect_for_s > 0,
				  .loss = spec->loss,
				  .precision = spec->client_precision};
	gp_session_coded(&spec->session, &ps);
	return ps;
}

struct gp_plan_spec gp_split_head_spec(const struct split_engine *e, const struct gp_crossing *c)
{
	return plan_spec(e, c->parts.head);
}

struct gp_plan_spec gp_split_tail_spec(const struct split_engine *e, const struct gp_crossing *c)
{
	struct gp_plan_spec ps = plan_spec(e, c->parts.tail);
	ps.grad_inputs = c->tail_gradients;
	ps.map_inputs = c->parts.tail_activation;
	return ps;
}

enum gp_status gp_split_begin_profiles(struct split_engine *e, struct gp_err *err)
{
	if (!e->base.spec.profile)
		return GP_OK;
	GP_TRY(gp_plan_profile_begin(e->head_plan, &e->head_profile, err));
	return gp_plan_profile_begin(e->tail_plan, &e->tail_profile, err);
}

static enum gp_status choose_client_precision(struct split_engine *e, struct gp_err *err)
{
	const struct gp_plan_spec parts[] = {gp_split_head_spec(e, e->cross), gp_split_tail_spec(e, e->cross)};
	struct gp_engine_spec *s = &e->base.spec;
	struct gp_engine_choice *c = &e->base.choice;
	if (!s->tries_client)
		return GP_OK;
	GP_TRY(gp_precision_choose(e->device, parts, 2, &c->client, &s->client_precision, err));
	c->client_made = true;
	return GP_OK;
}

/* From here on the session is one of this precision, also where it has to be opened again. */
static void take_body_precision(void *arg, enum gp_precision precision, const struct gp_precision_trial *trial)
{
	struct split_engine *e = arg;
	e->base.spec.session.precision = precision;
	e->base.spec.session.choose_precision = false;
	e->base.choice.body = *trial;
	e->base.choice.body_made = true;
}

static enum gp_status make_plans(struct split_engine *e, struct gp_err *err)
{
	const struct gp_plan_spec head = gp_split_head_spec(e, e->cross), tail = gp_split_tail_spec(e, e->cross);
	GP_TRY(e->device->ops->plan_new(e->device, &head, &e->head_plan, err));
	GP_TRY(e->device->ops->plan_new(e->device, &tail, &e->tail_plan, err));
	GP_TRY(set_part(e, e->head_plan, e->cross->parts.head, err));
	GP_TRY(set_part(e, e->tail_plan, e->cross->parts.tail, err));
	GP_TRY(gp_tie_find(e->base.spec.graph, e->head_plan, e->tail_plan, &e->tie, err));
	GP_TRY(gp_tie_values(&e->tie, err));
	return gp_split_begin_profiles(e, err);
}

static enum gp_status make_squares(struct split_engine *e, struct gp_err *err)
{
	if (!!e->base.spec.session.eval_only || !(e->base.spec.session.optim.clip_norm > 0.0))
		return GP_OK;
	e->head_sums = gp_clip_sums(e->cross->parts.head);
	e->body_sums = gp_clip_sums(e->cross->parts.body);
	e->tail_sums = gp_clip_sums(e->cross->parts.tail);
	e->squares = gp_calloc((size_t)(e->head_sums + e->body_sums + e->tail_sums) + 1, sizeof *e->squares);
	if (!e->squares)
		GP_FAIL(err, GP_NOMEM, "out of memory for an engine");
	return GP_OK;
}

/* Room for what goes from the batch straight to the body. */
static enum gp_status make_data(struct split_engine *e, struct split_slot *s, struct gp_err *err)
{
	const struct gp_graph *body = e->cross->parts.body;
	s->data = gp_calloc((size_t)body->inputs, sizeof *s->data);
	if (!s->data)
		GP_FAIL(err, GP_NOMEM, "out of memory for a chunk");
	for (int i = 0; i < body->inputs; i++) {
		const struct gp_type *type = &body->value[i].type;
		if (e->cross->parts.body_in[i].from != GP_FROM_DATA)
			continue;
		s->data[i] = gp_calloc((size_t)gp_split_chunk_samples(e) * gp_shape_elements(&type->shape),
				       gp_dtype_bytes(type->dtype));
		if (!s->data[i])
			GP_FAIL(err, GP_NOMEM, "out of memory for a chunk");
	}
	return GP_OK;
}

static enum gp_status make_slots(struct split_engine *e, struct gp_err *err)
{
	int window = e->base.spec.session.window;
	const size_t each = gp_batch_labels_of_output(e->base.spec.graph);
	e->slot = gp_calloc((size_t)window, sizeof *e->slot);
	if (!e->slot)
		GP_FAIL(err, GP_NOMEM, "out of memory for %d chunks", window);
	for (int i = 0; i < window; i++) {
		e->slot[i].e = e;
		e->slot[i].index = i;
		e->slot[i].labels = gp_calloc((size_t)gp_split_chunk_samples(e) * each, sizeof(int32_t));
		e->slot[i].rows = gp_calloc((size_t)gp_split_chunk_samples(e), sizeof *e->slot[i].rows);
		if (!e->slot[i].labels || !e->slot[i].rows)
			GP_FAIL(err, GP_NOMEM, "out of memory for labels");
		GP_TRY(make_data(e, &e->slot[i], err));
	}
	return GP_OK;
}

/* Tells the flows how many elements would cross without the insertions, for the account. */
static void note_uncompressed(struct split_engine *e)
{
	const struct gp_graph *body = e->cross->parts.body;
	const struct gp_insertion *ins = e->base.spec.insertion;
	for (int d = 0; ins && d < GP_DIRECTIONS; d++)
		for (int i = 0; i < e->flows.tensors[d]; i++) {
			struct gp_flow *f = &e->flows.flow[d][i];
			const bool input = gp_direction_info[d].at_input;
			const struct gp_type *sample = input ? &body->value[i].type : gp_graph_output_type(body, i);
			if (f->codec)
				f->uncompressed_bytes =
					(uint64_t)f->samples * gp_dtype_bytes(sample->dtype) *
					gp_insertion_plain(ins, input ? GP_INSERT_UP : GP_INSERT_DOWN,
							   gp_crossing_name(body, (enum gp_direction)d, i),
							   &sample->shape);
		}
}

struct gp_flow_options gp_split_flow_options(const struct split_engine *e)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	return (struct gp_flow_options){.seed = spec->session.seed,
					.slots = spec->session.window,
					.chunks = (uint32_t)spec->session.chunks,
					.undo = !spec->session.eval_only && spec->reconnect_for_s > 0,
					.client = true};
}

/* In a session with decaying ranks no chunk may be sent before the COMMIT of the step before. */
static enum gp_status make_flows(struct split_engine *e, struct gp_err *err)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	const struct gp_flow_options all = gp_split_flow_options(e);
	GP_TRY(gp_flows_init(&e->flows, &e->cross->list, &all, e->codec_worker, e, err));
	note_uncompressed(e);
	e->ahead = spec->session.decays.count == 0 && !e->cross->head_backward &&
		   e->cross->parts.head->trained_elements == 0 && gp_flows_ahead(&e->flows, &spec->session);
	e->base.looks_ahead = e->ahead;
	gp_split_privacy_begin(e);
	return GP_OK;
}

enum gp_status gp_split_set_window(struct split_engine *e, int window, struct gp_err *err)
{
	gp_flows_deinit(&e->flows);
	free_slots(e);
	free_plans(e);
	e->base.spec.session.window = window;
	GP_TRY(make_plans(e, err));
	GP_TRY(make_slots(e, err));
	return make_flows(e, err);
}

enum gp_status gp_split_renew_flows(struct split_engine *e, struct gp_err *err)
{
	gp_flows_deinit(&e->flows);
	GP_TRY(make_flows(e, err));
	gp_flows_account(&e->flows, &e->session.account, true);
	return GP_OK;
}

static enum gp_status open_session(struct split_engine *e, struct gp_err *err)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	e->open = (struct gp_client_open){.server = spec->server,
					  .body = e->cross->parts.body,
					  .weights = spec->init,
					  .spec = &spec->session,
					  .window_given = spec->window_given,
					  .choose_window = spec->window_grows ? gp_split_choose_window : NULL,
					  .choose_window_arg = e,
					  .chosen = take_body_precision,
					  .chosen_arg = e,
					  .connect_timeout_s = spec->connect_timeout_s,
					  .idle_timeout_s = spec->idle_timeout_s,
					  .reconnect_for_s = spec->reconnect_for_s,
					  .patience_s = spec->patience_s,
					  .stop = spec->stop,
					  .security = spec->security,
					  .run = spec->run,
					  .monitor = spec->monitor,
					  .timeline = e->base.timeline,
					  .traces = spec->trace != NULL,
					  .restart = spec->run ? gp_split_restart : NULL,
					  .restart_arg = e};
	GP_TRY(gp_client_session_open(&e->session, &e->loop, &e->open, &gp_split_frames, e, err));
	e->session_open = true;
	gp_flows_account(&e->flows, &e->session.account, true);
	return GP_OK;
}

enum gp_status gp_engine_new_split(const struct gp_engine_spec *spec, struct gp_engine **out, struct gp_err *err)
{
	static const struct gp_engine_ops ops = {.name = "split",
						 .step = gp_split_step,
						 .next = gp_split_next,
						 .evaluate = gp_split_evaluate,
						 .calibrate = gp_split_calibrate,
						 .predict = gp_split_predict,
						 .measure = gp_split_privacy_measure,
						 .get_weights = split_get_weights,
						 .figures = split_figures,
						 .print_profile = split_print_profile,
						 .free = split_free};
	struct split_engine *e = gp_calloc(1, sizeof *e);
	if (!e)
		GP_FAIL(err, GP_NOMEM, "out of memory for an engine");
	e->base.ops = &ops;
	e->base.spec = *spec;
	if (spec->session.eval_only) {
		e->base.spec.session.decays.count = 0;
		memset(e->base.spec.session.ladder, 0, sizeof e->base.spec.session.ladder);
	}
	enum gp_status status = gp_decays_check(&e->base.spec.session.decays, spec->graph, err);
	if (status == GP_OK)
		status = gp_split_codecs_init(e, err);
	if (status == GP_OK)
		status = make_workers(e, err);
	if (status == GP_OK)
		status = gp_device_open(spec->device, spec->threads, &e->device, err);
	if (status == GP_OK)
		e->base.spec.session.lengths = spec->drop_padding && e->device->ops->set_length;
	if (status == GP_OK)
		status = gp_crossing_find(spec->graph, &spec->cut, &e->base.spec.session, &e->first_cross, err);
	e->cross = e->first_cross;
	if (status == GP_OK)
		status = choose_client_precision(e, err);
	if (status == GP_OK)
		status = make_plans(e, err);
	if (status == GP_OK)
		status = make_squares(e, err);
	if (status == GP_OK)
		status = make_slots(e, err);
	if (status == GP_OK)
		status = make_flows(e, err);
	if (status == GP_OK && !spec->session.eval_only)
		status = gp_timeline_new((uint32_t)spec->session.chunks, true, spec->trace, &e->base.timeline, err);
	if (status == GP_OK)
		status = open_session(e, err);
	if (status != GP_OK) {
		split_free(&e->base);
		return status;
	}
	*out = &e->base;
	return GP_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Split training: how its engine is made and freed, its weights and figures.
 * What it does between is in engine_split.c.
 * Test: tests/e2e/parity.sh, tests/unit/test_engine.c
 */
#include "client/engine_split.h"

#include "common/graph/clip.h"
#include "common/graph/plan_profile.h"
#include "kernels/device_registry.h"
#include "common/graph/graph_part.h"

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

static enum gp_status split_get_weights(struct gp_engine *base, struct gp_weights *w, struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	GP_TRY(get_part(e, e->head_plan, e->head, w, err));
	GP_TRY(get_part(e, e->tail_plan, e->tail, w, err));
	return gp_client_session_fetch(&e->session, w, err);
}

static uint64_t memory_bytes(const struct split_engine *e)
{
	struct gp_plan_memory head, tail;
	e->device->ops->plan_memory(e->head_plan, &head);
	e->device->ops->plan_memory(e->tail_plan, &tail);
	uint64_t sum = head.total + tail.total;
	for (int d = 0; d < DIRECTIONS; d++) {
		sum += e->dir[d].codec_bytes;
		for (int i = 0; i < e->dir[d].slots; i++)
			sum += e->dir[d].slot[i].frame.cap;
	}
	return sum;
}

static void split_figures(struct gp_engine *base, struct gp_engine_figures *out)
{
	struct split_engine *e = (struct split_engine *)base;
	*out = (struct gp_engine_figures){.precision = base->spec.session.precision,
					  .client_precision = base->spec.client_precision,
					  .compute_ns = e->compute_ns,
					  .memory_bytes = memory_bytes(e),
					  .server_memory_bytes = e->session.server_memory_bytes,
					  .server_device_bytes = e->session.server_device_bytes,
					  .server_device = e->session.server_device,
					  .reconnects = e->session.reconnects};
	gp_client_session_figures(&e->session, &out->account, &out->tcp, &out->rtt_us);
	for (int d = 0; d < DIRECTIONS; d++) {
		if (!e->dir[d].codec)
			continue;
		gp_codec_get_stats(e->dir[d].codec, &out->codec[d]);
		for (int i = 0; i < GP_CODEC_MAX_STAGES; i++)
			out->byte_stage[d][i] = gp_codec_byte_stage(&base->spec.session.codec[d], i);
	}
}

static void split_print_profile(struct gp_engine *base, FILE *f)
{
	struct split_engine *e = (struct split_engine *)base;
	gp_plan_profile_print(f, "head", e->head_plan, e->head_profile);
	gp_plan_profile_print(f, "tail", e->tail_plan, e->tail_profile);
}

/* Life. */

static bool busy(const struct split_engine *e)
{
	int pending = e->compute.pending + e->data.pending;
	for (int d = 0; d < DIRECTIONS; d++)
		pending += e->dir[d].lane.pending;
	return pending > 0;
}

static void free_lanes(struct split_engine *e)
{
	while (busy(e))
		uv_run(&e->loop, UV_RUN_ONCE);
	for (int d = 0; d < DIRECTIONS; d++)
		gp_direction_deinit(&e->dir[d]);
	gp_lane_deinit(&e->compute);
	gp_lane_deinit(&e->data);
}

static void split_free(struct gp_engine *base)
{
	struct split_engine *e = (struct split_engine *)base;
	for (int d = 0; d < DIRECTIONS; d++)
		gp_direction_cancel(&e->dir[d]);
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
	if (e->head_plan)
		e->device->ops->plan_free(e->head_plan);
	if (e->tail_plan)
		e->device->ops->plan_free(e->tail_plan);
	if (e->device)
		e->device->ops->close(e->device);
	for (int i = 0; e->slot && i < base->spec.session.window; i++)
		gp_free(e->slot[i].labels);
	gp_free(e->slot);
	gp_free(e->squares);
	gp_graph_free(e->head);
	gp_graph_free(e->body);
	gp_graph_free(e->tail);
	gp_free(e);
}

static enum gp_status make_workers(struct split_engine *e, struct gp_err *err)
{
	int code = uv_loop_init(&e->loop);
	if (code != 0)
		GP_FAIL(err, GP_IO, "cannot make an event loop: %s", uv_strerror(code));
	e->loop_open = true;
	GP_TRY(gp_worker_new(&e->loop, "gp-compute", 1, &e->compute_worker, err));
	GP_TRY(gp_worker_new(&e->loop, "gp-codec", 1, &e->codec_worker, err));
	GP_TRY(gp_worker_new(&e->loop, "gp-data", 1, &e->data_worker, err));
	gp_lane_init(&e->compute, e->compute_worker);
	gp_lane_init(&e->data, e->data_worker);
	return GP_OK;
}

static enum gp_status make_plans(struct split_engine *e, struct gp_err *err)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	struct gp_plan_spec ps = {.batch = gp_split_chunk_samples(e),
				  .slots = spec->session.window,
				  .train = !spec->session.eval_only,
				  .seed = spec->session.seed,
				  .optim = spec->session.optim,
				  .undo = spec->session.undo,
				  .precision = spec->client_precision};
	GP_TRY(gp_graph_part(spec->graph, 0, spec->cut.head, &e->head, err));
	GP_TRY(gp_graph_part(spec->graph, spec->cut.head, spec->cut.tail, &e->body, err));
	GP_TRY(gp_graph_part(spec->graph, spec->cut.tail, spec->graph->blocks, &e->tail, err));
	GP_TRY(gp_device_open(spec->device, spec->threads, &e->device, err));
	ps.graph = e->head;
	GP_TRY(e->device->ops->plan_new(e->device, &ps, &e->head_plan, err));
	ps.graph = e->tail;
	ps.grad_inputs = !spec->session.eval_only;
	GP_TRY(e->device->ops->plan_new(e->device, &ps, &e->tail_plan, err));
	GP_TRY(set_part(e, e->head_plan, e->head, err));
	GP_TRY(set_part(e, e->tail_plan, e->tail, err));
	if (!spec->profile)
		return GP_OK;
	GP_TRY(gp_plan_profile_begin(e->head_plan, &e->head_profile, err));
	return gp_plan_profile_begin(e->tail_plan, &e->tail_profile, err);
}

static enum gp_status make_squares(struct split_engine *e, struct gp_err *err)
{
	if (e->base.spec.session.eval_only || !(e->base.spec.session.optim.clip_norm > 0.0))
		return GP_OK;
	e->head_sums = gp_clip_sums(e->head);
	e->body_sums = gp_clip_sums(e->body);
	e->tail_sums = gp_clip_sums(e->tail);
	e->squares = gp_calloc((size_t)(e->head_sums + e->body_sums + e->tail_sums) + 1, sizeof *e->squares);
	if (!e->squares)
		GP_FAIL(err, GP_NOMEM, "out of memory for an engine");
	return GP_OK;
}

static enum gp_status make_slots(struct split_engine *e, struct gp_err *err)
{
	int window = e->base.spec.session.window;
	e->slot = gp_calloc((size_t)window, sizeof *e->slot);
	if (!e->slot)
		GP_FAIL(err, GP_NOMEM, "out of memory for %d chunks", window);
	for (int i = 0; i < window; i++) {
		e->slot[i].e = e;
		e->slot[i].index = i;
		e->slot[i].labels = gp_calloc((size_t)gp_split_chunk_samples(e), sizeof(int32_t));
		if (!e->slot[i].labels)
			GP_FAIL(err, GP_NOMEM, "out of memory for labels");
	}
	return GP_OK;
}

enum gp_status gp_split_make_directions(struct split_engine *e, struct gp_err *err)
{
	static const enum gp_frame_type types[DIRECTIONS] = {GP_FRAME_ACT_UP, GP_FRAME_ACT_DOWN, GP_FRAME_GRAD_UP,
							     GP_FRAME_GRAD_DOWN};
	/* A gradient passes the cut of the activation that it belongs to, the other way. */
	static const int activation_of[DIRECTIONS] = {-1, -1, ACT_DOWN, ACT_UP};
	const struct gp_engine_spec *spec = &e->base.spec;
	const struct gp_directions all = {.seed = spec->session.seed,
					  .slots = spec->session.window,
					  .chunks = (uint32_t)spec->session.chunks,
					  .train = !spec->session.eval_only,
					  .undo = spec->session.undo,
					  .client = true};
	for (int d = 0; d < (spec->session.eval_only ? GRAD_UP : DIRECTIONS); d++) {
		bool input = d == ACT_UP || d == GRAD_DOWN;
		const struct gp_shape *sample = input ? gp_graph_input_shape(e->body) : gp_graph_output_shape(e->body);
		struct gp_shape shape = gp_shape_batched(sample, gp_split_chunk_samples(e));
		const struct gp_direction *activation = activation_of[d] < 0 ? NULL : &e->dir[activation_of[d]];
		GP_TRY(gp_direction_init(&e->dir[d], types[d], &spec->session.codec[d], &shape, &all, activation,
					 e->codec_worker, e, err));
	}
	return GP_OK;
}

void gp_split_account_directions(struct split_engine *e)
{
	struct gp_account *a = &e->session.account;
	for (int d = 0; d < DIRECTIONS; d++) {
		struct gp_dir_account *way = d == ACT_UP || d == GRAD_UP ? &a->sent : &a->received;
		if (e->dir[d].codec)
			e->dir[d].account = &way->kind[e->dir[d].type];
	}
}

static enum gp_status open_session(struct split_engine *e, struct gp_err *err)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	e->open = (struct gp_client_open){.server = spec->server,
					  .body = e->body,
					  .weights = spec->init,
					  .spec = &spec->session,
					  .window_given = spec->window_given,
					  .connect_timeout_s = spec->connect_timeout_s,
					  .idle_timeout_s = spec->idle_timeout_s,
					  .reconnect_for_s = spec->reconnect_for_s,
					  .stop = spec->stop,
					  .security = spec->security,
					  .run = spec->run,
					  .restart = spec->run ? gp_split_restart : NULL,
					  .restart_arg = e};
	GP_TRY(gp_client_session_open(&e->session, &e->loop, &e->open, &gp_split_frames, e, err));
	e->session_open = true;
	gp_split_account_directions(e);
	return GP_OK;
}

enum gp_status gp_engine_new_split(const struct gp_engine_spec *spec, struct gp_engine **out, struct gp_err *err)
{
	static const struct gp_engine_ops ops = {.name = "split",
						 .step = gp_split_step,
						 .next = gp_split_next,
						 .evaluate = gp_split_evaluate,
						 .predict = gp_split_predict,
						 .get_weights = split_get_weights,
						 .figures = split_figures,
						 .print_profile = split_print_profile,
						 .free = split_free};
	struct split_engine *e = gp_calloc(1, sizeof *e);
	if (!e)
		GP_FAIL(err, GP_NOMEM, "out of memory for an engine");
	e->base.ops = &ops;
	e->base.spec = *spec;
	e->base.spec.session.undo = !spec->session.eval_only && spec->reconnect_for_s > 0;
	enum gp_status status = make_workers(e, err);
	if (status == GP_OK)
		status = make_plans(e, err);
	if (status == GP_OK)
		status = make_squares(e, err);
	if (status == GP_OK)
		status = make_slots(e, err);
	if (status == GP_OK)
		status = gp_split_make_directions(e, err);
	if (status == GP_OK)
		status = open_session(e, err);
	if (status != GP_OK) {
		split_free(&e->base);
		return status;
	}
	*out = &e->base;
	return GP_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See run_weights.h. Test: tests/e2e/export_server.sh
 */
#include "client/weights/run_weights.h"

#include <inttypes.h>
#include <string.h>

#include "client/train/run_state.h"
#include "common/wire/graph_msg.h"

/* By the text of the checkpoint, which has every option, and has to come to the graph that the run had. */
static enum gp_status build_graph(struct gp_job *j, const struct gp_run_weights_spec *spec, struct gp_err *err)
{
	const struct gp_saved_model *saved = spec->saved;
	const char *graph = gp_pairs_find(&spec->manifest->spec, "graph");
	struct gp_model_options o = {.input = saved->pictures.shape};
	char text[24];
	uint64_t hash;
	if (saved->tokens > 0)
		o.input = (struct gp_shape){.ndim = 1, .dim = {saved->tokens}};
	GP_TRY(gp_model_build_settled(saved->model, &o, &j->graph, j->model, err));
	GP_TRY(gp_job_settle_graph(j, err));
	GP_TRY(gp_graph_hash(j->graph, &hash, err));
	snprintf(text, sizeof text, "%016" PRIx64, hash);
	if (!graph || strcmp(graph, text) != 0)
		GP_FAIL(err, GP_INVALID,
			"%.100s: this version makes another network of %.100s; use the version that wrote the "
			"checkpoint",
			spec->dir, saved->model);
	return GP_OK;
}

static enum gp_status open_run(struct gp_run_weights *w, const struct gp_run_weights_spec *spec, struct gp_err *err)
{
	const struct gp_run_state_options o = {.dir = spec->dir,
					       .every = 1,
					       .total_steps = spec->manifest->step,
					       .resume = GP_RESUME_MUST,
					       .reads = true,
					       .spec = &spec->manifest->spec};
	return gp_run_state_open(&o, &w->run, err);
}

enum gp_status gp_run_weights_fetch(struct gp_run_weights *w, struct gp_job_settings *set,
				    const struct gp_run_weights_spec *spec, struct gp_err *err)
{
	struct gp_job *j = &w->job;
	GP_TRY(gp_job_begin(j, set, err));
	GP_TRY(build_graph(j, spec, err));
	GP_TRY(open_run(w, spec, err));
	GP_TRY(gp_weights_new(j->graph, &w->weights, err));
	GP_TRY(gp_job_open_engine(j, spec->optim, w->run, err));
	w->step = j->engine->steps;
	return j->engine->ops->get_weights(j->engine, w->weights, err);
}

void gp_run_weights_deinit(struct gp_run_weights *w)
{
	gp_weights_free(w->weights);
	gp_job_deinit(&w->job);
	gp_run_state_close(w->run);
	*w = (struct gp_run_weights){0};
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Split training with decaying ranks (common/graph/decay.h): replaces the plans of head and tail, and the flows, between two
 * steps. PROTOCOL.md section 5.3. The ranks depend on the number of steps alone, so an end that goes back to a checkpoint
 * knows them, too. Test: tests/unit/test_decay_engine.c, tests/e2e/decay.sh
 */
#include "client/engine/engine_split.h"

#include "common/base/loop.h"
#include "common/graph/plan_profile.h"
#include "common/graph/plan_replace.h"

typedef enum gp_status (*replace_fn)(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **plan,
				     struct gp_err *err);

/* The parts with the ranks behind so many steps. */
static enum gp_status find_crossing(struct split_engine *e, uint64_t steps, struct gp_crossing **out,
				    struct gp_err *err)
{
	const struct gp_engine_spec *spec = &e->base.spec;
	struct gp_graph *graph;
	GP_TRY(gp_decays_graph(&spec->session.decays, spec->graph, steps, &graph, err));
	const enum gp_status status = gp_crossing_find(graph, &spec->cut, &e->base.spec.session, out, err);
	gp_graph_free(graph);
	return status;
}

static enum gp_status replace_plans(struct split_engine *e, const struct gp_crossing *next, replace_fn replace,
				    struct gp_err *err)
{
	const struct gp_plan_spec head = gp_split_head_spec(e, next), tail = gp_split_tail_spec(e, next);
	GP_TRY(replace(e->device, &head, &e->head_plan, err));
	GP_TRY(replace(e->device, &tail, &e->tail_plan, err));
	return gp_split_begin_profiles(e, err);
}

/* Both plans are of the next one by now. After a failure each may be of either, so that both stay to the end. */
static void take_crossing(struct split_engine *e)
{
	if (e->cross != e->first_cross)
		gp_crossing_free(e->cross);
	e->cross = e->next_cross;
	e->next_cross = NULL;
	gp_client_session_set_body(&e->session, e->cross->parts.body);
}

/* --- at a step's border -------------------------------------------------------------------------------------------- */

static void run_replace(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	task->status = replace_plans(e, e->next_cross, gp_plan_replace, &task->err);
}

static void replace_done(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	e->replaced = true;
	e->compute_ns += task->end_ns - task->start_ns;
	if (task->status != GP_OK)
		gp_client_session_fail(&e->session, task->status, task->err.text);
}

/* Off the loop's thread: heartbeats go on. */
static enum gp_status replace_on_worker(struct split_engine *e, struct gp_err *err)
{
	e->replaced = false;
	e->replace = (struct gp_task){.run = run_replace, .done = replace_done, .arg = e};
	gp_worker_submit(&e->compute, &e->replace, 0);
	const enum gp_status status = gp_client_session_wait_here(&e->session, &e->replaced, err);
	while (e->compute.pending > 0)
		gp_loop_turn(&e->loop);
	return status;
}

enum gp_status gp_split_change_ranks(struct split_engine *e, uint64_t steps, struct gp_err *err)
{
	const struct gp_flow_options all = gp_split_flow_options(e);
	GP_TRY(find_crossing(e, steps, &e->next_cross, err));
	GP_TRY(replace_on_worker(e, err));
	take_crossing(e);
	return gp_flows_reshape(&e->flows, &e->cross->list, &all, err);
}

/* --- back to a checkpoint ------------------------------------------------------------------------------------------ */

enum gp_status gp_split_renew_ranks(struct split_engine *e, uint64_t steps, struct gp_err *err)
{
	if (e->base.spec.session.decays.count == 0)
		return GP_OK;
	GP_TRY(find_crossing(e, steps, &e->next_cross, err));
	GP_TRY(replace_plans(e, e->next_cross, gp_plan_renew, err));
	take_crossing(e);
	return gp_split_renew_flows(e, err);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A body with decaying ranks (common/graph/decay.h): between the update of a step that changes a rank and its
 * COMMITTED, the thread that makes plans replaces the plan and the flows by smaller ones; and the codecs, where the
 * step changes those (body_codec.c). PROTOCOL.md section 5.3. All memory for it was reserved at OPEN. Test:
 * tests/unit/test_decay_engine.c, tests/unit/test_decay_server.c
 */
#include "server/body_impl.h"

#include "common/graph/plan_replace.h"

enum gp_status gp_body_first_graph(struct gp_body *b, struct gp_err *err)
{
	const struct gp_decays *d = &b->spec.session.decays;
	b->graph = b->spec.graph;
	return d->count > 0 && b->step > 0 ? gp_decays_graph(d, b->spec.graph, b->step, &b->graph, err) : GP_OK;
}

static void take_graph(struct gp_body *b, struct gp_graph *next)
{
	if (b->graph != b->spec.graph)
		gp_graph_free(b->graph);
	b->graph = next;
}

void gp_body_free_graphs(struct gp_body *b)
{
	take_graph(b, NULL);
	gp_graph_free(b->spec.graph);
}

/* One graph more while they change. */
uint64_t gp_body_rank_bytes(const struct gp_body_spec *spec)
{
	if (spec->session.decays.count == 0)
		return 0;
	return 2 * gp_graph_bytes(spec->graph) +
	       gp_plan_replace_bytes(spec->graph, gp_session_codec(&spec->session, GP_STRUCT_STATE));
}

enum gp_status gp_body_estimate_ranks(struct gp_body *b,
				      enum gp_status (*estimate)(struct gp_body *b, struct gp_err *err),
				      struct gp_err *err)
{
	struct gp_graph *const now = b->graph, *later;
	if (b->estimated_step == b->step)
		return estimate(b, err);
	GP_TRY(gp_decays_graph(&b->spec.session.decays, b->spec.graph, b->estimated_step, &later, err));
	b->graph = later;
	const enum gp_status status = estimate(b, err);
	b->graph = now;
	gp_graph_free(later);
	return status;
}

bool gp_body_next_ranks(struct gp_body *b)
{
	const uint64_t next = gp_decays_next_change(&b->spec.session.decays, b->estimated_step);
	if (next > 0)
		b->estimated_step = next;
	return next > 0;
}

enum gp_status gp_body_check_ranks(const struct gp_body *b, uint64_t step, const uint32_t *rank, size_t count,
				   struct gp_err *err)
{
	const struct gp_decay_ranks want = gp_decays_ranks_at(&b->spec.session.decays, b->spec.graph, step + 1);
	bool same = count == (size_t)want.count;
	for (size_t i = 0; same && i < count; i++)
		same = rank[i] == want.rank[i];
	if (!same)
		GP_FAIL(err, GP_PROTO,
			"commit of step %llu names other ranks than the schedules of OPEN give (%d of them)",
			(unsigned long long)step, want.count);
	return GP_OK;
}

/* The old plan goes before the new one comes; the graph of the plan that there is stays. */
static enum gp_status replace_plan(struct gp_body *b, struct gp_err *err)
{
	struct gp_graph *next;
	GP_TRY(gp_decays_graph(&b->spec.session.decays, b->spec.graph, b->step, &next, err));
	struct gp_plan_spec ps = gp_body_plan_spec(b);
	ps.graph = next;
	const enum gp_status status = gp_plan_replace(b->dev, &ps, &b->plan, err);
	if (b->plan && b->plan->spec.graph != next)
		gp_graph_free(next);
	else
		take_graph(b, next);
	return status;
}

static enum gp_status change(struct gp_body *b, struct gp_err *err)
{
	GP_TRY(gp_body_check_stop(b, err));
	if (gp_decays_change_at(&b->spec.session.decays, b->step)) {
		GP_TRY(replace_plan(b, err));
		GP_TRY(gp_body_check_plan(b, err));
	}
	return gp_body_reshape_flows(b, err);
}

static void run_change(struct gp_task *task)
{
	task->status = change(task->arg, &task->err);
}

static void change_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	if (!gp_body_task_ok(b, task))
		return;
	b->changing = false;
	if (b->checkpoint_follows) {
		gp_body_checkpoint(b);
		if (b->checkpoint.refused)
			gp_body_checkpoint_refuse(b);
		return;
	}
	b->optim_pending = false;
	if (b->ch)
		b->cbs.committed(b->arg, b->step - 1);
	else
		gp_body_rest(b);
}

void gp_body_change(struct gp_body *b)
{
	b->build = (struct gp_task){.run = run_change, .done = change_done, .arg = b};
	gp_worker_submit(&b->build_lane, &b->build, 0);
}

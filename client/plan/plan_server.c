/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_server.h. Test: tests/e2e/plan.sh
 */
#include "client/plan/plan_server.h"

#include <stdio.h>

#include "client/plan/plan_blocks.h"
#include "client/trace/timeline.h"
#include "common/base/clock.h"
#include "common/base/mem.h"

enum { SAMPLES = 256, WARMUP = 1 };

struct watch {
	uint64_t first; /* chunks before it warm up */
	int chunks;
	int count[GP_AT_STAGES];
	double seconds[GP_AT_STAGES][SAMPLES]; /* of a stage's tensors together where they are of one chunk */
	uint64_t number[GP_AT_STAGES];         /* of the newest */
};

/* A chunk may have several tensors, one after another. */
static void seen(void *arg, const struct gp_interval *i)
{
	struct watch *w = arg;
	const double s = (double)(i->end_ns - i->begin_ns) * 1e-9;
	int *count = &w->count[i->stage];
	if (i->number < w->first || !gp_interval_of_server(i->stage))
		return;
	if (*count > 0 && w->number[i->stage] == i->number)
		w->seconds[i->stage][*count - 1] += s;
	else if (*count < SAMPLES)
		w->seconds[i->stage][(*count)++] = s;
	w->number[i->stage] = i->number;
}

static double median(struct watch *w, enum gp_interval_stage stage)
{
	return gp_plan_median(w->seconds[stage], w->count[stage]);
}

static enum gp_status step(struct gp_engine *e, struct gp_loader *loader, struct gp_err *err)
{
	struct gp_step_result result;
	struct gp_batch *batch;
	GP_TRY(e->ops->next(e, loader, &batch, err));
	const enum gp_status status = e->ops->step(e, batch, NULL, 0, &result, err);
	gp_loader_give_back(loader, batch);
	return status;
}

static enum gp_status do_steps(struct gp_engine *e, struct gp_loader *loader, int steps, double seconds,
			       struct gp_plan_server *out, struct gp_err *err)
{
	const uint64_t begin = gp_now_ns();
	for (int i = 0; i < WARMUP + steps + 1; i++) { /* the last one is told with the step behind it */
		GP_TRY(step(e, loader, err));
		if (i > WARMUP && (double)(gp_now_ns() - begin) * 1e-9 > seconds)
			break;
		out->steps = i;
	}
	return GP_OK;
}

static void take(struct gp_engine *e, struct watch *w, struct gp_plan_server *out)
{
	struct gp_engine_figures f;
	e->ops->figures(e, &f);
	out->forward_s = median(w, GP_AT_BODY_FORWARD);
	out->backward_s = median(w, GP_AT_BODY_BACKWARD);
	out->update_s = median(w, GP_AT_BODY_UPDATE);
	out->coded_s[GP_ACT_UP] = median(w, GP_AT_ACT_UP_DECODE);
	out->coded_s[GP_GRAD_UP] = median(w, GP_AT_GRAD_UP_DECODE);
	out->coded_s[GP_ACT_DOWN] = median(w, GP_AT_ACT_DOWN_ENCODE);
	out->coded_s[GP_GRAD_DOWN] = median(w, GP_AT_GRAD_DOWN_ENCODE);
	out->memory_bytes = f.server_memory_bytes + f.server_device_bytes;
	out->limit_bytes = f.server_limit_bytes;
	snprintf(out->device, sizeof out->device, "%s", f.server_device ? f.server_device : "");
}

enum gp_status gp_plan_server_measure(struct gp_engine *engine, struct gp_loader *loader, int steps, double seconds,
				      struct gp_plan_server *out, struct gp_err *err)
{
	struct watch *w;
	struct gp_plan_server made = {0};
	GP_TRY(gp_alloc_array((void **)&w, 1, sizeof *w, err));
	w->first = (uint64_t)WARMUP * (uint64_t)engine->spec.session.chunks;
	gp_timeline_watch(engine->timeline, seen, w);
	enum gp_status status = do_steps(engine, loader, steps, seconds, &made, err);
	gp_timeline_watch(engine->timeline, NULL, NULL);
	if (status == GP_OK && w->count[GP_AT_BODY_FORWARD] == 0)
		status = gp_err_set(
			err, GP_UNSUPPORTED, 0, __FILE__, __LINE__,
			"%s is too old to tell how long it takes for what; without --server, --server-speed X "
			"says how much faster than this machine it is",
			engine->spec.server);
	if (status == GP_OK)
		take(engine, w, &made);
	gp_free(w);
	if (status == GP_OK)
		*out = made;
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See insert_fit.h. Test: tests/e2e/insert.sh
 */
#include "client/insert/insert_fit.h"

#include <math.h>

#include "common/graph/optim.h"

struct fitting {
	const struct gp_insert_fit *fit;
	enum gp_insert_end end;
	struct gp_insert_values values;
	struct gp_graph *graph; /* encoder and decoder */
	struct gp_plan *plan;
};

static enum gp_status open_pair(struct fitting *f, struct gp_err *err)
{
	const struct gp_insert_source *from = &f->fit->from;
	const struct gp_device_ops *ops = f->values.device->ops;
	GP_TRY(gp_insert_alone(from->ins, f->end, from->ins->end[f->end].spec.sets, true, &f->graph, err));
	const struct gp_plan_spec spec = {.graph = f->graph,
					  .batch = from->batch,
					  .slots = 1,
					  .train = true,
					  .seed = from->seed,
					  .optim = f->fit->optim,
					  .params_given = true};
	GP_TRY(ops->plan_new(f->values.device, &spec, &f->plan, err));
	return gp_insert_set_weights(f->plan, from->weights, err);
}

/* The sums of squares of the reconstruction's error and of the values; `gradient`, if given, gets that of the mean squared
 * error. */
struct squares {
	double lost, all;
};

static struct squares compare(const struct fitting *f, const float *x, const float *y, float *gradient)
{
	const float scale = 2.0f / (float)f->values.count;
	struct squares s = {0};
	for (uint64_t i = 0; i < f->values.count; i++) {
		const float d = y[i] - x[i];
		s.lost += (double)d * (double)d;
		s.all += (double)x[i] * (double)x[i];
		if (gradient)
			gradient[i] = scale * d;
	}
	return s;
}

/* One batch forward, as an evaluation or a step of training computes it. */
static enum gp_status go_forward(struct fitting *f, enum gp_mode mode, struct squares *out, struct gp_err *err)
{
	const struct gp_device_ops *ops = f->values.device->ops;
	const float *x;
	GP_TRY(gp_insert_values_next(&f->values, &x, err));
	memcpy(ops->buffer(f->plan, 0, GP_BUF_INPUT, 0), x, f->values.count * sizeof *x);
	GP_TRY(ops->forward(f->plan, 0, mode, 0, err));
	*out = compare(f, x, ops->buffer(f->plan, 0, GP_BUF_OUTPUT, 0),
		       mode == GP_TRAIN ? ops->buffer(f->plan, 0, GP_BUF_GRAD_OUTPUT, 0) : NULL);
	return GP_OK;
}

static double relative(const struct squares *s)
{
	return s->all > 0 ? sqrt(s->lost / s->all) : s->lost > 0 ? INFINITY : 0;
}

static enum gp_status measure(struct fitting *f, double *error, struct gp_err *err)
{
	struct gp_insert_source checks = f->fit->from;
	struct squares sum = {0}, one;
	GP_TRY(gp_loader_seek(f->fit->checks, 0, 0, err));
	const struct gp_insert_source *const trained = f->values.from;
	checks.loader = f->fit->checks;
	f->values.from = &checks;
	enum gp_status status = GP_OK;
	for (int i = 0; i < f->fit->check_batches && status == GP_OK; i++) {
		status = go_forward(f, GP_EVAL, &one, err);
		sum.lost += status == GP_OK ? one.lost : 0;
		sum.all += status == GP_OK ? one.all : 0;
	}
	f->values.from = trained;
	*error = relative(&sum);
	return status;
}

/* From --lr to nothing along a cosine. */
static float rate_at(const struct gp_insert_fit *fit, int step)
{
	const struct gp_schedule s = {.kind = GP_SCHEDULE_COSINE, .base_lr = fit->lr, .total_steps = fit->steps};
	return gp_schedule_lr(&s, step);
}

static enum gp_status take_step(struct fitting *f, int step, struct gp_err *err)
{
	const struct gp_device_ops *ops = f->values.device->ops;
	struct squares s;
	GP_TRY(go_forward(f, GP_TRAIN, &s, err));
	const double error = relative(&s);
	if (!isfinite(error))
		GP_FAIL(err, GP_INVALID, "what the layers make is not finite any more in step %d: a smaller --lr helps",
			step + 1);
	GP_TRY(ops->backward(f->plan, 0, err));
	GP_TRY(ops->optim_step(f->plan, rate_at(f->fit, step), err));
	if (f->fit->progress)
		f->fit->progress(f->fit->arg, f->end, step + 1, error);
	return GP_OK;
}

static enum gp_status run(struct fitting *f, struct gp_insert_error *out, struct gp_err *err)
{
	GP_TRY(gp_insert_values_open(&f->values, &f->fit->from, f->end, err));
	GP_TRY(open_pair(f, err));
	GP_TRY(measure(f, &out->before, err));
	for (int i = 0; i < f->fit->steps; i++)
		GP_TRY(take_step(f, i, err));
	GP_TRY(measure(f, &out->after, err));
	if (!(out->after < out->before)) { /* as where PCA has left nothing to gain */
		out->after = out->before;
		return GP_OK;
	}
	return gp_insert_get_weights(f->plan, f->fit->from.weights, err);
}

enum gp_status gp_insert_fit(const struct gp_insert_fit *fit, enum gp_insert_end end, struct gp_insert_error *out,
			     struct gp_err *err)
{
	struct fitting f = {.fit = fit, .end = end};
	const enum gp_status status = run(&f, out, err);
	if (f.plan)
		f.values.device->ops->plan_free(f.plan);
	gp_graph_free(f.graph);
	gp_insert_values_close(&f.values);
	return status;
}

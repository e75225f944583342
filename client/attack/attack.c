/* SPDX-License-Identifier: Apache-2.0
 *
 * See attack.h. Tests: tests/unit/test_attack.c, tests/e2e/attack.sh
 */
#include "client/attack/attack.h"

#include <math.h>
#include <string.h>

#include "client/attack/attack_decoder.h"
#include "common/base/mem.h"
#include "common/graph/optim.h"

struct attacking {
	const struct gp_attack *a;
	struct gp_attack_source source;
	struct gp_graph *graph; /* the decoder */
	uint64_t read;          /* tensors that it reads */
	struct gp_plan *plan;
	size_t each, channels; /* numbers of a picture, and of a place of it */
	double *mean;          /* (each): sums over the training pictures, on the scale 0 to 1 */
	uint64_t learnt;       /* pictures in it */
	/* Kept for the correlation: `kept` of `keep` samples. */
	int keep, kept;
	float *inputs, *crossed;
	size_t crossed_each;
};

/* --- pictures ---------------------------------------------------------------------------------------------------- */

/* Number i of a picture as the model reads it, on the scale 0 to 1. */
static double level(const struct attacking *k, size_t i, float prepared)
{
	const struct gp_preparation *p = &k->a->pictures;
	const size_t c = i % k->channels;
	return (double)prepared * (double)p->std[c] + (double)p->mean[c];
}

static double limited(double x)
{
	return x < 0 ? 0 : x > 1 ? 1 : x;
}

static const float *picture(const struct gp_batch *batch)
{
	return batch->data[0];
}

static const float *restored(const struct attacking *k)
{
	return k->plan->ops->buffer(k->plan, 0, GP_BUF_OUTPUT, 0);
}

static void keep_pictures(const struct attacking *k, const struct gp_batch *batch, struct gp_attack_result *out)
{
	const size_t count = (size_t)out->shown * k->each;
	for (size_t i = 0; i < count; i++) {
		out->original[i] = (uint8_t)lrint(255 * limited(level(k, i, picture(batch)[i])));
		out->restored[i] = (uint8_t)lrint(255 * limited(level(k, i, restored(k)[i])));
	}
}

/* --- the decoder ------------------------------------------------------------------------------------------------- */

static enum gp_status open_decoder(struct attacking *k, struct gp_err *err)
{
	const struct gp_attack_victim *v = &k->a->victim;
	struct gp_shape shape[GP_GRAPH_MAX_PORTS];
	for (int i = 0; i < k->source.tensors; i++)
		shape[i] = k->source.tensor[i].shape;
	GP_TRY(gp_attack_decoder(shape, k->source.tensors, &k->a->pictures.shape, &k->read, &k->graph, err));
	const struct gp_plan_spec spec = {.graph = k->graph,
					  .batch = v->batch,
					  .slots = 1,
					  .train = true,
					  .seed = v->seed,
					  .optim = {.kind = GP_OPTIM_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f}};
	return k->source.device->ops->plan_new(k->source.device, &spec, &k->plan, err);
}

static enum gp_status go_forward(struct attacking *k, enum gp_mode mode, uint64_t draw, struct gp_err *err)
{
	int input = 0;
	for (int i = 0; i < k->source.tensors; i++) {
		const struct gp_attack_tensor *t = &k->source.tensor[i];
		if (k->read >> i & 1)
			memcpy(k->plan->ops->buffer(k->plan, 0, GP_BUF_INPUT, input++), t->x,
			       (size_t)k->a->victim.batch * t->each * sizeof *t->x);
	}
	return k->plan->ops->forward(k->plan, 0, mode, draw, err);
}

/* The gradient of half the mean squared error of what the model reads, and the mean squared error on the scale 0 to 1. */
static double compare(struct attacking *k, const struct gp_batch *batch, float *gradient)
{
	const size_t count = (size_t)k->a->victim.batch * k->each;
	const float *x = picture(batch), *y = restored(k);
	double sum = 0;
	for (size_t i = 0; i < count; i++) {
		const double wrong = (double)(y[i] - x[i]) * (double)k->a->pictures.std[i % k->channels];
		sum += wrong * wrong;
		gradient[i] = (y[i] - x[i]) / (float)count;
	}
	return sum / (double)count;
}

static void add_to_mean(struct attacking *k, const struct gp_batch *batch)
{
	const size_t count = (size_t)k->a->victim.batch * k->each;
	for (size_t i = 0; i < count; i++)
		k->mean[i % k->each] += level(k, i, picture(batch)[i]);
	k->learnt += (uint64_t)k->a->victim.batch;
}

static float rate_at(const struct gp_attack *a, uint64_t step)
{
	const struct gp_schedule s = {.kind = GP_SCHEDULE_COSINE, .base_lr = a->lr, .total_steps = (int64_t)a->steps};
	return gp_schedule_lr(&s, (int64_t)step);
}

static enum gp_status learn(struct attacking *k, const struct gp_batch *batch, uint64_t step, double *error,
			    struct gp_err *err)
{
	const struct gp_device_ops *ops = k->plan->ops;
	add_to_mean(k, batch);
	GP_TRY(go_forward(k, GP_TRAIN, step, err));
	*error = compare(k, batch, ops->buffer(k->plan, 0, GP_BUF_GRAD_OUTPUT, 0));
	if (!isfinite(*error))
		GP_FAIL(err, GP_CANCELED,
			"the decoder diverged at step %llu, or a number at the cut is not finite: a smaller --lr helps",
			(unsigned long long)step + 1);
	GP_TRY(ops->backward(k->plan, 0, err));
	return ops->optim_step(k->plan, rate_at(k->a, step), err);
}

static enum gp_status take_step(struct attacking *k, uint64_t step, struct gp_err *err)
{
	struct gp_batch *batch;
	double error;
	GP_TRY(gp_attack_source_next(&k->source, k->a->train, false, &batch, err));
	const enum gp_status status = learn(k, batch, step, &error, err);
	gp_loader_give_back(k->a->train, batch);
	if (status == GP_OK && k->a->progress)
		k->a->progress(k->a->arg, step + 1, error);
	return status;
}

/* --- pictures held back ------------------------------------------------------------------------------------------ */

struct errors {
	double restored, mean; /* sums of squares */
};

static void add_errors(const struct attacking *k, const struct gp_batch *batch, struct errors *sum)
{
	const size_t count = (size_t)k->a->victim.batch * k->each;
	for (size_t i = 0; i < count; i++) {
		const double x = level(k, i, picture(batch)[i]);
		const double y = limited(level(k, i, restored(k)[i]));
		const double m = k->mean[i % k->each] / (double)k->learnt;
		sum->restored += (y - x) * (y - x);
		sum->mean += (m - x) * (m - x);
	}
}

static void keep_samples(struct attacking *k, const struct gp_batch *batch)
{
	for (int n = 0; n < k->a->victim.batch && k->kept < k->keep; n++, k->kept++) {
		float *to = k->crossed + (size_t)k->kept * k->crossed_each;
		memcpy(k->inputs + (size_t)k->kept * k->each, picture(batch) + (size_t)n * k->each,
		       k->each * sizeof *to);
		for (int i = 0; i < k->source.tensors; i++) {
			const struct gp_attack_tensor *t = &k->source.tensor[i];
			memcpy(to, t->x + (size_t)n * t->each, t->each * sizeof *to);
			to += t->each;
		}
	}
}

static enum gp_status check(struct attacking *k, uint32_t number, struct errors *sum, struct gp_attack_result *out,
			    struct gp_err *err)
{
	struct gp_batch *batch;
	GP_TRY(gp_attack_source_next(&k->source, k->a->check, true, &batch, err));
	const enum gp_status status = go_forward(k, GP_EVAL, 0, err);
	if (status == GP_OK) {
		add_errors(k, batch, sum);
		keep_samples(k, batch);
		if (number == 0)
			keep_pictures(k, batch, out);
		out->checked += (uint64_t)k->a->victim.batch;
		out->payload_bytes += (double)k->source.payload_bytes;
	}
	gp_loader_give_back(k->a->check, batch);
	return status;
}

static double psnr(double squares, double numbers)
{
	return squares > 0 ? 10 * log10(numbers / squares) : INFINITY;
}

static enum gp_status check_all(struct attacking *k, struct gp_attack_result *out, struct gp_err *err)
{
	struct errors sum = {0};
	for (uint32_t i = 0; i < k->a->check_batches; i++)
		GP_TRY(check(k, i, &sum, out, err));
	const double numbers = (double)out->checked * (double)k->each;
	out->psnr_db = psnr(sum.restored, numbers);
	out->mean_picture_psnr_db = psnr(sum.mean, numbers);
	out->payload_bytes /= (double)out->checked;
	out->samples = k->kept;
	return gp_distance_correlation(k->inputs, k->each, k->crossed, k->crossed_each, k->kept, &out->correlation,
				       err);
}

/* --- all --------------------------------------------------------------------------------------------------------- */

static enum gp_status take_memory(struct attacking *k, struct gp_attack_result *out, struct gp_err *err)
{
	for (int i = 0; i < k->source.tensors; i++)
		k->crossed_each += k->source.tensor[i].each;
	const size_t more = k->crossed_each > k->each ? k->crossed_each : k->each;
	k->keep = gp_distance_samples((int64_t)k->a->check_batches * k->a->victim.batch, more);
	out->shown = k->a->shown < k->a->victim.batch ? k->a->shown : k->a->victim.batch;
	k->mean = gp_calloc(k->each, sizeof *k->mean);
	k->inputs = gp_calloc((size_t)k->keep, k->each * sizeof *k->inputs);
	k->crossed = gp_calloc((size_t)k->keep, k->crossed_each * sizeof *k->crossed);
	out->original = gp_calloc((size_t)out->shown + 1, k->each);
	out->restored = gp_calloc((size_t)out->shown + 1, k->each);
	if (!k->mean || !k->inputs || !k->crossed || !out->original || !out->restored)
		GP_FAIL(err, GP_NOMEM, "no memory for the pictures and what crosses of them");
	return GP_OK;
}

static enum gp_status run(struct attacking *k, struct gp_attack_result *out, struct gp_err *err)
{
	const struct gp_attack *a = k->a;
	GP_TRY(gp_attack_source_open(&k->source, &a->victim, err));
	k->each = gp_shape_elements(&a->pictures.shape);
	k->channels = (size_t)a->pictures.shape.dim[2];
	GP_TRY(open_decoder(k, err));
	GP_TRY(take_memory(k, out, err));
	for (uint64_t i = 0; i < a->steps && !(a->stop && *a->stop); i++, out->steps++)
		GP_TRY(take_step(k, i, err));
	if (out->steps == 0)
		GP_FAIL(err, GP_CANCELED, "stopped by a signal before the first step");
	out->tensors = k->source.tensors;
	out->tensors_read = __builtin_popcountll(k->read);
	out->decoder_parameters = k->graph->trained_elements;
	return check_all(k, out, err);
}

enum gp_status gp_attack_run(const struct gp_attack *a, struct gp_attack_result *out, struct gp_err *err)
{
	struct attacking k = {.a = a};
	struct gp_attack_result made = {0};
	const enum gp_status status = run(&k, &made, err);
	if (k.plan)
		k.plan->ops->plan_free(k.plan);
	gp_graph_free(k.graph);
	gp_attack_source_close(&k.source);
	gp_free(k.mean);
	gp_free(k.inputs);
	gp_free(k.crossed);
	if (status == GP_OK)
		*out = made;
	else
		gp_attack_result_deinit(&made);
	return status;
}

void gp_attack_result_deinit(struct gp_attack_result *r)
{
	gp_free(r->original);
	gp_free(r->restored);
	*r = (struct gp_attack_result){0};
}

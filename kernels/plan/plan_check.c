/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan refuses on every device. See plan_check.h.
 * Tests: tests/unit/test_cpu_plan.c, tests/unit/test_cuda_plan.c, tests/unit/test_cuda_train.c
 */
#include "kernels/plan/plan_check.h"

#include <math.h>

/* Room for one chunk of any value. */
#define MAX_CHUNK_ELEMENTS  ((uint64_t)1 << 36)
/* The limit of one sample: kernels count pixels, and windows over them, in 31 bits. A graph may have one more. */
#define MAX_SAMPLE_ELEMENTS (((uint64_t)1 << 31) - 1)
#define MAX_SLOTS           4096
/* All values of one chunk: several times that, in bytes and for every slot, are far below 2^64. */
#define MAX_ELEMENTS        ((uint64_t)1 << 46)

static enum gp_status check_value(const struct gp_graph *g, int value, int batch, uint64_t *sum, struct gp_err *err)
{
	const struct gp_node *n = gp_graph_maker(g, value);
	const uint64_t elements = gp_shape_elements(&g->value[value].type.shape);
	if (elements > MAX_SAMPLE_ELEMENTS)
		GP_FAIL(err, GP_INVALID, "%s has %llu elements in one sample; a plan takes %llu at most", n->name,
			(unsigned long long)elements, (unsigned long long)MAX_SAMPLE_ELEMENTS);
	if (elements > MAX_CHUNK_ELEMENTS / (uint64_t)batch)
		GP_FAIL(err, GP_NOMEM, "%s is too large at %d samples per chunk", n->name, batch);
	*sum += elements * (uint64_t)batch; /* at most 2^18 values of 2^36 */
	if (*sum > MAX_ELEMENTS)
		GP_FAIL(err, GP_NOMEM, "%s is too large at %d samples per chunk", g->name, batch);
	return GP_OK;
}

/* kernels/cpu/plan/cpu_moments.c says why. */
static enum gp_status check_state(const struct gp_plan_spec *spec, struct gp_err *err)
{
	const struct gp_optim *o = &spec->optim;
	if (spec->train && spec->coded[GP_STRUCT_STATE] && o->kind != GP_OPTIM_SGD && o->beta1 * o->beta1 >= o->beta2)
		GP_FAIL(err, GP_UNSUPPORTED,
			"Adam's state can be kept encoded only where the square of the first beta is below the second; "
			"they are %g and %g",
			o->beta1, o->beta2);
	return GP_OK;
}

enum gp_status gp_plan_check_spec(const struct gp_plan_spec *spec, struct gp_err *err)
{
	const struct gp_graph *g = spec->graph;
	uint64_t sum = 0;
	if (spec->batch < 1)
		GP_FAIL(err, GP_INVALID, "a plan needs at least one sample per chunk (got %d)", spec->batch);
	if (spec->slots < 1 || spec->slots > MAX_SLOTS)
		GP_FAIL(err, GP_INVALID, "%d chunks in flight; it must be 1..%d", spec->slots, MAX_SLOTS);
	if (g->nodes <= g->inputs)
		GP_FAIL(err, GP_INVALID, "model part %s computes nothing", g->name);
	for (int i = 0; i < g->values; i++)
		GP_TRY(check_value(g, i, spec->batch, &sum, err));
	return check_state(spec, err);
}

/* `least`: 0, or GP_NO_LABEL where rows need not have a label. */
static enum gp_status check_classes(const int32_t *labels, int64_t rows, int32_t least, int64_t classes,
				    struct gp_err *err)
{
	for (int64_t i = 0; i < rows; i++)
		if (labels[i] < least || labels[i] >= classes)
			GP_FAIL(err, GP_INVALID, "label %d does not fit a model with %lld classes", labels[i],
				(long long)classes);
	return GP_OK;
}

static enum gp_status check_values_to_learn(const float *labels, int valid, int64_t outputs, struct gp_err *err)
{
	if (outputs != 1)
		GP_FAIL(err, GP_INVALID, "a model with %lld outputs does not predict one value", (long long)outputs);
	for (int i = 0; i < valid; i++)
		if (!isfinite(labels[i]))
			GP_FAIL(err, GP_INVALID, "a value to predict is not finite");
	return GP_OK;
}

/* One row of scores, or P of them; those of a sequence would be as many as the chunk has positions. */
static bool has_rows_of_scores(const struct gp_plan *plan)
{
	const struct gp_graph *g = plan->spec.graph;
	const struct gp_graph_value *v = &g->value[g->output[0].value];
	return v->type.dtype == GP_F32 && v->type.shape.ndim <= 2 && !v->sequence;
}

int64_t gp_plan_label_rows(const struct gp_plan *plan)
{
	const struct gp_shape *shape = gp_graph_output_shape(plan->spec.graph);
	if (!has_rows_of_scores(plan))
		return 0;
	return shape->ndim == 2 ? shape->dim[0] : 1;
}

enum gp_status gp_plan_check_labels(const struct gp_plan *plan, const void *labels, int valid, struct gp_err *err)
{
	const struct gp_shape *shape = gp_graph_output_shape(plan->spec.graph);
	const int64_t each = gp_plan_label_rows(plan), outputs = shape->dim[shape->ndim - 1];
	if (!has_rows_of_scores(plan))
		GP_FAIL(err, GP_INVALID, "the output of %s is neither a row of class scores nor a number of them",
			plan->spec.graph->name);
	if (valid < 0 || valid > plan->spec.batch)
		GP_FAIL(err, GP_INTERNAL, "%d valid samples in a chunk of %d", valid, plan->spec.batch);
	if (plan->spec.loss == GP_LOSS_SQUARED_ERROR)
		return check_values_to_learn(labels, valid, each * outputs, err);
	return check_classes(labels, valid * each, shape->ndim == 2 ? GP_NO_LABEL : 0, outputs, err);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See insert_pca.h. Test: tests/e2e/insert.sh
 */
#include "client/insert/insert_pca.h"

#include <stdio.h>

#include "client/insert/eigen.h"
#include "common/base/mem.h"

#define PCA_MOST 4096
#define TOGETHER 8 /* rows that are added to the moments at once */

/* Only linear and bottleneck have a start. */
static bool starts_with_pca(const struct gp_insert_set *set)
{
	return set->kind != GP_INSERT_CONV && set->start == GP_INSERT_PCA;
}

bool gp_insert_wants_pca(const struct gp_insertion_end *end)
{
	for (int i = 0; i < end->spec.sets; i++)
		if (starts_with_pca(&end->spec.set[i]))
			return true;
	return false;
}

/* Second moments of rows of `n` features: the lower triangle of (n,n). */
struct moments {
	double *sum, *row;
	int64_t n;
	int rows; /* that wait in `row`, (TOGETHER,n) */
};

static void add_rows(struct moments *m)
{
	for (int64_t i = 0; i < m->n; i++) {
		double *const to = m->sum + i * m->n;
		for (int r = 0; r < m->rows; r++) {
			const double *const x = m->row + r * m->n;
			const double xi = x[i];
			for (int64_t k = 0; k <= i; k++)
				to[k] += xi * x[k];
		}
	}
	m->rows = 0;
}

static void add_row(struct moments *m, const float *x, int64_t stride)
{
	for (int64_t i = 0; i < m->n; i++)
		m->row[m->rows * m->n + i] = (double)x[i * stride];
	if (++m->rows == TOGETHER)
		add_rows(m);
}

/* One sample: of (H,W,C) and (S,F) a row for each position; along the sequence one for each feature. */
static void add_sample(struct moments *m, const float *x, const struct gp_shape *shape, const struct gp_insert_set *set)
{
	const bool along = set->dim == GP_INSERT_SEQUENCE;
	const int64_t last = shape->dim[shape->ndim - 1], others = (int64_t)gp_shape_elements(shape) / last;
	const int64_t rows = along ? last : others, step = (rows + GP_PCA_ROWS - 1) / GP_PCA_ROWS;
	for (int64_t r = 0; r < rows; r += step)
		add_row(m, x + (along ? r : r * last), along ? last : 1);
}

/* --- values in front of a set ------------------------------------------------------------------------------------ */

/* The sets before it, or nothing where it is the first. */
struct before {
	struct gp_graph *graph;
	struct gp_plan *plan;
};

static enum gp_status open_before(struct before *b, const struct gp_insert_values *v, enum gp_insert_end end, int set,
				  struct gp_err *err)
{
	*b = (struct before){0};
	if (set == 0)
		return GP_OK;
	GP_TRY(gp_insert_alone(v->from->ins, end, set, false, &b->graph, err));
	const struct gp_plan_spec spec = {.graph = b->graph, .batch = v->from->batch, .slots = 1, .params_given = true};
	GP_TRY(v->device->ops->plan_new(v->device, &spec, &b->plan, err));
	return gp_insert_set_weights(b->plan, v->from->weights, err);
}

static void close_before(struct before *b, const struct gp_insert_values *v)
{
	if (b->plan)
		v->device->ops->plan_free(b->plan);
	gp_graph_free(b->graph);
}

static enum gp_status next_value(struct gp_insert_values *v, const struct before *b, const float **out,
				 struct gp_err *err)
{
	GP_TRY(gp_insert_values_next(v, out, err));
	if (!b->plan)
		return GP_OK;
	memcpy(v->device->ops->buffer(b->plan, 0, GP_BUF_INPUT, 0), *out, v->count * sizeof **out);
	GP_TRY(v->device->ops->forward(b->plan, 0, GP_EVAL, 0, err));
	*out = v->device->ops->buffer(b->plan, 0, GP_BUF_OUTPUT, 0);
	return GP_OK;
}

/* --- a set ------------------------------------------------------------------------------------------------------- */

static enum gp_status sum_moments(struct gp_insert_values *v, const struct before *b, const struct gp_shape *shape,
				  const struct gp_insert_set *set, struct moments *m, struct gp_err *err)
{
	const uint64_t size = gp_shape_elements(shape);
	const float *x;
	for (int seen = 0; seen < GP_PCA_SAMPLES; seen += v->from->batch) {
		GP_TRY(next_value(v, b, &x, err));
		for (int i = 0; i < v->from->batch && seen + i < GP_PCA_SAMPLES; i++)
			add_sample(m, x + (uint64_t)i * size, shape, set);
	}
	add_rows(m);
	return GP_OK;
}

static float *weight_of(const struct gp_insert_source *from, enum gp_insert_end end, const char *part, int index)
{
	char name[GP_NAME_MAX];
	snprintf(name, sizeof name, GP_INSERT_PREFIX "%s.%s.%d.weight", gp_insert_end_name[end], part, index);
	const int param = gp_graph_find_param(from->weights->graph, name);
	gp_require(param >= 0);
	return from->weights->value[param];
}

/* (rank,n) and its mirror (n,rank), of eigenvectors in rows. */
static void set_pair(const struct gp_insert_source *from, enum gp_insert_end end, int index, const struct moments *m)
{
	const struct gp_insert_spec *spec = &from->ins->end[end].spec;
	const int64_t rank = spec->set[index].rank;
	float *there = weight_of(from, end, "encoder", index);
	float *back = weight_of(from, end, "decoder", spec->sets - 1 - index);
	for (int64_t r = 0; r < rank; r++)
		for (int64_t i = 0; i < m->n; i++)
			there[r * m->n + i] = back[i * rank + r] = (float)m->sum[r * m->n + i];
}

static enum gp_status start_with(struct gp_insert_values *v, enum gp_insert_end end, int index, const struct before *b,
				 struct gp_err *err)
{
	const struct gp_insert_set *set = &v->from->ins->end[end].spec.set[index];
	const struct gp_shape *shape = b->graph ? gp_graph_output_shape(b->graph) : &v->from->ins->end[end].plain;
	struct moments m = {.n = shape->dim[set->dim == GP_INSERT_SEQUENCE ? 0 : shape->ndim - 1]};
	const size_t n = (size_t)m.n;
	void *memory;
	if (m.n > PCA_MOST)
		GP_FAIL(err, GP_USAGE,
			"it is for at most %d features, because of these %lld it would take hours; give start=random "
			"or "
			"start=identity",
			PCA_MOST, (long long)m.n);
	GP_TRY(gp_alloc_array(&memory, n * (n + TOGETHER + 1), sizeof(double), err));
	m.sum = memory;
	m.row = m.sum + n * n;
	memset(m.sum, 0, n * n * sizeof *m.sum);
	enum gp_status status = sum_moments(v, b, shape, set, &m, err);
	if (status == GP_OK)
		status = gp_eigen_symmetric(m.sum, m.row + n * TOGETHER, m.n, err);
	if (status == GP_OK)
		set_pair(v->from, end, index, &m);
	gp_free(memory);
	return status;
}

static enum gp_status start_sets(struct gp_insert_values *v, enum gp_insert_end end, struct gp_err *err)
{
	const struct gp_insert_spec *spec = &v->from->ins->end[end].spec;
	for (int i = 0; i < spec->sets; i++) {
		struct before b;
		if (!starts_with_pca(&spec->set[i]))
			continue;
		enum gp_status status = open_before(&b, v, end, i, err);
		if (status == GP_OK)
			status = start_with(v, end, i, &b, err);
		close_before(&b, v);
		if (status != GP_OK)
			return gp_err_prefix(err, "--%s: start=pca", v->from->ins->end[end].flag);
	}
	return GP_OK;
}

enum gp_status gp_insert_pca(const struct gp_insert_source *from, enum gp_insert_end end, struct gp_err *err)
{
	struct gp_insert_values v;
	GP_TRY(gp_insert_values_open(&v, from, end, err));
	const enum gp_status status = start_sets(&v, end, err);
	gp_insert_values_close(&v);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See insert_pca.h. Tests: tests/unit/test_insert_pca.c, tests/e2e/insert.sh
 */
#include "client/insert/insert_pca.h"

#include <stdio.h>

#include "client/insert/eigen.h"
#include "common/base/mem.h"

#define PCA_MOST          4096
#define TOGETHER          8 /* rows that are added to the moments at once */
/* With a few rows for each feature, the directions of samples that were not read are others. */
#define ROWS_OF_A_FEATURE 32

/* A decay always begins as the identity. */
static bool starts_with_pca(const struct gp_insert_set *set)
{
	return set->start == GP_INSERT_PCA;
}

bool gp_insert_wants_pca(const struct gp_insertion_end *end)
{
	for (int i = 0; i < end->spec.sets; i++)
		if (starts_with_pca(&end->spec.set[i]))
			return true;
	return false;
}

/* --- moments ----------------------------------------------------------------------------------------------------- */

/* Sums over rows of `n` features. */
struct moments {
	double *sum;    /* of products, the lower triangle of (n,n); eigenvectors in rows in the end */
	double *total;  /* (n): of rows */
	double *centre; /* (n): what is subtracted from each row, zeros where nothing is */
	double *value;  /* (n): eigenvalues */
	double *row;    /* (TOGETHER,n) */
	int64_t n, count;
	int rows; /* that wait in `row` */
};

static enum gp_status open_moments(struct moments *m, int64_t n, struct gp_err *err)
{
	const size_t count = (size_t)n * (size_t)(n + 3 + TOGETHER);
	*m = (struct moments){.n = n};
	GP_TRY(gp_alloc_array((void **)&m->sum, count, sizeof *m->sum, err));
	m->total = m->sum + n * n;
	m->centre = m->total + n;
	m->value = m->centre + n;
	m->row = m->value + n;
	return GP_OK;
}

static void close_moments(struct moments *m)
{
	gp_free(m->sum);
}

static void add_rows(struct moments *m)
{
	for (int64_t i = 0; i < m->n; i++) {
		double *const to = m->sum + i * m->n;
		for (int r = 0; r < m->rows; r++) {
			const double *const x = m->row + r * m->n;
			const double xi = x[i];
			for (int64_t k = 0; k <= i; k++)
				to[k] += xi * x[k];
			m->total[i] += xi;
		}
	}
	m->count += m->rows;
	m->rows = 0;
}

static double *next_row(const struct moments *m)
{
	return m->row + m->rows * m->n;
}

static void take_row(struct moments *m)
{
	if (++m->rows == TOGETHER)
		add_rows(m);
}

static void add_row(struct moments *m, const float *x, int64_t stride)
{
	double *const row = next_row(m);
	for (int64_t i = 0; i < m->n; i++)
		row[i] = (double)x[i * stride];
	take_row(m);
}

/* How many rows a sample has: the patches that a convolution sees, without what its stride leaves over at the bottom and at the
 * right; the positions of (H,W,C) and (S,F); the features along the sequence. */
static int64_t rows_of(const struct gp_insert_set *set, const struct gp_shape *shape)
{
	const int64_t last = shape->dim[shape->ndim - 1];
	if (set->kind == GP_INSERT_CONV)
		return (shape->dim[0] / set->kernel) * (shape->dim[1] / set->kernel);
	return set->dim == GP_INSERT_SEQUENCE ? last : (int64_t)gp_shape_elements(shape) / last;
}

/* The distance between those that are taken. */
static int64_t step_of(int64_t rows)
{
	return (rows + GP_PCA_ROWS - 1) / GP_PCA_ROWS;
}

/* Samples begin at different rows, as they do at different patches: evenly spaced ones of a map or a grid may lie in a few of
 * its columns. */
static void add_positions(struct moments *m, const float *x, const struct gp_shape *shape,
			  const struct gp_insert_set *set, int64_t sample)
{
	const bool along = set->dim == GP_INSERT_SEQUENCE;
	const int64_t last = shape->dim[shape->ndim - 1], rows = rows_of(set, shape), step = step_of(rows);
	for (int64_t r = sample % step; r < rows; r += step)
		add_row(m, x + (along ? r : r * last), along ? last : 1);
}

/* In the order of a convolution's weights, (C,k,k), while the map is (H,W,C). */
static void add_patch(struct moments *m, const float *x, const struct gp_shape *shape, int64_t k)
{
	const int64_t channels = shape->dim[2], line = shape->dim[1] * channels;
	double *const row = next_row(m);
	for (int64_t i = 0; i < m->n; i++)
		row[i] = (double)x[i / k % k * line + i % k * channels + i / (k * k)];
	take_row(m);
}

static void add_patches(struct moments *m, const float *x, const struct gp_shape *shape,
			const struct gp_insert_set *set, int64_t sample)
{
	const int64_t k = set->kernel, width = shape->dim[1], across = width / k;
	const int64_t rows = rows_of(set, shape), step = step_of(rows);
	for (int64_t r = sample % step; r < rows; r += step)
		add_patch(m, x + (r / across * k * width + r % across * k) * shape->dim[2], shape, k);
}

/* Moves the moments to the mean of each channel, which has `positions` features that follow each other. */
static void centre_channels(struct moments *m, int64_t positions)
{
	for (int64_t i = 0; i < m->n; i++)
		m->centre[i - i % positions] += m->total[i] / (double)(m->count * positions);
	for (int64_t i = 0; i < m->n; i++)
		m->centre[i] = m->centre[i - i % positions];
	for (int64_t i = 0; i < m->n; i++)
		for (int64_t k = 0; k <= i; k++)
			m->sum[i * m->n + k] -= m->centre[i] * m->total[k] + m->total[i] * m->centre[k] -
						(double)m->count * m->centre[i] * m->centre[k];
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

/* How many samples to read: more than GP_PCA_SAMPLES where those have few rows for so many features. */
static int64_t samples_of(const struct gp_insert_source *from, const struct gp_insert_set *set,
			  const struct gp_shape *shape, int64_t n)
{
	const int64_t rows = rows_of(set, shape), each = rows / step_of(rows);
	const int64_t epoch = (int64_t)gp_loader_batches_per_epoch(from->loader) * from->batch;
	int64_t samples = n * ROWS_OF_A_FEATURE / each;
	samples = samples < epoch ? samples : epoch;
	samples = samples < GP_PCA_SAMPLES_MOST ? samples : GP_PCA_SAMPLES_MOST;
	return samples > GP_PCA_SAMPLES ? samples : GP_PCA_SAMPLES;
}

static enum gp_status sum_moments(struct gp_insert_values *v, const struct before *b, const struct gp_shape *shape,
				  const struct gp_insert_set *set, struct moments *m, struct gp_err *err)
{
	const uint64_t size = gp_shape_elements(shape);
	const int64_t samples = samples_of(v->from, set, shape, m->n);
	const float *x;
	for (int64_t seen = 0; seen < samples; seen += v->from->batch) {
		GP_TRY(next_value(v, b, &x, err));
		for (int i = 0; i < v->from->batch && seen + i < samples; i++) {
			const float *const sample = x + (uint64_t)i * size;
			if (set->kind == GP_INSERT_CONV)
				add_patches(m, sample, shape, set, seen + i);
			else
				add_positions(m, sample, shape, set, seen + i);
		}
	}
	add_rows(m);
	if (set->kind == GP_INSERT_CONV && set->bias)
		centre_channels(m, (int64_t)set->kernel * set->kernel);
	return GP_OK;
}

/* A parameter of the encoder of set `index`, or of its mirror. */
static float *param_of(const struct gp_insert_source *from, enum gp_insert_end end, bool mirror, int index,
		       const char *kind)
{
	const int last = from->ins->end[end].spec.sets - 1;
	char name[GP_NAME_MAX];
	snprintf(name, sizeof name, GP_INSERT_PREFIX "%s.%s.%d.%s", gp_insert_end_name[end],
		 mirror ? "decoder" : "encoder", mirror ? last - index : index, kind);
	const int param = gp_graph_find_param(from->weights->graph, name);
	gp_require(param >= 0);
	return from->weights->value[param];
}

/* (rank,n) and its mirror (n,rank), of eigenvectors in rows. */
static void set_linear(const struct gp_insert_source *from, enum gp_insert_end end, int index, const struct moments *m)
{
	const int64_t rank = from->ins->end[end].spec.set[index].rank;
	float *there = param_of(from, end, false, index, "weight"), *back = param_of(from, end, true, index, "weight");
	for (int64_t r = 0; r < rank; r++)
		for (int64_t i = 0; i < m->n; i++)
			there[r * m->n + i] = back[i * rank + r] = (float)m->sum[r * m->n + i];
}

/* A bias -V c for (out,C,k,k), and for its mirror the centre c of each channel. */
static void set_biases(const struct gp_insert_source *from, enum gp_insert_end end, int index, const struct moments *m)
{
	const struct gp_insert_set *set = &from->ins->end[end].spec.set[index];
	const int64_t positions = (int64_t)set->kernel * set->kernel;
	float *there = param_of(from, end, false, index, "bias"), *back = param_of(from, end, true, index, "bias");
	for (int64_t r = 0; r < set->out; r++) {
		double sum = 0;
		for (int64_t i = 0; i < m->n; i++)
			sum += m->sum[r * m->n + i] * m->centre[i];
		there[r] = (float)-sum;
	}
	for (int64_t c = 0; c < m->n / positions; c++)
		back[c] = (float)m->centre[c * positions];
}

/* (out,C,k,k), and its mirror the same: a transposed convolution has its inputs first. */
static void set_conv(const struct gp_insert_source *from, enum gp_insert_end end, int index, const struct moments *m)
{
	const struct gp_insert_set *set = &from->ins->end[end].spec.set[index];
	float *there = param_of(from, end, false, index, "weight"), *back = param_of(from, end, true, index, "weight");
	for (int64_t i = 0; i < set->out * m->n; i++)
		there[i] = back[i] = (float)m->sum[i];
	if (set->bias)
		set_biases(from, end, index, m);
}

static int64_t features_of(const struct gp_insert_set *set, const struct gp_shape *shape)
{
	if (set->kind == GP_INSERT_CONV)
		return shape->dim[2] * set->kernel * set->kernel;
	return shape->dim[set->dim == GP_INSERT_SEQUENCE ? 0 : shape->ndim - 1];
}

static enum gp_status check_features(const struct gp_insert_set *set, int64_t n, struct gp_err *err)
{
	if (n > PCA_MOST && set->kind == GP_INSERT_CONV)
		GP_FAIL(err, GP_USAGE,
			"it is for patches of at most %d numbers, because of these %lld it would take hours; give "
			"start=random",
			PCA_MOST, (long long)n);
	if (n > PCA_MOST)
		GP_FAIL(err, GP_USAGE,
			"it is for at most %d features, because of these %lld it would take hours; give start=random "
			"or start=identity",
			PCA_MOST, (long long)n);
	return GP_OK;
}

static enum gp_status start_with(struct gp_insert_values *v, enum gp_insert_end end, int index, const struct before *b,
				 struct gp_err *err)
{
	const struct gp_insert_set *set = &v->from->ins->end[end].spec.set[index];
	const struct gp_shape *shape = b->graph ? gp_graph_output_shape(b->graph) : &v->from->ins->end[end].plain;
	const int64_t n = features_of(set, shape);
	struct moments m;
	GP_TRY(check_features(set, n, err));
	GP_TRY(open_moments(&m, n, err));
	enum gp_status status = sum_moments(v, b, shape, set, &m, err);
	if (status == GP_OK)
		status = gp_eigen_symmetric(m.sum, m.value, n, err);
	if (status == GP_OK)
		(set->kind == GP_INSERT_CONV ? set_conv : set_linear)(v->from, end, index, &m);
	close_moments(&m);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layer over the last dimension, on oneDNN's inner product. See dnn.h.
 *
 * oneDNN's primitives have fixed shapes. Chunks that are shorter than the graph's sequences get primitives of their own,
 * made when the first chunk of a length comes and kept; lengths are multiples of GP_SEQUENCE_STEP, so there are not many,
 * and oneDNN shares the code of equal ones. They read and write the layouts of those for all positions, so that gradients
 * of chunks of any length add up. Where oneDNN has none for these layouts, all positions are computed: there is room for
 * them, and those behind the chunk's are zeros where that matters. (Own products, kernels/cpu/math/gemm.h, take any number
 * of rows, but need AVX2.)
 *
 * So it is where rows of scores are left out (kernels/cpu/plan/cpu_pick.c), whose number is any: they are rounded up to one of
 * PICKED_SIZES, and zeros take the places behind them. Where the weight is multiplied as it is, oneDNN's general product takes
 * as many rows as there are.
 *
 * Test: tests/unit/test_cpu_ops.c, tests/unit/test_linear_rows.c, tests/unit/test_plan_length.c
 */
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/onednn/dnn.h"
#include "kernels/cpu/plan/parallel.h"
#include "common/graph/ops/op_linear.h"

#define GRAIN         16 /* floats of a cache line */
#define MANY_ROWS     64
#define PICKED_SIZES  8
#define MANY_PRODUCTS ((int64_t)1 << 25)
#define FLAT_INPUTS   32
#define FLAT_OUTPUTS  1024

/* The primitives for chunks of one length, or size. */
struct linear_set {
	bool works; /* false: oneDNN has none */
	struct dnn_state dnn;
};

struct linear_state {
	struct dnn_state dnn;
	dnnl_memory_desc_t x, y, weight, bias; /* weight: any layout, or as it is */
	int64_t rows, in, out;                 /* rows: of all positions */
	bool as_it_is;                         /* every product reads, or adds to, the weight in PyTorch's layout */
	bool picked;                           /* chunks may leave out any of the rows */
	const struct dnn_state *like;          /* while a set is made: whose layouts it takes; else NULL */
	struct linear_set **set;               /* by rows / step; NULL where none came yet */
	int64_t step;                          /* sizes of sets are multiples of it; 0: there are none */
	int sets;
};

/*
 * Up to 32 inputs and more than 1024 outputs: where several threads share the sums over the outputs for the gradient of few rows,
 * the kernel of oneDNN 2.6 that wants a layout of its own calls one that it has not made, and the process ends (seen with
 * 2, 4 and 16 threads, 1 to 128 rows, 1088 to 4096 outputs). Its general product is sound.
 */
static bool is_flat(const struct linear_state *s)
{
	return !s->dnn.bf16 && s->in <= FLAT_INPUTS && s->out > FLAT_OUTPUTS;
}

/*
 * Many rows of fp32 are multiplied with the weight as it is, by oneDNN's general product. In version 2.6 the kernels
 * that it chooses otherwise, with a layout of their own, take longer for gradients: of 1024 rows and a weight of
 * 768 x 3072 1.3 times for that of the rows and 1.5 to 1.9 times for that of the weight, and still 1.2 to 1.4 times in
 * all near these limits. Forward they take up to 1.2 times as long, and near these limits a twentieth less. The weight is
 * held once, not three times, and its gradient is added up where it lies.
 */
static bool fits_as_it_is(const struct linear_state *s)
{
	if (is_flat(s))
		return true;
	return !s->dnn.bf16 && s->rows >= MANY_ROWS && s->rows * s->out >= (MANY_PRODUCTS + s->in - 1) / s->in;
}

static dnnl_status_t describe_linear(const void *geometry, enum dnn_role role, union dnn_desc *out)
{
	const struct linear_state *s = geometry;
	const dnnl_memory_desc_t *bias = s->dnn.bias ? &s->bias : NULL;
	dnnl_memory_desc_t x = s->x, y = s->y, weight = s->like ? *gp_dnn_weight(s->like, role) : s->weight;
	gp_dnn_narrow(&s->dnn, role, &x, &y, &weight);
	switch (role) {
	case DNN_FORWARD:
		return dnnl_inner_product_forward_desc_init(&out->product, dnnl_forward_training, &x, &weight, bias,
							    &y);
	case DNN_DATA:
		return dnnl_inner_product_backward_data_desc_init(&out->product, &x, &weight, &y);
	default:
		return dnnl_inner_product_backward_weights_desc_init(&out->product, &x, &weight, bias, &y);
	}
}

static dnnl_status_t describe_rows(struct linear_state *s, int64_t rows)
{
	const dnnl_dims_t x = {rows, s->in}, y = {rows, s->out};
	const dnnl_status_t st = dnnl_memory_desc_init_by_tag(&s->x, 2, x, dnnl_f32, dnnl_nc);
	return st == dnnl_success ? dnnl_memory_desc_init_by_tag(&s->y, 2, y, dnnl_f32, dnnl_nc) : st;
}

static enum gp_status fill_geometry(struct cpu_plan *p, struct cpu_node *n, struct linear_state *s, struct gp_err *err)
{
	const struct gp_shape *w = &p->base.spec.graph->param[gp_cpu_param_index(p, n, GP_PARAM_WEIGHT)].shape;
	const dnnl_dims_t weight = {w->dim[0], w->dim[1]};
	s->out = w->dim[0];
	s->in = w->dim[1];
	s->rows = gp_cpu_elements(p, n) / s->out;
	s->dnn.bias = gp_linear_attr(n->base.g).bias;
	s->as_it_is = fits_as_it_is(s);
	dnnl_status_t st = describe_rows(s, s->rows);
	if (st == dnnl_success)
		st = dnnl_memory_desc_init_by_tag(&s->weight, 2, weight, dnnl_f32,
						  s->as_it_is ? dnnl_oi : dnnl_format_tag_any);
	if (st == dnnl_success)
		st = dnnl_memory_desc_init_by_tag(&s->dnn.dense_md, 2, weight, dnnl_f32, dnnl_oi);
	if (st == dnnl_success)
		st = dnnl_memory_desc_init_by_tag(&s->bias, 1, weight, dnnl_f32, dnnl_x);
	return gp_dnn_check(st, n, "describe", err);
}

/* Between the sizes of sets; 0: chunks have all rows. */
static int64_t step_of(const struct cpu_plan *p, const struct cpu_node *n, const struct linear_state *s)
{
	const struct gp_graph *g = p->base.spec.graph;
	if (s->picked)
		return (s->rows + PICKED_SIZES - 1) / PICKED_SIZES;
	if (!g->value[n->base.in[0]].sequence || gp_graph_sequence(g) == 0)
		return 0;
	return s->rows / gp_graph_sequence(g) * GP_SEQUENCE_STEP;
}

/* Room to remember the primitives of each size. */
static enum gp_status make_sets(struct cpu_plan *p, struct cpu_node *n, struct linear_state *s, struct gp_err *err)
{
	void *sets;
	s->step = step_of(p, n, s);
	if (s->step == 0)
		return GP_OK;
	const int count = (int)(s->rows / s->step) + 1;
	GP_TRY(gp_alloc_array(&sets, (size_t)count, sizeof *s->set, err));
	s->set = sets;
	s->sets = count;
	return GP_OK;
}

static enum gp_status linear_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct linear_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for linear layer %s", n->base.g->name);
	n->state = s;
	s->dnn.bf16 = p->base.spec.precision == GP_PRECISION_BF16;
	GP_TRY(fill_geometry(p, n, s, err));
	unsigned roles = 1u << DNN_FORWARD;
	if (n->base.want_dx)
		roles |= 1u << DNN_DATA;
	if (n->base.trains && !s->as_it_is)
		roles |= 1u << DNN_WEIGHTS;
	n->plain_grad = s->as_it_is;
	s->picked = n->base.first_value == p->walk.row_scores;
	if (!n->base.trains)
		n->base.saves_in = 0;
	return gp_dnn_prepare(p, n, &s->dnn, roles, describe_linear, s, err);
}

static enum gp_status linear_create(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct linear_state *s = n->state;
	GP_TRY(make_sets(p, n, s, err));
	return gp_dnn_create(p, n, &s->dnn, err);
}

static void linear_release(struct cpu_node *n)
{
	struct linear_state *s = n->state;
	if (!s)
		return;
	for (int i = 0; i < s->sets; i++) {
		if (s->set[i])
			gp_dnn_release(&s->set[i]->dnn);
		gp_free(s->set[i]);
	}
	gp_free(s->set);
	gp_dnn_release(&s->dnn);
	gp_free(s);
	n->state = NULL;
}

static enum gp_status linear_repack(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct linear_state *s = n->state;
	return gp_dnn_repack(p, n, &s->dnn, err);
}

static enum gp_status linear_grad_dense(struct cpu_plan *p, struct cpu_node *n, float *out, struct gp_err *err)
{
	struct linear_state *s = n->state;
	if (!s->as_it_is)
		return gp_dnn_grad_dense(p, n, &s->dnn, out, err);
	gp_cpu_copy(p->threads, out, gp_cpu_param_grad(p, n, GP_PARAM_WEIGHT), s->in * s->out);
	return GP_OK;
}

static int64_t rows_now(const struct cpu_call *c, const struct linear_state *s)
{
	return gp_cpu_elements(c->plan, c->node) / s->out;
}

static void make_set(const struct cpu_call *c, const struct linear_state *s, int64_t rows, struct linear_set *set)
{
	struct linear_state geometry = *s;
	geometry.like = &s->dnn;
	set->works = describe_rows(&geometry, rows) == dnnl_success &&
		     gp_dnn_vary(c->plan, c->node, &s->dnn, describe_linear, &geometry, &set->dnn);
}

/* The primitives for this call's chunk: those of its length or size, made now where it is the first one, or those of all
 * rows. *computed: so many rows, which may be more than the chunk has. */
static enum gp_status primitives(const struct cpu_call *c, struct linear_state *s, struct dnn_state **out,
				 int64_t *computed, struct gp_err *err)
{
	const int64_t rows = rows_now(c, s), size = s->step > 0 ? (rows + s->step - 1) / s->step * s->step : s->rows;
	*out = &s->dnn;
	*computed = s->rows;
	if (rows == s->rows || size >= s->rows)
		return GP_OK;
	const int64_t index = size / s->step;
	gp_require(index < s->sets);
	if (!s->set[index]) {
		void *set;
		GP_TRY(gp_alloc_array(&set, 1, sizeof(struct linear_set), err));
		s->set[index] = set;
		make_set(c, s, size, set);
	}
	if (s->set[index]->works) {
		*out = &s->set[index]->dnn;
		*computed = size;
	}
	return GP_OK;
}

/* Rows behind the chunk's. They lie in room of this value that nobody else has. */
static void clear_behind(const float *rows, int64_t from, int64_t to, int64_t width)
{
	memset((float *)rows + from * width, 0, (size_t)((to - from) * width) * sizeof *rows);
}

/* Products of any number of rows. */
static bool multiplies_picked(const struct cpu_call *c, const struct linear_state *s)
{
	return s->picked && s->as_it_is && rows_now(c, s) < s->rows;
}

struct offset_job {
	float *y;
	const float *bias;
	int64_t rows, width;
};

static void offset_part(void *arg, int part, int parts)
{
	const struct offset_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->rows, 1, part, parts);
	for (int64_t row = r.from; row < r.to; row++)
		gp_cpu_add_row(job->y + row * job->width, job->bias, job->width);
}

static enum gp_status forward_picked(const struct cpu_call *c, const struct linear_state *s, struct gp_err *err)
{
	const int64_t rows = rows_now(c, s);
	const float *weight = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT);
	struct offset_job job = {c->out[0], gp_cpu_param_value(c->plan, c->node, GP_PARAM_BIAS), rows, s->out};
	const dnnl_status_t status = dnnl_sgemm('N', 'T', rows, s->out, s->in, 1.0f, c->in[0], s->in, weight, s->in,
						0.0f, c->out[0], s->out);
	GP_TRY(gp_dnn_check(status, c->node, "run forward", err));
	if (job.bias)
		gp_cpu_parallel(gp_cpu_parts(c->plan->threads, rows * s->out), offset_part, &job);
	return GP_OK;
}

static enum gp_status linear_forward(const struct cpu_call *c, struct gp_err *err)
{
	struct linear_state *s = c->node->state;
	struct dnn_state *dnn;
	int64_t computed;
	if (multiplies_picked(c, s))
		return forward_picked(c, s, err);
	GP_TRY(primitives(c, s, &dnn, &computed, err));
	return gp_dnn_run(c, dnn, DNN_FORWARD, c->in[0], c->out[0], err);
}

struct bias_job {
	float *grad;
	const float *dout;
	int64_t rows, width;
	bool fresh;
};

/* A part has columns of its own, and goes through the rows in their order. */
static void bias_part(void *arg, int part, int parts)
{
	const struct bias_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->width, GRAIN, part, parts);
	float *grad = job->grad + r.from;
	if (job->fresh)
		memset(grad, 0, (size_t)(r.to - r.from) * sizeof *grad);
	for (int64_t row = 0; row < job->rows; row++)
		gp_cpu_add_row(grad, job->dout + row * job->width + r.from, r.to - r.from);
}

/* dW = dout' x, or added to what earlier chunks gave. */
static enum gp_status add_gradients(const struct cpu_call *c, const struct linear_state *s, const float *x,
				    int64_t rows, struct gp_err *err)
{
	float *weight = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	float *bias = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_BIAS);
	struct bias_job job = {bias, c->dout[0], rows, s->out, !c->accumulate};
	if (bias)
		gp_cpu_parallel(gp_cpu_parts(c->plan->threads, rows * s->out), bias_part, &job);
	if (!weight)
		return GP_OK;
	const dnnl_status_t status = dnnl_sgemm('T', 'N', s->out, s->in, rows, 1.0f, c->dout[0], s->out, x, s->in,
						c->accumulate ? 1.0f : 0.0f, weight, s->in);
	return gp_dnn_check(status, c->node, "find the weight gradient of", err);
}

static enum gp_status backward_picked(const struct cpu_call *c, const struct linear_state *s, struct gp_err *err)
{
	const int64_t rows = rows_now(c, s);
	const float *weight = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT);
	if (c->node->base.trains)
		GP_TRY(add_gradients(c, s, c->in[0], rows, err));
	if (!c->dx[0])
		return GP_OK;
	const dnnl_status_t status = dnnl_sgemm('N', 'N', rows, s->in, s->out, 1.0f, c->dout[0], s->out, weight, s->in,
						0.0f, c->dx[0], s->in);
	return gp_dnn_check(status, c->node, "run backward", err);
}

static enum gp_status linear_backward(const struct cpu_call *c, struct gp_err *err)
{
	struct linear_state *s = c->node->state;
	struct dnn_state *dnn;
	const int64_t rows = rows_now(c, s);
	int64_t computed;
	if (multiplies_picked(c, s))
		return backward_picked(c, s, err);
	GP_TRY(primitives(c, s, &dnn, &computed, err));
	if (c->node->base.trains && !s->as_it_is)
		clear_behind(c->in[0], rows, computed, s->in);
	clear_behind(c->dout[0], rows, computed, s->out);
	if (!s->as_it_is)
		return gp_dnn_backward(c, dnn, DNN_DATA, c->in[0], c->dout[0], err);
	if (c->node->base.trains)
		GP_TRY(add_gradients(c, s, c->in[0], rows, err));
	return c->dx[0] ? gp_dnn_run(c, dnn, DNN_DATA, c->dx[0], c->dout[0], err) : GP_OK;
}

const struct cpu_op gp_cpu_dnn_linear = {
	.name = "linear",
	.saves_in = 1,
	.prepare = linear_prepare,
	.create = linear_create,
	.release = linear_release,
	.repack = linear_repack,
	.grad_dense = linear_grad_dense,
	.forward = linear_forward,
	.backward = linear_backward,
};

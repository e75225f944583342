/* SPDX-License-Identifier: Apache-2.0
 *
 * What a graph costs. See graph_work.h. Test: tests/unit/test_graph_work.c
 */
#include "common/graph/graph_work.h"

#include "common/base/mem.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_pool.h"

#define LANES         16   /* channels that a convolution computes at once: fewer take as long */
#define DEPTHWISE     16   /* a depthwise convolution waits for memory where a dense one computes */
#define TAP_ELEMENTS  64   /* what the call for one tap of a pool's window costs, however few channels there are */
#define CURVE         8    /* e^x, polynomials and a quotient take as long as so many elements */
#define DRAW          3    /* so does a random word, and the choice by it */
#define SCATTERED     4    /* elements that do not lie side by side take longer */
#define NORM_ROW      4096 /* what a row of a layer norm costs besides, however short it is: sums in lanes, a root */
#define ADDED_ROW     256  /* the call that adds a row to another */
#define HEAD          4096 /* what a head of attention costs besides, however little it has to do */
#define CALL_ELEMENTS 4096 /* what beginning a node on all threads costs */

static uint64_t add(uint64_t a, uint64_t b)
{
	uint64_t sum;
	return gp_add_ok(a, b, &sum) ? sum : UINT64_MAX;
}

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;
	return gp_mul_ok(a, b, &product) ? product : UINT64_MAX;
}

static uint64_t whole_lanes(uint64_t channels)
{
	return (channels + LANES - 1) / LANES * LANES;
}

static uint64_t pixels(const struct gp_shape *image)
{
	return times((uint64_t)image->dim[0], (uint64_t)image->dim[1]);
}

static const struct gp_shape *input_shape(const struct gp_graph *g, const struct gp_node *n)
{
	return &g->value[n->in[0]].type.shape;
}

/* Groups of a few channels are computed as if each had whole lanes of them. */
static uint64_t conv_macs(const struct gp_graph *g, const struct gp_node *n)
{
	const struct gp_conv_attr a = gp_conv_attr(n);
	const struct gp_shape *in = input_shape(g, n), *places = n->op == GP_OP_CONV2D ? &n->shape : in;
	const uint64_t groups = (uint64_t)a.groups, channels = (uint64_t)in->dim[2];
	const uint64_t each_in = channels / groups, each_out = (uint64_t)a.out_channels / groups;
	const uint64_t taps = times((uint64_t)a.kernel_h, (uint64_t)a.kernel_w);
	if (each_in == 1 && each_out == 1)
		return times(n->macs, DEPTHWISE);
	const uint64_t place = times(times(taps, groups), times(whole_lanes(each_in), whole_lanes(each_out)));
	return times(place, pixels(places));
}

/* Each row of the input meets the whole weight. */
static uint64_t linear_macs(const struct gp_graph *g, const struct gp_node *n)
{
	const struct gp_shape *in = input_shape(g, n);
	const uint64_t rows = in->ndim == 2 ? (uint64_t)in->dim[0] : 1;
	const uint64_t weight = times(whole_lanes((uint64_t)in->dim[in->ndim - 1]),
				      whole_lanes((uint64_t)n->shape.dim[n->shape.ndim - 1]));
	return times(rows, weight);
}

/* Vectors of the positions and of a head's features are whole, however few there are of either. */
static uint64_t attention_macs(const struct gp_node *n)
{
	const uint64_t heads = (uint64_t)gp_attention_attr(n).heads, positions = (uint64_t)n->shape.dim[0];
	const uint64_t each = times(whole_lanes(positions), whole_lanes((uint64_t)n->shape.dim[1] / heads));
	return times(times(2, heads), times(positions, each));
}

/* A weight for each pair of positions: an exponential, and a random word where weights are dropped. And what each head takes. */
static uint64_t weight_elements(const struct gp_node *n)
{
	if (n->op != GP_OP_ATTENTION)
		return 0;
	const struct gp_attention_attr a = gp_attention_attr(n);
	const uint64_t positions = (uint64_t)n->shape.dim[0];
	const uint64_t weights = times(times((uint64_t)a.heads, positions), whole_lanes(positions));
	return add(times(weights, a.p > 0.0f ? 2 : 1), times((uint64_t)a.heads, HEAD));
}

static uint64_t node_macs(const struct gp_graph *g, const struct gp_node *n)
{
	if (n->op == GP_OP_CONV2D || n->op == GP_OP_CONV2D_TRANSPOSE)
		return conv_macs(g, n);
	if (n->op == GP_OP_ATTENTION)
		return attention_macs(n);
	return n->op == GP_OP_LINEAR ? linear_macs(g, n) : n->macs;
}

/* A pool looks at every tap of every window, and forgets what neighbours have seen. */
static uint64_t tap_elements(const struct gp_node *n)
{
	if (n->op != GP_OP_AVG_POOL && n->op != GP_OP_MAX_POOL)
		return 0;
	const struct gp_pool_attr a = gp_pool_attr(n);
	const uint64_t channels = (uint64_t)n->shape.dim[2];
	const uint64_t taps = times((uint64_t)a.kernel_h, (uint64_t)a.kernel_w);
	return times(times(taps, pixels(&n->shape)), channels < TAP_ELEMENTS ? TAP_ELEMENTS : channels);
}

static uint64_t rows_of(const struct gp_node *n)
{
	return gp_shape_elements(&n->shape) / (uint64_t)n->shape.dim[n->shape.ndim - 1];
}

/* What arithmetic takes for each element beyond reading and writing it, and for each row. A layer norm writes its normal rows
 * besides. */
static uint64_t arithmetic_elements(const struct gp_graph *g, const struct gp_node *n)
{
	const uint64_t elements = gp_shape_elements(&g->value[n->first_value].type.shape);
	if (n->op == GP_OP_GELU || n->op == GP_OP_TANH)
		return times(elements, CURVE);
	if (n->op == GP_OP_LAYER_NORM)
		return add(times(elements, gp_layer_norm_attr(n).p > 0.0f ? 1 + DRAW : 1), times(rows_of(n), NORM_ROW));
	return n->op == GP_OP_ADD_ROWS || n->op == GP_OP_TAKE_ROWS ? times(rows_of(n), ADDED_ROW) : 0;
}

static uint64_t input_elements(const struct gp_graph *g, const struct gp_node *n)
{
	uint64_t sum = 0;
	for (int k = 0; k < n->inputs; k++)
		sum = add(sum, gp_shape_elements(&g->value[n->in[k]].type.shape));
	return sum;
}

static uint64_t output_elements(const struct gp_graph *g, const struct gp_node *n)
{
	uint64_t sum = 0;
	for (int j = 0; j < n->outputs; j++)
		sum = add(sum, gp_shape_elements(&g->value[n->first_value + j].type.shape));
	return sum;
}

/* An embedding reads only the rows that it is asked for; its gradient is as large as its weight. */
static uint64_t param_elements(const struct gp_graph *g, const struct gp_node *n, bool backward)
{
	uint64_t sum = 0;
	if (n->op == GP_OP_EMBEDDING && !backward)
		return 0;
	for (int i = n->first_param; i < n->first_param + n->params; i++)
		sum = add(sum, g->param[i].count);
	return sum;
}

/* Batch norm reads its input twice, for the statistics and to normalize; flatten turns it round. */
static uint64_t passes_over_input(const struct gp_node *n)
{
	return n->op == GP_OP_BATCH_NORM ? 2 : n->op == GP_OP_FLATTEN ? SCATTERED : 1;
}

/* Two products for each of forward's; attention computes its scores anew, too: five for two. */
static uint64_t backward_macs(const struct gp_node *n, uint64_t forward)
{
	return n->op == GP_OP_ATTENTION ? times(5, forward / 2) : times(2, forward);
}

/* Backward reads what forward read and the gradients of the outputs, and writes, or adds to, those of the inputs. */
void gp_node_work(const struct gp_graph *g, const struct gp_node *n, struct gp_work *forward, struct gp_work *backward)
{
	*forward = *backward = (struct gp_work){0};
	if (n->op == GP_OP_INPUT)
		return;
	const uint64_t macs = node_macs(g, n), out = output_elements(g, n);
	const uint64_t taps = add(tap_elements(n), arithmetic_elements(g, n));
	const uint64_t in = times(passes_over_input(n), input_elements(g, n));
	const uint64_t weights = weight_elements(n);
	forward->macs = macs;
	forward->elements = add(add(in, out), add(taps, weights));
	forward->once = add(param_elements(g, n, false), CALL_ELEMENTS);
	backward->macs = backward_macs(n, macs);
	backward->elements = add(add(times(3, in), times(2, out)), add(times(2, taps), weights));
	backward->once = add(times(2, param_elements(g, n, true)), CALL_ELEMENTS);
}

static void add_work(struct gp_work *sum, const struct gp_work *w)
{
	sum->macs = add(sum->macs, w->macs);
	sum->elements = add(sum->elements, w->elements);
	sum->once = add(sum->once, w->once);
}

void gp_work_add(struct gp_work *w, const struct gp_work *more)
{
	add_work(w, more);
}

void gp_graph_work(const struct gp_graph *g, struct gp_work *forward, struct gp_work *backward)
{
	*forward = *backward = (struct gp_work){0};
	for (int i = g->inputs; i < g->nodes; i++) {
		struct gp_work node[2];
		gp_node_work(g, &g->node[i], &node[0], &node[1]);
		add_work(forward, &node[0]);
		add_work(backward, &node[1]);
	}
}

static double once_seconds(const struct gp_work *w, const struct gp_speed *s)
{
	return (double)w->once / s->elements_per_s;
}

static double sample_seconds(const struct gp_work *w, const struct gp_speed *s)
{
	return (double)w->macs / s->macs_per_s + (double)w->elements / s->elements_per_s;
}

double gp_work_seconds(const struct gp_work *w, const struct gp_speed *speed, int64_t samples)
{
	return once_seconds(w, speed) + sample_seconds(w, speed) * (double)samples;
}

int64_t gp_work_samples_within(const struct gp_work *w, const struct gp_speed *speed, double seconds, int64_t samples)
{
	const double left = seconds - once_seconds(w, speed), each = sample_seconds(w, speed);
	if (left < 0.0)
		return 0;
	return left >= each * (double)samples ? samples : (int64_t)(left / each);
}

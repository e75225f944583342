/* SPDX-License-Identifier: Apache-2.0
 *
 * Decaying linear insertion. See decay.h. Test: tests/unit/test_decay.c
 */
#include "common/graph/decay.h"

#include <math.h>

#include "common/graph/graph_copy.h"
#include "common/graph/ops/op_linear.h"

/* --- the schedule ------------------------------------------------------------------------------------------------- */

static int64_t next_rank(const struct gp_decay *d, int64_t rank)
{
	return (int64_t)((double)rank * d->rate);
}

static uint64_t changes_before(const struct gp_decay *d, uint64_t step)
{
	const uint64_t changes = step / d->every;
	return changes < d->times ? changes : d->times;
}

int64_t gp_decay_rank(const struct gp_decay *d, int64_t start, uint64_t step)
{
	int64_t rank = start;
	for (uint64_t left = changes_before(d, step); left > 0; left--)
		rank = next_rank(d, rank);
	return rank;
}

/* 0: none is left. */
static uint64_t next_change(const struct gp_decay *d, uint64_t step)
{
	const uint64_t changes = changes_before(d, step);
	return changes < d->times ? (changes + 1) * d->every : 0;
}

uint64_t gp_decays_next_change(const struct gp_decays *d, uint64_t step)
{
	uint64_t first = 0;
	for (int i = 0; i < d->count; i++) {
		const uint64_t next = next_change(&d->decay[i], step);
		if (next > 0 && (first == 0 || next < first))
			first = next;
	}
	return first;
}

bool gp_decays_change_at(const struct gp_decays *d, uint64_t step)
{
	return step > 0 && gp_decays_next_change(d, step - 1) == step;
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

static const struct gp_node *find_node(const struct gp_graph *g, const char *name)
{
	for (int i = g->inputs; i < g->nodes; i++)
		if (strcmp(g->node[i].name, name) == 0)
			return &g->node[i];
	return NULL;
}

static const struct gp_shape *weight_shape(const struct gp_graph *g, const struct gp_node *n)
{
	return &g->param[n->first_param].shape;
}

static int64_t rank_in(const struct gp_graph *g, const struct gp_decay *d)
{
	const struct gp_node *encoder = find_node(g, d->encoder), *decoder = find_node(g, d->decoder);
	return encoder ? weight_shape(g, encoder)->dim[0] : weight_shape(g, decoder)->dim[1];
}

struct gp_decay_ranks gp_decays_ranks_at(const struct gp_decays *d, const struct gp_graph *g, uint64_t step)
{
	struct gp_decay_ranks r = {.count = gp_decays_change_at(d, step) ? d->count : 0};
	for (int i = 0; i < r.count; i++)
		r.rank[i] = (uint32_t)gp_decay_rank(&d->decay[i], rank_in(g, &d->decay[i]), step);
	return r;
}

/* A dimension of an input of the graph; of none: input < 0. */
struct place {
	int input, dim;
};

/* Where the last dimension of what a node reads comes from. */
static struct place trace(const struct gp_graph *g, const struct gp_node *n)
{
	int value = n->in[0], dim = g->value[value].type.shape.ndim - 1;
	for (;;) {
		const struct gp_node *from = gp_graph_maker(g, value);
		const int last = g->value[value].type.shape.ndim - 1;
		if (from->op == GP_OP_INPUT)
			return (struct place){value, dim};
		if (from->op == GP_OP_SWAP_LAST)
			dim = 2 * last - 1 - dim;
		else if (from->op != GP_OP_IDENTITY && !(from->op == GP_OP_LINEAR && dim < last))
			return (struct place){-1, 0};
		value = from->in[0];
	}
}

/* The ranks of a step, on their way into a copy. */
struct change {
	const struct gp_decays *d;
	int64_t rank[GP_DECAYS_MAX];
	struct place place[GP_DECAYS_MAX]; /* of decays without an encoder here */
};

static void change_input(void *arg, int input, struct gp_type *type)
{
	const struct change *c = arg;
	for (int i = 0; i < c->d->count; i++)
		if (c->place[i].input == input)
			type->shape.dim[c->place[i].dim] = c->rank[i];
}

static void change_node(void *arg, struct gp_node *n)
{
	const struct change *c = arg;
	for (int i = 0; i < c->d->count; i++) {
		if (strcmp(n->name, c->d->decay[i].encoder) != 0)
			continue;
		struct gp_linear_attr a = gp_linear_attr(n);
		a.out_features = (int32_t)c->rank[i];
		gp_set_linear_attr(n, a);
	}
}

/* Whatever the names are: nothing may have changed but those weights, and those as far as they should. */
static enum gp_status check_copy(const struct gp_graph *g, const struct gp_graph *copy, const struct change *c,
				 struct gp_err *err)
{
	for (int i = 0; i < g->params; i++) {
		const char *node = g->node[g->param[i].node].name;
		struct gp_shape want = g->param[i].shape;
		for (int k = 0; k < c->d->count; k++) {
			if (strcmp(node, c->d->decay[k].encoder) == 0)
				want.dim[0] = c->rank[k];
			if (strcmp(node, c->d->decay[k].decoder) == 0)
				want.dim[1] = c->rank[k];
		}
		if (!gp_shape_equal(&want, &copy->param[i].shape))
			GP_FAIL(err, GP_INVALID,
				"with the ranks to come parameter %s would have a shape that is not possible",
				g->param[i].name);
	}
	return GP_OK;
}

static struct change change_of(const struct gp_decays *d, const struct gp_graph *g, uint64_t step)
{
	struct change c = {.d = d};
	for (int i = 0; i < d->count; i++) {
		const struct gp_decay *k = &d->decay[i];
		const bool outside = !find_node(g, k->encoder);
		c.rank[i] = gp_decay_rank(k, rank_in(g, k), step);
		c.place[i] = outside ? trace(g, find_node(g, k->decoder)) : (struct place){-1, 0};
	}
	return c;
}

enum gp_status gp_decays_graph(const struct gp_decays *d, const struct gp_graph *g, uint64_t step,
			       struct gp_graph **out, struct gp_err *err)
{
	struct change c = change_of(d, g, step);
	const struct gp_graph_edit edit = {.input = change_input, .node = change_node, .arg = &c};
	struct gp_graph *copy;
	GP_TRY(gp_graph_copy(g, &edit, &copy, err));
	const enum gp_status status = check_copy(g, copy, &c, err);
	if (status == GP_OK)
		*out = copy;
	else
		gp_graph_free(copy);
	return status;
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

static enum gp_status check_numbers(const struct gp_decay *d, struct gp_err *err)
{
	if (!(d->rate > 0.0 && d->rate < 1.0))
		GP_FAIL(err, GP_INVALID, "decay of %s: rate is %g; it must lie between 0 and 1", d->encoder, d->rate);
	if (d->every < 1 || d->every > GP_DECAY_EVERY_MAX)
		GP_FAIL(err, GP_INVALID, "decay of %s: every is %u; 1 to %d is possible", d->encoder, d->every,
			GP_DECAY_EVERY_MAX);
	if (d->times < 1 || d->times > GP_DECAY_CHANGES_MAX)
		GP_FAIL(err, GP_INVALID, "decay of %s: times is %u; 1 to %d is possible", d->encoder, d->times,
			GP_DECAY_CHANGES_MAX);
	if (!(d->l1 >= 0.0f && isfinite(d->l1)))
		GP_FAIL(err, GP_INVALID, "decay of %s: l1 is %g; it must be 0 or more", d->encoder, (double)d->l1);
	return GP_OK;
}

static enum gp_status check_node(const struct gp_graph *g, const char *name, struct gp_err *err)
{
	const struct gp_node *n = find_node(g, name);
	if (n && (n->op != GP_OP_LINEAR || n->params != 1))
		GP_FAIL(err, GP_INVALID, "decay: %s is no linear layer without bias", name);
	return GP_OK;
}

static enum gp_status check_ranks(const struct gp_graph *g, const struct gp_decay *d, struct gp_err *err)
{
	const int64_t start = rank_in(g, d), last = gp_decay_rank(d, start, (uint64_t)d->every * d->times);
	if (last < 1)
		GP_FAIL(err, GP_INVALID, "decay of %s: a rank of %lld would be 0 after %u changes with rate %g",
			d->encoder, (long long)start, d->times, d->rate);
	return GP_OK;
}

static enum gp_status check_one(const struct gp_graph *g, const struct gp_decay *d, struct gp_err *err)
{
	GP_TRY(check_node(g, d->encoder, err));
	GP_TRY(check_node(g, d->decoder, err));
	const struct gp_node *encoder = find_node(g, d->encoder), *decoder = find_node(g, d->decoder);
	if ((!encoder && !decoder) || encoder == decoder)
		GP_FAIL(err, GP_INVALID, "decay: the graph has neither a node '%s' nor a node '%s'", d->encoder,
			d->decoder);
	if (!encoder && trace(g, decoder).input < 0)
		GP_FAIL(err, GP_INVALID, "decay: what %s reads does not come from an input of the graph", d->decoder);
	return check_ranks(g, d, err);
}

/* Two pairs must not share a node, which can have only one rank. */
static enum gp_status check_apart(const struct gp_decays *d, struct gp_err *err)
{
	uint64_t changes = 0;
	for (int i = 0; i < d->count; i++) {
		changes += d->decay[i].times;
		for (int k = 0; k < i; k++)
			if (strcmp(d->decay[i].encoder, d->decay[k].encoder) == 0 ||
			    strcmp(d->decay[i].decoder, d->decay[k].decoder) == 0)
				GP_FAIL(err, GP_INVALID, "decay: two entries name the node %s or %s",
					d->decay[i].encoder, d->decay[i].decoder);
	}
	if (changes > GP_DECAY_CHANGES_MAX)
		GP_FAIL(err, GP_INVALID,
			"decay: all schedules together change ranks %llu times; at most %d are possible",
			(unsigned long long)changes, GP_DECAY_CHANGES_MAX);
	return GP_OK;
}

enum gp_status gp_decays_check(const struct gp_decays *d, const struct gp_graph *g, struct gp_err *err)
{
	if (d->count < 0 || d->count > GP_DECAYS_MAX)
		GP_FAIL(err, GP_INVALID, "%d decaying insertions; at most %d are possible", d->count, GP_DECAYS_MAX);
	for (int i = 0; i < d->count; i++)
		GP_TRY(check_numbers(&d->decay[i], err));
	GP_TRY(check_apart(d, err));
	for (int i = 0; i < d->count; i++)
		GP_TRY(check_one(g, &d->decay[i], err));
	for (uint64_t step = gp_decays_next_change(d, 0); step > 0; step = gp_decays_next_change(d, step)) {
		struct gp_graph *copy;
		GP_TRY(gp_decays_graph(d, g, step, &copy, err));
		gp_graph_free(copy);
	}
	return GP_OK;
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

static bool rule_of(const struct gp_decay *d, const struct gp_graph *g, const struct gp_param *p,
		    struct gp_decay_rule *out)
{
	const char *node = g->node[p->node].name;
	const bool encodes = strcmp(node, d->encoder) == 0, decodes = strcmp(node, d->decoder) == 0;
	if (!encodes && !decodes)
		return false;
	*out = (struct gp_decay_rule){.rows = p->shape.dim[0], .columns = p->shape.dim[1], .l1 = d->l1};
	if (encodes)
		out->first_row = next_rank(d, out->rows);
	else
		out->first_column = next_rank(d, out->columns);
	return true;
}

bool gp_decays_rule(const struct gp_decays *d, const struct gp_graph *g, int param, uint64_t step,
		    struct gp_decay_rule *out)
{
	const struct gp_param *p = &g->param[param];
	for (int i = 0; d && i < d->count; i++) {
		const struct gp_decay *k = &d->decay[i];
		if (k->l1 > 0.0f && changes_before(k, step) < k->times && p->trained && rule_of(k, g, p, out))
			return true;
	}
	return false;
}

void gp_decay_replace(const struct gp_decay_rule *rule, float *grad)
{
	for (int64_t row = rule->first_row; row < rule->rows; row++)
		for (int64_t i = row * rule->columns + rule->first_column; i < (row + 1) * rule->columns; i++)
			grad[i] = -rule->l1 * (float)((grad[i] > 0.0f) - (grad[i] < 0.0f));
}

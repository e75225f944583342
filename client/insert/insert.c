/* SPDX-License-Identifier: Apache-2.0
 *
 * Insertions into a graph. See insert.h. Test: tests/unit/test_insert.c
 */
#include "client/insert/insert.h"

#include "client/insert/insert_decay.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/graph/graph_copy.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_shape.h"

bool gp_insertion_any(const struct gp_insertion *ins)
{
	return ins->end[GP_INSERT_UP].spec.sets > 0 || ins->end[GP_INSERT_DOWN].spec.sets > 0;
}

enum gp_status gp_insertion_parse(const char *both, const char *up, const char *down, struct gp_insertion *out,
				  struct gp_err *err)
{
	static const char *const flag[GP_INSERT_ENDS] = {"insert-up", "insert-down"};
	const char *const own[GP_INSERT_ENDS] = {up, down};
	struct gp_insertion ins = {0};
	for (int e = 0; e < GP_INSERT_ENDS; e++) {
		const char *text = own[e] ? own[e] : both;
		ins.end[e].flag = own[e] ? flag[e] : "insert";
		if (text)
			GP_TRY(gp_insert_spec_parse(text, ins.end[e].flag, (enum gp_insert_end)e, &ins.end[e].spec,
						    err));
	}
	*out = ins;
	return GP_OK;
}

/* What an insertion makes is the last value of its encoder. */
uint64_t gp_insertion_plain(const struct gp_insertion *ins, enum gp_insert_end end, const char *name,
			    const struct gp_shape *sample)
{
	static const char *const made[GP_INSERT_ENDS] = {GP_INSERT_PREFIX "up.encoder.",
							 GP_INSERT_PREFIX "down.encoder."};
	const bool ours = ins->end[end].spec.sets > 0 && strncmp(name, made[end], strlen(made[end])) == 0;
	return gp_shape_elements(ours ? &ins->end[end].plain : sample);
}

/* --- what crosses ------------------------------------------------------------------------------------------------ */

/* Nodes from which on a part begins, and where it ends. */
struct part {
	int first, end;
};

static bool made_before(const struct gp_graph *g, int value, const struct part *to, enum gp_insert_end end,
			const struct part *body)
{
	const int node = g->value[value].node;
	return node < to->first && (end == GP_INSERT_UP || node >= body->first);
}

static bool is_read_in(const struct gp_graph *g, int value, const struct part *p)
{
	for (int i = p->first; i < p->end; i++)
		for (int k = 0; k < g->node[i].inputs; k++)
			if (g->node[i].in[k] == value)
				return true;
	return false;
}

/* The activation that is made last of those that cross, and how many others there are; -1: none. */
static enum gp_status find_main(const struct gp_graph *g, enum gp_insert_end end, const struct part *body,
				const struct part *to, struct gp_insertion_end *is, int *value, struct gp_err *err)
{
	bool *activation;
	GP_TRY(gp_alloc_array((void **)&activation, (size_t)g->values, sizeof *activation, err));
	gp_graph_find_activations(g, 0, activation);
	*value = -1;
	is->others = -1;
	for (int v = 0; v < g->values; v++)
		if (activation[v] && made_before(g, v, to, end, body) && is_read_in(g, v, to)) {
			*value = v;
			is->others++;
		}
	gp_free(activation);
	if (*value < 0)
		GP_FAIL(err, GP_USAGE, "--%s: no activation goes %s at this cut of %s, which could be compressed",
			is->flag, gp_insert_end_name[end], g->name);
	return GP_OK;
}

/* --- layers ------------------------------------------------------------------------------------------------------ */

/* One end under construction. */
struct end {
	struct gp_graph *g; /* the new one */
	enum gp_insert_end which;
	const struct gp_insertion_end *is;
	struct gp_shape entry[GP_INSERT_SETS]; /* what each set of the encoder is given */
	struct gp_err *err;
};

static const char *layer_name(const struct end *e, bool decoder, int index, const char *suffix, char name[GP_NAME_MAX])
{
	snprintf(name, GP_NAME_MAX, GP_INSERT_PREFIX "%s.%s.%d%s", gp_insert_end_name[e->which],
		 decoder ? "decoder" : "encoder", index, suffix);
	return name;
}

static const struct gp_shape *shape_of(const struct end *e, int x)
{
	return &e->g->value[x].type.shape;
}

/* -1, with the reason in e->err. */
__attribute__((format(printf, 2, 3))) static int refuse(const struct end *e, const char *fmt, ...)
{
	char why[160], shape[64];
	va_list args;
	va_start(args, fmt);
	vsnprintf(why, sizeof why, fmt, args);
	va_end(args);
	const struct gp_shape *s = &e->is->plain;
	const struct gp_shape torch = {.ndim = 3, .dim = {s->dim[2], s->dim[0], s->dim[1]}};
	gp_err_set(e->err, GP_USAGE, 0, __FILE__, __LINE__, "--%s: %s; %.60s, which goes %s there, is %s", e->is->flag,
		   why, e->is->value, gp_insert_end_name[e->which],
		   gp_shape_text(s->ndim == 3 ? &torch : s, shape, sizeof shape));
	return -1;
}

static int conv_node(const struct end *e, enum gp_op op, const struct gp_conv_attr *a, const char *name, int x)
{
	struct gp_node n = {.op = op};
	gp_set_conv_attr(&n, *a);
	return gp_graph_append(e->g, n, name, 1, &x, e->err);
}

static struct gp_conv_attr conv_attr(const struct gp_insert_set *s, int64_t channels)
{
	return (struct gp_conv_attr){.out_channels = (int32_t)channels,
				     .kernel_h = s->kernel,
				     .kernel_w = s->kernel,
				     .stride_h = s->stride,
				     .stride_w = s->stride,
				     .pad_top = s->pad,
				     .pad_bottom = s->pad,
				     .pad_left = s->pad,
				     .pad_right = s->pad,
				     .groups = 1,
				     .bias = s->bias};
}

static int activation(const struct end *e, enum gp_insert_act act, const char *name, int x)
{
	if (act == GP_INSERT_GELU)
		return gp_graph_gelu(e->g, name, x, false, e->err);
	return gp_graph_unary(e->g, act == GP_INSERT_RELU ? GP_OP_RELU : GP_OP_RELU6, name, x, e->err);
}

/* Batch norm and activation behind a layer that is not the last. */
static int between(const struct end *e, const struct gp_insert_set *s, bool decoder, int index, int x)
{
	char name[GP_NAME_MAX];
	if (x >= 0 && s->batch_norm)
		x = gp_graph_batch_norm(e->g, layer_name(e, decoder, index, ".bn", name), x, 1e-5f, 0.1f, e->err);
	if (x >= 0 && s->act != GP_INSERT_NO_ACT)
		x = activation(e, s->act, layer_name(e, decoder, index, ".act", name), x);
	return x;
}

static int encode_conv(const struct end *e, const struct gp_insert_set *s, int index, int x)
{
	char name[GP_NAME_MAX];
	const struct gp_shape in = *shape_of(e, x);
	if (in.ndim != 3)
		return refuse(e, "conv is for maps (channels, height, width), linear for other activations");
	for (int d = 0; d < 2; d++)
		if (in.dim[d] + 2 * s->pad < s->kernel)
			return refuse(e, "conv: a kernel of %d does not fit %lldx%lld", s->kernel, (long long)in.dim[0],
				      (long long)in.dim[1]);
	const int64_t patch = in.dim[2] * s->kernel * s->kernel;
	if (s->start == GP_INSERT_PCA && s->out > patch)
		return refuse(e,
			      "conv: out=%d is above the %lld numbers of a patch: start=pca has no direction for each",
			      s->out, (long long)patch);
	const struct gp_conv_attr a = conv_attr(s, s->out);
	x = conv_node(e, GP_OP_CONV2D, &a, layer_name(e, false, index, "", name), x);
	return between(e, s, false, index, x);
}

/* What the strides of the encoder left over at the bottom and right comes back as output padding. */
static int decode_conv(const struct end *e, const struct gp_insert_set *s, const struct gp_shape *to, int index, int x)
{
	char name[GP_NAME_MAX];
	struct gp_conv_attr a = conv_attr(s, to->dim[2]);
	a.out_pad_h = (int32_t)((to->dim[0] + 2 * s->pad - s->kernel) % s->stride);
	a.out_pad_w = (int32_t)((to->dim[1] + 2 * s->pad - s->kernel) % s->stride);
	x = conv_node(e, GP_OP_CONV2D_TRANSPOSE, &a, layer_name(e, true, index, "", name), x);
	return s == e->is->spec.set ? x : between(e, s, true, index, x);
}

/* To so many features: of maps, a convolution of 1x1. */
static int product(const struct end *e, const char *name, int64_t features, bool bias, int x)
{
	const struct gp_insert_set one = {.kernel = 1, .stride = 1, .bias = bias};
	const struct gp_conv_attr a = conv_attr(&one, features);
	if (shape_of(e, x)->ndim == 3)
		return conv_node(e, GP_OP_CONV2D, &a, name, x);
	return gp_graph_linear(e->g, name, x, (int)features, bias, e->err);
}

static int linear(const struct end *e, const struct gp_insert_set *s, int64_t features, bool decoder, int index, int x)
{
	char name[GP_NAME_MAX];
	const bool turns = s->dim == GP_INSERT_SEQUENCE;
	if (turns)
		x = gp_graph_unary(e->g, GP_OP_SWAP_LAST, layer_name(e, decoder, index, ".swap", name), x, e->err);
	if (x >= 0)
		x = product(e, layer_name(e, decoder, index, "", name), features, false, x);
	if (x < 0)
		return -1;
	if (s->start == GP_INSERT_IDENTITY)
		e->g->param[gp_graph_maker(e->g, x)->first_param].init = GP_INIT_IDENTITY;
	if (turns)
		x = gp_graph_unary(e->g, GP_OP_SWAP_LAST, layer_name(e, decoder, index, ".back", name), x, e->err);
	return x;
}

/* The dimension that a linear set works on. */
static int64_t worked_on(const struct gp_insert_set *s, const struct gp_shape *shape)
{
	return shape->dim[s->dim == GP_INSERT_SEQUENCE ? 0 : shape->ndim - 1];
}

static int encode_linear(const struct end *e, const struct gp_insert_set *s, int index, int x)
{
	const struct gp_shape *in = shape_of(e, x);
	if (s->kind == GP_INSERT_DECAY && in->ndim == 3)
		return refuse(e, "decay is for features and sequences, not for maps (channels, height, width)");
	if (s->dim == GP_INSERT_SEQUENCE && in->ndim != 2)
		return refuse(e, "dim=sequence is for sequences (positions, features)");
	if (s->rank > worked_on(s, in))
		return refuse(e, "linear: rank=%d is above the %lld %s there are", s->rank, (long long)worked_on(s, in),
			      s->dim == GP_INSERT_SEQUENCE ? "positions" : "features");
	return linear(e, s, s->rank, false, index, x);
}

/* The branch of a bottleneck. Its last layer starts at zero. */
static int branch(const struct end *e, const struct gp_insert_set *s, int64_t features, bool decoder, int index, int x)
{
	char name[GP_NAME_MAX];
	x = product(e, layer_name(e, decoder, index, ".hidden", name), s->hidden, true, x);
	if (x >= 0)
		x = activation(e, s->act, layer_name(e, decoder, index, ".act", name), x);
	if (x >= 0)
		x = product(e, layer_name(e, decoder, index, ".out", name), features, true, x);
	if (x < 0)
		return -1;
	const struct gp_node *last = gp_graph_maker(e->g, x);
	for (int i = 0; i < last->params; i++)
		e->g->param[last->first_param + i].init = GP_INIT_ZEROS;
	return x;
}

/* One side of a bottleneck (insert.h): the straight path, which is linear's, and the branch. */
static int bottleneck(const struct end *e, const struct gp_insert_set *s, int64_t features, bool decoder, int index,
		      int x)
{
	char name[GP_NAME_MAX];
	const int straight = linear(e, s, features, decoder, index, x);
	const int branched = straight < 0 ? -1 : branch(e, s, features, decoder, index, x);
	if (branched < 0)
		return -1;
	return gp_graph_sum(e->g, layer_name(e, decoder, index, ".sum", name), straight, branched, e->err);
}

static int encode_bottleneck(const struct end *e, const struct gp_insert_set *s, int index, int x)
{
	const int64_t features = worked_on(s, shape_of(e, x));
	if (s->rank > features)
		return refuse(e, "bottleneck: dim=%d is above the %lld %s there are", s->rank, (long long)features,
			      shape_of(e, x)->ndim == 3 ? "channels" : "features");
	return bottleneck(e, s, s->rank, false, index, x);
}

static int encode(struct end *e, int x)
{
	for (int i = 0; i < e->is->spec.sets && x >= 0; i++) {
		const struct gp_insert_set *s = &e->is->spec.set[i];
		e->entry[i] = *shape_of(e, x);
		if (s->kind == GP_INSERT_DECAY) /* the specs are the caller's, which are not const */
			gp_insert_settle_decay((struct gp_insert_set *)s, worked_on(s, &e->entry[i]));
		x = s->kind == GP_INSERT_CONV         ? encode_conv(e, s, i, x)
		    : s->kind == GP_INSERT_BOTTLENECK ? encode_bottleneck(e, s, i, x)
						      : encode_linear(e, s, i, x);
	}
	return x;
}

static int decode(const struct end *e, int x)
{
	for (int i = e->is->spec.sets - 1, index = 0; i >= 0 && x >= 0; i--, index++) {
		const struct gp_insert_set *s = &e->is->spec.set[i];
		const struct gp_shape *to = &e->entry[i];
		x = s->kind == GP_INSERT_CONV         ? decode_conv(e, s, to, index, x)
		    : s->kind == GP_INSERT_BOTTLENECK ? bottleneck(e, s, worked_on(s, to), true, index, x)
						      : linear(e, s, worked_on(s, to), true, index, x);
	}
	return x;
}

/* --- the graph --------------------------------------------------------------------------------------------------- */

/* A copy of a graph in the making. */
struct rewrite {
	const struct gp_graph *from;
	struct gp_graph *to;
	const struct gp_cut *cut;
	int *index; /* of each value of `from` in `to` */
	struct gp_insertion *ins;
	struct end end[GP_INSERT_ENDS];
	int packed[GP_INSERT_ENDS]; /* values of `to` that cross */
};

static int block_of_end(const struct rewrite *r, int end)
{
	return end == GP_INSERT_UP ? r->cut->head : r->cut->tail;
}

/* The value that an end works on; -1: there is no insertion. */
static enum gp_status find_values(struct rewrite *r, int value[GP_INSERT_ENDS], struct gp_err *err)
{
	const struct gp_graph *g = r->from;
	const struct part body = {g->block[r->cut->head].first_node, g->block[r->cut->tail].first_node},
			  tail = {body.end, g->nodes};
	for (int e = 0; e < GP_INSERT_ENDS; e++) {
		struct gp_insertion_end *end = &r->ins->end[e];
		value[e] = -1;
		if (end->spec.sets == 0)
			continue;
		GP_TRY(find_main(g, (enum gp_insert_end)e, &body, e == GP_INSERT_UP ? &body : &tail, end, &value[e],
				 err));
		gp_value_name(g, value[e], end->value);
		end->plain = g->value[value[e]].type.shape;
	}
	return GP_OK;
}

static enum gp_status copy_inputs(struct rewrite *r, struct gp_err *err)
{
	const struct gp_graph *g = r->from;
	for (int i = 0; i < g->inputs; i++) {
		r->index[i] = gp_graph_add_input(r->to, g->node[i].name, &g->value[i].type, err);
		if (r->index[i] < 0)
			return err->code;
		if (g->value[i].sequence)
			gp_graph_mark_sequence(r->to, r->index[i]);
	}
	return GP_OK;
}

static enum gp_status encode_end(struct rewrite *r, int end, int value, struct gp_err *err)
{
	r->end[end] = (struct end){.g = r->to, .which = (enum gp_insert_end)end, .is = &r->ins->end[end], .err = err};
	r->packed[end] = encode(&r->end[end], r->index[value]);
	if (r->packed[end] < 0)
		return err->code;
	r->ins->end[end].packed = r->to->value[r->packed[end]].type.shape;
	return GP_OK;
}

/* From here on what is read is the decoder's. */
static enum gp_status decode_end(struct rewrite *r, int end, int value, struct gp_err *err)
{
	const int x = decode(&r->end[end], r->packed[end]);
	if (x < 0)
		return err->code;
	r->index[value] = x;
	return GP_OK;
}

/* One block, and the insertions before it: encoder, the block's beginning, decoder. */
static enum gp_status copy_block(struct rewrite *r, int block, const int value[GP_INSERT_ENDS], struct gp_err *err)
{
	const struct gp_graph *g = r->from;
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		if (value[e] >= 0 && block_of_end(r, e) == block)
			GP_TRY(encode_end(r, e, value[e], err));
	GP_TRY(gp_graph_begin_block(r->to, g->block[block].name, err));
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		if (value[e] >= 0 && block_of_end(r, e) == block)
			GP_TRY(decode_end(r, e, value[e], err));
	for (int i = g->block[block].first_node; i < gp_graph_block_end(g, block); i++)
		GP_TRY(gp_graph_copy_node(r->to, g, i, r->index, err));
	return GP_OK;
}

static enum gp_status copy_outputs(struct rewrite *r, struct gp_err *err)
{
	int value[GP_GRAPH_MAX_PORTS];
	for (int i = 0; i < r->from->outputs; i++)
		value[i] = r->index[r->from->output[i].value];
	return gp_graph_set_outputs(r->to, r->from->outputs, value, err);
}

static enum gp_status rewrite(struct rewrite *r, struct gp_err *err)
{
	int value[GP_INSERT_ENDS], kept = -1;
	GP_TRY(find_values(r, value, err));
	GP_TRY(copy_inputs(r, err));
	/* What the tail reads of the value that goes up is the value itself, which has stayed here. */
	for (int b = 0; b < r->from->blocks; b++) {
		if (b == r->cut->head && value[GP_INSERT_UP] >= 0)
			kept = r->index[value[GP_INSERT_UP]];
		if (b == r->cut->tail && kept >= 0)
			r->index[value[GP_INSERT_UP]] = kept;
		GP_TRY(copy_block(r, b, value, err));
	}
	GP_TRY(copy_outputs(r, err));
	gp_graph_copy_tie(r->to, r->from);
	gp_graph_count_trained(r->to);
	return gp_graph_finish(r->to, err);
}

enum gp_status gp_insert(struct gp_graph **g, const struct gp_cut *cut, struct gp_insertion *ins, struct gp_err *err)
{
	struct rewrite r = {.from = *g, .cut = cut, .ins = ins};
	if (!gp_insertion_any(ins))
		return GP_OK;
	GP_TRY(gp_alloc_array((void **)&r.index, (size_t)r.from->values, sizeof *r.index, err));
	r.to = gp_graph_new_empty(r.from->name, err);
	const enum gp_status status = r.to ? rewrite(&r, err) : err->code;
	gp_free(r.index);
	if (status != GP_OK) {
		gp_graph_free(r.to);
		return status;
	}
	gp_graph_free(*g);
	*g = r.to;
	return GP_OK;
}

/* --- one end alone ----------------------------------------------------------------------------------------------- */

static enum gp_status fill_alone(struct end *e, bool back, struct gp_err *err)
{
	const struct gp_type type = {GP_F32, e->is->plain};
	int x = gp_graph_add_input(e->g, "value", &type, err);
	if (x < 0)
		return err->code;
	GP_TRY(gp_graph_begin_block(e->g, "encoder", err));
	x = encode(e, x);
	if (x >= 0 && back) {
		GP_TRY(gp_graph_begin_block(e->g, "decoder", err));
		x = decode(e, x);
	}
	return x < 0 ? err->code : gp_graph_finish(e->g, err);
}

enum gp_status gp_insert_alone(const struct gp_insertion *ins, enum gp_insert_end end, int sets, bool back,
			       struct gp_graph **out, struct gp_err *err)
{
	struct gp_insertion_end is = ins->end[end];
	struct gp_graph *g = gp_graph_new_empty("insertion", err);
	struct end e = {.g = g, .which = end, .is = &is, .err = err};
	if (!g)
		return err->code;
	gp_require(sets >= 1 && sets <= is.spec.sets);
	is.spec.sets = sets;
	if (fill_alone(&e, back, err) != GP_OK) {
		gp_graph_free(g);
		return err->code;
	}
	*out = g;
	return GP_OK;
}

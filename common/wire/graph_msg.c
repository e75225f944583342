/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph messages, see graph_msg.h. Tests: tests/unit/test_graph_msg.c,
 * tests/fuzz/fuzz_graph.c
 */
#include "common/wire/graph_msg.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"

/* --- from the wire ---------------------------------------------------------------------------------------------- */

/* Attributes are never negative: what does not fit becomes -1, which gp_graph_add refuses with the field's name. */
static int32_t attr(uint32_t v)
{
	return v > INT32_MAX ? -1 : (int32_t)v;
}

static enum gp_status read_conv(const Gpsplit__Conv *m, struct gp_conv_attr *a, struct gp_err *err)
{
	if (!m)
		GP_FAIL(err, GP_INVALID, "a convolution without its attributes");
	*a = (struct gp_conv_attr){
		.out_channels = attr(m->out_channels),
		.kernel_h = attr(m->kernel_h),
		.kernel_w = attr(m->kernel_w),
		.stride_h = attr(m->stride_h),
		.stride_w = attr(m->stride_w),
		.pad_top = attr(m->pad_top),
		.pad_bottom = attr(m->pad_bottom),
		.pad_left = attr(m->pad_left),
		.pad_right = attr(m->pad_right),
		.out_pad_h = attr(m->out_pad_h),
		.out_pad_w = attr(m->out_pad_w),
		.groups = attr(m->groups),
		.bias = m->bias != 0,
	};
	return GP_OK;
}

static enum gp_status read_pool(const Gpsplit__Pool *m, struct gp_pool_attr *a, struct gp_err *err)
{
	if (!m)
		GP_FAIL(err, GP_INVALID, "a pool without its attributes");
	*a = (struct gp_pool_attr){
		.kernel_h = attr(m->kernel_h),
		.kernel_w = attr(m->kernel_w),
		.stride_h = attr(m->stride_h),
		.stride_w = attr(m->stride_w),
		.pad_top = attr(m->pad_top),
		.pad_bottom = attr(m->pad_bottom),
		.pad_left = attr(m->pad_left),
		.pad_right = attr(m->pad_right),
		.count_include_pad = m->count_include_pad != 0,
	};
	return GP_OK;
}

static enum gp_status read_shortcut(const Gpsplit__ShortcutPad *m, struct gp_shortcut_attr *a, struct gp_err *err)
{
	if (!m)
		GP_FAIL(err, GP_INVALID, "a padded shortcut without its attributes");
	*a = (struct gp_shortcut_attr){.stride = attr(m->stride), .before = attr(m->before), .after = attr(m->after)};
	return GP_OK;
}

static enum gp_status read_attributes(const Gpsplit__Node *m, struct gp_node *n, struct gp_err *err)
{
	switch (n->op) {
	case GP_OP_CONV2D:
	case GP_OP_CONV2D_TRANSPOSE:
		return read_conv(m->conv, &n->u.conv, err);
	case GP_OP_AVG_POOL:
	case GP_OP_MAX_POOL:
		return read_pool(m->pool, &n->u.pool, err);
	case GP_OP_BATCH_NORM:
		if (!m->batch_norm)
			GP_FAIL(err, GP_INVALID, "a batch norm without its attributes");
		n->u.bn = (struct gp_bn_attr){.eps = m->batch_norm->eps, .momentum = m->batch_norm->momentum};
		return GP_OK;
	case GP_OP_LINEAR:
		if (!m->linear)
			GP_FAIL(err, GP_INVALID, "a linear layer without its attributes");
		n->u.linear.out_features = attr(m->linear->out_features);
		n->u.linear.bias = m->linear->bias != 0;
		return GP_OK;
	case GP_OP_DROPOUT:
		n->u.dropout.p = m->dropout_p;
		return GP_OK;
	case GP_OP_SHORTCUT_PAD:
		return read_shortcut(m->shortcut_pad, &n->u.shortcut, err);
	default:
		return GP_OK;
	}
}

static enum gp_status read_node(const Gpsplit__Node *m, struct gp_node *n, struct gp_err *err)
{
	*n = (struct gp_node){.op = m->op < GP_OP_COUNT ? (enum gp_op)m->op : GP_OP_COUNT, .in = {-1, -1}};
	if (m->n_in > 2)
		GP_FAIL(err, GP_INVALID, "%zu inputs; a node has at most 2", m->n_in);
	for (size_t i = 0; i < m->n_in; i++)
		n->in[i] = attr(m->in[i]);
	/* A name that fills the field is too long for gp_graph_add, so nothing is cut unnoticed. */
	memcpy(n->name, m->name, strnlen(m->name, GP_NAME_MAX - 1));
	return read_attributes(m, n, err);
}

static enum gp_status read_inits(const Gpsplit__Node *m, struct gp_graph *g, int index, struct gp_err *err)
{
	const struct gp_node *n = &g->node[index];
	if (m->n_init == 0)
		return GP_OK;
	if (m->n_init != (size_t)n->params)
		GP_FAIL(err, GP_INVALID, "node %s has %d parameters but %zu starting values", n->name, n->params,
			m->n_init);
	for (int i = 0; i < n->params; i++) {
		const Gpsplit__Init *init = m->init[i];
		struct gp_param *p = &g->param[n->first_param + i];
		if (init->kind > GP_INIT_UNIFORM || !isfinite(init->scale) || init->scale < 0)
			GP_FAIL(err, GP_INVALID, "parameter %s has an impossible starting value", p->name);
		p->init = (enum gp_init_kind)init->kind;
		p->init_scale = init->scale;
		p->decay = p->trained && !init->no_decay;
	}
	return GP_OK;
}

static enum gp_status add_node(struct gp_graph *g, const Gpsplit__Node *m, uint64_t max_param_elements,
			       struct gp_err *err)
{
	struct gp_node n;
	int index;
	if (read_node(m, &n, err) != GP_OK)
		return gp_err_prefix(err, "node %d", g->nodes);
	GP_TRY(gp_graph_add(g, &n, &index, err));
	if (g->param_elements > max_param_elements)
		GP_FAIL(err, GP_NOMEM, "the graph has more than the %llu parameters that are allowed here",
			(unsigned long long)max_param_elements);
	return read_inits(m, g, index, err);
}

static enum gp_status add_nodes(struct gp_graph *g, const Gpsplit__Graph *m, uint64_t max_param_elements,
				struct gp_err *err)
{
	GP_TRY(gp_graph_begin_block(g, "body", err));
	for (size_t i = 0; i < m->n_node; i++)
		GP_TRY(add_node(g, m->node[i], max_param_elements, err));
	return gp_graph_finish(g, err);
}

enum gp_status gp_graph_from_msg(const Gpsplit__Graph *m, uint64_t max_param_elements, struct gp_graph **out,
				 struct gp_err *err)
{
	struct gp_shape input = {.ndim = (int)m->n_input};
	if (m->n_input < 1 || m->n_input > 3)
		GP_FAIL(err, GP_INVALID, "the graph's input has %zu dimensions; it must have 1 to 3", m->n_input);
	if (m->n_node >= GP_GRAPH_MAX_NODES)
		GP_FAIL(err, GP_INVALID, "the graph has %zu nodes; at most %d are allowed", m->n_node,
			GP_GRAPH_MAX_NODES - 1);
	memcpy(input.dim, m->input, m->n_input * sizeof input.dim[0]);
	struct gp_graph *g = gp_graph_new(m->name, &input, err);
	if (!g)
		return err->code;
	if (add_nodes(g, m, max_param_elements, err) != GP_OK) {
		gp_graph_free(g);
		return err->code;
	}
	*out = g;
	return GP_OK;
}

/* --- to the wire ------------------------------------------------------------------------------------------------ */

/* All that one graph's message points to; `graph` is first, so that it can be freed by its address. */
struct message {
	Gpsplit__Graph graph;
	int64_t input[GP_MAX_DIMS];
	struct node_message {
		Gpsplit__Node node;
		uint32_t in[2];
		union {
			Gpsplit__Conv conv;
			Gpsplit__Pool pool;
			Gpsplit__BatchNorm bn;
			Gpsplit__Linear linear;
			Gpsplit__ShortcutPad shortcut;
		} u;
	} * node;
	Gpsplit__Node **node_list;
	Gpsplit__Init *init;
	Gpsplit__Init **init_list;
};

static void write_conv(Gpsplit__Conv *m, const struct gp_conv_attr *a)
{
	gpsplit__conv__init(m);
	m->out_channels = (uint32_t)a->out_channels;
	m->kernel_h = (uint32_t)a->kernel_h;
	m->kernel_w = (uint32_t)a->kernel_w;
	m->stride_h = (uint32_t)a->stride_h;
	m->stride_w = (uint32_t)a->stride_w;
	m->pad_top = (uint32_t)a->pad_top;
	m->pad_bottom = (uint32_t)a->pad_bottom;
	m->pad_left = (uint32_t)a->pad_left;
	m->pad_right = (uint32_t)a->pad_right;
	m->out_pad_h = (uint32_t)a->out_pad_h;
	m->out_pad_w = (uint32_t)a->out_pad_w;
	m->groups = (uint32_t)a->groups;
	m->bias = a->bias;
}

static void write_pool(Gpsplit__Pool *m, const struct gp_pool_attr *a)
{
	gpsplit__pool__init(m);
	m->kernel_h = (uint32_t)a->kernel_h;
	m->kernel_w = (uint32_t)a->kernel_w;
	m->stride_h = (uint32_t)a->stride_h;
	m->stride_w = (uint32_t)a->stride_w;
	m->pad_top = (uint32_t)a->pad_top;
	m->pad_bottom = (uint32_t)a->pad_bottom;
	m->pad_left = (uint32_t)a->pad_left;
	m->pad_right = (uint32_t)a->pad_right;
	m->count_include_pad = a->count_include_pad;
}

static void write_shortcut(Gpsplit__ShortcutPad *m, const struct gp_shortcut_attr *a)
{
	gpsplit__shortcut_pad__init(m);
	m->stride = (uint32_t)a->stride;
	m->before = (uint32_t)a->before;
	m->after = (uint32_t)a->after;
}

static void write_attributes(struct node_message *m, const struct gp_node *n)
{
	switch (n->op) {
	case GP_OP_CONV2D:
	case GP_OP_CONV2D_TRANSPOSE:
		write_conv(&m->u.conv, &n->u.conv);
		m->node.conv = &m->u.conv;
		break;
	case GP_OP_AVG_POOL:
	case GP_OP_MAX_POOL:
		write_pool(&m->u.pool, &n->u.pool);
		m->node.pool = &m->u.pool;
		break;
	case GP_OP_BATCH_NORM:
		gpsplit__batch_norm__init(&m->u.bn);
		m->u.bn.eps = n->u.bn.eps;
		m->u.bn.momentum = n->u.bn.momentum;
		m->node.batch_norm = &m->u.bn;
		break;
	case GP_OP_LINEAR:
		gpsplit__linear__init(&m->u.linear);
		m->u.linear.out_features = (uint32_t)n->u.linear.out_features;
		m->u.linear.bias = n->u.linear.bias;
		m->node.linear = &m->u.linear;
		break;
	case GP_OP_DROPOUT:
		m->node.dropout_p = n->u.dropout.p;
		break;
	case GP_OP_SHORTCUT_PAD:
		write_shortcut(&m->u.shortcut, &n->u.shortcut);
		m->node.shortcut_pad = &m->u.shortcut;
		break;
	default:
		break;
	}
}

static void write_node(struct message *m, const struct gp_graph *g, int index)
{
	const struct gp_node *n = &g->node[index];
	struct node_message *to = &m->node[index - 1];
	gpsplit__node__init(&to->node);
	to->node.op = n->op;
	to->node.name = (char *)n->name; /* borrowed; protobuf-c only reads it */
	for (; to->node.n_in < 2 && n->in[to->node.n_in] >= 0; to->node.n_in++)
		to->in[to->node.n_in] = (uint32_t)n->in[to->node.n_in];
	to->node.in = to->in;
	write_attributes(to, n);
	to->node.n_init = (size_t)n->params;
	to->node.init = m->init_list + n->first_param;
	m->node_list[index - 1] = &to->node;
}

static void write_init(struct message *m, const struct gp_graph *g, int index)
{
	const struct gp_param *p = &g->param[index];
	Gpsplit__Init *to = &m->init[index];
	gpsplit__init__init(to);
	to->kind = p->init;
	to->scale = p->init_scale;
	to->no_decay = p->trained && !p->decay;
	m->init_list[index] = to;
}

static enum gp_status alloc_message(const struct gp_graph *g, struct message *m, struct gp_err *err)
{
	size_t nodes = (size_t)g->nodes - 1, params = (size_t)g->params;
	GP_TRY(gp_alloc_array((void **)&m->node, nodes, sizeof *m->node, err));
	GP_TRY(gp_alloc_array((void **)&m->node_list, nodes, sizeof(*m->node_list), err));
	GP_TRY(gp_alloc_array((void **)&m->init, params, sizeof *m->init, err));
	return gp_alloc_array((void **)&m->init_list, params, sizeof(*m->init_list), err);
}

enum gp_status gp_graph_to_msg(const struct gp_graph *g, Gpsplit__Graph **out, struct gp_err *err)
{
	struct message *m;
	GP_TRY(gp_alloc_array((void **)&m, 1, sizeof *m, err));
	gpsplit__graph__init(&m->graph);
	if (alloc_message(g, m, err) != GP_OK) {
		gp_graph_msg_free(&m->graph);
		return err->code;
	}
	const struct gp_shape *input = gp_graph_input_shape(g);
	memcpy(m->input, input->dim, sizeof m->input);
	m->graph.name = (char *)g->name;
	m->graph.n_input = (size_t)input->ndim;
	m->graph.input = m->input;
	m->graph.n_node = (size_t)g->nodes - 1;
	m->graph.node = m->node_list;
	for (int i = 0; i < g->params; i++)
		write_init(m, g, i);
	for (int i = 1; i < g->nodes; i++)
		write_node(m, g, i);
	*out = &m->graph;
	return GP_OK;
}

void gp_graph_msg_free(Gpsplit__Graph *graph)
{
	struct message *m = (struct message *)graph;
	if (!m)
		return;
	gp_free(m->node);
	gp_free(m->node_list);
	gp_free(m->init);
	gp_free(m->init_list);
	gp_free(m);
}

enum gp_status gp_graph_hash(const struct gp_graph *g, uint64_t *out, struct gp_err *err)
{
	Gpsplit__Graph *m;
	void *packed;
	GP_TRY(gp_graph_to_msg(g, &m, err));
	size_t len = gpsplit__graph__get_packed_size(m);
	enum gp_status status = gp_alloc_array(&packed, 1, len + 1, err);
	if (status == GP_OK) {
		gpsplit__graph__pack(m, packed);
		*out = XXH3_64bits(packed, len);
		gp_free(packed);
	}
	gp_graph_msg_free(m);
	return status;
}

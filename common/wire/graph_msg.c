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
#include "common/wire/frame.h"
#include "common/graph/op.h"

#define NODE_BYTES_LEAST 8  /* of a node in a message: two heads, an op, a name, an input */
#define ROOM_AT_LEAST    32 /* of a graph's arrays, which have room for up to twice as many as they hold */

static uint64_t least_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t gp_graph_msg_most_bytes(uint64_t message_bytes)
{
	const struct gp_graph *g = NULL;
	const uint64_t nodes = least_of(message_bytes / NODE_BYTES_LEAST + 1, GP_GRAPH_MAX_NODES);
	const uint64_t values = least_of(nodes * GP_NODE_MAX_OUTPUTS, GP_GRAPH_MAX_VALUES);
	return sizeof *g + (2 * nodes + ROOM_AT_LEAST) * (sizeof *g->node + sizeof *g->block) +
	       (2 * values + ROOM_AT_LEAST) * sizeof *g->value +
	       (2 * nodes * GP_NODE_MAX_PARAMS + ROOM_AT_LEAST) * sizeof *g->param;
}

/* --- from the wire ---------------------------------------------------------------------------------------------- */

static enum gp_status check_attributes(size_t count, const struct gp_op_def *def, struct gp_err *err)
{
	const size_t most = (size_t)def->attrs, least = (size_t)(def->attrs - def->optional);
	if (count < least || count > most) {
		if (least == most)
			GP_FAIL(err, GP_INVALID, "%zu attributes; %s has %zu", count, def->name, most);
		GP_FAIL(err, GP_INVALID, "%zu attributes; %s has %zu to %zu", count, def->name, least, most);
	}
	return GP_OK;
}

static enum gp_status read_node(const Gpsplit__Node *m, struct gp_node *n, struct gp_err *err)
{
	*n = (struct gp_node){.op = m->op < GP_OP_COUNT ? (enum gp_op)m->op : GP_OP_COUNT};
	const struct gp_op_def *def = gp_op_def(n->op);
	if (!def)
		GP_FAIL(err, GP_INVALID, "op %u is not one a node may have", m->op);
	if (m->n_in > GP_NODE_MAX_INPUTS)
		GP_FAIL(err, GP_INVALID, "%zu inputs; a node has at most %d", m->n_in, GP_NODE_MAX_INPUTS);
	GP_TRY(check_attributes(m->n_attr, def, err));
	n->inputs = (int)m->n_in;
	for (size_t i = 0; i < m->n_in; i++) /* what does not fit is no value of any graph */
		n->in[i] = m->in[i] > INT32_MAX ? -1 : (int)m->in[i];
	for (size_t i = 0; i < m->n_attr; i++)
		memcpy(&n->attr[i], &m->attr[i], sizeof n->attr[i]);
	/* A name that fills the field is too long for gp_graph_add, so nothing is cut unnoticed. */
	memcpy(n->name, m->name, strnlen(m->name, GP_NAME_MAX - 1));
	return GP_OK;
}

static enum gp_status read_inits(const Gpsplit__Node *m, struct gp_graph *g, struct gp_err *err)
{
	const struct gp_node *n = &g->node[g->nodes - 1];
	if (m->n_init == 0)
		return GP_OK;
	if (m->n_init != (size_t)n->params)
		GP_FAIL(err, GP_INVALID, "node %s has %d parameters but %zu starting values", n->name, n->params,
			m->n_init);
	for (int i = 0; i < n->params; i++) {
		const Gpsplit__Init *init = m->init[i];
		struct gp_param *p = &g->param[n->first_param + i];
		if (init->kind >= GP_INIT_KINDS || !isfinite(init->scale) || init->scale < 0)
			GP_FAIL(err, GP_INVALID, "parameter %s has an impossible starting value", p->name);
		p->init = (enum gp_init_kind)init->kind;
		p->init_scale = init->scale;
		p->trained = p->trained && !init->frozen;
		p->decay = p->trained && !init->no_decay;
	}
	return GP_OK;
}

/* A parameter crosses the link in a frame of its own, at the latest when the training ends. */
static enum gp_status check_frames(const struct gp_graph *g, int first, struct gp_err *err)
{
	const uint64_t most = GP_FRAME_BYTES_MAX / sizeof(float);
	for (int i = first; i < g->params; i++)
		if (g->param[i].count > most)
			GP_FAIL(err, GP_INVALID,
				"parameter %s has %llu elements; at most %llu fit into the frame in which it would "
				"cross the link",
				g->param[i].name, (unsigned long long)g->param[i].count, (unsigned long long)most);
	return GP_OK;
}

static enum gp_status add_node(struct gp_graph *g, const Gpsplit__Node *m, uint64_t max_param_elements,
			       struct gp_err *err)
{
	struct gp_node n;
	const int first_param = g->params;
	int value;
	if (read_node(m, &n, err) != GP_OK)
		return gp_err_prefix(err, "node %d", g->nodes);
	GP_TRY(gp_graph_add(g, &n, &value, err));
	if (g->param_elements > max_param_elements)
		GP_FAIL(err, GP_NOMEM, "the graph has more than the %llu parameters that are allowed here",
			(unsigned long long)max_param_elements);
	GP_TRY(check_frames(g, first_param, err));
	return read_inits(m, g, err);
}

static enum gp_status add_input(struct gp_graph *g, const Gpsplit__Input *m, struct gp_err *err)
{
	struct gp_type type = {.dtype = m->dtype < GP_DTYPES ? (enum gp_dtype)m->dtype : GP_DTYPES};
	if (m->n_shape < 1 || m->n_shape > 3)
		GP_FAIL(err, GP_INVALID, "input %d of the graph has %zu dimensions; it must have 1 to 3", g->inputs,
			m->n_shape);
	type.shape.ndim = (int)m->n_shape;
	memcpy(type.shape.dim, m->shape, m->n_shape * sizeof m->shape[0]);
	const int input = gp_graph_add_input(g, m->name, &type, err);
	if (input < 0)
		return err->code;
	if (m->sequence)
		gp_graph_mark_sequence(g, input);
	return GP_OK;
}

static enum gp_status set_outputs(struct gp_graph *g, const Gpsplit__Graph *m, struct gp_err *err)
{
	int value[GP_GRAPH_MAX_PORTS];
	if (m->n_output > GP_GRAPH_MAX_PORTS)
		GP_FAIL(err, GP_INVALID, "the graph has %zu outputs; at most %d are allowed", m->n_output,
			GP_GRAPH_MAX_PORTS);
	for (size_t i = 0; i < m->n_output; i++)
		value[i] = m->output[i] > INT32_MAX ? -1 : (int)m->output[i];
	return gp_graph_set_outputs(g, (int)m->n_output, value, err);
}

static enum gp_status fill_graph(struct gp_graph *g, const Gpsplit__Graph *m, uint64_t max_param_elements,
				 struct gp_err *err)
{
	for (size_t i = 0; i < m->n_input; i++)
		GP_TRY(add_input(g, m->input[i], err));
	GP_TRY(gp_graph_begin_block(g, "body", err));
	for (size_t i = 0; i < m->n_node; i++)
		GP_TRY(add_node(g, m->node[i], max_param_elements, err));
	gp_graph_count_trained(g);
	GP_TRY(set_outputs(g, m, err));
	return gp_graph_finish(g, err);
}

enum gp_status gp_graph_from_msg(const Gpsplit__Graph *m, uint64_t max_param_elements, struct gp_graph **out,
				 struct gp_err *err)
{
	if (m->n_input < 1 || m->n_input > GP_GRAPH_MAX_PORTS)
		GP_FAIL(err, GP_INVALID, "the graph has %zu inputs; it must have 1 to %d", m->n_input,
			GP_GRAPH_MAX_PORTS);
	if (m->n_node > GP_GRAPH_MAX_NODES - m->n_input)
		GP_FAIL(err, GP_INVALID, "the graph has %zu nodes beside its inputs; at most %zu are allowed",
			m->n_node, GP_GRAPH_MAX_NODES - m->n_input);
	struct gp_graph *g = gp_graph_new_empty(m->name, err);
	if (!g)
		return err->code;
	if (fill_graph(g, m, max_param_elements, err) != GP_OK) {
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
	struct input_message {
		Gpsplit__Input input;
		int64_t shape[GP_MAX_DIMS];
	} input[GP_GRAPH_MAX_PORTS];
	Gpsplit__Input *input_list[GP_GRAPH_MAX_PORTS];
	uint32_t output[GP_GRAPH_MAX_PORTS];
	struct node_message {
		Gpsplit__Node node;
		uint32_t in[GP_NODE_MAX_INPUTS];
		uint32_t attr[GP_NODE_MAX_ATTRS];
	} * node;
	Gpsplit__Node **node_list;
	Gpsplit__Init *init;
	Gpsplit__Init **init_list;
};

static void write_input(struct message *m, const struct gp_graph *g, int index)
{
	const struct gp_type *type = &g->value[g->node[index].first_value].type;
	struct input_message *to = &m->input[index];
	gpsplit__input__init(&to->input);
	memcpy(to->shape, type->shape.dim, sizeof to->shape);
	to->input.name = (char *)g->node[index].name; /* borrowed; protobuf-c only reads it */
	to->input.dtype = type->dtype;
	to->input.sequence = g->value[g->node[index].first_value].sequence;
	to->input.n_shape = (size_t)type->shape.ndim;
	to->input.shape = to->shape;
	m->input_list[index] = &to->input;
}

static size_t attributes_to_write(const struct gp_node *n)
{
	const struct gp_op_def *def = gp_op_def(n->op);
	int count = def->attrs;
	while (count > def->attrs - def->optional && n->attr[count - 1].i == 0)
		count--;
	return (size_t)count;
}

static void write_node(struct message *m, const struct gp_graph *g, int index)
{
	const struct gp_node *n = &g->node[index];
	struct node_message *to = &m->node[index - g->inputs];
	gpsplit__node__init(&to->node);
	to->node.op = n->op;
	to->node.name = (char *)n->name;
	for (int i = 0; i < n->inputs; i++)
		to->in[i] = (uint32_t)n->in[i];
	to->node.n_in = (size_t)n->inputs;
	to->node.in = to->in;
	memcpy(to->attr, n->attr, sizeof to->attr);
	to->node.n_attr = attributes_to_write(n);
	to->node.attr = to->attr;
	to->node.n_init = (size_t)n->params;
	to->node.init = m->init_list + n->first_param;
	m->node_list[index - g->inputs] = &to->node;
}

/* Running statistics are never trained; a parameter that could be and is not was frozen. */
static bool is_frozen(const struct gp_param *p)
{
	return !p->trained && (p->role == GP_PARAM_WEIGHT || p->role == GP_PARAM_BIAS);
}

static void write_init(struct message *m, const struct gp_graph *g, int index)
{
	const struct gp_param *p = &g->param[index];
	Gpsplit__Init *to = &m->init[index];
	gpsplit__init__init(to);
	to->kind = p->init;
	to->scale = p->init_scale;
	to->no_decay = p->trained && !p->decay;
	to->frozen = is_frozen(p);
	m->init_list[index] = to;
}

static enum gp_status alloc_message(const struct gp_graph *g, struct message *m, struct gp_err *err)
{
	size_t nodes = (size_t)(g->nodes - g->inputs), params = (size_t)g->params;
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
	m->graph.name = (char *)g->name;
	m->graph.n_input = (size_t)g->inputs;
	m->graph.input = m->input_list;
	m->graph.n_node = (size_t)(g->nodes - g->inputs);
	m->graph.node = m->node_list;
	m->graph.n_output = (size_t)g->outputs;
	m->graph.output = m->output;
	for (int i = 0; i < g->outputs; i++)
		m->output[i] = (uint32_t)g->output[i].value;
	for (int i = 0; i < g->inputs; i++)
		write_input(m, g, i);
	for (int i = 0; i < g->params; i++)
		write_init(m, g, i);
	for (int i = g->inputs; i < g->nodes; i++)
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

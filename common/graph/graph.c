/* SPDX-License-Identifier: Apache-2.0
 *
 * The model graph: building, limits, what is asked of it. What an op does to
 * types is in ops/, parameters are in graph_params.c, parts and cuts in graph_part.c.
 * gp_graph_add is the one place where a node is validated, whoever it came from.
 * Test: tests/unit/test_graph.c
 */
#include "common/graph/graph.h"

#include <limits.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/graph/op.h"

#define LONGEST_SUFFIX ".running_mean"

static enum gp_status grow(void **array, int *cap, int need, size_t size, struct gp_err *err)
{
	if (need <= *cap)
		return GP_OK;
	int bigger = need < 32 ? 32 : need * 2;
	void *p = gp_realloc(*array, (size_t)bigger, size);
	if (!p)
		GP_FAIL(err, GP_NOMEM, "out of memory for %d graph entries", bigger);
	*array = p;
	*cap = bigger;
	return GP_OK;
}

/* Names reach file headers, logs and the peer: letters, digits and "._-", no leading dot, room for a suffix. */
static enum gp_status check_name(const char *name, struct gp_err *err)
{
	size_t limit = GP_NAME_MAX - sizeof LONGEST_SUFFIX;
	size_t len = strnlen(name, GP_NAME_MAX);
	if (len == 0 || len > limit)
		GP_FAIL(err, GP_INVALID, "a name has %zu bytes; it must have 1 to %zu", len, limit);
	for (size_t i = 0; i < len; i++) {
		char c = name[i];
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
		if (!plain && c != '_' && c != '-' && !(c == '.' && i > 0 && name[i - 1] != '.'))
			GP_FAIL(err, GP_INVALID,
				"byte %zu of a name is 0x%02x; only letters, digits, '_', '-' and "
				"single dots are allowed",
				i, (unsigned char)c);
	}
	return GP_OK;
}

/* `to` has GP_NAME_MAX bytes; `from` has passed check_name. */
static void copy_name(char *to, const char *from)
{
	memset(to, 0, GP_NAME_MAX);
	memcpy(to, from, strnlen(from, GP_NAME_MAX - 1));
}

struct gp_graph *gp_graph_new_empty(const char *name, struct gp_err *err)
{
	if (check_name(name, err) != GP_OK)
		return NULL;
	struct gp_graph *g = gp_calloc(1, sizeof *g);
	if (!g)
		gp_err_set(err, GP_NOMEM, 0, __FILE__, __LINE__, "out of memory for a graph");
	else
		copy_name(g->name, name);
	return g;
}

/* One more value of the last node; room is there. */
static void push_value(struct gp_graph *g, const struct gp_type *type, int output)
{
	g->value[g->values++] = (struct gp_graph_value){.type = *type, .node = g->nodes - 1, .output = output};
}

/* Where the name stands among those of the nodes, or would stand, by a binary search: a graph that a client has made, with
 * the most nodes there may be, takes no longer to read than its bytes say. */
static bool find_name(const struct gp_graph *g, const char *name, int *place)
{
	int low = 0, end = g->nodes;
	while (low < end) {
		const int middle = low + (end - low) / 2;
		const int order = strcmp(g->node[g->by_name[middle]].name, name);
		if (order == 0) {
			*place = middle;
			return true;
		}
		*(order < 0 ? &low : &end) = order < 0 ? middle + 1 : middle;
	}
	*place = low;
	return false;
}

static bool name_is_taken(const struct gp_graph *g, const char *name, int *by)
{
	int place;
	const bool taken = find_name(g, name, &place);
	if (taken)
		*by = g->by_name[place];
	return taken;
}

/* Its name is checked, and there is room. */
static void push_node(struct gp_graph *g, const struct gp_node *n)
{
	int place;
	find_name(g, n->name, &place);
	memmove(&g->by_name[place + 1], &g->by_name[place], (size_t)(g->nodes - place) * sizeof g->by_name[0]);
	g->by_name[place] = (uint16_t)g->nodes;
	g->node[g->nodes++] = *n;
}

static enum gp_status check_input(const struct gp_graph *g, const struct gp_node *n, const struct gp_type *type,
				  struct gp_err *err)
{
	uint64_t count;
	int by;
	if (g->blocks > 0 || g->nodes != g->inputs)
		GP_FAIL(err, GP_INVALID, "input %s comes behind the first block", n->name);
	if (g->inputs >= GP_GRAPH_MAX_PORTS)
		GP_FAIL(err, GP_INVALID, "a graph may have %d inputs", GP_GRAPH_MAX_PORTS);
	if ((unsigned)type->dtype >= GP_DTYPES)
		GP_FAIL(err, GP_INVALID, "input %s has element type %u, which is none", n->name, (unsigned)type->dtype);
	if (type->shape.ndim < 1 || type->shape.ndim > 3)
		GP_FAIL(err, GP_INVALID, "a sample has %d dimensions; it must be (H,W,C), (S,F) or (F)",
			type->shape.ndim);
	if (name_is_taken(g, n->name, &by))
		GP_FAIL(err, GP_INVALID, "two inputs are named %s", n->name);
	return gp_shape_count(&type->shape, GP_GRAPH_MAX_ELEMENTS, &count, err);
}

int gp_graph_add_input(struct gp_graph *g, const char *name, const struct gp_type *type, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_INPUT, .outputs = 1, .first_value = g->values};
	if (check_name(name, err) != GP_OK)
		return -1;
	copy_name(n.name, name);
	n.name_id = gp_rng_name_id(n.name);
	n.shape = type->shape;
	if (check_input(g, &n, type, err) != GP_OK ||
	    grow((void **)&g->node, &g->node_cap, g->nodes + 1, sizeof *g->node, err) != GP_OK ||
	    grow((void **)&g->value, &g->value_cap, g->values + 1, sizeof *g->value, err) != GP_OK)
		return -1;
	push_node(g, &n);
	g->inputs++;
	push_value(g, type, 0);
	return g->values - 1;
}

void gp_graph_mark_sequence(struct gp_graph *g, int input)
{
	gp_require(input >= 0 && input < g->inputs && g->blocks == 0);
	g->value[input].sequence = true;
}

struct gp_graph *gp_graph_new(const char *name, const struct gp_shape *input, struct gp_err *err)
{
	struct gp_graph *g = gp_graph_new_empty(name, err);
	if (g && gp_graph_add_input(g, "input", &(struct gp_type){GP_F32, *input}, err) < 0) {
		gp_graph_free(g);
		return NULL;
	}
	return g;
}

void gp_graph_free(struct gp_graph *g)
{
	if (!g)
		return;
	gp_free(g->node);
	gp_free(g->value);
	gp_free(g->param);
	gp_free(g->block);
	gp_free(g);
}

enum gp_status gp_graph_begin_block(struct gp_graph *g, const char *name, struct gp_err *err)
{
	GP_TRY(check_name(name, err));
	if (g->blocks && g->block[g->blocks - 1].first_node == g->nodes)
		GP_FAIL(err, GP_INVALID, "block %s has no nodes", g->block[g->blocks - 1].name);
	for (int i = 0; i < g->blocks; i++)
		if (strcmp(g->block[i].name, name) == 0)
			GP_FAIL(err, GP_INVALID, "two blocks are named %s", name);
	GP_TRY(grow((void **)&g->block, &g->block_cap, g->blocks + 1, sizeof *g->block, err));
	struct gp_block *b = &g->block[g->blocks++];
	copy_name(b->name, name);
	b->first_node = g->nodes;
	return GP_OK;
}

static enum gp_status check_blocks(const struct gp_graph *g, size_t count, const uint32_t *nodes_before,
				   struct gp_err *err)
{
	const uint32_t nodes = (uint32_t)(g->nodes - g->inputs);
	for (size_t i = 0; i < count; i++)
		if (nodes_before[i] >= nodes || nodes_before[i] <= (i > 0 ? nodes_before[i - 1] : 0))
			GP_FAIL(err, GP_INVALID,
				"block %zu begins behind %u nodes; the one before it begins behind %u, and the graph "
				"has %u",
				i + 1, nodes_before[i], i > 0 ? nodes_before[i - 1] : 0, nodes);
	return GP_OK;
}

enum gp_status gp_graph_set_blocks(struct gp_graph *g, size_t count, const uint32_t *nodes_before, struct gp_err *err)
{
	GP_TRY(check_blocks(g, count, nodes_before, err));
	GP_TRY(grow((void **)&g->block, &g->block_cap, (int)count + 1, sizeof *g->block, err));
	g->blocks = 1;
	for (size_t i = 0; i < count; i++) {
		struct gp_block *b = &g->block[g->blocks++];
		b->first_node = g->inputs + (int)nodes_before[i];
		snprintf(b->name, sizeof b->name, "block.%d", g->blocks - 1);
	}
	return GP_OK;
}

/* --- adding nodes ----------------------------------------------------------------------------------------------- */

static enum gp_status check_inputs(const struct gp_graph *g, const struct gp_node *n, const struct gp_op_def *def,
				   struct gp_err *err)
{
	if (n->inputs < def->inputs_min || n->inputs > def->inputs_max) {
		if (def->inputs_min == def->inputs_max)
			GP_FAIL(err, GP_INVALID, "%d inputs; %s takes %d", n->inputs, def->name, def->inputs_min);
		GP_FAIL(err, GP_INVALID, "%d inputs; %s takes %d to %d", n->inputs, def->name, def->inputs_min,
			def->inputs_max);
	}
	for (int i = 0; i < n->inputs; i++)
		if (n->in[i] < 0 || n->in[i] >= g->values)
			GP_FAIL(err, GP_INVALID, "input %d is value %d; it must be one of an earlier node", i,
				n->in[i]);
	return GP_OK;
}

static enum gp_status check_new_node(const struct gp_graph *g, const struct gp_node *n, struct gp_err *err)
{
	const struct gp_op_def *def = gp_op_def(n->op);
	int by;
	if (!def)
		GP_FAIL(err, GP_INVALID, "op %u is not one a node may have", (unsigned)n->op);
	if (g->inputs == 0 || g->blocks == 0)
		GP_FAIL(err, GP_INVALID, "a node comes before the first %s", g->inputs == 0 ? "input" : "block");
	if (g->nodes >= GP_GRAPH_MAX_NODES)
		GP_FAIL(err, GP_INVALID, "a graph may have %d nodes", GP_GRAPH_MAX_NODES);
	if (name_is_taken(g, n->name, &by))
		GP_FAIL(err, GP_INVALID, "node %d has the same name", by);
	return check_inputs(g, n, def, err);
}

static void name_param(struct gp_param *p, const char *node)
{
	static const char *const suffix[] = {
		[GP_PARAM_WEIGHT] = ".weight",
		[GP_PARAM_BIAS] = ".bias",
		[GP_PARAM_RUNNING_MEAN] = LONGEST_SUFFIX,
		[GP_PARAM_RUNNING_VAR] = ".running_var",
	};
	size_t len = strlen(node), extra = strlen(suffix[p->role]);
	gp_require(len + extra < GP_NAME_MAX);
	memcpy(p->name, node, len);
	memcpy(p->name + len, suffix[p->role], extra + 1);
}

/* The sums with this node, or a refusal; nothing is written before both fit. */
static enum gp_status add_sums(struct gp_graph *g, const struct gp_node *n, const struct gp_param *param,
			       struct gp_err *err)
{
	uint64_t elements = g->param_elements, trained = g->trained_elements, macs;
	bool fits = gp_add_ok(g->macs, n->macs, &macs);
	for (int i = 0; i < n->params && fits; i++) {
		fits = gp_add_ok(elements, param[i].count, &elements);
		if (param[i].trained)
			trained += param[i].count; /* never above elements */
	}
	if (!fits)
		GP_FAIL(err, GP_INVALID, "the graph's parameters or MACs pass 64 bits");
	g->param_elements = elements;
	g->trained_elements = trained;
	g->macs = macs;
	return GP_OK;
}

static enum gp_status check_outputs(const struct gp_infer *io, struct gp_err *err)
{
	uint64_t count;
	gp_require(io->outputs >= 1 && io->outputs <= GP_NODE_MAX_OUTPUTS);
	for (int i = 0; i < io->outputs; i++)
		GP_TRY(gp_shape_count(&io->out[i].shape, GP_GRAPH_MAX_ELEMENTS, &count, err));
	return GP_OK;
}

/* What becomes of the sequences that a node reads. */
struct sequences {
	bool out;     /* its values are ones, too */
	bool fixed;   /* it needs all positions */
	bool padding; /* it reads those that a sample may not have */
};

/* Whether data says which positions a sample has, in every input that is to tell. */
static bool is_told(const struct gp_graph *g, const struct gp_node *n, uint64_t told_by)
{
	for (int i = 0; i < n->inputs; i++)
		if (told_by >> i & 1 && n->in[i] >= g->inputs)
			return false;
	return true;
}

static struct sequences follow_sequences(const struct gp_graph *g, const struct gp_infer *io)
{
	const struct gp_node *n = io->node;
	const struct gp_op_def *def = gp_op_def(n->op);
	bool some = false, all = true;
	for (int i = 0; i < n->inputs; i++) {
		const struct gp_graph_value *v = &g->value[n->in[i]];
		const bool beside = def->beside >> i & 1;
		some = some || v->sequence;
		all = all && v->sequence == !beside &&
		      (def->sequence != GP_SEQUENCE_BY_ROW || beside || v->type.shape.ndim > 1);
	}
	const bool follows = some && all && !io->needs_all && def->sequence != GP_SEQUENCE_FIXED;
	return (struct sequences){
		.out = follows && def->sequence != GP_SEQUENCE_ENDS,
		.fixed = some && !follows,
		.padding = some && (io->reads_padding || !is_told(g, n, def->told_by)),
	};
}

/* Fills in what the op says. */
static enum gp_status infer_node(const struct gp_graph *g, struct gp_node *n, struct gp_type *out,
				 struct gp_param *param, struct sequences *sequences, struct gp_err *err)
{
	const struct gp_type *in[GP_NODE_MAX_INPUTS];
	const struct gp_op_def *def = gp_op_def(n->op);
	struct gp_infer io = {.node = n, .in = in, .out = out, .outputs = 1, .param = param};
	io.reads_padding = def->sequence == GP_SEQUENCE_ENDS && def->told_by == 0;
	for (int i = 0; i < n->inputs; i++)
		in[i] = &g->value[n->in[i]].type;
	n->macs = 0;
	n->params = 0;
	GP_TRY(gp_op_def(n->op)->infer(&io, err));
	GP_TRY(check_outputs(&io, err));
	n->outputs = io.outputs;
	n->shape = out[0].shape;
	*sequences = follow_sequences(g, &io);
	return GP_OK;
}

static enum gp_status add_node(struct gp_graph *g, struct gp_node *n, struct gp_err *err)
{
	struct gp_param param[GP_NODE_MAX_PARAMS];
	struct gp_type out[GP_NODE_MAX_OUTPUTS] = {{0}};
	GP_TRY(check_new_node(g, n, err));
	struct sequences sequences;
	GP_TRY(infer_node(g, n, out, param, &sequences, err));
	if (n->outputs > GP_GRAPH_MAX_VALUES - g->values)
		GP_FAIL(err, GP_INVALID, "a graph may have %d values", GP_GRAPH_MAX_VALUES);
	GP_TRY(grow((void **)&g->node, &g->node_cap, g->nodes + 1, sizeof *g->node, err));
	GP_TRY(grow((void **)&g->value, &g->value_cap, g->values + n->outputs, sizeof *g->value, err));
	GP_TRY(grow((void **)&g->param, &g->param_cap, g->params + n->params, sizeof *g->param, err));
	GP_TRY(add_sums(g, n, param, err));
	n->first_value = g->values;
	n->first_param = g->params;
	for (int i = 0; i < n->params; i++) {
		param[i].node = g->nodes;
		name_param(&param[i], n->name);
		g->param[g->params++] = param[i];
	}
	push_node(g, n);
	for (int i = 0; i < n->outputs; i++) {
		push_value(g, &out[i], i);
		g->value[g->values - 1].sequence = sequences.out;
	}
	g->fixed = g->fixed || sequences.fixed;
	if (sequences.padding && g->padding_reader == 0)
		g->padding_reader = g->nodes - 1;
	return GP_OK;
}

enum gp_status gp_graph_add(struct gp_graph *g, const struct gp_node *n, int *value, struct gp_err *err)
{
	struct gp_node copy = {.op = n->op, .inputs = n->inputs};
	if (check_name(n->name, err) != GP_OK)
		return gp_err_prefix(err, "node %d", g->nodes);
	copy_name(copy.name, n->name);
	copy.name_id = gp_rng_name_id(copy.name);
	memcpy(copy.in, n->in, sizeof copy.in);
	memcpy(copy.attr, n->attr, sizeof copy.attr);
	if (add_node(g, &copy, err) != GP_OK)
		return gp_err_prefix(err, "node %d (%s %s)", g->nodes, gp_op_name(copy.op), copy.name);
	*value = g->node[g->nodes - 1].first_value;
	return GP_OK;
}

/* Names longer than a node may have stay too long, so that gp_graph_add refuses them instead of cutting them. */
int gp_graph_append(struct gp_graph *g, struct gp_node n, const char *name, int inputs, const int *in,
		    struct gp_err *err)
{
	int value;
	n.inputs = inputs;
	for (int i = 0; i < inputs && i < GP_NODE_MAX_INPUTS; i++) {
		if (in[i] < 0)
			return -1; /* err tells of the failure that made this input */
		n.in[i] = in[i];
	}
	memset(n.name, 0, sizeof n.name);
	memcpy(n.name, name, strnlen(name, GP_NAME_MAX - 1));
	return gp_graph_add(g, &n, &value, err) == GP_OK ? value : -1;
}

int gp_graph_unary(struct gp_graph *g, enum gp_op op, const char *name, int in, struct gp_err *err)
{
	return gp_graph_append(g, (struct gp_node){.op = op}, name, 1, &in, err);
}

enum gp_status gp_graph_set_outputs(struct gp_graph *g, int count, const int *value, struct gp_err *err)
{
	if (count < 1 || count > GP_GRAPH_MAX_PORTS)
		GP_FAIL(err, GP_INVALID, "%d outputs; a graph has 1 to %d", count, GP_GRAPH_MAX_PORTS);
	for (int i = 0; i < count; i++) {
		if (value[i] < g->inputs || value[i] >= g->values)
			GP_FAIL(err, GP_INVALID, "output %d is value %d, which no node makes", i, value[i]);
		for (int k = 0; k < i; k++)
			if (value[k] == value[i])
				GP_FAIL(err, GP_INVALID, "outputs %d and %d are one value", k, i);
	}
	for (int i = 0; i < count; i++) {
		g->output[i].value = value[i];
		gp_value_name(g, value[i], g->output[i].name);
	}
	g->outputs = count;
	return GP_OK;
}

static enum gp_status check_all_used(const struct gp_graph *g, struct gp_err *err)
{
	bool used[GP_GRAPH_MAX_NODES] = {false};
	for (int i = g->inputs; i < g->nodes; i++)
		for (int k = 0; k < g->node[i].inputs; k++)
			used[g->value[g->node[i].in[k]].node] = true;
	for (int i = 0; i < g->outputs; i++)
		used[g->value[g->output[i].value].node] = true;
	for (int i = 0; i < g->nodes; i++)
		if (!used[i])
			GP_FAIL(err, GP_INVALID, "nothing reads node %d (%s %s)", i, gp_op_name(g->node[i].op),
				g->node[i].name);
	return GP_OK;
}

enum gp_status gp_graph_finish(struct gp_graph *g, struct gp_err *err)
{
	if (g->nodes <= g->inputs)
		GP_FAIL(err, GP_INVALID, "the graph has no nodes but its inputs");
	if (g->block[g->blocks - 1].first_node == g->nodes)
		GP_FAIL(err, GP_INVALID, "block %s has no nodes", g->block[g->blocks - 1].name);
	const bool by_default = g->outputs == 0;
	if (by_default)
		GP_TRY(gp_graph_set_outputs(g, 1, &g->node[g->nodes - 1].first_value, err));
	const enum gp_status status = check_all_used(g, err);
	if (status != GP_OK && by_default)
		g->outputs = 0; /* more nodes may come */
	return status;
}

int64_t gp_graph_sequence(const struct gp_graph *g)
{
	int64_t length = 0;
	for (int i = 0; i < g->inputs; i++) {
		const struct gp_graph_value *v = &g->value[i];
		if (!v->sequence)
			continue;
		if (length > 0 && v->type.shape.dim[0] != length)
			return 0;
		length = v->type.shape.dim[0];
	}
	return g->fixed ? 0 : length;
}

int gp_graph_row_scores(const struct gp_graph *g)
{
	const int value = g->output[0].value;
	const struct gp_node *n = gp_graph_maker(g, value);
	if (n->op != GP_OP_LINEAR || n->shape.ndim != 2 || g->value[n->in[0]].sequence ||
	    gp_graph_readers(g, value) != 1)
		return -1;
	return value;
}

const struct gp_node *gp_graph_padding_reader(const struct gp_graph *g)
{
	return g->padding_reader > 0 ? &g->node[g->padding_reader] : NULL;
}

uint64_t gp_graph_bytes(const struct gp_graph *g)
{
	return sizeof *g + (uint64_t)g->node_cap * sizeof *g->node + (uint64_t)g->value_cap * sizeof *g->value +
	       (uint64_t)g->param_cap * sizeof *g->param + (uint64_t)g->block_cap * sizeof *g->block;
}

int gp_graph_readers(const struct gp_graph *g, int value)
{
	int readers = 0;
	for (int i = g->value[value].node + 1; i < g->nodes; i++)
		for (int k = 0; k < g->node[i].inputs; k++)
			readers += g->node[i].in[k] == value;
	for (int i = 0; i < g->outputs; i++)
		readers += g->output[i].value == value;
	return readers;
}

const char *gp_value_name(const struct gp_graph *g, int value, char text[GP_NAME_MAX])
{
	const struct gp_graph_value *v = &g->value[value];
	memcpy(text, g->node[v->node].name, GP_NAME_MAX);
	if (v->output > 0) {
		const size_t len = strlen(text); /* a name has room for ".running_mean" */
		snprintf(text + len, GP_NAME_MAX - len, ".%d", v->output);
	}
	return text;
}

int gp_graph_block_end(const struct gp_graph *g, int block)
{
	return block + 1 < g->blocks ? g->block[block + 1].first_node : g->nodes;
}

int gp_graph_block_of(const struct gp_graph *g, int node)
{
	int block = 0, behind = g->blocks;
	while (behind - block > 1) {
		const int middle = block + (behind - block) / 2;
		if (g->block[middle].first_node <= node)
			block = middle;
		else
			behind = middle;
	}
	return block;
}

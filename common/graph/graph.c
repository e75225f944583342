/* SPDX-License-Identifier: Apache-2.0
 *
 * The model graph: building, limits, parts, cuts, starting values. What an op
 * does to shapes is in graph_infer.c. gp_graph_add is the one place where a
 * node is validated, whoever it came from. Test: tests/unit/test_graph.c
 */
#include "common/graph/graph.h"

#include <limits.h>
#include <string.h>

#include "common/graph/graph_infer.h"
#include "common/base/mem.h"
#include "common/base/rng.h"

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

struct gp_graph *gp_graph_new(const char *name, const struct gp_shape *input, struct gp_err *err)
{
	uint64_t count;
	if (check_name(name, err) != GP_OK || gp_shape_count(input, GP_GRAPH_MAX_ELEMENTS, &count, err) != GP_OK)
		return NULL;
	if (input->ndim < 1 || input->ndim > 3) {
		gp_err_set(err, GP_INVALID, 0, __FILE__, __LINE__,
			   "a sample has %d dimensions; it must be (H,W,C), (S,F) or (F)", input->ndim);
		return NULL;
	}
	struct gp_graph *g = gp_calloc(1, sizeof *g);
	if (!g || grow((void **)&g->node, &g->node_cap, 1, sizeof *g->node, err) != GP_OK) {
		gp_err_set(err, GP_NOMEM, 0, __FILE__, __LINE__, "out of memory for a graph");
		gp_graph_free(g);
		return NULL;
	}
	copy_name(g->name, name);
	g->node[0] = (struct gp_node){.op = GP_OP_INPUT, .name = "input", .in = {-1, -1}, .shape = *input};
	g->node[0].name_id = gp_rng_name_id(g->node[0].name);
	g->nodes = 1;
	return g;
}

void gp_graph_free(struct gp_graph *g)
{
	if (!g)
		return;
	gp_free(g->node);
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

/* --- adding nodes ----------------------------------------------------------------------------------------------- */

static enum gp_status check_inputs(const struct gp_graph *g, const struct gp_node *n, struct gp_err *err)
{
	int inputs = gp_op_inputs(n->op);
	if (inputs < 0)
		GP_FAIL(err, GP_INVALID, "op %u is not one a node may have", (unsigned)n->op);
	for (int i = 0; i < 2; i++) {
		if (i < inputs && (n->in[i] < 0 || n->in[i] >= g->nodes))
			GP_FAIL(err, GP_INVALID, "input %d is node %d; it must be an earlier node", i, n->in[i]);
		if (i >= inputs && n->in[i] != -1)
			GP_FAIL(err, GP_INVALID, "%s takes %d input, not more", gp_op_name(n->op), inputs);
	}
	return GP_OK;
}

static enum gp_status check_new_node(const struct gp_graph *g, const struct gp_node *n, struct gp_err *err)
{
	if (g->blocks == 0)
		GP_FAIL(err, GP_INVALID, "a node comes before the first block");
	if (g->nodes >= GP_GRAPH_MAX_NODES)
		GP_FAIL(err, GP_INVALID, "a graph may have %d nodes", GP_GRAPH_MAX_NODES);
	for (int i = 0; i < g->nodes; i++)
		if (g->node[i].name_id == n->name_id && strcmp(g->node[i].name, n->name) == 0)
			GP_FAIL(err, GP_INVALID, "node %d has the same name", i);
	return check_inputs(g, n, err);
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

static enum gp_status add_node(struct gp_graph *g, struct gp_node *n, struct gp_err *err)
{
	struct gp_param param[GP_NODE_MAX_PARAMS];
	GP_TRY(check_new_node(g, n, err));
	const struct gp_shape *const in[2] = {&g->node[n->in[0]].shape, n->in[1] < 0 ? NULL : &g->node[n->in[1]].shape};
	GP_TRY(gp_graph_infer(n, in, param, err));
	GP_TRY(grow((void **)&g->node, &g->node_cap, g->nodes + 1, sizeof *g->node, err));
	GP_TRY(grow((void **)&g->param, &g->param_cap, g->params + n->params, sizeof *g->param, err));
	GP_TRY(add_sums(g, n, param, err));
	n->first_param = g->params;
	for (int i = 0; i < n->params; i++) {
		param[i].node = g->nodes;
		name_param(&param[i], n->name);
		g->param[g->params++] = param[i];
	}
	g->node[g->nodes++] = *n;
	return GP_OK;
}

enum gp_status gp_graph_add(struct gp_graph *g, const struct gp_node *n, int *index, struct gp_err *err)
{
	struct gp_node copy = {.op = n->op, .in = {n->in[0], n->in[1]}, .u = n->u};
	if (check_name(n->name, err) != GP_OK)
		return gp_err_prefix(err, "node %d", g->nodes);
	copy_name(copy.name, n->name);
	copy.name_id = gp_rng_name_id(copy.name);
	if (add_node(g, &copy, err) != GP_OK)
		return gp_err_prefix(err, "node %d (%s %s)", g->nodes, gp_op_name(copy.op), copy.name);
	*index = g->nodes - 1;
	return GP_OK;
}

/* Names longer than a node may have stay too long, so that gp_graph_add refuses them instead of cutting them. */
static int add_named(struct gp_graph *g, struct gp_node *n, const char *name, struct gp_err *err)
{
	int index;
	if (n->in[0] < 0 || (n->op == GP_OP_ADD && n->in[1] < 0))
		return -1; /* err tells of the failure that made this input */
	memcpy(n->name, name, strnlen(name, GP_NAME_MAX - 1));
	return gp_graph_add(g, n, &index, err) == GP_OK ? index : -1;
}

int gp_graph_conv(struct gp_graph *g, const char *name, int in, int out_channels, int kernel, int stride, int pad,
		  int groups, bool bias, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_CONV2D, .in = {in, -1}};
	n.u.conv = (struct gp_conv_attr){.out_channels = out_channels,
					 .kernel_h = kernel,
					 .kernel_w = kernel,
					 .stride_h = stride,
					 .stride_w = stride,
					 .pad_top = pad,
					 .pad_bottom = pad,
					 .pad_left = pad,
					 .pad_right = pad,
					 .groups = groups,
					 .bias = bias};
	return add_named(g, &n, name, err);
}

int gp_graph_batch_norm(struct gp_graph *g, const char *name, int in, float eps, float momentum, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_BATCH_NORM, .in = {in, -1}, .u.bn = {.eps = eps, .momentum = momentum}};
	return add_named(g, &n, name, err);
}

int gp_graph_unary(struct gp_graph *g, enum gp_op op, const char *name, int in, struct gp_err *err)
{
	struct gp_node n = {.op = op, .in = {in, -1}};
	return add_named(g, &n, name, err);
}

int gp_graph_sum(struct gp_graph *g, const char *name, int a, int b, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_ADD, .in = {a, b}};
	return add_named(g, &n, name, err);
}

int gp_graph_pool(struct gp_graph *g, enum gp_op op, const char *name, int in, int kernel, int stride, int pad,
		  struct gp_err *err)
{
	struct gp_node n = {.op = op, .in = {in, -1}};
	n.u.pool = (struct gp_pool_attr){.kernel_h = kernel,
					 .kernel_w = kernel,
					 .stride_h = stride,
					 .stride_w = stride,
					 .pad_top = pad,
					 .pad_bottom = pad,
					 .pad_left = pad,
					 .pad_right = pad,
					 .count_include_pad = true};
	return add_named(g, &n, name, err);
}

int gp_graph_linear(struct gp_graph *g, const char *name, int in, int out_features, bool bias, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_LINEAR, .in = {in, -1}};
	n.u.linear = (struct gp_linear_attr){.out_features = out_features, .bias = bias};
	return add_named(g, &n, name, err);
}

int gp_graph_dropout(struct gp_graph *g, const char *name, int in, float p, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_DROPOUT, .in = {in, -1}, .u.dropout = {.p = p}};
	return add_named(g, &n, name, err);
}

int gp_graph_shortcut_pad(struct gp_graph *g, const char *name, int in, int stride, int before, int after,
			  struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_SHORTCUT_PAD, .in = {in, -1}};
	n.u.shortcut = (struct gp_shortcut_attr){.stride = stride, .before = before, .after = after};
	return add_named(g, &n, name, err);
}

enum gp_status gp_graph_finish(struct gp_graph *g, struct gp_err *err)
{
	bool used[GP_GRAPH_MAX_NODES] = {false};
	if (g->nodes < 2)
		GP_FAIL(err, GP_INVALID, "the graph has no nodes but its input");
	if (g->block[g->blocks - 1].first_node == g->nodes)
		GP_FAIL(err, GP_INVALID, "block %s has no nodes", g->block[g->blocks - 1].name);
	for (int i = 1; i < g->nodes; i++)
		for (int k = 0; k < 2; k++)
			if (g->node[i].in[k] >= 0)
				used[g->node[i].in[k]] = true;
	for (int i = 0; i < g->nodes - 1; i++)
		if (!used[i])
			GP_FAIL(err, GP_INVALID, "nothing reads node %d (%s %s)", i, gp_op_name(g->node[i].op),
				g->node[i].name);
	return GP_OK;
}

static uint64_t node_work(const struct gp_node *n)
{
	const bool pool = n->op == GP_OP_AVG_POOL || n->op == GP_OP_MAX_POOL;
	const uint64_t window = pool ? (uint64_t)n->u.pool.kernel_h * (uint64_t)n->u.pool.kernel_w : 1;
	return n->macs + gp_shape_elements(&n->shape) * window; /* at most 2^31 * 2^24 and 2^31 * 2^31 */
}

uint64_t gp_graph_work(const struct gp_graph *g)
{
	uint64_t sum = 0;
	for (int i = 1; i < g->nodes; i++)
		if (!gp_add_ok(sum, node_work(&g->node[i]), &sum))
			return UINT64_MAX;
	return sum;
}

/* --- parts and cuts --------------------------------------------------------------------------------------------- */

static int block_end(const struct gp_graph *g, int block)
{
	return block + 1 < g->blocks ? g->block[block + 1].first_node : g->nodes;
}

/* Nodes [first, end) may read node first-1 and each other; nodes from `end` on may not read before end-1. */
static enum gp_status check_part(const struct gp_graph *g, int first, int end, struct gp_err *err)
{
	for (int i = first; i < g->nodes; i++) {
		int floor = i < end ? first - 1 : end - 1;
		for (int k = 0; k < 2; k++)
			if (g->node[i].in[k] >= 0 && g->node[i].in[k] < floor)
				GP_FAIL(err, GP_INVALID, "%s cannot be cut there: %s also reads %s, across the cut",
					g->name, g->node[i].name, g->node[g->node[i].in[k]].name);
	}
	return GP_OK;
}

static void copy_part(struct gp_graph *p, const struct gp_graph *g, int from, int to)
{
	int first = g->block[from].first_node, end = block_end(g, to - 1);
	int first_param = g->node[first].first_param;
	for (int i = first; i < end; i++) {
		struct gp_node *n = &p->node[p->nodes++];
		*n = g->node[i];
		for (int k = 0; k < 2; k++)
			if (n->in[k] >= 0)
				n->in[k] -= first - 1;
		n->first_param -= first_param;
		p->macs += n->macs;
		for (int k = 0; k < n->params; k++) {
			struct gp_param *q = &p->param[p->params++];
			*q = g->param[g->node[i].first_param + k];
			q->node = p->nodes - 1;
			p->param_elements += q->count;
			p->trained_elements += q->trained ? q->count : 0;
		}
	}
	for (int b = from; b < to; b++) {
		p->block[p->blocks] = g->block[b];
		p->block[p->blocks++].first_node -= first - 1;
	}
}

enum gp_status gp_graph_part(const struct gp_graph *g, int from, int to, struct gp_graph **out, struct gp_err *err)
{
	if (from < 0 || from >= to || to > g->blocks)
		GP_FAIL(err, GP_INVALID, "blocks %d to %d are not a part of %s, which has %d", from, to, g->name,
			g->blocks);
	int first = g->block[from].first_node, end = block_end(g, to - 1);
	GP_TRY(check_part(g, first, end, err));
	struct gp_graph *p = gp_graph_new(g->name, &g->node[first - 1].shape, err);
	if (!p)
		return err->code;
	/* At least what is needed: every node has at most GP_NODE_MAX_PARAMS parameters. */
	if (grow((void **)&p->node, &p->node_cap, end - first + 1, sizeof *p->node, err) != GP_OK ||
	    grow((void **)&p->param, &p->param_cap, GP_NODE_MAX_PARAMS * (end - first), sizeof *p->param, err) !=
		    GP_OK ||
	    grow((void **)&p->block, &p->block_cap, to - from, sizeof *p->block, err) != GP_OK) {
		gp_graph_free(p);
		return err->code;
	}
	copy_part(p, g, from, to);
	*out = p;
	return GP_OK;
}

/* One side of "H:T"; negative counts from the back. *end is what follows the number. */
static bool parse_cut_side(const char *text, int blocks, int *out, const char **end)
{
	char *stop;
	bool digits = (text[0] >= '0' && text[0] <= '9') || (text[0] == '-' && text[1] >= '0' && text[1] <= '9');
	if (!digits)
		return false;
	long v = strtol(text, &stop, 10);
	if (v < -GP_GRAPH_MAX_NODES || v > GP_GRAPH_MAX_NODES)
		return false;
	*out = (int)(v < 0 ? v + blocks : v);
	*end = stop;
	return true;
}

enum gp_status gp_cut_parse(const struct gp_graph *g, const char *text, struct gp_cut *out, struct gp_err *err)
{
	struct gp_cut cut;
	const char *at;
	if (!parse_cut_side(text, g->blocks, &cut.head, &at) || *at++ != ':' ||
	    !parse_cut_side(at, g->blocks, &cut.tail, &at) || *at != '\0')
		GP_FAIL(err, GP_USAGE,
			"cut '%.40s' is not H:T, two block numbers such as 1:-1 (%s has %d blocks; negative numbers "
			"count from the last)",
			text, g->name, g->blocks);
	if (g->blocks < 3)
		GP_FAIL(err, GP_USAGE, "%s has %d blocks; a head, a body and a tail need three", g->name, g->blocks);
	if (cut.head < 1 || cut.tail >= g->blocks || cut.head >= cut.tail)
		GP_FAIL(err, GP_USAGE,
			"cut '%.40s' leaves a part of %s empty: of its %d blocks the client keeps [0,%d) and [%d,%d); "
			"1 <= H < T <= %d is needed",
			text, g->name, g->blocks, cut.head, cut.tail, g->blocks, g->blocks - 1);
	*out = cut;
	return GP_OK;
}

/* --- parameters ------------------------------------------------------------------------------------------------- */

int gp_graph_find_param(const struct gp_graph *g, const char *name)
{
	for (int i = 0; i < g->params; i++)
		if (strcmp(g->param[i].name, name) == 0)
			return i;
	return -1;
}

int gp_graph_param_of(const struct gp_graph *g, const struct gp_node *n, enum gp_param_role role)
{
	for (int i = n->first_param; i < n->first_param + n->params; i++)
		if (g->param[i].role == role)
			return i;
	return -1;
}

bool gp_graph_is_trained(const struct gp_graph *g, const struct gp_node *n)
{
	for (int i = n->first_param; i < n->first_param + n->params; i++)
		if (g->param[i].trained)
			return true;
	return false;
}

int gp_graph_readers(const struct gp_graph *g, int index)
{
	int readers = 0;
	for (int i = index + 1; i < g->nodes; i++)
		readers += (g->node[i].in[0] == index) + (g->node[i].in[1] == index);
	return readers;
}

/* The same draws as gp_rng_uniform, four to a block. */
static void fill_uniform(uint64_t seed, uint64_t stream, float scale, float *out, uint64_t count)
{
	uint32_t w[4];
	for (uint64_t i = 0; i < count; i++) {
		if ((i & 3) == 0)
			gp_rng_block(seed, stream, i >> 2, w);
		float u = (float)(w[i & 3] >> 8) * 0x1p-24f; /* [0, 1) */
		out[i] = (2.0f * u - 1.0f) * scale;
	}
}

void gp_param_init(const struct gp_param *p, uint64_t seed, float *out)
{
	uint64_t stream = gp_rng_stream(GP_RNG_INIT, gp_rng_name_id(p->name));
	switch (p->init) {
	case GP_INIT_ZEROS:
	case GP_INIT_ONES:
		for (uint64_t i = 0; i < p->count; i++)
			out[i] = p->init == GP_INIT_ONES ? 1.0f : 0.0f;
		break;
	case GP_INIT_NORMAL:
		for (uint64_t i = 0; i < p->count; i++)
			out[i] = p->init_scale * gp_rng_normal(seed, stream, i);
		break;
	case GP_INIT_UNIFORM:
		fill_uniform(seed, stream, p->init_scale, out, p->count);
		break;
	}
}

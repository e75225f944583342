/* SPDX-License-Identifier: Apache-2.0
 *
 * The model graph: nodes in topological order, each with any number of inputs
 * and outputs; the values between them, with inferred types (f32, i32) and
 * shapes; parameters named as in PyTorch's state_dict; and a list of named
 * blocks. The places between two blocks are the numbered cuts. A graph says what
 * is computed and knows no device. Not here: what an op is (op.h), parts and
 * cuts (graph_part.h), builders of models (client/models), wire form
 * (common/wire/graph_msg.h), execution (device.h).
 *
 * Values: every node makes one or more values; `in[]` of a later node names
 * them by their index in `value`. Where all nodes have one output, a value's
 * index is its node's. The graph's inputs are the first nodes (GP_OP_INPUT),
 * its outputs the values listed in `output`: the last node's unless a builder
 * says otherwise.
 *
 * Life: a builder calls gp_graph_new, gp_graph_begin_block before each block,
 * gp_graph_add or a shorthand of ops/ for each node, in order (shorthands return
 * the index of the node's first value, or -1 and fill err), and gp_graph_finish.
 * After that the graph is read-only but for gp_graph_freeze and gp_graph_set_batch_norm.
 *
 * To add an op: see op_table.h.
 *
 * Threads: one builds a graph; a finished one may be shared. Test: tests/unit/test_graph.c
 */
#ifndef GP_GRAPH_H
#define GP_GRAPH_H

#include <string.h>

#include "common/base/shape.h"
#include "common/graph/op_table.h"

#define GP_NAME_MAX           96
#define GP_GRAPH_MAX_NODES    4096
#define GP_GRAPH_MAX_VALUES   8192                /* plans look at every pair of them */
#define GP_GRAPH_MAX_PORTS    64                  /* inputs, and outputs, of a graph: bits of a uint64_t */
#define GP_GRAPH_MAX_ELEMENTS ((uint64_t)1 << 31) /* of one value of one sample, and of one parameter */
#define GP_NODE_MAX_INPUTS    64
#define GP_NODE_MAX_OUTPUTS   64
#define GP_NODE_MAX_ATTRS     16
#define GP_SEQUENCE_STEP      8 /* a chunk's own length is a multiple of it */

/* Wire ids: pinned, never reused. */
enum gp_op {
	GP_OP_INPUT = 0,
#define X(id, NAME, name) GP_OP_##NAME = (id),
	GP_OPS(X)
#undef X
		GP_OP_COUNT
};

union gp_attr {
	int32_t i;
	float f;
};

/* What a node makes. */
struct gp_graph_value {
	struct gp_type type; /* of one sample, without batch: (H,W,C), (S,F), (F) or (S) */
	int node, output;    /* who makes it, and as which of its outputs */
	bool sequence; /* its first dimension counts positions, of which a chunk may have fewer: gp_graph_sequence */
};

struct gp_node {
	enum gp_op op;
	char name
		[GP_NAME_MAX]; /* state_dict prefix, "features.0.0"; unique; may be made up for ops without parameters */
	uint64_t name_id;      /* gp_rng_name_id(name), to find equal names fast */
	int inputs;
	int in[GP_NODE_MAX_INPUTS];            /* values of earlier nodes */
	union gp_attr attr[GP_NODE_MAX_ATTRS]; /* as the op lists them; read by gp_NOUN_attr of ops/op_*.h */
	int first_value, outputs;              /* range in graph->value */
	struct gp_shape shape;                 /* of output 0, as in its value */
	int first_param, params;               /* range in graph->param */
	uint64_t macs; /* multiply-accumulates of one sample's forward pass; what it costs besides: graph_work.h */
};

/* Roles in the order the parameters of one node are listed. */
enum gp_param_role {
	GP_PARAM_WEIGHT,       /* conv (O,I/g,KH,KW), transposed conv (I,O/g,KH,KW), linear (O,I), batch norm (C) */
	GP_PARAM_BIAS,         /* (O) or (C) */
	GP_PARAM_RUNNING_MEAN, /* (C), not trained */
	GP_PARAM_RUNNING_VAR,  /* (C), not trained */
};

/* How a parameter starts; drawn from gp_rng by the parameter's own name, whichever end draws it: the client draws
 * those of head and tail, the server those of the body. For normal draws a split run begins with the bits of a local
 * one only where both machines have the same C library (gp_rng_normal); the others are the same everywhere. */
enum gp_init_kind {
	GP_INIT_ZEROS = 0,
	GP_INIT_ONES = 1,
	GP_INIT_NORMAL = 2,  /* mean 0, standard deviation init_scale */
	GP_INIT_UNIFORM = 3, /* [-init_scale, init_scale) */
	GP_INIT_IDENTITY =
		4, /* of a matrix, whose rows are the first dimension: 1 where row and column are equal, else 0 */
	GP_INIT_KINDS
};

struct gp_param {
	char name[GP_NAME_MAX]; /* "features.0.0.weight" */
	int node;
	enum gp_param_role role;
	struct gp_shape shape;
	uint64_t count;
	enum gp_init_kind init;
	float init_scale;
	uint64_t drawn_as; /* gp_rng_name_id of the parameter whose draws it starts with; 0: its own */
	bool trained;      /* false for running statistics */
	bool follows; /* its values are those of another parameter, which has the optimizer state of both: gp_graph_tie */
	bool decay; /* weight decay applies (true for all trained parameters, as in torch.optim, unless a builder says no) */
};

struct gp_block {
	char name[GP_NAME_MAX];
	int first_node; /* block b is nodes [first_node, next block's first_node) */
};

struct gp_graph {
	char name[GP_NAME_MAX];
	int inputs, nodes, values, params, blocks, outputs;
	struct gp_node *node; /* the first `inputs` are GP_OP_INPUT, and value i is that of node i */
	struct gp_graph_value *value;
	struct gp_param *param;
	struct gp_block *block;
	struct gp_output {
		int value;
		char name[GP_NAME_MAX]; /* gp_value_name of that value, or of the one it hands on (graph_part.h) */
	} output[GP_GRAPH_MAX_PORTS];
	uint64_t param_elements, trained_elements, macs; /* sums, of one sample */
	int tied[2]; /* gp_graph_tie: the parameter that leads, and the one that follows; equal: no weights are tied */
	bool fixed;  /* some node that reads a sequence needs all of its positions */
	int padding_reader; /* the first node that reads positions which a sample may not have; 0: none does */
	int node_cap, value_cap, param_cap, block_cap;
	uint16_t by_name[GP_GRAPH_MAX_NODES]; /* the nodes in the order of their names */
};

/* Empty graph with one f32 input named "input", of one sample's shape. NULL and err on failure. */
struct gp_graph *gp_graph_new(const char *name, const struct gp_shape *input, struct gp_err *err);
/* The same without an input; gp_graph_add_input adds each, before the first block. */
struct gp_graph *gp_graph_new_empty(const char *name, struct gp_err *err);
/* Returns the value, or -1 with err filled. `type` is of one sample: 1 to 3 dimensions. */
int gp_graph_add_input(struct gp_graph *g, const char *name, const struct gp_type *type, struct gp_err *err);
/*
 * Says that the first dimension of this input counts the positions of a sequence, which a chunk may have fewer of. Before
 * the first block. From there on every op says what becomes of that (op.h).
 */
void gp_graph_mark_sequence(struct gp_graph *g, int input);
void gp_graph_free(struct gp_graph *g);

/*
 * Gives a finished graph other blocks: the k-th but the first begins behind so many nodes, inputs not counted. Safe on
 * numbers from a peer: GP_INVALID where they do not rise, or a block would be empty; the graph is then as it was.
 */
enum gp_status gp_graph_set_blocks(struct gp_graph *g, size_t count, const uint32_t *nodes_before, struct gp_err *err);

/* Everything added from here on belongs to a new block. */
enum gp_status gp_graph_begin_block(struct gp_graph *g, const char *name, struct gp_err *err);

/*
 * Appends one node (a copy of `n`'s op, name, inputs, in, attr), infers the
 * types of its values and its costs, checks every attribute and limit, and lists
 * its parameters with PyTorch's default initialisation. Safe on nodes that came
 * from a peer; on failure the graph is as it was. Names are letters, digits,
 * '_', '-' and single dots, with room for ".running_mean". *value gets the index
 * of the node's first value.
 */
enum gp_status gp_graph_add(struct gp_graph *g, const struct gp_node *n, int *value, struct gp_err *err);
/*
 * The builders' form: `name` and the inputs are put into `n`, which has op and attributes. Returns the node's first value,
 * or -1 with err filled; where one of the inputs is -1 already, err is left as it is.
 */
int gp_graph_append(struct gp_graph *g, struct gp_node n, const char *name, int inputs, const int *in,
		    struct gp_err *err);
/* An op without attributes and with one input. */
int gp_graph_unary(struct gp_graph *g, enum gp_op op, const char *name, int in, struct gp_err *err);

/* Makes these values the graph's outputs, in this order, in place of those it has. Before gp_graph_finish. */
enum gp_status gp_graph_set_outputs(struct gp_graph *g, int count, const int *value, struct gp_err *err);

/*
 * Last check: at least one node beyond the inputs, every input and every node is used or an output, sums filled in. A
 * graph without outputs gets the last node's first value as its output.
 */
enum gp_status gp_graph_finish(struct gp_graph *g, struct gp_err *err);

/*
 * The most positions S of a chunk, where a chunk may have a length of its own: all sequences among the inputs have S
 * positions, and nothing in the graph needs all of them. 0 where there is no such S: every chunk has the shapes of the
 * graph.
 */
int64_t gp_graph_sequence(const struct gp_graph *g);
/*
 * The first node that reads padding: its values may depend on positions that a sample does not have, because nothing tells it
 * which those are. NULL: there is none.
 */
const struct gp_node *gp_graph_padding_reader(const struct gp_graph *g);
/*
 * The value of scores (P,K) of which a chunk may leave rows out, such as those of a masked language model: output 0, where a
 * linear layer, which computes each row by itself, makes it of rows that are no sequence, and no node reads it. -1: there is
 * none. It depends on nothing before that layer, so that it is the same wherever the model is cut.
 */
int gp_graph_row_scores(const struct gp_graph *g);
/* Whether a chunk may have this length: 0, which stands for all positions, or `most` or a multiple of GP_SEQUENCE_STEP
 * below it, where `most` is gp_graph_sequence. Safe on numbers from a peer. */
static inline bool gp_sequence_length_ok(int64_t most, uint64_t length)
{
	return length == 0 ||
	       (most > 0 && (length == (uint64_t)most || (length < (uint64_t)most && length % GP_SEQUENCE_STEP == 0)));
}
/* The shortest such length that has room for so many positions. */
static inline int64_t gp_sequence_round(int64_t most, int64_t positions)
{
	const int64_t steps = (positions + GP_SEQUENCE_STEP - 1) / GP_SEQUENCE_STEP;
	const int64_t length = (steps < 1 ? 1 : steps) * GP_SEQUENCE_STEP;
	return length < most ? length : most;
}

/*
 * Ties the weights of two parameters of equal shape, such as an encoder's word embedding and the output layer of a masked
 * language model: both start from the draws of `lead` and keep equal values, their gradients are added up, and the optimizer's
 * state, the count of parameters, the norm of the gradients and files of weights have them once, as `lead`. Call it after
 * everything that decides how parameters start. A graph has at most one such pair. A part of a graph that has only the
 * follower knows that it is one; tie.h keeps the two equal.
 */
void gp_graph_tie(struct gp_graph *g, int lead, int follower);
static inline bool gp_graph_is_tied(const struct gp_graph *g)
{
	return g->tied[0] != g->tied[1];
}

/* What the graph itself takes of the host's memory. */
uint64_t gp_graph_bytes(const struct gp_graph *g);

/* Index of the parameter with this name, -1 if none. */
int gp_graph_find_param(const struct gp_graph *g, const char *name);
/* Index of the node's parameter with that role, -1 if none. */
int gp_graph_param_of(const struct gp_graph *g, const struct gp_node *n, enum gp_param_role role);
/* Whether an optimizer changes a parameter of this node. */
bool gp_graph_is_trained(const struct gp_graph *g, const struct gp_node *n);
/* The node that makes a value. */
static inline const struct gp_node *gp_graph_maker(const struct gp_graph *g, int value)
{
	return &g->node[g->value[value].node];
}
/* How often later nodes read a value, and how often it is an output: a node that reads it twice counts twice. */
int gp_graph_readers(const struct gp_graph *g, int value);
/* Its node's name, followed by ".K" for an output K that is not the first, into text; returns text. */
const char *gp_value_name(const struct gp_graph *g, int value, char text[GP_NAME_MAX]);
/*
 * By value: whether a gradient with respect to it has a use, because a trained parameter or an input with a gradient
 * lies before it. `inputs`: bit i says that the gradient of input i is wanted. Integers have none.
 */
void gp_graph_find_gradients(const struct gp_graph *g, uint64_t inputs, bool *needs);
/*
 * By value: whether parameters, frozen ones too, had a part in it. What has none is data: it must cross a cut as it is,
 * while an activation may be compressed with loss. `inputs`: bit i says that input i is an activation.
 */
void gp_graph_find_activations(const struct gp_graph *g, uint64_t inputs, bool *activation);

/*
 * Parameters whose names match `pattern` (shell wildcards: "features.*") are left as they are from now on: no gradient,
 * no optimizer state, no update. A batch norm none of whose parameters is trained uses its running statistics and leaves
 * them alone. Returns how many weights and biases matched: running statistics alone cannot be frozen.
 */
int gp_graph_freeze(struct gp_graph *g, const char *pattern);
/* The same of all parameters of blocks [from, to). */
int gp_graph_freeze_blocks(struct gp_graph *g, int from, int to);
/* Takes the sums over trained parameters anew, after `trained` of some was changed. */
void gp_graph_count_trained(struct gp_graph *g);

/* Writes the starting values of one parameter, `count` floats in PyTorch's layout. Thread-safe, pure in (seed, name). */
void gp_param_init(const struct gp_param *p, uint64_t seed, float *out);
/* `count` elements of it from `first` on, which is a multiple of 4. */
void gp_param_draw(const struct gp_param *p, uint64_t seed, uint64_t first, uint64_t count, float *out);

const char *gp_op_name(enum gp_op op); /* "conv2d"; "?" when out of range */
/* The shape of one sample of the first input, and of the first output. */
static inline const struct gp_shape *gp_graph_input_shape(const struct gp_graph *g)
{
	return &g->node[0].shape;
}
static inline const struct gp_shape *gp_graph_output_shape(const struct gp_graph *g)
{
	return &g->value[g->output[0].value].type.shape;
}
static inline const struct gp_type *gp_graph_output_type(const struct gp_graph *g, int output)
{
	return &g->value[g->output[output].value].type;
}
/* The first block that holds the node. */
int gp_graph_block_of(const struct gp_graph *g, int node);
/* The node behind the last one of a block. */
int gp_graph_block_end(const struct gp_graph *g, int block);

#endif

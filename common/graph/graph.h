/* SPDX-License-Identifier: Apache-2.0
 *
 * The model graph: nodes in topological order with inferred shapes, parameters
 * named as in PyTorch's state_dict, and a list of named blocks; the places
 * between two blocks are the numbered cuts. A graph says what is computed and
 * knows no device. Not here: builders (models.h), wire form (graph_msg.h),
 * execution (device.h).
 *
 * Life: a builder calls gp_graph_new, gp_graph_add_* in order (each returns the
 * node's index, or -1 and fills err), gp_graph_begin_block before each block,
 * and gp_graph_finish. After that the graph is read-only and may be shared by
 * threads. gp_graph_part copies a range of blocks into a graph of its own.
 *
 * To add an op: enum gp_op (pin a new number), its attributes, shape inference
 * in graph_infer.c, the wire form in graph_msg.c and gpsplit.proto, one file
 * per device (kernels/cpu/op_*.c), a dump test.
 * Test: tests/unit/test_graph.c
 */
#ifndef GP_GRAPH_H
#define GP_GRAPH_H

#include "common/base/shape.h"

#define GP_NAME_MAX           96
#define GP_GRAPH_MAX_NODES    4096
#define GP_GRAPH_MAX_ELEMENTS ((uint64_t)1 << 31) /* of one activation of one sample, and of one parameter */

/* Wire ids: pinned, never reused. */
enum gp_op {
	GP_OP_INPUT = 0,
	GP_OP_CONV2D = 1,
	GP_OP_CONV2D_TRANSPOSE = 2,
	GP_OP_BATCH_NORM = 3,
	GP_OP_RELU = 4,
	GP_OP_RELU6 = 5,
	GP_OP_ADD = 6,
	GP_OP_AVG_POOL = 7,
	GP_OP_MAX_POOL = 8,
	GP_OP_GLOBAL_AVG_POOL = 9, /* (H,W,C) -> (1,1,C) */
	GP_OP_LINEAR = 10,
	GP_OP_FLATTEN = 11, /* (N,H,W,C) -> (N,C*H*W) in PyTorch's C,H,W order */
	GP_OP_DROPOUT = 12,
	GP_OP_SHORTCUT_PAD = 13, /* (H,W,C) -> (ceil(H/stride), ceil(W/stride), before + C + after) */
	GP_OP_COUNT
};

/* Also transposed convolution, where padding is cropped from the output and out_pad adds rows at the bottom/right. */
struct gp_conv_attr {
	int32_t out_channels;
	int32_t kernel_h, kernel_w;
	int32_t stride_h, stride_w;
	int32_t pad_top, pad_bottom, pad_left, pad_right;
	int32_t out_pad_h, out_pad_w; /* transposed only */
	int32_t groups;
	bool bias;
};

struct gp_pool_attr {
	int32_t kernel_h, kernel_w;
	int32_t stride_h, stride_w;
	int32_t pad_top, pad_bottom, pad_left, pad_right;
	bool count_include_pad; /* average only; PyTorch's default is true */
};

struct gp_bn_attr {
	float eps;
	float momentum; /* running = (1-momentum)*running + momentum*batch, unbiased variance, as PyTorch */
};

struct gp_linear_attr {
	int32_t out_features;
	bool bias;
};

struct gp_dropout_attr {
	float p;
};

/*
 * A residual shortcut without parameters (He et al., "Deep Residual Learning
 * for Image Recognition", section 3.3, option A): every stride-th row and
 * column, from the first, between channels of zeros.
 */
struct gp_shortcut_attr {
	int32_t stride;
	int32_t before, after; /* channels of zeros */
};

struct gp_node {
	enum gp_op op;
	char name
		[GP_NAME_MAX]; /* state_dict prefix, "features.0.0"; unique; may be made up for ops without parameters */
	uint64_t name_id;      /* gp_rng_name_id(name), to find equal names fast */
	int in[2];             /* indices of earlier nodes; in[1] for ADD only, else -1 */
	union {
		struct gp_conv_attr conv;
		struct gp_pool_attr pool;
		struct gp_bn_attr bn;
		struct gp_linear_attr linear;
		struct gp_dropout_attr dropout;
		struct gp_shortcut_attr shortcut;
	} u;
	struct gp_shape shape;   /* of one sample, without batch: (H,W,C), (S,F) or (F) */
	int first_param, params; /* range in graph->param */
	uint64_t macs;           /* multiply-accumulates of one sample's forward pass; 0 but for conv and linear */
};

/* Roles in the order the parameters of one node are listed. */
enum gp_param_role {
	GP_PARAM_WEIGHT,       /* conv (O,I/g,KH,KW), transposed conv (I,O/g,KH,KW), linear (O,I), batch norm (C) */
	GP_PARAM_BIAS,         /* (O) or (C) */
	GP_PARAM_RUNNING_MEAN, /* (C), not trained */
	GP_PARAM_RUNNING_VAR,  /* (C), not trained */
};

/* How a parameter starts; drawn from gp_rng with the parameter's own name, so both ends draw the same. */
enum gp_init_kind {
	GP_INIT_ZEROS = 0,
	GP_INIT_ONES = 1,
	GP_INIT_NORMAL = 2,  /* mean 0, standard deviation init_scale */
	GP_INIT_UNIFORM = 3, /* [-init_scale, init_scale) */
};

struct gp_param {
	char name[GP_NAME_MAX]; /* "features.0.0.weight" */
	int node;
	enum gp_param_role role;
	struct gp_shape shape;
	uint64_t count;
	enum gp_init_kind init;
	float init_scale;
	bool trained; /* false for running statistics */
	bool decay; /* weight decay applies (true for all trained parameters, as in torch.optim, unless a builder says no) */
};

struct gp_block {
	char name[GP_NAME_MAX];
	int first_node; /* block b is nodes [first_node, next block's first_node) */
};

struct gp_graph {
	char name[GP_NAME_MAX];
	int nodes, params, blocks;
	struct gp_node *node; /* node[0] is GP_OP_INPUT; the last node is the output */
	struct gp_param *param;
	struct gp_block *block;
	uint64_t param_elements, trained_elements, macs; /* sums, of one sample */
	int node_cap, param_cap, block_cap;
};

/* Empty graph with an input node of one sample's shape. NULL and err on failure. */
struct gp_graph *gp_graph_new(const char *name, const struct gp_shape *input, struct gp_err *err);
void gp_graph_free(struct gp_graph *g);

/* Everything added from here on belongs to a new block. */
enum gp_status gp_graph_begin_block(struct gp_graph *g, const char *name, struct gp_err *err);

/*
 * Appends one node (a copy of `n`'s op, name, in, u), infers its shape and
 * MACs, checks every attribute and limit, and lists its parameters with
 * PyTorch's default initialisation. Safe on nodes that came from a peer; on
 * failure the graph is as it was. Names are letters, digits, '_', '-' and
 * single dots, with room for ".running_mean". *index gets the node's index.
 */
enum gp_status gp_graph_add(struct gp_graph *g, const struct gp_node *n, int *index, struct gp_err *err);

/* Builders' shorthands: return the node's index, or -1 with err filled; input -1 is passed through as -1. */
int gp_graph_conv(struct gp_graph *g, const char *name, int in, int out_channels, int kernel, int stride, int pad,
		  int groups, bool bias, struct gp_err *err);
int gp_graph_batch_norm(struct gp_graph *g, const char *name, int in, float eps, float momentum, struct gp_err *err);
int gp_graph_unary(struct gp_graph *g, enum gp_op op, const char *name, int in, struct gp_err *err);
int gp_graph_sum(struct gp_graph *g, const char *name, int a, int b, struct gp_err *err);
int gp_graph_pool(struct gp_graph *g, enum gp_op op, const char *name, int in, int kernel, int stride, int pad,
		  struct gp_err *err);
int gp_graph_linear(struct gp_graph *g, const char *name, int in, int out_features, bool bias, struct gp_err *err);
int gp_graph_dropout(struct gp_graph *g, const char *name, int in, float p, struct gp_err *err);
int gp_graph_shortcut_pad(struct gp_graph *g, const char *name, int in, int stride, int before, int after,
			  struct gp_err *err);

/* Last check: at least one node beyond the input, every node but the last is used, sums filled in. */
enum gp_status gp_graph_finish(struct gp_graph *g, struct gp_err *err);

/* Elementary operations of one sample's forward pass, roughly: MACs, elements that windows of pools look at, elements
 * of all other outputs. UINT64_MAX where they pass 64 bits. */
uint64_t gp_graph_work(const struct gp_graph *g);

/*
 * Blocks [from, to) as a graph of their own; its input is the tensor at cut
 * `from`. GP_INVALID when a node in the range reads anything before it other
 * than that one tensor, or a later block reads past the last node.
 */
enum gp_status gp_graph_part(const struct gp_graph *g, int from, int to, struct gp_graph **out, struct gp_err *err);

/*
 * "H:T" as design section 4: head = blocks [0,head), body = [head,tail), tail =
 * [tail,blocks), none empty. Numbers count blocks from the front, negative ones
 * from the back. GP_USAGE tells how many blocks there are.
 */
struct gp_cut {
	int head, tail;
};
enum gp_status gp_cut_parse(const struct gp_graph *g, const char *text, struct gp_cut *out, struct gp_err *err);

/* Index of the parameter with this name, -1 if none. */
int gp_graph_find_param(const struct gp_graph *g, const char *name);
/* Index of the node's parameter with that role, -1 if none. */
int gp_graph_param_of(const struct gp_graph *g, const struct gp_node *n, enum gp_param_role role);
/* Whether an optimizer changes a parameter of this node. */
bool gp_graph_is_trained(const struct gp_graph *g, const struct gp_node *n);
/* How often later nodes read the value of node `index`: one that reads it twice counts twice. */
int gp_graph_readers(const struct gp_graph *g, int index);
/* Writes the starting values of one parameter, `count` floats in PyTorch's layout. Thread-safe, pure in (seed, name). */
void gp_param_init(const struct gp_param *p, uint64_t seed, float *out);

const char *gp_op_name(enum gp_op op); /* "conv2d"; "?" when out of range */
static inline const struct gp_shape *gp_graph_input_shape(const struct gp_graph *g)
{
	return &g->node[0].shape;
}
static inline const struct gp_shape *gp_graph_output_shape(const struct gp_graph *g)
{
	return &g->node[g->nodes - 1].shape;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What defines an op: how many inputs it takes, which attributes it has, and
 * what it makes of the types of its inputs. One definition per row of
 * op_table.h, in ops/. Only for common/graph and the wire form of graphs,
 * graph_msg.c; everybody else uses gp_graph_add.
 *
 * The nodes may come from a hostile peer: `infer` trusts nothing about a node
 * but its op and the number of its inputs, and bounds every attribute before it
 * is used in arithmetic.
 *
 * Threads: any; pure functions.
 * Test: tests/unit/test_graph.c; fuzz: tests/fuzz/fuzz_graph.c
 */
#ifndef GP_OP_H
#define GP_OP_H

#include "common/graph/graph.h"

#define GP_NODE_MAX_PARAMS 4

/* Far above any real layer; small enough that sums and products of a few stay within int64. */
#define GP_OP_MAX_WINDOW   4096
#define GP_OP_MAX_FEATURES ((int64_t)1 << 24)

struct gp_op_attr {
	const char *name; /* "stride_h" */
	bool real;        /* a float; else an integer that is never negative */
};

/* One call of `infer`: in from graph.c, out from the op. */
struct gp_infer {
	struct gp_node *node;            /* in: op, inputs, attr; out: macs, params */
	const struct gp_type *const *in; /* node->inputs of them, of one sample */
	struct gp_type *out;             /* room for GP_NODE_MAX_OUTPUTS; one f32 output is the default */
	int outputs;                     /* 1 unless the op says otherwise */
	bool needs_all; /* out: with these attributes it needs all positions of a sequence, whatever its definition says */
	/* in and out: what it makes may depend on positions that a sample does not have. At first so for an op that ends
	 * sequences and has no `told_by`. */
	bool reads_padding;
	struct gp_param *param; /* room for GP_NODE_MAX_PARAMS: all but names and node; gp_infer_param adds one */
};

/* What becomes of sequences (gp_graph_sequence) that a node reads. Where it reads sequences and other values at once, but
 * for those in `beside`, it needs all positions. */
enum gp_op_sequence {
	GP_SEQUENCE_FIXED,  /* it needs all positions: the default */
	GP_SEQUENCE_KEPT,   /* what it makes has as many positions; it works on each element, or position, by itself */
	GP_SEQUENCE_BY_ROW, /* the same, where the first dimension is not the last, along which it works */
	GP_SEQUENCE_ENDS,   /* what it makes is no sequence */
};

struct gp_op_def {
	const char *name;
	int inputs_min, inputs_max;
	int attrs;
	const struct gp_op_attr *attr; /* the words of gp_node.attr, in order; the wire has them in this order, too */
	int optional; /* so many of the last ones are left out of a message where they and all behind them are 0 */
	enum gp_op_sequence sequence;
	uint64_t beside; /* bit i: input i is never a sequence, such as attention's lengths */
	/* bit i: input i says which positions a sample has, and what the node makes does not depend on the others, as long as
	 * that input is data of the graph (gp_graph_padding_reader). 0: it works on each position by itself, or see
	 * reads_padding. */
	uint64_t told_by;
	/* Checks inputs and attributes, fills in outputs, parameters and costs. GP_INVALID: what is wrong. */
	enum gp_status (*infer)(struct gp_infer *io, struct gp_err *err);
};

/* NULL when `op` is out of range or is GP_OP_INPUT. */
const struct gp_op_def *gp_op_def(enum gp_op op);

/* --- for ops/ --------------------------------------------------------------------------------------------------- */

enum gp_status gp_check_range(const char *what, int64_t value, int64_t min, int64_t max, struct gp_err *err);
/* Input `index` must be f32 (H,W,C). */
enum gp_status gp_check_image(const struct gp_infer *io, int index, struct gp_err *err);
/* Input `index` must have this element type. */
enum gp_status gp_check_dtype(const struct gp_infer *io, int index, enum gp_dtype dtype, struct gp_err *err);
/* Every input must be f32 of one shape. */
enum gp_status gp_check_same_shapes(const struct gp_infer *io, struct gp_err *err);
struct gp_shape gp_shape1(int64_t a);
struct gp_shape gp_shape2(int64_t a, int64_t b);
struct gp_shape gp_shape3(int64_t a, int64_t b, int64_t c);
enum gp_status gp_infer_param(struct gp_infer *io, enum gp_param_role role, struct gp_shape shape,
			      enum gp_init_kind init, float scale, struct gp_err *err);
/* kaiming_uniform(a=sqrt(5)) of torch.nn: both weight and bias are uniform in +-1/sqrt(fan_in). */
enum gp_status gp_infer_weight_and_bias(struct gp_infer *io, struct gp_shape weight, int64_t fan_in, bool bias,
					int64_t outputs, struct gp_err *err);
/* `infer` of an op that takes one f32 value and gives another of the same shape. */
enum gp_status gp_infer_same(struct gp_infer *io, struct gp_err *err);

/* gp_NOUN_attr and gp_set_NOUN_attr of an op's struct, whose members are all int32_t or float, in the order of its
 * `attr`. */
#define GP_OP_ATTRIBUTES(noun)                                                                                         \
	_Static_assert(sizeof(struct gp_##noun##_attr) <= sizeof((struct gp_node *)0)->attr, "too many attributes");   \
	static inline struct gp_##noun##_attr gp_##noun##_attr(const struct gp_node *n)                                \
	{                                                                                                              \
		struct gp_##noun##_attr a;                                                                             \
		memcpy(&a, n->attr, sizeof a);                                                                         \
		return a;                                                                                              \
	}                                                                                                              \
	static inline void gp_set_##noun##_attr(struct gp_node *n, struct gp_##noun##_attr a)                          \
	{                                                                                                              \
		memcpy(n->attr, &a, sizeof a);                                                                         \
	}

#define GP_OP_ATTR_COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

#endif

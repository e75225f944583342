/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the CPU device: what a plan is made of, and the table of ops. Only
 * for this folder.
 *
 * A plan is built in this order (cpu_plan.c):
 *   1. cpu_plan_build.c: one cpu_node per graph node; folds an activation into the batch norm before it, finds which
 *      gradients are needed; every op's `prepare` says what it wants to keep and how much room it works in.
 *   2. cpu_plan_layout.c: walks the step forward and backward once, decides where each value and gradient lives.
 *   3. cpu_plan.c: takes the memory; every op's `create` makes what runs. cpu_plan_run.c runs it.
 * An estimate stops before 3.
 *
 * Glossary: value = output of a node; grad = gradient with respect to a value; saved = kept per slot from forward to
 * backward; tmp = room of one op during one call; view = a node that computes nothing because its value is its
 * input's, bit for bit.
 *
 * To add an op: a file ops/cpu_NAME.c with a const struct cpu_op, a row in cpu_plan_build.c, a dump of PyTorch's results for
 * tests/unit/test_cpu_ops.c.
 *
 * Threads: one at a time calls into a plan (common/graph/device.h); an op's loops share
 * their work among OpenMP's threads. Test: tests/unit/test_cpu_ops.c,
 * tests/unit/test_cpu_plan.c
 */
#ifndef GP_CPU_PLAN_H
#define GP_CPU_PLAN_H

#include <dnnl.h>

#include "common/graph/device.h"
#include "kernels/cpu/math/bn_rows.h"

struct cpu_plan;
struct cpu_node;
struct cpu_profile;

struct cpu_device {
	struct gp_device base;
	dnnl_engine_t engine;
};

/* What an op sees of one call. */
struct cpu_call {
	struct cpu_plan *plan;
	struct cpu_node *node;
	enum gp_mode mode;
	uint64_t draw;
	const float *in[2];
	float *out;
	void *saved; /* node->saved_bytes of this slot */
	void *tmp;   /* node->tmp_bytes; nothing in it survives the call */
	const float *dout;
	float *dx;   /* NULL when nobody wants it; overwritten (=) */
	float *sums; /* batch norm: node->sums_bytes, filled by itself or by a neighbour before */
	/* For gp_cpu_bn_*: memory of the batch norms node->reads, ->feeds and ->finishes. */
	void *reads_saved, *finish_saved;
	float *feed_sums, *return_sums;
	/* Parameter gradients: add to what is there (true), or overwrite it (false: first chunk of a step). */
	bool accumulate;
};

struct cpu_op {
	const char *name;
	/* What backward reads apart from dout. */
	bool saves_input, saves_output;
	/* out may be in[0] (or in[1]) when nobody else reads that; dx may be dout. */
	bool in_place, in_place_backward;
	/* Backward only hands dout on to every input. */
	bool passes_gradient;
	/* Runs over rows of (h, w, channels) values and does the part of its neighbouring batch norms (gp_cpu_bn_*). */
	bool hosts_batch_norm;

	/* (optional) Fills node->saved_bytes, tmp_bytes, view, op state; may enlarge the room of parameter gradients. */
	enum gp_status (*prepare)(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err);
	/* (optional) Makes what runs; the plan's memory is there. */
	enum gp_status (*create)(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err);
	/* (optional) Frees what prepare and create made, also after either failed half-way. */
	void (*release)(struct cpu_node *n);
	/* (optional) Parameters have changed: renew private copies. */
	enum gp_status (*repack)(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err);
	/* (optional) A weight gradient in PyTorch's layout; NULL: it already is. */
	enum gp_status (*grad_dense)(struct cpu_plan *p, struct cpu_node *n, float *out, struct gp_err *err);

	enum gp_status (*forward)(const struct cpu_call *c, struct gp_err *err);
	/* (optional) NULL with passes_gradient. */
	enum gp_status (*backward)(const struct cpu_call *c, struct gp_err *err);
};

enum cpu_place { CPU_AT_IO, CPU_AT_SLOT, CPU_AT_SCRATCH };

/* One piece of memory of a plan; `first` and `last` are the moments of cpu_plan_layout.c in which it is in use. */
struct cpu_buf {
	enum cpu_place place;
	enum gp_plan_buf io; /* CPU_AT_IO */
	uint64_t bytes, offset;
	int first, last;
	int pending; /* layout only: reads still to come */
	bool saved;
};

struct cpu_node {
	const struct gp_node *g;
	const struct cpu_op *op; /* NULL for the input */
	int index;
	void *state; /* the op's own */
	enum cpu_act act;
	bool view;       /* value is in[0]'s, gradient is handed on */
	bool folded;     /* another node's activation happens here: the value is that node's */
	bool need_grad;  /* something at or before this node wants the gradient of its value */
	bool want_dx;    /* backward has to compute dx */
	bool plain_grad; /* grad_dense would only copy */
	/* Batch norm: which of its passes neighbours do, see cpu_batch_norm.c. */
	bool fed, lazy, deferred;
	/* A neighbour: the batch norms before it (lazy), and behind it (fed; deferred); NULL where there is none. */
	struct cpu_node *reads, *feeds;
	const struct cpu_node *finishes;
	uint64_t saved_bytes, tmp_bytes, sums_bytes;
	/* Indices into plan->buf, -1 where there is none. */
	int out, saved, tmp_forward, tmp_backward, sums_forward, sums_backward;
	int dout, dx[2], dx_add[2]; /* dx = own contribution (+ dx_add) */
};

struct cpu_param {
	uint64_t value_offset, grad_offset,
		grad_count; /* floats; grad_count may exceed the parameter's count (padding) */
};

struct cpu_slot {
	float *io[4]; /* by enum gp_plan_buf */
	char *arena;
	uint64_t draw;
	bool forwarded; /* a TRAIN forward waits for its backward */
};

struct cpu_plan {
	struct gp_plan base;
	struct cpu_device *dev;
	dnnl_stream_t stream;
	int threads;
	struct cpu_node *node;
	struct cpu_param *param;
	struct cpu_buf *buf;
	int bufs, buf_cap;
	uint64_t value_floats, grad_floats, undo_floats, pack_bytes, slot_bytes, scratch_bytes, io_bytes[4];
	struct gp_plan_memory memory; /* while building: what it will take; afterwards: what it took */

	float *values; /* parameters, PyTorch's layouts */
	float *grads;  /* each in the layout its op produces */
	float *moment; /* optimizer state: as `values`, once or twice */
	char *packs;   /* weights again, as oneDNN's kernels want them */
	float *undo;   /* with spec.undo: parameters that are not trained, as before the step's first forward */
	char *scratch;
	struct cpu_slot *slot;
	bool packs_stale, have_grads, undo_saved;
	uint64_t optim_steps;
	struct cpu_profile *profile; /* NULL: not measured */
};

/* One table, by enum gp_op (cpu_plan_build.c). */
extern const struct cpu_op gp_cpu_conv, gp_cpu_conv_transpose, gp_cpu_batch_norm, gp_cpu_relu, gp_cpu_relu6,
	gp_cpu_add_op, gp_cpu_avg_pool, gp_cpu_max_pool, gp_cpu_global_avg_pool, gp_cpu_linear, gp_cpu_flatten,
	gp_cpu_dropout, gp_cpu_shortcut_pad;
/* In place of gp_cpu_conv for nodes that fit. */
extern const struct cpu_op gp_cpu_pointwise, gp_cpu_depthwise, gp_cpu_winograd;
bool gp_cpu_pointwise_fits(const struct gp_node *n);
bool gp_cpu_depthwise_fits(const struct gp_node *n, const struct gp_shape *in);
bool gp_cpu_winograd_fits(const struct gp_node *n, const struct gp_shape *in);

/*
 * cpu_batch_norm.c: what an op that hosts batch norms does for them, on rows (pixels of all images) of its input or
 * output. Without such a batch norm these do nothing. Parts may run at once on rows of their own; the borders of a
 * part that calls feed or return are multiples of gp_bn_block(h * w).
 *
 * input: rows [from, to) of the input, normalized into `room` (or where they lie). dout: rows of dout as the op's own
 * gradient, into `room`, which may be those rows of dout (or where they lie). feed, return: rows of out, or dx, are
 * written up to `until`: sums up whole blocks from `done` on, and returns up to where it did.
 */
const float *gp_cpu_bn_input(const struct cpu_call *c, int64_t from, int64_t to, float *room);
const float *gp_cpu_bn_dout(const struct cpu_call *c, int64_t from, int64_t to, float *room);
int64_t gp_cpu_bn_feed(const struct cpu_call *c, int64_t done, int64_t until);
int64_t gp_cpu_bn_return(const struct cpu_call *c, int64_t done, int64_t until);

/* cpu_plan_build.c: steps 1 and 2. The plan is zeroed but for base, dev, threads. */
enum gp_status gp_cpu_plan_build(struct cpu_plan *p, struct gp_err *err);
/* cpu_plan_layout.c */
enum gp_status gp_cpu_plan_layout(struct cpu_plan *p, struct gp_err *err);
/* cpu_plan.c: frees a plan in whatever state. */
void gp_cpu_plan_release(struct cpu_plan *p);

/* cpu_plan_run.c */
enum gp_status gp_cpu_forward(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw, struct gp_err *err);
enum gp_status gp_cpu_backward(struct gp_plan *plan, int slot, struct gp_err *err);
enum gp_status gp_cpu_node_get(struct gp_plan *plan, int slot, int index, float *out, struct gp_err *err);
/* cpu_loss.c */
enum gp_status gp_cpu_loss(struct gp_plan *plan, int slot, const int32_t *labels, int valid, bool want_grad,
			   float grad_scale, struct gp_loss_result *out, struct gp_err *err);
/* cpu_optim.c */
enum gp_status gp_cpu_optim_step(struct gp_plan *plan, float lr, struct gp_err *err);
/* A trained parameter's gradient in PyTorch's layout: where it lies, or brought into scratch memory. */
enum gp_status gp_cpu_dense_grad(struct cpu_plan *p, int index, const float **out, struct gp_err *err);
int gp_cpu_optim_states(const struct gp_plan *plan);
enum gp_status gp_cpu_optim_get(struct gp_plan *plan, int index, int which, float *out, struct gp_err *err);
enum gp_status gp_cpu_optim_set(struct gp_plan *plan, int index, int which, const float *in, struct gp_err *err);
uint64_t gp_cpu_optim_count_get(const struct gp_plan *plan);
void gp_cpu_optim_count_set(struct gp_plan *plan, uint64_t updates);
/* cpu_undo.c: floats to keep for an undo; keeps them, once in a step; goes back to them. */
uint64_t gp_cpu_undo_floats(const struct cpu_plan *p);
void gp_cpu_undo_save(struct cpu_plan *p);
void gp_cpu_step_undo(struct gp_plan *plan);
/* cpu_clip.c */
enum gp_status gp_cpu_grad_squares(struct gp_plan *plan, double *out, struct gp_err *err);
enum gp_status gp_cpu_grad_scale(struct gp_plan *plan, float factor, struct gp_err *err);
enum gp_status gp_cpu_grad_clamp(struct gp_plan *plan, float limit, struct gp_err *err);

/* The n-th parameter of a node: its index in the graph; -1 when there is none with that role. */
int gp_cpu_param_index(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role);
float *gp_cpu_param_value(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role);
float *gp_cpu_param_grad(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role);

/* Elements of a node's value for one chunk, and the node that makes its k-th input. */
static inline int64_t gp_cpu_elements(const struct cpu_plan *p, const struct cpu_node *n)
{
	return (int64_t)p->base.spec.batch * (int64_t)gp_shape_elements(&n->g->shape);
}
static inline struct cpu_node *gp_cpu_input(const struct cpu_plan *p, const struct cpu_node *n, int k)
{
	return &p->node[n->g->in[k]];
}
static inline uint64_t gp_cpu_align(uint64_t bytes)
{
	return (bytes + 63) & ~(uint64_t)63;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the CPU device: what a plan is made of, and the table of ops. Only
 * for kernels/cpu.
 *
 * A plan is built in this order (cpu_plan.c):
 *   1. cpu_plan_build.c: one cpu_node per graph node; folds an activation into the batch norm before it, and in evaluation
 *      both into the convolution before them (cpu_fold.h); the common walk (kernels/plan/plan_walk.h) finds which gradients
 *      are needed; every op's `prepare` says what it wants to keep and how much room it works in.
 *   2. The walk decides where each value and gradient lives; cpu_plan_layout.c adds what batch norms share with their
 *      neighbours.
 *   3. cpu_plan.c: takes the memory; every op's `create` makes what runs. cpu_plan_run.c runs it.
 * An estimate stops before 3.
 *
 * Masks. Which activations that stand alone keep bits in place of their output: kernels/plan/plan_masks.h. One behind a
 * frozen batch norm does as well (cpu_plan_masks.c), unless the op behind it normalizes as it reads and trains: that op keeps
 * the map; or maps lie encoded and the model may be cut there. A batch norm that trains needs its input for its own gradients,
 * and finds the mask again from that. Maximum pooling keeps the place of each maximum in the fewest bits that its window needs,
 * 1, 2, 4 and so on to 32.
 *
 * Glossary: value = what a node makes; grad = gradient with respect to a value; saved = kept per slot from forward to
 * backward; tmp = room of one op during one call; view = a node that computes nothing because its value is its
 * input's, bit for bit.
 *
 * To add an op: a row in common/graph/op_table.h, which says what else; here it is one file ops/cpu_NAME.c with
 * `const struct cpu_op gp_cpu_op_NAME`.
 *
 * Threads: one at a time calls into a plan (common/graph/device.h); an op's loops share
 * their work among OpenMP's threads. Test: tests/unit/test_cpu_ops.c,
 * tests/unit/test_cpu_plan.c
 */
#ifndef GP_CPU_PLAN_H
#define GP_CPU_PLAN_H

#include "common/graph/device.h"
#include "kernels/cpu/math/bn_rows.h"
#include "kernels/plan/plan_walk.h"

struct cpu_plan;
struct cpu_node;
struct cpu_profile;
struct dnnl_engine;
struct dnnl_stream;
struct gp_store_coder;

struct cpu_device {
	struct gp_device base;
	struct dnnl_engine *engine; /* oneDNN's; NULL where there is none (kernels/cpu/onednn/dnn_device.h) */
	bool own;                   /* GP_ENGINE=own in the environment: own loops alone, without oneDNN */
	bool plain;                 /* GP_ENGINE=plain: of these, only what runs on every processor */
};

/* What an op sees of one call. Where only forward, or only backward, is said, the other has none. */
struct cpu_call {
	struct cpu_plan *plan;
	struct cpu_node *node;
	enum gp_mode mode;
	uint64_t draw;
	const float *const *in;   /* by input; of integers gp_cpu_integers. In backward only what the op saves */
	float *const *out;        /* by output; NULL where nobody reads it. In backward only what the op saves */
	void *saved;              /* node->base.saved_bytes of this slot */
	void *tmp;                /* node->tmp_bytes; nothing in it survives the call */
	const float *const *dout; /* backward, by output; NULL: zeros, as nobody reads that output */
	float *const *dx;         /* backward, by input; NULL when nobody wants it; overwritten (=) */
	float *sums;              /* batch norm: node->sums_bytes, filled by itself or by a neighbour before */
	float *vectors;           /* batch norm, backward: node->vector_bytes */
	/* For gp_cpu_bn_*: memory of the batch norms node->reads, ->feeds and ->finishes. */
	void *reads_saved, *finish_saved;
	float *feed_sums, *return_sums, *finish_vectors;
	/* Parameter gradients: add to what is there (true), or overwrite it (false: first chunk of a step). */
	bool accumulate;
	/* The second forward of a chunk (plan_again.h): the batch norm's vectors are there, and nothing else may change. */
	bool again;
};

struct cpu_op {
	const char *name;
	/* What backward reads apart from dout, by input and output (masks); a node's own may be changed by prepare. */
	uint64_t saves_in, saves_out;
	/* out[0] may be an input when nobody else reads that; a dx may be dout[0]. */
	bool in_place, in_place_backward;
	/* Backward only hands dout[0] on to every input. */
	bool passes_gradient;
	/* Runs over rows of (h, w, channels) values and does the part of its neighbouring batch norms (gp_cpu_bn_*). */
	bool hosts_batch_norm;
	/* A convolution without a bias that can do all of the batch norm behind it, in evaluation (cpu_fold.h). */
	bool folds_batch_norm;

	/* (optional) Fills node->base.saved_bytes, saves_*, view, tmp_bytes, op state; may enlarge the room of parameter
	 * gradients. */
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

struct cpu_node {
	struct gp_walk_node base;
	const struct cpu_op *op; /* NULL for an input */
	void *state;             /* the op's own */
	enum cpu_act act;
	bool folded;     /* an activation or norm behind it is computed here: the value is that node's */
	bool masks;      /* an activation, or a batch norm with one: bits are kept of it for its own backward */
	bool moves;      /* its values are its input's, bit for bit, whether the walk makes it a view or not */
	bool plain_grad; /* grad_dense would only copy */
	/* Batch norm: which of its passes neighbours do, see cpu_batch_norm.c; the reader normalizes: base.unwritten. */
	bool fed, deferred;
	bool sums_in_forward; /* batch norm: some forward takes statistics */
	/* A neighbour: the batch norms before it (unwritten), and behind it (fed; deferred); NULL where there is none. */
	struct cpu_node *reads, *feeds;
	const struct cpu_node *finishes;
	const struct cpu_node *folds; /* the batch norm behind it that is folded into it (cpu_fold.h); NULL: none is */
	uint64_t fold_scale, fold_bias; /* what it comes to, in the plan's packs */
	uint64_t tmp_bytes, sums_bytes, vector_bytes;
	uint64_t pick_offset; /* of the layer that makes rows of scores: those picked, in its working room */
	int sums_forward, sums_backward, vectors; /* pieces of the walk, -1 where there is none */
};

struct cpu_param {
	/* Floats, state_offset bytes; all but the first of a trained parameter. grad_count may exceed the parameter's count
	 * (padding). */
	uint64_t value_offset, decoded_offset, state_offset, grad_offset, grad_count;
};

/* Which coders: those of enum gp_structure, and of maps. */
enum { CPU_CODER_MAPS = GP_STRUCTS, CPU_CODERS };

struct cpu_slot {
	void **io; /* by port (plan_walk.h) */
	char *arena;
	uint64_t draw;
	int64_t length; /* of its chunk's sequences; 0: all positions */
	int64_t *row;   /* room for gp_cpu_pick_most: its chunk's rows of scores that are computed, in their order */
	int64_t rows;   /* how many these are; 0: all */
	bool forwarded; /* a TRAIN forward waits for its backward */
};

struct cpu_plan {
	struct gp_plan base;
	struct cpu_device *dev;
	struct dnnl_stream *stream; /* NULL where there is no engine */
	int threads;
	struct cpu_node *node;
	struct cpu_param *param;
	struct gp_walk walk;
	uint64_t value_floats, decoded_floats, grad_floats, undo_floats, merged_doubles, pack_bytes;
	uint64_t state_bytes;                 /* of one array of each trained parameter */
	uint64_t unpack_bytes, scratch_bytes; /* scratch: gradients are unpacked at its beginning */
	struct gp_plan_memory memory;         /* while building: what it will take; afterwards: what it took */

	float *values;  /* parameters, PyTorch's layouts */
	float *decoded; /* what forward and backward read in place of trained ones (cpu_code.h); NULL: these */
	float *grads;   /* each in the layout its op produces */
	char *moment;   /* optimizer state (cpu_moments.h): of trained parameters, state_bytes once or twice */
	char *packs;    /* weights again, as oneDNN's kernels and own ones want them */
	float *undo;    /* with spec.undo: running statistics that forwards move, as before the step's first one */
	double *merged; /* batch norms' statistics over chunks */
	char *scratch;
	struct cpu_slot *slot;
	bool packs_stale, have_grads, undo_saved;
	uint64_t calibrated; /* GP_CALIBRATE: chunks that count by now; 0 from the next training forward on */
	bool calibrates;     /* the forward under way is of one that does not yet */
	uint64_t optim_steps;
	/* What clipping has asked for since the update before, where gradients are coded (cpu_clip.c). */
	float grad_factor, grad_limit;
	struct gp_store_coder **coder[CPU_CODERS]; /* cpu_code.h; each NULL, or one for each compute thread */
	struct cpu_profile *profile;               /* NULL: not measured */
};

/* One of each row. */
#define X(id, NAME, name) extern const struct cpu_op gp_cpu_op_##name;
GP_OPS(X)
#undef X
/* In place of gp_cpu_op_conv2d for nodes that fit. */
extern const struct cpu_op gp_cpu_pointwise, gp_cpu_depthwise, gp_cpu_winograd;
/* In place of gp_cpu_op_linear in bf16. */
extern const struct cpu_op gp_cpu_bf16_linear;
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

/* Channel `ch` of a norm as evaluation has it: a x + b, before its activation. */
struct gp_cpu_affine {
	double a, b;
};
struct gp_cpu_affine gp_cpu_bn_affine(const struct cpu_plan *p, const struct cpu_node *n, int64_t ch);
/* Whether a training forward takes the chunk's statistics. */
bool gp_cpu_bn_takes_statistics(const struct cpu_node *n);
/* Running statistics that move at the end of a step do so; or, forget: its chunks have not been. */
void gp_cpu_bn_end_step(struct cpu_plan *p);
void gp_cpu_bn_forget(struct cpu_plan *p);

/* cpu_plan_build.c: steps 1 and 2. The plan is zeroed but for base, dev, threads. */
enum gp_status gp_cpu_plan_build(struct cpu_plan *p, struct gp_err *err);
/*
 * cpu_plan_masks.c. Whether a frozen batch norm keeps a mask of its activation in place of its input; `reader`: the only reader
 * of its value, if that would normalize as it reads, else NULL. Which activations that stand alone keep masks, when all nodes
 * have been prepared.
 */
bool gp_cpu_bn_may_mask(const struct cpu_plan *p, const struct cpu_node *n, const struct cpu_node *reader);
void gp_cpu_choose_masks(struct cpu_plan *p);
/* cpu_plan_layout.c: the walk, and what is the CPU's own in it. */
enum gp_status gp_cpu_plan_layout(struct cpu_plan *p, struct gp_err *err);
/* cpu_plan.c: frees a plan in whatever state. */
void gp_cpu_plan_release(struct cpu_plan *p);

/* cpu_plan_run.c */
void gp_cpu_set_length(struct gp_plan *plan, int slot, int64_t length);
enum gp_status gp_cpu_forward(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw, struct gp_err *err);
enum gp_status gp_cpu_backward(struct gp_plan *plan, int slot, struct gp_err *err);
enum gp_status gp_cpu_node_get(struct gp_plan *plan, int slot, int index, float *out, struct gp_err *err);
/* Where a piece of the walk lies; NULL: GP_WALK_NONE. */
void *gp_cpu_buf(const struct cpu_plan *p, int slot, int buf);
/*
 * cpu_plan_store.c: encodes what has had its last reader when this node's forward has run, decodes what is read from this
 * node's backward on; *at counts how far that is, from 0 when the pass begins. What lies in IO buffers, when backward begins.
 * Without spec.maps these do nothing.
 */
void gp_cpu_store_after(struct cpu_plan *p, int slot, int node, int *at);
void gp_cpu_store_before(struct cpu_plan *p, int slot, int node, int *at);
void gp_cpu_store_edges(struct cpu_plan *p, int slot);
/*
 * cpu_pick.c: chunks of which only some rows of scores are computed. How many rows there are in all, 0 where none may be left
 * out; after the op's prepare, room for them; whether a loss's labels, of so many rows, are those that the slot was told.
 * Then, unless all of them are computed, of the one layer that makes them: the input's rows that it reads, closed up, and the
 * gradient of these at the places of all.
 */
int64_t gp_cpu_pick_most(const struct cpu_plan *p);
void gp_cpu_pick_prepare(struct cpu_plan *p, struct cpu_node *n);
void gp_cpu_set_labels(struct gp_plan *plan, int slot, const int32_t *labels, int valid);
bool gp_cpu_pick_agrees(const struct cpu_plan *p, int slot, const int32_t *labels, int64_t rows);
const float *gp_cpu_pick_input(const struct cpu_plan *p, int slot, const struct cpu_node *n, const float *in,
			       void *tmp);
void gp_cpu_pick_spread(const struct cpu_plan *p, int slot, const struct cpu_node *n, float *dx);
/* cpu_speed.c */
enum gp_status gp_cpu_measure(struct gp_device *dev, struct gp_speed *out, struct gp_err *err);
/* cpu_loss.c */
enum gp_status gp_cpu_loss(struct gp_plan *plan, int slot, const void *labels, int valid, bool want_grad,
			   float grad_scale, struct gp_loss_result *out, struct gp_err *err);
/* cpu_optim.c */
enum gp_status gp_cpu_optim_step(struct gp_plan *plan, float lr, struct gp_err *err);
/* A trained parameter's gradient in PyTorch's layout: where it lies, or brought into scratch memory. */
enum gp_status gp_cpu_dense_grad(struct cpu_plan *p, int index, const float **out, struct gp_err *err);
/* cpu_undo.c: floats to keep for an undo; keeps them, once in a step; goes back to them. */
uint64_t gp_cpu_undo_floats(const struct cpu_plan *p);
void gp_cpu_undo_save(struct cpu_plan *p);
void gp_cpu_step_undo(struct gp_plan *plan);
/* cpu_clip.c */
/* The same as the update takes it: coded and clipped, where the plan codes gradients. */
enum gp_status gp_cpu_final_grad(struct cpu_plan *p, int index, const float **out, struct gp_err *err);
void gp_cpu_forget_clipping(struct cpu_plan *p);
enum gp_status gp_cpu_grad_squares(struct gp_plan *plan, double *out, struct gp_err *err);
enum gp_status gp_cpu_tie_grads(struct gp_plan *plan, int lead, struct gp_plan *other, int follower,
				struct gp_err *err);
enum gp_status gp_cpu_tie_values(struct gp_plan *plan, int lead, struct gp_plan *other, int follower,
				 struct gp_err *err);
enum gp_status gp_cpu_grad_scale(struct gp_plan *plan, float factor, struct gp_err *err);
enum gp_status gp_cpu_grad_clamp(struct gp_plan *plan, float limit, struct gp_err *err);

/* The n-th parameter of a node: its index in the graph; -1 when there is none with that role. The gradient is NULL, too,
 * where the parameter is not trained. */
int gp_cpu_param_index(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role);
/* As forward and backward read it, and write running statistics. */
float *gp_cpu_param_value(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role);
float *gp_cpu_param_grad(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role);

/*
 * Within a call these tell of the call's chunk, whose sequences may be shorter than those of the graph; in prepare and
 * create of all positions, for which room must be.
 */
/* Elements of a node's first value for one chunk, and of its k-th input. */
static inline int64_t gp_cpu_elements(const struct cpu_plan *p, const struct cpu_node *n)
{
	return gp_walk_elements(&p->walk, n->base.first_value);
}
static inline int64_t gp_cpu_in_elements(const struct cpu_plan *p, const struct cpu_node *n, int k)
{
	return gp_walk_elements(&p->walk, n->base.in[k]);
}
/*
 * For random draws, which are counted over all positions, so that they are the same for a position whatever the chunk's
 * length: elements of the first value of one sample, and those that a sample of this chunk has fewer.
 */
static inline int64_t gp_cpu_full_sample(const struct cpu_plan *p, const struct cpu_node *n)
{
	return (int64_t)gp_shape_elements(&p->base.spec.graph->value[n->base.first_value].type.shape);
}
static inline int64_t gp_cpu_missing_in_sample(const struct cpu_plan *p, const struct cpu_node *n)
{
	return gp_cpu_full_sample(p, n) - gp_cpu_elements(p, n) / p->base.spec.batch;
}
/* Shape of one sample of its k-th input; and the node that makes that. */
static inline const struct gp_shape *gp_cpu_in_shape(const struct cpu_plan *p, const struct cpu_node *n, int k)
{
	return &gp_walk_type(&p->walk, n->base.in[k])->shape;
}
static inline struct cpu_node *gp_cpu_input(const struct cpu_plan *p, const struct cpu_node *n, int k)
{
	return &p->node[p->base.spec.graph->value[n->base.in[k]].node];
}
/* The k-th input of a call, which is i32. */
static inline const int32_t *gp_cpu_integers(const struct cpu_call *c, int k)
{
	const void *in = c->in[k];
	return in;
}
static inline uint64_t gp_cpu_align(uint64_t bytes)
{
	return (bytes + 63) & ~(uint64_t)63;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the CUDA device: what a plan is made of, and the table of ops. C over
 * rt.h, blas.h and the kernels' launchers (k_*.h); the same files run on a card
 * and on the emulated device. Only for kernels/cuda.
 *
 * A plan is built in this order (cuda_plan.c):
 *   1. cuda_plan_build.c: one cuda_node per graph node; folds residual sums and activations into the batch norm before them;
 *      the common walk (kernels/plan/plan_walk.h) finds which gradients are needed; cuda_share.c lets neighbours work for
 *      each other; every op's `prepare` says what it keeps and how much room it works in; choose_masks lets activations that
 *      stand alone keep bits in place of that (kernels/plan/plan_masks.h).
 *   2. The walk decides where each value and gradient lives; cuda_plan_layout.c adds what weight gradients beside the
 *      chain need.
 *   3. cuda_plan.c: takes one block of device memory, cuts it up. cuda_plan_run.c queues the ops, once for each slot and
 *      direction, as a graph that is launched from then on.
 * An estimate stops before 3.
 *
 * Glossary: value = what a node makes; saved = kept per slot from forward to backward; tmp = room of one op during one
 * call; pack = an op's private copy of its weights, renewed when they change; view = a node that computes nothing
 * because its value is its input's; absorbed = a node that a later one computes together with itself; track = a stream
 * with what is used on it, its scratch memory is the walk's pool of that number; job = a node's weight gradient, on a
 * track beside the chain of gradients.
 *
 * Values and their gradients are (batch, sample shape) with channels last, of the plan's type: fp32, or bf16 in that
 * precision; what lies at the plan's edge (IO) is fp32 and is converted by the plan, not by ops. Integers are i32
 * everywhere. Parameters, their gradients and what the optimizer remembers are fp32, all with the same offsets: trained
 * parameters to which weight decay applies, then other trained ones, then running statistics that training moves, then
 * what is frozen. An op may choose the order of a weight's axes.
 *
 * Equal bits wherever a model is cut: an op with others folded in gives what they would give apart. So no product is
 * contracted with the sum of another op (__fadd_rn), and in bf16 what would have been a value, or a contribution to a
 * gradient, is rounded. A node is folded only where that leaves the order of contributions as it is.
 *
 * A value of (tokens, channels) samples is (batch, tokens, channels): rows of channels, as a linear layer reads it
 * (cuda_linear.c takes every leading dimension for rows). Layer norm is over such rows, one after another, and keeps a mean and
 * a scale per row in `saved`; what it normalizes is made anew from its inputs, which are kept in the place of that. A head of
 * attention is a slice of columns of queries, keys and values, as the linear layers before it write them; `saved` has one
 * logarithm per row of a head, and scores are in registers alone (k_attention.h).
 *
 * All rows of scores are computed, with or without a label: there is no set_labels (common/graph/device.h).
 *
 * A chunk may have fewer positions than the graph's sequences (set_length). Memory is laid out for all of them; calls see the
 * chunk's own, in the walk's types, while they are queued. Such a chunk has no graph: each would be of one length.
 *
 * With spec.recompute a block's second forward runs on the backwards' stream, and no batch norm and convolution work for each
 * other, which changes no bit. Nor do they where gradients of values are coded: between the two there would be none.
 *
 * To add an op: a row in common/graph/op_table.h, which says what else; here it is one file ops/cuda_NAME.c with
 * `const struct cuda_op gp_cuda_op_NAME`, and its kernels in ops/k_NAME.cu.
 *
 * Threads: one at a time calls into a plan (common/graph/device.h). Test:
 * tests/unit/test_cuda_plan.c, tests/unit/test_cuda_ops.c
 */
#ifndef GP_CUDA_PLAN_H
#define GP_CUDA_PLAN_H

#include "common/codec/codec_device.h"
#include "common/graph/device.h"
#include "kernels/cuda/codec/k_codec_store.h"
#include "kernels/cuda/runtime/blas.h"
#include "kernels/cuda/runtime/rt.h"
#include "kernels/plan/plan_walk.h"

struct cuda_plan;
struct cuda_node;
struct cuda_profile;
struct gpk_bn;

struct cuda_device {
	struct gp_device base;
	int index;
	struct gp_rt_info info;
	struct gp_codec_device codecs;
};

/* Launchers take it as an int. */
enum cuda_act { CUDA_ACT_NONE = 0, CUDA_ACT_RELU = 1, CUDA_ACT_RELU6 = 2 };

/*
 * What an op sees of one call. All pointers are device memory, aligned to 256 bytes. The call only queues on `stream`,
 * and is queued once for many runs (graphs): nothing in it may depend on anything but these fields, which stay the same
 * for one slot, direction and mode. What changes from run to run lies in device memory.
 */
struct cuda_call {
	struct cuda_plan *plan;
	const struct cuda_node *node;
	struct gp_rt_stream *stream;
	struct gp_blas *blas;
	enum gp_rt_type type; /* of in, out, dout, dx and gp_cuda_weight */
	enum gp_mode mode;
	bool again; /* the second forward of a chunk (plan_again.h): statistics are there, and nothing else may change */
	const uint64_t *draw;    /* this slot's, for dropout */
	const uint64_t *updates; /* made before this slot's training forward, for batch norms in mode renorm */
	const void *const
		*in;      /* by input, two at least: in[1] is a batch norm's residual, or NULL. In backward only what
				   the op saves */
	void *const *out; /* by output; NULL where nobody reads it. In backward only what the op saves */
	void *saved;      /* node->base.saved_bytes of this slot */
	void *tmp;        /* node->base.tmp_bytes[0], or [1], or tmp_weight_bytes; nothing in it survives the call */
	void *pack;       /* node->pack_bytes */
	const void *const *dout; /* backward, by output; NULL: zeros, as nobody reads that output */
	/* Where convolutions and batch norms work for each other (struct cuda_node): `saved` of the convolution's `before`
	 * and `behind`, and in backward the room of `before`; what a chained convolution reads, and the gradient of what
	 * it makes. */
	void *before_saved, *behind_saved, *before_room;
	const void *conv_in, *conv_dout;
	void *const *dx; /* backward, by input, two at least: NULL when nobody wants it, or the plan hands dout on */
	uint64_t add;    /* bit k, with adds_gradient: dx[k] += (1), else dx[k] = */
};

struct cuda_op {
	const char *name;
	/* What backward reads apart from dout, by input and output (masks); a node's own may be changed by prepare. */
	uint64_t saves_in, saves_out;
	/* out[0] may be an input when nobody else reads that; one dx may be dout[0]. */
	bool in_place, in_place_backward;
	/* Backward only hands dout[0] on to every input. */
	bool passes_gradient;
	/* Backward can add to dx, with the bits of a sum made apart. Otherwise the plan adds up several readers'
	 * contributions. A node's own may be changed by prepare. */
	bool adds_gradient;
	/* Reads its weight in the plan's type (gp_cuda_weight). */
	bool narrow_weight;

	/* (optional) Fills *_bytes and state (gp_calloc; the plan frees it) of the node, view and saves_* of its base; chooses
	 * weights' axes. */
	enum gp_status (*prepare)(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err);
	/* (optional) Parameters have changed: renews c->pack. */
	void (*pack)(const struct cuda_call *c);
	void (*forward)(const struct cuda_call *c);
	/* (optional) NULL with passes_gradient. Parameter gradients are added to what is there (+=). */
	void (*backward)(const struct cuda_call *c);
	/*
	 * (optional) The parameters' gradients, where they need nothing of what backward computes: it then leaves them out,
	 * and both run beside each other. Reads what the op saves, and dout[0]; tmp has node->tmp_weight_bytes. Not of an op
	 * that is in_place_backward, and of ops with one output alone.
	 */
	void (*backward_weight)(const struct cuda_call *c);
};

/*
 * Forwards and backwards of different slots happen at once: each have a stream, and what ops use on it. A backward's
 * weight gradients, which nothing in it waits for, have a third beside it. Everything else (parameters, the loss, an
 * update) goes to the forwards' stream; gp_cuda_behind_all makes it wait for backwards.
 */
enum cuda_track_index { CUDA_FORWARDS, CUDA_BACKWARDS, CUDA_WEIGHTS, CUDA_TRACKS };

/* Weight gradients that may be outstanding when the chain of gradients comes to the next such node: so long dout is kept. */
#define CUDA_WEIGHTS_BEHIND 2

struct cuda_track {
	struct gp_rt_stream *stream;
	struct gp_blas *blas;
	char *scratch;
	uint64_t scratch_bytes;
};

struct cuda_node {
	struct gp_walk_node base; /* of a chain that was folded, base.g is the batch norm, and in[1] its residual */
	const struct cuda_op *op; /* NULL where absent */
	void *state;              /* the op's own */
	enum cuda_act act;        /* batch norm: out = act(normalized + residual) */
	bool masks;               /* keeps a bit of each element in `saved`, where its gradient passes the activation */
	uint64_t mask_at;         /* there, in bytes */
	uint64_t tmp_weight_bytes, pack_bytes, pack_offset;
	/*
	 * A depthwise convolution and the batch norms on both of its sides, where each reads only what the other makes, do
	 * work for each other (gp_cuda_share_batch_norms):
	 *   before   is applied by the convolution, as that reads (base.unwritten); where it returns, the convolution adds
	 *            the gradients up, too, behind the activation
	 *   behind   has its statistics taken by the convolution, as that writes
	 *   chained  few rows on both sides: `behind` does all three forward, in one launch; where it leaves_dx, `before`
	 *            does two of them backward
	 */
	struct cuda_node *before, *behind; /* of a convolution; NULL: none */
	struct cuda_node *conv, *fed_by;   /* of a batch norm: the convolution of which it is `before`, or `behind` */
	bool returns, chained, leaves_dx;  /* of a convolution */
	int returned; /* of a batch norm: its room where the convolution returns, a piece of the walk */
	uint64_t returned_bytes;
	uint64_t merged_offset; /* batch norm: where in plan->merged its statistics are merged, if they are */
	int tmp_weight;         /* piece of the walk, -1 where there is none */
	/* Backward's weight gradients are numbered from 1 in the order in which they are queued; 0 is none. */
	int job;    /* the op's own */
	int await;  /* done before anything of this node's backward begins */
	bool moves; /* its values are its input's, bit for bit, whether the walk makes it a view or not */
};

struct cuda_param {
	uint64_t offset; /* floats; the same in values, grads, moments and narrow copies */
	/*
	 * Axis i of the memory is axis order[i] of PyTorch's shape; {0,1,2,3} is PyTorch's own order. A conv weight
	 * (O,I,KH,KW) as (O,KH,KW,I) is {0,2,3,1}; a depthwise one as (KH,KW,C) is {2,3,0,1}.
	 */
	int8_t order[4];
	uint64_t state_offset; /* bytes, in one array of state that lies encoded */
	int first_piece;       /* of those that are coded (cuda_code.h) */
};

/* Which codecs: those of enum gp_structure, and of maps. */
enum { CUDA_CODEC_MAPS = GP_STRUCTS, CUDA_CODECS };

enum cuda_run { CUDA_RUN_TRAIN, CUDA_RUN_EVAL, CUDA_RUN_BACKWARD, CUDA_RUN_CALIBRATE, CUDA_RUNS };

#define CUDA_SLOT_WORDS 2 /* at cuda_slot.draw: the draw; updates made before */

struct cuda_slot {
	void **io;   /* by port (plan_walk.h), device memory */
	void **host; /* the same, pinned; NULL with spec.device_io */
	char *arena;
	uint64_t *draw, *host_draw; /* device; pinned */
	struct gp_rt_graph *graph[CUDA_RUNS];
	struct gp_rt_event *done; /* behind the call that was queued last */
	int64_t length;           /* of its chunk's sequences; 0: all positions */
	bool forwarded;           /* a TRAIN forward, queued at least, waits for its backward */
};

/* Small things, at the same offsets in `extra` (device) and `host_room` (pinned). */
struct cuda_extra {
	uint64_t draws;                          /* by slot, CUDA_SLOT_WORDS each */
	uint64_t labels, rows;                   /* cuda_loss.c */
	uint64_t chunks, firsts, partials, sums; /* cuda_clip.c */
	uint64_t pieces;                         /* cuda_code.c */
	uint64_t bytes;
};

struct cuda_plan {
	struct gp_plan base;
	struct cuda_device *dev;
	struct cuda_track track[CUDA_TRACKS]; /* for evaluation alone: the forwards' */
	struct gp_rt_stream *stream;          /* the forwards' */
	struct gp_rt_event *done;
	struct gp_rt_event *backwards_done; /* where gp_cuda_behind_all has waited */
	struct gp_rt_event *update_done;
	struct gp_rt_event *dout_done, *job_done[CUDA_WEIGHTS_BEHIND];
	int jobs, jobs_awaited; /* weight gradients of a backward, and those that its nodes have waited for */
	enum gp_rt_type type;
	struct cuda_node *node;
	struct cuda_param *param;
	struct gp_walk walk;
	uint64_t decayed_floats, trained_floats, moved_floats, value_floats; /* ends of the four kinds of parameters */
	uint64_t pack_bytes, merged_doubles;
	struct gpk_store store[CUDA_CODECS]; /* of those that the plan has: gp_cuda_codec */
	int pieces, own_pieces;              /* of parameters that are coded; those before the ones of a follower */
	uint64_t state_bytes;                /* of one array of state, where it lies encoded */
	struct cuda_extra at;
	struct gp_plan_memory memory; /* of the device; pinned memory is not in it */

	char *block; /* everything below that is device memory */
	float *values, *grads;
	float *decoded;  /* what forward and backward read in place of trained values (cuda_code.h); NULL: these */
	float *moment;   /* optimizer state: as the trained parameters, once or twice; NULL where it lies encoded: */
	uint8_t *state;  /* state_bytes, once or twice (cuda_moments.c) */
	uint8_t *coding; /* where backwards code gradients, and what lies in IO buffers */
	void *narrow;    /* values in bf16; NULL in other precisions */
	char *packs;
	float *undo;    /* with spec.undo: running statistics that training moves, as before the step's first forward */
	double *merged; /* batch norms' statistics over chunks */
	char *extra;
	char *host_room; /* pinned; behind the small things the slots' host buffers */
	struct cuda_slot *slot;
	bool draws;          /* some op reads the draw, or the number of updates */
	uint64_t calibrated; /* GP_CALIBRATE: chunks that count by now; 0 from the next training forward on */
	bool calibrates;     /* the forward that is queued is of one that does not yet */
	bool packs_stale, narrow_stale, packs_warm, undo_saved, warm[CUDA_RUNS], without_graphs;
	bool grads_coded;                /* the step's gradients have passed through their codec */
	struct gp_rt_graph *packs_graph; /* renews all packs */
	struct gp_err no_graph;          /* why without_graphs */
	uint64_t optim_steps;
	struct cuda_profile *profile; /* NULL: not measured */
};

/* One of each row. */
#define X(id, NAME, name) extern const struct cuda_op gp_cuda_op_##name;
GP_OPS(X)
#undef X
/* cuda_batch_norm.c: running statistics that move at the end of a step do so. Queues on the forwards' stream. */
void gp_cuda_bn_end_step(struct cuda_plan *p);
/* For a depthwise convolution that works for batch norm `n`: what launchers want to know of it, and whether a call in this
 * mode takes the chunk's statistics. */
struct gpk_bn gp_cuda_bn_of(const struct cuda_call *c, const struct cuda_node *n, void *saved, void *room);
bool gp_cuda_bn_is_by_chunk(const struct cuda_call *c, const struct cuda_node *n);
/* Whether some forward takes a chunk's statistics; whether it is of few rows, one launch each way. */
bool gp_cuda_bn_takes_statistics(const struct cuda_plan *p, const struct cuda_node *n);
bool gp_cuda_bn_is_small(const struct cuda_plan *p, const struct cuda_node *n);
/* cuda_depthwise.c: whether a node is a depthwise convolution that can do batch norms' work; *chains: all at once. */
bool gp_cuda_depthwise_hosts(const struct cuda_plan *p, const struct cuda_node *n, bool *chains);
/* What convolutions make of depthwise nodes. */
extern const struct cuda_op gp_cuda_depthwise;

/* cuda_plan_build.c: steps 1 and 2. The plan is zeroed but for base and dev. */
enum gp_status gp_cuda_plan_build(struct cuda_plan *p, struct gp_err *err);
/* cuda_share.c: which depthwise convolutions and batch norms do work for each other; between the two. */
void gp_cuda_share_batch_norms(struct cuda_plan *p);
/* The only node that reads a node's value; NULL if there are more or none, or somebody outside reads it. */
struct cuda_node *gp_cuda_only_reader(const struct cuda_plan *p, const struct cuda_node *n);
/* cuda_plan_layout.c: the walk, and what is the device's own in it. */
enum gp_status gp_cuda_plan_layout(struct cuda_plan *p, struct gp_err *err);

/* For an op's prepare: the order of the axes of this node's weight in memory. */
void gp_cuda_order_weight(struct cuda_plan *p, const struct cuda_node *n, const int8_t order[4]);
/* Index in the graph of the node's parameter with that role; -1 when there is none. */
int gp_cuda_param_index(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role);
/* Whether the plan trains that parameter. */
bool gp_cuda_is_trained(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role);
/* Device memory, fp32: value and accumulated gradient. NULL where there is none (grad: nor when it is not trained). */
float *gp_cuda_param(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role);
float *gp_cuda_grad(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role);
/* The node's weight in the plan's type; of ops with narrow_weight. */
const void *gp_cuda_weight(const struct cuda_plan *p, const struct cuda_node *n);

/* A value of one chunk as an image; h = w = 1 where the sample's shape is not (H,W,C), n is all that is not c. */
struct cuda_image {
	int64_t n, h, w, c;
};
/* As such: the node's first value, and its k-th input. */
struct cuda_image gp_cuda_image(const struct cuda_plan *p, const struct cuda_node *n);
struct cuda_image gp_cuda_in_image(const struct cuda_plan *p, const struct cuda_node *n, int k);

/* Elements of the node's first value for one chunk, and of its k-th input: in a call of that chunk, whose sequences may be
 * shorter than those of the graph; in prepare of all positions, for which room must be. */
static inline int64_t gp_cuda_elements(const struct cuda_plan *p, const struct cuda_node *n)
{
	return gp_walk_elements(&p->walk, n->base.first_value);
}
static inline int64_t gp_cuda_in_elements(const struct cuda_plan *p, const struct cuda_node *n, int k)
{
	return gp_walk_elements(&p->walk, n->base.in[k]);
}
/* Elements of a sample of the node's first value, and those that it has fewer than one of all positions; 0, 0: none are
 * missing. */
static inline void gp_cuda_missing(const struct cuda_plan *p, const struct cuda_node *n, int64_t *sample,
				   int64_t *missing)
{
	const int64_t own = gp_cuda_elements(p, n) / p->base.spec.batch;
	const struct gp_graph_value *v = &p->base.spec.graph->value[n->base.first_value];
	const int64_t fewer = (int64_t)gp_shape_elements(&v->type.shape) - own;
	*sample = fewer > 0 ? own : 0;
	*missing = fewer;
}
static inline uint64_t gp_cuda_align(uint64_t bytes)
{
	return (bytes + 255) & ~(uint64_t)255;
}

#endif

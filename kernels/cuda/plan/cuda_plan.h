/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the CUDA device: what a plan is made of, and the table of ops. C over
 * rt.h, blas.h and the kernels' launchers (k_*.h); the same files run on a card
 * and on the emulated device. Only for this folder.
 *
 * A plan is built in this order (cuda_plan.c):
 *   1. cuda_plan_build.c: one cuda_node per graph node; folds residual sums and activations into the batch norm before them,
 *      finds which gradients are needed; every op's `prepare` says what it keeps and how much room it works in.
 *   2. cuda_plan_layout.c: walks the step forward and backward once, decides where each value and gradient lives.
 *   3. cuda_plan.c: takes one block of device memory, cuts it up. cuda_plan_run.c queues the ops, once for each slot and
 *      direction, as a graph that is launched from then on.
 * An estimate stops before 3.
 *
 * Glossary: value = output of a node; saved = kept per slot from forward to backward; tmp = room of one op during one
 * call; pack = an op's private copy of its weights, renewed when they change; view = a node that computes nothing
 * because its value is its input's; absorbed = a node that a later one computes together with itself; track = a stream
 * with what is used on it; job = a node's weight gradient, on a track beside the chain of gradients.
 *
 * Values and their gradients are (batch, sample shape) with channels last, of the plan's type: fp32, or bf16 in that
 * precision; what lies at the plan's edge (IO) is fp32 and is converted by the plan, not by ops. Parameters, their
 * gradients and what the optimizer remembers are fp32, all with the same offsets: trained parameters to which weight
 * decay applies, then other trained ones, then the rest. An op may choose the order of a weight's axes.
 *
 * Equal bits wherever a model is cut: an op with others folded in gives what they would give apart. So no product is
 * contracted with the sum of another op (__fadd_rn), and in bf16 what would have been a value is rounded.
 *
 * Attention and layer norm, when they come, fit without another layout. A value of (tokens, channels) samples is
 * (batch, tokens, channels) here: rows of channels, as a linear layer reads it now (cuda_linear.c takes every leading
 * dimension for rows). Layer norm is over such rows, one after another (gpk_rows.h), and keeps a mean and a scale per row in
 * `saved`. Products of attention are gp_blas_gemm's `batch` with `between` (blas.h): a head is a slice of columns, its
 * `stride` a whole row of all heads, `between` the head's width within one sample, and the calls go sample by sample; scores
 * and their softmax are `tmp`, or `saved` for backward. Projections are linear layers, and residual sums are what they are.
 * An op that reads query, key and value as three nodes needs three in gp_node's in[], and in in[], dx[], dx_add[], add[] and
 * pass[] here.
 *
 * To add an op: a file ops/cuda_NAME.c with a const struct cuda_op, its kernels in ops/k_NAME.cu, a row in cuda_plan_build.c, a
 * case in tests/unit/test_cuda_ops.c.
 *
 * Threads: one at a time calls into a plan (common/graph/device.h). Test:
 * tests/unit/test_cuda_plan.c, tests/unit/test_cuda_ops.c
 */
#ifndef GP_CUDA_PLAN_H
#define GP_CUDA_PLAN_H

#include "common/codec/codec_device.h"
#include "common/graph/device.h"
#include "kernels/cuda/runtime/blas.h"
#include "kernels/cuda/runtime/rt.h"

struct cuda_plan;
struct cuda_node;
struct cuda_profile;

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
	const uint64_t *draw; /* this slot's, for dropout */
	const void *in[2];    /* in[1]: the second summand, or a batch norm's residual; NULL where there is none. In
				 backward only what the op saves */
	void *out;
	void *saved; /* node->saved_bytes of this slot */
	void *tmp;   /* node->tmp_forward_bytes, or tmp_backward_bytes, or ...; nothing in it survives the call */
	void *pack;  /* node->pack_bytes */
	const void *dout;
	void *dx[2]; /* NULL when nobody wants it, or the plan hands dout on (node->pass) */
	bool add[2]; /* adds_gradient: dx += (true), else dx = */
};

struct cuda_op {
	const char *name;
	/* What backward reads apart from dout; a node's own may be changed by prepare. */
	bool saves_input, saves_output;
	/* out may be in[0] (or in[1]) when nobody else reads that; dx[0] (or dx[1], not both) may be dout. */
	bool in_place, in_place_backward;
	/* Backward only hands dout on to every input. */
	bool passes_gradient;
	/* Backward can add to dx. Otherwise the plan adds up several readers' contributions. */
	bool adds_gradient;
	/* Reads its weight in the plan's type (gp_cuda_weight). */
	bool narrow_weight;

	/* (optional) Fills node's *_bytes, view, saves_*, state (gp_calloc; the plan frees it); chooses weights' axes. */
	enum gp_status (*prepare)(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err);
	/* (optional) Parameters have changed: renews c->pack. */
	void (*pack)(const struct cuda_call *c);
	void (*forward)(const struct cuda_call *c);
	/* (optional) NULL with passes_gradient. Parameter gradients are added to what is there (+=). */
	void (*backward)(const struct cuda_call *c);
	/*
	 * (optional) The parameters' gradients, where they need nothing of what backward computes: it then leaves them out,
	 * and both run beside each other. Reads in[0] and dout alone; tmp has node->tmp_weight_bytes. Not of an op that is
	 * in_place_backward.
	 */
	void (*backward_weight)(const struct cuda_call *c);
};

enum cuda_place { CUDA_AT_IO, CUDA_AT_SLOT, CUDA_AT_SCRATCH };

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

/* One piece of memory of a plan; `first` and `last` are the moments of cuda_plan_layout.c in which it is in use. */
struct cuda_buf {
	enum cuda_place place;
	enum cuda_track_index track; /* CUDA_AT_SCRATCH */
	enum gp_plan_buf io;         /* CUDA_AT_IO */
	uint64_t bytes, offset;
	int first, last;
	int pending; /* layout only: reads still to come; in backward: values whose gradient lies here and waits */
	int job; /* layout only: the last weight gradient that reads it; 0: none, or all such have been waited for */
	bool saved;
};

struct cuda_node {
	const struct gp_node
		*g; /* whose attributes and parameters these are: of a chain that was folded, the batch norm */
	const struct cuda_op *op; /* NULL for the input and where absorbed */
	int index;                /* the value is that of this node of the graph */
	int in[2];                /* nodes whose values are read, -1 where there is none */
	void *state;              /* the op's own */
	enum cuda_act act;        /* batch norm: out = act(normalized + residual); in[1] >= 0: there is a residual */
	bool absorbed, view;
	bool saves_input, saves_output;
	bool pass[2];   /* the gradient of in[k] is dout: no work for the op */
	bool need_grad; /* something at or before this node wants the gradient of its value */
	bool want_dx;   /* backward has to give the gradient of an input */
	bool trains;    /* backward has to give the gradient of a parameter */
	uint64_t saved_bytes, tmp_forward_bytes, tmp_backward_bytes, tmp_weight_bytes, pack_bytes;
	uint64_t pack_offset;
	/* Indices into plan->buf, -1 where there is none. */
	int out, saved, tmp_forward, tmp_backward, tmp_weight;
	int dout, dx[2], dx_add[2]; /* dx = own contribution (+ dx_add) */
	bool add[2];                /* the op adds to dx itself */
	/* Backward's weight gradients are numbered from 1 in the order in which they are queued; 0 is none. */
	int job;   /* the op's own */
	int await; /* done before anything of this node's backward begins */
};

struct cuda_param {
	uint64_t offset; /* floats; the same in values, grads, moments and narrow copies */
	/*
	 * Axis i of the memory is axis order[i] of PyTorch's shape; {0,1,2,3} is PyTorch's own order. A conv weight
	 * (O,I,KH,KW) as (O,KH,KW,I) is {0,2,3,1}; a depthwise one as (KH,KW,C) is {2,3,0,1}.
	 */
	int8_t order[4];
};

enum cuda_run { CUDA_RUN_TRAIN, CUDA_RUN_EVAL, CUDA_RUN_BACKWARD, CUDA_RUNS };

struct cuda_slot {
	float *io[4];   /* by enum gp_plan_buf, device memory */
	float *host[4]; /* pinned, without spec.device_io */
	char *arena;
	uint64_t *draw, *host_draw; /* device; pinned */
	struct gp_rt_graph *graph[CUDA_RUNS];
	struct gp_rt_event *done; /* behind the call that was queued last */
	bool forwarded;           /* a TRAIN forward, queued at least, waits for its backward */
};

/* Small things, at the same offsets in `extra` (device) and `host_room` (pinned). */
struct cuda_extra {
	uint64_t draws;                          /* by slot */
	uint64_t labels, rows;                   /* cuda_loss.c */
	uint64_t chunks, firsts, partials, sums; /* cuda_clip.c */
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
	struct cuda_buf *buf;
	int bufs, buf_cap;
	int grad_output, grad_input; /* buffers of the edge's gradients, -1 where there is none */
	uint64_t decayed_floats, trained_floats, value_floats; /* ends of the three kinds of parameters */
	uint64_t pack_bytes, slot_bytes, io_bytes[4];
	struct cuda_extra at;
	struct gp_plan_memory memory; /* of the device; pinned memory is not in it */

	char *block; /* everything below that is device memory */
	float *values, *grads;
	float *moment; /* optimizer state: as the trained parameters, once or twice */
	void *narrow;  /* values in bf16; NULL in other precisions */
	char *packs;
	float *undo; /* with spec.undo: parameters that are not trained, as before the step's first forward */
	char *extra;
	char *host_room; /* pinned; behind the small things the slots' host buffers */
	struct cuda_slot *slot;
	bool draws; /* some op reads the draw */
	bool packs_stale, narrow_stale, packs_warm, undo_saved, warm[CUDA_RUNS], without_graphs;
	struct gp_rt_graph *packs_graph; /* renews all packs */
	struct gp_err no_graph;          /* why without_graphs */
	uint64_t optim_steps;
	struct cuda_profile *profile; /* NULL: not measured */
};

/* One table, by enum gp_op (cuda_plan_build.c). */
extern const struct cuda_op gp_cuda_conv, gp_cuda_conv_transpose, gp_cuda_batch_norm, gp_cuda_relu, gp_cuda_relu6,
	gp_cuda_add_op, gp_cuda_avg_pool, gp_cuda_max_pool, gp_cuda_global_avg_pool, gp_cuda_linear, gp_cuda_flatten,
	gp_cuda_dropout, gp_cuda_shortcut_pad;
/* What gp_cuda_conv and gp_cuda_conv_transpose make of depthwise nodes. */
extern const struct cuda_op gp_cuda_depthwise;

/* cuda_plan_build.c: steps 1 and 2. The plan is zeroed but for base and dev. */
enum gp_status gp_cuda_plan_build(struct cuda_plan *p, struct gp_err *err);
/* cuda_plan_layout.c */
enum gp_status gp_cuda_plan_layout(struct cuda_plan *p, struct gp_err *err);

/* For an op's prepare: the order of the axes of this node's weight in memory. */
void gp_cuda_order_weight(struct cuda_plan *p, const struct cuda_node *n, const int8_t order[4]);
/* Index in the graph of the node's parameter with that role; -1 when there is none. */
int gp_cuda_param_index(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role);
/* Device memory, fp32: value and accumulated gradient. NULL where there is none (grad: nor when it is not trained). */
float *gp_cuda_param(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role);
float *gp_cuda_grad(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role);
/* The node's weight in the plan's type; of ops with narrow_weight. */
const void *gp_cuda_weight(const struct cuda_plan *p, const struct cuda_node *n);

/* Value of a node for one chunk as an image; h = w = 1 where the sample's shape is not (H,W,C), n is all that is not c. */
struct cuda_image {
	int64_t n, h, w, c;
};
struct cuda_image gp_cuda_image(const struct cuda_plan *p, const struct cuda_node *n);

/* Elements of a node's value for one chunk, and the node that makes its k-th input. */
static inline int64_t gp_cuda_elements(const struct cuda_plan *p, const struct cuda_node *n)
{
	return (int64_t)p->base.spec.batch * (int64_t)gp_shape_elements(&p->base.spec.graph->node[n->index].shape);
}
static inline struct cuda_node *gp_cuda_input(const struct cuda_plan *p, const struct cuda_node *n, int k)
{
	return &p->node[n->in[k]];
}
static inline uint64_t gp_cuda_align(uint64_t bytes)
{
	return (bytes + 255) & ~(uint64_t)255;
}

#endif

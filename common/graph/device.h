/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices compute. A device makes a *plan* for one graph (a part of a model)
 * and one chunk shape: memory laid out, primitives created; after that a
 * steady step allocates nothing. A plan holds the parameters, gradients and
 * optimizer state of its graph, and `slots` sets of saved activations, so that
 * several chunks may be between their forward and their backward at once.
 *
 * Glossary: chunk = micro-batch; slot = place for one chunk in flight.
 *
 * Threads: one thread at a time calls into a plan (the compute thread). The
 * bytes behind gp_plan_buffer may be read or written by another thread (the
 * codec's) between the calls that own them: INPUT until forward begins, OUTPUT
 * from the end of forward to the start of backward of that slot, GRAD_OUTPUT
 * until backward begins, GRAD_INPUT from the end of backward to the slot's
 * next forward. Different slots never share these four buffers. A call that was
 * queued begins with queue_* and ends with `wait`.
 *
 * Determinism: with equal graphs, parameters, inputs and thread counts the
 * results are bit-identical, whatever part of a larger model the graph is and
 * however chunks of different slots interleave; gradients accumulate in the
 * order of the backward calls.
 *
 * To add a device: one const vtable and a row in kernels/device_registry.c.
 * Tests: tests/unit/test_cpu_ops.c, tests/unit/test_cpu_plan.c, tests/unit/test_cpu_undo.c,
 * tests/unit/test_clip.c, which run on any device (tests/unit/test_device.h), and tests/unit/test_cuda_*.c
 */
#ifndef GP_DEVICE_H
#define GP_DEVICE_H

#include "common/graph/graph.h"
#include "common/graph/graph_work.h"
#include "common/graph/optim.h"

struct gp_device;
struct gp_plan;
struct gp_codec_device;
struct gp_codec_spec;
struct gp_decays; /* common/graph/decay.h */
struct gp_stop;   /* common/base/stop.h */

enum gp_mode {
	GP_TRAIN, /* batch statistics, dropout, activations kept for backward */
	GP_EVAL,  /* running statistics, nothing kept; backward is not allowed after it */
	/*
	 * As GP_EVAL, but that batch norms of which something is trained normalize by the chunk's own statistics, and their
	 * running ones become those of all samples since the chunk with draw 0. Draws count from there; a chunk that comes
	 * again is computed and counts once. Between steps, with spec.calibrate.
	 */
	GP_CALIBRATE,
};

/*
 * What convolutions and matrix products read; they add up in fp32, and on the CPU everything else is fp32. bf16: rounded
 * to the nearest, even (a GPU also keeps the values between layers so); tf32: to 10 bits behind the point, on GPUs.
 * Pinned: travels in OPEN.
 */
enum gp_precision { GP_PRECISION_FP32 = 0, GP_PRECISION_BF16 = 1, GP_PRECISION_TF32 = 2, GP_PRECISIONS };

/*
 * What of a training, beside maps, may pass through a codec: gradients of values, parameters, gradients of parameters, what
 * the optimizer remembers. Pinned: a bit of READY each.
 */
enum gp_structure { GP_STRUCT_GRAD_MAPS, GP_STRUCT_WEIGHTS, GP_STRUCT_WEIGHT_GRADS, GP_STRUCT_STATE, GP_STRUCTS };

/* What `loss` computes. Labels have 4 bytes each. */
enum gp_loss_kind {
	GP_LOSS_CROSS_ENTROPY, /* int32_t: the number of a class, of as many as a row of the output has scores. Of an output
				* (P,K) a sample has P labels, -1 for rows that do not count: GP_NO_LABEL */
	GP_LOSS_SQUARED_ERROR, /* float: the value to predict; a row of the output is one number */
};

#define GP_NO_LABEL (-1)

enum gp_plan_buf {
	GP_BUF_INPUT,
	GP_BUF_OUTPUT,
	GP_BUF_GRAD_OUTPUT,
	GP_BUF_GRAD_INPUT, /* of the inputs in spec.grad_inputs */
};

struct gp_plan_spec {
	const struct gp_graph *graph;   /* must outlive the plan */
	int batch;                      /* samples per chunk */
	int slots;                      /* chunks in flight, >= 1 */
	bool train;                     /* false: forward only, one shared set of activations */
	uint64_t grad_inputs;           /* bit i: backward gives the gradient of input i, which is f32 */
	uint64_t seed;                  /* dropout, and initial parameters */
	struct gp_optim optim;          /* when train */
	const struct gp_decays *decays; /* (optional) outlives the plan: what updates make of gradients, see decay.h */
	bool undo;                      /* when train: step_undo will be called */
	bool calibrate;                 /* forwards with GP_CALIBRATE will come */
	bool recompute; /* when train: a block keeps what it reads, and is computed once more before its backward. The bits
			 * are the same. GP_UNSUPPORTED where the device cannot */
	/* (optional) When train: outlives the plan, has passed gp_store_check. Maps, which is what forward keeps for backward,
	 * lie encoded by it, and backward reads what decoding gives (but for where a ReLU that stands alone, or behind a sum,
	 * let gradients pass: that is exact). GP_UNSUPPORTED where the device cannot, and with
	 * recompute. */
	const struct gp_codec_spec *maps;
	uint64_t map_inputs; /* bit i: input i is an activation, so a map like any other; the rest is data */
	/*
	 * (optional) When train: as maps. GP_STRUCT_STATE lies encoded, and is decoded in blocks while an update runs. The
	 * others are replaced by what decoding their code gives:
	 *   GP_STRUCT_GRAD_MAPS     what a node's backward computes as the gradient of an input, before it is added to other
	 *                          contributions;
	 *   GP_STRUCT_WEIGHTS       every trained parameter, as forward and backward read it: param_get gives what the update
	 *                          computes with, param_set sets it. With no_master there is nothing else: an update ends with
	 *                          it, and param_set is taken as it is;
	 *   GP_STRUCT_WEIGHT_GRADS  what the chunks of a step have added up, as grad_squares and the update read it.
	 */
	const struct gp_codec_spec *coded[GP_STRUCTS];
	bool no_master;
	/* With maps, or coded gradients of them, in a plan of a whole model: nodes before which it would be cut. Then the
	 * same maps are kept, or coded, as in plans of its parts, and gradients are the same. 0: none. */
	int cuts[2];
	enum gp_loss_kind loss;
	enum gp_precision precision; /* GP_DEVICE where the device lacks it */
	bool params_given; /* every parameter is set before anything is computed: none is drawn, all are zero */
	bool device_io;    /* `buffer` gives memory of the device, where it has its own; else of the host */
	/* (optional) Outlives the plan; any thread may set it, for good. From then on plan_estimate, plan_new, forward and
	 * backward end before their next node with GP_CANCELED, where the device computes node by node; step_undo and the
	 * rest of the plan work as after any other failure. */
	const struct gp_stop *stop;
};

/* Bytes. Of a device with memory of its own `total` is there, and `host` is what the plan takes here besides. */
struct gp_plan_memory {
	uint64_t params, grads, optim, activations, scratch, io, total;
	uint64_t host;
};

/* Sums over the calls since the profile began; [0] forward, [1] backward. */
struct gp_node_profile {
	uint64_t calls[2], ns[2];
	uint64_t best_ns[2]; /* fastest call: what others on the machine disturb least */
	uint64_t bytes[2];   /* every tensor once: the least an implementation can move */
	double flops[2];     /* two per multiply-accumulate, of convolutions and matrix products alone */
};

struct gp_plan_profile {
	const struct gp_node_profile *node; /* by node of the graph */
	struct gp_node_profile loss, update, pack;
};

struct gp_loss_result {
	double loss_sum;  /* sum over the rows that count of -log p(label), or of (output - label)^2 */
	int64_t labelled; /* how many rows count: all valid samples, or the rows of theirs that have a label */
	int64_t correct;  /* argmax == label; 0 of values */
};

struct gp_device_ops {
	const char *name;    /* "cpu" */
	const char *summary; /* for --help */

	/* Opens device `arg` (the N of cuda:N, NULL for default) with that many compute threads. */
	enum gp_status (*open)(const char *arg, int threads, struct gp_device **out, struct gp_err *err);
	void (*close)(struct gp_device *dev);
	/* (optional) Whether plans may have this precision. NULL: fp32 alone. */
	bool (*supports)(const struct gp_device *dev, enum gp_precision precision);
	/* (optional) Why not, of one that it does not support: "this processor lacks ...". NULL: nothing is known of it. */
	const char *(*lacks)(const struct gp_device *dev, enum gp_precision precision);
	/* (optional) How fast it is, from a short trial before there are plans. NULL: nothing is known of it. */
	enum gp_status (*measure)(struct gp_device *dev, struct gp_speed *out, struct gp_err *err);
	/* (optional) Memory of its own: all of it, and what nobody has taken, other processes included. Any thread.
	 * NULL: plans live in the host's. */
	enum gp_status (*memory)(struct gp_device *dev, uint64_t *total, uint64_t *unused, struct gp_err *err);
	/* (optional) GP_DEVICE once it has failed in a way that no new plan will mend: then with the device's words.
	 * Any thread. NULL: that does not happen. */
	enum gp_status (*check)(struct gp_device *dev, struct gp_err *err);

	/* Bytes a plan will take, found without taking them. */
	enum gp_status (*plan_estimate)(struct gp_device *dev, const struct gp_plan_spec *spec,
					struct gp_plan_memory *out, struct gp_err *err);
	/* (optional) Of the same, by block of spec->graph: bytes that a chunk keeps from its forward to its backward, as
	 * `activations` counts them for all slots. NULL: nothing is known of it. */
	enum gp_status (*plan_maps)(struct gp_device *dev, const struct gp_plan_spec *spec, uint64_t *maps,
				    struct gp_err *err);
	/* Makes the plan with parameters drawn from spec->seed (gp_param_init), unless they are given, and gradients zero. */
	enum gp_status (*plan_new)(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **out,
				   struct gp_err *err);
	void (*plan_free)(struct gp_plan *plan);

	/*
	 * Address of a slot's buffer for input or output `index` of the graph: batch x sample shape, of the value's type,
	 * channels last; host memory unless spec.device_io. NULL where there is none: GRAD_OUTPUT of a value without a
	 * gradient (gp_graph_find_gradients), GRAD_INPUT that was not asked for.
	 */
	void *(*buffer)(struct gp_plan *plan, int slot, enum gp_plan_buf which, int index);

	/*
	 * (optional) From here on chunks in this slot have `length` positions in every sequence of the graph, which
	 * gp_sequence_length_ok says is possible: its buffers then begin with batch x that shape, without gaps. 0, as at first:
	 * all positions. Not between a forward and its backward. Memory is there for all positions; the first chunk of a
	 * length may take a little more. Dropout draws for a position the same, whatever the length. NULL: the device computes
	 * all positions of every chunk.
	 */
	void (*set_length)(struct gp_plan *plan, int slot, int64_t length);

	/*
	 * (optional) Says before a forward which rows of OUTPUT 0 (N,P,K) the loss of this slot's chunk will count, where
	 * gp_graph_row_scores allows it: those of the first `valid` samples that have a label in labels[N][P]. The layer that
	 * makes OUTPUT 0 then computes these rows alone, one at least, forward and backward. OUTPUT 0 and its GRAD_OUTPUT begin
	 * with them, in their order, without gaps; everything else is as before, `loss` too, which takes the same labels.
	 * labels NULL, as at first: all rows. Not between a forward and its backward. NULL: the device computes all rows.
	 */
	void (*set_labels)(struct gp_plan *plan, int slot, const int32_t *labels, int valid);

	/* All INPUTs -> all OUTPUTs. `draw` numbers the dropout masks: the same (seed, draw, node) gives the same mask. */
	enum gp_status (*forward)(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw, struct gp_err *err);
	/* All GRAD_OUTPUTs -> the GRAD_INPUTs, parameter gradients accumulated (+=). Once per TRAIN forward. */
	enum gp_status (*backward)(struct gp_plan *plan, int slot, struct gp_err *err);
	/*
	 * The same in two parts, so that a device that works by itself has its next work before it is through with this.
	 * queue_* hands all of it over, or nothing and says why; `wait` returns when what the slot queued has been done,
	 * with what became of it. Between the two the slot takes no call but a forward's backward; calls of other slots, and
	 * those that name none, may come. The results are as if every call had been waited for at once: forwards see the
	 * running statistics in their order, backwards add gradients in theirs.
	 */
	enum gp_status (*queue_forward)(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw,
					struct gp_err *err);
	enum gp_status (*queue_backward)(struct gp_plan *plan, int slot, struct gp_err *err);
	/* (optional) NULL: queue_* are forward, backward and optim_step, and there is nothing to wait for. */
	enum gp_status (*wait)(struct gp_plan *plan, int slot, struct gp_err *err);
	/*
	 * Softmax cross-entropy of OUTPUT 0 (N,K) with labels[N] in [0,K), of the first `valid` rows; `want_grad` writes its
	 * GRAD_OUTPUT, if there is one: grad_scale * (softmax - onehot), rows past `valid` zero. Of OUTPUT 0 (N,P,K) there are
	 * labels[N][P], and rows without a label (GP_NO_LABEL) add nothing and get zeros: torch.nn.CrossEntropyLoss with
	 * ignore_index. With spec.loss of GP_LOSS_SQUARED_ERROR: (x - y)^2 of OUTPUT 0 (N,1), and grad_scale * 2 (x - y), as
	 * torch.nn.MSELoss.
	 */
	enum gp_status (*loss)(struct gp_plan *plan, int slot, const void *labels, int valid, bool want_grad,
			       float grad_scale, struct gp_loss_result *out, struct gp_err *err);
	/*
	 * Sums of squares of the accumulated gradients, one per trained parameter in index order. In double and in an
	 * order that depends on the parameter's size alone: equal gradients give equal sums, wherever the model is cut. That of
	 * one that follows another (gp_graph_tie) is 0.
	 */
	enum gp_status (*grad_squares)(struct gp_plan *plan, double *out, struct gp_err *err);
	/* Every accumulated gradient times `factor`; every element limited to [-limit, limit] (NaN stays). See clip.h. */
	enum gp_status (*grad_scale)(struct gp_plan *plan, float factor, struct gp_err *err);
	enum gp_status (*grad_clamp)(struct gp_plan *plan, float limit, struct gp_err *err);
	/* One optimizer update with rate `lr`, of gradients that spec.decays has changed first; then gradients are zero
	 * again. No clipping: gp_clip_update does both. */
	enum gp_status (*optim_step)(struct gp_plan *plan, float lr, struct gp_err *err);
	/* As queue_backward, of an update: `wait` for GP_SLOT_UPDATE. Forwards of the next step may follow at once. */
	enum gp_status (*queue_optim_step)(struct gp_plan *plan, float lr, struct gp_err *err);

	/*
	 * (optional) For a parameter that leads and one that follows it (gp_graph_tie), of one plan or of two of one device;
	 * tie.h calls them. tie_grads adds the gradient that the follower has accumulated to that of the other, once before an
	 * update, which leaves the follower alone; tie_values gives the follower its values. NULL: the device cannot.
	 */
	enum gp_status (*tie_grads)(struct gp_plan *plan, int lead, struct gp_plan *other, int follower,
				    struct gp_err *err);
	enum gp_status (*tie_values)(struct gp_plan *plan, int lead, struct gp_plan *other, int follower,
				     struct gp_err *err);

	/*
	 * Takes back the step under way, for plans made with `undo`. Running statistics are as after the last optim_step
	 * or param_set, gradients are zero, no slot waits for its backward.
	 */
	void (*step_undo)(struct gp_plan *plan);

	/*
	 * What the optimizer remembers of each trained parameter: so many arrays of its size, in PyTorch's layout. None
	 * for SGD without momentum or an evaluation plan; 1 for SGD: momentum_buffer; 2 for Adam: exp_avg, exp_avg_sq.
	 * Where it lies encoded, optim_get decodes it and optim_set encodes it.
	 */
	int (*optim_states)(const struct gp_plan *plan);
	/* Array `which` of trained parameter `index`. GP_INTERNAL where there is none. */
	enum gp_status (*optim_get)(struct gp_plan *plan, int index, int which, float *out, struct gp_err *err);
	enum gp_status (*optim_set)(struct gp_plan *plan, int index, int which, const float *in, struct gp_err *err);
	/*
	 * (optional) State that lies encoded, as it is, so that it can be written down and goes on exactly: how many bytes an
	 * array of parameter `index` has, 0 where it lies as floats; out; and in. What comes in may be any bytes: GP_INVALID
	 * where they are no code of such an array, which is then as it was. NULL: state lies as floats.
	 */
	uint64_t (*optim_code_bytes)(const struct gp_plan *plan, int index);
	enum gp_status (*optim_code_get)(struct gp_plan *plan, int index, int which, uint8_t *out, struct gp_err *err);
	enum gp_status (*optim_code_set)(struct gp_plan *plan, int index, int which, const uint8_t *in,
					 struct gp_err *err);
	/* Updates made so far; Adam's next correction is for one more. */
	uint64_t (*optim_count_get)(const struct gp_plan *plan);
	void (*optim_count_set)(struct gp_plan *plan, uint64_t updates);

	/* Parameter `index` of the graph, in PyTorch's layout. */
	enum gp_status (*param_get)(struct gp_plan *plan, int index, float *out, struct gp_err *err);
	enum gp_status (*param_set)(struct gp_plan *plan, int index, const float *in, struct gp_err *err);
	/* Accumulated gradient of a trained parameter, same layout. */
	enum gp_status (*grad_get)(struct gp_plan *plan, int index, float *out, struct gp_err *err);

	/* (optional) First value of node `index` of the last forward on `slot` into out, for tests and debugging. */
	enum gp_status (*node_get)(struct gp_plan *plan, int slot, int index, float *out, struct gp_err *err);

	void (*plan_memory)(const struct gp_plan *plan, struct gp_plan_memory *out);
	/* (optional) For codecs whose tensors are this device's memory (codec_device.h); lives as long as the device. NULL:
	 * plans' buffers are host memory. */
	const struct gp_codec_device *(*codec_device)(struct gp_device *dev);

	/* (optional) Measures every node from now on. The plan owns *out and keeps it up to date. */
	enum gp_status (*profile)(struct gp_plan *plan, const struct gp_plan_profile **out, struct gp_err *err);
};

#define GP_SLOT_UPDATE (-1) /* for `wait`: the update that was queued last */

#define GP_DEVICE_NAME  24
#define GP_DEVICE_CARD  64
/* "cuda:1 (NVIDIA H200)" */
#define GP_DEVICE_TITLE (GP_DEVICE_NAME + GP_DEVICE_CARD + 4)

/* Every device struct begins with this. */
struct gp_device {
	const struct gp_device_ops *ops;
	int threads;
	char name[GP_DEVICE_NAME]; /* as gp_device_open takes it: "cuda:1"; left empty by `open`: ops->name */
	char card[GP_DEVICE_CARD]; /* what it is: "NVIDIA H200"; may be empty */
	struct gp_speed speed;     /* from gp_device_open on GP_SPEED_PRESUMED; gp_device_measure */
	char passed[GP_ERR_TEXT];  /* by `auto`: why it is none of those that are tried before; may be empty */
};
/* Every plan struct begins with this. */
struct gp_plan {
	const struct gp_device_ops *ops;
	struct gp_plan_spec spec;
};

bool gp_device_supports(const struct gp_device *dev, enum gp_precision precision);
/* GP_DEVICE, with the device and what it lacks, where it does not support the precision. */
enum gp_status gp_device_check_precision(const struct gp_device *dev, enum gp_precision precision, struct gp_err *err);
/* What the slowest GPU reaches that anybody would use. */
#define GP_SPEED_PRESUMED ((struct gp_speed){.macs_per_s = 1e12, .elements_per_s = 2e10})
/* Fills in dev->speed where the device can be measured. */
enum gp_status gp_device_measure(struct gp_device *dev, struct gp_err *err);
/* For plan_new: gp_param_init of one parameter, but GP_CANCELED once `stop` was set. */
enum gp_status gp_plan_draw_param(const struct gp_plan_spec *spec, int index, float *out, struct gp_err *err);
/* gp_moment_array (common/codec/moment_store.h) of array `which` of what the optimizer remembers of parameter `index`. */
uint64_t gp_plan_moment_array(const struct gp_plan_spec *spec, int index, int which);
/* For `stop`: GP_CANCELED once it was set. */
enum gp_status gp_plan_check_stop(const struct gp_plan_spec *spec, struct gp_err *err);
/* For people; returns text. */
const char *gp_device_title(const struct gp_device *dev, char text[GP_DEVICE_TITLE]);
const char *gp_precision_name(enum gp_precision precision); /* "bf16" */
/* set_length where the plan's graph has sequences of which a chunk may have fewer positions; else nothing. */
void gp_plan_set_length(struct gp_plan *plan, int slot, int64_t length);
/* set_labels where the plan's loss is that of classes, and its device and graph allow it; else nothing. */
void gp_plan_set_labels(struct gp_plan *plan, int slot, const void *labels, int valid);

#endif

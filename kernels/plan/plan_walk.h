/* SPDX-License-Identifier: Apache-2.0
 *
 * Where every value, gradient and working room of a plan lies: one walk through
 * a step, the same for every device. It finds which gradients are needed, and
 * notes in the order of execution from when to when each piece of memory is in
 * use: moment i is node i forward, moment 2*nodes - i is node i backward. Then
 * pieces whose times are apart share scratch memory (placement.h). Where devices
 * differ, a device describes each node in the fields of struct gp_walk_node, and
 * the walk calls its hooks (struct gp_walk_hooks).
 *
 * - A value that some backward reads is kept in its slot's arena, everything else lies in scratch memory that all slots
 *   share. All kept values are alive between forward and backward, so the arena is their plain sum.
 * - An op that may work in place takes over its input's piece where it is the last reader and nobody keeps it.
 * - A gradient is the sum of its contributions: what comes from outside first (GRAD_OUTPUT), then those of the readers from
 *   the last to the first, and within a node what is handed on before what is computed. So a part of a model adds up as the
 *   whole does, wherever it is cut.
 * - Sums and views hand their gradient on without copying, so several values may share one piece for their gradients. A
 *   second contribution is added to the first where nobody else has that piece; else it is computed into a new one, to
 *   which the old is added. Both give the same bits.
 * - Nothing is kept, and no backward runs, for a node at or before which nothing needs a gradient.
 * - With spec.recompute only what one block makes and another reads is kept; the rest is made a second time, into scratch
 *   memory, before the block's backward (plan_again.h).
 * - With spec.maps what is kept lies encoded between forward and backward (plan_store.h).
 * - Values of the plan's edge lie in its IO buffers themselves, unless they have another type there (bf16 within a plan), or
 *   one piece would have two owners: then the device converts or copies.
 *
 * Glossary: value = what a node makes, by its index in the graph; piece = struct gp_buf; port = one IO buffer of a slot,
 * that is one input or output of the graph, or the gradient of one; view = a node that computes nothing because its
 * value is its input's, bit for bit.
 *
 * Life: gp_walk_init; the device folds nodes and sets `absent`; gp_walk_find_gradients; it fills the fields that a walk
 * reads (its ops' `prepare`); gp_walk_layout. After that all is read-only. gp_walk_deinit, also on a zeroed struct.
 * Threads: one. Tests: tests/unit/test_plan_walk.c, tests/unit/test_cpu_plan.c, tests/unit/test_cuda_plan.c
 */
#ifndef GP_PLAN_WALK_H
#define GP_PLAN_WALK_H

#include "common/graph/device.h"

#define GP_WALK_POOLS    3              /* scratch memories of a plan, at most */
#define GP_WALK_MAX_BUFS 16384          /* pieces of memory of a plan: gp_place_pieces looks at every pair of them */
#define GP_WALK_ALL      (~(uint64_t)0) /* of a mask over inputs or outputs */
#define GP_WALK_NONE     (-1)           /* in place of the index of a piece */

enum gp_place { GP_AT_IO, GP_AT_SLOT, GP_AT_SCRATCH };

/* One piece of memory of a plan. */
struct gp_buf {
	enum gp_place place;
	int pool;               /* GP_AT_SCRATCH: which */
	int port;               /* GP_AT_IO: gp_walk_port */
	uint64_t bytes, offset; /* offset: in the slot's arena, or in the pool */
	int first, last;        /* moments, both included */
	int pending;            /* forward: reads still to come; backward: values whose gradient lies here and waits */
	int job;                /* for the device's hooks; 0 to begin with */
	bool saved;
	bool kept; /* saved, and not made a second time */
	int again; /* where it lies when its block is computed a second time, and backward; GP_WALK_NONE: where it is */
	int read_until; /* for the device's hooks: the last moment when somebody beside the chain of gradients reads it there */
};

/* A device's node begins with this. Masks have a bit for each input, or output. */
struct gp_walk_node {
	/* What the graph says; gp_walk_init fills it in, folding may change `g`, `inputs` and `in`. */
	const struct gp_node *g; /* whose attributes and parameters these are */
	int index;               /* the values are those of this node of the graph, and it runs at its place */
	int first_value, outputs;
	int inputs;
	int *in; /* values; room for two, or as many as the graph's node has */
	bool absent; /* nothing runs here: an input of the graph, or a node that another one computes together with itself */

	/* The device fills these in. */
	bool view;
	bool unwritten;               /* the value is never made: its readers make it of in[0] as they read */
	bool in_place;                /* out[0] may be an input of which nobody else reads anything */
	bool in_place_backward;       /* a dx may be dout[0] */
	bool adds_gradient;           /* backward can add to dx, with the bits of a sum made apart */
	uint64_t passes;              /* the gradient of these inputs is dout[0]; all: backward computes nothing */
	uint64_t saves_in, saves_out; /* what backward reads apart from dout */
	uint64_t saved_bytes;         /* kept per slot from forward to backward besides */
	uint64_t tmp_bytes[2];        /* room to work in, forward and backward */
	uint64_t plain_in;            /* of saves_in, those that are never encoded */
	bool saves_map;   /* `saved` begins with as many floats as the first value has, which may be encoded */
	bool keeps_saved; /* what `saved` has is kept even where the node is computed a second time */

	/* Found by gp_walk_find_gradients. */
	bool want_dx;          /* backward gives the gradient of some input */
	bool trains;           /* backward gives the gradient of some parameter */
	bool need_grad;        /* either */
	bool block_needs_grad; /* with spec.recompute: some node of its block does */

	/* Found by gp_walk_layout: pieces, GP_WALK_NONE where there is none. */
	int saved, tmp[2];
	int *dx, *dx_add; /* by input: gradient = own contribution (+ dx_add) */
	uint64_t add;     /* the own contribution is added to what lies in dx */
	bool again;       /* computed a second time before its block's backward */
};

struct gp_walk;
struct gp_stored; /* plan_store.h */

struct gp_walk_hooks {
	/* (optional) After everything else of a node's forward, or backward, was placed. */
	enum gp_status (*forward)(struct gp_walk *w, struct gp_walk_node *n, struct gp_err *err);
	enum gp_status (*backward)(struct gp_walk *w, struct gp_walk_node *n, struct gp_err *err);
	/* (optional) Before the pieces get their offsets. */
	void (*end)(struct gp_walk *w);
};

struct gp_walk {
	/* The device fills these in before gp_walk_init. */
	const struct gp_plan_spec *spec;
	void *nodes;       /* spec->graph->nodes of them, zeroed */
	size_t node_bytes; /* of each */
	uint64_t align;
	size_t real_bytes; /* of an f32 value's element within the plan; at the edge they have 4 */
	int pools; /* 1: forward and backward share one; 2, 3: forward has pool 0, backward pool 1, pool 2 is the hooks' */
	const struct gp_walk_hooks *hooks;
	void *device; /* the hooks' */

	/* Found. */
	bool *needs; /* by value: gp_graph_find_gradients; false without training */
	bool *kept;  /* by value: stays until backward although its maker does not read it there (plan_masks.h) */
	struct gp_type *type; /* by value: of one sample; of sequences with `length` positions */
	int64_t length;       /* of the sequences now: gp_walk_set_length; 0: as the graph has them */
	int row_scores;       /* gp_graph_row_scores; GP_WALK_NONE where there are none */
	int64_t rows;         /* of these now, of all samples: gp_walk_set_rows; 0: all */
	int *value, *grad;    /* by value: pieces; GP_WALK_NONE where there is none, or nobody reads it */
	int *edge_grad;       /* by output of the graph: where its gradient is when it has come in from outside */
	struct gp_buf *buf;   /* the pieces */
	int bufs, buf_cap;
	uint64_t *io_bytes;                  /* by port; 0: there is none */
	uint64_t slot_bytes, all_io_bytes;   /* of one slot: arena, and IO buffers */
	struct gp_stored *encodes, *decodes; /* with spec.maps: the pieces that lie encoded, in the order of either */
	int stored;                          /* so many */
	uint64_t scratch_bytes[GP_WALK_POOLS];
	int *arrays; /* the nodes' */
};

/* `w` has its device's fields and is zeroed else. After a failure only gp_walk_deinit is left to do. GP_NOMEM. */
enum gp_status gp_walk_init(struct gp_walk *w, struct gp_err *err);
void gp_walk_deinit(struct gp_walk *w);
/* Whether no cut of spec.cuts lies between two nodes, or that makes no difference, as neither maps lie encoded nor their
 * gradients are coded: else what lies on both sides has to be what it is in plans of the parts. */
bool gp_walk_same_part(const struct gp_walk *w, const struct gp_walk_node *before, const struct gp_walk_node *behind);
/* Whether a value has the same type within the plan and at its edge, so that it lies in the IO buffer itself. */
bool gp_walk_same_at_edge(const struct gp_walk *w, int value);
void gp_walk_find_gradients(struct gp_walk *w);
/* GP_NOMEM; GP_UNSUPPORTED: a node that would need a gradient gets none. */
enum gp_status gp_walk_layout(struct gp_walk *w, struct gp_err *err);

/* After that: by block of the graph, bytes of a slot's arena. */
void gp_walk_count_maps(const struct gp_walk *w, uint64_t *maps);

/*
 * From here on gp_walk_type, gp_walk_elements and gp_walk_bytes tell of chunks whose sequences have so many positions, one
 * after another in memory; 0: as many as the graph says, as while the memory is laid out, which has room for all of them.
 * Whether the graph allows it is the caller's to know (gp_sequence_length_ok).
 */
void gp_walk_set_length(struct gp_walk *w, int64_t length);

/* The same of a chunk that has so many rows of row_scores; 0: all of them. Their type stays: rows are left out anywhere. */
void gp_walk_set_rows(struct gp_walk *w, int64_t rows);

/* For hooks: a piece of scratch memory that is in use at this moment. */
enum gp_status gp_walk_new_buf(struct gp_walk *w, uint64_t bytes, int moment, int *index, struct gp_err *err);
int gp_walk_backward_moment(const struct gp_walk *w, const struct gp_walk_node *n);

/* Number of an IO buffer among those of a slot; GP_WALK_NONE where there is none. */
int gp_walk_port(const struct gp_walk *w, enum gp_plan_buf which, int index);
/* So many ports, those that are none included; inputs, outputs, the outputs' gradients, the inputs' gradients. */
int gp_walk_ports(const struct gp_walk *w);
/* Whether a value's piece is the IO buffer itself: else what comes from there, or goes there, is converted or copied. */
bool gp_walk_lies_at(const struct gp_walk *w, int buf, enum gp_plan_buf which, int index);

/* Whether a later node writes to where this one's first value lies, which is then gone. */
bool gp_walk_overwritten(const struct gp_walk *w, const struct gp_walk_node *n);

static inline struct gp_walk_node *gp_walk_node(const struct gp_walk *w, int index)
{
	return (struct gp_walk_node *)((char *)w->nodes + (size_t)index * w->node_bytes);
}
/* Whether the node's op runs backward, instead of the plan handing its gradient on. */
static inline bool gp_walk_works_backward(const struct gp_walk_node *n)
{
	return !n->view && n->passes != GP_WALK_ALL;
}
static inline bool gp_walk_passes(const struct gp_walk_node *n, int k)
{
	return n->view || (n->passes >> k & 1);
}
static inline const struct gp_type *gp_walk_type(const struct gp_walk *w, int value)
{
	return &w->type[value];
}
/* Elements of a value for one chunk. */
static inline int64_t gp_walk_elements(const struct gp_walk *w, int value)
{
	const struct gp_shape *sample = &gp_walk_type(w, value)->shape;
	if (w->rows > 0 && value == w->row_scores)
		return w->rows * sample->dim[1];
	return (int64_t)w->spec->batch * (int64_t)gp_shape_elements(sample);
}
/* Bytes of a value, or of its gradient, within the plan: integers have 4 each in every precision. */
static inline uint64_t gp_walk_bytes(const struct gp_walk *w, int value)
{
	const size_t each = gp_walk_type(w, value)->dtype == GP_F32 ? w->real_bytes : sizeof(int32_t);
	return (uint64_t)gp_walk_elements(w, value) * each;
}
/* Value of the graph that is its input, or output, `index`. */
static inline int gp_walk_input(const struct gp_walk *w, int index)
{
	return w->spec->graph->node[index].first_value;
}
static inline int gp_walk_output(const struct gp_walk *w, int index)
{
	return w->spec->graph->output[index].value;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of a chain that works on tensors: wrapper, transforms, quantizer. A
 * node is one stage at one tensor's shape; the tensors it gives belong to its
 * parts, which are nodes of the next stage. Gives and takes the bytes of
 * CODECS.md, "Payload"; byte stages around them are codec_chain.c's. With a
 * device's memory all nodes work there, or none: then the tree's tensor is
 * copied to the host before, or back behind them.
 *
 * Threads: as struct gp_codec. Test: tests/unit/test_codec_tree.c
 */
#ifndef GP_CODEC_TREE_H
#define GP_CODEC_TREE_H

#include "common/codec/codec_device.h"

#define GP_CODEC_MAX_NODES GP_CODEC_MAX_CODES

/* Head of what a stage that is not lossless writes: the form and three zero bytes, which keep what follows aligned.
 * Byte stages have the same head. */
enum { GP_CODEC_HEAD = 4, GP_CODEC_LENGTH = 4 };
enum gp_codec_form { GP_CODEC_CODED = 0, GP_CODEC_RAW = 1 };

struct gp_codec_node {
	const struct gp_codec_ops *ops;
	const double *value;
	void *state;
	struct gp_shape shape;
	uint64_t n, bound, side_bound; /* bound: with head */
	int stage;
	int parts; /* 0: a quantizer */
	struct gp_codec_node *part[GP_CODEC_MAX_PARTS];
	float *tensor[GP_CODEC_MAX_PARTS];
};

/* The step of a chunk's last pass, whose beginning regions' `backup` holds. */
struct gp_codec_begun {
	uint64_t step;
	bool backed_up;
};

struct gp_codec_tree {
	struct gp_codec_node node[GP_CODEC_MAX_NODES]; /* parents before their parts */
	int nodes;
	bool learns;    /* the encoder decodes what it has encoded: a wrapper wants to know */
	bool fell_back; /* the last encode sent some tensor raw */
	bool broken;    /* the last encode wrote what does not decode */
	struct gp_codec_codes codes[GP_CODEC_MAX_CODES]; /* in what the last encode wrote */
	int codes_count;
	const uint8_t *begin;         /* of that */
	struct gp_codec_mask *mask;   /* of an activation; NULL: none */
	uint64_t memory_bytes;        /* that open takes, on the host and a device */
	uint64_t work_ns;             /* of a pass: gp_codec_stage_work of all nodes */
	struct gp_codec_begun *begun; /* per chunk; NULL: no undo, or nothing to take back */
	uint32_t chunks;
	const struct gp_codec_device *device; /* of the tensor at the root; NULL: the host's */
	const struct gp_codec_device *inside; /* of the nodes and the tensors between them: `device`, or NULL */
	struct gp_codec_site *site;           /* when there is a `device` */
	float *staging;                       /* the root's tensor on the host, when `inside` is not `device` */
};

/* Lays the nodes out for this shape (n >= 1): bounds and memory, without allocating. `spec` must outlive the tree. */
enum gp_status gp_codec_tree_plan(struct gp_codec_tree *t, const struct gp_codec_spec *spec,
				  const struct gp_shape *shape, const struct gp_codec_options *options,
				  struct gp_err *err);
/* Allocates what was planned. On failure everything is given back. `activation_mask` (or NULL): of another tree. */
enum gp_status gp_codec_tree_open(struct gp_codec_tree *t, const struct gp_codec_options *options,
				  const struct gp_codec_mask *activation_mask, struct gp_err *err);
void gp_codec_tree_close(struct gp_codec_tree *t); /* safe on a planned tree */

static inline uint64_t gp_codec_tree_bound(const struct gp_codec_tree *t)
{
	return t->node[0].bound;
}

/* An opened tree, from here on for a tensor of that shape: gp_codec_resize. */
void gp_codec_tree_resize(struct gp_codec_tree *t, const struct gp_shape *shape);

/* Both: GP_DEVICE when the device failed. */
enum gp_status gp_codec_tree_encode(struct gp_codec_tree *t, const struct gp_codec_pass *pass, const float *x,
				    uint8_t *out, size_t *len, struct gp_err *err);
enum gp_status gp_codec_tree_decode(struct gp_codec_tree *t, const struct gp_codec_pass *pass, struct gp_span in,
				    float *x, struct gp_err *err);

/* codec_undo.c. Before a pass: backs up what it is going to change, if it is its chunk's first of a step. */
void gp_codec_tree_back_up(struct gp_codec_tree *t, const struct gp_codec_pass *pass);
void gp_codec_tree_undo(struct gp_codec_tree *t, uint64_t step);
/* Forgets what was saved for taking a step back: there is no such step any more. */
void gp_codec_tree_forget(struct gp_codec_tree *t);

/* A head's form, 0 or 1. GP_PROTO when there is no whole head, or an unknown one. */
enum gp_status gp_codec_head_read(struct gp_span in, int *form, struct gp_err *err);
void gp_codec_head_write(uint8_t *out, int form);
/* The setup of stage `index` of a chain that `options` ask for, without shape. */
struct gp_codec_setup gp_codec_setup_for(const struct gp_codec_options *options, int index, bool learns);

#endif

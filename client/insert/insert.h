/* SPDX-License-Identifier: Apache-2.0
 *
 * Insertions: trainable layers at the cuts of a model that compress what crosses.
 * An encoder becomes the end of the last block before the cut, its decoder the
 * beginning of the first block behind it: the model keeps its number of blocks, so
 * that --cut means the same place as without an insertion. Both are ordinary nodes,
 * trained, sent, saved and loaded with the rest. Not here: the text of --insert
 * (insert_spec.h).
 *
 * Parameters are insert_up.encoder.I.weight (and .bias), insert_up.decoder.I...,
 * insert_down... likewise, I = 0, 1, ... in the order in which they are applied:
 * decoder 0 undoes the last encoder. Batch norms are insert_up.encoder.I.bn.*.
 *
 * A bottleneck of D features is, on either side, y = P x + V act(U x + b) + c: a straight path, the matrix P from all
 * features to D of them or back, and beside it a residual branch. The branch's last layer, V and c, starts at zero, so that
 * the pair starts as the straight path alone. P is encoder.I.weight, U and b are encoder.I.hidden.weight and .bias, V and c
 * those of encoder.I.out. Layers are 1x1 convolutions for maps, and linear along the features for anything else. That an
 * encoder and a decoder are residual, keep a low-rank identity path and are trained with the model is from ResBM (arXiv
 * 2604.11947); that D features are enough for what crosses, from Subspace Networks (arXiv 2506.01260), which fix the
 * subspace. The layers of the branch and how they start are ours.
 *
 * Where several f32 activations cross a cut, as inside a residual block, the one that
 * is made last is compressed; the others, and integers, cross as they are.
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_insert.c
 */
#ifndef GP_INSERT_H
#define GP_INSERT_H

#include "client/insert/insert_spec.h"
#include "common/graph/graph_part.h"

#define GP_INSERT_PREFIX "insert_" /* of the name of every node that is inserted */

/* What stands at one cut. */
struct gp_insertion_end {
	const char *flag;           /* the flag that asked for it, without its dashes */
	struct gp_insert_spec spec; /* no sets: nothing */
	/* Set by gp_insert: the name in the model of the value that is compressed, its shape for one sample without and with
	 * the insertion, and how many other f32 activations cross there as they are. */
	char value[GP_NAME_MAX];
	struct gp_shape plain, packed;
	int others;
};

struct gp_insertion {
	struct gp_insertion_end end[GP_INSERT_ENDS];
};

/* Whether there is anything to insert. */
bool gp_insertion_any(const struct gp_insertion *ins);
/* `both`, `up` and `down`: --insert, --insert-up and --insert-down, each NULL where it is not given. */
enum gp_status gp_insertion_parse(const char *both, const char *up, const char *down, struct gp_insertion *out,
				  struct gp_err *err);
/*
 * How many elements a tensor that crosses at this end would have without the insertion. `name` and `sample` are its name in
 * the model and its shape for one sample.
 */
uint64_t gp_insertion_plain(const struct gp_insertion *ins, enum gp_insert_end end, const char *name,
			    const struct gp_shape *sample);

/*
 * Puts the layers into the graph: *g is freed and replaced by a graph with them; on failure it stays as it was. `cut` means the
 * same in both graphs. GP_USAGE says why the layers do not fit what crosses there.
 */
enum gp_status gp_insert(struct gp_graph **g, const struct gp_cut *cut, struct gp_insertion *ins, struct gp_err *err);

/*
 * A graph of the layers of one end alone, after gp_insert: the first `sets` sets of the encoder, one or more, in the block
 * "encoder", and with `back` the decoder in the block "decoder". Nodes and parameters are named as in the model; the graph's
 * input is "value".
 */
enum gp_status gp_insert_alone(const struct gp_insertion *ins, enum gp_insert_end end, int sets, bool back,
			       struct gp_graph **out, struct gp_err *err);

#endif

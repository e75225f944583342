/* SPDX-License-Identifier: Apache-2.0
 *
 * Insertions: trainable layers at the cuts of a model, so that what crosses is
 * smaller. An encoder becomes the end of the last block before the cut, its
 * decoder the beginning of the first block behind it: the model keeps its blocks,
 * so that --cut counts them as without. Both are ordinary nodes, trained, sent,
 * saved and loaded with the rest. Not here: the texts (insert_spec.h).
 *
 * Parameters are insert_up.encoder.I.weight (and .bias), insert_up.decoder.I...,
 * insert_down... likewise, I = 0, 1, ... in the order in which they are applied:
 * decoder 0 undoes the last encoder. Batch norms are insert_up.encoder.I.bn.*.
 *
 * Where several f32 activations cross a cut, as inside a residual block, the one that
 * is made last is compressed; the others, and integers, cross as they are.
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_insert.c
 */
#ifndef GP_INSERT_H
#define GP_INSERT_H

#include "client/insert_spec.h"
#include "common/graph/graph_part.h"

#define GP_INSERT_PREFIX "insert_" /* of the name of every node that is inserted */

/* What stands at one cut. */
struct gp_insertion_end {
	const char *flag;           /* that asked for it, without its dashes */
	struct gp_insert_spec spec; /* no sets: nothing */
	/* From gp_insert on: what it compresses, by its name in the model, and how many elements a sample has of it without
	 * and with the insertion; how many other f32 activations cross there as they are. */
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
 * How many elements a tensor that crosses at this end would have without the insertion. It is known by its name in the model
 * and its shape for one sample.
 */
uint64_t gp_insertion_plain(const struct gp_insertion *ins, enum gp_insert_end end, const char *name,
			    const struct gp_shape *sample);

/*
 * Puts the layers into the graph: *g becomes another one, and the first is freed; on failure it stays. `cut` holds for both.
 * GP_USAGE says why they do not fit what crosses there.
 */
enum gp_status gp_insert(struct gp_graph **g, const struct gp_cut *cut, struct gp_insertion *ins, struct gp_err *err);

/*
 * The layers of one end alone, behind gp_insert: the first `sets` of the encoder, one or more, in a block of that name, and
 * with `back` the decoder in another one. Nodes and parameters are named as in the model; the graph's input is "value".
 */
enum gp_status gp_insert_alone(const struct gp_insertion *ins, enum gp_insert_end end, int sets, bool back,
			       struct gp_graph **out, struct gp_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tensor of a data set each input of a model reads, and handing a chunk of
 * them to a plan. Both engines and `capture` go through here.
 *
 * An input reads the tensor of its name; where the model has one input and the
 * data one tensor, these belong together whatever they are called. Type and
 * shape must be the same. Tensors that no input reads stay unused.
 * Where a chunk may have its own sequence length, this is where it comes from: the length of a sample is what its tensor
 * "length" says, or the place behind the last position that its tensor "mask" does not mask.
 *
 * No state and no allocation.
 *
 * Threads: any. Test: tests/unit/test_batch_map.c
 */
#ifndef GP_BATCH_MAP_H
#define GP_BATCH_MAP_H

#include "client/data/dataset.h"
#include "common/graph/device.h"
#include "common/graph/graph_part.h"

#define GP_BATCH_MAP_INPUTS 8

struct gp_batch_map {
	int inputs;                      /* of the whole graph */
	int tensor[GP_BATCH_MAP_INPUTS]; /* of the batch, by input */
	size_t sample_bytes[GP_BATCH_MAP_INPUTS];
	bool sequence[GP_BATCH_MAP_INPUTS]; /* its first dimension has `positions` */
	int64_t positions;    /* most of a chunk, where it may have fewer and the data says how many; else 0 */
	int rows, row_values; /* the tensor that says so, and its values for a sample */
};

/* `g` is the whole graph. GP_INVALID says what the model wants and what the data has; *out is then as it was. */
enum gp_status gp_batch_map_make(const struct gp_graph *g, const struct gp_tensor_info *info, int tensors,
				 struct gp_batch_map *out, struct gp_err *err);
/* GP_INVALID where the data has values that an embedding of the model has no row for. */
enum gp_status gp_batch_map_check_values(const struct gp_graph *g, const struct gp_tensor_info *info,
					 const struct gp_batch_map *m, struct gp_err *err);
/* The same as gp_batch_map_make for a batch at hand. */
enum gp_status gp_batch_map_of(const struct gp_graph *g, const struct gp_batch *batch, struct gp_batch_map *out,
			       struct gp_err *err);
/*
 * How many positions each of the samples has, into `rows` if that is not NULL; the length that a chunk of them may have is
 * returned (gp_sequence_round of the most), or 0 where chunks have all positions.
 */
uint32_t gp_batch_map_length(const struct gp_batch_map *m, const struct gp_batch *batch, size_t first, size_t samples,
			     uint32_t *rows);
/* Samples first..first+samples of what input `input` of the whole graph reads into `to`, sequences with `length` positions;
 * 0: all of them. */
void gp_batch_map_put(const struct gp_batch_map *m, const struct gp_batch *batch, int input, size_t first,
		      size_t samples, uint32_t length, void *to);
/* What input `input` of the whole graph reads from sample `first` on. */
const void *gp_batch_map_at(const struct gp_batch_map *m, const struct gp_batch *batch, int input, size_t first);
/*
 * Samples first..first+samples of the batch into the inputs of the plan's slot. `from` says by input of the plan's graph
 * where it comes from (struct gp_graph_parts): what comes from the data is copied, the rest left alone. NULL: the plan's
 * inputs are those of the whole graph. Sequences get `length` positions; 0: all of them.
 */
void gp_batch_map_copy(const struct gp_batch_map *m, const struct gp_batch *batch, size_t first, size_t samples,
		       uint32_t length, struct gp_plan *plan, int slot, const struct gp_port *from);

#endif

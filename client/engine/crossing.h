/* SPDX-License-Identifier: Apache-2.0
 *
 * What crosses the two cuts of a model, found once for all who ask: the split
 * engine sends it, `capture` writes it to a file, `model show` prints it.
 *
 * Threads: any; pure functions. Test: tests/unit/test_crossing.c
 */
#ifndef GP_CROSSING_H
#define GP_CROSSING_H

#include "common/graph/graph_part.h"
#include "common/wire/flows.h"

struct gp_crossing {
	struct gp_graph_parts parts;
	struct gp_flow_list list;
	/* Bit i: backward of the tail gives the gradient of its input i, which goes up or to the head. */
	uint64_t tail_gradients;
	bool head_backward; /* some gradient reaches the head */
};

/*
 * Cuts the graph. `session` has the codecs, the samples of a chunk and `eval_only`; its data_inputs and frozen_inputs are
 * filled in here, and `lengths` is taken back where the body has no sequences. *out is on the heap, borrows the codecs of
 * `session` and is freed by gp_crossing_free.
 */
enum gp_status gp_crossing_find(const struct gp_graph *g, const struct gp_cut *cut, struct gp_session_spec *session,
				struct gp_crossing **out, struct gp_err *err);
void gp_crossing_free(struct gp_crossing *c);

/* Tensors that cross in this direction. */
int gp_crossing_count(const struct gp_crossing *c, enum gp_direction d);
/* The value that a flow carries, by its name in the whole model; it lives as long as `body`. */
const char *gp_crossing_name(const struct gp_graph *body, enum gp_direction d, int tensor);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Decaying linear insertion: a pair of linear layers, an encoder y = x W[:r]^T before a cut and its mirror, the decoder
 * x' = y M[:, :r]^T, behind it, whose rank r becomes smaller in the course of a training. Here are the schedule, the
 * graph with the ranks of a step, and what the schedule does to gradients. Not here: how a plan with another rank takes
 * over what the one before it held (snapshot.h, gp_plan_replace of plan_replace.h), and what crosses the link (PROTOCOL.md
 * section 5.3).
 *
 * With r1 = (int)(r * rate), r becomes r1 after every `every` optimizer steps, `times` times: rows from r1 on of W, and
 * columns from r1 on of M, go, those before stay with what the optimizer remembers of them. As long as changes are
 * left, the gradient g of what goes with the next one is -l1 * sign(g), sign(0) = 0, in place of g. That is the last that
 * happens before the update: clipping (clip.h) sees g itself.
 *
 * Both ends know the rank of every step: it depends on the number of steps of the whole run alone.
 *
 * Threads: any; pure functions. Test: tests/unit/test_decay.c
 */
#ifndef GP_DECAY_H
#define GP_DECAY_H

#include "common/graph/graph.h"

#define GP_DECAYS_MAX        8
#define GP_DECAY_CHANGES_MAX 64 /* of all pairs together: each makes plans anew, at both ends */
#define GP_DECAY_EVERY_MAX   1000000000

/* One pair. A graph that is a part of a model may have one of the two nodes alone. */
struct gp_decay {
	char encoder[GP_NAME_MAX], decoder[GP_NAME_MAX]; /* nodes: linear without bias */
	double rate;
	uint32_t every, times;
	float l1; /* 0: gradients stay as they are */
};

struct gp_decays {
	int count;
	struct gp_decay decay[GP_DECAYS_MAX];
};

/* What the ranks become, by pair; none: they stay. */
struct gp_decay_ranks {
	int count;
	uint32_t rank[GP_DECAYS_MAX];
};

/* The rank behind `step` steps, where `start` is that of step 0. */
int64_t gp_decay_rank(const struct gp_decay *d, int64_t start, uint64_t step);
/* Whether the update that makes `step` steps changes a rank. */
bool gp_decays_change_at(const struct gp_decays *d, uint64_t step);
/* The step of the first change behind `step`; 0: there is none. */
uint64_t gp_decays_next_change(const struct gp_decays *d, uint64_t step);

/*
 * Checks numbers, and that the graph, which has the ranks of step 0, has the nodes and may have every rank that will come.
 * Safe on numbers and names from a peer; takes time for GP_DECAY_CHANGES_MAX copies of the graph. GP_INVALID.
 */
enum gp_status gp_decays_check(const struct gp_decays *d, const struct gp_graph *g, struct gp_err *err);
/*
 * The graph with the ranks of `step`, from the one with the ranks of step 0. Where the graph has the decoder alone, it is
 * the dimension of an input that changes, from which the decoder's comes without anything in between that mixes it.
 */
enum gp_status gp_decays_graph(const struct gp_decays *d, const struct gp_graph *g, uint64_t step,
			       struct gp_graph **out, struct gp_err *err);
/* Those that the update makes which makes `step` steps, where it changes one. `g` has the ranks of step 0. */
struct gp_decay_ranks gp_decays_ranks_at(const struct gp_decays *d, const struct gp_graph *g, uint64_t step);

/* What of a weight (rows, columns) has its gradient replaced: all from this row and this column on. */
struct gp_decay_rule {
	int64_t rows, columns, first_row, first_column;
	float l1;
};

/* In the update behind `step` steps. False: nothing of this parameter. `d` may be NULL. */
bool gp_decays_rule(const struct gp_decays *d, const struct gp_graph *g, int param, uint64_t step,
		    struct gp_decay_rule *out);
/* To a gradient in PyTorch's layout. */
void gp_decay_replace(const struct gp_decay_rule *rule, float *grad);

#endif

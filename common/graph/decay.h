/* SPDX-License-Identifier: Apache-2.0
 *
 * Decaying linear insertion: a pair of linear layers, an encoder y = x W[:r]^T before a cut and its mirror, the decoder
 * x' = y M[:, :r]^T, behind it, whose rank r shrinks during a training. Here are the schedule, the graph with the ranks of
 * a step, and what the schedule does to gradients. Not here: how a plan with smaller ranks takes over what the plan before
 * it held (snapshot.h, gp_plan_replace of plan_replace.h), and what crosses the link (PROTOCOL.md section 5.3).
 *
 * After every `every` optimizer steps, `times` times, r becomes r1 = (int)(r * rate): the rows of W and the columns of M
 * from r1 on are removed; the others keep their values and their optimizer state. As long as a change is still to come,
 * -l1 * sign(g), with sign(0) = 0, replaces the gradient g of the rows and columns that the next change removes. This
 * happens right before the update: clipping (clip.h) sees g itself.
 *
 * Both ends know the rank of every step: it depends on nothing but the number of steps of the whole run.
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

/* The new ranks, one for each pair; count 0: no rank changes. */
struct gp_decay_ranks {
	int count;
	uint32_t rank[GP_DECAYS_MAX];
};

/* The rank after `step` steps, where `start` is that of step 0. */
int64_t gp_decay_rank(const struct gp_decay *d, int64_t start, uint64_t step);
/* Whether the update that completes `step` steps changes a rank. */
bool gp_decays_change_at(const struct gp_decays *d, uint64_t step);
/* The step of the first change after `step`; 0: there is none. */
uint64_t gp_decays_next_change(const struct gp_decays *d, uint64_t step);

/*
 * Checks the numbers, that the graph, which has the ranks of step 0, has the nodes, and that it is a valid graph with every
 * rank that will come. Safe on numbers and names from a peer; takes as long as GP_DECAY_CHANGES_MAX copies of the graph at
 * most. GP_INVALID.
 */
enum gp_status gp_decays_check(const struct gp_decays *d, const struct gp_graph *g, struct gp_err *err);
/*
 * Makes the graph with the ranks of `step` from the one with the ranks of step 0. Where the graph has the decoder only, a
 * dimension of an input changes: the one that reaches the decoder through nodes that leave it as it is.
 */
enum gp_status gp_decays_graph(const struct gp_decays *d, const struct gp_graph *g, uint64_t step,
			       struct gp_graph **out, struct gp_err *err);
/* The ranks that the update which completes `step` steps sets, or none. `g` has the ranks of step 0. */
struct gp_decay_ranks gp_decays_ranks_at(const struct gp_decays *d, const struct gp_graph *g, uint64_t step);

/* Which part of the gradient of a weight (rows, columns) is replaced: from this row and this column on. */
struct gp_decay_rule {
	int64_t rows, columns, first_row, first_column;
	float l1;
};

/* The rule for the update after `step` steps. False: nothing of this parameter is replaced. `d` may be NULL. */
bool gp_decays_rule(const struct gp_decays *d, const struct gp_graph *g, int param, uint64_t step,
		    struct gp_decay_rule *out);
/* Applies the rule to a gradient in PyTorch's layout. */
void gp_decay_replace(const struct gp_decay_rule *rule, float *grad);

#endif

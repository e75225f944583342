/* SPDX-License-Identifier: Apache-2.0
 *
 * What a graph costs to compute, before anything of it is: multiply-accumulates
 * and elements that are read or written, forward and backward, and how long a
 * device of a given speed takes for them. A server refuses by it what would
 * hold its device too long, so it errs upwards: a node counts for what a device
 * does, not for what it has to show. Not here: the least that an implementation
 * can move, for profiles (kernels/plan/plan_work.h).
 *
 * Glossary: work = an amount, of one pass in one way; speed = work per second.
 *
 * Threads: any; pure functions. Test: tests/unit/test_graph_work.c
 */
#ifndef GP_GRAPH_WORK_H
#define GP_GRAPH_WORK_H

#include "common/graph/graph.h"

/* Every figure stops at UINT64_MAX instead of passing it. */
struct gp_work {
	uint64_t macs, elements; /* of each sample */
	uint64_t once;           /* elements of a chunk, however many samples it has: parameters, and that a node is called */
};

struct gp_speed {
	double macs_per_s, elements_per_s;
};

/* One node, or all nodes. Backward counts the gradients of all inputs and of all parameters, whether trained or not. */
void gp_node_work(const struct gp_graph *g, const struct gp_node *n, struct gp_work *forward,
		  struct gp_work *backward);
void gp_graph_work(const struct gp_graph *g, struct gp_work *forward, struct gp_work *backward);

/* What `more` is besides. */
void gp_work_add(struct gp_work *w, const struct gp_work *more);
/* Seconds for a chunk of that many samples. */
double gp_work_seconds(const struct gp_work *w, const struct gp_speed *speed, int64_t samples);
/* The most samples of a chunk that take no longer than `seconds`; 0: not even one does. At most `samples`. */
int64_t gp_work_samples_within(const struct gp_work *w, const struct gp_speed *speed, double seconds, int64_t samples);

#endif

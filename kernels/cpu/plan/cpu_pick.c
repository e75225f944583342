/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of scores without a label are left out (set_labels of common/graph/device.h).
 * A masked language model makes its decoder's rows for the most masked words that a
 * text may have, and most texts have fewer: more than half of the rows may be of no
 * use, each a product with the whole vocabulary.
 *
 * The layer that makes the scores (gp_graph_row_scores) gets its input's rows that have a label, closed up in working room of
 * its own, and is otherwise a linear layer of fewer rows; the gradient of its input is spread out again. No other node sees
 * anything of it, so it is the same wherever the model is cut. Rows of the whole chunk are closed up, not those of each text
 * to the longest list: then only what has a label is computed however much texts differ. To begin further ahead, where
 * the masked positions are taken, would save no more than a hundredth, as a word's features are few beside the vocabulary;
 * but a cut could then lie behind the place where rows are left out, and the other end would have to know them.
 *
 * Results: the loss adds up the same numbers in the same order (cpu_loss.c). Products of fewer rows may be blocked in another
 * way, and so round differently.
 *
 * Test: tests/unit/test_row_labels.c
 */
#include <string.h>

#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

int64_t gp_cpu_pick_most(const struct cpu_plan *p)
{
	if (p->walk.row_scores < 0)
		return 0;
	return (int64_t)p->base.spec.batch * gp_walk_type(&p->walk, p->walk.row_scores)->shape.dim[0];
}

void gp_cpu_pick_prepare(struct cpu_plan *p, struct cpu_node *n)
{
	if (n->base.first_value != p->walk.row_scores)
		return;
	n->pick_offset = gp_cpu_align(n->tmp_bytes);
	n->tmp_bytes = n->pick_offset + (uint64_t)gp_cpu_in_elements(p, n, 0) * sizeof(float);
}

void gp_cpu_set_labels(struct gp_plan *plan, int slot, const int32_t *labels, int valid)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	const int64_t most = gp_cpu_pick_most(p);
	gp_require(slot >= 0 && slot < plan->spec.slots && valid >= 0 && valid <= plan->spec.batch);
	struct cpu_slot *s = &p->slot[slot];
	s->rows = 0;
	s->forwarded = false;
	if (!labels || most == 0)
		return;
	for (int64_t row = 0; row < most / plan->spec.batch * valid; row++)
		if (labels[row] != GP_NO_LABEL)
			s->row[s->rows++] = row;
	if (s->rows == 0)
		s->row[s->rows++] = 0; /* no product is empty */
	if (s->rows == most)
		s->rows = 0;
}

bool gp_cpu_pick_agrees(const struct cpu_plan *p, int slot, const int32_t *labels, int64_t rows)
{
	const struct cpu_slot *s = &p->slot[slot];
	int64_t next = 0;
	for (int64_t row = 0; row < rows; row++) {
		if (labels[row] == GP_NO_LABEL)
			continue;
		if (next == s->rows || s->row[next] != row)
			return false;
		next++;
	}
	return next == s->rows || (next == 0 && s->rows == 1);
}

static bool leaves_out(const struct cpu_plan *p, const struct cpu_node *n)
{
	return p->walk.rows > 0 && n->base.first_value == p->walk.row_scores;
}

struct close_job {
	float *to;
	const float *from;
	const int64_t *row;
	int64_t rows, width;
};

static void close_part(void *arg, int part, int parts)
{
	const struct close_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->rows, 1, part, parts);
	for (int64_t i = r.from; i < r.to; i++)
		memcpy(job->to + i * job->width, job->from + job->row[i] * job->width,
		       (size_t)job->width * sizeof *job->to);
}

const float *gp_cpu_pick_input(const struct cpu_plan *p, int slot, const struct cpu_node *n, const float *in, void *tmp)
{
	const struct cpu_slot *s = &p->slot[slot];
	if (!leaves_out(p, n))
		return in;
	struct close_job job = {.to = (float *)((char *)tmp + n->pick_offset),
				.from = in,
				.row = s->row,
				.rows = s->rows,
				.width = gp_cpu_in_shape(p, n, 0)->dim[1]};
	gp_cpu_parallel(gp_cpu_parts(p->threads, job.rows * job.width), close_part, &job);
	return job.to;
}

/* From the last row on: none is written over before it has moved. */
void gp_cpu_pick_spread(const struct cpu_plan *p, int slot, const struct cpu_node *n, float *dx)
{
	const struct cpu_slot *s = &p->slot[slot];
	if (!leaves_out(p, n) || !dx)
		return;
	const int64_t width = gp_cpu_in_shape(p, n, 0)->dim[1];
	const size_t bytes = (size_t)width * sizeof *dx;
	int64_t left = s->rows;
	for (int64_t row = gp_cpu_pick_most(p) - 1; row >= 0; row--) {
		if (left == 0 || s->row[left - 1] != row)
			memset(dx + row * width, 0, bytes);
		else if (--left != row)
			memcpy(dx + row * width, dx + left * width, bytes);
	}
}

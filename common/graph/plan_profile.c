/* SPDX-License-Identifier: Apache-2.0
 *
 * Printing a plan's profile. See plan_profile.h.
 */
#include "common/graph/plan_profile.h"

#include <stdlib.h>

#include "common/base/mem.h"

enum gp_status gp_plan_profile_begin(struct gp_plan *plan, const struct gp_plan_profile **out, struct gp_err *err)
{
	*out = NULL;
	return plan->ops->profile ? plan->ops->profile(plan, out, err) : GP_OK;
}

struct row {
	const char *op, *name;
	const struct gp_node_profile *p;
};

static uint64_t row_ns(const struct row *r)
{
	return r->p->ns[0] + r->p->ns[1];
}

static int by_time(const void *x, const void *y)
{
	uint64_t a = row_ns(x), b = row_ns(y);
	return (a < b) - (a > b);
}

/* Rows that were run at all. */
static int collect(const struct gp_plan *plan, const struct gp_plan_profile *profile, struct row *row)
{
	const struct gp_graph *g = plan->spec.graph;
	const struct row others[] = {
		{"loss", "", &profile->loss}, {"update", "", &profile->update}, {"pack", "", &profile->pack}};
	int rows = 0;
	for (int i = 0; i < g->nodes; i++)
		if (profile->node[i].calls[0] + profile->node[i].calls[1] > 0)
			row[rows++] = (struct row){gp_op_name(g->node[i].op), g->node[i].name, &profile->node[i]};
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (others[i].p->calls[0] > 0)
			row[rows++] = others[i];
	return rows;
}

/* A rate per nanosecond is one in thousand millions per second. */
static void print_way(FILE *f, const struct gp_node_profile *p, int way)
{
	if (p->calls[way] == 0) {
		fprintf(f, " | %9s %9s %8s %8s", "-", "-", "-", "-");
		return;
	}
	double ns = p->ns[way] ? (double)p->ns[way] : 1.0;
	fprintf(f, " | %9.3f %9.3f %8.1f %8.1f", (double)p->ns[way] * 1e-6 / (double)p->calls[way],
		(double)p->best_ns[way] * 1e-6, p->flops[way] / ns, (double)p->bytes[way] / ns);
}

static void print_row(FILE *f, const struct row *r, uint64_t total_ns)
{
	fprintf(f, "%-16s %-28s", r->op, r->name);
	print_way(f, r->p, 0);
	print_way(f, r->p, 1);
	fprintf(f, " | %5.1f %%\n", total_ns ? 100.0 * (double)row_ns(r) / (double)total_ns : 0.0);
}

static void print_sums(FILE *f, const struct row *row, int rows)
{
	struct gp_node_profile sum = {0};
	uint64_t calls = 0;
	for (int i = 0; i < rows; i++) {
		for (int way = 0; way < 2; way++) {
			sum.ns[way] += row[i].p->ns[way];
			sum.best_ns[way] += row[i].p->best_ns[way];
			sum.bytes[way] += row[i].p->bytes[way];
			sum.flops[way] += row[i].p->flops[way];
		}
		if (row[i].p->calls[0] > calls)
			calls = row[i].p->calls[0];
	}
	sum.calls[0] = sum.calls[1] = calls;
	print_row(f, &(struct row){"all", "", &sum}, sum.ns[0] + sum.ns[1]);
}

void gp_plan_profile_print(FILE *f, const char *title, const struct gp_plan *plan,
			   const struct gp_plan_profile *profile)
{
	struct row *row = profile ? gp_calloc((size_t)plan->spec.graph->nodes + 3, sizeof *row) : NULL;
	if (!row)
		return;
	int rows = collect(plan, profile, row);
	uint64_t total_ns = 0;
	for (int i = 0; i < rows; i++)
		total_ns += row_ns(&row[i]);
	qsort(row, (size_t)rows, sizeof *row, by_time);
	fprintf(f, "%s: time per node, per call (%d samples)\n", title, plan->spec.batch);
	fprintf(f, "%-16s %-28s | %9s %9s %8s %8s | %9s %9s %8s %8s | share\n", "op", "node", "forw. ms", "best",
		"GFLOP/s", "GB/s", "backw. ms", "best", "GFLOP/s", "GB/s");
	for (int i = 0; i < rows; i++)
		print_row(f, &row[i], total_ns);
	print_sums(f, row, rows);
	gp_free(row);
}

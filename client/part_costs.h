/* SPDX-License-Identifier: Apache-2.0
 *
 * What layers cost to compute and to keep, of one sample: multiply-accumulates,
 * counted in two ways, and the bytes of what they make, forward and backward.
 * For people who compare cuts and insertions. Not here: how long a device may
 * take for it, which errs upwards (common/graph/graph_work.h); the table that
 * `gpclient model show` prints (cost_table.h).
 *
 * Counts:
 *   true    the products that mathematics needs: convolutions, linear layers,
 *           attention. A transposed convolution has one for each of its inputs,
 *           outputs of its channel and taps of its kernel.
 *   origin  as the tool counted that the origin's tables of conv insertion were
 *           made with: two more for each element of a batch norm; and a transposed
 *           convolution as if each of its outputs met every tap and every input
 *           channel, which is too many by the product of its strides.
 * Neither counts biases, activations, pools or sums.
 *
 * Backward takes a product as often as forward for the gradient of the weights,
 * where they are trained, and once more for that of the input, where it has a
 * use; attention, which multiplies activations with each other, twice. That is
 * done for either count, though the origin's tool had forward alone.
 *
 * Bytes: of every value that the layers make, and backward of the gradient of
 * each where it has a use. What a device keeps may be less, since it computes
 * some layers in place.
 *
 * Threads: any; pure functions. Test: tests/unit/test_part_costs.c
 */
#ifndef GP_PART_COSTS_H
#define GP_PART_COSTS_H

#include "common/graph/graph.h"

enum gp_count { GP_COUNT_TRUE, GP_COUNT_ORIGIN, GP_COUNTS };
enum gp_pass { GP_PASS_FORWARD, GP_PASS_BACKWARD, GP_PASSES };

/* Every figure stops at INT64_MAX, where JSON ends, instead of passing it. */
struct gp_cost {
	uint64_t macs[GP_COUNTS];
	uint64_t bytes;
};

struct gp_part_costs {
	struct gp_cost pass[GP_PASSES];
};

extern const char *const gp_count_names[GP_COUNTS]; /* "true", "origin" */
extern const char *const gp_pass_names[GP_PASSES];  /* "forward", "backward" */

/* Forward, of one sample. */
uint64_t gp_node_macs(const struct gp_graph *g, const struct gp_node *n, enum gp_count count);
/* What nodes [first, end) cost together, of one sample. */
void gp_part_costs_find(const struct gp_graph *g, int first, int end, struct gp_part_costs *out);
/* The same for so many samples. */
struct gp_cost gp_cost_of(const struct gp_cost *sample, int64_t samples);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What layers cost for one sample: multiply-accumulates, counted in two ways, and
 * the bytes of their outputs, forward and backward. For people who compare cuts and
 * insertions. Not here: an upper estimate of the time that a device takes
 * (common/graph/graph_work.h); the table that `gpclient model show` prints
 * (cost_table.h).
 *
 * Counts:
 *   true    the products that convolutions, linear layers and attention need. A
 *           transposed convolution has one product for each element of its input,
 *           output channel and tap of its kernel.
 *   origin  as in the published tables of conv insertion, whose tool adds two for
 *           each element of a batch norm, and counts a transposed convolution as if
 *           every output met every tap and every input channel, which is too many
 *           by the product of its strides.
 * Neither counts biases, activations, pools or sums.
 *
 * The backward pass has as many products as the forward pass for the gradient of the
 * weights, where they are trained, and as many again for the gradient of the input,
 * where that is needed; attention, which multiplies activations with each other, has
 * twice as many as forward. This holds for both counts, though the origin's tool
 * counted the forward pass only.
 *
 * Bytes: forward, of every layer's output; backward, of the gradient of each, where
 * it is needed. A device may keep less, since it computes some layers in place.
 *
 * Threads: any; pure functions. Test: tests/unit/test_part_costs.c
 */
#ifndef GP_PART_COSTS_H
#define GP_PART_COSTS_H

#include "common/graph/graph.h"

enum gp_count { GP_COUNT_TRUE, GP_COUNT_ORIGIN, GP_COUNTS };
enum gp_pass { GP_PASS_FORWARD, GP_PASS_BACKWARD, GP_PASSES };

/* Every figure saturates at INT64_MAX, the largest integer of JSON. */
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * The costs of `gpclient model show`, as a table and as JSON: multiply-accumulates
 * by both counts and bytes (part_costs.h), forward and backward, of a sample, a
 * chunk and a batch; and the rate, which is what crosses a cut divided by what
 * would cross it without an insertion. Not here: the other tables (model_view.h).
 *
 * Threads: any; nothing here is kept between calls. Test: tests/unit/test_part_costs.c
 */
#ifndef GP_COST_TABLE_H
#define GP_COST_TABLE_H

#include <jansson.h>

#include "client/costs/model_view.h"

void gp_cost_table_print(const struct gp_model_view *v, FILE *to);
/* One pass of one part: {"sample": {"macs", "origin_macs", "bytes"}, "chunk": ..., "batch": ...}. NULL: out of memory. */
json_t *gp_cost_json(const struct gp_model_view *v, const struct gp_cost *sample);
/* {"forward": {"up", "down", "both"}, "backward": ...}; null where nothing crosses without an insertion. NULL: out of
 * memory. */
json_t *gp_rates_json(const struct gp_model_view *v);

#endif

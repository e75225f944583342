/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gpclient model show --insert` tells about insertions: what each makes of
 * what crosses, and the rate of both cuts, as text and as JSON.
 *
 * Threads: any; pure functions. Test: tests/unit/test_insert.c
 */
#ifndef GP_INSERT_VIEW_H
#define GP_INSERT_VIEW_H

#include <jansson.h>
#include <stdio.h>

#include "client/crossing.h"
#include "client/insert.h"

/* Bytes of one sample in all directions that a step has: as they cross, and what the same cuts had without insertions. */
struct gp_insert_bytes {
	uint64_t packed, plain;
};
struct gp_insert_bytes gp_insert_bytes(const struct gp_crossing *c, const struct gp_insertion *ins);

/* Prints nothing where nothing is inserted. `batch`: samples of a step. */
void gp_insert_view_print(const struct gp_crossing *c, const struct gp_insertion *ins, int64_t batch, FILE *to);
/* Adds "insertions", an array, and "rate" to `object`. */
void gp_insert_view_json(const struct gp_crossing *c, const struct gp_insertion *ins, json_t *object);

#endif

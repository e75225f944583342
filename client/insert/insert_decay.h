/* SPDX-License-Identifier: Apache-2.0
 *
 * Decaying insertions: turns the text of --insert decay into the schedule that engines follow (common/graph/decay.h). A file of
 * weights says with which schedule and after how many steps it was written; a model that is built from it has the rank of that
 * step, which does not change any more.
 *
 * Threads: any. Test: tests/unit/test_insert_decay.c
 */
#ifndef GP_INSERT_DECAY_H
#define GP_INSERT_DECAY_H

#include "client/insert/insert.h"
#include "common/graph/decay.h"

/* Sets the rank of a `decay` set that works on `most` features or positions to the one that it begins with; a settled set
 * becomes a `linear` one with the rank that it has reached. */
void gp_insert_settle_decay(struct gp_insert_set *set, int64_t most);
/* For weights that were saved after so many steps: gp_insert then gives the `decay` sets the rank of that step. */
void gp_insert_settle(struct gp_insert_spec *spec, uint64_t steps);
/* The schedules that engines have to follow, after gp_insert. */
void gp_insertion_decays(const struct gp_insertion *ins, struct gp_decays *out);

#endif

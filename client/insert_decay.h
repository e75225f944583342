/* SPDX-License-Identifier: Apache-2.0
 *
 * Insertions whose rank becomes smaller in the course of a training, between what --insert says and the schedule that
 * engines follow (common/graph/decay.h). A file of weights says with which schedule and after how many steps it was
 * written; what is made of it has the rank of that step for good.
 *
 * Threads: any. Test: tests/unit/test_insert_decay.c
 */
#ifndef GP_INSERT_DECAY_H
#define GP_INSERT_DECAY_H

#include "client/insert.h"
#include "common/graph/decay.h"

/* Gives a set `decay` that works on so many features, or positions, the rank that it begins with; a settled one becomes a
 * set `linear` of the rank that it has come to. */
void gp_insert_settle_decay(struct gp_insert_set *set, int64_t most);
/* The weights that come are those behind so many steps: from gp_insert on these sets have that rank. */
void gp_insert_settle(struct gp_insert_spec *spec, uint64_t steps);
/* What engines have to follow, behind gp_insert. */
void gp_insertion_decays(const struct gp_insertion *ins, struct gp_decays *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of a split engine that a broken link has left half-done, taken back.
 * The next one begins with the same parameters, running statistics and codec
 * state as it did. Test: tests/unit/test_engine.c
 */
#include "client/engine_split.h"

void gp_split_undo(struct split_engine *e)
{
	gp_require(e->compute.pending == 0);
	for (int i = 0; i < e->base.spec.session.window; i++)
		e->slot[i].state = SLOT_FREE;
	for (int d = 0; d < DIRECTIONS; d++)
		gp_direction_undo(&e->dir[d], e->step);
	e->device->ops->step_undo(e->head_plan);
	e->device->ops->step_undo(e->tail_plan);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A body whose link breaks and comes back. See body.h; PROTOCOL.md section 5.6.
 * Test: tests/unit/test_body.c
 */
#include "server/body_impl.h"

void gp_body_account_directions(struct gp_body *b)
{
	struct gp_account *account = gp_channel_account_mut(b->ch);
	for (int d = 0; d < DIRECTIONS; d++) {
		struct gp_dir_account *way = d == ACT_UP || d == GRAD_UP ? &account->received : &account->sent;
		if (b->dir[d].codec)
			b->dir[d].account = &way->kind[b->dir[d].type];
	}
}

void gp_body_detach(struct gp_body *b)
{
	gp_require(b->ready);
	for (int d = 0; d < DIRECTIONS; d++)
		gp_direction_cancel(&b->dir[d]);
	b->fetching = false;
	b->ch = NULL;
}

enum gp_status gp_body_broken(const struct gp_body *b, struct gp_err *err)
{
	if (b->broken != GP_OK)
		*err = b->broken_err;
	return b->broken;
}

void gp_body_undo(struct gp_body *b)
{
	gp_require(b->spec.session.undo && !gp_body_busy(b));
	for (int i = 0; i < b->spec.session.window; i++)
		b->slot[i].state = SLOT_EMPTY;
	b->begun = b->grads_begun = b->done = b->backwards = 0;
	b->eval_in_flight = 0;
	b->measured = false;
	for (int d = 0; d < DIRECTIONS; d++)
		gp_direction_undo(&b->dir[d], b->step);
	b->dev->ops->step_undo(b->plan);
}

static bool frames_are_back(const struct gp_body *b)
{
	for (int d = 0; d < DIRECTIONS; d++)
		for (int i = 0; i < b->dir[d].slots; i++)
			if (b->dir[d].slot[i].with_channel)
				return false;
	return true;
}

void gp_body_attach(struct gp_body *b, struct gp_channel *ch)
{
	gp_require(!b->ch && !gp_body_busy(b) && frames_are_back(b));
	b->ch = ch;
	gp_body_account_directions(b);
}

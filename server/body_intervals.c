/* SPDX-License-Identifier: Apache-2.0
 *
 * See body_intervals.h. Test: tests/unit/test_body.c, tests/e2e/trace.sh
 */
#include "server/body_intervals.h"

void gp_body_tell_intervals(struct gp_body *b)
{
	struct gp_body_intervals *all = &b->intervals;
	const int count = all->count;
	all->count = 0;
	if (b->ch && !b->stopping && count > 0)
		b->cbs.intervals(b->arg, b->step, (uint32_t)b->spec.session.chunks, all->item, count);
}

static void note(struct gp_body *b, const struct gp_interval *interval)
{
	struct gp_body_intervals *all = &b->intervals;
	if (!b->spec.intervals)
		return;
	if (all->count == GP_INTERVALS_MAX)
		gp_body_tell_intervals(b);
	all->item[all->count++] = *interval;
}

static struct gp_interval of_task(enum gp_interval_stage stage, const struct gp_task *t)
{
	return (struct gp_interval){
		.stage = stage, .queued_ns = t->queued_ns, .begin_ns = t->start_ns, .end_ns = t->end_ns};
}

void gp_body_note_task(struct gp_body *b, enum gp_interval_stage stage, const struct body_slot *s,
		       const struct gp_task *t)
{
	struct gp_interval i = of_task(stage, t);
	i.number = s->number;
	if (!(s->flags & GP_FRAME_FLAG_EVAL))
		note(b, &i);
}

static bool trains(const struct gp_transfer *t)
{
	return !(t->frame.head.flags & GP_FRAME_FLAG_EVAL);
}

static struct gp_interval of_transfer(const struct gp_body *b, enum gp_interval_stage stage,
				      const struct gp_transfer *t)
{
	struct gp_interval i = of_task(stage, &t->task);
	i.tensor = (uint16_t)t->flow->tensor;
	i.number = t->frame.head.step * (uint64_t)b->spec.session.chunks + t->frame.head.chunk;
	return i;
}

void gp_body_note_decoded(struct gp_body *b, const struct gp_transfer *t)
{
	const bool act = t->flow->direction == GP_ACT_UP;
	if (!trains(t))
		return;
	struct gp_interval i = of_transfer(b, act ? GP_AT_ACT_UP_RECEIVED : GP_AT_GRAD_UP_RECEIVED, t);
	i.queued_ns = i.begin_ns = t->frame.first_ns;
	i.end_ns = t->frame.last_ns;
	note(b, &i);
	i = of_transfer(b, act ? GP_AT_ACT_UP_DECODE : GP_AT_GRAD_UP_DECODE, t);
	note(b, &i);
}

void gp_body_note_encoded(struct gp_body *b, const struct gp_transfer *t)
{
	const bool act = t->flow->direction == GP_ACT_DOWN;
	const struct gp_interval i = of_transfer(b, act ? GP_AT_ACT_DOWN_ENCODE : GP_AT_GRAD_DOWN_ENCODE, t);
	if (trains(t))
		note(b, &i);
}

/* A frame that comes back without having been sent has no times. */
void gp_body_note_sent(struct gp_body *b, const struct gp_transfer *t)
{
	const bool act = t->flow->direction == GP_ACT_DOWN;
	struct gp_interval i = of_transfer(b, act ? GP_AT_ACT_DOWN_SENT : GP_AT_GRAD_DOWN_SENT, t);
	i.queued_ns = t->frame.queued_ns;
	i.begin_ns = t->frame.first_ns;
	i.end_ns = t->frame.last_ns;
	if (trains(t) && i.end_ns > 0)
		note(b, &i);
}

void gp_body_note_step(struct gp_body *b, enum gp_interval_stage stage, const struct gp_task *t)
{
	struct gp_interval i = of_task(stage, t);
	i.number = (b->step - 1) * (uint64_t)b->spec.session.chunks;
	note(b, &i);
}

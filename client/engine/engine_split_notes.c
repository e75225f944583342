/* SPDX-License-Identifier: Apache-2.0
 *
 * Split training: when its stages were, for the timeline (timeline.h). Chunks of evaluations are not noted.
 * Test: tests/unit/test_timeline.c, tests/e2e/trace.sh
 */
#include "client/engine/engine_split.h"

static struct gp_interval of_task(enum gp_interval_stage stage, uint64_t number, const struct gp_task *t)
{
	return (struct gp_interval){.stage = stage,
				    .number = number,
				    .queued_ns = t->queued_ns,
				    .begin_ns = t->start_ns,
				    .end_ns = t->end_ns};
}

void gp_split_note_task(struct split_slot *s, enum gp_interval_stage stage)
{
	const struct gp_interval i = of_task(stage, s->number, &s->compute);
	if (s->e->train)
		gp_timeline_note(s->e->base.timeline, &i);
}

/* The tail, and within it its forward, the loss and its backward. */
void gp_split_note_tail(struct split_slot *s)
{
	struct gp_timeline *t = s->e->base.timeline;
	const struct gp_task *task = &s->compute;
	if (!s->e->train)
		return;
	gp_split_note_task(s, GP_AT_TAIL);
	gp_timeline_note_times(t, GP_AT_TAIL_FORWARD, s->number, task->start_ns, s->forwarded_ns);
	gp_timeline_note_times(t, GP_AT_LOSS, s->number, s->forwarded_ns, s->lost_ns);
	gp_timeline_note_times(t, GP_AT_TAIL_BACKWARD, s->number, s->lost_ns, task->end_ns);
}

static const struct {
	enum gp_interval_stage coded, crossed;
} stages[GP_DIRECTIONS] = {
	[GP_ACT_UP] = {GP_AT_ACT_UP_ENCODE, GP_AT_ACT_UP_SENT},
	[GP_ACT_DOWN] = {GP_AT_ACT_DOWN_DECODE, GP_AT_ACT_DOWN_RECEIVED},
	[GP_GRAD_UP] = {GP_AT_GRAD_UP_ENCODE, GP_AT_GRAD_UP_SENT},
	[GP_GRAD_DOWN] = {GP_AT_GRAD_DOWN_DECODE, GP_AT_GRAD_DOWN_RECEIVED},
};

static uint64_t number_of(const struct split_engine *e, const struct gp_frame_head *head)
{
	return head->step * (uint64_t)e->base.spec.session.chunks + head->chunk;
}

static void note_transfer(struct split_engine *e, const struct gp_transfer *t, struct gp_interval *i)
{
	i->tensor = (uint16_t)t->flow->tensor;
	i->bytes = t->frame.head.payload_len;
	if (!(t->frame.head.flags & GP_FRAME_FLAG_EVAL))
		gp_timeline_note(e->base.timeline, i);
}

/* A frame that comes back without having been sent has no times. */
void gp_split_note_crossed(struct split_engine *e, const struct gp_transfer *t)
{
	const struct gp_frame *f = &t->frame;
	struct gp_interval i = {.stage = stages[t->flow->direction].crossed,
				.number = number_of(e, &f->head),
				.queued_ns = f->queued_ns ? f->queued_ns : f->first_ns,
				.begin_ns = f->first_ns,
				.end_ns = f->last_ns};
	if (f->last_ns > 0)
		note_transfer(e, t, &i);
}

void gp_split_note_coded(struct split_engine *e, const struct gp_transfer *t)
{
	struct gp_interval i = of_task(stages[t->flow->direction].coded, number_of(e, &t->frame.head), &t->task);
	note_transfer(e, t, &i);
}

void gp_split_note_step(struct split_engine *e, enum gp_interval_stage stage, uint64_t step, const struct gp_task *t)
{
	const struct gp_interval i = of_task(stage, step * (uint64_t)e->base.spec.session.chunks, t);
	gp_timeline_note(e->base.timeline, &i);
}

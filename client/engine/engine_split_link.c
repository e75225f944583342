/* SPDX-License-Identifier: Apache-2.0
 *
 * Split training when the link breaks (PROTOCOL.md section 5.6): a training step
 * comes to rest where it is, and over the next link each end sends again what the
 * other has not got whole, from the frames that lie in the slots. Where the server
 * does not know of that, or has lost its place, the step is undone
 * (gp_split_undo) and begun again, from the same batch. Of an evaluation nothing
 * is undone.
 *
 * Threads: see engine_split.h. Tests: tests/unit/test_resume.c, tests/unit/test_resume_places.c
 */
#include "client/engine/engine_split.h"

#include <stdio.h>
#include <string.h>
#include "common/base/loop.h"

#define CALIBRATIONS_LOST_MOST 3

void gp_split_resend(struct split_engine *e, uint64_t answered_chunks)
{
	const uint64_t slots = (uint64_t)e->base.spec.session.window, window = (uint64_t)e->session.window;
	while (e->again < e->again_end && e->again - answered_chunks < window)
		gp_split_send_again(&e->slot[e->again++ % slots]);
}

void gp_split_undo(struct split_engine *e)
{
	gp_require(e->compute.pending == 0);
	for (int i = 0; i < e->base.spec.session.window; i++)
		e->slot[i].state = SLOT_FREE;
	gp_flows_undo(&e->flows, e->step);
	e->device->ops->step_undo(e->head_plan);
	e->device->ops->step_undo(e->tail_plan);
	gp_tie_undo(&e->tie);
}

/* Chunks whose answer had come in part, or was damaged, wait for all of it again, and so do those behind them. */
static void forget_partial_answers(struct split_engine *e)
{
	uint64_t due = e->next;
	for (int i = 0; i < e->base.spec.session.window; i++) {
		struct split_slot *s = &e->slot[i];
		if (s->state == SLOT_TAIL)
			s->state = SLOT_WAIT_ACT;
		if (s->state == SLOT_WAIT_ACT && s->number < due)
			due = s->number;
	}
	for (int i = 0; i < GP_GRAPH_MAX_PORTS; i++)
		e->next_act[i] = due;
}

/* In an evaluation what has come whole goes on to its end, in which it leaves its slot. */
static void link_lost(void *arg)
{
	struct split_engine *e = arg;
	while (e->compute.pending + gp_flows_pending(&e->flows) > 0)
		gp_loop_turn(&e->loop);
	gp_flows_forget_damage(&e->flows);
	e->in_place = e->train && e->session.keeps_place;
	if (e->in_place)
		return;
	if (e->train) {
		gp_split_undo(e);
		gp_split_reset_chunks(e, gp_split_first_of_step(e));
	} else {
		forget_partial_answers(e);
	}
	e->state_hash = gp_flows_state_hash(&e->flows);
}

static bool where_we_are(void *arg, struct gp_place *out, int *up, int *down)
{
	const struct split_engine *e = arg;
	if (!e->in_place)
		return false;
	*out = (struct gp_place){.squares = e->body_squares};
	memcpy(out->act, e->next_act, sizeof out->act);
	memcpy(out->grad, e->next_grad, sizeof out->grad);
	*up = e->flows.tensors[GP_ACT_UP];
	*down = e->flows.tensors[GP_ACT_DOWN];
	return true;
}

void gp_split_begin_at_step(struct split_engine *e)
{
	gp_flows_begin_at(&e->flows, e->step);
	if (e->train) /* chunks of an evaluation go on */
		gp_split_reset_chunks(e, gp_split_first_of_step(e));
	e->in_place = false;
}

/* Sends what the server lacks, as it was encoded; codecs that remember are not asked again. */
static void go_on_in_place(struct split_engine *e, const struct gp_place *server)
{
	const uint64_t first = gp_split_first_of_step(e);
	struct gp_err err;
	e->in_place = false;
	enum gp_status status = gp_flows_check_due(&e->flows, GP_ACT_UP, server->act, first, &err);
	if (status == GP_OK)
		status = gp_flows_check_due(&e->flows, GP_GRAD_UP, server->grad, first, &err);
	if (status != GP_OK) {
		gp_client_session_fail(&e->session, status, err.text);
		return;
	}
	gp_flows_send_again(&e->flows, GP_ACT_UP, server->act, e->session.id, e->session.ch);
	gp_flows_send_again(&e->flows, GP_GRAD_UP, server->grad, e->session.id, e->session.ch);
	gp_split_pump(e);
}

/* A server that is lost again and again before it comes any further would be asked without end. */
static bool calibration_comes_further(struct split_engine *e)
{
	char text[GP_ERR_TEXT];
	e->calibrations_lost = e->done > e->calibrated_most ? 0 : e->calibrations_lost + 1;
	e->calibrated_most = e->done > e->calibrated_most ? e->done : e->calibrated_most;
	if (e->calibrations_lost < CALIBRATIONS_LOST_MOST)
		return true;
	snprintf(text, sizeof text,
		 "server %s has lost this session %d times without coming further than chunk %llu of taking running "
		 "statistics anew; all of it has to be done in one session",
		 gp_client_session_server(&e->session), e->calibrations_lost + 1,
		 (unsigned long long)e->calibrated_most);
	gp_client_session_fail(&e->session, GP_PEER, text);
	return false;
}

/* The server begins anew with the weights that it was given, and has no statistics of the pass under way: nothing waits for its
 * chunks any more, and gp_split_calibrate begins with the first one. */
static void begin_calibration_anew(struct split_engine *e)
{
	if (!calibration_comes_further(e))
		return;
	for (int i = 0; i < e->base.spec.session.window; i++)
		e->slot[i].state = SLOT_FREE;
	e->calibrates_anew = e->forwards_idle = e->pass_idle = true;
}

/* What it is asked for now are the weights without them. */
static void lose_calibration(struct split_engine *e)
{
	char text[GP_ERR_TEXT];
	snprintf(text, sizeof text,
		 "server %s has lost this session, and with it the running statistics that were taken anew: run the "
		 "command again",
		 gp_client_session_server(&e->session));
	gp_client_session_fail(&e->session, GP_PEER, text);
}

static void link_renewed(void *arg)
{
	struct split_engine *e = arg;
	if (!e->in_place)
		return;
	gp_split_undo(e);
	gp_split_begin_at_step(e);
	e->state_hash = gp_flows_state_hash(&e->flows);
}

static void link_resumed(void *arg, const struct gp_place *server, bool renewed)
{
	struct split_engine *e = arg;
	if (renewed && e->calibrated && e->session.fetch_into) {
		lose_calibration(e);
		return;
	}
	if (renewed && !e->train && e->calibrates && !e->pass_idle) {
		begin_calibration_anew(e);
		return;
	}
	if (e->in_place && !server) { /* the server has begun anew, too */
		gp_split_undo(e);
		gp_split_begin_at_step(e);
	}
	if (server) {
		go_on_in_place(e, server);
	} else if (!e->train) {
		e->again = e->next_act[0];
		e->again_end = e->next;
		gp_split_resend(e, e->again);
	} else if (e->stepping) {
		gp_split_begin_anew(e);
		if (e->following)
			gp_split_set_batch(e, 1, e->following, e->batch[0].end);
		gp_split_pump(e);
	}
}

static uint64_t state_hash(void *arg)
{
	return ((struct split_engine *)arg)->state_hash;
}

const struct gp_client_frames gp_split_frames = {.frame_begin = gp_split_frame_begin,
						 .frame = gp_split_frame,
						 .sent = gp_split_frame_sent,
						 .grad_squares = gp_split_squares_arrived,
						 .chunk_done = gp_split_server_done,
						 .frame_lost = gp_split_frame_lost,
						 .lost = link_lost,
						 .place = where_we_are,
						 .renewed = link_renewed,
						 .resumed = link_resumed,
						 .committed = gp_split_codecs_committed,
						 .checkpointed = gp_split_checkpointed,
						 .state_hash = state_hash};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames for a body: which are expected, the slot that a chunk takes, and what becomes of their tensors. PROTOCOL.md sections
 * 4.3 and 5.3. See body.c. Test: tests/unit/test_body.c, tests/unit/test_server.c
 */
#include "server/body_impl.h"
#include "server/body_intervals.h"

/* Where the next step's activations may come while this step is under way. */
static uint64_t last_step(const struct gp_body *b)
{
	return b->step + b->ahead;
}

static enum gp_status check_step(const struct gp_body *b, const struct gp_frame_head *head, uint64_t last,
				 struct gp_err *err)
{
	if (head->step < b->step || head->step > last)
		GP_FAIL(err, GP_PROTO, "%s of step %llu, but %llu is under way", gp_frame_type_name(head->type),
			(unsigned long long)head->step, (unsigned long long)b->step);
	return GP_OK;
}

static enum gp_status check_train(const struct gp_body *b, const struct gp_frame_head *head, struct gp_err *err)
{
	GP_TRY(check_step(b, head, last_step(b), err));
	const uint64_t number = gp_body_chunk_number(b, head), due = b->next_act[head->tensor];
	if (b->spec.session.eval_only || b->eval_in_flight > 0 || head->chunk >= (uint32_t)b->spec.session.chunks ||
	    number != due)
		GP_FAIL(err, GP_PROTO,
			"act_up of step %llu chunk %u is not expected (next is step %llu chunk %u of %d)",
			(unsigned long long)head->step, head->chunk,
			(unsigned long long)(due / (uint64_t)b->spec.session.chunks),
			(unsigned)(due % (uint64_t)b->spec.session.chunks), b->spec.session.chunks);
	return GP_OK;
}

static enum gp_status check_eval(const struct gp_body *b, const struct gp_frame_head *head, struct gp_err *err)
{
	GP_TRY(check_step(b, head, b->step, err));
	if (b->begun > gp_body_first_of_step(b))
		GP_FAIL(err, GP_PROTO, "evaluation inside a training step");
	return GP_OK;
}

/* Statistics are added up in the order of the chunks. Those without an answer come again after a broken link. */
static enum gp_status check_calibration(const struct gp_body *b, const struct gp_frame_head *head, struct gp_err *err)
{
	if (!b->spec.session.calibrates)
		GP_FAIL(err, GP_PROTO, "a frame with CALIBRATE in a session whose OPEN has not asked for it");
	if (head->chunk > b->next_calibrating)
		GP_FAIL(err, GP_PROTO, "act_up of chunk %u with CALIBRATE is not expected (next is %u)", head->chunk,
			b->next_calibrating);
	return GP_OK;
}

static bool rows_come(const struct gp_body *b)
{
	for (int i = 0; i < b->flows.tensors[GP_ACT_UP]; i++)
		if (b->flows.flow[GP_ACT_UP][i].codec && b->flows.flow[GP_ACT_UP][i].leaves_out)
			return true;
	return false;
}

static void begin_rows(struct gp_body *b, struct body_slot *s)
{
	const uint32_t rows = rows_come(b) ? 0 : s->length;
	for (int n = 0; s->length > 0 && n < b->spec.session.chunk_samples; n++)
		s->rows[n] = rows;
}

/* The first tensor of a chunk takes its slot. */
static enum gp_status take_slot(struct gp_body *b, const struct gp_frame_head *head, struct body_slot *s,
				struct gp_err *err)
{
	const bool eval = head->flags & GP_FRAME_FLAG_EVAL;
	if (s->state != SLOT_EMPTY)
		GP_FAIL(err, GP_PROTO, "act_up of chunk %u: more than %d chunks in flight", head->chunk,
			b->spec.session.window);
	s->state = SLOT_ARRIVING;
	s->step = head->step;
	s->chunk = head->chunk;
	s->number = gp_body_chunk_number(b, head);
	s->flags = head->flags;
	s->length = head->length;
	begin_rows(b, s);
	s->arrived = 0;
	s->pending = b->flows.used[GP_ACT_UP];
	if (eval)
		b->eval_in_flight++;
	else
		b->begun = s->number + 1;
	if (!eval || (head->flags & GP_FRAME_FLAG_CALIBRATE && head->chunk == 0))
		b->next_calibrating = 0;
	if (head->flags & GP_FRAME_FLAG_CALIBRATE && head->chunk == b->next_calibrating)
		b->next_calibrating++;
	return GP_OK;
}

static bool is_in_slot(const struct body_slot *s, enum body_slot_state state, const struct gp_frame_head *head)
{
	return s->state == state && s->step == head->step && s->chunk == head->chunk && s->flags == head->flags;
}

/* All tensors of a chunk have its length, gradients, too. */
static enum gp_status check_length(const struct body_slot *s, const struct gp_frame_head *head, struct gp_err *err)
{
	if (head->length != s->length)
		GP_FAIL(err, GP_PROTO, "%s of chunk %u, tensor %u, has %u positions, but the chunk has %u (0: all)",
			gp_frame_type_name(head->type), head->chunk, head->tensor, head->length, s->length);
	return GP_OK;
}

/* No tensor of a chunk may come twice. */
static enum gp_status take_tensor(struct body_slot *s, const struct gp_frame_head *head, struct gp_err *err)
{
	const uint64_t bit = (uint64_t)1 << head->tensor;
	if (s->arrived & bit)
		GP_FAIL(err, GP_PROTO, "%s of chunk %u, tensor %u, comes twice", gp_frame_type_name(head->type),
			head->chunk, head->tensor);
	s->arrived |= bit;
	return GP_OK;
}

static enum gp_status act_begin(struct gp_body *b, const struct gp_frame_head *head, struct body_slot *s,
				struct gp_err *err)
{
	const bool eval = head->flags & GP_FRAME_FLAG_EVAL;
	if (b->fetching)
		GP_FAIL(err, GP_PROTO, "act_up while parameters are fetched");
	GP_TRY(eval ? check_eval(b, head, err) : check_train(b, head, err));
	if (head->flags & GP_FRAME_FLAG_CALIBRATE)
		GP_TRY(check_calibration(b, head, err));
	if (!is_in_slot(s, SLOT_ARRIVING, head))
		GP_TRY(take_slot(b, head, s, err));
	GP_TRY(check_length(s, head, err));
	GP_TRY(take_tensor(s, head, err));
	if (!eval)
		b->next_act[head->tensor]++;
	return GP_OK;
}

/* In chunk order, so that gradients add up in the same order as in a local run. */
static enum gp_status grad_begin(struct gp_body *b, const struct gp_frame_head *head, struct body_slot *s,
				 struct gp_err *err)
{
	GP_TRY(check_step(b, head, b->step, err));
	const uint64_t due = b->next_grad[head->tensor];
	const bool first = is_in_slot(s, SLOT_WAITING, head);
	if ((!first && !is_in_slot(s, SLOT_BACKWARD, head)) || s->number != due)
		GP_FAIL(err, GP_PROTO, "grad_up of chunk %u is not expected (next is %u)", head->chunk,
			(unsigned)(due - gp_body_first_of_step(b)));
	GP_TRY(check_length(s, head, err));
	if (first) {
		s->state = SLOT_BACKWARD;
		s->arrived = 0;
		s->pending = b->flows.used[GP_GRAD_UP];
	}
	GP_TRY(take_tensor(s, head, err));
	b->next_grad[head->tensor]++;
	return GP_OK;
}

/* An evaluation counts its chunks anew, and they may be more than fit into a step. */
static int slot_of(const struct gp_body *b, const struct gp_frame_head *head)
{
	const uint64_t number = head->flags & GP_FRAME_FLAG_EVAL ? head->chunk : gp_body_chunk_number(b, head);
	return (int)(number % (uint64_t)b->spec.session.window);
}

enum gp_status gp_body_frame_begin(struct gp_body *b, const struct gp_frame_head *head, struct gp_frame **out,
				   struct gp_err *err)
{
	struct gp_transfer *t;
	if (b->changing)
		GP_FAIL(err, GP_PROTO, "%s came before COMMITTED of a step that changes ranks or codecs",
			gp_frame_type_name(head->type));
	if (head->type == GP_FRAME_PARAM_UP)
		return gp_body_param_begin(b, head, out, err);
	const int slot = slot_of(b, head);
	GP_TRY(gp_flows_take(&b->flows, head, slot, &t, err));
	if (head->type == GP_FRAME_ACT_UP)
		GP_TRY(act_begin(b, head, &b->slot[slot], err));
	else
		GP_TRY(grad_begin(b, head, &b->slot[slot], err));
	*out = &t->frame;
	return GP_OK;
}

void gp_body_frame(struct gp_body *b, struct gp_frame *f)
{
	if (f->head.type == GP_FRAME_PARAM_UP) {
		gp_body_param_arrived(b);
		return;
	}
	struct gp_transfer *t = gp_transfer_of(f);
	const bool act = f->head.type == GP_FRAME_ACT_UP;
	void *tensor = b->dev->ops->buffer(b->plan, t->slot, act ? GP_BUF_INPUT : GP_BUF_GRAD_OUTPUT, t->flow->tensor);
	gp_transfer_decode(t, tensor, act ? gp_body_act_decoded : gp_body_grad_decoded);
}

void gp_body_frame_lost(struct gp_body *b, const struct gp_frame *f)
{
	const struct gp_frame_head *head = &f->head;
	const bool act = head->type == GP_FRAME_ACT_UP;
	if (act && head->flags & GP_FRAME_FLAG_CALIBRATE && head->chunk < b->next_calibrating)
		b->next_calibrating =
			head->chunk; /* it was not computed, so that those behind it are not to come before it */
	if ((!act && head->type != GP_FRAME_GRAD_UP) || (head->flags & GP_FRAME_FLAG_EVAL))
		return;
	gp_place_lose(&(act ? b->next_act : b->next_grad)[head->tensor], gp_body_chunk_number(b, head));
	b->slot[slot_of(b, head)].arrived &= ~((uint64_t)1 << head->tensor);
}

void gp_body_frame_sent(struct gp_body *b, struct gp_frame *f)
{
	if (f == &b->param_out) {
		gp_body_param_sent(b);
		return;
	}
	gp_body_note_sent(b, gp_transfer_of(f));
	gp_transfer_sent(gp_transfer_of(f));
}

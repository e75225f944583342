/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_predict.h. Test: tests/unit/test_plan_measure.c
 */
#include "client/plan/plan_predict.h"

#include <math.h>

#include "client/session/client_session.h"
#include "client/engine/crossing.h"
#include "client/session/chunk_window.h"

#define COMMIT_BYTES    96.0  /* COMMIT, or COMMITTED, with its head */
#define INTERVALS_BYTES 256.0 /* of a chunk: the server tells what it did when */
#define COPY_BYTES_S    4e9   /* data that no codec touches is copied, at both ends */

static struct gp_session_spec session_of(const struct gp_plan_world *w, const struct gp_plan_choice *c)
{
	struct gp_session_spec s = w->session;
	s.chunk_samples = c->chunk_samples;
	s.chunks = c->chunks;
	s.window = 1;
	s.lengths = false;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		s.codec[d] = c->codec[d];
	return s;
}

/* --- what crosses ------------------------------------------------------------------------------------------------- */

static enum gp_status add_coded(const struct gp_plan_coding *coding, enum gp_direction d, double elements,
				struct gp_plan_flow *flow, double *payload, struct gp_err *err)
{
	if (!coding || !coding->fits || coding->elements <= 0)
		GP_FAIL(err, GP_INVALID, "%s: %s", gp_direction_info[d].name,
			coding && coding->why[0] ? coding->why : "no codec was measured there");
	const double part = elements / coding->elements;
	*payload = ceil(coding->payload_bytes * part);
	flow->encode_s += coding->encode_s * part;
	flow->decode_s += coding->decode_s * part;
	return GP_OK;
}

/* The shape of a whole chunk: the list is of one sample. */
static struct gp_shape chunk_shape(const struct gp_plan_choice *c, const struct gp_flow_spec *f)
{
	struct gp_shape shape = f->type.shape;
	shape.dim[0] *= c->chunk_samples;
	return shape;
}

static enum gp_status add_flow(const struct gp_plan_choice *c, const struct gp_flow_list *list,
			       const struct gp_flow_spec *f, struct gp_prediction *p, struct gp_err *err)
{
	struct gp_plan_flow *flow = &p->schedule.flow[f->direction];
	const double elements = (double)gp_shape_elements(&f->type.shape) * c->chunk_samples;
	const double bytes = elements * (double)gp_dtype_bytes(f->type.dtype);
	double payload = bytes;
	if (f->codec == &list->raw) {
		flow->encode_s += bytes / COPY_BYTES_S;
		flow->decode_s += bytes / COPY_BYTES_S;
	} else {
		GP_TRY(add_coded(c->coding[f->direction], f->direction, elements, flow, &payload, err));
		p->rel_err = fmax(p->rel_err, c->coding[f->direction]->rel_err);
	}
	flow->crosses = true;
	flow->wire_bytes += (double)gp_frame_wire_bytes((uint64_t)payload, GP_SEGMENT_BYTES_SERVED);
	p->payload_bytes[f->direction] += payload * c->chunks;
	p->tensor_bytes[f->direction] += bytes * c->chunks;
	return GP_OK;
}

static void sum_wire(struct gp_prediction *p)
{
	const struct gp_plan_schedule *s = &p->schedule;
	p->wire_up_bytes = p->wire_down_bytes = COMMIT_BYTES;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		*(gp_direction_info[d].up ? &p->wire_up_bytes : &p->wire_down_bytes) +=
			s->flow[d].wire_bytes * s->chunks;
	p->wire_down_bytes += INTERVALS_BYTES * s->chunks;
}

/* As `train` chooses where nobody says it: by the longest frames that there may be, in the way that carries more. */
static int window_of(const struct gp_plan_world *w, const struct gp_plan_choice *c, const struct gp_flow_list *list)
{
	uint64_t most[2] = {0};
	const int first = c->chunks < GP_WINDOW_FIRST ? c->chunks : GP_WINDOW_FIRST;
	if (c->window > 0)
		return c->window < c->chunks ? c->window : c->chunks;
	for (int i = 0; i < list->count; i++) {
		const struct gp_flow_spec *f = &list->flow[i];
		const struct gp_codec_spec *codec = f->codec == &list->raw ? f->codec : &c->codec[f->direction];
		const struct gp_shape shape = chunk_shape(c, f);
		struct gp_err ignored;
		uint64_t bound = 0;
		if (gp_codec_bound_for(codec, &shape, &bound, &ignored) == GP_OK)
			most[gp_direction_info[f->direction].up] += bound;
	}
	const uint64_t chunk = most[0] > most[1] ? most[0] : most[1];
	return gp_window_for(first, c->chunks, chunk > 0 ? chunk : 1, w->link.up.delay_s + w->link.down.delay_s);
}

/* --- computing ---------------------------------------------------------------------------------------------------- */

static void set_computing(const struct gp_plan_world *w, const struct gp_plan_choice *c,
			  const struct gp_crossing *cross, struct gp_plan_schedule *s)
{
	const struct gp_plan_blocks *b = c->blocks;
	const struct gp_plan_block head = gp_plan_blocks_sum(b, 0, c->cut.head),
				   body = gp_plan_blocks_sum(b, c->cut.head, c->cut.tail),
				   tail = gp_plan_blocks_sum(b, c->cut.tail, b->blocks);
	s->head_forward_s = head.forward_s;
	s->head_backward_s = cross->head_backward ? head.backward_s : 0;
	s->tail_s = tail.forward_s + b->loss_s + tail.backward_s;
	s->body_forward_s = body.forward_s / w->server.forward;
	s->body_backward_s = body.backward_s / w->server.backward;
	s->update_s = head.update_s + tail.update_s;
	s->body_update_s = body.update_s / w->server.update;
	s->ahead = !cross->head_backward && cross->parts.head->trained_elements == 0;
	s->clips = w->session.optim.clip_norm > 0;
	s->load_s = w->load_s;
}

static void set_ends(const struct gp_plan_world *w, struct gp_plan_schedule *s)
{
	s->up = w->link.up;
	s->down = w->link.down;
	s->same_machine = w->same_machine;
	s->end[GP_PLAN_CLIENT] = (struct gp_plan_side){
		.processors = w->processors, .threads = w->threads, .codec_threads = 1, .byte_s = w->link.byte_s};
	s->end[GP_PLAN_SERVER] = (struct gp_plan_side){.processors = w->server_processors,
						       .threads = w->server_threads,
						       .codec_threads = w->server_codec_threads,
						       .byte_s = w->link.byte_s};
	for (int d = 0; d < GP_DIRECTIONS; d++)
		*(gp_direction_info[d].up ? &s->flow[d].decode_s : &s->flow[d].encode_s) /= w->server.codec;
}

static enum gp_status predict(const struct gp_plan_world *w, const struct gp_plan_choice *c,
			      const struct gp_crossing *cross, struct gp_prediction *p, struct gp_err *err)
{
	p->schedule.chunks = c->chunks;
	for (int i = 0; i < cross->list.count; i++)
		GP_TRY(add_flow(c, &cross->list, &cross->list.flow[i], p, err));
	p->window = p->schedule.window = window_of(w, c, &cross->list);
	set_computing(w, c, cross, &p->schedule);
	set_ends(w, &p->schedule);
	sum_wire(p);
	return gp_plan_schedule_find(&p->schedule, &p->time, err);
}

enum gp_status gp_plan_cross(const struct gp_plan_world *w, const struct gp_cut *cut, struct gp_crossing **out,
			     struct gp_err *err)
{
	struct gp_session_spec session = w->session;
	session.chunk_samples = session.chunks = session.window = 1;
	session.lengths = false;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		GP_TRY(gp_codec_spec_parse("raw", &session.codec[d], err));
	return gp_crossing_find(w->graph, cut, &session, out, err);
}

enum gp_status gp_plan_predict(const struct gp_plan_world *w, const struct gp_plan_choice *c, struct gp_prediction *out,
			       struct gp_err *err)
{
	struct gp_prediction p = {0};
	struct gp_crossing *own = NULL;
	if (!c->cross)
		GP_TRY(gp_plan_cross(w, &c->cut, &own, err));
	const enum gp_status status = predict(w, c, own ? own : c->cross, &p, err);
	gp_crossing_free(own);
	if (status == GP_OK)
		*out = p;
	return status;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static enum gp_status add_plan(const struct gp_plan_world *w, const struct gp_session_spec *s,
			       const struct gp_graph *part, uint64_t grad_inputs, uint64_t map_inputs, uint64_t *sum,
			       struct gp_err *err)
{
	struct gp_plan_spec ps = {.graph = part,
				  .batch = s->chunk_samples,
				  .slots = s->window,
				  .train = true,
				  .grad_inputs = grad_inputs,
				  .seed = s->seed,
				  .optim = s->optim,
				  .undo = true,
				  .recompute = s->recompute,
				  .maps = gp_session_maps(s),
				  .map_inputs = map_inputs,
				  .precision = s->precision};
	struct gp_plan_memory m;
	gp_session_coded(s, &ps);
	GP_TRY(w->device->ops->plan_estimate(w->device, &ps, &m, err));
	*sum += m.total;
	return GP_OK;
}

static enum gp_status add_flows(const struct gp_session_spec *s, const struct gp_flow_list *list, bool client,
				uint64_t *sum, struct gp_err *err)
{
	const struct gp_flow_options all = {
		.seed = s->seed, .slots = s->window, .chunks = (uint32_t)s->chunks, .undo = true, .client = client};
	uint64_t frames, codecs;
	GP_TRY(gp_flows_estimate(list, &all, &frames, &codecs, err));
	*sum += frames + codecs;
	return GP_OK;
}

static enum gp_status sum_memory(const struct gp_plan_world *w, const struct gp_session_spec *s,
				 const struct gp_crossing *cross, struct gp_prediction *p, struct gp_err *err)
{
	p->client_memory_bytes = 0;
	p->server_memory_bytes = gp_graph_bytes(cross->parts.body);
	const struct gp_graph_parts *part = &cross->parts;
	GP_TRY(add_plan(w, s, part->head, 0, 0, &p->client_memory_bytes, err));
	GP_TRY(add_plan(w, s, part->tail, cross->tail_gradients, part->tail_activation, &p->client_memory_bytes, err));
	GP_TRY(add_flows(s, &cross->list, true, &p->client_memory_bytes, err));
	GP_TRY(add_plan(w, s, part->body, cross->list.grad_inputs, part->body_activation, &p->server_memory_bytes,
			err));
	return add_flows(s, &cross->list, false, &p->server_memory_bytes, err);
}

enum gp_status gp_plan_predict_memory(const struct gp_plan_world *w, const struct gp_plan_choice *c,
				      struct gp_prediction *p, struct gp_err *err)
{
	struct gp_session_spec session = session_of(w, c);
	struct gp_crossing *cross;
	if (!w->device)
		return GP_OK;
	GP_TRY(gp_crossing_find(w->graph, &c->cut, &session, &cross, err));
	session.window = p->window;
	const enum gp_status status = sum_memory(w, &session, cross, p, err);
	gp_crossing_free(cross);
	return status;
}

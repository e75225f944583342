/* SPDX-License-Identifier: Apache-2.0
 *
 * All flows of a session. See flows.h. Test: tests/unit/test_flows.c
 */
#include "common/wire/flows.h"

#include <stdio.h>
#include <string.h>

#include "common/base/little_endian.h"

/* --- which flows there are -------------------------------------------------------------------------------------- */

/* By tensor of a cut. */
struct marks {
	uint64_t activation, gradient, sequence;
};

static void add_flow(struct gp_flow_list *list, const struct gp_session_spec *spec, enum gp_direction d, int tensor,
		     const struct gp_type *sample, const struct marks *m)
{
	const bool activation = m->activation >> tensor & 1, gradient = m->gradient >> tensor & 1;
	const bool sequence = m->sequence >> tensor & 1;
	list->flow[list->count++] = (struct gp_flow_spec){
		.direction = d,
		.tensor = tensor,
		.type = {sample->dtype, gp_shape_batched(&sample->shape, spec->chunk_samples)},
		.has_gradient = !gp_direction_info[d].gradient && gradient,
		.codec = activation ? &spec->codec[d] : &list->raw,
		.ladder = activation && spec->ladder[d].rungs > 0 ? &spec->ladder[d] : NULL,
		.survey_every = spec->survey_every,
		.positions = sequence ? list->positions : 0,
		.leaves_out = sequence && activation && list->positions > 0,
		.row_positions = sequence && activation ? list->sequence : 0,
	};
}

static uint64_t mark_outputs(const struct gp_graph *g, const bool *has)
{
	uint64_t marks = 0;
	for (int i = 0; i < g->outputs; i++)
		marks |= (uint64_t)has[g->output[i].value] << i;
	return marks;
}

static uint64_t float_inputs(const struct gp_graph *g)
{
	uint64_t marks = 0;
	for (int i = 0; i < g->inputs; i++)
		marks |= (uint64_t)(g->value[i].type.dtype == GP_F32) << i;
	return marks;
}

/* The body's inputs as the masks have them, its outputs as they follow from those. */
static enum gp_status find_marks(const struct gp_graph *g, const struct gp_session_spec *spec, struct marks *in,
				 struct marks *out, struct gp_err *err)
{
	void *has;
	in->activation = float_inputs(g) & ~spec->data_inputs;
	in->gradient = !spec->eval_only ? float_inputs(g) & ~spec->frozen_inputs : 0;
	GP_TRY(gp_alloc_array(&has, (size_t)g->values, sizeof(bool), err));
	gp_graph_find_activations(g, in->activation, has);
	out->activation = mark_outputs(g, has);
	gp_graph_find_gradients(g, in->gradient, has);
	out->gradient = !spec->eval_only ? mark_outputs(g, has) : 0;
	gp_free(has);
	in->sequence = out->sequence = 0;
	for (int i = 0; i < g->inputs; i++)
		in->sequence |= (uint64_t)g->value[i].sequence << i;
	for (int i = 0; i < g->outputs; i++)
		out->sequence |= (uint64_t)g->value[g->output[i].value].sequence << i;
	return GP_OK;
}

static enum gp_status check_mask(const char *what, uint64_t mask, int inputs, struct gp_err *err)
{
	if (inputs < 64 && mask >> inputs)
		GP_FAIL(err, GP_INVALID, "%s 0x%llx names inputs that the body has not; it has %d", what,
			(unsigned long long)mask, inputs);
	return GP_OK;
}

/* Lengths that nobody can make use of are refused, so that none can come. */
static enum gp_status check_lengths(const struct gp_flow_list *list, struct gp_err *err)
{
	if (list->positions == 0)
		GP_FAIL(err, GP_INVALID,
			"lengths of chunks in a session whose body has no sequences, or needs all of them");
	for (int i = 0; i < list->count; i++) {
		const struct gp_flow_spec *f = &list->flow[i];
		if (f->positions > 0 && !gp_flow_takes_lengths(f))
			GP_FAIL(err, GP_INVALID,
				"codec %s of %s remembers tensors of one length: every chunk has to be padded to all "
				"%lld positions (--pad max)",
				f->codec->text, gp_direction_info[f->direction].name, (long long)list->positions);
	}
	return GP_OK;
}

enum gp_status gp_flow_list_find(const struct gp_graph *g, const struct gp_session_spec *spec, struct gp_flow_list *out,
				 struct gp_err *err)
{
	struct marks in, behind;
	GP_TRY(check_mask("data_inputs", spec->data_inputs, g->inputs, err));
	GP_TRY(check_mask("frozen_inputs", spec->frozen_inputs, g->inputs, err));
	GP_TRY(gp_codec_spec_parse("raw", &out->raw, err));
	GP_TRY(find_marks(g, spec, &in, &behind, err));
	out->count = 0;
	out->grad_inputs = in.gradient;
	out->grad_outputs = behind.gradient;
	out->sequence = gp_graph_sequence(g);
	out->positions = spec->lengths ? out->sequence : 0;
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const struct gp_direction_info *info = &gp_direction_info[d];
		const struct marks *m = info->at_input ? &in : &behind;
		const int tensors = info->at_input ? g->inputs : g->outputs;
		for (int i = 0; i < tensors; i++) {
			if (info->gradient && !(m->gradient >> i & 1))
				continue;
			add_flow(out, spec, (enum gp_direction)d, i,
				 info->at_input ? &g->value[i].type : gp_graph_output_type(g, i), m);
		}
	}
	return spec->lengths ? check_lengths(out, err) : GP_OK;
}

enum gp_status gp_flows_estimate(const struct gp_flow_list *list, const struct gp_flow_options *all, uint64_t *frames,
				 uint64_t *codecs, struct gp_err *err)
{
	uint64_t sum_frames = 0, sum_codecs = 0;
	for (int i = 0; i < list->count; i++) {
		uint64_t frame, codec;
		GP_TRY(gp_flow_estimate(&list->flow[i], all, &frame, &codec, err));
		if (!gp_add_ok(sum_frames, frame, &sum_frames) || !gp_add_ok(sum_codecs, codec, &sum_codecs))
			GP_FAIL(err, GP_INVALID, "frame buffers of %d chunks, and what codecs remember, overflow",
				all->slots);
	}
	*frames = sum_frames;
	*codecs = sum_codecs;
	return GP_OK;
}

/* --- life ------------------------------------------------------------------------------------------------------- */

static void count_tensors(struct gp_flows *f, const struct gp_flow_list *list)
{
	for (int i = 0; i < list->count; i++) {
		const struct gp_flow_spec *s = &list->flow[i];
		const int d = s->direction, partner = gp_direction_info[d].partner;
		if (f->tensors[d] < s->tensor + 1)
			f->tensors[d] = f->tensors[partner] = s->tensor + 1;
	}
}

/* Whose choice of elements a gradient's codec may reuse. The rungs of a ladder leave none. */
static const struct gp_flow *activation_of(const struct gp_flows *f, const struct gp_flow_spec *s)
{
	const struct gp_direction_info *info = &gp_direction_info[s->direction];
	if (!info->gradient || f->flow[info->partner][s->tensor].ladder)
		return NULL;
	return &f->flow[info->partner][s->tensor];
}

static enum gp_status init_each(struct gp_flows *f, const struct gp_flow_list *list, const struct gp_flow_options *all,
				struct gp_worker *worker, void *arg, struct gp_err *err)
{
	struct gp_flow_options options = *all;
	f->user.share = f->slow_user.share = all->share;
	options.user = &f->user;
	options.slow_user = &f->slow_user;
	for (int i = 0; i < list->count; i++) {
		const struct gp_flow_spec *s = &list->flow[i];
		GP_TRY(gp_flow_init(&f->flow[s->direction][s->tensor], s, &options, activation_of(f, s), worker, arg,
				    err));
		f->used[s->direction]++;
	}
	return GP_OK;
}

enum gp_status gp_flows_init(struct gp_flows *f, const struct gp_flow_list *list, const struct gp_flow_options *all,
			     struct gp_worker *worker, void *arg, struct gp_err *err)
{
	memset(f, 0, sizeof *f);
	f->positions = list->positions;
	count_tensors(f, list);
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		f->flow[d] = gp_calloc((size_t)f->tensors[d] + 1, sizeof *f->flow[d]);
		if (!f->flow[d]) {
			gp_flows_deinit(f);
			GP_FAIL(err, GP_NOMEM, "out of memory for %d tensors", f->tensors[d]);
		}
	}
	const enum gp_status status = init_each(f, list, all, worker, arg, err);
	if (status != GP_OK)
		gp_flows_deinit(f);
	return status;
}

static struct gp_flow *flow_of(const struct gp_flows *f, const struct gp_flow_spec *s)
{
	return &f->flow[s->direction][s->tensor];
}

static bool is_reshaped(const struct gp_flow *f, const struct gp_flow_spec *s)
{
	return f->tensor_bytes != gp_shape_elements(&s->type.shape) * gp_dtype_bytes(s->type.dtype) ||
	       strcmp(f->spec.text, s->codec->text) != 0;
}

/* Gradients last, and first to be closed: their codecs use those of their activations. */
enum gp_status gp_flows_reshape(struct gp_flows *f, const struct gp_flow_list *list, const struct gp_flow_options *all,
				struct gp_err *err)
{
	for (int i = list->count - 1; i >= 0; i--)
		if (is_reshaped(flow_of(f, &list->flow[i]), &list->flow[i]))
			gp_flow_close(flow_of(f, &list->flow[i]));
	for (int i = 0; i < list->count; i++) {
		const struct gp_flow_spec *s = &list->flow[i];
		if (!flow_of(f, s)->codec)
			GP_TRY(gp_flow_reopen(flow_of(f, s), s, all, activation_of(f, s), err));
	}
	return GP_OK;
}

/* Gradients first: their codecs use those of their activations. */
void gp_flows_deinit(struct gp_flows *f)
{
	for (int d = GP_DIRECTIONS - 1; d >= 0; d--) {
		for (int i = 0; f->flow[d] && i < f->tensors[d]; i++)
			if (f->flow[d][i].slots > 0)
				gp_flow_deinit(&f->flow[d][i]);
		gp_free(f->flow[d]);
	}
	memset(f, 0, sizeof *f);
}

/* --- all of them ------------------------------------------------------------------------------------------------ */

void gp_flows_each(struct gp_flows *f, void (*fn)(struct gp_flow *flow, void *arg), void *arg)
{
	for (int d = 0; d < GP_DIRECTIONS; d++)
		for (int i = 0; i < f->tensors[d]; i++)
			if (f->flow[d][i].slots > 0) /* its codec may be another thread's, in gp_flows_reshape */
				fn(&f->flow[d][i], arg);
}

int gp_flows_pending(const struct gp_flows *f)
{
	int pending = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		for (int i = 0; i < f->tensors[d]; i++)
			pending += f->flow[d][i].lane.pending;
	return pending;
}

uint64_t gp_flows_codec_ns(const struct gp_flows *f)
{
	return atomic_load(&f->user.total_ns) + atomic_load(&f->slow_user.total_ns);
}

static double pass_s(const struct gp_flow *f, uint64_t since_ns, uint64_t now_ns)
{
	const uint64_t running_ns = atomic_load(&f->running_ns), begin = running_ns > since_ns ? running_ns : since_ns;
	return running_ns > 0 && now_ns > begin ? (double)(now_ns - begin) * 1e-9 : 0.0;
}

double gp_flows_overrun_s(const struct gp_flows *f, double times, double limit_s, uint64_t since_ns, uint64_t now_ns,
			  const struct gp_flow **out)
{
	for (int d = 0; d < GP_DIRECTIONS; d++)
		for (int i = 0; i < f->tensors[d]; i++) {
			const struct gp_flow *flow = &f->flow[d][i];
			const double seconds = pass_s(flow, since_ns, now_ns);
			if (seconds <= limit_s || seconds <= times * (double)flow->work_ns * 1e-9)
				continue;
			*out = flow;
			return seconds;
		}
	return 0.0;
}

static void cancel_one(struct gp_flow *flow, void *arg)
{
	(void)arg;
	gp_flow_cancel(flow);
}

void gp_flows_cancel(struct gp_flows *f)
{
	gp_flows_each(f, cancel_one, NULL);
}

static void undo_one(struct gp_flow *flow, void *arg)
{
	gp_flow_undo(flow, *(const uint64_t *)arg);
}

void gp_flows_undo(struct gp_flows *f, uint64_t step)
{
	gp_flows_each(f, undo_one, &step);
}

static void begin_one_at(struct gp_flow *flow, void *arg)
{
	gp_flow_begin_at(flow, *(const uint64_t *)arg);
}

void gp_flows_begin_at(struct gp_flows *f, uint64_t step)
{
	gp_flows_each(f, begin_one_at, &step);
}

static void lose_account_of_one(struct gp_flow *flow, void *arg)
{
	(void)arg;
	gp_flow_lose_account(flow);
}

void gp_flows_lose_account(struct gp_flows *f)
{
	gp_flows_each(f, lose_account_of_one, NULL);
}

enum gp_status gp_flows_check_due(const struct gp_flows *f, enum gp_direction d, const uint64_t *due, uint64_t first,
				  struct gp_err *err)
{
	for (int i = 0; i < f->tensors[d]; i++)
		if (f->flow[d][i].codec)
			GP_TRY(gp_flow_check_due(&f->flow[d][i], due[i], first, err));
	return GP_OK;
}

void gp_flows_send_again(struct gp_flows *f, enum gp_direction d, const uint64_t *due, uint64_t session,
			 struct gp_channel *ch)
{
	for (int i = 0; i < f->tensors[d]; i++)
		if (f->flow[d][i].codec)
			gp_flow_send_again(&f->flow[d][i], due[i], session, ch);
}

static void forget_damage_of_one(struct gp_flow *flow, void *arg)
{
	(void)arg;
	gp_flow_forget_damage(flow);
}

void gp_flows_forget_damage(struct gp_flows *f)
{
	gp_flows_each(f, forget_damage_of_one, NULL);
}

struct accounting {
	struct gp_account *account;
	bool client;
};

static void account_one(struct gp_flow *flow, void *arg)
{
	const struct accounting *a = arg;
	const struct gp_direction_info *info = &gp_direction_info[flow->direction];
	struct gp_dir_account *way = info->up == a->client ? &a->account->sent : &a->account->received;
	flow->account = &way->kind[info->frame];
}

void gp_flows_account(struct gp_flows *f, struct gp_account *account, bool client)
{
	gp_flows_each(f, account_one, &(struct accounting){account, client});
}

uint64_t gp_flows_state_hash(const struct gp_flows *f)
{
	uint8_t bytes[GP_DIRECTIONS * GP_GRAPH_MAX_PORTS * sizeof(uint64_t)];
	size_t len = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		for (int i = 0; i < f->tensors[d]; i++) {
			const struct gp_codec *c = f->flow[d][i].codec;
			gp_put_le(bytes + len, c ? gp_codec_state_shared_hash(c) : 0, sizeof(uint64_t));
			len += sizeof(uint64_t);
		}
	return gp_frame_checksum(bytes, len);
}

bool gp_flows_ahead(const struct gp_flows *f, const struct gp_session_spec *spec)
{
	if (spec->eval_only || f->used[GP_GRAD_DOWN] > 0 || gp_session_has_ladder(spec))
		return false;
	for (int i = 0; i < f->tensors[GP_ACT_UP]; i++)
		if (f->flow[GP_ACT_UP][i].codec && gp_codec_state_hash(f->flow[GP_ACT_UP][i].codec) != 0)
			return false;
	return true;
}

bool gp_flows_surveyed(const struct gp_flows *f, enum gp_direction d, uint64_t step, int rung, struct gp_surveyed *out)
{
	bool any = false;
	*out = (struct gp_surveyed){0};
	for (int i = 0; i < f->tensors[d]; i++) {
		const struct gp_flow *flow = &f->flow[d][i];
		if (!flow->codec || !flow->ladder || !flow->survey.done || flow->survey.step != step)
			continue;
		gp_surveyed_add(out, &flow->survey.rung[rung]);
		any = true;
	}
	return any;
}

enum gp_status gp_flows_take(struct gp_flows *f, const struct gp_frame_head *head, int slot, struct gp_transfer **out,
			     struct gp_err *err)
{
	enum gp_direction d;
	const char *name = gp_frame_type_name(head->type);
	if (!gp_direction_of_frame(head->type, &d) || f->used[d] == 0)
		GP_FAIL(err, GP_PROTO, "a frame %s has no place in this session", name);
	if (head->tensor >= f->tensors[d] || !f->flow[d][head->tensor].codec)
		GP_FAIL(err, GP_PROTO, "%s of tensor %u, which does not cross that way", name, head->tensor);
	struct gp_flow *flow = &f->flow[d][head->tensor];
	if (head->codec != flow->codec_id)
		GP_FAIL(err, GP_PROTO, "%s names codec %u, not the %u agreed on", name, head->codec, flow->codec_id);
	if (f->positions == 0 && head->length > 0)
		GP_FAIL(err, GP_PROTO, "%s of %u positions, but chunks of this session have no length of their own",
			name, head->length);
	if (!gp_sequence_length_ok(f->positions, head->length))
		GP_FAIL(err, GP_PROTO, "%s of %u positions; a chunk of this session has a multiple of 8 below, or %lld",
			name, head->length, (long long)f->positions);
	const uint64_t most = gp_flow_payload_bound(flow, head->length);
	if (head->payload_len > most)
		GP_FAIL(err, GP_PROTO, "%s of %llu bytes is over the %llu its codec can need", name,
			(unsigned long long)head->payload_len, (unsigned long long)most);
	struct gp_transfer *t = &flow->slot[slot];
	t->frame.tensor_bytes = gp_flow_tensor_bytes(flow, head->length);
	t->frame.uncompressed_bytes = gp_flow_uncompressed_bytes(flow, head->length);
	*out = t;
	return GP_OK;
}

const char *gp_flow_name(const struct gp_flow *f, char text[24])
{
	snprintf(text, 24, "%s.%d", gp_direction_info[f->direction].name, f->tensor);
	return text;
}

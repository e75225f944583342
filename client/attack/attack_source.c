/* SPDX-License-Identifier: Apache-2.0
 *
 * See attack_source.h. Test: tests/unit/test_attack.c
 */
#include "client/attack/attack_source.h"

#include "common/base/mem.h"
#include "kernels/device_registry.h"

static enum gp_status find_crossing(struct gp_attack_source *s, struct gp_err *err)
{
	s->session =
		(struct gp_session_spec){.chunk_samples = s->of->batch, .chunks = 1, .window = 1, .seed = s->of->seed};
	for (int d = 0; d < GP_DIRECTIONS; d++)
		s->session.codec[d] = *s->of->codec;
	return gp_crossing_find(s->of->graph, &s->of->cut, &s->session, &s->cross, err);
}

static enum gp_status make_plan(struct gp_attack_source *s, struct gp_err *err)
{
	const struct gp_graph *head = s->cross->parts.head;
	const struct gp_plan_spec spec = {
		.graph = head, .batch = s->of->batch, .slots = 1, .train = true, .seed = s->of->seed};
	GP_TRY(gp_device_open(s->of->device, s->of->threads, &s->device, err));
	GP_TRY(s->device->ops->plan_new(s->device, &spec, &s->plan, err));
	for (int i = 0; s->of->weights && i < head->params; i++) {
		const int whole = gp_graph_find_param(s->of->weights->graph, head->param[i].name);
		GP_TRY(s->device->ops->param_set(s->plan, i, s->of->weights->value[whole], err));
	}
	return GP_OK;
}

static enum gp_status open_tensor(struct gp_attack_source *s, int input, struct gp_err *err)
{
	struct gp_attack_tensor *t = &s->tensor[s->tensors++];
	*t = (struct gp_attack_tensor){.input = input, .shape = s->cross->parts.body->value[input].type.shape};
	t->each = gp_shape_elements(&t->shape);
	const struct gp_shape chunk = gp_shape_batched(&t->shape, s->of->batch);
	const struct gp_codec_options options = {.seed = s->of->seed + (uint64_t)input};
	t->x = gp_alloc_aligned((size_t)s->of->batch * t->each * sizeof *t->x);
	if (!t->x)
		GP_FAIL(err, GP_NOMEM, "no memory for the tensors at the cut");
	GP_TRY(gp_codec_open(s->of->codec, &chunk, &options, &t->codec, err));
	s->room = gp_codec_bound(t->codec) > s->room ? gp_codec_bound(t->codec) : s->room;
	return GP_OK;
}

/* Data that crosses is no activation: labels of lengths, masks. */
static enum gp_status open_all(struct gp_attack_source *s, struct gp_err *err)
{
	GP_TRY(find_crossing(s, err));
	GP_TRY(make_plan(s, err));
	for (int i = 0; i < s->cross->parts.body->inputs; i++)
		if (s->cross->parts.body_in[i].from == GP_FROM_HEAD &&
		    s->cross->parts.body->value[i].type.dtype == GP_F32)
			GP_TRY(open_tensor(s, i, err));
	s->payload = gp_alloc_aligned(s->room ? s->room : 1);
	if (!s->payload)
		GP_FAIL(err, GP_NOMEM, "no memory for a payload");
	return GP_OK;
}

enum gp_status gp_attack_source_open(struct gp_attack_source *s, const struct gp_attack_victim *of, struct gp_err *err)
{
	*s = (struct gp_attack_source){.of = of};
	const enum gp_status status = open_all(s, err);
	if (status != GP_OK)
		gp_attack_source_close(s);
	return status;
}

void gp_attack_source_close(struct gp_attack_source *s)
{
	for (int i = 0; i < s->tensors; i++) {
		gp_free_aligned(s->tensor[i].x);
		gp_codec_free(s->tensor[i].codec);
	}
	gp_free_aligned(s->payload);
	if (s->plan)
		s->device->ops->plan_free(s->plan);
	if (s->device)
		s->device->ops->close(s->device);
	gp_crossing_free(s->cross);
	*s = (struct gp_attack_source){0};
}

static enum gp_status pass_on(struct gp_attack_source *s, struct gp_attack_tensor *t, const struct gp_codec_pass *pass,
			      struct gp_err *err)
{
	const int output = s->cross->parts.body_in[t->input].index;
	const float *made = s->device->ops->buffer(s->plan, 0, GP_BUF_OUTPUT, output);
	size_t len;
	GP_TRY(gp_codec_encode_pass(t->codec, pass, made, s->payload, s->room, &len, err));
	s->payload_bytes += len;
	return gp_codec_decode_pass(t->codec, pass, (struct gp_span){s->payload, len}, t->x, err);
}

static enum gp_status run(struct gp_attack_source *s, const struct gp_batch *batch, bool eval, struct gp_err *err)
{
	struct gp_batch_map map;
	const uint64_t number = s->passes++;
	const struct gp_codec_pass pass = {
		.draw = number, .step = number, .eval = eval, .sample = eval ? NULL : batch->samples};
	GP_TRY(gp_batch_map_of(s->of->graph, batch, &map, err));
	gp_batch_map_copy(&map, batch, 0, (size_t)s->of->batch, 0, s->plan, 0, s->cross->parts.head_in);
	GP_TRY(s->device->ops->forward(s->plan, 0, GP_TRAIN, number, err));
	s->payload_bytes = 0;
	for (int i = 0; i < s->tensors; i++)
		GP_TRY(pass_on(s, &s->tensor[i], &pass, err));
	return GP_OK;
}

enum gp_status gp_attack_source_next(struct gp_attack_source *s, struct gp_loader *loader, bool eval,
				     struct gp_batch **out, struct gp_err *err)
{
	struct gp_batch *batch;
	GP_TRY(gp_loader_next(loader, &batch, err));
	const enum gp_status status = run(s, batch, eval, err);
	if (status == GP_OK)
		*out = batch;
	else
		gp_loader_give_back(loader, batch);
	return status;
}

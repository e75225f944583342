/* SPDX-License-Identifier: Apache-2.0
 *
 * See capture.h. Test: tests/unit/test_capture.c
 */
#include "client/train/capture.h"

#include <stdio.h>
#include <string.h>

#include "client/engine/batch_labels.h"
#include "client/engine/batch_map.h"
#include "client/engine/crossing.h"
#include "common/base/mem.h"
#include "kernels/device_registry.h"

enum part { HEAD, BODY, TAIL, PARTS };

struct run {
	const struct gp_capture_spec *spec;
	const struct gp_batch *batch;
	struct gp_batch_map map;
	struct gp_device *device;
	struct gp_session_spec session; /* the codecs that the list of flows names; none is used */
	struct gp_crossing *cross;
	struct gp_plan *plan[PARTS];
	int samples;
};

void gp_capture_deinit(struct gp_capture *c)
{
	for (int i = 0; i < c->count; i++)
		gp_free_aligned(c->tensor[i].data);
	gp_free(c->tensor);
	*c = (struct gp_capture){0};
}

const struct gp_captured *gp_capture_find(const struct gp_capture *c, const char *name)
{
	for (int i = 0; i < c->count; i++)
		if (strcmp(c->tensor[i].name, name) == 0)
			return &c->tensor[i];
	return NULL;
}

/* --- parts ------------------------------------------------------------------------------------------------------ */

static const struct gp_graph *part_graph(const struct run *r, enum part p)
{
	const struct gp_graph_parts *parts = &r->cross->parts;
	return p == HEAD ? parts->head : p == BODY ? parts->body : parts->tail;
}

static enum gp_status set_weights(struct run *r, enum part p, struct gp_err *err)
{
	const struct gp_weights *w = r->spec->weights;
	const struct gp_graph *g = part_graph(r, p);
	for (int i = 0; w && i < g->params; i++) {
		const int whole = gp_graph_find_param(w->graph, g->param[i].name);
		GP_TRY(r->device->ops->param_set(r->plan[p], i, w->value[whole], err));
	}
	return GP_OK;
}

static enum gp_status make_part(struct run *r, enum part p, struct gp_err *err)
{
	const uint64_t gradients[PARTS] = {0, r->cross->list.grad_inputs, r->cross->tail_gradients};
	const struct gp_plan_spec ps = {.graph = part_graph(r, p),
					.batch = r->samples,
					.slots = 1,
					.train = true,
					.grad_inputs = gradients[p],
					.seed = r->spec->seed,
					.loss = r->batch->label_info.type.dtype == GP_F32 ? GP_LOSS_SQUARED_ERROR
											  : GP_LOSS_CROSS_ENTROPY};
	GP_TRY(r->device->ops->plan_new(r->device, &ps, &r->plan[p], err));
	return set_weights(r, p, err);
}

static enum gp_status make_parts(struct run *r, struct gp_err *err)
{
	r->session = (struct gp_session_spec){.chunk_samples = r->samples, .chunks = 1, .window = 1};
	for (int d = 0; d < GP_DIRECTIONS; d++)
		GP_TRY(gp_codec_spec_parse("raw", &r->session.codec[d], err));
	GP_TRY(gp_crossing_find(r->spec->graph, &r->spec->cut, &r->session, &r->cross, err));
	GP_TRY(gp_batch_map_of(r->spec->graph, r->batch, &r->map, err));
	GP_TRY(gp_device_open(r->spec->device, r->spec->threads, &r->device, err));
	for (int p = 0; p < PARTS; p++)
		GP_TRY(make_part(r, (enum part)p, err));
	return GP_OK;
}

static void free_parts(struct run *r)
{
	for (int p = 0; p < PARTS; p++)
		if (r->plan[p])
			r->device->ops->plan_free(r->plan[p]);
	if (r->device)
		r->device->ops->close(r->device);
	gp_crossing_free(r->cross);
}

static void *buffer(const struct run *r, enum part p, enum gp_plan_buf which, int index)
{
	return r->device->ops->buffer(r->plan[p], 0, which, index);
}

/* --- tensors ---------------------------------------------------------------------------------------------------- */

static size_t tensor_bytes(const struct gp_type *type)
{
	return gp_shape_elements(&type->shape) * gp_dtype_bytes(type->dtype);
}

static enum gp_status make_tensors(const struct run *r, struct gp_capture *out, struct gp_err *err)
{
	const struct gp_flow_list *list = &r->cross->list;
	GP_TRY(gp_alloc_array((void **)&out->tensor, (size_t)list->count, sizeof *out->tensor, err));
	for (; out->count < list->count; out->count++) {
		const struct gp_flow_spec *f = &list->flow[out->count];
		struct gp_captured *t = &out->tensor[out->count];
		const bool alone = gp_crossing_count(r->cross, f->direction) == 1;
		*t = (struct gp_captured){.direction = f->direction, .type = f->type};
		snprintf(t->name, sizeof t->name, "%s%s%s", gp_direction_info[f->direction].name, alone ? "" : ".",
			 alone ? "" : gp_crossing_name(r->cross->parts.body, f->direction, f->tensor));
		t->data = gp_alloc_aligned(tensor_bytes(&t->type));
		if (!t->data)
			GP_FAIL(err, GP_NOMEM, "no memory for the tensors at the cuts");
	}
	return GP_OK;
}

/* The tail's input that output `output` of the body is. */
static int tail_input_of(const struct run *r, int output)
{
	for (int i = 0; i < r->cross->parts.tail->inputs; i++)
		if (r->cross->parts.tail_in[i].from == GP_FROM_BODY && r->cross->parts.tail_in[i].index == output)
			return i;
	gp_require(false); /* gp_graph_part lists an output because somebody behind reads it */
	return -1;
}

static const void *source_of(const struct run *r, const struct gp_flow_spec *f)
{
	const struct gp_port *from = &r->cross->parts.body_in[f->tensor];
	switch (f->direction) {
	case GP_ACT_UP:
		return from->from == GP_FROM_DATA ? gp_batch_map_at(&r->map, r->batch, from->index, 0)
						  : buffer(r, HEAD, GP_BUF_OUTPUT, from->index);
	case GP_ACT_DOWN:
		return buffer(r, BODY, GP_BUF_OUTPUT, f->tensor);
	case GP_GRAD_UP:
		return buffer(r, TAIL, GP_BUF_GRAD_INPUT, tail_input_of(r, f->tensor));
	default:
		return buffer(r, BODY, GP_BUF_GRAD_INPUT, f->tensor);
	}
}

/* The head's backward pass makes nothing that travels, so it is not run. */
static void *target_of(const struct run *r, const struct gp_flow_spec *f)
{
	switch (f->direction) {
	case GP_ACT_UP:
		return buffer(r, BODY, GP_BUF_INPUT, f->tensor);
	case GP_ACT_DOWN:
		return buffer(r, TAIL, GP_BUF_INPUT, tail_input_of(r, f->tensor));
	case GP_GRAD_UP:
		return buffer(r, BODY, GP_BUF_GRAD_OUTPUT, f->tensor);
	default:
		return NULL;
	}
}

/* Copies what one part made into `out` and hands it to the next one. */
static void pass_on(const struct run *r, enum gp_direction d, struct gp_capture *out)
{
	for (int i = 0; i < out->count; i++) {
		const struct gp_flow_spec *f = &r->cross->list.flow[i];
		const struct gp_captured *t = &out->tensor[i];
		if (f->direction != d)
			continue;
		memcpy(t->data, source_of(r, f), tensor_bytes(&t->type));
		if (target_of(r, f))
			memcpy(target_of(r, f), t->data, tensor_bytes(&t->type));
	}
}

/* What the head made and the tail reads never leaves this side. */
static void copy_from_head(const struct run *r)
{
	const struct gp_graph_parts *p = &r->cross->parts;
	for (int i = 0; i < p->tail->inputs; i++) {
		const struct gp_type *sample = &p->tail->value[i].type;
		const struct gp_type chunk = {sample->dtype, gp_shape_batched(&sample->shape, r->samples)};
		if (p->tail_in[i].from == GP_FROM_HEAD)
			memcpy(buffer(r, TAIL, GP_BUF_INPUT, i), buffer(r, HEAD, GP_BUF_OUTPUT, p->tail_in[i].index),
			       tensor_bytes(&chunk));
	}
}

static enum gp_status go_forward(struct run *r, struct gp_capture *out, struct gp_err *err)
{
	const struct gp_device_ops *ops = r->device->ops;
	const size_t samples = (size_t)r->samples;
	gp_batch_map_copy(&r->map, r->batch, 0, samples, 0, r->plan[HEAD], 0, r->cross->parts.head_in);
	gp_batch_map_copy(&r->map, r->batch, 0, samples, 0, r->plan[TAIL], 0, r->cross->parts.tail_in);
	GP_TRY(ops->forward(r->plan[HEAD], 0, GP_TRAIN, 0, err));
	pass_on(r, GP_ACT_UP, out);
	GP_TRY(ops->forward(r->plan[BODY], 0, GP_TRAIN, 0, err));
	pass_on(r, GP_ACT_DOWN, out);
	copy_from_head(r);
	return ops->forward(r->plan[TAIL], 0, GP_TRAIN, 0, err);
}

static enum gp_status go_back(struct run *r, struct gp_capture *out, struct gp_err *err)
{
	const struct gp_device_ops *ops = r->device->ops;
	struct gp_loss_result loss;
	GP_TRY(gp_batch_labels_check(r->spec->graph, r->batch, err));
	GP_TRY(ops->loss(r->plan[TAIL], 0, gp_batch_labels(r->batch, 0), r->samples, true,
			 gp_batch_gradient_scale(r->batch, r->samples), &loss, err));
	out->loss = loss.labelled > 0 ? loss.loss_sum / (double)loss.labelled : 0.0;
	GP_TRY(ops->backward(r->plan[TAIL], 0, err));
	pass_on(r, GP_GRAD_UP, out);
	if (r->cross->list.grad_outputs == 0)
		return GP_OK; /* the body and all before it is frozen */
	GP_TRY(ops->backward(r->plan[BODY], 0, err));
	pass_on(r, GP_GRAD_DOWN, out);
	return GP_OK;
}

static enum gp_status run_all(struct run *r, struct gp_capture *out, struct gp_err *err)
{
	GP_TRY(make_parts(r, err));
	GP_TRY(make_tensors(r, out, err));
	GP_TRY(go_forward(r, out, err));
	return go_back(r, out, err);
}

enum gp_status gp_capture_run(const struct gp_capture_spec *spec, const struct gp_batch *batch, struct gp_capture *out,
			      struct gp_err *err)
{
	struct run r = {.spec = spec, .batch = batch, .samples = batch->valid};
	struct gp_capture made = {0};
	enum gp_status status = run_all(&r, &made, err);
	free_parts(&r);
	if (status == GP_OK)
		*out = made;
	else
		gp_capture_deinit(&made);
	return status;
}

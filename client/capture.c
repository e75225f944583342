/* SPDX-License-Identifier: Apache-2.0
 *
 * See capture.h. Test: tests/unit/test_capture.c
 */
#include "client/capture.h"

#include "client/batch_map.h"

#include <string.h>

#include "common/wire/frame.h"
#include "common/base/mem.h"
#include "kernels/device_registry.h"
#include "common/graph/graph_part.h"

enum part { HEAD, BODY, TAIL, PARTS };

struct run {
	const struct gp_capture_spec *spec;
	struct gp_device *device;
	struct gp_graph *graph[PARTS];
	struct gp_plan *plan[PARTS];
	int samples;
};

const char *gp_capture_name(enum gp_capture_tensor which)
{
	static const enum gp_frame_type types[GP_CAPTURES] = {GP_FRAME_ACT_UP, GP_FRAME_ACT_DOWN, GP_FRAME_GRAD_UP,
							      GP_FRAME_GRAD_DOWN};
	return gp_frame_type_name(types[which]);
}

void gp_capture_deinit(struct gp_capture *c)
{
	for (int i = 0; i < GP_CAPTURES; i++)
		gp_free_aligned(c->tensor[i]);
	*c = (struct gp_capture){0};
}

/* --- parts ------------------------------------------------------------------------------------------------------ */

static enum gp_status set_weights(struct run *r, enum part p, struct gp_err *err)
{
	const struct gp_weights *w = r->spec->weights;
	for (int i = 0; w && i < r->graph[p]->params; i++) {
		const int whole = gp_graph_find_param(w->graph, r->graph[p]->param[i].name);
		GP_TRY(r->device->ops->param_set(r->plan[p], i, w->value[whole], err));
	}
	return GP_OK;
}

static enum gp_status make_part(struct run *r, enum part p, struct gp_err *err)
{
	const struct gp_capture_spec *spec = r->spec;
	const int bound[PARTS + 1] = {0, spec->cut.head, spec->cut.tail, spec->graph->blocks};
	GP_TRY(gp_graph_part(spec->graph, bound[p], bound[p + 1], &r->graph[p], err));
	const struct gp_plan_spec ps = {.graph = r->graph[p],
					.batch = r->samples,
					.slots = 1,
					.train = true,
					.grad_inputs = p != HEAD,
					.seed = spec->seed};
	GP_TRY(r->device->ops->plan_new(r->device, &ps, &r->plan[p], err));
	return set_weights(r, p, err);
}

static void free_parts(struct run *r)
{
	for (int p = 0; p < PARTS; p++) {
		if (r->plan[p])
			r->device->ops->plan_free(r->plan[p]);
		gp_graph_free(r->graph[p]);
	}
	if (r->device)
		r->device->ops->close(r->device);
}

/* --- tensors ---------------------------------------------------------------------------------------------------- */

static enum gp_status make_tensors(const struct run *r, struct gp_capture *out, struct gp_err *err)
{
	for (int i = 0; i < GP_CAPTURES; i++) {
		const bool input = i == GP_CAPTURE_ACT_UP || i == GP_CAPTURE_GRAD_DOWN;
		const struct gp_graph *body = r->graph[BODY];
		out->shape[i] =
			gp_shape_batched(input ? gp_graph_input_shape(body) : gp_graph_output_shape(body), r->samples);
		out->tensor[i] = gp_alloc_aligned(gp_shape_elements(&out->shape[i]) * sizeof(float));
		if (!out->tensor[i])
			GP_FAIL(err, GP_NOMEM, "no memory for the tensors at the cut");
	}
	return GP_OK;
}

/* Keeps what a part made and hands it to the next one. */
static void pass_on(struct run *r, enum part from, enum gp_plan_buf made, enum part to, enum gp_plan_buf taken,
		    struct gp_capture *out, enum gp_capture_tensor which)
{
	const struct gp_device_ops *ops = r->device->ops;
	const size_t bytes = gp_shape_elements(&out->shape[which]) * sizeof(float);
	memcpy(out->tensor[which], ops->buffer(r->plan[from], 0, made, 0), bytes);
	memcpy(ops->buffer(r->plan[to], 0, taken, 0), out->tensor[which], bytes);
}

static enum gp_status go_forward(struct run *r, const struct gp_batch *batch, struct gp_capture *out,
				 struct gp_err *err)
{
	const struct gp_device_ops *ops = r->device->ops;
	struct gp_batch_map map;
	GP_TRY(gp_batch_map_of(r->spec->graph, batch, &map, err));
	gp_batch_map_copy(&map, batch, 0, (size_t)r->samples, r->plan[HEAD], 0, NULL);
	GP_TRY(ops->forward(r->plan[HEAD], 0, GP_TRAIN, 0, err));
	pass_on(r, HEAD, GP_BUF_OUTPUT, BODY, GP_BUF_INPUT, out, GP_CAPTURE_ACT_UP);
	GP_TRY(ops->forward(r->plan[BODY], 0, GP_TRAIN, 0, err));
	pass_on(r, BODY, GP_BUF_OUTPUT, TAIL, GP_BUF_INPUT, out, GP_CAPTURE_ACT_DOWN);
	return ops->forward(r->plan[TAIL], 0, GP_TRAIN, 0, err);
}

/* The head's backward pass makes nothing that travels. */
static enum gp_status go_back(struct run *r, const struct gp_batch *batch, struct gp_capture *out, struct gp_err *err)
{
	const struct gp_device_ops *ops = r->device->ops;
	struct gp_loss_result loss;
	GP_TRY(ops->loss(r->plan[TAIL], 0, gp_batch_classes(batch), r->samples, true, 1.0f / (float)r->samples, &loss,
			 err));
	out->loss = loss.loss_sum / r->samples;
	GP_TRY(ops->backward(r->plan[TAIL], 0, err));
	pass_on(r, TAIL, GP_BUF_GRAD_INPUT, BODY, GP_BUF_GRAD_OUTPUT, out, GP_CAPTURE_GRAD_UP);
	GP_TRY(ops->backward(r->plan[BODY], 0, err));
	memcpy(out->tensor[GP_CAPTURE_GRAD_DOWN], ops->buffer(r->plan[BODY], 0, GP_BUF_GRAD_INPUT, 0),
	       gp_shape_elements(&out->shape[GP_CAPTURE_GRAD_DOWN]) * sizeof(float));
	return GP_OK;
}

static enum gp_status run_all(struct run *r, const struct gp_batch *batch, struct gp_capture *out, struct gp_err *err)
{
	GP_TRY(gp_device_open(r->spec->device, r->spec->threads, &r->device, err));
	for (int p = 0; p < PARTS; p++)
		GP_TRY(make_part(r, (enum part)p, err));
	GP_TRY(make_tensors(r, out, err));
	GP_TRY(go_forward(r, batch, out, err));
	return go_back(r, batch, out, err);
}

enum gp_status gp_capture_run(const struct gp_capture_spec *spec, const struct gp_batch *batch, struct gp_capture *out,
			      struct gp_err *err)
{
	struct run r = {.spec = spec, .samples = batch->valid};
	struct gp_capture made = {0};
	enum gp_status status = run_all(&r, batch, &made, err);
	free_parts(&r);
	if (status == GP_OK)
		*out = made;
	else
		gp_capture_deinit(&made);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of a body, in (PARAM_UP after OPEN) and out (FETCH_PARAMS).
 * PROTOCOL.md section 5. Test: tests/unit/test_server.c
 */
#include "server/body_impl.h"

static uint64_t largest_param_bytes(const struct gp_graph *g)
{
	uint64_t most = 1;
	for (int i = 0; i < g->params; i++)
		if (g->param[i].count > most)
			most = g->param[i].count;
	return most * sizeof(float);
}

uint64_t gp_body_staging_bytes(const struct gp_body_spec *spec)
{
	const struct gp_graph *g = spec->graph;
	const uint64_t each = sizeof(struct gp_frame) + sizeof(struct gp_task);
	const uint64_t staging = spec->weights ? g->param_elements * sizeof(float) + (uint64_t)g->params * each : 0;
	return staging + largest_param_bytes(g);
}

static enum gp_status init_param_in(struct gp_body *b, struct gp_err *err)
{
	const struct gp_graph *g = b->spec.graph;
	b->param_in = gp_calloc((size_t)g->params, sizeof *b->param_in);
	b->param_task = gp_calloc((size_t)g->params, sizeof *b->param_task);
	b->param_block = gp_alloc_aligned(g->param_elements * sizeof(float));
	if (!b->param_in || !b->param_task || !b->param_block)
		GP_FAIL(err, GP_NOMEM, "out of memory for %llu parameters", (unsigned long long)g->param_elements);
	uint8_t *at = b->param_block;
	for (int i = 0; i < g->params; i++) {
		b->param_in[i].payload = at;
		b->param_in[i].cap = b->param_in[i].tensor_bytes = g->param[i].count * sizeof(float);
		at += b->param_in[i].cap;
	}
	return GP_OK;
}

enum gp_status gp_body_params_init(struct gp_body *b, struct gp_err *err)
{
	const struct gp_graph *g = b->spec.graph;
	b->param_out.cap = largest_param_bytes(g);
	b->param_out.payload = gp_alloc_aligned(b->param_out.cap);
	if (!b->param_out.payload)
		GP_FAIL(err, GP_NOMEM, "out of memory for a session");
	if (b->spec.weights == 0)
		return GP_OK;
	if (b->spec.weights != (uint32_t)g->params)
		GP_FAIL(err, GP_INVALID, "%u weights announced for a graph of %d parameters", b->spec.weights,
			g->params);
	return init_param_in(b, err);
}

static void free_param_in(struct gp_body *b)
{
	gp_free(b->param_in);
	gp_free(b->param_task);
	gp_free_aligned(b->param_block);
	b->param_in = NULL;
	b->param_task = NULL;
	b->param_block = NULL;
}

void gp_body_params_deinit(struct gp_body *b)
{
	free_param_in(b);
	gp_free_aligned(b->param_out.payload);
}

/* In. */

static void run_param_set(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	struct gp_frame *f = &b->param_in[task - b->param_task];
	task->status = GP_CANCELED; /* the plan could not be made: that failure is already on its way */
	if (b->plan)
		task->status = gp_body_check_stop(b, &task->err);
	if (task->status == GP_OK)
		task->status = gp_frame_verify(f, &task->err);
	if (task->status == GP_OK)
		task->status = b->dev->ops->param_set(b->plan, (int)f->head.chunk, (const float *)(void *)f->payload,
						      &task->err);
}

static void param_set_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	if (!gp_body_task_ok(b, task) || ++b->params_set < b->spec.weights)
		return;
	free_param_in(b);
	b->ready = true;
	b->cbs.ready(b->arg);
}

enum gp_status gp_body_param_begin(struct gp_body *b, const struct gp_frame_head *head, struct gp_frame **out,
				   struct gp_err *err)
{
	if (b->params_begun >= b->spec.weights || head->chunk != b->params_begun || head->step != 0 || head->codec != 0)
		GP_FAIL(err, GP_PROTO, "param_up of parameter %u is not expected (next is %u of %u)", head->chunk,
			b->params_begun, b->spec.weights);
	struct gp_frame *f = &b->param_in[head->chunk];
	if (head->payload_len != f->cap)
		GP_FAIL(err, GP_PROTO, "parameter %s has %llu bytes, not the %zu of its shape",
			b->spec.graph->param[head->chunk].name, (unsigned long long)head->payload_len, f->cap);
	b->params_begun++;
	*out = f;
	return GP_OK;
}

void gp_body_params_submit(struct gp_body *b)
{
	for (; b->params_submitted < b->params_arrived; b->params_submitted++) {
		struct gp_task *t = &b->param_task[b->params_submitted];
		t->run = run_param_set;
		t->done = param_set_done;
		t->arg = b;
		gp_worker_submit(&b->build_lane, t, 0);
	}
}

void gp_body_param_arrived(struct gp_body *b)
{
	b->params_arrived++;
	if (b->planning)
		gp_body_params_submit(b);
}

/* Out. */

static void run_param_get(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	const struct gp_param *p = &b->graph->param[b->param_out_index];
	struct gp_frame *f = &b->param_out;
	task->status =
		b->dev->ops->param_get(b->plan, (int)b->param_out_index, (float *)(void *)f->payload, &task->err);
	f->head = (struct gp_frame_head){.type = GP_FRAME_PARAM_DOWN,
					 .chunk = b->param_out_index,
					 .session = b->spec.id,
					 .step = b->step,
					 .payload_len = p->count * sizeof(float)};
	f->tensor_bytes = f->head.payload_len;
	f->head.checksum = gp_frame_checksum(f->payload, f->head.payload_len);
}

static void param_get_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	if (!gp_body_task_ok(b, task))
		return;
	if (b->ch)
		gp_channel_send_frame(b->ch, &b->param_out);
	gp_body_rest(b);
}

static void next_param_out(struct gp_body *b)
{
	if (b->param_out_index == (uint32_t)b->spec.graph->params) {
		b->fetching = false;
		b->cbs.params_sent(b->arg, b->param_out_index);
		return;
	}
	b->param_get.run = run_param_get;
	b->param_get.done = param_get_done;
	b->param_get.arg = b;
	gp_worker_submit(&b->compute, &b->param_get, 0);
}

void gp_body_param_sent(struct gp_body *b)
{
	if (b->stopping || !b->fetching)
		return;
	b->param_out_index++;
	next_param_out(b);
}

enum gp_status gp_body_fetch_params(struct gp_body *b, struct gp_err *err)
{
	if (!b->ready || gp_body_in_step(b) || b->fetching)
		GP_FAIL(err, GP_PROTO, "fetch_params is only possible between steps");
	if (b->changing) /* another thread has the plan */
		GP_FAIL(err, GP_PROTO, "fetch_params before committed of a step that changes ranks");
	b->fetching = true;
	b->param_out_index = 0;
	next_param_out(b);
	return GP_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What crosses the two cuts of a model. See crossing.h. Test: tests/unit/test_crossing.c
 */
#include "client/engine/crossing.h"

#include "common/base/mem.h"

static uint64_t find_tail_gradients(const struct gp_crossing *c)
{
	uint64_t wanted = 0;
	for (int i = 0; i < c->parts.tail->inputs; i++) {
		const struct gp_port *from = &c->parts.tail_in[i];
		const bool up = from->from == GP_FROM_BODY && c->list.grad_outputs >> from->index & 1;
		const bool here = from->from == GP_FROM_HEAD && c->parts.tail_gradient >> i & 1;
		wanted |= (uint64_t)(up || here) << i;
	}
	return wanted;
}

static bool head_is_reached(const struct gp_crossing *c)
{
	for (int i = 0; i < c->parts.tail->inputs; i++)
		if (c->parts.tail_in[i].from == GP_FROM_HEAD && c->parts.tail_gradient >> i & 1)
			return true;
	return c->list.grad_inputs != 0;
}

static enum gp_status fill(struct gp_crossing *c, const struct gp_graph *g, const struct gp_cut *cut,
			   struct gp_session_spec *session, struct gp_err *err)
{
	GP_TRY(gp_graph_cut(g, cut, &c->parts, err));
	const int count = c->parts.body->inputs;
	const uint64_t inputs = count < 64 ? ((uint64_t)1 << count) - 1 : UINT64_MAX;
	session->data_inputs = inputs & ~c->parts.body_activation;
	session->frozen_inputs = inputs & ~c->parts.body_gradient;
	session->lengths = session->lengths && gp_graph_sequence(c->parts.body) > 0;
	GP_TRY(gp_flow_list_find(c->parts.body, session, &c->list, err));
	c->tail_gradients = session->eval_only ? 0 : find_tail_gradients(c);
	c->head_backward = !session->eval_only && head_is_reached(c);
	return GP_OK;
}

enum gp_status gp_crossing_find(const struct gp_graph *g, const struct gp_cut *cut, struct gp_session_spec *session,
				struct gp_crossing **out, struct gp_err *err)
{
	struct gp_crossing *c = gp_calloc(1, sizeof *c);
	if (!c)
		GP_FAIL(err, GP_NOMEM, "out of memory for what crosses the cuts");
	const enum gp_status status = fill(c, g, cut, session, err);
	if (status == GP_OK)
		*out = c;
	else
		gp_crossing_free(c);
	return status;
}

void gp_crossing_free(struct gp_crossing *c)
{
	if (!c)
		return;
	gp_graph_parts_deinit(&c->parts);
	gp_free(c);
}

int gp_crossing_count(const struct gp_crossing *c, enum gp_direction d)
{
	int count = 0;
	for (int i = 0; i < c->list.count; i++)
		count += c->list.flow[i].direction == d;
	return count;
}

const char *gp_crossing_name(const struct gp_graph *body, enum gp_direction d, int tensor)
{
	return gp_direction_info[d].at_input ? body->node[tensor].name : body->output[tensor].name;
}

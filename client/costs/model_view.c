/* SPDX-License-Identifier: Apache-2.0
 *
 * The figures of `gpclient model show`, see model_view.h.
 * Test: tests/unit/test_model_view.c
 */
#include "client/costs/model_view_impl.h"

#include "common/graph/decay.h"

const char *const gp_view_part_names[GP_VIEW_PARTS] = {"client head", "server body", "client tail", "total"};

static bool is_statistic(const struct gp_param *p)
{
	return p->role == GP_PARAM_RUNNING_MEAN || p->role == GP_PARAM_RUNNING_VAR;
}

uint64_t gp_view_node_parameters(const struct gp_graph *g, const struct gp_node *n)
{
	uint64_t count = 0;
	for (int k = n->first_param; k < n->first_param + n->params; k++)
		count += is_statistic(&g->param[k]) || g->param[k].follows ? 0 : g->param[k].count;
	return count;
}

static void add_param(struct gp_view_sum *s, const struct gp_param *p)
{
	if (p->follows)
		return; /* counted as the one that it follows */
	*(is_statistic(p) ? &s->statistics : &s->parameters) += p->count;
	s->frozen += is_statistic(p) || p->trained ? 0 : p->count;
}

struct gp_view_sum gp_view_sum_blocks(const struct gp_graph *g, int first, int end)
{
	struct gp_view_sum s = {.first_block = first, .end_block = end};
	for (int i = g->block[first].first_node; i < gp_graph_block_end(g, end - 1); i++) {
		const struct gp_node *n = &g->node[i];
		s.layers++;
		for (int k = n->first_param; k < n->first_param + n->params; k++)
			add_param(&s, &g->param[k]);
	}
	gp_part_costs_find(g, g->block[first].first_node, gp_graph_block_end(g, end - 1), &s.costs);
	return s;
}

uint64_t gp_view_forward_macs(const struct gp_view_sum *s, enum gp_count count)
{
	return s->costs.pass[GP_PASS_FORWARD].macs[count];
}

enum gp_status gp_model_view_init(struct gp_model_view *v, const char *spec, const struct gp_graph *g,
				  const struct gp_cut *cut, int64_t batch, int64_t chunks, struct gp_err *err)
{
	if (chunks > batch)
		GP_FAIL(err, GP_INVALID, "a batch of %lld cannot be split into %lld chunks", (long long)batch,
			(long long)chunks);
	*v = (struct gp_model_view){.graph = g,
				    .spec = spec,
				    .cut = *cut,
				    .batch = batch,
				    .chunks = chunks,
				    .session = {.chunk_samples = 1, .chunks = 1, .window = 1}};
	GP_TRY(gp_partitions_find(g, v->plain.partition, &v->plain.partitions, err));
	GP_TRY(gp_crossing_find(g, cut, &v->session, &v->cross, err));
	v->chunk_samples = (batch + chunks - 1) / chunks;
	v->part[GP_VIEW_HEAD] = gp_view_sum_blocks(g, 0, cut->head);
	v->part[GP_VIEW_BODY] = gp_view_sum_blocks(g, cut->head, cut->tail);
	v->part[GP_VIEW_TAIL] = gp_view_sum_blocks(g, cut->tail, g->blocks);
	v->part[GP_VIEW_TOTAL] = gp_view_sum_blocks(g, 0, g->blocks);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		v->plain.bytes[d] = gp_model_view_bytes(v, (enum gp_direction)d, 1);
	return GP_OK;
}

enum gp_status gp_view_plain_find(const struct gp_graph *g, const struct gp_cut *cut, struct gp_view_plain *out,
				  struct gp_err *err)
{
	struct gp_model_view v = {0};
	const enum gp_status status = gp_model_view_init(&v, g->name, g, cut, 1, 1, err);
	if (status == GP_OK)
		*out = v.plain;
	gp_model_view_deinit(&v);
	return status;
}

/* No gradient comes to what is frozen, with or without the insertion. */
void gp_model_view_compare(struct gp_model_view *v, const struct gp_insertion *ins, const struct gp_view_plain *plain)
{
	v->insertion = ins;
	v->plain = *plain;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		if (gp_crossing_count(v->cross, (enum gp_direction)d) == 0)
			v->plain.bytes[d] = 0;
}

void gp_model_view_deinit(struct gp_model_view *v)
{
	gp_crossing_free(v->cross);
	*v = (struct gp_model_view){0};
}

struct gp_view_row gp_view_crossing_row(const struct gp_model_view *v, int flow)
{
	const struct gp_flow_spec *f = &v->cross->list.flow[flow];
	const struct gp_graph *body = v->cross->parts.body;
	const struct gp_direction_info *way = &gp_direction_info[f->direction];
	const bool data = f->codec == &v->cross->list.raw;
	return (struct gp_view_row){
		.name = gp_crossing_name(body, f->direction, f->tensor),
		.type = way->at_input ? &body->value[f->tensor].type : gp_graph_output_type(body, f->tensor),
		.way = way,
		.kind = way->gradient ? "gradient"
			: data        ? "data"
				      : "activation",
		.cut = way->at_input ? v->cut.head : v->cut.tail,
		.has_gradient = f->has_gradient,
	};
}

bool gp_view_stays_here(const struct gp_model_view *v, int tail_input)
{
	return v->cross->parts.tail_in[tail_input].from != GP_FROM_BODY;
}

struct gp_view_row gp_view_staying_row(const struct gp_model_view *v, int tail_input)
{
	const struct gp_graph_parts *p = &v->cross->parts;
	return (struct gp_view_row){.name = p->tail->node[tail_input].name,
				    .type = &p->tail->value[tail_input].type,
				    .kind = p->tail_activation >> tail_input & 1 ? "activation" : "data",
				    .has_gradient = p->tail_gradient >> tail_input & 1};
}

uint64_t gp_view_row_bytes(const struct gp_view_row *r, int64_t samples)
{
	return gp_shape_elements(&r->type->shape) * gp_dtype_bytes(r->type->dtype) * (uint64_t)samples;
}

uint64_t gp_model_view_bytes(const struct gp_model_view *v, enum gp_direction direction, int64_t samples)
{
	uint64_t sum = 0;
	for (int i = 0; i < v->cross->list.count; i++) {
		const struct gp_view_row r = gp_view_crossing_row(v, i);
		sum += r.way == &gp_direction_info[direction] ? gp_view_row_bytes(&r, samples) : 0;
	}
	return sum;
}

struct gp_shape gp_view_torch_order(const struct gp_shape *s)
{
	if (s->ndim != 3)
		return *s;
	return (struct gp_shape){.ndim = 3, .dim = {s->dim[2], s->dim[0], s->dim[1]}};
}

int64_t gp_view_rank(const struct gp_insert_set *s, int changes)
{
	const struct gp_decay d = {.rate = s->rate, .every = (uint32_t)s->every, .times = (uint32_t)s->times};
	return gp_decay_rank(&d, s->rank, (uint64_t)changes * d.every);
}

const char *gp_view_insertion_text(const struct gp_model_view *v, enum gp_insert_end end, char text[GP_INSERT_TEXT])
{
	static const struct gp_insert_spec none;
	return gp_insert_spec_text(v->insertion ? &v->insertion->end[end].spec : &none, text);
}

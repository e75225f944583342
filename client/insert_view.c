/* SPDX-License-Identifier: Apache-2.0
 *
 * Insertions for people and programs. See insert_view.h. Test: tests/unit/test_insert.c
 */
#include "client/insert_view.h"

static uint64_t plain_bytes(const struct gp_insertion *ins, const struct gp_flow_spec *f, const char *name,
			    const struct gp_type *sample)
{
	const enum gp_insert_end end = gp_direction_info[f->direction].at_input ? GP_INSERT_UP : GP_INSERT_DOWN;
	return gp_insertion_plain(ins, end, name, &sample->shape) * gp_dtype_bytes(sample->dtype);
}

struct gp_insert_bytes gp_insert_bytes(const struct gp_crossing *c, const struct gp_insertion *ins)
{
	const struct gp_graph *body = c->parts.body;
	struct gp_insert_bytes sum = {0};
	for (int i = 0; i < c->list.count; i++) {
		const struct gp_flow_spec *f = &c->list.flow[i];
		const struct gp_type *sample = gp_direction_info[f->direction].at_input
						       ? &body->value[f->tensor].type
						       : gp_graph_output_type(body, f->tensor);
		sum.packed += gp_shape_elements(&sample->shape) * gp_dtype_bytes(sample->dtype);
		sum.plain += plain_bytes(ins, f, gp_crossing_name(body, f->direction, f->tensor), sample);
	}
	return sum;
}

static struct gp_shape torch_order(const struct gp_shape *s)
{
	return s->ndim != 3 ? *s : (struct gp_shape){.ndim = 3, .dim = {s->dim[2], s->dim[0], s->dim[1]}};
}

static double rate_of(const struct gp_insertion_end *e)
{
	return (double)gp_shape_elements(&e->packed) / (double)gp_shape_elements(&e->plain);
}

static void print_end(const struct gp_insertion_end *e, const char *way, FILE *to)
{
	const struct gp_shape plain = torch_order(&e->plain), packed = torch_order(&e->packed);
	char text[GP_INSERT_TEXT], a[64], b[64];
	fprintf(to, "%-10s %-22s %12s %12s %8.4f  %s\n", way, e->value, gp_shape_text(&plain, a, sizeof a),
		gp_shape_text(&packed, b, sizeof b), rate_of(e), gp_insert_spec_text(&e->spec, text));
	if (e->others > 0)
		fprintf(to, "%-10s %d more activation%s cross%s this cut as %s\n", "", e->others,
			e->others == 1 ? "" : "s", e->others == 1 ? "es" : "", e->others == 1 ? "it is" : "they are");
}

void gp_insert_view_print(const struct gp_crossing *c, const struct gp_insertion *ins, int64_t batch, FILE *to)
{
	if (!gp_insertion_any(ins))
		return;
	const struct gp_insert_bytes sum = gp_insert_bytes(c, ins);
	fprintf(to, "\n%-10s %-22s %12s %12s %8s  %s\n", "insertion", "of", "without", "with", "rate", "layers");
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		if (ins->end[e].spec.sets > 0)
			print_end(&ins->end[e], gp_insert_end_name[e], to);
	fprintf(to, "Without insertions a step moves %.2f MB in all: the rate is %.4f.\n",
		(double)sum.plain * (double)batch * 1e-6, (double)sum.packed / (double)sum.plain);
}

static json_t *shape_json(const struct gp_shape *shape)
{
	const struct gp_shape s = torch_order(shape);
	json_t *list = json_array();
	for (int i = 0; i < s.ndim; i++)
		json_array_append_new(list, json_integer(s.dim[i]));
	return list;
}

void gp_insert_view_json(const struct gp_crossing *c, const struct gp_insertion *ins, json_t *object)
{
	const struct gp_insert_bytes sum = gp_insert_bytes(c, ins);
	json_t *list = json_array();
	char text[GP_INSERT_TEXT];
	for (int i = 0; i < GP_INSERT_ENDS; i++) {
		const struct gp_insertion_end *e = &ins->end[i];
		if (e->spec.sets > 0)
			json_array_append_new(
				list, json_pack("{s:s, s:s, s:s, s:o, s:o, s:f, s:i}", "end", gp_insert_end_name[i],
						"layers", gp_insert_spec_text(&e->spec, text), "of", e->value,
						"shape_without", shape_json(&e->plain), "shape", shape_json(&e->packed),
						"rate", rate_of(e), "others", e->others));
	}
	json_object_set_new(object, "insertions", list);
	json_object_set_new(object, "uncompressed_sample_bytes", json_integer((json_int_t)sum.plain));
	json_object_set_new(object, "rate", json_real((double)sum.packed / (double)sum.plain));
}

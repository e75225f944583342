/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures and printing for `gpclient model show --memory`. See memory_view.h.
 * Tests: tests/e2e/recompute.sh, tests/e2e/json_keys.sh
 */
#include "client/costs/memory_view.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/threads.h"
#include "kernels/device_registry.h"

static const char *const part_names[GP_VIEW_PARTS] = {"client head", "server body", "client tail", "--local"};
static const char *const part_keys[GP_VIEW_PARTS] = {"head", "body", "tail", "local"};

/* --- figures ------------------------------------------------------------------------------------------------------ */

static struct gp_plan_spec spec_of(const struct gp_memory_view *m, const struct gp_graph *g, int slots,
				   const struct gp_session_spec *session)
{
	struct gp_plan_spec spec = {.graph = g,
				    .batch = (int)m->view->chunk_samples,
				    .slots = slots,
				    .train = true,
				    .undo = slots > 1,
				    .optim = m->options.optim,
				    .maps = gp_session_maps(session),
				    .recompute = session->recompute};
	gp_session_coded(session, &spec);
	return spec;
}

static struct gp_plan_spec spec_of_part(const struct gp_memory_view *m, enum gp_view_part part,
					const struct gp_session_spec *session)
{
	const struct gp_graph_parts *p = &m->view->cross->parts;
	const struct gp_graph *const graph[GP_VIEW_PARTS] = {p->head, p->body, p->tail, m->view->graph};
	struct gp_plan_spec spec = spec_of(m, graph[part], part == GP_MEMORY_WHOLE ? 1 : m->options.window, session);
	spec.grad_inputs = part == GP_VIEW_BODY ? p->body_gradient : part == GP_VIEW_TAIL ? p->tail_gradient : 0;
	if (part == GP_MEMORY_WHOLE) { /* a local training divides maps where a split one would cut */
		spec.cuts[0] = spec.graph->block[m->view->cut.head].first_node;
		spec.cuts[1] = spec.graph->block[m->view->cut.tail].first_node;
	}
	return spec;
}

static enum gp_status find_parts(struct gp_device *dev, struct gp_memory_view *m, struct gp_err *err)
{
	for (int part = 0; part < GP_VIEW_PARTS; part++) {
		const struct gp_plan_spec spec = spec_of_part(m, (enum gp_view_part)part, &m->options.session);
		GP_TRY(dev->ops->plan_estimate(dev, &spec, &m->part[part], err));
		m->maps[part] = m->part[part].activations / (uint64_t)spec.slots;
	}
	return GP_OK;
}

static enum gp_status find_blocks(struct gp_device *dev, struct gp_memory_view *m, struct gp_err *err)
{
	struct gp_plan_spec spec = spec_of_part(m, GP_MEMORY_WHOLE, &m->options.session);
	void *maps;
	GP_TRY(gp_alloc_array(&maps, 2 * (size_t)spec.graph->blocks, sizeof(uint64_t), err));
	m->block_maps = maps;
	m->block_maps_recomputed = m->block_maps + spec.graph->blocks;
	GP_TRY(dev->ops->plan_maps(dev, &spec, m->block_maps, err));
	spec.maps = NULL; /* either keeps them encoded or not at all */
	spec.recompute = true;
	return dev->ops->plan_maps(dev, &spec, m->block_maps_recomputed, err);
}

static enum gp_status find_savings(struct gp_device *dev, struct gp_memory_view *m, struct gp_err *err)
{
	static const char compress[] = "--compress ";
	static const char *const flags[GP_MEMORY_SAVINGS] = {"",
							     "--recompute",
							     "--compress maps=bf16",
							     "--compress maps=uniform:bits=8",
							     "--compress maps=smaq:main=6",
							     "--compress maps=uniform:bits=4",
							     "--compress state=bf16",
							     "--compress state=smaq:main=6",
							     "--compress maps=smaq:main=6,state=smaq:main=6"};
	for (int i = 0; i < GP_MEMORY_SAVINGS; i++) {
		struct gp_memory_saving *s = &m->saving[i];
		struct gp_session_spec session = {.window = 1, .recompute = strcmp(flags[i], "--recompute") == 0};
		const size_t skip = sizeof compress - 1;
		if (strncmp(flags[i], compress, skip) == 0)
			GP_TRY(gp_compress_parse(flags[i] + skip, &session, err));
		const struct gp_plan_spec spec = spec_of_part(m, GP_MEMORY_WHOLE, &session);
		s->flags = flags[i];
		GP_TRY(dev->ops->plan_estimate(dev, &spec, &s->whole, err));
		s->maps = s->whole.activations;
	}
	return GP_OK;
}

static void name_flags(struct gp_memory_view *m)
{
	char text[GP_COMPRESS_TEXT];
	const char *compress = gp_compress_text(&m->options.session, text);
	snprintf(m->flags, sizeof m->flags, "%s%s%s%s", m->options.session.recompute ? "--recompute" : "",
		 m->options.session.recompute && *compress ? " " : "", *compress ? "--compress " : "", compress);
}

enum gp_status gp_memory_view_find(const struct gp_model_view *v, const struct gp_memory_options *o,
				   struct gp_memory_view *out, struct gp_err *err)
{
	struct gp_device *dev;
	*out = (struct gp_memory_view){.view = v, .options = *o, .threads = gp_threads_count(0)};
	name_flags(out);
	GP_TRY(gp_optim_check(&o->optim, err));
	GP_TRY(gp_device_open("cpu", out->threads, &dev, err));
	enum gp_status status = find_parts(dev, out, err);
	if (status == GP_OK)
		status = find_blocks(dev, out, err);
	if (status == GP_OK)
		status = find_savings(dev, out, err);
	dev->ops->close(dev);
	return status;
}

void gp_memory_view_deinit(struct gp_memory_view *m)
{
	gp_free(m->block_maps);
	*m = (struct gp_memory_view){0};
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static double mb(uint64_t bytes)
{
	return (double)bytes / 1e6;
}

static const char *state_name(const struct gp_memory_view *m)
{
	return m->options.optim.kind != GP_OPTIM_SGD ? "Adam's two moments" : "sgd's momentum";
}

static void print_parts(const struct gp_memory_view *m, FILE *to)
{
	fprintf(to, "\nmemory in MB, %s, chunks of %lld, %d in flight (--local: one), %d threads; state: %s%s%s\n",
		"device cpu", (long long)m->view->chunk_samples, m->options.window, m->threads, state_name(m),
		m->flags[0] ? "; with " : "", m->flags);
	fprintf(to, "%-14s %12s %10s %10s %16s %10s %10s %10s %10s\n", "part", "parameters", "gradients", "state",
		"maps of a chunk", "all maps", "scratch", "in, out", "sum");
	for (int i = 0; i < GP_VIEW_PARTS; i++) {
		const struct gp_plan_memory *p = &m->part[i];
		fprintf(to, "%-14s %12.2f %10.2f %10.2f %16.2f %10.2f %10.2f %10.2f %10.2f\n", part_names[i],
			mb(p->params), mb(p->grads), mb(p->optim), mb(m->maps[i]), mb(p->activations), mb(p->scratch),
			mb(p->io), mb(p->total));
	}
}

static void print_blocks(const struct gp_memory_view *m, FILE *to)
{
	const struct gp_graph *g = m->view->graph;
	fprintf(to, "\n%4s  %-22s %18s %18s\n", "", "kept of a chunk, MB",
		m->flags[0] ? "with these flags" : "as it is", "--recompute");
	for (int b = 0; b < g->blocks; b++)
		fprintf(to, "%4d  %-22s %18.2f %18.2f\n", b, g->block[b].name, mb(m->block_maps[b]),
			mb(m->block_maps_recomputed[b]));
}

static void print_savings(const struct gp_memory_view *m, FILE *to)
{
	const struct gp_memory_saving *plain = &m->saving[0];
	fprintf(to, "\n%-46s %16s %10s %10s %10s %10s\n", "with --local and", "maps of a chunk", "state", "scratch",
		"sum", "saved");
	for (int i = 0; i < GP_MEMORY_SAVINGS; i++) {
		const struct gp_memory_saving *s = &m->saving[i];
		const double saved = 100.0 * (1.0 - (double)s->whole.total / (double)plain->whole.total);
		fprintf(to, "%-46s %16.2f %10.2f %10.2f %10.2f %8.1f %%\n", s->flags[0] ? s->flags : "no such flag",
			mb(s->maps), mb(s->whole.optim), mb(s->whole.scratch), mb(s->whole.total), saved);
	}
}

void gp_memory_view_print(const struct gp_memory_view *m, FILE *to)
{
	print_parts(m, to);
	print_blocks(m, to);
	print_savings(m, to);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *memory_json(const struct gp_plan_memory *p, uint64_t maps)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "parameters", (json_int_t)p->params, "gradients",
			 (json_int_t)p->grads, "state", (json_int_t)p->optim, "chunk_maps", (json_int_t)maps, "maps",
			 (json_int_t)p->activations, "scratch", (json_int_t)p->scratch, "io", (json_int_t)p->io,
			 "total", (json_int_t)p->total);
}

static json_t *parts_json(const struct gp_memory_view *m)
{
	json_t *parts = json_object();
	for (int i = 0; i < GP_VIEW_PARTS; i++)
		json_object_set_new(parts, part_keys[i], memory_json(&m->part[i], m->maps[i]));
	return parts;
}

static json_t *blocks_json(const struct gp_memory_view *m)
{
	const struct gp_graph *g = m->view->graph;
	json_t *list = json_array();
	for (int b = 0; b < g->blocks; b++)
		json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "name", g->block[b].name, "maps",
						      (json_int_t)m->block_maps[b], "recomputed",
						      (json_int_t)m->block_maps_recomputed[b]));
	return list;
}

static json_t *savings_json(const struct gp_memory_view *m)
{
	json_t *list = json_array();
	for (int i = 0; i < GP_MEMORY_SAVINGS; i++) {
		json_t *o = memory_json(&m->saving[i].whole, m->saving[i].maps);
		json_object_set_new(o, "flags", json_string(m->saving[i].flags));
		json_array_append_new(list, o);
	}
	return list;
}

json_t *gp_memory_view_json(const struct gp_memory_view *m)
{
	return json_pack("{s:s, s:i, s:i, s:s, s:o, s:o, s:o}", "device", "cpu", "threads", m->threads, "window",
			 m->options.window, "flags", m->flags, "parts", parts_json(m), "blocks", blocks_json(m),
			 "savings", savings_json(m));
}

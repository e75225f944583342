/* SPDX-License-Identifier: Apache-2.0
 *
 * Named cuts of encoders. See partitions.h; model_encoder.c names the blocks.
 * Test: tests/unit/test_partitions.c
 */
#include "client/costs/partitions.h"

#include <ctype.h>

#include "common/base/text.h"

static const struct form {
	const char *name, *first, *last, *last_lm; /* last_lm: of a masked language model */
	bool whole_first, last_layer;              /* all of layer 0, and the last layer, stay here */
} forms[GP_PARTITIONS] = {
	{"f3l2", "embeddings, layer 0", "last layer, classifier", "last layer, lm_head", true, true},
	{"f2l2", "embeddings, attention of layer 0", "last layer, classifier", "last layer, lm_head", false, true},
	{"type1", "embeddings, attention of layer 0", "classifier", "lm_head", false, false},
	{"f3l1", "embeddings, layer 0", "classifier", "lm_head", true, false},
};

static int find_block(const struct gp_graph *g, const char *name)
{
	for (int i = 0; i < g->blocks; i++)
		if (strcmp(g->block[i].name, name) == 0)
			return i;
	return -1;
}

static int find_layer(const struct gp_graph *g, int layer)
{
	char name[GP_NAME_MAX];
	snprintf(name, sizeof name, "layer.%d", layer);
	return find_block(g, name);
}

static int count_layers(const struct gp_graph *g)
{
	int layers = 0;
	while (find_layer(g, layers) >= 0)
		layers++;
	return layers;
}

/* The classifier, or what stands in its place in a masked language model. */
static int find_head(const struct gp_graph *g)
{
	const int classifier = find_block(g, "classifier");
	return classifier < 0 ? find_block(g, "lm_head") : classifier;
}

static bool is_encoder(const struct gp_graph *g)
{
	return find_block(g, "embeddings") == 0 && find_layer(g, 0) == 1 && find_head(g) > 0;
}

static struct gp_partition partition_of(const struct gp_graph *g, const struct form *f)
{
	const int layers = count_layers(g), classifier = find_head(g), half = find_block(g, "layer.0.ffn");
	struct gp_partition p = {.name = f->name, .first = f->first, .last = f->last};
	if (find_block(g, "lm_head") > 0)
		p.last = f->last_lm;
	p.cut.head = !f->whole_first ? half : layers > 1 ? find_layer(g, 1) : classifier;
	p.cut.tail = f->last_layer ? find_layer(g, layers - 1) : classifier;
	if (p.cut.head < 0)
		p.lacks = "needs cuts=fine";
	else if (p.cut.head >= p.cut.tail)
		p.lacks = "needs more layers";
	return p;
}

static uint64_t type_bytes(const struct gp_type *t)
{
	return gp_shape_elements(&t->shape) * gp_dtype_bytes(t->dtype);
}

static enum gp_status count_bytes(const struct gp_graph *g, struct gp_partition *p, struct gp_err *err)
{
	struct gp_graph_parts parts;
	GP_TRY(gp_graph_cut(g, &p->cut, &parts, err));
	for (int i = 0; i < parts.body->inputs; i++)
		if (parts.body_activation >> i & 1)
			p->up_bytes += type_bytes(&parts.body->value[i].type);
	for (int i = 0; i < parts.body->outputs; i++)
		p->down_bytes += type_bytes(gp_graph_output_type(parts.body, i));
	gp_graph_parts_deinit(&parts);
	return GP_OK;
}

enum gp_status gp_partitions_find(const struct gp_graph *g, struct gp_partition out[GP_PARTITIONS], int *count,
				  struct gp_err *err)
{
	*count = is_encoder(g) ? GP_PARTITIONS : 0;
	for (int i = 0; i < *count; i++) {
		out[i] = partition_of(g, &forms[i]);
		if (!out[i].lacks)
			GP_TRY(count_bytes(g, &out[i], err));
	}
	return GP_OK;
}

static enum gp_status fail_unknown(const struct gp_graph *g, const char *text, struct gp_err *err)
{
	char shown[GP_SHOWN], names[64] = "";
	for (int i = 0; i < GP_PARTITIONS; i++)
		gp_text_append(names, sizeof names, "%s%s", i ? ", " : "", forms[i].name);
	GP_FAIL(err, GP_USAGE, "cut '%s' of %s is neither H:T, two block numbers, nor one of %s",
		gp_text_shown(gp_text_of(text), shown), g->name, names);
}

enum gp_status gp_partition_parse(const struct gp_graph *g, const char *text, struct gp_cut *out, struct gp_err *err)
{
	if (!isalpha((unsigned char)text[0]) || !is_encoder(g))
		return gp_cut_parse(g, text, out, err);
	for (int i = 0; i < GP_PARTITIONS; i++) {
		if (strcmp(text, forms[i].name) != 0)
			continue;
		const struct gp_partition p = partition_of(g, &forms[i]);
		if (p.lacks)
			GP_FAIL(err, GP_USAGE, "cut %s of %s with %d layer%s %s", p.name, g->name, count_layers(g),
				count_layers(g) == 1 ? "" : "s", p.lacks);
		*out = p.cut;
		return GP_OK;
	}
	return fail_unknown(g, text, err);
}

const char *gp_partition_text(const struct gp_graph *g, const struct gp_cut *cut, char text[24])
{
	snprintf(text, 24, "%d:%d", cut->head, cut->tail - g->blocks);
	return text;
}

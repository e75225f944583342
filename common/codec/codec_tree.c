/* SPDX-License-Identifier: Apache-2.0
 *
 * Wrappers, transforms and the quantizer of a chain, laid out as a tree and
 * opened. See codec_tree.h; what a pass does with it is in codec_tree_pass.c.
 * Test: tests/unit/test_codec_tree.c; fuzz: tests/fuzz/fuzz_codec_decode.c
 */
#include "common/codec/codec_tree.h"

/* --- plan ------------------------------------------------------------------------------------------------------- */

struct gp_codec_setup gp_codec_setup_for(const struct gp_codec_options *options, int index, bool learns)
{
	const bool encodes = options->role != GP_CODEC_DECODES;
	return (struct gp_codec_setup){
		.seed = options->seed +
			(uint64_t)index * UINT64_C(0x9e3779b97f4a7c15), /* the first stage's: as given */
		.chunks = options->chunks ? options->chunks : 1,
		.encodes = encodes,
		.undo = options->undo,
		.decodes = options->role != GP_CODEC_ENCODES || (encodes && learns && index > 0),
	};
}

static uint64_t mask_bytes(const struct gp_codec_node *node, const struct gp_codec_setup *setup)
{
	return (uint64_t)setup->chunks * ((node->n + 63) / 64 + 2) * 8;
}

/* Masks belong to the first stage, or the one behind a wrapper: its tensor is the activation. */
static bool masks_activation(const struct gp_codec_node *node)
{
	return node->stage == 0 || (node->stage == 1 && node[-1].ops->kind == GP_CODEC_WRAPPER);
}

static bool carries_mask(const struct gp_codec_node *node, const struct gp_codec_options *options)
{
	return node->ops->masks && options->has_gradient && masks_activation(node);
}

static struct gp_codec_setup setup_of(const struct gp_codec_tree *t, const struct gp_codec_node *node,
				      const struct gp_codec_options *options)
{
	struct gp_codec_setup setup = gp_codec_setup_for(options, (int)(node - t->node), t->learns);
	setup.shape = node->shape;
	setup.n = node->n;
	return setup;
}

static const struct gp_codec_ops *ops_of(const struct gp_codec_device *m, uint16_t id)
{
	return m ? m->ops->codec(id) : gp_codec_ops_by_id(id);
}

/* Whether every stage that sees tensors can work there. */
static bool has_all_stages(const struct gp_codec_device *m, const struct gp_codec_spec *spec)
{
	for (int i = 0; i < spec->stages; i++)
		if (gp_codec_ops_by_id(spec->stage[i].id)->kind != GP_CODEC_BYTES && !m->ops->codec(spec->stage[i].id))
			return false;
	return true;
}

/* A stage that works along places of the shape makes no sense of values that belong to several of them. */
static enum gp_status check_mixed(const struct gp_codec_spec *spec, int stage, const struct gp_shape *shape,
				  struct gp_err *err)
{
	const char *name = gp_codec_ops_by_id(spec->stage[stage].id)->info.name;
	for (int i = 0; i < stage && shape->ndim > 0; i++) {
		const struct gp_codec_ops *before = gp_codec_ops_by_id(spec->stage[i].id);
		const uint64_t mixed = before->mixes ? before->mixes(spec->stage[i].value) : 1;
		if ((uint64_t)shape->dim[shape->ndim - 1] % mixed)
			GP_FAIL(err, GP_INVALID,
				"codec stage %d (%s): %s before it mixes %llu elements in a row, and with them several "
				"places of this tensor, whose last dimension, %lld, is no multiple of that",
				stage + 1, name, before->info.name, (unsigned long long)mixed,
				(long long)shape->dim[shape->ndim - 1]);
	}
	return GP_OK;
}

static enum gp_status plan_node(struct gp_codec_tree *t, const struct gp_codec_spec *spec, int stage,
				const struct gp_shape *shape, const struct gp_codec_options *options,
				struct gp_codec_node **out, struct gp_err *err);

static enum gp_status plan_parts(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_spec *spec,
				 int stage, const struct gp_codec_options *options, struct gp_err *err)
{
	struct gp_codec_parts parts = {0};
	if (node->ops->shapes(node->value, &node->shape, &parts, err) != GP_OK)
		return gp_err_prefix(err, "codec stage %d (%s)", stage + 1, node->ops->info.name);
	gp_require(parts.count >= 1 && parts.count <= GP_CODEC_MAX_PARTS);
	if (node->ops->needs_shape)
		GP_TRY(check_mixed(spec, stage, &node->shape, err));
	node->parts = parts.count;
	node->side_bound = parts.side_bound;
	for (int i = 0; i < parts.count; i++) {
		GP_TRY(plan_node(t, spec, stage + 1, &parts.shape[i], options, &node->part[i], err));
		t->memory_bytes = gp_codec_work_add(t->memory_bytes, 4 * node->part[i]->n + 64);
	}
	return GP_OK;
}

/* Most bytes of a node, with its head and those of its parts, which have theirs. */
static uint64_t bound_of(const struct gp_codec_node *node)
{
	uint64_t bound = 0;
	if (node->ops->kind == GP_CODEC_QUANTIZER)
		bound = node->ops->bound(node->value, node->n);
	else
		bound = GP_CODEC_LENGTH + node->side_bound + GP_CODEC_LENGTH * (uint64_t)(node->parts - 1);
	for (int i = 0; i < node->parts; i++)
		bound = gp_codec_work_add(bound, node->part[i]->bound);
	if (node->ops->info.lossless)
		return bound;
	return gp_codec_work_add(GP_CODEC_HEAD, bound > 4 * node->n ? bound : 4 * node->n);
}

/* Lengths inside a payload have 32 bits. */
static enum gp_status check_bound(const struct gp_codec_node *node, int stage, struct gp_err *err)
{
	if (node->parts && node->bound > UINT32_MAX)
		GP_FAIL(err, GP_INVALID, "codec stage %d (%s): a tensor of %llu elements is too large for it",
			stage + 1, node->ops->info.name, (unsigned long long)node->n);
	return GP_OK;
}

static enum gp_status plan_node(struct gp_codec_tree *t, const struct gp_codec_spec *spec, int stage,
				const struct gp_shape *shape, const struct gp_codec_options *options,
				struct gp_codec_node **out, struct gp_err *err)
{
	if (t->nodes == GP_CODEC_MAX_NODES)
		GP_FAIL(err, GP_INVALID, "codec stage %d: the stages before it give more than %d tensors", stage + 1,
			GP_CODEC_MAX_NODES / 2);
	struct gp_codec_node *node = &t->node[t->nodes++];
	node->ops = ops_of(t->inside, spec->stage[stage].id);
	node->value = spec->stage[stage].value;
	node->stage = stage;
	node->shape = *shape;
	GP_TRY(gp_shape_count(shape, GP_CODEC_MAX_ELEMENTS, &node->n, err));
	t->learns |= node->ops->learn != NULL;
	if (node->ops->kind != GP_CODEC_QUANTIZER)
		GP_TRY(plan_parts(t, node, spec, stage, options, err));
	node->bound = bound_of(node);
	GP_TRY(check_bound(node, stage, err));
	const struct gp_codec_setup setup = setup_of(t, node, options);
	t->memory_bytes =
		gp_codec_work_add(t->memory_bytes, node->ops->bytes ? node->ops->bytes(node->value, &setup) : 4096);
	t->memory_bytes =
		gp_codec_work_add(t->memory_bytes, carries_mask(node, options) ? mask_bytes(node, &setup) : 0);
	t->work_ns = gp_codec_work_add(
		t->work_ns, gp_codec_stage_work(gp_codec_ops_by_id(spec->stage[stage].id), node->value, &setup));
	*out = node;
	return GP_OK;
}

static bool remembers(const struct gp_codec_tree *t)
{
	for (int i = 0; i < t->nodes; i++)
		if (t->node[i].ops->regions)
			return true;
	return false;
}

/* Most bytes that a node of a device writes or reads in one piece. */
static uint64_t largest_piece(const struct gp_codec_tree *t)
{
	uint64_t most = 0;
	for (int i = 0; i < t->nodes && t->inside; i++) {
		const uint64_t bytes = t->node[i].parts ? t->node[i].side_bound : t->node[i].bound;
		most = bytes > most ? bytes : most;
	}
	return most;
}

enum gp_status gp_codec_tree_plan(struct gp_codec_tree *t, const struct gp_codec_spec *spec,
				  const struct gp_shape *shape, const struct gp_codec_options *options,
				  struct gp_err *err)
{
	struct gp_codec_node *root;
	*t = (struct gp_codec_tree){.chunks = options->chunks ? options->chunks : 1, .device = options->device};
	t->inside = t->device && has_all_stages(t->device, spec) ? t->device : NULL;
	GP_TRY(plan_node(t, spec, 0, shape, options, &root, err));
	if (t->device)
		t->memory_bytes = gp_codec_work_add(t->memory_bytes, t->device->ops->site_bytes(largest_piece(t)));
	if (t->device != t->inside)
		t->memory_bytes = gp_codec_work_add(t->memory_bytes, 4 * root->n + 64);
	if (options->undo && remembers(t))
		t->memory_bytes = gp_codec_work_add(t->memory_bytes, t->chunks * sizeof *t->begun);
	return GP_OK;
}

/* --- open ------------------------------------------------------------------------------------------------------- */

static enum gp_status new_mask(struct gp_codec_tree *t, const struct gp_codec_setup *setup, struct gp_err *err)
{
	uint8_t *bits;
	struct gp_codec_mask *m = t->mask = gp_calloc(1, sizeof *m);
	if (!m)
		GP_FAIL(err, GP_NOMEM, "out of memory for a codec's masks");
	m->n = setup->n;
	m->words = (size_t)((setup->n + 63) / 64);
	m->chosen = gp_calloc(setup->chunks, sizeof *m->chosen);
	m->among = gp_calloc(setup->chunks, sizeof *m->among);
	if (!m->chosen || !m->among)
		GP_FAIL(err, GP_NOMEM, "out of memory for a codec's masks");
	for (uint32_t c = 0; c < setup->chunks; c++)
		m->among[c] = setup->n;
	const size_t bytes = m->words * setup->chunks * sizeof *m->bits;
	GP_TRY(gp_codec_alloc_payload(t->device, bytes, &bits, err));
	m->bits = (uint64_t *)(void *)bits;
	memset(m->bits, 0, bytes);
	return GP_OK;
}

static enum gp_status new_tensor(struct gp_codec_tree *t, uint64_t n, float **out, struct gp_err *err)
{
	void *p;
	if (t->inside) {
		GP_TRY(t->inside->ops->alloc(t->site, n * sizeof(float), &p, err));
	} else {
		p = gp_alloc_aligned(n * sizeof(float));
		if (!p)
			GP_FAIL(err, GP_NOMEM, "out of memory for a codec's tensor of %llu elements",
				(unsigned long long)n);
	}
	*out = p;
	return GP_OK;
}

/* NULL is fine, also where there is no site yet. */
static void free_tensor(struct gp_codec_tree *t, float *tensor)
{
	if (t->inside && tensor)
		t->inside->ops->free(t->site, tensor);
	else if (!t->inside)
		gp_free_aligned(tensor);
}

/* A wrapper in front of the stage that reuses the activation's mask hears of it, too. */
static void tell_mask(const struct gp_codec_node *node, const struct gp_codec_mask *mask, struct gp_codec_setup *setup)
{
	const struct gp_codec_node *reuses = node->ops->kind == GP_CODEC_WRAPPER ? node->part[0] : node;
	if (!mask || mask->n != reuses->n || !reuses->ops->masks || !masks_activation(reuses))
		return;
	setup->activation_mask = mask;
	setup->chosen = reuses->part[0]->n;
}

static enum gp_status open_node(struct gp_codec_tree *t, struct gp_codec_node *node,
				const struct gp_codec_options *options, const struct gp_codec_mask *activation_mask,
				struct gp_err *err)
{
	struct gp_codec_setup setup = setup_of(t, node, options);
	if (carries_mask(node, options) && !t->mask)
		GP_TRY(new_mask(t, &setup, err));
	setup.mask = carries_mask(node, options) ? t->mask : NULL;
	tell_mask(node, activation_mask, &setup);
	setup.site = t->inside ? t->site : NULL;
	for (int i = 0; i < node->parts; i++)
		GP_TRY(new_tensor(t, node->part[i]->n, &node->tensor[i], err));
	return node->ops->open(node->value, &setup, &node->state, err);
}

static enum gp_status open_site(struct gp_codec_tree *t, struct gp_err *err)
{
	uint8_t *p;
	if (!t->device)
		return GP_OK;
	GP_TRY(t->device->ops->site_open(t->device, largest_piece(t), &t->site, err));
	if (t->inside)
		return GP_OK;
	GP_TRY(gp_codec_alloc_payload(t->device, t->node[0].n * sizeof(float), &p, err));
	t->staging = (float *)(void *)p;
	return GP_OK;
}

static enum gp_status open_begun(struct gp_codec_tree *t, const struct gp_codec_options *options, struct gp_err *err)
{
	void *p;
	if (!options->undo || !remembers(t))
		return GP_OK;
	GP_TRY(gp_alloc_array(&p, t->chunks, sizeof *t->begun, err));
	t->begun = p;
	return GP_OK;
}

enum gp_status gp_codec_tree_open(struct gp_codec_tree *t, const struct gp_codec_options *options,
				  const struct gp_codec_mask *activation_mask, struct gp_err *err)
{
	enum gp_status status = open_begun(t, options, err);
	if (status == GP_OK)
		status = open_site(t, err);
	for (int i = 0; i < t->nodes && status == GP_OK; i++)
		status = open_node(t, &t->node[i], options, activation_mask, err);
	if (status != GP_OK)
		gp_codec_tree_close(t);
	return status;
}

static void free_mask(struct gp_codec_tree *t)
{
	if (!t->mask)
		return;
	gp_codec_free_payload(t->device, (uint8_t *)t->mask->bits);
	gp_free(t->mask->chosen);
	gp_free(t->mask->among);
	gp_free(t->mask);
	t->mask = NULL;
}

static void close_site(struct gp_codec_tree *t)
{
	if (!t->device)
		return;
	gp_codec_free_payload(t->device, (uint8_t *)t->staging);
	t->device->ops->site_close(t->site);
	t->staging = NULL;
	t->site = NULL;
}

void gp_codec_tree_close(struct gp_codec_tree *t)
{
	for (int i = 0; i < t->nodes; i++) {
		struct gp_codec_node *node = &t->node[i];
		node->ops->close(node->state);
		node->state = NULL;
		for (int k = 0; k < node->parts; k++) {
			free_tensor(t, node->tensor[k]);
			node->tensor[k] = NULL;
		}
	}
	free_mask(t);
	close_site(t);
	gp_free(t->begun);
	t->begun = NULL;
}

/* --- resize ----------------------------------------------------------------------------------------------------- */

static void resize_node(struct gp_codec_node *node, const struct gp_shape *shape)
{
	struct gp_codec_parts parts = {0};
	struct gp_err err;
	node->shape = *shape;
	node->n = gp_shape_elements(shape);
	if (node->parts > 0) {
		const enum gp_status status = node->ops->shapes(node->value, shape, &parts, &err);
		gp_require(status == GP_OK && parts.count == node->parts);
		node->side_bound = parts.side_bound;
	}
	for (int i = 0; i < node->parts; i++)
		resize_node(node->part[i], &parts.shape[i]);
	node->bound = bound_of(node);
	if (node->ops->reshape)
		node->ops->reshape(node->state, node->value, shape);
	else
		node->ops->resize(node->state, node->value, node->n);
}

void gp_codec_tree_resize(struct gp_codec_tree *t, const struct gp_shape *shape)
{
	if (!gp_shape_equal(&t->node[0].shape, shape))
		resize_node(t->node, shape);
}

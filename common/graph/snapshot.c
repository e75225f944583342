/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of plans and codecs on its way into and out of a checkpoint. See
 * snapshot.h. Test: tests/unit/test_snapshot.c
 */
#include "common/graph/snapshot.h"

#include <string.h>

#include "common/codec/moment_store.h"

#define OPTIM_ARRAYS_MAX 2 /* of Adam */

enum { NAME_ROOM = GP_NAME_MAX + 32 };

/* --- out -------------------------------------------------------------------------------------------------------- */

static enum gp_status make_room(struct gp_snapshot *s, struct gp_err *err)
{
	if (s->count < s->room)
		return GP_OK;
	int room = s->room ? 2 * s->room : 64;
	struct gp_st_item *more = gp_realloc(s->item, (size_t)room, sizeof *more);
	if (!more)
		GP_FAIL(err, GP_NOMEM, "out of memory for a checkpoint");
	s->item = more;
	s->room = room;
	return GP_OK;
}

/* An item with room for its data; the item counts from here on. */
static enum gp_status add_item(struct gp_snapshot *s, const char *name, const struct gp_shape *shape,
			       enum gp_st_dtype dtype, void **data, struct gp_err *err)
{
	GP_TRY(make_room(s, err));
	char *copy = gp_strdup(name);
	void *room = gp_calloc(gp_shape_elements(shape), gp_st_dtype_bytes(dtype));
	if (!copy || !room) {
		gp_free(copy);
		gp_free(room);
		GP_FAIL(err, GP_NOMEM, "out of memory for a checkpoint");
	}
	s->item[s->count++] = (struct gp_st_item){copy, *shape, room, dtype};
	*data = room;
	return GP_OK;
}

static const char *array_name(char text[NAME_ROOM], int which, const struct gp_param *p)
{
	if (which < 0)
		snprintf(text, NAME_ROOM, "param.%s", p->name);
	else
		snprintf(text, NAME_ROOM, "optimizer.%d.%s", which, p->name);
	return text;
}

/* Bytes of the array's code; 0: it lies as floats. */
static uint64_t code_bytes(const struct gp_plan *plan, int index, int which)
{
	return which >= 0 && plan->ops->optim_code_bytes ? plan->ops->optim_code_bytes(plan, index) : 0;
}

static enum gp_status add_array(struct gp_snapshot *s, struct gp_plan *plan, int index, int which, struct gp_err *err)
{
	const struct gp_param *p = &plan->spec.graph->param[index];
	const uint64_t bytes = code_bytes(plan, index, which);
	const struct gp_shape code = {.ndim = 1, .dim = {(int64_t)bytes}};
	char name[NAME_ROOM];
	void *data;
	array_name(name, which, p);
	GP_TRY(add_item(s, name, bytes > 0 ? &code : &p->shape, bytes > 0 ? GP_ST_U8 : GP_ST_F32, &data, err));
	if (which < 0)
		return plan->ops->param_get(plan, index, data, err);
	return bytes > 0 ? plan->ops->optim_code_get(plan, index, which, data, err)
			 : plan->ops->optim_get(plan, index, which, data, err);
}

static enum gp_status add_param(struct gp_snapshot *s, struct gp_plan *plan, int index, struct gp_err *err)
{
	const struct gp_param *p = &plan->spec.graph->param[index];
	int arrays = p->trained ? plan->ops->optim_states(plan) : 0;
	for (int which = -1; which < arrays; which++)
		GP_TRY(add_array(s, plan, index, which, err));
	return GP_OK;
}

enum gp_status gp_snapshot_add_plan(struct gp_snapshot *s, struct gp_plan *plan, struct gp_err *err)
{
	for (int i = 0; i < plan->spec.graph->params; i++)
		if (!plan->spec.graph->param[i].follows)
			GP_TRY(add_param(s, plan, i, err));
	return GP_OK;
}

enum gp_status gp_snapshot_add_codec(struct gp_snapshot *s, const char *name, const struct gp_codec *c,
				     struct gp_err *err)
{
	char full[NAME_ROOM];
	struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)gp_codec_state_bytes(c)}};
	void *data;
	snprintf(full, sizeof full, "codec.%s", name);
	GP_TRY(add_item(s, full, &shape, GP_ST_U8, &data, err));
	return gp_codec_state_save(c, data, err);
}

void gp_snapshot_deinit(struct gp_snapshot *s)
{
	for (int i = 0; i < s->count; i++) {
		gp_free((char *)s->item[i].name);
		gp_free((void *)s->item[i].data);
	}
	gp_free(s->item);
	*s = (struct gp_snapshot){0};
}

/* The code of a small array may be larger than the array. */
static uint64_t state_bytes(const struct gp_graph *g, const struct gp_codec_spec *state)
{
	uint64_t sum = 0;
	for (int i = 0; state && i < g->params; i++)
		sum += gp_moment_bytes(state, g->param[i].count);
	return state ? sum : g->param_elements * sizeof(float);
}

uint64_t gp_snapshot_plan_bytes(const struct gp_graph *g, const struct gp_codec_spec *state)
{
	return g->param_elements * sizeof(float) + OPTIM_ARRAYS_MAX * state_bytes(g, state) +
	       (uint64_t)g->params * (1 + OPTIM_ARRAYS_MAX) * (sizeof(struct gp_st_item) + NAME_ROOM);
}

/* --- in --------------------------------------------------------------------------------------------------------- */

/* `code`: the bytes of one; 0: the parameter's shape. */
static bool fits(const struct gp_st_tensor *t, const struct gp_param *p, uint64_t code)
{
	if (code > 0)
		return t->dtype == GP_ST_U8 && t->count == code;
	return t->dtype == GP_ST_F32 && gp_shape_equal(&t->shape, &p->shape);
}

static enum gp_status find_array(const struct gp_st_file *f, const struct gp_plan *plan, int index, int which,
				 const struct gp_st_tensor **out, struct gp_err *err)
{
	const struct gp_param *p = &plan->spec.graph->param[index];
	char name[NAME_ROOM];
	const struct gp_st_tensor *t = gp_st_find(f, array_name(name, which, p));
	if (!t)
		GP_FAIL(err, GP_INVALID, "the checkpoint has no tensor '%.200s'", name);
	if (!fits(t, p, code_bytes(plan, index, which)))
		GP_FAIL(err, GP_INVALID, "tensor '%.200s' of the checkpoint has another type or shape", name);
	*out = t;
	return GP_OK;
}

/* `c`: of state that lies encoded. */
static enum gp_status check_array(const struct gp_st_file *f, const struct gp_plan *plan, int index, int which,
				  struct gp_store_coder *c, struct gp_err *err)
{
	const struct gp_param *p = &plan->spec.graph->param[index];
	const struct gp_st_tensor *t;
	GP_TRY(find_array(f, plan, index, which, &t, err));
	if (code_bytes(plan, index, which) == 0 || gp_moment_accept(c, t->data, p->count, err) == GP_OK)
		return GP_OK;
	return gp_err_prefix(err, "tensor 'optimizer.%d.%.200s' of the checkpoint", which, p->name);
}

static enum gp_status check_arrays(const struct gp_st_file *f, const struct gp_plan *plan, uint64_t *largest,
				   struct gp_store_coder *c, struct gp_err *err)
{
	const struct gp_graph *g = plan->spec.graph;
	*largest = 1;
	for (int i = 0; i < g->params; i++) {
		if (g->param[i].follows)
			continue;
		int arrays = g->param[i].trained ? plan->ops->optim_states(plan) : 0;
		for (int which = -1; which < arrays; which++)
			GP_TRY(check_array(f, plan, i, which, c, err));
		if (g->param[i].count > *largest)
			*largest = g->param[i].count;
	}
	return GP_OK;
}

static enum gp_status check_plan(const struct gp_st_file *f, const struct gp_plan *plan, uint64_t *largest,
				 struct gp_err *err)
{
	const struct gp_codec_spec *state = plan->spec.coded[GP_STRUCT_STATE];
	struct gp_store_coder *c = NULL;
	if (state)
		GP_TRY(gp_store_coder_new(state, &c, err));
	const enum gp_status status = check_arrays(f, plan, largest, c, err);
	gp_store_coder_free(c);
	return status;
}

static enum gp_status set_array(struct gp_plan *plan, int index, int which, const float *values, struct gp_err *err)
{
	return which < 0 ? plan->ops->param_set(plan, index, values, err)
			 : plan->ops->optim_set(plan, index, which, values, err);
}

static enum gp_status load_array(struct gp_plan *plan, const struct gp_st_file *f, int index, int which, float *room,
				 struct gp_err *err)
{
	const struct gp_st_tensor *t;
	GP_TRY(find_array(f, plan, index, which, &t, err));
	if (code_bytes(plan, index, which) > 0)
		return plan->ops->optim_code_set(plan, index, which, t->data, err);
	GP_TRY(gp_st_read_f32(t, room, err));
	return set_array(plan, index, which, room, err);
}

/* `f` NULL: optimizer state of zeros. */
static enum gp_status set_arrays(struct gp_plan *plan, const struct gp_st_file *f, int index, float *room,
				 struct gp_err *err)
{
	const struct gp_param *p = &plan->spec.graph->param[index];
	int arrays = p->trained ? plan->ops->optim_states(plan) : 0;
	memset(room, 0, p->count * sizeof *room);
	for (int which = f ? -1 : 0; which < arrays; which++)
		GP_TRY(f ? load_array(plan, f, index, which, room, err) : set_array(plan, index, which, room, err));
	return GP_OK;
}

enum gp_status gp_snapshot_load_plan(const struct gp_st_file *f, uint64_t steps, struct gp_plan *plan,
				     struct gp_err *err)
{
	uint64_t largest;
	void *room;
	enum gp_status status = GP_OK;
	GP_TRY(check_plan(f, plan, &largest, err));
	GP_TRY(gp_alloc_array(&room, largest, sizeof(float), err));
	for (int i = 0; status == GP_OK && i < plan->spec.graph->params; i++)
		if (!plan->spec.graph->param[i].follows)
			status = set_arrays(plan, f, i, room, err);
	gp_free(room);
	GP_TRY(status);
	plan->ops->optim_count_set(plan, steps);
	return GP_OK;
}

enum gp_status gp_snapshot_load_codec(const struct gp_st_file *f, const char *name, struct gp_codec *c,
				      struct gp_err *err)
{
	char full[NAME_ROOM];
	snprintf(full, sizeof full, "codec.%s", name);
	const struct gp_st_tensor *t = gp_st_find(f, full);
	if (!t || t->dtype != GP_ST_U8)
		GP_FAIL(err, GP_INVALID, "the checkpoint has no bytes '%s'", full);
	if (gp_codec_state_load(c, (struct gp_span){t->data, t->count}, err) != GP_OK)
		return gp_err_prefix(err, "%s", full);
	return GP_OK;
}

/* --- from one plan to another ------------------------------------------------------------------------------------- */

static bool is_part_of(const struct gp_shape *part, const struct gp_shape *whole)
{
	if (part->ndim != 2 || whole->ndim != 2)
		return gp_shape_equal(part, whole);
	return part->dim[0] <= whole->dim[0] && part->dim[1] <= whole->dim[1];
}

/* The first rows and columns, side by side. */
static void cut_matrix(const float *from, const struct gp_shape *whole, const struct gp_shape *part, float *to)
{
	const size_t columns = (size_t)part->dim[1];
	for (int64_t row = 0; row < part->dim[0]; row++)
		memcpy(to + (size_t)row * columns, from + row * whole->dim[1], columns * sizeof *to);
}

/* Makes of the code of an array of shape `whole` that of its first rows and columns. */
static void cut_coded(struct gp_store_coder *c, const struct gp_moment_draw *draw, const uint8_t *code,
		      const struct gp_shape *whole, const struct gp_shape *part, float *room, float *cut, uint8_t *to)
{
	const uint64_t n = gp_shape_elements(whole), less = gp_shape_elements(part);
	for (uint64_t block = 0; block < gp_store_blocks(n); block++)
		gp_moment_decode(c, code, n, block, room + block * GP_STORE_BLOCK);
	cut_matrix(room, whole, part, cut);
	for (uint64_t block = 0; block < gp_store_blocks(less); block++)
		gp_moment_encode(c, draw, cut + block * GP_STORE_BLOCK, less, block, to);
}

static enum gp_status move_cut_code(const struct gp_st_item *item, const struct gp_shape *whole, struct gp_plan *plan,
				    int index, int which, float *cut, struct gp_err *err)
{
	const struct gp_shape *part = &plan->spec.graph->param[index].shape;
	void *room, *code = NULL;
	struct gp_store_coder *c = NULL;
	GP_TRY(gp_alloc_array(&room, gp_shape_elements(whole), sizeof(float), err));
	enum gp_status status = gp_alloc_array(&code, code_bytes(plan, index, which), 1, err);
	if (status == GP_OK)
		status = gp_store_coder_new(plan->spec.coded[GP_STRUCT_STATE], &c, err);
	if (status == GP_OK) {
		/* The count of updates has been moved to the plan before its arrays are. */
		const struct gp_moment_draw draw = {gp_plan_moment_array(&plan->spec, index, which),
						    plan->ops->optim_count_get(plan) | GP_MOMENT_CUT};
		cut_coded(c, &draw, item->data, whole, part, room, cut, code);
		status = plan->ops->optim_code_set(plan, index, which, code, err);
	}
	gp_store_coder_free(c);
	gp_free(code);
	gp_free(room);
	return status;
}

/* `whole`: the shape that the parameter had. */
static enum gp_status move_array(const struct gp_st_item *item, const struct gp_shape *whole, struct gp_plan *plan,
				 int index, int which, float *room, struct gp_err *err)
{
	const struct gp_param *p = &plan->spec.graph->param[index];
	const bool same = gp_shape_equal(&p->shape, whole), coded = item->dtype == GP_ST_U8;
	char name[NAME_ROOM];
	if (strcmp(item->name, array_name(name, which, p)) != 0 || !is_part_of(&p->shape, whole) ||
	    coded != (code_bytes(plan, index, which) > 0))
		GP_FAIL(err, GP_INTERNAL, "'%s' of the plan before has no part '%s'", item->name, name);
	if (coded)
		return same ? plan->ops->optim_code_set(plan, index, which, item->data, err)
			    : move_cut_code(item, whole, plan, index, which, room, err);
	if (same)
		return set_array(plan, index, which, item->data, err);
	cut_matrix(item->data, whole, &p->shape, room);
	return set_array(plan, index, which, room, err);
}

static enum gp_status move_arrays(const struct gp_snapshot *s, struct gp_plan *plan, float *room, struct gp_err *err)
{
	const struct gp_graph *g = plan->spec.graph;
	int at = 0;
	for (int i = 0; i < g->params; i++) {
		const int arrays = g->param[i].trained ? plan->ops->optim_states(plan) : 0;
		const int first = at;
		for (int which = -1; which < arrays; which++) {
			if (at == s->count)
				GP_FAIL(err, GP_INTERNAL, "the plan before had nothing of %s", g->param[i].name);
			GP_TRY(move_array(&s->item[at++], &s->item[first].shape, plan, i, which, room, err));
		}
	}
	return GP_OK;
}

enum gp_status gp_snapshot_move_plan(const struct gp_snapshot *s, uint64_t steps, struct gp_plan *plan,
				     struct gp_err *err)
{
	const struct gp_graph *g = plan->spec.graph;
	uint64_t largest = 1;
	void *room;
	for (int i = 0; i < g->params; i++)
		largest = g->param[i].count > largest ? g->param[i].count : largest;
	GP_TRY(gp_alloc_array(&room, largest, sizeof(float), err));
	plan->ops->optim_count_set(plan, steps);
	const enum gp_status status = move_arrays(s, plan, room, err);
	gp_free(room);
	return status;
}

/* --- to the beginning --------------------------------------------------------------------------------------------- */

static enum gp_status begin_values(struct gp_plan *plan, const struct gp_weights *from, struct gp_err *err)
{
	const struct gp_graph *g = plan->spec.graph;
	for (int i = 0; i < g->params; i++) {
		int whole = gp_graph_find_param(from->graph, g->param[i].name);
		GP_TRY(plan->ops->param_set(plan, i, from->value[whole], err));
	}
	return GP_OK;
}

static enum gp_status begin_optimizer(struct gp_plan *plan, float *room, struct gp_err *err)
{
	for (int i = 0; i < plan->spec.graph->params; i++)
		if (!plan->spec.graph->param[i].follows)
			GP_TRY(set_arrays(plan, NULL, i, room, err));
	plan->ops->optim_count_set(plan, 0);
	return GP_OK;
}

enum gp_status gp_snapshot_begin_plan(struct gp_plan *plan, const struct gp_weights *init, struct gp_err *err)
{
	struct gp_weights *drawn = NULL;
	void *room;
	GP_TRY(gp_alloc_array(&room, plan->spec.graph->param_elements + 1, sizeof(float), err));
	enum gp_status status = init ? GP_OK : gp_weights_new(plan->spec.graph, &drawn, err);
	if (drawn)
		gp_weights_init(drawn, plan->spec.seed);
	if (status == GP_OK)
		status = begin_values(plan, init ? init : drawn, err);
	if (status == GP_OK)
		status = begin_optimizer(plan, room, err);
	gp_weights_free(drawn);
	gp_free(room);
	return status;
}

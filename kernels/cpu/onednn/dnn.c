/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and running oneDNN primitives with planned memory. See dnn.h.
 * Test: tests/unit/test_cpu_ops.c
 */
#include "kernels/cpu/onednn/dnn.h"

#include <string.h>

#include "kernels/cpu/math/bf16.h"
#include "kernels/cpu/plan/parallel.h"

#define MAX_ARGS     5
#define NARROW_GRAIN 32 /* a cache line of bf16 */

enum gp_status gp_dnn_check(dnnl_status_t status, const struct cpu_node *n, const char *what, struct gp_err *err)
{
	if (status == dnnl_success)
		return GP_OK;
	enum gp_status code = status == dnnl_out_of_memory   ? GP_NOMEM
			      : status == dnnl_unimplemented ? GP_UNSUPPORTED
							     : GP_DEVICE;
	return gp_err_set(err, code, (int)status, __FILE__, __LINE__, "oneDNN cannot %s %s %s (status %d)", what,
			  n->op->name, n->base.g->name, (int)status);
}

#define DNN_TRY(expr, n, what, err) GP_TRY(gp_dnn_check((expr), (n), (what), (err)))

/* --- which argument is what in which role ------------------------------------------------------------------------ */

static const struct role_row {
	const char *verb;
	int x_arg, y_arg, weight_arg, bias_arg;
	dnnl_query_t x_md, y_md, weight_md;
} roles_table[DNN_ROLES] = {
	[DNN_FORWARD] = {"run forward", DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, dnnl_query_src_md,
			 dnnl_query_dst_md, dnnl_query_weights_md},
	[DNN_DATA] = {"run backward", DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, 0, dnnl_query_diff_src_md,
		      dnnl_query_diff_dst_md, dnnl_query_weights_md},
	[DNN_WEIGHTS] = {"find the weight gradient of", DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
			 DNNL_ARG_DIFF_BIAS, dnnl_query_src_md, dnnl_query_diff_dst_md, dnnl_query_diff_weights_md},
};

static const dnnl_memory_desc_t *md_of(const struct dnn_prim *r, dnnl_query_t what)
{
	return dnnl_primitive_desc_query_md(r->desc, what, 0);
}

/* Whether the role reads x (0) or y (1), and does not write it. */
static bool reads(enum dnn_role role, int which)
{
	return role == DNN_WEIGHTS || role == (which ? DNN_DATA : DNN_FORWARD);
}

void gp_dnn_narrow(const struct dnn_state *s, enum dnn_role role, dnnl_memory_desc_t *x, dnnl_memory_desc_t *y,
		   dnnl_memory_desc_t *weight)
{
	if (!s->bf16)
		return;
	if (reads(role, 0))
		x->data_type = dnnl_bf16;
	if (reads(role, 1))
		y->data_type = dnnl_bf16;
	if (role != DNN_WEIGHTS)
		weight->data_type = dnnl_bf16;
}

/* --- preparing -------------------------------------------------------------------------------------------------- */

/* Plain loops, many times slower than a kernel for fp32. */
static bool is_reference(const_dnnl_primitive_desc_t desc)
{
	const char *name = "";
	dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
	return strncmp(name, "ref", 3) == 0;
}

static enum gp_status find_role(struct cpu_plan *p, struct cpu_node *n, struct dnn_state *s, enum dnn_role role,
				const union dnn_desc *desc, struct gp_err *err)
{
	dnnl_primitive_attr_t attr;
	struct dnn_prim *r = &s->role[role];
	DNN_TRY(dnnl_primitive_attr_create(&attr), n, roles_table[role].verb, err);
	dnnl_status_t status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
	if (status == dnnl_success)
		status = dnnl_primitive_desc_create(&r->desc, desc, attr, p->dev->engine, s->role[DNN_FORWARD].desc);
	dnnl_primitive_attr_destroy(attr);
	DNN_TRY(status, n, roles_table[role].verb, err);
	if (s->bf16 && is_reference(r->desc))
		GP_FAIL(err, GP_UNSUPPORTED, "no kernel for %s in bf16", n->base.g->name);
	const dnnl_memory_desc_t *weight = md_of(r, roles_table[role].weight_md);
	r->plain = dnnl_memory_desc_equal(weight, &s->dense_md);
	r->weight_count = (int64_t)(dnnl_memory_desc_get_size(weight) / sizeof(float));
	r->weight_bytes = gp_cpu_align(dnnl_memory_desc_get_size(weight));
	r->scratch_bytes = gp_cpu_align(dnnl_memory_desc_get_size(md_of(r, dnnl_query_scratchpad_md)));
	return GP_OK;
}

static void reserve_pack(struct cpu_plan *p, struct dnn_prim *r)
{
	if (!r->wanted || r->plain)
		return;
	r->pack_offset = p->pack_bytes;
	p->pack_bytes += r->weight_bytes;
}

/* A chunk's weight gradient and bias gradient are computed behind the scratchpad when they have to be added. */
static uint64_t weights_room(const struct cpu_plan *p, const struct cpu_node *n, const struct dnn_prim *r)
{
	if (!r->desc)
		return 0;
	int bias = gp_cpu_param_index(p, n, GP_PARAM_BIAS);
	uint64_t bias_bytes = bias < 0 ? 0 : gp_cpu_align(p->base.spec.graph->param[bias].count * sizeof(float));
	return r->scratch_bytes + r->weight_bytes + bias_bytes;
}

static enum gp_status find_roles(struct cpu_plan *p, struct cpu_node *n, struct dnn_state *s, unsigned roles,
				 dnn_describe_fn describe, const void *geometry, struct gp_err *err)
{
	for (enum dnn_role role = DNN_FORWARD; role < DNN_ROLES; role++) {
		union dnn_desc desc;
		s->role[role].wanted = roles & 1u << role;
		if (role != DNN_FORWARD && !s->role[role].wanted)
			continue;
		DNN_TRY(describe(geometry, role, &desc), n, roles_table[role].verb, err);
		GP_TRY(find_role(p, n, s, role, &desc, err));
	}
	return GP_OK;
}

static void forget_roles(struct dnn_state *s)
{
	for (enum dnn_role role = DNN_FORWARD; role < DNN_ROLES; role++) {
		dnnl_primitive_desc_destroy(s->role[role].desc);
		s->role[role] = (struct dnn_prim){0};
	}
}

static int64_t elements(const dnnl_memory_desc_t *md)
{
	int64_t n = 1;
	for (int i = 0; i < md->ndims; i++)
		n *= md->dims[i];
	return n;
}

/* Room for x and y in bf16 behind what the primitives work in. */
static void reserve_narrow(struct cpu_node *n, struct dnn_state *s)
{
	s->count[0] = elements(md_of(&s->role[DNN_FORWARD], roles_table[DNN_FORWARD].x_md));
	s->count[1] = elements(md_of(&s->role[DNN_FORWARD], roles_table[DNN_FORWARD].y_md));
	for (int which = 0; which < 2; which++) {
		bool read = false;
		for (enum dnn_role role = DNN_FORWARD; role < DNN_ROLES; role++)
			read = read || (s->role[role].wanted && reads(role, which));
		s->narrow_offset[which] = n->tmp_bytes;
		if (s->bf16 && read)
			n->tmp_bytes += gp_cpu_align((uint64_t)s->count[which] * sizeof(uint16_t));
	}
}

enum gp_status gp_dnn_prepare(struct cpu_plan *p, struct cpu_node *n, struct dnn_state *s, unsigned roles,
			      dnn_describe_fn describe, const void *geometry, struct gp_err *err)
{
	enum gp_status status = find_roles(p, n, s, roles, describe, geometry, err);
	if (status == GP_UNSUPPORTED && s->bf16) {
		s->bf16 = false;
		forget_roles(s);
		status = find_roles(p, n, s, roles, describe, geometry, err);
	}
	GP_TRY(status);
	for (enum dnn_role role = DNN_FORWARD; role < DNN_ROLES; role++)
		if (s->role[role].scratch_bytes > n->tmp_bytes)
			n->tmp_bytes = s->role[role].scratch_bytes;
	reserve_pack(p, &s->role[DNN_FORWARD]);
	reserve_pack(p, &s->role[DNN_DATA]);
	uint64_t room = weights_room(p, n, &s->role[DNN_WEIGHTS]);
	if (room > n->tmp_bytes)
		n->tmp_bytes = room;
	reserve_narrow(n, s);
	if (s->role[DNN_WEIGHTS].desc)
		p->param[gp_cpu_param_index(p, n, GP_PARAM_WEIGHT)].grad_count =
			s->role[DNN_WEIGHTS].weight_bytes / sizeof(float);
	return GP_OK;
}

/* --- making ----------------------------------------------------------------------------------------------------- */

static dnnl_status_t make_memory(struct cpu_plan *p, const dnnl_memory_desc_t *md, dnnl_memory_t *out)
{
	return dnnl_memory_create(out, md, p->dev->engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t make_reorder(struct cpu_plan *p, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
				  dnnl_primitive_t *out)
{
	dnnl_primitive_desc_t desc;
	dnnl_status_t status =
		dnnl_reorder_primitive_desc_create(&desc, from, p->dev->engine, to, p->dev->engine, NULL);
	if (status != dnnl_success)
		return status;
	status = dnnl_primitive_create(out, desc);
	dnnl_primitive_desc_destroy(desc);
	return status;
}

static dnnl_status_t make_role(struct cpu_plan *p, struct dnn_state *s, enum dnn_role role, float *dense_weight)
{
	struct dnn_prim *r = &s->role[role];
	const struct role_row *row = &roles_table[role];
	const dnnl_memory_desc_t *weight = md_of(r, row->weight_md);
	const dnnl_memory_desc_t *bias = dnnl_primitive_desc_query_md(
		r->desc, role == DNN_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 1);
	dnnl_status_t st = dnnl_primitive_create(&r->prim, r->desc);
	if (st == dnnl_success)
		st = make_memory(p, md_of(r, row->x_md), &r->x);
	if (st == dnnl_success)
		st = make_memory(p, md_of(r, row->y_md), &r->y);
	if (st == dnnl_success)
		st = make_memory(p, weight, &r->weight);
	if (st == dnnl_success && s->bias && row->bias_arg)
		st = make_memory(p, bias, &r->bias);
	if (st == dnnl_success)
		st = make_memory(p, md_of(r, dnnl_query_scratchpad_md), &r->scratch);
	if (st == dnnl_success && !r->plain)
		st = role == DNN_WEIGHTS ? make_reorder(p, weight, &s->dense_md, &r->reorder)
					 : make_reorder(p, &s->dense_md, weight, &r->reorder);
	if (st == dnnl_success && role != DNN_WEIGHTS)
		st = dnnl_memory_set_data_handle(r->weight,
						 r->plain ? (void *)dense_weight : p->packs + r->pack_offset);
	return st;
}

enum gp_status gp_dnn_create(struct cpu_plan *p, struct cpu_node *n, struct dnn_state *s, struct gp_err *err)
{
	float *weight = gp_cpu_param_value(p, n, GP_PARAM_WEIGHT);
	DNN_TRY(make_memory(p, &s->dense_md, &s->dense), n, "hold the weight of", err);
	for (enum dnn_role role = DNN_FORWARD; role < DNN_ROLES; role++)
		if (s->role[role].wanted)
			DNN_TRY(make_role(p, s, role, weight), n, roles_table[role].verb, err);
	if (s->role[DNN_FORWARD].bias)
		DNN_TRY(dnnl_memory_set_data_handle(s->role[DNN_FORWARD].bias, gp_cpu_param_value(p, n, GP_PARAM_BIAS)),
			n, "hold the bias of", err);
	return GP_OK;
}

const dnnl_memory_desc_t *gp_dnn_weight(const struct dnn_state *s, enum dnn_role role)
{
	return s->role[role].desc ? md_of(&s->role[role], roles_table[role].weight_md) : NULL;
}

/* Works with the memory that was planned for `of`, and is no stopgap where that is not. */
static bool can_replace(const struct dnn_prim *r, const struct dnn_prim *of)
{
	return r->scratch_bytes <= of->scratch_bytes && r->weight_bytes == of->weight_bytes && r->plain == of->plain &&
	       (is_reference(of->desc) || !is_reference(r->desc));
}

static enum gp_status find_varied(struct cpu_plan *p, struct cpu_node *n, const struct dnn_state *s,
				  dnn_describe_fn describe, const void *geometry, struct dnn_state *out,
				  struct gp_err *err)
{
	unsigned roles = 0;
	for (enum dnn_role role = DNN_FORWARD; role < DNN_ROLES; role++)
		roles |= (unsigned)s->role[role].wanted << role;
	GP_TRY(find_roles(p, n, out, roles, describe, geometry, err));
	for (enum dnn_role role = DNN_FORWARD; role < DNN_ROLES; role++) {
		struct dnn_prim *r = &out->role[role];
		if (r->desc && !can_replace(r, &s->role[role]))
			GP_FAIL(err, GP_UNSUPPORTED, "no kernel for fewer rows of %s", n->base.g->name);
		r->pack_offset = s->role[role].pack_offset;
		r->scratch_bytes = s->role[role].scratch_bytes; /* gradients of a chunk lie behind it */
	}
	out->count[0] = elements(md_of(&out->role[DNN_FORWARD], roles_table[DNN_FORWARD].x_md));
	out->count[1] = elements(md_of(&out->role[DNN_FORWARD], roles_table[DNN_FORWARD].y_md));
	return gp_dnn_create(p, n, out, err);
}

bool gp_dnn_vary(struct cpu_plan *p, struct cpu_node *n, const struct dnn_state *s, dnn_describe_fn describe,
		 const void *geometry, struct dnn_state *out)
{
	struct gp_err err;
	out->dense_md = s->dense_md;
	out->bias = s->bias;
	out->bf16 = s->bf16;
	memcpy(out->narrow_offset, s->narrow_offset, sizeof out->narrow_offset);
	if (find_varied(p, n, s, describe, geometry, out, &err) == GP_OK)
		return true;
	gp_dnn_release(out);
	*out = (struct dnn_state){0};
	return false;
}

void gp_dnn_release(struct dnn_state *s)
{
	dnnl_memory_destroy(s->dense);
	for (enum dnn_role role = DNN_FORWARD; role < DNN_ROLES; role++) {
		struct dnn_prim *r = &s->role[role];
		dnnl_memory_t memories[] = {r->x, r->y, r->weight, r->bias, r->scratch};
		for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++)
			dnnl_memory_destroy(memories[i]);
		dnnl_primitive_destroy(r->reorder);
		dnnl_primitive_destroy(r->prim);
		dnnl_primitive_desc_destroy(r->desc);
	}
}

/* --- running ---------------------------------------------------------------------------------------------------- */

static dnnl_status_t reorder(struct cpu_plan *p, dnnl_primitive_t prim, dnnl_memory_t from, dnnl_memory_t to)
{
	const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
	dnnl_status_t status = dnnl_primitive_execute(prim, p->stream, 2, args);
	return status == dnnl_success ? dnnl_stream_wait(p->stream) : status;
}

enum gp_status gp_dnn_repack(struct cpu_plan *p, struct cpu_node *n, struct dnn_state *s, struct gp_err *err)
{
	float *weight = gp_cpu_param_value(p, n, GP_PARAM_WEIGHT);
	DNN_TRY(dnnl_memory_set_data_handle(s->dense, weight), n, "pack the weight of", err);
	for (enum dnn_role role = DNN_FORWARD; role <= DNN_DATA; role++)
		if (s->role[role].wanted && !s->role[role].plain)
			DNN_TRY(reorder(p, s->role[role].reorder, s->dense, s->role[role].weight), n,
				"pack the weight of", err);
	return GP_OK;
}

enum gp_status gp_dnn_grad_dense(struct cpu_plan *p, struct cpu_node *n, struct dnn_state *s, float *out,
				 struct gp_err *err)
{
	struct dnn_prim *r = &s->role[DNN_WEIGHTS];
	const float *grad = gp_cpu_param_grad(p, n, GP_PARAM_WEIGHT);
	int index = gp_cpu_param_index(p, n, GP_PARAM_WEIGHT);
	if (r->plain) {
		gp_cpu_copy(p->threads, out, grad, (int64_t)p->base.spec.graph->param[index].count);
		return GP_OK;
	}
	DNN_TRY(dnnl_memory_set_data_handle(r->weight, (void *)grad), n, "unpack the gradient of", err);
	DNN_TRY(dnnl_memory_set_data_handle(s->dense, out), n, "unpack the gradient of", err);
	return gp_dnn_check(reorder(p, r->reorder, r->weight, s->dense), n, "unpack the gradient of", err);
}

static dnnl_status_t execute(const struct cpu_call *c, struct dnn_state *s, enum dnn_role role, const void *x,
			     const void *y)
{
	struct dnn_prim *r = &s->role[role];
	const struct role_row *row = &roles_table[role];
	dnnl_exec_arg_t args[MAX_ARGS] = {{row->x_arg, r->x}, {row->y_arg, r->y}, {row->weight_arg, r->weight}};
	int n = 3;
	dnnl_status_t st = dnnl_memory_set_data_handle(r->x, (void *)x);
	if (st == dnnl_success)
		st = dnnl_memory_set_data_handle(r->y, (void *)y);
	if (st == dnnl_success && r->scratch_bytes)
		st = dnnl_memory_set_data_handle(r->scratch, c->tmp);
	if (st != dnnl_success)
		return st;
	args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, r->scratch};
	if (r->bias)
		args[n++] = (dnnl_exec_arg_t){row->bias_arg, r->bias};
	st = dnnl_primitive_execute(r->prim, c->plan->stream, n, args);
	return st == dnnl_success ? dnnl_stream_wait(c->plan->stream) : st;
}

struct narrow_job {
	uint16_t *out;
	const float *in;
	int64_t n;
};

static void narrow_part(void *arg, int part, int parts)
{
	const struct narrow_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->n, NARROW_GRAIN, part, parts);
	gp_bf16_round(job->out + r.from, job->in + r.from, r.to - r.from);
}

/* x (0) or y (1) as a role reads it. */
static const void *operand(const struct cpu_call *c, const struct dnn_state *s, int which, const float *v)
{
	if (!s->bf16)
		return v;
	struct narrow_job job = {(uint16_t *)((char *)c->tmp + s->narrow_offset[which]), v, s->count[which]};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.n), narrow_part, &job);
	return job.out;
}

enum gp_status gp_dnn_run(const struct cpu_call *c, struct dnn_state *s, enum dnn_role role, const float *x,
			  const float *y, struct gp_err *err)
{
	dnnl_status_t status = execute(c, s, role, role == DNN_FORWARD ? operand(c, s, 0, x) : x,
				       role == DNN_DATA ? operand(c, s, 1, y) : y);
	return gp_dnn_check(status, c->node, roles_table[role].verb, err);
}

/* Where this chunk's gradients are computed: in place, or behind the scratchpad to be added, or for nothing where one of
 * the two is frozen. */
static float *chunk_weight_grad(const struct cpu_call *c, const struct dnn_prim *r)
{
	float *grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	return grad && !c->accumulate ? grad : (float *)((char *)c->tmp + r->scratch_bytes);
}

static float *chunk_bias_grad(const struct cpu_call *c, const struct dnn_prim *r)
{
	float *grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_BIAS);
	return grad && !c->accumulate ? grad : (float *)((char *)c->tmp + r->scratch_bytes + r->weight_bytes);
}

static void add_chunk(const struct cpu_call *c, const struct dnn_prim *r)
{
	const struct cpu_plan *p = c->plan;
	float *weight = gp_cpu_param_grad(p, c->node, GP_PARAM_WEIGHT);
	float *bias = r->bias ? gp_cpu_param_grad(p, c->node, GP_PARAM_BIAS) : NULL;
	if (weight)
		gp_cpu_add_into(p->threads, weight, chunk_weight_grad(c, r), r->weight_count);
	if (!bias)
		return;
	int index = gp_cpu_param_index(p, c->node, GP_PARAM_BIAS);
	gp_cpu_add_into(p->threads, bias, chunk_bias_grad(c, r), (int64_t)p->base.spec.graph->param[index].count);
}

static enum gp_status run_weights(const struct cpu_call *c, struct dnn_state *s, const void *x, const void *y,
				  struct gp_err *err)
{
	struct dnn_prim *r = &s->role[DNN_WEIGHTS];
	const char *verb = roles_table[DNN_WEIGHTS].verb;
	DNN_TRY(dnnl_memory_set_data_handle(r->weight, chunk_weight_grad(c, r)), c->node, verb, err);
	if (r->bias)
		DNN_TRY(dnnl_memory_set_data_handle(r->bias, chunk_bias_grad(c, r)), c->node, verb, err);
	DNN_TRY(execute(c, s, DNN_WEIGHTS, x, y), c->node, verb, err);
	if (c->accumulate)
		add_chunk(c, r);
	return GP_OK;
}

enum gp_status gp_dnn_backward(const struct cpu_call *c, struct dnn_state *s, enum dnn_role role, const float *x,
			       const float *y, struct gp_err *err)
{
	const bool trains = s->role[DNN_WEIGHTS].wanted; /* else what backward has not kept is not read */
	const void *xr = trains || role == DNN_FORWARD ? operand(c, s, 0, x) : NULL;
	const void *yr = trains || role == DNN_DATA ? operand(c, s, 1, y) : NULL;
	if (trains)
		GP_TRY(run_weights(c, s, xr, yr, err));
	if (!c->dx[0])
		return GP_OK;
	dnnl_status_t status = execute(c, s, role, role == DNN_DATA ? c->dx[0] : xr, role == DNN_DATA ? yr : c->dx[0]);
	return gp_dnn_check(status, c->node, roles_table[role].verb, err);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Pointwise convolution (1x1, no stride, padding, groups or bias) as plain
 * matrix products over the rows of a channels-last image: most of
 * MobileNetV2's arithmetic. Runs where gemm.h's kernels do; other processors
 * and other 1x1 convolutions take op_conv.c. Rows are shared out over threads,
 * so forward and dx do not depend on their number; the weight gradient adds
 * one partial sum per thread, in their order. Test: tests/unit/test_cpu_ops.c
 */
#include "common/mem.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/plan.h"

#define GRAIN       24 /* rows: a multiple of every tile */
#define BLOCK_BYTES (384 << 10)

struct pw_state {
	int64_t rows, in, out;
	uint64_t forward_pack, data_pack; /* offsets in the plan's packs */
	bool transposed;                  /* the gradient is kept as (in, out) */
};

struct pw_job {
	const struct pw_state *s;
	float *y;
	const float *x, *pack;
	int64_t k, n;
};

struct pw_backward_job {
	const struct cpu_call *c;
	const struct pw_state *s;
	float *grad, *partial; /* grad: of part 0; partial: of the others */
	bool fresh;
};

bool gp_cpu_pointwise_fits(const struct gp_node *n)
{
	const struct gp_conv_attr *a = &n->u.conv;
	return n->op == GP_OP_CONV2D && a->kernel_h == 1 && a->kernel_w == 1 && a->stride_h == 1 && a->stride_w == 1 &&
	       !(a->pad_top | a->pad_bottom | a->pad_left | a->pad_right) && a->groups == 1 && !a->bias &&
	       gp_gemm_supported();
}

static uint64_t reserve_pack(struct cpu_plan *p, int64_t k, int64_t n)
{
	uint64_t offset = p->pack_bytes;
	p->pack_bytes += gp_cpu_align((uint64_t)gp_gemm_packed_count(k, n) * sizeof(float));
	return offset;
}

/* Columns are vectors: the layout that leaves fewer lanes empty, PyTorch's own when both are equal. */
static bool better_transposed(const struct pw_state *s)
{
	int64_t plain = (s->in + GEMM_LANES - 1) / GEMM_LANES * s->out;
	int64_t transposed = (s->out + GEMM_LANES - 1) / GEMM_LANES * s->in;
	return transposed < plain;
}

static enum gp_status pw_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct pw_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for convolution %s", n->g->name);
	n->state = s;
	s->in = gp_cpu_input(p, n, 0)->g->shape.dim[2];
	s->out = n->g->u.conv.out_channels;
	s->rows = gp_cpu_elements(p, n) / s->out;
	s->transposed = better_transposed(s);
	n->plain_grad = !s->transposed;
	s->forward_pack = reserve_pack(p, s->in, s->out);
	if (n->want_dx)
		s->data_pack = reserve_pack(p, s->out, s->in);
	if (p->base.spec.train)
		n->tmp_bytes = (uint64_t)(p->threads - 1) * gp_cpu_align((uint64_t)(s->in * s->out) * sizeof(float));
	return GP_OK;
}

static void pw_release(struct cpu_node *n)
{
	gp_free(n->state);
	n->state = NULL;
}

static const float *pack_at(const struct cpu_plan *p, uint64_t offset)
{
	return (const float *)(p->packs + offset);
}

static enum gp_status pw_repack(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	const struct pw_state *s = n->state;
	const float *weight = gp_cpu_param_value(p, n, GP_PARAM_WEIGHT); /* (out, in) */
	gp_gemm_pack((float *)(p->packs + s->forward_pack), weight, s->in, s->out, true);
	if (n->want_dx)
		gp_gemm_pack((float *)(p->packs + s->data_pack), weight, s->out, s->in, false);
	return GP_OK;
}

static enum gp_status pw_grad_dense(struct cpu_plan *p, struct cpu_node *n, float *out, struct gp_err *err)
{
	(void)err;
	const struct pw_state *s = n->state;
	const float *grad = gp_cpu_param_grad(p, n, GP_PARAM_WEIGHT);
	if (!s->transposed)
		gp_cpu_copy(p->threads, out, grad, s->in * s->out);
	else
		for (int64_t o = 0; o < s->out; o++)
			for (int64_t i = 0; i < s->in; i++)
				out[o * s->in + i] = grad[i * s->out + o];
	return GP_OK;
}

static void product_part(void *arg, int part, int parts)
{
	const struct pw_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->s->rows, GRAIN, part, parts);
	gp_gemm(job->y + r.from * job->n, job->x + r.from * job->k, job->pack, r.to - r.from, job->k, job->n);
}

static int parts_of(const struct cpu_call *c, const struct pw_state *s)
{
	return gp_cpu_parts(c->plan->threads, s->rows * (s->in + s->out));
}

static enum gp_status pw_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct pw_state *s = c->node->state;
	struct pw_job job = {s, c->out, c->in[0], pack_at(c->plan, s->forward_pack), s->in, s->out};
	gp_cpu_parallel(parts_of(c, s), product_part, &job);
	return GP_OK;
}

static float *grad_of(const struct pw_backward_job *job, int part)
{
	uint64_t stride = gp_cpu_align((uint64_t)(job->s->in * job->s->out) * sizeof(float)) / sizeof(float);
	return part ? job->partial + (uint64_t)(part - 1) * stride : job->grad;
}

/* Rows whose x, dout and what finishes dout fit into L2 together: multiples of what gp_gemm_transposed sums up. */
static int64_t block_rows(const struct pw_state *s)
{
	int64_t rows = BLOCK_BYTES / ((int64_t)sizeof(float) * (s->in + 2 * s->out)) / GEMM_BLOCK * GEMM_BLOCK;
	return rows < GEMM_BLOCK ? GEMM_BLOCK : rows;
}

/* Gradient of the weights and dx from `rows` rows while they are in the cache. */
static void backward_rows(const struct pw_backward_job *job, float *grad, int64_t row, int64_t rows, bool fresh)
{
	const struct pw_state *s = job->s;
	const struct cpu_call *c = job->c;
	const float *x = c->in[0] + row * s->in, *dout = c->dout + row * s->out;
	gp_cpu_bn_finish(c, row, row + rows);
	if (s->transposed)
		gp_gemm_transposed(grad, x, dout, rows, s->in, s->out, fresh);
	else
		gp_gemm_transposed(grad, dout, x, rows, s->out, s->in, fresh);
	if (c->dx)
		gp_gemm(c->dx + row * s->in, dout, pack_at(c->plan, s->data_pack), rows, s->out, s->in);
}

static void backward_part(void *arg, int part, int parts)
{
	const struct pw_backward_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->s->rows, GRAIN, part, parts);
	int64_t block = block_rows(job->s), row = r.from;
	bool fresh = part > 0 || job->fresh;
	do { /* at least once: a part without rows clears its gradient */
		int64_t rows = r.to - row < block ? r.to - row : block;
		backward_rows(job, grad_of(job, part), row, rows, fresh && row == r.from);
		row += rows;
	} while (row < r.to);
}

static enum gp_status pw_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct pw_state *s = c->node->state;
	int parts = parts_of(c, s);
	struct pw_backward_job job = {.c = c, .s = s, .partial = c->tmp, .fresh = !c->accumulate};
	job.grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	gp_cpu_parallel(parts, backward_part, &job);
	for (int part = 1; part < parts; part++)
		gp_cpu_add_into(c->plan->threads, job.grad, grad_of(&job, part), s->in * s->out);
	return GP_OK;
}

const struct cpu_op gp_cpu_pointwise = {
	.name = "conv2d",
	.saves_input = true,
	.finishes = true,
	.prepare = pw_prepare,
	.release = pw_release,
	.repack = pw_repack,
	.grad_dense = pw_grad_dense,
	.forward = pw_forward,
	.backward = pw_backward,
};

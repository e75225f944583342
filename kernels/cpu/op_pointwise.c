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

#define TILE_ROWS      24          /* a multiple of every tile's height */
#define FORWARD_BYTES  (256 << 10) /* what one block of rows may take of L2 */
#define BACKWARD_BYTES (384 << 10)

struct pw_state {
	int64_t rows, in, out;
	int64_t grain;                    /* borders between parts are multiples of it, cut or not */
	int64_t forward_rows, block_rows; /* rows worked on at once, forward and backward */
	uint64_t dout_floats, room_bytes; /* of one part: a block of the finished dout, one of the normalized input */
	uint64_t forward_pack, data_pack; /* offsets in the plan's packs */
	bool transposed;                  /* the gradient is kept as (in, out) */
};

struct pw_job {
	const struct cpu_call *c;
	const struct pw_state *s;
	char *room;
	float *grad, *partial; /* backward; grad: of part 0, partial: of the others */
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

/* Rows whose floats (`width` per row) stay in `bytes` together: a multiple of `unit`. */
static int64_t rows_within(int64_t bytes, int64_t width, int64_t unit)
{
	int64_t rows = bytes / ((int64_t)sizeof(float) * width) / unit * unit;
	return rows < unit ? unit : rows;
}

static int64_t max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static uint64_t block_floats(const struct pw_state *s, int64_t rows, int64_t width)
{
	return gp_cpu_align((uint64_t)((rows < s->rows ? rows : s->rows) * width) * sizeof(float)) / sizeof(float);
}

/* Forward touches the input twice where it is normalized; backward x, dout and what finishes dout as well. */
static void plan_blocks(struct pw_state *s, bool train, bool reads)
{
	s->forward_rows = rows_within(FORWARD_BYTES, (reads ? 2 : 1) * s->in + s->out, TILE_ROWS);
	s->block_rows = rows_within(BACKWARD_BYTES, (reads ? 3 : 2) * s->in + 3 * s->out, GEMM_BLOCK);
	s->dout_floats = train ? block_floats(s, s->block_rows, s->out) : 0;
	s->room_bytes = s->dout_floats * sizeof(float);
	if (reads)
		s->room_bytes +=
			block_floats(s, max64(s->forward_rows, train ? s->block_rows : 0), s->in) * sizeof(float);
}

static uint64_t grad_bytes(const struct pw_state *s)
{
	return gp_cpu_align((uint64_t)(s->in * s->out) * sizeof(float));
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
	s->grain = gp_bn_block(n->g->shape.dim[0] * n->g->shape.dim[1]);
	s->transposed = better_transposed(s);
	plan_blocks(s, p->base.spec.train, n->reads != NULL);
	n->plain_grad = !s->transposed;
	s->forward_pack = reserve_pack(p, s->in, s->out);
	if (n->want_dx)
		s->data_pack = reserve_pack(p, s->out, s->in);
	n->tmp_bytes = (uint64_t)p->threads * s->room_bytes;
	if (p->base.spec.train)
		n->tmp_bytes += (uint64_t)(p->threads - 1) * grad_bytes(s);
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

static float *dout_room(const struct pw_job *job, int part)
{
	return (float *)(job->room + (uint64_t)part * job->s->room_bytes);
}

static float *x_room(const struct pw_job *job, int part)
{
	return dout_room(job, part) + job->s->dout_floats;
}

static void forward_part(void *arg, int part, int parts)
{
	const struct pw_job *job = arg;
	const struct pw_state *s = job->s;
	const struct cpu_call *c = job->c;
	const float *pack = pack_at(c->plan, s->forward_pack);
	struct gp_cpu_range r = gp_cpu_share(s->rows, s->grain, part, parts);
	int64_t summed = r.from, next;
	for (int64_t row = r.from; row < r.to; row = next) {
		next = r.to - row < s->forward_rows ? r.to : row + s->forward_rows;
		const float *x = gp_cpu_bn_input(c, row, next, x_room(job, part));
		gp_gemm(c->out + row * s->out, x, pack, next - row, s->in, s->out);
		summed = gp_cpu_bn_feed(c, summed, next);
	}
}

static int parts_of(const struct cpu_call *c, const struct pw_state *s)
{
	return gp_cpu_parts(c->plan->threads, s->rows * (s->in + s->out));
}

static enum gp_status pw_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct pw_job job = {.c = c, .s = c->node->state, .room = c->tmp};
	gp_cpu_parallel(parts_of(c, job.s), forward_part, &job);
	return GP_OK;
}

static float *grad_of(const struct pw_job *job, int part)
{
	return part ? job->partial + (uint64_t)(part - 1) * grad_bytes(job->s) / sizeof(float) : job->grad;
}

/* Gradient of the weights and dx from rows [from, to) while they are in the cache. */
static void backward_rows(const struct pw_job *job, int part, int64_t from, int64_t to, bool fresh)
{
	const struct pw_state *s = job->s;
	const struct cpu_call *c = job->c;
	float *grad = grad_of(job, part);
	const float *dout = gp_cpu_bn_dout(c, from, to, dout_room(job, part));
	const float *x = gp_cpu_bn_input(c, from, to, x_room(job, part));
	if (s->transposed)
		gp_gemm_transposed(grad, x, dout, to - from, s->in, s->out, fresh);
	else
		gp_gemm_transposed(grad, dout, x, to - from, s->out, s->in, fresh);
	if (c->dx)
		gp_gemm(c->dx + from * s->in, dout, pack_at(c->plan, s->data_pack), to - from, s->out, s->in);
}

static void backward_part(void *arg, int part, int parts)
{
	const struct pw_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->s->rows, job->s->grain, part, parts);
	bool fresh = part > 0 || job->fresh;
	int64_t row = r.from, summed = r.from;
	do { /* at least once: a part without rows clears its gradient */
		int64_t next = r.to - row < job->s->block_rows ? r.to : row + job->s->block_rows;
		backward_rows(job, part, row, next, fresh && row == r.from);
		summed = gp_cpu_bn_return(job->c, summed, next);
		row = next;
	} while (row < r.to);
}

static enum gp_status pw_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct pw_state *s = c->node->state;
	int parts = parts_of(c, s);
	struct pw_job job = {.c = c, .s = s, .room = c->tmp, .fresh = !c->accumulate};
	job.partial = (float *)(job.room + (uint64_t)c->plan->threads * s->room_bytes);
	job.grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	gp_cpu_parallel(parts, backward_part, &job);
	for (int part = 1; part < parts; part++)
		gp_cpu_add_into(c->plan->threads, job.grad, grad_of(&job, part), s->in * s->out);
	return GP_OK;
}

const struct cpu_op gp_cpu_pointwise = {
	.name = "conv2d",
	.saves_input = true,
	.hosts_batch_norm = true,
	.prepare = pw_prepare,
	.release = pw_release,
	.repack = pw_repack,
	.grad_dense = pw_grad_dense,
	.forward = pw_forward,
	.backward = pw_backward,
};

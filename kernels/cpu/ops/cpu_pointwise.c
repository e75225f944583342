/* SPDX-License-Identifier: Apache-2.0
 *
 * Pointwise convolution (1x1, no stride, padding, groups or bias) as plain
 * matrix products over the rows of a channels-last image: most of
 * MobileNetV2's arithmetic. Runs where gemm.h's kernels do; other processors
 * and other 1x1 convolutions take gp_cpu_op_conv2d. Rows are shared out over threads,
 * so forward and dx do not depend on their number; the weight gradient adds
 * one partial sum per thread, in their order. In bf16, rows are rounded and
 * paired for the product block by block, while they are in the cache.
 * Test: tests/unit/test_cpu_ops.c, tests/unit/test_bf16.c
 */
#include "common/base/mem.h"
#include "kernels/cpu/math/gemm.h"
#include "kernels/cpu/plan/cpu_fold.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "common/graph/ops/op_conv.h"

#define TILE_ROWS      24          /* a multiple of every tile's height */
#define FORWARD_BYTES  (256 << 10) /* what one block of rows may take of L2 */
#define BACKWARD_BYTES (384 << 10)

struct pw_state {
	int64_t rows, in, out;
	int64_t grain;                    /* borders between parts are multiples of it, cut or not */
	int64_t forward_rows, block_rows; /* rows worked on at once, forward and backward */
	uint64_t dout_floats, room_bytes; /* of one part: a block of the finished dout, one of the normalized input */
	uint64_t forward_pack, data_pack; /* offsets in the plan's packs */
	uint64_t pair_words;              /* of one part: room for pairs, 0 in fp32 */
	bool transposed;                  /* the gradient is kept as (in, out) */
	bool bf16;
};

struct pw_job {
	const struct cpu_call *c;
	const struct pw_state *s;
	char *room;
	uint32_t *pairs;
	float *grad, *partial; /* backward; grad: of part 0, NULL where frozen; partial: of the others */
	bool fresh;
};

bool gp_cpu_pointwise_fits(const struct gp_node *n)
{
	const struct gp_conv_attr attr = gp_conv_attr(n), *const a = &attr;
	return n->op == GP_OP_CONV2D && a->kernel_h == 1 && a->kernel_w == 1 && a->stride_h == 1 && a->stride_w == 1 &&
	       !(a->pad_top | a->pad_bottom | a->pad_left | a->pad_right) && a->groups == 1 && !a->bias &&
	       gp_gemm_supported();
}

/* --- products in either precision -------------------------------------------------------------------------------- */

/* For products over k = in and k = out, and for those of the weight gradient. */
static uint64_t pair_words(const struct pw_state *s, bool train)
{
	int64_t forward = gp_gemm_bf16_rows_at_once(s->in) * gp_gemm_bf16_pairs(s->in);
	int64_t data = gp_gemm_bf16_rows_at_once(s->out) * gp_gemm_bf16_pairs(s->out);
	int64_t weights = gp_gemm_bf16_pairs(GEMM_BLOCK) * (s->in + s->out), most = forward;
	if (train && data > most)
		most = data;
	if (train && weights > most)
		most = weights;
	return gp_cpu_align((uint64_t)most * sizeof(uint32_t)) / sizeof(uint32_t);
}

/* What a product works with, apart from its matrices. */
struct means {
	const struct pw_state *s;
	uint32_t *pairs; /* room, in bf16 */
	struct gp_fetch *next;
};

/* c (rows, n) = a (rows, k) packed (k, n) */
static void multiply(const struct means *with, float *c, const float *a, const void *packed, int64_t rows, int64_t k,
		     int64_t n)
{
	if (!with->s->bf16) {
		gp_gemm_fetching(c, a, packed, rows, k, n, with->next);
		return;
	}
	uint32_t *pairs = with->pairs;
	const int64_t block = gp_gemm_bf16_rows_at_once(k);
	for (int64_t r = 0; r < rows; r += block) {
		int64_t here = rows - r < block ? rows - r : block;
		gp_gemm_bf16_pair_columns(pairs, a + r * k, here, k);
		gp_gemm_bf16(c + r * n, pairs, packed, here, k, n, with->next);
	}
}

/* c (m, n) += a' b, or = with `fresh` */
static void multiply_transposed(const struct means *with, float *c, const float *a, const float *b, int64_t rows,
				int64_t m, int64_t n, bool fresh)
{
	if (!with->s->bf16 || rows == 0) {
		gp_gemm_transposed(c, a, b, rows, m, n, fresh, with->next);
		return;
	}
	uint32_t *pairs = with->pairs, *right = pairs + gp_gemm_bf16_pairs(GEMM_BLOCK) * m;
	for (int64_t r = 0; r < rows; r += GEMM_BLOCK) {
		int64_t here = rows - r < GEMM_BLOCK ? rows - r : GEMM_BLOCK;
		gp_gemm_bf16_pair_rows(pairs, a + r * m, here, m);
		gp_gemm_bf16_pair_rows(right, b + r * n, here, n);
		gp_gemm_bf16_transposed(c, pairs, right, here, m, n, fresh && r == 0, with->next);
	}
}

static uint64_t reserve_pack(struct cpu_plan *p, const struct pw_state *s, int64_t k, int64_t n)
{
	uint64_t offset = p->pack_bytes;
	int64_t words = s->bf16 ? gp_gemm_bf16_packed_count(k, n) : gp_gemm_packed_count(k, n);
	p->pack_bytes += gp_cpu_align((uint64_t)words * sizeof(uint32_t));
	return offset;
}

static void pack(const struct pw_state *s, void *packed, const float *b, int64_t k, int64_t n, bool transposed)
{
	if (s->bf16)
		gp_gemm_bf16_pack(packed, b, k, n, transposed);
	else
		gp_gemm_pack(packed, b, k, n, transposed);
}

/* --- life ------------------------------------------------------------------------------------------------------- */

/* Columns are vectors: the layout that leaves fewer lanes empty, PyTorch's own when both are equal. */
static bool better_transposed(const struct pw_state *s)
{
	const int64_t lanes = gp_gemm_lanes();
	return (s->out + lanes - 1) / lanes * s->in < (s->in + lanes - 1) / lanes * s->out;
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
		GP_FAIL(err, GP_NOMEM, "out of memory for convolution %s", n->base.g->name);
	n->state = s;
	s->in = gp_cpu_in_shape(p, n, 0)->dim[2];
	s->out = gp_conv_attr(n->base.g).out_channels;
	s->rows = gp_cpu_elements(p, n) / s->out;
	s->grain = gp_bn_block(n->base.g->shape.dim[0] * n->base.g->shape.dim[1]);
	s->transposed = better_transposed(s);
	plan_blocks(s, n->base.need_grad, n->reads != NULL);
	n->base.saves_in = n->base.trains;
	s->bf16 = p->base.spec.precision == GP_PRECISION_BF16;
	s->pair_words = s->bf16 ? pair_words(s, n->base.need_grad) : 0;
	n->plain_grad = !s->transposed;
	s->forward_pack = reserve_pack(p, s, s->in, s->out);
	if (n->base.want_dx)
		s->data_pack = reserve_pack(p, s, s->out, s->in);
	n->tmp_bytes = 1; /* at least an address to count from */
	n->tmp_bytes += (uint64_t)p->threads * (s->room_bytes + s->pair_words * sizeof(uint32_t));
	if (n->base.trains)
		n->tmp_bytes += (uint64_t)(p->threads - 1) * grad_bytes(s);
	gp_cpu_fold_reserve(p, n, true);
	return GP_OK;
}

static void pw_release(struct cpu_node *n)
{
	gp_free(n->state);
	n->state = NULL;
}

static enum gp_status pw_repack(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	const struct pw_state *s = n->state;
	const float *weight = gp_cpu_fold_weight(p, n); /* (out, in) */
	pack(s, p->packs + s->forward_pack, weight, s->in, s->out, true);
	if (n->base.want_dx)
		pack(s, p->packs + s->data_pack, weight, s->out, s->in, false);
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

/* --- running ---------------------------------------------------------------------------------------------------- */

static uint32_t *pairs_of(const struct pw_job *job, int part)
{
	return job->pairs + (uint64_t)part * job->s->pair_words;
}

static float *dout_room(const struct pw_job *job, int part)
{
	return (float *)(job->room + (uint64_t)part * job->s->room_bytes);
}

static float *x_room(const struct pw_job *job, int part)
{
	return dout_room(job, part) + job->s->dout_floats;
}

/* What the block of rows after this one will be made from. */
static struct gp_fetch_range fetch_rows(const float *matrix, int64_t width, int64_t row, int64_t rows, int64_t all)
{
	const int64_t end = row + rows < all ? row + rows : all;
	return (struct gp_fetch_range){matrix + row * width, matrix + end * width};
}

/* Rows of the output from as many of the input. */
static void forward_rows(const struct pw_job *job, const struct means *with, float *out, const float *x, int64_t rows)
{
	const struct cpu_call *c = job->c;
	const struct pw_state *s = job->s;
	const void *packed = c->plan->packs + s->forward_pack;
	if (!c->node->folds) {
		multiply(with, out, x, packed, rows, s->in, s->out);
		return;
	}
	const struct gp_finish finish = gp_cpu_fold_finish(c->plan, c->node);
	gp_gemm_finished(out, x, packed, rows, s->in, s->out, &finish, with->next);
}

static void forward_part(void *arg, int part, int parts)
{
	const struct pw_job *job = arg;
	const struct pw_state *s = job->s;
	const struct cpu_call *c = job->c;
	struct gp_cpu_range r = gp_cpu_share(s->rows, s->grain, part, parts);
	int64_t summed = r.from, next;
	for (int64_t row = r.from; row < r.to; row = next) {
		next = r.to - row < s->forward_rows ? r.to : row + s->forward_rows;
		const float *x = gp_cpu_bn_input(c, row, next, x_room(job, part));
		struct gp_fetch soon = {{fetch_rows(c->in[0], s->in, next, s->forward_rows, s->rows)}};
		const struct means with = {s, pairs_of(job, part), &soon};
		forward_rows(job, &with, c->out[0] + row * s->out, x, next - row);
		summed = gp_cpu_bn_feed(c, summed, next);
	}
}

static int parts_of(const struct cpu_call *c, const struct pw_state *s)
{
	return gp_cpu_parts(c->plan->threads, s->rows * (s->in + s->out));
}

/* The room: normalized or finished blocks of every part, pairs of every part, gradients of all but part 0. */
static struct pw_job job_of(const struct cpu_call *c)
{
	struct pw_job job = {.c = c, .s = c->node->state, .room = c->tmp, .fresh = !c->accumulate};
	const uint64_t threads = (uint64_t)c->plan->threads;
	job.pairs = (uint32_t *)(job.room + threads * job.s->room_bytes);
	job.partial = (float *)(job.pairs + threads * job.s->pair_words);
	return job;
}

static enum gp_status pw_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct pw_job job = job_of(c);
	gp_cpu_parallel(parts_of(c, job.s), forward_part, &job);
	return GP_OK;
}

static float *grad_of(const struct pw_job *job, int part)
{
	return part ? job->partial + (uint64_t)(part - 1) * grad_bytes(job->s) / sizeof(float) : job->grad;
}

static void weigh_rows(const struct pw_job *job, const struct means *with, int part, int64_t from, int64_t to,
		       const float *dout, bool fresh)
{
	const struct pw_state *s = job->s;
	float *grad = grad_of(job, part);
	const float *x = gp_cpu_bn_input(job->c, from, to, x_room(job, part));
	if (s->transposed)
		multiply_transposed(with, grad, x, dout, to - from, s->in, s->out, fresh);
	else
		multiply_transposed(with, grad, dout, x, to - from, s->out, s->in, fresh);
}

/* Gradient of the weights, unless they are frozen, and dx from rows [from, to) while they are in the cache. */
static void backward_rows(const struct pw_job *job, int part, int64_t from, int64_t to, bool fresh)
{
	const struct pw_state *s = job->s;
	const struct cpu_call *c = job->c;
	struct gp_fetch soon = {{fetch_rows(c->dout[0], s->out, to, s->block_rows, s->rows)}};
	if (job->grad)
		soon.range[1] = fetch_rows(c->in[0], s->in, to, s->block_rows, s->rows);
	if (c->node->finishes)
		soon.range[2] = fetch_rows(c->out[0], s->out, to, s->block_rows, s->rows);
	const struct means with = {s, pairs_of(job, part), &soon};
	const float *dout = gp_cpu_bn_dout(c, from, to, dout_room(job, part));
	if (job->grad)
		weigh_rows(job, &with, part, from, to, dout, fresh);
	if (c->dx[0])
		multiply(&with, c->dx[0] + from * s->in, dout, c->plan->packs + s->data_pack, to - from, s->out, s->in);
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
	struct pw_job job = job_of(c);
	job.grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	gp_cpu_parallel(parts, backward_part, &job);
	for (int part = 1; job.grad && part < parts; part++)
		gp_cpu_add_into(c->plan->threads, job.grad, grad_of(&job, part), s->in * s->out);
	return GP_OK;
}

const struct cpu_op gp_cpu_pointwise = {
	.name = "conv2d",
	.saves_in = 1,
	.hosts_batch_norm = true,
	.folds_batch_norm = true,
	.prepare = pw_prepare,
	.release = pw_release,
	.repack = pw_repack,
	.grad_dense = pw_grad_dense,
	.forward = pw_forward,
	.backward = pw_backward,
};

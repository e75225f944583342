/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization over all but the last dimension, with the ReLU or ReLU6
 * behind it folded in; same arithmetic, bit for bit, as the two ops apart.
 *
 * Statistics: sums of (x - shift) and (x - shift)^2, where shift is the mean of
 * a few rows, in float over BLOCK rows and in double beyond; one partial sum
 * per thread, added in thread order. Few channels are folded: `fold` rows side
 * by side are treated as one wide row, so that vectors are full.
 *
 * Backward, PyTorch's formula: with g = dout behind the activation,
 *   dbeta = sum g, dgamma = invstd * sum g (x - mean),
 *   dx = gamma invstd (g - dbeta/n - (x - mean) invstd dgamma/n)
 * The activation's mask is found again from x, so its output is not read. The
 * last line may be left to the convolution before (gp_cpu_bn_finish).
 * Test: tests/unit/test_cpu_ops.c
 */
#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/plan.h"
#include "kernels/cpu/simd.h"

#define BLOCK        64 /* rows summed in float */
#define SHIFT_ROWS   32
#define ENOUGH_WIDTH 64

struct bn_state {
	int64_t rows, channels;
	int64_t fold, width; /* width = fold * channels */
};

/* Per slot, `channels` floats each. */
enum { SAVED_MEAN, SAVED_INVSTD, SAVED_A, SAVED_B, SAVED_GRAD_MEAN, SAVED_K, SAVED_SCALE, SAVED_COUNT };

/* In tmp: vectors of `width` floats, then each part's partial sums. */
enum { VEC_A, VEC_B, VEC_MEAN, VEC_GRAD_MEAN, VEC_K, VEC_SCALE, VEC_COUNT };

struct bn_sums { /* of one part, `width` each */
	double *sum, *dot;
	float *sum_block, *dot_block;
};

struct bn_job {
	const struct bn_state *s;
	enum cpu_act act;
	const float *x, *dout;
	float *out;
	float *vec[VEC_COUNT];
	char *partial;
};

/* --- loops ------------------------------------------------------------------------------------------------------ */

GP_INLINE float activate(float v, enum cpu_act act)
{
	if (act == CPU_ACT_NONE)
		return v;
	v = v < 0.0f ? 0.0f : v;
	return act == CPU_ACT_RELU6 && v > 6.0f ? 6.0f : v;
}

GP_INLINE float masked(float g, float v, enum cpu_act act)
{
	if (act == CPU_ACT_NONE)
		return g;
	if (act == CPU_ACT_RELU)
		return v > 0.0f ? g : 0.0f;
	return v > 0.0f && v < 6.0f ? g : 0.0f;
}

/* `rows` rows of which `n` <= width elements count; sum and dot (+=). */
GP_INLINE void stat_rows_body(const float *restrict x, int64_t rows, int64_t width, int64_t n,
			      const float *restrict shift, float *restrict sum, float *restrict dot)
{
	int64_t r = 0;
	for (; r + 4 <= rows; r += 4) {
		const float *x0 = x + r * width, *x1 = x0 + width, *x2 = x1 + width, *x3 = x2 + width;
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			float d0 = x0[i] - shift[i], d1 = x1[i] - shift[i];
			float d2 = x2[i] - shift[i], d3 = x3[i] - shift[i];
			sum[i] += (d0 + d1) + (d2 + d3);
			dot[i] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
		}
	}
	for (; r < rows; r++) {
		const float *xr = x + r * width;
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			float d = xr[i] - shift[i];
			sum[i] += d;
			dot[i] += d * d;
		}
	}
}
GP_CPU_CLONES(stat_rows,
	      (const float *x, int64_t rows, int64_t width, int64_t n, const float *shift, float *sum, float *dot),
	      (x, rows, width, n, shift, sum, dot))

GP_INLINE void apply_rows_body(const float *x, float *out, int64_t rows, int64_t width, int64_t n,
			       const float *restrict a, const float *restrict b, enum cpu_act act)
{
	for (int64_t r = 0; r < rows; r++) {
		const float *xr = x + r * width;
		float *yr = out + r * width;
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			yr[i] = activate(xr[i] * a[i] + b[i], act);
	}
}

GP_INLINE void grad_sum_rows_body(const float *restrict dout, const float *restrict x, int64_t rows, int64_t width,
				  int64_t n, float *const vec[VEC_COUNT], float *restrict sum, float *restrict dot,
				  enum cpu_act act)
{
	const float *restrict a = vec[VEC_A], *restrict b = vec[VEC_B], *restrict mean = vec[VEC_MEAN];
	int64_t r = 0;
	for (; r + 2 <= rows; r += 2) {
		const float *x0 = x + r * width, *x1 = x0 + width;
		const float *d0 = dout + r * width, *d1 = d0 + width;
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			float g0 = masked(d0[i], x0[i] * a[i] + b[i], act);
			float g1 = masked(d1[i], x1[i] * a[i] + b[i], act);
			sum[i] += g0 + g1;
			dot[i] += g0 * (x0[i] - mean[i]) + g1 * (x1[i] - mean[i]);
		}
	}
	for (; r < rows; r++) {
		const float *xr = x + r * width, *dr = dout + r * width;
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			float g = masked(dr[i], xr[i] * a[i] + b[i], act);
			sum[i] += g;
			dot[i] += g * (xr[i] - mean[i]);
		}
	}
}

/* dx may be dout. */
GP_INLINE void grad_rows_body(const float *dout, const float *restrict x, float *dx, int64_t rows, int64_t width,
			      int64_t n, float *const vec[VEC_COUNT], enum cpu_act act)
{
	const float *restrict a = vec[VEC_A], *restrict b = vec[VEC_B], *restrict mean = vec[VEC_MEAN];
	const float *restrict gm = vec[VEC_GRAD_MEAN], *restrict k = vec[VEC_K], *restrict scale = vec[VEC_SCALE];
	for (int64_t r = 0; r < rows; r++) {
		const float *xr = x + r * width, *dr = dout + r * width;
		float *o = dx + r * width;
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			float g = masked(dr[i], xr[i] * a[i] + b[i], act);
			o[i] = (g - gm[i] - (xr[i] - mean[i]) * k[i]) * scale[i];
		}
	}
}

/* One clone set per activation, so that the activation is a constant inside the loops. */
#define PER_ACT(suffix, act)                                                                                           \
	GP_INLINE void apply_rows_##suffix##_body(const float *x, float *out, int64_t rows, int64_t width, int64_t n,  \
						  const float *a, const float *b)                                      \
	{                                                                                                              \
		apply_rows_body(x, out, rows, width, n, a, b, act);                                                    \
	}                                                                                                              \
	GP_CPU_CLONES(                                                                                                 \
		apply_rows_##suffix,                                                                                   \
		(const float *x, float *out, int64_t rows, int64_t width, int64_t n, const float *a, const float *b),  \
		(x, out, rows, width, n, a, b))                                                                        \
	GP_INLINE void grad_sum_rows_##suffix##_body(const float *dout, const float *x, int64_t rows, int64_t width,   \
						     int64_t n, float *const vec[VEC_COUNT], float *sum, float *dot)   \
	{                                                                                                              \
		grad_sum_rows_body(dout, x, rows, width, n, vec, sum, dot, act);                                       \
	}                                                                                                              \
	GP_CPU_CLONES(grad_sum_rows_##suffix,                                                                          \
		      (const float *dout, const float *x, int64_t rows, int64_t width, int64_t n,                      \
		       float *const vec[VEC_COUNT], float *sum, float *dot),                                           \
		      (dout, x, rows, width, n, vec, sum, dot))                                                        \
	GP_INLINE void grad_rows_##suffix##_body(const float *dout, const float *x, float *dx, int64_t rows,           \
						 int64_t width, int64_t n, float *const vec[VEC_COUNT])                \
	{                                                                                                              \
		grad_rows_body(dout, x, dx, rows, width, n, vec, act);                                                 \
	}                                                                                                              \
	GP_CPU_CLONES(grad_rows_##suffix,                                                                              \
		      (const float *dout, const float *x, float *dx, int64_t rows, int64_t width, int64_t n,           \
		       float *const vec[VEC_COUNT]),                                                                   \
		      (dout, x, dx, rows, width, n, vec))

PER_ACT(none, CPU_ACT_NONE)
PER_ACT(relu, CPU_ACT_RELU)
PER_ACT(relu6, CPU_ACT_RELU6)

typedef void (*apply_fn)(const float *x, float *out, int64_t rows, int64_t width, int64_t n, const float *a,
			 const float *b);
typedef void (*grad_sum_fn)(const float *dout, const float *x, int64_t rows, int64_t width, int64_t n,
			    float *const vec[VEC_COUNT], float *sum, float *dot);
typedef void (*grad_fn)(const float *dout, const float *x, float *dx, int64_t rows, int64_t width, int64_t n,
			float *const vec[VEC_COUNT]);

static const struct {
	apply_fn apply;
	grad_sum_fn grad_sum;
	grad_fn grad;
} loops[] = {
	[CPU_ACT_NONE] = {apply_rows_none, grad_sum_rows_none, grad_rows_none},
	[CPU_ACT_RELU] = {apply_rows_relu, grad_sum_rows_relu, grad_rows_relu},
	[CPU_ACT_RELU6] = {apply_rows_relu6, grad_sum_rows_relu6, grad_rows_relu6},
};

/* --- parts ------------------------------------------------------------------------------------------------------ */

/* Rows [from, to) of the folded matrix; `tail` elements of a last, incomplete row belong to the last part. */
struct bn_rows {
	int64_t from, to, tail;
};

static struct bn_rows rows_of(const struct bn_state *s, int part, int parts)
{
	int64_t full = s->rows / s->fold;
	struct gp_cpu_range r = gp_cpu_share(full, 1, part, parts);
	return (struct bn_rows){r.from, r.to, part == parts - 1 ? s->rows % s->fold * s->channels : 0};
}

static uint64_t partial_bytes(const struct bn_state *s)
{
	return gp_cpu_align((uint64_t)s->width * (2 * sizeof(double) + 2 * sizeof(float)));
}

static struct bn_sums sums_of(const struct bn_job *job, int part)
{
	char *at = job->partial + (uint64_t)part * partial_bytes(job->s);
	double *d = (double *)at;
	float *f = (float *)(d + 2 * job->s->width);
	return (struct bn_sums){d, d + job->s->width, f, f + job->s->width};
}

static void sums_clear(const struct bn_job *job, struct bn_sums *t)
{
	memset(t->sum, 0, partial_bytes(job->s));
}

static void sums_flush(struct bn_sums *t, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		t->sum[i] += (double)t->sum_block[i];
		t->dot[i] += (double)t->dot_block[i];
		t->sum_block[i] = t->dot_block[i] = 0.0f;
	}
}

static void sum_block(const struct bn_job *job, int64_t row, int64_t rows, int64_t n, struct bn_sums *t)
{
	int64_t at = row * job->s->width;
	if (job->dout)
		loops[job->act].grad_sum(job->dout + at, job->x + at, rows, job->s->width, n, job->vec, t->sum_block,
					 t->dot_block);
	else
		stat_rows(job->x + at, rows, job->s->width, n, job->vec[VEC_MEAN], t->sum_block, t->dot_block);
	sums_flush(t, n);
}

/* Forward: sums of x - shift and its square. Backward (dout given): sums of g and g (x - mean). */
static void sum_part(void *arg, int part, int parts)
{
	const struct bn_job *job = arg;
	struct bn_rows r = rows_of(job->s, part, parts);
	struct bn_sums t = sums_of(job, part);
	sums_clear(job, &t);
	for (int64_t row = r.from; row < r.to; row += BLOCK)
		sum_block(job, row, r.to - row < BLOCK ? r.to - row : BLOCK, job->s->width, &t);
	if (r.tail)
		sum_block(job, r.to, 1, r.tail, &t);
}

static void apply_range(const struct bn_job *job, int64_t row, int64_t rows, int64_t n)
{
	int64_t at = row * job->s->width;
	if (job->dout)
		loops[job->act].grad(job->dout + at, job->x + at, job->out + at, rows, job->s->width, n, job->vec);
	else
		loops[job->act].apply(job->x + at, job->out + at, rows, job->s->width, n, job->vec[VEC_A],
				      job->vec[VEC_B]);
}

static void apply_part(void *arg, int part, int parts)
{
	const struct bn_job *job = arg;
	struct bn_rows r = rows_of(job->s, part, parts);
	apply_range(job, r.from, r.to - r.from, job->s->width);
	if (r.tail)
		apply_range(job, r.to, 1, r.tail);
}

/* Total of channel c over parts and folded columns. */
static void total(const struct bn_job *job, int parts, int64_t c, double *sum, double *dot)
{
	*sum = *dot = 0.0;
	for (int part = 0; part < parts; part++) {
		struct bn_sums t = sums_of(job, part);
		for (int64_t i = c; i < job->s->width; i += job->s->channels) {
			*sum += t.sum[i];
			*dot += t.dot[i];
		}
	}
}

/* --- the op ----------------------------------------------------------------------------------------------------- */

static int64_t gcd(int64_t a, int64_t b)
{
	while (b) {
		int64_t t = a % b;
		a = b;
		b = t;
	}
	return a;
}

static int64_t choose_fold(int64_t channels)
{
	if (channels >= ENOUGH_WIDTH)
		return 1;
	int64_t fold = 16 / gcd(channels, 16);
	while (fold * channels < ENOUGH_WIDTH)
		fold *= 2;
	return fold;
}

static enum gp_status bn_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct bn_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for batch norm %s", n->g->name);
	n->state = s;
	s->channels = n->g->shape.dim[n->g->shape.ndim - 1];
	s->rows = gp_cpu_elements(p, n) / s->channels;
	s->fold = choose_fold(s->channels);
	s->width = s->fold * s->channels;
	n->saved_bytes = (uint64_t)s->channels * SAVED_COUNT * sizeof(float);
	n->tmp_bytes =
		gp_cpu_align((uint64_t)s->width * VEC_COUNT * sizeof(float)) + (uint64_t)p->threads * partial_bytes(s);
	return GP_OK;
}

static void bn_release(struct cpu_node *n)
{
	gp_free(n->state);
	n->state = NULL;
}

static struct bn_job job_of(const struct cpu_call *c)
{
	const struct bn_state *s = c->node->state;
	struct bn_job job = {.s = s, .act = c->node->act, .x = c->in[0], .dout = c->dout};
	job.out = c->dout ? c->dx : c->out;
	for (int v = 0; v < VEC_COUNT; v++)
		job.vec[v] = (float *)c->tmp + v * s->width;
	job.partial = (char *)c->tmp + gp_cpu_align((uint64_t)s->width * VEC_COUNT * sizeof(float));
	return job;
}

/* Repeats the first `channels` entries of a vector over its whole width. */
static void fold_out(const struct bn_state *s, float *vec)
{
	for (int64_t i = s->channels; i < s->width; i++)
		vec[i] = vec[i - s->channels];
}

/* Mean of up to SHIFT_ROWS rows spread over the chunk: close enough to the mean to make sums of squares exact. */
static void find_shift(const struct bn_state *s, const float *x, float *shift)
{
	int64_t rows = s->rows < SHIFT_ROWS ? s->rows : SHIFT_ROWS;
	memset(shift, 0, (size_t)s->channels * sizeof *shift);
	for (int64_t r = 0; r < rows; r++) {
		const float *xr = x + s->rows * r / rows * s->channels;
		for (int64_t c = 0; c < s->channels; c++)
			shift[c] += xr[c];
	}
	for (int64_t c = 0; c < s->channels; c++)
		shift[c] /= (float)rows;
	fold_out(s, shift);
}

static void update_running(const struct cpu_call *c, int64_t channel, double mean, double var)
{
	const struct bn_state *s = c->node->state;
	float *running_mean = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_MEAN) + channel;
	float *running_var = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_VAR) + channel;
	double m = (double)c->node->g->u.bn.momentum;
	double unbiased = s->rows > 1 ? var * (double)s->rows / (double)(s->rows - 1) : var;
	*running_mean = (float)(m * mean + (1.0 - m) * (double)*running_mean);
	*running_var = (float)(m * unbiased + (1.0 - m) * (double)*running_var);
}

/* a and b of out = a x + b, from mean and variance. */
static void set_affine(const struct cpu_call *c, struct bn_job *job, int64_t channel, double mean, double var)
{
	float gamma = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT)[channel];
	float beta = gp_cpu_param_value(c->plan, c->node, GP_PARAM_BIAS)[channel];
	double a = (double)gamma / sqrt(var + (double)c->node->g->u.bn.eps);
	job->vec[VEC_A][channel] = (float)a;
	job->vec[VEC_B][channel] = (float)((double)beta - mean * a);
}

static void batch_statistics(const struct cpu_call *c, struct bn_job *job, int parts)
{
	const struct bn_state *s = job->s;
	float *saved = c->saved;
	find_shift(s, job->x, job->vec[VEC_MEAN]);
	gp_cpu_parallel(parts, sum_part, job);
	for (int64_t ch = 0; ch < s->channels; ch++) {
		double sum, dot, n = (double)s->rows;
		total(job, parts, ch, &sum, &dot);
		double mean = (double)job->vec[VEC_MEAN][ch] + sum / n;
		double var = dot / n - sum / n * (sum / n);
		var = var > 0.0 ? var : 0.0;
		set_affine(c, job, ch, mean, var);
		update_running(c, ch, mean, var);
		saved[SAVED_MEAN * s->channels + ch] = (float)mean;
		saved[SAVED_INVSTD * s->channels + ch] = (float)(1.0 / sqrt(var + (double)c->node->g->u.bn.eps));
		saved[SAVED_A * s->channels + ch] = job->vec[VEC_A][ch];
		saved[SAVED_B * s->channels + ch] = job->vec[VEC_B][ch];
	}
}

static void running_statistics(const struct cpu_call *c, struct bn_job *job)
{
	const float *mean = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_MEAN);
	const float *var = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_VAR);
	for (int64_t ch = 0; ch < job->s->channels; ch++)
		set_affine(c, job, ch, (double)mean[ch], (double)var[ch]);
}

static enum gp_status bn_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct bn_job job = job_of(c);
	int parts = gp_cpu_parts(c->plan->threads, job.s->rows * job.s->channels);
	if (c->mode == GP_TRAIN)
		batch_statistics(c, &job, parts);
	else
		running_statistics(c, &job);
	fold_out(job.s, job.vec[VEC_A]);
	fold_out(job.s, job.vec[VEC_B]);
	gp_cpu_parallel(parts, apply_part, &job);
	return GP_OK;
}

static void restore_vectors(const struct cpu_call *c, struct bn_job *job)
{
	static const int from[] = {[VEC_A] = SAVED_A, [VEC_B] = SAVED_B, [VEC_MEAN] = SAVED_MEAN};
	const float *saved = c->saved;
	for (int v = VEC_A; v <= VEC_MEAN; v++) {
		memcpy(job->vec[v], saved + from[v] * job->s->channels, (size_t)job->s->channels * sizeof(float));
		fold_out(job->s, job->vec[v]);
	}
}

static void add_grad(float *grad, int64_t channel, double value, bool accumulate)
{
	grad[channel] = accumulate ? grad[channel] + (float)value : (float)value;
}

/* For gp_cpu_bn_finish. */
static void save_vectors(const struct cpu_call *c, const struct bn_job *job)
{
	const int64_t channels = job->s->channels;
	float *saved = c->saved;
	for (int v = VEC_GRAD_MEAN; v < VEC_COUNT; v++)
		memcpy(saved + (SAVED_GRAD_MEAN + v - VEC_GRAD_MEAN) * channels, job->vec[v],
		       (size_t)channels * sizeof(float));
}

void gp_cpu_bn_finish(const struct cpu_call *c, int64_t from, int64_t to)
{
	static const int saved_at[VEC_COUNT] = {
		[VEC_A] = SAVED_A, [VEC_B] = SAVED_B,        [VEC_MEAN] = SAVED_MEAN, [VEC_GRAD_MEAN] = SAVED_GRAD_MEAN,
		[VEC_K] = SAVED_K, [VEC_SCALE] = SAVED_SCALE};
	const struct cpu_node *n = c->node->finishes;
	float *vec[VEC_COUNT];
	if (!n || from >= to)
		return;
	const int64_t channels = ((const struct bn_state *)n->state)->channels, at = from * channels;
	for (int v = 0; v < VEC_COUNT; v++)
		vec[v] = (float *)c->finish_saved + saved_at[v] * channels;
	loops[n->act].grad(c->dout + at, c->out + at, (float *)c->dout + at, to - from, channels, channels, vec);
}

static enum gp_status bn_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct bn_job job = job_of(c);
	const struct bn_state *s = job.s;
	int parts = gp_cpu_parts(c->plan->threads, s->rows * s->channels);
	const float *gamma = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT);
	restore_vectors(c, &job);
	gp_cpu_parallel(parts, sum_part, &job);
	for (int64_t ch = 0; ch < s->channels; ch++) {
		double sum, dot, n = (double)s->rows;
		double invstd = (double)((const float *)c->saved)[SAVED_INVSTD * s->channels + ch];
		total(&job, parts, ch, &sum, &dot);
		add_grad(gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT), ch, dot * invstd, c->accumulate);
		add_grad(gp_cpu_param_grad(c->plan, c->node, GP_PARAM_BIAS), ch, sum, c->accumulate);
		job.vec[VEC_GRAD_MEAN][ch] = (float)(sum / n);
		job.vec[VEC_K][ch] = (float)(dot * invstd * invstd / n);
		job.vec[VEC_SCALE][ch] = (float)((double)gamma[ch] * invstd);
	}
	if (!c->dx)
		return GP_OK;
	if (c->node->deferred) {
		save_vectors(c, &job);
		return GP_OK;
	}
	for (int v = VEC_GRAD_MEAN; v < VEC_COUNT; v++)
		fold_out(s, job.vec[v]);
	gp_cpu_parallel(parts, apply_part, &job);
	return GP_OK;
}

const struct cpu_op gp_cpu_batch_norm = {
	.name = "batch_norm",
	.saves_input = true,
	.in_place = true,
	.in_place_backward = true,
	.prepare = bn_prepare,
	.release = bn_release,
	.forward = bn_forward,
	.backward = bn_backward,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise convolutions that do part of the work of the batch norms beside
 * them, and all three at once, beside the launches apart: the same bits, over
 * shapes with edges, strides, single pixels and channels that do not fill
 * blocks. That plans make such nodes, and count fewer launches, and that the modes of batch norm stay
 * right: below, and test_cuda_norm_modes.c. See kernels/cuda/ops/k_depthwise.h, kernels/cuda/plan/cuda_share.c.
 */
#include "kernels/cuda/ops/k_batch_norm.h"
#include "kernels/cuda/ops/k_depthwise.h"
#include "tests/unit/test_cuda.h"

enum { LINES = 6, BOTH_NORMS = 2, ROOM_ROWS = 1 << 20 };

struct norm {
	struct gpk_bn n;
	struct tensor line[LINES]; /* gamma, beta, running mean and variance, dgamma, dbeta */
	struct tensor saved;
};

struct shapes {
	enum gp_rt_type type;
	struct gpk_window w;
	int64_t in_rows, out_rows;
};

/* One side of a comparison: starts from the same numbers as the other one. */
struct side {
	struct norm norm[BOTH_NORMS]; /* before, behind */
	struct tensor h, z, y, dh, dx, dweight;
};

static struct tensor filled(enum gp_rt_type type, int64_t n, float value)
{
	struct tensor t = {.n = n, .type = type, .host = host_room(n)};
	t.device = device_room((uint64_t)n * gp_rt_type_bytes(type));
	for (int64_t i = 0; i < n; i++)
		t.host[i] = value;
	tensor_up(&t);
	return t;
}

static struct tensor copied(const struct tensor *from)
{
	struct tensor t = filled(from->type, from->n, 0);
	memcpy(t.host, from->host, (size_t)t.n * sizeof *t.host);
	tensor_up(&t);
	return t;
}

static void expect_same(const struct tensor *a, const struct tensor *b, const char *what)
{
	float *const x = tensor_down(a), *const y = tensor_down(b);
	if (memcmp(x, y, (size_t)a->n * sizeof *x) != 0)
		print_error("%s of type %d differs\n", what, (int)a->type);
	assert_memory_equal(x, y, (size_t)a->n * sizeof *x);
	free(x);
	free(y);
}

/* --- two sides ---------------------------------------------------------------------------------------------------- */

static struct norm norm_of(const struct shapes *s, const struct tensor lines[LINES], bool before)
{
	const int64_t c = s->w.channels;
	static const enum gpk_act act[] = {GPK_ACT_RELU6, GPK_ACT_NONE, GPK_ACT_RELU};
	struct norm m = {.n = {.type = s->type, .rows = before ? s->in_rows : s->out_rows, .channels = c}};
	m.n.act = act[(c / 4 + before) % 3];
	m.n.high = before ? s->w.h : s->w.out_h;
	m.n.wide = before ? s->w.w : s->w.out_w;
	m.n.eps = 1e-5f;
	m.n.momentum = 0.1f;
	for (int k = 0; k < LINES; k++)
		m.line[k] = copied(&lines[k]);
	m.saved = filled(GP_RT_F32, GPK_BN_SAVED * c, 0);
	m.n.gamma = m.line[0].device;
	m.n.beta = m.line[1].device;
	m.n.running_mean = m.line[2].device;
	m.n.running_var = m.line[3].device;
	m.n.saved = m.saved.device;
	m.n.room = device_room(gpk_bn_room(ROOM_ROWS, c));
	return m;
}

static struct side side_of(const struct shapes *s, const struct tensor lines[LINES])
{
	const int64_t in = s->in_rows * s->w.channels, out = s->out_rows * s->w.channels;
	struct side d = {.norm = {norm_of(s, lines, true), norm_of(s, lines, false)}};
	d.h = filled(s->type, in, 9);
	d.dh = filled(s->type, in, 9);
	d.dx = filled(s->type, in, 9);
	d.z = filled(s->type, out, 9);
	d.y = filled(s->type, out, 9);
	d.dweight = filled(GP_RT_F32, gpk_window_taps(&s->w) * s->w.channels, 0);
	return d;
}

static void side_free(struct side *d)
{
	struct tensor *const all[] = {&d->h, &d->dh, &d->dx, &d->z, &d->y, &d->dweight};
	for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
		tensor_free(all[k]);
	for (int i = 0; i < BOTH_NORMS; i++) {
		for (int k = 0; k < LINES; k++)
			tensor_free(&d->norm[i].line[k]);
		tensor_free(&d->norm[i].saved);
		gp_rt_free(0, d->norm[i].n.room);
	}
}

static void expect_same_norm(const struct norm *a, const struct norm *b, bool saved, const char *what)
{
	for (int k = 2; k < LINES; k++)
		expect_same(&a->line[k], &b->line[k], what);
	if (saved)
		expect_same(&a->saved, &b->saved, what);
}

struct inputs {
	struct tensor x, dz, weight, line[LINES];
	void *room;
};

static struct inputs inputs_of(const struct shapes *s)
{
	const int64_t c = s->w.channels;
	struct inputs in = {.x = tensor_new(s->type, s->in_rows * c), .dz = tensor_new(s->type, s->out_rows * c)};
	in.weight = tensor_new(GP_RT_F32, gpk_window_taps(&s->w) * c);
	for (int k = 0; k < LINES; k++)
		in.line[k] = tensor_new(GP_RT_F32, c);
	for (int64_t i = 0; i < c; i++) {
		in.line[0].host[i] += 2;
		in.line[3].host[i] += 2;
	}
	in.room = device_room(gpk_depthwise_room(&s->w));
	return in;
}

static void inputs_free(struct inputs *in)
{
	tensor_free(&in->x);
	tensor_free(&in->dz);
	tensor_free(&in->weight);
	for (int k = 0; k < LINES; k++)
		tensor_free(&in->line[k]);
	gp_rt_free(0, in->room);
}

static struct shapes shapes_of(enum gp_rt_type type, int kernel, int stride, int64_t images, int64_t h, int64_t w,
			       int64_t channels)
{
	struct shapes s = {.type = type};
	const int pad = kernel / 2;
	s.w = (struct gpk_window){.images = images,
				  .h = h,
				  .w = w,
				  .channels = channels,
				  .out_h = (h + 2 * pad - kernel) / stride + 1,
				  .out_w = (w + 2 * pad - kernel) / stride + 1,
				  .kernel_h = kernel,
				  .kernel_w = kernel,
				  .stride_h = stride,
				  .stride_w = stride,
				  .pad_top = pad,
				  .pad_left = pad};
	s.in_rows = images * h * w;
	s.out_rows = images * s.w.out_h * s.w.out_w;
	return s;
}

/* --- many rows: what strips leave and find ------------------------------------------------------------------------ */

static void forward_apart(const struct shapes *s, const struct inputs *in, struct side *d)
{
	gpk_bn_statistics(stream, &d->norm[0].n, in->x.device);
	gpk_bn_apply(stream, &d->norm[0].n, in->x.device, NULL, d->h.device);
	gpk_depthwise_forward(stream, s->type, &s->w, in->weight.device, d->h.device, d->z.device);
	gpk_bn_statistics(stream, &d->norm[1].n, d->z.device);
}

/* `which`: 1 with what is before, 2 with what is behind, 3 with both. */
static void forward_together(const struct shapes *s, const struct inputs *in, struct side *d, int which)
{
	const struct gpk_bn *before = &d->norm[0].n, *behind = &d->norm[1].n;
	const void *x = in->x.device;
	gpk_bn_statistics(stream, before, x);
	if (!(which & 1)) {
		gpk_bn_apply(stream, before, x, NULL, d->h.device);
		x = d->h.device;
	}
	gpk_depthwise_forward_norm(stream, s->type, &s->w, in->weight.device, which & 1 ? before : NULL,
				   which & 2 ? behind : NULL, x, d->z.device);
	if (!(which & 2))
		gpk_bn_statistics(stream, behind, d->z.device);
}

static void weight_both(const struct shapes *s, const struct inputs *in, struct side *a, struct side *b)
{
	gpk_depthwise_backward_weight(stream, s->type, &s->w, a->h.device, in->dz.device, in->room, a->dweight.device);
	gpk_depthwise_backward_weight_norm(stream, s->type, &s->w, &b->norm[0].n, in->x.device, in->dz.device, in->room,
					   b->dweight.device);
	expect_same(&a->dweight, &b->dweight, "gradient of the weight");
}

/* Batch norm of few rows adds up in another order: there the two are no rivals. */
static void backward_both(const struct shapes *s, const struct inputs *in, struct side *a, struct side *b)
{
	struct tensor *const p = a->norm[0].line, *const q = b->norm[0].line;
	weight_both(s, in, a, b);
	if (gpk_bn_at_once(s->in_rows, s->w.channels))
		return;
	gpk_depthwise_backward_data(stream, s->type, &s->w, in->weight.device, in->dz.device, a->dh.device);
	gpk_bn_backward(stream, &a->norm[0].n, in->x.device, NULL, a->dh.device, NULL, a->dx.device, p[4].device,
			p[5].device);
	gpk_depthwise_backward_data_norm(stream, s->type, &s->w, in->weight.device, &b->norm[0].n, in->x.device,
					 in->dz.device, b->dh.device, q[4].device, q[5].device);
	gpk_bn_backward_apply(stream, &b->norm[0].n, in->x.device, b->dh.device, b->dx.device);
	expect_same(&a->dx, &b->dx, "gradient of the input");
	expect_same_norm(&a->norm[0], &b->norm[0], true, "what is left of the batch norm before");
}

static void compare_many_rows(const struct shapes *s)
{
	struct inputs in = inputs_of(s);
	for (int which = 1; which <= 3; which++) {
		struct side a = side_of(s, in.line), b = side_of(s, in.line);
		forward_apart(s, &in, &a);
		forward_together(s, &in, &b, which);
		expect_same(&a.z, &b.z, "output");
		for (int i = 0; i < BOTH_NORMS; i++)
			expect_same_norm(&a.norm[i], &b.norm[i], true, "what a batch norm keeps");
		if (which == 3)
			backward_both(s, &in, &a, &b);
		side_free(&a);
		side_free(&b);
	}
	inputs_free(&in);
}

static void convolution_between_batch_norms_gives_the_bits_of_launches_apart(void **state)
{
	(void)state;
	static const struct {
		int64_t images, h, w, channels;
	} of[] = {{1, 1, 1, 4},   {3, 1, 1, 8},    {1, 5, 3, 20},  {2, 7, 9, 24},
		  {1, 44, 43, 4}, {2, 30, 33, 12}, {3, 3, 205, 36}};
	for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
		for (int kind = 0; kind < 4; kind++) {
			const enum gp_rt_type type = (i + (size_t)kind) % 2 ? GP_RT_BF16 : GP_RT_F32;
			const struct shapes s = shapes_of(type, kind & 1 ? 5 : 3, kind & 2 ? 2 : 1, of[i].images,
							  of[i].h, of[i].w, of[i].channels);
			assert_true(gpk_depthwise_norm_fits(&s.w));
			compare_many_rows(&s);
		}
}

/* Padding that is not the usual one moves where strips of gradients begin. */
static void gradients_over_strips_are_the_same_with_any_padding(void **state)
{
	(void)state;
	for (int pad = 0; pad < 4; pad++)
		for (int stride = 1; stride <= 2; stride++) {
			struct shapes s = shapes_of(GP_RT_F32, 5, stride, 1, 44, 43, 8);
			s.w.pad_left = s.w.pad_top = pad;
			s.w.out_h = (44 + 2 * pad - 5) / stride + 1;
			s.w.out_w = (43 + 2 * pad - 5) / stride + 1;
			s.out_rows = s.w.out_h * s.w.out_w;
			compare_many_rows(&s);
		}
}

static void windows_without_code_of_their_own_do_not_fit(void **state)
{
	(void)state;
	const struct shapes odd = shapes_of(GP_RT_F32, 3, 1, 1, 8, 8, 7), wide = shapes_of(GP_RT_F32, 7, 1, 1, 8, 8, 8),
			    far = shapes_of(GP_RT_F32, 3, 3, 1, 8, 8, 8),
			    many = shapes_of(GP_RT_F32, 3, 1, 8, 28, 28, 8);
	assert_false(gpk_depthwise_norm_fits(&odd.w));
	assert_false(gpk_depthwise_norm_fits(&wide.w));
	assert_false(gpk_depthwise_norm_fits(&far.w));
	assert_true(gpk_depthwise_norm_fits(&many.w));
	assert_false(gpk_depthwise_rows_fit(&many.w));
}

/* --- few rows: all three at once ---------------------------------------------------------------------------------- */

static void norm_apart(const struct norm *m, bool by_chunk, const struct tensor *x, const struct tensor *y)
{
	if (by_chunk)
		gpk_bn_forward(stream, &m->n, x->device, NULL, y->device);
	else
		gpk_bn_forward_running(stream, &m->n, x->device, NULL, y->device);
}

static void few_rows_backward(const struct shapes *s, const struct inputs *in, struct side *a, struct side *b)
{
	struct tensor *const p = a->norm[0].line, *const q = b->norm[0].line;
	gpk_depthwise_backward_data(stream, s->type, &s->w, in->weight.device, in->dz.device, a->dh.device);
	gpk_bn_backward(stream, &a->norm[0].n, in->x.device, NULL, a->dh.device, NULL, a->dx.device, p[4].device,
			p[5].device);
	gpk_depthwise_rows_backward(stream, &s->w, in->weight.device, &b->norm[0].n, in->x.device, in->dz.device,
				    b->dx.device, q[4].device, q[5].device);
	expect_same(&a->dx, &b->dx, "gradient of the input");
	expect_same_norm(&a->norm[0], &b->norm[0], true, "what is left of the batch norm before");
	gpk_depthwise_rows_backward(stream, &s->w, in->weight.device, &b->norm[0].n, in->x.device, in->dz.device, NULL,
				    q[4].device, q[5].device);
	OK(gp_rt_stream_wait(stream, &err));
}

/* `modes`: bit 0, the first batch norm takes the chunk's statistics; bit 1, the second one does. */
static void compare_few_rows(const struct shapes *s, int modes)
{
	struct inputs in = inputs_of(s);
	struct side a = side_of(s, in.line), b = side_of(s, in.line);
	for (int i = 0; i < BOTH_NORMS; i++)
		a.norm[i].n.fixed = b.norm[i].n.fixed = !(modes >> i & 1);
	norm_apart(&a.norm[0], modes & 1, &in.x, &a.h);
	gpk_depthwise_forward(stream, s->type, &s->w, in.weight.device, a.h.device, a.z.device);
	norm_apart(&a.norm[1], modes & 2, &a.z, &a.y);
	gpk_depthwise_rows_forward(stream, &s->w, in.weight.device, &b.norm[0].n, modes & 1, &b.norm[1].n, modes & 2,
				   in.x.device, b.z.device, b.y.device);
	expect_same(&a.z, &b.z, "output");
	expect_same(&a.y, &b.y, "normalized output");
	for (int i = 0; i < BOTH_NORMS; i++)
		expect_same_norm(&a.norm[i], &b.norm[i], true, "what a batch norm keeps");
	few_rows_backward(s, &in, &a, &b);
	weight_both(s, &in, &a, &b);
	side_free(&b);
	b = side_of(s, in.line);
	gpk_depthwise_rows_forward(stream, &s->w, in.weight.device, &b.norm[0].n, modes & 1, &b.norm[1].n, modes & 2,
				   in.x.device, b.y.device, b.y.device);
	expect_same(&a.y, &b.y, "output in the place of what is not kept");
	side_free(&a);
	side_free(&b);
	inputs_free(&in);
}

static void few_rows_in_one_launch_have_the_bits_of_three(void **state)
{
	(void)state;
	static const struct {
		int64_t images, h, w, channels;
	} of[] = {{1, 1, 1, 4},   {5, 1, 1, 12},   {1, 2, 7, 20}, {8, 7, 7, 24},
		  {2, 14, 13, 8}, {8, 14, 14, 16}, {1, 42, 42, 4}};
	for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
		for (int kind = 0; kind < 4; kind++) {
			const enum gp_rt_type type = (i + (size_t)kind) % 2 ? GP_RT_BF16 : GP_RT_F32;
			const struct shapes s = shapes_of(type, kind & 1 ? 5 : 3, kind & 2 ? 2 : 1, of[i].images,
							  of[i].h, of[i].w, of[i].channels);
			assert_true(gpk_depthwise_rows_fit(&s.w));
			compare_few_rows(&s, (int)(3 - (i + (size_t)kind / 2) % 4));
			compare_few_rows(&s, 3);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(convolution_between_batch_norms_gives_the_bits_of_launches_apart),
		cmocka_unit_test(gradients_over_strips_are_the_same_with_any_padding),
		cmocka_unit_test(windows_without_code_of_their_own_do_not_fit),
		cmocka_unit_test(few_rows_in_one_launch_have_the_bits_of_three),
	};
	return run_on_gpu(tests, open_stream, close_stream);
}

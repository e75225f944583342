/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of pools, both passes, beside a plain loop in double over windows that
 * are drawn, in fp32 and bf16. See kernels/cuda/ops/k_pool.h.
 */
#include "kernels/cuda/ops/k_pool.h"
#include "tests/unit/test_cuda_window.h"

struct pool_case {
	const struct gpk_window *w;
	bool count_padding;
	const float *x, *dy;
	double *y, *dx;
	double *inside;
	int64_t *from; /* pixel of each maximum */
};

static void meet_max(void *arg, int64_t window, int64_t tap, int64_t pixel)
{
	(void)tap;
	const struct pool_case *c = arg;
	for (int64_t ch = 0; ch < c->w->channels; ch++) {
		const int64_t o = window * c->w->channels + ch;
		const double v = c->x[pixel * c->w->channels + ch];
		if (c->from[o] < 0 || v > c->y[o] || isnan(v)) {
			c->y[o] = v;
			c->from[o] = pixel;
		}
	}
}

static void meet_inside(void *arg, int64_t window, int64_t tap, int64_t pixel)
{
	(void)tap;
	(void)pixel;
	const struct pool_case *c = arg;
	c->inside[window] += 1;
}

static void meet_average(void *arg, int64_t window, int64_t tap, int64_t pixel)
{
	(void)tap;
	const struct pool_case *c = arg;
	const double share = 1 / (c->count_padding ? (double)gpk_window_taps(c->w) : c->inside[window]);
	for (int64_t ch = 0; ch < c->w->channels; ch++) {
		const int64_t o = window * c->w->channels + ch, i = pixel * c->w->channels + ch;
		c->y[o] += share * c->x[i];
		c->dx[i] += share * c->dy[o];
	}
}

struct pool_room {
	struct tensor x, y, dy, dx;
	struct pool_case c;
};

static struct pool_room pool_new(const struct gpk_window *w, enum gp_rt_type type)
{
	struct pool_room r = {.c.w = w};
	r.x = tensor_new(type, pixels_of(w) * w->channels);
	r.dx = tensor_new(type, r.x.n);
	r.y = tensor_new(type, windows_of(w) * w->channels);
	r.dy = tensor_new(type, r.y.n);
	r.c.x = r.x.host;
	r.c.dy = r.dy.host;
	r.c.y = calloc((size_t)r.y.n, sizeof(double));
	r.c.dx = calloc((size_t)r.x.n, sizeof(double));
	r.c.inside = calloc((size_t)r.y.n, sizeof(double));
	r.c.from = calloc((size_t)r.y.n, sizeof(int64_t));
	for (int64_t i = 0; i < r.y.n; i++)
		r.c.from[i] = -1;
	return r;
}

static void pool_free(struct pool_room *r)
{
	tensor_free(&r->x);
	tensor_free(&r->y);
	tensor_free(&r->dy);
	tensor_free(&r->dx);
	free(r->c.y);
	free(r->c.dx);
	free(r->c.inside);
	free(r->c.from);
}

static void check_max_pool(const struct gpk_window *w, enum gp_rt_type type)
{
	struct pool_room r = pool_new(w, type);
	for (int64_t i = 0; i < r.x.n; i++)
		r.x.host[i] = roundf(2 * r.x.host[i]); /* many equal ones */
	tensor_up(&r.x);
	void *const places = device_room((uint64_t)gpk_place_bits(w, type) * (uint64_t)r.y.n / 8);
	each_meeting(w, meet_max, &r.c);
	for (int64_t i = 0; i < r.y.n; i++)
		r.c.dx[r.c.from[i] * w->channels + i % w->channels] += r.dy.host[i];
	gpk_max_pool_forward(stream, type, w, r.x.device, r.y.device, places);
	gpk_max_pool_backward(stream, type, w, r.dy.device, places, r.dx.device);
	check_close(&r.y, r.c.y, shown(w));
	check_close(&r.dx, r.c.dx, shown(w));
	gpk_max_pool_forward(stream, type, w, r.x.device, r.y.device, NULL);
	check_close(&r.y, r.c.y, shown(w));
	gp_rt_free(0, places);
	pool_free(&r);
}

static void maximum_is_the_first_of_equals(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		const struct gpk_window w = draw_window(true);
		check_max_pool(&w, i % 3 ? GP_RT_F32 : GP_RT_BF16);
	}
	const struct gpk_window large = {.images = 1,
					 .h = 20,
					 .w = 40,
					 .channels = 8,
					 .out_h = 2,
					 .out_w = 3,
					 .kernel_h = 17,
					 .kernel_w = 30,
					 .stride_h = 3,
					 .stride_w = 5};
	check_max_pool(&large, GP_RT_F32);
}

static void maximum_of_a_window_with_nan_is_nan(void **state)
{
	(void)state;
	const struct gpk_window w = {.images = 1,
				     .h = 4,
				     .w = 4,
				     .channels = 4,
				     .out_h = 2,
				     .out_w = 2,
				     .kernel_h = 2,
				     .kernel_w = 2,
				     .stride_h = 2,
				     .stride_w = 2};
	struct pool_room r = pool_new(&w, GP_RT_F32);
	void *const places = device_room((uint64_t)r.y.n);
	r.x.host[0] = NAN;
	tensor_up(&r.x);
	gpk_max_pool_forward(stream, GP_RT_F32, &w, r.x.device, r.y.device, places);
	gpk_max_pool_backward(stream, GP_RT_F32, &w, r.dy.device, places, r.dx.device);
	float *const y = tensor_down(&r.y), *const dx = tensor_down(&r.dx);
	assert_true(isnan(y[0]));
	for (int64_t i = 1; i < r.y.n; i++)
		assert_false(isnan(y[i]));
	assert_true(dx[0] == r.dy.host[0]);
	free(y);
	free(dx);
	gp_rt_free(0, places);
	pool_free(&r);
}

static void averages_count_padding_or_not(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		const struct gpk_window w = draw_window(true);
		const enum gp_rt_type type = i % 3 ? GP_RT_F32 : GP_RT_BF16;
		struct pool_room r = pool_new(&w, type);
		r.c.count_padding = i % 2;
		each_meeting(&w, meet_inside, &r.c);
		each_meeting(&w, meet_average, &r.c);
		gpk_avg_pool_forward(stream, type, &w, r.c.count_padding, r.x.device, r.y.device);
		gpk_avg_pool_backward(stream, type, &w, r.c.count_padding, r.dy.device, r.dx.device);
		check_close(&r.y, r.c.y, shown(&w));
		check_close(&r.dx, r.c.dx, shown(&w));
		pool_free(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(maximum_is_the_first_of_equals),
		cmocka_unit_test(maximum_of_a_window_with_nan_is_nan),
		cmocka_unit_test(averages_count_padding_or_not),
	};
	return run_on_gpu(tests, open_stream, close_stream);
}

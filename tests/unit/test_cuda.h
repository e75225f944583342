/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of launchers on a GPU (an emulated one, or a card): a stream, drawn
 * numbers, and tensors that lie on both sides, compared with what a plain loop in
 * double gave. Not a test by itself. Shapes of windows: test_cuda_window.h.
 */
#ifndef GP_TEST_CUDA_H
#define GP_TEST_CUDA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/rng.h"
#include "kernels/cuda/ops/k_fill.h"
#include "kernels/cuda/runtime/rt.h"
#include "tests/unit/on_gpu.h"

#define CASES 60 /* drawn ones, of each test */

static struct gp_rt_stream *stream;
static uint64_t draws;

static inline int open_stream(void **state)
{
	(void)state;
	struct gp_rt_info info;
	OK(gp_rt_open(0, &info, &err));
	OK(gp_rt_stream_new(0, false, &stream, &err));
	return 0;
}

static inline int close_stream(void **state)
{
	(void)state;
	gp_rt_stream_free(stream);
	return 0;
}

/* --- drawn numbers, and tensors on both sides --------------------------------------------------------------------- */

static inline float draw(void)
{
	return 2 * gp_rng_uniform(11, 0, draws++) - 1;
}

static inline int64_t draw_of(int64_t low, int64_t high)
{
	return low + (int64_t)(gp_rng_uniform(12, 0, draws++) * (float)(high - low + 1));
}

static inline float *host_room(int64_t n)
{
	float *p = malloc((size_t)n * sizeof *p);
	assert_non_null(p);
	return p;
}

static inline void *device_room(uint64_t bytes)
{
	void *p = NULL;
	OK(gp_rt_alloc(0, bytes ? bytes : 1, &p, &err));
	return p;
}

struct tensor {
	int64_t n;
	enum gp_rt_type type;
	float *host;
	void *device;
};

/* The device's copy becomes the host's, which is rounded to the type. */
static inline void tensor_up(struct tensor *t)
{
	float *const wide = device_room((uint64_t)t->n * sizeof *wide);
	gp_rt_copy_up(stream, wide, t->host, (size_t)t->n * sizeof *wide);
	gpk_convert(stream, t->type, t->device, GP_RT_F32, wide, t->n);
	gpk_convert(stream, GP_RT_F32, wide, t->type, t->device, t->n);
	gp_rt_copy_down(stream, t->host, wide, (size_t)t->n * sizeof *wide);
	OK(gp_rt_stream_wait(stream, &err));
	gp_rt_free(0, wide);
}

static inline struct tensor tensor_new(enum gp_rt_type type, int64_t n)
{
	struct tensor t = {.n = n, .type = type, .host = host_room(n)};
	t.device = device_room((uint64_t)n * gp_rt_type_bytes(type));
	for (int64_t i = 0; i < n; i++)
		t.host[i] = draw();
	tensor_up(&t);
	return t;
}

static inline void tensor_free(struct tensor *t)
{
	free(t->host);
	gp_rt_free(0, t->device);
}

/* What the device has: caller frees. */
static inline float *tensor_down(const struct tensor *t)
{
	float *const out = host_room(t->n), *const wide = device_room((uint64_t)t->n * sizeof *wide);
	gpk_convert(stream, GP_RT_F32, wide, t->type, t->device, t->n);
	gp_rt_copy_down(stream, out, wide, (size_t)t->n * sizeof *wide);
	OK(gp_rt_stream_wait(stream, &err));
	gp_rt_free(0, wide);
	return out;
}

static inline double difference(const float *got, const double *want, int64_t n)
{
	double above = 0, below = 1e-30;
	for (int64_t i = 0; i < n; i++) {
		above += (got[i] - want[i]) * (got[i] - want[i]);
		below += want[i] * want[i];
	}
	return sqrt(above / below);
}

/* bf16 has 8 bits: what was rounded once is within 2^-9 of its size; a residual makes it twice. */
static inline void check_within(const struct tensor *t, const double *want, const char *what, double most)
{
	float *const got = tensor_down(t);
	const double d = difference(got, want, t->n);
	if (!(d <= most))
		print_error("%s, type %d: relative difference %g\n", what, (int)t->type, d);
	assert_true(d <= most);
	free(got);
}

static inline void check_close(const struct tensor *t, const double *want, const char *what)
{
	check_within(t, want, what, t->type == GP_RT_BF16 ? 6e-3 : 1e-5);
}

#endif

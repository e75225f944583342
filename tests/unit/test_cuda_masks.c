/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks of activations on a GPU (kernels/cuda/ops/k_elementwise.h): they let the
 * same gradients pass as the activation's output does, of both types and any
 * number of elements, and write nothing behind their last byte.
 */
#include "kernels/cuda/ops/k_elementwise.h"
#include "tests/unit/test_cuda.h"

/* Outputs of ReLU6, or of ReLU: zeros of both signs, the upper border, and numbers between and above. */
static void fill_outputs(struct tensor *t, bool six)
{
	static const float edges[] = {0.0f, -0.0f, 6.0f, 1e-30f, 5.5f};
	for (int64_t i = 0; i < t->n; i++) {
		const float v = fabsf(t->host[i]) * 8;
		t->host[i] = i % 3 ? edges[draw_of(0, 4)] : six && v > 6 ? 6.0f : v;
	}
	tensor_up(t);
}

static void expect_equal(const struct tensor *got, const float *want)
{
	float *const values = tensor_down(got);
	assert_memory_equal(values, want, (size_t)got->n * sizeof *want);
	free(values);
}

static void check(enum gp_rt_type type, bool six, int64_t n)
{
	enum { GUARD = 4 };
	struct tensor out = tensor_new(type, n), dout = tensor_new(type, n), want = tensor_new(type, n),
		      got = tensor_new(type, n);
	const size_t bytes = gpk_mask_bytes(n);
	uint8_t *const mask = device_room(bytes + GUARD), guard[GUARD];
	fill_outputs(&out, six);
	gp_rt_fill(stream, mask, 0x5a, bytes + GUARD);
	gpk_mask_of(stream, type, six, mask, out.device, n);
	gp_rt_copy_down(stream, guard, mask + bytes, GUARD);
	gpk_relu_backward(stream, type, six, want.device, dout.device, out.device, n);
	float *const gradient = tensor_down(&want);
	for (int i = 0; i < GUARD; i++)
		assert_int_equal(guard[i], 0x5a);
	gpk_mask_backward(stream, type, got.device, dout.device, mask, n);
	expect_equal(&got, gradient);
	gpk_mask_spread(stream, type, got.device, mask, n);
	for (int64_t i = 0; i < n; i++)
		want.host[i] = out.host[i] > 0 && (!six || out.host[i] < 6) ? 1.0f : 0.0f;
	expect_equal(&got, want.host);
	gpk_mask_backward(stream, type, dout.device, dout.device, mask, n); /* in place */
	expect_equal(&dout, gradient);
	free(gradient);
	gp_rt_free(0, mask);
	tensor_free(&out);
	tensor_free(&dout);
	tensor_free(&want);
	tensor_free(&got);
}

/* The same outputs and the same mask in one launch, also where the output takes the input's place. */
static void check_forward(enum gp_rt_type type, bool six, int64_t n)
{
	enum { GUARD = 4 };
	struct tensor in = tensor_new(type, n), want = tensor_new(type, n), got = tensor_new(type, n);
	const size_t bytes = gpk_mask_bytes(n);
	uint8_t *const masks = device_room(2 * (bytes + GUARD)), *const second = masks + bytes + GUARD;
	uint8_t *const down = malloc(2 * (bytes + GUARD));
	assert_non_null(down);
	for (int64_t i = 0; i < n; i++)
		in.host[i] = i % 5 ? in.host[i] * 8 : 0.0f;
	tensor_up(&in);
	gp_rt_fill(stream, masks, 0x5a, 2 * (bytes + GUARD));
	gpk_relu_forward(stream, type, six, want.device, in.device, n);
	gpk_mask_of(stream, type, six, masks, want.device, n);
	float *const outputs = tensor_down(&want);
	gpk_relu_mask_forward(stream, type, six, got.device, second, in.device, n);
	expect_equal(&got, outputs);
	gpk_relu_mask_forward(stream, type, six, in.device, second, in.device, n);
	expect_equal(&in, outputs);
	gp_rt_copy_down(stream, down, masks, 2 * (bytes + GUARD));
	OK(gp_rt_stream_wait(stream, &err));
	assert_memory_equal(down, down + bytes + GUARD, bytes + GUARD);
	free(down);
	free(outputs);
	gp_rt_free(0, masks);
	tensor_free(&in);
	tensor_free(&want);
	tensor_free(&got);
}

static void masks_let_pass_what_the_output_does(void **state)
{
	(void)state;
	static const int64_t sizes[] = {1, 7, 8, 9, 15, 16, 1000, 2049, 70001};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		for (int six = 0; six < 2; six++) {
			check(GP_RT_F32, six, sizes[i]);
			check(GP_RT_BF16, six, sizes[i]);
			check_forward(GP_RT_F32, six, sizes[i]);
			check_forward(GP_RT_BF16, six, sizes[i]);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(masks_let_pass_what_the_output_does),
	};
	return run_on_gpu(tests, open_stream, close_stream);
}

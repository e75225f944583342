/* SPDX-License-Identifier: Apache-2.0
 *
 * How many kernels an op queues, and that those which do in one launch what
 * would take two give the same bits in every run, in place or not, and leave
 * the stream's tickets as they were. What the numbers should be is
 * test_cuda_batch_norm.c's and test_cuda_conv.c's. See kernels/cuda/runtime/rt_tally.h, gpk_sums.h.
 */
#include "kernels/cuda/ops/k_batch_norm.h"
#include "kernels/cuda/ops/k_columns.h"
#include "kernels/cuda/ops/k_depthwise.h"
#include "kernels/cuda/runtime/rt_tally.h"
#include "tests/unit/test_cuda.h"

/* --- counting ----------------------------------------------------------------------------------------------------- */

static int queued;

static void count(void *arg, const char *what, uint64_t blocks)
{
	(void)arg;
	(void)what;
	(void)blocks;
	queued++;
}

static void begin_count(void)
{
	queued = 0;
	gp_rt_tally(count, NULL);
}

static int end_count(void)
{
	gp_rt_tally(NULL, NULL);
	OK(gp_rt_stream_wait(stream, &err));
	return queued;
}

/* --- batch norm --------------------------------------------------------------------------------------------------- */

struct norm {
	struct gpk_bn n;
	struct tensor x, add, dy, y, dx, dadd, lines[6], saved;
};

static struct norm norm_new(enum gp_rt_type type, int64_t rows, int64_t channels, enum gpk_act act)
{
	struct norm b = {.n = {.type = type, .rows = rows, .channels = channels, .act = act}};
	struct tensor *const values[] = {&b.x, &b.add, &b.dy, &b.y, &b.dx, &b.dadd};
	for (size_t k = 0; k < sizeof values / sizeof values[0]; k++)
		*values[k] = tensor_new(type, rows * channels);
	for (int k = 0; k < 6; k++)
		b.lines[k] = tensor_new(GP_RT_F32, channels);
	for (int64_t c = 0; c < channels; c++)
		b.lines[3].host[c] += 2;
	tensor_up(&b.lines[3]);
	b.saved = tensor_new(GP_RT_F32, GPK_BN_SAVED * channels);
	b.n.eps = 1e-5f;
	b.n.momentum = 0.1f;
	b.n.gamma = b.lines[0].device;
	b.n.beta = b.lines[1].device;
	b.n.running_mean = b.lines[2].device;
	b.n.running_var = b.lines[3].device;
	b.n.saved = b.saved.device;
	b.n.room = device_room(gpk_bn_room(rows, channels));
	return b;
}

static void norm_free(struct norm *b)
{
	struct tensor *const values[] = {&b->x, &b->add, &b->dy, &b->y, &b->dx, &b->dadd, &b->saved};
	for (size_t k = 0; k < sizeof values / sizeof values[0]; k++)
		tensor_free(values[k]);
	for (int k = 0; k < 6; k++)
		tensor_free(&b->lines[k]);
	gp_rt_free(0, b->n.room);
}

static void norm_forward(const struct norm *b, const void *x, const void *add, void *y)
{
	gpk_bn_forward(stream, &b->n, x, add, y);
}

static void norm_backward(const struct norm *b, const void *y, const void *dy, void *dadd, void *dx)
{
	gpk_bn_backward(stream, &b->n, b->x.device, y, dy, dadd, dx, b->lines[4].device, b->lines[5].device);
}

static void expect_launches(int64_t rows, int64_t channels, int each_way)
{
	for (int type = 0; type < 2; type++) {
		struct norm b = norm_new(type ? GP_RT_BF16 : GP_RT_F32, rows, channels, GPK_ACT_RELU6);
		begin_count();
		norm_forward(&b, b.x.device, NULL, b.y.device);
		assert_int_equal(end_count(), each_way);
		begin_count();
		norm_backward(&b, NULL, b.dy.device, NULL, b.dx.device);
		assert_int_equal(end_count(), each_way);
		begin_count();
		gpk_bn_forward_eval(stream, &b.n, b.x.device, NULL, b.y.device);
		assert_int_equal(end_count(), 1);
		norm_free(&b);
	}
}

static void batch_norm_of_few_rows_is_one_launch_each_way(void **state)
{
	(void)state;
	expect_launches(392, 24, 1);
	expect_launches(1568, 8, 1);
}

static void batch_norm_of_many_rows_is_two_launches_each_way(void **state)
{
	(void)state;
	expect_launches(6272, 8, 2);
	expect_launches(392, 7, 2); /* no vectors: any way will do */
}

/* --- the same bits ------------------------------------------------------------------------------------------------ */

static void expect_same_bits(const struct tensor *a, const struct tensor *b)
{
	float *const x = tensor_down(a), *const y = tensor_down(b);
	assert_memory_equal(x, y, (size_t)a->n * sizeof *x);
	free(x);
	free(y);
}

static void copy_tensor(const struct tensor *to, const struct tensor *from)
{
	gp_rt_copy(stream, to->device, from->device, (size_t)from->n * gp_rt_type_bytes(from->type));
}

static void expect_tickets_unused(void)
{
	static uint32_t ticket[GP_RT_TICKETS];
	gp_rt_copy_down(stream, ticket, gp_rt_tickets(stream), sizeof ticket);
	OK(gp_rt_stream_wait(stream, &err));
	for (int i = 0; i < GP_RT_TICKETS; i++)
		assert_int_equal(ticket[i], 0);
}

/* Shapes for every way there is: rows few and many, channels that fill blocks and do not. */
static const struct {
	int64_t rows, channels;
} shapes[] = {{1, 4}, {392, 24}, {500, 136}, {1568, 8}, {1792, 12}, {1793, 12}, {5000, 264}, {3000, 7}, {20000, 16}};
#define SHAPES (int)(sizeof shapes / sizeof shapes[0])

static struct norm drawn_norm(int i)
{
	const enum gpk_act act[] = {GPK_ACT_NONE, GPK_ACT_RELU, GPK_ACT_RELU6};
	return norm_new(i % 2 ? GP_RT_BF16 : GP_RT_F32, shapes[i / 2].rows, shapes[i / 2].channels, act[i % 3]);
}

/* Backward with the mask found again, or taken from y. */
static void second_run_gives_the_bits_of_the_first(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * SHAPES; i++) {
		struct norm b = drawn_norm(i);
		struct tensor again = tensor_new(b.n.type, b.x.n);
		const void *const add = i % 4 < 2 ? b.add.device : NULL;
		norm_forward(&b, b.x.device, add, b.y.device);
		expect_tickets_unused();
		norm_forward(&b, b.x.device, add, again.device);
		expect_same_bits(&b.y, &again);
		norm_backward(&b, add ? b.y.device : NULL, b.dy.device, NULL, b.dx.device);
		expect_tickets_unused();
		norm_backward(&b, add ? b.y.device : NULL, b.dy.device, NULL, again.device);
		expect_same_bits(&b.dx, &again);
		tensor_free(&again);
		norm_free(&b);
	}
}

static void working_in_place_gives_the_same_bits(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * SHAPES; i++) {
		struct norm b = drawn_norm(i);
		struct tensor place = tensor_new(b.n.type, b.x.n);
		norm_forward(&b, b.x.device, b.add.device, b.y.device);
		copy_tensor(&place, &b.x);
		norm_forward(&b, place.device, b.add.device, place.device);
		expect_same_bits(&b.y, &place);
		copy_tensor(&place, &b.add);
		norm_forward(&b, b.x.device, place.device, place.device);
		expect_same_bits(&b.y, &place);
		norm_backward(&b, b.y.device, b.dy.device, b.dadd.device, b.dx.device);
		copy_tensor(&place, &b.dy);
		norm_backward(&b, b.y.device, place.device, place.device, NULL);
		expect_same_bits(&b.dadd, &place);
		copy_tensor(&place, &b.dy);
		norm_backward(&b, b.y.device, place.device, NULL, place.device);
		expect_same_bits(&b.dx, &place);
		tensor_free(&place);
		norm_free(&b);
	}
}

/* --- depthwise ---------------------------------------------------------------------------------------------------- */

static struct gpk_window window_of(int kernel, int64_t side, int64_t channels)
{
	const int pad = kernel / 2;
	return (struct gpk_window){.images = 2,
				   .h = side,
				   .w = side,
				   .channels = channels,
				   .out_h = side,
				   .out_w = side,
				   .kernel_h = kernel,
				   .kernel_w = kernel,
				   .stride_h = 1,
				   .stride_w = 1,
				   .pad_top = pad,
				   .pad_left = pad};
}

/* Kernels of 3x3 and 5x5 have code of their own, 7x7 has not. */
static void depthwise_weights_take_one_launch_and_the_same_bits_in_every_run(void **state)
{
	(void)state;
	static const int kernels[] = {3, 5, 7};
	static const int64_t channels[] = {3, 16, 136};
	for (int i = 0; i < 18; i++) {
		const struct gpk_window w = window_of(kernels[i % 3], i < 9 ? 6 : 20, channels[i / 3 % 3]);
		const int64_t values = w.images * w.h * w.w * w.channels, taps = gpk_window_taps(&w) * w.channels;
		const enum gp_rt_type type = i % 2 ? GP_RT_BF16 : GP_RT_F32;
		struct tensor x = tensor_new(type, values), dy = tensor_new(type, values);
		struct tensor first = tensor_new(GP_RT_F32, taps), second = tensor_new(GP_RT_F32, taps);
		void *const room = device_room(gpk_depthwise_room(&w));
		copy_tensor(&second, &first);
		gpk_depthwise_backward_weight(stream, type, &w, x.device, dy.device, room, first.device);
		expect_tickets_unused();
		gpk_depthwise_backward_weight(stream, type, &w, x.device, dy.device, room, second.device);
		expect_same_bits(&first, &second);
		begin_count();
		gpk_depthwise_backward_weight(stream, type, &w, x.device, dy.device, room, first.device);
		assert_int_equal(end_count(), 1);
		gp_rt_free(0, room);
		struct tensor *const all[] = {&x, &dy, &first, &second};
		for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
			tensor_free(all[k]);
	}
}

/* --- biases ------------------------------------------------------------------------------------------------------- */

static void biases_gradient_is_one_launch_and_the_same_bits_in_every_run(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * SHAPES; i++) {
		const int64_t rows = shapes[i / 2].rows, columns = shapes[i / 2].channels;
		const enum gp_rt_type type = i % 2 ? GP_RT_BF16 : GP_RT_F32;
		struct tensor dy = tensor_new(type, rows * columns), first = tensor_new(GP_RT_F32, columns);
		struct tensor second = tensor_new(GP_RT_F32, columns);
		double *const want = calloc((size_t)columns, sizeof *want);
		void *const room = device_room(gpk_row_bias_room(rows, columns));
		for (int64_t c = 0; c < columns; c++)
			want[c] = first.host[c];
		for (int64_t j = 0; j < dy.n; j++)
			want[j % columns] += dy.host[j];
		copy_tensor(&second, &first);
		gpk_row_bias_backward(stream, type, first.device, dy.device, rows, columns, room);
		check_close(&first, want, "gradient of a bias");
		expect_tickets_unused();
		gpk_row_bias_backward(stream, type, second.device, dy.device, rows, columns, room);
		expect_same_bits(&first, &second);
		begin_count();
		gpk_row_bias_backward(stream, type, first.device, dy.device, rows, columns, room);
		assert_int_equal(end_count(), 1);
		gp_rt_free(0, room);
		free(want);
		tensor_free(&dy);
		tensor_free(&first);
		tensor_free(&second);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batch_norm_of_few_rows_is_one_launch_each_way),
		cmocka_unit_test(batch_norm_of_many_rows_is_two_launches_each_way),
		cmocka_unit_test(second_run_gives_the_bits_of_the_first),
		cmocka_unit_test(working_in_place_gives_the_same_bits),
		cmocka_unit_test(depthwise_weights_take_one_launch_and_the_same_bits_in_every_run),
		cmocka_unit_test(biases_gradient_is_one_launch_and_the_same_bits_in_every_run),
	};
	return run_on_gpu(tests, open_stream, close_stream);
}

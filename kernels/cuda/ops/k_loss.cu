/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy: a block of threads for each row, in double as on the
 * CPU, where rows are few and short. The squared error: a thread for each row. See k_loss.h. Test: tests/unit/test_cuda_train.c
 */
#include "kernels/cuda/ops/k_loss.h"

#include "kernels/cuda/runtime/gpk_block.h"

#define THREADS 128

struct best {
	float value;
	int64_t at;
};

GPK_DEVICE bool is_better(const struct best &a, const struct best &b)
{
	return a.value > b.value || (a.value == b.value && a.at < b.at);
}

GPK_DEVICE struct best row_best(const float *x, int64_t k)
{
	GPK_SHARED(float, value, [THREADS]);
	GPK_SHARED(int64_t, at, [THREADS]);
	struct best mine = {-INFINITY, 0};
	for (int64_t i = threadIdx.x; i < k; i += THREADS)
		if (x[i] > mine.value)
			mine = {x[i], i};
	value[threadIdx.x] = mine.value;
	at[threadIdx.x] = mine.at;
	for (unsigned half = THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (threadIdx.x < half) {
			const struct best a = {value[threadIdx.x], at[threadIdx.x]},
					  b = {value[threadIdx.x + half], at[threadIdx.x + half]};
			value[threadIdx.x] = is_better(b, a) ? b.value : a.value;
			at[threadIdx.x] = is_better(b, a) ? b.at : a.at;
		}
	}
	__syncthreads();
	return {value[0], at[0]};
}

GPK_DEVICE double row_sum(const float *x, int64_t k, float max)
{
	double sum = 0;
	for (int64_t i = threadIdx.x; i < k; i += THREADS)
		sum += exp((double)x[i] - (double)max);
	return gpk_block_sum<THREADS>(sum);
}

GPK_KERNEL cross_entropy(const float *x, const int32_t *label, int valid, int64_t k, float scale, float *grad,
			 struct gpk_loss_row *out)
{
	const int64_t row = blockIdx.x;
	x += row * k;
	if (grad)
		grad += row * k;
	if (row >= valid || label[row] < 0) {
		for (int64_t i = threadIdx.x; grad && i < k; i += THREADS)
			grad[i] = 0;
		return;
	}
	const struct best max = row_best(x, k);
	const double sum = row_sum(x, k, max.value);
	const int64_t right = label[row];
	if (threadIdx.x == 0)
		out[row] = {log(sum) - ((double)x[right] - (double)max.value), max.at};
	for (int64_t i = threadIdx.x; grad && i < k; i += THREADS) {
		const double p = exp((double)x[i] - (double)max.value) / sum;
		grad[i] = (float)((double)scale * (p - (i == right ? 1.0 : 0.0)));
	}
}

extern "C" void gpk_cross_entropy(struct gp_rt_stream *s, const float *x, const int32_t *label, int rows, int valid,
				  int64_t k, float scale, float *grad, struct gpk_loss_row *out)
{
	GPK_LAUNCH(s, cross_entropy, (unsigned)rows, THREADS, 0, x, label, valid, k, scale, grad, out);
}

GPK_KERNEL squared_error(const float *x, const float *label, int rows, int valid, float scale, float *grad,
			 struct gpk_loss_row *out)
{
	const int row = (int)(blockIdx.x * THREADS + threadIdx.x);
	if (row >= rows)
		return;
	const double off = row < valid ? (double)x[row] - (double)label[row] : 0.0;
	if (row < valid)
		out[row] = {off * off, 0};
	if (grad)
		grad[row] = (float)((double)scale * 2.0 * off);
}

extern "C" void gpk_squared_error(struct gp_rt_stream *s, const float *x, const float *label, int rows, int valid,
				  float scale, float *grad, struct gpk_loss_row *out)
{
	GPK_LAUNCH(s, squared_error, (unsigned)((rows + THREADS - 1) / THREADS), THREADS, 0, x, label, rows, valid, scale,
		   grad, out);
}

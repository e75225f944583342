/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for heads of any width: a warp takes a row and goes through the
 * others one by one, in fp32, with every score made anew for each WIDE columns of
 * the result. See k_attention.h. Test: tests/unit/test_cuda_attention.c
 */
#include "kernels/cuda/ops/gpk_attention.h"

#define WARPS       4 /* of a block */
#define MOST_BLOCKS 2112
#define EACH        8 /* columns that a lane adds up at once */
#define WIDE        (EACH * GPK_WARP)

GPK_DEVICE int64_t first_row(void)
{
	return (int64_t)blockIdx.x * WARPS + threadIdx.x / GPK_WARP;
}

GPK_DEVICE int64_t row_step(void)
{
	return (int64_t)gridDim.x * WARPS;
}

template <typename T> GPK_DEVICE float dot(const void *x, int64_t x_at, const void *y, int64_t y_at, int64_t n)
{
	float sum = 0;
	for (int64_t c = threadIdx.x % GPK_WARP; c < n; c += GPK_WARP)
		sum += gpk_get(((const T *)x)[x_at + c]) * gpk_get(((const T *)y)[y_at + c]);
	return gpk_warp_sum(sum);
}

template <typename T>
GPK_DEVICE float score(const struct gpk_attention &a, const struct gpk_head &h, int64_t i, int64_t j)
{
	return dot<T>(a.q, h.at + i * h.stride, a.k, h.at + j * h.stride, a.width) / sqrtf((float)a.width);
}

/* 0, or what a weight that is kept is times. */
GPK_DEVICE float kept(const struct gpk_attention &a, const struct gpk_head &h, int64_t i, int64_t j)
{
	uint32_t word[GPK_ATTENTION_WORDS];
	if (!a.drop.threshold)
		return 1.0f;
	gpk_attention_draw(a, h, *a.drop.draw, i, j, word);
	return word[j % GPK_ATTENTION_WORDS] < a.drop.threshold ? 0.0f : a.drop.scale;
}

/* The lane's columns from `first` on, each GPK_WARP after the one before. */
template <typename T>
GPK_DEVICE void add_row(float (&sum)[EACH], float times, const T *row, int64_t first, int64_t width)
{
	GPK_UNROLL
	for (int k = 0; k < EACH; k++)
		if (first + k * GPK_WARP < width)
			sum[k] += times * gpk_get(row[first + k * GPK_WARP]);
}

template <typename T> GPK_DEVICE void give_row(T *row, const float (&sum)[EACH], int64_t first, int64_t width)
{
	GPK_UNROLL
	for (int k = 0; k < EACH; k++)
		if (first + k * GPK_WARP < width)
			gpk_put(&row[first + k * GPK_WARP], sum[k]);
}

template <typename T> GPK_DEVICE void clear_row(T *row, int64_t width)
{
	for (int64_t c = threadIdx.x % GPK_WARP; c < width; c += GPK_WARP)
		gpk_put(&row[c], 0.0f);
}

/* The logarithm of the sum of exponentials of row i's scores. */
template <typename T> GPK_DEVICE float log_of_sum(const struct gpk_attention &a, const struct gpk_head &h, int64_t i)
{
	float largest = -INFINITY, sum = 0;
	for (int64_t j = 0; j < h.tokens; j++) {
		const float s = score<T>(a, h, i, j), next = s > largest ? s : largest;
		const float base = next == -INFINITY ? 0 : next;
		sum = sum * expf(largest - base) + expf(s - base);
		largest = next;
	}
	return largest + logf(sum);
}

template <typename T> GPK_KERNEL GPK_BOUNDS(WARPS *GPK_WARP) attend_plain(struct gpk_attention a, T *out)
{
	const int64_t rows = a.samples * a.heads * a.positions, lane = threadIdx.x % GPK_WARP;
	for (int64_t row = first_row(); row < rows; row += row_step()) {
		const struct gpk_head h = gpk_head_of(a, row / a.positions);
		const int64_t i = row % a.positions;
		T *const to = out + h.at + i * h.stride;
		if (i >= h.tokens) {
			clear_row(to, a.width);
			continue;
		}
		const float log = log_of_sum<T>(a, h, i);
		for (int64_t first = lane; first - lane < a.width; first += WIDE) {
			float sum[EACH] = {};
			for (int64_t j = 0; j < h.tokens; j++)
				add_row(sum, expf(score<T>(a, h, i, j) - log) * kept(a, h, i, j),
					(const T *)a.v + h.at + j * h.stride, first, a.width);
			give_row(to, sum, first, a.width);
		}
		if (lane == 0)
			a.log[row] = log;
	}
}

extern "C" void gpk_attention_forward_plain(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_attention *a,
					    void *out)
{
	const unsigned blocks = gpk_blocks(a->samples * a->heads * a->positions, WARPS, MOST_BLOCKS);
	GPK_BY_TYPE(type, T, GPK_LAUNCH(s, attend_plain<T>, blocks, WARPS * GPK_WARP, 0, *a, (T *)out));
}

/* What weight (i, j) adds of dout to the gradient of v, and the gradient of its score. */
struct shares {
	float value, score;
};

template <typename T>
GPK_DEVICE struct shares shares_of(const struct gpk_attention &a, const struct gpk_attention_grads &g,
				   const struct gpk_head &h, int64_t i, int64_t j)
{
	const int64_t at_i = h.at + i * h.stride, at_j = h.at + j * h.stride;
	const float weight = expf(score<T>(a, h, i, j) - a.log[h.first_row + i]), keep = kept(a, h, i, j);
	const float expected = dot<T>(g.dout, at_i, g.out, at_i, a.width);
	const float slope = keep * dot<T>(g.dout, at_i, a.v, at_j, a.width) - expected;
	return {weight * keep, weight * slope / sqrtf((float)a.width)};
}

template <typename T>
GPK_KERNEL GPK_BOUNDS(WARPS *GPK_WARP) queries_plain(struct gpk_attention a, struct gpk_attention_grads g)
{
	const int64_t rows = a.samples * a.heads * a.positions, lane = threadIdx.x % GPK_WARP;
	for (int64_t row = first_row(); row < rows; row += row_step()) {
		const struct gpk_head h = gpk_head_of(a, row / a.positions);
		const int64_t i = row % a.positions;
		for (int64_t first = lane; first - lane < a.width; first += WIDE) {
			float sum[EACH] = {};
			for (int64_t j = 0; j < h.tokens && i < h.tokens; j++)
				add_row(sum, shares_of<T>(a, g, h, i, j).score, (const T *)a.k + h.at + j * h.stride,
					first, a.width);
			give_row((T *)g.dq + h.at + i * h.stride, sum, first, a.width);
		}
	}
}

template <typename T>
GPK_KERNEL GPK_BOUNDS(WARPS *GPK_WARP) keys_plain(struct gpk_attention a, struct gpk_attention_grads g)
{
	const int64_t rows = a.samples * a.heads * a.positions, lane = threadIdx.x % GPK_WARP;
	for (int64_t row = first_row(); row < rows; row += row_step()) {
		const struct gpk_head h = gpk_head_of(a, row / a.positions);
		const int64_t j = row % a.positions, at = h.at + j * h.stride;
		for (int64_t first = lane; first - lane < a.width; first += WIDE) {
			float keys[EACH] = {}, values[EACH] = {};
			for (int64_t i = 0; i < h.tokens && j < h.tokens; i++) {
				const struct shares of = shares_of<T>(a, g, h, i, j);
				add_row(keys, of.score, (const T *)a.q + h.at + i * h.stride, first, a.width);
				add_row(values, of.value, (const T *)g.dout + h.at + i * h.stride, first, a.width);
			}
			if (g.dk)
				give_row((T *)g.dk + at, keys, first, a.width);
			if (g.dv)
				give_row((T *)g.dv + at, values, first, a.width);
		}
	}
}

extern "C" void gpk_attention_backward_plain(struct gp_rt_stream *s, enum gp_rt_type type,
					     const struct gpk_attention *a, const struct gpk_attention_grads *g)
{
	const unsigned blocks = gpk_blocks(a->samples * a->heads * a->positions, WARPS, MOST_BLOCKS);
	GPK_BY_TYPE(type, T, {
		if (g->dq)
			GPK_LAUNCH(s, queries_plain<T>, blocks, WARPS * GPK_WARP, 0, *a, *g);
		if (g->dk || g->dv)
			GPK_LAUNCH(s, keys_plain<T>, blocks, WARPS * GPK_WARP, 0, *a, *g);
	});
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A depthwise convolution of few rows with the batch norms before and behind
 * it: all three keep to a channel, and a block has its channels of every row.
 * Forward is one launch: the block normalizes its rows into shared memory,
 * makes the outputs from there, holds them in registers while it takes their
 * statistics, and writes them and what batch norm makes of them. Backward, the
 * gradients of the input are made in the registers from which the batch norm
 * before adds them up. The same bits as by the three launches apart
 * (k_batch_norm_rows.cu, k_depthwise.cu). See k_depthwise.h. By ptxas up to 106 registers for 9.0, and none spills: a
 * block is alone on its multiprocessor where a thread holds seven rows, and there are no more blocks than those.
 * Test: tests/unit/test_cuda_depthwise_norm.c
 */
#include "kernels/cuda/ops/gpk_bn_rows.h"
#include "kernels/cuda/ops/k_depthwise.h"

extern "C" bool gpk_depthwise_rows_fit(const struct gpk_window *w)
{
	return gpk_depthwise_norm_fits(w) && gpk_bn_at_once(w->images * w->h * w->w, w->channels) &&
	       gpk_bn_at_once(w->images * w->out_h * w->out_w, w->channels);
}

/* Runs the rest with K. */
#define BY_KERNEL(w, K, ...)                                                                                           \
	do {                                                                                                           \
		if ((w)->kernel_h == 3) {                                                                              \
			constexpr int K = 3;                                                                           \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			constexpr int K = 5;                                                                           \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

/* Adds one tap's product; v is zero beyond the image, as in k_depthwise.cu. */
GPK_DEVICE void add_tap(float (&sum)[VECTOR], const float (&v)[VECTOR], const float *weight, int tap, int64_t channels)
{
	float of[VECTOR];
	gpk_read<float, VECTOR>(of, weight + tap * channels);
	GPK_UNROLL
	for (int i = 0; i < VECTOR; i++)
		sum[i] += v[i] * of[i];
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* What batch norm makes of each of the block's channels, whose rows threads hold. Every thread must come. */
template <typename T, int N>
GPK_DEVICE void affine_at_once(const struct gpk_bn &n, bool by_chunk, const gpk_pack<T, VECTOR> (&held)[N],
			       float *shifts, struct affine *of)
{
	float sums[2 * VECTOR] = {}, shift[VECTOR], v[VECTOR];
	unsigned c;
	const int64_t mine = channel_to_finish(n.channels, &c);
	if (!by_chunk) {
		if (mine >= 0)
			of[c] = running_channel(n, mine, n.saved != nullptr);
		__syncthreads();
		return;
	}
	const struct of_channel own = channel_of(n, mine);
	unpack<T>(v, held[0]);
	GPK_UNROLL
	for (int k = 0; k < VECTOR && threadIdx.y == 0; k++)
		shifts[threadIdx.x * VECTOR + k] = v[k];
	__syncthreads();
	GPK_UNROLL
	for (int k = 0; k < VECTOR; k++)
		shift[k] = shifts[threadIdx.x * VECTOR + k];
	GPK_UNROLL
	for (int i = 0; i < N; i++)
		if (gpk_first_channel(VECTOR) < n.channels && row_of(i) < n.rows) {
			unpack<T>(v, held[i]);
			add_values<VECTOR>(sums, v, shift);
		}
	const double *const sum = gpk_fold_block<2, VECTOR>(sums);
	if (mine >= 0)
		of[c] = finish_values(n, mine, own, (double)shifts[c], sum[folded_at(0, c)], sum[folded_at(1, c)]);
	__syncthreads();
}

template <typename T, int N>
GPK_DEVICE void normalize_held(gpk_pack<T, VECTOR> (&held)[N], struct limits l, const struct affine *of)
{
	GPK_UNROLL
	for (int i = 0; i < N; i++) {
		float v[VECTOR];
		unpack<T>(v, held[i]);
		GPK_UNROLL
		for (int k = 0; k < VECTOR; k++) {
			const struct affine f = of[threadIdx.x * VECTOR + k];
			v[k] = output_of<T, false>(f.a, f.b, v[k], 0, l);
		}
		pack<T>(held[i], v);
	}
}

/* An output of the convolution; `image`: the block's channels of all rows of its input. */
template <typename T, int K>
GPK_DEVICE void make_output(float (&sum)[VECTOR], const struct gpk_window &w, const struct gpk_place &at,
			    const float *weight, const T *image)
{
	const int64_t top = at.row * w.stride_h - w.pad_top, left = at.column * w.stride_w - w.pad_left;
	const unsigned wide = blockDim.x * VECTOR;
	GPK_UNROLL
	for (int kh = 0; kh < K; kh++) {
		if (top + kh < 0 || top + kh >= w.h)
			continue;
		GPK_UNROLL
		for (int kw = 0; kw < K; kw++) {
			const int64_t row = (at.image * w.h + top + kh) * w.w + left + kw;
			float v[VECTOR] = {};
			if (left + kw >= 0 && left + kw < w.w)
				gpk_read<T, VECTOR>(v, image + row * wide + threadIdx.x * VECTOR);
			add_tap(sum, v, weight, kh * K + kw, w.channels);
		}
	}
}

template <typename T, int N, int K>
GPK_KERNEL GPK_BOUNDS(THREADS)
	convolve_at_once(struct gpk_window w, struct gpk_places outputs, struct gpk_bn before, struct gpk_bn behind,
			 struct limits first, struct limits second, bool chunk_before, bool chunk_behind,
			 const float *GPK_RESTRICT weight, const T *x, T *z, T *y)
{
	GPK_SHARED(struct affine, of, [WIDE]);
	GPK_SHARED(float, shifts, [WIDE]);
	GPK_SHARED_DYNAMIC(T, image);
	const int64_t channel = gpk_first_channel(VECTOR);
	gpk_pack<T, VECTOR> held[N] = {};
	load_rows<T, N>(held, before, x);
	affine_at_once<T, N>(before, chunk_before, held, shifts, of);
	normalize_held<T, N>(held, first, of);
	GPK_UNROLL
	for (int i = 0; i < N; i++)
		if (row_of(i) < before.rows)
			*reinterpret_cast<gpk_pack<T, VECTOR> *>(image + row_of(i) * blockDim.x * VECTOR +
								 threadIdx.x * VECTOR) = held[i];
	__syncthreads();
	GPK_UNROLL
	for (int i = 0; i < N; i++) {
		float sum[VECTOR] = {};
		if (channel < w.channels && row_of(i) < behind.rows)
			make_output<T, K>(sum, w, gpk_place_of(outputs, row_of(i)), weight + channel, image);
		pack<T>(held[i], sum);
	}
	if (z)
		store_rows<T, N>(z, behind, held);
	__syncthreads(); /* sums are added where the image was */
	affine_at_once<T, N>(behind, chunk_behind, held, shifts, of);
	normalize_held<T, N>(held, second, of);
	store_rows<T, N>(y, behind, held);
}

static size_t shared_bytes(const struct gpk_bn *before, struct gpk_tile t)
{
	const size_t image = (size_t)(before->rows * t.lanes * VECTOR) * gp_rt_type_bytes(before->type),
		     sums = gpk_sums_shared(THREADS, 2 * VECTOR);
	return image > sums ? image : sums;
}

extern "C" void gpk_depthwise_rows_forward(struct gp_rt_stream *s, const struct gpk_window *w, const float *weight,
					   const struct gpk_bn *before, bool chunk_before, const struct gpk_bn *behind,
					   bool chunk_behind, const void *x, void *z, void *y)
{
	const struct gpk_tile t = tile_of(before);
	const struct gpk_places outputs = gpk_places_of(w->images, w->out_h, w->out_w);
	const int64_t rows = before->rows > behind->rows ? before->rows : behind->rows;
	GPK_BY_TYPE(before->type, T,
		    BY_KERNEL(w, K, BY_HELD(rows, t.deep, N, {
				      GPK_LAUNCH_LARGE(s, (convolve_at_once<T, N, K>), (unsigned)t.tiles, t.block(),
						       shared_bytes(before, t), *w, outputs, *before, *behind,
						       limits_of(before->act), limits_of(behind->act), chunk_before,
						       chunk_behind, weight, (const T *)x, (T *)(z == y ? NULL : z),
						       (T *)y);
			      })));
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* The gradient of a pixel of the input, from that of the outputs. */
template <typename T, int K>
GPK_DEVICE void make_gradient(float (&sum)[VECTOR], const struct gpk_window &w, const struct gpk_place &at,
			      const float *weight, const T *dz)
{
	const int stride = w.stride_h, down = (int)at.row + w.pad_top, right = (int)at.column + w.pad_left;
	const int last = right / stride;
	GPK_UNROLL
	for (int kh = 0; kh < K; kh++) {
		const int64_t oh = (down - kh) / stride;
		if (down < kh || (down - kh) % stride || oh >= w.out_h)
			continue;
		const T *const row = dz + (at.image * w.out_h + oh) * w.out_w * w.channels;
		GPK_UNROLL
		for (int back = (K - 1); back >= 0; back--) {
			const int ow = last - back, kw = right - ow * stride;
			float g[VECTOR] = {};
			if (kw >= K)
				continue;
			if (ow >= 0 && ow < w.out_w)
				gpk_read<T, VECTOR>(g, row + ow * w.channels);
			add_tap(sum, g, weight, kh * K + kw, w.channels);
		}
	}
}

template <typename T, int N, int K, enum mask M>
GPK_KERNEL GPK_BOUNDS(THREADS)
	return_at_once(struct gpk_window w, struct gpk_places pixels, struct gpk_bn n, struct limits l,
		       const float *GPK_RESTRICT weight, const T *GPK_RESTRICT x, const T *GPK_RESTRICT dz, T *dx,
		       float *dgamma, float *dbeta)
{
	GPK_SHARED(struct coefficients, of, [WIDE]);
	const int64_t channel = gpk_first_channel(VECTOR);
	gpk_pack<T, VECTOR> held[N], gradient[N];
	load_rows<T, N>(held, n, x);
	GPK_UNROLL
	for (int i = 0; i < N; i++) {
		float sum[VECTOR] = {};
		if (channel < n.channels && row_of(i) < n.rows)
			make_gradient<T, K>(sum, w, gpk_place_of(pixels, row_of(i)), weight + channel, dz + channel);
		pack<T>(gradient[i], sum);
	}
	gradients_of_held<T, N, M>(n, l, nullptr, held, gradient, of, nullptr, dx, dgamma, dbeta);
}

template <typename T, int N, int K, enum mask M>
static void launch_return(struct gp_rt_stream *s, const struct gpk_window *w, const struct gpk_places &pixels,
			  const struct gpk_bn *before, const float *weight, const void *x, const void *dz, void *dx,
			  float *dgamma, float *dbeta)
{
	const struct gpk_tile t = tile_of(before);
	GPK_LAUNCH(s, (return_at_once<T, N, K, M>), (unsigned)t.tiles, t.block(), gpk_sums_shared(THREADS, 2 * VECTOR),
		   *w, pixels, *before, limits_of(before->act), weight, (const T *)x, (const T *)dz, (T *)dx, dgamma,
		   dbeta);
}

extern "C" void gpk_depthwise_rows_backward(struct gp_rt_stream *s, const struct gpk_window *w, const float *weight,
					    const struct gpk_bn *before, const void *x, const void *dz, void *dx,
					    float *dgamma, float *dbeta)
{
	const struct gpk_tile t = tile_of(before);
	const struct gpk_places pixels = gpk_places_of(w->images, w->h, w->w);
	const bool masked = before->act != GPK_ACT_NONE;
	GPK_BY_TYPE(before->type, T,
		    BY_KERNEL(w, K, BY_HELD(before->rows, t.deep, N, {
				      if (masked)
					      launch_return<T, N, K, MASK_FROM_X>(s, w, pixels, before, weight, x, dz,
										  dx, dgamma, dbeta);
				      else
					      launch_return<T, N, K, MASK_NONE>(s, w, pixels, before, weight, x, dz, dx,
										dgamma, dbeta);
			      })));
}

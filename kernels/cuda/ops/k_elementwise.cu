/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations, GELU and tanh, sums and dropout: bound by memory, so 16 bytes per access and
 * no more threads than a card holds at once. See k_elementwise.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_elementwise.h"

#include "kernels/cuda/ops/gpk_dropout.h"
#include "kernels/cuda/runtime/gpk_rows.h"

#define THREADS     256
#define MOST_BLOCKS 2048

static unsigned blocks_for(enum gp_rt_type type, int64_t n)
{
	return gpk_blocks(gpk_div_up(n, 16 / (int64_t)gp_rt_type_bytes(type)), THREADS, MOST_BLOCKS);
}

GPK_DEVICE int64_t first_index(void)
{
	return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

GPK_DEVICE int64_t index_step(void)
{
	return (int64_t)gridDim.x * blockDim.x;
}

/* F::of(a, b) of every element; what is left over by whole vectors one by one. */
template <typename T, typename F> GPK_KERNEL map(T *out, const T *a, const T *b, int64_t n)
{
	constexpr int W = 16 / sizeof(T);
	const int64_t whole = n - n % W, step = index_step();
	for (int64_t i = first_index() * W; i < whole; i += step * W) {
		float x[W], y[W];
		gpk_read(x, &a[i]);
		gpk_read(y, &b[i]);
		for (int k = 0; k < W; k++)
			x[k] = F::of(x[k], y[k]);
		gpk_write(&out[i], x);
	}
	for (int64_t i = whole + first_index(); i < n; i += step)
		gpk_put(&out[i], F::of(gpk_get(a[i]), gpk_get(b[i])));
}

template <typename T, typename F> GPK_KERNEL map_one(T *out, const T *a, int64_t n)
{
	constexpr int W = 16 / sizeof(T);
	const int64_t whole = n - n % W, step = index_step();
	for (int64_t i = first_index() * W; i < whole; i += step * W) {
		float x[W];
		gpk_read(x, &a[i]);
		for (int k = 0; k < W; k++)
			x[k] = F::of(x[k]);
		gpk_write(&out[i], x);
	}
	for (int64_t i = whole + first_index(); i < n; i += step)
		gpk_put(&out[i], F::of(gpk_get(a[i])));
}

struct sum {
	GPK_DEVICE float of(float a, float b)
	{
		return a + b;
	}
};

struct relu {
	GPK_DEVICE float of(float v)
	{
		return v < 0.0f ? 0.0f : v;
	}
};

struct relu6 {
	GPK_DEVICE float of(float v)
	{
		return v < 0.0f ? 0.0f : v > 6.0f ? 6.0f : v;
	}
};

struct relu_grad {
	GPK_DEVICE float of(float dout, float out)
	{
		return out > 0.0f ? dout : 0.0f;
	}
};

struct relu6_grad {
	GPK_DEVICE float of(float dout, float out)
	{
		return out > 0.0f && out < 6.0f ? dout : 0.0f;
	}
};

/* --- GELU and tanh ------------------------------------------------------------------------------------------------ */

/* sqrt(2 / pi) and the factor of x^3 in GELU's approximation; 1 / sqrt(2 pi), 1 / sqrt(2) */
#define SLOPE   0.7978845608028654f
#define CUBE    0.044715f
#define DENSITY 0.3989422804014327f
#define ROOT    0.7071067811865476f

struct gelu {
	GPK_DEVICE float of(float x)
	{
		return 0.5f * x * (1.0f + erff(x * ROOT));
	}
};

struct gelu_grad {
	GPK_DEVICE float of(float dout, float x)
	{
		return dout * (0.5f * (1.0f + erff(x * ROOT)) + x * DENSITY * expf(-0.5f * x * x));
	}
};

struct gelu_approximate {
	GPK_DEVICE float of(float x)
	{
		return 0.5f * x * (1.0f + tanhf(SLOPE * (x + CUBE * x * x * x)));
	}
};

struct gelu_approximate_grad {
	GPK_DEVICE float of(float dout, float x)
	{
		const float t = tanhf(SLOPE * (x + CUBE * x * x * x));
		return dout * (0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * SLOPE * (1.0f + 3.0f * CUBE * x * x));
	}
};

struct tanh_of {
	GPK_DEVICE float of(float x)
	{
		return tanhf(x);
	}
};

struct tanh_grad {
	GPK_DEVICE float of(float dout, float out)
	{
		return dout * (1.0f - out * out);
	}
};

template <typename F>
static void launch_map(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *a, const void *b, int64_t n)
{
	const unsigned blocks = blocks_for(type, n);
	GPK_BY_TYPE(type, T, GPK_LAUNCH(s, (map<T, F>), blocks, THREADS, 0, (T *)out, (const T *)a, (const T *)b, n));
}

template <typename F>
static void launch_map_one(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *a, int64_t n)
{
	const unsigned blocks = blocks_for(type, n);
	GPK_BY_TYPE(type, T, GPK_LAUNCH(s, (map_one<T, F>), blocks, THREADS, 0, (T *)out, (const T *)a, n));
}

extern "C" void gpk_add(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *a, const void *b,
			int64_t n)
{
	launch_map<sum>(s, type, out, a, b, n);
}

template <typename T> GPK_KERNEL sum_of_many(T *out, struct gpk_summands of, int64_t n)
{
	constexpr int W = 16 / sizeof(T);
	const int64_t whole = n - n % W, step = index_step();
	for (int64_t i = first_index() * W; i < whole; i += step * W) {
		float sum[W], x[W];
		gpk_read(sum, (const T *)of.in[0] + i);
		for (int k = 1; k < of.count; k++) {
			gpk_read(x, (const T *)of.in[k] + i);
			for (int e = 0; e < W; e++)
				sum[e] += x[e];
		}
		gpk_write(&out[i], sum);
	}
	for (int64_t i = whole + first_index(); i < n; i += step) {
		float sum = gpk_get(((const T *)of.in[0])[i]);
		for (int k = 1; k < of.count; k++)
			sum += gpk_get(((const T *)of.in[k])[i]);
		gpk_put(&out[i], sum);
	}
}

extern "C" void gpk_sum(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const struct gpk_summands *of,
			int64_t n)
{
	const unsigned blocks = blocks_for(type, n);
	GPK_BY_TYPE(type, T, GPK_LAUNCH(s, (sum_of_many<T>), blocks, THREADS, 0, (T *)out, *of, n));
}

extern "C" void gpk_relu_forward(struct gp_rt_stream *s, enum gp_rt_type type, bool six, void *out, const void *in,
				 int64_t n)
{
	if (six)
		launch_map_one<relu6>(s, type, out, in, n);
	else
		launch_map_one<relu>(s, type, out, in, n);
}

extern "C" void gpk_relu_backward(struct gp_rt_stream *s, enum gp_rt_type type, bool six, void *dx, const void *dout,
				  const void *out, int64_t n)
{
	if (six)
		launch_map<relu6_grad>(s, type, dx, dout, out, n);
	else
		launch_map<relu_grad>(s, type, dx, dout, out, n);
}

/* --- masks -------------------------------------------------------------------------------------------------------- */

/* A thread has the 8 elements of a byte, or those of them that there are. */
template <typename T> GPK_DEVICE void read8(float (&x)[8], const T *from, int64_t at, int64_t n)
{
	if (at + 8 <= n)
		gpk_read(x, &from[at]);
	else
		for (int k = 0; k < 8; k++)
			x[k] = at + k < n ? gpk_get(from[at + k]) : 0.0f;
}

template <typename T> GPK_DEVICE void write8(T *to, int64_t at, int64_t n, const float (&x)[8])
{
	if (at + 8 <= n)
		gpk_write(&to[at], x);
	else
		for (int k = 0; at + k < n; k++)
			gpk_put(&to[at + k], x[k]);
}

template <bool SIX> GPK_DEVICE uint8_t bits_of(const float (&out)[8])
{
	unsigned bits = 0;
	for (int k = 0; k < 8; k++)
		bits |= (unsigned)(out[k] > 0.0f && (!SIX || out[k] < 6.0f)) << k;
	return (uint8_t)bits;
}

template <typename T, bool SIX> GPK_KERNEL mask_of(uint8_t *mask, const T *out, int64_t n)
{
	for (int64_t b = first_index(); b * 8 < n; b += index_step()) {
		float x[8];
		read8(x, out, b * 8, n);
		mask[b] = bits_of<SIX>(x);
	}
}

/* What `in` can represent, 0 and 6 included, `out` can, so that nothing is rounded. */
template <typename T, bool SIX> GPK_KERNEL relu_and_mask(T *out, uint8_t *mask, const T *in, int64_t n)
{
	for (int64_t b = first_index(); b * 8 < n; b += index_step()) {
		float x[8];
		read8(x, in, b * 8, n);
		for (int k = 0; k < 8; k++)
			x[k] = SIX ? relu6::of(x[k]) : relu::of(x[k]);
		write8(out, b * 8, n, x);
		mask[b] = bits_of<SIX>(x);
	}
}

/* to = from where the mask has a 1, else 0; without `from`: 1 there. */
template <typename T, bool SPREAD> GPK_KERNEL masked(T *to, const T *from, const uint8_t *mask, int64_t n)
{
	for (int64_t b = first_index(); b * 8 < n; b += index_step()) {
		const unsigned bits = mask[b];
		float x[8];
		for (int k = 0; k < 8; k++)
			x[k] = 1.0f;
		if (b * 8 + 8 <= n) {
			if (!SPREAD)
				gpk_read(x, &from[b * 8]);
			for (int k = 0; k < 8; k++)
				x[k] = bits >> k & 1 ? x[k] : 0.0f;
			gpk_write(&to[b * 8], x);
		} else {
			for (int k = 0; b * 8 + k < n; k++)
				gpk_put(&to[b * 8 + k], !(bits >> k & 1) ? 0.0f
							: SPREAD         ? 1.0f
									 : gpk_get(from[b * 8 + k]));
		}
	}
}

static unsigned blocks_of_bytes(int64_t n)
{
	return gpk_blocks(gpk_div_up(n, 8), THREADS, MOST_BLOCKS);
}

extern "C" void gpk_mask_of(struct gp_rt_stream *s, enum gp_rt_type type, bool six, void *mask, const void *out,
			    int64_t n)
{
	if (six)
		GPK_BY_TYPE(type, T,
			    GPK_LAUNCH(s, (mask_of<T, true>), blocks_of_bytes(n), THREADS, 0, (uint8_t *)mask,
				       (const T *)out, n));
	else
		GPK_BY_TYPE(type, T,
			    GPK_LAUNCH(s, (mask_of<T, false>), blocks_of_bytes(n), THREADS, 0, (uint8_t *)mask,
				       (const T *)out, n));
}

extern "C" void gpk_relu_mask_forward(struct gp_rt_stream *s, enum gp_rt_type type, bool six, void *out, void *mask,
				      const void *in, int64_t n)
{
	if (six)
		GPK_BY_TYPE(type, T,
			    GPK_LAUNCH(s, (relu_and_mask<T, true>), blocks_of_bytes(n), THREADS, 0, (T *)out,
				       (uint8_t *)mask, (const T *)in, n));
	else
		GPK_BY_TYPE(type, T,
			    GPK_LAUNCH(s, (relu_and_mask<T, false>), blocks_of_bytes(n), THREADS, 0, (T *)out,
				       (uint8_t *)mask, (const T *)in, n));
}

extern "C" void gpk_mask_backward(struct gp_rt_stream *s, enum gp_rt_type type, void *dx, const void *dout,
				  const void *mask, int64_t n)
{
	GPK_BY_TYPE(type, T,
		    GPK_LAUNCH(s, (masked<T, false>), blocks_of_bytes(n), THREADS, 0, (T *)dx, (const T *)dout,
			       (const uint8_t *)mask, n));
}

extern "C" void gpk_mask_spread(struct gp_rt_stream *s, enum gp_rt_type type, void *map, const void *mask, int64_t n)
{
	GPK_BY_TYPE(type, T,
		    GPK_LAUNCH(s, (masked<T, true>), blocks_of_bytes(n), THREADS, 0, (T *)map, (const T *)NULL,
			       (const uint8_t *)mask, n));
}

/* --- GELU, tanh ----------------------------------------------------------------------------------------------------- */

extern "C" void gpk_gelu_forward(struct gp_rt_stream *s, enum gp_rt_type type, bool approximate, void *out,
				 const void *in, int64_t n)
{
	if (approximate)
		launch_map_one<gelu_approximate>(s, type, out, in, n);
	else
		launch_map_one<gelu>(s, type, out, in, n);
}

extern "C" void gpk_gelu_backward(struct gp_rt_stream *s, enum gp_rt_type type, bool approximate, void *dx,
				  const void *dout, const void *in, int64_t n)
{
	if (approximate)
		launch_map<gelu_approximate_grad>(s, type, dx, dout, in, n);
	else
		launch_map<gelu_grad>(s, type, dx, dout, in, n);
}

extern "C" void gpk_tanh_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *in, int64_t n)
{
	launch_map_one<tanh_of>(s, type, out, in, n);
}

extern "C" void gpk_tanh_backward(struct gp_rt_stream *s, enum gp_rt_type type, void *dx, const void *dout,
				  const void *out, int64_t n)
{
	launch_map<tanh_grad>(s, type, dx, dout, out, n);
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

template <typename T> GPK_KERNEL dropout(T *out, const T *in, int64_t n, struct gpk_dropout d)
{
	constexpr int W = 16 / sizeof(T);
	for (int64_t i = first_index() * W; i < n; i += index_step() * W) {
		float v[W];
		uint32_t word[W];
		const bool whole = i + W <= n;
		if (whole)
			gpk_read(v, &in[i]);
		for (int k = 0; k < W; k += GPK_DROPOUT_WORDS)
			gpk_dropout_words(d, n, i + k, &word[k]);
		for (int k = 0; k < W && i + k < n; k++) {
			const float x = whole ? v[k] : gpk_get(in[i + k]);
			v[k] = word[k] < d.threshold ? 0.0f : x * d.scale;
		}
		if (whole)
			gpk_write(&out[i], v);
		for (int k = 0; !whole && i + k < n; k++)
			gpk_put(&out[i + k], v[k]);
	}
}

extern "C" void gpk_dropout(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_dropout *d, void *out,
			    const void *in, int64_t n)
{
	const unsigned blocks = blocks_for(type, n);
	GPK_BY_TYPE(type, T, GPK_LAUNCH(s, (dropout<T>), blocks, THREADS, 0, (T *)out, (const T *)in, n, *d));
}

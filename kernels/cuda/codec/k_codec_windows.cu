/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread has V neighbouring channels of a window, or of a pixel. See
 * k_codec_windows.h. Test: tests/unit/test_cuda_codec_poweriter.c
 */
#include "kernels/cuda/codec/k_codec_windows.h"

#include "kernels/cuda/codec/gpk_codec.h"
#include "kernels/cuda/runtime/gpk_rows.h"

#define THREADS 256
#define BLOCKS  4224

/* Sizes in vectors of channels; numbers of elements fit into 32 bits. */
struct sizes {
	uint32_t h, w, c, fh, fw, high, wide;
	uint32_t count;                              /* vectors that there is a thread for */
	struct gpk_divisor by_h, by_w, by_c;         /* of what those are vectors of: the images, or their windows */
	struct gpk_divisor by_window_h, by_window_w; /* fh, fw */
};

template <int V> struct alignas(sizeof(float) * V) pack {
	float of[V];
};

/* Where vector `at` lies. */
struct place {
	uint32_t image, row, column, channel;
};

GPK_DEVICE struct place place_of(uint32_t at, const struct sizes &s)
{
	struct place p;
	p.channel = at;
	p.column = gpk_split(&p.channel, s.by_c);
	p.row = gpk_split(&p.column, s.by_w);
	p.image = gpk_split(&p.row, s.by_h);
	return p;
}

/* Sums in memory order, as the host's. */
template <int V> GPK_KERNEL take_means(const pack<V> *x, pack<V> *y, struct sizes s, uint32_t *bad)
{
	bool finite = true;
	for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < s.count;
	     at += (uint64_t)gridDim.x * THREADS) {
		const struct place p = place_of((uint32_t)at, s);
		const uint32_t top = p.row * s.fh, left = p.column * s.fw;
		const uint32_t rows = min(s.fh, s.h - top), columns = min(s.fw, s.w - left);
		const pack<V> *from = x + ((uint64_t)(p.image * s.h + top) * s.w + left) * s.c + p.channel;
		pack<V> sum = *from;
		for (uint32_t row = 0; row < rows; row++)
			for (uint32_t column = row == 0; column < columns; column++) {
				const pack<V> v = from[((uint64_t)row * s.w + column) * s.c];
				for (int i = 0; i < V; i++)
					sum.of[i] += v.of[i];
			}
		for (int i = 0; i < V; i++) {
			sum.of[i] = __fdiv_rn(sum.of[i], (float)(rows * columns));
			finite &= gpk_finite(sum.of[i]);
		}
		y[at] = sum;
	}
	gpk_flag(bad, !finite);
}

template <int V> GPK_KERNEL spread(const pack<V> *y, pack<V> *x, struct sizes s)
{
	for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < s.count;
	     at += (uint64_t)gridDim.x * THREADS) {
		const struct place p = place_of((uint32_t)at, s);
		const uint64_t line = p.image * s.high + gpk_divide(p.row, s.by_window_h);
		const uint64_t window = line * s.wide + gpk_divide(p.column, s.by_window_w);
		x[at] = y[window * s.c + p.channel];
	}
}

static struct sizes sizes_of(const struct gpk_windows *p, int vector)
{
	struct sizes s;
	s.h = (uint32_t)p->h;
	s.w = (uint32_t)p->w;
	s.c = (uint32_t)(p->c / vector);
	s.fh = (uint32_t)p->fh;
	s.fw = (uint32_t)p->fw;
	s.high = (uint32_t)gpk_div_up(p->h, p->fh);
	s.wide = (uint32_t)gpk_div_up(p->w, p->fw);
	s.by_window_h = gpk_divisor_of(p->fh);
	s.by_window_w = gpk_divisor_of(p->fw);
	return s;
}

/* Threads for the vectors of n images of (h, w) pixels. */
static void share_out(struct sizes *s, int64_t n, uint32_t h, uint32_t w)
{
	s->count = (uint32_t)n * h * w * s->c;
	s->by_h = gpk_divisor_of(h);
	s->by_w = gpk_divisor_of(w);
	s->by_c = gpk_divisor_of(s->c);
}

template <int V>
static void queue_mean(struct gp_rt_stream *stream, const struct gpk_windows *p, const float *x, float *y,
		       uint32_t *bad)
{
	struct sizes s = sizes_of(p, V);
	share_out(&s, p->n, s.high, s.wide);
	GPK_LAUNCH(stream, take_means<V>, gpk_blocks(s.count, THREADS, BLOCKS), THREADS, 0, (const pack<V> *)x,
		   (pack<V> *)y, s, bad);
}

template <int V>
static void queue_spread(struct gp_rt_stream *stream, const struct gpk_windows *p, const float *y, float *x)
{
	struct sizes s = sizes_of(p, V);
	share_out(&s, p->n, s.h, s.w);
	GPK_LAUNCH(stream, spread<V>, gpk_blocks(s.count, THREADS, BLOCKS), THREADS, 0, (const pack<V> *)y,
		   (pack<V> *)x, s);
}

static bool in_fours(const struct gpk_windows *p, const float *x, const float *y)
{
	return p->c % 4 == 0 && ((uintptr_t)x | (uintptr_t)y) % 16 == 0;
}

extern "C" void gpk_windows_mean(struct gp_rt_stream *s, const struct gpk_windows *p, const float *x, float *y,
				 uint32_t *bad)
{
	if (in_fours(p, x, y))
		queue_mean<4>(s, p, x, y, bad);
	else
		queue_mean<1>(s, p, x, y, bad);
}

extern "C" void gpk_windows_spread(struct gp_rt_stream *s, const struct gpk_windows *p, const float *y, float *x)
{
	if (in_fours(p, x, y))
		queue_spread<4>(s, p, y, x);
	else
		queue_spread<1>(s, p, y, x);
}

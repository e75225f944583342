/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense convolution as an implicit matrix product. See k_conv_tiles.h. A block
 * makes a tile of HIGH windows x WIDE outputs and walks the windows' elements
 * CHUNKS * 16 bytes at a time: STAGES of that are on their way to shared memory
 * at once, gathered from the image as they are needed. A warp makes 32 x 32.
 * Rows of 64 bytes in shared memory have their chunks exchanged by row, so that
 * neither the copies in nor the fragments out meet in one bank.
 * Test: tests/unit/test_cuda_tiles.c
 */
#include "kernels/cuda/k_conv_tiles.h"

#include "kernels/cuda/gpk_mma.h"
#include "kernels/cuda/gpk_window.h"

#define WIDE        64
#define CHUNKS      4
#define STAGES      4
#define ROW_BYTES   (CHUNKS * GPK_CHUNK_BYTES)
#define BUSY_BLOCKS 264 /* two for each multiprocessor of a large card: fewer, and tiles become smaller */

struct tiles {
	struct gpk_window w;
	struct gpk_places windows;
	int64_t outputs;
	int32_t vectors; /* chunks of a pixel */
	int32_t steps;
	unsigned across; /* tiles of outputs */
};

/* Where a thread is in a window. */
struct cursor {
	int32_t kh, kw, vector;
};

GPK_DEVICE struct cursor moved(struct cursor at, int32_t by, const struct tiles &t)
{
	at.vector += by;
	while (at.vector >= t.vectors) {
		at.vector -= t.vectors;
		if (++at.kw == t.w.kernel_w) {
			at.kw = 0;
			at.kh++;
		}
	}
	return at;
}

/* One of the windows a thread gathers. */
template <typename T> struct window_at {
	const T *image;
	int64_t top, left;
	bool live;
};

template <typename T> GPK_DEVICE struct window_at<T> window_of(const struct tiles &t, const T *x, int64_t number) {
	const bool live = number < t.windows.count;
	const struct gpk_place at = gpk_place_of(t.windows, live ? number : 0);
	return {x + at.image * t.w.h * t.w.w * t.w.channels, at.row *t.w.stride_h - t.w.pad_top,
		at.column *t.w.stride_w - t.w.pad_left, live};
}

GPK_DEVICE unsigned char *
chunk_at(unsigned char *rows, unsigned row, unsigned chunk)
{
	return rows + row * ROW_BYTES + (chunk ^ (row >> 1 & 3)) * GPK_CHUNK_BYTES;
}

/* What a thread copies: chunk `threadIdx.x % CHUNKS` of every STRIDE-th row of both tiles. */
template <typename T, int HIGH> struct loader {
	enum {
		THREADS = 2 * HIGH,
		STRIDE = THREADS / CHUNKS,
		ROWS_X = HIGH / STRIDE,
		ROWS_WEIGHT = WIDE / STRIDE,
		IN_CHUNK = GPK_CHUNK_BYTES / sizeof(T)
	};
	struct window_at<T> window[ROWS_X];
	const T *x, *weight; /* weight: of the thread's first output */
	int64_t first_output, row_elements;
	struct cursor at;
};

template <typename T, int HIGH>
GPK_DEVICE void load_stage(struct loader<T, HIGH> &l, const struct tiles &t, unsigned char *stage)
{
	using L = struct loader<T, HIGH>;
	const unsigned row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
	const bool inside = l.at.kh < t.w.kernel_h;
	GPK_UNROLL
	for (int i = 0; i < L::ROWS_X; i++) {
		const int64_t ih = l.window[i].top + l.at.kh, iw = l.window[i].left + l.at.kw;
		const bool ok = inside && l.window[i].live && ih >= 0 && ih < t.w.h && iw >= 0 && iw < t.w.w;
		const T *from = l.window[i].image + (ih * t.w.w + iw) * t.w.channels + l.at.vector * L::IN_CHUNK;
		gpk_copy_async(chunk_at(stage, row + i * L::STRIDE, chunk), ok ? from : l.x, !ok);
	}
	unsigned char *const weights = stage + HIGH * ROW_BYTES;
	const int64_t tap = (int64_t)l.at.kh * t.w.kernel_w + l.at.kw;
	GPK_UNROLL
	for (int i = 0; i < L::ROWS_WEIGHT; i++) {
		const bool ok = inside && l.first_output + i * L::STRIDE < t.outputs;
		const T *from =
			l.weight + i * L::STRIDE * l.row_elements + tap * t.w.channels + l.at.vector * L::IN_CHUNK;
		gpk_copy_async(chunk_at(weights, row + i * L::STRIDE, chunk), ok ? from : l.x, !ok);
	}
	l.at = moved(l.at, CHUNKS, t);
}

template <typename T, int HIGH>
GPK_DEVICE struct loader<T, HIGH> loader_of(const struct tiles &t, const T *x, const T *weight, int64_t first_window,
					    int64_t first_output) {
	using L = struct loader<T, HIGH>;
	const unsigned row = threadIdx.x / CHUNKS;
	L l;
	l.x = x;
	l.row_elements = (int64_t)t.w.kernel_h * t.w.kernel_w * t.w.channels;
	l.first_output = first_output + row;
	l.weight = weight + l.first_output * l.row_elements;
	l.at = moved({0, 0, 0}, (int32_t)(threadIdx.x % CHUNKS), t);
	GPK_UNROLL
	for (int i = 0; i < L::ROWS_X; i++)
		l.window[i] = window_of<T>(t, x, first_window + row + i * L::STRIDE);
	return l;
}

/* The warp's 32 x 32 of one stage: 2 x 4 products of 16 x 8, twice. `high`, `across`: its first row and output. */
template <typename T, int HIGH>
GPK_DEVICE void multiply_stage(unsigned char *stage, unsigned high, unsigned across, float (&sum)[2][4][4])
{
	const unsigned lane = threadIdx.x % GPK_WARP;
	unsigned char *const weights = stage + HIGH * ROW_BYTES;
	GPK_UNROLL
	for (unsigned k = 0; k < CHUNKS; k += 2) {
		uint32_t a[2][4], b[2][4];
		GPK_UNROLL
		for (unsigned i = 0; i < 2; i++) {
			gpk_load_fragments(a[i], chunk_at(stage, high + 16 * i + lane % 16, k + lane / 16));
			gpk_load_fragments(
				b[i], chunk_at(weights, across + 16 * i + lane % 8 + lane / 16 * 8, k + lane / 8 % 2));
			GPK_UNROLL
			for (int j = 0; j < 4; j++) {
				a[i][j] = gpk_operand<T>(a[i][j]);
				b[i][j] = gpk_operand<T>(b[i][j]);
			}
		}
		GPK_UNROLL
		for (int i = 0; i < 2; i++)
			GPK_UNROLL
		for (int j = 0; j < 4; j++)
			gpk_mma<T>(sum[i][j], a[i], &b[j / 2][j % 2 * 2]);
	}
}

/* Two neighbouring outputs of a window. */
template <typename T> GPK_DEVICE void give(T *to, float first, float second, bool add)
{
	float v[2] = {first, second}, old[2];
	if (add) {
		gpk_read<T, 2>(old, to);
		v[0] = gpk_rounded<T>(v[0]) + old[0];
		v[1] = gpk_rounded<T>(v[1]) + old[1];
	}
	gpk_write<T, 2>(to, v);
}

template <typename T>
GPK_DEVICE void give_tile(const struct tiles &t, int64_t first_window, int64_t first_output,
			  const float (&sum)[2][4][4], bool add, T *y)
{
	const unsigned lane = threadIdx.x % GPK_WARP;
	GPK_UNROLL
	for (int i = 0; i < 2; i++)
		GPK_UNROLL
	for (int j = 0; j < 4; j++)
		GPK_UNROLL
	for (int half = 0; half < 2; half++) {
		const int64_t window = first_window + 16 * i + 8 * half + lane / 4,
			      output = first_output + 8 * j + lane % 4 * 2;
		if (window < t.windows.count && output < t.outputs)
			give<T>(y + window * t.outputs + output, sum[i][j][2 * half], sum[i][j][2 * half + 1], add);
	}
}

template <typename T, int HIGH>
GPK_KERNEL GPK_BOUNDS(2 * HIGH)
	multiply_windows(struct tiles t, const T *GPK_RESTRICT x, const T *GPK_RESTRICT weight, bool add, T *y)
{
	const int STAGE_BYTES = (HIGH + WIDE) * ROW_BYTES;
	GPK_SHARED_DYNAMIC(unsigned char, room);
	const int64_t first_window = (int64_t)(blockIdx.x / t.across) * HIGH,
		      first_output = (int64_t)(blockIdx.x % t.across) * WIDE;
	const unsigned warp = threadIdx.x / GPK_WARP, high = warp / 2 * 32, across = warp % 2 * 32;
	struct loader<T, HIGH> l = loader_of<T, HIGH>(t, x, weight, first_window, first_output);
	float sum[2][4][4] = {};
	for (int step = 0; step < STAGES - 1; step++) {
		if (step < t.steps)
			load_stage<T, HIGH>(l, t, room + step * STAGE_BYTES);
		gpk_copies_end_group();
	}
	for (int step = 0; step < t.steps; step++) {
		gpk_copies_wait<STAGES - 2>(); /* this step's are there, */
		__syncthreads();               /* everybody's, and nobody reads the stage that is filled next */
		if (step + STAGES - 1 < t.steps)
			load_stage<T, HIGH>(l, t, room + (step + STAGES - 1) % STAGES * STAGE_BYTES);
		gpk_copies_end_group();
		multiply_stage<T, HIGH>(room + step % STAGES * STAGE_BYTES, high, across, sum);
	}
	give_tile<T>(t, first_window + high, first_output + across, sum, add, y);
}

extern "C" bool gpk_conv_tiles_fits(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs)
{
	const int64_t in_chunk = GPK_CHUNK_BYTES / (int64_t)gp_rt_type_bytes(type);
	return w->channels % in_chunk == 0 && outputs % 2 == 0 &&
	       gpk_window_taps(w) * w->channels < INT32_MAX - ROW_BYTES &&
	       gpk_div_up(w->images * w->out_h * w->out_w, 64) * gpk_div_up(outputs, WIDE) < INT32_MAX;
}

extern "C" void gpk_conv_tiles(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
			       int64_t outputs, const void *x, const void *weight, bool add, void *y)
{
	struct tiles t = {*w, gpk_places_of(w->images, w->out_h, w->out_w), outputs, 0, 0, 0};
	const int64_t in_chunk = GPK_CHUNK_BYTES / (int64_t)gp_rt_type_bytes(type);
	t.vectors = (int32_t)(w->channels / in_chunk);
	t.steps = (int32_t)gpk_div_up(gpk_window_taps(w) * t.vectors, CHUNKS);
	t.across = (unsigned)gpk_div_up(outputs, WIDE);
	const unsigned large = (unsigned)gpk_div_up(t.windows.count, 128) * t.across,
		       small = (unsigned)gpk_div_up(t.windows.count, 64) * t.across;
	GPK_BY_TYPE(type, T, {
		if (large >= BUSY_BLOCKS)
			GPK_LAUNCH(s, (multiply_windows<T, 128>), large, 256, STAGES * (128 + WIDE) * ROW_BYTES, t,
				   (const T *)x, (const T *)weight, add, (T *)y);
		else
			GPK_LAUNCH(s, (multiply_windows<T, 64>), small, 128, STAGES * (64 + WIDE) * ROW_BYTES, t,
				   (const T *)x, (const T *)weight, add, (T *)y);
	});
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

#define SIDE 32

/* A square of one tap's (outputs, channels) by way of shared memory: rows are read and written along. */
template <typename T>
GPK_KERNEL GPK_BOUNDS(SIDE * 8) turn_weight(int64_t outputs, int64_t taps, int64_t channels, int64_t squares,
					    const T *GPK_RESTRICT from, T *GPK_RESTRICT to)
{
	GPK_SHARED(T, held, [SIDE][SIDE + 1]);
	const int64_t output = blockIdx.x / squares * SIDE, channel = blockIdx.x % squares * SIDE;
	const unsigned x = threadIdx.x;
	for (int64_t tap = blockIdx.y; tap < taps; tap += gridDim.y) {
		for (unsigned y = threadIdx.y; y < SIDE; y += blockDim.y)
			if (output + y < outputs && channel + x < channels)
				held[y][x] = from[((output + y) * taps + tap) * channels + channel + x];
		__syncthreads();
		for (unsigned y = threadIdx.y; y < SIDE; y += blockDim.y)
			if (channel + y < channels && output + x < outputs)
				to[((channel + y) * taps + taps - 1 - tap) * outputs + output + x] = held[x][y];
		__syncthreads();
	}
}

extern "C" void gpk_conv_turn_weight(struct gp_rt_stream *s, enum gp_rt_type type, int64_t outputs, int64_t taps,
				     int64_t channels, const void *weight, void *turned)
{
	const int64_t squares = gpk_div_up(channels, SIDE);
	const dim3 grid((unsigned)(gpk_div_up(outputs, SIDE) * squares),
			(unsigned)(taps < GPK_GRID_HIGH ? taps : GPK_GRID_HIGH)),
		block(SIDE, 8);
	GPK_BY_TYPE(type, T,
		    GPK_LAUNCH(s, turn_weight<T>, grid, block, 0, outputs, taps, channels, squares, (const T *)weight,
			       (T *)turned));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense convolution as an implicit matrix product. See k_conv_tiles.h. A block
 * makes a tile of windows x outputs (gpk_tiles.h) and walks the windows' elements
 * CHUNKS * 16 bytes at a time: the next steps are on their way to shared memory
 * while one is multiplied, gathered from the image as they are needed.
 *
 * A row of shared memory is one window's, or one output's, 128 bytes of a step: all 32 banks. Its 8 chunks are exchanged
 * by `row % 8`: copies in fill whole rows, and the 8 rows of a matrix that ldmatrix reads at one chunk lie in 8 different
 * places of 16 bytes. Neither meets in a bank.
 * Test: tests/unit/test_cuda_tiles.c
 */
#include "kernels/cuda/ops/k_conv_tiles.h"

#include "kernels/cuda/runtime/gpk_tiles.h"

#define CHUNKS    8
#define ROW_BYTES (CHUNKS * GPK_CHUNK_BYTES)
#define MOST_KIND 16 /* of pixels, in the gradient of strided convolutions */

/*
 * Stages of 64, 96 and 96 KiB. A multiprocessor has 228 KiB for its blocks on an H100 or H200, which hold three, two and
 * two; 164 on an A100: two, one and one; 100 on an L4 or RTX 40: one of each. Three stages of the medium tile, 72 KiB,
 * would be two on an A100; no card has been at hand to say which is faster.
 */
using small_tiles = gpk_tile_shape<64, 64, 32, 32, 4>;
using medium_tiles = gpk_tile_shape<128, 64, 64, 32, 4>;
using large_tiles = gpk_tile_shape<128, 128, 64, 64, 3>;

/* Windows of one kind over x, and where they are in y. */
struct kind {
	int64_t weight;                             /* elements before its own */
	struct gpk_divisor kernel_w, across, plane; /* taps to kernel rows; windows to columns, images */
	int32_t windows, taps, steps, pad_top, pad_left;
	int32_t first_row, first_column; /* in y, of its first window */
	unsigned first_block;
};

struct tiles {
	int32_t h, w, vectors; /* x; vectors: chunks of a pixel */
	struct gpk_divisor by_vectors;
	int32_t stride_h, stride_w;
	int64_t outputs, all_windows;
	int32_t out_h, out_w, apart_h, apart_w; /* y, and the distances of a kind's windows there */
	unsigned across;                        /* tiles of outputs */
	bool spread;                            /* they are not one behind another */
	int32_t parts, each;                    /* of the depth: blockIdx.y; steps of one */
	int32_t kinds;
	struct kind kind[MOST_KIND];
};

/* --- kernel ------------------------------------------------------------------------------------------------------- */

/* What a thread copies: chunk `threadIdx.x % CHUNKS` of every STRIDE-th row of both operands. */
template <typename T, typename S> struct loader {
	static constexpr int STRIDE = S::THREADS / CHUNKS, ROWS_X = S::HIGH / STRIDE, ROWS_WEIGHT = S::WIDE / STRIDE;
	const char *x, *weight;                           /* weight: of the thread's first output */
	int32_t first[ROWS_X], top[ROWS_X], left[ROWS_X]; /* a window's first pixel, in chunks; its row and column */
	int64_t row_bytes;
	int32_t chunk, outputs; /* next of a window; outputs from the thread's first on */
};

template <typename T, typename S>
GPK_DEVICE void load_stage(struct loader<T, S> &l, const struct tiles &t, const struct kind &kind, unsigned char *stage)
{
	using L = struct loader<T, S>;
	const unsigned row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
	unsigned char *const to = stage + row * ROW_BYTES + (chunk ^ row % CHUNKS) * GPK_CHUNK_BYTES;
	uint32_t vector = (uint32_t)l.chunk, kw = gpk_split(&vector, t.by_vectors);
	const bool inside = kw < (uint32_t)kind.taps;
	const int32_t kh = (int32_t)gpk_split(&kw, kind.kernel_w);
	const int32_t along = (kh * t.w + (int32_t)kw) * t.vectors + (int32_t)vector;
	GPK_UNROLL
	for (int i = 0; i < L::ROWS_X; i++) {
		const bool ok = inside && (uint32_t)(l.top[i] + kh) < (uint32_t)t.h &&
				(uint32_t)(l.left[i] + (int32_t)kw) < (uint32_t)t.w;
		const int64_t from = ok ? (int64_t)(l.first[i] + along) * GPK_CHUNK_BYTES : 0;
		gpk_copy_async(to + i * L::STRIDE * ROW_BYTES, l.x + from, !ok);
	}
	GPK_UNROLL
	for (int i = 0; i < L::ROWS_WEIGHT; i++) {
		const bool ok = inside && i * L::STRIDE < l.outputs;
		const int64_t from = i * L::STRIDE * l.row_bytes + (int64_t)l.chunk * GPK_CHUNK_BYTES;
		gpk_copy_async(to + (S::HIGH + i * L::STRIDE) * ROW_BYTES, ok ? l.weight + from : l.x, !ok);
	}
	l.chunk += CHUNKS;
}

/* The image, row and column of window `at`. */
GPK_DEVICE uint32_t place_of(const struct kind &kind, uint32_t at, uint32_t *row, uint32_t *column)
{
	const uint32_t image = gpk_split(&at, kind.plane);
	*row = gpk_split(&at, kind.across);
	*column = at;
	return image;
}

template <typename T, typename S>
GPK_DEVICE struct loader<T, S> loader_of(const struct tiles &t, const struct kind &kind, const T *x, const T *weight,
					 int32_t first_window, int32_t first_output, int32_t first_step) {
	using L = struct loader<T, S>;
	const int32_t thread_row = (int32_t)threadIdx.x / CHUNKS;
	L l;
	l.x = (const char *)x;
	l.row_bytes = (int64_t)kind.taps * t.vectors * GPK_CHUNK_BYTES;
	l.outputs = (int32_t)t.outputs - first_output - thread_row;
	l.weight = (const char *)(weight + kind.weight) + (first_output + thread_row) * l.row_bytes;
	l.chunk = first_step * CHUNKS + (int32_t)threadIdx.x % CHUNKS;
	GPK_UNROLL
	for (int i = 0; i < L::ROWS_X; i++) {
		const int32_t window = first_window + thread_row + i * L::STRIDE;
		const bool live = window < kind.windows;
		uint32_t row, column;
		const uint32_t image = place_of(kind, live ? (uint32_t)window : 0, &row, &column);
		l.left[i] = (int32_t)column * t.stride_w - kind.pad_left;
		l.top[i] = (int32_t)row * t.stride_h - kind.pad_top;
		l.first[i] = (((int32_t)image * t.h + l.top[i]) * t.w + l.left[i]) * t.vectors;
		l.top[i] = live ? l.top[i] : INT32_MIN / 2; /* all of it is padding */
	}
	return l;
}

/* Where a lane begins to read an operand in a stage, and how its row exchanges chunks. */
struct reader {
	unsigned row_bytes, turn;
};

GPK_DEVICE unsigned char *chunk_of(unsigned char *stage, struct reader r, unsigned rows, unsigned chunk)
{
	return stage + r.row_bytes + rows * ROW_BYTES + (chunk ^ r.turn) * GPK_CHUNK_BYTES;
}

template <typename S>
GPK_DEVICE void read_operands(struct gpk_tile_operands<S> &o, unsigned char *stage, struct reader a, struct reader b,
			      unsigned chunk)
{
	GPK_UNROLL
	for (unsigned i = 0; i < S::UP; i++)
		gpk_load_fragments(o.a[i], chunk_of(stage, a, 16 * i, chunk));
	GPK_UNROLL
	for (unsigned j = 0; j < S::ALONG / 2; j++)
		gpk_load_fragments(o.b[j], chunk_of(stage, b, 16 * j, chunk));
}

/* A step's 4 times two chunks of depth; the next two are read while two are multiplied. */
template <typename T, typename S>
GPK_DEVICE void multiply_stage(unsigned char *stage, struct reader a, struct reader b, float (&sum)[S::UP][S::ALONG][4])
{
	struct gpk_tile_operands<S> o[2];
	read_operands<S>(o[0], stage, a, b, 0);
	GPK_UNROLL
	for (unsigned k = 0; k < CHUNKS / 2; k++) {
		if (k + 1 < CHUNKS / 2)
			read_operands<S>(o[(k + 1) % 2], stage, a, b, 2 * k + 2);
		gpk_tile_multiply<T, S>(o[k % 2], sum);
	}
}

/* Which of y's pixels a window's sums are for. */
GPK_DEVICE int64_t pixel_of(const struct tiles &t, const struct kind &kind, int32_t window)
{
	uint32_t row, column;
	if (!t.spread)
		return window;
	const int64_t image = place_of(kind, (uint32_t)window, &row, &column);
	return (image * t.out_h + kind.first_row + (int64_t)row * t.apart_h) * t.out_w + kind.first_column +
	       (int64_t)column * t.apart_w;
}

/* Rows of eight windows that are given at once: what is added to is read of all of them before any is written. */
#define GIVEN 4

/* Neighbouring outputs, of eight windows by turns, as float or T. */
template <typename T, typename S>
GPK_DEVICE void give_rows(const int64_t (&to)[GIVEN], const bool (&live)[GIVEN], int32_t outputs,
			  const float (*sum)[S::ALONG][4], bool add, T *y)
{
	float old[GIVEN][S::ALONG][2] = {};
	GPK_UNROLL
	for (int k = 0; k < GIVEN; k++)
		GPK_UNROLL
	for (int j = 0; j < S::ALONG; j++)
		if (add && live[k] && 8 * j < outputs)
			gpk_read<T, 2>(old[k][j], y + to[k] + 8 * j);
	GPK_UNROLL
	for (int k = 0; k < GIVEN; k++)
		GPK_UNROLL
	for (int j = 0; j < S::ALONG; j++) {
		float v[2] = {sum[k / 2][j][k % 2 * 2], sum[k / 2][j][k % 2 * 2 + 1]};
		GPK_UNROLL
		for (int e = 0; e < 2; e++)
			v[e] = add ? gpk_rounded<T>(v[e]) + old[k][j][e] : v[e];
		if (live[k] && 8 * j < outputs)
			gpk_write<T, 2>(y + to[k] + 8 * j, v);
	}
}

template <typename T, typename S>
GPK_DEVICE void give_tile(const struct tiles &t, const struct kind &kind, int32_t first_window, int32_t first_output,
			  const float (&sum)[S::UP][S::ALONG][4], bool add, T *y, float *room)
{
	const int32_t lane = (int32_t)(threadIdx.x % GPK_WARP), output = first_output + lane % 4 * 2;
	GPK_UNROLL
	for (int i = 0; i < S::UP; i += GIVEN / 2) {
		int64_t to[GIVEN];
		bool live[GIVEN];
		GPK_UNROLL
		for (int k = 0; k < GIVEN; k++) {
			const int32_t window = first_window + 16 * i + 8 * k + lane / 4;
			live[k] = window < kind.windows;
			to[k] = (live[k] ? pixel_of(t, kind, window) : 0) * t.outputs + output;
		}
		if (t.parts > 1)
			give_rows<float, S>(to, live, (int32_t)t.outputs - output, sum + i, false,
					    room + blockIdx.y * t.all_windows * t.outputs);
		else
			give_rows<T, S>(to, live, (int32_t)t.outputs - output, sum + i, add, y);
	}
}

template <typename T, typename S>
GPK_KERNEL GPK_BOUNDS(S::THREADS, 2) multiply_windows(struct tiles t, const T *GPK_RESTRICT x,
						      const T *GPK_RESTRICT weight, bool add, T *y, float *room)
{
	GPK_SHARED_DYNAMIC(unsigned char, stages);
	int k = 0;
	while (k + 1 < t.kinds && blockIdx.x >= t.kind[k + 1].first_block)
		k++;
	const struct kind &kind = t.kind[k];
	const unsigned block = blockIdx.x - kind.first_block, warp = threadIdx.x / GPK_WARP,
		       lane = threadIdx.x % GPK_WARP;
	const unsigned high = warp / S::WARPS_ACROSS * S::WARP_HIGH, across = warp % S::WARPS_ACROSS * S::WARP_WIDE;
	const int32_t window = (int32_t)(block / t.across) * S::HIGH, output = (int32_t)(block % t.across) * S::WIDE;
	const int32_t from = (int32_t)blockIdx.y * t.each, left = kind.steps - from;
	const struct reader a = {(high + lane % 16) * ROW_BYTES, lane / 16 ^ lane % 8},
			    b = {(S::HIGH + across + lane % 8 + lane / 16 * 8) * ROW_BYTES, lane / 8 % 2 ^ lane % 8};
	struct loader<T, S> l = loader_of<T, S>(t, kind, x, weight, window, output, from);
	float sum[S::UP][S::ALONG][4] = {};
	gpk_tile_walk<S>(
		stages, (S::HIGH + S::WIDE) * ROW_BYTES, left < t.each ? left : t.each,
		[&](unsigned char *stage) { load_stage<T, S>(l, t, kind, stage); },
		[&](unsigned char *stage) { multiply_stage<T, S>(stage, a, b, sum); });
	give_tile<T, S>(t, kind, window + (int32_t)high, output + (int32_t)across, sum, add, y, room);
}

/* --- parts of a sum ----------------------------------------------------------------------------------------------- */

#define ADDERS 128

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(ADDERS) add_parts(const float *GPK_RESTRICT parts, int64_t count, int64_t n, bool add, T *y)
{
	const int64_t at = ((int64_t)blockIdx.x * ADDERS + threadIdx.x) * V;
	float sum[V], v[V];
	if (at >= n)
		return;
	gpk_read<float, V>(sum, parts + at);
	GPK_UNROLL_BY(4)
	for (int64_t part = 1; part < count; part++) {
		gpk_read<float, V>(v, parts + part * n + at);
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			sum[i] += v[i];
	}
	if (add) {
		gpk_read<T, V>(v, y + at);
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			sum[i] = gpk_rounded<T>(sum[i]) + v[i];
	}
	gpk_write<T, V>(y + at, sum);
}

extern "C" void gpk_conv_add_parts(struct gp_rt_stream *s, enum gp_rt_type type, const float *parts, int64_t count,
				   int64_t n, bool add, void *y)
{
	GPK_BY_TYPE(type, T, {
		if (n % 4 == 0)
			GPK_LAUNCH(s, (add_parts<T, 4>), (unsigned)gpk_div_up(n, 4 * ADDERS), ADDERS, 0, parts, count,
				   n, add, (T *)y);
		else
			GPK_LAUNCH(s, (add_parts<T, 1>), (unsigned)gpk_div_up(n, ADDERS), ADDERS, 0, parts, count, n,
				   add, (T *)y);
	});
}

/* --- launch ------------------------------------------------------------------------------------------------------- */

/* Along one axis: windows of one kind. */
struct axis {
	int64_t windows;
	int32_t taps, pad, first; /* first: where the first of them is in y */
};

static int64_t chunks_of(enum gp_rt_type type, int64_t channels)
{
	return channels * (int64_t)gp_rt_type_bytes(type) / GPK_CHUNK_BYTES;
}

static bool whole_chunks(enum gp_rt_type type, int64_t channels)
{
	return channels * (int64_t)gp_rt_type_bytes(type) % GPK_CHUNK_BYTES == 0;
}

/* Every place in chunks that the kernel computes, and every number of windows or of blocks, is one of 31 bits. */
static bool counts_fit(const struct gpk_window *w, int64_t outputs, int64_t vectors)
{
	const double tall = (double)w->images * w->h + fabs((double)w->pad_top) + (double)w->out_h * w->stride_h,
		     broad = (double)w->w + fabs((double)w->pad_left) + (double)w->out_w * w->stride_w;
	const double reach = ((tall + w->kernel_h + CHUNKS) * w->w + broad + w->kernel_w) * vectors;
	const double windows = (double)w->images * w->out_h * w->out_w;
	const double blocks = (windows / 64 + MOST_KIND) * ((double)outputs / 64 + 1);
	const double most = INT32_MAX - 1024;
	return reach < most && windows < most && blocks < most && outputs < most &&
	       (double)gpk_window_taps(w) * vectors < most;
}

static struct tiles tiles_of(const struct gpk_window *w, int64_t outputs, int64_t vectors)
{
	struct tiles t = {};
	t.h = (int32_t)w->h;
	t.w = (int32_t)w->w;
	t.vectors = (int32_t)vectors;
	t.by_vectors = gpk_divisor_of(vectors);
	t.stride_h = w->stride_h;
	t.stride_w = w->stride_w;
	t.outputs = outputs;
	t.all_windows = w->images * w->out_h * w->out_w;
	t.out_h = (int32_t)w->out_h;
	t.out_w = (int32_t)w->out_w;
	t.apart_h = t.apart_w = 1;
	return t;
}

/* `weight`: elements before it, and becomes those behind it. */
static void add_kind(struct tiles *t, int64_t images, struct axis down, struct axis across, int64_t *weight,
		     int64_t channels)
{
	struct kind *k = &t->kind[t->kinds];
	*k = {};
	k->weight = *weight;
	k->taps = down.taps * across.taps;
	*weight += k->taps * channels * t->outputs;
	k->windows = (int32_t)(images * down.windows * across.windows);
	k->kernel_w = gpk_divisor_of(across.taps > 0 ? across.taps : 1);
	k->steps = (int32_t)gpk_div_up((int64_t)k->taps * t->vectors, CHUNKS);
	k->pad_top = down.pad;
	k->pad_left = across.pad;
	k->first_row = down.first;
	k->first_column = across.first;
	if (k->windows == 0)
		return;
	k->across = gpk_divisor_of(across.windows);
	k->plane = gpk_divisor_of(down.windows * across.windows);
	t->kinds++;
}

static struct tiles forward_tiles(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs)
{
	struct tiles t = tiles_of(w, outputs, chunks_of(type, w->channels));
	int64_t weight = 0;
	add_kind(&t, w->images, {w->out_h, w->kernel_h, w->pad_top, 0}, {w->out_w, w->kernel_w, w->pad_left, 0},
		 &weight, w->channels);
	return t;
}

/* Pixels of which (at + pad) % stride is `rest`: window u - j reaches the u-th of them with tap rest + j * stride. */
static struct axis axis_of(int32_t rest, int32_t kernel, int32_t stride, int32_t pad, int64_t size)
{
	const int64_t over = (int64_t)pad - rest;
	const int64_t first = over > 0 ? gpk_div_up(over, stride) : -(-over / stride); /* u of the first in the image */
	struct axis a = {};
	a.first = (int32_t)(first * stride - over);
	a.windows = size > a.first ? gpk_div_up(size - a.first, stride) : 0;
	a.taps = kernel > rest ? (kernel - rest + stride - 1) / stride : 0;
	a.pad = (int32_t)(a.taps - 1 - first);
	return a;
}

/* From y to x, of stride 1: sides change roles. */
static struct gpk_window from_y(const struct gpk_window *w, int64_t outputs)
{
	struct gpk_window v = *w;
	v.h = w->out_h;
	v.w = w->out_w;
	v.channels = outputs;
	v.out_h = w->h;
	v.out_w = w->w;
	v.stride_h = v.stride_w = 1;
	return v;
}

/* Pixels that no tap reaches need nothing where it is added. */
static struct tiles back_tiles(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs, bool add)
{
	const struct gpk_window v = from_y(w, outputs);
	struct tiles t = tiles_of(&v, w->channels, chunks_of(type, outputs));
	int64_t weight = 0;
	t.apart_h = w->stride_h;
	t.apart_w = w->stride_w;
	t.spread = w->stride_h > 1 || w->stride_w > 1;
	for (int32_t i = 0; i < w->stride_h * w->stride_w; i++) {
		const struct axis down = axis_of(i / w->stride_w, w->kernel_h, w->stride_h, w->pad_top, w->h),
				  across = axis_of(i % w->stride_w, w->kernel_w, w->stride_w, w->pad_left, w->w);
		if (!add || down.taps * across.taps > 0)
			add_kind(&t, w->images, down, across, &weight, outputs);
	}
	return t;
}

/* What tiles of (high, wide) would cost, whose steps cost `unit`; of several kinds, none is cut into parts. */
static struct gpk_tile_parts cost_of(const struct tiles *t, int64_t high, int64_t wide, int64_t unit)
{
	int64_t blocks = 0, steps = 0, longest = 0;
	for (int i = 0; i < t->kinds; i++) {
		const int64_t tiles = gpk_div_up(t->kind[i].windows, high) * gpk_div_up(t->outputs, wide);
		blocks += tiles;
		steps += tiles * t->kind[i].steps;
		longest = t->kind[i].steps > longest ? t->kind[i].steps : longest;
	}
	if (!t->spread)
		return gpk_tile_parts_of(blocks, longest, unit, t->all_windows * t->outputs * (int64_t)sizeof(float));
	const int64_t even = gpk_div_up(steps, GPK_TILES_FED);
	return {1, longest, (even > longest ? even : longest) * unit};
}

enum size { SMALL, MEDIUM, LARGE, SIZES };

static enum size choose(struct tiles *t)
{
	static const int64_t high[SIZES] = {64, 128, 128}, wide[SIZES] = {64, 64, 128}, unit[SIZES] = {4, 6, 8};
	struct gpk_tile_parts best = {};
	int size = SMALL;
	for (int i = SMALL; i < SIZES; i++) {
		const struct gpk_tile_parts p = cost_of(t, high[i], wide[i], unit[i]);
		if (i == SMALL || p.cost < best.cost) {
			best = p;
			size = i;
		}
	}
	t->parts = (int32_t)best.parts;
	t->each = (int32_t)best.each;
	return (enum size)size;
}

template <typename T, typename S>
static void launch(struct gp_rt_stream *s, struct tiles t, const void *x, const void *weight, bool add, void *y,
		   void *room)
{
	unsigned blocks = 0;
	t.across = (unsigned)gpk_div_up(t.outputs, S::WIDE);
	for (int i = 0; i < t.kinds; i++) {
		t.kind[i].first_block = blocks;
		blocks += (unsigned)gpk_div_up(t.kind[i].windows, S::HIGH) * t.across;
	}
	GPK_LAUNCH_LARGE(s, (multiply_windows<T, S>), dim3(blocks, (unsigned)t.parts), S::THREADS,
			 S::STAGES * (S::HIGH + S::WIDE) * ROW_BYTES, t, (const T *)x, (const T *)weight, add, (T *)y,
			 (float *)room);
}

static void run(struct gp_rt_stream *s, enum gp_rt_type type, struct tiles t, const void *x, const void *weight,
		bool add, void *y, void *room)
{
	const enum size size = choose(&t);
	if (t.kinds == 0)
		return;
	GPK_BY_TYPE(type, T, {
		if (size == LARGE)
			launch<T, large_tiles>(s, t, x, weight, add, y, room);
		else if (size == MEDIUM)
			launch<T, medium_tiles>(s, t, x, weight, add, y, room);
		else
			launch<T, small_tiles>(s, t, x, weight, add, y, room);
	});
	if (t.parts > 1)
		gpk_conv_add_parts(s, type, (const float *)room, t.parts, t.all_windows * t.outputs, add, y);
}

static uint64_t room_of(struct tiles t)
{
	choose(&t);
	return t.parts > 1 ? (uint64_t)(t.parts * t.all_windows * t.outputs) * sizeof(float) : 0;
}

extern "C" bool gpk_conv_tiles_fits(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs)
{
	return whole_chunks(type, w->channels) && outputs % 2 == 0 &&
	       counts_fit(w, outputs, chunks_of(type, w->channels));
}

extern "C" uint64_t gpk_conv_tiles_room(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs)
{
	return room_of(forward_tiles(type, w, outputs));
}

extern "C" void gpk_conv_tiles(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
			       int64_t outputs, const void *x, const void *weight, bool add, void *y, void *room)
{
	run(s, type, forward_tiles(type, w, outputs), x, weight, add, y, room);
}

extern "C" bool gpk_conv_back_fits(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs)
{
	const struct gpk_window v = from_y(w, outputs);
	return whole_chunks(type, outputs) && w->channels % 2 == 0 && w->stride_h <= MOST_KIND &&
	       w->stride_w <= MOST_KIND / w->stride_h && counts_fit(&v, w->channels, chunks_of(type, outputs));
}

extern "C" uint64_t gpk_conv_back_room(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs)
{
	const uint64_t with = room_of(back_tiles(type, w, outputs, true)),
		       without = room_of(back_tiles(type, w, outputs, false));
	return with > without ? with : without;
}

extern "C" void gpk_conv_back(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, int64_t outputs,
			      const void *y, const void *turned, bool add, void *x, void *room)
{
	run(s, type, back_tiles(type, w, outputs, add), y, turned, add, x, room);
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

#define SIDE 32

struct turn {
	int64_t outputs, channels;
	int32_t kernel_h, kernel_w, stride_h, stride_w;
	unsigned squares; /* of SIDE channels, side by side */
};

/* Taps of one axis that are `rest` modulo the stride, those of smaller rests, and where this one is, counted back. */
struct turned_axis {
	int32_t taps, before, at;
};

GPK_DEVICE struct turned_axis turned_axis_of(int32_t tap, int32_t kernel, int32_t stride)
{
	const int32_t rest = tap % stride, more = kernel % stride;
	const int32_t taps = kernel / stride + (rest < more);
	return {taps, kernel / stride * rest + (rest < more ? rest : more), taps - 1 - tap / stride};
}

/* Where tap `tap` of channel 0 begins, and in *taps how many the kind has: a channel is that many outputs long. */
GPK_DEVICE int64_t turned_tap(const struct turn &t, int32_t tap, int32_t *taps)
{
	const struct turned_axis down = turned_axis_of(tap / t.kernel_w, t.kernel_h, t.stride_h),
				 across = turned_axis_of(tap % t.kernel_w, t.kernel_w, t.stride_w);
	const int64_t before = (int64_t)down.before * t.kernel_w + (int64_t)down.taps * across.before;
	*taps = down.taps * across.taps;
	return (before * t.channels + down.at * across.taps + across.at) * t.outputs;
}

/* A square of one tap's (outputs, channels) by way of shared memory: rows are read and written along. */
template <typename T>
GPK_KERNEL GPK_BOUNDS(SIDE * 8) turn_weight(struct turn t, const T *GPK_RESTRICT from, T *GPK_RESTRICT to)
{
	GPK_SHARED(T, held, [SIDE][SIDE + 1]);
	const int32_t all = t.kernel_h * t.kernel_w;
	const int64_t output = (int64_t)(blockIdx.x / t.squares) * SIDE,
		      channel = (int64_t)(blockIdx.x % t.squares) * SIDE;
	const unsigned x = threadIdx.x;
	for (int32_t tap = (int32_t)blockIdx.y; tap < all; tap += (int32_t)gridDim.y) {
		int32_t taps;
		const int64_t first = turned_tap(t, tap, &taps);
		for (unsigned y = threadIdx.y; y < SIDE; y += blockDim.y)
			if (output + y < t.outputs && channel + x < t.channels)
				held[y][x] = from[((output + y) * all + tap) * t.channels + channel + x];
		__syncthreads();
		for (unsigned y = threadIdx.y; y < SIDE; y += blockDim.y)
			if (channel + y < t.channels && output + x < t.outputs)
				to[first + (channel + y) * taps * t.outputs + output + x] = held[x][y];
		__syncthreads();
	}
}

extern "C" void gpk_conv_turn_weight(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
				     int64_t outputs, const void *weight, void *turned)
{
	const int64_t taps = gpk_window_taps(w);
	struct turn t = {outputs, w->channels, w->kernel_h, w->kernel_w, w->stride_h, w->stride_w, 0};
	t.squares = (unsigned)gpk_div_up(w->channels, SIDE);
	const dim3 grid((unsigned)gpk_div_up(outputs, SIDE) * t.squares,
			(unsigned)(taps < GPK_GRID_HIGH ? taps : GPK_GRID_HIGH)),
		block(SIDE, 8);
	GPK_BY_TYPE(type, T, GPK_LAUNCH(s, turn_weight<T>, grid, block, 0, t, (const T *)weight, (T *)turned));
}

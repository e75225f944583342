/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of a convolution's weight as an implicit matrix product whose
 * depth are the windows. See k_conv_weight.h. A block makes a tile of outputs x
 * elements of a window (tap, channel) and walks the windows, DEPTH of them in a
 * step; a thread gathers the same chunk of windows throughout, so that only
 * where a window lies is found anew. In shared memory a row is one window
 * (gpk_mma.h: operands with the depth outermost).
 *
 * What it is for: columns of 3x3 windows are nine times the image, written and read again: 29 MB each way for 56x56x64 in
 * 8 images of bf16, where all that a tile of 64 x 128 gathers from L2 is 45 MB. Sums are few and the depth is long, so it
 * is cut into parts (gpk_tiles.h) of about one tile for each multiprocessor.
 * Test: tests/unit/test_cuda_tiles.c
 */
#include "kernels/cuda/ops/k_conv_weight.h"

#include "kernels/cuda/runtime/gpk_tiles.h"
#include "kernels/cuda/ops/k_conv_tiles.h"

#define ROW_BYTES 64 /* of a step, of one output or one element: DEPTH windows */

/* Blocks need at most 80 KiB. A step of the low tiles is short: more of them have to be under way. */
using low_tiles = gpk_tile_shape<64, 128, 64, 32, 6>;
using large_tiles = gpk_tile_shape<128, 128, 64, 64, 5>;

struct deep {
	int32_t h, w, vectors; /* x; vectors: chunks of a pixel */
	struct gpk_divisor by_vectors, kernel_w;
	struct gpk_divisor across, plane; /* windows to columns, images */
	int32_t windows, stride_h, stride_w, pad_top, pad_left;
	int32_t outputs, elements, output_chunks, element_chunks; /* rows and columns of the gradient */
	unsigned tiles_across;
	int32_t steps, parts, each; /* blockIdx.y: parts of the depth; steps of one */
};

/* --- kernel ------------------------------------------------------------------------------------------------------- */

/* One operand of a stage: SIDE outputs or elements wide, DEPTH windows deep. */
template <typename T, int Side, int Threads> struct side {
	static constexpr int DEPTH = ROW_BYTES / sizeof(T), PITCH = Side * sizeof(T), CHUNKS = PITCH / GPK_CHUNK_BYTES;
	static constexpr int STRIDE = Threads / CHUNKS, ROWS = DEPTH / STRIDE, BYTES = DEPTH * PITCH;
	static_assert(CHUNKS % 8 == 0 && DEPTH % STRIDE == 0, "chunks are exchanged among eight, and no row is half");
};

/* What a thread copies: one chunk of every STRIDE-th window. */
template <typename T, typename S> struct gatherer {
	using Y = side<T, S::HIGH, S::THREADS>;
	using X = side<T, S::WIDE, S::THREADS>;
	const char *x, *dy;   /* of the thread's channels and outputs */
	int32_t down, right;  /* from a window's first pixel to the thread's */
	bool output, element; /* there are such outputs and elements */
	int32_t window;       /* of the next step */
};

template <typename T, typename S>
GPK_DEVICE struct gatherer<T, S> gatherer_of(const struct deep &d, const T *x, const T *dy, int32_t first_output,
					     int32_t first_element, int32_t first_window) {
	using G = struct gatherer<T, S>;
	const int32_t in_chunk = GPK_CHUNK_BYTES / sizeof(T);
	const int32_t y_chunk = first_output / in_chunk + (int32_t)threadIdx.x % G::Y::CHUNKS,
		      x_chunk = first_element / in_chunk + (int32_t)threadIdx.x % G::X::CHUNKS;
	G g;
	g.output = y_chunk < d.output_chunks;
	g.element = x_chunk < d.element_chunks;
	uint32_t vector = g.element ? (uint32_t)x_chunk : 0, kw = gpk_split(&vector, d.by_vectors);
	const uint32_t kh = gpk_split(&kw, d.kernel_w);
	g.down = (int32_t)kh - d.pad_top;
	g.right = (int32_t)kw - d.pad_left;
	g.x = (const char *)x + (int64_t)vector * GPK_CHUNK_BYTES;
	g.dy = (const char *)dy + (g.output ? (int64_t)y_chunk : 0) * GPK_CHUNK_BYTES;
	g.window = first_window;
	return g;
}

/* The pixel of a window that the thread copies; *inside: whether there is one. */
template <typename T, typename S>
GPK_DEVICE int64_t pixel_under(const struct gatherer<T, S> &g, const struct deep &d, int32_t window, bool *inside)
{
	uint32_t column = (uint32_t)window;
	const int32_t image = (int32_t)gpk_split(&column, d.plane), row = (int32_t)gpk_split(&column, d.across);
	const int32_t ih = row * d.stride_h + g.down, iw = (int32_t)column * d.stride_w + g.right;
	*inside = g.element && window < d.windows && (uint32_t)ih < (uint32_t)d.h && (uint32_t)iw < (uint32_t)d.w;
	return *inside ? ((int64_t)image * d.h + ih) * d.w + iw : 0;
}

template <typename T, typename S>
GPK_DEVICE void load_stage(struct gatherer<T, S> &g, const struct deep &d, unsigned char *stage)
{
	using X = typename gatherer<T, S>::X;
	using Y = typename gatherer<T, S>::Y;
	const unsigned y_row = threadIdx.x / Y::CHUNKS, x_row = threadIdx.x / X::CHUNKS;
	GPK_UNROLL
	for (int i = 0; i < Y::ROWS; i++) {
		const unsigned moment = y_row + i * Y::STRIDE;
		const int32_t window = g.window + (int32_t)moment;
		const bool ok = g.output && window < d.windows;
		const int64_t from = ok ? (int64_t)window * d.output_chunks * GPK_CHUNK_BYTES : 0;
		gpk_copy_async(gpk_deep_chunk<T>(stage, Y::PITCH, moment, threadIdx.x % Y::CHUNKS), g.dy + from, !ok);
	}
	GPK_UNROLL
	for (int i = 0; i < X::ROWS; i++) {
		const unsigned moment = x_row + i * X::STRIDE;
		bool ok;
		const int64_t pixel = pixel_under<T, S>(g, d, g.window + (int32_t)moment, &ok);
		gpk_copy_async(gpk_deep_chunk<T>(stage + Y::BYTES, X::PITCH, moment, threadIdx.x % X::CHUNKS),
			       g.x + pixel * d.vectors * GPK_CHUNK_BYTES, !ok);
	}
	g.window += Y::DEPTH;
}

/* `high`, `across`: chunks to the warp's first output and element. */
template <typename T, typename S>
GPK_DEVICE void read_operands(struct gpk_tile_operands<S> &o, unsigned char *stage, unsigned high, unsigned across,
			      unsigned moment)
{
	using X = typename gatherer<T, S>::X;
	using Y = typename gatherer<T, S>::Y;
	const unsigned of_32 = 32 * sizeof(T) / GPK_CHUNK_BYTES;
	GPK_UNROLL
	for (unsigned i = 0; i < S::UP / 2; i++)
		gpk_load_deep_a<T>(o.a + 2 * i, stage, Y::PITCH, moment, high + i * of_32);
	GPK_UNROLL
	for (unsigned j = 0; j < S::ALONG / 4; j++)
		gpk_load_deep_b<T>(o.b + 2 * j, stage + Y::BYTES, X::PITCH, moment, across + j * of_32);
}

template <typename T, typename S>
GPK_DEVICE void multiply_stage(unsigned char *stage, unsigned high, unsigned across, float (&sum)[S::UP][S::ALONG][4])
{
	struct gpk_tile_operands<S> o[2];
	read_operands<T, S>(o[0], stage, high, across, 0);
	read_operands<T, S>(o[1], stage, high, across, ROW_BYTES / sizeof(T) / 2);
	gpk_tile_multiply<T, S>(o[0], sum);
	gpk_tile_multiply<T, S>(o[1], sum);
}

/* The k-th neighbours that this lane has in the upper or lower half of row i: two of bf16, four of fp32. */
template <typename T, typename S, int V>
GPK_DEVICE void neighbours(float (&v)[V], const float (&row)[S::ALONG][4], int k, int half)
{
	GPK_UNROLL
	for (int e = 0; e < V; e++) {
		if constexpr (sizeof(T) == 4)
			v[e] = row[k / 2 * 4 + e][2 * half + k % 2];
		else
			v[e] = row[k][2 * half + e];
	}
}

/* Rows of outputs that are given at once: what is added to is read of all of them before any is written. */
#define GIVEN 4

/* The warp's half rows i and on of 16; `to` is the whole gradient's, or a part's. */
template <typename T, typename S>
GPK_DEVICE void give_rows(const struct deep &d, int i, int32_t first_output, int32_t first_element,
			  const float (&sum)[S::UP][S::ALONG][4], float *to, bool add)
{
	constexpr int V = sizeof(T) == 4 ? 4 : 2, ALONG = 2 * S::ALONG / V;
	float old[GIVEN][ALONG][V] = {}, *row[GIVEN];
	int32_t element[ALONG], live[GIVEN]; /* live: elements that there are in the row */
	GPK_UNROLL
	for (int k = 0; k < ALONG; k++)
		element[k] = first_element +
			     (int32_t)(V == 4 ? gpk_deep_column<T>(k / 2 * 4, k % 2) : gpk_deep_column<T>(k, 0));
	GPK_UNROLL
	for (int r = 0; r < GIVEN; r++) {
		const int32_t output = first_output + (int32_t)gpk_deep_row<T>((i + r) / 2, (i + r) % 2 * 2);
		live[r] = output < d.outputs ? d.elements : 0;
		row[r] = to + (int64_t)output * d.elements;
		GPK_UNROLL
		for (int k = 0; k < ALONG; k++)
			if (add && element[k] < live[r])
				gpk_read<float, V>(old[r][k], row[r] + element[k]);
	}
	GPK_UNROLL
	for (int r = 0; r < GIVEN; r++)
		GPK_UNROLL
	for (int k = 0; k < ALONG; k++) {
		float v[V];
		neighbours<T, S, V>(v, sum[(i + r) / 2], k, (i + r) % 2);
		GPK_UNROLL
		for (int e = 0; e < V; e++)
			v[e] += old[r][k][e];
		if (element[k] < live[r])
			gpk_write<float, V>(row[r] + element[k], v);
	}
}

template <typename T, typename S>
GPK_DEVICE void give_tile(const struct deep &d, int32_t first_output, int32_t first_element,
			  const float (&sum)[S::UP][S::ALONG][4], float *to, bool add)
{
	GPK_UNROLL
	for (int i = 0; i < 2 * S::UP; i += GIVEN)
		give_rows<T, S>(d, i, first_output, first_element, sum, to, add);
}

template <typename T, typename S>
GPK_KERNEL GPK_BOUNDS(S::THREADS, 2)
	multiply_gradients(struct deep d, const T *GPK_RESTRICT x, const T *GPK_RESTRICT dy, float *grad, float *room)
{
	using G = struct gatherer<T, S>;
	GPK_SHARED_DYNAMIC(unsigned char, stages);
	const unsigned warp = threadIdx.x / GPK_WARP, in_chunk = GPK_CHUNK_BYTES / sizeof(T);
	const unsigned high = warp / S::WARPS_ACROSS * S::WARP_HIGH, across = warp % S::WARPS_ACROSS * S::WARP_WIDE;
	const int32_t output = (int32_t)(blockIdx.x / d.tiles_across) * S::HIGH,
		      element = (int32_t)(blockIdx.x % d.tiles_across) * S::WIDE;
	const int32_t from = (int32_t)blockIdx.y * d.each, left = d.steps - from;
	G g = gatherer_of<T, S>(d, x, dy, output, element, from * G::Y::DEPTH);
	float sum[S::UP][S::ALONG][4] = {};
	gpk_tile_walk<S>(
		stages, G::X::BYTES + G::Y::BYTES, left < d.each ? left : d.each,
		[&](unsigned char *stage) { load_stage<T, S>(g, d, stage); },
		[&](unsigned char *stage) { multiply_stage<T, S>(stage, high / in_chunk, across / in_chunk, sum); });
	float *const to = d.parts > 1 ? room + (int64_t)blockIdx.y * d.outputs * d.elements : grad;
	give_tile<T, S>(d, output + (int32_t)high, element + (int32_t)across, sum, to, d.parts == 1);
}

/* --- launch ------------------------------------------------------------------------------------------------------- */

static int64_t chunks_of(enum gp_rt_type type, int64_t channels)
{
	return channels * (int64_t)gp_rt_type_bytes(type) / GPK_CHUNK_BYTES;
}

/* Numbers of windows, elements and blocks, and every coordinate, are ones of 31 bits. */
extern "C" bool gpk_conv_weight_fits(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs)
{
	const int64_t in_chunk = GPK_CHUNK_BYTES / (int64_t)gp_rt_type_bytes(type);
	const double elements = (double)gpk_window_taps(w) * w->channels, most = INT32_MAX - 1024;
	const double windows = (double)w->images * w->out_h * w->out_w;
	const double tall = (double)w->out_h * w->stride_h + w->kernel_h + fabs((double)w->pad_top),
		     broad = (double)w->out_w * w->stride_w + w->kernel_w + fabs((double)w->pad_left);
	return w->channels % in_chunk == 0 && outputs % in_chunk == 0 && elements < most && windows < most &&
	       outputs < most && tall < most && broad < most && (double)w->images * w->h < most && w->w < most &&
	       (elements / 128 + 1) * ((double)outputs / 64 + 1) < most;
}

static struct deep deep_of(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs)
{
	struct deep d = {};
	d.h = (int32_t)w->h;
	d.w = (int32_t)w->w;
	d.vectors = (int32_t)chunks_of(type, w->channels);
	d.by_vectors = gpk_divisor_of(d.vectors);
	d.kernel_w = gpk_divisor_of(w->kernel_w);
	d.across = gpk_divisor_of(w->out_w);
	d.plane = gpk_divisor_of(w->out_h * w->out_w);
	d.windows = (int32_t)(w->images * w->out_h * w->out_w);
	d.stride_h = w->stride_h;
	d.stride_w = w->stride_w;
	d.pad_top = w->pad_top;
	d.pad_left = w->pad_left;
	d.outputs = (int32_t)outputs;
	d.elements = (int32_t)(gpk_window_taps(w) * w->channels);
	d.output_chunks = (int32_t)chunks_of(type, outputs);
	d.element_chunks = (int32_t)chunks_of(type, d.elements);
	d.steps = (int32_t)gpk_div_up(d.windows, ROW_BYTES / (int64_t)gp_rt_type_bytes(type));
	return d;
}

template <typename S> static int64_t tiles_of(const struct deep *d)
{
	return gpk_div_up(d->outputs, S::HIGH) * gpk_div_up(d->elements, S::WIDE);
}

/* Steps are half as deep as those that gpk_tiles.h counts. True for large tiles. */
static bool choose(struct deep *d)
{
	const int64_t bytes = (int64_t)d->outputs * d->elements * (int64_t)sizeof(float);
	const struct gpk_tile_parts low = gpk_tile_parts_of(tiles_of<low_tiles>(d), d->steps, 3, bytes),
				    large = gpk_tile_parts_of(tiles_of<large_tiles>(d), d->steps, 4, bytes);
	const bool is_large = large.cost < low.cost;
	d->parts = (int32_t)(is_large ? large.parts : low.parts);
	d->each = (int32_t)(is_large ? large.each : low.each);
	return is_large;
}

extern "C" uint64_t gpk_conv_weight_room(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs)
{
	struct deep d = deep_of(type, w, outputs);
	choose(&d);
	return d.parts > 1 ? (uint64_t)d.parts * (uint64_t)d.outputs * (uint64_t)d.elements * sizeof(float) : 0;
}

template <typename T, typename S>
static void launch(struct gp_rt_stream *s, struct deep d, const void *x, const void *dy, float *grad, void *room)
{
	d.tiles_across = (unsigned)gpk_div_up(d.elements, S::WIDE);
	GPK_LAUNCH_LARGE(s, (multiply_gradients<T, S>), dim3((unsigned)tiles_of<S>(&d), (unsigned)d.parts), S::THREADS,
			 S::STAGES * (S::HIGH + S::WIDE) * ROW_BYTES, d, (const T *)x, (const T *)dy, grad,
			 (float *)room);
}

extern "C" void gpk_conv_weight(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
				int64_t outputs, const void *x, const void *dy, float *grad, void *room)
{
	struct deep d = deep_of(type, w, outputs);
	const bool large = choose(&d);
	GPK_BY_TYPE(type, T, {
		if (large)
			launch<T, large_tiles>(s, d, x, dy, grad, room);
		else
			launch<T, low_tiles>(s, d, x, dy, grad, room);
	});
	if (d.parts > 1)
		gpk_conv_add_parts(s, GP_RT_F32, (const float *)room, d.parts, (int64_t)d.outputs * d.elements, true,
				   grad);
}

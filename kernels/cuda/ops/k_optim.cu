/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates: one launch over every trained parameter, reading and
 * writing each array once. See k_optim.h. Test: tests/unit/test_cuda_train.c
 */
#include "kernels/cuda/ops/k_optim.h"

#include "kernels/cuda/codec/gpk_piece.h"
#include "kernels/cuda/runtime/gpk_block.h"
#include "kernels/cuda/runtime/gpk_rows.h"

#define THREADS     256
#define MOST_BLOCKS 2048

constexpr int W = 4; /* elements at a time */

GPK_DEVICE int64_t first_index(void)
{
	return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

GPK_DEVICE int64_t index_step(void)
{
	return (int64_t)gridDim.x * blockDim.x;
}

struct element {
	float value, grad, first, second;
};

struct sgd {
	GPK_DEVICE void step(const struct gpk_update &u, struct element *e, float decay, float)
	{
		e->value -= u.lr * (e->grad + decay * e->value);
	}
};

/* load, store: of moments that pass through a codec. */
struct momentum {
	GPK_DEVICE void load(struct element *, float)
	{
	}
	GPK_DEVICE void store(struct element *)
	{
	}
	GPK_DEVICE void step(const struct gpk_update &u, struct element *e, float decay, float)
	{
		const float g = e->grad + decay * e->value;
		e->first = u.momentum * e->first + g;
		e->value -= u.lr * (u.nesterov ? g + u.momentum * e->first : e->first);
	}
};

struct adam {
	GPK_DEVICE void load(struct element *e, float most)
	{
		const float root = e->second > 0.0f ? e->second : 0.0f, limit = most * root;
		const float first = e->first > limit ? limit : e->first;
		e->first = first < -limit ? -limit : first;
		e->second = root * root;
	}
	GPK_DEVICE void store(struct element *e)
	{
		e->second = sqrtf(e->second);
	}
	GPK_DEVICE void step(const struct gpk_update &u, struct element *e, float decay, float shrink)
	{
		const float v = e->value * shrink, g = e->grad + decay * v;
		e->first = u.b1 * e->first + u.c1 * g;
		e->second = u.b2 * e->second + u.c2 * g * g;
		e->value = v - u.step_size * e->first / (sqrtf(e->second) * u.root_scale + u.eps);
	}
};

GPK_DEVICE void load_if(const float *array, int64_t i, float (&v)[W])
{
	if (array)
		gpk_read(v, &array[i]);
}

GPK_DEVICE void store_if(float *array, int64_t i, const float (&v)[W])
{
	if (array)
		gpk_write(&array[i], v);
}

template <typename How> GPK_KERNEL update(struct gpk_update u)
{
	const float zeros[W] = {0, 0, 0, 0};
	gpk_bf16 *const narrow = (gpk_bf16 *)u.narrow;
	for (int64_t i = first_index() * W; i < u.n; i += index_step() * W) {
		float value[W], grad[W], first[W] = {0, 0, 0, 0}, second[W] = {0, 0, 0, 0};
		gpk_read(value, &u.value[i]);
		gpk_read(grad, &u.grad[i]);
		load_if(u.first, i, first);
		load_if(u.second, i, second);
		const bool decayed = i < u.decayed;
		for (int k = 0; k < W; k++) {
			struct element e = {value[k], grad[k], first[k], second[k]};
			How::step(u, &e, decayed ? u.decay : 0.0f, decayed ? u.shrink : 1.0f);
			value[k] = e.value;
			first[k] = e.first;
			second[k] = e.second;
		}
		gpk_write(&u.value[i], value);
		gpk_write(&u.grad[i], zeros);
		if (narrow)
			gpk_write(&narrow[i], value);
		store_if(u.first, i, first);
		store_if(u.second, i, second);
	}
}

extern "C" void gpk_optim_step(struct gp_rt_stream *s, const struct gpk_update *u)
{
	if (u->n < 1)
		return;
	const unsigned blocks = gpk_blocks(u->n / W, THREADS, MOST_BLOCKS);
	if (u->kind == GPK_SGD)
		GPK_LAUNCH(s, update<sgd>, blocks, THREADS, 0, *u);
	else if (u->kind == GPK_MOMENTUM)
		GPK_LAUNCH(s, update<momentum>, blocks, THREADS, 0, *u);
	else
		GPK_LAUNCH(s, update<adam>, blocks, THREADS, 0, *u);
}

/* --- state that lies encoded -------------------------------------------------------------------------------------- */

/* Blocks of a piece: row y of the grid is piece y's. */
#define PIECE_BLOCKS 32

template <typename How> GPK_KERNEL update_pieces(struct gpk_update u, const struct gpk_piece *piece, float most)
{
	const struct gpk_piece p = piece[blockIdx.y];
	const int n = gpk_piece_elements(p);
	gpk_bf16 *const narrow = (gpk_bf16 *)u.narrow;
	for (int64_t i = first_index(); i < n; i += index_step()) {
		const int64_t at = gpk_piece_place(p, i), room = p.room + i;
		const bool decayed = at < u.decayed;
		struct element e = {u.value[at], u.grad[at], u.first[room], u.second ? u.second[room] : 0};
		How::load(&e, most);
		How::step(u, &e, decayed ? u.decay : 0.0f, decayed ? u.shrink : 1.0f);
		How::store(&e);
		u.value[at] = e.value;
		u.grad[at] = 0;
		u.first[room] = e.first;
		if (u.second)
			u.second[room] = e.second;
		if (narrow)
			gpk_put(&narrow[at], e.value);
	}
}

extern "C" void gpk_optim_step_pieces(struct gp_rt_stream *s, const struct gpk_update *u, const struct gpk_piece *piece,
				      int pieces, float most)
{
	const dim3 grid(PIECE_BLOCKS, (unsigned)pieces);
	if (pieces < 1)
		return;
	if (u->kind == GPK_MOMENTUM)
		GPK_LAUNCH(s, update_pieces<momentum>, grid, THREADS, 0, *u, piece, most);
	else
		GPK_LAUNCH(s, update_pieces<adam>, grid, THREADS, 0, *u, piece, most);
}

/* --- decaying insertions ------------------------------------------------------------------------------------------ */

GPK_KERNEL replace(struct gpk_signs r)
{
	const int64_t width = r.columns - r.first_column, n = (r.rows - r.first_row) * width;
	for (int64_t i = first_index(); i < n; i += index_step()) {
		float *g = r.grad + (r.first_row + i / width) * r.columns + r.first_column + i % width;
		*g = -r.l1 * (float)((*g > 0.0f) - (*g < 0.0f));
	}
}

extern "C" void gpk_replace_by_signs(struct gp_rt_stream *s, const struct gpk_signs *r)
{
	const int64_t n = (r->rows - r->first_row) * (r->columns - r->first_column);
	if (n > 0)
		GPK_LAUNCH(s, replace, gpk_blocks(n, THREADS, MOST_BLOCKS), THREADS, 0, *r);
}

/* --- clipping ----------------------------------------------------------------------------------------------------- */

GPK_KERNEL scale(float *x, float factor, int64_t n)
{
	for (int64_t i = first_index(); i < n; i += index_step())
		x[i] *= factor;
}

GPK_KERNEL clamp(float *x, float limit, int64_t n)
{
	for (int64_t i = first_index(); i < n; i += index_step()) {
		const float v = x[i] > limit ? limit : x[i];
		x[i] = v < -limit ? -limit : v;
	}
}

extern "C" void gpk_scale(struct gp_rt_stream *s, float *x, float factor, int64_t n)
{
	if (n > 0)
		GPK_LAUNCH(s, scale, gpk_blocks(n, THREADS, MOST_BLOCKS), THREADS, 0, x, factor, n);
}

extern "C" void gpk_clamp(struct gp_rt_stream *s, float *x, float limit, int64_t n)
{
	if (n > 0)
		GPK_LAUNCH(s, clamp, gpk_blocks(n, THREADS, MOST_BLOCKS), THREADS, 0, x, limit, n);
}

GPK_KERNEL squares_of_chunks(const float *x, const struct gpk_squares_chunk *chunk, double *partials)
{
	const struct gpk_squares_chunk c = chunk[blockIdx.x];
	double sum = 0;
	for (int64_t i = threadIdx.x; i < c.count; i += THREADS)
		sum += (double)x[c.from + i] * (double)x[c.from + i];
	sum = gpk_block_sum<THREADS>(sum);
	if (threadIdx.x == 0)
		partials[blockIdx.x] = sum;
}

GPK_KERNEL sums_of_chunks(const double *partials, const int32_t *first, double *sums)
{
	double sum = 0;
	for (int32_t i = first[blockIdx.x] + (int32_t)threadIdx.x; i < first[blockIdx.x + 1]; i += THREADS)
		sum += partials[i];
	sum = gpk_block_sum<THREADS>(sum);
	if (threadIdx.x == 0)
		sums[blockIdx.x] = sum;
}

extern "C" void gpk_squares_of_pieces(struct gp_rt_stream *s, const float *x, const struct gpk_squares_chunk *chunk,
				      int chunks, const int32_t *first, int pieces, double *partials, double *sums)
{
	if (chunks < 1 || pieces < 1)
		return;
	GPK_LAUNCH(s, squares_of_chunks, (unsigned)chunks, THREADS, 0, x, chunk, partials);
	GPK_LAUNCH(s, sums_of_chunks, (unsigned)pieces, THREADS, 0, (const double *)partials, first, sums);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * `poweriter`: each sample's matrix as a product of two narrow ones, found by
 * subspace iteration that starts where the chunk's last one ended (PowerSGD:
 * Vogels et al., NeurIPS 2019). A transform: both factors are tensors for the
 * next stage. Only the encoder remembers. Formula and layout: CODECS.md.
 * Test: tests/unit/test_codec_poweriter.c
 *
 * With T the sample's matrix or its transpose, whichever is tall, the
 * iteration V <- orth(T'T V) runs on the small T'T, which is computed once: a
 * step costs next to nothing, and 2 * iters products with T are saved. In fp32
 * T'T hides what is 3e-4 below its largest singular value; where the rest is
 * near that, it is computed again in fp64.
 */
#include "common/codec/stages/poweriter.h"

#include <math.h>

#include "common/base/rng.h"
#include "kernels/loops/codec_loops.h"
#include "kernels/loops/factor_loops.h"

enum { RANK, ITERS };
enum { BLOCK = GP_FACTOR_BLOCK };
enum { COLD = 0, WHOLE = 1, SHORT = 2 };

struct poweriter {
	struct gp_poweriter_sizes size, most; /* of the tensors that come, and of the one that it was opened for */
	uint64_t seed;
	uint32_t chunks;
	int steps;
	const struct gp_codec_loops *loops;
	/* State: per chunk the small factors (batch, r, small) of the last pass, and whether it has these: COLD, or the kind
	 * of tensor that they are of (kind_of). */
	uint32_t *warm;
	float *start;
	/* With undo, the same again. */
	uint32_t *backup_warm;
	float *backup_start;
	/* Scratch of an encoder: T'T; V' and what comes of it (r, padded); rows of T (BLOCK, padded); the sums of a
	 * block's T'T, or its rows in fp64; V (small, padded r); rows of T V (BLOCK, r). */
	double *gram, *v, *w, *wide;
	float *block, *sums, *basis, *rows;
	/* Only a decoder has it: the right factor (r, padded cols). */
	float *right;
};

enum gp_status gp_poweriter_sizes_of(const double *value, const struct gp_shape *shape, struct gp_poweriter_sizes *out,
				     struct gp_err *err)
{
	if (shape->ndim != 3 && shape->ndim != 4)
		GP_FAIL(err, GP_INVALID, "needs a tensor of 3 or 4 dimensions, (N,S,F) or (N,H,W,C), not of %d",
			shape->ndim);
	const int last = shape->ndim - 1;
	struct gp_poweriter_sizes s = {.batch = shape->dim[0], .rows = shape->dim[1], .cols = shape->dim[last]};
	if (last == 3)
		s.rows *= shape->dim[2];
	s.tall = s.rows >= s.cols ? s.rows : s.cols;
	s.small = s.rows >= s.cols ? s.cols : s.rows;
	s.padded = gp_factor_padded(s.small);
	s.r = (int64_t)value[RANK] < s.small ? (int64_t)value[RANK] : s.small;
	*out = s;
	return GP_OK;
}

static enum gp_status shapes(const double *value, const struct gp_shape *shape, struct gp_codec_parts *out,
			     struct gp_err *err)
{
	struct gp_poweriter_sizes s;
	GP_TRY(gp_poweriter_sizes_of(value, shape, &s, err));
	*out = (struct gp_codec_parts){
		.count = 2,
		.shape = {{.ndim = 3, .dim = {s.batch, s.rows, s.r}}, {.ndim = 3, .dim = {s.batch, s.r, s.cols}}}};
	return GP_OK;
}

/* --- open ------------------------------------------------------------------------------------------------------- */

/* Every array of a state: where its pointer is, how many bytes, and whose it is. */
struct array {
	void **at;
	uint64_t bytes;
	bool encoder, undo;
};
enum { ARRAYS = 13 };

static void list_arrays(struct poweriter *p, struct array out[ARRAYS])
{
	const struct gp_poweriter_sizes *s = &p->most;
	const uint64_t chunks = p->chunks, r = (uint64_t)s->r, padded = (uint64_t)s->padded;
	const uint64_t basis = (uint64_t)(s->small * gp_factor_padded(s->r));
	const uint64_t start = 4 * chunks * (uint64_t)(s->batch * s->small) * r;
	const struct array arrays[ARRAYS] = {
		{(void **)&p->warm, 4 * chunks, true, false},
		{(void **)&p->backup_warm, 4 * chunks, true, true},
		{(void **)&p->start, start, true, false},
		{(void **)&p->backup_start, start, true, true},
		{(void **)&p->gram, 8 * padded * padded, true, false},
		{(void **)&p->v, 8 * r * padded, true, false},
		{(void **)&p->w, 8 * r * padded, true, false},
		{(void **)&p->wide, 8 * 4 * padded, true, false},
		{(void **)&p->block, 4 * BLOCK * padded, true, false},
		{(void **)&p->sums, 4 * padded * padded, true, false},
		{(void **)&p->basis, 4 * basis, true, false},
		{(void **)&p->rows, 4 * BLOCK * r, true, false},
		{(void **)&p->right, 4 * r * (uint64_t)gp_factor_padded(s->cols), false, false},
	};
	memcpy(out, arrays, sizeof arrays);
}

static void close_poweriter(void *state)
{
	struct poweriter *p = state;
	struct array array[ARRAYS];
	if (!p)
		return;
	list_arrays(p, array);
	for (int i = 0; i < ARRAYS; i++)
		gp_free(*array[i].at);
	gp_free(p);
}

static bool needed(const struct array *a, const struct gp_codec_setup *setup)
{
	return (a->encoder ? setup->encodes : setup->decodes) && (setup->undo || !a->undo);
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	struct poweriter p = {.chunks = setup->chunks};
	struct array array[ARRAYS];
	struct gp_err err;
	uint64_t sum = sizeof p;
	if (gp_poweriter_sizes_of(value, &setup->shape, &p.most, &err) != GP_OK)
		return UINT64_MAX;
	list_arrays(&p, array);
	for (int i = 0; i < ARRAYS; i++)
		sum += needed(&array[i], setup) ? array[i].bytes : 0;
	return sum;
}

static enum gp_status open_poweriter(const double *value, const struct gp_codec_setup *setup, void **state,
				     struct gp_err *err)
{
	struct array array[ARRAYS];
	struct gp_poweriter_sizes size;
	void *block;
	GP_TRY(gp_poweriter_sizes_of(value, &setup->shape, &size, err));
	GP_TRY(gp_alloc_array(&block, 1, sizeof(struct poweriter), err));
	struct poweriter *p = block;
	*p = (struct poweriter){.size = size,
				.most = size,
				.seed = setup->seed,
				.chunks = setup->chunks,
				.steps = (int)value[ITERS],
				.loops = gp_codec_loops_choose()};
	list_arrays(p, array);
	enum gp_status status = GP_OK;
	for (int i = 0; i < ARRAYS && status == GP_OK; i++)
		if (needed(&array[i], setup))
			status = gp_alloc_array(array[i].at, 1, array[i].bytes, err);
	if (status == GP_OK)
		*state = p;
	else
		close_poweriter(p);
	return status;
}

/* The padding of scratch is zero. */
static void reshape(void *state, const double *value, const struct gp_shape *shape)
{
	struct poweriter *p = state;
	struct gp_err err;
	const enum gp_status status = gp_poweriter_sizes_of(value, shape, &p->size, &err);
	gp_require(status == GP_OK && p->size.batch <= p->most.batch); /* `shapes` has seen it */
	if (p->block)
		memset(p->block, 0, BLOCK * (size_t)p->most.padded * sizeof *p->block);
	if (p->basis)
		memset(p->basis, 0, (size_t)(p->most.small * gp_factor_padded(p->most.r)) * sizeof *p->basis);
}

/* --- state ------------------------------------------------------------------------------------------------------ */

static int64_t start_count(const struct gp_poweriter_sizes *s)
{
	return s->batch * s->r * s->small;
}

/* What `warm` says of a start from such tensors: only another one of as many rows begins there. */
static uint32_t kind_of(const struct poweriter *p)
{
	return p->size.rows == p->most.rows ? WHOLE : SHORT + (uint32_t)p->size.rows;
}

static float *start_of(const struct poweriter *p, const struct gp_codec_pass *pass)
{
	return p->start + pass->chunk * start_count(&p->most);
}

static int regions(void *state, struct gp_codec_region *out)
{
	struct poweriter *p = state;
	if (!p->start)
		return 0;
	out[0] = (struct gp_codec_region){
		.data = p->warm, .bytes = p->chunks * sizeof *p->warm, .backup = p->backup_warm};
	out[1] = (struct gp_codec_region){.data = p->start,
					  .bytes = p->chunks * (size_t)start_count(&p->most) * sizeof *p->start,
					  .backup = p->backup_start};
	return 2;
}

static bool loaded(void *state)
{
	const struct poweriter *p = state;
	float min, max;
	bool good = !p->start || p->loops->range(p->start, p->chunks * (size_t)start_count(&p->most), &min, &max);
	for (uint32_t c = 0; p->start && c < p->chunks; c++)
		good &= p->warm[c] < SHORT + (uint64_t)p->most.rows;
	return good;
}

/* --- rows of T -------------------------------------------------------------------------------------------------- */

/* `count` rows of T from row `from` on, padded: in place where they lie like that. */
static const float *rows_of(struct poweriter *p, const float *x, int64_t from, int64_t count)
{
	const struct gp_poweriter_sizes *s = &p->size;
	const bool tall = s->rows >= s->cols;
	if (tall && s->small == s->padded)
		return x + from * s->small;
	for (int64_t i = 0; i < count && tall; i++)
		memcpy(p->block + i * s->padded, x + (from + i) * s->small, (size_t)s->small * sizeof *x);
	for (int64_t k = 0; k < s->small && !tall; k++)
		for (int64_t i = 0; i < count; i++)
			p->block[i * s->padded + k] = x[k * s->tall + from + i];
	return p->block; /* its last columns are zero since it was made */
}

static int64_t rows_in(const struct gp_poweriter_sizes *s, int64_t from)
{
	return s->tall - from < BLOCK ? s->tall - from : BLOCK;
}

/* T'T whole; *out gets its trace. False: the pass was stopped. */
static bool take_gram(struct poweriter *p, const struct gp_codec_pass *pass, const float *x, bool exact, double *out)
{
	const struct gp_poweriter_sizes *s = &p->size;
	const int64_t n = s->padded;
	double trace = 0;
	memset(p->gram, 0, (size_t)(n * n) * sizeof *p->gram);
	for (int64_t from = 0; from < s->tall; from += BLOCK) {
		if (gp_codec_stopped(pass))
			return false;
		const float *t = rows_of(p, x, from, rows_in(s, from));
		if (exact)
			gp_factor_gram_exact(p->gram, t, rows_in(s, from), n, p->wide);
		else
			gp_factor_gram(p->gram, t, rows_in(s, from), n, p->sums);
	}
	for (int64_t i = 0; i < n; i++) {
		trace += p->gram[i * n + i];
		for (int64_t j = 0; j < i; j++)
			p->gram[i * n + j] = p->gram[j * n + i];
	}
	*out = trace;
	return true;
}

/* --- iteration -------------------------------------------------------------------------------------------------- */

/* Row k of V' anew, from the generator. */
static void draw_row(struct poweriter *p, double *v, int64_t sample, int64_t k, int attempt)
{
	const uint64_t row = (uint64_t)(sample * p->size.r + k);
	const uint64_t stream = gp_rng_stream(GP_RNG_SAMPLE, row * 4 + (uint64_t)attempt);
	for (int64_t i = 0; i < p->size.small; i++)
		v[i] = (double)gp_rng_uniform(p->seed, stream, (uint64_t)i) - 0.5;
}

/* Takes the directions of rows 0..k-1 out of row k, and gives it length 1. False when nothing is left of it. */
static bool make_orthonormal(struct poweriter *p, int64_t k)
{
	const int64_t n = p->size.padded;
	double *v = p->v + k * n;
	const double before = gp_factor_dot(v, v, n);
	if (!(before > 0))
		return false;
	gp_factor_scale(v, 1 / sqrt(before), n);
	for (int twice = 0; twice < 2; twice++)
		for (int64_t l = 0; l < k; l++)
			gp_factor_add(v, -gp_factor_dot(v, p->v + l * n, n), p->v + l * n, n);
	const double after = sqrt(gp_factor_dot(v, v, n));
	if (!(after > GP_POWERITER_NOTHING_LEFT))
		return false;
	gp_factor_scale(v, 1 / after, n);
	return true;
}

/* Modified Gram-Schmidt, each direction taken out twice. A row that depends on those before it is drawn anew: V always
 * has full rank, so that a start never loses a direction for good. False: the pass was stopped. */
static bool orthonormalize(struct poweriter *p, const struct gp_codec_pass *pass, int64_t sample)
{
	for (int64_t k = 0; k < p->size.r; k++) {
		if (gp_codec_stopped(pass))
			return false;
		for (int attempt = 0; !make_orthonormal(p, k); attempt++)
			draw_row(p, p->v + k * p->size.padded, sample, k, attempt);
	}
	return true;
}

/* Starts where the chunk's last pass ended, or from draws. Small factors lie as they travelled: (r, small) for a
 * tall matrix, (small, r) for a wide one. */
static int set_start(struct poweriter *p, const struct gp_codec_pass *pass, int64_t sample)
{
	const struct gp_poweriter_sizes *s = &p->size;
	const bool tall = s->rows >= s->cols, warm = !pass->eval && p->warm[pass->chunk] == kind_of(p);
	const float *from = start_of(p, pass) + sample * s->r * s->small;
	memset(p->v, 0, (size_t)(s->r * s->padded) * sizeof *p->v);
	for (int64_t k = 0; k < s->r; k++)
		for (int64_t i = 0; i < s->small && warm; i++)
			p->v[k * s->padded + i] = (double)from[tall ? k * s->small + i : i * s->r + k];
	return p->steps + (warm ? 0 : GP_POWERITER_COLD_STEPS);
}

static bool iterate(struct poweriter *p, const struct gp_codec_pass *pass, int64_t sample, int steps)
{
	for (int i = 0; i < steps; i++) {
		if (gp_codec_stopped(pass))
			return false;
		gp_factor_apply(p->w, p->v, p->gram, p->size.r, p->size.padded);
		memcpy(p->v, p->w, (size_t)(p->size.r * p->size.padded) * sizeof *p->v);
		if (!orthonormalize(p, pass, sample))
			return false;
	}
	return true;
}

/* What V leaves of the squared norm. */
static double rest_of(struct poweriter *p, double trace)
{
	const int64_t n = p->size.padded;
	gp_factor_apply(p->w, p->v, p->gram, p->size.r, n);
	for (int64_t k = 0; k < p->size.r; k++)
		trace -= gp_factor_dot(p->v + k * n, p->w + k * n, n);
	return trace;
}

/* V' of one sample. False when the sample is not finite or too large, or the pass was stopped. */
static bool find_basis(struct poweriter *p, const struct gp_codec_pass *pass, const float *x, int64_t sample)
{
	const struct gp_poweriter_sizes *s = &p->size;
	const double elements = (double)(s->rows * s->cols);
	double trace;
	if (!take_gram(p, pass, x, false, &trace))
		return false;
	const bool usable = isfinite(trace) && trace > GP_POWERITER_EXACT_MEAN * elements;
	const int steps = set_start(p, pass, sample);
	if (!orthonormalize(p, pass, sample) || (usable && !iterate(p, pass, sample, steps)))
		return false;
	if (!usable || rest_of(p, trace) < GP_POWERITER_EXACT_SHARE * trace) {
		if (!take_gram(p, pass, x, true, &trace) ||
		    !(trace <= GP_POWERITER_LARGEST_NORM * GP_POWERITER_LARGEST_NORM) ||
		    !iterate(p, pass, sample, steps))
			return false;
	}
	return trace <= GP_POWERITER_LARGEST_NORM * GP_POWERITER_LARGEST_NORM;
}

/* --- split and join --------------------------------------------------------------------------------------------- */

/* V (small, padded r) for the product, and as the small factor: (r, small) or (small, r). */
static void store_basis(struct poweriter *p, float *small_factor)
{
	const struct gp_poweriter_sizes *s = &p->size;
	const bool tall = s->rows >= s->cols;
	const int64_t ld = gp_factor_padded(s->r);
	for (int64_t k = 0; k < s->r; k++)
		for (int64_t i = 0; i < s->small; i++) {
			const float v = (float)p->v[k * s->padded + i];
			p->basis[i * ld + k] = v;
			small_factor[tall ? k * s->small + i : i * s->r + k] = v;
		}
}

/* T V as the tall factor: (tall, r), or (r, tall). */
static bool store_product(struct poweriter *p, const struct gp_codec_pass *pass, const float *x, float *tall_factor)
{
	const struct gp_poweriter_sizes *s = &p->size;
	const bool tall = s->rows >= s->cols;
	for (int64_t from = 0; from < s->tall; from += BLOCK) {
		const int64_t count = rows_in(s, from);
		if (gp_codec_stopped(pass))
			return false;
		float *out = tall ? tall_factor + from * s->r : p->rows;
		gp_factor_product(out, rows_of(p, x, from, count), s->padded, p->basis, count, s->small, s->r);
		for (int64_t k = 0; k < s->r && !tall; k++)
			for (int64_t i = 0; i < count; i++)
				tall_factor[k * s->tall + from + i] = p->rows[i * s->r + k];
	}
	return true;
}

static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	(void)side;
	struct poweriter *p = state;
	const struct gp_poweriter_sizes *s = &p->size;
	const bool tall = s->rows >= s->cols;
	float *const small_factors = tensor[tall], *const tall_factors = tensor[!tall];
	*side_len = 0;
	for (int64_t b = 0; b < s->batch; b++, x += s->rows * s->cols) {
		if (!find_basis(p, pass, x, b))
			return false;
		store_basis(p, small_factors + b * s->r * s->small);
		if (!store_product(p, pass, x, tall_factors + b * s->r * s->tall))
			return false;
	}
	if (!pass->eval) {
		memcpy(start_of(p, pass), small_factors, (size_t)start_count(s) * sizeof *p->start);
		p->warm[pass->chunk] = kind_of(p);
	}
	return true;
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	struct poweriter *p = state;
	const struct gp_poweriter_sizes *s = &p->size;
	const int64_t padded = gp_factor_padded(s->cols), n = s->rows * s->cols;
	float min, max;
	if (side.len)
		GP_FAIL(err, GP_PROTO, "poweriter has %zu side bytes instead of none", side.len);
	for (int64_t b = 0; b < s->batch; b++) {
		const float *left = tensor[0] + b * s->rows * s->r, *right = tensor[1] + b * s->r * s->cols;
		for (int64_t k = 0; k < s->r; k++)
			memcpy(p->right + k * padded, right + k * s->cols, (size_t)s->cols * sizeof *right);
		for (int64_t from = 0; from < s->rows; from += BLOCK) {
			const int64_t count = s->rows - from < BLOCK ? s->rows - from : BLOCK;
			GP_TRY(gp_codec_check_stop(pass, err));
			gp_factor_product(x + b * n + from * s->cols, left + from * s->r, s->r, p->right, count, s->r,
					  s->cols);
		}
		if (!p->loops->range(x + b * n, (size_t)n, &min, &max))
			GP_FAIL(err, GP_PROTO, "poweriter has factors whose product is not finite");
	}
	return GP_OK;
}

/* As CODECS.md says under "Cost", in tenths of a nanosecond for a product and its sum: T'T once more in fp64 where fp32
 * is not enough; the iteration in fp64, with the steps of a chunk that has nothing to start from. */
static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	struct gp_poweriter_sizes s;
	struct gp_err err;
	if (gp_poweriter_sizes_of(value, &setup->shape, &s, &err) != GP_OK)
		return UINT64_MAX;
	const uint64_t r = (uint64_t)s.r, small = (uint64_t)s.small, steps = (uint64_t)value[ITERS];
	const uint64_t join = gp_codec_work_times(setup->n, 2 * r);
	if (!setup->encodes)
		return gp_codec_work_add(join, setup->n);
	const uint64_t gram = gp_codec_work_times(setup->n, 12 * small + 4 * r);
	const uint64_t step = gp_codec_work_add(gp_codec_work_times(r, gp_codec_work_times(small, small)),
						gp_codec_work_times(2 * r * r, small));
	const uint64_t all = gp_codec_work_times(gp_codec_work_times((uint64_t)s.batch, step),
						 6 * (steps + GP_POWERITER_COLD_STEPS + 1));
	return gp_codec_work_add(gp_codec_work_add(gram, all) / 10, gp_codec_work_add(join, setup->n));
}

const struct gp_codec_ops gp_codec_poweriter = {
	.id = GP_CODEC_ID_poweriter,
	.kind = GP_CODEC_TRANSFORM,
	.info = {.name = "poweriter",
		 .summary = "each sample's matrix as a product of two narrow ones, for the next stage",
		 .examples = GP_EXAMPLES("poweriter:rank=2,iters=1", "poweriter:rank=3,iters=1+uniform:bits=4",
					 "ef+poweriter:rank=1,iters=1+fp16", "poweriter:rank=8,iters=3")},
	.keys = 2,
	.key = {{.name = "rank", .min = 1, .max = 256, .initial = 8, .help = "columns of the factors"},
		{.name = "iters",
		 .min = 1,
		 .max = 64,
		 .initial = 3,
		 .help = "steps of the iteration; 8 more where a chunk has nothing to start from"}},
	.bytes = state_bytes,
	.work = work,
	.open = open_poweriter,
	.close = close_poweriter,
	.regions = regions,
	.loaded = loaded,
	.needs_shape = true,
	.reshape = reshape,
	.last_because = "its factors have the rank where a tensor has its channels, and every element of them counts",
	.shapes = shapes,
	.split = split,
	.join = join,
};

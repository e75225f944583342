/* SPDX-License-Identifier: Apache-2.0
 *
 * poweriter: golden cases from their start and from its own, matrices of known
 * rank, tensors at the edges, memory, hostile payloads, instruction sets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"
#include "common/base/rng.h"
#include "common/store/safetensors.h"
#include "kernels/loops/simd.h"
#include "tests/sanitized.h"

#define DIRECTORY "tests/golden/codec/"

static struct gp_codec *open_codec(const char *text, const struct gp_shape *shape, const struct gp_codec_options *o)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c = NULL;
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_open(&spec, shape, o, &c, &err), GP_OK);
	return c;
}

static struct gp_codec *new_codec(const char *text, const struct gp_shape *shape)
{
	return open_codec(text, shape, &(struct gp_codec_options){.seed = 3});
}

/* The caller frees the payload. */
static uint8_t *encode(struct gp_codec *c, const struct gp_codec_pass *pass, const float *x, size_t *len)
{
	struct gp_err err = {0};
	uint8_t *out = malloc(gp_codec_bound(c));
	assert_int_equal(gp_codec_encode_pass(c, pass, x, out, gp_codec_bound(c), len, &err), GP_OK);
	return realloc(out, *len);
}

static void trip(struct gp_codec *c, const struct gp_codec_pass *pass, const float *x, float *y)
{
	struct gp_err err = {0};
	size_t len;
	uint8_t *payload = encode(c, pass, x, &len);
	assert_int_equal(gp_codec_decode_pass(c, pass, (struct gp_span){payload, len}, y, &err), GP_OK);
	free(payload);
}

static double distance(const float *x, const float *y, uint64_t n)
{
	double d = 0, norm = 0;
	for (uint64_t i = 0; i < n; i++) {
		d += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
		norm += (double)x[i] * (double)x[i];
	}
	return norm > 0 ? sqrt(d / norm) : sqrt(d);
}

static double error_of(const char *spec, const struct gp_shape *shape, const float *x)
{
	const uint64_t n = gp_shape_elements(shape);
	float *y = malloc(n * sizeof *y);
	struct gp_codec *c = new_codec(spec, shape);
	trip(c, &(struct gp_codec_pass){0}, x, y);
	const double d = distance(x, y, n);
	gp_codec_free(c);
	free(y);
	return d;
}

/* --- golden ----------------------------------------------------------------------------------------------------- */

static float *read_floats(const char *file, const char *name, struct gp_shape *shape)
{
	struct gp_err err = {0};
	struct gp_st_file *f;
	assert_int_equal(gp_st_open(file, &f, &err), GP_OK);
	const struct gp_st_tensor *t = gp_st_find(f, name);
	assert_non_null(t);
	float *x = malloc(t->count * sizeof *x);
	assert_int_equal(gp_st_read_f32(t, x, &err), GP_OK);
	*shape = t->shape;
	gp_st_close(f);
	return x;
}

/* (B,C,H,W) as PyTorch has it to (B,H,W,C); other shapes stay. */
static void to_channels_last(float *x, struct gp_shape *shape)
{
	if (shape->ndim != 4)
		return;
	const int64_t batch = shape->dim[0], c = shape->dim[1], hw = shape->dim[2] * shape->dim[3];
	float *copy = malloc((size_t)(batch * c * hw) * sizeof *copy);
	memcpy(copy, x, (size_t)(batch * c * hw) * sizeof *copy);
	for (int64_t b = 0; b < batch; b++)
		for (int64_t i = 0; i < c; i++)
			for (int64_t j = 0; j < hw; j++)
				x[(b * hw + j) * c + i] = copy[(b * c + i) * hw + j];
	*shape = (struct gp_shape){.ndim = 4, .dim = {batch, shape->dim[2], shape->dim[3], c}};
	free(copy);
}

/* The first half step of the origin, Q = X P, as a start: small factors (r, small) of a tall matrix (H*W, C), whose X is
 * its transpose, and (small, r) of a wide one (S, F). */
static void set_start(void *state, const struct gp_shape *shape, const float *x, const float *p, int64_t r)
{
	struct gp_codec_region region[GP_CODEC_MAX_REGIONS];
	const struct gp_codec_ops *ops = gp_codec_ops_by_name("poweriter");
	assert_int_equal(ops->regions(state, region), 2);
	const bool image = shape->ndim == 4;
	const int64_t small = image ? shape->dim[3] : shape->dim[1];
	const int64_t tall = image ? shape->dim[1] * shape->dim[2] : shape->dim[2];
	float *start = region[1].data;
	assert_true(small <= tall);
	*(uint32_t *)region[0].data = 1;
	for (int64_t b = 0; b < shape->dim[0]; b++, x += small * tall, p += tall * r, start += small * r)
		for (int64_t i = 0; i < small; i++)
			for (int64_t k = 0; k < r; k++) {
				double sum = 0;
				for (int64_t j = 0; j < tall; j++)
					sum += (double)x[image ? j * small + i : i * tall + j] * (double)p[j * r + k];
				start[image ? k * small + i : i * r + k] = (float)sum;
			}
}

static void from_golden_start(const struct gp_shape *shape, const float *x, const float *p, int64_t r, float *y)
{
	const struct gp_codec_ops *ops = gp_codec_ops_by_name("poweriter");
	const double value[] = {(double)r, 2}; /* the third iteration's P = X'Q is the factor itself */
	const uint64_t n = gp_shape_elements(shape);
	const struct gp_codec_setup setup = {.shape = *shape, .n = n, .chunks = 1, .encodes = true, .decodes = true};
	const struct gp_codec_pass pass = {0};
	struct gp_codec_parts parts;
	struct gp_err err = {0};
	void *state = NULL;
	size_t side;
	assert_int_equal(ops->shapes(value, shape, &parts, &err), GP_OK);
	assert_int_equal(ops->open(value, &setup, &state, &err), GP_OK);
	set_start(state, shape, x, p, r);
	float *left = malloc(gp_shape_elements(&parts.shape[0]) * sizeof *left);
	float *right = malloc(gp_shape_elements(&parts.shape[1]) * sizeof *right);
	assert_true(ops->split(state, &pass, x, (float *const[]){left, right}, NULL, &side));
	assert_int_equal(ops->join(state, &pass, (struct gp_span){0}, (const float *const[]){left, right}, y, &err),
			 GP_OK);
	ops->close(state);
	free(left);
	free(right);
}

static void check_golden(const char *input, int rank)
{
	char file[96], spec[48];
	struct gp_shape shape, start_shape, recon_shape;
	snprintf(file, sizeof file, DIRECTORY "poweriter_%s_r%d.safetensors", input, rank);
	snprintf(spec, sizeof spec, "poweriter:rank=%d,iters=3", rank);
	float *x = read_floats(DIRECTORY "inputs.safetensors", input, &shape);
	float *start = read_floats(file, "p_init", &start_shape), *recon = read_floats(file, "recon", &recon_shape);
	const uint64_t n = gp_shape_elements(&shape);
	float *y = malloc(n * sizeof *y);
	to_channels_last(x, &shape);
	to_channels_last(recon, &recon_shape);
	from_golden_start(&shape, x, start, start_shape.dim[2], y);
	const double golden = distance(x, recon, n), apart = distance(recon, y, n), own = error_of(spec, &shape, x);
	print_message("poweriter %s rank %d: %.3g from the golden tensor; error %.6g, golden %.6g, own start %.6g\n",
		      input, rank, apart, distance(x, y, n), golden, own);
	assert_true(apart < 1e-3);
	assert_true(own <= 1.06 * golden);
	free(y);
	free(recon);
	free(start);
	free(x);
}

static void golden_cases_are_met_from_their_start_and_from_our_own(void **state)
{
	(void)state;
	check_golden("act", 4);
	check_golden("act", 12);
	check_golden("hidden", 4);
	check_golden("hidden", 12);
}

/* --- what it gives ---------------------------------------------------------------------------------------------- */

/* Sum of `rank` outer products, each `ratio` of the one before, and noise of size `noise`. */
static void fill_low_rank(float *x, const struct gp_shape *shape, int rank, double ratio, double noise)
{
	const int64_t cols = shape->dim[shape->ndim - 1];
	const int64_t rows = (int64_t)gp_shape_elements(shape) / shape->dim[0] / cols;
	for (int64_t b = 0; b < shape->dim[0]; b++)
		for (int64_t i = 0; i < rows; i++)
			for (int64_t j = 0; j < cols; j++) {
				const uint64_t at = (uint64_t)((b * rows + i) * cols + j);
				double sum = noise > 0 ? noise * (double)gp_rng_normal(8, 1, at) : 0, scale = 1;
				for (int k = 0; k < rank; k++, scale *= ratio)
					sum += scale *
					       (double)gp_rng_normal(8, 2, (uint64_t)((b * rank + k) * rows + i)) *
					       (double)gp_rng_normal(8, 3, (uint64_t)((b * rank + k) * cols + j));
				x[at] = (float)sum;
			}
}

static const struct gp_shape shapes[] = {
	{.ndim = 4, .dim = {2, 5, 7, 24}},  {.ndim = 4, .dim = {2, 20, 20, 32}}, {.ndim = 4, .dim = {3, 2, 2, 50}},
	{.ndim = 3, .dim = {2, 17, 100}},   {.ndim = 3, .dim = {1, 300, 33}},    {.ndim = 3, .dim = {2, 16, 16}},
	{.ndim = 4, .dim = {1, 13, 10, 4}}, {.ndim = 3, .dim = {4, 1, 9}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0], MOST = 2 * 400 * 32 };

static void matrices_of_lower_rank_are_kept_but_for_rounding(void **state)
{
	(void)state;
	static float x[MOST];
	for (int i = 0; i < SHAPES; i++)
		for (int rank = 1; rank <= 4; rank++) {
			fill_low_rank(x, &shapes[i], rank, 0.1, 0);
			assert_true(error_of("poweriter:rank=4,iters=3", &shapes[i], x) < 5e-7);
		}
}

static void a_rank_over_the_smaller_side_is_cut_to_it(void **state)
{
	(void)state;
	static float x[MOST];
	for (int i = 0; i < SHAPES; i++) {
		fill_low_rank(x, &shapes[i], 3, 1, 1);
		assert_true(error_of("poweriter:rank=256,iters=1", &shapes[i], x) < 1e-6);
	}
}

static void what_is_left_out_is_the_noise(void **state)
{
	(void)state;
	static float x[MOST];
	const struct gp_shape shape = {.ndim = 4, .dim = {2, 20, 20, 32}};
	fill_low_rank(x, &shape, 6, 0.8, 0.05);
	const double error = error_of("poweriter:rank=6,iters=3", &shape, x);
	print_message("noise of 0.05 around rank 6: error %.4g\n", error);
	assert_true(error > 0.01 && error < 0.05);
	assert_true(error_of("poweriter:rank=5,iters=3", &shape, x) > 2 * error);
}

static void factors_are_coded_by_the_next_stage(void **state)
{
	(void)state;
	static float x[MOST];
	const struct gp_shape shape = {.ndim = 4, .dim = {2, 20, 20, 32}};
	fill_low_rank(x, &shape, 8, 0.7, 0.01);
	const double plain = error_of("poweriter:rank=8,iters=3", &shape, x);
	const double coded = error_of("poweriter:rank=8,iters=3+sortquant:bits=6,split=2", &shape, x);
	assert_true(coded > plain && coded < 0.03);
	size_t len;
	struct gp_codec *c = new_codec("poweriter:rank=8,iters=3+uniform:bits=8", &shape);
	free(encode(c, &(struct gp_codec_pass){0}, x, &len));
	assert_int_equal(len, 4 + 4 + 4 + (4 + 8 + 2 * 400 * 8) + (4 + 8 + 2 * 8 * 32));
	gp_codec_free(c);
}

static void tensors_at_the_edges_keep_the_promise(void **state)
{
	(void)state;
	static float x[MOST];
	const struct gp_shape one = {.ndim = 3, .dim = {1, 1, 1}}, shape = {.ndim = 3, .dim = {2, 40, 20}};
	static const float scales[] = {1e-41f, 1e-30f, 1e-19f, 1e19f, 1e30f};
	for (int i = 0; i < 5; i++) {
		fill_low_rank(x, &shape, 4, 0.5, 0);
		for (int k = 0; k < 1600; k++)
			x[k] *= scales[i];
		assert_true(error_of("poweriter:rank=4,iters=3", &shape, x) < (i == 0 ? 1e-2 : 1e-6));
		assert_true(error_of("poweriter:rank=4,iters=3", &one, x) == 0);
	}
	for (int k = 0; k < 1600; k++)
		x[k] = 0;
	assert_true(error_of("poweriter:rank=4,iters=3", &shape, x) == 0);
	for (int k = 0; k < 1600; k++)
		x[k] = 0.1f;
	assert_true(error_of("poweriter:rank=4,iters=3", &shape, x) < 1e-6);
	for (int k = 0; k < 1600; k++)
		x[k] = k % 2 ? FLT_MAX : -FLT_MAX;
	assert_true(error_of("poweriter:rank=4,iters=3", &shape, x) == 0); /* raw */
}

static void a_tensor_without_elements_is_empty(void **state)
{
	(void)state;
	const struct gp_shape shape = {.ndim = 4, .dim = {0, 4, 4, 8}};
	struct gp_codec *c = new_codec("poweriter", &shape);
	float x[1] = {0};
	size_t len;
	free(encode(c, &(struct gp_codec_pass){0}, x, &len));
	assert_int_equal(len, 0);
	gp_codec_free(c);
}

static void shapes_without_matrices_are_refused_with_the_reason(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	struct gp_codec *c;
	struct gp_err err = {0};
	assert_int_equal(gp_codec_spec_parse("poweriter", &spec, &err), GP_OK);
	for (int ndim = 1; ndim <= 5; ndim += ndim == 2 ? 3 : 1) {
		const struct gp_shape shape = {.ndim = ndim, .dim = {2, 3, 4, 5, 6}};
		assert_int_equal(gp_codec_new(&spec, &shape, 0, &c, &err), GP_INVALID);
		assert_non_null(strstr(err.text, "3 or 4 dimensions"));
	}
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

static const struct gp_shape image = {.ndim = 4, .dim = {2, 20, 20, 32}};

/* Slowly falling singular values: one step is far from enough. */
static void a_warm_start_goes_on_where_the_last_pass_ended(void **state)
{
	(void)state;
	static float x[MOST], y[MOST];
	fill_low_rank(x, &image, 32, 0.93, 0);
	struct gp_codec *c = open_codec("poweriter:rank=6,iters=1", &image, &(struct gp_codec_options){.chunks = 2});
	const struct gp_codec_pass first = {.chunk = 0}, second = {.chunk = 1}, eval = {.chunk = 0, .eval = true};
	trip(c, &first, x, y);
	const double cold = distance(x, y, MOST);
	for (int i = 0; i < 30; i++)
		trip(c, &first, x, y);
	const double warm = distance(x, y, MOST);
	assert_true(warm < cold * 0.999);
	trip(c, &second, x, y);
	const double other = distance(x, y, MOST);
	assert_true(other == cold);
	const uint64_t hash = gp_codec_state_hash(c);
	trip(c, &eval, x, y);
	assert_true(distance(x, y, MOST) == cold);
	assert_true(gp_codec_state_hash(c) == hash);
	assert_true(gp_codec_state_shared_hash(c) == 0);
	gp_codec_free(c);
}

static void memory_is_saved_restored_and_hashed(void **state)
{
	(void)state;
	static float x[MOST];
	struct gp_err err = {0};
	const struct gp_codec_pass pass = {0};
	size_t len, again_len;
	fill_low_rank(x, &image, 32, 0.93, 0);
	struct gp_codec *c = new_codec("poweriter:rank=6,iters=1+fp16", &image);
	struct gp_codec *d = new_codec("poweriter:rank=6,iters=1+fp16", &image);
	free(encode(c, &pass, x, &len));
	uint8_t *saved = malloc(gp_codec_state_bytes(c));
	assert_int_equal(gp_codec_state_save(c, saved, NULL), GP_OK);
	assert_true(gp_codec_state_hash(c) != gp_codec_state_hash(d));
	assert_int_equal(gp_codec_state_load(d, (struct gp_span){saved, gp_codec_state_bytes(c)}, &err), GP_OK);
	assert_true(gp_codec_state_hash(c) == gp_codec_state_hash(d));
	uint8_t *payload = encode(c, &pass, x, &len), *again = encode(d, &pass, x, &again_len);
	assert_int_equal(len, again_len);
	assert_memory_equal(payload, again, len);
	free(again);
	free(payload);
	free(saved);
	gp_codec_free(d);
	gp_codec_free(c);
}

static void a_tensor_that_is_not_finite_travels_raw_and_leaves_the_memory(void **state)
{
	(void)state;
	static float x[MOST], y[MOST];
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	const struct gp_codec_pass pass = {0};
	struct gp_codec *c = new_codec("poweriter:rank=6,iters=1", &image);
	fill_low_rank(x, &image, 8, 0.9, 0);
	trip(c, &pass, x, y);
	const uint64_t hash = gp_codec_state_hash(c);
	for (int i = 0; i < 3; i++) {
		x[MOST - 1 - i] = bad[i];
		trip(c, &pass, x, y);
		assert_memory_equal(x, y, sizeof x);
		assert_true(gp_codec_state_hash(c) == hash);
		x[MOST - 1 - i] = 0;
	}
	struct gp_codec_stats stats;
	gp_codec_get_stats(c, &stats);
	assert_int_equal(stats.raw_fallbacks, 3);
	gp_codec_free(c);
}

static void passes_allocate_nothing_and_memory_is_announced(void **state)
{
	(void)state;
	static float x[MOST], y[MOST];
	static uint8_t out[8 * MOST];
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	uint64_t bytes;
	size_t len;
	fill_low_rank(x, &image, 8, 0.9, 0.1);
	assert_int_equal(gp_codec_spec_parse("poweriter:rank=9,iters=2+uniform", &spec, &err), GP_OK);
	const struct gp_codec_options options = {.chunks = 4};
	assert_int_equal(gp_codec_bytes_for(&spec, &image, &options, &bytes, &err), GP_OK);
	assert_true(bytes > 4 * 4 * 2 * 9 * 32);
	struct gp_codec *c = open_codec(spec.text, &image, &options);
	const uint64_t before = gp_mem_calls();
	for (uint32_t i = 0; i < 6; i++) {
		const struct gp_codec_pass pass = {.chunk = i};
		assert_int_equal(gp_codec_encode_pass(c, &pass, x, out, sizeof out, &len, &err), GP_OK);
		assert_int_equal(gp_codec_decode_pass(c, &pass, (struct gp_span){out, len}, y, &err), GP_OK);
	}
	assert_true(gp_mem_calls() == before);
	gp_codec_free(c);
}

/* --- payloads --------------------------------------------------------------------------------------------------- */

static void every_instruction_set_gives_the_same_payload_and_tensor(void **state)
{
	(void)state;
	static float x[MOST], y[MOST], expected[MOST];
	for (int i = 0; i < SHAPES; i++) {
		uint8_t *first = NULL;
		const uint64_t n = gp_shape_elements(&shapes[i]);
		fill_low_rank(x, &shapes[i], 5, 0.6, 0.1);
		for (enum gp_isa isa = GP_ISA_PORTABLE; isa <= GP_ISA_AVX512; isa++) {
			struct gp_err err = {0};
			size_t len;
			gp_isa_limit(isa);
			struct gp_codec *c = new_codec("poweriter:rank=3,iters=2", &shapes[i]);
			uint8_t *payload = encode(c, &(struct gp_codec_pass){0}, x, &len);
			assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, first ? y : expected, &err),
					 GP_OK);
			gp_codec_free(c);
			if (!first) {
				first = payload;
				continue;
			}
			assert_memory_equal(payload, first, len);
			assert_memory_equal(y, expected, n * sizeof *y);
			free(payload);
		}
		free(first);
	}
}

/* Each in a block of its exact size, so that a sanitizer sees a read past the end. */
static void try_hostile(struct gp_codec *c, const uint8_t *bytes, size_t len, bool cut)
{
	static float y[MOST];
	struct gp_err err = {0};
	uint8_t *copy = malloc(len ? len : 1);
	memcpy(copy, bytes, len);
	enum gp_status status = gp_codec_decode(c, (struct gp_span){copy, len}, y, &err);
	assert_true(status == GP_PROTO || (status == GP_OK && !cut));
	free(copy);
}

static void cut_and_changed_payloads_are_refused_or_decoded(void **state)
{
	(void)state;
	static float x[MOST];
	const struct gp_shape shape = {.ndim = 3, .dim = {2, 6, 5}};
	struct gp_codec *c = new_codec("poweriter:rank=2,iters=1+uniform:bits=4", &shape);
	size_t len;
	fill_low_rank(x, &shape, 3, 0.6, 0.1);
	uint8_t *payload = encode(c, &(struct gp_codec_pass){0}, x, &len);
	for (size_t cut = 0; cut < len; cut++)
		try_hostile(c, payload, cut, true);
	for (size_t at = 0; at < len; at++) {
		const uint8_t kept = payload[at];
		for (int value = 0; value < 256; value++) {
			payload[at] = (uint8_t)value;
			try_hostile(c, payload, len, false);
		}
		payload[at] = kept;
	}
	free(payload);
	gp_codec_free(c);
}

static void factors_whose_product_overflows_are_refused(void **state)
{
	(void)state;
	const struct gp_shape shape = {.ndim = 3, .dim = {1, 2, 2}};
	const float x[4] = {1, 1, 1, 1};
	float y[4];
	struct gp_err err = {0};
	size_t len;
	struct gp_codec *c = new_codec("poweriter:rank=1,iters=1", &shape);
	uint8_t *payload = encode(c, &(struct gp_codec_pass){0}, x, &len);
	assert_int_equal(len, 4 + 4 + 4 + 8 + 8);
	gp_put_f32(payload + 12, 1e30f);
	gp_put_f32(payload + 20, 1e30f);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_PROTO);
	assert_non_null(strstr(err.text, "not finite"));
	free(payload);
	gp_codec_free(c);
}

/* Samples whose factors a bucket across all of them makes a thousand times larger, each: the product was infinite. */
static void huge_samples_travel_raw_and_do_not_stop_the_process(void **state)
{
	(void)state;
	enum { SAMPLES = 1 << 20 };
	static const char *const chains[] = {"ef+poweriter:rank=1,iters=1+qsgd:bits=1,bucket=1048576",
					     "poweriter:rank=1,iters=1+qsgd:bits=1,bucket=1048576"};
	static const int exponents[] = {79, 81, 109, 127};
	const struct gp_shape shape = {.ndim = 4, .dim = {SAMPLES, 1, 1, 1}};
	float *x = malloc(SAMPLES * sizeof *x), *y = malloc(SAMPLES * sizeof *y);
	for (int i = 0; i < 2; i++)
		for (int e = 0; e < 4; e++) {
			if (left_to_dev(4, i + e + 1))
				continue;
			for (int k = 0; k < SAMPLES; k++)
				x[k] = ldexpf(1, exponents[e]);
			struct gp_codec *c = new_codec(chains[i], &shape);
			trip(c, &(struct gp_codec_pass){0}, x, y);
			for (int k = 0; k < SAMPLES; k++)
				if (!isfinite(y[k]) || (exponents[e] > 80 && y[k] != x[k]))
					fail_msg("2^%d came back as %g", exponents[e], (double)y[k]);
			gp_codec_free(c);
		}
	free(x);
	free(y);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_cases_are_met_from_their_start_and_from_our_own),
		cmocka_unit_test(matrices_of_lower_rank_are_kept_but_for_rounding),
		cmocka_unit_test(a_rank_over_the_smaller_side_is_cut_to_it),
		cmocka_unit_test(what_is_left_out_is_the_noise),
		cmocka_unit_test(factors_are_coded_by_the_next_stage),
		cmocka_unit_test(tensors_at_the_edges_keep_the_promise),
		cmocka_unit_test(a_tensor_without_elements_is_empty),
		cmocka_unit_test(shapes_without_matrices_are_refused_with_the_reason),
		cmocka_unit_test(a_warm_start_goes_on_where_the_last_pass_ended),
		cmocka_unit_test(memory_is_saved_restored_and_hashed),
		cmocka_unit_test(a_tensor_that_is_not_finite_travels_raw_and_leaves_the_memory),
		cmocka_unit_test(passes_allocate_nothing_and_memory_is_announced),
		cmocka_unit_test(every_instruction_set_gives_the_same_payload_and_tensor),
		cmocka_unit_test(cut_and_changed_payloads_are_refused_or_decoded),
		cmocka_unit_test(factors_whose_product_overflows_are_refused),
		cmocka_unit_test(huge_samples_travel_raw_and_do_not_stop_the_process),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

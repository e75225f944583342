/* SPDX-License-Identifier: Apache-2.0
 *
 * downsample through the public interface: means of windows at every place of
 * an image, back again, beside NumPy's (tests/golden/codec); what is refused.
 */
#include "tests/unit/codec_rig.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/rng.h"
#include "kernels/loops/downsample_loops.h"
#include "kernels/loops/simd.h"

enum { MOST = 40000 };

/* Returns the payload's length. */
static size_t trip(const char *text, const struct gp_shape *shape, const float *x, float *y)
{
	struct gp_err err = {0};
	size_t len;
	struct gp_codec *c = shaped_codec(text, shape, 0);
	uint8_t *payload = malloc(gp_codec_bound(c));
	const uint64_t calls = gp_mem_calls();
	assert_int_equal(gp_codec_encode(c, x, 0, payload, gp_codec_bound(c), &len, &err), GP_OK);
	payload = realloc(payload, len);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_OK);
	assert_int_equal(gp_mem_calls(), calls);
	free(payload);
	gp_codec_free(c);
	return len;
}

static void fill(float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(3, 1, i);
}

/* Mean of the window that holds (row, column), in double precision. */
static double mean_at(const float *image, const int64_t *d, int64_t factor, int64_t row, int64_t column, int64_t ch)
{
	double sum = 0;
	int count = 0;
	for (int64_t r = row / factor * factor; r < d[1] && r < row / factor * factor + factor; r++)
		for (int64_t c = column / factor * factor; c < d[2] && c < column / factor * factor + factor; c++) {
			sum += (double)image[(r * d[2] + c) * d[3] + ch];
			count++;
		}
	return sum / count;
}

static void check_means(const int64_t *d, int64_t factor)
{
	static float x[MOST], y[MOST];
	const struct gp_shape shape = {.ndim = 4, .dim = {d[0], d[1], d[2], d[3]}};
	const uint64_t small =
		(uint64_t)(d[0] * ((d[1] + factor - 1) / factor) * ((d[2] + factor - 1) / factor) * d[3]);
	char spec[32];
	snprintf(spec, sizeof spec, "downsample:factor=%d", (int)factor);
	fill(x, gp_shape_elements(&shape));
	assert_int_equal(trip(spec, &shape, x, y), 8 + 4 * small);
	for (int64_t i = 0; i < (int64_t)gp_shape_elements(&shape); i++) {
		const int64_t ch = i % d[3], column = i / d[3] % d[2], row = i / d[3] / d[2] % d[1];
		const float *image = x + i / (d[1] * d[2] * d[3]) * (d[1] * d[2] * d[3]);
		assert_true(fabs((double)y[i] - mean_at(image, d, factor, row, column, ch)) < 1e-5);
	}
}

static void every_element_becomes_the_mean_of_its_window(void **state)
{
	(void)state;
	static const int64_t shapes[][4] = {{1, 2, 2, 1}, {2, 4, 4, 3},   {3, 5, 7, 16}, {1, 1, 9, 5},
					    {2, 9, 1, 4}, {2, 13, 8, 33}, {1, 3, 3, 1}};
	for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
		for (int64_t factor = 2; factor <= 5; factor++)
			check_means(shapes[s], factor);
	check_means((const int64_t[]){2, 5, 4, 3}, 64);
}

static void a_sequence_is_averaged_along_its_length(void **state)
{
	(void)state;
	const struct gp_shape shape = {.ndim = 3, .dim = {1, 5, 2}};
	const float x[] = {1, 10, 3, 20, 5, 30, 7, 40, 9, 50}, expected[] = {2, 15, 2, 15, 6, 35, 6, 35, 9, 50};
	float y[10];
	trip("downsample:factor=2", &shape, x, y);
	assert_memory_equal(y, expected, sizeof y);
}

/* (B,C,H,W) to (B,H,W,C); other shapes stay. */
static float *channels_last(float *x, const struct gp_shape *shape)
{
	if (shape->ndim != 4)
		return x;
	const int64_t c = shape->dim[1], pixels = shape->dim[2] * shape->dim[3];
	float *y = malloc((size_t)gp_shape_elements(shape) * sizeof *y);
	for (int64_t b = 0; b < shape->dim[0]; b++)
		for (int64_t i = 0; i < c; i++)
			for (int64_t j = 0; j < pixels; j++)
				y[(b * pixels + j) * c + i] = x[(b * c + i) * pixels + j];
	free(x);
	return y;
}

static void check_golden(const char *input, int factor)
{
	char name[32], spec[32];
	struct gp_shape input_shape, shape;
	snprintf(name, sizeof name, "%s_f%d", input, factor);
	snprintf(spec, sizeof spec, "downsample:factor=%d", factor);
	float *expected = read_tensor(GOLDEN "downsample.safetensors", name, &shape);
	float *x = channels_last(read_tensor(GOLDEN "inputs.safetensors", input, &input_shape), &input_shape);
	const uint64_t n = gp_shape_elements(&shape);
	float *y = malloc((size_t)n * sizeof *y);
	assert_int_equal(gp_shape_elements(&input_shape), n);
	trip(spec, &shape, x, y);
	for (uint64_t i = 0; i < n; i++)
		assert_true(fabs((double)y[i] - (double)expected[i]) < 4e-6);
	free(expected);
	free(x);
	free(y);
}

static void golden_tensors_are_restored_as_numpy_restores_them(void **state)
{
	(void)state;
	check_golden("act", 3);
	check_golden("hidden", 5);
}

static void a_second_time_changes_nothing(void **state)
{
	(void)state;
	static float x[2 * 6 * 8 * 3], y[2 * 6 * 8 * 3], z[2 * 6 * 8 * 3];
	const struct gp_shape shape = {.ndim = 4, .dim = {2, 6, 8, 3}};
	fill(x, gp_shape_elements(&shape));
	trip("downsample:factor=2", &shape, x, y);
	trip("downsample:factor=2", &shape, y, z);
	assert_memory_equal(y, z, sizeof y);
}

static void what_does_not_fit_is_refused_with_the_reason(void **state)
{
	(void)state;
	static const struct gp_shape bad[] = {{.ndim = 2, .dim = {4, 10}},
					      {.ndim = 1, .dim = {100}},
					      {.ndim = 4, .dim = {8, 1, 1, 64}},
					      {.ndim = 3, .dim = {8, 1, 64}},
					      {.ndim = 5, .dim = {2, 2, 2, 2, 2}}};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct gp_err err = {0};
		struct gp_codec_spec spec;
		uint64_t bytes;
		assert_int_equal(gp_codec_spec_parse("ef+downsample+uniform", &spec, &err), GP_OK);
		assert_int_equal(gp_codec_bound_for(&spec, &bad[i], &bytes, &err), GP_INVALID);
		assert_non_null(strstr(err.text, "codec stage 2 (downsample): a tensor of shape"));
	}
}

static void what_is_not_finite_or_overflows_travels_raw(void **state)
{
	(void)state;
	const struct gp_shape shape = {.ndim = 4, .dim = {2, 4, 4, 2}};
	const float bad[] = {NAN, INFINITY, -INFINITY};
	float x[64], y[64];
	for (int b = 0; b < 3; b++)
		for (int at = 0; at < 64; at++) {
			fill(x, 64);
			x[at] = bad[b];
			assert_int_equal(trip("downsample+uniform:bits=4", &shape, x, y), 4 + 4 * 64);
			assert_memory_equal(x, y, sizeof x);
		}
	for (int at = 0; at < 64; at++)
		x[at] = FLT_MAX;
	trip("downsample+uniform:bits=4", &shape, x, y);
	assert_memory_equal(x, y, sizeof x);
	for (int at = 0; at < 64; at++)
		x[at] = at % 2 ? FLT_TRUE_MIN : -1e30f; /* constant in every channel */
	trip("downsample", &shape, x, y);
	assert_memory_equal(x, y, sizeof x);
}

static void every_instruction_set_gives_the_same_means(void **state)
{
	(void)state;
	static float x[MOST], y[MOST], expected[MOST];
	static const enum gp_isa isa[] = {GP_ISA_PORTABLE, GP_ISA_AVX2, GP_ISA_AVX512};
	fill(x, MOST);
	for (int64_t c = 1; c < 70; c += 3) {
		const struct gp_windows p = {.n = 2, .h = 11, .w = 7, .c = c, .fh = 3, .fw = 2};
		const size_t bytes = (size_t)(2 * gp_windows_high(&p) * gp_windows_wide(&p) * c) * sizeof *y;
		for (int k = 0; k < 3; k++) {
			gp_isa_limit(isa[k]);
			gp_windows_mean(&p, x, k ? y : expected);
			assert_memory_equal(k ? y : expected, expected, bytes);
		}
	}
}

static void hostile_payloads_give_a_tensor_or_an_error(void **state)
{
	(void)state;
	const struct gp_shape shape = {.ndim = 4, .dim = {1, 5, 4, 3}};
	struct gp_err err = {0};
	struct gp_codec *c = shaped_codec("downsample:factor=3+uniform:bits=5", &shape, 0);
	float x[60], y[60];
	uint8_t out[512];
	size_t len;
	fill(x, 60);
	assert_int_equal(gp_codec_encode(c, x, 0, out, sizeof out, &len, &err), GP_OK);
	for (size_t cut = 0; cut <= len + 9; cut++) {
		uint8_t *copy = calloc(1, cut ? cut : 1);
		memcpy(copy, out, cut < len ? cut : len);
		const enum gp_status status = gp_codec_decode(c, (struct gp_span){copy, cut}, y, &err);
		assert_int_equal(status, cut == len ? GP_OK : GP_PROTO);
		free(copy);
	}
	for (size_t at = 0; at < len; at++)
		for (int v = 0; v < 256; v++) {
			uint8_t *copy = malloc(len);
			memcpy(copy, out, len);
			copy[at] = (uint8_t)v;
			const enum gp_status status = gp_codec_decode(c, (struct gp_span){copy, len}, y, &err);
			assert_true(status == GP_OK || status == GP_PROTO);
			free(copy);
		}
	gp_codec_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_element_becomes_the_mean_of_its_window),
		cmocka_unit_test(a_sequence_is_averaged_along_its_length),
		cmocka_unit_test(golden_tensors_are_restored_as_numpy_restores_them),
		cmocka_unit_test(a_second_time_changes_nothing),
		cmocka_unit_test(what_does_not_fit_is_refused_with_the_reason),
		cmocka_unit_test(what_is_not_finite_or_overflows_travels_raw),
		cmocka_unit_test(every_instruction_set_gives_the_same_means),
		cmocka_unit_test(hostile_payloads_give_a_tensor_or_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

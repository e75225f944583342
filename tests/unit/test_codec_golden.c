/* SPDX-License-Identifier: Apache-2.0
 *
 * uniform and sortquant against the cases of tests/golden/codec (see the
 * README there): same partitions, same bit rate, same reconstruction.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/base/isa.h"
#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"
#include "common/store/safetensors.h"
#include "kernels/loops/codec_loops.h"

#define DIRECTORY "tests/golden/codec/"

static const char *const inputs[] = {"act", "grad", "hidden", "relu6"};

struct files {
	struct gp_st_file *inputs, *cases;
};

static int open_files(void **state)
{
	static struct files f;
	struct gp_err err = {0};
	*state = &f;
	if (gp_st_open(DIRECTORY "inputs.safetensors", &f.inputs, &err) != GP_OK ||
	    gp_st_open(DIRECTORY "cases.safetensors", &f.cases, &err) != GP_OK) {
		gp_err_print(&err, "test_codec_golden");
		return -1;
	}
	return 0;
}

static int close_files(void **state)
{
	struct files *f = *state;
	gp_st_close(f->inputs);
	gp_st_close(f->cases);
	return 0;
}

static float *floats_of(const struct gp_st_file *file, const char *name, uint64_t *count)
{
	struct gp_err err = {0};
	const struct gp_st_tensor *t = gp_st_find(file, name);
	assert_non_null(t);
	float *x = malloc(t->count * sizeof *x);
	assert_int_equal(gp_st_read_f32(t, x, &err), GP_OK);
	*count = t->count;
	return x;
}

/* What the case says the tensor becomes. */
static float *expected_tensor(const struct files *f, const char *name, const float *min_step, int bits, int width)
{
	char key[64];
	snprintf(key, sizeof key, "%s.codes", name);
	const struct gp_st_tensor *t = gp_st_find(f->cases, key);
	assert_non_null(t);
	const uint8_t *codes = t->data;
	uint64_t n = width > 8 ? t->count / 2 : t->count;
	float *y = malloc(n * sizeof *y);
	for (uint64_t i = 0; i < n; i++) {
		unsigned code = width > 8 ? codes[2 * i] | (unsigned)codes[2 * i + 1] << 8 : codes[i];
		const float *p = min_step + 2 * (code >> bits);
		y[i] = (float)(code & ((1u << bits) - 1)) * p[1] + p[0];
	}
	return y;
}

static void check_payload(const uint8_t *payload, size_t len, const float *min_step, uint64_t pairs, uint64_t n,
			  int width)
{
	assert_int_equal(len, 4 + 8 * pairs + (n * (uint64_t)width + 7) / 8);
	for (uint64_t i = 0; i < 2 * pairs; i++)
		assert_true(gp_get_f32(payload + 4 + 4 * i) == min_step[i]);
}

static void check_tensor(const char *name, const float *y, const float *expected, uint64_t n)
{
	uint64_t off = 0;
	for (uint64_t i = 0; i < n; i++)
		off += !(fabs((double)y[i] - (double)expected[i]) <= 1e-6 * fabs((double)expected[i]));
	if (off)
		print_error("%s: %llu of %llu elements differ\n", name, (unsigned long long)off, (unsigned long long)n);
	assert_int_equal(off, 0);
}

static void check_case(const struct files *f, const char *name, const char *spec_text, const char *input, int bits,
		       int split)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c;
	uint64_t n, pairs;
	size_t len;
	char key[64];
	float *x = floats_of(f->inputs, input, &n);
	snprintf(key, sizeof key, "%s.min_step", name);
	float *min_step = floats_of(f->cases, key, &pairs);
	pairs /= 2;
	assert_int_equal(pairs, 1 << split);
	float *expected = expected_tensor(f, name, min_step, bits, bits + split), *y = malloc(n * sizeof *y);
	assert_int_equal(gp_codec_spec_parse(spec_text, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_new(&spec, &gp_st_find(f->inputs, input)->shape, 0, &c, &err), GP_OK);
	uint8_t *payload = malloc(gp_codec_bound(c));
	assert_int_equal(gp_codec_encode(c, x, 0, payload, gp_codec_bound(c), &len, &err), GP_OK);
	check_payload(payload, len, min_step, pairs, n, bits + split);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_OK);
	check_tensor(name, y, expected, n);
	gp_codec_free(c);
	free(payload);
	free(y);
	free(expected);
	free(min_step);
	free(x);
}

static void for_each_instruction_set(const struct files *f, const char *name, const char *spec, const char *input,
				     int bits, int split)
{
	for (int k = 0; k < 3; k++) {
		if (!gp_codec_loops_named(gp_isa_name((enum gp_isa)k)))
			continue;
		setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
		check_case(f, name, spec, input, bits, split);
	}
	unsetenv("GP_SIMD");
}

static void uniform_reconstructs_all_golden_cases(void **state)
{
	static const int bits[] = {4, 8, 12, 16};
	for (int i = 0; i < 4; i++)
		for (int b = 0; b < 4; b++) {
			char name[48], spec[48];
			snprintf(name, sizeof name, "uniform_%s_b%d", inputs[i], bits[b]);
			snprintf(spec, sizeof spec, "uniform:bits=%d", bits[b]);
			for_each_instruction_set(*state, name, spec, inputs[i], bits[b], 0);
		}
}

static void sortquant_reconstructs_all_golden_cases(void **state)
{
	static const int widths[][2] = {{3, 1}, {2, 2}, {6, 2}, {9, 3}, {12, 4}};
	for (int i = 0; i < 3; i++)
		for (int w = 0; w < 5; w++) {
			char name[48], spec[48];
			snprintf(name, sizeof name, "sortq_%s_b%ds%d", inputs[i], widths[w][0], widths[w][1]);
			snprintf(spec, sizeof spec, "sortquant:bits=%d,split=%d", widths[w][0], widths[w][1]);
			for_each_instruction_set(*state, name, spec, inputs[i], widths[w][0], widths[w][1]);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uniform_reconstructs_all_golden_cases),
		cmocka_unit_test(sortquant_reconstructs_all_golden_cases),
	};
	return cmocka_run_group_tests(tests, open_files, close_files);
}

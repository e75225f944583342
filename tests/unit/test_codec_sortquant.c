/* SPDX-License-Identifier: Apache-2.0
 *
 * sortquant's first form, partitions=p and prune=r, through the public
 * interface: golden cases, partitions against a sort, the bitmap, and what a
 * hostile payload meets. Its other half: test_codec.c, test_codec_golden.c.
 */
#include "tests/unit/codec_rig.h"

#include <math.h>
#include <string.h>

#include "common/codec/codec_impl.h"
#include "common/base/isa.h"
#include "common/base/rng.h"
#include "kernels/loops/codec_loops.h"

static void check_golden(const char *spec, const char *input, const char *file)
{
	uint64_t n, m;
	size_t len;
	float *x = read_floats(GOLDEN "inputs.safetensors", input, &n), *y = malloc(n * sizeof *y);
	float *expected = read_floats(file, "recon", &m);
	assert_int_equal(n, m);
	for (int k = 0; k < 3; k++) {
		if (!gp_codec_loops_named(gp_isa_name((enum gp_isa)k)))
			continue;
		setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
		free(roundtrip(spec, x, n, y, &len));
		for (uint64_t i = 0; i < n; i++) /* -0 of a dropped negative element equals 0 */
			assert_true(y[i] == expected[i]);
	}
	unsetenv("GP_SIMD");
	free(expected);
	free(x);
	free(y);
}

static void the_first_form_reconstructs_its_golden_cases(void **state)
{
	(void)state;
	check_golden("sortquant:bits=8,partitions=4,prune=0.5", "act", GOLDEN "prune_sortq_act.safetensors");
	check_golden("sortquant:bits=6,partitions=4,prune=0.3", "grad", GOLDEN "prune_sortq_grad.safetensors");
}

static int descending(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;
	return (x < y) - (x > y);
}

enum { MOST = 5000 };
static float x[MOST], y[MOST], sorted[MOST];

static void draw(uint64_t n, uint64_t seed)
{
	for (uint64_t i = 0; i < n; i++)
		x[i] = sorted[i] = gp_rng_normal(seed, 1, i);
	qsort(sorted, n, sizeof *sorted, descending);
}

/* Every element against the chunk of the descending sort that holds it: its error is at most half that chunk's step. */
static void check_chunks(uint64_t n, uint64_t parts, int bits)
{
	const uint64_t size = (n + parts - 1) / parts;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t rank = 0;
		while (sorted[rank] != x[i])
			rank++;
		const uint64_t begin = rank / size * size, end = begin + size < n ? begin + size : n;
		const double range = (double)sorted[begin] - (double)sorted[end - 1];
		assert_true(fabs((double)x[i] - (double)y[i]) <= range / ((1 << bits) - 1) * 0.5001 + 1e-6);
	}
}

static void partitions_are_chunks_of_the_descending_sort(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {1, 2, 5, 7, 100, 1001};
	static const int parts[] = {1, 2, 3, 4, 5, 7, 16, 31, 100, 256};
	char spec[64];
	size_t len;
	for (int s = 0; s < 6; s++)
		for (int p = 0; p < 10; p++) {
			draw(sizes[s], (uint64_t)s);
			snprintf(spec, sizeof spec, "sortquant:bits=5,partitions=%d", parts[p]);
			free(roundtrip(spec, x, sizes[s], y, &len));
			check_chunks(sizes[s], (uint64_t)parts[p], 5);
		}
}

static void pruning_keeps_the_largest_magnitudes_and_zeroes_the_rest(void **state)
{
	(void)state;
	static const struct {
		uint64_t n;
		const char *spec;
		uint64_t chosen;
	} cases[] = {
		{1, "sortquant:prune=0.5", 1},
		{2, "sortquant:prune=0.5", 1},
		{9, "sortquant:prune=0.3", 2},
		{1000, "sortquant:prune=0.0001", 1},
		{5000, "sortquant:prune=0.25", 1250},
		{5000, "sortquant:prune=0.9999", 4999},
		{777, "sortquant:prune=0.5,partitions=3", 388},
		{5000, "sortquant:prune=0.5,sample=100", 2500},
	};
	size_t len;
	for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		const uint64_t n = cases[k].n;
		draw(n, k);
		for (uint64_t i = 0; i < n; i++)
			sorted[i] = fabsf(x[i]);
		qsort(sorted, n, sizeof *sorted, descending);
		const float threshold = sorted[cases[k].chosen - 1];
		free(roundtrip(cases[k].spec, x, n, y, &len));
		for (uint64_t i = 0; i < n; i++)
			if (fabsf(x[i]) < threshold)
				assert_true(y[i] == 0);
			else
				assert_true(y[i] != 0 && fabsf(x[i] - y[i]) < 0.1f);
	}
}

static void of_equal_magnitudes_the_first_ones_stay(void **state)
{
	(void)state;
	const float tied[] = {1, -1, 2, 1, -1, 1, 0.5f, -2};
	const float expected[] = {1, -1, 2, 0, 0, 0, 0, -2};
	float back[8];
	size_t len;
	uint8_t *payload = roundtrip("sortquant:bits=8,split=2,prune=0.5", tied, 8, back, &len);
	assert_int_equal(len, 4 + 1 + 32 + 5);
	assert_int_equal(payload[4], 0x87);
	for (int i = 0; i < 8; i++)
		assert_true(back[i] == expected[i]);
	free(payload);
}

static void a_bitmap_with_other_than_k_bits_is_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	size_t len;
	draw(100, 3);
	uint8_t *payload = roundtrip("sortquant:prune=0.5", x, 100, y, &len);
	struct gp_codec *c = row_codec("sortquant:prune=0.5", 100, 0);
	for (int i = 0; i < 104; i++) {
		payload[4 + i / 8] ^= (uint8_t)(1 << i % 8);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_PROTO);
		payload[4 + i / 8] ^= (uint8_t)(1 << i % 8);
	}
	/* As many bits, one of them behind the last element. */
	for (int i = 0; i < 100; i++)
		if (payload[4 + i / 8] >> i % 8 & 1) {
			payload[4 + i / 8] ^= (uint8_t)(1 << i % 8);
			break;
		}
	payload[4 + 12] |= 0x80;
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_PROTO);
	gp_codec_free(c);
	free(payload);
}

static void assert_refused(const char *text, const char *why)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_USAGE);
	if (!strstr(err.text, why))
		fail_msg("%s: %s", text, err.text);
}

static void senseless_keys_are_refused_with_the_reason(void **state)
{
	(void)state;
	assert_refused("sortquant:bits=14,partitions=5", "bits=14 with partitions=5");
	assert_refused("sortquant:prune=0", "would choose nothing");
	assert_refused("sortquant:partitions=257", "0..256");
	assert_refused("sortquant:prune=0.00001", "4 decimals");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_form_reconstructs_its_golden_cases),
		cmocka_unit_test(partitions_are_chunks_of_the_descending_sort),
		cmocka_unit_test(pruning_keeps_the_largest_magnitudes_and_zeroes_the_rest),
		cmocka_unit_test(of_equal_magnitudes_the_first_ones_stay),
		cmocka_unit_test(a_bitmap_with_other_than_k_bits_is_refused),
		cmocka_unit_test(senseless_keys_are_refused_with_the_reason),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

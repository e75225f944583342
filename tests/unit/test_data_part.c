/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of a training set (client/data/data_part.c): they overlap nowhere and
 * are the whole set together, they are alike or, with dirichlet=, as different
 * as that distribution says, and they are the same everywhere.
 */
#include <math.h>

#include "common/base/rng.h"
#include "tests/unit/data_files.h"

static const struct gp_dataset_options as_is = {0};

static struct gp_dataset *open_part(const char *base, int part, int parts, const char *more)
{
	struct gp_err err = {0};
	struct gp_dataset *d;
	char spec[200];
	snprintf(spec, sizeof spec, "%s,part=%d/%d%s", base, part, parts, more);
	if (gp_dataset_open(spec, GP_SPLIT_TRAIN, &as_is, &d, &err) != GP_OK)
		fail_msg("%s: %s", spec, err.text);
	return d;
}

/* owner[sample] of a set of `samples`: the part that has it, from 1 on. */
static void owners(const char *base, int parts, const char *more, uint32_t samples, int *owner)
{
	uint32_t sum = 0;
	memset(owner, 0, samples * sizeof *owner);
	for (int part = 1; part <= parts; part++) {
		struct gp_dataset *d = open_part(base, part, parts, more);
		for (uint32_t i = 0; i < gp_dataset_samples(d); i++) {
			const uint32_t source = gp_dataset_source(d, i);
			assert_true(source < samples && owner[source] == 0);
			assert_true(i == 0 || source > gp_dataset_source(d, i - 1));
			owner[source] = part;
		}
		sum += gp_dataset_samples(d);
		gp_dataset_free(d);
	}
	assert_int_equal(sum, samples);
}

static void parts_are_the_whole_and_overlap_nowhere(void **state)
{
	(void)state;
	enum { SAMPLES = 1003, PARTS = 7 };
	static const char *const ways[] = {"", ",part-seed=5", ",dirichlet=0.5", ",dirichlet=0.5,part-seed=5"};
	int owner[4][SAMPLES];
	for (int w = 0; w < 4; w++)
		owners("synthetic:shape=1x8x8,samples=1003", PARTS, ways[w], SAMPLES, owner[w]);
	for (int w = 1; w < 4; w++)
		assert_memory_not_equal(owner[0], owner[w], sizeof owner[0]);
	assert_memory_not_equal(owner[2], owner[3], sizeof owner[2]);
}

/* The 10 classes of this set take turns, so that every 10th sample would be of one class. */
static void parts_that_are_dealt_out_are_alike(void **state)
{
	(void)state;
	for (int part = 1; part <= 10; part++) {
		struct gp_dataset *d = open_part("synthetic:shape=1x8x8,samples=20005", part, 10, "");
		int count[10] = {0};
		assert_int_equal(gp_dataset_samples(d), part <= 5 ? 2001 : 2000);
		for (uint32_t i = 0; i < gp_dataset_samples(d); i++)
			count[d->class->label(d, gp_dataset_source(d, i))]++;
		for (int c = 0; c < 10; c++)
			assert_in_range(count[c], 140, 260); /* 200 in the mean, with a deviation of 13 */
		gp_dataset_free(d);
	}
}

/* Counts of one part in one class of n samples are beta-binomial: variance n p (1 - p) (n + N A) / (1 + N A), p = 1 / N. */
static void shares_vary_as_the_distribution_says(void **state)
{
	(void)state;
	enum { CLASSES = 500, EACH = 100, PARTS = 5 };
	static const double parameter[] = {0.05, 0.5, 5, 1000};
	static int owner[CLASSES * EACH];
	for (size_t k = 0; k < sizeof parameter / sizeof parameter[0]; k++) {
		static int count[CLASSES][PARTS];
		const double p = 1.0 / PARTS, all = PARTS * parameter[k];
		double sum = 0;
		char more[40];
		memset(count, 0, sizeof count);
		snprintf(more, sizeof more, ",dirichlet=%g", parameter[k]);
		owners("synthetic:shape=1x8x8,samples=50000,classes=500", PARTS, more, CLASSES * EACH, owner);
		for (int i = 0; i < CLASSES * EACH; i++)
			count[i % CLASSES][owner[i] - 1]++;
		for (int c = 0; c < CLASSES; c++)
			for (int part = 0; part < PARTS; part++)
				sum += (count[c][part] - EACH * p) * (count[c][part] - EACH * p);
		const double want = EACH * p * (1 - p) * (EACH + all) / (1 + all), got = sum / (CLASSES * PARTS);
		print_message("dirichlet=%g: variance %.1f, expected %.1f\n", parameter[k], got, want);
		assert_true(fabs(got / want - 1) < 0.15);
	}
}

/* Two clients on different machines must agree, so these may never change. */
static void draws_are_pinned(void **state)
{
	(void)state;
	static const struct {
		const char *way;
		int owner[16];
	} known[] = {{"", {3, 1, 1, 2, 2, 3, 3, 2, 3, 2, 3, 1, 1, 2, 1, 1}},
		     {",dirichlet=1", {2, 2, 2, 2, 3, 3, 1, 2, 3, 2, 3, 2, 2, 2, 2, 2}},
		     {",part-seed=7", {3, 2, 1, 1, 2, 1, 3, 1, 3, 1, 2, 3, 2, 1, 3, 2}},
		     {",dirichlet=2,part-seed=7", {1, 1, 2, 3, 2, 2, 2, 2, 1, 2, 1, 2, 1, 2, 2, 2}}};
	for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
		int owner[16];
		owners("synthetic:shape=1x8x8,samples=16,classes=2", 3, known[k].way, 16, owner);
		assert_memory_equal(owner, known[k].owner, sizeof owner);
	}
}

static void validation_is_not_divided_and_a_limit_comes_first(void **state)
{
	struct gp_err err = {0};
	struct gp_dataset *d;
	(void)state;
	assert_int_equal(gp_dataset_open("synthetic:samples=50,part=2/5,dirichlet=0.5", GP_SPLIT_VAL, &as_is, &d, &err),
			 GP_OK);
	assert_int_equal(gp_dataset_samples(d), 10);
	gp_dataset_free(d);
	d = open_part("synthetic:samples=50,limit=20", 2, 5, "");
	assert_int_equal(gp_dataset_samples(d), 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(gp_dataset_source(d, i) < 20);
	gp_dataset_free(d);
	d = open_part("synthetic:samples=50", 1, 1, ",dirichlet=0.1");
	assert_int_equal(gp_dataset_samples(d), 50);
	gp_dataset_free(d);
}

static void assert_usage(const char *spec, const char *wanted)
{
	assert_open_fails(spec, GP_SPLIT_TRAIN, GP_USAGE, wanted);
}

static void parts_that_cannot_be_are_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {"0/3", "4/3", "1/", "/3", "1", "1/3/3", "1/1000001", "-1/3", ""};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		char spec[60], wanted[120];
		snprintf(spec, sizeof spec, "synthetic:part=%s", texts[i]);
		snprintf(wanted, sizeof wanted,
			 "dataset synthetic: part: '%s' is not I/N, part I of N, as 1/3, 2/3 and 3/3 are", texts[i]);
		assert_usage(spec, wanted);
	}
	assert_usage("synthetic:dirichlet=0.5", "dataset synthetic: dirichlet: '0.5' is not of use without part=I/N");
	assert_usage("synthetic:part-seed=1", "dataset synthetic: part-seed: '1' is not of use without part=I/N");
	assert_usage("synthetic:part=1/2,dirichlet=0", "dataset synthetic: dirichlet: 0 is out of range (0.001..1000)");
	assert_usage("synthetic:samples=5,part=6/6",
		     "dataset synthetic: part 6 of 6 has none of the 5 samples; take fewer parts");
	assert_usage("synthetic:samples=5,part=6/1000,dirichlet=0.01",
		     "dataset synthetic: part 6 of 1000 has none of the 5 samples; take fewer parts, or a larger "
		     "dirichlet=");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_are_the_whole_and_overlap_nowhere),
		cmocka_unit_test(parts_that_are_dealt_out_are_alike),
		cmocka_unit_test(shares_vary_as_the_distribution_says),
		cmocka_unit_test(draws_are_pinned),
		cmocka_unit_test(validation_is_not_divided_and_a_limit_comes_first),
		cmocka_unit_test(parts_that_cannot_be_are_refused),
	};
	return cmocka_run_group_tests(tests, make_data_dir, remove_data_dir);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Correlations of an evaluation (client/engine/eval_metrics.h), beside values worked out by
 * hand: the fractions are in the comments.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/engine/eval_metrics.h"
#include "client/data/data_internal.h"

static struct gp_err err;

/* All that gp_metrics_init looks at. */
static struct gp_metrics metrics_of(bool values, int outputs, uint32_t samples)
{
	const struct gp_dataset d = {.samples = samples, .values = values};
	struct gp_metrics m;
	assert_int_equal(gp_metrics_init(&m, &d, outputs, &err), GP_OK);
	gp_metrics_begin(&m);
	return m;
}

/* Rows whose highest score is that of the class. */
static void add_class(struct gp_metrics *m, int32_t label, int predicted, int times)
{
	float row[4] = {0};
	row[predicted] = 1;
	for (int i = 0; i < times; i++)
		gp_metrics_add(m, row, &label, 1);
}

static void expect_near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-12))
		fail_msg("%.17g instead of %.17g", got, want);
}

static void two_classes_have_matthews_correlation(void **state)
{
	(void)state;
	struct gp_metrics m = metrics_of(false, 2, 15);
	add_class(&m, 1, 1, 6); /* true positives */
	add_class(&m, 0, 0, 3); /* true negatives */
	add_class(&m, 0, 1, 1); /* false positives */
	add_class(&m, 1, 0, 2); /* false negatives */
	expect_near(gp_metrics_matthews(&m), (6.0 * 3 - 1 * 2) / sqrt(7.0 * 8 * 4 * 5));
	assert_true(isnan(gp_metrics_pearson(&m)) && isnan(gp_metrics_spearman(&m)));
	gp_metrics_begin(&m);
	add_class(&m, 0, 1, 3);
	add_class(&m, 1, 0, 4);
	expect_near(gp_metrics_matthews(&m), -1);
	gp_metrics_deinit(&m);
}

/* Five of 6 samples are right; labels are 3, 2 and 1 of a class, predictions 2, 3, 1: (5 * 6 - 13) / sqrt(22 * 22). */
static void three_classes_have_r_k(void **state)
{
	(void)state;
	struct gp_metrics m = metrics_of(false, 3, 6);
	add_class(&m, 0, 0, 2);
	add_class(&m, 0, 1, 1);
	add_class(&m, 1, 1, 1);
	add_class(&m, 1, 1, 1);
	add_class(&m, 2, 2, 1);
	expect_near(gp_metrics_matthews(&m), (5.0 * 6 - (3 * 2 + 2 * 3 + 1)) / 22);
	gp_metrics_deinit(&m);
}

static void what_is_undefined_is_zero(void **state)
{
	(void)state;
	struct gp_metrics m = metrics_of(false, 2, 9);
	expect_near(gp_metrics_matthews(&m), 0); /* nothing was added */
	add_class(&m, 0, 1, 2);
	add_class(&m, 1, 1, 3);
	expect_near(gp_metrics_matthews(&m), 0); /* one class is predicted always */
	gp_metrics_deinit(&m);
	m = metrics_of(true, 1, 3);
	const float labels[] = {1, 2, 3}, same[] = {4, 4, 4}, odd[] = {1, NAN, 2};
	gp_metrics_add(&m, same, labels, 1);
	expect_near(gp_metrics_pearson(&m), 0); /* of one sample */
	gp_metrics_begin(&m);
	gp_metrics_add(&m, same, labels, 3);
	expect_near(gp_metrics_pearson(&m), 0);
	expect_near(gp_metrics_spearman(&m), 0);
	gp_metrics_begin(&m);
	gp_metrics_add(&m, odd, labels, 3);
	assert_true(isnan(gp_metrics_pearson(&m)) && isnan(gp_metrics_spearman(&m)));
	assert_true(isnan(gp_metrics_matthews(&m)));
	gp_metrics_deinit(&m);
}

/*
 * Labels 1, 2, 3, 4 and values 1, 3, 2, 10: means 2.5 and 4, products off them 4.5 + 0.5 - 1 + 9 = 13, squares 5 and 50.
 * Ranks 1, 2, 3, 4 and 1, 3, 2, 4: 1 - 6 * 2 / (4 * 15).
 */
static void values_have_pearsons_and_spearmans(void **state)
{
	(void)state;
	struct gp_metrics m = metrics_of(true, 1, 4);
	const float labels[] = {1, 2, 3, 4}, values[] = {1, 3, 2, 10};
	gp_metrics_add(&m, values, labels, 3);
	gp_metrics_add(&m, values + 3, labels + 3, 1); /* the next chunk */
	expect_near(gp_metrics_pearson(&m), 13 / sqrt(5.0 * 50));
	expect_near(gp_metrics_spearman(&m), 0.8);
	assert_int_equal(m.samples, 4);
	gp_metrics_deinit(&m);
}

/* Values 5, 1, 5, 7 have ranks 2.5, 1, 2.5, 4; labels 1, 1, 2, 3 have 1.5, 1.5, 3, 4: products off 2.5 are
 * 0 + 1.5 + 0 + 2.25, squares 4.5 each. */
static void equal_values_share_the_mean_of_their_ranks(void **state)
{
	(void)state;
	struct gp_metrics m = metrics_of(true, 1, 4);
	const float labels[] = {1, 1, 2, 3}, values[] = {5, 1, 5, 7};
	gp_metrics_add(&m, values, labels, 4);
	expect_near(gp_metrics_spearman(&m), 3.75 / 4.5);
	gp_metrics_deinit(&m);
}

static void the_figures_are_told_as_they_are_there(void **state)
{
	(void)state;
	char text[GP_SCORES_TEXT];
	struct gp_scores s = gp_scores_of(NULL, false, 3, 3, 4);
	assert_string_equal(gp_scores_and_loss(&s, true, text), "accuracy 75.00 %, loss 0.7500");
	s.matthews = 0.5;
	assert_string_equal(gp_scores_text(&s, true, text), "accuracy 75.00 %, Matthews correlation 0.5000");
	assert_string_equal(gp_scores_text(&s, false, text), "accuracy 75.00 %");
	s = gp_scores_of(NULL, true, 3, 0, 4);
	assert_true(isnan(s.acc));
	assert_string_equal(gp_scores_and_loss(&s, true, text), "loss 0.7500");
	struct gp_metrics words = {.words = true};
	gp_metrics_add(&words, NULL, NULL, 4); /* rows of words are not looked at */
	s = gp_scores_of(&words, false, 4 * log(20), 1, 4);
	assert_string_equal(gp_scores_and_loss(&s, true, text), "accuracy 25.00 %, perplexity 20.00, loss 2.9957");
	s = gp_scores_of(NULL, true, 3, 0, 4);
	s.pearson = s.spearman = 0.25;
	assert_string_equal(gp_scores_and_loss(&s, true, text),
			    "Pearson correlation 0.2500, Spearman 0.2500, loss 0.7500");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_classes_have_matthews_correlation),
		cmocka_unit_test(three_classes_have_r_k),
		cmocka_unit_test(what_is_undefined_is_zero),
		cmocka_unit_test(values_have_pearsons_and_spearmans),
		cmocka_unit_test(equal_values_share_the_mean_of_their_ranks),
		cmocka_unit_test(the_figures_are_told_as_they_are_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

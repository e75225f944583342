/* SPDX-License-Identifier: Apache-2.0
 *
 * Labels of a batch (client/engine/batch_labels.h): how many there are, and the factor
 * of gradients that follows from it.
 */
#include <string.h>

#include "client/engine/batch_labels.h"
#include "client/models/models.h"
#include "common/graph/device.h"
#include "tests/unit/ok.h"

static int32_t labels[] = {3, -1, 0, -1, -1, -1, 7, 8, 9};

static struct gp_batch batch_of(int ndim, int64_t each, int valid)
{
	return (struct gp_batch){.label_info = {.name = "label", .type = {GP_I32, {.ndim = ndim, .dim = {each}}}},
				 .label = labels,
				 .valid = valid,
				 .room = 3};
}

static void labels_of_valid_samples_are_counted(void **state)
{
	(void)state;
	const struct gp_batch all = batch_of(1, 3, 3), two = batch_of(1, 3, 2), none = batch_of(1, 3, 0);
	assert_int_equal(gp_batch_labels_each(&all), 3);
	assert_int_equal(gp_batch_labelled(&all), 5);
	assert_int_equal(gp_batch_labelled(&two), 2);
	assert_int_equal(gp_batch_labelled(&none), 0);
	assert_true(gp_batch_gradient_scale(&all, 99) == 1.0f / 5);
	assert_true(gp_batch_gradient_scale(&two, 99) == 1.0f / 2);
	assert_true(gp_batch_gradient_scale(&none, 99) == 0.0f);
	assert_ptr_equal(gp_batch_labels(&all, 2), labels + 6);
}

/* A step's gradients are means over its samples, whatever stands in the labels. */
static void a_sample_with_one_label_counts_as_it_is(void **state)
{
	(void)state;
	const struct gp_batch b = batch_of(0, 0, 3);
	assert_int_equal(gp_batch_labels_each(&b), 1);
	assert_int_equal(gp_batch_labelled(&b), 3);
	assert_true(gp_batch_gradient_scale(&b, 8) == 1.0f / 8);
	assert_ptr_equal(gp_batch_labels(&b, 2), labels + 2);
}

static void a_model_says_how_many_it_wants(void **state)
{
	(void)state;
	struct gp_graph *lm, *classes;
	const struct gp_batch one = batch_of(0, 0, 3), three = batch_of(1, 3, 3);
	OK(gp_model_build("roberta:layers=1,dim=8,heads=2,ffn=8,vocab=20,tokens=20,lm=1", NULL, &lm, &err));
	OK(gp_model_build("roberta:layers=1,dim=8,heads=2,ffn=8,vocab=20,tokens=20", NULL, &classes, &err));
	assert_int_equal(gp_batch_labels_of_output(lm), 3);
	assert_int_equal(gp_batch_labels_of_output(classes), 1);
	OK(gp_batch_labels_check(lm, &three, &err));
	OK(gp_batch_labels_check(classes, &one, &err));
	assert_int_equal(gp_batch_labels_check(lm, &one, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "wants 3 labels for each sample, and the data has 1"));
	assert_int_equal(gp_batch_labels_check(classes, &three, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "wants 1 label for each sample, and the data has 3"));
	gp_graph_free(lm);
	gp_graph_free(classes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(labels_of_valid_samples_are_counted),
		cmocka_unit_test(a_sample_with_one_label_counts_as_it_is),
		cmocka_unit_test(a_model_says_how_many_it_wants),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of a model's outputs (client/engine/labels.h).
 */
#include "tests/unit/data_files.h"

#include "client/engine/labels.h"

static void expect_refused(const char *text, int outputs, const char *message)
{
	struct gp_labels l;
	struct gp_err err = {0};
	write_data_file("labels", text, strlen(text));
	assert_int_equal(gp_labels_read(&l, data_path("labels"), outputs, &err), GP_INVALID);
	assert_true(l.count == 0 && !l.name);
	assert_message(&err, message);
}

static void a_line_is_a_label(void **state)
{
	(void)state;
	static const char text[] = "T-shirt or top\r\ntrouser \nbag";
	struct gp_labels l;
	struct gp_err err = {0};
	write_data_file("labels", text, sizeof text - 1);
	if (gp_labels_read(&l, data_path("labels"), 3, &err) != GP_OK)
		fail_msg("%s", err.text);
	assert_int_equal(l.count, 3);
	assert_string_equal(l.name[0], "T-shirt or top");
	assert_string_equal(l.name[1], "trouser");
	assert_string_equal(l.name[2], "bag");
	gp_labels_deinit(&l);
}

static void as_many_labels_as_outputs_are_wanted(void **state)
{
	(void)state;
	char longer[400];
	expect_refused("a\nb\n", 3, "DIR/labels has 2 labels, but the model has 3 outputs");
	expect_refused("a\nb\nc\n", 2, "DIR/labels has 3 labels, but the model has 2 outputs");
	expect_refused("a\n\nb\n", 3, "DIR/labels:2: an empty line; one label per line is expected");
	expect_refused("", 1, "DIR/labels has 0 labels, but the model has 1 output");
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	expect_refused(longer, 1, "DIR/labels:1: a label of more than 256 characters");
}

static void a_dataset_lends_its_classes(void **state)
{
	(void)state;
	struct gp_dataset_options options = {0};
	struct gp_dataset *d = open_data("synthetic:classes=2,samples=10", GP_SPLIT_VAL, &options);
	struct gp_labels l;
	struct gp_err err = {0};
	assert_int_equal(gp_labels_of_dataset(&l, d, 3, &err), GP_OK);
	assert_string_equal(l.name[1], "class 1");
	assert_string_equal(l.name[2], "output 2");
	gp_labels_deinit(&l);
	gp_dataset_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_is_a_label),
		cmocka_unit_test(as_many_labels_as_outputs_are_wanted),
		cmocka_unit_test(a_dataset_lends_its_classes),
	};
	return cmocka_run_group_tests(tests, make_data_dir, remove_data_dir);
}

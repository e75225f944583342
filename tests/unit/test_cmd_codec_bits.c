/* SPDX-License-Identifier: Apache-2.0
 *
 * `gpclient codec compare --bits B`: which codec is named the best, alone and for each direction, and what the tables of
 * the list's chains show.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/cmd_codec_rig.h"

static void the_best_at_a_number_of_bits_is_named(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--json", "--bits", "4.5", "uniform:bits=4",
			     "uniform:bits=8", "block:bits=4,zero=asym", "block:bits=3"),
			 0);
	json_t *o = json_loads(out, 0, NULL);
	assert_true(number(o, "bits") == 4.5);
	assert_string_equal(json_string_value(json_object_get(o, "best_at_bits")),
			    json_string_value(json_object_get(row(o, 0), "codec")));
	assert_string_equal(json_string_value(json_object_get(o, "best")),
			    json_string_value(json_object_get(o, "best_at_bits")));
	assert_non_null(strstr(json_string_value(json_object_get(o, "best")), "zero=asym"));
	assert_true(number(row(o, 0), "rel_err") < number(row(o, 1), "rel_err"));
	assert_string_equal(json_string_value(json_object_get(row(o, 3), "codec")), "uniform:bits=8");
	json_decref(o);
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--json", "--bits", "1", "fp16"), 0);
	o = json_loads(out, 0, NULL);
	assert_true(json_is_null(json_object_get(o, "best")) && json_is_null(json_object_get(o, "best_at_bits")));
	json_decref(o);
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--bits", "1", "fp16"), 0);
	assert_non_null(strstr(out, "None has at most 1 bits per element; the shortest is fp16, 16.001 bits"));
	assert_int_equal(RUN("compare", "--in", INPUTS, "--bits", "33"), 2);
}

/* The 12 bytes of uniform's heads make its 4 bits 4.003, on the other side of the line. */
static void a_line_divides_the_codecs_at_a_number_of_bits(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--bits", "4", "uniform:bits=4",
			     "block:bits=2", "block:budget=3"),
			 0);
	const char *line = strstr(out, "-- with more than 4 bits per element");
	assert_non_null(line);
	assert_true(strstr(out, "\nblock:budget=3 ") < line);
	assert_non_null(strstr(line, "\nuniform:bits=4 "));
	assert_null(strstr(line, "\nblock"));
	assert_non_null(strstr(line, "Best of 2 with at most 4 bits per element: block:budget=3, "));
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--bits", "5", "block:bits=2"), 0);
	assert_null(strstr(out, "-- with more"));
}

/* Programs get every key; in a table the keys of `block` alone would take a line. */
static void tables_show_specs_as_they_were_written(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--link", "100mbit,1ms", "block:budget=3"),
			 0);
	assert_non_null(strstr(out, "\nblock:budget=3 "));
	assert_null(strstr(out, "round=nearest"));
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--json", "block:budget=3"), 0);
	assert_non_null(strstr(out, "round=nearest"));
}

static void one_codec_is_the_best_in_all_tensors_together(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act,grad", "--bits", "5", "--json", "fp16",
			     "uniform:bits=4", "block:bits=4"),
			 0);
	json_t *o = json_loads(out, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(o, "tensors")), 2);
	assert_non_null(strstr(json_string_value(json_object_get(o, "best")), "block"));
	json_decref(o);
	assert_int_equal(
		RUN("compare", "--in", INPUTS, "--tensor", "act,grad", "--bits", "5", "uniform:bits=4", "block:bits=4"),
		0);
	assert_non_null(strstr(out, "with at most 5 bits per element: "));
	assert_non_null(strstr(out, "Best one for all tensors together: block:bits=4"));
}

/* A file as `capture` writes it: values of a few levels go up, small ones of both signs come down. */
static void write_directions(char path[])
{
	static float up[2 * 16 * 16 * 8], down[sizeof up / sizeof up[0]];
	const struct gp_shape shape = {.ndim = 4, .dim = {2, 8, 16, 16}};
	struct gp_err e;
	for (int i = 0; i < 2 * 16 * 16 * 8; i++) {
		up[i] = (float)(i / 64 % 4);
		down[i] = (float)(i * 7919 % 1009 - 504) * (i % 5 ? 1e-4f : 1e-2f);
	}
	const struct gp_st_item item[2] = {{.name = "act_up", .shape = shape, .data = up, .dtype = GP_ST_F32},
					   {.name = "grad_down", .shape = shape, .data = down, .dtype = GP_ST_F32}};
	close(mkstemp(path));
	assert_int_equal(gp_st_write(path, item, 2, NULL, 0, &e), GP_OK);
}

static void each_direction_has_a_best_codec_of_its_own(void **state)
{
	(void)state;
	char path[] = "/tmp/gp_codec_XXXXXX";
	write_directions(path);
	assert_int_equal(
		RUN("compare", "--in", path, "--json", "--bits", "5", "uniform:bits=2", "block:bits=4,size=32"), 0);
	json_t *o = json_loads(out, 0, NULL), *best = json_object_get(o, "best_of");
	assert_int_equal(json_object_size(best), 2);
	assert_string_equal(json_string_value(json_object_get(best, "act_up")), "uniform:bits=2");
	assert_int_equal(strncmp(json_string_value(json_object_get(best, "grad_down")), "block:", 6), 0);
	json_decref(o);
	assert_int_equal(RUN("compare", "--in", path, "--bits", "5", "uniform:bits=2", "block:bits=4,size=32"), 0);
	assert_non_null(
		strstr(out, "    --codec-act-up uniform:bits=2 \\\n    --codec-grad-down block:bits=4,size=32\n"));
	assert_int_equal(RUN("compare", "--in", path, "--bits", "1", "uniform:bits=2"), 0);
	assert_non_null(strstr(out, "In grad_down none that fits has at most 1 bits per element."));
	unlink(path);
}

/* The list's codecs: only the best stand in the text; those that decode to the same are one line. */
static void the_lists_tables_show_the_best(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "hidden", "--bits", "4"), 0);
	const char *above = strstr(out, "-- with more than 4 bits"), *rest = strstr(out, "-- not shown: ");
	assert_true(above && rest && above < rest);
	int lines = 0;
	for (const char *p = out; p < rest; p++)
		lines += *p == '\n';
	assert_int_equal(lines, 2 + 16 + 1 + 4);
	assert_non_null(strstr(rest, "(--json has all)"));
}

/* `uniform:bits=2` is above 2 bits by its head, and decodes to the same as `uniform:bits=2+rans` within them. */
static void the_line_between_stands_whatever_is_left_out(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "hidden", "--bits", "2", "--link", "1mbit,1ms"), 0);
	assert_non_null(strstr(out, "-- with more than 2 bits"));
	const char *link = strstr(out, "A chunk, in a row of many"), *recommended = strstr(out, "Recommended: ");
	char line[GP_CODEC_SPEC_MAX + 2] = "\n";
	assert_true(link && recommended);
	recommended += strlen("Recommended: ");
	strncat(line, recommended, strcspn(recommended, ". "));
	assert_true(strstr(link, line) || strncmp(line, "\nnone", 5) == 0);
	assert_non_null(strstr(link, "-- not shown: "));
}

/* What is measured is measured after all of the file has been looked at. */
static void tensors_that_cannot_be_compared_are_told_before_any_is(void **state)
{
	(void)state;
	static const float x[64];
	static char name[33][8];
	struct gp_st_item item[33];
	char path[] = "/tmp/gp_codec_XXXXXX";
	struct gp_err e;
	for (int i = 0; i < 33; i++) {
		snprintf(name[i], sizeof name[i], "t%d", i);
		item[i] = (struct gp_st_item){
			.name = name[i], .shape = {.ndim = 1, .dim = {64}}, .data = x, .dtype = GP_ST_F32};
	}
	close(mkstemp(path));
	assert_int_equal(gp_st_write(path, item, 33, NULL, 0, &e), GP_OK);
	assert_int_equal(RUN("compare", "--in", path, "--bits", "4"), 2);
	assert_non_null(
		strstr(err, "has 33 tensors of real numbers, and 32 can be compared at once; name some with --tensor"));
	FILE *f = fopen(path, "wb");
	static const char head[] = "{\"act_up\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,2],\"data_offsets\":[0,8]}}";
	const uint64_t len = sizeof head - 1;
	fwrite(&len, sizeof len, 1, f);
	fwrite(head, 1, len, f);
	fwrite(x, sizeof x[0], 2, f);
	fclose(f);
	assert_int_equal(RUN("compare", "--in", path, "--bits", "4"), 3);
	assert_non_null(strstr(err, "tensor 'act_up' has 6 dimensions, and 5 can be read"));
	unlink(path);
}

/* A chain with predict=map has the speeds of the one without, so that chance does not tell them apart; its bytes are its own. */
static void nothing_is_foretold_in_a_tensor_that_is_no_map(void **state)
{
	(void)state;
	static const char *const chain[] = {"uniform:bits=6+rans", "uniform:bits=6+rans:predict=map",
					    "uniform:bits=6+rans:predict=map,tables=channel"};
	double rate[3] = {0}, bytes[3] = {0};
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "hidden", "--json", "--bits", "4"), 0);
	json_t *o = json_loads(out, 0, NULL);
	for (size_t i = 0; i < json_array_size(json_object_get(o, "codecs")); i++)
		for (int k = 0; k < 3; k++)
			if (strcmp(json_string_value(json_object_get(row(o, i), "codec")), chain[k]) == 0) {
				rate[k] = number(row(o, i), "encode_gelem_s");
				bytes[k] = number(row(o, i), "payload_bytes");
			}
	assert_true(rate[0] > 0 && rate[0] == rate[1]);
	json_decref(o);
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "hidden", "--json", chain[0], chain[1], chain[2]),
			 0);
	o = json_loads(out, 0, NULL);
	for (int k = 0; k < 3; k++)
		assert_true(number(row(o, (size_t)k), "payload_bytes") == bytes[k]);
	json_decref(o);
}

/* Where no codec is named. */
static void chains_of_its_own_are_tried_at_a_number_of_bits(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "hidden", "--json", "--bits", "2.5"), 0);
	json_t *o = json_loads(out, 0, NULL);
	assert_true(json_array_size(json_object_get(o, "codecs")) > 250);
	assert_true(json_is_string(json_object_get(o, "best_at_bits")));
	assert_true(number(row(o, 0), "bits_per_element") <= 2.5);
	assert_true(number(row(o, 0), "rel_err") <= number(row(o, 1), "rel_err"));
	json_decref(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_best_at_a_number_of_bits_is_named),
		cmocka_unit_test(a_line_divides_the_codecs_at_a_number_of_bits),
		cmocka_unit_test(tables_show_specs_as_they_were_written),
		cmocka_unit_test(one_codec_is_the_best_in_all_tensors_together),
		cmocka_unit_test(each_direction_has_a_best_codec_of_its_own),
		cmocka_unit_test(the_lists_tables_show_the_best),
		cmocka_unit_test(the_line_between_stands_whatever_is_left_out),
		cmocka_unit_test(tensors_that_cannot_be_compared_are_told_before_any_is),
		cmocka_unit_test(nothing_is_foretold_in_a_tensor_that_is_no_map),
		cmocka_unit_test(chains_of_its_own_are_tried_at_a_number_of_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

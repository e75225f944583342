/* SPDX-License-Identifier: Apache-2.0
 *
 * Ladders (common/codec/codec_ladder.c): which lists of codecs may be changed between; and surveys
 * (common/wire/survey.c), which try all of one on a tensor.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/base/text.h"
#include "common/codec/codec_ladder.h"
#include "common/wire/survey.h"

static void a_list_of_codecs_is_read_in_its_order(void **state)
{
	struct gp_codec_ladder l;
	struct gp_codec_spec spec;
	struct gp_err err;
	char name[GP_CODEC_SPEC_MAX];
	(void)state;
	assert_int_equal(gp_codec_ladder_parse("raw|uniform:bits=6|hadamard:size=64+block:bits=4,size=64", &l, &err),
			 GP_OK);
	assert_int_equal(l.rungs, 3);
	gp_codec_ladder_rung(&l, 1, &spec);
	assert_string_equal(spec.text, "uniform:bits=6");
	assert_int_equal(gp_codec_ladder_find(&l, &spec), 1);
	assert_string_equal(gp_codec_ladder_name(&l, 2, name), "hadamard:size=64+block:bits=4,size=64");
	assert_int_equal(gp_codec_spec_parse("bf16", &spec, &err), GP_OK);
	assert_int_equal(gp_codec_ladder_find(&l, &spec), -1);
}

static void lists_that_cannot_be_are_refused_with_the_reason(void **state)
{
	static const struct {
		const char *text, *part;
	} cases[] = {
		{"", "codec 1"},
		{"raw", "nothing to choose from"},
		{"raw|", "codec 2"},
		{"raw|nothing", "codec 2"},
		{"raw|uniform|uniform:bits=8", "comes twice"},
		{"raw|ef+uniform:bits=4", "ef remembers"},
		{"raw|delta+uniform:bits=4", "delta remembers"},
		{"raw|topk:ratio=0.1+uniform", "topk remembers"},
		{"raw|poweriter:rank=2,iters=1", "poweriter remembers"},
		{"raw|alq:bits=4", "alq remembers"},
	};
	struct gp_codec_ladder l = {.rungs = 7};
	struct gp_err err;
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_int_equal(gp_codec_ladder_parse(cases[i].text, &l, &err), GP_USAGE);
		if (!strstr(err.text, cases[i].part))
			fail_msg("%s: %s", cases[i].text, err.text);
	}
	assert_int_equal(l.rungs, 7); /* untouched */
}

static void a_list_has_its_limits(void **state)
{
	struct gp_codec_ladder l;
	struct gp_err err;
	char text[GP_LADDER_TEXT + 8] = "uniform:bits=1";
	(void)state;
	for (int i = 2; i <= 16; i++)
		gp_text_append(text, sizeof text, "|uniform:bits=%d", i);
	assert_int_equal(gp_codec_ladder_parse(text, &l, &err), GP_OK);
	assert_int_equal(l.rungs, GP_LADDER_RUNGS);
	gp_text_append(text, sizeof text, "|raw");
	assert_int_equal(gp_codec_ladder_parse(text, &l, &err), GP_USAGE);
	memset(text, 'a', GP_LADDER_TEXT);
	assert_int_equal(gp_codec_ladder_parse(text, &l, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "longer than 1023"));
}

static void a_survey_finds_bytes_and_errors_of_every_codec(void **state)
{
	enum { ELEMENTS = 4096 };
	static float x[ELEMENTS];
	struct gp_codec_ladder l;
	struct gp_survey found = {0};
	struct gp_err err;
	uint64_t bytes, ns;
	(void)state;
	for (int i = 0; i < ELEMENTS; i++)
		x[i] = sinf((float)i);
	x[7] = NAN;
	assert_int_equal(gp_codec_ladder_parse("raw|bf16|uniform:bits=4", &l, &err), GP_OK);
	const struct gp_survey_spec spec = {.ladder = &l, .shape = {.ndim = 2, .dim = {4, ELEMENTS / 4}}};
	const struct gp_codec_pass pass = {.step = 12};
	assert_int_equal(gp_survey_estimate(&spec, &bytes, &ns, &err), GP_OK);
	assert_true(bytes >= 2 * sizeof x && ns > 0);
	assert_int_equal(gp_survey_run(&spec, &pass, x, &found, &err), GP_OK);
	assert_true(found.done && found.step == 12);
	assert_true(gp_surveyed_error(&found.rung[0]) == 0 && gp_surveyed_cosine(&found.rung[0]) == 1);
	assert_int_equal(found.rung[0].tensor_bytes, sizeof x);
	x[7] = 0;
	assert_int_equal(gp_survey_run(&spec, &pass, x, &found, &err), GP_OK);
	assert_true(gp_surveyed_error(&found.rung[1]) > 0 && gp_surveyed_error(&found.rung[1]) < 0.004);
	assert_true(gp_surveyed_error(&found.rung[2]) > 0.02 && gp_surveyed_error(&found.rung[2]) < 0.1);
	assert_true(gp_surveyed_cosine(&found.rung[2]) < gp_surveyed_cosine(&found.rung[1]));
	assert_true(found.rung[2].payload_bytes < found.rung[1].payload_bytes);
	struct gp_surveyed sum = found.rung[2];
	gp_surveyed_add(&sum, &found.rung[2]); /* twice the tensor has the same error */
	assert_true(fabs(gp_surveyed_error(&sum) - gp_surveyed_error(&found.rung[2])) < 1e-12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_of_codecs_is_read_in_its_order),
		cmocka_unit_test(lists_that_cannot_be_are_refused_with_the_reason),
		cmocka_unit_test(a_list_has_its_limits),
		cmocka_unit_test(a_survey_finds_bytes_and_errors_of_every_codec),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

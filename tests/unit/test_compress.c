/* SPDX-License-Identifier: Apache-2.0
 *
 * What --compress may say (client/job/compress.h).
 */
#include <string.h>

#include "client/job/compress.h"
#include "tests/unit/ok.h"

static void maps_may_have_any_codec_of_single_elements(void **state)
{
	(void)state;
	static const char *const good[][2] = {{"maps=bf16", "bf16"},
					      {"maps=uniform:bits=8", "uniform:bits=8"},
					      {"maps=smaq:main=6,outlier=8", "smaq:main=6,outlier=8"}};
	struct gp_session_spec s;
	char text[GP_COMPRESS_TEXT];
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		OK(gp_compress_parse(good[i][0], &s, &err));
		assert_string_equal(s.maps.text, good[i][1]);
		assert_string_equal(gp_compress_text(&s, text), good[i][0]);
	}
	OK(gp_compress_parse(NULL, &s, &err));
	assert_int_equal(s.maps.stages, 0);
	assert_string_equal(gp_compress_text(&s, text), "");
}

/* A spec's own commas and = end none; the order is of no account; the text says the same again. */
static void each_structure_has_a_codec_of_its_own(void **state)
{
	(void)state;
	static const char all[] = "maps=uniform:bits=8,grad-maps=smaq:main=6,outlier=8,weights=bf16,weight-grads=fp16,"
				  "state=s2fp8,weights-master=off";
	static const char other[] = "weights-master=off,state=s2fp8,weight-grads=fp16,weights=bf16,grad-maps=smaq,"
				    "maps=uniform:bits=8";
	static const char *const want[GP_STRUCTS] = {"smaq:main=6,outlier=8", "bf16", "fp16", "s2fp8"};
	struct gp_session_spec s;
	char text[GP_COMPRESS_TEXT];
	for (int i = 0; i < 2; i++) {
		OK(gp_compress_parse(i ? other : all, &s, &err));
		assert_string_equal(s.maps.text, "uniform:bits=8");
		for (int k = 0; k < GP_STRUCTS; k++)
			assert_string_equal(s.coded[k].text, want[k]);
		assert_true(s.no_master);
		assert_string_equal(gp_compress_text(&s, text), all);
	}
	OK(gp_compress_parse("maps=bf16,state=smaq:round=stochastic,reach=16", &s, &err));
	assert_string_equal(s.coded[GP_STRUCT_STATE].text, "smaq:main=6,outlier=8,round=stochastic,reach=16");
	OK(gp_compress_parse("weights=bf16,weights-master=on", &s, &err));
	assert_false(s.no_master);
	assert_string_equal(gp_compress_text(&s, text), "weights=bf16");
}

static void what_cannot_be_is_refused_by_name(void **state)
{
	(void)state;
	static const char *const bad[][2] = {{"", "does not begin with maps="},
					     {"bf16", "'bf16' does not begin with maps="},
					     {"map=bf16", "does not begin with maps="},
					     {"maps=", "codec"},
					     {"maps=topk:ratio=0.1", "topk cannot"},
					     {"maps=smaq:round=stochastic", "for state= alone"},
					     {"weights=smaq:round=stochastic", "for state= alone"},
					     {"maps=bf16,maps=fp16", "twice"},
					     {"maps=bf16,state=topk:ratio=0.1", "topk cannot"},
					     {"state=bf16,weights=bf16,state=bf16", "state= is given twice"},
					     {"weights=bf16,weights-master=no", "it may be on or off"},
					     {"weights-master=off,state=bf16", "needs weights="},
					     {"weights=poweriter:rank=2,state=bf16", "poweriter cannot"},
					     {"maps=bf16+zstd", "zstd cannot"},
					     {"maps=nonsense", "nonsense"}};
	struct gp_session_spec s;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_int_equal(gp_compress_parse(bad[i][0], &s, &err), GP_USAGE);
		if (!strstr(err.text, "--compress") || !strstr(err.text, bad[i][1]))
			fail_msg("'%s' does not say '%s'", err.text, bad[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(maps_may_have_any_codec_of_single_elements),
		cmocka_unit_test(each_structure_has_a_codec_of_its_own),
		cmocka_unit_test(what_cannot_be_is_refused_by_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

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
	struct gp_codec_spec spec;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		OK(gp_compress_parse(good[i][0], &spec, &err));
		assert_string_equal(spec.text, good[i][1]);
	}
	OK(gp_compress_parse(NULL, &spec, &err));
	assert_int_equal(spec.stages, 0);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
	(void)state;
	static const char *const bad[][2] = {{"", "does not begin with maps="},
					     {"bf16", "'bf16' does not begin with maps="},
					     {"map=bf16", "does not begin with maps="},
					     {"maps=", "codec"},
					     {"maps=topk:ratio=0.1", "topk cannot"},
					     {"maps=bf16,maps=fp16", "twice"},
					     {"state=bf16", "state cannot be compressed yet"},
					     {"maps=uniform:bits=8,state=bf16", "state cannot be compressed yet"},
					     {"maps=bf16+zstd", "zstd cannot"},
					     {"maps=nonsense", "nonsense"}};
	struct gp_codec_spec spec;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_int_equal(gp_compress_parse(bad[i][0], &spec, &err), GP_USAGE);
		if (!strstr(err.text, "--compress") || !strstr(err.text, bad[i][1]))
			fail_msg("'%s' does not say '%s'", err.text, bad[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(maps_may_have_any_codec_of_single_elements),
		cmocka_unit_test(what_cannot_be_is_refused_by_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

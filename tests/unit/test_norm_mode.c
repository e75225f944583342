/* SPDX-License-Identifier: Apache-2.0
 *
 * --batch-norm (client/job/norm_mode.h): modes and their values, mistakes, the text
 * of a mode, and which runs are told that their chunks are small.
 */
#include <string.h>

#include "client/models/models.h"
#include "client/job/norm_mode.h"
#include "tests/unit/ok.h"

static void every_mode_has_a_text_that_reads_as_itself(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{"chunk", "chunk"},
		{"deferred", "deferred"},
		{"running", "running"},
		{"renorm", "renorm:r=3,d=5,warmup=0"},
		{"renorm:warmup=500", "renorm:r=3,d=5,warmup=500"},
		{"renorm:d=0.1,r=1.1", "renorm:r=1.10000002,d=0.100000001,warmup=0"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_bn_attr mode, again;
		char text[GP_NORM_MODE_TEXT];
		OK(gp_norm_mode_parse(cases[i][0], &mode, &err));
		assert_string_equal(gp_norm_mode_text(&mode, text), cases[i][1]);
		OK(gp_norm_mode_parse(text, &again, &err));
		assert_memory_equal(&mode, &again, sizeof mode);
	}
}

static void mistakes_are_named(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{"runing", "did you mean 'running'"},
		{"", "chunk"},
		{"running:r=3", "r"},
		{"renorm:r=0.5", "r"},
		{"renorm:d=-1", "d"},
		{"renorm:warmup=1.5", "warmup"},
		{"renorm:rmax=3", "rmax"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_bn_attr mode;
		assert_int_equal(gp_norm_mode_parse(cases[i][0], &mode, &err), GP_USAGE);
		assert_non_null(strstr(err.text, "--batch-norm"));
		assert_non_null(strstr(err.text, cases[i][1]));
	}
}

static struct gp_graph *model(const char *spec)
{
	const struct gp_model_options options = {.classes = 10};
	struct gp_graph *g;
	OK(gp_model_build(spec, &options, &g, &err));
	return g;
}

static void small_chunks_matter_where_batch_norm_takes_statistics_from_them(void **state)
{
	(void)state;
	struct gp_graph *g = model("resnet20");
	assert_true(gp_norm_mode_suffers(g, GP_NORM_FEW_SAMPLES - 1));
	assert_false(gp_norm_mode_suffers(g, GP_NORM_FEW_SAMPLES));
	for (int mode = GP_BN_DEFERRED; mode < GP_BN_MODES; mode++) {
		struct gp_bn_attr how = {.mode = mode, .r_max = mode == GP_BN_RENORM};
		assert_true(gp_graph_set_batch_norm(g, &how, &err) > 0);
		assert_false(gp_norm_mode_suffers(g, 1));
	}
	assert_true(gp_graph_set_batch_norm(g, &(struct gp_bn_attr){.mode = GP_BN_CHUNK}, &err) > 0);
	assert_true(gp_graph_freeze(g, "*") > 0);
	assert_false(gp_norm_mode_suffers(g, 1));
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_mode_has_a_text_that_reads_as_itself),
		cmocka_unit_test(mistakes_are_named),
		cmocka_unit_test(small_chunks_matter_where_batch_norm_takes_statistics_from_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

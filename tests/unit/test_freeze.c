/* SPDX-License-Identifier: Apache-2.0
 *
 * --freeze (client/job/freeze.h): patterns, parts, and what fits nothing; and
 * --no-decay (client/job/no_decay.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/job/freeze.h"
#include "client/models/models.h"
#include "client/job/no_decay.h"

static struct gp_graph *model(void)
{
	struct gp_err err;
	struct gp_graph *g;
	const struct gp_model_options o = {.classes = 10, .input = {.ndim = 3, .dim = {32, 32, 3}}};
	if (gp_model_build("mobilenetv2:stem=cifar,width=0.5", &o, &g, &err) != GP_OK)
		fail_msg("%s", err.text);
	return g;
}

static bool is_trained(const struct gp_graph *g, const char *name)
{
	const int i = gp_graph_find_param(g, name);
	assert_true(i >= 0);
	return g->param[i].trained;
}

static const struct gp_cut cut = {1, 18};

static void patterns_and_parts_freeze_what_they_name(void **state)
{
	(void)state;
	struct gp_err err;
	int frozen = 0;
	struct gp_graph *g = model();
	if (gp_freeze(g, &cut, "head,classifier.*,features.1.conv.0.0.weight", &frozen, &err) != GP_OK)
		fail_msg("%s", err.text);
	assert_int_equal(frozen, 3 + 2 + 1); /* a convolution and a batch norm; a linear layer; a convolution */
	assert_false(is_trained(g, "features.0.0.weight"));
	assert_false(is_trained(g, "features.0.1.bias"));
	assert_false(is_trained(g, "classifier.1.weight"));
	assert_false(is_trained(g, "features.1.conv.0.0.weight"));
	assert_true(is_trained(g, "features.1.conv.0.1.weight"));
	assert_true(is_trained(g, "features.2.conv.0.0.weight"));
	gp_graph_free(g);
}

static void expect_refused(const char *list, const char *words)
{
	struct gp_err err;
	int frozen = -7;
	struct gp_graph *g = model();
	assert_int_equal(gp_freeze(g, &cut, list, &frozen, &err), GP_USAGE);
	assert_int_equal(frozen, -7);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
	gp_graph_free(g);
}

static void what_fits_nothing_or_leaves_nothing_is_refused(void **state)
{
	(void)state;
	char long_name[300];
	memset(long_name, 'x', sizeof long_name - 1);
	long_name[sizeof long_name - 1] = '\0';
	expect_refused("classifer.1.weight", "did you mean classifier.1.weight");
	expect_refused("*running*", "'*running*' names nothing but running statistics");
	expect_refused("nonsense.*", "no parameter of mobilenetv2 is named 'nonsense.*'");
	expect_refused("", "0 characters");
	expect_refused("head,,tail", "0 characters");
	expect_refused(long_name, "299 characters");
	expect_refused("head,body,tail", "leaves no parameter");
	expect_refused("*", "leaves no parameter");
}

static void no_decay_takes_it_from_what_it_names(void **state)
{
	(void)state;
	struct gp_err err;
	int frozen, without = 0;
	struct gp_graph *g = model();
	if (gp_freeze(g, &cut, "classifier.*", &frozen, &err) != GP_OK ||
	    gp_no_decay(g, "*.bias,features.0.1.weight", &without, &err) != GP_OK)
		fail_msg("%s", err.text);
	int biases = 0;
	for (int i = 0; i < g->params; i++) {
		const struct gp_param *p = &g->param[i];
		const bool named = p->role == GP_PARAM_BIAS || strcmp(p->name, "features.0.1.weight") == 0;
		biases += p->trained && p->role == GP_PARAM_BIAS;
		if (p->trained)
			assert_true(p->decay != named);
	}
	assert_int_equal(without, biases + 1);
	gp_graph_free(g);
}

static void no_decay_of_nothing_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *list, *words;
	} cases[] = {{"features.0.1.wieght", "did you mean features.0.1.weight"},
		     {"*.bias,*LayerNorm*", "no parameter of mobilenetv2 is named '*LayerNorm*'"},
		     {"", "0 characters"}};
	struct gp_graph *g = model();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_err err;
		int without = -7;
		assert_int_equal(gp_no_decay(g, cases[i].list, &without, &err), GP_USAGE);
		assert_int_equal(without, -7);
		if (!strstr(err.text, cases[i].words))
			fail_msg("'%s' does not mention '%s'", err.text, cases[i].words);
	}
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns_and_parts_freeze_what_they_name),
		cmocka_unit_test(what_fits_nothing_or_leaves_nothing_is_refused),
		cmocka_unit_test(no_decay_takes_it_from_what_it_names),
		cmocka_unit_test(no_decay_of_nothing_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

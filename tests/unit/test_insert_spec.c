/* SPDX-License-Identifier: Apache-2.0
 *
 * What --insert says.
 */
#include <string.h>

#include "client/insert/insert_spec.h"
#include "tests/unit/ok.h"

static struct gp_insert_spec parsed(const char *text, enum gp_insert_end end)
{
	struct gp_insert_spec s;
	OK(gp_insert_spec_parse(text, "insert", end, &s, &err));
	return s;
}

static void texts_come_back_settled(void **state)
{
	(void)state;
	static const char *const both[][2] = {
		{"none", "none"},
		{"conv:out=20,k=3,s=3", "conv:out=20,k=3,s=3"},
		{"conv:s=3,k=3,out=20,bn=0,act=none,bias=yes,p=0", "conv:out=20,k=3,s=3"},
		{"conv:out=32,k=8,s=8,bn=1,act=relu6/conv:out=8,k=1,s=1,bias=0",
		 "conv:out=32,k=8,s=8,bn=1,act=relu6/conv:out=8,k=1,s=1,bias=0"},
		{"conv:out=1,k=3,s=2,p=1,act=relu", "conv:out=1,k=3,s=2,p=1,act=relu"},
		{"conv:out=5,k=3,s=3,start=pca,bias=0,p=0/conv:start=pca,out=4,k=1,s=1,act=none,bn=0",
		 "conv:out=5,k=3,s=3,bias=0,start=pca/conv:out=4,k=1,s=1,start=pca"},
		{"conv:out=5,k=3,s=2,start=random", "conv:out=5,k=3,s=2"},
		{"linear:rank=300,dim=feature", "linear:rank=300,dim=feature"},
		{"linear:rank=300,dim=feature,start=pca/linear:rank=9,dim=sequence,start=identity",
		 "linear:rank=300,dim=feature,start=pca/linear:rank=9,dim=sequence,start=identity"},
		{"bottleneck:dim=8", "bottleneck:dim=8,hidden=32,act=gelu,start=identity"},
		{"bottleneck:start=random,act=relu6,hidden=5,dim=65536/bottleneck:dim=3,start=pca,act=relu",
		 "bottleneck:dim=65536,hidden=5,act=relu6,start=random/bottleneck:dim=3,hidden=12,act=relu,start=pca"},
		{"bottleneck:dim=20000", "bottleneck:dim=20000,hidden=65536,act=gelu,start=identity"},
	};
	for (size_t i = 0; i < sizeof both / sizeof both[0]; i++) {
		char text[GP_INSERT_TEXT];
		const struct gp_insert_spec s = parsed(both[i][0], GP_INSERT_UP);
		assert_string_equal(gp_insert_spec_text(&s, text), both[i][1]);
	}
}

static void a_preset_has_a_text_for_each_end(void **state)
{
	(void)state;
	char text[GP_INSERT_TEXT];
	const struct gp_insert_spec up = parsed("origin-4", GP_INSERT_UP), down = parsed("origin-4", GP_INSERT_DOWN);
	assert_string_equal(gp_insert_spec_text(&up, text), "conv:out=32,k=4,s=4/conv:out=16,k=1,s=1");
	assert_string_equal(gp_insert_spec_text(&down, text), "conv:out=400,k=1,s=1/conv:out=180,k=1,s=1");
}

static void presets_are_read(void **state)
{
	(void)state;
	const char *name, *spec[GP_INSERT_ENDS];
	char text[2][GP_INSERT_TEXT];
	int count = 0;
	for (; gp_insert_preset(count, &name, spec); count++)
		for (int e = 0; e < GP_INSERT_ENDS; e++) {
			const struct gp_insert_spec a = parsed(name, (enum gp_insert_end)e),
						    b = parsed(spec[e], (enum gp_insert_end)e);
			assert_true(a.sets > 0);
			assert_string_equal(gp_insert_spec_text(&a, text[0]), gp_insert_spec_text(&b, text[1]));
		}
	assert_int_equal(count, 11);
}

/* Whether the weights of one mean the same in the other; ranks show in shapes. */
static void what_computes_the_same_is_alike(void **state)
{
	(void)state;
	static const char *const alike[][2] = {
		{"conv:out=4,k=3,s=3", "conv:out=4,k=3,s=3,start=pca"},
		{"linear:rank=3,dim=sequence", "linear:rank=5,dim=sequence,start=identity"},
		{"decay:rate=0.5,every=1,times=1,dim=feature", "linear:rank=5,dim=feature"},
		{"bottleneck:dim=4", "bottleneck:dim=4,start=pca"},
		{"none", "none"},
	};
	static const char *const others[][2] = {
		{"conv:out=4,k=3,s=3", "conv:out=4,k=3,s=2"},
		{"conv:out=4,k=3,s=3", "conv:out=4,k=3,s=3,p=1"},
		{"conv:out=4,k=3,s=3", "conv:out=4,k=3,s=3,bn=1"},
		{"conv:out=4,k=3,s=3", "conv:out=4,k=3,s=3,act=relu"},
		{"conv:out=4,k=3,s=3", "conv:out=4,k=3,s=3,bias=0"},
		{"conv:out=4,k=1,s=1", "linear:rank=4,dim=feature"},
		{"linear:rank=3,dim=sequence", "linear:rank=3,dim=feature"},
		{"linear:rank=3,dim=feature", "bottleneck:dim=3"},
		{"bottleneck:dim=4", "bottleneck:dim=4,act=relu"},
		{"conv:out=4,k=1,s=1", "conv:out=4,k=1,s=1/conv:out=4,k=1,s=1"},
		{"none", "linear:rank=3,dim=feature"},
	};
	for (size_t i = 0; i < sizeof alike / sizeof alike[0]; i++) {
		const struct gp_insert_spec a = parsed(alike[i][0], GP_INSERT_UP),
					    b = parsed(alike[i][1], GP_INSERT_UP);
		assert_true(gp_insert_specs_alike(&a, &b) && gp_insert_specs_alike(&b, &a));
	}
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		const struct gp_insert_spec a = parsed(others[i][0], GP_INSERT_UP),
					    b = parsed(others[i][1], GP_INSERT_UP);
		assert_false(gp_insert_specs_alike(&a, &b) || gp_insert_specs_alike(&b, &a));
	}
}

/* The most sets with the longest numbers and words. */
static void the_longest_text_fits(void **state)
{
	(void)state;
	static const char one[] = "conv:out=65536,k=256,s=256,p=255,bn=1,act=relu6,bias=0";
	char text[GP_INSERT_TEXT], all[GP_INSERT_TEXT];
	snprintf(all, sizeof all, "%s/%s/%s/%s", one, one, one, one);
	const struct gp_insert_spec s = parsed(all, GP_INSERT_UP);
	assert_string_equal(gp_insert_spec_text(&s, text), all);
	static const char other[] = "linear:rank=65536,dim=sequence,start=identity";
	snprintf(all, sizeof all, "%s/%s/%s/%s", other, other, other, other);
	const struct gp_insert_spec t = parsed(all, GP_INSERT_UP);
	assert_string_equal(gp_insert_spec_text(&t, text), all);
	static const char third[] =
		"decay:rate=1.2345678901234568e-300,every=1000000000,times=64,l1=1.2345678e-38,dim=";
	snprintf(all, sizeof all, "%s/%s/%sfeature/%ssequence", other, other, third, third);
	const struct gp_insert_spec u = parsed(all, GP_INSERT_UP);
	assert_string_equal(gp_insert_spec_text(&u, text), all);
	static const char fourth[] = "bottleneck:dim=65536,hidden=65536,act=relu6,start=identity";
	snprintf(all, sizeof all, "%s/%s/%s/%s", fourth, fourth, fourth, fourth);
	const struct gp_insert_spec v = parsed(all, GP_INSERT_UP);
	assert_string_equal(gp_insert_spec_text(&v, text), all);
}

static void mistakes_are_named(void **state)
{
	(void)state;
	static const char *const bad[][2] = {
		{"", "no insertion is named ''"},
		{"origin-8", "did you mean 'origin-"},
		{"convs", "did you mean 'conv'"},
		{"conv", "out= is missing"},
		{"conv:out=3,k=2", "s= is missing"},
		{"conv:out=0,k=1,s=1", "out: 0 is out of range"},
		{"conv:out=3,k=1,s=1,rank=2", "no key 'rank'"},
		{"conv:out=3,k=2,s=1,p=2", "p=2 must be below k=2"},
		{"conv:out=3,k=1,s=1,act=tanh", "none|relu|relu6"},
		{"conv:out=3,k=1,s=1,start=identity", "random|pca"},
		{"conv:out=3,k=3,s=2,start=pca", "conv: start=pca is for patches side by side"},
		{"conv:out=3,k=2,s=3,start=pca", "it needs s=k, p=0, bn=0 and act=none"},
		{"conv:out=3,k=2,s=2,p=1,start=pca", "it needs s=k, p=0, bn=0 and act=none"},
		{"conv:out=3,k=2,s=2,bn=1,start=pca", "it needs s=k, p=0, bn=0 and act=none"},
		{"conv:out=3,k=2,s=2,act=relu,start=pca", "it needs s=k, p=0, bn=0 and act=none"},
		{"conv:out=3,k=1,s=1/", "the name of an insertion is missing"},
		{"/conv:out=3,k=1,s=1", "the name of an insertion is missing"},
		{"decay:rate=0.5,every=1,times=1,dim=feature/linear:rank=3,dim=feature",
		 "no set along the same dimension can stand behind a decay"},
		{"decay:rate=0.5,every=1,times=1,dim=sequence/decay:rate=0.5,every=1,times=1,dim=sequence",
		 "put decay last, or give the other one dim=feature"},
		{"linear:dim=feature", "rank= is missing (keys: rank=R,dim=feature|sequence"},
		{"linear:rank=3,dims=feature", "no key 'dims'; did you mean 'dim'?"},
		{"linear:rank=3,dim=rows", "feature|sequence"},
		{"linear:rank=3,dim=feature,start=zero", "random|identity|pca"},
		{"linear:rank=-3,dim=feature", "rank: -3 is out of range"},
		{"bottleneck", "dim= is missing (keys: dim=D,hidden=4*D"},
		{"bottlenek:dim=3", "did you mean 'bottleneck'"},
		{"bottleneck:dims=8", "no key 'dims'; did you mean 'dim'? (keys: dim=D,hidden=4*D"},
		{"bottleneck:hidden=8", "dim= is missing"},
		{"bottleneck:rank=8", "no key 'rank', and dim= is missing (keys: dim=D,hidden=4*D"},
		{"linear:rnak=3,dim=feature", "no key 'rnak'; did you mean 'rank'?"},
		{"decay:rates=0.5,every=1,times=1,dim=feature", "no key 'rates'; did you mean 'rate'?"},
		{"bottleneck:dim=0", "dim: 0 is out of range"},
		{"bottleneck:dim=feature", "dim: 'feature' is not"},
		{"bottleneck:dim=3,hidden=0", "hidden: 0 is out of range"},
		{"bottleneck:dim=3,act=none", "gelu|relu|relu6"},
		{"conv:out=3,k=1,s=1,act=gelu", "none|relu|relu6"},
		{"bottleneck:dim=3,start=zero", "random|identity|pca"},
		{"bottleneck:dim=3/decay:rate=0.5,every=1,times=1,dim=sequence",
		 "bottleneck and decay do not go together"},
		{"decay:rate=0.5,every=1,times=1,dim=feature/bottleneck:dim=3",
		 "bottleneck and decay do not go together"},
		{"flop-2:k=1", "flop-2 takes no keys"},
		{":k=3", "the name of an insertion is missing"},
		{"origin-0/conv:out=1,k=1,s=1", "origin-0 takes no keys and no other sets"},
		{"conv:out=1,k=1,s=1/none", "none takes no keys and no other sets"},
		{"conv:out=1,k=1,s=1/conv:out=1,k=1,s=1/conv:out=1,k=1,s=1/conv:out=1,k=1,s=1/conv:out=1,k=1,s=1",
		 "more than 4 sets"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct gp_insert_spec s = {.sets = 77};
		assert_int_equal(gp_insert_spec_parse(bad[i][0], "insert-up", GP_INSERT_UP, &s, &err), GP_USAGE);
		if (!strstr(err.text, bad[i][1]) || !strstr(err.text, "--insert-up"))
			fail_msg("'%s': %s", bad[i][0], err.text);
		assert_int_equal(s.sets, 77);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_come_back_settled),
		cmocka_unit_test(a_preset_has_a_text_for_each_end),
		cmocka_unit_test(presets_are_read),
		cmocka_unit_test(the_longest_text_fits),
		cmocka_unit_test(what_computes_the_same_is_alike),
		cmocka_unit_test(mistakes_are_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

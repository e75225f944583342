/* SPDX-License-Identifier: Apache-2.0
 *
 * NAME[:ARG][,]key=value,... (common/base/spec.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "common/base/spec.h"

struct picture {
	char dir[64];
	int64_t limit;
	double noise;
	bool flip;
	int stem;
};

static enum gp_status read_keys(struct gp_spec *s, struct picture *p, struct gp_err *err)
{
	GP_TRY(gp_spec_int(s, "limit", 1, 1000, &p->limit, err));
	GP_TRY(gp_spec_real(s, "noise", 0, 8, &p->noise, err));
	GP_TRY(gp_spec_bool(s, "flip", &p->flip, err));
	GP_TRY(gp_spec_choice(s, "stem", "imagenet|cifar", &p->stem, err));
	return gp_spec_done(s, err);
}

static enum gp_status read_spec(const char *text, enum gp_spec_arg arg, struct picture *p, struct gp_err *err)
{
	struct gp_spec s;
	*p = (struct picture){.limit = 7, .noise = 0.5, .stem = 1};
	gp_spec_begin(&s, gp_text_of(text));
	assert_true(gp_text_is(s.name, "pics"));
	GP_TRY(gp_spec_pairs(&s, "dataset pics", arg, "limit=N,noise=0.5", err));
	assert_true(gp_text_copy(s.arg, p->dir, sizeof p->dir));
	return read_keys(&s, p, err);
}

static void assert_read(const char *text, enum gp_spec_arg arg, const char *dir, int64_t limit)
{
	struct gp_err err = {0};
	struct picture p;
	if (read_spec(text, arg, &p, &err) != GP_OK)
		fail_msg("%s: %s", text, err.text);
	assert_string_equal(p.dir, dir);
	assert_int_equal(p.limit, limit);
}

static void assert_refused(const char *text, enum gp_spec_arg arg, const char *wanted)
{
	struct gp_err err = {0};
	struct picture p;
	assert_int_equal(read_spec(text, arg, &p, &err), GP_USAGE);
	assert_string_equal(err.text, wanted);
}

static void keys_follow_a_colon_or_a_comma(void **state)
{
	(void)state;
	for (enum gp_spec_arg arg = GP_SPEC_NO_ARG; arg <= GP_SPEC_ARG_OPTIONAL; arg++) {
		assert_read("pics", arg, "", 7);
		assert_read("pics:limit=9", arg, "", 9);
		assert_read("pics,limit=9", arg, "", 9);
		assert_read("pics:limit=9,flip=1", arg, "", 9);
		assert_read("pics,flip=1,limit=9", arg, "", 9);
	}
}

static void an_argument_stands_behind_the_colon(void **state)
{
	(void)state;
	assert_read("pics:here", GP_SPEC_ARG_OPTIONAL, "here", 7);
	assert_read("pics:here,limit=9", GP_SPEC_ARG_OPTIONAL, "here", 9);
	assert_read("pics:a=b/c", GP_SPEC_ARG_OPTIONAL, "a=b/c", 7);
	assert_read("pics:,limit=9", GP_SPEC_ARG_OPTIONAL, "", 9);
	assert_read("pics:limit=9", GP_SPEC_ARG_NEEDED, "limit=9", 7);
	assert_read("pics:C:dir:x,limit=9", GP_SPEC_ARG_NEEDED, "C:dir:x", 9);
	assert_read("pics,limit=9", GP_SPEC_ARG_NEEDED, "", 9);
}

static void values_are_read_by_type(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct picture p;
	assert_int_equal(read_spec("pics:noise=1e-3,flip=on,stem=imagenet", GP_SPEC_NO_ARG, &p, &err), GP_OK);
	assert_true(p.noise == 1e-3 && p.flip && p.stem == 0 && p.limit == 7);
}

static void refusals_say_where_what_and_what_to_do(void **state)
{
	(void)state;
	assert_refused("pics:x", GP_SPEC_NO_ARG, "dataset pics: 'x' is not key=value (keys: limit=N,noise=0.5)");
	assert_refused("pics:", GP_SPEC_NO_ARG, "dataset pics: '' is not key=value (keys: limit=N,noise=0.5)");
	assert_refused("pics:limit=1,", GP_SPEC_NO_ARG, "dataset pics: '' is not key=value (keys: limit=N,noise=0.5)");
	assert_refused("pics,=1", GP_SPEC_NO_ARG, "dataset pics: '=1' is not key=value (keys: limit=N,noise=0.5)");
	assert_refused("pics,here", GP_SPEC_ARG_OPTIONAL,
		       "dataset pics: 'here' is not key=value (keys: limit=N,noise=0.5)");
	assert_refused("pics:limit=0", GP_SPEC_NO_ARG, "dataset pics: limit: 0 is out of range (1..1000)");
	assert_refused("pics:limit=", GP_SPEC_NO_ARG, "dataset pics: limit: '' is not a whole number (1..1000)");
	assert_refused("pics:stem=tiny", GP_SPEC_NO_ARG, "dataset pics: stem: 'tiny' is not one of imagenet|cifar");
	assert_refused("pics:limit=1,flip=1,limit=2", GP_SPEC_NO_ARG, "dataset pics: key 'limit' is given twice");
	assert_refused("pics:limti=1", GP_SPEC_NO_ARG,
		       "dataset pics: no key 'limti'; did you mean 'limit'? (keys: limit=N,noise=0.5)");
	assert_refused("pics:zz\n=1", GP_SPEC_NO_ARG, "dataset pics: no key 'zz?' (keys: limit=N,noise=0.5)");
}

static void only_so_many_keys_are_read(void **state)
{
	(void)state;
	char text[200] = "pics:k0=1";
	for (int i = 1; i <= GP_SPEC_PAIRS; i++)
		gp_text_append(text, sizeof text, ",k%d=1", i);
	assert_refused(text, GP_SPEC_NO_ARG, "dataset pics: more than 16 keys are given");
}

static void a_name_without_keys_says_so(void **state)
{
	(void)state;
	struct gp_spec s;
	struct gp_err err = {0};
	gp_spec_begin(&s, gp_text_of("raw:level=1"));
	assert_int_equal(gp_spec_pairs(&s, "codec raw", GP_SPEC_NO_ARG, "", &err), GP_OK);
	assert_int_equal(gp_spec_done(&s, &err), GP_USAGE);
	assert_string_equal(err.text, "codec raw: no key 'level'; it has no keys");
}

static void unknown_names_come_with_the_known_ones(void **state)
{
	(void)state;
	static const char *const names[] = {"cnn", "vgg13"};
	struct gp_spec s;
	struct gp_err err = {0};
	gp_spec_begin(&s, gp_text_of("cnnn:width=3"));
	assert_int_equal(gp_spec_unknown(&s, "model", names, 2, &err), GP_USAGE);
	assert_string_equal(err.text, "no model is named 'cnnn'; did you mean 'cnn'? There are: cnn, vgg13");
	gp_spec_begin(&s, gp_text_of(""));
	assert_int_equal(gp_spec_unknown(&s, "model", names, 2, &err), GP_USAGE);
	assert_string_equal(err.text, "no model is named ''; there are: cnn, vgg13");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_follow_a_colon_or_a_comma),
		cmocka_unit_test(an_argument_stands_behind_the_colon),
		cmocka_unit_test(values_are_read_by_type),
		cmocka_unit_test(refusals_say_where_what_and_what_to_do),
		cmocka_unit_test(only_so_many_keys_are_read),
		cmocka_unit_test(a_name_without_keys_says_so),
		cmocka_unit_test(unknown_names_come_with_the_known_ones),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

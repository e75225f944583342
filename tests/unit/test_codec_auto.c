/* SPDX-License-Identifier: Apache-2.0
 *
 * What --codec auto asks for, as text (client/codecs/codec_auto.h). How it then chooses: test_codec_decide.c; with the
 * real commands: tests/e2e/codec_auto.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "client/codecs/codec_auto.h"

static struct gp_codec_auto parse(const char *text)
{
	struct gp_codec_auto a;
	struct gp_err err = {0};
	if (gp_codec_auto_parse(text, &a, &err) != GP_OK)
		fail_msg("%s: %s", text, err.text);
	return a;
}

static void expect_refused(const char *text, const char *why)
{
	struct gp_codec_auto a = {.every = 77};
	struct gp_err err = {0};
	assert_int_equal(gp_codec_auto_parse(text, &a, &err), GP_USAGE);
	if (!strstr(err.text, why))
		fail_msg("%s: '%s' and not '%s'", text, err.text, why);
	assert_int_equal(a.every, 77);
}

static void other_codecs_are_not_auto(void **state)
{
	(void)state;
	assert_true(gp_codec_auto_is("auto"));
	assert_true(gp_codec_auto_is("auto:every=3"));
	assert_false(gp_codec_auto_is("autobahn"));
	assert_false(gp_codec_auto_is("raw"));
	assert_false(gp_codec_auto_is(""));
}

/* The first rung that needs no more than nine bits: raw and bf16 need more. */
static void without_keys_it_begins_with_about_eight_bits(void **state)
{
	(void)state;
	const struct gp_codec_auto a = parse("auto");
	struct gp_codec_spec first;
	assert_true(a.on);
	assert_true(a.budget == 0);
	assert_int_equal(a.every, 10);
	assert_int_equal(a.scripted, 0);
	assert_int_equal(a.ladder.rungs, 7);
	gp_codec_ladder_rung(&a.ladder, a.first, &first);
	assert_non_null(strstr(first.text, "block:bits=8"));
}

static void a_ladder_without_few_bits_begins_at_its_last_rung(void **state)
{
	(void)state;
	assert_int_equal(parse("auto:ladder=raw|bf16").first, 1);
	assert_int_equal(parse("auto:ladder=uniform:bits=8|uniform:bits=4").first, 0);
}

static void keys_are_read_in_any_order_and_the_ladder_last(void **state)
{
	(void)state;
	const struct gp_codec_auto a = parse("auto:every=25,budget=0.02,ladder=raw|sortquant:bits=6,split=2");
	struct gp_codec_spec last;
	assert_true(a.budget == 0.02);
	assert_int_equal(a.every, 25);
	assert_int_equal(a.ladder.rungs, 2);
	gp_codec_ladder_rung(&a.ladder, 1, &last);
	assert_non_null(strstr(last.text, "split=2")); /* its comma is none between keys */
}

/* A run goes on where its text is the same, however the user wrote it. */
static void the_text_says_all_and_reads_as_the_same(void **state)
{
	(void)state;
	const struct gp_codec_auto a = parse("auto:script=0@1/40@0,budget=0.050,ladder=raw|fp16"), b = parse(a.text);
	assert_string_equal(a.text, b.text);
	assert_non_null(strstr(a.text, "budget=0.05,every=10,script=0@1/40@0,ladder="));
	assert_memory_equal(&a, &b, sizeof a);
}

static void a_script_says_the_rung_of_every_step(void **state)
{
	(void)state;
	const struct gp_codec_auto a = parse("auto:script=3@2/5@0/100@1,ladder=raw|bf16|uniform:bits=8");
	assert_int_equal(a.scripted, 3);
	assert_int_equal(a.first, 2);
	assert_int_equal(gp_codec_auto_scripted(&a, 0), 2);
	assert_int_equal(gp_codec_auto_scripted(&a, 3), 2);
	assert_int_equal(gp_codec_auto_scripted(&a, 4), 2);
	assert_int_equal(gp_codec_auto_scripted(&a, 5), 0);
	assert_int_equal(gp_codec_auto_scripted(&a, 99), 0);
	assert_int_equal(gp_codec_auto_scripted(&a, UINT64_MAX), 1);
}

static void what_cannot_be_is_refused_with_a_reason(void **state)
{
	(void)state;
	char many[GP_AUTO_SCRIPT * 8 + 32] = "auto:script=0@0";
	expect_refused("auto:budget", "'budget' is not KEY=VALUE");
	expect_refused("auto:speed=3", "there is no key 'speed'");
	expect_refused("auto:budget=2", "auto: budget:");
	expect_refused("auto:budget=nan", "auto: budget:");
	expect_refused("auto:every=0", "auto: every:");
	expect_refused("auto:every=1.5", "auto: every:");
	expect_refused("auto:script=5", "is not STEP@CODEC");
	expect_refused("auto:script=5@0/5@1", "does not come behind the change before it");
	expect_refused("auto:script=0@7", "there is no codec 7 among the 7 of the ladder");
	expect_refused("auto:script=-1@0", "auto: script:");
	expect_refused("auto:ladder=", "auto: ladder");
	expect_refused("auto:ladder=raw|nothing", "auto: ladder");
	for (int i = 1; i <= GP_AUTO_SCRIPT; i++)
		snprintf(many + strlen(many), sizeof many - strlen(many), "/%d@0", i);
	expect_refused(many, "one change more than there may be");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_codecs_are_not_auto),
		cmocka_unit_test(without_keys_it_begins_with_about_eight_bits),
		cmocka_unit_test(a_ladder_without_few_bits_begins_at_its_last_rung),
		cmocka_unit_test(keys_are_read_in_any_order_and_the_ladder_last),
		cmocka_unit_test(the_text_says_all_and_reads_as_the_same),
		cmocka_unit_test(a_script_says_the_rung_of_every_step),
		cmocka_unit_test(what_cannot_be_is_refused_with_a_reason),
	};
	return cmocka_run_group_tests_name("codec_auto", tests, NULL, NULL);
}

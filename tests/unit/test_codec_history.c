/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal of codecs of a run (client/codecs/codec_history.h), in memory and as the file that a run goes on from. With
 * killed processes: tests/e2e/codec_auto.sh.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/codecs/codec_history.h"
#include "common/base/durable.h"
#include "common/base/fault.h"

#define HEAD "gpsplit codecs 1 010203ff\n"

static char folder[] = "/tmp/test_codec_history.XXXXXX", path[64];
static const uint8_t run_id[16] = {1, 2, 3, 255};

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/codecs", folder);
	return 0;
}

static int remove_folder(void **state)
{
	struct gp_err ignored;
	(void)state;
	return gp_remove_folder(folder, &ignored) == GP_OK ? 0 : -1;
}

/* Three rungs up, none for gradients that go up, two down. */
static struct gp_codec_history_spec spec_of(bool resumes)
{
	return (struct gp_codec_history_spec){
		.dir = folder, .run_id = run_id, .resumes = resumes, .rungs = {3, 2, 0, 2}, .first = {2, 1, 0, 0}};
}

static struct gp_codec_history *open_history(const struct gp_codec_history_spec *spec)
{
	struct gp_codec_history *h = NULL;
	struct gp_err err = {0};
	if (gp_codec_history_new(spec, &h, &err) != GP_OK)
		fail_msg("%s", err.text);
	return h;
}

static void assert_at(const struct gp_codec_history *h, uint64_t steps, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	uint32_t rung[GP_DIRECTIONS];
	const uint32_t want[GP_DIRECTIONS] = {a, b, c, d};
	gp_codec_history_at(h, steps, rung);
	assert_memory_equal(rung, want, sizeof rung);
}

static enum gp_status add(struct gp_codec_history *h, uint64_t steps, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	struct gp_err err;
	const uint32_t rung[GP_DIRECTIONS] = {a, b, c, d};
	return gp_codec_history_add(h, steps, rung, &err);
}

static void write_text(const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fputs(text, f) >= 0, 1);
	fclose(f);
}

static void assert_text(const char *text)
{
	char got[512] = "";
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	const size_t n = fread(got, 1, sizeof got - 1, f);
	fclose(f);
	assert_int_equal(n, strlen(text));
	assert_string_equal(got, text);
}

static void without_a_folder_it_knows_every_change(void **state)
{
	(void)state;
	struct gp_codec_history_spec spec = spec_of(false);
	spec.dir = NULL;
	struct gp_codec_history *h = open_history(&spec);
	assert_at(h, 0, 2, 1, 0, 0);
	for (uint64_t step = 10; step < 1000; step += 10) /* more than it has room for at first */
		assert_int_equal(add(h, step, (uint32_t)(step / 10 % 3), 0, 0, 1), GP_OK);
	assert_int_equal(gp_codec_history_newest(h), 990);
	assert_at(h, 9, 2, 1, 0, 0);
	assert_at(h, 10, 1, 0, 0, 1);
	assert_at(h, 19, 1, 0, 0, 1);
	assert_at(h, 500, 2, 0, 0, 1);
	assert_at(h, UINT64_MAX, 0, 0, 0, 1);
	gp_codec_history_free(h);
	gp_codec_history_free(NULL);
}

static void a_run_goes_on_with_what_the_file_says(void **state)
{
	(void)state;
	const struct gp_codec_history_spec begins = spec_of(false), goes_on = spec_of(true);
	struct gp_codec_history *h = open_history(&begins);
	assert_int_equal(add(h, 7, 0, 1, 0, 1), GP_OK);
	gp_codec_history_free(h);
	assert_text(HEAD "0 2 1 0 0\n7 0 1 0 1\n");
	h = open_history(&goes_on);
	assert_at(h, 6, 2, 1, 0, 0);
	assert_at(h, 7, 0, 1, 0, 1);
	assert_int_equal(add(h, 9, 1, 1, 0, 1), GP_OK);
	gp_codec_history_free(h);
	assert_text(HEAD "0 2 1 0 0\n7 0 1 0 1\n9 1 1 0 1\n");
	h = open_history(&begins); /* another run in the same folder */
	gp_codec_history_free(h);
	assert_text(HEAD "0 2 1 0 0\n");
}

/* Nothing has followed from it: it is written over. */
static void a_line_that_was_being_written_does_not_count(void **state)
{
	(void)state;
	const struct gp_codec_history_spec goes_on = spec_of(true);
	write_text(HEAD "0 2 1 0 0\n7 0 1 0 1\n9 1 1");
	struct gp_codec_history *h = open_history(&goes_on);
	assert_int_equal(gp_codec_history_newest(h), 7);
	assert_int_equal(add(h, 8, 1, 0, 0, 0), GP_OK);
	gp_codec_history_free(h);
	assert_text(HEAD "0 2 1 0 0\n7 0 1 0 1\n8 1 0 0 0\n");
}

static void expect_refused(const char *text, const char *why)
{
	const struct gp_codec_history_spec goes_on = spec_of(true);
	struct gp_codec_history *h = NULL;
	struct gp_err err = {0};
	write_text(text);
	assert_int_equal(gp_codec_history_new(&goes_on, &h, &err), GP_INVALID);
	assert_null(h);
	if (!strstr(err.text, why))
		fail_msg("'%s' and not '%s'", err.text, why);
}

static void files_that_are_no_journal_are_refused(void **state)
{
	(void)state;
	expect_refused("", "is not the list of codecs of this run");
	expect_refused("gpsplit codecs 1 010203fe\n0 2 1 0 0\n", "is not the list of codecs of this run");
	expect_refused(HEAD, "names no codecs");
	expect_refused(HEAD "0 2 1 0", "names no codecs");
	expect_refused(HEAD "1 2 1 0 0\n", "line 2 is no change");            /* a run begins at 0 */
	expect_refused(HEAD "0 2 1 0 0\n7 3 1 0 1\n", "line 3 is no change"); /* a rung that is not there */
	expect_refused(HEAD "0 2 1 1 0\n", "line 2 is no change");            /* no ladder in that direction */
	expect_refused(HEAD "0 2 1 0 0\n7 0 1 0 1\n7 1 1 0 1\n", "line 4 is no change");
	expect_refused(HEAD "0 2 1 0 0\n7 0 1 0 1 \n", "line 3 is no change");
	expect_refused(HEAD "0 2 1 0 0\n+7 0 1 0 1\n", "line 3 is no change");
	expect_refused(HEAD "0 2 1 0 0\n7 0 1 0 4294967296\n", "line 3 is no change");
	expect_refused(HEAD "0 2 1 0 0\n\n", "line 3 is no change");
	expect_refused(HEAD
		       "0 2 1 0 0\n7777777777777777777777777777777777777777777777777777777777777777777777777777777 "
		       "0 0 0 0\n",
		       "line 3 is no change");
}

static void a_file_that_is_missing_or_a_link_is_refused(void **state)
{
	(void)state;
	const struct gp_codec_history_spec goes_on = spec_of(true);
	struct gp_codec_history *h = NULL;
	struct gp_err err = {0};
	unlink(path);
	assert_int_equal(gp_codec_history_new(&goes_on, &h, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "--resume: cannot read"));
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_equal(gp_codec_history_new(&goes_on, &h, &err), GP_INVALID);
	unlink(path);
}

/* What cannot be written is not known either, and the next change is taken as if it had never been. */
static void a_change_that_cannot_be_written_is_not_made(void **state)
{
	static const enum gp_fault_kind faults[] = {GP_FAULT_WRITE, GP_FAULT_FSYNC};
	(void)state;
	const struct gp_codec_history_spec begins = spec_of(false);
	if (!gp_faults_built_in)
		skip();
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
		struct gp_codec_history *h = open_history(&begins);
		gp_fault_arm(faults[i], 1);
		assert_int_equal(add(h, 7, 0, 1, 0, 1), GP_IO);
		gp_fault_arm(faults[i], 0);
		assert_int_equal(gp_codec_history_newest(h), 0);
		assert_at(h, 7, 2, 1, 0, 0);
		assert_text(HEAD "0 2 1 0 0\n");
		assert_int_equal(add(h, 8, 1, 1, 0, 1), GP_OK);
		gp_codec_history_free(h);
		assert_text(HEAD "0 2 1 0 0\n8 1 1 0 1\n");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_folder_it_knows_every_change),
		cmocka_unit_test(a_run_goes_on_with_what_the_file_says),
		cmocka_unit_test(a_line_that_was_being_written_does_not_count),
		cmocka_unit_test(files_that_are_no_journal_are_refused),
		cmocka_unit_test(a_file_that_is_missing_or_a_link_is_refused),
		cmocka_unit_test(a_change_that_cannot_be_written_is_not_made),
	};
	return cmocka_run_group_tests_name("codec_history", tests, make_folder, remove_folder);
}

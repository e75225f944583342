/* SPDX-License-Identifier: Apache-2.0
 *
 * What names may take (server/limits.h): what is in a file and whom it holds for,
 * what is wrong with one, by its line; and what is refused, with its figures
 * (server/usage.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/fault.h"
#include "common/base/mem.h"
#include "server/usage.h"

#define ANY GP_LIMITS_ANY

static char path[] = "/tmp/gp-limits-XXXXXX";
static const struct gp_limits base = {ANY, ANY, ANY, 4096, 250, ANY, ANY, 0.0};

static int make_file(void **state)
{
	(void)state;
	const int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

static void put(const char *text, size_t len)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static struct gp_limits_table *load(const char *text)
{
	struct gp_limits_table *t = NULL;
	struct gp_err err;
	put(text, strlen(text));
	if (gp_limits_load(path, &base, &t, &err) != GP_OK)
		fail_msg("%s", err.text);
	return t;
}

static void a_name_has_what_its_line_says(void **state)
{
	(void)state;
	struct gp_limits_table *t = load(
		"# what each may take\n\n  token:edge-1\tsessions=4 memory=2G  device-memory=1.5G \tcheckpoints=10M "
		"runs=3 "
		"links=60 measures=2 share=2.5 # the lab's\r\ntoken:edge-2 sessions=any,memory=64k\ncert:uri:http://x/#y runs=0");
	const struct gp_limits *l = gp_limits_find(t, "token:edge-1");
	assert_int_equal(l->sessions, 4);
	assert_int_equal(l->memory_bytes, UINT64_C(2) << 30);
	assert_int_equal(l->device_bytes, UINT64_C(3) << 29);
	assert_int_equal(l->checkpoint_bytes, 10 << 20);
	assert_int_equal(l->runs, 3);
	assert_int_equal(l->links, 60);
	assert_int_equal(l->measures, 2);
	assert_true(l->device_share == 2.5);
	l = gp_limits_find(t, "token:edge-2");
	assert_int_equal(l->sessions, ANY);
	assert_int_equal(l->memory_bytes, 64 << 10);
	assert_int_equal(l->checkpoint_bytes, 4096); /* as the options have it */
	assert_int_equal(gp_limits_find(t, "cert:uri:http://x/#y")->runs, 0);
	assert_memory_equal(gp_limits_find(t, "token:edge-3"), &base, sizeof base);
	assert_memory_equal(gp_limits_find(t, ""), &base, sizeof base);
	gp_limits_free(t);
}

static void what_a_line_leaves_out_is_as_in_the_default_line(void **state)
{
	(void)state;
	struct gp_limits_table *t = load("token:edge-1 sessions=4\nanonymous memory=1M\ntoken:* links=5\n"
					 "default sessions=2 checkpoints=any share=3\n");
	assert_int_equal(gp_limits_find(t, "token:edge-1")->sessions, 4);
	assert_int_equal(gp_limits_find(t, "token:edge-1")->checkpoint_bytes, ANY);
	assert_true(gp_limits_find(t, "token:edge-1")->device_share == 3);
	assert_int_equal(gp_limits_find(t, "token:edge-1")->links, ANY); /* one line holds, not two */
	assert_int_equal(gp_limits_find(t, "token:b")->sessions, 2);
	assert_int_equal(gp_limits_find(t, "token:b")->links, 5);
	assert_int_equal(gp_limits_find(t, "cert:dns:b")->sessions, 2);
	assert_int_equal(gp_limits_find(t, "cert:dns:b")->links, ANY);
	assert_int_equal(gp_limits_find(t, "")->sessions, 2);
	assert_int_equal(gp_limits_find(t, "")->memory_bytes, 1 << 20);
	assert_int_equal(gp_limits_find(t, "")->runs, 250);
	gp_limits_free(t);
}

static void an_exact_name_goes_before_patterns_and_the_first_pattern_before_others(void **state)
{
	(void)state;
	static const struct {
		const char *who;
		uint64_t sessions;
	} want[] = {{"token:edge-1", 1}, {"token:edge-12", 2},        {"token:edge-", 2},
		    {"token:edge", 3},   {"cert:uri:a,token:lab", 4}, {"cert:uri:a,token:labs", ANY},
		    {"cert:dns:a.x", 5}, {"cert:dns:.x.x", 5},        {"cert:dns:a.y", ANY},
		    {"token", ANY},      {"cert:dns:default", ANY},   {"cert:aXbXc", 6},
		    {"cert:aXXbc", ANY}, {"cert:acXbYbXc", 6}};
	struct gp_limits_table *t =
		load("token:edge-* sessions=2\ntoken:* sessions=3\ncert:*,token:lab sessions=4\n"
		     "cert:dns:*.x sessions=5\ncert:a*b*X**c sessions=6\ntoken:edge-1 sessions=1\n");
	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
		if (gp_limits_find(t, want[i].who)->sessions != want[i].sessions)
			fail_msg("%s has %llu", want[i].who,
				 (unsigned long long)gp_limits_find(t, want[i].who)->sessions);
	gp_limits_free(t);
}

static void many_names_are_found(void **state)
{
	(void)state;
	char name[32];
	struct gp_err err;
	struct gp_limits_table *t;
	FILE *f = fopen(path, "w");
	for (int i = 0; i < 3000; i++)
		fprintf(f, "token:n%d sessions=%d\n", (i * 7) % 3000, (i * 7) % 3000);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(gp_limits_load(path, &base, &t, &err), GP_OK);
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof name, "token:n%d", i);
		assert_int_equal(gp_limits_find(t, name)->sessions, i);
	}
	gp_limits_free(t);
}

static void without_a_file_all_have_what_the_options_say(void **state)
{
	(void)state;
	struct gp_limits_table *t;
	struct gp_err err;
	assert_int_equal(gp_limits_load(NULL, &base, &t, &err), GP_OK);
	assert_memory_equal(gp_limits_find(t, "token:edge-1"), &base, sizeof base);
	assert_memory_equal(gp_limits_find(t, ""), &base, sizeof base);
	gp_limits_free(t);
}

static void expect_wrong(const char *text, size_t len, int line, const char *part)
{
	char where[64];
	struct gp_limits_table *t = NULL;
	struct gp_err err;
	put(text, len);
	snprintf(where, sizeof where, line ? "%s:%d: " : "%s: ", path, line);
	if (gp_limits_load(path, &base, &t, &err) != GP_INVALID || strncmp(err.text, where, strlen(where)) != 0 ||
	    !strstr(err.text, part))
		fail_msg("'%.60s': '%s', not '%s...%s'", text, t ? "taken" : err.text, where, part);
	assert_null(t);
}

static void a_mistake_is_told_with_its_line(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int line;
		const char *part;
	} wrong[] = {
		{"", 0, "there is no limit in it"},
		{"# token:a sessions=1\n\n", 0, "there is no limit in it"},
		{"token:a\n", 1, "token:a: what may it take? (sessions=N,"},
		{"token:a , \n", 1, "what may it take?"},
		{"\n\nedge-1 sessions=1\n", 3, "'edge-1' is no client's name: those begin with token: or cert:"},
		{"defaults sessions=1\n", 1, "no client's name"},
		{"* sessions=1\n", 1, "is called 'default'"},
		{"tok\x01:a sessions=1\n", 1, "printable"},
		{"token:\xc3\xa4 sessions=1\n", 1, "printable"},
		{"default sessions\n", 1, "default: 'sessions' is not key=value"},
		{"default 4\n", 1, "'4' is not key=value"},
		{"default sessions = 4\n", 1, "'sessions' is not key=value"},
		{"default session=4\n", 1, "no key 'session'; did you mean 'sessions'?"},
		{"default colour=red\n", 1, "no key 'colour' (keys: sessions=N,"},
		{"default sessions=4\ntoken:a sessions=1 sessions=2\n", 2, "key 'sessions' is given twice"},
		{"default sessions=many\n", 1, "sessions: 'many' is not a whole number (0..100000)"},
		{"default sessions=-1\n", 1, "out of range"},
		{"default sessions=100001\n", 1, "out of range"},
		{"default memory=lots\n", 1, "memory: 'lots' is not"},
		{"default memory=-1\n", 1, "memory: '-1' is not"},
		{"default device-memory=2000T\n", 1, "device-memory: 2000T is out of range"},
		{"default checkpoints=1X\n", 1, "checkpoints: '1X' is not"},
		{"default runs=1001\n", 1, "runs: 1001 is out of range"},
		{"default links=0\n", 1, "links: 0 is out of range"},
		{"default share=0\n", 1, "share: 0 is out of range"},
		{"default share=any\n", 1, "share: 'any' is not a number"},
		{"default share=nan\n", 1, "share: 'nan' is not a number"},
		{"default runs=1\ntoken:a runs=1\ndefault runs=2\n", 3, "default has a line already, 1"},
		{"anonymous runs=1\nanonymous runs=2\n", 2, "anonymous has a line already, 1"},
		{"token:b runs=1\ntoken:a runs=1\ntoken:c runs=1\ntoken:a runs=1\n", 4,
		 "token:a has a line already, 2"},
		{"token:a* runs=1\ntoken:a* runs=1\n", 2, "token:a* has a line already, 1"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		expect_wrong(wrong[i].text, strlen(wrong[i].text), wrong[i].line, wrong[i].part);
	expect_wrong("default runs=1\ntoken:a\0 runs=1\n", 30, 2, "what may it take?");
	expect_wrong("default runs=1\ntoken:a\0\n runs=1\n", 32, 2, "characters of text");
}

static void a_line_without_end_and_a_file_that_is_none_are_refused(void **state)
{
	(void)state;
	static char text[5000];
	struct gp_limits_table *t = NULL;
	struct gp_err err;
	memset(text, 'a', sizeof text);
	memcpy(text, "token:", 6);
	expect_wrong(text, sizeof text, 1, "at most 1022 characters");
	memcpy(text + 300, " runs=1\n", 8);
	expect_wrong(text, 308, 1, "a name is up to 239 printable");
	assert_int_equal(gp_limits_load("/tmp/there/is/no/such", &base, &t, &err), GP_INVALID);
	assert_int_equal(gp_limits_load("/tmp", &base, &t, &err), GP_INVALID);
	assert_int_equal(gp_limits_load("/dev/zero", &base, &t, &err), GP_INVALID);
	assert_null(t);
}

static void too_many_patterns_are_refused(void **state)
{
	(void)state;
	static char text[GP_LIMITS_PATTERNS_MAX * 32];
	size_t n = 0;
	for (int i = 0; i <= GP_LIMITS_PATTERNS_MAX; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "token:%d* runs=1\n", i);
	expect_wrong(text, n, GP_LIMITS_PATTERNS_MAX + 1, "more than 256 names with a '*'");
}

static void a_line_that_nobody_can_have_the_name_of_is_found(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		bool certs, tokens;
		int line; /* 0: there is none */
	} want[] = {{"default runs=1\nanonymous runs=1\n", false, false, 0},
		    {"default runs=1\ntoken:a runs=1\n", false, false, 2},
		    {"token:a runs=1\ntoken:* runs=1\n", false, true, 0},
		    {"token:a runs=1\ncert:dns:* runs=1\n", false, true, 2},
		    {"cert:dns:a runs=1\n", true, false, 0},
		    {"cert:dns:a runs=1\n", true, true, 1},
		    {"token:a runs=1\n", true, true, 1},
		    {"cert:dns:a,token:b runs=1\ncert:dns:* runs=1\n", true, true, 0}};
	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
		struct gp_limits_table *t = load(want[i].text);
		int line = 0;
		const char *name = gp_limits_misfit(t, want[i].certs, want[i].tokens, &line);
		assert_int_equal(line, want[i].line);
		assert_int_equal(name != NULL, want[i].line > 0);
		gp_limits_free(t);
	}
}

static void without_memory_a_file_is_not_taken_and_the_error_says_so(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	static const char text[] = "token:a runs=1\ntoken:b* runs=1\ndefault runs=2\n";
	struct gp_limits_table *t = NULL;
	struct gp_err err;
	int refused = 0;
	put(text, sizeof text - 1);
	for (uint64_t n = 1; !t; n++) {
		gp_fault_arm(GP_FAULT_ALLOC, n);
		const enum gp_status status = gp_limits_load(path, &base, &t, &err);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		assert_int_equal(status, t ? GP_OK : GP_NOMEM);
		refused += !t;
	}
	assert_int_equal(refused, 3);
	gp_limits_free(t);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void over_a_quota_is_refused_with_all_figures(void **state)
{
	(void)state;
	const struct gp_limits may = {.sessions = 2, .memory_bytes = 100 << 20, .device_bytes = 10 << 20};
	const struct gp_limits none = {.sessions = 0};
	const struct gp_usage has = {.sessions = 2, .memory_bytes = 70 << 20, .device_bytes = 10 << 20};
	const struct gp_usage less = {.sessions = 1, .memory_bytes = 60 << 20};
	struct gp_err err;
	assert_int_equal(gp_usage_check_session(&may, &less, "token:a", &err), GP_OK);
	assert_int_equal(gp_usage_check_session(&may, &has, "token:a", &err), GP_BUSY);
	assert_string_equal(err.text,
			    "one more session is asked for; token:a may have 2 (--limits) and in use are 2, parked "
			    "ones included");
	assert_int_equal(gp_usage_check_session(&none, &less, "", &err), GP_DENIED); /* waiting does not help */
	assert_string_equal(err.text,
			    "one session is asked for, and clients without a name may have none here (--limits)");
	assert_int_equal(gp_usage_check_memory(&may, &less, "token:a", 40 << 20, &err), GP_OK);
	assert_int_equal(gp_usage_check_memory(&may, &has, "token:a", 40 << 20, &err), GP_BUSY);
	assert_string_equal(err.text,
			    "this session needs 40.0 MiB of memory; token:a may have 100.0 MiB in all (--limits) "
			    "and in use are 70.0 MiB");
	assert_int_equal(gp_usage_check_memory(&may, &less, "token:a", 101 << 20, &err), GP_NOMEM);
	assert_non_null(strstr(err.text, "needs 101.0 MiB of memory, token:a may have 100.0 MiB in all"));
	assert_int_equal(gp_usage_check_device(&may, &less, "token:a", 10 << 20, &err), GP_OK);
	assert_int_equal(gp_usage_check_device(&may, &has, "token:a", 0, &err), GP_OK); /* on a processor */
	assert_int_equal(gp_usage_check_device(&may, &has, "token:a", 1, &err), GP_BUSY);
	assert_int_equal(gp_usage_check_device(&may, &less, "token:a", 11 << 20, &err), GP_NOMEM);
	assert_non_null(strstr(err.text, "of the devices' memory"));
	const struct gp_usage lowered = {.memory_bytes = 200 << 20}; /* the limit was higher once */
	assert_int_equal(gp_usage_check_memory(&may, &lowered, "token:a", 1, &err), GP_BUSY);
	assert_int_equal(gp_usage_check_memory(&may, &lowered, "token:a", 0, &err), GP_OK);
}

static void a_refusal_with_the_longest_name_is_not_cut(void **state)
{
	(void)state;
	const struct gp_limits may = {.memory_bytes = UINT64_C(1) << 50};
	const struct gp_usage has = {.memory_bytes = UINT64_C(1) << 50};
	char who[GP_SERVER_WHO_BYTES];
	struct gp_err err;
	memset(who, 'n', sizeof who);
	who[sizeof who - 1] = '\0';
	assert_int_equal(gp_usage_check_memory(&may, &has, who, UINT64_C(1) << 50, &err), GP_BUSY);
	assert_true(strlen(err.text) < 255); /* what a client shows of it */
	assert_string_equal(err.text + strlen(err.text) - 3, "MiB");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_has_what_its_line_says),
		cmocka_unit_test(what_a_line_leaves_out_is_as_in_the_default_line),
		cmocka_unit_test(an_exact_name_goes_before_patterns_and_the_first_pattern_before_others),
		cmocka_unit_test(many_names_are_found),
		cmocka_unit_test(without_a_file_all_have_what_the_options_say),
		cmocka_unit_test(a_mistake_is_told_with_its_line),
		cmocka_unit_test(a_line_without_end_and_a_file_that_is_none_are_refused),
		cmocka_unit_test(too_many_patterns_are_refused),
		cmocka_unit_test(a_line_that_nobody_can_have_the_name_of_is_found),
		cmocka_unit_test(without_memory_a_file_is_not_taken_and_the_error_says_so),
		cmocka_unit_test(over_a_quota_is_refused_with_all_figures),
		cmocka_unit_test(a_refusal_with_the_longest_name_is_not_cut),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}

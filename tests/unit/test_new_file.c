/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are there whole or not at all (common/base/new_file.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/durable.h"
#include "common/base/new_file.h"

static char folder[] = "/tmp/test_new_file.XXXXXX", path[64], other[64];

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/page", folder);
	snprintf(other, sizeof other, "%s/link", folder);
	return 0;
}

static int remove_folder(void **state)
{
	struct gp_err ignored;
	(void)state;
	return gp_remove_folder(folder, &ignored) == GP_OK ? 0 : -1;
}

/* Writes `text`, and says that it ended like this. */
static enum gp_status put(const char *name, const char *text, enum gp_status written)
{
	struct gp_new_file f;
	struct gp_err err = {0};
	const enum gp_status status = gp_new_file_begin(&f, name, &err);
	if (status != GP_OK)
		return status;
	assert_int_equal(gp_write_all(f.fd, text, strlen(text), name, &err), GP_OK);
	return gp_new_file_end(&f, written, &err);
}

static void assert_holds(const char *text)
{
	char got[64] = "";
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fread(got, 1, sizeof got - 1, f), strlen(text));
	fclose(f);
	assert_string_equal(got, text);
}

static int files(void)
{
	char command[128];
	int count = 0;
	snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
	FILE *p = popen(command, "r");
	assert_int_equal(fscanf(p, "%d", &count), 1);
	pclose(p);
	return count;
}

static void a_file_that_ends_well_is_there(void **state)
{
	(void)state;
	assert_int_equal(put(path, "one", GP_OK), GP_OK);
	assert_holds("one");
	assert_int_equal(put(path, "another", GP_OK), GP_OK);
	assert_holds("another");
	assert_int_equal(files(), 1);
}

static void of_one_that_fails_nothing_stays(void **state)
{
	(void)state;
	assert_int_equal(put(other, "half", GP_IO), GP_IO);
	assert_int_not_equal(access(other, F_OK), 0);
	assert_int_equal(put(path, "half", GP_IO), GP_IO);
	assert_holds("another");
	assert_int_equal(files(), 1);
}

static void a_link_stays_and_its_target_is_replaced(void **state)
{
	struct stat st;
	(void)state;
	assert_int_equal(symlink(path, other), 0);
	assert_int_equal(put(other, "through", GP_OK), GP_OK);
	assert_holds("through");
	assert_int_equal(lstat(other, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	unlink(other);
}

static void places_that_cannot_be_are_refused(void **state)
{
	struct gp_err err = {0};
	char nowhere[96];
	(void)state;
	snprintf(nowhere, sizeof nowhere, "%s/no/page", folder);
	assert_int_equal(put(folder, "x", GP_OK), GP_INVALID);
	assert_int_equal(put(nowhere, "x", GP_OK), GP_INVALID);
	assert_int_equal(put("", "x", GP_OK), GP_INVALID);
	assert_int_equal(gp_new_file_check(nowhere, &err), GP_INVALID);
	struct gp_new_file f;
	assert_int_equal(gp_new_file_begin(&f, nowhere, &err), GP_INVALID);
	assert_null(strstr(err.text, ".tmp.")); /* the name that was given, not the one it has meanwhile */
	assert_int_equal(gp_new_file_check(path, &err), GP_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_that_ends_well_is_there),
		cmocka_unit_test(of_one_that_fails_nothing_stays),
		cmocka_unit_test(a_link_stays_and_its_target_is_replaced),
		cmocka_unit_test(places_that_cannot_be_are_refused),
	};
	return cmocka_run_group_tests_name("new_file", tests, make_folder, remove_folder);
}

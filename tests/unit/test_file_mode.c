/* SPDX-License-Identifier: Apache-2.0
 *
 * Which files of secrets are open to others on the machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/file_mode.h"

static void a_file_is_exposed_where_the_group_or_the_world_may_read_or_write(void **state)
{
	(void)state;
	static const struct {
		unsigned mode;
		bool exposed;
	} cases[] = {{0600, false}, {0400, false}, {0700, false}, {0711, false}, {0640, true},
		     {0604, true},  {0620, true},  {0602, true},  {0644, true}};
	char path[] = "/tmp/gp-mode-XXXXXX";
	const int fd = mkstemp(path);
	assert_true(fd >= 0);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		unsigned mode = 0;
		assert_int_equal(chmod(path, cases[i].mode), 0);
		assert_int_equal(gp_file_is_exposed(path, &mode), cases[i].exposed);
		assert_int_equal(mode, cases[i].exposed ? cases[i].mode : 0);
	}
	close(fd);
	unlink(path);
}

static void a_file_of_root_may_be_lent_to_the_group_of_a_service(void **state)
{
	(void)state;
	static const struct {
		unsigned mode;
		bool exposed;
	} cases[] = {{0640, false}, {0440, false}, {0660, true}, {0644, true}, {0604, true}};
	char path[] = "/tmp/gp-mode-XXXXXX";
	unsigned mode;
	if (geteuid() != 0)
		skip(); /* needs a file of root, and another user to be */
	const int fd = mkstemp(path);
	assert_true(fd >= 0);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_int_equal(chmod(path, cases[i].mode), 0);
		assert_true(gp_file_is_exposed(path, &mode)); /* root needs no group for it */
		assert_int_equal(seteuid(65534), 0);
		const bool exposed = gp_file_is_exposed(path, &mode);
		assert_int_equal(seteuid(0), 0);
		assert_int_equal(exposed, cases[i].exposed);
	}
	close(fd);
	unlink(path);
}

static void what_is_no_file_is_not_judged(void **state)
{
	(void)state;
	unsigned mode;
	assert_false(gp_file_is_exposed("/tmp", &mode));
	assert_false(gp_file_is_exposed("/dev/null", &mode));
	assert_false(gp_file_is_exposed("no/such/file", &mode));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_exposed_where_the_group_or_the_world_may_read_or_write),
		cmocka_unit_test(a_file_of_root_may_be_lent_to_the_group_of_a_service),
		cmocka_unit_test(what_is_no_file_is_not_judged),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

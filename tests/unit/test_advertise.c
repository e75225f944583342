/* SPDX-License-Identifier: Apache-2.0
 *
 * What --advertise takes (server/advertise.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "server/advertise.h"

static void servers_are_named_as_they_are_written(void **state)
{
	(void)state;
	struct gp_advertise a;
	struct gp_err err;
	const char *name[GP_ERROR_SERVERS];
	assert_int_equal(gp_advertise_parse(&a, "gpu-1.example:4400,[2001:db8::1]:4401", &err), GP_OK);
	assert_int_equal(gp_advertise_names(&a, name), 2);
	assert_string_equal(name[0], "gpu-1.example:4400");
	assert_string_equal(name[1], "[2001:db8::1]:4401");
	assert_int_equal(gp_advertise_parse(&a, NULL, &err), GP_OK);
	assert_int_equal(gp_advertise_names(&a, name), 0);
}

static void what_no_client_could_use_is_refused(void **state)
{
	(void)state;
	const struct {
		const char *text, *says;
	} cases[] = {
		{"gpu", "has no port"},
		{"gpu:1,", "a comma with no HOST:PORT"},
		{",gpu:1", "has no port"},
		{"gpu:0", "cannot connect to 'gpu:0'"},
		{"g pu:1", "cannot connect to 'g pu:1'"},
		{"a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9", "8 servers may be named"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_advertise a;
		struct gp_err err;
		assert_int_equal(gp_advertise_parse(&a, cases[i].text, &err), GP_USAGE);
		if (!strstr(err.text, cases[i].says) || !strstr(err.text, "--advertise"))
			fail_msg("'%s': %s", cases[i].text, err.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(servers_are_named_as_they_are_written),
		cmocka_unit_test(what_no_client_could_use_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS settings: files that are missing, broken, locked or do not belong
 * together are named.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/tls_files.h"

static void refuses(const struct gp_tls_files *f, bool server, const char *words)
{
	struct gp_tls *tls = NULL;
	struct gp_err err = {0};
	const enum gp_status status = server ? gp_tls_server_new(f, &tls, &err) : gp_tls_client_new(f, &tls, &err);
	assert_int_equal(status, GP_INVALID);
	assert_null(tls);
	if (!strstr(err.text, words))
		fail_msg("'%s' is not in '%s'", words, err.text);
}

static void good_files_are_taken(void **state)
{
	(void)state;
	struct gp_tls *server = tls_server("server", "ca"), *client = tls_client(NULL, NULL);
	assert_true(gp_tls_is_server(server));
	assert_false(gp_tls_is_server(client));
	gp_tls_free(server);
	gp_tls_free(client);
}

static void a_missing_file_is_named(void **state)
{
	(void)state;
	struct gp_tls_files f = tls_files("server", "ca");
	f.cert = "no/such/cert.pem";
	refuses(&f, true, "certificate no/such/cert.pem: No such file");
	f = tls_files("server", "ca");
	f.key = "no/such/key.pem";
	refuses(&f, true, "key no/such/key.pem: No such file");
	f = tls_files("server", "ca");
	f.ca = "no/such/ca.pem";
	refuses(&f, true, "CA no/such/ca.pem: No such file");
	refuses(&f, false, "CA no/such/ca.pem: No such file");
}

static void a_file_of_another_kind_is_named(void **state)
{
	(void)state;
	struct gp_tls_files f = tls_files("server", "ca");
	f.cert = f.key;
	refuses(&f, true, "there is none in it (PEM is expected)");
	f = tls_files("server", "ca");
	f.key = f.cert;
	refuses(&f, true, "key ");
	f = tls_files("server", "ca");
	f.ca = "/dev/null";
	refuses(&f, true, "CA /dev/null: ");
	f.ca = "README.md";
	refuses(&f, false, "CA README.md: ");
	f.ca = "/tmp"; /* a folder */
	refuses(&f, false, "CA /tmp: ");
}

static void a_key_of_another_certificate_is_refused(void **state)
{
	(void)state;
	struct gp_tls_files f = tls_files("server", "ca");
	f.key = tls_file("client", ".key");
	refuses(&f, true, "it does not belong to certificate");
}

static void a_locked_key_is_not_asked_for_at_the_terminal(void **state)
{
	(void)state;
	char command[300];
	struct gp_tls_files f = tls_files("server", "ca");
	snprintf(command, sizeof command, "openssl pkey -in %s -aes128 -passout pass:secret -out %s 2>/dev/null",
		 tls_file("server", ".key"), tls_file("locked", ".key"));
	assert_int_equal(system(command), 0);
	f.key = tls_file("locked", ".key");
	refuses(&f, true, "it is locked by a passphrase");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_files_are_taken),
		cmocka_unit_test(a_missing_file_is_named),
		cmocka_unit_test(a_file_of_another_kind_is_named),
		cmocka_unit_test(a_key_of_another_certificate_is_refused),
		cmocka_unit_test(a_locked_key_is_not_asked_for_at_the_terminal),
	};
	return cmocka_run_group_tests(tests, tls_files_make, tls_files_remove);
}

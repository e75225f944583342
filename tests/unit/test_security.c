/* SPDX-License-Identifier: Apache-2.0
 *
 * The two ends' rules about credentials: what a server does not serve, which
 * flags do not fit together, what a client never sends in the clear.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/job/security.h"
#include "server/server.h"
#include "tests/unit/tls_files.h"

#define GOOD "0123456789abcdef"

static void expect(enum gp_status got, enum gp_status want, const struct gp_err *err, const char *words)
{
	if (got != want || (want != GP_OK && !strstr(err->text, words)))
		fail_msg("status %d (want %d): '%s'", got, want, err->text);
}

static void a_server_serves_more_than_loopback_only_with_tls_and_a_credential(void **state)
{
	(void)state;
	static const struct {
		struct gp_server_settings set;
		bool loopback, everywhere;
	} cases[] = {
		{{0}, true, false},
		{{.insecure = true}, true, true},
		{{.tokens = "t"}, true, false},
		{{.tokens = "t", .insecure = true}, true, false}, /* no client would send it */
		{{.tls_cert = "c", .tls_key = "k"}, true, false},
		{{.tls_cert = "c", .tls_key = "k", .insecure = true}, true, true},
		{{.tls_cert = "c", .tls_key = "k", .tls_client_ca = "a"}, true, true},
		{{.tls_cert = "c", .tls_key = "k", .tokens = "t"}, true, true},
		{{.tls_cert = "c"}, false, false},
		{{.tls_key = "k", .insecure = true}, false, false},
		{{.tls_client_ca = "a", .insecure = true}, false, false},
	};
	static const char *const far[] = {"0.0.0.0", "::", "10.1.2.3", "server.example", "localhost.example"};
	struct gp_err err;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_server_settings set = cases[i].set;
		set.listen = "somewhere";
		assert_int_equal(gp_server_credentials_check(&set, "127.0.0.1", &err),
				 cases[i].loopback ? GP_OK : GP_USAGE);
		for (size_t k = 0; k < sizeof far / sizeof far[0]; k++)
			assert_int_equal(gp_server_credentials_check(&set, far[k], &err),
					 cases[i].everywhere ? GP_OK : GP_USAGE);
	}
}

static void reading_broken_files_again_keeps_what_there_was(void **state)
{
	(void)state;
	struct gp_server_credentials c = {0};
	struct gp_err err;
	char tokens[64];
	snprintf(tokens, sizeof tokens, "%s", tls_file("tokens", ""));
	struct gp_server_settings set = {
		.tls_cert = tls_file("server", ".pem"), .tls_key = tls_file("server", ".key"), .tokens = tokens};
	assert_int_equal(gp_server_credentials_load(&c, &set, &err), GP_OK);
	const struct gp_server_credentials before = c;
	set.tokens = "/dev/null";
	expect(gp_server_credentials_load(&c, &set, &err), GP_INVALID, &err, "--tokens: /dev/null: there is no token");
	set.tokens = tokens;
	set.tls_cert = "/dev/null";
	expect(gp_server_credentials_load(&c, &set, &err), GP_INVALID, &err, "certificate /dev/null");
	assert_ptr_equal(c.tls, before.tls);
	assert_ptr_equal(c.tokens, before.tokens);
	gp_server_credentials_deinit(&c);
}

static void flags_that_do_not_fit_together_are_refused(void **state)
{
	(void)state;
	static const struct {
		struct gp_client_security_files files;
		const char *words;
	} cases[] = {
		{{.cert = "c", .tls = true}, "--tls-cert and --tls-key belong together"},
		{{.key = "k", .tls = true}, "--tls-cert and --tls-key belong together"},
		{{.cert = "c", .key = "k"}, "--tls-cert needs --tls-ca"},
		{{.name = "n"}, "--tls-name needs --tls-ca"},
	};
	struct gp_client_security s;
	struct gp_err err;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		expect(gp_client_security_load(&s, &cases[i].files, &err), GP_USAGE, &err, cases[i].words);
}

static void a_token_file_that_is_missing_is_named(void **state)
{
	(void)state;
	struct gp_client_security s;
	struct gp_err err;
	const struct gp_client_security_files files = {.tls = true, .token = "no/such/file"};
	expect(gp_client_security_load(&s, &files, &err), GP_INVALID, &err, "--token-file: no/such/file: No such file");
	assert_null(s.tls);
}

/* A connection that says it leads there; what becomes of it under these settings. */
static enum gp_status secure_to(const struct gp_client_security *s, const char *peer, bool *wrapped, struct gp_err *err)
{
	uv_loop_t loop;
	struct gp_conn *a, *b, *c;
	uv_loop_init(&loop);
	assert_int_equal(gp_mem_pair(&loop, 0, &a, &b, err), GP_OK);
	snprintf(a->peer, sizeof a->peer, "%s", peer);
	c = a;
	const enum gp_status status = gp_client_secure(s, &loop, "server.example", &c, err);
	*wrapped = status == GP_OK && c->secure;
	if (status == GP_OK)
		c->ops->close(c, NULL, NULL);
	b->ops->close(b, NULL, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	return status;
}

static void a_token_goes_in_the_clear_over_loopback_only(void **state)
{
	(void)state;
	static const char *const near[] = {"127.0.0.1:4400", "127.8.9.1:4400", "[::1]:4400"};
	static const char *const far[] = {"10.1.2.3:4400", "[2001:db8::1]:4400", "0.0.0.0:1", "128.0.0.1:1", "?"};
	struct gp_client_security s = {.token = GOOD}, none = {0};
	struct gp_err err;
	bool wrapped;
	for (size_t i = 0; i < sizeof near / sizeof near[0]; i++)
		assert_int_equal(secure_to(&s, near[i], &wrapped, &err), GP_OK);
	for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
		expect(secure_to(&s, far[i], &wrapped, &err), GP_USAGE, &err, "the token would cross the network");
		assert_int_equal(secure_to(&none, far[i], &wrapped, &err), GP_OK);
		assert_false(wrapped);
	}
	s.tls = tls_client(NULL, "ca");
	assert_int_equal(secure_to(&s, far[0], &wrapped, &err), GP_OK);
	assert_true(wrapped);
	gp_client_security_deinit(&s);
	assert_string_equal(s.token, ""); /* wiped */
}

static void servers_that_others_name_are_followed_where_one_ca_vouches_for_both(void **state)
{
	(void)state;
	struct gp_tls *tls = tls_client(NULL, "ca");
	const struct {
		enum gp_follow follow;
		bool tls, own_ca;
		const char *by, *host;
		bool may;
	} cases[] = {
		{GP_FOLLOW_CA, true, true, "gpu-1.example", "gpu-2.example", true},
		{GP_FOLLOW_CA, true, false, "gpu-1.example", "gpu-2.example", false},
		{GP_FOLLOW_CA, false, false, "gpu-1.example", "gpu-2.example", false},
		{GP_FOLLOW_CA, false, false, "127.0.0.1", "127.0.0.1", false},
		{GP_FOLLOW_CA, true, true, "gpu-1.example", "127.0.0.1", false},
		{GP_FOLLOW_CA, true, true, "127.0.0.1", "127.0.0.1", true},
		{GP_FOLLOW_NONE, true, true, "gpu-1.example", "gpu-2.example", false},
		{GP_FOLLOW_ANY, false, false, "gpu-1.example", "gpu-2.example", true},
		{GP_FOLLOW_ANY, true, false, "gpu-1.example", "gpu-2.example", true},
		{GP_FOLLOW_ANY, false, false, "gpu-1.example", "localhost", false},
		{GP_FOLLOW_ANY, false, false, "127.0.0.1", "::1", true},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct gp_client_security s = {
			.tls = cases[i].tls ? tls : NULL, .own_ca = cases[i].own_ca, .follow = cases[i].follow};
		if (gp_client_may_follow(&s, cases[i].by, cases[i].host) != cases[i].may)
			fail_msg("case %zu", i);
	}
	gp_tls_free(tls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_serves_more_than_loopback_only_with_tls_and_a_credential),
		cmocka_unit_test(reading_broken_files_again_keeps_what_there_was),
		cmocka_unit_test(flags_that_do_not_fit_together_are_refused),
		cmocka_unit_test(a_token_file_that_is_missing_is_named),
		cmocka_unit_test(a_token_goes_in_the_clear_over_loopback_only),
		cmocka_unit_test(servers_that_others_name_are_followed_where_one_ca_vouches_for_both),
	};
	return cmocka_run_group_tests(tests, tls_files_make, tls_files_remove);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Where --metrics may be served, and by which words a program's user hears that it may not (common/http/metrics_site.h). Tokens
 * and certificates before a real client: tests/e2e/metrics.sh.
 */
#include "tests/unit/http_get.h"

#include <stdlib.h>

#include "common/http/metrics_site.h"

static void answer_secret(void *arg, struct gp_http_reply *out)
{
	(void)arg;
	gp_http_reply_text(out, 200, "figures\n");
}

static const struct gp_metrics_route routes[] = {{"/metrics", true, answer_secret}, {"/open", false, answer_secret}};

static struct gp_metrics_site_settings settings(const char *address)
{
	return (struct gp_metrics_site_settings){.address = address,
						 .tls_options = "--its-tls",
						 .proof_options = "--its-tokens",
						 .what = "all of it",
						 .route = routes,
						 .routes = 2};
}

static void expect_refused(const struct gp_metrics_site_settings *set, const char *words)
{
	struct gp_err err;
	assert_int_equal(gp_metrics_site_check(set, &err), GP_USAGE);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not say '%s'", err.text, words);
}

static void other_addresses_than_loopback_want_tls_and_a_proof(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_metrics_site_settings set = settings("0.0.0.0:0");
	expect_refused(&set,
		       "anyone who reaches this address could read all of it; give --its-tls, and --its-tokens; or an "
		       "address of loopback");
	set.insecure_option = "--trusting";
	expect_refused(&set, ", or say --trusting on a network you trust");
	set.tokens = "file";
	expect_refused(&set, "tokens would cross the network in the clear; give --its-tls");
	set.cert = "file";
	expect_refused(&set, "--its-tls belong together");
	set.key = "file";
	assert_int_equal(gp_metrics_site_check(&set, &err), GP_OK);
	set.tokens = NULL;
	expect_refused(&set, "TLS hides what crosses, but anyone could read it; give --its-tokens, or say --trusting");
	set.ca = "file";
	assert_int_equal(gp_metrics_site_check(&set, &err), GP_OK);
	set = settings("[::1]:0");
	assert_int_equal(gp_metrics_site_check(&set, &err), GP_OK);
	set.address = "9440";
	expect_refused(&set, "--metrics: ");
}

static void what_cannot_be_served_is_one_line_about_its_address(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_metrics_site *site;
	struct gp_metrics_site_settings set = settings("no..name:9440");
	set.insecure = true;
	assert_int_equal(gp_metrics_site_start(&set, &site, &err), GP_INVALID);
	assert_int_equal(strncmp(err.text, "--metrics: cannot listen on no..name:9440: ", 43), 0);
	set.address = "0.0.0.0:0";
	set.cert = set.key = "/no/such/file";
	assert_int_equal(gp_metrics_site_start(&set, &site, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "/no/such/file"));
	set.tokens = "/no/tokens";
	assert_int_equal(gp_metrics_site_start(&set, &site, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "/no/tokens"));
}

static void paths_are_those_of_the_program(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_metrics_site *site;
	char url[GP_METRICS_SITE_URL];
	int status;
	const struct gp_metrics_site_settings set = settings("127.0.0.1:0");
	assert_int_equal(gp_metrics_site_start(&set, &site, &err), GP_OK);
	gp_metrics_site_url(site, url);
	assert_int_equal(strncmp(url, "http://127.0.0.1:", 17), 0);
	const uint16_t port = (uint16_t)atoi(strrchr(url, ':') + 1);
	char *text = http_get(port, "/metrics", &status);
	assert_int_equal(status, 200); /* on loopback everybody may */
	assert_string_equal(text, "figures\n");
	gp_free(text);
	text = http_get(port, "/metrics/more", &status);
	assert_int_equal(status, 404);
	gp_free(text);
	assert_int_equal(gp_metrics_site_reload(site, &err), GP_OK);
	gp_metrics_site_stop(site);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_addresses_than_loopback_want_tls_and_a_proof),
		cmocka_unit_test(what_cannot_be_served_is_one_line_about_its_address),
		cmocka_unit_test(paths_are_those_of_the_program),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses as users write them (common/net/conn.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/net/conn.h"

static void host_and_port_are_taken_apart(void **state)
{
	(void)state;
	const struct {
		const char *text, *host;
		uint16_t port;
	} cases[] = {
		{"127.0.0.1:4040", "127.0.0.1", 4040},
		{"localhost:1", "localhost", 1},
		{"gpu-7.example.org:65535", "gpu-7.example.org", 65535},
		{"[::1]:4040", "::1", 4040},
		{"[fe80::1%eth0]:80", "fe80::1%eth0", 80},
		{"0.0.0.0:0", "0.0.0.0", 0},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char host[256];
		uint16_t port;
		struct gp_err err;
		assert_int_equal(gp_addr_parse(cases[i].text, host, &port, &err), GP_OK);
		assert_string_equal(host, cases[i].host);
		assert_int_equal(port, cases[i].port);
		char back[300];
		gp_addr_format(host, port, back, sizeof back);
		assert_string_equal(back, cases[i].text);
	}
}

static void what_is_missing_is_said(void **state)
{
	(void)state;
	const struct {
		const char *text, *says;
	} cases[] = {
		{"localhost", "has no port"},
		{"", "has no port"},
		{":4040", "has no host"},
		{"[]:4040", "has no host"},
		{"::1:4040", "in brackets"},
		{"[::1]", "has no port"},
		{"[::1:4040", "has no port"},
		{"localhost:", "must be a number from 0 to 65535, not ''"},
		{"localhost:http", "not 'http'"},
		{"localhost:65536", "not '65536'"},
		{"localhost:99999999999999999999", "not '99999999999999999999'"},
		{"localhost:-1", "not '-1'"},
		{"localhost:80 ", "not '80 '"},
		{"a:1,b:2", "not a list"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char host[256] = "untouched";
		uint16_t port = 77;
		struct gp_err err = {0};
		assert_int_equal(gp_addr_parse(cases[i].text, host, &port, &err), GP_USAGE);
		if (!strstr(err.text, cases[i].says))
			fail_msg("expected '%s' in '%s'", cases[i].says, err.text);
		assert_string_equal(host, "untouched");
		assert_int_equal(port, 77);
	}
}

static void a_host_longer_than_its_buffer_is_refused(void **state)
{
	(void)state;
	char text[400], host[256];
	uint16_t port;
	struct gp_err err;
	memset(text, 'a', sizeof text);
	strcpy(text + 255, ":80");
	assert_int_equal(gp_addr_parse(text, host, &port, &err), GP_OK);
	memset(text, 'a', sizeof text);
	strcpy(text + 256, ":80");
	assert_int_equal(gp_addr_parse(text, host, &port, &err), GP_USAGE);
}

static void loopback_is_recognised_in_every_spelling(void **state)
{
	(void)state;
	const char *const yes[] = {"127.0.0.1", "127.8.9.10",      "localhost",       "LOCALHOST",
				   "::1",       "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"};
	const char *const no[] = {
		"0.0.0.0", "10.0.0.1",       "::", "example.org", "localhost.example.org", "127.0.0.1.evil.org",
		"",        "::ffff:10.0.0.1"};
	for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
		assert_true(gp_addr_is_loopback(yes[i]));
	for (size_t i = 0; i < sizeof no / sizeof *no; i++)
		assert_false(gp_addr_is_loopback(no[i]));
}

static void what_a_peer_names_is_a_host_and_a_port_or_nothing(void **state)
{
	(void)state;
	const char *const yes[] = {"gpu-7.example.org:4400", "10.0.0.1:1", "[::1]:65535", "[fe80::1%eth0]:80", "a_b:1"};
	const char *const no[] = {"",      "gpu",    "gpu:0",   "gpu:70000",  ":1",         "a b:1",      "a\n:1",
				  "a/b:1", "-tls:1", "a:1,b:1", "http://a:1", "a\x1b[2J:1", "\xc3\xa4:1", "a;b:1"};
	for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
		assert_true(gp_addr_is_plain(yes[i]));
	for (size_t i = 0; i < sizeof no / sizeof *no; i++)
		assert_false(gp_addr_is_plain(no[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_and_port_are_taken_apart),
		cmocka_unit_test(what_is_missing_is_said),
		cmocka_unit_test(a_host_longer_than_its_buffer_is_refused),
		cmocka_unit_test(loopback_is_recognised_in_every_spelling),
		cmocka_unit_test(what_a_peer_names_is_a_host_and_a_port_or_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

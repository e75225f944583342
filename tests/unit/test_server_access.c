/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server whose clients show tokens or speak TLS: a token that is taken out
 * of its file ends its sessions and no others; guesses and handshakes of one
 * address are limited.
 */
#include "tests/unit/site_rig.h"

#include "tests/unit/tls_files.h"

static void a_revoked_token_ends_its_sessions_and_no_others(void **state)
{
	(void)state;
	struct gp_server_settings set = server_thread_settings();
	struct raw_peer open[2], greeted, parked;
	struct site s;
	set.tokens = token_path;
	set.resume_window_s = 3600;
	write_tokens("edge-1 " ONE "\nedge-2 " TWO "\nedge-1 " THREE "\n");
	site_start(&s, &set);
	open_session(&parked, &s, ONE);
	client_close(&parked);
	site_await_parked(&s, 1);
	open_session(&open[0], &s, ONE);
	open_session(&open[1], &s, TWO);
	say_hello(&greeted, &s, ONE);
	expect_control(&greeted, GPSPLIT__CONTROL__BODY_WELCOME);
	write_tokens("edge-2 " TWO "\nedge-1 " THREE "\n"); /* the name stays, one of its tokens goes */
	site_reload(&s);
	assert_int_equal(atomic_load(&s.alive), 1);
	expect_code(&open[0], GP_DENIED, "taken out of the server's file");
	expect_code(&greeted, GP_DENIED, "taken out of the server's file");
	put_step(&open[1], &s.f); /* it goes on as if nothing had happened */
	client_close(&open[1]);
	say_hello(&parked, &s, ONE);
	expect_code(&parked, GP_DENIED, "not one of this server's");
	open_session(&parked, &s, THREE);
	client_close(&parked);
	site_stop(&s);
}

static void a_broken_token_file_ends_nothing(void **state)
{
	(void)state;
	struct gp_server_settings set = server_thread_settings();
	struct gp_server_credentials c = {0};
	struct gp_server_proof proof = {.token_name = "edge-1"}, nobody = {.who = "cert:key:00"};
	struct gp_err err;
	set.tokens = token_path;
	write_tokens("edge-1 " ONE "\n");
	assert_int_equal(gp_server_credentials_load(&c, &set, &err), GP_OK);
	gp_token_file_sum((struct gp_span){(const uint8_t *)ONE, strlen(ONE)}, proof.token_sum);
	assert_false(gp_server_revoked(&c, &proof));
	write_tokens("edge-1\n");
	assert_int_equal(gp_server_credentials_load(&c, &set, &err), GP_INVALID);
	assert_false(gp_server_revoked(&c, &proof));
	write_tokens("edge-2 " ONE "\n"); /* the token is another client's now */
	assert_int_equal(gp_server_credentials_load(&c, &set, &err), GP_OK);
	assert_true(gp_server_revoked(&c, &proof));
	assert_false(gp_server_revoked(&c, &nobody));
	gp_server_credentials_deinit(&c);
}

static void names_of_tokens_and_certificates_are_never_the_same(void **state)
{
	(void)state;
	static const char *const given[][3] = {{"", "", ""},
					       {"", "edge-1", "token:edge-1"},
					       {"uri:edge-1", "", "cert:uri:edge-1"},
					       {"uri:a", "b", "cert:uri:a,token:b"},
					       {"uri:a\\2ctoken:b", "", "cert:uri:a\\2ctoken:b"},
					       {"", "a,token:b", "token:a,token:b"}};
	char who[GP_SERVER_WHO_BYTES], identity[GP_CERT_IDENTITY_BYTES], name[GP_CLIENT_NAME_BYTES];
	for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
		gp_server_write_who(given[i][0], given[i][1], who);
		assert_string_equal(who, given[i][2]);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(who, given[k][2]);
	}
	memset(identity, 'i', sizeof identity);
	memset(name, 'n', sizeof name);
	identity[sizeof identity - 1] = name[sizeof name - 1] = '\0';
	gp_server_write_who(identity, name, who); /* the longest are not cut */
	assert_int_equal(strlen(who), strlen("cert:") + strlen(identity) + strlen(",token:") + strlen(name));
}

static void wrong_tokens_of_an_address_are_limited(void **state)
{
	(void)state;
	struct gp_server_settings set = server_thread_settings();
	struct raw_peer c;
	struct site s;
	set.tokens = token_path;
	set.visitors.wrong_tokens = 1; /* in a minute: a slow machine gets one back after one */
	write_tokens("edge-1 " ONE "\n");
	site_start(&s, &set);
	bool limited = false;
	for (int wrong = 0; wrong < 1000 && !limited; wrong++) {
		say_hello(&c, &s, "not-the-right-token");
		Gpsplit__Control *m = get_control(&c);
		assert_true(m && m->body_case == GPSPLIT__CONTROL__BODY_ERROR);
		limited = m->error->code == GP_BUSY;
		assert_true(limited ? strstr(m->error->text, "too many wrong tokens") != NULL
				    : m->error->code == GP_DENIED);
		assert_true(wrong > 0 || !limited);
		gpsplit__control__free_unpacked(m, NULL);
		client_close(&c);
	}
	assert_true(limited);
	site_stop(&s);
}

/* To a client that speaks in the clear the server answers by an alert, unless it hangs up at once. */
static bool is_listened_to(const struct site *s)
{
	uint8_t preface[GP_PREFACE_BYTES];
	char byte;
	const int fd = connect_to(s->f.port);
	gp_preface_write(preface);
	send(fd, preface, sizeof preface, MSG_NOSIGNAL);
	const bool answered = recv(fd, &byte, 1, 0) == 1;
	close(fd);
	return answered;
}

static void handshakes_of_an_address_are_limited(void **state)
{
	(void)state;
	struct gp_server_settings set = server_thread_settings();
	struct site s;
	char byte;
	set.tls_cert = tls_file("server", ".pem");
	set.tls_key = tls_file("server", ".key");
	set.handshake_timeout_s = 3600;
	set.visitors.handshakes = 2;
	site_start(&s, &set);
	const int silent[3] = {connect_to(s.f.port), connect_to(s.f.port), connect_to(s.f.port)};
	assert_int_equal(recv(silent[2], &byte, 1, 0), 0); /* the third is turned away */
	assert_false(is_listened_to(&s));
	close(silent[0]);
	while (!is_listened_to(&s)) /* once the server has noticed */
		usleep(1000);
	close(silent[1]);
	close(silent[2]);
	site_stop(&s);
}

static int set_up(void **state)
{
	const int fd = mkstemp(token_path);
	if (fd < 0)
		return -1;
	close(fd);
	return tls_files_make(state);
}

static int tear_down(void **state)
{
	unlink(token_path);
	return tls_files_remove(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_revoked_token_ends_its_sessions_and_no_others),
		cmocka_unit_test(a_broken_token_file_ends_nothing),
		cmocka_unit_test(names_of_tokens_and_certificates_are_never_the_same),
		cmocka_unit_test(wrong_tokens_of_an_address_are_limited),
		cmocka_unit_test(handshakes_of_an_address_are_limited),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

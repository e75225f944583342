/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server with quotas for each name (--limits): what is over one is refused
 * with its figures, another name does not notice, and a file that is read again
 * holds for what is asked for from then on.
 */
#include "tests/unit/site_rig.h"

#include "server/usage.h"

static char limits_path[] = "/tmp/gp-limits-XXXXXX";

static void limit(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void limit(const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	write_file(limits_path, text);
}

static struct gp_server_settings settings(void)
{
	struct gp_server_settings set = server_thread_settings();
	set.tokens = token_path;
	set.limits = limits_path;
	set.resume_window_s = 3600;
	set.max_sessions = 16;
	write_tokens("edge-1 " ONE "\nedge-2 " TWO "\nedge-3 " THREE "\n");
	return set;
}

static void expect_refused(const struct site *s, const char *token, enum gp_status code, const char *part)
{
	struct raw_peer c;
	say_hello(&c, s, token);
	const uint32_t retry_ms = expect_code(&c, code, part);
	assert_int_equal(retry_ms > 0, code == GP_BUSY);
}

static void a_name_has_no_more_sessions_than_it_may_parked_ones_included(void **state)
{
	(void)state;
	struct raw_peer parked, open, other, more;
	struct site s;
	limit("default sessions=2\n");
	const struct gp_server_settings set = settings();
	site_start(&s, &set);
	open_session(&parked, &s, ONE);
	client_close(&parked);
	site_await_parked(&s, 1);
	open_session(&open, &s, ONE);
	expect_refused(&s, ONE, GP_BUSY, "token:edge-1 may have 2 (--limits) and in use are 2, parked ones included");
	open_session(&other, &s, TWO);
	put_step(&open, &s.f);

	limit("default sessions=2\ntoken:edge-1 sessions=3\n"); /* raised */
	site_reload(&s);
	open_session(&more, &s, ONE);
	expect_refused(&s, ONE, GP_BUSY, "token:edge-1 may have 3 (--limits) and in use are 3");

	limit("default sessions=2\ntoken:edge-1 sessions=1\n"); /* lowered: those that are open go on */
	site_reload(&s);
	assert_int_equal(atomic_load(&s.alive), 4);
	put_step(&more, &s.f);
	expect_refused(&s, ONE, GP_BUSY, "may have 1 (--limits) and in use are 3");

	limit("default sessions=2\ntoken:edge-1 sessions=0\n");
	site_reload(&s);
	expect_refused(&s, ONE, GP_DENIED, "token:edge-1 may have none here");
	put_step(&other, &s.f);
	client_close(&open);
	client_close(&more);
	client_close(&other);
	site_stop(&s);
}

/* A session may not be there before a client comes again. */
static void be_welcome_some_time(struct raw_peer *c, const struct site *s, const char *token)
{
	for (int i = 0;; i++) {
		assert_true(i < 15000);
		say_hello(c, s, token);
		Gpsplit__Control *m = get_control(c);
		assert_non_null(m);
		const bool welcome = m->body_case == GPSPLIT__CONTROL__BODY_WELCOME;
		assert_true(welcome || (m->body_case == GPSPLIT__CONTROL__BODY_ERROR && m->error->code == GP_BUSY));
		gpsplit__control__free_unpacked(m, NULL);
		if (welcome)
			return;
		client_close(c);
		usleep(20000);
	}
}

static void a_name_that_parks_all_sessions_makes_room_for_others_that_have_fewer(void **state)
{
	(void)state;
	struct raw_peer parked, two, three;
	struct site s;
	limit("default sessions=any\n");
	struct gp_server_settings set = settings();
	set.max_sessions = 4;
	site_start(&s, &set);
	for (int i = 0; i < 4; i++) {
		open_session(&parked, &s, ONE);
		client_close(&parked);
		site_await_parked(&s, i + 1);
	}
	expect_refused(&s, ONE, GP_BUSY, "no room for another session"); /* its own ones stay */
	site_await_parked(&s, 4);
	be_welcome_some_time(&two, &s, TWO);
	site_await_parked(&s, 3);
	be_welcome_some_time(&three, &s, THREE);
	site_await_parked(&s, 2);
	client_close(&two); /* it was not open yet, so it is not parked */
	be_welcome_some_time(&two, &s, TWO);
	put_open(&two, s.f.body, NULL);
	expect_control(&two, GPSPLIT__CONTROL__BODY_READY);
	client_close(&two);
	site_await_parked(&s, 3);
	usleep(2 * GP_SERVER_TICK_MS * 1000);
	expect_refused(&s, ONE, GP_BUSY, "no room for another session"); /* not even for that: it has as many parked */
	site_await_parked(&s, 3);
	client_close(&three);
	site_stop(&s);
}

static void expect_no_room(const struct site *s, const char *token, enum gp_status code, const char *part)
{
	struct raw_peer c;
	be_welcome(&c, s, token);
	put_open(&c, s->f.body, NULL);
	expect_code(&c, code, part);
}

static void all_sessions_of_a_name_have_its_memory_together(void **state)
{
	(void)state;
	struct raw_peer first, second, other;
	struct site s;
	char text[80];
	limit("token:edge-2 sessions=any\n");
	const struct gp_server_settings set = settings();
	site_start(&s, &set);
	const unsigned long long one = open_session(&first, &s, ONE), most = one + one / 2;
	limit("token:edge-1 memory=%llu\n", most);
	site_reload(&s);
	snprintf(text, sizeof text, "token:edge-1 may have %.1f MiB in all (--limits) and in use are %.1f MiB",
		 (double)most / 1048576, (double)one / 1048576);
	expect_no_room(&s, ONE, GP_BUSY, text);
	open_session(&other, &s, TWO);
	client_close(&first);
	site_await_parked(&s, 1);
	expect_no_room(&s, ONE, GP_BUSY, text); /* it has its memory while it is parked */

	limit("token:edge-1 memory=%llu\n", 2 * one);
	site_reload(&s);
	assert_int_equal(be_welcome(&second, &s, ONE), 2 * one);
	client_close(&second);
	open_session(&second, &s, ONE);

	limit("token:edge-3 memory=%llu\ntoken:edge-1 memory=0\n", one - 1);
	site_reload(&s);
	snprintf(text, sizeof text, "token:edge-3 may have %.1f MiB in all (--limits); use smaller chunks",
		 (double)(one - 1) / 1048576);
	expect_no_room(&s, THREE, GP_NOMEM, text);
	put_step(&second, &s.f);
	put_step(&other, &s.f);
	client_close(&second);
	client_close(&other);
	site_stop(&s);
}

/* The head of a control message of so many bytes, and nothing of it. */
static void put_head_of_control(struct raw_peer *c, uint32_t bytes)
{
	uint8_t head[GP_RECORD_HEADER_BYTES];
	const struct gp_record_head h = {.kind = GP_RECORD_CONTROL, .len = bytes};
	gp_record_head_write(&h, head);
	put(c, head, sizeof head);
}

/* Else a name could have 4 MiB in each of many connections that never come to an end with their OPEN, and more than that
 * while it is read. */
static void an_open_that_comes_counts_as_memory_of_its_name_from_its_first_byte(void **state)
{
	(void)state;
	enum { LONG = 3 << 20 };
	struct raw_peer slow, more, other;
	struct site s;
	limit("token:edge-1 memory=48M\n");
	const struct gp_server_settings set = settings();
	site_start(&s, &set);
	be_welcome(&slow, &s, ONE);
	put_head_of_control(&slow, LONG);
	for (uint64_t used = 0; used < LONG; used = atomic_load(&s.memory_used))
		usleep(1000);
	be_welcome(&more, &s, ONE);
	put_head_of_control(&more, LONG);
	expect_code(&more, GP_BUSY, "open: to read 3145728 bytes: this session needs");
	open_session(&more, &s, ONE); /* a short one has room */
	open_session(&other, &s, TWO);
	client_close(&more);
	client_close(&slow);
	be_welcome(&slow, &s, THREE);
	limit("token:edge-3 memory=10M\n");
	site_reload(&s);
	put_head_of_control(&slow, LONG);
	expect_code(&slow, GP_NOMEM, "token:edge-3 may have 10.0 MiB in all (--limits)");
	put_step(&other, &s.f);
	client_close(&other);
	site_stop(&s);
}

/* One link in a minute, so that one that comes when it should not has at most a minute to wait. */
static void links_of_a_name_in_a_minute_are_limited_and_the_client_is_told_how_long_to_wait(void **state)
{
	(void)state;
	struct raw_peer c;
	struct site s;
	limit("token:edge-1 links=1\n");
	const struct gp_server_settings set = settings();
	site_start(&s, &set);
	bool limited = false;
	for (int links = 0; links < 1000 && !limited; links++) {
		say_hello(&c, &s, ONE);
		Gpsplit__Control *m = get_control(&c);
		assert_non_null(m);
		limited = m->body_case == GPSPLIT__CONTROL__BODY_ERROR;
		assert_true(!limited || links > 0);
		if (limited) {
			assert_int_equal(m->error->code, GP_BUSY);
			assert_true(m->error->retry_ms > 0 && m->error->retry_ms <= 60002);
			assert_non_null(strstr(m->error->text, "token:edge-1 may begin 1 in a minute (--limits)"));
		}
		gpsplit__control__free_unpacked(m, NULL);
		client_close(&c);
	}
	assert_true(limited);
	be_welcome(&c, &s, TWO);
	client_close(&c);
	limit("token:edge-1 links=any\n");
	site_reload(&s);
	be_welcome(&c, &s, ONE);
	client_close(&c);
	site_stop(&s);
}

static void clients_without_names_are_one_and_have_the_line_of_their_own(void **state)
{
	(void)state;
	struct gp_server_settings set = server_thread_settings();
	struct raw_peer open;
	struct site s;
	limit("default sessions=9\nanonymous sessions=1\n");
	set.limits = limits_path;
	site_start(&s, &set);
	open_session(&open, &s, "");
	expect_refused(&s, "", GP_BUSY, "clients without a name may have 1 (--limits) and in use are 1");
	client_close(&open);
	site_stop(&s);
}

static void a_broken_file_leaves_the_old_limits_and_does_not_keep_a_token_from_being_revoked(void **state)
{
	(void)state;
	struct raw_peer open, other;
	struct site s;
	limit("default sessions=1\n");
	const struct gp_server_settings set = settings();
	site_start(&s, &set);
	open_session(&open, &s, ONE);
	open_session(&other, &s, TWO);
	limit("default sessions=2\ntoken:edge-1 sesions=2\n");
	write_tokens("edge-1 " ONE "\n");
	site_reload_any(&s);
	assert_int_equal(s.credentials, GP_OK);
	assert_int_equal(s.limits, GP_INVALID);
	assert_non_null(strstr(s.limits_err.text, "no key 'sesions'; did you mean 'sessions'?"));
	assert_non_null(strstr(s.limits_err.text, ":2: "));
	expect_code(&other, GP_DENIED, "taken out of the server's file");
	expect_refused(&s, ONE, GP_BUSY, "may have 1");
	put_step(&open, &s.f);
	client_close(&open);
	site_stop(&s);
}

static void a_server_does_not_start_with_a_broken_file(void **state)
{
	(void)state;
	struct gp_server server;
	struct gp_err err = {0};
	uv_loop_t loop;
	limit("default sessions=2\n\nedge-1 sessions=2\n");
	const struct gp_server_settings set = settings();
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(gp_server_start(&server, &loop, &set, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "--limits: "));
	assert_non_null(strstr(err.text, ":3: 'edge-1' is no client's name"));
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* While another one is always busy, the difference is one of turns: test_worker_share. */
static void a_session_does_not_stand_before_those_of_its_client_that_have_ended(void **state)
{
	(void)state;
	struct raw_peer c;
	struct site s;
	uint64_t used[2] = {0, 0};
	limit("default sessions=any\n");
	struct gp_server_settings set = settings();
	set.resume_window_s = 0;
	site_start(&s, &set);
	open_session(&c, &s, ONE);
	put_step(&c, &s.f);
	get_answers(&c, 2, 0);
	site_reload(&s); /* by then it has been read again */
	used[0] = atomic_load(&s.share_used);
	client_close(&c);
	while (atomic_load(&s.share_used) > 0)
		usleep(1000);
	be_welcome_some_time(&c, &s, ONE);
	put_open(&c, s.f.body, NULL);
	expect_control(&c, GPSPLIT__CONTROL__BODY_READY);
	while ((used[1] = atomic_load(&s.share_used)) == 0)
		usleep(1000);
	assert_true(used[1] >= used[0]);
	client_close(&c);
	site_stop(&s);
}

/* --- shares of a device ------------------------------------------------------------------------------------------ */

/* Without links and bodies: a share is a number of the session. */
static void share_of_a_name_is_divided_among_its_sessions_on_a_device(void **state)
{
	(void)state;
	struct gp_server srv = {0};
	struct gp_server_session session[5] = {0};
	static const int device[5] = {0, 0, 1, 0, -1};
	static const char *const who[5] = {"token:edge-1", "token:edge-1", "token:edge-1", "token:edge-2",
					   "token:edge-1"};
	struct gp_err err;
	limit("token:edge-1 share=3\n");
	srv.set.limits = limits_path;
	for (int i = 0; i < 5; i++) {
		strcpy(session[i].who, who[i]);
		session[i].device = device[i] < 0 ? NULL : &srv.devices.device[device[i]];
		session[i].next = i < 4 ? &session[i + 1] : NULL;
	}
	srv.sessions = &session[0];
	assert_int_equal(gp_usage_load_limits(&srv, &err), GP_OK);
	assert_true(session[0].device_share == 1.5 && session[1].device_share == 1.5);
	assert_true(session[2].device_share == 3.0);
	assert_true(session[3].device_share == 1.0); /* no share: each of its sessions counts as one */
	session[1].device = &srv.devices.device[1];
	gp_usage_share_devices(&srv, "token:edge-1");
	assert_true(session[0].device_share == 3.0);
	assert_true(session[1].device_share == 1.5 && session[2].device_share == 1.5);
	gp_usage_free_limits(&srv);
}

static int set_up(void **state)
{
	(void)state;
	const int tokens = mkstemp(token_path), limits = mkstemp(limits_path);
	if (tokens < 0 || limits < 0)
		return -1;
	close(tokens);
	close(limits);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(token_path);
	unlink(limits_path);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_has_no_more_sessions_than_it_may_parked_ones_included),
		cmocka_unit_test(a_name_that_parks_all_sessions_makes_room_for_others_that_have_fewer),
		cmocka_unit_test(all_sessions_of_a_name_have_its_memory_together),
		cmocka_unit_test(an_open_that_comes_counts_as_memory_of_its_name_from_its_first_byte),
		cmocka_unit_test(links_of_a_name_in_a_minute_are_limited_and_the_client_is_told_how_long_to_wait),
		cmocka_unit_test(clients_without_names_are_one_and_have_the_line_of_their_own),
		cmocka_unit_test(a_broken_file_leaves_the_old_limits_and_does_not_keep_a_token_from_being_revoked),
		cmocka_unit_test(a_server_does_not_start_with_a_broken_file),
		cmocka_unit_test(a_session_does_not_stand_before_those_of_its_client_that_have_ended),
		cmocka_unit_test(share_of_a_name_is_divided_among_its_sessions_on_a_device),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

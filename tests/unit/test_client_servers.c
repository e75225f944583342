/* SPDX-License-Identifier: Apache-2.0
 *
 * A session that knows several servers (client/session/server_list.h), against real ones and ones that turn it away: it goes to
 * the next, and returns to the one that has its session, wherever it has asked meanwhile. Which one is next:
 * test_server_list.c; whole programs: tests/e2e/servers.sh.
 */
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>

#include "tests/unit/resume_rig.h"
#include "tests/unit/cut_proxy.h"
#include "tests/unit/raw_peer.h"

/* Answers every HELLO with the same ERROR; or every OPEN. */
struct refuser {
	pthread_t thread;
	int listener;
	char address[32];
	uint32_t code;
	bool at_open;
	bool silent; /* has nothing to say to HELLO */
	uint32_t retry_ms;
	char **servers;
	size_t servers_count;
	atomic_int asked;
};

static void skip_message(struct raw_peer *p)
{
	Gpsplit__Control *m = get_control(p);
	if (m)
		gpsplit__control__free_unpacked(m, NULL);
}

static void put_welcome(struct raw_peer *p)
{
	Gpsplit__Limits limits = GPSPLIT__LIMITS__INIT;
	Gpsplit__Welcome welcome = GPSPLIT__WELCOME__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	limits.window = 8;
	limits.step_timeout_ms = 20000;
	welcome.version = GP_PROTO_VERSION;
	welcome.session = 1;
	welcome.limits = &limits;
	m.body_case = GPSPLIT__CONTROL__BODY_WELCOME;
	m.welcome = &welcome;
	put_control(p, &m);
}

/* False: the client has gone, and has said nothing. */
static bool greet(struct raw_peer *p)
{
	uint8_t preface[GP_PREFACE_BYTES];
	gp_preface_write(preface);
	put(p, preface, sizeof preface);
	return get(p, preface, sizeof preface);
}

static void refuse(struct refuser *r, int fd)
{
	struct raw_peer p = {.fd = fd, .body_cap = 1 << 20};
	Gpsplit__Error error = GPSPLIT__ERROR__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	char text[] = "not you";
	if (!greet(&p))
		return;
	p.body = gp_calloc(p.body_cap, 1);
	skip_message(&p);
	atomic_fetch_add(&r->asked, 1);
	if (r->silent) {
		while (get(&p, text, 1))
			;
		gp_free(p.body);
		return;
	}
	if (r->at_open) {
		put_welcome(&p);
		skip_message(&p);
	}
	error.code = r->code;
	error.text = text;
	error.retry_ms = r->retry_ms;
	error.servers = r->servers;
	error.n_servers = r->servers_count;
	m.body_case = GPSPLIT__CONTROL__BODY_ERROR;
	m.error = &error;
	put_control(&p, &m);
	while (get(&p, text, 1)) /* until the client has gone */
		;
	gp_free(p.body);
}

static void *refuser_main(void *arg)
{
	struct refuser *r = arg;
	int fd;
	while ((fd = accept(r->listener, NULL, NULL)) >= 0) {
		refuse(r, fd);
		close(fd);
	}
	return NULL;
}

static void refuser_start_at(struct refuser *r, struct in_addr where)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = where};
	socklen_t len = sizeof a;
	char host[INET_ADDRSTRLEN];
	r->listener = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(r->listener, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(r->listener, 8), 0);
	assert_int_equal(getsockname(r->listener, (struct sockaddr *)&a, &len), 0);
	snprintf(r->address, sizeof r->address, "%s:%u", inet_ntop(AF_INET, &where, host, sizeof host),
		 ntohs(a.sin_port));
	assert_int_equal(pthread_create(&r->thread, NULL, refuser_main, r), 0);
}

static void refuser_start(struct refuser *r, uint32_t code, char **servers, size_t count)
{
	*r = (struct refuser){
		.code = code, .retry_ms = code == GP_BUSY ? 60000 : 0, .servers = servers, .servers_count = count};
	refuser_start_at(r, (struct in_addr){htonl(INADDR_LOOPBACK)});
}

static void refuser_stop(struct refuser *r)
{
	shutdown(r->listener, SHUT_RDWR);
	pthread_join(r->thread, NULL);
	close(r->listener);
}

static char *list(const char *a, const char *b)
{
	static char text[128];
	snprintf(text, sizeof text, "%s,%s", a, b);
	return text;
}

static void expect_passed_over(struct refuser first)
{
	struct server_thread *server = start_server(120);
	struct outcome want, got;
	run(server->address, &raw_sgd, &want);
	refuser_start_at(&first, (struct in_addr){htonl(INADDR_LOOPBACK)});
	run(list(first.address, server->address), &raw_sgd, &got);
	expect_same(&got, &want, "before the session", 0);
	assert_int_equal(got.figures.reconnects, 0);
	assert_true(atomic_load(&first.asked) >=
		    1); /* more often where the other one is slower than --connect-timeout */
	refuser_stop(&first);
	server_thread_stop(server);
}

static void one_that_has_no_room_is_passed_over(void **state)
{
	(void)state;
	expect_passed_over((struct refuser){.code = GP_BUSY, .retry_ms = 60000});
}

static void one_that_does_not_know_the_client_is_passed_over(void **state)
{
	(void)state;
	expect_passed_over((struct refuser){.code = GP_DENIED});
}

/* It lacks an option, say, or memory. */
static void one_that_refuses_the_session_is_passed_over(void **state)
{
	(void)state;
	expect_passed_over((struct refuser){.code = GP_UNSUPPORTED, .at_open = true});
	expect_passed_over((struct refuser){.code = GP_INVALID, .at_open = true});
}

static void one_that_does_not_answer_hello_is_passed_over(void **state)
{
	(void)state;
	const double patience = connect_timeout_s;
	connect_timeout_s = 1;
	expect_passed_over((struct refuser){.silent = true});
	connect_timeout_s = patience;
}

static void when_all_refuse_the_reason_of_the_last_is_told(void **state)
{
	(void)state;
	struct refuser first, second;
	struct gp_err err = {0};
	struct rig r;
	refuser_start(&first, GP_DENIED, NULL, 0);
	refuser_start(&second, GP_DENIED, NULL, 0);
	assert_int_equal(rig_init(&r, list(first.address, second.address), &raw_sgd, true, &err), GP_DENIED);
	assert_non_null(strstr(err.text, "none of the servers"));
	assert_non_null(strstr(err.text, "not you"));
	rig_deinit(&r);
	refuser_stop(&first);
	refuser_stop(&second);
}

/* Names among which one is a server. The first server has no room for a minute: nobody waits for it. */
static void a_server_that_is_named_is_asked_where_that_is_allowed(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	char junk[] = "gpu 1:4400", none[] = "10.0.0.1:0", script[] = "a\x1b[2J:1", *named[4];
	const struct gp_client_security any = {.follow = GP_FOLLOW_ANY}, ca = {.follow = GP_FOLLOW_CA};
	const double patience = reconnect_for_s;
	struct refuser first;
	struct outcome want, got;
	struct gp_err err = {0};
	struct rig r;
	run(server->address, &raw_sgd, &want);
	named[0] = junk;
	named[1] = none;
	named[2] = script;
	named[3] = server->address;
	refuser_start(&first, GP_BUSY, named, 4);
	security = &any;
	run(first.address, &raw_sgd, &got);
	expect_same(&got, &want, "before the session", 0);
	assert_int_equal(atomic_load(&first.asked), 1);
	security = &ca; /* in the clear, so that no CA vouches for anybody */
	reconnect_for_s = 0;
	assert_int_equal(rig_init(&r, first.address, &raw_sgd, true, &err), GP_BUSY);
	rig_deinit(&r);
	security = NULL;
	reconnect_for_s = patience;
	refuser_stop(&first);
	server_thread_stop(server);
}

/* An address of this machine that is not loopback; false: it has none. */
static bool find_far_address(struct in_addr *out)
{
	struct ifaddrs *all;
	bool found = false;
	if (getifaddrs(&all) != 0)
		return false;
	for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_LOOPBACK))
			continue;
		*out = ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
		found = true;
	}
	freeifaddrs(all);
	return found;
}

/* 127.1 is one way to write it in which no check of names sees what it is; a name of its own would be another. */
static void a_server_elsewhere_sends_nobody_to_what_listens_here(void **state)
{
	(void)state;
	struct refuser here, far = {.code = GP_BUSY};
	const struct gp_client_security any = {.follow = GP_FOLLOW_ANY};
	const double patience = reconnect_for_s;
	char home[32], *named[] = {home};
	struct in_addr where;
	struct gp_err err = {0};
	struct rig r;
	if (!find_far_address(&where))
		skip();
	refuser_start(&here, GP_DENIED, NULL, 0);
	snprintf(home, sizeof home, "127.1%s", strchr(here.address, ':'));
	far.servers = named;
	far.servers_count = 1;
	refuser_start_at(&far, where);
	security = &any;
	reconnect_for_s = 0;
	assert_int_not_equal(rig_init(&r, far.address, &raw_sgd, true, &err), GP_OK);
	rig_deinit(&r);
	assert_int_equal(atomic_load(&far.asked), 1);
	assert_int_equal(atomic_load(&here.asked), 0);
	security = NULL;
	reconnect_for_s = patience;
	refuser_stop(&far);
	refuser_stop(&here);
}

/* The last attempt has what is left of the time, which may be too little. */
static void expect_given_up(enum gp_status status, const struct gp_err *err, const char *text)
{
	assert_true(status == GP_PEER || status == GP_TIMEOUT);
	assert_non_null(strstr(err->text, text));
}

/* It says that another OPEN may do, as one with an older checkpoint, and when; but never takes any. */
static void one_that_asks_for_another_try_keeps_nobody_longer_than_it_should(void **state)
{
	(void)state;
	static const uint32_t retry_ms[] = {0, UINT32_MAX};
	const double patience = reconnect_for_s;
	struct gp_err err = {0};
	reconnect_for_s = 1;
	for (size_t i = 0; i < sizeof retry_ms / sizeof retry_ms[0]; i++) {
		char dir[] = "/tmp/gp_servers_XXXXXX", command[64];
		struct refuser first = {.code = GP_CANCELED, .at_open = true, .retry_ms = retry_ms[i]};
		struct gp_pairs spec = {.count = 0};
		struct rig r;
		assert_non_null(mkdtemp(dir));
		const struct gp_run_state_options options = {.dir = dir, .every = 1, .total_steps = 9, .spec = &spec};
		refuser_start_at(&first, (struct in_addr){htonl(INADDR_LOOPBACK)});
		expect_ok(gp_run_state_open(&options, &run_state, &err), &err);
		expect_given_up(rig_init(&r, first.address, &raw_sgd, true, &err), &err, "gave up reconnecting");
		assert_true(atomic_load(&first.asked) >= (retry_ms[i] ? 1 : 2));
		rig_deinit(&r);
		gp_run_state_close(run_state);
		run_state = NULL;
		refuser_stop(&first);
		snprintf(command, sizeof command, "rm -rf '%s'", dir);
		assert_int_equal(system(command), 0);
	}
	reconnect_for_s = patience;
}

/* The way to the session is closed until the other server was asked. */
struct opener {
	pthread_t thread;
	struct cut_proxy *closed, *other;
};

static void *opener_main(void *arg)
{
	struct opener *o = arg;
	while (atomic_load(&o->other->accepted) == 0)
		usleep(1000);
	atomic_store(&o->closed->deafens, false);
	atomic_store(&o->closed->deaf, false);
	return NULL;
}

static void check_return(const struct config *c)
{
	static struct cut_proxy at, past;
	struct server_thread *server = start_server(120), *without = start_server(120);
	struct opener o = {.closed = &at, .other = &past};
	struct outcome want, got;
	run(server->address, c, &want);
	for (int step = 2; step <= STEPS; step++) {
		const uint64_t byte = want.down[step] + (want.down[step] - want.down[step - 1]) / 3;
		cut_proxy_start(&at, server->port, (struct cut_plan){.down = byte}, false);
		cut_proxy_start(&past, without->port, (struct cut_plan){0}, false);
		atomic_store(&at.deafens, true);
		assert_int_equal(pthread_create(&o.thread, NULL, opener_main, &o), 0);
		run(list(at.address, past.address), c, &got);
		pthread_join(o.thread, NULL);
		assert_int_equal(atomic_load(&at.cuts), 1);
		expect_same(&got, &want, "with another server between", byte);
		assert_int_equal(got.figures.reconnects, 1);
		cut_proxy_stop(&at);
		cut_proxy_stop(&past);
	}
	server_thread_stop(without);
	server_thread_stop(server);
}

static void a_session_is_found_again_past_a_server_without_it(void **state)
{
	(void)state;
	check_return(&raw_sgd);
	check_return(&remembered_adam);
}

/* What came first was at one server, and what came behind at the other: the first has nothing more to give. */
static void before_its_first_step_a_session_begins_anew_elsewhere(void **state)
{
	(void)state;
	static struct cut_proxy at;
	struct server_thread *server = start_server(120), *other = start_server(120);
	struct outcome want, got;
	run(server->address, &raw_adam, &want);
	cut_proxy_start(&at, server->port, (struct cut_plan){.up = want.up[0] - 100}, false);
	atomic_store(&at.deafens, true);
	run(list(at.address, other->address), &raw_adam, &got);
	assert_int_equal(atomic_load(&at.cuts), 1);
	expect_same(&got, &want, "while weights go up", want.up[0] - 100);
	cut_proxy_stop(&at);
	server_thread_stop(other);
	server_thread_stop(server);
}

/* An evaluation has nothing to lose. */
static void an_evaluation_goes_on_elsewhere_when_its_server_stops(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120), *other = start_server(120);
	struct gp_step_result want, got;
	struct gp_engine_figures f;
	struct gp_err err = {0};
	struct rig r;
	expect_ok(rig_init(&r, other->address, &raw_sgd, false, &err), &err);
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &want, &err), &err);
	rig_deinit(&r);
	expect_ok(rig_init(&r, list(server->address, other->address), &raw_sgd, false, &err), &err);
	server_thread_stop(server);
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &got, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	assert_int_equal(f.reconnects, 1);
	assert_true(got.loss_sum == want.loss_sum);
	assert_int_equal(got.correct, want.correct);
	rig_deinit(&r);
	server_thread_stop(other);
}

/*
 * The first server is lost within the first step. The second begins the session anew, but its READY is lost with the link:
 * the connection that comes then resumes a session, but not the one that had got so far.
 */
static void a_session_that_has_begun_anew_is_no_old_one(const struct config *c)
{
	static struct cut_proxy p;
	struct server_thread *server = start_server(120), *other = start_server(120);
	struct outcome want, got;
	struct gp_err err = {0};
	struct rig r;
	run(other->address, c, &want);
	const struct cut_plan plan[2] = {{.down = want.down[0] + (want.down[1] - want.down[0]) / 2},
					 {.down = want.down[0] - 1}};
	cut_proxy_start_twice(&p, server->port, plan);
	expect_ok(rig_init(&r, p.address, c, true, &err), &err);
	atomic_store(&p.server_port, other->port);
	run_opened(&r, c, &got);
	assert_int_equal(atomic_load(&p.cuts), 2);
	assert_int_equal(atomic_load(&p.accepted), 3);
	expect_same(&got, &want, "twice", plan[0].down);
	cut_proxy_stop(&p);
	server_thread_stop(other);
	server_thread_stop(server);
}

static void a_first_step_begins_anew_where_ready_was_lost(void **state)
{
	(void)state;
	a_session_that_has_begun_anew_is_no_old_one(&raw_sgd);
	a_session_that_has_begun_anew_is_no_old_one(&remembered_adam);
	a_session_that_has_begun_anew_is_no_old_one(&wide_remembered);
}

static void open_for_statistics(struct rig *r, const char *server)
{
	struct gp_err err = {0};
	expect_ok(rig_init(r, server, &calibrated, false, &err), &err);
}

static uint64_t received(const struct rig *r)
{
	struct gp_engine_figures f;
	r->engine->ops->figures(r->engine, &f);
	return f.account.received.wire_bytes;
}

/* The weights of the second server's session are those without the statistics. */
static void statistics_taken_anew_are_not_missed_where_ready_was_lost(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120), *other = start_server(120);
	struct gp_err err = {0};
	struct rig r;
	open_for_statistics(&r, other->address);
	const uint64_t opened = received(&r);
	expect_ok(r.engine->ops->calibrate(r.engine, r.loader, 3, NULL, &err), &err);
	const uint64_t taken = received(&r);
	expect_ok(r.engine->ops->get_weights(r.engine, r.weights, &err), &err);
	const struct cut_plan plan[2] = {{.down = taken + (received(&r) - taken) / 2}, {.down = opened - 1}};
	rig_deinit(&r);
	cut_proxy_start_twice(&p, server->port, plan);
	open_for_statistics(&r, p.address);
	atomic_store(&p.server_port, other->port);
	expect_ok(r.engine->ops->calibrate(r.engine, r.loader, 3, NULL, &err), &err);
	assert_int_equal(r.engine->ops->get_weights(r.engine, r.weights, &err), GP_PEER);
	assert_non_null(strstr(err.text, "and with it the running statistics"));
	rig_deinit(&r);
	cut_proxy_stop(&p);
	server_thread_stop(other);
	server_thread_stop(server);
}

/* It could not go on there, and its own server stays away. */
static void a_session_without_checkpoints_ends_when_its_server_is_gone(void **state)
{
	(void)state;
	static struct cut_proxy at;
	struct server_thread *server = start_server(120), *other = start_server(120);
	const double patience = reconnect_for_s;
	struct outcome want;
	struct gp_err err = {0};
	struct rig r;
	run(server->address, &raw_sgd, &want);
	reconnect_for_s = 1;
	cut_proxy_start(&at, server->port, (struct cut_plan){.down = want.down[2]}, false);
	atomic_store(&at.deafens, true);
	expect_ok(rig_init(&r, list(at.address, other->address), &raw_sgd, true, &err), &err);
	expect_given_up(step_until_failure(&r, &err), &err, "gave up reconnecting to servers");
	rig_deinit(&r);
	cut_proxy_stop(&at);
	reconnect_for_s = patience;
	server_thread_stop(other);
	server_thread_stop(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_has_no_room_is_passed_over),
		cmocka_unit_test(one_that_does_not_know_the_client_is_passed_over),
		cmocka_unit_test(one_that_refuses_the_session_is_passed_over),
		cmocka_unit_test(one_that_does_not_answer_hello_is_passed_over),
		cmocka_unit_test(when_all_refuse_the_reason_of_the_last_is_told),
		cmocka_unit_test(a_server_that_is_named_is_asked_where_that_is_allowed),
		cmocka_unit_test(a_server_elsewhere_sends_nobody_to_what_listens_here),
		cmocka_unit_test(one_that_asks_for_another_try_keeps_nobody_longer_than_it_should),
		cmocka_unit_test(a_session_is_found_again_past_a_server_without_it),
		cmocka_unit_test(before_its_first_step_a_session_begins_anew_elsewhere),
		cmocka_unit_test(an_evaluation_goes_on_elsewhere_when_its_server_stops),
		cmocka_unit_test(a_first_step_begins_anew_where_ready_was_lost),
		cmocka_unit_test(statistics_taken_anew_are_not_missed_where_ready_was_lost),
		cmocka_unit_test(a_session_without_checkpoints_ends_when_its_server_is_gone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring sessions of a real server (server/measure.c): what a client may ask
 * for, that it gets no more, and that others do not notice; and gpclient's own
 * measurement of the link to it (client/measure/link_measure.c). What is measured over a
 * link with a known rate and delay: tests/e2e/measure.sh.
 */
#include "tests/unit/server_rig.h"

#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "client/measure/link_measure.h"
#include "server/measure.h"
#include "tests/unit/tcp_counts.h"

enum { MEASURE_BYTES = 64 << 20, RATE = 3 };

/* Time enough for any machine, unless a test is about time. */
static int setup_measuring_for(void **state, double seconds)
{
	struct gp_server_settings set = server_thread_settings();
	set.measure_s = seconds;
	set.measure_bytes = MEASURE_BYTES;
	return setup_with(state, &set);
}

static int setup_measuring(void **state)
{
	return setup_measuring_for(state, 300);
}

static int setup_rare(void **state)
{
	struct gp_server_settings set = server_thread_settings();
	set.measure_s = 300;
	set.measure_bytes = MEASURE_BYTES;
	set.measure_rate = RATE;
	return setup_with(state, &set);
}

static int setup_hasty(void **state)
{
	return setup_measuring_for(state, 0.5);
}

/* With a field that this version does not know, which has so many bytes; 0: without. */
static void put_measure_of(struct raw_peer *c, size_t unknown)
{
	static uint8_t bytes[1000];
	ProtobufCMessageUnknownField field = {.tag = 100, .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED};
	Gpsplit__Measure measure = GPSPLIT__MEASURE__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	memset(bytes, 0x41, sizeof bytes);
	bytes[0] = (uint8_t)(unknown | 0x80); /* its length, as protobuf writes it */
	bytes[1] = (uint8_t)(unknown >> 7);
	field.data = bytes;
	field.len = 2 + unknown;
	m.base.n_unknown_fields = unknown > 0;
	m.base.unknown_fields = &field;
	m.body_case = GPSPLIT__CONTROL__BODY_MEASURE;
	m.measure = &measure;
	put_control(c, &m);
}

static void put_measure(struct raw_peer *c)
{
	put_measure_of(c, 0);
}

static void put_probe(struct raw_peer *c, uint32_t number, uint64_t bytes, uint64_t tag)
{
	Gpsplit__Probe probe = GPSPLIT__PROBE__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	probe.number = number;
	probe.bytes = bytes;
	probe.tag = tag;
	m.body_case = GPSPLIT__CONTROL__BODY_PROBE;
	m.probe = &probe;
	put_control(c, &m);
}

/* A PROBE_UP frame in one segment, of which `sent` bytes are sent. */
static void put_probe_up(struct raw_peer *c, uint32_t number, uint32_t len, size_t sent)
{
	static uint8_t bytes[GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES + 4096];
	const struct gp_record_head r = {.kind = GP_RECORD_SEGMENT,
					 .klass = GP_CLASS_BULK,
					 .flags = GP_SEGMENT_FIRST | GP_SEGMENT_LAST,
					 .len = GP_FRAME_HEADER_BYTES + len};
	const struct gp_frame_head h = {
		.type = GP_FRAME_PROBE_UP, .chunk = number, .session = c->session, .payload_len = len};
	const size_t all = GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES + len;
	gp_record_head_write(&r, bytes);
	gp_frame_head_write(&h, bytes + GP_RECORD_HEADER_BYTES);
	put(c, bytes, sent < all ? sent : all);
}

/* Returns its tag. */
static uint64_t expect_probed(struct raw_peer *c, uint32_t kind, uint32_t number)
{
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != GPSPLIT__CONTROL__BODY_PROBED)
		fail_msg("got %s '%s'", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "");
	assert_int_equal(m->probed->kind, kind);
	assert_int_equal(m->probed->number, number);
	const uint64_t tag = m->probed->tag;
	gpsplit__control__free_unpacked(m, NULL);
	return tag;
}

static void begin(struct raw_peer *c, const struct fixture *f)
{
	until_welcome(c, f);
	put_measure(c);
}

/* A session that has just ended may still count for a moment. */
static void begin_when_free(struct raw_peer *c, const struct fixture *f)
{
	for (int i = 0; i < 3000; i++) {
		begin(c, f);
		put_probe(c, 0, 0, 0);
		Gpsplit__Control *m = get_control(c);
		assert_non_null(m);
		const bool free = m->body_case == GPSPLIT__CONTROL__BODY_PROBED;
		assert_true(free || m->error->code == GP_BUSY);
		gpsplit__control__free_unpacked(m, NULL);
		if (free)
			return;
		client_close(c);
		usleep(20000);
	}
	fail_msg("somebody still measures");
}

static void expect_end(void **state, void (*hostile)(struct raw_peer *c), const char *text)
{
	struct fixture *f = *state;
	struct raw_peer c;
	begin(&c, f);
	hostile(&c);
	expect_error(&c, text);
	client_close(&c);
	still_serves(f);
	begin_when_free(&c, f);
	client_close(&c);
}

/* --- what is allowed ---------------------------------------------------------------------------------------------- */

static void probes_are_answered(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	uint64_t tag[4];
	begin(&c, f);
	put_probe(&c, 0, 0, 0);
	assert_int_equal(expect_probed(&c, 0, 0), 0);
	put_probe_up(&c, 0, 4096, SIZE_MAX);
	put_probe_up(&c, 1, 1, SIZE_MAX);
	expect_probed(&c, 2, 0);
	expect_probed(&c, 2, 1);
	put_probe(&c, 0, 3 << 20, 0); /* longer than the memory that it is sent from */
	put_probe(&c, 1, 1, 0);
	for (uint32_t i = 0; i < 4; i++) {
		tag[i] = expect_probed(&c, 1, i);
		assert_true(tag[i] != 0 && (i == 0 || tag[i] != tag[i - 1]));
		if (i < 2)
			put_probe(&c, i + 2, 300000, tag[i]);
	}
	client_close(&c);
}

static void a_frame_down_has_as_many_bytes_as_were_asked_for(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	uint64_t bytes = 0;
	begin(&c, f);
	put_probe(&c, 0, (2 << 20) + 17, 0);
	for (bool last = false; !last;) {
		uint8_t head[GP_RECORD_HEADER_BYTES];
		struct gp_record_head h;
		struct gp_err err;
		assert_true(get(&c, head, sizeof head));
		assert_int_equal(gp_record_head_read(head, &h, &err), GP_OK);
		assert_true(h.len <= c.body_cap && get(&c, c.body, h.len));
		bytes += h.kind == GP_RECORD_SEGMENT ? h.len : 0;
		last = h.kind == GP_RECORD_SEGMENT && (h.flags & GP_SEGMENT_LAST);
	}
	assert_int_equal(bytes, GP_FRAME_HEADER_BYTES + (2 << 20) + 17);
	expect_probed(&c, 1, 0);
	client_close(&c);
}

static void gpclient_measures_the_link(void **state)
{
	const struct fixture *f = *state;
	struct gp_link_figures figures;
	struct gp_err err = {0};
	const struct gp_link_measure_spec spec = {.server = f->server->address, .connect_timeout_s = 60, .seconds = 1};
	if (gp_link_measure(&spec, &figures, &err) != GP_OK)
		fail_msg("%s", err.text);
	assert_true(figures.idle.count > 0 && figures.idle.least > 0 && figures.idle.least <= figures.idle.most);
	for (int way = 0; way < GP_WAYS; way++) {
		assert_true(figures.way[way].bytes_per_s > 0); /* not NaN */
		assert_true(figures.way[way].byte_s > 0 && figures.way[way].byte_s < 1);
		assert_int_equal(figures.way[way].kernel, kernel_counts_bytes());
		assert_int_equal(figures.way[way].bytes > 0, kernel_counts_bytes());
	}
	assert_int_equal(figures.sizes, 7);
	assert_false(figures.cut_short);
}

static void gpclient_reports_what_it_has_when_the_time_is_over(void **state)
{
	const struct fixture *f = *state;
	struct gp_link_figures figures;
	struct gp_err err = {0};
	const struct gp_link_measure_spec spec = {.server = f->server->address, .connect_timeout_s = 60, .seconds = 60};
	const enum gp_status status = gp_link_measure(&spec, &figures, &err);
	if (status == GP_OK) /* within 0.5 s, or cut short */
		assert_true(figures.idle.count > 0);
	else /* a machine so slow that nothing was answered in that time */
		assert_int_equal(status, GP_TIMEOUT);
}

static void put_welcome(struct raw_peer *p)
{
	Gpsplit__Measuring measuring = GPSPLIT__MEASURING__INIT;
	Gpsplit__Welcome welcome = GPSPLIT__WELCOME__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	put_preface(p);
	measuring.time_ms = measuring.probes = UINT32_MAX;
	measuring.bytes = measuring.frame_bytes = UINT64_MAX;
	welcome.version = GP_PROTO_VERSION;
	welcome.measuring = &measuring;
	m.body_case = GPSPLIT__CONTROL__BODY_WELCOME;
	m.welcome = &welcome;
	put_control(p, &m);
}

/* A server that takes MEASURE and then only sends heartbeats, for a minute; the argument is where it listens. */
static void *silent_main(void *arg)
{
	struct raw_peer p = {.fd = accept(*(const int *)arg, NULL, NULL), .body_cap = 1 << 20};
	uint8_t ping[GP_RECORD_HEADER_BYTES + GP_PING_BYTES] = {0};
	const struct gp_record_head h = {.kind = GP_RECORD_PING, .klass = GP_CLASS_CONTROL, .len = GP_PING_BYTES};
	put_welcome(&p);
	gp_record_head_write(&h, ping);
	for (int i = 0; i < 600; i++) {
		char bytes[4096];
		const ssize_t n = recv(p.fd, bytes, sizeof bytes, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			break;
		put(&p, ping, sizeof ping);
		usleep(100000);
	}
	close(p.fd);
	return NULL;
}

/* A server that answers every probe without a frame, and says of none of the frames that it has come. */
static void *half_silent_main(void *arg)
{
	struct raw_peer p = {.fd = accept(*(const int *)arg, NULL, NULL), .body_cap = 1 << 20};
	Gpsplit__Control *m;
	p.body = gp_calloc(p.body_cap, 1);
	put_welcome(&p);
	while ((m = get_control(&p))) {
		Gpsplit__Probed probed = GPSPLIT__PROBED__INIT;
		Gpsplit__Control answer = GPSPLIT__CONTROL__INIT;
		answer.body_case = GPSPLIT__CONTROL__BODY_PROBED;
		answer.probed = &probed;
		probed.kind = 0; /* of a PROBE without a frame */
		if (m->body_case == GPSPLIT__CONTROL__BODY_PROBE && m->probe->bytes == 0) {
			probed.number = m->probe->number;
			put_control(&p, &answer);
		}
		gpsplit__control__free_unpacked(m, NULL);
	}
	close(p.fd);
	gp_free(p.body);
	return NULL;
}

/* Measures the link to a server that this function plays on a thread. */
static enum gp_status measure_played(void *(*server)(void *), double connect_timeout_s, double seconds,
				     struct gp_link_figures *figures, struct gp_err *err)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof a;
	pthread_t thread;
	char address[32];
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &len), 0);
	snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(a.sin_port));
	assert_int_equal(pthread_create(&thread, NULL, server, &listener), 0);
	const struct gp_link_measure_spec spec = {
		.server = address, .connect_timeout_s = connect_timeout_s, .seconds = seconds};
	const enum gp_status status = gp_link_measure(&spec, figures, err);
	pthread_join(thread, NULL);
	close(listener);
	return status;
}

static void a_server_that_only_sends_heartbeats_is_given_up(void **state)
{
	struct gp_link_figures figures;
	struct gp_err err = {0};
	(void)state;
	const enum gp_status status = measure_played(silent_main, 2, 0.5, &figures, &err);
	if (status != GP_TIMEOUT)
		fail_msg("got %s '%s'", gp_status_name(status), err.text);
}

/* What is known by then is told: the round trips. */
static void a_server_that_answers_small_probes_alone_is_given_up(void **state)
{
	struct gp_link_figures figures;
	struct gp_err err = {0};
	(void)state;
	const enum gp_status status = measure_played(half_silent_main, 1, 0.1, &figures, &err);
	if (status != GP_OK)
		fail_msg("got %s '%s'", gp_status_name(status), err.text);
	assert_true(figures.cut_short);
	assert_true(figures.idle.count > 0);
	assert_true(isnan(figures.way[GP_WAY_UP].bytes_per_s));
}

/* --- what is not -------------------------------------------------------------------------------------------------- */

static void measuring_may_be_off(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	struct gp_link_figures figures;
	struct gp_err err = {0};
	const struct gp_link_measure_spec spec = {.server = f->server->address, .connect_timeout_s = 60, .seconds = 1};
	begin(&c, f);
	expect_error(&c, "measures no links");
	client_close(&c);
	assert_int_equal(gp_link_measure(&spec, &figures, &err), GP_PEER);
	assert_non_null(strstr(err.text, "measures no links: it is too old for that, or was started with --measure 0"));
	still_serves(f);
}

static void put_measure_again(struct raw_peer *c)
{
	put_measure(c);
}

static void asking_twice_ends_it(void **state)
{
	expect_end(state, put_measure_again, "measure message is not expected in state MEASURE");
}

/* Fields of later versions are passed over. What is too long goes the way of OPEN, and is not taken for one. */
static void a_measure_with_unknown_fields_is_one(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	until_welcome(&c, f);
	put_measure_of(&c, 200);
	put_probe(&c, 0, 0, 0);
	expect_probed(&c, 0, 0);
	client_close(&c);
	for (size_t unknown = 256; unknown <= 992; unknown += 8) {
		until_welcome(&c, f);
		put_measure_of(&c, unknown);
		expect_error(&c, "it is too long");
		client_close(&c);
	}
	still_serves(f);
}

static void put_huge(struct raw_peer *c)
{
	put_probe(c, 0, GP_MEASURE_FRAME_BYTES + 1, 0);
}

static void put_more_than_is_left(struct raw_peer *c)
{
	put_probe(c, 0, 1, 0);
	expect_probed(c, 1, 0);
	put_probe(c, 1, MEASURE_BYTES, 0);
}

static void put_more_up_than_is_left(struct raw_peer *c)
{
	put_probe(c, 0, MEASURE_BYTES - 4095, 0);
	expect_probed(c, 1, 0);
	put_probe_up(c, 0, 4096, SIZE_MAX);
}

static void asking_for_too_much_ends_it(void **state)
{
	expect_end(state, put_huge, "allowed are 1 to 134217728");
	expect_end(state, put_more_than_is_left, "of which this session has 67108863 left");
	expect_end(state, put_more_up_than_is_left, "of which this session has 4095 left");
}

static void put_third(struct raw_peer *c)
{
	for (uint32_t i = 0; i < 3; i++)
		put_probe(c, i, 1 << 20, 0);
}

static void put_wrong_tag(struct raw_peer *c)
{
	const uint64_t tag[2] = {(put_probe(c, 0, 1000, 0), expect_probed(c, 1, 0)),
				 (put_probe(c, 1, 1000, 0), expect_probed(c, 1, 1))};
	put_probe(c, 2, 1000, tag[1] == 1 ? 2 : tag[1]);
}

static void asking_ahead_of_what_has_come_ends_it(void **state)
{
	expect_end(state, put_third, "probe 2 is not expected");
	expect_end(state, put_wrong_tag, "probe 2 is not expected: 2 were asked for, and 2 are through");
}

static void put_many_probes(struct raw_peer *c)
{
	for (uint32_t i = 0; i < GP_MEASURE_PROBES_MAX; i++) {
		put_probe(c, i, 0, 0);
		expect_probed(c, 0, i);
	}
	put_probe(c, GP_MEASURE_PROBES_MAX, 0, 0);
}

static void probes_are_limited(void **state)
{
	expect_end(state, put_many_probes, "more than 4096 probes");
}

static void put_other_number(struct raw_peer *c)
{
	put_probe(c, 1, 0, 0);
}

static void put_other_frame(struct raw_peer *c)
{
	put_frame(c, GP_FRAME_ACT_UP, 0, 0, 100, true);
}

static void put_frame_of_another_number(struct raw_peer *c)
{
	put_probe_up(c, 1, 100, SIZE_MAX);
}

static void put_commit_of_no_step(struct raw_peer *c)
{
	put_commit(c, 0, 0.1f);
}

static void what_does_not_belong_to_it_ends_it(void **state)
{
	expect_end(state, put_other_number, "probe 1 is not expected: 0 were answered");
	expect_end(state, put_other_frame, "act_up frame is not expected in state MEASURE");
	expect_end(state, put_frame_of_another_number, "probe_up 1 is not expected: 0 have come");
	expect_end(state, put_commit_of_no_step, "commit message is not expected in state MEASURE");
}

static void probes_without_measure_are_refused(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	until_welcome(&c, f);
	put_probe_up(&c, 0, 100, SIZE_MAX);
	expect_error(&c, "probe_up frame is not expected in state OPEN");
	client_close(&c);
	until_ready(&c, f);
	put_probe(&c, 0, 100, 0);
	expect_error(&c, "probe message is not expected in state RUN");
	client_close(&c);
}

static void a_client_measures_once_at_a_time(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer first, second;
	begin(&first, f);
	put_probe(&first, 0, 0, 0);
	expect_probed(&first, 0, 0);
	begin(&second, f);
	expect_error(&second, "one measuring session of a client at a time");
	client_close(&second);
	put_probe(&first, 1, 0, 0);
	expect_probed(&first, 0, 1);
	client_close(&first);
	begin_when_free(&first, f);
	client_close(&first);
}

/* On a slow machine some of the budget comes back meanwhile. */
static void a_client_measures_so_often_in_a_minute(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	for (int i = 0; i < 1000; i++) {
		begin(&c, f);
		put_probe(&c, 0, 0, 0);
		Gpsplit__Control *m = get_control(&c);
		assert_non_null(m);
		const bool answered = m->body_case == GPSPLIT__CONTROL__BODY_PROBED;
		const bool enough = !answered && strstr(m->error->text, "may begin 3 measurements in a minute");
		assert_true(answered || m->error->code == GP_BUSY);
		assert_true(!enough || (i >= RATE && m->error->retry_ms > 0));
		gpsplit__control__free_unpacked(m, NULL);
		client_close(&c);
		if (enough)
			return;
	}
	fail_msg("there is no limit");
}

static void a_name_may_be_kept_from_measuring(void **state)
{
	(void)state;
	char path[] = "/tmp/gp-limits-XXXXXX";
	struct gp_server_settings set = server_thread_settings();
	struct raw_peer c;
	void *fixture;
	const int fd = mkstemp(path);
	assert_true(fd >= 0 && write(fd, "anonymous measures=0\n", 21) == 21);
	close(fd);
	set.measure_s = 300;
	set.measure_bytes = MEASURE_BYTES;
	set.limits = path;
	assert_int_equal(setup_with(&fixture, &set), 0);
	begin(&c, fixture);
	expect_error(&c, "you may not measure here");
	client_close(&c);
	still_serves(fixture);
	teardown(&fixture);
	unlink(path);
}

/* Nothing that follows two frames gets into the connection before somebody reads them. On a slow machine some answers are not
 * made yet when it is looked at how much there is. */
static void answers_that_wait_take_little_memory(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	begin(&c, f);
	put_probe(&c, 0, 0, 0);
	expect_probed(&c, 0, 0);
	const size_t before = mallinfo2().uordblks;
	put_probe(&c, 0, 31 << 20, 0);
	put_probe(&c, 1, 31 << 20, 0);
	for (uint32_t i = 1; i < GP_MEASURE_PROBES_MAX - 2; i++)
		put_probe(&c, i, 0, 0);
	for (int i = 0; i < 25; i++) {
		const size_t now = mallinfo2().uordblks;
		if (now > before + GP_MEASURE_MEMORY_BYTES)
			fail_msg("%zu bytes, and %llu count", now - before,
				 (unsigned long long)GP_MEASURE_MEMORY_BYTES);
		usleep(20000);
	}
	client_close(&c);
}

/* Two frames are asked for, and nobody reads them: time ends it, and meanwhile others train. */
static void who_does_not_read_is_gone_when_the_time_is_over(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c, next;
	begin(&c, f);
	put_probe(&c, 0, 30 << 20, 0);
	put_probe(&c, 1, 30 << 20, 0);
	another_session_makes_a_step(f);
	begin_when_free(&next, f);
	client_close(&next);
	client_close(&c);
}

static void who_says_nothing_is_told_that_the_time_is_over(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	begin(&c, f);
	expect_error(&c, "measured for 0.5 s");
	client_close(&c);
}

static void who_leaves_within_a_frame_leaves_nothing_behind(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	begin(&c, f);
	put_probe_up(&c, 0, 4096, 1000);
	put_probe(&c, 0, 30 << 20, 0);
	client_close(&c);
	begin(&c, f);
	client_close(&c);
	begin_when_free(&c, f);
	client_close(&c);
	still_serves(f);
}

int main(void)
{
#define MEASURING(test) cmocka_unit_test_setup_teardown(test, setup_measuring, teardown)
#define HASTY(test)     cmocka_unit_test_setup_teardown(test, setup_hasty, teardown)
	const struct CMUnitTest tests[] = {
		MEASURING(probes_are_answered),
		MEASURING(a_frame_down_has_as_many_bytes_as_were_asked_for),
		MEASURING(gpclient_measures_the_link),
		cmocka_unit_test(a_server_that_only_sends_heartbeats_is_given_up),
		cmocka_unit_test(a_server_that_answers_small_probes_alone_is_given_up),
		HASTY(gpclient_reports_what_it_has_when_the_time_is_over),
		cmocka_unit_test_setup_teardown(measuring_may_be_off, setup, teardown),
		MEASURING(asking_twice_ends_it),
		MEASURING(a_measure_with_unknown_fields_is_one),
		MEASURING(asking_for_too_much_ends_it),
		MEASURING(asking_ahead_of_what_has_come_ends_it),
		MEASURING(probes_are_limited),
		MEASURING(answers_that_wait_take_little_memory),
		MEASURING(what_does_not_belong_to_it_ends_it),
		MEASURING(probes_without_measure_are_refused),
		MEASURING(a_client_measures_once_at_a_time),
		cmocka_unit_test_setup_teardown(a_client_measures_so_often_in_a_minute, setup_rare, teardown),
		cmocka_unit_test(a_name_may_be_kept_from_measuring),
		HASTY(who_does_not_read_is_gone_when_the_time_is_over),
		HASTY(who_says_nothing_is_told_that_the_time_is_over),
		MEASURING(who_leaves_within_a_frame_leaves_nothing_behind),
	};
	return cmocka_run_group_tests_name("measuring sessions", tests, NULL, NULL);
}

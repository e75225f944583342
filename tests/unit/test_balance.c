/* SPDX-License-Identifier: Apache-2.0
 *
 * When a server sends a session away (server/balance.h): rules one by one, and servers that are simulated with them behind a
 * balancer, with beats that come late, clients that come and leave, and servers that die and come back. They settle within a
 * fifth of each other, or one session, and then nothing moves any more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/rng.h"
#include "server/balance.h"

#define PAUSE_S 10.0
#define LEASE_S 30.0
#define NS      UINT64_C(1000000000)

static struct gp_beat_load load(uint32_t sessions)
{
	return (struct gp_beat_load){.known = true, .sessions = sessions, .movable = sessions, .room = 64};
}

static void name_owner(char owner[GP_OWNER_TEXT], int number)
{
	snprintf(owner, GP_OWNER_TEXT, "%016x", number + 1);
}

static struct gp_balance_self server(int number, uint32_t sessions)
{
	struct gp_balance_self s = {.load = load(sessions)};
	name_owner(s.owner, number);
	return s;
}

/* Others have numbers from 1 on, and so many sessions each; a negative number ends the list. */
static struct gp_fleet_view view_of(const int *sessions)
{
	struct gp_fleet_view v = {.lease_s = LEASE_S};
	for (; sessions[v.count] >= 0; v.count++) {
		name_owner(v.other[v.count].owner, v.count + 1);
		v.other[v.count].load = load((uint32_t)sessions[v.count]);
	}
	return v;
}

#define VIEW(...) view_of((const int[]){__VA_ARGS__, -1})

static bool wants(uint32_t own, struct gp_fleet_view v)
{
	struct gp_balance b = {.pause_s = PAUSE_S};
	const struct gp_balance_self self = server(0, own);
	return gp_balance_wants(&b, &self, &v, 1000 * NS, NULL);
}

/* --- rules ---------------------------------------------------------------------------------------------------------- */

static void one_session_more_is_no_reason(void **state)
{
	(void)state;
	assert_true(wants(5, VIEW(0)));
	assert_true(wants(2, VIEW(0)));
	assert_false(wants(1, VIEW(0)));
	assert_false(wants(4, VIEW(3)));
	assert_false(wants(3, VIEW(4)));
	assert_true(wants(5, VIEW(3)));
	assert_true(wants(64, VIEW(56)));
	assert_false(wants(64, VIEW(57))); /* many sessions: an eighth of them */
}

/* Whatever two servers have, at most one of them sends, and what it sends does not come back. */
static void two_servers_never_pass_a_session_back_and_forth(void **state)
{
	(void)state;
	for (uint32_t a = 0; a < 80; a++)
		for (uint32_t b = 0; b < 80; b++) {
			if (!wants(a, VIEW((int)b)))
				continue;
			assert_false(wants(b, VIEW((int)a)));
			assert_false(wants(b + 1, VIEW((int)a - 1)));
		}
}

/* Ten servers with one session too many each and one newcomer: not all of them send it theirs. */
static void as_many_send_as_others_can_take(void **state)
{
	(void)state;
	struct gp_fleet_view v = VIEW(5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 3);
	int senders = 0;
	for (int i = 0; i < 10; i++) {
		struct gp_balance b = {.pause_s = PAUSE_S};
		struct gp_balance_self self = {.load = v.other[i].load};
		struct gp_fleet_view others = v;
		memcpy(self.owner, v.other[i].owner, sizeof self.owner);
		memmove(&others.other[i], &others.other[i + 1], (size_t)(v.count - i - 1) * sizeof others.other[0]);
		others.count--;
		senders += gp_balance_wants(&b, &self, &others, 1000 * NS, NULL);
	}
	assert_int_equal(senders, 1);
}

static void who_drains_or_has_no_room_gets_nothing(void **state)
{
	(void)state;
	struct gp_fleet_view v = VIEW(0);
	v.other[0].load.room = 0;
	assert_false(wants(5, v));
	v = VIEW(0);
	v.other[0].load.drains = true;
	assert_false(wants(5, v));
	v = VIEW(0, 3);
	v.other[0].load.drains = true;
	assert_true(wants(5, v));
}

static void a_server_alone_or_without_movable_sessions_sends_nothing(void **state)
{
	(void)state;
	struct gp_balance b = {.pause_s = PAUSE_S};
	struct gp_balance_self self = server(0, 7);
	struct gp_fleet_view v = VIEW(0), nobody = {.lease_s = LEASE_S};
	assert_false(gp_balance_wants(&b, &self, &nobody, 1000 * NS, NULL));
	self.load.movable = 0;
	assert_false(gp_balance_wants(&b, &self, &v, 1000 * NS, NULL));
	self.load.movable = 1;
	self.load.drains = true;
	assert_false(gp_balance_wants(&b, &self, &v, 1000 * NS, NULL));
	self.load.drains = false;
	assert_true(gp_balance_wants(&b, &self, &v, 1000 * NS, NULL));
}

/* The fullest can send nothing: the next one does, in its place. */
static void who_cannot_send_does_not_stand_in_the_way(void **state)
{
	(void)state;
	struct gp_fleet_view v = VIEW(8, 4, 0);
	v.other[0].load.movable = 0;
	struct gp_balance b = {.pause_s = PAUSE_S};
	const struct gp_balance_self self = server(0, 6);
	struct gp_fleet_server to;
	assert_true(gp_balance_wants(&b, &self, &v, 1000 * NS, &to));
	assert_int_equal(to.load.sessions, 0);
}

/* --rebalance, or as long as beats take, whichever is longer. */
static void one_session_at_a_time(void **state)
{
	(void)state;
	struct gp_balance b = {.pause_s = PAUSE_S};
	const struct gp_balance_self self = server(0, 9);
	struct gp_fleet_view v = VIEW(0), after = VIEW(1);
	assert_true(gp_balance_pause_s(&b, &v) == LEASE_S / 2);
	assert_true(gp_balance_wants(&b, &self, &v, 1000 * NS, NULL));
	gp_balance_moved(&b, &self, &v, 1000 * NS);
	assert_false(gp_balance_wants(&b, &self, &after, 1000 * NS, NULL));
	assert_false(gp_balance_wants(&b, &self, &after, 1014 * NS, NULL));
	assert_true(gp_balance_wants(&b, &self, &after, 1015 * NS, NULL));
	v.lease_s = 2;
	assert_true(gp_balance_pause_s(&b, &v) == PAUSE_S);
}

/* Nobody gets there: the pause doubles, up to its bound, and is the first one again when somebody does. */
static void moves_of_no_use_become_rare(void **state)
{
	(void)state;
	struct gp_balance b = {.pause_s = PAUSE_S};
	const struct gp_balance_self self = server(0, 9);
	struct gp_fleet_view v = VIEW(0), reached = VIEW(1);
	const double pause_s = gp_balance_pause_s(&b, &v);
	uint64_t now = 1000 * NS, last = now;
	gp_balance_moved(&b, &self, &v, now);
	for (int moves = 1; moves < 12; moves++) {
		while (!gp_balance_wants(&b, &self, &v, now, NULL))
			now += NS;
		const int doublings = moves < GP_BALANCE_USELESS_MAX ? moves : GP_BALANCE_USELESS_MAX;
		assert_int_equal((now - last) / NS, (uint64_t)pause_s << doublings);
		last = now;
		gp_balance_moved(&b, &self, &v, now);
	}
	now += 2000 * NS;
	assert_true(gp_balance_wants(&b, &self, &reached, now, NULL));
	gp_balance_moved(&b, &self, &reached, now);
	reached.other[0].load.sessions++;
	assert_true(gp_balance_wants(&b, &self, &reached, now + 15 * NS, NULL));
}

/* --- servers behind a balancer -------------------------------------------------------------------------------------- */

#define SERVERS_MOST  16
#define SESSIONS_MOST 256

enum leads {
	TO_FEWEST,     /* the balancer counts connections */
	TO_NEXT,       /* clients have a list */
	ANYWHERE,      /* the balancer draws */
	NOT_TO_NUMBER0 /* the balancer counts, and thinks that one server is down, which is well */
};

struct sim_session {
	bool there;
	int at, next_of; /* at -1: on its way, from that one */
	int began_s, arrives_s, ends_s;
};

struct sim {
	enum leads leads;
	int servers, now_s;
	uint64_t seed, draws;
	bool up[SERVERS_MOST];
	struct gp_balance balance[SERVERS_MOST];
	struct gp_beat_load told[SERVERS_MOST];
	struct gp_fleet_view view[SERVERS_MOST];
	struct sim_session session[SESSIONS_MOST];
	int moves;
};

static uint32_t draw(struct sim *m, uint32_t bound)
{
	return gp_rng_below(m->seed, 1, m->draws++, bound);
}

static uint32_t sessions_at(const struct sim *m, int server_number)
{
	uint32_t n = 0;
	for (int i = 0; i < SESSIONS_MOST; i++)
		n += m->session[i].there && m->session[i].at == server_number;
	return n;
}

static bool is_led_to(const struct sim *m, int k)
{
	return m->up[k] && !(m->leads == NOT_TO_NUMBER0 && k == 0);
}

static int find_fewest(const struct sim *m)
{
	int best = -1;
	for (int k = 0; k < m->servers; k++)
		if (is_led_to(m, k) && (best < 0 || sessions_at(m, k) < sessions_at(m, best)))
			best = k;
	return best;
}

/* -1: nobody is there. */
static int lead(struct sim *m, const struct sim_session *s)
{
	if (m->leads == TO_FEWEST || m->leads == NOT_TO_NUMBER0)
		return find_fewest(m);
	const int first = m->leads == ANYWHERE ? (int)draw(m, (uint32_t)m->servers) : s->next_of + 1;
	for (int i = 0; i < m->servers; i++)
		if (m->up[(first + i) % m->servers])
			return (first + i) % m->servers;
	return -1;
}

static void arrive(struct sim *m)
{
	for (int i = 0; i < SESSIONS_MOST; i++) {
		struct sim_session *s = &m->session[i];
		if (s->there && s->ends_s > 0 && m->now_s >= s->ends_s)
			s->there = false;
		if (!s->there || s->at >= 0 || m->now_s < s->arrives_s)
			continue;
		s->at = lead(m, s);
		s->began_s = m->now_s;
	}
}

static void add_session(struct sim *m, int ends_s)
{
	for (int i = 0; i < SESSIONS_MOST; i++) {
		struct sim_session *s = &m->session[i];
		if (s->there)
			continue;
		*s = (struct sim_session){.there = true, .at = -1, .arrives_s = m->now_s, .ends_s = ends_s};
		s->next_of = (int)draw(m, (uint32_t)m->servers);
		return;
	}
}

static void put_on_its_way(struct sim *m, struct sim_session *s)
{
	s->next_of = s->at;
	s->at = -1;
	s->arrives_s = m->now_s + 1 + (int)draw(m, 3);
}

static void stop_server(struct sim *m, int k)
{
	m->up[k] = false;
	for (int i = 0; i < SESSIONS_MOST; i++)
		if (m->session[i].there && m->session[i].at == k)
			put_on_its_way(m, &m->session[i]);
}

static void start_server(struct sim *m, int k)
{
	m->up[k] = true;
	m->balance[k] = (struct gp_balance){.pause_s = PAUSE_S};
	m->view[k] = (struct gp_fleet_view){.lease_s = LEASE_S};
}

/* Every server writes and reads every sixth second, at one of its own: what it sees may be twelve seconds old. */
static void beat(struct sim *m, int k)
{
	struct gp_fleet_view *v = &m->view[k];
	if (m->now_s % 6 == k % 6)
		m->told[k] = load(sessions_at(m, k));
	if (m->now_s % 6 != (k * 5 + 2) % 6)
		return;
	v->count = 0;
	for (int i = 0; i < m->servers; i++) {
		if (i == k || !m->up[i])
			continue;
		name_owner(v->other[v->count].owner, i);
		v->other[v->count++].load = m->told[i];
	}
}

/* The first one that may go. */
static struct sim_session *find_movable(struct sim *m, int k, double pause_s)
{
	const uint32_t first = draw(m, SESSIONS_MOST);
	for (uint32_t i = 0; i < SESSIONS_MOST; i++) {
		struct sim_session *s = &m->session[(first + i) % SESSIONS_MOST];
		if (s->there && s->at == k && m->now_s - s->began_s >= GP_BALANCE_STAY_PAUSES * pause_s)
			return s;
	}
	return NULL;
}

static void even_out(struct sim *m, int k)
{
	const struct gp_balance_self self = server(k, sessions_at(m, k));
	const uint64_t now_ns = (uint64_t)m->now_s * NS;
	if (!gp_balance_wants(&m->balance[k], &self, &m->view[k], now_ns, NULL))
		return;
	struct sim_session *s = find_movable(m, k, gp_balance_pause_s(&m->balance[k], &m->view[k]));
	if (!s)
		return;
	gp_balance_moved(&m->balance[k], &self, &m->view[k], now_ns);
	put_on_its_way(m, s);
	m->moves++;
}

static void second_passes(struct sim *m)
{
	m->now_s++;
	arrive(m);
	for (int k = 0; k < m->servers; k++)
		if (m->up[k])
			beat(m, k);
	for (int k = 0; k < m->servers; k++)
		if (m->up[k])
			even_out(m, k);
}

/* The most sessions that a server has which is led to, and the fewest. */
static void bounds(const struct sim *m, uint32_t *most, uint32_t *fewest)
{
	*most = 0;
	*fewest = UINT32_MAX;
	for (int k = 0; k < m->servers; k++) {
		const uint32_t n = sessions_at(m, k);
		if (!is_led_to(m, k))
			continue;
		*most = n > *most ? n : *most;
		*fewest = n < *fewest ? n : *fewest;
	}
}

static bool is_even(const struct sim *m)
{
	uint32_t most, fewest;
	bounds(m, &most, &fewest);
	return most - fewest <= 1 || (double)(most - fewest) <= 0.2 * most;
}

static struct sim begin(enum leads leads, int servers, uint64_t seed)
{
	struct sim m = {.leads = leads, .servers = servers, .seed = seed, .now_s = 100};
	for (int k = 0; k < servers; k++)
		start_server(&m, k);
	return m;
}

static void pass(struct sim *m, int seconds)
{
	for (int i = 0; i < seconds; i++)
		second_passes(m);
}

/* tests/fault/fleet.sh: twelve clients, three servers, and one of these comes back. */
static void a_server_that_comes_back_gets_its_share(void **state)
{
	(void)state;
	struct sim m = begin(TO_FEWEST, 3, 1);
	stop_server(&m, 2);
	for (int i = 0; i < 12; i++)
		add_session(&m, 0);
	pass(&m, 100);
	assert_int_equal(sessions_at(&m, 0), 6);
	assert_int_equal(sessions_at(&m, 1), 6);
	start_server(&m, 2);
	pass(&m, 300);
	for (int k = 0; k < 3; k++)
		assert_int_equal(sessions_at(&m, k), 4);
	const int moves = m.moves;
	assert_in_range(moves, 4, 6); /* what servers know of each other is some seconds old */
	pass(&m, 7200);
	assert_int_equal(m.moves, moves);
}

/* Two hours of clients that come and leave, and servers that die and come back. */
static void disturb(struct sim *m)
{
	for (int i = 0; i < 7200; i++) {
		if (draw(m, 20) == 0)
			add_session(m, m->now_s + 60 + (int)draw(m, 1200));
		if (draw(m, 120) == 0) {
			const int k = (int)draw(m, (uint32_t)m->servers);
			if (m->up[k])
				stop_server(m, k);
			else
				start_server(m, k);
		}
		second_passes(m);
	}
	for (int k = 0; k < m->servers; k++)
		if (!m->up[k])
			start_server(m, k);
	for (int i = 0; i < SESSIONS_MOST; i++)
		m->session[i].ends_s = 0;
}

static void settle_after_faults(enum leads leads, int settle_s, int servers_most)
{
	static const int fleets[] = {2, 3, 5, SERVERS_MOST};
	for (size_t f = 0; f < sizeof fleets / sizeof fleets[0] && fleets[f] <= servers_most; f++)
		for (uint64_t seed = 1; seed <= 3; seed++) {
			struct sim m = begin(leads, fleets[f], seed);
			uint32_t most, fewest;
			disturb(&m);
			pass(&m, settle_s);
			const int moves = m.moves;
			bounds(&m, &most, &fewest);
			if (!is_even(&m))
				fail_msg("%d servers, seed %d: %u sessions at one and %u at another", fleets[f],
					 (int)seed, most, fewest);
			pass(&m, 3600);
			assert_int_equal(m.moves, moves);
			print_message("%d servers, seed %d: %u to %u sessions each, %d moves in all\n", fleets[f],
				      (int)seed, fewest, most, moves);
		}
}

static void servers_behind_a_balancer_settle_and_stay(void **state)
{
	(void)state;
	settle_after_faults(TO_FEWEST, 1800, SERVERS_MOST);
}

static void servers_in_clients_lists_settle_and_stay(void **state)
{
	(void)state;
	settle_after_faults(TO_NEXT, 7200, 5);
}

/* A balancer that draws sends a client back to where it came from now and then. It costs moves, and ends. */
static void servers_behind_a_balancer_that_draws_even_out(void **state)
{
	(void)state;
	struct sim m = begin(ANYWHERE, 3, 5);
	stop_server(&m, 1);
	stop_server(&m, 2);
	for (int i = 0; i < 12; i++)
		add_session(&m, 0);
	pass(&m, 100);
	start_server(&m, 1);
	start_server(&m, 2);
	pass(&m, 4 * 3600);
	assert_true(is_even(&m));
	assert_true(m.moves < 60);
}

/* It counts as empty for ever, and nobody gets there: that costs each of the others a session in a while, no more. */
static void a_server_that_nobody_reaches_costs_little(void **state)
{
	(void)state;
	struct sim m = begin(NOT_TO_NUMBER0, 3, 9);
	for (int i = 0; i < 12; i++)
		add_session(&m, 0);
	pass(&m, 3600);
	const int first = m.moves;
	pass(&m, 3600);
	assert_true(m.moves - first <= 2 * (3600 / (15 << GP_BALANCE_USELESS_MAX) + 1));
	assert_true(first < 24);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_session_more_is_no_reason),
		cmocka_unit_test(two_servers_never_pass_a_session_back_and_forth),
		cmocka_unit_test(as_many_send_as_others_can_take),
		cmocka_unit_test(who_drains_or_has_no_room_gets_nothing),
		cmocka_unit_test(a_server_alone_or_without_movable_sessions_sends_nothing),
		cmocka_unit_test(who_cannot_send_does_not_stand_in_the_way),
		cmocka_unit_test(one_session_at_a_time),
		cmocka_unit_test(moves_of_no_use_become_rare),
		cmocka_unit_test(a_server_that_comes_back_gets_its_share),
		cmocka_unit_test(servers_behind_a_balancer_settle_and_stay),
		cmocka_unit_test(servers_in_clients_lists_settle_and_stay),
		cmocka_unit_test(servers_behind_a_balancer_that_draws_even_out),
		cmocka_unit_test(a_server_that_nobody_reaches_costs_little),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

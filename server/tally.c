/* SPDX-License-Identifier: Apache-2.0
 *
 * See tally.h. Test: tests/unit/test_server_metrics.c
 */
#include "server/tally.h"

#include <string.h>

#include "server/link.h"
#include "server/session_status.h"

/* --- sums -------------------------------------------------------------------------------------------------------- */

void gp_tally_add(struct gp_tally_sum *a, const struct gp_tally_sum *b)
{
	gp_account_add(&a->account, &b->account);
	gp_tcp_figures_add(&a->tcp, &b->tcp);
	a->sessions += b->sessions;
	a->links += b->links;
	a->steps += b->steps;
	a->device_ns += b->device_ns;
	a->codec_ns += b->codec_ns;
	a->raw_fallbacks += b->raw_fallbacks;
	a->bad_losses += b->bad_losses;
	a->checkpoints += b->checkpoints;
	a->checkpoint_failures += b->checkpoint_failures;
	a->checkpoint_bytes += b->checkpoint_bytes;
	a->checkpoint_ns += b->checkpoint_ns;
}

static void add_link(struct gp_tally_sum *a, const struct gp_server_link *l)
{
	struct gp_tcp_figures tcp;
	gp_account_add(&a->account, gp_channel_account(l->ch));
	gp_channel_figures(l->ch, &tcp);
	gp_tcp_figures_add(&a->tcp, &tcp);
	a->links++;
}

/* A body that gives its memory back has forgotten some of what it did. */
static void raise_to(uint64_t *at_least, uint64_t value)
{
	*at_least = value > *at_least ? value : *at_least;
}

void gp_tally_sample(struct gp_server_session *s)
{
	struct gp_body_figures f;
	struct gp_tally_sum *sum = &s->sum;
	if (!s->body)
		return;
	gp_body_figures(s->body, &f);
	const struct gp_body_time used = gp_body_time_used(s->body);
	raise_to(&sum->steps, s->ready ? gp_server_session_steps(s) : 0);
	raise_to(&sum->device_ns, used.device_ns);
	raise_to(&sum->codec_ns, used.codec_ns);
	raise_to(&sum->raw_fallbacks, f.raw_fallbacks);
	raise_to(&sum->checkpoints, f.checkpoints);
	raise_to(&sum->checkpoint_failures, f.checkpoint_failures);
	raise_to(&sum->checkpoint_bytes, f.checkpoint_bytes);
	raise_to(&sum->checkpoint_ns, f.checkpoint_ns);
}

void gp_tally_of_session(const struct gp_server_session *s, struct gp_tally_sum *out)
{
	*out = s->sum;
	if (s->link)
		add_link(out, s->link);
}

void gp_tally_totals(const struct gp_server *srv, struct gp_tally_sum *out, uint64_t device_ns[GP_SERVER_DEVICES_MAX])
{
	*out = srv->tally.past;
	memcpy(device_ns, srv->tally.device_ns, sizeof srv->tally.device_ns);
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next) {
		gp_tally_add(out, &s->sum);
		if (s->device)
			device_ns[s->device - srv->devices.device] += s->sum.device_ns;
	}
	for (const struct gp_server_link *l = srv->links; l; l = l->next)
		if (!l->channel_closed)
			add_link(out, l);
}

/* --- seats ------------------------------------------------------------------------------------------------------- */

static void remove_seat(struct gp_tally *t, struct gp_tally_seat *seat)
{
	if (seat->prev)
		seat->prev->next = seat->next;
	else
		t->seats = seat->next;
	if (seat->next)
		seat->next->prev = seat->prev;
	t->seat_count--;
	gp_free(seat);
}

void gp_tally_deinit(struct gp_tally *t)
{
	while (t->seats)
		remove_seat(t, t->seats);
}

/* The first seat of this name that nobody has; *number: of a new one, where there is none. */
static struct gp_tally_seat *find_seat(const struct gp_tally *t, const char *name, int *number)
{
	struct gp_tally_seat *best = NULL;
	*number = 0;
	for (struct gp_tally_seat *seat = t->seats; seat; seat = seat->next) {
		if (strcmp(seat->name, name) != 0)
			continue;
		if (!seat->session && (!best || seat->number < best->number))
			best = seat;
		*number = seat->number >= *number ? seat->number + 1 : *number;
	}
	return best;
}

/* The number that is missing: seats of a name may have been forgotten. */
static int lowest_number(const struct gp_tally *t, const char *name, int most)
{
	for (int n = 0; n < most; n++) {
		bool taken = false;
		for (const struct gp_tally_seat *seat = t->seats; seat && !taken; seat = seat->next)
			taken = seat->number == n && strcmp(seat->name, name) == 0;
		if (!taken)
			return n;
	}
	return most;
}

static struct gp_tally_seat *new_seat(struct gp_tally *t, const char *name, int most)
{
	struct gp_tally_seat *seat = gp_calloc(1, sizeof *seat);
	if (!seat)
		return NULL;
	seat->number = lowest_number(t, name, most);
	snprintf(seat->name, sizeof seat->name, "%s", name);
	seat->next = t->seats;
	if (t->seats)
		t->seats->prev = seat;
	t->seats = seat;
	t->seat_count++;
	return seat;
}

static void forget_oldest(struct gp_tally *t)
{
	struct gp_tally_seat *oldest = NULL;
	int idle = 0;
	for (struct gp_tally_seat *seat = t->seats; seat; seat = seat->next) {
		idle += !seat->session;
		if (!seat->session && (!oldest || seat->idle_since_ns < oldest->idle_since_ns))
			oldest = seat;
	}
	if (idle > GP_TALLY_IDLE_SEATS)
		remove_seat(t, oldest);
}

void gp_tally_opened(struct gp_server_session *s)
{
	struct gp_tally *t = &s->srv->tally;
	const char *name = s->who[0] ? s->who : GP_TALLY_ANONYMOUS;
	int number;
	t->opened++;
	s->sum.sessions = 1;
	s->seat = find_seat(t, name, &number);
	if (!s->seat)
		s->seat = new_seat(t, name, number);
	if (s->seat)
		s->seat->session = s;
}

void gp_tally_ended(struct gp_server_session *s, enum gp_status reason)
{
	struct gp_tally *t = &s->srv->tally;
	if (s->told_end)
		return;
	s->told_end = true;
	if (s->ready)
		t->ended[reason]++;
	else
		gp_tally_refused(t, reason, reason == GP_OK || reason == GP_PEER);
}

void gp_tally_gone(struct gp_server_session *s)
{
	struct gp_tally *t = &s->srv->tally;
	gp_tally_sample(s);
	gp_tally_add(&t->past, &s->sum);
	if (s->device)
		t->device_ns[s->device - s->srv->devices.device] += s->sum.device_ns;
	if (!s->seat)
		return;
	gp_tally_add(&s->seat->past, &s->sum);
	s->seat->session = NULL;
	s->seat->idle_since_ns = gp_now_ns();
	s->seat = NULL;
	forget_oldest(t);
}

void gp_tally_keep_link(struct gp_server_link *l)
{
	add_link(l->session ? &l->session->sum : &l->srv->tally.past, l);
}

void gp_tally_refused(struct gp_tally *t, enum gp_status reason, bool its_client)
{
	if (its_client)
		t->left++;
	else
		t->refused[reason]++;
}

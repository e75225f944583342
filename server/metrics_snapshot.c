/* SPDX-License-Identifier: Apache-2.0
 *
 * See metrics_snapshot.h. Test: tests/unit/test_server_metrics.c
 */
#include "server/metrics_snapshot.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "server/disk_probe.h"
#include "server/link.h"
#include "server/session_status.h"

#define SNAPSHOTS  3
#define FRESH      4 /* with the index of the newest: the reader has not had it */
#define SEATS_STEP 16

struct gp_metrics {
	struct gp_server *srv;
	uv_timer_t timer;
	struct gp_disk_probe *probe; /* NULL without --state-dir */
	int64_t started_ms;
	uint64_t number;
	struct gp_metrics_snapshot snapshot[SNAPSHOTS];
	int back;          /* the loop's */
	atomic_int newest; /* index, and FRESH */
	int front;         /* the reader's */
};

/* --- a snapshot -------------------------------------------------------------------------------------------------- */

static void fill_link(struct gp_metrics_seat *out, const struct gp_server_link *l)
{
	out->has_link = true;
	gp_channel_figures(l->ch, &out->tcp);
	out->ping_rtt_us = gp_channel_rtt_us(l->ch);
}

static void fill_session(struct gp_metrics_seat *out, struct gp_server_session *s, uint64_t now_ns)
{
	struct gp_body_figures f;
	struct gp_tally_sum sum;
	out->session = s->id;
	snprintf(out->state, sizeof out->state, "%s", gp_server_session_state(s));
	snprintf(out->address, sizeof out->address, "%s", s->address);
	out->device = s->device ? (int)(s->device - s->srv->devices.device) : -1;
	out->age_ns = now_ns - s->began_ns;
	out->memory_bytes = s->memory_bytes;
	out->device_bytes = s->device_bytes;
	out->loss = s->loss;
	gp_server_session_rates(s, &out->steps_per_s, &out->up_per_s, &out->down_per_s);
	if (s->body) {
		gp_body_figures(s->body, &f);
		out->step = gp_body_steps(s->body);
		out->chunks_queued = gp_body_chunks_queued(s->body);
		out->compute_queued = f.compute_queued;
		out->codec_queued = f.codec_queued;
		out->disk_queued = f.disk_queued;
	}
	if (s->link)
		fill_link(out, s->link);
	gp_tally_of_session(s, &sum);
	gp_tally_add(&out->sum, &sum);
}

static void fill_seat(struct gp_metrics_seat *out, const struct gp_tally_seat *seat, uint64_t now_ns)
{
	memset(out, 0, sizeof *out);
	memcpy(out->name, seat->name, sizeof out->name);
	out->number = seat->number;
	out->device = -1;
	out->steps_per_s = out->up_per_s = out->down_per_s = out->loss = NAN;
	snprintf(out->state, sizeof out->state, "IDLE");
	out->sum = seat->past;
	if (seat->session)
		fill_session(out, seat->session, now_ns);
}

/* Once there are as many as there will be, nothing is allocated. */
static bool make_room(struct gp_metrics_snapshot *s, int seats)
{
	if (seats <= s->room)
		return true;
	const int room = seats + SEATS_STEP;
	struct gp_metrics_seat *more = gp_realloc(s->seat, (size_t)room, sizeof *more);
	if (!more)
		return false;
	s->seat = more;
	s->room = room;
	return true;
}

static void fill_seats(struct gp_metrics_snapshot *out, const struct gp_server *srv, uint64_t now_ns)
{
	const int all = srv->tally.seat_count, most = all < GP_METRICS_SEATS_MAX ? all : GP_METRICS_SEATS_MAX;
	out->seats = 0;
	out->seats_untold = all;
	if (!make_room(out, most))
		return;
	for (const struct gp_tally_seat *seat = srv->tally.seats; seat && out->seats < most; seat = seat->next)
		fill_seat(&out->seat[out->seats++], seat, now_ns);
	out->seats_untold = all - out->seats;
}

static void fill_devices(struct gp_metrics_snapshot *out, const struct gp_server *srv,
			 const uint64_t busy_ns[GP_SERVER_DEVICES_MAX])
{
	struct gp_err ignored;
	out->device_count = srv->devices.count;
	for (int i = 0; i < srv->devices.count; i++) {
		const struct gp_server_device *at = &srv->devices.device[i];
		struct gp_metrics_device *d = &out->device[i];
		snprintf(d->name, sizeof d->name, "%s", at->dev->name);
		snprintf(d->card, sizeof d->card, "%s", at->dev->card);
		d->well = !at->lost && (!at->dev->ops->check || at->dev->ops->check(at->dev, &ignored) == GP_OK);
		d->sessions = at->sessions;
		d->memory_bytes = at->memory_bytes;
		d->used_bytes = at->used_bytes;
		d->busy_ns = busy_ns[i];
	}
}

static int count_parked(const struct gp_server *srv)
{
	int n = 0;
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next)
		n += s->ready && !s->link && !s->ending;
	return n;
}

static void fill_counts(struct gp_metrics_snapshot *out, const struct gp_server *srv)
{
	const struct gp_tally *t = &srv->tally;
	out->sessions = srv->session_count;
	out->parked = count_parked(srv);
	out->max_sessions = (int)srv->set.max_sessions;
	out->connections = srv->link_count;
	out->strangers = srv->stranger_count;
	out->memory_used_bytes = srv->memory_used_bytes;
	out->memory_limit_bytes = srv->memory_limit_bytes;
	out->accepted = t->connections;
	out->turned_away = t->turned_away;
	out->left = t->left;
	out->opened = t->opened;
	out->resumed = t->resumed;
	out->parked_total = t->parked;
	out->moved = t->moved;
	memcpy(out->refused, t->refused, sizeof out->refused);
	memcpy(out->ended, t->ended, sizeof out->ended);
	out->events = srv->events;
}

/* One without a link is looked at by nobody else. */
static void sample(struct gp_server_session *s)
{
	gp_tally_sample(s);
	gp_server_session_sample(s);
}

static void fill(struct gp_metrics *m, struct gp_metrics_snapshot *out)
{
	struct gp_server *srv = m->srv;
	uint64_t busy_ns[GP_SERVER_DEVICES_MAX];
	const uint64_t now = gp_now_ns();
	for (struct gp_server_session *s = srv->sessions; s; s = s->next)
		sample(s);
	gp_tally_totals(srv, &out->total, busy_ns);
	fill_counts(out, srv);
	fill_devices(out, srv, busy_ns);
	fill_seats(out, srv, now);
	out->started_ms = m->started_ms;
	out->draining = srv->draining || srv->stopping;
	out->disk_asked = m->probe != NULL;
	out->disk_well = !m->probe || gp_disk_probe_is_well(m->probe, now);
	out->shares = srv->state != NULL;
	out->state = (struct gp_state_figures){.held = 0};
	if (srv->state)
		gp_state_dir_figures(srv->state, &out->state);
	out->log_dropped = gp_log_dropped();
	out->number = ++m->number;
	out->at_ns = now;
}

void gp_metrics_publish(struct gp_metrics *m)
{
	fill(m, &m->snapshot[m->back]);
	m->back = atomic_exchange(&m->newest, m->back | FRESH) & ~FRESH;
}

/* --- from the loop ----------------------------------------------------------------------------------------------- */

static void on_time(uv_timer_t *timer)
{
	gp_metrics_publish(timer->data);
}

static int64_t wall_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

enum gp_status gp_metrics_new(struct gp_server *srv, struct gp_metrics **out, struct gp_err *err)
{
	struct gp_metrics *m;
	GP_TRY(gp_alloc_array((void **)&m, 1, sizeof *m, err));
	const char *folder = srv->set.state_dir;
	if (folder && gp_disk_probe_new(folder, &m->probe, err) != GP_OK) {
		gp_free(m);
		return err->code;
	}
	m->srv = srv;
	m->started_ms = wall_ms();
	m->back = 0;
	atomic_init(&m->newest, 1);
	m->front = 2;
	gp_metrics_publish(m);
	uv_timer_init(srv->loop, &m->timer);
	m->timer.data = m;
	uv_timer_start(&m->timer, on_time, GP_METRICS_PUBLISH_MS, GP_METRICS_PUBLISH_MS);
	uv_unref((uv_handle_t *)&m->timer); /* a server that has ended otherwise has ended */
	*out = m;
	return GP_OK;
}

static void on_closed(uv_handle_t *h)
{
	struct gp_metrics *m = h->data;
	for (int i = 0; i < SNAPSHOTS; i++)
		gp_free(m->snapshot[i].seat);
	gp_free(m);
}

void gp_metrics_free(struct gp_metrics *m)
{
	if (!m)
		return;
	gp_disk_probe_free(m->probe);
	uv_close((uv_handle_t *)&m->timer, on_closed);
}

const struct gp_metrics_snapshot *gp_metrics_read(struct gp_metrics *m)
{
	if (atomic_load(&m->newest) & FRESH)
		m->front = atomic_exchange(&m->newest, m->front) & ~FRESH;
	return &m->snapshot[m->front];
}

bool gp_metrics_is_alive(const struct gp_metrics_snapshot *s, uint64_t now_ns)
{
	return now_ns < s->at_ns || now_ns - s->at_ns < GP_METRICS_ALIVE_S * UINT64_C(1000000000);
}

const char *gp_metrics_unready(const struct gp_metrics_snapshot *s)
{
	bool well = false;
	for (int i = 0; i < s->device_count; i++)
		well |= s->device[i].well;
	return s->draining ? "draining" : !well ? "device" : !s->disk_well ? "disk" : NULL;
}

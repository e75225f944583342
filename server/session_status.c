/* SPDX-License-Identifier: Apache-2.0
 *
 * See session_status.h. Test: tests/e2e/server_log.sh
 */
#include "server/session_status.h"

#include <math.h>

#include "common/base/log.h"
#include "server/link.h"

#define MIB 1048576.0

/* The series of a session's gp_rate. */
enum { STEPS, UP, DOWN };

/* Over all links: up from the client, down to it. */
struct carried {
	uint64_t up, down;
};

const char *gp_server_session_title(const struct gp_server_session *s, char out[GP_SESSION_TITLE])
{
	const bool named = s->who[0] && s->address[0];
	snprintf(out, GP_SESSION_TITLE, "session %llu (%s%s%s)", (unsigned long long)s->id, s->who, named ? ", " : "",
		 s->address);
	return out;
}

/* The kernel's count where there is TCP: what its buffers have taken has not reached anybody yet. */
static struct carried carried_by(const struct gp_server_session *s)
{
	struct gp_tcp_figures tcp = s->past_tcp, now;
	struct carried c = {s->past_up_bytes, s->past_down_bytes};
	if (s->link) {
		gp_channel_figures(s->link->ch, &now);
		gp_tcp_figures_add(&tcp, &now);
		c.up += gp_channel_account(s->link->ch)->received.wire_bytes;
		c.down += gp_channel_account(s->link->ch)->sent.wire_bytes;
	}
	if (tcp.valid)
		c = (struct carried){tcp.bytes_received, tcp.bytes_acked};
	return c;
}

uint64_t gp_server_session_steps(const struct gp_server_session *s)
{
	return s->body ? gp_body_steps(s->body) - s->restored_step : 0;
}

void gp_server_session_sample(struct gp_server_session *s)
{
	const struct carried c = carried_by(s);
	const uint64_t value[GP_RATE_SERIES] = {[STEPS] = gp_server_session_steps(s), [UP] = c.up, [DOWN] = c.down};
	gp_rate_note(&s->rate, gp_now_ns(), value);
}

void gp_server_session_told_loss(struct gp_server_session *s, double loss)
{
	const bool sound = loss >= 0.0 && loss <= GP_LOSS_MOST; /* NaN is neither */
	s->loss = sound ? loss : NAN;
	s->sum.bad_losses += !sound;
}

void gp_server_session_keep_figures(struct gp_server_session *s, const struct gp_channel *ch)
{
	struct gp_tcp_figures tcp;
	gp_channel_figures(ch, &tcp);
	gp_tcp_figures_add(&s->past_tcp, &tcp);
	s->past_up_bytes += gp_channel_account(ch)->received.wire_bytes;
	s->past_down_bytes += gp_channel_account(ch)->sent.wire_bytes;
}

const char *gp_server_session_spent(const struct gp_server_session *s, char out[GP_SESSION_SPENT])
{
	const struct gp_body_time used = s->body ? gp_body_time_used(s->body) : (struct gp_body_time){0};
	snprintf(out, GP_SESSION_SPENT, "%.1f s (%.2f s computing, %.2f s in codecs)",
		 (double)(gp_now_ns() - s->began_ns) * 1e-9, (double)used.device_ns * 1e-9,
		 (double)used.codec_ns * 1e-9);
	return out;
}

const char *gp_server_session_state(const struct gp_server_session *s)
{
	if (s->ending)
		return "ENDING";
	return s->link ? gp_link_state_name(s->link->state) : "PARKED";
}

void gp_server_session_rates(const struct gp_server_session *s, double *steps_per_s, double *up_per_s,
			     double *down_per_s)
{
	*steps_per_s = gp_rate_per_s(&s->rate, STEPS);
	*up_per_s = gp_rate_per_s(&s->rate, UP);
	*down_per_s = gp_rate_per_s(&s->rate, DOWN);
}

static double or_zero(double x)
{
	return isfinite(x) ? x : 0;
}

static void tell_session(struct gp_server_session *s)
{
	char title[GP_SESSION_TITLE], spent[GP_SESSION_SPENT];
	gp_server_session_sample(s);
	const struct carried c = carried_by(s);
	gp_log_write(GP_LOG_AREA_main, GP_LOG_INFO,
		     "status of %s: %s, step %llu, %.3g steps/s, up %.1f MB at %.2f MB/s, down %.1f MB at %.2f MB/s, "
		     "%d chunks queued, %.0f MiB, %s",
		     gp_server_session_title(s, title), gp_server_session_state(s),
		     (unsigned long long)(s->body ? gp_body_steps(s->body) : 0),
		     or_zero(gp_rate_per_s(&s->rate, STEPS)), (double)c.up * 1e-6,
		     or_zero(gp_rate_per_s(&s->rate, UP)) * 1e-6, (double)c.down * 1e-6,
		     or_zero(gp_rate_per_s(&s->rate, DOWN)) * 1e-6, s->body ? gp_body_chunks_queued(s->body) : 0,
		     (double)(s->memory_bytes + s->device_bytes) / MIB, gp_server_session_spent(s, spent));
}

static void tell_totals(const struct gp_server *srv)
{
	double steps = 0, up = 0, down = 0;
	int parked = 0, queued = 0;
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next) {
		steps += or_zero(gp_rate_per_s(&s->rate, STEPS));
		up += or_zero(gp_rate_per_s(&s->rate, UP));
		down += or_zero(gp_rate_per_s(&s->rate, DOWN));
		parked += !s->link && !s->ending;
		queued += s->body ? gp_body_chunks_queued(s->body) : 0;
	}
	gp_log_write(
		GP_LOG_AREA_main, GP_LOG_INFO,
		"status: %d sessions (%d parked) of %lld, %d connections (%d not opened), %.3g steps/s, up %.2f MB/s, "
		"down %.2f MB/s, %d chunks queued, sessions %.0f of %.0f MiB, process %.0f MiB at most%s",
		srv->session_count, parked, (long long)srv->set.max_sessions, srv->link_count, srv->stranger_count,
		steps, up * 1e-6, down * 1e-6, queued, (double)srv->memory_used_bytes / MIB,
		(double)srv->memory_limit_bytes / MIB, (double)gp_mem_peak_rss_bytes() / MIB,
		srv->draining || srv->stopping ? ", stopping" : "");
}

void gp_server_tell_status(struct gp_server *srv)
{
	for (struct gp_server_session *s = srv->sessions; s; s = s->next)
		tell_session(s);
	tell_totals(srv);
}

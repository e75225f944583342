/* SPDX-License-Identifier: Apache-2.0
 *
 * Prometheus' text of a snapshot. See metrics_show.h. Test: tests/unit/test_metrics_show.c
 */
#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/metrics/metric_account.h"
#include "common/metrics/metric_process.h"
#include "server/metrics_show.h"

/* --- what grows: of the server, and of each seat ----------------------------------------------------------------- */

static struct gp_metric_link link_of(const struct gp_tally_sum *s)
{
	return (struct gp_metric_link){.up = &s->account.received, .down = &s->account.sent};
}

static void put_link(const struct gp_metric_row *o, const struct gp_tally_sum *s,
		     void (*put)(const struct gp_metric_row *row, const struct gp_metric_link *l))
{
	const struct gp_metric_link l = link_of(s);
	put(o, &l);
}

static void put_checkpoints(const struct gp_metric_row *o, const struct gp_tally_sum *s)
{
	gp_row_count_of(o, "outcome", "written", s->checkpoints);
	gp_row_count_of(o, "outcome", "failed", s->checkpoint_failures);
}

#define SUMS(X)                                                                                                        \
	X(steps_total, gp_row_count(o, s->steps), "Steps that were committed")                                         \
	X(links_total, gp_row_count(o, s->links), "Connections, those that are open included")                         \
	X(wire_bytes_total, put_link(o, s, gp_row_wire_bytes),                                                         \
	  "Bytes of the connections, up to the server and down from it, all included")                                 \
	X(kernel_bytes_total, gp_row_kernel_bytes(o, &s->tcp, false),                                                  \
	  "The same bytes, as this end's kernel has counted them: received, and acknowledged by the other end")        \
	X(frame_bytes_total, put_link(o, s, gp_row_frame_bytes),                                                       \
	  "Bytes of tensors by kind, as tensors, behind their codec (payload), and on the wire; timed: bytes that "    \
	  "came in the stage_seconds_total of stage wire")                                                             \
	X(frames_total, put_link(o, s, gp_row_frames), "Tensors by kind")                                              \
	X(other_bytes_total, put_link(o, s, gp_row_other_bytes), "Bytes on the wire that are not tensors")             \
	X(stage_seconds_total, put_link(o, s, gp_row_stages),                                                          \
	  "Time of the stages that tensors of a kind go through here; stages run side by side")                        \
	X(retransmits_total, gp_row_count(o, s->tcp.retransmits), "Segments that the kernel has sent again, down")     \
	X(retransmitted_bytes_total, gp_row_count(o, s->tcp.bytes_retransmitted),                                      \
	  "Bytes that the kernel has sent again, down")                                                                \
	X(device_seconds_total, gp_row_seconds(o, s->device_ns), "Time used on devices")                               \
	X(codec_seconds_total, gp_row_seconds(o, s->codec_ns), "Time used on the threads of codecs")                   \
	X(raw_fallbacks_total, gp_row_count(o, s->raw_fallbacks),                                                      \
	  "Tensors that a codec here could not represent, so that they travelled raw")                                 \
	X(bad_losses_total, gp_row_count(o, s->bad_losses),                                                            \
	  "Losses that clients told and that no loss can be: not finite, negative or over 1e9")                        \
	X(checkpoints_total, put_checkpoints(o, s), "Checkpoints that were asked for, by what became of them")         \
	X(checkpoint_bytes_total, gp_row_count(o, s->checkpoint_bytes),                                                \
	  "Bytes of the tensors of checkpoints that were written")                                                     \
	X(checkpoint_seconds_total, gp_row_seconds(o, s->checkpoint_ns), "Time that writing checkpoints took")

#define X(name, put, help)                                                                                             \
	static void put_##name(const struct gp_metric_row *o, const struct gp_tally_sum *s)                            \
	{                                                                                                              \
		put;                                                                                                   \
	}
SUMS(X)
#undef X

static const struct sum_family {
	const char *server, *seat, *help;
	void (*put)(const struct gp_metric_row *o, const struct gp_tally_sum *s);
} sums[] = {
#define X(name, put, help) {"gpserverd_" #name, "gpserverd_session_" #name, help, put_##name},
	SUMS(X)
#undef X
};

struct seat_number {
	char text[12];
};

/* Once for all families: a seat has a sample in each of some forty. */
static void write_numbers(const struct gp_metrics_snapshot *s, struct seat_number number[GP_METRICS_SEATS_MAX])
{
	for (int k = 0; k < s->seats; k++)
		snprintf(number[k].text, sizeof number[k].text, "%d", s->seat[k].number);
}

static struct gp_metric_row of_seat(struct gp_metric_text *t, const struct gp_metrics_seat *seat,
				    const struct seat_number *number)
{
	return (struct gp_metric_row){.text = t, .label = {{"name", seat->name}, {"seat", number->text}}, .labels = 2};
}

static void put_sums(struct gp_metric_text *t, const struct gp_metrics_snapshot *s, const struct seat_number *number)
{
	for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
		struct gp_metric_row o = {.text = t};
		gp_metric_family(t, sums[i].server, GP_METRIC_COUNTER, sums[i].help);
		sums[i].put(&o, &s->total);
	}
	for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
		gp_metric_family(t, sums[i].seat, GP_METRIC_COUNTER, sums[i].help);
		for (int k = 0; k < s->seats; k++) {
			struct gp_metric_row o = of_seat(t, &s->seat[k], &number[k]);
			sums[i].put(&o, &s->seat[k].sum);
		}
	}
}

/* --- gauges of a session ----------------------------------------------------------------------------------------- */

static void put_id(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	gp_row_count(o, s->session);
}

static void put_has_link(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	gp_row_count(o, s->has_link);
}

static void put_age(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	gp_row_seconds(o, s->age_ns);
}

static void put_step(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	gp_row_count(o, s->step);
}

static void put_step_rate(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	gp_row_real(o, s->steps_per_s);
}

static void put_loss(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	gp_row_real(o, s->loss);
}

static void put_bandwidth(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	gp_row_real_of(o, "way", "up", s->up_per_s);
	gp_row_real_of(o, "way", "down", s->down_per_s);
}

static void put_queued(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	gp_row_count_of(o, "for", "any", (uint64_t)s->chunks_queued);
	gp_row_count_of(o, "for", "device", (uint64_t)s->compute_queued);
	gp_row_count_of(o, "for", "codec", (uint64_t)s->codec_queued);
	gp_row_count_of(o, "for", "disk", (uint64_t)s->disk_queued);
}

static void put_memory(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	gp_row_count_of(o, "where", "host", s->memory_bytes);
	gp_row_count_of(o, "where", "device", s->device_bytes);
}

static void put_rtt(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	if (s->tcp.valid)
		gp_row_real(o, (double)s->tcp.rtt_us * 1e-6);
}

static void put_ping_rtt(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	if (s->ping_rtt_us > 0)
		gp_row_real(o, (double)s->ping_rtt_us * 1e-6);
}

static void put_delivery(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	if (s->tcp.valid)
		gp_row_count(o, s->tcp.delivery_rate_bytes_s);
}

static void put_unsent(const struct gp_metric_row *o, const struct gp_metrics_seat *s)
{
	if (s->tcp.valid)
		gp_row_count(o, s->tcp.notsent_bytes);
}

static const struct gauge_family {
	const char *name, *help;
	void (*put)(const struct gp_metric_row *o, const struct gp_metrics_seat *s);
} gauges[] = {
	{"gpserverd_session_id", "Number of the session that has the seat, as the log has it", put_id},
	{"gpserverd_session_linked", "1: the session has a connection; 0: it is parked, or ends", put_has_link},
	{"gpserverd_session_age_seconds", "Time since the session began", put_age},
	{"gpserverd_session_step", "Step that the session's run is at", put_step},
	{"gpserverd_session_steps_per_second", "Steps a second, over the last 30 s", put_step_rate},
	{"gpserverd_session_loss", "Loss of the newest step, where the client tells it (--share-loss)", put_loss},
	{"gpserverd_session_bandwidth_bytes_per_second",
	 "Bytes a second of the connection, over the last 30 s, as TCP has it", put_bandwidth},
	{"gpserverd_session_queued", "Chunks that wait for anything but the client, and tasks that wait or run",
	 put_queued},
	{"gpserverd_session_memory_bytes", "Memory that the session was promised", put_memory},
	{"gpserverd_session_rtt_seconds", "Round trip of the connection, as the kernel has it", put_rtt},
	{"gpserverd_session_ping_rtt_seconds", "Round trip of heartbeats, client's and server's loops included",
	 put_ping_rtt},
	{"gpserverd_session_delivery_rate_bytes_per_second",
	 "Bytes a second that the link down carries, as the kernel estimates it", put_delivery},
	{"gpserverd_session_unsent_bytes", "Bytes for the client that the kernel holds and has not sent yet",
	 put_unsent},
};

static void put_gauges(struct gp_metric_text *t, const struct gp_metrics_snapshot *s, const struct seat_number *number)
{
	for (size_t i = 0; i < sizeof gauges / sizeof gauges[0]; i++) {
		gp_metric_family(t, gauges[i].name, GP_METRIC_GAUGE, gauges[i].help);
		for (int k = 0; k < s->seats; k++) {
			struct gp_metric_row o = of_seat(t, &s->seat[k], &number[k]);
			if (s->seat[k].session > 0)
				gauges[i].put(&o, &s->seat[k]);
		}
	}
}

/* --- the server -------------------------------------------------------------------------------------------------- */

static void put_reasons(struct gp_metric_text *t, const char *name, const char *help,
			const uint64_t count[GP_TALLY_REASONS], const char *first)
{
	struct gp_metric_row o = {.text = t};
	gp_metric_family(t, name, GP_METRIC_COUNTER, help);
	for (int i = 0; i < GP_TALLY_REASONS; i++)
		if (i > 0 || first)
			gp_row_count_of(&o, "reason", i == 0 ? first : gp_status_name((enum gp_status)i), count[i]);
}

static void put_clients(struct gp_metric_text *t, const struct gp_metrics_snapshot *s)
{
	struct gp_metric_row o = {.text = t};
	gp_metric_family(t, "gpserverd_sessions", GP_METRIC_GAUGE, "Sessions there are; parked: without a connection");
	gp_row_count_of(&o, "state", "linked", (uint64_t)(s->sessions - s->parked));
	gp_row_count_of(&o, "state", "parked", (uint64_t)s->parked);
	gp_metric_one(t, "gpserverd_sessions_max", GP_METRIC_GAUGE, "Sessions there may be (--max-sessions)",
		      (uint64_t)s->max_sessions);
	gp_metric_one(t, "gpserverd_sessions_untold", GP_METRIC_GAUGE, "Seats that have no figures of their own here",
		      (uint64_t)s->seats_untold);
	gp_metric_one(t, "gpserverd_connections", GP_METRIC_GAUGE, "Connections that are open",
		      (uint64_t)s->connections);
	gp_metric_one(t, "gpserverd_connections_unopened", GP_METRIC_GAUGE,
		      "Connections whose client has not said who it is", (uint64_t)s->strangers);
	gp_metric_one(t, "gpserverd_connections_accepted_total", GP_METRIC_COUNTER, "Connections that were accepted",
		      s->accepted);
	gp_metric_one(t, "gpserverd_connections_left_total", GP_METRIC_COUNTER,
		      "Connections that their client ended before there was a session, measurements of links included",
		      s->left);
	gp_metric_one(t, "gpserverd_handshakes_refused_total", GP_METRIC_COUNTER,
		      "Connections that were turned away before their TLS handshake", s->turned_away);
	put_reasons(t, "gpserverd_refused_total", "Connections and sessions that were refused, by what they were told",
		    s->refused, NULL);
	gp_metric_one(t, "gpserverd_sessions_opened_total", GP_METRIC_COUNTER, "Sessions that were opened", s->opened);
	gp_metric_one(t, "gpserverd_sessions_parked_total", GP_METRIC_COUNTER,
		      "How often a session lost its connection", s->parked_total);
	gp_metric_one(t, "gpserverd_sessions_resumed_total", GP_METRIC_COUNTER,
		      "How often a session went on over a new connection", s->resumed);
	gp_metric_one(t, "gpserverd_sessions_moved_total", GP_METRIC_COUNTER,
		      "Sessions that were sent to another server, because this one had more (--rebalance)", s->moved);
	put_reasons(t, "gpserverd_sessions_ended_total",
		    "Sessions that have ended, by why; bye: their client was through", s->ended, "bye");
}

static void put_devices(struct gp_metric_text *t, const struct gp_metrics_snapshot *s)
{
	static const struct {
		const char *name, *help;
		enum gp_metric_kind kind;
	} families[] = {
		{"gpserverd_device_well", "1: the device takes sessions", GP_METRIC_GAUGE},
		{"gpserverd_device_sessions", "Sessions that are placed on the device", GP_METRIC_GAUGE},
		{"gpserverd_device_memory_bytes", "The device's own memory that sessions may have; 0: the host's",
		 GP_METRIC_GAUGE},
		{"gpserverd_device_memory_promised_bytes", "The device's own memory that sessions were promised",
		 GP_METRIC_GAUGE},
		{"gpserverd_device_busy_seconds_total", "Time that sessions used on the device", GP_METRIC_COUNTER},
	};
	for (int f = 0; f < (int)(sizeof families / sizeof families[0]); f++) {
		gp_metric_family(t, families[f].name, families[f].kind, families[f].help);
		for (int i = 0; i < s->device_count; i++) {
			const struct gp_metrics_device *d = &s->device[i];
			const struct gp_metric_label label[] = {{"device", d->name}};
			const uint64_t value[] = {d->well, (uint64_t)d->sessions, d->memory_bytes, d->used_bytes};
			if (families[f].kind == GP_METRIC_COUNTER)
				gp_metric_seconds(t, label, 1, d->busy_ns);
			else
				gp_metric_count(t, label, 1, value[f]);
		}
	}
}

static void put_state(struct gp_metric_text *t, const struct gp_metrics_snapshot *s)
{
	const struct gp_metric_label version[] = {{"version", GP_VERSION}};
	const uint64_t now = gp_now_ns();
	gp_metric_family(t, "gpserverd_info", GP_METRIC_GAUGE,
			 "The version of the server, as a label; the value is always 1");
	gp_metric_count(t, version, 1, 1);
	gp_metric_one(t, "gpserverd_ready", GP_METRIC_GAUGE, "1: the server takes sessions", !gp_metrics_unready(s));
	gp_metric_one(t, "gpserverd_draining", GP_METRIC_GAUGE, "1: the server was told to stop", s->draining);
	gp_metric_family(t, "gpserverd_figures_age_seconds", GP_METRIC_GAUGE,
			 "Time since the loop thread told these figures");
	gp_metric_seconds(t, NULL, 0, now > s->at_ns ? now - s->at_ns : 0);
	gp_metric_one(t, "gpserverd_memory_promised_bytes", GP_METRIC_GAUGE,
		      "Memory of the host that sessions were promised", s->memory_used_bytes);
	gp_metric_one(t, "gpserverd_memory_limit_bytes", GP_METRIC_GAUGE,
		      "Memory of the host that all sessions together may be promised", s->memory_limit_bytes);
	gp_metric_one(t, "gpserverd_log_lines_dropped_total", GP_METRIC_COUNTER,
		      "Lines of the log that its reader was too slow for", s->log_dropped);
}

static void put_leases(struct gp_metric_text *t, const struct gp_metrics_snapshot *s)
{
	if (!s->shares)
		return;
	gp_metric_one(t, "gpserverd_leases", GP_METRIC_GAUGE, "Runs of --state-dir that this server has",
		      s->state.held);
	gp_metric_one(t, "gpserverd_leases_lost_total", GP_METRIC_COUNTER,
		      "How often this server could not renew its leases in time, and lost its runs", s->state.losses);
	gp_metric_one(t, "gpserverd_servers", GP_METRIC_GAUGE,
		      "Servers that live and share --state-dir, as far as this one sees, itself included",
		      (uint64_t)s->state.servers);
	gp_metric_one(t, "gpserverd_runs_taken_over_total", GP_METRIC_COUNTER,
		      "Runs taken over from servers that were dead", s->state.taken_over);
}

void gp_metrics_show_text(const struct gp_metrics_snapshot *s, struct gp_metric_text *t)
{
	struct seat_number number[GP_METRICS_SEATS_MAX];
	write_numbers(s, number);
	put_state(t, s);
	put_leases(t, s);
	gp_metric_process(t, s->started_ms);
	put_clients(t, s);
	put_devices(t, s);
	put_sums(t, s, number);
	put_gauges(t, s, number);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Prometheus' text of a snapshot. See metrics_show.h. Test: tests/unit/test_metrics_show.c
 */
#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/http/metric_text.h"
#include "server/metrics_show.h"

#define LABELS_MOST 6

/* A family under way, with the labels that all samples of one seat have. */
struct out {
	struct gp_metric_text *t;
	struct gp_metric_label label[LABELS_MOST];
	int base;
};

static void put_count(struct out *o, uint64_t value)
{
	gp_metric_count(o->t, o->label, o->base, value);
}

static void put_seconds(struct out *o, uint64_t ns)
{
	gp_metric_seconds(o->t, o->label, o->base, ns);
}

static void put_real(struct out *o, double value)
{
	gp_metric_sample(o->t, o->label, o->base, value);
}

static struct out with(const struct out *o, const char *name, const char *value)
{
	struct out more = *o;
	more.label[more.base++] = (struct gp_metric_label){name, value};
	return more;
}

static void put_count_of(struct out *o, const char *name, const char *value, uint64_t count)
{
	struct out more = with(o, name, value);
	put_count(&more, count);
}

static void put_real_of(struct out *o, const char *name, const char *value, double real)
{
	struct out more = with(o, name, value);
	put_real(&more, real);
}

/* --- what grows: of the server, and of each seat ----------------------------------------------------------------- */

static const struct gp_kind_account *kind_of(const struct gp_tally_sum *s, enum gp_frame_type k)
{
	const bool up =
		k == GP_FRAME_ACT_UP || k == GP_FRAME_GRAD_UP || k == GP_FRAME_PARAM_UP || k == GP_FRAME_PROBE_UP;
	return up ? &s->account.received.kind[k] : &s->account.sent.kind[k];
}

static void put_wire(struct out *o, const struct gp_tally_sum *s)
{
	put_count_of(o, "way", "up", s->account.received.wire_bytes);
	put_count_of(o, "way", "down", s->account.sent.wire_bytes);
}

static void put_frame_bytes(struct out *o, const struct gp_tally_sum *s)
{
	for (enum gp_frame_type k = GP_FRAME_ACT_UP; k < GP_FRAME_TYPE_COUNT; k++) {
		const struct gp_kind_account *a = kind_of(s, k);
		struct out kind = with(o, "kind", gp_frame_type_name(k));
		put_count_of(&kind, "form", "tensor", a->tensor_bytes);
		put_count_of(&kind, "form", "payload", a->payload_bytes);
		put_count_of(&kind, "form", "wire", a->wire_bytes);
	}
}

static void put_frames(struct out *o, const struct gp_tally_sum *s)
{
	for (enum gp_frame_type k = GP_FRAME_ACT_UP; k < GP_FRAME_TYPE_COUNT; k++)
		put_count_of(o, "kind", gp_frame_type_name(k), kind_of(s, k)->frames);
}

static void put_other_way(struct out *o, const char *way, const struct gp_dir_account *d)
{
	struct out more = with(o, "way", way);
	put_count_of(&more, "what", "control", d->control_bytes);
	put_count_of(&more, "what", "heartbeat", d->heartbeat_bytes);
	put_count_of(&more, "what", "preface", d->preface_bytes);
}

static void put_other_bytes(struct out *o, const struct gp_tally_sum *s)
{
	put_other_way(o, "up", &s->account.received);
	put_other_way(o, "down", &s->account.sent);
}

/* Those that the server goes through; the others are the client's. */
static void put_stages(struct out *o, const struct gp_tally_sum *s)
{
	static const struct {
		enum gp_frame_type kind;
		enum gp_stage stage;
		const char *name;
	} stages[] = {
		{GP_FRAME_ACT_UP, GP_STAGE_WIRE, "wire"},          {GP_FRAME_ACT_UP, GP_STAGE_WAIT, "wait"},
		{GP_FRAME_ACT_UP, GP_STAGE_DECODE, "decode"},      {GP_FRAME_ACT_DOWN, GP_STAGE_COMPUTE, "compute"},
		{GP_FRAME_ACT_DOWN, GP_STAGE_ENCODE, "encode"},    {GP_FRAME_ACT_DOWN, GP_STAGE_QUEUE, "queue"},
		{GP_FRAME_ACT_DOWN, GP_STAGE_WIRE, "wire"},        {GP_FRAME_GRAD_UP, GP_STAGE_WIRE, "wire"},
		{GP_FRAME_GRAD_UP, GP_STAGE_WAIT, "wait"},         {GP_FRAME_GRAD_UP, GP_STAGE_DECODE, "decode"},
		{GP_FRAME_GRAD_DOWN, GP_STAGE_COMPUTE, "compute"}, {GP_FRAME_GRAD_DOWN, GP_STAGE_ENCODE, "encode"},
		{GP_FRAME_GRAD_DOWN, GP_STAGE_QUEUE, "queue"},     {GP_FRAME_GRAD_DOWN, GP_STAGE_WIRE, "wire"},
	};
	for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
		struct out kind = with(o, "kind", gp_frame_type_name(stages[i].kind));
		struct out stage = with(&kind, "stage", stages[i].name);
		put_seconds(&stage, kind_of(s, stages[i].kind)->stage_ns[stages[i].stage]);
	}
}

static void put_checkpoints(struct out *o, const struct gp_tally_sum *s)
{
	put_count_of(o, "outcome", "written", s->checkpoints);
	put_count_of(o, "outcome", "failed", s->checkpoint_failures);
}

#define SUMS(X)                                                                                                        \
	X(steps_total, put_count(o, s->steps), "Steps that were committed")                                            \
	X(links_total, put_count(o, s->links), "Connections, those that are open included")                            \
	X(wire_bytes_total, put_wire(o, s),                                                                            \
	  "Bytes of the connections, up to the server and down from it, all included")                                 \
	X(frame_bytes_total, put_frame_bytes(o, s),                                                                    \
	  "Bytes of tensors by kind, as tensors, behind their codec (payload), and on the wire")                       \
	X(frames_total, put_frames(o, s), "Tensors by kind")                                                           \
	X(other_bytes_total, put_other_bytes(o, s), "Bytes on the wire that are not tensors")                          \
	X(stage_seconds_total, put_stages(o, s),                                                                       \
	  "Time of the stages that tensors of a kind go through here; stages run side by side")                        \
	X(retransmits_total, put_count(o, s->tcp.retransmits), "Segments that the kernel has sent again, down")        \
	X(retransmitted_bytes_total, put_count(o, s->tcp.bytes_retransmitted),                                         \
	  "Bytes that the kernel has sent again, down")                                                                \
	X(device_seconds_total, put_seconds(o, s->device_ns), "Time used on devices")                                  \
	X(codec_seconds_total, put_seconds(o, s->codec_ns), "Time used on the threads of codecs")                      \
	X(raw_fallbacks_total, put_count(o, s->raw_fallbacks),                                                         \
	  "Tensors that a codec here could not represent, so that they travelled raw")                                 \
	X(bad_losses_total, put_count(o, s->bad_losses),                                                               \
	  "Losses that clients told and that no loss can be: not finite, negative or over 1e9")                        \
	X(checkpoints_total, put_checkpoints(o, s), "Checkpoints that were asked for, by what became of them")         \
	X(checkpoint_bytes_total, put_count(o, s->checkpoint_bytes),                                                   \
	  "Bytes of the tensors of checkpoints that were written")                                                     \
	X(checkpoint_seconds_total, put_seconds(o, s->checkpoint_ns), "Time that writing checkpoints took")

#define X(name, put, help)                                                                                             \
	static void put_##name(struct out *o, const struct gp_tally_sum *s)                                            \
	{                                                                                                              \
		put;                                                                                                   \
	}
SUMS(X)
#undef X

static const struct sum_family {
	const char *server, *seat, *help;
	void (*put)(struct out *o, const struct gp_tally_sum *s);
} sums[] = {
#define X(name, put, help) {"gpserverd_" #name, "gpserverd_session_" #name, help, put_##name},
	SUMS(X)
#undef X
};

/* Fills in the labels of a seat; `number` keeps their text. */
static struct out of_seat(struct gp_metric_text *t, const struct gp_metrics_seat *seat, char number[16])
{
	struct out o = {.t = t};
	snprintf(number, 16, "%d", seat->number);
	o.label[o.base++] = (struct gp_metric_label){"name", seat->name};
	o.label[o.base++] = (struct gp_metric_label){"seat", number};
	return o;
}

static void put_sums(struct gp_metric_text *t, const struct gp_metrics_snapshot *s)
{
	char number[16];
	for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
		struct out o = {.t = t};
		gp_metric_family(t, sums[i].server, GP_METRIC_COUNTER, sums[i].help);
		sums[i].put(&o, &s->total);
	}
	for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
		gp_metric_family(t, sums[i].seat, GP_METRIC_COUNTER, sums[i].help);
		for (int k = 0; k < s->seats; k++) {
			struct out o = of_seat(t, &s->seat[k], number);
			sums[i].put(&o, &s->seat[k].sum);
		}
	}
}

/* --- gauges of a session ----------------------------------------------------------------------------------------- */

static void put_id(struct out *o, const struct gp_metrics_seat *s)
{
	put_count(o, s->session);
}

static void put_has_link(struct out *o, const struct gp_metrics_seat *s)
{
	put_count(o, s->has_link);
}

static void put_age(struct out *o, const struct gp_metrics_seat *s)
{
	put_seconds(o, s->age_ns);
}

static void put_step(struct out *o, const struct gp_metrics_seat *s)
{
	put_count(o, s->step);
}

static void put_step_rate(struct out *o, const struct gp_metrics_seat *s)
{
	put_real(o, s->steps_per_s);
}

static void put_loss(struct out *o, const struct gp_metrics_seat *s)
{
	if (isfinite(s->loss))
		put_real(o, s->loss);
}

static void put_bandwidth(struct out *o, const struct gp_metrics_seat *s)
{
	put_real_of(o, "way", "up", s->up_per_s);
	put_real_of(o, "way", "down", s->down_per_s);
}

static void put_queued(struct out *o, const struct gp_metrics_seat *s)
{
	put_count_of(o, "for", "any", (uint64_t)s->chunks_queued);
	put_count_of(o, "for", "device", (uint64_t)s->compute_queued);
	put_count_of(o, "for", "codec", (uint64_t)s->codec_queued);
	put_count_of(o, "for", "disk", (uint64_t)s->disk_queued);
}

static void put_memory(struct out *o, const struct gp_metrics_seat *s)
{
	put_count_of(o, "where", "host", s->memory_bytes);
	put_count_of(o, "where", "device", s->device_bytes);
}

static void put_rtt(struct out *o, const struct gp_metrics_seat *s)
{
	if (s->tcp.valid)
		put_real(o, (double)s->tcp.rtt_us * 1e-6);
}

static void put_ping_rtt(struct out *o, const struct gp_metrics_seat *s)
{
	if (s->ping_rtt_us > 0)
		put_real(o, (double)s->ping_rtt_us * 1e-6);
}

static void put_delivery(struct out *o, const struct gp_metrics_seat *s)
{
	if (s->tcp.valid)
		put_count(o, s->tcp.delivery_rate_bytes_s);
}

static void put_unsent(struct out *o, const struct gp_metrics_seat *s)
{
	if (s->tcp.valid)
		put_count(o, s->tcp.notsent_bytes);
}

static const struct gauge_family {
	const char *name, *help;
	void (*put)(struct out *o, const struct gp_metrics_seat *s);
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

static void put_gauges(struct gp_metric_text *t, const struct gp_metrics_snapshot *s)
{
	char number[16];
	for (size_t i = 0; i < sizeof gauges / sizeof gauges[0]; i++) {
		gp_metric_family(t, gauges[i].name, GP_METRIC_GAUGE, gauges[i].help);
		for (int k = 0; k < s->seats; k++) {
			struct out o = of_seat(t, &s->seat[k], number);
			if (s->seat[k].session > 0)
				gauges[i].put(&o, &s->seat[k]);
		}
	}
}

/* --- the server -------------------------------------------------------------------------------------------------- */

static void put_one(struct gp_metric_text *t, const char *name, enum gp_metric_kind kind, const char *help,
		    uint64_t value)
{
	gp_metric_family(t, name, kind, help);
	gp_metric_count(t, NULL, 0, value);
}

static void put_reasons(struct gp_metric_text *t, const char *name, const char *help,
			const uint64_t count[GP_TALLY_REASONS], const char *first)
{
	struct out o = {.t = t};
	gp_metric_family(t, name, GP_METRIC_COUNTER, help);
	for (int i = 0; i < GP_TALLY_REASONS; i++)
		if (i > 0 || first)
			put_count_of(&o, "reason", i == 0 ? first : gp_status_name((enum gp_status)i), count[i]);
}

static void put_clients(struct gp_metric_text *t, const struct gp_metrics_snapshot *s)
{
	struct out o = {.t = t};
	gp_metric_family(t, "gpserverd_sessions", GP_METRIC_GAUGE, "Sessions there are; parked: without a connection");
	put_count_of(&o, "state", "linked", (uint64_t)(s->sessions - s->parked));
	put_count_of(&o, "state", "parked", (uint64_t)s->parked);
	put_one(t, "gpserverd_sessions_max", GP_METRIC_GAUGE, "Sessions there may be (--max-sessions)",
		(uint64_t)s->max_sessions);
	put_one(t, "gpserverd_sessions_untold", GP_METRIC_GAUGE, "Seats that have no figures of their own here",
		(uint64_t)s->seats_untold);
	put_one(t, "gpserverd_connections", GP_METRIC_GAUGE, "Connections that are open", (uint64_t)s->connections);
	put_one(t, "gpserverd_connections_unopened", GP_METRIC_GAUGE, "Connections whose client has not said who it is",
		(uint64_t)s->strangers);
	put_one(t, "gpserverd_connections_accepted_total", GP_METRIC_COUNTER, "Connections that were accepted",
		s->accepted);
	put_one(t, "gpserverd_connections_left_total", GP_METRIC_COUNTER,
		"Connections that their client ended before there was a session, measurements of links included",
		s->left);
	put_one(t, "gpserverd_handshakes_refused_total", GP_METRIC_COUNTER,
		"Connections that were turned away before their TLS handshake", s->turned_away);
	put_reasons(t, "gpserverd_refused_total", "Connections and sessions that were refused, by what they were told",
		    s->refused, NULL);
	put_one(t, "gpserverd_sessions_opened_total", GP_METRIC_COUNTER, "Sessions that were opened", s->opened);
	put_one(t, "gpserverd_sessions_parked_total", GP_METRIC_COUNTER, "How often a session lost its connection",
		s->parked_total);
	put_one(t, "gpserverd_sessions_resumed_total", GP_METRIC_COUNTER,
		"How often a session went on over a new connection", s->resumed);
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
	put_one(t, "gpserverd_ready", GP_METRIC_GAUGE, "1: the server takes sessions", !gp_metrics_unready(s));
	put_one(t, "gpserverd_draining", GP_METRIC_GAUGE, "1: the server was told to stop", s->draining);
	gp_metric_family(t, "gpserverd_figures_age_seconds", GP_METRIC_GAUGE,
			 "Time since the loop thread told these figures");
	gp_metric_seconds(t, NULL, 0, now > s->at_ns ? now - s->at_ns : 0);
	put_one(t, "gpserverd_memory_promised_bytes", GP_METRIC_GAUGE, "Memory of the host that sessions were promised",
		s->memory_used_bytes);
	put_one(t, "gpserverd_memory_limit_bytes", GP_METRIC_GAUGE,
		"Memory of the host that all sessions together may be promised", s->memory_limit_bytes);
	put_one(t, "gpserverd_log_lines_dropped_total", GP_METRIC_COUNTER,
		"Lines of the log that its reader was too slow for", s->log_dropped);
}

static void put_leases(struct gp_metric_text *t, const struct gp_metrics_snapshot *s)
{
	if (!s->shares)
		return;
	put_one(t, "gpserverd_leases", GP_METRIC_GAUGE, "Runs of --state-dir that this server has", s->state.held);
	put_one(t, "gpserverd_leases_lost_total", GP_METRIC_COUNTER,
		"How often this server could not renew its leases in time, and lost its runs", s->state.losses);
	put_one(t, "gpserverd_runs_taken_over_total", GP_METRIC_COUNTER, "Runs taken over from servers that were dead",
		s->state.taken_over);
}

/* --- the process ------------------------------------------------------------------------------------------------- */

static uint64_t resident_bytes(void)
{
	unsigned long long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");
	if (!f)
		return 0;
	if (fscanf(f, "%*u %llu", &pages) != 1)
		pages = 0;
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

static void put_process(struct gp_metric_text *t, const struct gp_metrics_snapshot *s)
{
	struct rusage used;
	gp_metric_family(t, "process_start_time_seconds", GP_METRIC_GAUGE, "When the server started, since 1970");
	gp_metric_seconds(t, NULL, 0, (uint64_t)s->started_ms * 1000000);
	put_one(t, "process_resident_memory_bytes", GP_METRIC_GAUGE, "Memory that the process has in use",
		resident_bytes());
	if (getrusage(RUSAGE_SELF, &used) != 0)
		return;
	gp_metric_family(t, "process_cpu_seconds_total", GP_METRIC_COUNTER, "Processor time of all threads");
	gp_metric_sample(t, NULL, 0, seconds_of(used.ru_utime) + seconds_of(used.ru_stime));
}

void gp_metrics_show_text(const struct gp_metrics_snapshot *s, struct gp_metric_text *t)
{
	put_state(t, s);
	put_leases(t, s);
	put_process(t, s);
	put_clients(t, s);
	put_devices(t, s);
	put_sums(t, s);
	put_gauges(t, s);
}

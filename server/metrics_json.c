/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON of a snapshot: /sessions, which the live page reads. See metrics_show.h. Counters grow over all sessions of a
 * seat, so that a reader of two answers finds rates. Test: tests/unit/test_metrics_show.c
 */
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "common/base/plain_text.h"
#include "server/metrics_show.h"

static void set_count(json_t *o, const char *key, uint64_t value)
{
	json_object_set_new(o, key, json_integer((json_int_t)value));
}

/* JSON has no number that is none. */
static void set_real(json_t *o, const char *key, double value)
{
	json_object_set_new(o, key, isfinite(value) ? json_real(value) : json_null());
}

static void set_seconds(json_t *o, const char *key, uint64_t ns)
{
	set_real(o, key, (double)ns * 1e-9);
}

static void set_bool(json_t *o, const char *key, bool value)
{
	json_object_set_new(o, key, json_boolean(value));
}

/* Bytes that are not UTF-8 become "?", without which there would be no string. */
static void set_text(json_t *o, const char *key, const char *text)
{
	char clean[512];
	size_t n = 0;
	for (const char *at = text; *at && n < sizeof clean - 5;) {
		const size_t bytes = gp_utf8_character(at);
		if (bytes == 0)
			clean[n++] = '?';
		for (size_t i = 0; i < bytes; i++)
			clean[n++] = at[i];
		at += bytes > 0 ? bytes : 1;
	}
	clean[n] = '\0';
	json_object_set_new(o, key, text[0] ? json_string(clean) : json_null());
}

/* --- one seat ---------------------------------------------------------------------------------------------------- */

/* Seconds of each stage, over all kinds of tensors. */
static json_t *stages_json(const struct gp_tally_sum *sum)
{
	static const char *const names[GP_STAGE_COUNT] = {
		[GP_STAGE_COMPUTE] = "compute", [GP_STAGE_ENCODE] = "encode", [GP_STAGE_QUEUE] = "queue",
		[GP_STAGE_WIRE] = "wire",       [GP_STAGE_DECODE] = "decode", [GP_STAGE_WAIT] = "wait"};
	json_t *o = json_object();
	for (int stage = 0; stage < GP_STAGE_COUNT; stage++) {
		uint64_t ns = 0;
		for (int k = 0; k < GP_FRAME_TYPE_COUNT; k++)
			ns += sum->account.sent.kind[k].stage_ns[stage] + sum->account.received.kind[k].stage_ns[stage];
		set_seconds(o, names[stage], ns);
	}
	return o;
}

static json_t *way_json(const struct gp_dir_account *d, bool known, uint64_t kernel_bytes)
{
	uint64_t tensor = 0, payload = 0;
	json_t *o = json_object();
	for (int k = 0; k < GP_FRAME_TYPE_COUNT; k++) {
		tensor += d->kind[k].tensor_bytes;
		payload += d->kind[k].payload_bytes;
	}
	set_count(o, "tensor_bytes", tensor);
	set_count(o, "payload_bytes", payload);
	set_count(o, "wire_bytes", d->wire_bytes);
	if (known)
		set_count(o, "kernel_bytes", kernel_bytes);
	else
		json_object_set_new(o, "kernel_bytes", json_null());
	return o;
}

static void set_sum(json_t *o, const struct gp_tally_sum *sum)
{
	set_count(o, "sessions", sum->sessions);
	set_count(o, "links", sum->links);
	set_count(o, "steps", sum->steps);
	json_object_set_new(o, "up", way_json(&sum->account.received, sum->tcp.valid, sum->tcp.bytes_received));
	json_object_set_new(o, "down", way_json(&sum->account.sent, sum->tcp.valid, sum->tcp.bytes_acked));
	json_object_set_new(o, "stage_s", stages_json(sum));
	set_seconds(o, "device_s", sum->device_ns);
	set_seconds(o, "codec_s", sum->codec_ns);
	set_count(o, "retransmits", sum->tcp.retransmits);
	set_count(o, "raw_fallbacks", sum->raw_fallbacks);
	set_count(o, "bad_losses", sum->bad_losses);
	set_count(o, "checkpoints", sum->checkpoints);
	set_count(o, "checkpoint_failures", sum->checkpoint_failures);
	set_count(o, "checkpoint_bytes", sum->checkpoint_bytes);
	set_seconds(o, "checkpoint_s", sum->checkpoint_ns);
}

static json_t *seat_json(const struct gp_metrics_snapshot *all, const struct gp_metrics_seat *s)
{
	json_t *o = json_object();
	set_text(o, "name", s->name);
	set_count(o, "seat", (uint64_t)s->number);
	set_count(o, "session", s->session);
	set_text(o, "state", s->state);
	set_text(o, "address", s->address);
	set_text(o, "device", s->device >= 0 ? all->device[s->device].name : "");
	set_seconds(o, "age_s", s->age_ns);
	set_count(o, "step", s->step);
	set_real(o, "steps_per_s", s->steps_per_s);
	set_real(o, "loss", s->loss);
	set_real(o, "up_per_s", s->up_per_s);
	set_real(o, "down_per_s", s->down_per_s);
	set_count(o, "chunks_queued", (uint64_t)s->chunks_queued);
	set_count(o, "memory_bytes", s->memory_bytes);
	set_count(o, "device_bytes", s->device_bytes);
	set_real(o, "rtt_s", s->tcp.valid ? (double)s->tcp.rtt_us * 1e-6 : NAN);
	set_sum(o, &s->sum);
	return o;
}

/* --- everything -------------------------------------------------------------------------------------------------- */

static json_t *devices_json(const struct gp_metrics_snapshot *s)
{
	json_t *list = json_array();
	for (int i = 0; i < s->device_count; i++) {
		const struct gp_metrics_device *d = &s->device[i];
		json_t *o = json_object();
		set_text(o, "name", d->name);
		set_text(o, "card", d->card);
		set_bool(o, "well", d->well);
		set_count(o, "sessions", (uint64_t)d->sessions);
		set_count(o, "memory_bytes", d->memory_bytes);
		set_count(o, "promised_bytes", d->used_bytes);
		set_seconds(o, "busy_s", d->busy_ns);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *event_json(const struct gp_event_note *n)
{
	json_t *o = json_object();
	set_count(o, "number", n->number);
	set_count(o, "time_ms", (uint64_t)n->time_ms);
	set_text(o, "event", n->name);
	set_text(o, "reason", n->reason ? n->reason : "");
	set_count(o, "session", n->session);
	set_text(o, "client", n->client);
	set_text(o, "address", n->address);
	set_text(o, "text", n->text);
	return o;
}

/* The newest last. */
static json_t *events_json(const struct gp_events *e)
{
	json_t *list = json_array();
	const uint64_t first = e->count > GP_EVENTS_KEPT ? e->count - GP_EVENTS_KEPT + 1 : 1;
	for (uint64_t n = first; n <= e->count; n++)
		json_array_append_new(list, event_json(&e->note[n % GP_EVENTS_KEPT]));
	return list;
}

static uint64_t sum_of(const uint64_t count[GP_TALLY_REASONS])
{
	uint64_t sum = 0;
	for (int i = 0; i < GP_TALLY_REASONS; i++)
		sum += count[i];
	return sum;
}

static json_t *server_json(const struct gp_metrics_snapshot *s)
{
	json_t *o = json_object();
	set_text(o, "version", GP_VERSION);
	set_count(o, "started_ms", (uint64_t)s->started_ms);
	set_count(o, "sessions_open", (uint64_t)s->sessions);
	set_count(o, "sessions_parked", (uint64_t)s->parked);
	set_count(o, "sessions_max", (uint64_t)s->max_sessions);
	set_count(o, "sessions_untold", (uint64_t)s->seats_untold);
	set_count(o, "connections", (uint64_t)s->connections);
	set_count(o, "connections_unopened", (uint64_t)s->strangers);
	set_count(o, "opened", s->opened);
	set_count(o, "resumed", s->resumed);
	set_count(o, "moved", s->moved);
	set_count(o, "ended", sum_of(s->ended));
	set_count(o, "refused", sum_of(s->refused) + s->turned_away);
	set_count(o, "memory_promised_bytes", s->memory_used_bytes);
	set_count(o, "memory_limit_bytes", s->memory_limit_bytes);
	set_count(o, "log_lines_dropped", s->log_dropped);
	set_text(o, "owner", s->shares ? s->state.owner : "");
	set_count(o, "servers", (uint64_t)s->state.servers);
	set_count(o, "leases", s->state.held);
	set_count(o, "leases_lost", s->state.losses);
	set_count(o, "runs_taken_over", s->state.taken_over);
	set_sum(o, &s->total);
	return o;
}

char *gp_metrics_show_json(const struct gp_metrics_snapshot *s, uint64_t now_ns, size_t *length)
{
	json_t *o = json_object(), *seats = json_array();
	const char *why = gp_metrics_unready(s);
	set_count(o, "number", s->number);
	set_seconds(o, "time_s", s->at_ns);
	set_bool(o, "alive", gp_metrics_is_alive(s, now_ns));
	set_bool(o, "ready", !why);
	set_text(o, "why_not_ready", why ? why : "");
	json_object_set_new(o, "server", server_json(s));
	json_object_set_new(o, "devices", devices_json(s));
	for (int i = 0; i < s->seats; i++)
		json_array_append_new(seats, seat_json(s, &s->seat[i]));
	json_object_set_new(o, "sessions", seats);
	json_object_set_new(o, "events", events_json(&s->events));
	char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(12));
	const size_t bytes = text ? strlen(text) : 0;
	char *copy = text ? gp_realloc(NULL, bytes + 2, 1) : NULL;
	if (copy) {
		memcpy(copy, text, bytes);
		memcpy(copy + bytes, "\n", 2); /* a whole line, as terminals want it */
	}
	*length = copy ? bytes + 1 : 0;
	free(text);
	json_decref(o);
	return copy;
}

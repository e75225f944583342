/* SPDX-License-Identifier: Apache-2.0
 *
 * See measure.h. Test: tests/unit/test_server_measure.c
 */
#include "server/measure.h"

#include <string.h>

#include "common/base/rng.h"
#include "common/net/token.h"
#include "server/link.h"
#include "server/session_status.h"
#include "server/usage.h"

#define WRAP_BYTES         (1u << 20)
#define BLOCK_BYTES        ((size_t)WRAP_BYTES + GP_SEGMENT_BYTES_MAX)
#define MEASURE_BYTES_MOST 256 /* of MEASURE; what is longer is read as an OPEN */
#define MEASURE_RETRY_MS   2000
#define PROBED_BYTES       64 /* of PROBED, at most: thousands may wait for a client that does not read */

enum { ANSWER, DOWN, UP }; /* kinds of PROBED */

struct gp_server_measure {
	uint64_t began_ns;
	uint64_t left; /* bytes of payload that may still be asked for, or come */
	uint32_t probes, answers, asked, sent, come;
	uint64_t tag[GP_MEASURE_UNDER_WAY]; /* by number of the frame down; 0: it is not through */
	struct gp_frame down[GP_MEASURE_UNDER_WAY], up;
};

bool gp_server_measure_offer(const struct gp_server *srv, Gpsplit__Measuring *out)
{
	const struct gp_server_settings *set = &srv->set;
	const uint64_t bytes = (uint64_t)set->measure_bytes;
	out->time_ms = (uint32_t)(set->measure_s * 1000);
	out->bytes = bytes;
	out->frame_bytes = bytes < GP_MEASURE_FRAME_BYTES ? bytes : GP_MEASURE_FRAME_BYTES;
	out->probes = GP_MEASURE_PROBES_MAX;
	return set->measure_s > 0;
}

bool gp_server_measure_asked(struct gp_server_link *l, struct gp_span bytes)
{
	const Gpsplit__Control *m;
	struct gp_err ignored;
	return bytes.len <= MEASURE_BYTES_MOST && gp_control_unpack(&l->arena, bytes, &m, &ignored) == GP_OK &&
	       m->body_case == GPSPLIT__CONTROL__BODY_MEASURE;
}

static bool measures(const struct gp_server_link *l)
{
	return l->measure && l->state == GP_LINK_MEASURE;
}

static enum gp_status check_room(struct gp_server_link *l, struct gp_err *err)
{
	struct gp_server *srv = l->srv;
	int all = 0, own = 0;
	for (const struct gp_server_link *other = srv->links; other; other = other->next) {
		all += measures(other);
		own += measures(other) && memcmp(&other->client.key, &l->client.key, sizeof l->client.key) == 0;
	}
	l->retry_ms = MEASURE_RETRY_MS;
	if (own > 0)
		GP_FAIL(err, GP_BUSY, "you are measuring already; one measuring session of a client at a time");
	if (all >= GP_MEASURES_AT_ONCE)
		GP_FAIL(err, GP_BUSY, "%d clients are measuring, and no more may at a time", all);
	const uint64_t most = gp_limits_find(srv->limits, l->proof.who)->measures;
	if (most == 0)
		GP_FAIL(err, GP_DENIED, "you may not measure here (measures=0 of --limits)");
	const int64_t rate = most == GP_LIMITS_ANY ? 0 : (int64_t)most;
	const uint64_t wait_ns = gp_visitors_measure(srv->log.visitors, l->client.key, rate, gp_now_ns());
	l->retry_ms = wait_ns > 0 ? (uint32_t)(wait_ns / 1000000) + 2 : 0;
	if (wait_ns > 0)
		GP_FAIL(err, GP_BUSY,
			"a client may begin %lld measurement%s in a minute; the next one may begin in %u s",
			(long long)rate, rate == 1 ? "" : "s", (l->retry_ms + 999) / 1000);
	return GP_OK;
}

/* Bytes that no device on the way makes smaller. */
static enum gp_status make_blocks(struct gp_server *srv, struct gp_err *err)
{
	uint64_t seed;
	if (srv->probe_filler)
		return GP_OK;
	GP_TRY(gp_random_bytes(&seed, sizeof seed, err));
	uint8_t *both = gp_calloc(2, BLOCK_BYTES);
	if (!both)
		GP_FAIL(err, GP_BUSY, "out of memory for measuring");
	for (size_t at = 0; at < BLOCK_BYTES; at += 16) {
		uint32_t draw[4];
		gp_rng_block(seed, 0, at, draw);
		memcpy(both + at, draw, sizeof draw);
	}
	srv->probe_filler = both;
	srv->probe_sink = both + BLOCK_BYTES;
	return GP_OK;
}

void gp_server_measure_deinit(struct gp_server *srv)
{
	gp_free(srv->probe_filler);
	srv->probe_filler = srv->probe_sink = NULL;
}

static void set_block(struct gp_frame *f, uint8_t *block)
{
	f->payload = block;
	f->cap = BLOCK_BYTES;
	f->wrap = WRAP_BYTES;
}

enum gp_status gp_server_measure_begin(struct gp_server_link *l, struct gp_err *err)
{
	struct gp_server *srv = l->srv;
	char title[GP_SESSION_TITLE];
	if (srv->set.measure_s <= 0)
		GP_FAIL(err, GP_UNSUPPORTED, "this server measures no links (--measure 0)");
	GP_TRY(check_room(l, err));
	GP_TRY(gp_usage_reserve_memory(l->session, GP_MEASURE_MEMORY_BYTES, err));
	GP_TRY(make_blocks(srv, err));
	gp_channel_set_control_max(l->ch, GP_CONTROL_STEADY_BYTES);
	GP_TRY(gp_channel_reserve_control(l->ch, PROBED_BYTES, err));
	GP_TRY(gp_alloc_array((void **)&l->measure, 1, sizeof *l->measure, err));
	l->measure->began_ns = gp_now_ns();
	l->measure->left = (uint64_t)srv->set.measure_bytes;
	for (int i = 0; i < GP_MEASURE_UNDER_WAY; i++)
		set_block(&l->measure->down[i], srv->probe_filler);
	set_block(&l->measure->up, srv->probe_sink);
	gp_channel_set_frame_max(l->ch, GP_MEASURE_FRAME_BYTES);
	l->state = GP_LINK_MEASURE;
	gp_client_log_write(&srv->log, &l->client, GP_LOG_INFO, "%s measures its link, for %g s at most",
			    gp_server_session_title(l->session, title), srv->set.measure_s);
	return GP_OK;
}

static void send_probed(struct gp_server_link *l, uint32_t kind, uint32_t number, uint64_t tag)
{
	struct gp_tcp_figures tcp;
	struct gp_err err;
	Gpsplit__Probed probed = GPSPLIT__PROBED__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	gp_channel_figures(l->ch, &tcp);
	probed.number = number;
	probed.kind = kind;
	probed.tag = tag;
	probed.acked_bytes = tcp.bytes_acked;
	probed.retransmitted_bytes = tcp.bytes_retransmitted;
	probed.rtt_us = tcp.rtt_us;
	m.body_case = GPSPLIT__CONTROL__BODY_PROBED;
	m.probed = &probed;
	gp_server_link_sent(l, gp_control_send(l->ch, &m, &err), &err);
}

static enum gp_status take_bytes(struct gp_server_measure *g, uint64_t bytes, struct gp_err *err)
{
	if (bytes == 0 || bytes > GP_MEASURE_FRAME_BYTES)
		GP_FAIL(err, GP_PROTO, "a probe of %llu bytes, allowed are 1 to %llu", (unsigned long long)bytes,
			(unsigned long long)GP_MEASURE_FRAME_BYTES);
	if (bytes > g->left)
		GP_FAIL(err, GP_PROTO, "a probe of %llu bytes, of which this session has %llu left (--measure-bytes)",
			(unsigned long long)bytes, (unsigned long long)g->left);
	g->left -= bytes;
	return GP_OK;
}

/* The client has to name the tag of the frame two before, which shows that it has read that far. */
static enum gp_status check_asked(const struct gp_server_measure *g, const Gpsplit__Probe *m, struct gp_err *err)
{
	const uint64_t due = g->asked < GP_MEASURE_UNDER_WAY ? 0 : g->tag[g->asked % GP_MEASURE_UNDER_WAY];
	const bool through = g->asked < g->sent + GP_MEASURE_UNDER_WAY;
	if (m->number != g->asked || !through || m->tag != due)
		GP_FAIL(err, GP_PROTO, "probe %u is not expected: %u were asked for, and %u are through", m->number,
			g->asked, g->sent);
	return GP_OK;
}

static enum gp_status send_down(struct gp_server_link *l, const Gpsplit__Probe *m, struct gp_err *err)
{
	struct gp_server_measure *g = l->measure;
	GP_TRY(check_asked(g, m, err));
	GP_TRY(take_bytes(g, m->bytes, err));
	struct gp_frame *f = &g->down[g->asked % GP_MEASURE_UNDER_WAY];
	g->tag[g->asked % GP_MEASURE_UNDER_WAY] = 0;
	f->head = (struct gp_frame_head){
		.type = GP_FRAME_PROBE_DOWN, .chunk = g->asked, .session = l->session->id, .payload_len = m->bytes};
	g->asked++;
	gp_channel_send_frame(l->ch, f);
	return GP_OK;
}

enum gp_status gp_server_measure_probe(struct gp_server_link *l, const Gpsplit__Probe *m, struct gp_err *err)
{
	struct gp_server_measure *g = l->measure;
	if (++g->probes > GP_MEASURE_PROBES_MAX)
		GP_FAIL(err, GP_PROTO, "more than %d probes", GP_MEASURE_PROBES_MAX);
	if (m->bytes > 0)
		return send_down(l, m, err);
	if (m->number != g->answers)
		GP_FAIL(err, GP_PROTO, "probe %u is not expected: %u were answered", m->number, g->answers);
	send_probed(l, ANSWER, g->answers++, 0);
	return GP_OK;
}

/* Random, so that whoever has not read the frame's answer cannot ask for the next but one. */
static uint64_t new_tag(void)
{
	struct gp_err ignored;
	uint64_t tag = 0;
	gp_random_bytes(&tag, sizeof tag, &ignored);
	return tag ? tag : 1;
}

void gp_server_measure_sent(struct gp_server_link *l, const struct gp_frame *f)
{
	struct gp_server_measure *g = l->measure;
	if (l->state != GP_LINK_MEASURE || f->at < GP_FRAME_HEADER_BYTES + f->head.payload_len)
		return; /* given back by a link that ends */
	const uint64_t tag = g->tag[f->head.chunk % GP_MEASURE_UNDER_WAY] = new_tag();
	g->sent++;
	send_probed(l, DOWN, f->head.chunk, tag);
}

enum gp_status gp_server_measure_frame_begin(struct gp_server_link *l, const struct gp_frame_head *head,
					     struct gp_frame **out, struct gp_err *err)
{
	struct gp_server_measure *g = l->measure;
	if (head->chunk != g->come || head->step != 0 || head->codec != 0)
		GP_FAIL(err, GP_PROTO, "probe_up %u is not expected: %u have come", head->chunk, g->come);
	if (++g->probes > GP_MEASURE_PROBES_MAX)
		GP_FAIL(err, GP_PROTO, "more than %d probes", GP_MEASURE_PROBES_MAX);
	GP_TRY(take_bytes(g, head->payload_len, err));
	*out = &g->up;
	return GP_OK;
}

enum gp_status gp_server_measure_frame(struct gp_server_link *l, struct gp_err *err)
{
	(void)err;
	send_probed(l, UP, l->measure->come++, 0);
	return GP_OK;
}

bool gp_server_measure_expired(const struct gp_server_link *l, uint64_t now_ns)
{
	return measures(l) && (double)(now_ns - l->measure->began_ns) * 1e-9 > l->srv->set.measure_s;
}

void gp_server_measure_free(struct gp_server_link *l)
{
	gp_free(l->measure);
	l->measure = NULL;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What other threads may know of the server: a snapshot of its figures that the loop thread makes every
 * GP_METRICS_PUBLISH_MS, so that whoever reads them, however often and however slowly, touches nothing of the loop's and
 * holds it up for nothing. Three snapshots go round: the loop fills one, one is the newest, the reader has one; they
 * change hands by an atomic exchange, and neither ever waits for the other.
 *
 * Beside it stand whether the loop is alive, and whether the server takes sessions (for the disk's part: disk_probe.h).
 *
 * Who asks over HTTP is answered in metrics_http.h.
 *
 * Threads: as each function says; one thread reads. Test: tests/unit/test_server_metrics.c
 */
#ifndef GP_METRICS_SNAPSHOT_H
#define GP_METRICS_SNAPSHOT_H

#include "common/base/status.h"
#include "server/events.h"
#include "server/state_dir.h"
#include "server/tally.h"

#define GP_METRICS_PUBLISH_MS 250
#define GP_METRICS_SEATS_MAX  1024 /* with figures of their own; others count in the totals */
#define GP_METRICS_ALIVE_S    10   /* a loop that has published nothing for so long is not alive */

struct gp_server;
struct gp_metrics;

/* A seat (tally.h), with the session that has it. */
struct gp_metrics_seat {
	char name[GP_SERVER_WHO_BYTES];
	int number;
	uint64_t session; /* 0: nobody has the seat, and only name, number and sum mean something */
	char state[16], address[64];
	int device; /* index; -1: none */
	uint64_t age_ns, step;
	double steps_per_s, up_per_s, down_per_s; /* lately; NaN: not known yet */
	double loss;                              /* of the newest step; NaN: its client tells none */
	int chunks_queued, compute_queued, codec_queued, disk_queued;
	uint64_t memory_bytes, device_bytes;
	bool has_link;
	struct gp_tcp_figures tcp; /* of the link that it has */
	uint32_t ping_rtt_us;      /* of heartbeats; 0: none yet */
	struct gp_tally_sum sum;   /* over all sessions of the seat */
};

struct gp_metrics_device {
	char name[GP_DEVICE_NAME], card[GP_DEVICE_CARD];
	bool well;
	int sessions;
	uint64_t memory_bytes, used_bytes; /* memory_bytes 0: it has none of its own */
	uint64_t busy_ns;
};

struct gp_metrics_snapshot {
	uint64_t number, at_ns; /* gp_now_ns */
	int64_t started_ms;     /* of the clock on the wall */
	bool draining, disk_asked, disk_well;
	bool shares; /* there is a --state-dir, and `state` says what this server has of it */
	struct gp_state_figures state;
	int sessions, parked, max_sessions, connections, strangers;
	uint64_t memory_used_bytes, memory_limit_bytes, log_dropped;
	struct gp_tally_sum total;
	uint64_t accepted, turned_away, left, opened, resumed, parked_total, moved;
	uint64_t refused[GP_TALLY_REASONS], ended[GP_TALLY_REASONS];
	int device_count;
	struct gp_metrics_device device[GP_SERVER_DEVICES_MAX];
	struct gp_events events;
	int seats, seats_untold; /* seats_untold: beyond GP_METRICS_SEATS_MAX */
	struct gp_metrics_seat *seat;
	int room; /* of `seat` */
};

/* Loop thread. Publishes a first snapshot, so that there always is one. */
enum gp_status gp_metrics_new(struct gp_server *srv, struct gp_metrics **out, struct gp_err *err);
/* Loop thread; no reader may be left, and the loop has to run once more. NULL is fine. */
void gp_metrics_free(struct gp_metrics *m);
/* Loop thread: now, besides what the timer does. */
void gp_metrics_publish(struct gp_metrics *m);

/* The reader's thread: the newest snapshot, which stays as it is until the next call. */
const struct gp_metrics_snapshot *gp_metrics_read(struct gp_metrics *m);
/* Whether the loop lives, by a snapshot and the time. */
bool gp_metrics_is_alive(const struct gp_metrics_snapshot *s, uint64_t now_ns);
/* NULL: the server takes sessions; else a word why not: "draining", "device", "disk". */
const char *gp_metrics_unready(const struct gp_metrics_snapshot *s);

#endif

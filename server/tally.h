/* SPDX-License-Identifier: Apache-2.0
 *
 * What the server has done since it started, counted so that it never goes back: bytes, steps, times and checkpoints over
 * all links and sessions, and who came, was refused and ended, by reason. A *seat* counts the same for sessions of one
 * name: seat 0 is that of a client with one session at a time, whatever number the session has, seat 1 that of a
 * second one beside it. So figures of a client go on from one session to the next, and there are no more series of them than
 * names and sessions at once. Of the seats without a session the newest GP_TALLY_IDLE_SEATS are kept.
 *
 * What is published of this to other threads is in metrics_snapshot.h.
 *
 * Threads: loop thread. Test: tests/unit/test_server_metrics.c
 */
#ifndef GP_TALLY_H
#define GP_TALLY_H

#include "common/wire/account.h"
#include "server/credentials.h"
#include "server/devices.h"

#define GP_TALLY_IDLE_SEATS 64
#define GP_TALLY_REASONS    (GP_DAMAGED + 1) /* enum gp_status */
#define GP_TALLY_ANONYMOUS  "anonymous"      /* the name of clients that have none */

struct gp_server;
struct gp_server_link;
struct gp_server_session;

/* All of it grows; but for the newest link's part of `tcp`. */
struct gp_tally_sum {
	struct gp_account account;
	struct gp_tcp_figures tcp;
	uint64_t sessions, links, steps;
	uint64_t device_ns, codec_ns; /* time used: on the device, and in codecs */
	uint64_t raw_fallbacks;       /* tensors that this end could not encode, so that they travelled raw */
	uint64_t bad_losses;          /* that clients told, and no loss can be: GP_LOSS_MOST */
	uint64_t checkpoints, checkpoint_failures, checkpoint_bytes, checkpoint_ns;
};

struct gp_tally_seat {
	char name[GP_SERVER_WHO_BYTES];
	int number;
	struct gp_server_session *session; /* NULL: nobody has it now */
	uint64_t idle_since_ns;
	struct gp_tally_sum past; /* of the sessions before */
	struct gp_tally_seat *prev, *next;
};

struct gp_tally {
	struct gp_tally_sum past;                  /* of sessions and links that are gone */
	uint64_t device_ns[GP_SERVER_DEVICES_MAX]; /* the same, by device */
	uint64_t connections;                      /* accepted */
	uint64_t turned_away;                      /* before their TLS handshake: --handshakes, --handshake-rate */
	uint64_t left; /* connections that their client ended before they were sessions, measurements among them */
	uint64_t opened, resumed, parked, moved;
	uint64_t refused[GP_TALLY_REASONS]; /* connections and sessions that were not opened, by what they were told */
	uint64_t ended[GP_TALLY_REASONS];   /* sessions that had been opened; GP_OK: the client said bye */
	struct gp_tally_seat *seats;
	int seat_count;
};

void gp_tally_deinit(struct gp_tally *t);
/* a += b */
void gp_tally_add(struct gp_tally_sum *a, const struct gp_tally_sum *b);

/* A session is open: takes a seat for it. Where memory is out it has none, and counts in the totals alone. */
void gp_tally_opened(struct gp_server_session *s);
/* What its body has done so far: before it is given back, and whenever it is to be told. */
void gp_tally_sample(struct gp_server_session *s);
/* A session is over for good, for the first time that this is said; one that never was open was refused. */
void gp_tally_ended(struct gp_server_session *s, enum gp_status reason);
/* Its memory goes. */
void gp_tally_gone(struct gp_server_session *s);
/* A channel is about to go: what it has carried belongs to its session, or to the totals. */
void gp_tally_keep_link(struct gp_server_link *l);
/* A connection without a session is over. `its_client`: which ended it itself. */
void gp_tally_refused(struct gp_tally *t, enum gp_status reason, bool its_client);

/* The session's figures with those of the link that it has. */
void gp_tally_of_session(const struct gp_server_session *s, struct gp_tally_sum *out);
/* The same of everything there was and is. `device_ns`: by device. */
void gp_tally_totals(const struct gp_server *srv, struct gp_tally_sum *out, uint64_t device_ns[GP_SERVER_DEVICES_MAX]);

#endif

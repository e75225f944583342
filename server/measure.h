/* SPDX-License-Identifier: Apache-2.0
 *
 * A measuring session: a link whose client said MEASURE in place of OPEN, and
 * asks for answers and for bytes that mean nothing. PROTOCOL.md section 5.8.
 *
 * What it may take is little. Time and bytes are limited for each session
 * (--measure, --measure-bytes), sessions for each client (one at once, and
 * --measure-rate in a minute) and for the server (GP_MEASURES_AT_ONCE). A client gets bytes
 * only by asking for each frame, and is asked to name what the frame two before has
 * brought, so that nobody is flooded who does not read. Frames share two blocks of memory,
 * one to send from, made once, and one to receive into, which nobody reads.
 *
 * Threads: loop thread. Test: tests/unit/test_server_measure.c, tests/e2e/measure.sh
 */
#ifndef GP_SERVER_MEASURE_H
#define GP_SERVER_MEASURE_H

#include "common/wire/control.h"

#define GP_MEASURES_AT_ONCE     4
#define GP_MEASURE_PROBES_MAX   4096
#define GP_MEASURE_FRAME_BYTES  ((uint64_t)128 << 20)
#define GP_MEASURE_UNDER_WAY    2 /* frames asked for whose arrival the client has not shown */
/* What a session of it counts for in the accounts of memory: frames' heads, queued answers, the kernel's buffers. */
#define GP_MEASURE_MEMORY_BYTES ((uint64_t)1 << 20)

struct gp_server;
struct gp_server_link;

/* Fills what WELCOME says of measuring. False: this server does not. */
bool gp_server_measure_offer(const struct gp_server *srv, Gpsplit__Measuring *out);
/* Whether `bytes`, which came in GP_LINK_OPEN, are MEASURE. */
bool gp_server_measure_asked(struct gp_server_link *l, struct gp_span bytes);
/* Takes MEASURE. GP_BUSY: too many measure now, or this client has measured a lot. GP_DENIED: it may not. GP_UNSUPPORTED: the
 * operator does not want anybody to. */
enum gp_status gp_server_measure_begin(struct gp_server_link *l, struct gp_err *err);
/* Takes PROBE. */
enum gp_status gp_server_measure_probe(struct gp_server_link *l, const Gpsplit__Probe *m, struct gp_err *err);
/* A frame of the measuring session: as of struct gp_channel_cbs. */
enum gp_status gp_server_measure_frame_begin(struct gp_server_link *l, const struct gp_frame_head *head,
					     struct gp_frame **out, struct gp_err *err);
enum gp_status gp_server_measure_frame(struct gp_server_link *l, struct gp_err *err);
void gp_server_measure_sent(struct gp_server_link *l, const struct gp_frame *f);
/* True: its time is over. */
bool gp_server_measure_expired(const struct gp_server_link *l, uint64_t now_ns);
/* The link is gone. */
void gp_server_measure_free(struct gp_server_link *l);
/* Gives the blocks back; no link measures any more. */
void gp_server_measure_deinit(struct gp_server *srv);

#endif

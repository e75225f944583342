/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to link_measure.c, which decides what is measured when, and link_probe.c, which talks with the server.
 *
 * Threads: one. Test: tests/unit/test_server_measure.c
 */
#ifndef GP_LINK_MEASURE_IMPL_H
#define GP_LINK_MEASURE_IMPL_H

#include "client/measure/link_measure.h"
#include "common/wire/control_states.h"

#define GP_PROBES_UNDER_WAY 2 /* frames of one way */
#define GP_IDLE_TRIPS       20
#define GP_MEASURE_MARKS    4096

enum { GP_PROBED_ANSWER, GP_PROBED_DOWN, GP_PROBED_UP }; /* kinds of PROBED */

/* An answer to a frame: when it came, and the payload that was through by then. */
struct gp_measure_mark {
	uint64_t ns, bytes;
};

struct gp_measure {
	const struct gp_link_measure_spec *spec;
	struct gp_link_figures *out;
	uv_loop_t loop;
	uv_timer_t timer;
	char host[256];
	struct gp_connector *connecting;
	struct gp_channel *ch;
	struct gp_control_arena arena;
	enum gp_link_state state;
	bool welcomed, connected, over, channel_open;
	bool time_over;    /* the server says so */
	struct gp_err err; /* why it is over */
	uint64_t began_ns, session, frame_most, bytes_left;
	uint64_t heard_ns; /* the newest answer to a probe */
	uint32_t probes_left;
	double seconds;
	uint8_t *block; /* to send from, then to receive into */
	/* round trips: one is under way at a time */
	uint32_t trips;
	bool trip_under_way;
	uint64_t trip_ns;
	struct gp_trips *into;
	struct gp_trips idle, loaded[GP_WAYS];
	/* frames, by way */
	struct gp_frame frame[GP_WAYS][GP_PROBES_UNDER_WAY];
	uint32_t asked[GP_WAYS], through[GP_WAYS], come; /* come: whole frames from the server */
	bool busy[GP_PROBES_UNDER_WAY];                  /* frames up that the channel has */
	uint64_t size[GP_WAYS][GP_PROBES_UNDER_WAY], tag[GP_PROBES_UNDER_WAY];
	uint64_t frame_ns[GP_PROBES_UNDER_WAY]; /* when it began, of the way that is measured now */
	double took_s;                          /* of the frame that was answered last */
	uint64_t took_bytes;
	uint64_t done_bytes, last_ns; /* of the way that is measured now: what was answered, and when last */
	struct gp_measure_mark *mark; /* of a full link */
	int marks;
};

/* The measurement is over; the first reason counts. */
void gp_measure_fail(struct gp_measure *m, enum gp_status status, const char *text);

/* Callbacks of the connection, and of the channel's end. */
void gp_measure_connected(void *arg, struct gp_conn *conn, const struct gp_err *why);
void gp_measure_closed(void *arg);

void gp_measure_send_begin(struct gp_measure *m);
/* `bytes` 0: a round trip. */
void gp_measure_send_probe(struct gp_measure *m, uint32_t number, uint64_t bytes, uint64_t tag);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon: one loop thread, one compute thread for each device, threads for
 * codecs, and for reading OPENs and making plans, a list of links
 * (connections) and a list of sessions. A session's failure ends that session only.
 *
 * Threads: the loop thread owns everything here; see common/base/worker.h for what
 * runs elsewhere. Test: tests/unit/test_server.c, tests/e2e
 */
#ifndef GP_SERVER_H
#define GP_SERVER_H

#include "common/wire/channel.h"
#include "common/base/worker.h"
#include "server/advertise.h"
#include "server/balance.h"
#include "server/client_log.h"
#include "server/credentials.h"
#include "server/devices.h"
#include "server/events.h"
#include "server/tally.h"

#define GP_SERVER_TICK_MS 250 /* how often deadlines are looked at */

/* What clients are told by a server that drains or stops, and by one that sends a session away. */
#define GP_SERVER_STOPS "the server is stopping"
#define GP_SERVER_MOVES "the server has more sessions than others that share its state: this one is to go on at another"

struct gp_server_settings {
	const char *listen; /* "ADDR:PORT" */
	int listen_fd;      /* a socket that listens there already and is the server's from here on; 0: there is none */
	const char *device; /* or several, with commas between */
	int64_t threads;    /* compute threads, 0 = all processors */
	int64_t codec_threads; /* 0 = 1, or 4 for each GPU */
	int64_t max_sessions;
	int64_t max_unopened;         /* connections whose HELLO has not been accepted */
	int64_t session_memory_bytes; /* 0 = half of the machine's memory */
	int64_t session_device_bytes; /* of a GPU's own memory; 0 = all that is free when the server starts */
	int64_t window;               /* most chunks in flight a session may ask for */
	double task_time_s;           /* longest pass over a chunk, of the device or of a codec, as estimated at OPEN */
	double handshake_timeout_s, step_timeout_s, idle_timeout_s;
	double measure_s;       /* longest measuring session; 0 = there are none */
	int64_t measure_bytes;  /* of one, both ways together */
	int64_t measure_rate;   /* of one client, in a minute; 0 = any number */
	double resume_window_s; /* a session whose link broke is parked so long; 0 = not at all */
	const char *state_dir;  /* checkpoints of runs; NULL: none are written */
	double lease_s;         /* state_dir.h; 0 = GP_STATE_LEASE_S */
	double rebalance_s;     /* pause between two sessions that are sent to other servers; 0 = none is: balance.h */
	int64_t state_max_bytes;
	int64_t state_max_client_bytes; /* of one name's; 0 = a quarter of all, or all where clients have no names */
	int64_t state_client_runs;      /* the same of runs */
	const char *limits;             /* file: what each name may take; NULL: there is none */
	const char *advertise;          /* other servers, "HOST:PORT,..."; NULL: none */
	const char *metrics;            /* "ADDR:PORT" of figures over HTTP; NULL: there are none */
	bool insecure;
	const char *tls_cert, *tls_key, *tls_client_ca, *tokens; /* files; NULL: without */
	struct gp_visitor_limits visitors;                       /* of one address or name */
};

struct gp_metrics;
struct gp_metrics_http;
struct gp_state_dir;
struct gp_state_limits;
struct gp_limits_table;
struct gp_server_session;
struct gp_server_link;

/* rebalance.c */
struct gp_server_rebalance {
	struct gp_balance state;
	uint64_t looked_ns;
	bool wanted; /* that the next session which may be sent away is, and which server would be the one for it */
	struct gp_fleet_server counterpart;
};

struct gp_server {
	uv_loop_t *loop;
	struct gp_server_settings set;
	struct gp_server_devices devices;
	struct gp_worker *build, *codec;
	struct gp_lane_user openings; /* on `build`: all OPENs together have one turn beside each body */
	struct gp_worker *slow_codec; /* codecs that would hold up those of other sessions: transfer.h */
	struct gp_worker *disk;       /* NULL without --state-dir */
	struct gp_state_dir *state;   /* NULL without --state-dir */
	struct gp_listener *listener;
	struct gp_server_credentials credentials;
	struct gp_advertise elsewhere;  /* other servers, for clients that are sent away */
	struct gp_limits_table *limits; /* what each name may take: usage.h */
	struct gp_client_log log;       /* and, in it, what addresses have done lately */
	struct gp_tally tally;          /* what the server has done so far */
	struct gp_events events;        /* what has happened to clients lately */
	struct gp_metrics *metrics;     /* tells other threads of it; NULL without --metrics, as is the next one */
	struct gp_metrics_http *metrics_http;
	struct gp_server_link *links;       /* doubly linked; link.h */
	struct gp_server_session *sessions; /* doubly linked; session.h */
	int link_count, session_count;
	/* Those of the connections whose HELLO has not been accepted, from the newest to the oldest: they are counted and
	 * limited apart, so that who says nothing keeps nobody out. */
	struct gp_server_link *newest_stranger, *oldest_stranger;
	int stranger_count;
	bool runs_unsettled; /* handover.c is to look at them again */
	struct gp_server_rebalance rebalance;
	uint64_t made_room_ns; /* when a parked session was last looked for, to end it for a newcomer */
	double stranger_lines; /* of the log that their ends may still fill, and since when */
	uint64_t stranger_lines_ns, strangers_untold;
	uint8_t *probe_filler, *probe_sink; /* of measuring sessions, from the first one on: measure.h */
	uint64_t next_link, next_session;
	uint64_t session_memory_bytes;                  /* most one session may take */
	uint64_t memory_limit_bytes, memory_used_bytes; /* of all sessions together */
	bool draining;                                  /* steps under way end, and nothing begins */
	bool stopping;                                  /* all links and sessions end now */
	int fallen_back; /* runs whose state could not be written while it drained or stopped */
	struct {
		uv_timer_t timer;
		bool runs;
		uint64_t tick_ns, stalled_ns; /* when it last looked, and when the server itself had last stood still */
	} watch;                              /* watch.h */
	void (*stopped)(void *arg); /* all links and sessions are gone after gp_server_drain or gp_server_stop */
	void *arg;
};

/* Opens the devices and the listener. On failure nothing is left open. */
enum gp_status gp_server_start(struct gp_server *srv, uv_loop_t *loop, const struct gp_server_settings *set,
			       struct gp_err *err);
/*
 * The orderly stop: who comes is told to come later; a session ends when its step is committed, or at once where none is
 * under way, and the state of its run is written. `stopped` follows when all have ended. A client may leave a step
 * unfinished for as long as it likes, so the caller sets a time and calls gp_server_stop then.
 */
void gp_server_drain(struct gp_server *srv, void (*stopped)(void *arg), void *arg);
/* Says in the log which sessions have not ended, and from which step their runs would go on now. */
void gp_server_tell_unfinished(const struct gp_server *srv);
/* Closes the listener, every link (the clients are told why) and every session, then calls `stopped`. Steps
 * under way are given up; the state after the last commit of each run is written. */
void gp_server_stop(struct gp_server *srv, void (*stopped)(void *arg), void *arg);
/* Reads certificates, keys and tokens again, for clients that come from now on; sessions whose token is in the file no
 * more end. On failure the old ones stay. */
enum gp_status gp_server_reload(struct gp_server *srv, struct gp_err *err);
/* Reads the certificates and tokens of --metrics again. On failure the old ones stay, but for tokens. */
enum gp_status gp_server_reload_metrics(struct gp_server *srv, struct gp_err *err);
/* Reads --limits again, for what is asked for from now on. On failure the old limits stay. */
enum gp_status gp_server_reload_limits(struct gp_server *srv, struct gp_err *err);
/* What --state-dir may hold, as the options have it. */
struct gp_state_limits gp_server_state_limits(const struct gp_server_settings *set);
/* After `stopped`: joins the threads and closes the devices. Run the loop once more to close its handles. */
void gp_server_deinit(struct gp_server *srv);
uint16_t gp_server_port(const struct gp_server *srv);

/* May the end of a connection that never became a session have a line in the log? A flood of them gets some, and a sum. */
bool gp_server_tells_stranger(struct gp_server *srv);
/* link.c: takes the connection. One that is secure has begun its handshake (gp_visitors_handshake), which the link ends. */
void gp_server_link_new(struct gp_server *srv, struct gp_conn *conn);
/* Ends the link and its session politely: error message to the client, then the connection closes. */
void gp_server_link_stop(struct gp_server_link *l, enum gp_status code, const char *text);
/* When the client of a GP_BUSY to come may come back. */
void gp_server_link_retry_after(struct gp_server_link *l, uint32_t ms);
/* The same, because the server stops: the client hears that, and whether to come again (GP_BUSY) or that it lost a session. */
void gp_server_link_retire(struct gp_server_link *l);
/* Retires the link of a server that drains, unless a step is under way, which may end first. False: the link is closing
 * already. */
bool gp_server_link_drain(struct gp_server_link *l);
/* link_hello.c: the session that the link has claimed is at rest, and is the link's from here on. */
void gp_server_link_take(struct gp_server_link *l, struct gp_server_session *s);
/* link_hello.c: answers the HELLO of a new session. `stored`: the newest checkpoint that both sides have; 0: none. */
void gp_server_link_welcome(struct gp_server_link *l, uint64_t stored);
struct gp_server_link *gp_server_link_next(struct gp_server_link *l);
/* link_hello.c: ends the links of clients whose token was revoked (gp_server_revoked), with GP_DENIED. */
void gp_server_links_revoke(struct gp_server *srv);
/* server.c: a link or a session is gone; its memory is freed by the caller. */
void gp_server_link_gone(struct gp_server *srv);
void gp_server_session_gone(struct gp_server *srv);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection moves bytes, in order, both ways. Implementations: TCP
 * (conn_tcp.c, libuv), memory (conn_mem.c, for tests: 1-byte reads, cuts), TLS
 * over another one (conn_tls.h). Not here: records and frames (channel.h).
 *
 * Threads: everything on the loop thread. Callbacks never run inside the call
 * that causes them, except `read_cb` from within the loop's own read event.
 *
 * SIGPIPE: libuv writes without MSG_NOSIGNAL, so listening and connecting set a
 * default SIGPIPE disposition to "ignore" once per process.
 *
 * Tests: tests/unit/test_conn.c, tests/unit/test_conn_addresses.c, tests/unit/test_addr.c
 */
#ifndef GP_CONN_H
#define GP_CONN_H

#include <uv.h>

#include "common/base/mem.h"
#include "common/net/cert_identity.h"
#include "common/net/tcp_info.h"

struct gp_conn;

#define GP_CONN_WRITE_BUFS 3 /* libuv keeps up to 4 without an allocation */

/* Runs exactly once per write, also when the connection dies first (GP_CANCELED). */
typedef void (*gp_conn_write_cb)(void *arg, enum gp_status status);

/* Caller-owned; must live until its callback. No allocation per write. */
struct gp_conn_write {
	gp_conn_write_cb cb;
	void *arg;
	/* the connection's, until the callback */
	uv_write_t uv;
	uv_buf_t bufs[GP_CONN_WRITE_BUFS];
	unsigned nbufs;
	struct gp_conn *conn;
	struct gp_conn_write *next;
	uint64_t bytes; /* on the wire: with TLS more than in the buffers */
};

struct gp_conn_cbs {
	/* Bytes arrived; `data` is only valid during the call. May call gp_conn_close. */
	void (*read)(void *arg, const uint8_t *data, size_t len);
	/* The connection is over: GP_OK on the peer's orderly end, else an error. Runs once. Then call gp_conn_close. */
	void (*ended)(void *arg, enum gp_status status, const char *why);
};

struct gp_conn_ops {
	const char *name;
	/* Queues 1..GP_CONN_WRITE_BUFS buffers; w and the bytes stay untouched until w->cb. The array may go at once. */
	void (*write)(struct gp_conn *c, struct gp_conn_write *w, const uv_buf_t *bufs, unsigned nbufs);
	void (*read_start)(struct gp_conn *c);
	void (*read_stop)(struct gp_conn *c); /* back-pressure */
	/* Announces that no write follows: behind those that are queued the peer sees an orderly end. Reading goes
	 * on. */
	void (*shutdown)(struct gp_conn *c);
	/* Bytes of queued writes that the kernel has not taken yet: moves when a slow peer makes progress. */
	uint64_t (*unsent)(const struct gp_conn *c);
	/* Outstanding writes get GP_CANCELED, then `closed` (may be NULL) runs once and the object is freed. No other
	 * callback after this call. */
	void (*close)(struct gp_conn *c, void (*closed)(void *arg), void *arg);
	/* (optional) Behind `close`, once or more until `closed`: the place is needed, so the peer gets no more time to read
	 * why the connection ends. */
	void (*hurry)(struct gp_conn *c);
	/* (optional) The owner can do nothing before so many more bytes are here: fewer wake-ups, never a longer wait for
	 * what it needs. 1 = every byte counts. */
	void (*read_hint)(struct gp_conn *c, uint32_t bytes);
	/* (optional) What the kernel may hold unsent from now on, however large its send buffer grows: nothing that is
	 * written later overtakes it. */
	void (*hold)(struct gp_conn *c, uint32_t bytes);
	/* (optional) NULL: no kernel figures. */
	void (*figures)(struct gp_conn *c, struct gp_tcp_figures *out);
	/* (optional) The socket, for its options and queues; -1 or NULL: there is none. */
	int (*socket)(const struct gp_conn *c);
};

/* Every connection struct begins with this. */
struct gp_conn {
	const struct gp_conn_ops *ops;
	struct gp_conn_cbs cbs;
	void *arg;
	/* Bytes on the wire: of writes that are done, and of what was read from the kernel; with TLS its own
	 * messages are among them. Updated before the callback that tells of them. */
	uint64_t bytes_written, bytes_read;
	/* When the kernel gave what came last (gp_now_ns): several calls of `read` may hand it on, as TLS does by its records. */
	uint64_t read_ns;
	char peer[64]; /* "127.0.0.1:4040" */
	bool secure;   /* nobody on the way can read along (TLS) */
	/* From the peer's certificate, once the handshake is through, "" without one: who it is (cert_identity.h), and its
	 * subject, which is for people to read and proves nothing. */
	char identity[GP_CERT_IDENTITY_BYTES], subject[64];
};

/* Listener. addr is a numeric address or a name such as "localhost". `accepted` gets a connection that is not
 * reading yet; set cbs and arg, then read_start. When descriptors or memory run out, accepting pauses for a moment;
 * nothing is reported, open connections go on. */
struct gp_listener;
enum gp_status gp_tcp_listen(uv_loop_t *loop, const char *addr, uint16_t port, int backlog,
			     void (*accepted)(void *arg, struct gp_conn *c), void *arg, struct gp_listener **out,
			     struct gp_err *err);
/* The same on a socket that listens already. It is the listener's from here on, unless this fails. */
enum gp_status gp_tcp_listen_on(uv_loop_t *loop, int fd, void (*accepted)(void *arg, struct gp_conn *c), void *arg,
				struct gp_listener **out, struct gp_err *err);
/* The port that is bound (for port 0). */
uint16_t gp_listener_port(const struct gp_listener *l);
/* Peers of connections that are accepted from now on send segments of so many bytes at most, as TCP counts them. The
 * loopback's own take 64 KiB, so that a receiver cannot hold its sender back by less. */
void gp_listener_segment(const struct gp_listener *l, int bytes);
void gp_listener_close(struct gp_listener *l);

struct gp_connector; /* one gp_tcp_connect, until `done` */
/*
 * Resolves and connects within timeout_ms, trying each address for its share of the time that is left; `done` runs
 * once with a connection or NULL and the error (GP_PEER, GP_TIMEOUT: "cannot connect to HOST:PORT: connection refused
 * (is gpserverd running there?)"). When this call itself fails, `done` does not run. *out (optional): for gp_tcp_connect_cancel.
 */
enum gp_status gp_tcp_connect(uv_loop_t *loop, const char *host, uint16_t port, uint64_t timeout_ms,
			      void (*done)(void *arg, struct gp_conn *c, const struct gp_err *err), void *arg,
			      struct gp_connector **out, struct gp_err *err);
/* Called right behind gp_tcp_connect: the peer sends segments of so many bytes at most (gp_listener_segment). */
void gp_tcp_connect_segment(struct gp_connector *k, int bytes);
/*
 * Within `done`: gives up to `most` addresses of the host as numbers, in the order in which they are tried, and in *at which
 * one the connection is to, -1 where it is to none of these. Returns how many; NULL has none.
 */
#define GP_TCP_NUMERIC 64
int gp_tcp_connect_addresses(const struct gp_connector *k, char out[][GP_TCP_NUMERIC], int most, int *at);
/* May be called before `done`, which then runs at once, with GP_CANCELED. The lookup of a name that is under way
 * ends by itself. */
void gp_tcp_connect_cancel(struct gp_connector *k);

/* Two ends joined in memory on one loop, without buffers between them: a write is through when the other end has read
 * it. `chunk` > 0: at most that many bytes per read. */
enum gp_status gp_mem_pair(uv_loop_t *loop, size_t chunk, struct gp_conn **a, struct gp_conn **b, struct gp_err *err);
/* Cuts the pair, as by a dead link, once `c` (an end of a pair) has written so many bytes in all: both ends see GP_PEER. */
void gp_mem_cut_after(struct gp_conn *c, uint64_t bytes);

/* "HOST:PORT", "[::1]:PORT" into host[256]; port 0 is allowed (listeners). GP_USAGE says what is missing. */
enum gp_status gp_addr_parse(const char *text, char host[256], uint16_t *port, struct gp_err *err);
/* The same of an address that is connected to: port 0 is GP_USAGE. */
enum gp_status gp_addr_parse_remote(const char *text, char host[256], uint16_t *port, struct gp_err *err);
/* Whether a text from a peer is HOST:PORT of bytes that hosts are written with, and a port that can be connected to. */
bool gp_addr_is_plain(const char *text);
/* True for 127.0.0.0/8 and ::1 and "localhost". */
bool gp_addr_is_loopback(const char *host);
/* "127.0.0.1:4040", "[::1]:4040", "example.org:4040" into out[size]. */
void gp_addr_format(const char *host, uint16_t port, char *out, size_t size);
/* Says why HOST:PORT cannot be listened on; GP_INVALID where another address would do. */
enum gp_status gp_addr_fail_listen(const char *host, uint16_t port, int os_error, struct gp_err *err);

#endif

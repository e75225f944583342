/* SPDX-License-Identifier: Apache-2.0
 *
 * Throughput of tensor frames over TCP loopback, two threads with a loop each:
 * one way and both ways, several frame lengths, and the same bytes over a bare
 * connection, so that the price of framing shows. Payload checksums are left
 * out, because they are made off the loop thread; their speed is printed apart.
 * With a folder of deploy/gen-test-certs.sh, the same inside TLS, too. Or one
 * end only, for a link between them: frames of 1 MiB from the client.
 *
 * Usage: bench_channel [SECONDS per line, default 1] [FOLDER]
 *        bench_channel --listen ADDR:PORT SECONDS [FOLDER]
 *        bench_channel --connect ADDR:PORT SECONDS [FOLDER]
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/wire/channel.h"
#include "common/net/conn_tls.h"

#define FRAMES_QUEUED   4
#define FRAME_BYTES_MAX (13u << 20)

enum mode { BARE, ONE_WAY, BOTH_WAYS };

struct end {
	uv_loop_t loop;
	uv_async_t stop;
	uv_thread_t thread;
	struct gp_conn *conn;
	struct gp_channel *ch;
	enum mode mode;
	bool sends;
	size_t bytes; /* payload of a frame, or of a bare write */
	struct gp_frame out[FRAMES_QUEUED], in[GP_CLASS_COUNT];
	struct gp_conn_write w[2];
	uint8_t *payload, *into;
	size_t at; /* bare: next write, next read within the 13 MB, as with frames */
	uint64_t received, sent, begin_ns, end_ns;
	double cpu_s;
	bool stopping;
};

static void check(enum gp_status status, const struct gp_err *err)
{
	if (status == GP_OK)
		return;
	gp_err_print(err, "bench_channel");
	exit(1);
}

static double thread_cpu_s(void)
{
	struct rusage u;
	getrusage(RUSAGE_THREAD, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Frames. */

static void on_opened(void *arg)
{
	struct end *e = arg;
	for (int i = 0; e->sends && i < FRAMES_QUEUED; i++) {
		e->out[i].payload = e->payload;
		e->out[i].head = (struct gp_frame_head){.type = GP_FRAME_ACT_UP, .payload_len = e->bytes};
		gp_channel_send_frame(e->ch, &e->out[i]);
	}
}

static enum gp_status on_control(void *arg, struct gp_span msg, struct gp_err *err)
{
	(void)arg;
	(void)msg;
	(void)err;
	return GP_OK;
}

static enum gp_status on_frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
				     struct gp_err *err)
{
	struct end *e = arg;
	struct gp_frame *f = &e->in[gp_frame_class(head->type)];
	(void)err;
	f->payload = e->into;
	f->cap = FRAME_BYTES_MAX;
	*out = f;
	return GP_OK;
}

static enum gp_status on_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	struct end *e = arg;
	(void)err;
	e->received += f->head.payload_len;
	return GP_OK;
}

static void on_sent(void *arg, struct gp_frame *f)
{
	struct end *e = arg;
	e->sent += f->head.payload_len;
	if (!e->stopping)
		gp_channel_send_frame(e->ch, f);
}

/* The other end was stopped first. */
static void on_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct end *e = arg;
	(void)status;
	(void)err;
	e->stopping = true;
}

/* Bare bytes. */

static void bare_read(void *arg, const uint8_t *data, size_t len)
{
	struct end *e = arg;
	if (e->at + len > FRAME_BYTES_MAX)
		e->at = 0;
	memcpy(e->into + e->at, data, len); /* the one copy that a channel makes too */
	e->at += len;
	e->received += len;
}

static void bare_ended(void *arg, enum gp_status status, const char *why)
{
	(void)arg;
	(void)status;
	(void)why;
}

static void bare_write(struct end *e, struct gp_conn_write *w)
{
	const uv_buf_t buf = uv_buf_init((char *)e->payload + e->at, (unsigned)e->bytes);
	e->at = (e->at + e->bytes) % FRAME_BYTES_MAX;
	e->conn->ops->write(e->conn, w, &buf, 1);
}

static void bare_written(void *arg, enum gp_status status)
{
	struct gp_conn_write *w = arg;
	struct end *e = w->conn->arg;
	if (status == GP_OK && !e->stopping)
		bare_write(e, w);
}

static void start_bare(struct end *e)
{
	e->conn->cbs = (struct gp_conn_cbs){.read = bare_read, .ended = bare_ended};
	e->conn->arg = e;
	e->conn->ops->read_start(e->conn);
	for (int i = 0; e->sends && i < 2; i++) {
		e->w[i].cb = bare_written;
		e->w[i].arg = &e->w[i];
		bare_write(e, &e->w[i]);
	}
}

static void start_channel(struct end *e)
{
	static const struct gp_channel_cbs cbs = {
		.opened = on_opened,
		.control = on_control,
		.frame_begin = on_frame_begin,
		.frame = on_frame,
		.sent = on_sent,
		.ended = on_ended,
	};
	struct gp_err err;
	check(gp_channel_new(&e->loop, e->conn, NULL, &cbs, e, &e->ch, &err), &err);
}

static void on_stop(uv_async_t *async)
{
	struct end *e = async->data;
	e->stopping = true;
	e->end_ns = gp_now_ns();
	if (e->ch)
		gp_channel_close(e->ch, false, NULL, NULL);
	else
		e->conn->ops->close(e->conn, NULL, NULL);
	uv_close((uv_handle_t *)async, NULL);
}

static void end_main(void *arg)
{
	struct end *e = arg;
	const double cpu = thread_cpu_s();
	e->begin_ns = gp_now_ns();
	if (e->mode == BARE)
		start_bare(e);
	else
		start_channel(e);
	uv_run(&e->loop, UV_RUN_DEFAULT);
	e->cpu_s = thread_cpu_s() - cpu;
	uv_loop_close(&e->loop);
}

static void end_init(struct end *e, enum mode mode, bool sends, size_t bytes)
{
	memset(e, 0, sizeof *e);
	uv_loop_init(&e->loop);
	uv_async_init(&e->loop, &e->stop, on_stop);
	e->stop.data = e;
	e->mode = mode;
	e->sends = sends;
	e->bytes = bytes;
	e->payload = gp_alloc_aligned(FRAME_BYTES_MAX);
	e->into = gp_alloc_aligned(FRAME_BYTES_MAX);
	gp_require(e->payload && e->into);
	memset(e->payload, 1, FRAME_BYTES_MAX);
	memset(e->into, 2, FRAME_BYTES_MAX);
}

static void end_free(struct end *e)
{
	gp_free_aligned(e->payload);
	gp_free_aligned(e->into);
}

/* The link: each end is set up on its own loop before its thread begins. */

static void on_accepted(void *arg, struct gp_conn *c)
{
	*(struct gp_conn **)arg = c;
}

static void on_connected(void *arg, struct gp_conn *c, const struct gp_err *err)
{
	check(c ? GP_OK : err->code, err);
	*(struct gp_conn **)arg = c;
}

/* Settings, or NULL for lines without TLS. */
static struct gp_tls *tls_server, *tls_client;

static void wrap(struct end *e, const struct gp_tls *tls)
{
	struct gp_err err;
	if (tls)
		check(gp_tls_wrap(&e->loop, e->conn, tls, "localhost", &e->conn, &err), &err);
}

static void join_ends(struct end *a, struct end *b)
{
	struct gp_listener *l;
	struct gp_err err;
	check(gp_tcp_listen(&b->loop, "127.0.0.1", 0, 1, on_accepted, &b->conn, &l, &err), &err);
	check(gp_tcp_connect(&a->loop, "127.0.0.1", gp_listener_port(l), 5000, on_connected, &a->conn, NULL, &err),
	      &err);
	while (!a->conn || !b->conn) {
		uv_run(&a->loop, UV_RUN_NOWAIT);
		uv_run(&b->loop, UV_RUN_NOWAIT);
	}
	gp_listener_close(l);
	wrap(a, tls_client);
	wrap(b, tls_server);
}

static void measure(const char *name, enum mode mode, size_t bytes, double seconds)
{
	static struct end a, b;
	end_init(&a, mode, true, bytes);
	end_init(&b, mode, mode == BOTH_WAYS, bytes);
	join_ends(&a, &b);
	uv_thread_create(&b.thread, end_main, &b);
	uv_thread_create(&a.thread, end_main, &a);
	uv_sleep((unsigned)(seconds * 1000));
	uv_async_send(&b.stop);
	uv_async_send(&a.stop);
	uv_thread_join(&a.thread);
	uv_thread_join(&b.thread);
	const double gb = 1e-9 * (double)(a.received + b.received);
	const double wall = 1e-9 * (double)(b.end_ns - b.begin_ns);
	printf("%-22s %9zu bytes  %6.2f GB/s  sender %4.0f %%  receiver %4.0f %%  %5.2f CPU s/GB\n", name, bytes,
	       gb / wall, 100 * a.cpu_s / wall, 100 * b.cpu_s / wall, gb > 0 ? (a.cpu_s + b.cpu_s) / gb : 0);
	end_free(&a);
	end_free(&b);
}

/* This end of a link to another process. */
static void join_far(struct end *e, bool listens, const char *where)
{
	struct gp_listener *l = NULL;
	struct gp_err err;
	char host[256];
	uint16_t port;
	check(gp_addr_parse(where, host, &port, &err), &err);
	if (listens)
		check(gp_tcp_listen(&e->loop, host, port, 1, on_accepted, &e->conn, &l, &err), &err);
	else
		check(gp_tcp_connect(&e->loop, host, port, 5000, on_connected, &e->conn, NULL, &err), &err);
	while (!e->conn)
		uv_run(&e->loop, UV_RUN_ONCE);
	if (l)
		gp_listener_close(l);
	wrap(e, listens ? tls_server : tls_client);
}

static void measure_far(bool listens, const char *where, double seconds)
{
	static struct end e;
	end_init(&e, ONE_WAY, !listens, 1u << 20);
	join_far(&e, listens, where);
	uv_thread_create(&e.thread, end_main, &e);
	uv_sleep((unsigned)(seconds * 1000));
	uv_async_send(&e.stop);
	uv_thread_join(&e.thread);
	const double wall = 1e-9 * (double)(e.end_ns - e.begin_ns);
	printf("%-8s sent %7.1f Mbit/s  received %7.1f Mbit/s  %4.0f %% of a processor\n",
	       listens ? "listener" : "client", 8e-6 * (double)e.sent / wall, 8e-6 * (double)e.received / wall,
	       100 * e.cpu_s / wall);
	end_free(&e);
}

static void measure_checksum(double seconds)
{
	uint8_t *p = gp_alloc_aligned(FRAME_BYTES_MAX);
	gp_require(p);
	memset(p, 3, FRAME_BYTES_MAX);
	const uint64_t begin = gp_now_ns();
	uint64_t sum = 0, bytes = 0;
	while ((double)(gp_now_ns() - begin) < seconds * 1e9) {
		sum += gp_frame_checksum(p, FRAME_BYTES_MAX);
		bytes += FRAME_BYTES_MAX;
	}
	printf("%-22s %9u bytes  %6.2f GB/s  (%llx)\n", "checksum, one thread", FRAME_BYTES_MAX,
	       (double)bytes / (double)(gp_now_ns() - begin), (unsigned long long)sum);
	gp_free_aligned(p);
}

static void load_tls(const char *folder)
{
	char cert[4096], key[4096], ca[4096];
	struct gp_err err;
	snprintf(cert, sizeof cert, "%s/server.pem", folder);
	snprintf(key, sizeof key, "%s/server.key", folder);
	snprintf(ca, sizeof ca, "%s/ca.pem", folder);
	check(gp_tls_server_new(&(struct gp_tls_files){.cert = cert, .key = key}, &tls_server, &err), &err);
	check(gp_tls_client_new(&(struct gp_tls_files){.ca = ca}, &tls_client, &err), &err);
}

static void measure_all(double seconds)
{
	measure("bare connection", BARE, GP_SEGMENT_BYTES_DEFAULT, seconds);
	measure("frames, one way", ONE_WAY, FRAME_BYTES_MAX, seconds);
	measure("frames, one way", ONE_WAY, 1u << 20, seconds);
	measure("frames, one way", ONE_WAY, 64u << 10, seconds);
	measure("frames, both ways", BOTH_WAYS, FRAME_BYTES_MAX, seconds);
	measure("frames, both ways", BOTH_WAYS, 1u << 20, seconds);
}

static int one_end(int argc, char **argv)
{
	const double seconds = argc > 3 ? strtod(argv[3], NULL) : 0;
	if (!(seconds > 0)) {
		fprintf(stderr, "usage: bench_channel --listen|--connect ADDR:PORT SECONDS [FOLDER]\n");
		return 2;
	}
	if (argc > 4)
		load_tls(argv[4]);
	measure_far(strcmp(argv[1], "--listen") == 0, argv[2], seconds);
	gp_tls_free(tls_server);
	gp_tls_free(tls_client);
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && argv[1][0] == '-')
		return one_end(argc, argv);
	const double seconds = argc > 1 ? strtod(argv[1], NULL) : 1;
	if (!(seconds > 0)) {
		fprintf(stderr, "usage: bench_channel [SECONDS] [FOLDER]\n");
		return 2;
	}
	measure_all(seconds);
	measure_checksum(seconds);
	if (argc > 2) {
		load_tls(argv[2]);
		puts("inside TLS:");
		measure_all(seconds);
		gp_tls_free(tls_server);
		gp_tls_free(tls_client);
	}
	return 0;
}

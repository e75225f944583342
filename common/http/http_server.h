/* SPDX-License-Identifier: Apache-2.0
 *
 * A small HTTP server for figures and pages that an operator looks at: GET and HEAD alone, one thread of its own, over
 * libmicrohttpd. What is answered is the caller's: `answer` runs on that thread, so it touches nothing that belongs to
 * another. Limits hold for whoever connects: connections, those of one address, the length of a request, the time without
 * a byte, the time of a whole request however slowly it comes or its answer is read, and the bytes of all answers
 * under way.
 *
 * On loopback it speaks in the clear and refuses requests whose Host names another machine, so that a web page in a browser on
 * this machine cannot read it by a name that leads here. Elsewhere it speaks TLS 1.3 with the caller's certificate.
 *
 * Threads: start, reload and stop are one caller's. Test: tests/unit/test_http_server.c, tests/e2e/metrics.sh
 */
#ifndef GP_HTTP_SERVER_H
#define GP_HTTP_SERVER_H

#include "common/base/mem.h"

#define GP_HTTP_CONNECTIONS 128         /* at once; for the last one the one that is oldest ends */
#define GP_HTTP_OF_ADDRESS  64          /* those of one address, where it is not loopback */
#define GP_HTTP_HEAD_BYTES  16384       /* memory of a connection for its request */
#define GP_HTTP_IDLE_S      15          /* without a byte */
#define GP_HTTP_REQUEST_S   30          /* from the first byte of a request to the last one of its answer */
#define GP_HTTP_BODIES_MOST (64u << 20) /* of answers that are being read */

struct gp_http_request {
	const char *path;     /* begins with '/'; without a query */
	struct gp_span token; /* of "Authorization: Bearer TOKEN"; empty: there is none */
	const char *peer;     /* its numeric address, as gp_addr_parse reads it with a port behind it */
	bool certified;       /* it has shown a certificate of the CA that was given */
};

struct gp_http_reply {
	int status;         /* of HTTP */
	const char *type;   /* of the content */
	const char *policy; /* (optional) Content-Security-Policy; without one nothing may be loaded by the answer */
	uint32_t retry_s;   /* Retry-After; 0: none */
	char *body;         /* from gp_calloc or gp_realloc, and taken over, unless there is `sent` */
	size_t length;
	/* (optional) Called with `body_of` once nobody reads the body any more: on the server's thread, or in stop. */
	void (*sent)(void *body_of);
	void *body_of;
};

/* Plain text, for `answer`. */
void gp_http_reply_text(struct gp_http_reply *out, int status, const char *text);

struct gp_http_settings {
	const char *host; /* a numeric address or a name such as "localhost" */
	uint16_t port;    /* 0: a free one */
	bool loopback;    /* only this machine reaches it */
	const char *name; /* of the option, for messages: "--metrics" */
	/* PEM files; NULL: none. `ca`: clients are asked for a certificate of it, and gp_http_request.certified says whether
	 * they had one. */
	const char *cert, *key, *ca;
	double request_s; /* 0: GP_HTTP_REQUEST_S */
	unsigned idle_s;  /* 0: GP_HTTP_IDLE_S */
	void (*answer)(void *arg, const struct gp_http_request *request, struct gp_http_reply *out);
	void *arg;
};

struct gp_http_server;

/* The settings' texts are not needed behind this call, but for the files' names. */
enum gp_status gp_http_server_start(const struct gp_http_settings *set, struct gp_http_server **out,
				    struct gp_err *err);
uint16_t gp_http_server_port(const struct gp_http_server *s);
/* Reads certificate, key and CA again; connections that are open end. Does not wait; on failure the old ones stay. */
enum gp_status gp_http_server_reload(struct gp_http_server *s, struct gp_err *err);
/* Ends every connection and joins the thread; NULL is fine. */
void gp_http_server_stop(struct gp_http_server *s);

#endif

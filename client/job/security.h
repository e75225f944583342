/* SPDX-License-Identifier: Apache-2.0
 *
 * How a client trusts a server and proves who it is: TLS settings and a token,
 * from files, for every connection of a run. PROTOCOL.md sections 1 and 5.2.
 *
 * Threads: loop thread. Test: tests/unit/test_security.c, tests/e2e/tls.sh
 */
#ifndef GP_CLIENT_SECURITY_H
#define GP_CLIENT_SECURITY_H

#include "common/net/conn.h"
#include "common/net/token_file.h"

struct gp_tls;

/* --follow: whether the session may go to servers that the user has not listed, because one of these has named them. */
enum gp_follow {
	GP_FOLLOW_CA,   /* where --tls-ca checks both: who names it, and who is named */
	GP_FOLLOW_ANY,  /* wherever a server may be connected to at all */
	GP_FOLLOW_NONE, /* never */
};
#define GP_FOLLOW_CHOICES "ca|any|none"

struct gp_client_security {
	struct gp_tls *tls; /* NULL: in the clear */
	bool own_ca;        /* it trusts --tls-ca alone, not whomever a CA of the system has given a certificate */
	enum gp_follow follow;
	const char *name;   /* whose name the server's certificate must have; NULL: the host it is reached by */
	char token[GP_CLIENT_TOKEN_MAX + 1]; /* "": none */
};

struct gp_client_security_files { /* NULL: none */
	bool tls;                 /* trust the system's CAs */
	const char *ca;           /* trust this one in their place */
	const char *cert, *key, *name, *token;
	int follow; /* enum gp_follow */
};

/* GP_USAGE when the flags do not fit together, GP_INVALID when a file is wrong. On failure *s is empty. */
enum gp_status gp_client_security_load(struct gp_client_security *s, const struct gp_client_security_files *files,
				       struct gp_err *err);
void gp_client_security_deinit(struct gp_client_security *s);

/* Wraps a fresh connection to `host` in TLS where that is asked for. Takes it: on failure it is closed. GP_USAGE when a token
 * would cross a network in the clear. */
enum gp_status gp_client_secure(const struct gp_client_security *s, uv_loop_t *loop, const char *host,
				struct gp_conn **conn, struct gp_err *err);

/*
 * Whether the word of a server, which was reached as `by`, is taken that there is another one at `host`. It is connected to as
 * one that the user has listed: with TLS, whose certificate has to have its own name (or --tls-name), and a token that
 * crosses no network in the clear. A loopback address is this machine's own, and only what is reached there may name it.
 */
bool gp_client_may_follow(const struct gp_client_security *s, const char *by, const char *host);
/* Whether the connection leads to a loopback address. Names, and numbers that are written in other ways, may lead there without
 * saying so: who was named by a server that is far has to be asked for this when it is connected to. */
bool gp_client_is_near(const struct gp_conn *conn);

#endif

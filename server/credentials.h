/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may use the server: TLS settings and tokens, as the options say, read
 * again on SIGHUP. A client has to show all that is asked for: a certificate
 * during the handshake (--tls-client-ca), a token in HELLO (--tokens).
 * PROTOCOL.md section 5.2.
 *
 * Threads: loop thread. Test: tests/unit/test_security.c, tests/e2e/tls.sh
 */
#ifndef GP_SERVER_CREDENTIALS_H
#define GP_SERVER_CREDENTIALS_H

#include "common/wire/channel.h"
#include "common/net/token_file.h"

struct gp_tls;
struct gp_server_settings;

struct gp_server_credentials {
	struct gp_tls *tls;           /* NULL: connections are in the clear */
	struct gp_token_file *tokens; /* NULL: none is asked for */
};

/* GP_USAGE when the options contradict each other, or would open the server to more than loopback without protection
 * (and without --insecure). */
enum gp_status gp_server_credentials_check(const struct gp_server_settings *set, const char *host, struct gp_err *err);
/* Reads the files, and warns of keys and tokens that others on the machine may read. On failure *c is untouched; on success
 * what it held is freed. */
enum gp_status gp_server_credentials_load(struct gp_server_credentials *c, const struct gp_server_settings *set,
					  struct gp_err *err);
void gp_server_credentials_deinit(struct gp_server_credentials *c);

#define GP_SERVER_WHO_BYTES 240

/*
 * Whom a client has proved to be. `who` is its name in everything that belongs to a name: "cert:" and the identity of
 * its certificate (common/net/cert_identity.h), "token:" and the name of its token, both with a comma between, or ""
 * when nothing was asked for. There is no blank in it, and no comma but that one, so that no certificate and no token can be
 * given a name that is another client's.
 */
struct gp_server_proof {
	char who[GP_SERVER_WHO_BYTES];
	char token_name[GP_CLIENT_NAME_BYTES]; /* "": no token was asked for */
	uint8_t token_sum[GP_TOKEN_SUM_BYTES];
};

/* Makes `who` of a certificate's identity and a token's name, "" where there is none. */
void gp_server_write_who(const char *identity, const char *token_name, char who[GP_SERVER_WHO_BYTES]);
/* Checks a client's HELLO: GP_DENIED when its token is missing or wrong. */
enum gp_status gp_server_admit(const struct gp_server_credentials *c, const struct gp_channel *ch, struct gp_span token,
			       struct gp_server_proof *out, struct gp_err *err);
/* The token that it was admitted by is not in the file any more, or belongs to another name now. */
bool gp_server_revoked(const struct gp_server_credentials *c, const struct gp_server_proof *proof);

#endif

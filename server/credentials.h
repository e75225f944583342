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
/* Reads the files. On failure *c is untouched; on success what it held is freed. */
enum gp_status gp_server_credentials_load(struct gp_server_credentials *c, const struct gp_server_settings *set,
					  struct gp_err *err);
void gp_server_credentials_deinit(struct gp_server_credentials *c);

#define GP_SERVER_WHO_BYTES 160

/* Checks a client's HELLO: GP_DENIED when its token is missing or wrong. Otherwise `who` says, for logs, who the
 * client has proved to be; "" when nothing is asked for. */
enum gp_status gp_server_admit(const struct gp_server_credentials *c, const struct gp_channel *ch, struct gp_span token,
			       char who[GP_SERVER_WHO_BYTES], struct gp_err *err);

#endif

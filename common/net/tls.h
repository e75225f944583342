/* SPDX-License-Identifier: Apache-2.0
 *
 * Who we are and whom we believe: certificates, keys and CAs from files, held
 * as one side's TLS settings. TLS 1.3 only, no session tickets (each link
 * proves itself anew), no renegotiation. Connections made with settings keep
 * what they need: settings may be replaced and freed while links live, which
 * is how files are read again. What moves the bytes is conn_tls.h.
 *
 * Threads: any one at a time. Test: tests/unit/test_tls.c
 */
#ifndef GP_TLS_H
#define GP_TLS_H

#include "common/base/status.h"

struct gp_tls;
struct ssl_st;

struct gp_tls_files {     /* PEM; NULL: none */
	const char *cert; /* with the intermediate certificates behind it */
	const char *key;
	const char *ca; /* who may have signed the peer's certificate */
};

/* cert and key are needed. With `ca`, clients must have a certificate from it. GP_INVALID names the file and why. */
enum gp_status gp_tls_server_new(const struct gp_tls_files *files, struct gp_tls **out, struct gp_err *err);
/* Without `ca` the system's CAs count. */
enum gp_status gp_tls_client_new(const struct gp_tls_files *files, struct gp_tls **out, struct gp_err *err);
void gp_tls_free(struct gp_tls *tls);

/* Keys are changed after so many records of a direction (RFC 8446, 5.5); for tests. */
void gp_tls_set_rekey(struct gp_tls *tls, uint64_t records);

/* For conn_tls.c. */
struct ssl_st *gp_tls_session(const struct gp_tls *tls); /* NULL when memory is out */
bool gp_tls_is_server(const struct gp_tls *tls);
uint64_t gp_tls_rekey(const struct gp_tls *tls);

#endif

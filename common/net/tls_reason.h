/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a TLS link failed, in words for people: which certificate, what is wrong
 * with it, what the peer's alert means, who does not speak TLS. Private to
 * conn_tls_impl.h and tls_reason.c.
 *
 * Threads: the loop's thread. Test: tests/unit/test_conn_tls.c, tests/e2e/tls.sh
 */
#ifndef GP_TLS_REASON_H
#define GP_TLS_REASON_H

#include "common/base/status.h"

struct ssl_st;
struct x509_store_ctx_st;
struct X509_name_st;

#define GP_TLS_FIRST_BYTES 8

/* Kept by each connection; the session's app data points here. */
struct gp_tls_failure {
	bool server; /* this end is */
	char peer[64];
	char host[256];                    /* client: the name asked for */
	int verify_error;                  /* X509_V_*: of the peer's chain, 0 none */
	char subject[64];                  /* of the peer's own certificate, when its chain was refused */
	char issuer[64]; /* of the certificate above it that is to blame; "": none, it is the peer's own */
	uint8_t first[GP_TLS_FIRST_BYTES]; /* what the peer began with */
	size_t first_len;
};

/* For SSL_set_verify: remembers which certificate was refused and why. */
int gp_tls_note_verify(int ok, struct x509_store_ctx_st *store);
/* Fills err from OpenSSL's error queue (of a call that just failed) and what was noted. */
enum gp_status gp_tls_reason(const struct gp_tls_failure *f, struct gp_err *err);
/* The peer began with our protocol in the clear. */
bool gp_tls_peer_is_plain(const struct gp_tls_failure *f);
/* For people to read: the common name or, without one, the whole name, cut off and printable ASCII. Two parties may have the
 * same: cert_identity.h tells them apart. */
void gp_tls_subject(const struct X509_name_st *name, char *out, size_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection that speaks TLS 1.3 over another connection (TCP, or the pair
 * in memory). PROTOCOL.md section 1: the handshake comes first, all else is
 * inside. It begins with the first read_start or write; writes wait until it is
 * through. No deadline here: the channel's for the preface holds for both.
 *
 * Copies: what is read is decrypted from the inner connection's buffer; what is
 * written is encrypted from the writer's buffers into one of a few blocks of
 * ciphertext, and is through when its last block is. After the handshake
 * nothing is allocated but by OpenSSL.
 *
 * Ending: shutdown sends close_notify, and the peer's is its orderly end; an end
 * without one is an error (somebody may have cut the stream). After a failure
 * of ours, an alert tells the peer why: close then stays for up to 1 s until
 * the peer has hung up, so that a reset does not overtake the alert.
 *
 * Accounting: bytes_written, bytes_read and a write's `bytes` count ciphertext.
 * Threads: loop thread. Test: tests/unit/test_conn_tls.c; fuzz: fuzz_tls.c
 */
#ifndef GP_CONN_TLS_H
#define GP_CONN_TLS_H

#include "common/net/conn.h"
#include "common/net/tls.h"

/* Takes `inner` (also on failure), which nobody has read from yet. `host` (a client's settings): whose name the server's
 * certificate must have, a name or an address. A server with a CA refuses clients without a certificate. The settings may
 * go afterwards. */
enum gp_status gp_tls_wrap(uv_loop_t *loop, struct gp_conn *inner, const struct gp_tls *tls, const char *host,
			   struct gp_conn **out, struct gp_err *err);

#endif

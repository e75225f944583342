/* SPDX-License-Identifier: Apache-2.0
 *
 * Certificates of an HTTP server (http_server.h), as text in memory, checked by the library that will use them.
 *
 * Threads: any (pure functions). Test: tests/unit/test_http_server.c
 */
#ifndef GP_HTTP_PEM_H
#define GP_HTTP_PEM_H

#include "common/base/status.h"

/* PEM; NULL where there is none. */
struct gp_http_pem {
	char *cert, *key, *ca;
};

/* Leaves *out as it is where there is no certificate (cert_path NULL). GP_INVALID: a file cannot be read or used; `name` is how
 * messages call the server. */
enum gp_status gp_http_pem_read(const char *name, const char *cert_path, const char *key_path, const char *ca_path,
				struct gp_http_pem *out, struct gp_err *err);
void gp_http_pem_free(struct gp_http_pem *p);

#endif

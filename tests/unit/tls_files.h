/* SPDX-License-Identifier: Apache-2.0
 *
 * Certificates for tests: what deploy/gen-test-certs.sh makes, in a folder that
 * goes away. Tests run from the source tree.
 */
#ifndef GP_TEST_TLS_FILES_H
#define GP_TEST_TLS_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/net/tls.h"

static char tls_dir[] = "/tmp/gp-tls-XXXXXX";

static inline int tls_files_make(void **state)
{
	char command[128];
	(void)state;
	if (!mkdtemp(tls_dir))
		return -1;
	snprintf(command, sizeof command, "deploy/gen-test-certs.sh %s edge.example", tls_dir);
	return system(command);
}

static inline int tls_files_remove(void **state)
{
	char command[64];
	(void)state;
	snprintf(command, sizeof command, "rm -rf %s", tls_dir);
	return system(command);
}

/* The path of a file, in one of a few buffers in turn; NULL stays NULL. */
static inline const char *tls_file(const char *stem, const char *end)
{
	static char path[8][64];
	static int at;
	if (!stem)
		return NULL;
	at = (at + 1) % 8;
	snprintf(path[at], sizeof path[at], "%s/%s%s", tls_dir, stem, end);
	return path[at];
}

static inline struct gp_tls_files tls_files(const char *who, const char *ca)
{
	return (struct gp_tls_files){tls_file(who, ".pem"), tls_file(who, ".key"), tls_file(ca, ".pem")};
}

/* Settings of the certificate `who`, believing `ca`; NULL: none. */
static inline struct gp_tls *tls_server(const char *who, const char *ca)
{
	struct gp_tls *tls = NULL;
	struct gp_err err;
	const struct gp_tls_files files = tls_files(who, ca);
	if (gp_tls_server_new(&files, &tls, &err) != GP_OK)
		fail_msg("%s", err.text);
	return tls;
}

static inline struct gp_tls *tls_client(const char *who, const char *ca)
{
	struct gp_tls *tls = NULL;
	struct gp_err err;
	const struct gp_tls_files files = tls_files(who, ca);
	if (gp_tls_client_new(&files, &tls, &err) != GP_OK)
		fail_msg("%s", err.text);
	return tls;
}

#endif

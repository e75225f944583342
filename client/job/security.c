/* SPDX-License-Identifier: Apache-2.0
 *
 * A client's TLS and token. See security.h. Test: tests/unit/test_security.c
 */
#include "client/job/security.h"

#include <string.h>

#include <openssl/crypto.h>

#include "common/base/file_mode.h"
#include "common/base/log.h"
#include "common/net/conn_tls.h"

static enum gp_status check_flags(const struct gp_client_security_files *f, struct gp_err *err)
{
	const bool tls = f->tls || f->ca;
	if (!f->cert != !f->key)
		GP_FAIL(err, GP_USAGE, "--tls-cert and --tls-key belong together");
	if (f->cert && !tls)
		GP_FAIL(err, GP_USAGE, "--tls-cert needs --tls-ca FILE, or --tls to trust the system's CAs");
	if (f->name && !tls)
		GP_FAIL(err, GP_USAGE, "--tls-name needs --tls-ca FILE, or --tls to trust the system's CAs");
	return GP_OK;
}

static void warn_exposed(const char *option, const char *path)
{
	unsigned mode;
	if (path && gp_file_is_exposed(path, &mode))
		gp_log(main, GP_LOG_WARN, GP_FILE_EXPOSED_TEXT, option, path, mode, path);
}

enum gp_status gp_client_security_load(struct gp_client_security *s, const struct gp_client_security_files *f,
				       struct gp_err *err)
{
	const struct gp_tls_files files = {.cert = f->cert, .key = f->key, .ca = f->ca};
	*s = (struct gp_client_security){.name = f->name, .own_ca = f->ca != NULL, .follow = (enum gp_follow)f->follow};
	GP_TRY(check_flags(f, err));
	if (f->tls || f->ca)
		GP_TRY(gp_tls_client_new(&files, &s->tls, err));
	if (f->token && gp_token_file_own(f->token, s->token, err) != GP_OK) {
		gp_client_security_deinit(s);
		return gp_err_prefix(err, "--token-file");
	}
	warn_exposed("--tls-key", f->key);
	warn_exposed("--token-file", f->token);
	return GP_OK;
}

void gp_client_security_deinit(struct gp_client_security *s)
{
	gp_tls_free(s->tls);
	OPENSSL_cleanse(s->token, sizeof s->token);
	s->tls = NULL;
}

bool gp_client_is_near(const struct gp_conn *conn)
{
	char host[256];
	uint16_t port;
	struct gp_err ignored;
	return gp_addr_parse(conn->peer, host, &port, &ignored) == GP_OK && gp_addr_is_loopback(host);
}

enum gp_status gp_client_secure(const struct gp_client_security *s, uv_loop_t *loop, const char *host,
				struct gp_conn **conn, struct gp_err *err)
{
	struct gp_conn *c = *conn;
	if (s->tls)
		return gp_tls_wrap(loop, c, s->tls, s->name ? s->name : host, conn, err);
	if (!s->token[0] || gp_client_is_near(c))
		return GP_OK;
	gp_err_set(err, GP_USAGE, 0, __FILE__, __LINE__,
		   "--token-file: the token would cross the network to %s in the clear; give --tls-ca FILE or --tls",
		   c->peer);
	c->ops->close(c, NULL, NULL);
	return GP_USAGE;
}

bool gp_client_may_follow(const struct gp_client_security *s, const char *by, const char *host)
{
	if (gp_addr_is_loopback(host) && !gp_addr_is_loopback(by))
		return false;
	return s->follow == GP_FOLLOW_ANY || (s->follow == GP_FOLLOW_CA && s->tls && s->own_ca);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may use the server. See credentials.h. Test: tests/unit/test_security.c
 */
#include "server/credentials.h"

#include "common/net/tls.h"
#include "server/server.h"

static enum gp_status check_pairs(const struct gp_server_settings *set, struct gp_err *err)
{
	if (!set->tls_cert != !set->tls_key)
		GP_FAIL(err, GP_USAGE, "--tls-cert and --tls-key belong together");
	if (set->tls_client_ca && !set->tls_cert)
		GP_FAIL(err, GP_USAGE, "--tls-client-ca needs --tls-cert and --tls-key");
	return GP_OK;
}

enum gp_status gp_server_credentials_check(const struct gp_server_settings *set, const char *host, struct gp_err *err)
{
	GP_TRY(check_pairs(set, err));
	if (gp_addr_is_loopback(host))
		return GP_OK;
	if (set->tokens && !set->tls_cert)
		GP_FAIL(err, GP_USAGE,
			"--listen %s: tokens would cross the network in the clear, and no client sends them so; give "
			"--tls-cert and --tls-key",
			set->listen);
	if (set->insecure)
		return GP_OK;
	if (!set->tls_cert)
		GP_FAIL(err, GP_USAGE,
			"--listen %s: anyone who reaches this address could use the server; give --tls-cert, --tls-key "
			"and --tls-client-ca or --tokens, or say --insecure on a network you trust",
			set->listen);
	if (!set->tls_client_ca && !set->tokens)
		GP_FAIL(err, GP_USAGE,
			"--listen %s: TLS hides what crosses, but anyone could use the server; give --tls-client-ca or "
			"--tokens, or say --insecure on a network you trust",
			set->listen);
	return GP_OK;
}

static enum gp_status load_tls(const struct gp_server_settings *set, struct gp_tls **out, struct gp_err *err)
{
	const struct gp_tls_files files = {.cert = set->tls_cert, .key = set->tls_key, .ca = set->tls_client_ca};
	return set->tls_cert ? gp_tls_server_new(&files, out, err) : GP_OK;
}

enum gp_status gp_server_credentials_load(struct gp_server_credentials *c, const struct gp_server_settings *set,
					  struct gp_err *err)
{
	struct gp_server_credentials fresh = {0};
	enum gp_status status = load_tls(set, &fresh.tls, err);
	if (status == GP_OK && set->tokens) {
		status = gp_token_file_load(set->tokens, &fresh.tokens, err);
		if (status != GP_OK)
			gp_err_prefix(err, "--tokens");
	}
	if (status != GP_OK) {
		gp_server_credentials_deinit(&fresh);
		return status;
	}
	gp_server_credentials_deinit(c);
	*c = fresh;
	return GP_OK;
}

void gp_server_credentials_deinit(struct gp_server_credentials *c)
{
	gp_tls_free(c->tls);
	gp_token_file_free(c->tokens);
	*c = (struct gp_server_credentials){0};
}

enum gp_status gp_server_admit(const struct gp_server_credentials *c, const struct gp_channel *ch, struct gp_span token,
			       char who[GP_SERVER_WHO_BYTES], struct gp_err *err)
{
	char name[GP_CLIENT_NAME_BYTES] = "";
	const char *identity = gp_channel_identity(ch);
	if (c->tokens && token.len == 0)
		GP_FAIL(err, GP_DENIED, "this server asks for a token, and none was sent (--token-file)");
	if (c->tokens && !gp_token_file_find(c->tokens, token, name))
		GP_FAIL(err, GP_DENIED, "the token is not one of this server's");
	if (identity[0] && name[0])
		snprintf(who, GP_SERVER_WHO_BYTES, "%s by certificate, %s by token", identity, name);
	else if (identity[0] || name[0])
		snprintf(who, GP_SERVER_WHO_BYTES, "%s by %s", identity[0] ? identity : name,
			 identity[0] ? "certificate" : "token");
	else
		who[0] = '\0';
	return GP_OK;
}

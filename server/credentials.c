/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may use the server. See credentials.h. Test: tests/unit/test_security.c
 */
#include "server/credentials.h"

#include "common/base/file_mode.h"
#include "common/base/log.h"
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

static void warn_exposed(const char *option, const char *path)
{
	unsigned mode;
	if (path && gp_file_is_exposed(path, &mode))
		gp_log(main, GP_LOG_WARN, GP_FILE_EXPOSED_TEXT, option, path, mode, path);
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
	warn_exposed("--tls-key", set->tls_key);
	warn_exposed("--tokens", set->tokens);
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

/* Token names have no blanks and identities neither blanks nor commas. */
void gp_server_write_who(const char *identity, const char *token_name, char who[GP_SERVER_WHO_BYTES])
{
	const bool both = identity[0] && token_name[0];
	snprintf(who, GP_SERVER_WHO_BYTES, "%s%s%s%s%s", identity[0] ? "cert:" : "", identity, both ? "," : "",
		 token_name[0] ? "token:" : "", token_name);
}

enum gp_status gp_server_admit(const struct gp_server_credentials *c, const struct gp_channel *ch, struct gp_span token,
			       struct gp_server_proof *out, struct gp_err *err)
{
	struct gp_server_proof proof = {0};
	if (c->tokens && token.len == 0)
		GP_FAIL(err, GP_DENIED, "this server asks for a token, and none was sent (--token-file)");
	if (c->tokens && !gp_token_file_find(c->tokens, token, proof.token_name))
		GP_FAIL(err, GP_DENIED, "the token is not one of this server's");
	if (c->tokens)
		gp_token_file_sum(token, proof.token_sum);
	gp_server_write_who(gp_channel_identity(ch), proof.token_name, proof.who);
	*out = proof;
	return GP_OK;
}

bool gp_server_revoked(const struct gp_server_credentials *c, const struct gp_server_proof *proof)
{
	return c->tokens && proof->token_name[0] &&
	       !gp_token_file_holds(c->tokens, proof->token_sum, proof->token_name);
}

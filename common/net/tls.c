/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS settings from files. See tls.h. Test: tests/unit/test_tls.c
 */
#include "common/net/tls.h"

#include <errno.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "common/base/mem.h"

/* 2^22 records of 16 KiB are 64 GiB; AES-GCM is good for 2^24.5 of them (RFC 8446, 5.5). */
#define REKEY_RECORDS (UINT64_C(1) << 22)

struct gp_tls {
	SSL_CTX *ctx;
	bool server;
	uint64_t rekey;
};

/* Never asks at the terminal: a daemon has none. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
	(void)buf;
	(void)size;
	(void)writing;
	*(bool *)arg = true;
	return -1;
}

static enum gp_status check_readable(const char *what, const char *path, struct gp_err *err)
{
	FILE *f = fopen(path, "r");
	if (!f)
		GP_FAIL(err, GP_INVALID, "%s %s: %s", what, path, strerror(errno));
	fclose(f);
	return GP_OK;
}

static enum gp_status fail_file(const char *what, const char *path, struct gp_err *err)
{
	const unsigned long e = ERR_peek_error();
	const char *reason = ERR_reason_error_string(e);
	if ((ERR_GET_LIB(e) == ERR_LIB_PEM && ERR_GET_REASON(e) == PEM_R_NO_START_LINE) ||
	    ERR_GET_REASON(e) == ERR_R_UNSUPPORTED || !reason)
		reason = "there is none in it (PEM is expected)";
	ERR_clear_error();
	GP_FAIL(err, GP_INVALID, "%s %s: %s", what, path, reason);
}

static enum gp_status load_certificate(SSL_CTX *ctx, const char *path, struct gp_err *err)
{
	GP_TRY(check_readable("certificate", path, err));
	return SSL_CTX_use_certificate_chain_file(ctx, path) == 1 ? GP_OK : fail_file("certificate", path, err);
}

static enum gp_status load_key(SSL_CTX *ctx, const char *path, const char *cert, struct gp_err *err)
{
	bool locked = false;
	GP_TRY(check_readable("key", path, err));
	SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
	SSL_CTX_set_default_passwd_cb_userdata(ctx, &locked);
	const bool ok = SSL_CTX_use_PrivateKey_file(ctx, path, SSL_FILETYPE_PEM) == 1;
	SSL_CTX_set_default_passwd_cb_userdata(ctx, NULL);
	SSL_CTX_set_default_passwd_cb(ctx, NULL);
	if (locked) {
		ERR_clear_error();
		GP_FAIL(err, GP_INVALID, "key %s: it is locked by a passphrase, which nobody is there to type", path);
	}
	if (!ok && ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH) {
		ERR_clear_error();
		GP_FAIL(err, GP_INVALID, "key %s: it does not belong to certificate %s", path, cert);
	}
	return ok ? GP_OK : fail_file("key", path, err);
}

static enum gp_status load_identity(SSL_CTX *ctx, const struct gp_tls_files *f, struct gp_err *err)
{
	if (!f->cert)
		return GP_OK;
	GP_TRY(load_certificate(ctx, f->cert, err));
	return load_key(ctx, f->key, f->cert, err);
}

static enum gp_status load_ca(SSL_CTX *ctx, const char *path, bool server, struct gp_err *err)
{
	GP_TRY(check_readable("CA", path, err));
	if (SSL_CTX_load_verify_file(ctx, path) != 1)
		return fail_file("CA", path, err);
	if (!server)
		return GP_OK;
	STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(path); /* tells clients which certificate to take */
	if (!names)
		return fail_file("CA", path, err);
	SSL_CTX_set_client_CA_list(ctx, names);
	return GP_OK;
}

static enum gp_status context_new(bool server, struct gp_tls **out, struct gp_err *err)
{
	struct gp_tls *tls;
	GP_TRY(gp_alloc_array((void **)&tls, 1, sizeof *tls, err));
	tls->server = server;
	tls->rekey = REKEY_RECORDS;
	tls->ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
	if (!tls->ctx) {
		gp_free(tls);
		ERR_clear_error();
		GP_FAIL(err, GP_NOMEM, "no TLS settings: OpenSSL refuses");
	}
	SSL_CTX_set_min_proto_version(tls->ctx, TLS1_3_VERSION);
	SSL_CTX_set_mode(tls->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_session_cache_mode(tls->ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(tls->ctx, 0);
	*out = tls;
	return GP_OK;
}

enum gp_status gp_tls_server_new(const struct gp_tls_files *files, struct gp_tls **out, struct gp_err *err)
{
	struct gp_tls *tls;
	GP_TRY(context_new(true, &tls, err));
	enum gp_status status = load_identity(tls->ctx, files, err);
	if (status == GP_OK && files->ca)
		status = load_ca(tls->ctx, files->ca, true, err);
	if (status != GP_OK) {
		gp_tls_free(tls);
		return status;
	}
	if (files->ca)
		SSL_CTX_set_verify(tls->ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	*out = tls;
	return GP_OK;
}

enum gp_status gp_tls_client_new(const struct gp_tls_files *files, struct gp_tls **out, struct gp_err *err)
{
	struct gp_tls *tls;
	GP_TRY(context_new(false, &tls, err));
	enum gp_status status = load_identity(tls->ctx, files, err);
	if (status == GP_OK && files->ca)
		status = load_ca(tls->ctx, files->ca, false, err);
	if (status != GP_OK) {
		gp_tls_free(tls);
		return status;
	}
	if (!files->ca)
		SSL_CTX_set_default_verify_paths(tls->ctx);
	SSL_CTX_set_verify(tls->ctx, SSL_VERIFY_PEER, NULL);
	*out = tls;
	return GP_OK;
}

void gp_tls_free(struct gp_tls *tls)
{
	if (!tls)
		return;
	SSL_CTX_free(tls->ctx);
	gp_free(tls);
}

void gp_tls_set_rekey(struct gp_tls *tls, uint64_t records)
{
	tls->rekey = records;
}

struct ssl_st *gp_tls_session(const struct gp_tls *tls)
{
	return SSL_new(tls->ctx);
}

bool gp_tls_is_server(const struct gp_tls *tls)
{
	return tls->server;
}

uint64_t gp_tls_rekey(const struct gp_tls *tls)
{
	return tls->rekey;
}

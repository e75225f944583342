/* SPDX-License-Identifier: Apache-2.0
 *
 * From OpenSSL's codes to a line that says what to do. See tls_reason.h.
 */
#include "common/net/tls_reason.h"

#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "common/net/preface.h"

void gp_tls_subject(const X509_NAME *name, char *out, size_t size)
{
	out[0] = '\0';
	if (!name)
		return;
	if (X509_NAME_get_text_by_NID((X509_NAME *)name, NID_commonName, out, (int)size) <= 0)
		X509_NAME_oneline(name, out, (int)size);
	for (char *p = out; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
}

int gp_tls_note_verify(int ok, X509_STORE_CTX *store)
{
	const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct gp_tls_failure *f = SSL_get_app_data(ssl);
	const X509 *cert = X509_STORE_CTX_get0_cert(store), *at = X509_STORE_CTX_get_current_cert(store);
	if (ok || f->verify_error)
		return ok;
	f->verify_error = X509_STORE_CTX_get_error(store);
	gp_tls_subject(cert ? X509_get_subject_name(cert) : NULL, f->subject, sizeof f->subject);
	if (at && at != cert) /* what is wrong may be further up the chain */
		gp_tls_subject(X509_get_subject_name(at), f->issuer, sizeof f->issuer);
	return 0;
}

static const char *verify_text(int error)
{
	switch (error) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
		return "it has expired";
	case X509_V_ERR_CERT_NOT_YET_VALID:
		return "it is not valid yet (is the clock right?)";
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
	case X509_V_ERR_CERT_SIGNATURE_FAILURE:
		return "it comes from no CA that is trusted here";
	case X509_V_ERR_INVALID_PURPOSE:
		return "it was not issued for this end of a link";
	default:
		return X509_verify_cert_error_string(error);
	}
}

static enum gp_status fail_verify(const struct gp_tls_failure *f, struct gp_err *err)
{
	const int e = f->verify_error;
	const char *const side = f->server ? "client" : "server";
	if (e == X509_V_ERR_HOSTNAME_MISMATCH || e == X509_V_ERR_IP_ADDRESS_MISMATCH)
		GP_FAIL(err, GP_DENIED,
			"the certificate of server %s (\"%s\") is refused: it is not for '%.100s'; --tls-name names "
			"another",
			f->peer, f->subject, f->host);
	const char *const hint = !f->server && strstr(verify_text(e), "trusted here") ? " (--tls-ca)" : "";
	if (f->issuer[0])
		GP_FAIL(err, GP_DENIED, "the certificate of %s %s (\"%s\") is refused because of its CA (\"%s\"): %s%s",
			side, f->peer, f->subject, f->issuer,
			verify_text(e), hint);
	GP_FAIL(err, GP_DENIED, "the certificate of %s %s (\"%s\") is refused: %s%s", side, f->peer, f->subject,
		verify_text(e), hint);
}

/* What the peer's alert says about us (RFC 8446, section 6.2). */
static const char *alert_text(int alert)
{
	switch (alert) {
	case SSL_AD_CERTIFICATE_REQUIRED:
		return "it asks for a certificate, and none was given (--tls-cert and --tls-key)";
	case SSL_AD_CERTIFICATE_EXPIRED:
		return "it refuses our certificate: expired, or not valid yet";
	case SSL_AD_UNKNOWN_CA:
		return "it refuses our certificate: it does not trust the CA that issued it";
	case SSL_AD_CERTIFICATE_REVOKED:
		return "it refuses our certificate: revoked";
	case SSL_AD_BAD_CERTIFICATE:
	case SSL_AD_UNSUPPORTED_CERTIFICATE:
	case SSL_AD_CERTIFICATE_UNKNOWN:
	case SSL_AD_ACCESS_DENIED:
		return "it refuses our certificate";
	case SSL_AD_PROTOCOL_VERSION:
		return "it has no TLS 1.3";
	case SSL_AD_HANDSHAKE_FAILURE:
		return "it has no cipher in common with us";
	default:
		return NULL;
	}
}

static enum gp_status fail_alert(const struct gp_tls_failure *f, int alert, struct gp_err *err)
{
	const char *const side = f->server ? "client" : "server";
	const char *text = alert_text(alert);
	/* A damaged byte can cause these two as well, so another connection may succeed. */
	const bool transient = alert == SSL_AD_PROTOCOL_VERSION || alert == SSL_AD_HANDSHAKE_FAILURE;
	const bool handshake = alert != SSL_AD_BAD_RECORD_MAC && alert != SSL_AD_UNEXPECTED_MESSAGE;
	if (text)
		return gp_err_set(err, transient ? GP_PEER : GP_DENIED, 0, __FILE__, __LINE__,
				  "%s %s ended the TLS handshake: %s", side, f->peer, text);
	GP_FAIL(err, GP_PEER, "%s %s ended the TLS %s: %s", side, f->peer, handshake ? "handshake" : "connection",
		SSL_alert_desc_string_long(alert));
}

bool gp_tls_peer_is_plain(const struct gp_tls_failure *f)
{
	uint8_t preface[GP_PREFACE_BYTES];
	gp_preface_write(preface);
	return f->first_len >= 3 && memcmp(f->first, preface, f->first_len) == 0;
}

/* A record of TLS's own, as the first one of a connection has to be, or what damage has left of it. */
static bool began_as_tls(const struct gp_tls_failure *f)
{
	static const uint8_t handshake[] = {SSL3_RT_HANDSHAKE, 3, 3}, alert[] = {SSL3_RT_ALERT, 3, 3};
	return f->first_len >= sizeof handshake &&
	       (gp_nearly_same(f->first, handshake, sizeof handshake) || gp_nearly_same(f->first, alert, sizeof alert));
}

static enum gp_status fail_not_tls(const struct gp_tls_failure *f, struct gp_err *err)
{
	if (began_as_tls(f))
		GP_FAIL(err, GP_DAMAGED, "%s %s broke TLS: damaged bytes", f->server ? "client" : "server", f->peer);
	if (!gp_tls_peer_is_plain(f))
		GP_FAIL(err, GP_PROTO, "%s %s does not speak TLS", f->server ? "client" : "server", f->peer);
	if (f->server)
		GP_FAIL(err, GP_DENIED, "client %s speaks without TLS, which this server asks for", f->peer);
	GP_FAIL(err, GP_DENIED, "server %s speaks without TLS: leave --tls out, or start it with --tls-cert", f->peer);
}

enum gp_status gp_tls_reason(const struct gp_tls_failure *f, struct gp_err *err)
{
	const unsigned long e = ERR_peek_error();
	const int reason = ERR_GET_LIB(e) == ERR_LIB_SSL ? ERR_GET_REASON(e) : 0;
	const char *const side = f->server ? "client" : "server";
	const char *text = ERR_reason_error_string(e);
	ERR_clear_error();
	if (f->verify_error)
		return fail_verify(f, err);
	if (reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256)
		return fail_alert(f, reason - SSL_AD_REASON_OFFSET, err);
	switch (reason) {
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_HTTP_REQUEST:
	case SSL_R_HTTPS_PROXY_REQUEST:
		return fail_not_tls(f, err);
	case SSL_R_UNSUPPORTED_PROTOCOL:
	case SSL_R_UNKNOWN_PROTOCOL:
		GP_FAIL(err, GP_PEER, "%s %s has no TLS 1.3", side, f->peer);
	case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
		GP_FAIL(err, GP_DENIED, "client %s has no certificate, and this server asks for one", f->peer);
	default:
		GP_FAIL(err, GP_DAMAGED, "%s %s broke TLS: %s", side, f->peer, text ? text : "unknown error");
	}
}

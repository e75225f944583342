/* SPDX-License-Identifier: Apache-2.0
 *
 * See cert_identity.h; the names are those of RFC 5280, section 4.2.1.6.
 * Test: tests/unit/test_cert_identity.c
 */
#include "common/net/cert_identity.h"

#include <openssl/err.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>

#define HEX_BYTES (2 * SHA256_DIGEST_LENGTH + 1)

static void sha256_hex(const unsigned char *data, size_t len, char hex[HEX_BYTES])
{
	unsigned char sum[SHA256_DIGEST_LENGTH];
	SHA256(data, len, sum);
	for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
		snprintf(hex + 2 * i, 3, "%02x", sum[i]);
}

static bool stands_for_itself(unsigned char c)
{
	return c > ' ' && c <= '~' && c != '\\' && c != ',';
}

/* False when it does not fit. */
static bool escape(const unsigned char *from, size_t len, char *out, size_t size)
{
	size_t at = 0;
	for (size_t i = 0; i < len; i++) {
		const bool plain = stands_for_itself(from[i]);
		if (size - at <= (plain ? 1u : 3u))
			return false;
		if (plain)
			out[at++] = (char)from[i];
		else
			at += (size_t)snprintf(out + at, size - at, "\\%02x", from[i]);
	}
	out[at] = '\0';
	return true;
}

static void write_name(const char *kind, const ASN1_IA5STRING *name, char out[GP_CERT_IDENTITY_BYTES])
{
	const unsigned char *bytes = ASN1_STRING_get0_data(name);
	const size_t len = (size_t)ASN1_STRING_length(name);
	const int prefix = snprintf(out, GP_CERT_IDENTITY_BYTES, "%s:", kind);
	char hex[HEX_BYTES];
	if (escape(bytes, len, out + prefix, (size_t)(GP_CERT_IDENTITY_BYTES - prefix)))
		return;
	sha256_hex(bytes, len, hex);
	snprintf(out, GP_CERT_IDENTITY_BYTES, "%s-sha256:%s", kind, hex);
}

/* An empty name names nobody. */
static const ASN1_IA5STRING *first_of_type(const GENERAL_NAMES *names, int type)
{
	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *n = sk_GENERAL_NAME_value(names, i);
		if (n->type == type && ASN1_STRING_length(n->d.ia5) > 0)
			return n->d.ia5;
	}
	return NULL;
}

/* False when there is no name of the kinds that count. */
static bool take_name(const GENERAL_NAMES *names, char out[GP_CERT_IDENTITY_BYTES])
{
	static const struct {
		int type;
		const char *kind;
	} kinds[] = {{GEN_URI, "uri"}, {GEN_EMAIL, "email"}, {GEN_DNS, "dns"}};
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		const ASN1_IA5STRING *name = first_of_type(names, kinds[i].type);
		if (name) {
			write_name(kinds[i].kind, name, out);
			return true;
		}
	}
	return false;
}

/* The sum is over the key with its algorithm (SubjectPublicKeyInfo), as `openssl pkey -pubin -outform DER | sha256sum` has it. */
static enum gp_status take_key(const X509 *cert, char out[GP_CERT_IDENTITY_BYTES], struct gp_err *err)
{
	unsigned char *der = NULL;
	char hex[HEX_BYTES];
	const int len = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &der);
	if (len <= 0) {
		ERR_clear_error();
		GP_FAIL(err, GP_DENIED, "the public key of a certificate cannot be read");
	}
	sha256_hex(der, (size_t)len, hex);
	OPENSSL_free(der);
	snprintf(out, GP_CERT_IDENTITY_BYTES, "key:%s", hex);
	return GP_OK;
}

enum gp_status gp_cert_identity(const X509 *cert, char out[GP_CERT_IDENTITY_BYTES], struct gp_err *err)
{
	int found = -1; /* where there is no such extension */
	GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, &found, NULL);
	if (!names && found != -1) {
		ERR_clear_error();
		GP_FAIL(err, GP_DENIED, "the subjectAltName of a certificate cannot be read, or there are two");
	}
	const bool named = names && take_name(names, out);
	GENERAL_NAMES_free(names);
	return named ? GP_OK : take_key(cert, out, err);
}

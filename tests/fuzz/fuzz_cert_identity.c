/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: whatever certificate OpenSSL takes, its identity is one word of
 * printable ASCII without a comma, which begins with the kind of name that it is,
 * or an error says why there is none (common/net/cert_identity.h).
 *
 * Input: a certificate in DER.
 */
#include <string.h>

#include <openssl/err.h>
#include <openssl/x509.h>

#include "common/net/cert_identity.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool has_a_kind(const char *text)
{
	static const char *const kinds[] = {
		"uri:", "uri-sha256:", "email:", "email-sha256:", "dns:", "dns-sha256:", "key:"};
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (strncmp(text, kinds[i], strlen(kinds[i])) == 0 && text[strlen(kinds[i])])
			return true;
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[GP_CERT_IDENTITY_BYTES];
	struct gp_err err = {0};
	const uint8_t *at = data;
	X509 *cert = size <= 1 << 20 ? d2i_X509(NULL, &at, (long)size) : NULL;
	if (cert && gp_cert_identity(cert, text, &err) == GP_OK) {
		gp_require(strlen(text) < sizeof text && has_a_kind(text));
		for (const char *p = text; *p; p++)
			gp_require(*p > ' ' && *p <= '~' && *p != ',');
	} else if (cert) {
		gp_require(err.code == GP_DENIED && err.text[0]);
	}
	X509_free(cert);
	ERR_clear_error();
	return 0;
}

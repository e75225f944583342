/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom certificates name: no two that differ in a name or in a key are one, and
 * the subject does not matter.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include <openssl/sha.h>
#include <openssl/x509v3.h>

#include "common/net/cert_identity.h"

static EVP_PKEY *key, *other_key;

static int make_keys(void **state)
{
	(void)state;
	key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
	other_key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
	return key && other_key ? 0 : -1;
}

static int free_keys(void **state)
{
	(void)state;
	EVP_PKEY_free(key);
	EVP_PKEY_free(other_key);
	return 0;
}

/* The common name is UTF-8; NULL: the subject is empty. */
static X509 *certificate(const char *common_name, EVP_PKEY *of)
{
	X509 *cert = X509_new();
	assert_non_null(cert);
	if (common_name)
		assert_int_equal(X509_NAME_add_entry_by_NID(X509_get_subject_name(cert), NID_commonName, MBSTRING_UTF8,
							    (const unsigned char *)common_name, -1, -1, 0),
				 1);
	assert_int_equal(X509_set_pubkey(cert, of), 1);
	return cert;
}

struct name {
	int type;
	const char *bytes;
	int len;
};

static void add_names(X509 *cert, const struct name *name, int count)
{
	GENERAL_NAMES *names = GENERAL_NAMES_new();
	for (int i = 0; i < count; i++) {
		GENERAL_NAME *n = GENERAL_NAME_new();
		ASN1_IA5STRING *text = ASN1_IA5STRING_new();
		ASN1_STRING_set(text, name[i].bytes, name[i].len);
		GENERAL_NAME_set0_value(n, name[i].type, text);
		sk_GENERAL_NAME_push(names, n);
	}
	assert_int_equal(X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0, X509V3_ADD_APPEND), 1);
	GENERAL_NAMES_free(names);
}

/* Frees the certificate. Its text is in one of two buffers in turn. */
static const char *identity(X509 *cert)
{
	static char out[2][GP_CERT_IDENTITY_BYTES];
	static int at;
	struct gp_err err;
	at = !at;
	if (gp_cert_identity(cert, out[at], &err) != GP_OK)
		fail_msg("%s", err.text);
	X509_free(cert);
	return out[at];
}

static const char *identity_of_name(int type, const char *bytes, int len)
{
	const struct name name = {type, bytes, len};
	X509 *cert = certificate("edge-1", key);
	add_names(cert, &name, 1);
	return identity(cert);
}

static void without_a_name_the_key_decides_and_not_the_subject(void **state)
{
	(void)state;
	const char *joerg = identity(certificate("J\xc3\xb6rg", key));
	assert_memory_equal(joerg, "key:", 4);
	assert_string_equal(joerg, identity(certificate("J\xc3\xa4rg", key)));
	assert_string_not_equal(identity(certificate("J\xc3\xb6rg", key)),
				identity(certificate("J\xc3\xb6rg", other_key)));
	const char *unnamed = identity(certificate(NULL, key)); /* an empty subject is not nobody */
	assert_int_equal(strlen(unnamed), 4 + 64);
	assert_string_not_equal(unnamed, identity(certificate(NULL, other_key)));
}

static void the_key_is_that_of_the_page(void **state)
{
	(void)state;
	unsigned char *der = NULL, sum[SHA256_DIGEST_LENGTH];
	char want[4 + 2 * sizeof sum + 1] = "key:";
	const int len = i2d_PUBKEY(key, &der); /* what openssl pkey -pubout -outform DER writes */
	assert_true(len > 0);
	SHA256(der, (size_t)len, sum);
	OPENSSL_free(der);
	for (size_t i = 0; i < sizeof sum; i++)
		snprintf(want + 4 + 2 * i, 3, "%02x", sum[i]);
	assert_string_equal(identity(certificate("edge-1", key)), want);
}

static void uri_comes_before_email_before_dns(void **state)
{
	(void)state;
	static const struct name names[] = {{GEN_IPADD, "\x7f\0\0\1", 4},
					    {GEN_DNS, "edge.example", 12},
					    {GEN_EMAIL, "joerg@example.org", 17},
					    {GEN_URI, "", 0}, /* names nobody */
					    {GEN_URI, "urn:a", 5},
					    {GEN_URI, "urn:b", 5}};
	static const char *const want[] = {
		"key:",      "dns:edge.example", "email:joerg@example.org", "email:joerg@example.org",
		"uri:urn:a", "uri:urn:a"};
	for (int count = 1; count <= 6; count++) {
		X509 *cert = certificate("edge-1", key);
		add_names(cert, names, count);
		const char *got = identity(cert);
		if (strncmp(got, want[count - 1], strlen(want[count - 1])) != 0)
			fail_msg("%d names: '%s', not '%s'", count, got, want[count - 1]);
	}
}

static void names_are_escaped_without_loss(void **state)
{
	(void)state;
	assert_string_equal(identity_of_name(GEN_EMAIL, "J\xc3\xb6rg@x", 7), "email:J\\c3\\b6rg@x");
	assert_string_not_equal(identity_of_name(GEN_EMAIL, "J\xc3\xb6rg@x", 7),
				identity_of_name(GEN_EMAIL, "J\xc3\xa4rg@x", 7));
	assert_string_equal(identity_of_name(GEN_DNS, "a\0b", 3), "dns:a\\00b");
	assert_string_equal(identity_of_name(GEN_DNS, "a\\00b", 5), "dns:a\\5c00b");
	assert_string_equal(identity_of_name(GEN_URI, "urn:a,token:b c\n", 16), "uri:urn:a\\2ctoken:b\\20c\\0a");
	assert_string_not_equal(identity_of_name(GEN_URI, "edge.example", 12),
				identity_of_name(GEN_DNS, "edge.example", 12));
}

static void long_names_are_not_cut(void **state)
{
	(void)state;
	char text[400];
	memset(text, 'x', sizeof text);
	const int most = GP_CERT_IDENTITY_BYTES - 1 - 4;
	const char *whole = identity_of_name(GEN_URI, text, most);
	assert_int_equal(strlen(whole), GP_CERT_IDENTITY_BYTES - 1);
	for (int len = most + 1; len < 400; len += 30) {
		text[len - 1] = 'y';
		char first[GP_CERT_IDENTITY_BYTES];
		strcpy(first, identity_of_name(GEN_URI, text, len));
		text[len - 1] = 'x';
		assert_memory_equal(first, "uri-sha256:", 11);
		assert_int_equal(strlen(first), 11 + 64);
		assert_string_not_equal(first, identity_of_name(GEN_URI, text, len));
	}
	memset(text, '\xc3', sizeof text); /* escaped, a third as many are too long */
	assert_memory_equal(identity_of_name(GEN_URI, text, most / 3 + 1), "uri-sha256:", 11);
}

static void names_that_cannot_be_read_are_refused(void **state)
{
	(void)state;
	X509 *cert = certificate("edge-1", key);
	ASN1_OCTET_STRING *garbage = ASN1_OCTET_STRING_new();
	ASN1_OCTET_STRING_set(garbage, (const unsigned char *)"garbage", 7);
	X509_EXTENSION *ext = X509_EXTENSION_create_by_NID(NULL, NID_subject_alt_name, 0, garbage);
	X509_add_ext(cert, ext, -1);
	char out[GP_CERT_IDENTITY_BYTES];
	struct gp_err err;
	assert_int_equal(gp_cert_identity(cert, out, &err), GP_DENIED);
	assert_non_null(strstr(err.text, "subjectAltName"));
	X509_EXTENSION_free(ext);
	ASN1_OCTET_STRING_free(garbage);
	X509_free(cert);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_name_the_key_decides_and_not_the_subject),
		cmocka_unit_test(the_key_is_that_of_the_page),
		cmocka_unit_test(uri_comes_before_email_before_dns),
		cmocka_unit_test(names_are_escaped_without_loss),
		cmocka_unit_test(long_names_are_not_cut),
		cmocka_unit_test(names_that_cannot_be_read_are_refused),
	};
	return cmocka_run_group_tests(tests, make_keys, free_keys);
}

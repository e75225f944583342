/* SPDX-License-Identifier: Apache-2.0
 *
 * See http_pem.h. Test: tests/unit/test_http_server.c
 */
#include "common/http/http_pem.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

#define PEM_BYTES_MOST (1u << 20)

void gp_http_pem_free(struct gp_http_pem *p)
{
	gp_free(p->cert);
	gp_free(p->key);
	gp_free(p->ca);
	*p = (struct gp_http_pem){0};
}

static enum gp_status read_stream(FILE *f, const char *path, char **out, struct gp_err *err)
{
	char *text;
	GP_TRY(gp_alloc_array((void **)&text, PEM_BYTES_MOST + 1, 1, err));
	const size_t n = fread(text, 1, PEM_BYTES_MOST + 1, f);
	if (ferror(f) || n > PEM_BYTES_MOST) {
		gp_free(text);
		GP_FAIL(err, GP_INVALID, "%s: %s", path,
			n > PEM_BYTES_MOST ? "too long for certificates" : "it cannot be read");
	}
	text[n] = '\0';
	char *fits = gp_realloc(text, n + 1, 1);
	*out = fits ? fits : text;
	return GP_OK;
}

static enum gp_status read_file(const char *path, char **out, struct gp_err *err)
{
	if (!path)
		return GP_OK;
	FILE *f = fopen(path, "re");
	if (!f)
		GP_FAIL(err, GP_INVALID, "%s: %s", path, strerror(errno));
	const enum gp_status status = read_stream(f, path, out, err);
	fclose(f);
	return status;
}

/* Whether the library that will use them can: its daemon says no more than that it did not start. */
static enum gp_status check_pem(const struct gp_http_pem *p, const char *name, const char *cert_path,
				const char *ca_path, struct gp_err *err)
{
	gnutls_certificate_credentials_t all;
	const gnutls_datum_t cert = {(uint8_t *)p->cert, (unsigned)strlen(p->cert)};
	const gnutls_datum_t key = {(uint8_t *)p->key, (unsigned)strlen(p->key)};
	if (gnutls_certificate_allocate_credentials(&all) != 0)
		GP_FAIL(err, GP_NOMEM, "out of memory for a certificate");
	int code = gnutls_certificate_set_x509_key_mem(all, &cert, &key, GNUTLS_X509_FMT_PEM);
	const char *path = cert_path;
	if (code >= 0 && p->ca) {
		const gnutls_datum_t ca = {(uint8_t *)p->ca, (unsigned)strlen(p->ca)};
		path = ca_path;
		code = gnutls_certificate_set_x509_trust_mem(all, &ca, GNUTLS_X509_FMT_PEM);
		code = code == 0 ? GNUTLS_E_NO_CERTIFICATE_FOUND : code;
	}
	gnutls_certificate_free_credentials(all);
	if (code < 0)
		GP_FAIL(err, GP_INVALID, "%s, %s: %s", name, path, gnutls_strerror(code));
	return GP_OK;
}

enum gp_status gp_http_pem_read(const char *name, const char *cert_path, const char *key_path, const char *ca_path,
				struct gp_http_pem *out, struct gp_err *err)
{
	struct gp_http_pem p = {0};
	if (!cert_path)
		return GP_OK;
	enum gp_status status = read_file(cert_path, &p.cert, err);
	if (status == GP_OK)
		status = read_file(key_path, &p.key, err);
	if (status == GP_OK)
		status = read_file(ca_path, &p.ca, err);
	if (status == GP_OK)
		status = check_pem(&p, name, cert_path, ca_path, err);
	if (status != GP_OK)
		gp_http_pem_free(&p);
	else
		*out = p;
	return status;
}

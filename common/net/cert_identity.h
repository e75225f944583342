/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a certificate names, as a text to compare: what the CA vouches for and two
 * clients cannot share. It is the first URI of the subjectAltName ("uri:..."),
 * else the first e-mail address ("email:..."), else the first DNS name
 * ("dns:..."); without one of them the SHA-256 of the public key ("key:" and 64
 * hex digits). The subject is no part of it: a common name may be empty, and
 * nobody has to keep it unique.
 *
 * Nothing is lost: bytes that are not printable ASCII, blanks, commas and
 * backslashes are written as \XX, and a name that is too long then is replaced by
 * its SHA-256 ("uri-sha256:..."). Names are compared byte by byte: capital letters
 * of a DNS name count.
 *
 * Threads: any. Test: tests/unit/test_cert_identity.c; fuzz: fuzz_cert_identity.c
 */
#ifndef GP_CERT_IDENTITY_H
#define GP_CERT_IDENTITY_H

#include "common/base/status.h"

#define GP_CERT_IDENTITY_BYTES 160 /* with the 0 behind it */

struct x509_st;

/* GP_DENIED when the certificate's subjectAltName cannot be read: such a client has no identity. */
enum gp_status gp_cert_identity(const struct x509_st *cert, char out[GP_CERT_IDENTITY_BYTES], struct gp_err *err);

#endif

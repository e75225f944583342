/* SPDX-License-Identifier: Apache-2.0
 *
 * See token.h. Test: tests/unit/test_token.c
 */
#include "common/net/token.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/random.h>

enum gp_status gp_random_bytes(void *out, size_t n, struct gp_err *err)
{
	char *p = out;
	while (n > 0) {
		ssize_t got = getrandom(p, n, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			GP_FAIL(err, GP_IO, "no random bytes from the kernel: %s", strerror(errno));
		p += got;
		n -= (size_t)got;
	}
	return GP_OK;
}

bool gp_secret_equal(const void *a, const void *b, size_t n)
{
	return CRYPTO_memcmp(a, b, n) == 0;
}

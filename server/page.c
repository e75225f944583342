/* SPDX-License-Identifier: Apache-2.0
 *
 * See page.h. Test: tests/e2e/metrics.sh
 */
#include "server/page.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#define SUM_TEXT 64

/* The SHA-256 in base64 of what stands between the first `begin` and the next `end`. */
static void write_sum(const char *begin, const char *end, char out[SUM_TEXT])
{
	uint8_t sum[SHA256_DIGEST_LENGTH];
	const unsigned char *last = gp_page_html + gp_page_html_bytes;
	const unsigned char *from = memmem(gp_page_html, gp_page_html_bytes, begin, strlen(begin));
	from = from ? from + strlen(begin) : last;
	const unsigned char *to = memmem(from, (size_t)(last - from), end, strlen(end));
	SHA256(from, (size_t)((to ? to : last) - from), sum);
	EVP_EncodeBlock((unsigned char *)out, sum, sizeof sum);
}

const char *gp_page_policy(char out[GP_PAGE_POLICY_BYTES])
{
	char script[SUM_TEXT], style[SUM_TEXT];
	write_sum("<script>", "</script>", script);
	write_sum("<style>", "</style>", style);
	snprintf(out, GP_PAGE_POLICY_BYTES,
		 "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src 'self'; "
		 "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		 script, style);
	return out;
}

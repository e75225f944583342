/* SPDX-License-Identifier: Apache-2.0
 *
 * server/page.html, as CMake has put it into the program: one page without anything from elsewhere.
 *
 * Threads: any. Test: tests/e2e/metrics.sh
 */
#ifndef GP_PAGE_H
#define GP_PAGE_H

#include <stddef.h>

extern const unsigned char gp_page_html[];
extern const size_t gp_page_html_bytes;

#define GP_PAGE_POLICY_BYTES 512
/* The Content-Security-Policy under which the page's one script and one style, named by their checksums, may run, and
 * nothing else; the page may ask the server that it came from, and nobody else. Returns `out`. */
const char *gp_page_policy(char out[GP_PAGE_POLICY_BYTES]);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Text of a page under way, in memory. What comes from a log goes through gp_html_text alone, which leaves nothing in
 * it that a browser could take for anything else than text, in an element and in an attribute between quotes. The
 * page is well-formed XML.
 *
 * A page that grows beyond GP_HTML_MOST, or finds no memory, takes nothing more, and gp_html_check says why.
 *
 * Threads: one at a time. Test: tests/unit/test_report.c
 */
#ifndef GP_REPORT_HTML_H
#define GP_REPORT_HTML_H

#include <stddef.h>

#include "common/base/status.h"

#define GP_HTML_MOST (64u << 20)

struct gp_html {
	char *text; /* no NUL stands behind it */
	size_t length, room;
	bool too_long, no_memory;
};

void gp_html_deinit(struct gp_html *h);
/* printf of what this program says: markup. Never anything from a file; numbers are fine. */
void gp_html_put(struct gp_html *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same without a limit of length, and without a format. */
void gp_html_put_all(struct gp_html *h, const char *markup);
/* Text of anybody, in UTF-8. Bytes that are none, and control characters, become "?". NULL is "". */
void gp_html_text(struct gp_html *h, const char *text);
/* The same, in elements alone: a line may break behind its punctuation, as behind the commas of a spec. */
void gp_html_long_text(struct gp_html *h, const char *text);
/* A cell of a table with such a text; "-" where it is empty. */
void gp_html_long_cell(struct gp_html *h, const char *text);
/* Appends the text of another one, and takes over that it was too long or found no memory. */
void gp_html_append(struct gp_html *h, const struct gp_html *other);
enum gp_status gp_html_check(const struct gp_html *h, struct gp_err *err);

/* Whether it is a picture that a page may show: "data:image/png;base64," with the begin of a PNG behind it, and
 * nothing but base64 to its end, in at most GP_HTML_PICTURE_MOST bytes, and with GP_HTML_PICTURE_SIDE pixels a side at
 * most. */
#define GP_HTML_PICTURE_MOST (256u << 10)
#define GP_HTML_PICTURE_SIDE 1024
bool gp_html_is_picture(const char *uri);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8: reading characters, writing them, and replacing what is none. Bytes
 * come from anywhere; nothing here trusts them.
 *
 * Threads: any. Test: tests/unit/test_utf8.c
 */
#ifndef GP_UTF8_H
#define GP_UTF8_H

#include "common/base/text.h"

#include <stdint.h>

#define GP_UTF8_MOST   4 /* bytes of a character */
#define GP_REPLACEMENT 0xFFFD

/*
 * Length of the character at `text`, which is not empty, and its code point. Where there is none, *point is -1 and the
 * length is that of the longest beginning of a character, or 1 (Unicode 15, table 3-7).
 */
size_t gp_utf8_read(const char *text, size_t bytes, int32_t *point);
/* Bytes written, 1 to GP_UTF8_MOST. `point` is a code point and no surrogate. */
size_t gp_utf8_write(int32_t point, char out[GP_UTF8_MOST]);
/* Whether all of `text` is characters. */
bool gp_utf8_is(struct gp_text text);
/* Whether there is nothing in it but what Unicode calls White_Space; also of no text. */
bool gp_utf8_is_blank(struct gp_text text);
/* Bytes of `text` once what is no character is U+FFFD: at most 3 for each byte. */
size_t gp_utf8_repaired_bytes(struct gp_text text);
/* Writes that many bytes. */
void gp_utf8_repair(struct gp_text text, char *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Anybody's text within a format that a program reads: where UTF-8 characters begin and end, and a string of JSON.
 *
 * Threads: any (pure functions). Test: tests/unit/test_plain_text.c
 */
#ifndef GP_PLAIN_TEXT_H
#define GP_PLAIN_TEXT_H

#include <stddef.h>

/* How many bytes the UTF-8 character at `at` has, 1 to 4; 0 where the byte begins none: an overlong form, half of a surrogate
 * pair, a number beyond Unicode, or a character that the text's end cuts off. `at` is not at the NUL. */
size_t gp_utf8_character(const char *at);
/* Writes `text` as a string of JSON, with its quotes and a NUL behind it, into out[size]; what does not fit is left out as whole
 * characters. Bytes that are not UTF-8 become U+FFFD. Returns how many bytes were written. size: 3 or more. */
size_t gp_json_string(const char *text, char *out, size_t size);

#endif

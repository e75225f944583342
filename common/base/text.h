/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of text that a user or a peer wrote: cutting them up, comparing them,
 * showing them in a message, and the name that was probably meant. Nothing
 * here allocates.
 *
 * Threads: any. Test: tests/unit/test_text.c
 */
#ifndef GP_TEXT_H
#define GP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A borrowed piece of text; no NUL stands behind it. `at` is NULL where nothing is left. */
struct gp_text {
	const char *at;
	size_t len;
};

/* For "%.*s". */
#define GP_TEXT_ARG(t) (int)(t).len, (t).at

struct gp_text gp_text_of(const char *text);
bool gp_text_is(struct gp_text t, const char *word);
bool gp_text_same(struct gp_text a, struct gp_text b);
/* Cuts everything before `separator`, or the rest, off `rest`. False when nothing was left to cut; an empty text has one
 * empty piece. */
bool gp_text_cut(struct gp_text *rest, char separator, struct gp_text *out);
/* The piece with a NUL behind it; false, and "" in `out`, when it does not fit. */
bool gp_text_copy(struct gp_text t, char *out, size_t size);
/* printf behind what `text` holds, cut off at `size`. */
void gp_text_append(char *text, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#define GP_SHOWN 64
/* For a message: cut off after at most 60 bytes, with '?' for control characters, U+0080 to U+009F among them, and for bytes
 * that are not UTF-8. Returns `out`. */
const char *gp_text_shown(struct gp_text t, char out[GP_SHOWN]);
/* Whether a text, which ends with a NUL, has none of these control characters. */
bool gp_text_is_printable(const char *text);

/* How many values a text of JSON may have at most, besides the whole: its commas, colons and opening brackets outside of
 * strings. A parser takes some 200 bytes for each, of a text in which each takes two. */
size_t gp_json_marks(struct gp_text t);

/* Index of `t` among '|'-separated choices ("sgd|adam"), -1 when it is none of them. */
int gp_choice_index(const char *choices, struct gp_text t);

/*
 * The one of names[0..count) that `text` was probably meant to be, NULL when none is near. Near is an unfinished word
 * of at least two characters, or one slip in a short word and one in three characters of a longer one, where a slip is
 * a character too many, too few or wrong, or two neighbours that changed places.
 */
const char *gp_nearest_name(const char *text, const char *const *names, int count);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens of a tokenizer: id to text, and text to id by a hash table.
 * What is shown and what is looked up are given apart, because byte pair
 * encoding writes bytes as printable characters in its file.
 *
 * Threads: any may read; one fills it. Test: tests/unit/test_tokenizer.c
 */
#ifndef GP_VOCABULARY_H
#define GP_VOCABULARY_H

#include "common/base/status.h"
#include "common/base/text.h"

struct gp_vocabulary {
	int32_t count;
	struct gp_vocabulary_token *token; /* (count) */
	int32_t *cell;                     /* (cells): a token's id, -1: free */
	uint64_t cells;                    /* a power of two, at least twice the count */
	char *text;                        /* of all tokens: shown, NUL, key */
	size_t text_bytes, text_room;
};

/* For the ids [0, count), none of which is there yet. */
enum gp_status gp_vocabulary_init(struct gp_vocabulary *v, int32_t count, struct gp_err *err);
void gp_vocabulary_deinit(struct gp_vocabulary *v);

/*
 * Adds token `id`. `key.at` NULL: no text is this token. Copies both texts. GP_INVALID when the id is out of
 * range or taken, or when another token has the key; the message begins with what is shown.
 */
enum gp_status gp_vocabulary_add(struct gp_vocabulary *v, int64_t id, struct gp_text shown, struct gp_text key,
				 struct gp_err *err);
/* Whether that id was added. */
bool gp_vocabulary_has(const struct gp_vocabulary *v, int32_t id);
/* What the token is shown as, NUL-terminated; lives until the next token is added. */
const char *gp_vocabulary_shown(const struct gp_vocabulary *v, int32_t id);
/* The text that is this token, as gp_vocabulary_add was given it: at NULL where no text is. Lives as long. */
struct gp_text gp_vocabulary_key(const struct gp_vocabulary *v, int32_t id);
/* The token's id, -1 where there is none. */
int32_t gp_vocabulary_find(const struct gp_vocabulary *v, struct gp_text key);
/* XXH3 of all that is shown, in the order of the ids. */
uint64_t gp_vocabulary_hash(const struct gp_vocabulary *v);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kinds of tokenizers share; users see tokenizer.h. A kind turns one
 * text into ids; tokenizer.c repairs the text before and puts the special
 * tokens round the ids.
 *
 * Threads: as tokenizer.h says. Tests: tests/unit/test_tokenizer.c
 */
#ifndef GP_TOKENIZER_IMPL_H
#define GP_TOKENIZER_IMPL_H

#include "client/text/tokenizer.h"
#include "client/text/vocabulary.h"

/* Numbers that grow at their end. */
struct gp_token_list {
	int32_t *token;
	size_t count, room;
};

enum gp_status gp_token_list_reserve(struct gp_token_list *l, size_t more, struct gp_err *err);

struct gp_tokenizer_class {
	const char *kind;
	const char *file; /* whose presence in the folder says that the folder holds this kind */
	const char *special[GP_SPECIAL_TOKENS];
	bool double_separator, segments; /* between the texts of a pair */
	/* Reads the files of `folder` into t->vocabulary and t->self; on failure `close` is called with what is there. */
	enum gp_status (*open)(struct gp_tokenizer *t, const char *folder, struct gp_err *err);
	void (*close)(struct gp_tokenizer *t);
	/* What `encode` needs beside the tokenizer, one for each thread. (optional) NULL: nothing. */
	enum gp_status (*scratch_new)(const struct gp_tokenizer *t, void **out, struct gp_err *err);
	void (*scratch_free)(void *scratch);
	/* Appends the ids of `text`, which is UTF-8. */
	enum gp_status (*encode)(const struct gp_tokenizer *t, void *scratch, struct gp_text text,
				 struct gp_token_list *out, struct gp_err *err);
};

struct gp_tokenizer {
	const struct gp_tokenizer_class *class;
	void *self; /* the kind's own */
	struct gp_vocabulary vocabulary;
	int32_t special[GP_SPECIAL_TOKENS];
	uint64_t hash; /* kinds mix in what they have beside the vocabulary */
};

extern const struct gp_tokenizer_class gp_tokenizer_bpe, gp_tokenizer_wordpiece;

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers: a text becomes the ids of the tokens that a language model
 * reads. Two kinds, told apart by the files in their folder:
 *
 *   vocab.json, merges.txt   byte-level byte pair encoding, as RoBERTa has it
 *   vocab.txt                WordPiece, as BERT has it; tokenizer_config.json may say
 *                            "do_lower_case": false (default true)
 *
 * Both give the ids that the tokenizers of Hugging Face's transformers give
 * (without a prefix space), but for four things: the names of special tokens in
 * a text ("<mask>") are text like any other; a capital sigma becomes a small one
 * of the form that stands inside words wherever it is, as their fast tokenizer
 * has it; and bytes that are no UTF-8 become U+FFFD, one for each longest part of
 * a character that is broken off (Unicode 15, 3.9, "U+FFFD Substitution of
 * Maximal Subparts"); and where two texts are too long together and an odd
 * number of tokens is left for them, the first one has one more, as their slow
 * tokenizers have it.
 *
 * To add a kind: a file with a const vtable (tokenizer_impl.h), a row in
 * tokenizer.c, and its line here.
 *
 * Threads: any may use an open tokenizer, which is read-only, with a scratch of
 * its own. Tests: tests/unit/test_tokenizer.c; fuzz: fuzz_tokenizer.c
 */
#ifndef GP_TOKENIZER_H
#define GP_TOKENIZER_H

#include "common/base/status.h"
#include "common/base/text.h"

#define GP_TEXT_BYTES_MAX  (1 << 20) /* of one text; a longer one is an error */
#define GP_VOCABULARY_MAX  (1 << 20) /* tokens */
#define GP_TOKENS_LEAST    8         /* that a row may be limited to */
#define GP_TOKEN_BYTES_MAX 512       /* of one token as its file writes it */

enum gp_special_token {
	GP_TOKEN_BEGIN,     /* <s>, [CLS] */
	GP_TOKEN_SEPARATOR, /* </s>, [SEP]: behind each text */
	GP_TOKEN_PAD,       /* <pad>, [PAD] */
	GP_TOKEN_UNKNOWN,   /* <unk>, [UNK] */
	GP_TOKEN_MASK,      /* <mask>, [MASK] */
	GP_SPECIAL_TOKENS,
};

struct gp_tokenizer;
struct gp_token_scratch; /* what a thread needs to tokenize; grows with the texts it sees */

/* GP_INVALID: a file that is missing, malformed, or does not fit its neighbour; the message names file and line. */
enum gp_status gp_tokenizer_open(const char *folder, struct gp_tokenizer **out, struct gp_err *err);
void gp_tokenizer_free(struct gp_tokenizer *t);

/* All ids are within [0, vocabulary). */
int32_t gp_tokenizer_vocabulary(const struct gp_tokenizer *t);
int32_t gp_tokenizer_special(const struct gp_tokenizer *t, enum gp_special_token which);
/* The token as its file writes it ("Ġthe", "##ing"), NUL-terminated UTF-8; lives as long as the tokenizer. */
const char *gp_tokenizer_token(const struct gp_tokenizer *t, int32_t id);
/* "bpe", "wordpiece" */
const char *gp_tokenizer_kind(const struct gp_tokenizer *t);
/* XXH3 of what decides the ids: equal for tokenizers that give equal ids to every text. */
uint64_t gp_tokenizer_hash(const struct gp_tokenizer *t);

enum gp_status gp_token_scratch_new(const struct gp_tokenizer *t, struct gp_token_scratch **out, struct gp_err *err);
void gp_token_scratch_free(struct gp_token_scratch *s);

/* A text or a pair of texts with the special tokens round it. Lives in the scratch until its next use. */
struct gp_token_row {
	const int32_t *token;
	const uint8_t *segment; /* 1 for the second text of a WordPiece pair, else 0 (RoBERTa has one segment) */
	int count;              /* at most `most` */
	int whole;              /* what count would have been without a limit */
};

/*
 * <s> a </s>, and for a pair <s> a </s></s> b </s> (BERT: [CLS] a [SEP] b [SEP]). `b.at` NULL: no pair. A row of more
 * than `most` tokens (at least 8) loses the last tokens of the longer text, one by one, of the second where both are
 * equally long. GP_INVALID: a text of more than GP_TEXT_BYTES_MAX bytes. GP_NOMEM.
 */
enum gp_status gp_tokenizer_row(const struct gp_tokenizer *t, struct gp_token_scratch *s, struct gp_text a,
				struct gp_text b, int most, struct gp_token_row *out, struct gp_err *err);

#endif

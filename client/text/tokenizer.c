/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers: the choice of the kind, repairing a text, special tokens and
 * truncation. See tokenizer.h. Test: tests/unit/test_tokenizer.c
 */
#include "client/text/tokenizer_impl.h"

#include <string.h>

#include "client/text/text_file.h"
#include "client/text/utf8.h"
#include "common/base/mem.h"

enum { ROW_LEAST = 8 };

static const struct gp_tokenizer_class *const classes[] = {&gp_tokenizer_bpe, &gp_tokenizer_wordpiece};

/* --- opening ---------------------------------------------------------------------------------------------------- */

static enum gp_status find_class(const char *folder, const struct gp_tokenizer_class **out, struct gp_err *err)
{
	char path[GP_TEXT_PATH];
	*out = NULL;
	for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
		GP_TRY(gp_text_path(folder, classes[i]->file, path, err));
		if (!gp_text_file_there(path))
			continue;
		if (*out)
			GP_FAIL(err, GP_INVALID,
				"%s holds %s and %s, of two kinds of tokenizers; keep the files of one", folder,
				(*out)->file, classes[i]->file);
		*out = classes[i];
	}
	if (*out)
		return GP_OK;
	GP_FAIL(err, GP_INVALID,
		"no tokenizer in %s: neither vocab.json (with merges.txt: byte pair encoding) nor vocab.txt "
		"(WordPiece) can be found there",
		folder);
}

static enum gp_status find_special(struct gp_tokenizer *t, const char *folder, struct gp_err *err)
{
	for (int i = 0; i < GP_SPECIAL_TOKENS; i++) {
		t->special[i] = gp_vocabulary_find(&t->vocabulary, gp_text_of(t->class->special[i]));
		if (t->special[i] < 0)
			GP_FAIL(err, GP_INVALID, "%s/%s lacks the token %s", folder, t->class->file,
				t->class->special[i]);
	}
	return GP_OK;
}

enum gp_status gp_tokenizer_open(const char *folder, struct gp_tokenizer **out, struct gp_err *err)
{
	const struct gp_tokenizer_class *class;
	void *p;
	GP_TRY(find_class(folder, &class, err));
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct gp_tokenizer), err));
	struct gp_tokenizer *t = p;
	t->class = class;
	enum gp_status status = class->open(t, folder, err);
	if (status == GP_OK)
		status = find_special(t, folder, err);
	if (status != GP_OK) {
		gp_tokenizer_free(t);
		return status;
	}
	*out = t;
	return GP_OK;
}

void gp_tokenizer_free(struct gp_tokenizer *t)
{
	if (!t)
		return;
	t->class->close(t);
	gp_vocabulary_deinit(&t->vocabulary);
	gp_free(t);
}

int32_t gp_tokenizer_vocabulary(const struct gp_tokenizer *t)
{
	return t->vocabulary.count;
}

int32_t gp_tokenizer_special(const struct gp_tokenizer *t, enum gp_special_token which)
{
	return t->special[which];
}

const char *gp_tokenizer_token(const struct gp_tokenizer *t, int32_t id)
{
	return gp_vocabulary_shown(&t->vocabulary, id);
}

const char *gp_tokenizer_kind(const struct gp_tokenizer *t)
{
	return t->class->kind;
}

uint64_t gp_tokenizer_hash(const struct gp_tokenizer *t)
{
	return t->hash;
}

/* --- scratch ---------------------------------------------------------------------------------------------------- */

struct gp_token_scratch {
	const struct gp_tokenizer_class *class;
	void *kind; /* the kind's own */
	char *text; /* repaired */
	size_t text_room;
	struct gp_token_list list[2], row; /* of each text, and of both with the special tokens */
	uint8_t *segment;
	size_t segment_room;
};

enum gp_status gp_token_list_reserve(struct gp_token_list *l, size_t more, struct gp_err *err)
{
	if (l->room - l->count >= more)
		return GP_OK;
	const size_t room = 2 * l->room + more;
	int32_t *token = gp_realloc(l->token, room, sizeof *token);
	if (!token)
		GP_FAIL(err, GP_NOMEM, "out of memory for %zu tokens", room);
	l->token = token;
	l->room = room;
	return GP_OK;
}

enum gp_status gp_token_scratch_new(const struct gp_tokenizer *t, struct gp_token_scratch **out, struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct gp_token_scratch), err));
	struct gp_token_scratch *s = p;
	s->class = t->class;
	const enum gp_status status = t->class->scratch_new ? t->class->scratch_new(t, &s->kind, err) : GP_OK;
	if (status != GP_OK) {
		gp_free(s);
		return status;
	}
	*out = s;
	return GP_OK;
}

void gp_token_scratch_free(struct gp_token_scratch *s)
{
	if (!s)
		return;
	if (s->class->scratch_free)
		s->class->scratch_free(s->kind);
	gp_free(s->text);
	gp_free(s->list[0].token);
	gp_free(s->list[1].token);
	gp_free(s->row.token);
	gp_free(s->segment);
	gp_free(s);
}

/* --- a row ------------------------------------------------------------------------------------------------------ */

/* `text` itself where it is UTF-8 throughout. */
static enum gp_status repaired(struct gp_token_scratch *s, struct gp_text *text, struct gp_err *err)
{
	if (text->len > GP_TEXT_BYTES_MAX)
		GP_FAIL(err, GP_INVALID, "a text of %zu bytes; at most %d can be made tokens", text->len,
			GP_TEXT_BYTES_MAX);
	const size_t bytes = gp_utf8_repaired_bytes(*text);
	if (bytes > s->text_room) {
		char *room = gp_realloc(s->text, bytes, 1);
		if (!room)
			GP_FAIL(err, GP_NOMEM, "out of memory for a text of %zu bytes", bytes);
		s->text = room;
		s->text_room = bytes;
	}
	if (bytes) /* a wrong byte may take as much room as U+FFFD does, so a length that stays tells nothing */
		gp_utf8_repair(*text, s->text);
	*text = (struct gp_text){bytes ? s->text : "", bytes};
	return GP_OK;
}

static enum gp_status encode(const struct gp_tokenizer *t, struct gp_token_scratch *s, struct gp_text text, int which,
			     struct gp_err *err)
{
	s->list[which].count = 0;
	GP_TRY(repaired(s, &text, err));
	return t->class->encode(t, s->kind, text, &s->list[which], err);
}

/* The last token of the longer text goes, of the second where both are equally long, until both fit. */
static void truncate_pair(size_t *a, size_t *b, size_t most)
{
	if (*a + *b <= most)
		return;
	const size_t less = most / 2, more = most - less; /* what both come to when neither is short */
	if (*b <= less)
		*a = most - *b;
	else if (*a <= more)
		*b = most - *a;
	else {
		*a = more;
		*b = less;
	}
}

static void put(struct gp_token_scratch *s, const int32_t *token, size_t count, uint8_t segment)
{
	if (count == 0)
		return;
	memcpy(s->row.token + s->row.count, token, count * sizeof *token);
	memset(s->segment + s->row.count, segment, count);
	s->row.count += count;
}

static enum gp_status reserve_row(struct gp_token_scratch *s, size_t count, struct gp_err *err)
{
	s->row.count = 0;
	GP_TRY(gp_token_list_reserve(&s->row, count, err));
	if (count <= s->segment_room)
		return GP_OK;
	uint8_t *segment = gp_realloc(s->segment, count, 1);
	if (!segment)
		GP_FAIL(err, GP_NOMEM, "out of memory for %zu tokens", count);
	s->segment = segment;
	s->segment_room = count;
	return GP_OK;
}

enum gp_status gp_tokenizer_row(const struct gp_tokenizer *t, struct gp_token_scratch *s, struct gp_text a,
				struct gp_text b, int most, struct gp_token_row *out, struct gp_err *err)
{
	const bool pair = b.at != NULL;
	const int32_t *begin = &t->special[GP_TOKEN_BEGIN], *separator = &t->special[GP_TOKEN_SEPARATOR];
	const size_t special = !pair ? 2 : t->class->double_separator ? 4 : 3;
	gp_require(most >= ROW_LEAST);
	GP_TRY(encode(t, s, a, 0, err));
	s->list[1].count = 0;
	if (pair)
		GP_TRY(encode(t, s, b, 1, err));
	size_t first = s->list[0].count, second = s->list[1].count;
	const size_t whole = first + second + special;
	truncate_pair(&first, &second, (size_t)most - special);
	GP_TRY(reserve_row(s, first + second + special, err));
	put(s, begin, 1, 0);
	put(s, s->list[0].token, first, 0);
	put(s, separator, 1, 0);
	if (pair) {
		const uint8_t segment = t->class->segments;
		put(s, separator, t->class->double_separator, segment);
		put(s, s->list[1].token, second, segment);
		put(s, separator, 1, segment);
	}
	*out = (struct gp_token_row){s->row.token, s->segment, (int)s->row.count, (int)whole};
	return GP_OK;
}

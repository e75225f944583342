/* SPDX-License-Identifier: Apache-2.0
 *
 * WordPiece as BERT has it (Devlin et al., 2019; Wu et al., 2016, section 4.1).
 * A text is cleaned: control characters go, every Chinese character becomes a
 * word, and unless tokenizer_config.json says "do_lower_case": false, capitals
 * become small and accents (category Mn after canonical decomposition) go. Words
 * lie between spaces, each punctuation mark is one, and a word becomes the
 * longest tokens that it begins with, again and again; "##" stands before those
 * inside a word. A word that cannot be made of tokens, or has more than 100
 * characters, is one unknown token.
 *
 * Categories, small letters and decompositions are utf8proc's.
 * Test: tests/unit/test_tokenizer.c, tests/e2e/tokens.sh
 */
#include "client/text/tokenizer_impl.h"

#include <string.h>

#include <utf8proc.h>
#include <xxhash.h>

#include "client/text/text_file.h"
#include "client/text/tokenizer_config.h"
#include "client/text/utf8.h"
#include "common/base/mem.h"

enum { VOCABULARY_BYTES = 64 << 20, WORD_MOST = 100 };

struct wordpiece {
	bool lower;   /* capitals become small */
	bool strip;   /* accents go */
	bool chinese; /* every Chinese character is a word */
};

/* --- opening ---------------------------------------------------------------------------------------------------- */

static enum gp_status add_token(struct gp_vocabulary *v, struct gp_text line, int32_t id, struct gp_err *err)
{
	char shown[GP_SHOWN];
	if (line.len == 0)
		GP_FAIL(err, GP_INVALID, "an empty line; a token is expected");
	if (line.len > GP_TOKEN_BYTES_MAX || memchr(line.at, '\0', line.len))
		GP_FAIL(err, GP_INVALID, "'%s' is no token: it has a zero byte, or more than %d bytes",
			gp_text_shown(line, shown), GP_TOKEN_BYTES_MAX);
	if (!gp_utf8_is(line))
		GP_FAIL(err, GP_INVALID, "'%s' is not UTF-8", gp_text_shown(line, shown));
	return gp_vocabulary_add(v, id, line, line, err);
}

static enum gp_status add_lines(struct gp_vocabulary *v, const char *path, struct gp_text text, struct gp_err *err)
{
	int64_t lines = 0;
	if (text.len && text.at[text.len - 1] == '\n')
		text.len--;
	for (size_t i = 0; i < text.len; i++)
		lines += text.at[i] == '\n';
	if (text.len == 0 || ++lines > GP_VOCABULARY_MAX)
		GP_FAIL(err, GP_INVALID, "%s: %lld tokens; 1 to %d are expected", path, (long long)lines,
			GP_VOCABULARY_MAX);
	GP_TRY(gp_vocabulary_init(v, (int32_t)lines, err));
	struct gp_text line;
	for (int32_t id = 0; gp_text_cut(&text, '\n', &line); id++) {
		if (line.len && line.at[line.len - 1] == '\r')
			line.len--;
		if (add_token(v, line, id, err) != GP_OK)
			return gp_err_prefix(err, "%s:%d", path, id + 1);
	}
	return GP_OK;
}

static enum gp_status read_vocabulary(struct gp_tokenizer *t, const char *folder, struct gp_err *err)
{
	char path[GP_TEXT_PATH], *text;
	size_t bytes;
	GP_TRY(gp_text_path(folder, "vocab.txt", path, err));
	GP_TRY(gp_text_file_read(path, VOCABULARY_BYTES, &text, &bytes, err));
	struct gp_text lines = {text, bytes};
	enum gp_status status = gp_text_check(path, &lines, err);
	if (status == GP_OK)
		status = add_lines(&t->vocabulary, path, lines, err);
	gp_free(text);
	return status;
}

static enum gp_status read_flags(struct wordpiece *w, const struct gp_tokenizer_config *c, struct gp_err *err)
{
	*w = (struct wordpiece){true, true, true};
	GP_TRY(gp_tokenizer_config_flag(c, "do_lower_case", &w->lower, err));
	w->strip = w->lower;
	GP_TRY(gp_tokenizer_config_flag(c, "strip_accents", &w->strip, err));
	return gp_tokenizer_config_flag(c, "tokenize_chinese_chars", &w->chinese, err);
}

static enum gp_status read_config(struct wordpiece *w, const char *folder, struct gp_err *err)
{
	struct gp_tokenizer_config c;
	GP_TRY(gp_tokenizer_config_read(folder, &c, err));
	const enum gp_status status = read_flags(w, &c, err);
	gp_tokenizer_config_deinit(&c);
	return status;
}

static enum gp_status open_wordpiece(struct gp_tokenizer *t, const char *folder, struct gp_err *err)
{
	GP_TRY(gp_alloc_array(&t->self, 1, sizeof(struct wordpiece), err));
	const struct wordpiece *w = t->self;
	GP_TRY(read_config(t->self, folder, err));
	GP_TRY(read_vocabulary(t, folder, err));
	const char flags[] = {w->lower, w->strip, w->chinese};
	t->hash = XXH3_64bits_withSeed(flags, sizeof flags, gp_vocabulary_hash(&t->vocabulary));
	return GP_OK;
}

static void close_wordpiece(struct gp_tokenizer *t)
{
	gp_free(t->self);
}

/* --- characters ------------------------------------------------------------------------------------------------- */

static bool is_space(int32_t c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || utf8proc_category(c) == UTF8PROC_CATEGORY_ZS;
}

/* Those that part words, once a text is clean: line and paragraph separators do, too. */
static bool parts_words(int32_t c)
{
	return is_space(c) || c == 0x2028 || c == 0x2029;
}

/* Goes, when a text is cleaned: control, format, surrogate, private and unassigned characters, and what stands for
 * bytes that are none. */
static bool is_dirt(int32_t c)
{
	const utf8proc_category_t k = utf8proc_category(c);
	if (c == '\t' || c == '\n' || c == '\r')
		return false;
	return c == 0 || c == GP_REPLACEMENT || k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF ||
	       k == UTF8PROC_CATEGORY_CS || k == UTF8PROC_CATEGORY_CO || k == UTF8PROC_CATEGORY_CN;
}

static bool is_punctuation(int32_t c)
{
	if ((c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126))
		return true;
	const utf8proc_category_t k = utf8proc_category(c);
	return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

/* The blocks of CJK unified ideographs and their compatibility forms, as BERT's tokenization.py lists them. */
static bool is_chinese(int32_t c)
{
	static const int32_t block[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
					   {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B820, 0x2CEAF},
					   {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
	for (size_t i = 0; i < sizeof block / sizeof block[0]; i++)
		if (c >= block[i][0] && c <= block[i][1])
			return true;
	return false;
}

/* --- a word ----------------------------------------------------------------------------------------------------- */

struct scratch {
	int32_t *point; /* the characters of the text, decomposed and cleaned */
	size_t room;
	char word[2 + WORD_MOST * GP_UTF8_MOST]; /* "##", then the word */
	size_t end[WORD_MOST + 1];               /* where each character of the word ends, behind "##" */
};

static enum gp_status put(struct gp_token_list *out, int32_t token, struct gp_err *err)
{
	GP_TRY(gp_token_list_reserve(out, 1, err));
	out->token[out->count++] = token;
	return GP_OK;
}

/* The longest token that is the word's characters from `from` on; *to is behind it. -1: there is none. */
static int32_t longest_token(const struct gp_vocabulary *v, struct scratch *s, size_t from, size_t count, size_t *to)
{
	char saved[2];
	char *begin = s->word + 2 + s->end[from];
	if (from > 0) {
		begin -= 2;
		memcpy(saved, begin, 2);
		memcpy(begin, "##", 2);
	}
	int32_t token = -1;
	size_t last = count + 1;
	while (token < 0 && --last > from)
		token = gp_vocabulary_find(v, (struct gp_text){begin, (size_t)(s->word + 2 + s->end[last] - begin)});
	*to = last;
	if (from > 0)
		memcpy(begin, saved, 2);
	return token;
}

static enum gp_status encode_word(const struct gp_tokenizer *t, struct scratch *s, const int32_t *point, size_t count,
				  struct gp_token_list *out, struct gp_err *err)
{
	const size_t before = out->count;
	if (count > WORD_MOST)
		return put(out, t->special[GP_TOKEN_UNKNOWN], err);
	s->end[0] = 0;
	for (size_t i = 0; i < count; i++)
		s->end[i + 1] = s->end[i] + gp_utf8_write(point[i], s->word + 2 + s->end[i]);
	for (size_t at = 0, to; at < count; at = to) {
		const int32_t token = longest_token(&t->vocabulary, s, at, count, &to);
		if (token < 0) {
			out->count = before;
			return put(out, t->special[GP_TOKEN_UNKNOWN], err);
		}
		GP_TRY(put(out, token, err));
	}
	return GP_OK;
}

/* --- a text ----------------------------------------------------------------------------------------------------- */

enum { DECOMPOSED_MOST = 4 }; /* code points of one character: Unicode 15, UAX #15, 11.1 */

static enum gp_status reserve_points(struct scratch *s, size_t room, struct gp_err *err)
{
	if (room <= s->room)
		return GP_OK;
	int32_t *point = gp_realloc(s->point, room, sizeof *point);
	if (!point)
		GP_FAIL(err, GP_NOMEM, "out of memory for a text of %zu characters", room);
	s->point = point;
	s->room = room;
	return GP_OK;
}

/*
 * The text's characters into s->point. A small letter may be one that decomposes, so capitals are changed first. Accents
 * are not put into their canonical order: those of category Mn go, and a text of nothing else would take quadratic time.
 */
static enum gp_status decompose(const struct wordpiece *w, struct scratch *s, struct gp_text text, size_t *count,
				struct gp_err *err)
{
	size_t n = 0;
	GP_TRY(reserve_points(s, text.len + DECOMPOSED_MOST, err));
	for (size_t i = 0, bytes; i < text.len; i += bytes) {
		int32_t c;
		bytes = gp_utf8_read(text.at + i, text.len - i, &c);
		c = w->lower ? utf8proc_tolower(c) : c;
		GP_TRY(reserve_points(s, n + DECOMPOSED_MOST + (text.len - i), err));
		if (w->strip)
			n += (size_t)utf8proc_decompose_char(c, s->point + n, DECOMPOSED_MOST, UTF8PROC_DECOMPOSE,
							     NULL);
		else
			s->point[n++] = c;
	}
	*count = n;
	return GP_OK;
}

/* Whether the character goes: dirt, and accents where they are stripped. */
static bool goes(const struct wordpiece *w, int32_t c)
{
	return is_dirt(c) || (w->strip && utf8proc_category(c) == UTF8PROC_CATEGORY_MN);
}

static enum gp_status encode_text(const struct gp_tokenizer *t, void *scratch, struct gp_text text,
				  struct gp_token_list *out, struct gp_err *err)
{
	const struct wordpiece *w = t->self;
	struct scratch *s = scratch;
	size_t count, kept = 0, begin = 0;
	GP_TRY(decompose(w, s, text, &count, err));
	for (size_t i = 0; i < count; i++)
		if (!goes(w, s->point[i]))
			s->point[kept++] = s->point[i];
	for (size_t i = 0; i <= kept; i++) {
		const bool end = i == kept || parts_words(s->point[i]);
		const bool alone = !end && (is_punctuation(s->point[i]) || (w->chinese && is_chinese(s->point[i])));
		if (!end && !alone)
			continue;
		if (i > begin)
			GP_TRY(encode_word(t, s, s->point + begin, i - begin, out, err));
		if (alone)
			GP_TRY(encode_word(t, s, s->point + i, 1, out, err));
		begin = i + 1;
	}
	return GP_OK;
}

static enum gp_status new_scratch(const struct gp_tokenizer *t, void **out, struct gp_err *err)
{
	(void)t;
	return gp_alloc_array(out, 1, sizeof(struct scratch), err);
}

static void free_scratch(void *scratch)
{
	struct scratch *s = scratch;
	gp_free(s->point);
	gp_free(s);
}

const struct gp_tokenizer_class gp_tokenizer_wordpiece = {
	.kind = "wordpiece",
	.file = "vocab.txt",
	.special = {[GP_TOKEN_BEGIN] = "[CLS]",
		    [GP_TOKEN_SEPARATOR] = "[SEP]",
		    [GP_TOKEN_PAD] = "[PAD]",
		    [GP_TOKEN_UNKNOWN] = "[UNK]",
		    [GP_TOKEN_MASK] = "[MASK]"},
	.segments = true,
	.open = open_wordpiece,
	.close = close_wordpiece,
	.scratch_new = new_scratch,
	.scratch_free = free_scratch,
	.encode = encode_text,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-level byte pair encoding (Radford et al., "Language Models are
 * Unsupervised Multitask Learners", 2019, section 2.2; Sennrich et al., ACL
 * 2016). A text is cut into words; a word begins as its bytes, each a token, and
 * of all pairs of neighbours that merges.txt lists, the one that stands first
 * there is joined, again and again, until there is none.
 *
 * vocab.json and merges.txt write each byte as one printable character: those of
 * ISO 8859-1 that are printable and no space as themselves, the other 68 as
 * U+0100 and up, in order (so a space is U+0120).
 *
 * The words of a text are found by PCRE2, with the expression of GPT-2, where a
 * space is what Unicode calls White_Space (PCRE2's own \s has U+180E besides).
 * A word of n bytes takes O(n log n): its pairs wait in a heap.
 * Test: tests/unit/test_tokenizer.c, tests/e2e/tokens.sh
 */
#include "client/text/tokenizer_impl.h"

#include <stdatomic.h>
#include <string.h>

#include <jansson.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <xxhash.h>

#include "client/text/text_file.h"
#include "client/text/tokenizer_config.h"
#include "client/text/utf8.h"
#include "common/base/log.h"
#include "common/base/mem.h"

enum { BYTES = 256, LINE_MOST = 2 * GP_TOKEN_BYTES_MAX + 2, FILE_MOST = 64 << 20 };

#define SPACES                                                                                                         \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORDS                                                                                                          \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|[" SPACES "]+(?![^" SPACES           \
	"])|[" SPACES "]+"

struct merge {
	int32_t left, right; /* the pair; left -1: a free cell */
	int32_t rank, joined;
};

struct bpe {
	pcre2_code *words;
	struct merge *merge; /* a hash table, probed cell after cell */
	uint64_t cells;      /* a power of two, at least twice as many as there are merges */
	int32_t byte[BYTES]; /* the token of each */
};

/* --- how bytes are written -------------------------------------------------------------------------------------- */

static bool stands_for_itself(int byte)
{
	return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

/* The character of each byte. */
static void list_characters(int32_t character[BYTES])
{
	int32_t next = BYTES;
	for (int byte = 0; byte < BYTES; byte++)
		character[byte] = stands_for_itself(byte) ? byte : next++;
}

/* The byte of each character, -1 where none is written so. */
struct unwritten {
	int16_t byte[2 * BYTES];
};

static struct unwritten bytes_of_characters(void)
{
	struct unwritten u;
	int32_t character[BYTES];
	memset(&u, 0xFF, sizeof u);
	list_characters(character);
	for (int byte = 0; byte < BYTES; byte++)
		u.byte[character[byte]] = (int16_t)byte;
	return u;
}

/* The bytes that `written` stands for, into `out`, which has room for as many as it has itself. False where a character
 * stands for none. */
static bool read_written(const struct unwritten *u, struct gp_text written, char *out, size_t *bytes)
{
	size_t count = 0;
	for (size_t i = 0, n; i < written.len; i += n) {
		int32_t point;
		n = gp_utf8_read(written.at + i, written.len - i, &point);
		if (point < 0 || point >= 2 * BYTES || u->byte[point] < 0)
			return false;
		out[count++] = (char)u->byte[point];
	}
	*bytes = count;
	return true;
}

/* --- vocab.json ------------------------------------------------------------------------------------------------- */

/* Tokens that no bytes are written as are there, but no text is one of them. */
static enum gp_status add_token(struct gp_vocabulary *v, const struct unwritten *u, struct gp_text shown,
				const json_t *id, struct gp_err *err)
{
	char bytes[GP_TOKEN_BYTES_MAX], name[GP_SHOWN];
	size_t count;
	if (!json_is_integer(id))
		GP_FAIL(err, GP_INVALID, "'%s' has no id", gp_text_shown(shown, name));
	if (shown.len > GP_TOKEN_BYTES_MAX)
		GP_FAIL(err, GP_INVALID, "'%s' is a token of more than %d bytes", gp_text_shown(shown, name),
			GP_TOKEN_BYTES_MAX);
	struct gp_text key = {NULL, 0};
	if (shown.len && read_written(u, shown, bytes, &count))
		key = (struct gp_text){bytes, count};
	return gp_vocabulary_add(v, json_integer_value(id), shown, key, err);
}

static enum gp_status add_tokens(struct gp_tokenizer *t, json_t *root, struct gp_err *err)
{
	const struct unwritten u = bytes_of_characters();
	const char *name;
	json_t *id;
	if (!json_is_object(root))
		GP_FAIL(err, GP_INVALID, "an object of tokens and their ids is expected");
	if (json_object_size(root) == 0 || json_object_size(root) > GP_VOCABULARY_MAX)
		GP_FAIL(err, GP_INVALID, "%zu tokens; 1 to %d are expected", json_object_size(root), GP_VOCABULARY_MAX);
	GP_TRY(gp_vocabulary_init(&t->vocabulary, (int32_t)json_object_size(root), err));
	json_object_foreach(root, name, id) GP_TRY(add_token(&t->vocabulary, &u, gp_text_of(name), id, err));
	return GP_OK;
}

static enum gp_status read_vocabulary(struct gp_tokenizer *t, const char *folder, struct gp_err *err)
{
	char path[GP_TEXT_PATH], *text;
	size_t bytes;
	json_error_t why;
	char shown[GP_SHOWN];
	GP_TRY(gp_text_path(folder, "vocab.json", path, err));
	GP_TRY(gp_text_file_read(path, FILE_MOST, &text, &bytes, err));
	if (gp_json_marks((struct gp_text){text, bytes}) > 2 * GP_VOCABULARY_MAX) {
		gp_free(text);
		GP_FAIL(err, GP_INVALID, "%s has more than %d tokens", path, GP_VOCABULARY_MAX);
	}
	struct gp_text whole = {text, bytes};
	if (gp_text_check(path, &whole, err) != GP_OK) {
		gp_free(text);
		return err->code;
	}
	json_t *root = json_loadb(whole.at, whole.len, JSON_REJECT_DUPLICATES, &why);
	gp_free(text);
	if (!root)
		GP_FAIL(err, GP_INVALID, "%s:%d: %s", path, why.line, gp_text_shown(gp_text_of(why.text), shown));
	enum gp_status status = add_tokens(t, root, err);
	json_decref(root);
	return status == GP_OK ? GP_OK : gp_err_prefix(err, "%s", path);
}

static enum gp_status find_bytes(struct gp_tokenizer *t, const char *folder, struct gp_err *err)
{
	struct bpe *b = t->self;
	for (int i = 0; i < BYTES; i++) {
		const char byte = (char)i;
		b->byte[i] = gp_vocabulary_find(&t->vocabulary, (struct gp_text){&byte, 1});
		if (b->byte[i] < 0)
			GP_FAIL(err, GP_INVALID,
				"%s/vocab.json has no token for the byte 0x%02x: this is no byte-level vocabulary",
				folder, (unsigned)i);
	}
	return GP_OK;
}

/* --- merges.txt ------------------------------------------------------------------------------------------------- */

static uint64_t cell_of(const struct bpe *b, int32_t left, int32_t right)
{
	const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	return (key * 0x9E3779B97F4A7C15u >> 20) & (b->cells - 1);
}

/* The cell of the pair, or the free one where it belongs. */
static struct merge *find_merge(const struct bpe *b, int32_t left, int32_t right)
{
	uint64_t at = cell_of(b, left, right);
	while (b->merge[at].left >= 0 && (b->merge[at].left != left || b->merge[at].right != right))
		at = (at + 1) & (b->cells - 1);
	return &b->merge[at];
}

/* The token of `written`, whose bytes follow those in bytes[0, *count). */
static int32_t token_of(const struct gp_tokenizer *t, const struct unwritten *u, struct gp_text written, char *bytes,
			size_t *count)
{
	size_t more;
	if (!written.len || !read_written(u, written, bytes + *count, &more))
		return -1;
	const int32_t token = gp_vocabulary_find(&t->vocabulary, (struct gp_text){bytes + *count, more});
	*count += more;
	return token;
}

static enum gp_status add_merge(struct gp_tokenizer *t, const struct unwritten *u, struct gp_text line, int32_t rank,
				struct gp_err *err)
{
	struct bpe *b = t->self;
	struct gp_text left, right = line;
	char bytes[LINE_MOST], shown[GP_SHOWN];
	size_t count = 0;
	if (line.len > LINE_MOST)
		GP_FAIL(err, GP_INVALID, "a line of more than %d bytes", LINE_MOST);
	if (!gp_text_cut(&right, ' ', &left) || !right.at || memchr(right.at, ' ', right.len))
		GP_FAIL(err, GP_INVALID, "'%s' is not two tokens with a space between", gp_text_shown(line, shown));
	const int32_t first = token_of(t, u, left, bytes, &count);
	const int32_t second = first < 0 ? -1 : token_of(t, u, right, bytes, &count);
	const int32_t joined = gp_vocabulary_find(&t->vocabulary, (struct gp_text){bytes, count});
	if (first < 0 || second < 0 || joined < 0)
		GP_FAIL(err, GP_INVALID, "%s of '%s' is no token of vocab.json: the two files do not belong together",
			first < 0    ? "the first"
			: second < 0 ? "the second"
				     : "what comes",
			gp_text_shown(line, shown));
	struct merge *m = find_merge(b, first, second);
	if (m->left >= 0)
		GP_FAIL(err, GP_INVALID, "'%s' occurs twice", gp_text_shown(line, shown));
	*m = (struct merge){first, second, rank, joined};
	return GP_OK;
}

static enum gp_status make_merges(struct bpe *b, struct gp_text text, struct gp_err *err)
{
	uint64_t lines = 1;
	for (size_t i = 0; i < text.len; i++)
		lines += text.at[i] == '\n';
	if (lines > GP_VOCABULARY_MAX)
		GP_FAIL(err, GP_INVALID, "%llu lines; at most %d are expected", (unsigned long long)lines,
			GP_VOCABULARY_MAX);
	for (b->cells = 16; b->cells < 2 * lines;)
		b->cells *= 2;
	void *p;
	GP_TRY(gp_alloc_array(&p, b->cells, sizeof *b->merge, err));
	b->merge = p;
	for (uint64_t i = 0; i < b->cells; i++)
		b->merge[i].left = -1;
	return GP_OK;
}

/* Such as <s> and [MASK]: no merge makes them. */
static bool looks_special(const char *shown)
{
	return shown[0] == '<' || shown[0] == '[';
}

/* How many tokens of several bytes no line makes, *first of them. `made`: by token. */
static int32_t count_unmade(const struct gp_vocabulary *v, const bool *made, int32_t *first)
{
	int32_t count = 0;
	for (int32_t i = v->count - 1; i >= 0; i--) {
		if (made[i] || gp_vocabulary_key(v, i).len < 2 || looks_special(gp_vocabulary_shown(v, i)))
			continue;
		*first = i;
		count++;
	}
	return count;
}

/* A training opens its tokenizer for each part of the data; the same is said once. */
static bool first_time(uint64_t tokenizer)
{
	static atomic_uint_least64_t last;
	return atomic_exchange(&last, tokenizer) != tokenizer;
}

/* Each token of several bytes is made by a merge, but for a few that fill up the table of RoBERTa. */
static enum gp_status warn_of_unmade(const struct gp_tokenizer *t, const char *path, struct gp_err *err)
{
	enum { FEW = 16 };
	const struct bpe *b = t->self;
	int32_t first = 0;
	char shown[GP_SHOWN];
	void *memory;
	GP_TRY(gp_alloc_array(&memory, (size_t)t->vocabulary.count, sizeof(bool), err));
	bool *made = memory;
	for (uint64_t i = 0; i < b->cells; i++)
		if (b->merge[i].left >= 0)
			made[b->merge[i].joined] = true;
	const int32_t unmade = count_unmade(&t->vocabulary, made, &first);
	gp_free(memory);
	if (unmade > FEW && first_time(gp_vocabulary_hash(&t->vocabulary) ^ (uint64_t)unmade))
		gp_log(data, GP_LOG_WARN,
		       "%s has no line that makes '%s', nor %d other tokens of vocab.json: is it cut off?", path,
		       gp_text_shown(gp_text_of(gp_vocabulary_shown(&t->vocabulary, first)), shown), unmade - 1);
	return GP_OK;
}

static enum gp_status add_merges(struct gp_tokenizer *t, const char *path, struct gp_text text, struct gp_err *err)
{
	const struct unwritten u = bytes_of_characters();
	struct gp_text line;
	int32_t line_number = 0;
	enum gp_status status = make_merges(t->self, text, err);
	if (status != GP_OK)
		return gp_err_prefix(err, "%s", path);
	while (gp_text_line(&text, &line)) {
		line_number++;
		if (line_number == 1 && line.len >= 8 && memcmp(line.at, "#version", 8) == 0)
			continue;
		if (add_merge(t, &u, line, line_number, err) != GP_OK)
			return gp_err_prefix(err, text.at ? "%s:%d" : "%s:%d, the last line, which has no end", path,
					     line_number);
	}
	return GP_OK;
}

static enum gp_status read_merges(struct gp_tokenizer *t, const char *folder, struct gp_err *err)
{
	char path[GP_TEXT_PATH], *text;
	size_t bytes;
	GP_TRY(gp_text_path(folder, "merges.txt", path, err));
	GP_TRY(gp_text_file_read(path, FILE_MOST, &text, &bytes, err));
	struct gp_text lines = {text, bytes};
	enum gp_status status = gp_text_check(path, &lines, err);
	if (status == GP_OK)
		status = add_merges(t, path, lines, err);
	if (status == GP_OK)
		status = warn_of_unmade(t, path, err);
	t->hash = XXH3_64bits_withSeed(lines.at, lines.len, gp_vocabulary_hash(&t->vocabulary));
	gp_free(text);
	return status;
}

/* --- opening ---------------------------------------------------------------------------------------------------- */

static enum gp_status compile_words(struct bpe *b, struct gp_err *err)
{
	int code;
	PCRE2_SIZE at;
	PCRE2_UCHAR why[128];
	b->words =
		pcre2_compile((PCRE2_SPTR)WORDS, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_ANCHORED, &code, &at, NULL);
	if (!b->words) {
		pcre2_get_error_message(code, why, sizeof why);
		GP_FAIL(err, GP_UNSUPPORTED, "this PCRE2 does not take the expression for words: %s",
			(const char *)why);
	}
	pcre2_jit_compile(b->words, PCRE2_JIT_COMPLETE); /* where it cannot, pcre2_match interprets */
	return GP_OK;
}

/* Texts get no space in front of them here, so that a model which was trained with one would read other tokens. */
static enum gp_status check_config(const char *folder, struct gp_err *err)
{
	struct gp_tokenizer_config c;
	bool space = false;
	GP_TRY(gp_tokenizer_config_read(folder, &c, err));
	enum gp_status status = gp_tokenizer_config_flag(&c, "add_prefix_space", &space, err);
	if (status == GP_OK && space)
		status =
			gp_err_set(err, GP_INVALID, 0, __FILE__, __LINE__,
				   "%s: \"add_prefix_space\" is true, but texts get no space in front of them here, so "
				   "that their tokens would be others",
				   c.path);
	gp_tokenizer_config_deinit(&c);
	return status;
}

static enum gp_status open_bpe(struct gp_tokenizer *t, const char *folder, struct gp_err *err)
{
	GP_TRY(gp_alloc_array(&t->self, 1, sizeof(struct bpe), err));
	GP_TRY(compile_words(t->self, err));
	GP_TRY(check_config(folder, err));
	GP_TRY(read_vocabulary(t, folder, err));
	GP_TRY(find_bytes(t, folder, err));
	return read_merges(t, folder, err);
}

static void close_bpe(struct gp_tokenizer *t)
{
	struct bpe *b = t->self;
	if (!b)
		return;
	pcre2_code_free(b->words);
	gp_free(b->merge);
	gp_free(b);
}

/* --- a word ----------------------------------------------------------------------------------------------------- */

/* A token of a word on its way to its last form. */
struct piece {
	int32_t token;          /* -1: joined to the one before */
	int32_t before, behind; /* neighbours, -1: none */
};

/* A pair that may be joined; out of date when one of its pieces has been joined since. */
struct pair {
	int32_t rank, at; /* the pair's first piece */
	int32_t left, right, joined;
};

struct scratch {
	pcre2_match_data *match;
	struct piece *piece;
	struct pair *heap;
	size_t room, pairs; /* pieces; there are at most two pairs for each */
};

static enum gp_status new_scratch(const struct gp_tokenizer *t, void **out, struct gp_err *err)
{
	const struct bpe *b = t->self;
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct scratch), err));
	struct scratch *s = p;
	s->match = pcre2_match_data_create_from_pattern(b->words, NULL);
	if (!s->match) {
		gp_free(s);
		GP_FAIL(err, GP_NOMEM, "out of memory for a tokenizer");
	}
	*out = s;
	return GP_OK;
}

static void free_scratch(void *scratch)
{
	struct scratch *s = scratch;
	pcre2_match_data_free(s->match);
	gp_free(s->piece);
	gp_free(s->heap);
	gp_free(s);
}

static enum gp_status reserve_pieces(struct scratch *s, size_t count, struct gp_err *err)
{
	if (count <= s->room)
		return GP_OK;
	const size_t room = count < 64 ? 64 : count;
	struct piece *piece = gp_realloc(s->piece, room, sizeof *piece);
	if (piece)
		s->piece = piece;
	struct pair *heap = gp_realloc(s->heap, 2 * room, sizeof *heap);
	if (heap)
		s->heap = heap;
	if (!piece || !heap)
		GP_FAIL(err, GP_NOMEM, "out of memory for a word of %zu bytes", count);
	s->room = room;
	return GP_OK;
}

/* The merge that merges.txt lists first, and of its places the leftmost. */
static bool goes_before(const struct pair *a, const struct pair *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push_pair(struct scratch *s, struct pair p)
{
	size_t i = s->pairs++;
	for (; i > 0 && goes_before(&p, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = p;
}

static struct pair pop_pair(struct scratch *s)
{
	const struct pair top = s->heap[0], last = s->heap[--s->pairs];
	size_t i = 0;
	for (size_t child; (child = 2 * i + 1) < s->pairs; i = child) {
		if (child + 1 < s->pairs && goes_before(&s->heap[child + 1], &s->heap[child]))
			child++;
		if (!goes_before(&s->heap[child], &last))
			break;
		s->heap[i] = s->heap[child];
	}
	s->heap[i] = last;
	return top;
}

/* The piece at `at` and the one behind it, if merges.txt lists them. */
static void consider(const struct bpe *b, struct scratch *s, int32_t at)
{
	if (at < 0 || s->piece[at].behind < 0)
		return;
	const int32_t left = s->piece[at].token, right = s->piece[s->piece[at].behind].token;
	const struct merge *m = find_merge(b, left, right);
	if (m->left >= 0)
		push_pair(s, (struct pair){m->rank, at, left, right, m->joined});
}

static void join(struct scratch *s, const struct pair *p)
{
	struct piece *left = &s->piece[p->at], *right = &s->piece[left->behind];
	left->token = p->joined;
	left->behind = right->behind;
	right->token = -1;
	if (left->behind >= 0)
		s->piece[left->behind].before = p->at;
}

static bool is_current(const struct scratch *s, const struct pair *p)
{
	const struct piece *left = &s->piece[p->at];
	return left->token == p->left && left->behind >= 0 && s->piece[left->behind].token == p->right;
}

static enum gp_status encode_word(const struct bpe *b, struct scratch *s, struct gp_text word,
				  struct gp_token_list *out, struct gp_err *err)
{
	const int32_t count = (int32_t)word.len;
	GP_TRY(reserve_pieces(s, word.len, err));
	GP_TRY(gp_token_list_reserve(out, word.len, err));
	s->pairs = 0;
	for (int32_t i = 0; i < count; i++)
		s->piece[i] = (struct piece){b->byte[(uint8_t)word.at[i]], i - 1, i + 1 < count ? i + 1 : -1};
	for (int32_t i = 0; i < count; i++)
		consider(b, s, i);
	while (s->pairs > 0) {
		const struct pair p = pop_pair(s);
		if (!is_current(s, &p))
			continue;
		join(s, &p);
		consider(b, s, s->piece[p.at].before);
		consider(b, s, p.at);
	}
	for (int32_t i = 0; i >= 0 && i < count; i = s->piece[i].behind)
		out->token[out->count++] = s->piece[i].token;
	return GP_OK;
}

/* --- a text ----------------------------------------------------------------------------------------------------- */

/* Every character belongs to a word, so the next one begins where the last one ended. */
static enum gp_status encode_text(const struct gp_tokenizer *t, void *scratch, struct gp_text text,
				  struct gp_token_list *out, struct gp_err *err)
{
	const struct bpe *b = t->self;
	struct scratch *s = scratch;
	for (size_t at = 0, end; at < text.len; at = end) {
		int found =
			pcre2_match(b->words, (PCRE2_SPTR)text.at, text.len, at, PCRE2_NO_UTF_CHECK, s->match, NULL);
		if (found < 0) /* the compiled form has less room than the interpreter */
			found = pcre2_match(b->words, (PCRE2_SPTR)text.at, text.len, at,
					    PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match, NULL);
		if (found < 0)
			GP_FAIL(err, GP_INVALID, "a text cannot be cut into words (PCRE2's error %d at byte %zu)",
				found, at);
		end = pcre2_get_ovector_pointer(s->match)[1];
		GP_TRY(encode_word(b, s, (struct gp_text){text.at + at, end - at}, out, err));
	}
	return GP_OK;
}

const struct gp_tokenizer_class gp_tokenizer_bpe = {
	.kind = "bpe",
	.file = "vocab.json",
	.special = {[GP_TOKEN_BEGIN] = "<s>",
		    [GP_TOKEN_SEPARATOR] = "</s>",
		    [GP_TOKEN_PAD] = "<pad>",
		    [GP_TOKEN_UNKNOWN] = "<unk>",
		    [GP_TOKEN_MASK] = "<mask>"},
	.double_separator = true,
	.open = open_bpe,
	.close = close_bpe,
	.scratch_new = new_scratch,
	.scratch_free = free_scratch,
	.encode = encode_text,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Token files. See token_file.h. Test: tests/unit/test_token_file.c
 */
#include "common/net/token_file.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "common/base/lines.h"

#define LINE_BYTES (GP_CLIENT_NAME_BYTES + GP_CLIENT_TOKEN_MAX + 256)

struct entry {
	char name[GP_CLIENT_NAME_BYTES];
	uint8_t sum[SHA256_DIGEST_LENGTH];
};

struct gp_token_file {
	struct entry *entry;
	size_t count, cap;
};

/* Splits a line into at most two words; returns how many there are (3: too many). Comments have none. */
static int split(char *line, char *word[2])
{
	static const char *const space = " \t\r\n";
	int n = 0;
	char *save = NULL;
	line[strcspn(line, "#")] = '\0';
	for (char *w = strtok_r(line, space, &save); w; w = strtok_r(NULL, space, &save)) {
		if (n == 2)
			return 3;
		word[n++] = w;
	}
	return n;
}

static bool is_printable(const char *s)
{
	for (; *s; s++)
		if (*s <= ' ' || *s > '~')
			return false;
	return true;
}

static enum gp_status check_token(const char *token, const char *path, int line, struct gp_err *err)
{
	const size_t len = strlen(token);
	if (len < GP_CLIENT_TOKEN_MIN)
		GP_FAIL(err, GP_INVALID, "%s:%d: the token has %zu characters, at least %d keep it from being guessed",
			path, line, len, GP_CLIENT_TOKEN_MIN);
	if (len > GP_CLIENT_TOKEN_MAX || !is_printable(token))
		GP_FAIL(err, GP_INVALID, "%s:%d: a token is up to %d printable ASCII characters", path, line,
			GP_CLIENT_TOKEN_MAX);
	return GP_OK;
}

static void hash(const void *data, size_t len, uint8_t sum[SHA256_DIGEST_LENGTH])
{
	SHA256(data, len, sum);
}

static enum gp_status add(struct gp_token_file *t, const char *name, const char *token, struct gp_err *err)
{
	if (t->count == t->cap) {
		const size_t cap = t->cap ? 2 * t->cap : 16;
		void *p = gp_realloc(t->entry, cap, sizeof *t->entry);
		if (!p)
			GP_FAIL(err, GP_NOMEM, "out of memory for %zu tokens", cap);
		t->entry = p;
		t->cap = cap;
	}
	struct entry *e = &t->entry[t->count++];
	snprintf(e->name, sizeof e->name, "%s", name);
	hash(token, strlen(token), e->sum);
	return GP_OK;
}

static enum gp_status take_line(struct gp_token_file *t, char *text, const char *path, int line, struct gp_err *err)
{
	char *word[2];
	const int words = split(text, word);
	if (words == 0)
		return GP_OK;
	if (words != 2)
		GP_FAIL(err, GP_INVALID, "%s:%d: a line is NAME TOKEN", path, line);
	if (strlen(word[0]) >= GP_CLIENT_NAME_BYTES || !is_printable(word[0]))
		GP_FAIL(err, GP_INVALID, "%s:%d: a name is up to %d printable ASCII characters", path, line,
			GP_CLIENT_NAME_BYTES - 1);
	if (t->count >= GP_CLIENT_TOKENS_MAX)
		GP_FAIL(err, GP_INVALID, "%s:%d: more than %d tokens", path, line, GP_CLIENT_TOKENS_MAX);
	GP_TRY(check_token(word[1], path, line, err));
	return add(t, word[0], word[1], err);
}

static enum gp_status read_all(struct gp_token_file *t, struct gp_lines *in, struct gp_err *err)
{
	char text[LINE_BYTES];
	bool more;
	enum gp_status status = gp_lines_next(in, text, sizeof text, &more, err);
	while (status == GP_OK && more) {
		status = take_line(t, text, in->path, in->line, err);
		if (status == GP_OK)
			status = gp_lines_next(in, text, sizeof text, &more, err);
	}
	OPENSSL_cleanse(text, sizeof text);
	if (status == GP_OK && t->count == 0)
		GP_FAIL(err, GP_INVALID, "%s: there is no token in it (lines of NAME TOKEN)", in->path);
	return status;
}

enum gp_status gp_token_file_load(const char *path, struct gp_token_file **out, struct gp_err *err)
{
	struct gp_token_file *t = NULL;
	struct gp_lines in;
	GP_TRY(gp_lines_open(&in, path, err));
	enum gp_status status = gp_alloc_array((void **)&t, 1, sizeof *t, err);
	if (status == GP_OK)
		status = read_all(t, &in, err);
	gp_lines_close(&in);
	if (status != GP_OK) {
		gp_token_file_free(t);
		return status;
	}
	*out = t;
	return GP_OK;
}

void gp_token_file_free(struct gp_token_file *t)
{
	if (!t)
		return;
	gp_free(t->entry);
	gp_free(t);
}

bool gp_token_file_find(const struct gp_token_file *t, struct gp_span token, char name[GP_CLIENT_NAME_BYTES])
{
	uint8_t sum[SHA256_DIGEST_LENGTH];
	const struct entry *found = NULL;
	if (token.len < GP_CLIENT_TOKEN_MIN || token.len > GP_CLIENT_TOKEN_MAX)
		return false;
	hash(token.data, token.len, sum);
	for (size_t i = 0; i < t->count; i++) /* all of them, whatever is found */
		if (CRYPTO_memcmp(sum, t->entry[i].sum, sizeof sum) == 0)
			found = &t->entry[i];
	if (!found)
		return false;
	memcpy(name, found->name, GP_CLIENT_NAME_BYTES);
	return true;
}

void gp_token_file_sum(struct gp_span token, uint8_t sum[GP_TOKEN_SUM_BYTES])
{
	hash(token.data, token.len, sum);
}

bool gp_token_file_holds(const struct gp_token_file *t, const uint8_t sum[GP_TOKEN_SUM_BYTES], const char *name)
{
	for (size_t i = 0; i < t->count; i++) /* the sum was right once: its time tells nobody anything */
		if (memcmp(sum, t->entry[i].sum, GP_TOKEN_SUM_BYTES) == 0 && strcmp(name, t->entry[i].name) == 0)
			return true;
	return false;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum gp_status gp_token_file_each_name(const struct gp_token_file *t, void (*each)(void *arg, const char *name),
				       void *arg, struct gp_err *err)
{
	const char **name = NULL;
	GP_TRY(gp_alloc_array((void **)&name, t->count, sizeof *name, err));
	for (size_t i = 0; i < t->count; i++)
		name[i] = t->entry[i].name;
	qsort(name, t->count, sizeof *name, by_name);
	for (size_t i = 0; i < t->count; i++)
		if (i == 0 || strcmp(name[i], name[i - 1]) != 0)
			each(arg, name[i]);
	gp_free(name);
	return GP_OK;
}

/* In the server's file, a client would take the first line's name and token for its own. */
static enum gp_status expect_no_other(struct gp_lines *in, struct gp_err *err)
{
	char text[LINE_BYTES], *word[2];
	bool more = true;
	enum gp_status status = GP_OK;
	while (status == GP_OK && more) {
		status = gp_lines_next(in, text, sizeof text, &more, err);
		if (status == GP_OK && more && split(text, word) == 2)
			status = gp_err_set(err, GP_INVALID, 0, __FILE__, __LINE__,
					    "%s:%d: a second line of NAME TOKEN: this is a server's file (--tokens of "
					    "gpserverd); a client's file holds its own token alone",
					    in->path, in->line);
	}
	OPENSSL_cleanse(text, sizeof text);
	return status;
}

enum gp_status gp_token_file_own(const char *path, char token[GP_CLIENT_TOKEN_MAX + 1], struct gp_err *err)
{
	char text[LINE_BYTES], *word[2];
	bool more = true;
	int words = 0;
	struct gp_lines in;
	GP_TRY(gp_lines_open(&in, path, err));
	enum gp_status status = GP_OK;
	while (status == GP_OK && more && words == 0) {
		status = gp_lines_next(&in, text, sizeof text, &more, err);
		if (status == GP_OK && more)
			words = split(text, word);
	}
	if (status == GP_OK && words == 2)
		status = expect_no_other(&in, err);
	gp_lines_close(&in);
	if (status == GP_OK && (words < 1 || words > 2))
		status = gp_err_set(err, GP_INVALID, 0, __FILE__, __LINE__,
				    words ? "%s: a line is TOKEN or NAME TOKEN" : "%s: there is no token in it", path);
	if (status == GP_OK)
		status = check_token(word[words - 1], path, in.line, err);
	if (status == GP_OK)
		snprintf(token, GP_CLIENT_TOKEN_MAX + 1, "%s", word[words - 1]);
	OPENSSL_cleanse(text, sizeof text);
	return status;
}

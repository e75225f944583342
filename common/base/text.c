/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of text. See text.h. Test: tests/unit/test_text.c
 */
#include "common/base/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/plain_text.h"

enum { WORD_LIMIT = 64 }; /* longer words are not compared */

struct gp_text gp_text_of(const char *text)
{
	return (struct gp_text){text, strlen(text)};
}

bool gp_text_is(struct gp_text t, const char *word)
{
	return strlen(word) == t.len && memcmp(word, t.at, t.len) == 0;
}

bool gp_text_same(struct gp_text a, struct gp_text b)
{
	return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

bool gp_text_cut(struct gp_text *rest, char separator, struct gp_text *out)
{
	if (!rest->at)
		return false;
	const char *end = memchr(rest->at, separator, rest->len);
	*out = (struct gp_text){rest->at, end ? (size_t)(end - rest->at) : rest->len};
	*rest = end ? (struct gp_text){end + 1, rest->len - out->len - 1} : (struct gp_text){NULL, 0};
	return true;
}

bool gp_text_copy(struct gp_text t, char *out, size_t size)
{
	const bool fits = t.len < size;
	if (fits && t.len)
		memcpy(out, t.at, t.len);
	out[fits ? t.len : 0] = '\0';
	return fits;
}

void gp_text_append(char *text, size_t size, const char *fmt, ...)
{
	const size_t used = strlen(text);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text + used, size - used, fmt, ap);
	va_end(ap);
}

/* How many bytes of a text are shown, whose last character is not cut through. */
static size_t shown_bytes(struct gp_text t)
{
	enum { KEEP = 60, FOLLOWING_MOST = 3 };
	if (t.len <= KEEP)
		return t.len;
	size_t kept = KEEP;
	while (kept > KEEP - FOLLOWING_MOST && ((unsigned char)t.at[kept] & 0xC0) == 0x80)
		kept--;
	return kept;
}

const char *gp_text_shown(struct gp_text t, char out[GP_SHOWN])
{
	const size_t kept = shown_bytes(t);
	if (kept)
		memcpy(out, t.at, kept);
	out[kept] = '\0';
	for (size_t i = 0, bytes; i < kept; i += bytes) {
		bytes = gp_utf8_character(out + i);
		/* U+0080 to U+009F: some terminals obey them. */
		if (bytes == 2 && (unsigned char)out[i] == 0xc2 && (unsigned char)out[i + 1] < 0xa0)
			out[i] = out[i + 1] = '?';
		if (bytes > 1)
			continue;
		if (bytes == 0 || iscntrl((unsigned char)out[i]))
			out[i] = '?';
		bytes = 1;
	}
	strcpy(out + kept, t.len > kept ? "..." : "");
	return out;
}

bool gp_text_is_printable(const char *text)
{
	for (; *text; text++) {
		const unsigned char c = (unsigned char)text[0], next = (unsigned char)text[1];
		if (c < 0x20 || c == 0x7f || (c == 0xc2 && next >= 0x80 && next < 0xa0))
			return false;
	}
	return true;
}

size_t gp_json_marks(struct gp_text t)
{
	size_t marks = 0;
	bool quoted = false;
	for (size_t i = 0; i < t.len; i++) {
		const char c = t.at[i];
		if (c == '"')
			quoted = !quoted;
		else if (quoted)
			i += c == '\\';
		else
			marks += c == ',' || c == ':' || c == '[' || c == '{';
	}
	return marks;
}

int gp_choice_index(const char *choices, struct gp_text t)
{
	struct gp_text choice, rest = gp_text_of(choices);
	for (int i = 0; gp_text_cut(&rest, '|', &choice); i++)
		if (choice.len == t.len && memcmp(choice.at, t.at, t.len) == 0)
			return i;
	return -1;
}

static int min3(int a, int b, int c)
{
	const int m = a < b ? a : b;
	return m < c ? m : c;
}

static bool same_letter(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Slips from a to b, letters of either case alike (Damerau and Levenshtein, with neighbours swapped at most once); both
 * shorter than WORD_LIMIT. */
static int slips(const char *a, const char *b)
{
	int rows[3][WORD_LIMIT + 1];
	int *before = rows[0], *last = rows[1], *now = rows[2];
	const int la = (int)strlen(a), lb = (int)strlen(b);
	for (int j = 0; j <= lb; j++)
		last[j] = j;
	for (int i = 1; i <= la; i++) {
		now[0] = i;
		for (int j = 1; j <= lb; j++) {
			now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + !same_letter(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]) &&
			    before[j - 2] + 1 < now[j])
				now[j] = before[j - 2] + 1;
		}
		int *spare = before;
		before = last;
		last = now;
		now = spare;
	}
	return last[lb];
}

/* An unfinished word counts as one slip. */
static int distance(const char *text, const char *name)
{
	const size_t len = strlen(text);
	if (strlen(name) >= WORD_LIMIT)
		return WORD_LIMIT;
	if (strcasecmp(text, name) == 0)
		return 0;
	return len >= 2 && strncasecmp(text, name, len) == 0 ? 1 : slips(text, name);
}

const char *gp_nearest_name(const char *text, const char *const *names, int count)
{
	const size_t len = strlen(text);
	if (len < 2 || len >= WORD_LIMIT)
		return NULL;
	const char *best = NULL;
	int allowed = len < 6 ? 1 : (int)len / 3; /* farther is a guess, not help */
	for (int i = 0; i < count; i++) {
		const int d = distance(text, names[i]);
		if (d <= allowed) {
			best = names[i];
			allowed = d - 1;
		}
	}
	return best;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a page is well-formed, as XML without names for characters: every element is closed, in order, attributes
 * have quotes, and nothing in a text or an attribute could be taken for markup. Stricter than browsers are.
 */
#ifndef TESTS_WELL_FORMED_H
#define TESTS_WELL_FORMED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define WELL_FORMED_DEPTH 64

struct well_formed {
	const char *at, *end;
	const char *why; /* what is wrong at `at`; NULL: nothing */
	struct {
		const char *name;
		size_t length;
	} open[WELL_FORMED_DEPTH];
	int depth;
};

static bool page_begins(const struct well_formed *w, const char *text)
{
	const size_t length = strlen(text);
	return (size_t)(w->end - w->at) >= length && memcmp(w->at, text, length) == 0;
}

static bool page_is_wrong(struct well_formed *w, const char *why)
{
	w->why = w->why ? w->why : why;
	return false;
}

static bool page_skip_past(struct well_formed *w, const char *text)
{
	while (w->at < w->end && !page_begins(w, text))
		w->at++;
	if (w->at == w->end)
		return page_is_wrong(w, "the end is missing");
	w->at += strlen(text);
	return true;
}

static bool page_is_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

/* One character of a text. */
static bool page_character(struct well_formed *w)
{
	static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
	const unsigned char c = (unsigned char)*w->at;
	if (c == '&') {
		for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++)
			if (page_begins(w, entities[i])) {
				w->at += strlen(entities[i]);
				return true;
			}
		return page_is_wrong(w, "an & by itself");
	}
	if (c == '<' || (c < 0x20 && c != '\n' && c != '\t'))
		return page_is_wrong(w, "a character that is not to be in a text");
	w->at++;
	return true;
}

static bool page_attribute(struct well_formed *w)
{
	const char *begin = w->at;
	while (w->at < w->end && page_is_name(*w->at))
		w->at++;
	if (w->at == begin || !page_begins(w, "=\""))
		return page_is_wrong(w, "an attribute without quotes");
	w->at += 2;
	while (w->at < w->end && *w->at != '"')
		if (!page_character(w))
			return false;
	if (w->at == w->end)
		return page_is_wrong(w, "an attribute without its end");
	w->at++;
	return true;
}

static bool page_close(struct well_formed *w, const char *name, size_t length)
{
	if (w->depth == 0 || w->open[w->depth - 1].length != length ||
	    memcmp(w->open[w->depth - 1].name, name, length) != 0 || w->at == w->end || *w->at != '>')
		return page_is_wrong(w, "an element that is not open is closed");
	w->depth--;
	w->at++;
	return true;
}

static bool page_tag(struct well_formed *w)
{
	const bool closes = page_begins(w, "</");
	w->at += closes ? 2 : 1;
	const char *name = w->at;
	while (w->at < w->end && page_is_name(*w->at))
		w->at++;
	const size_t length = (size_t)(w->at - name);
	if (length == 0)
		return page_is_wrong(w, "a < by itself");
	if (closes)
		return page_close(w, name, length);
	while (w->at < w->end && *w->at == ' ') {
		w->at++;
		if (!page_attribute(w))
			return false;
	}
	if (page_begins(w, "/>")) {
		w->at += 2;
		return true;
	}
	if (w->at == w->end || *w->at != '>' || w->depth == WELL_FORMED_DEPTH)
		return page_is_wrong(w, "an element that does not end, or lies too deep");
	w->at++;
	w->open[w->depth].name = name;
	w->open[w->depth++].length = length;
	return true;
}

/* NULL, or what is wrong, and where. */
static const char *page_fault(const char *text, size_t length, size_t *where)
{
	struct well_formed w = {.at = text, .end = text + length};
	bool fine = page_begins(&w, "<!DOCTYPE html>") || page_is_wrong(&w, "no document type");
	fine = fine && page_skip_past(&w, ">");
	while (fine && w.at < w.end) {
		if (page_begins(&w, "<![CDATA["))
			fine = page_skip_past(&w, "]]>");
		else if (*w.at == '<')
			fine = page_tag(&w);
		else
			fine = page_character(&w);
	}
	if (fine && w.depth > 0)
		w.why = "an element is left open";
	*where = (size_t)(w.at - text);
	return w.why;
}

#endif

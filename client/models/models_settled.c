/* SPDX-License-Identifier: Apache-2.0
 *
 * Settled texts of models (models.h): what two of them differ in, and whether it
 * matters for weights. They are made by models.c. A text may come from a file:
 * whatever it holds, nothing is read beyond its end.
 * Test: tests/unit/test_models.c
 */
#include "client/models/models.h"

#include <string.h>

#include "common/base/text.h"

/* Pieces that are empty may have no place. */
static bool same_text(struct gp_text a, struct gp_text b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

static bool is_listed(struct gp_text key, const char *const *names, int count)
{
	for (int i = 0; i < count; i++)
		if (gp_text_is(key, names[i]))
			return true;
	return false;
}

/* The value of `key` in NAME:key=value,...; false: it is not there. */
static bool find_pair(const char *spec, struct gp_text key, struct gp_text *value)
{
	const char *colon = strchr(spec, ':');
	struct gp_text rest = gp_text_of(colon ? colon + 1 : ""), pair, name;
	while (gp_text_cut(&rest, ',', &pair)) {
		gp_text_cut(&pair, '=', &name);
		if (!same_text(name, key))
			continue;
		*value = pair;
		return true;
	}
	return false;
}

bool gp_model_guesses_words(const char *spec)
{
	struct gp_text value;
	return find_pair(spec, gp_text_of("lm"), &value) && gp_text_is(value, "1");
}

static void note_difference(struct gp_model_difference *d, struct gp_text key)
{
	static const char *const harmless[] = {"cuts", "dropout", "attention_dropout", "tokens"};
	const size_t n = strlen(d->decisive);
	if (gp_text_is(key, "classes") || gp_text_is(key, "lm"))
		d->classes = true;
	else if (!is_listed(key, harmless, sizeof harmless / sizeof harmless[0]))
		snprintf(d->decisive + n, sizeof d->decisive - n, "%s%.*s", n ? ", " : "", (int)key.len, key.at);
}

/* Keys of `spec` that `other` has otherwise, or, with `missing`, only those that it has not at all. */
static void compare_pairs(const char *spec, const char *other, bool missing, struct gp_model_difference *d)
{
	const char *colon = strchr(spec, ':');
	struct gp_text rest = gp_text_of(colon ? colon + 1 : ""), pair, name, value;
	while (gp_text_cut(&rest, ',', &pair)) {
		gp_text_cut(&pair, '=', &name);
		const bool has = find_pair(other, name, &value);
		const bool same = has && same_text(value, pair);
		if (name.len > 0 && (missing ? !has : !same))
			note_difference(d, name);
	}
}

void gp_model_compare(const char *settled, const char *other, struct gp_model_difference *out)
{
	const size_t name = strcspn(settled, ":");
	*out = (struct gp_model_difference){.classes = false};
	if (name != strcspn(other, ":") || strncmp(settled, other, name) != 0) {
		snprintf(out->decisive, sizeof out->decisive, "the kind of model");
		return;
	}
	compare_pairs(settled, other, false, out);
	compare_pairs(other, settled, true, out);
}

void gp_model_spec_drop(char *spec, const char *key)
{
	const size_t len = strlen(key);
	char *colon = strchr(spec, ':');
	for (char *at = colon; at && *at; at = strchr(at + 1, ',')) {
		if (strncmp(at + 1, key, len) != 0 || at[1 + len] != '=')
			continue;
		char *end = at + 1 + strcspn(at + 1, ",");
		if (at == colon && *end)
			at++, end++; /* the colon stays before the next pair */
		memmove(at, end, strlen(end) + 1);
		return;
	}
}

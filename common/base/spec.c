/* SPDX-License-Identifier: Apache-2.0
 *
 * NAME[:ARG][,]key=value,... See spec.h. Test: tests/unit/test_spec.c
 */
#include "common/base/spec.h"

#include <string.h>

enum { LIST_ROOM = 240 };

void gp_spec_begin(struct gp_spec *s, struct gp_text text)
{
	*s = (struct gp_spec){.name = text, .rest = {text.at + text.len, 0}};
	for (size_t i = 0; i < text.len; i++)
		if (text.at[i] == ':' || text.at[i] == ',') {
			s->name.len = i;
			s->rest = (struct gp_text){text.at + i, text.len - i};
			return;
		}
}

enum gp_status gp_spec_unknown(const struct gp_spec *s, const char *what, const char *const *names, int count,
			       struct gp_err *err)
{
	char word[GP_SHOWN], list[LIST_ROOM] = "";
	for (int i = 0; i < count; i++)
		gp_text_append(list, sizeof list, "%s%s", i ? ", " : "", names[i]);
	const char *near = gp_nearest_name(gp_text_shown(s->name, word), names, count);
	if (near)
		GP_FAIL(err, GP_USAGE, "no %s is named '%s'; did you mean '%s'? There are: %s", what, word, near, list);
	GP_FAIL(err, GP_USAGE, "no %s is named '%s'; there are: %s", what, word, list);
}

/* Keys that are listed without a value ("a=1,switch") may be given without one, for 1. */
static bool is_bare_key(const struct gp_spec *s, struct gp_text text)
{
	struct gp_text rest = gp_text_of(s->keys), key;
	while (gp_text_cut(&rest, ',', &key))
		if (text.len && gp_text_same(key, text) && !memchr(text.at, '=', text.len))
			return true;
	return false;
}

static enum gp_status add_pair(struct gp_spec *s, struct gp_text text, struct gp_err *err)
{
	struct gp_text key, value = text;
	char shown[GP_SHOWN];
	if (is_bare_key(s, text)) {
		key = text;
		value = gp_text_of("1");
	} else if (!gp_text_cut(&value, '=', &key) || !value.at || !key.len) {
		gp_text_shown(text, shown);
		if (!*s->keys)
			GP_FAIL(err, GP_USAGE, "%s: '%s' cannot follow; it has no keys", s->where, shown);
		GP_FAIL(err, GP_USAGE, "%s: '%s' is not key=value (keys: %s)", s->where, shown, s->keys);
	}
	for (int i = 0; i < s->pairs; i++)
		if (gp_text_same(s->pair[i].key, key))
			GP_FAIL(err, GP_USAGE, "%s: key '%s' is given twice", s->where, gp_text_shown(key, shown));
	if (s->pairs == GP_SPEC_PAIRS)
		GP_FAIL(err, GP_USAGE, "%s: more than %d keys are given", s->where, GP_SPEC_PAIRS);
	s->pair[s->pairs].key = key;
	s->pair[s->pairs++].value = value;
	return GP_OK;
}

static bool is_argument(enum gp_spec_arg arg, struct gp_text text)
{
	if (arg == GP_SPEC_ARG_OPTIONAL)
		return !text.len || !memchr(text.at, '=', text.len) || memchr(text.at, '/', text.len);
	return arg == GP_SPEC_ARG_NEEDED;
}

enum gp_status gp_spec_pairs(struct gp_spec *s, const char *where, enum gp_spec_arg arg, const char *keys,
			     struct gp_err *err)
{
	snprintf(s->where, sizeof s->where, "%s", where);
	s->keys = keys;
	if (!s->rest.len)
		return GP_OK;
	bool first = s->rest.at[0] == ':';
	struct gp_text piece, rest = {s->rest.at + 1, s->rest.len - 1};
	for (; gp_text_cut(&rest, ',', &piece); first = false)
		if (first && is_argument(arg, piece))
			s->arg = piece;
		else
			GP_TRY(add_pair(s, piece, err));
	return GP_OK;
}

static bool was_asked(const struct gp_spec *s, struct gp_text key)
{
	for (int i = 0; i < s->asked; i++)
		if (gp_text_is(key, s->ask[i]))
			return true;
	return false;
}

bool gp_spec_given(struct gp_spec *s, const char *key, struct gp_text *value)
{
	if (!was_asked(s, gp_text_of(key))) {
		gp_require(s->asked < GP_SPEC_PAIRS);
		s->ask[s->asked++] = key;
	}
	for (int i = 0; i < s->pairs; i++)
		if (gp_text_is(s->pair[i].key, key)) {
			*value = s->pair[i].value;
			return true;
		}
	return false;
}

enum gp_status gp_spec_value(struct gp_spec *s, const char *key, const struct gp_value_form *form, union gp_value *out,
			     struct gp_err *err)
{
	struct gp_text text;
	char why[GP_VALUE_WHY];
	if (gp_spec_given(s, key, &text) && !gp_value_parse(form, text, out, why))
		GP_FAIL(err, GP_USAGE, "%s: %s: %s", s->where, key, why);
	return GP_OK;
}

enum gp_status gp_spec_int(struct gp_spec *s, const char *key, int64_t min, int64_t max, int64_t *out,
			   struct gp_err *err)
{
	const struct gp_value_form form = {.type = GP_VALUE_INT, .min = (double)min, .max = (double)max};
	union gp_value v = {.whole = *out};
	GP_TRY(gp_spec_value(s, key, &form, &v, err));
	*out = v.whole;
	return GP_OK;
}

enum gp_status gp_spec_real(struct gp_spec *s, const char *key, double min, double max, double *out, struct gp_err *err)
{
	const struct gp_value_form form = {.type = GP_VALUE_REAL, .min = min, .max = max};
	union gp_value v = {.real = *out};
	GP_TRY(gp_spec_value(s, key, &form, &v, err));
	*out = v.real;
	return GP_OK;
}

enum gp_status gp_spec_bool(struct gp_spec *s, const char *key, bool *out, struct gp_err *err)
{
	union gp_value v = {.yes = *out};
	GP_TRY(gp_spec_value(s, key, &(struct gp_value_form){.type = GP_VALUE_BOOL}, &v, err));
	*out = v.yes;
	return GP_OK;
}

enum gp_status gp_spec_choice(struct gp_spec *s, const char *key, const char *choices, int *out, struct gp_err *err)
{
	union gp_value v = {.choice = *out};
	GP_TRY(gp_spec_value(s, key, &(struct gp_value_form){.type = GP_VALUE_CHOICE, .choices = choices}, &v, err));
	*out = v.choice;
	return GP_OK;
}

enum gp_status gp_spec_refuse(const struct gp_spec *s, const char *key, struct gp_text value, const char *wanted,
			      struct gp_err *err)
{
	char shown[GP_SHOWN];
	GP_FAIL(err, GP_USAGE, "%s: %s: '%s' is not %s", s->where, key, gp_text_shown(value, shown), wanted);
}

enum gp_status gp_spec_done(const struct gp_spec *s, struct gp_err *err)
{
	char shown[GP_SHOWN];
	int i = 0;
	while (i < s->pairs && was_asked(s, s->pair[i].key))
		i++;
	if (i == s->pairs)
		return GP_OK;
	const char *near = gp_nearest_name(gp_text_shown(s->pair[i].key, shown), s->ask, s->asked);
	if (near)
		GP_FAIL(err, GP_USAGE, "%s: no key '%s'; did you mean '%s'? (keys: %s)", s->where, shown, near,
			s->keys);
	if (!*s->keys)
		GP_FAIL(err, GP_USAGE, "%s: no key '%s'; it has no keys", s->where, shown);
	GP_FAIL(err, GP_USAGE, "%s: no key '%s' (keys: %s)", s->where, shown, s->keys);
}

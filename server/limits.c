/* SPDX-License-Identifier: Apache-2.0
 *
 * See limits.h. Test: tests/unit/test_limits.c; fuzz: tests/fuzz/fuzz_limits.c
 */
#include "server/limits.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "common/base/lines.h"
#include "common/base/spec.h"

#define LINE_BYTES 1024
#define KEYS                                                                                                           \
	"sessions=N,memory=BYTES,device-memory=BYTES,checkpoints=BYTES,runs=N,links=N-per-minute,"                     \
	"measures=N-per-minute,share=N; 'any' is no limit"
#define DEFAULT   "default"
#define ANONYMOUS "anonymous"

static const struct key {
	const char *name;
	size_t offset; /* in struct gp_limits */
	struct gp_value_form form;
} keys[] = {
	{"sessions", offsetof(struct gp_limits, sessions), {.type = GP_VALUE_INT, .min = 0, .max = 100000}},
	{"memory", offsetof(struct gp_limits, memory_bytes), {.type = GP_VALUE_SIZE, .min = 0, .max = 0x1p50}},
	{"device-memory", offsetof(struct gp_limits, device_bytes), {.type = GP_VALUE_SIZE, .min = 0, .max = 0x1p50}},
	{"checkpoints", offsetof(struct gp_limits, checkpoint_bytes), {.type = GP_VALUE_SIZE, .min = 0, .max = 0x1p50}},
	{"runs", offsetof(struct gp_limits, runs), {.type = GP_VALUE_INT, .min = 0, .max = 1000}},
	{"links", offsetof(struct gp_limits, links), {.type = GP_VALUE_INT, .min = 1, .max = 1000000}},
	{"measures", offsetof(struct gp_limits, measures), {.type = GP_VALUE_INT, .min = 0, .max = 1000000}},
	{"share", offsetof(struct gp_limits, device_share), {.type = GP_VALUE_REAL, .min = 0.01, .max = 1000}},
};

enum { KEY_COUNT = sizeof keys / sizeof keys[0] };

struct entry {
	char name[GP_SERVER_WHO_BYTES];
	struct gp_limits limits;
	unsigned given; /* bit i: the line has keys[i] */
	int line;
};

struct entries {
	struct entry *entry;
	size_t count, cap;
};

struct gp_limits_table {
	struct gp_limits fallback; /* of who has no line */
	struct entry anonymous;    /* line 0: there is none */
	struct entries exact;      /* sorted by name */
	struct entries pattern;    /* in the order of the file */
};

/* --- a line ------------------------------------------------------------------------------------------------------ */

/* '#' begins a comment at the start of a line or behind a blank: the names of certificates may hold one. */
static void cut_comment(char *text)
{
	for (char *c = text; *c; c++)
		if (*c == '#' && (c == text || isspace((unsigned char)c[-1])))
			*c = '\0';
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* What follows the name: pairs with blanks or commas between become those of a spec without a name. */
static void join_pairs(const char *pairs, char spec[LINE_BYTES + 1])
{
	size_t n = 0;
	spec[n++] = ':';
	for (const char *c = pairs; *c; c++)
		if (!is_space(*c))
			spec[n++] = *c;
		else if (spec[n - 1] != ',' && spec[n - 1] != ':')
			spec[n++] = ',';
	while (n > 1 && spec[n - 1] == ',')
		n--;
	spec[n] = '\0';
}

static void store(const struct key *k, const union gp_value *v, struct gp_limits *l)
{
	char *at = (char *)l + k->offset;
	const uint64_t whole = (uint64_t)v->whole;
	if (k->form.type == GP_VALUE_REAL)
		memcpy(at, &v->real, sizeof v->real);
	else
		memcpy(at, &whole, sizeof whole);
}

static bool lifts(const struct key *k, struct gp_text value)
{
	return k->form.type != GP_VALUE_REAL && gp_text_is(value, "any");
}

static enum gp_status read_key(struct gp_spec *s, int i, struct entry *e, struct gp_err *err)
{
	union gp_value v = {0};
	struct gp_text text;
	if (!gp_spec_given(s, keys[i].name, &text))
		return GP_OK;
	e->given |= 1u << i;
	if (lifts(&keys[i], text)) {
		v.whole = -1; /* GP_LIMITS_ANY */
		store(&keys[i], &v, &e->limits);
		return GP_OK;
	}
	GP_TRY(gp_spec_value(s, keys[i].name, &keys[i].form, &v, err));
	store(&keys[i], &v, &e->limits);
	return GP_OK;
}

static enum gp_status read_pairs(const char *pairs, struct entry *e, struct gp_err *err)
{
	char spec[LINE_BYTES + 1];
	struct gp_spec s;
	join_pairs(pairs, spec);
	if (!spec[1])
		GP_FAIL(err, GP_INVALID, "%.60s: what may it take? (%s)", e->name, KEYS);
	gp_spec_begin(&s, gp_text_of(spec));
	enum gp_status status = gp_spec_pairs(&s, e->name, GP_SPEC_NO_ARG, KEYS, err);
	for (int i = 0; i < KEY_COUNT && status == GP_OK; i++)
		status = read_key(&s, i, e, err);
	return status == GP_OK ? gp_spec_done(&s, err) : status;
}

static bool is_printable(const char *s)
{
	for (; *s; s++)
		if (*s <= ' ' || *s > '~')
			return false;
	return true;
}

static enum gp_status read_name(const char *word, struct entry *e, struct gp_err *err)
{
	char shown[GP_SHOWN];
	gp_text_shown(gp_text_of(word), shown);
	if (strlen(word) >= sizeof e->name || !is_printable(word))
		GP_FAIL(err, GP_INVALID, "a name is up to %d printable ASCII characters", GP_SERVER_WHO_BYTES - 1);
	if (strcmp(word, "*") == 0)
		GP_FAIL(err, GP_INVALID, "'*': the line of who has no other is called '" DEFAULT "'");
	if (strcmp(word, DEFAULT) != 0 && strcmp(word, ANONYMOUS) != 0 && strncmp(word, "token:", 6) != 0 &&
	    strncmp(word, "cert:", 5) != 0)
		GP_FAIL(err, GP_INVALID,
			"'%s' is no client's name: those begin with token: or cert:, as the log has them ('" DEFAULT
			"' and '" ANONYMOUS "' are the others)",
			shown);
	snprintf(e->name, sizeof e->name, "%s", word);
	return GP_OK;
}

/* --- the table --------------------------------------------------------------------------------------------------- */

static enum gp_status append(struct entries *to, const struct entry *e, size_t most, const char *what,
			     struct gp_err *err)
{
	if (to->count >= most)
		GP_FAIL(err, GP_INVALID, "more than %zu %s", most, what);
	if (to->count == to->cap) {
		const size_t cap = to->cap ? 2 * to->cap : 16;
		void *p = gp_realloc(to->entry, cap, sizeof *to->entry);
		if (!p)
			GP_FAIL(err, GP_NOMEM, "out of memory for %zu limits", cap);
		to->entry = p;
		to->cap = cap;
	}
	to->entry[to->count++] = *e;
	return GP_OK;
}

static enum gp_status say_twice(const struct entry *e, int before, struct gp_err *err)
{
	GP_FAIL(err, GP_INVALID, "%.60s has a line already, %d", e->name, before);
}

static enum gp_status set_once(struct entry *at, const struct entry *e, struct gp_err *err)
{
	if (at->line)
		return say_twice(e, at->line, err);
	*at = *e;
	return GP_OK;
}

static enum gp_status add_pattern(struct gp_limits_table *t, const struct entry *e, struct gp_err *err)
{
	for (size_t i = 0; i < t->pattern.count; i++)
		if (strcmp(t->pattern.entry[i].name, e->name) == 0)
			return say_twice(e, t->pattern.entry[i].line, err);
	return append(&t->pattern, e, GP_LIMITS_PATTERNS_MAX, "names with a '*'", err);
}

struct reading {
	struct gp_limits_table *t;
	struct entry rest; /* the line "default" */
	int entries;
};

static enum gp_status add(struct reading *r, const struct entry *e, struct gp_err *err)
{
	r->entries++;
	if (strcmp(e->name, DEFAULT) == 0)
		return set_once(&r->rest, e, err);
	if (strcmp(e->name, ANONYMOUS) == 0)
		return set_once(&r->t->anonymous, e, err);
	if (strchr(e->name, '*'))
		return add_pattern(r->t, e, err);
	return append(&r->t->exact, e, GP_LIMITS_NAMES_MAX, "names", err);
}

static enum gp_status take_line(struct reading *r, char *text, int line, struct gp_err *err)
{
	struct entry e = {.line = line};
	cut_comment(text);
	char *name = text;
	while (is_space(*name))
		name++;
	if (!*name)
		return GP_OK;
	char *pairs = name;
	while (*pairs && !is_space(*pairs))
		pairs++;
	if (*pairs)
		*pairs++ = '\0';
	GP_TRY(read_name(name, &e, err));
	GP_TRY(read_pairs(pairs, &e, err));
	return add(r, &e, err);
}

static enum gp_status read_lines(struct reading *r, struct gp_lines *in, struct gp_err *err)
{
	char text[LINE_BYTES];
	bool more = true;
	while (more) {
		GP_TRY(gp_lines_next(in, text, sizeof text, &more, err));
		if (more && take_line(r, text, in->line, err) != GP_OK) {
			gp_err_prefix(err, "%s:%d", in->path, in->line);
			err->code = err->code == GP_USAGE ? GP_INVALID : err->code;
			return err->code;
		}
	}
	if (r->entries == 0)
		GP_FAIL(err, GP_INVALID, "%s: there is no limit in it (lines of NAME key=value ...)", in->path);
	return GP_OK;
}

/* --- after the last line ----------------------------------------------------------------------------------------- */

static void inherit(struct entry *e, const struct gp_limits *from)
{
	for (int i = 0; i < KEY_COUNT; i++)
		if (!(e->given & 1u << i))
			memcpy((char *)&e->limits + keys[i].offset, (const char *)from + keys[i].offset,
			       sizeof(uint64_t));
}

static int by_name(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	const int order = strcmp(x->name, y->name);
	return order ? order : x->line - y->line;
}

static enum gp_status check_once(const struct entries *of, const char *path, struct gp_err *err)
{
	for (size_t i = 1; i < of->count; i++)
		if (strcmp(of->entry[i].name, of->entry[i - 1].name) == 0) {
			say_twice(&of->entry[i], of->entry[i - 1].line, err);
			return gp_err_prefix(err, "%s:%d", path, of->entry[i].line);
		}
	return GP_OK;
}

static enum gp_status finish(struct reading *r, const char *path, struct gp_err *err)
{
	struct gp_limits_table *t = r->t;
	inherit(&r->rest, &t->fallback);
	t->fallback = r->rest.limits;
	inherit(&t->anonymous, &t->fallback);
	for (size_t i = 0; i < t->exact.count; i++)
		inherit(&t->exact.entry[i], &t->fallback);
	for (size_t i = 0; i < t->pattern.count; i++)
		inherit(&t->pattern.entry[i], &t->fallback);
	if (t->exact.count > 0)
		qsort(t->exact.entry, t->exact.count, sizeof *t->exact.entry, by_name);
	return check_once(&t->exact, path, err);
}

static enum gp_status read_file(struct gp_limits_table *t, const char *path, struct gp_err *err)
{
	struct reading r = {.t = t};
	struct gp_lines in;
	GP_TRY(gp_lines_open(&in, path, err));
	enum gp_status status = read_lines(&r, &in, err);
	gp_lines_close(&in);
	return status == GP_OK ? finish(&r, path, err) : status;
}

enum gp_status gp_limits_load(const char *path, const struct gp_limits *base, struct gp_limits_table **out,
			      struct gp_err *err)
{
	struct gp_limits_table *t = NULL;
	GP_TRY(gp_alloc_array((void **)&t, 1, sizeof *t, err));
	t->fallback = t->anonymous.limits = *base;
	enum gp_status status = path ? read_file(t, path, err) : GP_OK;
	if (status != GP_OK) {
		gp_limits_free(t);
		return status;
	}
	*out = t;
	return GP_OK;
}

void gp_limits_free(struct gp_limits_table *t)
{
	if (!t)
		return;
	gp_free(t->exact.entry);
	gp_free(t->pattern.entry);
	gp_free(t);
}

/* --- looking up -------------------------------------------------------------------------------------------------- */

/* Where it does not go on, the last star takes one character more. */
static bool fits(const char *pattern, const char *text)
{
	const char *star = NULL, *from = NULL;
	while (*text) {
		if (*pattern == '*') {
			star = ++pattern;
			from = text;
		} else if (*pattern == *text) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star;
			text = ++from;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

static int compare_name(const void *who, const void *entry)
{
	return strcmp(who, ((const struct entry *)entry)->name);
}

const struct gp_limits *gp_limits_find(const struct gp_limits_table *t, const char *who)
{
	if (!who[0])
		return &t->anonymous.limits;
	const struct entry *e = t->exact.count == 0 ? NULL
						    : bsearch(who, t->exact.entry, t->exact.count,
							      sizeof *t->exact.entry, compare_name);
	for (size_t i = 0; i < t->pattern.count && !e; i++)
		if (fits(t->pattern.entry[i].name, who))
			e = &t->pattern.entry[i];
	return e ? &e->limits : &t->fallback;
}

void gp_limits_each_name(const struct gp_limits_table *t,
			 void (*each)(void *arg, const char *name, const struct gp_limits *l), void *arg)
{
	for (size_t i = 0; i < t->exact.count; i++)
		each(arg, t->exact.entry[i].name, &t->exact.entry[i].limits);
}

/* "cert:...", "token:...", or both with a comma between (credentials.h). */
static bool can_be(const char *name, bool certificates, bool tokens)
{
	const bool cert = strncmp(name, "cert:", 5) == 0;
	if (!certificates || !tokens)
		return cert ? certificates : tokens;
	return cert && (strstr(name, ",token:") || strchr(name, '*'));
}

const char *gp_limits_misfit(const struct gp_limits_table *t, bool certificates, bool tokens, int *line)
{
	const struct entries *const of[] = {&t->exact, &t->pattern};
	for (int k = 0; k < 2; k++)
		for (size_t i = 0; i < of[k]->count; i++)
			if (!can_be(of[k]->entry[i].name, certificates, tokens)) {
				*line = of[k]->entry[i].line;
				return of[k]->entry[i].name;
			}
	return NULL;
}

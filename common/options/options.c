/* SPDX-License-Identifier: Apache-2.0
 *
 * Options, where values come from: defaults, a config file, the command line,
 * in that order. The values themselves are options_value.c, --help is
 * options_help.c. Test: tests/unit/test_options.c; fuzz: fuzz_options.c
 */
#include "common/options/options_internal.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "common/base/mem.h"

enum { CONFIG_LIMIT = 1 << 20, NAME_LIMIT = 64 };

static const struct gp_opt_source from_command_line;

static int find_option(const struct gp_opt_table *t, const char *name, size_t len)
{
	for (int i = 0; i < t->count; i++)
		if (strlen(t->opt[i].name) == len && memcmp(t->opt[i].name, name, len) == 0)
			return i;
	return -1;
}

static const char *nearest_option(const struct gp_opt_table *t, const char *name)
{
	const char *names[GP_OPT_MAX];
	for (int i = 0; i < t->count; i++)
		names[i] = t->opt[i].name;
	if (strncmp(name, "no-", 3) == 0 && find_option(t, name + 3, strlen(name + 3)) >= 0)
		return name + 3;
	return gp_nearest_name(name, names, t->count);
}

static enum gp_status unknown_flag(const struct gp_opt_table *t, const char *name, size_t len, struct gp_err *err)
{
	char word[NAME_LIMIT], shown[GP_SHOWN];
	snprintf(word, sizeof word, "%.*s", (int)(len < NAME_LIMIT ? len : NAME_LIMIT - 1), name);
	if (strcmp(word, "help") == 0) /* alone it is taken before flags are read */
		GP_FAIL(err, GP_USAGE, "--help stands alone, or is --help=rows, the same for scripts");
	const char *near = nearest_option(t, word);
	gp_text_shown(gp_text_of(word), shown);
	if (near)
		GP_FAIL(err, GP_USAGE, "unknown flag --%s; did you mean --%s? ('%s --help' lists all)", shown, near,
			t->command);
	GP_FAIL(err, GP_USAGE, "unknown flag --%s; '%s --help' lists all", shown, t->command);
}

enum gp_status gp_opt_copy(struct gp_options_result *r, const char *text, const char **out, struct gp_err *err)
{
	char **grown = gp_realloc(r->owned, (size_t)r->owned_count + 1, sizeof *grown);
	if (grown)
		r->owned = grown;
	char *copy = grown ? gp_strdup(text) : NULL;
	if (!copy)
		GP_FAIL(err, GP_NOMEM, "out of memory while reading options");
	r->owned[r->owned_count++] = copy;
	*out = copy;
	return GP_OK;
}

/* The words of a command line, one at a time. */
struct words {
	int argc;
	char **argv;
	int next;
	bool only_positional; /* after "--" */
};

struct word {
	int option; /* -1: positional */
	const char *value;
};

/* --json, --no-json, --json=no; --resume, --resume=if-any */
static enum gp_status read_flag_value(const struct gp_opt *o, const char *equals, bool negated, struct word *w,
				      struct gp_err *err)
{
	if (negated && equals)
		GP_FAIL(err, GP_USAGE, "--no-%s takes no value", o->name);
	w->value = equals ? equals + 1 : negated ? "no" : "yes";
	return GP_OK;
}

static enum gp_status read_value(const struct gp_opt *o, struct words *in, const char *equals, struct word *w,
				 struct gp_err *err)
{
	if (equals) {
		w->value = equals + 1;
		return GP_OK;
	}
	const char *next = in->next < in->argc ? in->argv[in->next] : NULL;
	if (!next || strncmp(next, "--", 2) == 0)
		GP_FAIL(err, GP_USAGE, "--%s needs a value (--%s %s)", o->name, o->name, o->value ? o->value : "VALUE");
	in->next++;
	w->value = next;
	return GP_OK;
}

/* Takes no word after it as its value. */
static bool stands_alone(const struct gp_opt *o)
{
	return o->type == GP_OPT_FLAG || o->bare;
}

static enum gp_status read_option(const struct gp_opt_table *t, struct words *in, const char *name, struct word *w,
				  struct gp_err *err)
{
	const char *equals = strchr(name, '=');
	size_t len = equals ? (size_t)(equals - name) : strlen(name);
	bool negated = false;
	w->option = find_option(t, name, len);
	if (w->option < 0 && len > 3 && strncmp(name, "no-", 3) == 0) {
		w->option = find_option(t, name + 3, len - 3);
		negated = true;
	}
	if (w->option < 0 || (negated && !stands_alone(&t->opt[w->option])))
		return unknown_flag(t, name, len, err);
	const struct gp_opt *o = &t->opt[w->option];
	if (stands_alone(o))
		return read_flag_value(o, equals, negated, w, err);
	return read_value(o, in, equals, w, err);
}

static enum gp_status single_dash(const struct gp_opt_table *t, const char *arg, struct gp_err *err)
{
	char shown[GP_SHOWN];
	const char *near = nearest_option(t, arg + 1);
	gp_text_shown(gp_text_of(arg), shown);
	if (near)
		GP_FAIL(err, GP_USAGE, "unknown flag %s; did you mean --%s? (flags begin with two dashes)", shown,
			near);
	GP_FAIL(err, GP_USAGE, "unknown flag %s; flags begin with two dashes ('%s --help' lists all)", shown,
		t->command);
}

/* Next word; w->value is NULL at the end. */
static enum gp_status next_word(const struct gp_opt_table *t, struct words *in, struct word *w, struct gp_err *err)
{
	*w = (struct word){.option = -1};
	if (in->next < in->argc && !in->only_positional && strcmp(in->argv[in->next], "--") == 0) {
		in->only_positional = true;
		in->next++;
	}
	if (in->next >= in->argc)
		return GP_OK;
	const char *arg = in->argv[in->next++];
	if (!in->only_positional && strncmp(arg, "--", 2) == 0)
		return read_option(t, in, arg + 2, w, err);
	if (!in->only_positional && arg[0] == '-' && isalpha((unsigned char)arg[1]))
		return single_dash(t, arg, err);
	w->value = arg;
	return GP_OK;
}

static enum gp_status add_positional(const struct gp_opt_table *t, const char *text, struct gp_options_result *r,
				     struct gp_err *err)
{
	char shown[GP_SHOWN];
	gp_text_shown(gp_text_of(text), shown);
	if (!t->positional)
		GP_FAIL(err, GP_USAGE, "unexpected argument '%s'; '%s --help' shows what is known", shown, t->command);
	if (t->positional_max && r->positionals >= t->positional_max)
		GP_FAIL(err, GP_USAGE, "unexpected argument '%s'; '%s' takes at most %d (%s)", shown, t->command,
			t->positional_max, t->positional);
	const char **grown = gp_realloc(r->positional, (size_t)r->positionals + 1, sizeof *grown);
	if (!grown)
		GP_FAIL(err, GP_NOMEM, "out of memory while reading options");
	r->positional = grown;
	GP_TRY(gp_opt_copy(r, text, &r->positional[r->positionals], err));
	r->positionals++;
	return GP_OK;
}

static bool has_word(int argc, char **argv, const char *word)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], word) == 0)
			return true;
	return false;
}

/* Prints what was asked for. */
static bool gives_help(const struct gp_opt_table *t, int argc, char **argv)
{
	if (has_word(argc, argv, GP_OPTIONS_ROWS))
		gp_options_print_rows(t, stdout);
	else if (has_word(argc, argv, "--help") || has_word(argc, argv, "-h"))
		gp_options_print_help(t, stdout);
	else
		return false;
	return true;
}

static enum gp_status apply_defaults(const struct gp_opt_table *t, void *settings, struct gp_options_result *r,
				     struct gp_err *err)
{
	static const size_t field_size[] = {
		[GP_OPT_FLAG] = sizeof(bool),   [GP_OPT_INT] = sizeof(int64_t), [GP_OPT_REAL] = sizeof(double),
		[GP_OPT_TEXT] = sizeof(char *), [GP_OPT_CHOICE] = sizeof(int),  [GP_OPT_SIZE] = sizeof(int64_t),
		[GP_OPT_RATE] = sizeof(double), [GP_OPT_TIME] = sizeof(double),
	};
	for (int i = 0; i < t->count; i++) {
		const struct gp_opt *o = &t->opt[i];
		memset((char *)settings + o->offset, 0, field_size[o->type]);
		if (o->initial)
			GP_TRY(gp_opt_store(o, o->initial, &from_command_line, settings, r, err));
	}
	return GP_OK;
}

/* Cuts white space off both ends, in place. */
static char *trim(char *s)
{
	while (isspace((unsigned char)*s))
		s++;
	char *end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		end--;
	*end = '\0';
	return s;
}

/* '#' begins a comment at the start of a line or after white space, outside quotes. */
static void cut_comment(char *line)
{
	bool quoted = false;
	for (char *c = line; *c; c++) {
		if (*c == '"')
			quoted = !quoted;
		if (*c == '#' && !quoted && (c == line || isspace((unsigned char)c[-1]))) {
			*c = '\0';
			return;
		}
	}
}

static char *unquote(char *value)
{
	size_t n = strlen(value);
	if (n < 2 || value[0] != '"' || value[n - 1] != '"')
		return value;
	value[n - 1] = '\0';
	return value + 1;
}

static enum gp_status unknown_key(const struct gp_opt_table *t, const char *key, const struct gp_opt_source *from,
				  struct gp_err *err)
{
	char shown[GP_SHOWN];
	const char *near = nearest_option(t, key);
	gp_text_shown(gp_text_of(key), shown);
	if (near)
		GP_FAIL(err, GP_INVALID, "%s:%d: unknown key '%s'; did you mean '%s'?", from->file, from->line, shown,
			near);
	GP_FAIL(err, GP_INVALID, "%s:%d: unknown key '%s'; keys are the flags of '%s --help' without dashes",
		from->file, from->line, shown, t->command);
}

static enum gp_status apply_config_line(const struct gp_opt_table *t, char *line, const struct gp_opt_source *from,
					void *settings, struct gp_options_result *r, struct gp_err *err)
{
	cut_comment(line);
	char *key = trim(line);
	if (!*key)
		return GP_OK;
	char *equals = strchr(key, '=');
	if (!equals)
		GP_FAIL(err, GP_INVALID, "%s:%d: expected 'key = value'", from->file, from->line);
	*equals = '\0';
	key = trim(key);
	int i = find_option(t, key, strlen(key));
	if (i < 0)
		return unknown_key(t, key, from, err);
	if (strcmp(key, "config") == 0)
		GP_FAIL(err, GP_INVALID, "%s:%d: a config file cannot name another one", from->file, from->line);
	GP_TRY(gp_opt_store(&t->opt[i], unquote(trim(equals + 1)), from, settings, r, err));
	r->given[i] = true;
	return GP_OK;
}

/* `text` is NUL-terminated and is cut up in place. */
static enum gp_status apply_config_text(const struct gp_opt_table *t, const char *file, char *text, void *settings,
					struct gp_options_result *r, struct gp_err *err)
{
	struct gp_opt_source from = {.file = file};
	while (text) {
		char *line = text;
		from.line++;
		text = strchr(line, '\n');
		if (text)
			*text++ = '\0';
		GP_TRY(apply_config_line(t, line, &from, settings, r, err));
	}
	return GP_OK;
}

/* The whole file into text[CONFIG_LIMIT + 1]. */
static enum gp_status read_config(const char *file, char *text, struct gp_err *err)
{
	FILE *f = fopen(file, "r");
	if (!f)
		return gp_err_set(err, GP_INVALID, errno, __FILE__, __LINE__, "cannot open config file %s: %s", file,
				  strerror(errno));
	errno = 0;
	size_t n = fread(text, 1, CONFIG_LIMIT + 1, f);
	int failed = ferror(f) ? errno : 0;
	fclose(f);
	if (failed)
		return gp_err_set(err, GP_INVALID, failed, __FILE__, __LINE__, "cannot read config file %s: %s", file,
				  strerror(failed));
	if (n > CONFIG_LIMIT)
		GP_FAIL(err, GP_INVALID, "config file %s is larger than 1 MiB; is it a config file?", file);
	if (memchr(text, '\0', n))
		GP_FAIL(err, GP_INVALID, "config file %s holds binary data; it must be text", file);
	text[n] = '\0';
	return GP_OK;
}

static enum gp_status apply_config(const struct gp_opt_table *t, const char *file, void *settings,
				   struct gp_options_result *r, struct gp_err *err)
{
	char *text = gp_calloc(1, CONFIG_LIMIT + 2);
	if (!text)
		GP_FAIL(err, GP_NOMEM, "out of memory while reading %s", file);
	enum gp_status status = read_config(file, text, err);
	if (status == GP_OK)
		status = apply_config_text(t, file, text, settings, r, err);
	gp_free(text);
	return status;
}

/* The file of the last --config, else the table's default; NULL: none. Also finds malformed command lines early. */
static enum gp_status find_config(const struct gp_opt_table *t, int argc, char **argv, const char **file,
				  struct gp_err *err)
{
	int config = find_option(t, "config", 6);
	struct words in = {.argc = argc, .argv = argv};
	struct word w;
	*file = config >= 0 ? t->opt[config].initial : NULL;
	for (;;) {
		GP_TRY(next_word(t, &in, &w, err));
		if (!w.value)
			return GP_OK;
		if (w.option >= 0 && w.option == config)
			*file = w.value;
	}
}

static enum gp_status apply_arguments(const struct gp_opt_table *t, int argc, char **argv, void *settings,
				      struct gp_options_result *r, struct gp_err *err)
{
	struct words in = {.argc = argc, .argv = argv};
	struct word w;
	for (;;) {
		GP_TRY(next_word(t, &in, &w, err));
		if (!w.value)
			return GP_OK;
		if (w.option < 0) {
			GP_TRY(add_positional(t, w.value, r, err));
			continue;
		}
		GP_TRY(gp_opt_store(&t->opt[w.option], w.value, &from_command_line, settings, r, err));
		r->given[w.option] = true;
	}
}

static enum gp_status parse_all(const struct gp_opt_table *t, int argc, char **argv, void *settings,
				struct gp_options_result *r, struct gp_err *err)
{
	const char *config;
	GP_TRY(apply_defaults(t, settings, r, err));
	r->help = gives_help(t, argc, argv);
	if (r->help)
		return GP_OK;
	GP_TRY(find_config(t, argc, argv, &config, err));
	if (config)
		GP_TRY(apply_config(t, config, settings, r, err));
	return apply_arguments(t, argc, argv, settings, r, err);
}

enum gp_status gp_options_parse(const struct gp_opt_table *t, int argc, char **argv, void *settings,
				struct gp_options_result *r, struct gp_err *err)
{
	gp_require(t->count <= GP_OPT_MAX);
	*r = (struct gp_options_result){0};
	enum gp_status status = parse_all(t, argc, argv, settings, r, err);
	if (status == GP_OK)
		return GP_OK;
	for (int i = 0; i < t->count; i++)
		if (t->opt[i].type == GP_OPT_TEXT)
			*(const char **)((char *)settings + t->opt[i].offset) = NULL;
	gp_options_free(r);
	return status;
}

static const struct gp_opt *row_of(const struct gp_opt_rows *rows, const char *name)
{
	const struct gp_opt *row = rows->opt;
	while (row < rows->opt + rows->count && strcmp(row->name, name) != 0)
		row++;
	gp_require(row < rows->opt + rows->count);
	return row;
}

/* The row that it is like, with all that it says itself. */
static struct gp_opt whole_row(const struct gp_opt *own)
{
	if (!own->like)
		return *own;
	struct gp_opt o = whole_row(row_of(own->like, own->name));
	o.group = own->group;
	o.offset = own->offset ? own->offset : o.offset;
	o.value = own->value ? own->value : o.value;
	o.initial = own->initial ? own->initial : o.initial;
	o.help = own->help ? own->help : o.help;
	o.choices = own->choices ? own->choices : o.choices;
	o.bare = own->bare || o.bare;
	if (own->min != 0 || own->max != 0) {
		o.min = own->min;
		o.max = own->max;
		o.below_max = own->below_max;
	}
	return o;
}

int gp_opt_join(const struct gp_opt_rows *parts, int count, struct gp_opt *out)
{
	int rows = 0;
	for (int i = 0; i < count; i++)
		for (int k = 0; k < parts[i].count; k++) {
			gp_require(rows < GP_OPT_MAX);
			out[rows++] = whole_row(&parts[i].opt[k]);
		}
	return rows;
}

enum gp_status gp_options_parse_parts(const struct gp_opt_table *t, const struct gp_opt_rows *parts, int count,
				      int argc, char **argv, void *settings, struct gp_options_result *r,
				      struct gp_err *err)
{
	struct gp_opt rows[GP_OPT_MAX];
	struct gp_opt_table whole = *t;
	whole.opt = rows;
	whole.count = gp_opt_join(parts, count, rows);
	return gp_options_parse(&whole, argc, argv, settings, r, err);
}

void gp_options_free(struct gp_options_result *r)
{
	for (int i = 0; i < r->owned_count; i++)
		gp_free(r->owned[i]);
	gp_free(r->owned);
	gp_free(r->positional);
	*r = (struct gp_options_result){0};
}

static void choice_text(const struct gp_opt *o, int index, char *text, size_t size)
{
	const char *word = o->choices;
	for (; index > 0 && strchr(word, '|'); index--)
		word = strchr(word, '|') + 1;
	snprintf(text, size, "%.*s", (int)strcspn(word, "|"), word);
}

/* With as many digits as it takes. */
static void real_text(double value, char *text, size_t size)
{
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(text, size, "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			return;
	}
}

void gp_options_text(const struct gp_opt_table *t, const void *settings, const char *name, char *text, size_t size)
{
	int i = find_option(t, name, strlen(name));
	gp_require(i >= 0);
	const struct gp_opt *o = &t->opt[i];
	const void *field = (const char *)settings + o->offset;
	switch (o->type) {
	case GP_OPT_FLAG:
		snprintf(text, size, "%s", *(const bool *)field ? "true" : "false");
		break;
	case GP_OPT_INT:
	case GP_OPT_SIZE:
		snprintf(text, size, "%lld", (long long)*(const int64_t *)field);
		break;
	case GP_OPT_CHOICE:
		choice_text(o, *(const int *)field, text, size);
		break;
	case GP_OPT_TEXT:
		snprintf(text, size, "%s", *(const char *const *)field ? *(const char *const *)field : "");
		break;
	default:
		real_text(*(const double *)field, text, size);
		break;
	}
}

bool gp_options_given(const struct gp_opt_table *t, const struct gp_options_result *r, const char *name)
{
	int i = find_option(t, name, strlen(name));
	gp_require(i >= 0);
	return r->given[i];
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Options, --help: usage, groups and aligned, wrapped columns straight from
 * the table, so that the text cannot lag behind the parser.
 * Test: tests/unit/test_options.c
 */
#include "common/options/options_internal.h"

#include <string.h>

enum { LINE_WIDTH = 100, FLAG_COLUMN_MAX = 34, FLAG_TEXT = GP_OPT_FLAG_TEXT, HELP_TEXT = GP_OPT_HELP_TEXT };

/* "--batch N", "--optimizer sgd|adam", "--[no-]color" (on by default), "--json", "--resume[=if-any]". */
const char *gp_opt_flag_text(const struct gp_opt *o, char *text)
{
	bool on = o->type == GP_OPT_FLAG && o->initial && o->initial[0] && strchr("ty1", o->initial[0]);
	const char *value = o->value ? o->value : o->choices ? o->choices : "VALUE";
	if (o->type == GP_OPT_FLAG)
		snprintf(text, FLAG_TEXT, "--%s%s", on ? "[no-]" : "", o->name);
	else
		snprintf(text, FLAG_TEXT, o->bare ? "--%s[=%s]" : "--%s %s", o->name, value);
	return text;
}

/* The help line plus, in brackets, choices that the flag column does not show, the range and the default. */
const char *gp_opt_help_text(const struct gp_opt *o, char *text)
{
	char range[GP_VALUE_WHY];
	const char *notes[3] = {0};
	char default_note[GP_OPT_PLACE] = "";
	if (o->type == GP_OPT_CHOICE && o->value && o->choices && !o->bare)
		notes[0] = o->choices;
	if (*gp_opt_range_text(o, range))
		notes[1] = range;
	if (o->initial && o->initial[0] && o->type != GP_OPT_FLAG) {
		snprintf(default_note, sizeof default_note, "default %s", o->initial);
		notes[2] = default_note;
	}
	int n = snprintf(text, HELP_TEXT, "%s", o->help ? o->help : "");
	const char *before = " (";
	for (int i = 0; i < 3 && n < HELP_TEXT; i++)
		if (notes[i]) {
			n += snprintf(text + n, (size_t)(HELP_TEXT - n), "%s%s", before, notes[i]);
			before = "; ";
		}
	if (before[0] == ';' && n < HELP_TEXT - 1)
		strcpy(text + n, ")");
	return text;
}

/* Prints `text` from column `at` on, broken at spaces, further lines indented to `column`. */
static void print_wrapped(FILE *to, const char *text, int column)
{
	int at = column;
	while (*text) {
		int word = (int)strcspn(text, " ");
		if (at > column && at + 1 + word > LINE_WIDTH) {
			fprintf(to, "\n%*s", column, "");
			at = column;
		} else if (at > column) {
			fputc(' ', to);
			at++;
		}
		fprintf(to, "%.*s", word, text);
		at += word;
		text += word;
		text += strspn(text, " ");
	}
	fputc('\n', to);
}

static int flag_column(const struct gp_opt_table *t)
{
	char flag[FLAG_TEXT];
	int widest = (int)strlen("--help");
	for (int i = 0; i < t->count; i++) {
		int n = (int)strlen(gp_opt_flag_text(&t->opt[i], flag));
		if (n > widest && n <= FLAG_COLUMN_MAX)
			widest = n;
	}
	return 2 + widest + 2;
}

static void print_row(FILE *to, const char *flag, const char *help, int column)
{
	int n = fprintf(to, "  %s", flag);
	if (n + 2 > column) {
		fputc('\n', to);
		n = 0;
	}
	fprintf(to, "%*s", column - n, "");
	print_wrapped(to, help, column);
}

static void print_indented(FILE *to, const char *lines)
{
	while (*lines) {
		int n = (int)strcspn(lines, "\n");
		fprintf(to, "  %.*s\n", n, lines);
		lines += n + (lines[n] == '\n');
	}
}

void gp_options_print_help(const struct gp_opt_table *t, FILE *to)
{
	char flag[FLAG_TEXT], help[HELP_TEXT];
	int column = flag_column(t);
	bool headed = false;
	fprintf(to, "usage: %s %s\n", t->command, t->synopsis ? t->synopsis : "[OPTIONS]");
	if (t->about)
		fprintf(to, "\n%s\n", t->about);
	for (int i = 0; i < t->count; i++) {
		const struct gp_opt *o = &t->opt[i];
		if (o->group || !headed)
			fprintf(to, "\n%s:\n", o->group ? o->group : "Options");
		headed = true;
		print_row(to, gp_opt_flag_text(o, flag), gp_opt_help_text(o, help), column);
	}
	fprintf(to, "%s", headed ? "" : "\nOptions:\n");
	print_row(to, "--help", "show this text", column);
	if (t->examples) {
		fprintf(to, "\nExamples:\n");
		print_indented(to, t->examples);
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Options, --help=rows: the table for programs. See options.h. Test: tests/e2e/man_pages.sh
 */
#include "common/options/options_internal.h"

#include <string.h>

static void print_lines(FILE *to, const char *kind, const char *lines)
{
	while (lines && *lines) {
		const int n = (int)strcspn(lines, "\n");
		fprintf(to, "%s\t%.*s\n", kind, n, lines);
		lines += n + (lines[n] == '\n');
	}
}

static void print_option(FILE *to, const struct gp_opt *o)
{
	char flag[GP_OPT_FLAG_TEXT], help[GP_OPT_HELP_TEXT];
	const char *kind = o->type == GP_OPT_FLAG ? "flag" : o->bare ? "optional" : "value";
	fprintf(to, "option\t%s\t%s\t%s\t%s\t%s\n", o->name, kind, o->type == GP_OPT_CHOICE ? o->choices : "",
		gp_opt_flag_text(o, flag), gp_opt_help_text(o, help));
}

/* A synopsis of several lines becomes one. */
static void print_synopsis(FILE *to, const struct gp_opt_table *t)
{
	fprintf(to, "command\t%s\t", t->command);
	for (const char *c = t->synopsis ? t->synopsis : "[OPTION...]"; *c; c++)
		fputc(*c == '\n' || *c == '\t' ? ' ' : *c, to);
	fputc('\n', to);
}

void gp_options_print_rows(const struct gp_opt_table *t, FILE *to)
{
	print_synopsis(to, t);
	print_lines(to, "about", t->about);
	if (t->positional)
		fprintf(to, "positional\t%s\t%d\n", t->positional, t->positional_max);
	for (int i = 0; i < t->count; i++) {
		if (t->opt[i].group)
			fprintf(to, "group\t%s\n", t->opt[i].group);
		print_option(to, &t->opt[i]);
	}
	fprintf(to, "option\thelp\tflag\t\t--help\tshow all options\n");
	print_lines(to, "example", t->examples);
}

void gp_options_print_command(const char *program, const char *name, const char *summary, FILE *to)
{
	fprintf(to, "command-of\t%s\t%s\t%s\n", program, name, summary);
}

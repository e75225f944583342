/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands' dispatchers share. See commands.h.
 * Test: tests/e2e/bad_input.sh
 */
#include "client/commands/commands.h"

#include <stdio.h>
#include <string.h>

int gp_cmd_unknown(const char *program, const char *word, const char *const *names, int count)
{
	const char *near = gp_nearest_name(word, names, count);
	fprintf(stderr, "%s: unknown command '%.40s'; ", program, word);
	if (near)
		fprintf(stderr, "did you mean '%s'? There %s", near, count == 1 ? "is" : "are");
	else
		fprintf(stderr, "there %s", count == 1 ? "is" : "are");
	for (int i = 0; i < count; i++)
		fprintf(stderr, "%s %s", i ? "," : "", names[i]);
	fprintf(stderr, "\n");
	return gp_status_exit(GP_USAGE);
}

static int run_subcommand(const char *program, const struct gp_subcommand *c, int argc, char **argv)
{
	struct gp_err err = {0};
	struct gp_options_result r = {0};
	const enum gp_status status = c->run(argc, argv, &r, &err);
	gp_options_free(&r);
	if (status != GP_OK)
		gp_err_print(&err, program);
	return gp_status_exit(status);
}

int gp_cmd_dispatch(const char *program, const char *usage, const struct gp_subcommand *list, int count, int argc,
		    char **argv)
{
	const char *names[GP_SUBCOMMANDS_MAX];
	gp_require(count <= GP_SUBCOMMANDS_MAX);
	if (argc == 0) {
		fputs(usage, stderr);
		return gp_status_exit(GP_USAGE);
	}
	if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
		fputs(usage, stdout);
		return 0;
	}
	if (strcmp(argv[0], GP_OPTIONS_ROWS) == 0) {
		for (int i = 0; i < count; i++)
			gp_options_print_command(program, list[i].name, "", stdout);
		return 0;
	}
	for (int i = 0; i < count; i++) {
		if (strcmp(argv[0], list[i].name) == 0)
			return run_subcommand(program, &list[i], argc - 1, argv + 1);
		names[i] = list[i].name;
	}
	return gp_cmd_unknown(program, argv[0], names, count);
}

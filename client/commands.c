/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands' dispatchers share. See commands.h.
 * Test: tests/e2e/bad_input.sh
 */
#include "client/commands.h"

#include <stdio.h>

#include "common/options.h"

int gp_cmd_unknown(const char *program, const char *word, const char *const *names, int count)
{
	const char *near = gp_nearest_name(word, names, count);
	fprintf(stderr, "%s: unknown command '%.40s'; ", program, word);
	if (near)
		fprintf(stderr, "did you mean '%s'? There are", near);
	else
		fprintf(stderr, "there are");
	for (int i = 0; i < count; i++)
		fprintf(stderr, "%s %s", i ? "," : "", names[i]);
	fprintf(stderr, "\n");
	return gp_status_exit(GP_USAGE);
}

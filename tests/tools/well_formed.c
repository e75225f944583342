/* SPDX-License-Identifier: Apache-2.0
 *
 * well_formed FILE: exit status 1, and a line that says what and where, when a page is not (tests/well_formed.h).
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/well_formed.h"

#define MOST (80u << 20)

int main(int argc, char **argv)
{
	FILE *f = argc == 2 ? fopen(argv[1], "re") : NULL;
	char *text = malloc(MOST);
	if (!f || !text) {
		fprintf(stderr, "usage: well_formed FILE\n");
		return 2;
	}
	const size_t length = fread(text, 1, MOST, f);
	size_t where;
	const char *why = page_fault(text, length, &where);
	if (why)
		printf("%s:%zu: %s: %.60s\n", argv[1], where, why, where < length ? text + where : "");
	fclose(f);
	free(text);
	return why != NULL;
}

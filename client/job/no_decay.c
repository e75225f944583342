/* SPDX-License-Identifier: Apache-2.0
 *
 * --no-decay. See no_decay.h. Test: tests/unit/test_freeze.c
 */
#include "client/job/no_decay.h"

#include <fnmatch.h>

#include "client/job/param_pattern.h"
#include "common/base/text.h"

/* How many parameters the pattern fits. Frozen ones and running statistics have no decay anyway. */
static int take_decay(struct gp_graph *g, const char *pattern)
{
	int fits = 0;
	for (int i = 0; i < g->params; i++)
		if (fnmatch(pattern, g->param[i].name, 0) == 0) {
			/* one that follows another stands for it */
			g->param[g->param[i].follows ? g->tied[0] : i].decay = false;
			fits++;
		}
	return fits;
}

static int count_without(const struct gp_graph *g)
{
	int without = 0;
	for (int i = 0; i < g->params; i++)
		without += g->param[i].trained && !g->param[i].decay && !g->param[i].follows;
	return without;
}

enum gp_status gp_no_decay(struct gp_graph *g, const char *list, int *without, struct gp_err *err)
{
	struct gp_text rest = gp_text_of(list), piece;
	while (gp_text_cut(&rest, ',', &piece)) {
		char pattern[GP_NAME_MAX];
		if (piece.len == 0 || !gp_text_copy(piece, pattern, sizeof pattern))
			GP_FAIL(err, GP_USAGE, "--no-decay: a pattern has %zu characters; it must have 1 to %d",
				piece.len, GP_NAME_MAX - 1);
		if (take_decay(g, pattern) == 0)
			return gp_param_pattern_refuse(g, "no-decay", pattern, "names may have wildcards ('*.bias')",
						       err);
	}
	*without = count_without(g);
	return GP_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * --freeze. See freeze.h. Test: tests/unit/test_freeze.c
 */
#include "client/job/freeze.h"

#include <fnmatch.h>

#include "client/job/param_pattern.h"
#include "common/base/text.h"

static bool freeze_part(struct gp_graph *g, const struct gp_cut *cut, const char *name)
{
	if (strcmp(name, "head") == 0)
		gp_graph_freeze_blocks(g, 0, cut->head);
	else if (strcmp(name, "body") == 0)
		gp_graph_freeze_blocks(g, cut->head, cut->tail);
	else if (strcmp(name, "tail") == 0)
		gp_graph_freeze_blocks(g, cut->tail, g->blocks);
	else
		return false;
	return true;
}

static bool fits_statistics(const struct gp_graph *g, const char *pattern)
{
	for (int i = 0; i < g->params; i++)
		if (fnmatch(pattern, g->param[i].name, 0) == 0)
			return true;
	return false;
}

static enum gp_status fits_nothing(const struct gp_graph *g, const char *pattern, struct gp_err *err)
{
	char shown[GP_SHOWN];
	if (fits_statistics(g, pattern))
		GP_FAIL(err, GP_USAGE,
			"--freeze: '%s' names nothing but running statistics of batch norms, which stay as they are "
			"only if the weight and bias beside them are frozen: name those",
			gp_text_shown(gp_text_of(pattern), shown));
	return gp_param_pattern_refuse(g, "freeze", pattern,
				       "names may have wildcards ('features.*'), and head, body and tail stand for all "
				       "of that part",
				       err);
}

static int count_frozen(const struct gp_graph *g)
{
	int frozen = 0;
	for (int i = 0; i < g->params; i++)
		frozen += !g->param[i].trained && !g->param[i].follows &&
			  (g->param[i].role == GP_PARAM_WEIGHT || g->param[i].role == GP_PARAM_BIAS);
	return frozen;
}

enum gp_status gp_freeze(struct gp_graph *g, const struct gp_cut *cut, const char *list, int *frozen,
			 struct gp_err *err)
{
	struct gp_text rest = gp_text_of(list), piece;
	while (gp_text_cut(&rest, ',', &piece)) {
		char pattern[GP_NAME_MAX];
		if (piece.len == 0 || !gp_text_copy(piece, pattern, sizeof pattern))
			GP_FAIL(err, GP_USAGE, "--freeze: a pattern has %zu characters; it must have 1 to %d",
				piece.len, GP_NAME_MAX - 1);
		if (!freeze_part(g, cut, pattern) && gp_graph_freeze(g, pattern) == 0)
			return fits_nothing(g, pattern, err);
	}
	if (gp_graph_is_tied(g) && g->param[g->tied[0]].trained != g->param[g->tied[1]].trained)
		GP_FAIL(err, GP_USAGE,
			"--freeze %.200s names one of %s and %s, which share their values (tied weights): name both",
			list, g->param[g->tied[0]].name, g->param[g->tied[1]].name);
	if (g->trained_elements == 0)
		GP_FAIL(err, GP_USAGE, "--freeze %.200s leaves no parameter of %s to train", list, g->name);
	*frozen = count_frozen(g);
	return GP_OK;
}

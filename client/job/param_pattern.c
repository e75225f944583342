/* SPDX-License-Identifier: Apache-2.0
 *
 * A pattern that fits no parameter. See param_pattern.h. Test: tests/unit/test_freeze.c
 */
#include "client/job/param_pattern.h"

#include "common/base/mem.h"
#include "common/base/text.h"

enum gp_status gp_param_pattern_refuse(const struct gp_graph *g, const char *flag, const char *pattern,
				       const char *hint, struct gp_err *err)
{
	char shown[GP_SHOWN];
	void *mem;
	GP_TRY(gp_alloc_array(&mem, (size_t)g->params + 1, sizeof(const char *), err));
	const char **names = mem;
	for (int i = 0; i < g->params; i++)
		names[i] = g->param[i].name;
	const char *near = gp_nearest_name(pattern, names, g->params);
	gp_err_set(err, GP_USAGE, 0, __FILE__, __LINE__, "--%s: no parameter of %s is named '%s'%s%s; %s", flag,
		   g->name, gp_text_shown(gp_text_of(pattern), shown), near ? "; did you mean " : "", near ? near : "",
		   hint);
	gp_free(mem);
	return err->code;
}

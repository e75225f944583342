/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that client/models/models.h has built, and what is expected of it: for
 * test_models.c, test_model_cuts.c and test_model_encoders.c. Not a test by itself.
 */
#ifndef GP_TEST_BUILT_MODEL_H
#define GP_TEST_BUILT_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "client/models/models.h"
#include "common/graph/graph_part.h"

/* Height 0: the model's own default. */
static inline struct gp_graph *build(const char *spec, int64_t h, int64_t w, int64_t c)
{
	struct gp_err err = {0};
	struct gp_graph *g = NULL;
	struct gp_model_options o = {.input = {.ndim = h ? 3 : 0, .dim = {h, w, c}}};
	if (gp_model_build(spec, &o, &g, &err) != GP_OK)
		fail_msg("%s: %s", spec, err.text);
	return g;
}

static inline const struct gp_param *param_of(const struct gp_graph *g, const char *name)
{
	int i = gp_graph_find_param(g, name);
	assert_true(i >= 0);
	return &g->param[i];
}

static inline void expect_normal(const struct gp_graph *g, const char *name, double scale)
{
	const struct gp_param *p = param_of(g, name);
	assert_true(p->init == GP_INIT_NORMAL && fabs(p->init_scale - scale) < 1e-7);
}

/* How many tensors cross the two cuts. */
static inline void expect_crossing(const struct gp_graph *g, const char *text, int up, int down)
{
	struct gp_err err;
	struct gp_cut cut;
	struct gp_graph_parts p;
	assert_int_equal(gp_cut_parse(g, text, &cut, &err), GP_OK);
	assert_int_equal(gp_graph_cut(g, &cut, &p, &err), GP_OK);
	assert_int_equal(p.body->inputs, up);
	assert_int_equal(p.body->outputs, down);
	gp_graph_parts_deinit(&p);
}

static inline bool ends_with(const char *text, const char *end)
{
	return strlen(text) > strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

static inline void expect_refused(const char *spec, enum gp_status code, const char *words)
{
	struct gp_err err = {0};
	struct gp_graph *g = NULL;
	struct gp_model_options o = {.classes = 10};
	assert_int_equal(gp_model_build(spec, &o, &g, &err), code);
	assert_null(g);
	if (!strstr(err.text, words))
		fail_msg("%s: '%s' does not mention '%s'", spec, err.text, words);
}

#endif

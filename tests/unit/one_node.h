/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs of one node, and what the graph infers of it or refuses it for: for
 * test_graph.c, test_graph_parts.c and test_graph_language.c. Not a test by itself.
 */
#ifndef GP_TEST_ONE_NODE_H
#define GP_TEST_ONE_NODE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/graph/graph.h"

static const struct gp_shape image = {.ndim = 3, .dim = {15, 14, 8}};

/* With one block begun. */
static inline struct gp_graph *graph_of(struct gp_shape input)
{
	struct gp_err err = {0};
	struct gp_graph *g = gp_graph_new("test", &input, &err);
	assert_non_null(g);
	assert_int_equal(gp_graph_begin_block(g, "b0", &err), GP_OK);
	return g;
}

/* Adds one node to a fresh graph and compares what was inferred. */
static inline void expect_shape(struct gp_shape input, struct gp_node n, const char *shape, uint64_t macs)
{
	struct gp_err err = {0};
	char text[64];
	int index;
	struct gp_graph *g = graph_of(input);
	if (gp_graph_add(g, &n, &index, &err) != GP_OK)
		fail_msg("%s", err.text);
	assert_string_equal(gp_shape_text(&g->node[index].shape, text, sizeof text), shape);
	assert_true(g->node[index].macs == macs && g->macs == macs);
	gp_graph_free(g);
}

static inline void expect_refused(struct gp_shape input, struct gp_node n, const char *words)
{
	struct gp_err err = {0};
	int index = 12345;
	struct gp_graph *g = graph_of(input);
	assert_int_equal(gp_graph_add(g, &n, &index, &err), GP_INVALID);
	assert_int_equal(index, 12345);
	assert_int_equal(g->nodes, 1);
	assert_int_equal(g->params, 0);
	assert_true(g->param_elements == 0 && g->macs == 0);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
	gp_graph_free(g);
}

#endif

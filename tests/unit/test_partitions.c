/* SPDX-License-Identifier: Apache-2.0
 *
 * Named cuts of encoders (client/costs/partitions.h).
 */
#include <string.h>

#include "client/models/models.h"
#include "client/costs/partitions.h"
#include "tests/unit/ok.h"

static struct gp_graph *build(const char *spec)
{
	struct gp_graph *g;
	OK(gp_model_build(spec, NULL, &g, &err));
	return g;
}

/* Names of the last block of the head, of the body's first and last ones, and of the tail's first. */
static void expect_cut(const struct gp_graph *g, const char *name, const char *numbers, const char *head,
		       const char *body, const char *last, const char *tail)
{
	struct gp_cut cut, same;
	char text[24];
	OK(gp_partition_parse(g, name, &cut, &err));
	assert_string_equal(gp_partition_text(g, &cut, text), numbers);
	OK(gp_partition_parse(g, numbers, &same, &err));
	assert_memory_equal(&cut, &same, sizeof cut);
	assert_string_equal(g->block[cut.head - 1].name, head);
	assert_string_equal(g->block[cut.head].name, body);
	assert_string_equal(g->block[cut.tail - 1].name, last);
	assert_string_equal(g->block[cut.tail].name, tail);
}

static void names_stand_for_the_usual_cuts(void **state)
{
	(void)state;
	struct gp_graph *g = build("roberta:cuts=fine");
	expect_cut(g, "f3l2", "3:-5", "layer.0.ffn", "layer.1", "layer.10.ffn", "layer.11");
	expect_cut(g, "f2l2", "2:-5", "layer.0", "layer.0.ffn", "layer.10.ffn", "layer.11");
	expect_cut(g, "type1", "2:-3", "layer.0", "layer.0.ffn", "layer.11.ffn", "classifier");
	expect_cut(g, "f3l1", "3:-3", "layer.0.ffn", "layer.1", "layer.11.ffn", "classifier");
	gp_graph_free(g);
	g = build("roberta:lm=1,layers=3,dim=24,vocab=50,cuts=fine");
	expect_cut(g, "f3l2", "3:-4", "layer.0.ffn", "layer.1", "layer.1.ffn", "layer.2");
	expect_cut(g, "type1", "2:-2", "layer.0", "layer.0.ffn", "layer.2.ffn", "lm_head");
	struct gp_partition p[GP_PARTITIONS];
	int count;
	OK(gp_partitions_find(g, p, &count, &err));
	assert_string_equal(p[0].last, "last layer, lm_head");
	assert_string_equal(p[3].last, "lm_head");
	gp_graph_free(g);
	g = build("bert:layers=3");
	expect_cut(g, "f3l2", "2:-2", "layer.0", "layer.1", "layer.1", "layer.2");
	expect_cut(g, "f3l1", "2:-1", "layer.0", "layer.1", "layer.2", "classifier");
	gp_graph_free(g);
}

static void expect_refused(const struct gp_graph *g, const char *name, const char *message)
{
	struct gp_cut cut;
	assert_int_equal(gp_partition_parse(g, name, &cut, &err), GP_USAGE);
	assert_string_equal(err.text, message);
}

static void what_a_model_cannot_be_cut_by_is_told(void **state)
{
	(void)state;
	struct gp_graph *g = build("roberta:layers=4");
	expect_refused(g, "type1", "cut type1 of roberta with 4 layers needs cuts=fine");
	expect_refused(g, "type2",
		       "cut 'type2' of roberta is neither H:T, two block numbers, nor one of f3l2, f2l2, type1, f3l1");
	gp_graph_free(g);
	g = build("roberta:layers=1,cuts=fine");
	expect_refused(g, "f3l1", "cut f3l1 of roberta with 1 layer needs more layers");
	expect_refused(g, "f2l2", "cut f2l2 of roberta with 1 layer needs more layers");
	expect_cut(g, "type1", "2:-3", "layer.0", "layer.0.ffn", "layer.0.ffn", "classifier");
	gp_graph_free(g);
	g = build("cnn");
	expect_refused(g, "type1",
		       "cut 'type1' is not H:T, two block numbers such as 1:-1 (cnn has 4 blocks; negative numbers "
		       "count from the last)");
	gp_graph_free(g);
}

static void bytes_are_those_of_the_activations(void **state)
{
	(void)state;
	struct gp_partition p[GP_PARTITIONS];
	int count;
	struct gp_graph *g = build("bert:layers=3,dim=8,heads=2,tokens=16");
	OK(gp_partitions_find(g, p, &count, &err));
	assert_int_equal(count, GP_PARTITIONS);
	for (int i = 0; i < count; i++) {
		assert_int_equal(p[i].lacks != NULL, i == 1 || i == 2);
		if (!p[i].lacks)
			assert_true(p[i].up_bytes == 16 * 8 * 4 && p[i].down_bytes == 16 * 8 * 4);
	}
	gp_graph_free(g);
	g = build("fasttext");
	OK(gp_partitions_find(g, p, &count, &err));
	assert_int_equal(count, 0);
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_stand_for_the_usual_cuts),
		cmocka_unit_test(what_a_model_cannot_be_cut_by_is_told),
		cmocka_unit_test(bytes_are_those_of_the_activations),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

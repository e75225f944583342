/* SPDX-License-Identifier: Apache-2.0
 *
 * --insert decay (client/insert/insert_decay.h): its texts, the schedule that engines get, and what becomes of it when weights of
 * a later step are loaded.
 */
#include <string.h>

#include "client/insert/insert_decay.h"
#include "common/graph/ops/op_linear.h"
#include "tests/unit/ok.h"

static struct gp_insertion parse(const char *text)
{
	struct gp_insertion ins;
	OK(gp_insertion_parse(text, NULL, NULL, &ins, &err));
	return ins;
}

static void a_text_comes_back_with_every_key(void **state)
{
	(void)state;
	char text[GP_INSERT_TEXT];
	const struct gp_insertion ins = parse(
		"decay:rate=0.9,every=300,times=9,dim=feature/decay:dim=sequence,rate=0.95,every=300,times=9,l1=0");
	gp_insert_spec_text(&ins.end[0].spec, text);
	assert_string_equal(text, "decay:rate=0.9,every=300,times=9,l1=0.0001,dim=feature/"
				  "decay:rate=0.95,every=300,times=9,l1=0,dim=sequence");
	assert_true(ins.end[0].spec.set[0].l1 == 1e-4f && ins.end[0].spec.set[0].rate == 0.9);
}

static void refuse(const char *text, const char *words)
{
	struct gp_insertion ins;
	assert_int_equal(gp_insertion_parse(text, NULL, NULL, &ins, &err), GP_USAGE);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not say '%s'", err.text, words);
}

static void what_is_wrong_is_named(void **state)
{
	(void)state;
	refuse("decay:every=300,times=9,dim=feature", "rate= is missing");
	refuse("decay:rate=1,every=300,times=9,dim=feature", "rate=1 must lie between 0 and 1");
	refuse("decay:rate=0.9,times=9,dim=feature", "every= is missing");
	refuse("decay:rate=0.9,every=0,times=9,dim=feature", "every");
	refuse("decay:rate=0.9,every=3,times=99,dim=feature", "times");
	refuse("decay:rate=0.9,every=3,times=9,dim=feature,l1=-1", "l1");
}

/* A sequence of 8 positions of 16 features, in three blocks. */
static struct gp_graph *make_graph(void)
{
	const struct gp_shape sample = {.ndim = 2, .dim = {8, 16}};
	struct gp_graph *g = gp_graph_new("text", &sample, &err);
	static const char *const name[] = {"head", "body", "tail"};
	int x = 0;
	for (int i = 0; i < 3; i++) {
		OK(gp_graph_begin_block(g, name[i], &err));
		x = gp_graph_linear(g, name[i], x, 16, true, &err);
	}
	assert_true(x > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static void expect_crossing(const struct gp_insertion *ins, int64_t positions, int64_t features)
{
	for (int e = 0; e < GP_INSERT_ENDS; e++) {
		assert_int_equal(ins->end[e].packed.dim[0], positions);
		assert_int_equal(ins->end[e].packed.dim[1], features);
	}
}

static const char two_sets[] =
	"decay:rate=0.5,every=2,times=2,dim=feature/decay:rate=0.75,every=3,times=2,dim=sequence";

static void engines_get_the_names_and_the_numbers(void **state)
{
	(void)state;
	const struct gp_cut cut = {1, 2};
	static const char *const encoder[] = {"insert_up.encoder.0", "insert_up.encoder.1", "insert_down.encoder.0",
					      "insert_down.encoder.1"};
	static const char *const decoder[] = {"insert_up.decoder.1", "insert_up.decoder.0", "insert_down.decoder.1",
					      "insert_down.decoder.0"};
	struct gp_graph *g = make_graph(), *later;
	struct gp_insertion ins = parse(two_sets);
	struct gp_decays d;
	OK(gp_insert(&g, &cut, &ins, &err));
	expect_crossing(&ins, 8, 16);
	gp_insertion_decays(&ins, &d);
	assert_int_equal(d.count, 4);
	for (int i = 0; i < 4; i++) {
		assert_string_equal(d.decay[i].encoder, encoder[i]);
		assert_string_equal(d.decay[i].decoder, decoder[i]);
		assert_int_equal(d.decay[i].every, 2 + i % 2);
	}
	OK(gp_decays_check(&d, g, &err));
	OK(gp_decays_graph(&d, g, 6, &later, &err)); /* 16, 8, 4 features and 8, 6, 4 positions */
	struct gp_graph_parts parts;
	OK(gp_graph_cut(later, &cut, &parts, &err));
	assert_true(parts.body->value[0].type.shape.dim[0] == 4 && parts.body->value[0].type.shape.dim[1] == 4);
	assert_true(gp_graph_output_shape(parts.body)->dim[0] == 4 && gp_graph_output_shape(parts.body)->dim[1] == 4);
	/* A server has the body alone, and finds the same. */
	struct gp_graph_parts first;
	struct gp_graph *body;
	OK(gp_graph_cut(g, &cut, &first, &err));
	OK(gp_decays_check(&d, first.body, &err));
	OK(gp_decays_graph(&d, first.body, 6, &body, &err));
	assert_true(gp_shape_equal(&body->value[0].type.shape, &parts.body->value[0].type.shape));
	assert_true(gp_shape_equal(gp_graph_output_shape(body), gp_graph_output_shape(parts.body)));
	gp_graph_free(body);
	gp_graph_parts_deinit(&first);
	gp_graph_parts_deinit(&parts);
	gp_graph_free(later);
	gp_graph_free(g);
}

static void weights_of_a_later_step_have_its_rank_for_good(void **state)
{
	(void)state;
	const struct gp_cut cut = {1, 2};
	char text[GP_INSERT_TEXT];
	struct gp_graph *g = make_graph();
	struct gp_insertion ins = parse(two_sets);
	struct gp_decays d;
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		gp_insert_settle(&ins.end[e].spec, 3);
	OK(gp_insert(&g, &cut, &ins, &err));
	expect_crossing(&ins, 6, 8);
	gp_insertion_decays(&ins, &d);
	assert_int_equal(d.count, 0);
	gp_insert_spec_text(&ins.end[0].spec, text);
	assert_string_equal(text, "linear:rank=8,dim=feature,start=identity/linear:rank=6,dim=sequence,start=identity");
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_text_comes_back_with_every_key),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(engines_get_the_names_and_the_numbers),
		cmocka_unit_test(weights_of_a_later_step_have_its_rank_for_good),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Insertions in graphs: where they stand, what crosses, what is left alone. What
 * they compute: test_plan_graphs.c, against PyTorch.
 */
#include <math.h>
#include <string.h>

#include "client/engine/crossing.h"
#include "client/insert/insert.h"
#include "client/models/models.h"
#include "client/costs/partitions.h"
#include "common/base/fault.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"
#include "tests/unit/ok.h"

static struct gp_graph *build(const char *spec, const char *cut_text, struct gp_cut *cut)
{
	struct gp_graph *g;
	OK(gp_model_build(spec, NULL, &g, &err));
	OK(gp_partition_parse(g, cut_text, cut, &err));
	return g;
}

static struct gp_graph *inserted(const char *spec, const char *cut_text, const char *up, const char *down,
				 struct gp_insertion *ins, struct gp_cut *cut)
{
	struct gp_graph *g = build(spec, cut_text, cut);
	OK(gp_insertion_parse(NULL, up, down, ins, &err));
	OK(gp_insert(&g, cut, ins, &err));
	return g;
}

static bool has_param(const struct gp_graph *g, const char *name)
{
	return gp_graph_find_param(g, name) >= 0;
}

/* --- rates ------------------------------------------------------------------------------------------------------- */

/* Bytes that a sample moves both ways, of a graph or of what it would be without the insertion. */
static uint64_t bytes_of(const struct gp_graph *g, const struct gp_cut *cut, const struct gp_insertion *ins)
{
	struct gp_session_spec session = {.chunk_samples = 1, .chunks = 1, .window = 1};
	struct gp_crossing *c;
	uint64_t sum = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		OK(gp_codec_spec_parse("raw", &session.codec[d], &err));
	OK(gp_crossing_find(g, cut, &session, &c, &err));
	for (int i = 0; i < c->list.count; i++) {
		const struct gp_flow_spec *f = &c->list.flow[i];
		const bool input = gp_direction_info[f->direction].at_input;
		const struct gp_type *t =
			input ? &c->parts.body->value[f->tensor].type : gp_graph_output_type(c->parts.body, f->tensor);
		const char *name = gp_crossing_name(c->parts.body, f->direction, f->tensor);
		sum += gp_dtype_bytes(t->dtype) *
		       (ins ? gp_insertion_plain(ins, input ? GP_INSERT_UP : GP_INSERT_DOWN, name, &t->shape)
			    : gp_shape_elements(&t->shape));
	}
	gp_crossing_free(c);
	return sum;
}

/* As the origin's table has them, from shapes. */
static void presets_have_their_rates(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		double rate;
	} rows[] = {{"origin-0", .0928}, {"origin-1", .0794}, {"origin-2", .0241}, {"origin-3", .0503},
		    {"origin-4", .0460}, {"origin-5", .0173}, {"origin-6", .0120}, {"origin-7", .0065},
		    {"flop-2", .097},    {"flop-3", .038},    {"rate-070", .070}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct gp_insertion ins;
		struct gp_cut cut;
		struct gp_graph *g = build("mobilenetv2:cuts=fine", "1:-2", &cut);
		const uint64_t plain = bytes_of(g, &cut, NULL);
		OK(gp_insertion_parse(rows[i].name, NULL, NULL, &ins, &err));
		OK(gp_insert(&g, &cut, &ins, &err));
		const double rate = (double)bytes_of(g, &cut, NULL) / (double)plain;
		if (!(fabs(rate - rows[i].rate) <= 0.00051))
			fail_msg("%s: %.4f", rows[i].name, rate);
		assert_int_equal(bytes_of(g, &cut, &ins), plain);
		gp_graph_free(g);
	}
}

/* --- where they stand -------------------------------------------------------------------------------------------- */

static void the_origins_cut_is_between_convolution_and_activation(void **state)
{
	(void)state;
	struct gp_insertion ins;
	struct gp_cut cut;
	struct gp_graph *g = inserted("mobilenetv2:cuts=fine", "1:-2", "origin-0", "origin-0", &ins, &cut);
	const struct gp_shape up = {.ndim = 3, .dim = {112, 112, 32}}, down = {.ndim = 3, .dim = {7, 7, 1280}};
	assert_true(gp_shape_equal(&ins.end[GP_INSERT_UP].plain, &up));
	assert_true(gp_shape_equal(&ins.end[GP_INSERT_DOWN].plain, &down));
	assert_string_equal(ins.end[GP_INSERT_UP].value, "features.0.1");
	assert_int_equal(ins.end[GP_INSERT_UP].others, 0);
	assert_true(has_param(g, "insert_up.encoder.0.weight") && has_param(g, "insert_down.decoder.0.bias"));
	gp_graph_free(g);
}

/* Encoders belong to the part before the cut, decoders to that behind it; the model has its blocks, values and inputs. */
static void parts_and_blocks_stay_what_they_were(void **state)
{
	(void)state;
	struct gp_insertion ins;
	struct gp_cut cut, same;
	struct gp_graph *plain = build("cnn", "1:-1", &cut);
	struct gp_graph *g = inserted("cnn", "1:-1", "conv:out=4,k=5,s=5/conv:out=2,k=1,s=1", NULL, &ins, &cut);
	struct gp_graph_parts parts;
	assert_int_equal(g->blocks, plain->blocks);
	for (int i = 0; i < g->blocks; i++)
		assert_string_equal(g->block[i].name, plain->block[i].name);
	OK(gp_cut_parse(g, "1:-1", &same, &err));
	assert_true(same.head == cut.head && same.tail == cut.tail);
	OK(gp_graph_cut(g, &cut, &parts, &err));
	assert_true(has_param(parts.head, "insert_up.encoder.1.weight") &&
		    !has_param(parts.body, "insert_up.encoder.1.weight"));
	assert_true(has_param(parts.body, "insert_up.decoder.0.weight") &&
		    has_param(parts.body, "insert_up.decoder.1.bias"));
	assert_int_equal(parts.body->inputs, 1);
	assert_string_equal(parts.body->node[0].name, "insert_up.encoder.1");
	for (int i = 0; i < plain->params; i++) {
		const int k = gp_graph_find_param(g, plain->param[i].name);
		assert_true(k >= 0 && g->param[k].init == plain->param[i].init &&
			    g->param[k].init_scale == plain->param[i].init_scale);
	}
	assert_true(g->trained_elements == g->param_elements - (plain->param_elements - plain->trained_elements));
	gp_graph_parts_deinit(&parts);
	gp_graph_free(plain);
	gp_graph_free(g);
}

/* Every size comes back exactly: the decoder's output has the shape of the value. */
static void any_size_is_restored(void **state)
{
	(void)state;
	static const char *const specs[] = {"conv:out=3,k=3,s=3", "conv:out=3,k=2,s=3", "conv:out=3,k=5,s=2,p=2",
					    "conv:out=3,k=4,s=4/conv:out=2,k=2,s=1"};
	for (int side = 8; side <= 23; side++)
		for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
			struct gp_insertion ins;
			struct gp_graph *g;
			OK(gp_insertion_parse(specs[i], NULL, NULL, &ins, &err));
			ins.end[GP_INSERT_UP].plain = (struct gp_shape){.ndim = 3, .dim = {side, 31 - side, 5}};
			OK(gp_insert_alone(&ins, GP_INSERT_UP, ins.end[GP_INSERT_UP].spec.sets, true, &g, &err));
			assert_true(gp_shape_equal(gp_graph_output_shape(g), &ins.end[GP_INSERT_UP].plain));
			gp_graph_free(g);
		}
}

/* Inside a residual block two activations cross: the one that was made last is compressed. */
static void a_residual_crosses_as_it_is(void **state)
{
	(void)state;
	struct gp_insertion ins;
	struct gp_cut cut;
	struct gp_graph *g = build("mobilenetv2:cuts=fine,stem=cifar", "1:-2", &cut);
	while (strcmp(g->block[cut.head].name, "features.3.conv.0.act") != 0)
		cut.head++;
	OK(gp_insertion_parse(NULL, "conv:out=4,k=2,s=2", NULL, &ins, &err));
	OK(gp_insert(&g, &cut, &ins, &err));
	assert_string_equal(ins.end[GP_INSERT_UP].value, "features.3.conv.0.1");
	assert_int_equal(ins.end[GP_INSERT_UP].others, 1);
	gp_graph_free(g);
}

/* Lengths and masks are integers: they cross as before, and so does what is compressed behind the encoder. */
static void integers_are_left_alone(void **state)
{
	(void)state;
	struct gp_insertion ins;
	struct gp_cut cut;
	struct gp_graph_parts parts;
	struct gp_graph *g = inserted("roberta:layers=3,dim=8,heads=2,cuts=fine", "type1", "linear:rank=3,dim=feature",
				      "linear:rank=5,dim=sequence", &ins, &cut);
	OK(gp_graph_cut(g, &cut, &parts, &err));
	int integers = 0;
	for (int i = 0; i < parts.body->inputs; i++)
		integers += parts.body->value[i].type.dtype == GP_I32;
	assert_int_equal(integers, parts.body->inputs - 1);
	assert_true(integers >= 1);
	gp_graph_parts_deinit(&parts);
	gp_graph_free(g);
}

/* A chunk may have its own length behind a layer along the features, but not along the positions. */
static void lengths_survive_features_alone(void **state)
{
	(void)state;
	static const struct {
		const char *spec;
		bool keeps;
	} rows[] = {
		{"linear:rank=3,dim=feature", true}, {"linear:rank=3,dim=sequence", false}, {"bottleneck:dim=3", true}};
	for (int i = 0; i < 3; i++) {
		struct gp_insertion ins;
		struct gp_cut cut;
		struct gp_graph *g = inserted("roberta:layers=2,dim=8,heads=2", "1:-1", rows[i].spec, NULL, &ins, &cut);
		assert_int_equal(gp_graph_sequence(g) > 0, rows[i].keeps);
		gp_graph_free(g);
	}
}

static void an_identity_starts_as_one(void **state)
{
	(void)state;
	struct gp_insertion ins;
	struct gp_cut cut;
	float w[3 * 8];
	struct gp_graph *g = inserted("roberta:layers=2,dim=8,heads=2", "1:-1",
				      "linear:rank=3,dim=feature,start=identity", NULL, &ins, &cut);
	for (int part = 0; part < 2; part++) {
		const int columns = part ? 3 : 8;
		gp_param_init(&g->param[gp_graph_find_param(g, part ? "insert_up.decoder.0.weight"
								    : "insert_up.encoder.0.weight")],
			      9, w);
		for (int i = 0; i < 24; i++)
			assert_true(w[i] == (i / columns == i % columns ? 1.0f : 0.0f));
	}
	gp_graph_free(g);
}

/* --- bottlenecks ------------------------------------------------------------------------------------------------- */

static void expect_param(const struct gp_graph *g, const char *name, enum gp_init_kind init, struct gp_shape shape)
{
	const int i = gp_graph_find_param(g, name);
	if (i < 0 || g->param[i].init != init || !gp_shape_equal(&g->param[i].shape, &shape))
		fail_msg("%s is %s", name, i < 0 ? "not there" : "another parameter");
}

/* Its parameters by name; what crosses; and a branch that adds nothing at first, so that the straight path is all there is. */
static void a_bottleneck_starts_as_its_straight_path(void **state)
{
	(void)state;
	struct gp_insertion ins;
	struct gp_cut cut;
	struct gp_graph *g = inserted("cnn", "1:-1", "bottleneck:dim=4,hidden=9",
				      "bottleneck:dim=6,act=relu,start=random", &ins, &cut);
	const int64_t c = ins.end[GP_INSERT_UP].plain.dim[2], f = ins.end[GP_INSERT_DOWN].plain.dim[0];
	const struct gp_shape four[] = {{4, {4, c, 1, 1}}, {4, {9, c, 1, 1}}, {1, {9}}, {4, {4, 9, 1, 1}}, {1, {4}}};
	assert_true(ins.end[GP_INSERT_UP].packed.dim[2] == 4 && ins.end[GP_INSERT_DOWN].packed.dim[0] == 6);
	expect_param(g, "insert_up.encoder.0.weight", GP_INIT_IDENTITY, four[0]);
	expect_param(g, "insert_up.encoder.0.hidden.weight", GP_INIT_UNIFORM, four[1]);
	expect_param(g, "insert_up.encoder.0.hidden.bias", GP_INIT_UNIFORM, four[2]);
	expect_param(g, "insert_up.encoder.0.out.weight", GP_INIT_ZEROS, four[3]);
	expect_param(g, "insert_up.encoder.0.out.bias", GP_INIT_ZEROS, four[4]);
	expect_param(g, "insert_up.decoder.0.weight", GP_INIT_IDENTITY, (struct gp_shape){4, {c, 4, 1, 1}});
	expect_param(g, "insert_up.decoder.0.out.weight", GP_INIT_ZEROS, (struct gp_shape){4, {c, 9, 1, 1}});
	expect_param(g, "insert_down.encoder.0.weight", GP_INIT_UNIFORM, (struct gp_shape){2, {6, f}});
	expect_param(g, "insert_down.encoder.0.hidden.weight", GP_INIT_UNIFORM, (struct gp_shape){2, {24, f}});
	expect_param(g, "insert_down.decoder.0.hidden.weight", GP_INIT_UNIFORM, (struct gp_shape){2, {24, 6}});
	expect_param(g, "insert_down.decoder.0.out.bias", GP_INIT_ZEROS, (struct gp_shape){1, {f}});
	gp_graph_free(g);
}

static void bottlenecks_stack_with_other_layers(void **state)
{
	(void)state;
	static const char *const specs[] = {"bottleneck:dim=4/bottleneck:dim=2", "conv:out=6,k=3,s=3/bottleneck:dim=2",
					    "bottleneck:dim=3,start=pca/conv:out=2,k=2,s=2/linear:rank=2,dim=feature"};
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		struct gp_insertion ins;
		struct gp_graph *g;
		OK(gp_insertion_parse(specs[i], NULL, NULL, &ins, &err));
		ins.end[GP_INSERT_UP].plain = (struct gp_shape){.ndim = 3, .dim = {9, 7, 5}};
		OK(gp_insert_alone(&ins, GP_INSERT_UP, ins.end[GP_INSERT_UP].spec.sets, true, &g, &err));
		assert_true(gp_shape_equal(gp_graph_output_shape(g), &ins.end[GP_INSERT_UP].plain));
		gp_graph_free(g);
	}
}

/* --- refusals ---------------------------------------------------------------------------------------------------- */

static void what_does_not_fit_is_refused_and_the_graph_stays(void **state)
{
	(void)state;
	static const struct {
		const char *model, *cut, *up, *why;
	} rows[] = {
		{"cnn", "1:-1", "conv:out=4,k=50,s=1", "a kernel of 50 does not fit"},
		{"cnn", "1:-1", "linear:rank=4,dim=sequence", "dim=sequence is for sequences"},
		{"cnn", "1:-1", "linear:rank=4000,dim=feature", "rank=4000 is above"},
		{"roberta:layers=2,dim=8,heads=2", "1:-1", "conv:out=4,k=1,s=1", "conv is for maps"},
		{"roberta:layers=2,dim=8,heads=2", "1:-1", "linear:rank=9,dim=feature",
		 "rank=9 is above the 8 features"},
		{"roberta:layers=2,dim=8,heads=2", "1:-1", "linear:rank=999,dim=sequence", "rank=999 is above the"},
		{"roberta:layers=2,dim=8,heads=2", "1:-1", "bottleneck:dim=9", "dim=9 is above the 8 features"},
		{"cnn", "1:-1", "bottleneck:dim=33", "dim=33 is above the 32 channels"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct gp_insertion ins;
		struct gp_cut cut;
		struct gp_graph *g = build(rows[i].model, rows[i].cut, &cut), *const before = g;
		OK(gp_insertion_parse(NULL, rows[i].up, NULL, &ins, &err));
		assert_int_equal(gp_insert(&g, &cut, &ins, &err), GP_USAGE);
		if (!strstr(err.text, rows[i].why) || !strstr(err.text, "--insert-up"))
			fail_msg("%s: %s", rows[i].up, err.text);
		assert_ptr_equal(g, before);
		gp_graph_free(g);
	}
}

/* A head that only hands on what it is given: ids go up. */
static void an_end_that_nothing_but_integers_crosses_is_refused(void **state)
{
	(void)state;
	const struct gp_type ids = {GP_I32, {.ndim = 1, .dim = {6}}};
	const struct gp_cut cut = {1, 2};
	struct gp_insertion ins;
	struct gp_graph *g = gp_graph_new_empty("ids", &err), *const before = g;
	assert_non_null(g);
	int x = gp_graph_add_input(g, "ids", &ids, &err);
	OK(gp_graph_begin_block(g, "head", &err));
	x = gp_graph_unary(g, GP_OP_IDENTITY, "hand", x, &err);
	OK(gp_graph_begin_block(g, "body", &err));
	x = gp_graph_embedding(g, "table", x, 11, 8, &err);
	OK(gp_graph_begin_block(g, "tail", &err));
	gp_graph_linear(g, "fc", x, 4, true, &err);
	OK(gp_graph_finish(g, &err));
	OK(gp_insertion_parse(NULL, "bottleneck:dim=2", NULL, &ins, &err));
	assert_int_equal(gp_insert(&g, &cut, &ins, &err), GP_USAGE);
	if (!strstr(err.text, "--insert-up: no activation goes up at this cut of ids"))
		fail_msg("%s", err.text);
	assert_ptr_equal(g, before);
	OK(gp_insertion_parse(NULL, NULL, "bottleneck:dim=2", &ins, &err));
	OK(gp_insert(&g, &cut, &ins, &err));
	assert_true(has_param(g, "insert_down.decoder.0.out.weight"));
	gp_graph_free(g);
}

#ifdef GP_FAULTS
static void failed_allocation_leaves_the_graph_as_it_was(void **state)
{
	(void)state;
	struct gp_cut cut;
	struct gp_graph *g = build("cnn", "1:-1", &cut), *const before = g, *alone = NULL;
	struct gp_insertion ins;
	enum gp_status status = GP_NOMEM;
	OK(gp_insertion_parse(NULL, "conv:out=4,k=3,s=3/bottleneck:dim=2", "linear:rank=3,dim=feature", &ins, &err));
	for (uint64_t nth = 1; status == GP_NOMEM; nth++) {
		assert_ptr_equal(g, before);
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		status = gp_insert(&g, &cut, &ins, &err);
	}
	gp_fault_arm(GP_FAULT_ALLOC, 0);
	assert_int_equal(status, GP_OK);
	status = GP_NOMEM;
	for (uint64_t nth = 1; status == GP_NOMEM; nth++) {
		assert_null(alone);
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		status = gp_insert_alone(&ins, GP_INSERT_UP, 1, true, &alone, &err);
	}
	gp_fault_arm(GP_FAULT_ALLOC, 0);
	assert_int_equal(status, GP_OK);
	gp_graph_free(alone);
	gp_graph_free(g);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(presets_have_their_rates),
		cmocka_unit_test(the_origins_cut_is_between_convolution_and_activation),
		cmocka_unit_test(parts_and_blocks_stay_what_they_were),
		cmocka_unit_test(any_size_is_restored),
		cmocka_unit_test(a_residual_crosses_as_it_is),
		cmocka_unit_test(integers_are_left_alone),
		cmocka_unit_test(lengths_survive_features_alone),
		cmocka_unit_test(an_identity_starts_as_one),
		cmocka_unit_test(a_bottleneck_starts_as_its_straight_path),
		cmocka_unit_test(bottlenecks_stack_with_other_layers),
		cmocka_unit_test(an_end_that_nothing_but_integers_crosses_is_refused),
		cmocka_unit_test(what_does_not_fit_is_refused_and_the_graph_stays),
#ifdef GP_FAULTS
		cmocka_unit_test(failed_allocation_leaves_the_graph_as_it_was),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

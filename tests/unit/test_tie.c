/* SPDX-License-Identifier: Apache-2.0
 *
 * Tied weights (common/graph/tie.h): a word embedding at the
 * beginning of a model and the matrix at its end, in one plan and in two.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/graph/clip.h"
#include "common/graph/graph_part.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/snapshot.h"
#include "common/graph/tie.h"
#include "common/graph/weights.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"

enum { WORDS = 40, DIM = 8, TOKENS = 3, BATCH = 2, TABLE = WORDS * DIM };

/* table -> linear -> scores of the words: blocks of one node each. */
static struct gp_graph *make_graph(bool tied)
{
	const struct gp_type tokens = {GP_I32, {.ndim = 1, .dim = {TOKENS}}};
	struct gp_graph *g = gp_graph_new_empty("words", &err);
	assert_true(gp_graph_add_input(g, "tokens", &tokens, &err) == 0);
	OK(gp_graph_begin_block(g, "table", &err));
	int x = gp_graph_embedding(g, "table", 0, WORDS, DIM, &err);
	OK(gp_graph_begin_block(g, "middle", &err));
	x = gp_graph_linear(g, "middle", x, DIM, true, &err);
	OK(gp_graph_begin_block(g, "scores", &err));
	assert_true(gp_graph_linear(g, "scores", x, WORDS, true, &err) > 0);
	if (tied)
		gp_graph_tie(g, gp_graph_find_param(g, "table.weight"), gp_graph_find_param(g, "scores.weight"));
	OK(gp_graph_finish(g, &err));
	return g;
}

struct bed {
	struct gp_graph *whole;
	struct gp_graph_parts parts; /* zeroed: one plan has all */
	struct gp_device *dev;
	struct gp_plan *plan[3]; /* the whole, or head, body and tail */
	int plans;
	struct gp_tie tie;
};

static const struct gp_codec_spec *coded; /* what passes through codecs in plans that are made */
static bool no_master;

static struct gp_plan *make_plan(struct bed *b, const struct gp_graph *g, uint64_t grad_inputs,
				 const struct gp_optim *optim)
{
	struct gp_plan *p;
	struct gp_plan_spec spec = {.graph = g,
				    .batch = BATCH,
				    .slots = 1,
				    .train = true,
				    .undo = true,
				    .seed = 5,
				    .grad_inputs = grad_inputs,
				    .optim = *optim};
	for (int i = 0; i < GP_STRUCTS; i++)
		spec.coded[i] = coded;
	spec.no_master = no_master;
	OK(b->dev->ops->plan_new(b->dev, &spec, &p, &err));
	return p;
}

static struct bed make_bed(bool split, const struct gp_optim *optim)
{
	const struct gp_cut cut = {.head = 1, .tail = 2};
	struct bed b = {.whole = make_graph(true), .plans = split ? 3 : 1};
	OK(gp_device_open(test_device(), test_threads(), &b.dev, &err));
	if (split) {
		OK(gp_graph_cut(b.whole, &cut, &b.parts, &err));
		b.plan[0] = make_plan(&b, b.parts.head, 0, optim);
		b.plan[1] = make_plan(&b, b.parts.body, 1, optim);
		b.plan[2] = make_plan(&b, b.parts.tail, 1, optim);
	} else {
		b.plan[0] = make_plan(&b, b.whole, 0, optim);
	}
	OK(gp_tie_find(b.whole, b.plan[0], b.plan[b.plans - 1], &b.tie, &err));
	OK(gp_tie_values(&b.tie, &err));
	return b;
}

static void drop_bed(struct bed *b)
{
	for (int i = 0; i < b->plans; i++)
		b->dev->ops->plan_free(b->plan[i]);
	b->dev->ops->close(b->dev);
	gp_graph_parts_deinit(&b->parts);
	gp_graph_free(b->whole);
}

/* One chunk forward and backward, through all plans. */
static void run_chunk(struct bed *b, int step)
{
	const struct gp_device_ops *ops = b->dev->ops;
	const size_t between = (size_t)BATCH * TOKENS * DIM * sizeof(float);
	int32_t *tokens = ops->buffer(b->plan[0], 0, GP_BUF_INPUT, 0);
	for (int i = 0; i < BATCH * TOKENS; i++)
		tokens[i] = (step * 7 + i * 5) % WORDS;
	for (int i = 0; i < b->plans; i++) {
		if (i > 0)
			memcpy(ops->buffer(b->plan[i], 0, GP_BUF_INPUT, 0),
			       ops->buffer(b->plan[i - 1], 0, GP_BUF_OUTPUT, 0), between);
		OK(ops->forward(b->plan[i], 0, GP_TRAIN, (uint64_t)step, &err));
	}
	float *grad = ops->buffer(b->plan[b->plans - 1], 0, GP_BUF_GRAD_OUTPUT, 0);
	for (int i = 0; i < BATCH * TOKENS * WORDS; i++)
		grad[i] = gp_rng_normal(1, (uint64_t)step, (uint64_t)i);
	for (int i = b->plans - 1; i >= 0; i--) {
		OK(ops->backward(b->plan[i], 0, &err));
		if (i > 0)
			memcpy(ops->buffer(b->plan[i - 1], 0, GP_BUF_GRAD_OUTPUT, 0),
			       ops->buffer(b->plan[i], 0, GP_BUF_GRAD_INPUT, 0), between);
	}
}

static double squared_norm(struct bed *b)
{
	double sum[8], total = 0;
	for (int i = 0; i < b->plans; i++) {
		OK(b->dev->ops->grad_squares(b->plan[i], sum, &err));
		total = gp_clip_add(total, sum, gp_clip_sums(b->plan[i]->spec.graph));
	}
	return total;
}

static double run_step(struct bed *b, int step)
{
	run_chunk(b, step);
	OK(gp_tie_gradients(&b->tie, &err));
	OK(gp_tie_gradients(&b->tie, &err)); /* once, however often it is called */
	const double norm = sqrt(squared_norm(b));
	for (int i = 0; i < b->plans; i++)
		OK(gp_clip_update(b->plan[i], 0.01f, norm, &err));
	OK(gp_tie_updated(&b->tie, &err));
	return norm;
}

/* The table (which 0) or the matrix (1). */
static void get(struct bed *b, int which, float *out)
{
	OK(b->dev->ops->param_get(b->tie.plan[which], b->tie.index[which], out, &err));
}

static void get_gradient(struct bed *b, int which, float *out)
{
	OK(b->dev->ops->grad_get(b->tie.plan[which], b->tie.index[which], out, &err));
}

static const struct gp_optim adamw = {.kind = GP_OPTIM_ADAMW,
				      .weight_decay = 0.1f,
				      .beta1 = 0.9,
				      .beta2 = 0.98,
				      .eps = 1e-6f,
				      .clip_norm = 0.5},
			     sgd = {.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 0.1f};

static void expect_to_stay_equal(void)
{
	const struct gp_optim *const optims[] = {&adamw, &sgd};
	for (int k = 0; k < 2; k++) {
		struct bed local = make_bed(false, optims[k]), split = make_bed(true, optims[k]);
		float start[TABLE], table[TABLE], matrix[TABLE], other[TABLE];
		get(&local, 0, start);
		get(&local, 1, matrix);
		assert_memory_equal(start, matrix, sizeof start);
		for (int step = 0; step < 4; step++) {
			assert_true(run_step(&local, step) == run_step(&split, step));
			get(&local, 0, table);
			get(&local, 1, matrix);
			assert_memory_equal(table, matrix, sizeof table);
			get(&split, 0, other);
			assert_memory_equal(table, other, sizeof table);
			get(&split, 1, other);
			assert_memory_equal(table, other, sizeof table);
		}
		assert_memory_not_equal(start, table, sizeof start);
		drop_bed(&local);
		drop_bed(&split);
	}
}

static void both_stay_equal_and_a_split_run_equals_a_local_one(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	expect_to_stay_equal();
	if (strcmp(test_device(), "cpu") != 0)
		return; /* others do not code */
	OK(gp_codec_spec_parse("uniform:bits=6", &spec, &err));
	coded = &spec;
	expect_to_stay_equal();
	no_master = true;
	expect_to_stay_equal();
	coded = NULL;
	no_master = false;
}

/* And the norm has it once. */
static void the_gradient_is_the_sum_of_both(void **state)
{
	(void)state;
	struct bed b = make_bed(false, &sgd);
	float first[TABLE], second[TABLE], sum[TABLE], middle[DIM * DIM + DIM], bias[WORDS];
	double squares = 0;
	run_chunk(&b, 0);
	run_chunk(&b, 1); /* two chunks of a step */
	get_gradient(&b, 0, first);
	get_gradient(&b, 1, second);
	OK(gp_tie_gradients(&b.tie, &err));
	get_gradient(&b, 0, sum);
	for (int i = 0; i < TABLE; i++) {
		assert_true(sum[i] == first[i] + second[i]);
		squares += (double)sum[i] * (double)sum[i];
	}
	OK(b.dev->ops->grad_get(b.plan[0], gp_graph_find_param(b.whole, "middle.weight"), middle, &err));
	OK(b.dev->ops->grad_get(b.plan[0], gp_graph_find_param(b.whole, "middle.bias"), middle + DIM * DIM, &err));
	OK(b.dev->ops->grad_get(b.plan[0], gp_graph_find_param(b.whole, "scores.bias"), bias, &err));
	for (int i = 0; i < DIM * DIM + DIM; i++)
		squares += (double)middle[i] * (double)middle[i];
	for (int i = 0; i < WORDS; i++)
		squares += (double)bias[i] * (double)bias[i];
	assert_true(fabs(squared_norm(&b) - squares) < 1e-9 * squares);
	b.dev->ops->step_undo(b.plan[0]);
	gp_tie_undo(&b.tie);
	assert_true(squared_norm(&b) == 0);
	drop_bed(&b);
}

static void a_checkpoint_has_the_pair_once(void **state)
{
	(void)state;
	struct bed b = make_bed(true, &adamw);
	struct gp_snapshot s = {0};
	run_step(&b, 0);
	for (int i = 0; i < b.plans; i++)
		OK(gp_snapshot_add_plan(&s, b.plan[i], &err));
	int tables = 0;
	for (int i = 0; i < s.count; i++) {
		assert_null(strstr(s.item[i].name, "scores.weight"));
		tables += strstr(s.item[i].name, "table.weight") != NULL;
	}
	assert_int_equal(tables, 3); /* values and two moments */
	gp_snapshot_deinit(&s);
	drop_bed(&b);
}

static void counts_decay_and_draws_have_the_pair_once(void **state)
{
	(void)state;
	struct gp_graph *tied = make_graph(true), *free_ones = make_graph(false);
	struct gp_weights *w;
	const int table = tied->tied[0], matrix = tied->tied[1];
	assert_int_equal(tied->param_elements, free_ones->param_elements - TABLE);
	assert_int_equal(tied->trained_elements, free_ones->trained_elements - TABLE);
	OK(gp_weights_new(tied, &w, &err));
	gp_weights_init(w, 5);
	assert_memory_equal(w->value[table], w->value[matrix], TABLE * sizeof(float));
	float drawn[TABLE];
	gp_param_init(&free_ones->param[gp_graph_find_param(free_ones, "table.weight")], 5, drawn);
	assert_memory_equal(w->value[table], drawn, sizeof drawn);
	gp_weights_free(w);
	gp_graph_free(tied);
	gp_graph_free(free_ones);
}

/* A file has the table alone; one with the matrix, too, is read. */
static void files_have_the_pair_once(void **state)
{
	(void)state;
	char path[64]; /* this program runs several times at once, with other loops */
	snprintf(path, sizeof path, "/tmp/gp_tie_%ld.safetensors", (long)getpid());
	struct gp_graph *tied = make_graph(true), *free_ones = make_graph(false);
	struct gp_weights_report report;
	struct gp_weights *w, *v;
	struct gp_st_file *f;
	OK(gp_weights_new(tied, &w, &err));
	OK(gp_weights_new(tied, &v, &err));
	gp_weights_init(w, 5);
	OK(gp_weights_save(w, path, &err));
	OK(gp_st_open(path, &f, &err));
	assert_non_null(gp_st_find(f, "table.weight"));
	assert_null(gp_st_find(f, "scores.weight"));
	gp_st_close(f);
	OK(gp_weights_load(v, path, true, NULL, &err));
	for (int i = 0; i < tied->params; i++)
		assert_memory_equal(w->value[i], v->value[i], tied->param[i].count * sizeof(float));
	w->graph = free_ones;
	OK(gp_weights_save(w, path, &err));
	OK(gp_weights_load(v, path, true, &report, &err));
	assert_false(report.untied);
	w->value[tied->tied[1]][0] += 1;
	OK(gp_weights_save(w, path, &err));
	OK(gp_weights_load(v, path, true, &report, &err));
	assert_true(report.untied);
	assert_memory_equal(v->value[tied->tied[0]], w->value[tied->tied[0]], TABLE * sizeof(float));
	assert_memory_equal(v->value[tied->tied[0]], v->value[tied->tied[1]], TABLE * sizeof(float));
	unlink(path);
	gp_weights_free(w);
	gp_weights_free(v);
	gp_graph_free(tied);
	gp_graph_free(free_ones);
}

static void a_plan_without_the_other_one_is_refused(void **state)
{
	(void)state;
	struct bed b = make_bed(true, &sgd);
	struct gp_tie t;
	assert_int_equal(gp_tie_find(b.whole, b.plan[0], b.plan[1], &t, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "table.weight and scores.weight share their values (tied weights)"));
	drop_bed(&b);
	struct gp_graph *g = make_graph(false);
	OK(gp_tie_find(g, NULL, NULL, &t, &err)); /* there is no pair: nothing is done */
	OK(gp_tie_values(&t, &err));
	OK(gp_tie_gradients(&t, &err));
	OK(gp_tie_updated(&t, &err));
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_stay_equal_and_a_split_run_equals_a_local_one),
		cmocka_unit_test(the_gradient_is_the_sum_of_both),
		cmocka_unit_test(a_checkpoint_has_the_pair_once),
		cmocka_unit_test(counts_decay_and_draws_have_the_pair_once),
		cmocka_unit_test(files_have_the_pair_once),
		cmocka_unit_test(a_plan_without_the_other_one_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What --pad comes to (client/engine/padding.c), and which models read padding
 * (common/graph/graph.h, gp_graph_padding_reader): padding is left out only where
 * nothing in the model depends on it. With codecs and a server: tests/e2e/padding.sh.
 */
#include <string.h>

#include "client/engine/padding.h"
#include "client/job/compress.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_rows.h"
#include "tests/unit/ok.h"

enum { POSITIONS = 20, FEATURES = 4 };
enum { TOKENS, MASK, LENGTH = MASK }; /* one of the two is there at most */

/* Adds what makes a row of features of the embedded tokens, and returns it. */
typedef int make_pool(struct gp_graph *g, int embedded);

static int first_position(struct gp_graph *g, int x)
{
	return gp_graph_take_row(g, "pool", x, 0, &err);
}

static int second_position(struct gp_graph *g, int x)
{
	return gp_graph_take_row(g, "pool", x, 1, &err);
}

static int mean(struct gp_graph *g, int x)
{
	return gp_graph_masked_mean(g, "pool", x, MASK, &err);
}

/* What the model has computed from the mask is not what the data says of a text. */
static int mean_of_what_is_made(struct gp_graph *g, int x)
{
	return gp_graph_masked_mean(g, "pool", x, gp_graph_unary(g, GP_OP_IDENTITY, "made", MASK, &err), &err);
}

static int attention(struct gp_graph *g, int x, int length)
{
	const struct gp_attention_attr attr = {.heads = 2};
	return first_position(g, gp_graph_attention(g, "attention", (const int[]){x, x, x}, length, attr, &err));
}

static int attention_with_lengths(struct gp_graph *g, int x)
{
	return attention(g, x, LENGTH);
}

static int attention_without(struct gp_graph *g, int x)
{
	return attention(g, x, gp_graph_unary(g, GP_OP_IDENTITY, "made", LENGTH, &err));
}

static struct gp_graph *build(make_pool *pool, const char *beside)
{
	const struct gp_type row = {GP_I32, {.ndim = 1, .dim = {POSITIONS}}}, one = {GP_I32, {.ndim = 1, .dim = {1}}};
	const bool mask = strcmp(beside, "mask") == 0;
	struct gp_graph *g = gp_graph_new_empty("g", &err);
	assert_int_equal(gp_graph_add_input(g, "tokens", &row, &err), TOKENS);
	gp_graph_mark_sequence(g, TOKENS);
	if (beside[0])
		assert_int_equal(gp_graph_add_input(g, beside, mask ? &row : &one, &err), MASK);
	if (mask)
		gp_graph_mark_sequence(g, MASK);
	OK(gp_graph_begin_block(g, "b", &err));
	const int end = pool(g, gp_graph_embedding(g, "e", TOKENS, 50, FEATURES, &err));
	if (gp_graph_linear(g, "c", end, 2, true, &err) < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_finish(g, &err));
	return g;
}

static const char *compress; /* --compress; NULL: none */

static enum gp_status settle(make_pool *pool, const char *beside, enum gp_pad pad, bool *drops)
{
	const struct gp_dataset_options as_is = {0};
	const struct gp_job_settings set = {.local = true, .pad = pad};
	struct gp_job job = {.set = &set, .graph = build(pool, beside), .drop_padding = true};
	struct gp_dataset *d;
	OK(gp_compress_parse(compress, &job.session, &err));
	OK(gp_dataset_open("synthetic:tokens=20,vocab=50,classes=2,samples=8", GP_SPLIT_TRAIN, &as_is, &d, &err));
	const enum gp_status status = gp_padding_settle(&job, d, &err);
	*drops = job.drop_padding;
	gp_dataset_free(d);
	gp_graph_free(job.graph);
	return status;
}

static void is_left_out_by(make_pool *pool, const char *beside)
{
	bool drops;
	OK(settle(pool, beside, GP_PAD_AUTO, &drops));
	assert_true(drops);
	OK(settle(pool, beside, GP_PAD_DROP, &drops));
	assert_true(drops);
	OK(settle(pool, beside, GP_PAD_MAX, &drops));
	assert_false(drops);
}

static void padding_is_left_out_of_models_that_do_not_read_it(void **state)
{
	(void)state;
	is_left_out_by(first_position, "");
	is_left_out_by(mean, "mask");
	is_left_out_by(attention_with_lengths, "length");
}

static void is_read_by(make_pool *pool, const char *beside, const char *node)
{
	bool drops;
	char wanted[64];
	OK(settle(pool, beside, GP_PAD_AUTO, &drops));
	assert_false(drops);
	OK(settle(pool, beside, GP_PAD_MAX, &drops));
	assert_int_equal(settle(pool, beside, GP_PAD_DROP, &drops), GP_INVALID);
	snprintf(wanted, sizeof wanted, "node '%s' (", node);
	assert_non_null(strstr(err.text, wanted));
	assert_non_null(strstr(err.text, "--pad max"));
}

static void padding_travels_where_a_model_reads_it(void **state)
{
	(void)state;
	is_read_by(second_position, "", "pool");
	is_read_by(mean_of_what_is_made, "mask", "pool");
	is_read_by(attention_without, "length", "attention");
}

/* What is decoded of a value by a scale of many depends on the padding among them; and else it does not. */
static void padding_travels_where_a_scale_depends_on_it(void **state)
{
	(void)state;
	static const char *const reads[] = {"maps=uniform:bits=8", "maps=bf16,grad-maps=smaq", "grad-maps=s2fp8"};
	static const char *const free_of_it[] = {"maps=bf16,grad-maps=fp8:format=e5m2", "state=smaq", "weights=smaq"};
	bool drops;
	for (int i = 0; i < 3; i++) {
		compress = reads[i];
		OK(settle(first_position, "", GP_PAD_AUTO, &drops));
		assert_false(drops);
		assert_int_equal(settle(first_position, "", GP_PAD_DROP, &drops), GP_INVALID);
		assert_non_null(strstr(err.text, "has one scale for many values"));
		compress = free_of_it[i];
		is_left_out_by(first_position, "");
	}
	compress = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(padding_is_left_out_of_models_that_do_not_read_it),
		cmocka_unit_test(padding_travels_where_a_model_reads_it),
		cmocka_unit_test(padding_travels_where_a_scale_depends_on_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * RoBERTa and BERT as client/models/models.h builds them, against Hugging Face:
 * sizes, names, shapes, starting values, dropout, cuts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/built_model.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_layer_norm.h"

static void encoders_have_the_sizes_of_hugging_face(void **state)
{
	(void)state;
	/* numel() of RobertaForSequenceClassification(RobertaConfig(vocab_size=50265, max_position_embeddings=514,
	 * type_vocab_size=1)) and of BertForSequenceClassification(BertConfig()), two classes each */
	struct gp_graph *g = build("roberta", 0, 0, 0);
	assert_true(g->trained_elements == 124647170);
	assert_int_equal(g->blocks, 14);
	gp_graph_free(g);
	g = build("bert", 0, 0, 0);
	assert_true(g->trained_elements == 109483778);
	gp_graph_free(g);
	g = build("roberta:layers=24,dim=1024,heads=16,ffn=4096", 0, 0, 0); /* roberta-large */
	assert_true(g->trained_elements == 355361794);
	gp_graph_free(g);
}

struct named_shape {
	const char *name;
	int64_t rows, columns; /* columns 0: one dimension */
};

static void expect_params(const struct gp_graph *g, const struct named_shape *want, int count)
{
	assert_int_equal(g->params, count);
	for (int i = 0; i < count; i++) {
		const struct gp_shape *s = &g->param[i].shape;
		assert_string_equal(g->param[i].name, want[i].name);
		assert_true(s->dim[0] == want[i].rows && (s->ndim == 2 ? s->dim[1] : 0) == want[i].columns);
	}
}

/* WEIGHT and bias of a linear layer */
#define DENSE(name, out, in)                                                                                           \
	{name ".weight", out, in},                                                                                     \
	{                                                                                                              \
		name ".bias", out, 0                                                                                   \
	}
#define NORM(name)                                                                                                     \
	{name ".weight", 6, 0},                                                                                        \
	{                                                                                                              \
		name ".bias", 6, 0                                                                                     \
	}
#define ENCODER_LAYER(name)                                                                                            \
	DENSE(name ".attention.self.query", 6, 6), DENSE(name ".attention.self.key", 6, 6),                            \
		DENSE(name ".attention.self.value", 6, 6), DENSE(name ".attention.output.dense", 6, 6),                \
		NORM(name ".attention.output.LayerNorm"), DENSE(name ".intermediate.dense", 10, 6),                    \
		DENSE(name ".output.dense", 6, 10), NORM(name ".output.LayerNorm")

static void encoders_have_the_names_and_shapes_of_hugging_face(void **state)
{
	(void)state;
	static const struct named_shape roberta[] = {{"roberta.embeddings.word_embeddings.weight", 20, 6},
						     {"roberta.embeddings.token_type_embeddings.weight", 1, 6},
						     {"roberta.embeddings.position_embeddings.weight", 16, 6},
						     NORM("roberta.embeddings.LayerNorm"),
						     ENCODER_LAYER("roberta.encoder.layer.0"),
						     DENSE("classifier.dense", 6, 6),
						     DENSE("classifier.out_proj", 3, 6)};
	static const struct named_shape bert[] = {{"bert.embeddings.word_embeddings.weight", 20, 6},
						  {"bert.embeddings.token_type_embeddings.weight", 2, 6},
						  {"bert.embeddings.position_embeddings.weight", 16, 6},
						  NORM("bert.embeddings.LayerNorm"),
						  ENCODER_LAYER("bert.encoder.layer.0"),
						  DENSE("bert.pooler.dense", 6, 6),
						  DENSE("classifier", 3, 6)};
	struct gp_graph *g = build("roberta:layers=1,dim=6,heads=2,ffn=10,vocab=20,max=16,classes=3", 0, 0, 0);
	expect_params(g, roberta, sizeof roberta / sizeof roberta[0]);
	assert_true(g->inputs == 2 && g->value[0].type.shape.dim[0] == 14); /* positions begin at 2 */
	gp_graph_free(g);
	g = build("bert:layers=1,dim=6,heads=2,ffn=10,vocab=20,max=16,classes=3", 0, 0, 0);
	expect_params(g, bert, sizeof bert / sizeof bert[0]);
	assert_true(g->inputs == 3 && g->value[0].type.shape.dim[0] == 16);
	assert_string_equal(g->node[1].name, "length");
	assert_string_equal(g->node[2].name, "types");
	gp_graph_free(g);
}

static void encoders_start_as_in_hugging_face(void **state)
{
	(void)state;
	struct gp_graph *g = build("roberta:layers=1", 0, 0, 0);
	for (int i = 0; i < g->params; i++) {
		const struct gp_param *p = &g->param[i];
		const bool norm = strstr(p->name, "LayerNorm.weight") != NULL;
		if (p->role == GP_PARAM_BIAS)
			assert_true(p->init == GP_INIT_ZEROS);
		else if (norm)
			assert_true(p->init == GP_INIT_ONES);
		else
			expect_normal(g, p->name, 0.02);
	}
	gp_graph_free(g);
}

/* Dropout in the same places: behind the embeddings, on attention weights, before each residual sum, and in the head. */
static void encoders_drop_out_where_hugging_face_does(void **state)
{
	(void)state;
	struct gp_graph *g = build("roberta:layers=2,dropout=0.25,attention_dropout=0.125", 0, 0, 0);
	int dropouts = 0, norms = 0, attentions = 0;
	for (int i = 0; i < g->nodes; i++) {
		const struct gp_node *n = &g->node[i];
		dropouts += n->op == GP_OP_DROPOUT && gp_dropout_attr(n).p == 0.25f;
		norms += n->op == GP_OP_LAYER_NORM && n->inputs == 2 && gp_layer_norm_attr(n).p == 0.25f;
		attentions += n->op == GP_OP_ATTENTION && gp_attention_attr(n).p == 0.125f;
		if (n->op == GP_OP_LAYER_NORM)
			assert_true(gp_layer_norm_attr(n).eps == 1e-5f &&
				    (n->inputs == 2 || gp_layer_norm_attr(n).p == 0));
	}
	assert_true(dropouts == 3 && norms == 4 && attentions == 2);
	gp_graph_free(g);
	g = build("bert:layers=1", 0, 0, 0);
	for (int i = 0; i < g->nodes; i++)
		if (g->node[i].op == GP_OP_LAYER_NORM)
			assert_true(gp_layer_norm_attr(&g->node[i]).eps == 1e-12f);
	gp_graph_free(g);
}

static void fine_cuts_of_encoders_lie_behind_attention_and_in_the_classifier(void **state)
{
	(void)state;
	static const char *const want[] = {"embeddings",  "layer.0",    "layer.0.ffn",      "layer.1",
					   "layer.1.ffn", "classifier", "classifier.dense", "classifier.out"};
	static const char *const specs[][2] = {{"roberta:layers=2", "roberta:layers=2,cuts=fine"},
					       {"bert:layers=2", "bert:layers=2,cuts=fine"}};
	for (size_t k = 0; k < 2; k++) {
		struct gp_graph *g = build(specs[k][0], 0, 0, 0), *fine = build(specs[k][1], 0, 0, 0);
		assert_int_equal(g->blocks, 4);
		assert_int_equal(fine->blocks, 8);
		assert_int_equal(fine->nodes, g->nodes);
		for (int b = 0; b < 8; b++)
			assert_string_equal(fine->block[b].name, want[b]);
		assert_true(ends_with(fine->node[fine->block[2].first_node - 1].name, "attention.output.LayerNorm"));
		expect_crossing(fine, "2:-3", 2, 1); /* the length, too */
		expect_crossing(fine, "2:-5", 1, 1); /* the feed-forward half of layer 0 alone */
		expect_crossing(fine, "5:-1", 1, 1);
		gp_graph_free(g);
		gp_graph_free(fine);
	}
}

static void encoders_refuse_more_tokens_than_they_have_positions_for(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_graph *g = NULL;
	const struct gp_model_options texts = {.input = {.ndim = 1, .dim = {64}}, .values = 100};
	const struct gp_model_options pictures = {.input = {.ndim = 3, .dim = {32, 32, 3}}};
	assert_int_equal(gp_model_build("roberta:max=65", &texts, &g, &err), GP_INVALID);
	assert_string_equal(
		err.text,
		"model roberta has positions for 63 tokens (its max=65), but texts have 64: give --data a max= "
		"of at most 63, or the model a larger one");
	assert_int_equal(gp_model_build("bert", &pictures, &g, &err), GP_INVALID);
	assert_string_equal(err.text, "model bert takes tokens (a row of numbers), not samples of 32x32x3");
	assert_int_equal(gp_model_build("roberta:max=66", &texts, &g, &err), GP_OK);
	assert_true(gp_embedding_attr(&g->node[g->inputs]).vocab == 100);
	gp_graph_free(g);
	expect_refused("roberta:dim=100,heads=3", GP_USAGE, "model roberta: dim=100 is not a multiple of heads=3");
	expect_refused("bert:dropout=1", GP_USAGE, "dropout: 1 is out of range (0..0.99)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(encoders_have_the_sizes_of_hugging_face),
		cmocka_unit_test(encoders_have_the_names_and_shapes_of_hugging_face),
		cmocka_unit_test(encoders_start_as_in_hugging_face),
		cmocka_unit_test(encoders_drop_out_where_hugging_face_does),
		cmocka_unit_test(fine_cuts_of_encoders_lie_behind_attention_and_in_the_classifier),
		cmocka_unit_test(encoders_refuse_more_tokens_than_they_have_positions_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

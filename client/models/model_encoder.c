/* SPDX-License-Identifier: Apache-2.0
 *
 * Transformer encoders that classify texts, or, with lm=1, guess masked words of
 * them: roberta (Liu et al., "RoBERTa: A
 * Robustly Optimized BERT Pretraining Approach", 2019) and bert (Devlin et al.,
 * NAACL 2019), with the structure, parameter names and starting values of
 * RobertaForSequenceClassification and BertForSequenceClassification, or
 * RobertaForMaskedLM and BertForMaskedLM, of Hugging Face's transformers.
 *
 * Inputs, all i32: tokens (S); length (1), how many of them are tokens of the
 * text, the others being padding; bert has types (S), too, which tell the texts
 * of a pair apart. What stands behind the length has no influence. Every layer
 * reads the length, so that it crosses a cut: 4 bytes a sample, in place of a
 * mask. A masked language model has positions (P), too: where in the row the
 * masked tokens stand, P = gp_model_masked(S) of them. Its output is (P, vocabulary);
 * of rows without a label no scores need be computed (set_labels of common/graph/device.h).
 *
 * Blocks: embeddings, layer.0, layer.1, ..., classifier. With cuts=fine the
 * feed-forward half of a layer is a block of its own, layer.N.ffn, so that a cut
 * can lie behind its attention, and so are the parts of the classifier: the first
 * token, classifier.dense and classifier.out. A masked language model has lm_head in the
 * classifier's place, and lm_head.out for the scores alone. client/costs/partitions.h names the usual
 * cuts.
 *
 * Test: tests/unit/test_model_encoders.c, tests/unit/test_encoder.c, tests/e2e/typed_tensors.sh
 */
#include "client/models/models_internal.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_rows.h"
#include "common/graph/ops/op_take_rows.h"

enum { TOKENS_DEFAULT = 128, TYPES = 2, LAYERS_MOST = 128 };

/* What the two differ in. */
struct family {
	const char *name; /* of the model, and the prefix of its parameters */
	int vocab, max;
	int first_position; /* roberta keeps the rows up to that of its padding free */
	bool has_types;     /* bert's input; roberta has one type, whose row is added to every token */
	float eps;
};

static const struct family roberta = {"roberta", 50265, 514, 2, false, 1e-5f};
static const struct family bert = {"bert", 30522, 512, 0, true, 1e-12f};

struct settings {
	const struct family *family;
	int layers, dim, heads, ffn, vocab, max, tokens, classes, fine, lm;
	double dropout, attention_dropout;
};

/* What every step of building needs. */
struct build {
	struct gp_graph *g;
	const struct settings *s;
	int length, positions; /* inputs; positions: of a masked language model */
	struct gp_err *err;
};

/* --- names ------------------------------------------------------------------------------------------------------ */

/* A short text by value, so that several fit into one call. */
struct name {
	char s[GP_NAME_MAX];
};

/* "roberta.embeddings.LayerNorm" */
static struct name of_model(const struct build *b, const char *what)
{
	struct name n;
	gp_model_name(n.s, "%s.%s", b->s->family->name, what);
	return n;
}

/* "roberta.encoder.layer.3.output.dense" */
static struct name of_layer(const struct build *b, int layer, const char *what)
{
	struct name n;
	gp_model_name(n.s, "%s.encoder.layer.%d.%s", b->s->family->name, layer, what);
	return n;
}

/* --- parts of blocks; each takes and returns a value, -1 after a failure ------------------------------------------ */

static bool begin(const struct build *b, const char *block, int in)
{
	return in >= 0 && gp_graph_begin_block(b->g, block, b->err) == GP_OK;
}

static int linear(const struct build *b, struct name name, int in, int features)
{
	return gp_graph_linear(b->g, name.s, in, features, true, b->err);
}

static int dropout(const struct build *b, struct name name, int in)
{
	return gp_graph_dropout(b->g, name.s, in, (float)b->s->dropout, b->err);
}

/* norm(dropout(in) + residual) */
static int add_and_norm(const struct build *b, struct name name, int in, int residual)
{
	const struct gp_layer_norm_attr a = {.eps = b->s->family->eps, .p = residual < 0 ? 0 : (float)b->s->dropout};
	return gp_graph_layer_norm(b->g, name.s, in, residual, a, b->err);
}

static int add_rows(const struct build *b, const char *what, int in, int rows, int first, int step)
{
	const struct gp_add_rows_attr a = {.rows = rows, .first = first, .step = step};
	return gp_graph_add_rows(b->g, of_model(b, what).s, in, a, b->err);
}

/* Words + types + positions, in this order as there. `types`: the input, -1 where there is one type alone. */
static int embeddings(const struct build *b, int tokens, int types)
{
	const struct settings *s = b->s;
	if (!begin(b, "embeddings", tokens))
		return -1;
	int x = gp_graph_embedding(b->g, of_model(b, "embeddings.word_embeddings").s, tokens, s->vocab, s->dim, b->err);
	if (types < 0) {
		x = add_rows(b, "embeddings.token_type_embeddings", x, 1, 0, 0);
	} else {
		const int t = gp_graph_embedding(b->g, of_model(b, "embeddings.token_type_embeddings").s, types, TYPES,
						 s->dim, b->err);
		x = gp_graph_sum(b->g, of_model(b, "embeddings.sum").s, x, t, b->err);
	}
	x = add_rows(b, "embeddings.position_embeddings", x, s->max, s->family->first_position, 1);
	x = add_and_norm(b, of_model(b, "embeddings.LayerNorm"), x, -1);
	return dropout(b, of_model(b, "embeddings.dropout"), x);
}

static int self_attention(const struct build *b, int layer, int in)
{
	static const char *const names[] = {"attention.self.query", "attention.self.key", "attention.self.value"};
	const struct settings *s = b->s;
	const struct gp_attention_attr a = {.heads = s->heads, .p = (float)s->attention_dropout};
	int qkv[3];
	for (int i = 0; i < 3; i++)
		qkv[i] = linear(b, of_layer(b, layer, names[i]), in, s->dim);
	int x = gp_graph_attention(b->g, of_layer(b, layer, "attention.self").s, qkv, b->length, a, b->err);
	x = linear(b, of_layer(b, layer, "attention.output.dense"), x, s->dim);
	return add_and_norm(b, of_layer(b, layer, "attention.output.LayerNorm"), x, in);
}

static int feed_forward(const struct build *b, int layer, int in)
{
	int x = linear(b, of_layer(b, layer, "intermediate.dense"), in, b->s->ffn);
	x = gp_graph_gelu(b->g, of_layer(b, layer, "intermediate.gelu").s, x, false, b->err);
	x = linear(b, of_layer(b, layer, "output.dense"), x, b->s->dim);
	return add_and_norm(b, of_layer(b, layer, "output.LayerNorm"), x, in);
}

static int encoder_layer(const struct build *b, int layer, int in)
{
	struct name block, ffn;
	gp_model_name(block.s, "layer.%d", layer);
	gp_model_name(ffn.s, "layer.%d.ffn", layer);
	if (!begin(b, block.s, in))
		return -1;
	const int x = self_attention(b, layer, in);
	return feed_forward(b, layer, gp_model_begin_fine(b->g, b->s->fine, ffn.s, x, b->err));
}

/* A dense layer with tanh on the first token's features, then the classes. What a layer reads is dropped out before it, but
 * for bert's first one, the pooler. */
static int classifier(const struct build *b, int in)
{
	static const struct name first = {"classifier.first"}, first_dropout = {"classifier.first_dropout"};
	static const struct name act = {"classifier.tanh"}, out_dropout = {"classifier.out_dropout"};
	const bool pooler = b->s->family == &bert;
	const struct name dense = pooler ? of_model(b, "pooler.dense") : (struct name){"classifier.dense"};
	const struct name out = {"classifier.out_proj"}, bert_out = {"classifier"};
	if (!begin(b, "classifier", in))
		return -1;
	int x = gp_graph_take_row(b->g, first.s, in, 0, b->err);
	x = gp_model_begin_fine(b->g, b->s->fine, "classifier.dense", x, b->err);
	if (!pooler)
		x = dropout(b, first_dropout, x);
	x = gp_graph_unary(b->g, GP_OP_TANH, act.s, linear(b, dense, x, b->s->dim), b->err);
	x = gp_model_begin_fine(b->g, b->s->fine, "classifier.out", x, b->err);
	return linear(b, pooler ? bert_out : out, dropout(b, out_dropout, x), b->s->classes);
}

/*
 * The head of a masked language model: scores of all words for each of the masked positions. Parameters are named as those of
 * RobertaForMaskedLM and BertForMaskedLM; but their `lm_head.bias` and `cls.predictions.bias` are the biases of the decoder
 * here, whose weight is that of the words (tie_words).
 */
static int language_model(const struct build *b, int in)
{
	static const struct head {
		struct name dense, norm, decoder;
	} of_bert = {{"cls.predictions.transform.dense"},
		     {"cls.predictions.transform.LayerNorm"},
		     {"cls.predictions.decoder"}},
	  of_roberta = {{"lm_head.dense"}, {"lm_head.layer_norm"}, {"lm_head.decoder"}};
	const struct head *h = b->s->family == &bert ? &of_bert : &of_roberta;
	if (!begin(b, "lm_head", in))
		return -1;
	int x = gp_graph_take_rows(b->g, "lm_head.masked", in, b->positions, b->err);
	x = gp_graph_gelu(b->g, "lm_head.gelu", linear(b, h->dense, x, b->s->dim), false, b->err);
	x = add_and_norm(b, h->norm, x, -1);
	x = gp_model_begin_fine(b->g, b->s->fine, "lm_head.out", x, b->err);
	return linear(b, h->decoder, x, b->s->vocab);
}

static int find_weight(const struct build *b, struct name node)
{
	char name[GP_NAME_MAX + 8];
	snprintf(name, sizeof name, "%s.weight", node.s);
	return gp_graph_find_param(b->g, name);
}

/* The words that are guessed have the vectors of the words that are read. */
static void tie_words(const struct build *b)
{
	static const struct name of_bert = {"cls.predictions.decoder"}, of_roberta = {"lm_head.decoder"};
	const int words = find_weight(b, of_model(b, "embeddings.word_embeddings"));
	gp_graph_tie(b->g, words, find_weight(b, b->s->family == &bert ? of_bert : of_roberta));
}

/* --- the whole -------------------------------------------------------------------------------------------------- */

/* Matrices and tables start from a normal distribution, biases at 0; layer norms as they are. */
static void set_starting_values(struct gp_graph *g)
{
	for (int i = g->inputs; i < g->nodes; i++) {
		const enum gp_op op = g->node[i].op;
		if (op != GP_OP_LINEAR && op != GP_OP_EMBEDDING && op != GP_OP_ADD_ROWS)
			continue;
		gp_model_init_weight(g, i, GP_INIT_NORMAL, 0.02f);
		gp_model_init_bias(g, i, GP_INIT_ZEROS, 0);
	}
}

static enum gp_status add_input(const struct build *b, const char *name, int64_t values, int *input)
{
	const struct gp_type type = {GP_I32, {.ndim = 1, .dim = {values}}};
	*input = gp_graph_add_input(b->g, name, &type, b->err);
	return *input < 0 ? b->err->code : GP_OK;
}

/* `types` is -1 where there are none. */
static enum gp_status add_inputs(struct build *b, int *tokens, int *types)
{
	*types = -1;
	GP_TRY(add_input(b, "tokens", b->s->tokens, tokens));
	GP_TRY(add_input(b, "length", 1, &b->length));
	gp_graph_mark_sequence(b->g, *tokens);
	if (b->s->family->has_types) {
		GP_TRY(add_input(b, "types", b->s->tokens, types));
		gp_graph_mark_sequence(b->g, *types);
	}
	return b->s->lm ? add_input(b, "positions", gp_model_masked(b->s->tokens), &b->positions) : GP_OK;
}

static enum gp_status add_layers(struct build *b)
{
	int tokens, types;
	GP_TRY(add_inputs(b, &tokens, &types));
	int x = embeddings(b, tokens, types);
	for (int i = 0; i < b->s->layers; i++)
		x = encoder_layer(b, i, x);
	if ((b->s->lm ? language_model(b, x) : classifier(b, x)) < 0)
		return b->err->code;
	set_starting_values(b->g);
	if (b->s->lm)
		tie_words(b);
	return gp_graph_finish(b->g, b->err);
}

static enum gp_status check_settings(const struct settings *s, struct gp_err *err)
{
	const int positions = s->max - s->family->first_position;
	if (s->dim % s->heads != 0)
		GP_FAIL(err, GP_USAGE, "model %s: dim=%d is not a multiple of heads=%d", s->family->name, s->dim,
			s->heads);
	if (s->tokens > positions)
		GP_FAIL(err, GP_INVALID,
			"model %s has positions for %d tokens (its max=%d), but texts have %d: give --data a max= of "
			"at most %d, or the model a larger one",
			s->family->name, positions, s->max, s->tokens, positions);
	return GP_OK;
}

/* A sample's length and the vocabulary are those of the data, where there is one. */
static enum gp_status read_settings(struct gp_model_args *a, struct settings *s, struct gp_err *err)
{
	const struct family *f = gp_text_is(a->spec.name, bert.name) ? &bert : &roberta;
	struct gp_text unread;
	*s = (struct settings){.family = f,
			       .layers = 12,
			       .dim = 768,
			       .heads = 12,
			       .ffn = 3072,
			       .vocab = f->vocab,
			       .max = f->max,
			       .dropout = 0.1,
			       .attention_dropout = 0.1};
	GP_TRY(gp_model_arg_int(a, "layers", 1, LAYERS_MOST, &s->layers, err));
	GP_TRY(gp_model_arg_int(a, "dim", 1, 65536, &s->dim, err));
	GP_TRY(gp_model_arg_int(a, "heads", 1, 65536, &s->heads, err));
	GP_TRY(gp_model_arg_int(a, "ffn", 1, 1 << 20, &s->ffn, err));
	GP_TRY(gp_model_arg_int(a, "max", f->first_position + 1, 1 << 20, &s->max, err));
	const int positions = s->max - f->first_position;
	s->tokens = positions < TOKENS_DEFAULT ? positions : TOKENS_DEFAULT;
	GP_TRY(gp_model_arg_tokens(a, &s->tokens, &s->vocab, err));
	GP_TRY(gp_model_arg_choice(a, "lm", "0|1", &s->lm, err));
	if (!s->lm)
		GP_TRY(gp_model_arg_classes(a, 2, &s->classes, err));
	else if (gp_spec_given(&a->spec, "classes", &unread))
		GP_FAIL(err, GP_USAGE, "model %s: a masked language model (lm=1) has no classes; leave classes= out",
			a->info->name);
	GP_TRY(gp_model_arg_real(a, "dropout", 0, 0.99, &s->dropout, err));
	GP_TRY(gp_model_arg_real(a, "attention_dropout", 0, 0.99, &s->attention_dropout, err));
	GP_TRY(gp_model_arg_cuts(a, &s->fine, err));
	GP_TRY(gp_model_args_done(a, err));
	return check_settings(s, err);
}

int64_t gp_model_masked(int64_t tokens)
{
	const int64_t masked = (tokens * 15 + 50) / 100;
	return masked < 1 ? 1 : masked;
}

enum gp_status gp_model_encoder(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err)
{
	struct settings s;
	GP_TRY(read_settings(a, &s, err));
	struct build b = {.g = gp_graph_new_empty(a->info->name, err), .s = &s, .err = err};
	if (!b.g)
		return err->code;
	if (add_layers(&b) != GP_OK) {
		gp_graph_free(b.g);
		return err->code;
	}
	*out = b.g;
	return GP_OK;
}

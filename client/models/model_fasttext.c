/* SPDX-License-Identifier: Apache-2.0
 *
 * A small classifier of texts after fastText (Joulin et al., "Bag of Tricks for
 * Efficient Text Classification", EACL 2017): the mean of the words' embeddings
 * says what a text is about. Beyond the paper every word passes a linear layer
 * and a ReLU before the mean, and the mean passes another pair.
 *
 * Inputs: tokens (S) and mask (S), both i32; the mask is 1 where there is a word
 * and 0 where the text is filled up. Blocks: embedding, encoder (per word),
 * pooling (masked mean, linear, ReLU), classifier. Only pooling reads the mask:
 * with the cuts 1:-1 and 2:-1 it travels up beside the activation, with 1:-2 it
 * stays here.
 *
 * In PyTorch: embedding = Embedding(vocab, dim), encoder = Sequential(Linear(dim,
 * hidden), ReLU()), pooling = Sequential(Linear(hidden, hidden), ReLU()) behind
 * the mean, classifier = Linear(hidden, classes). Starting values are torch.nn's
 * defaults. Test: tests/unit/test_models.c, tests/e2e/typed_tensors.sh
 */
#include "client/models/models_internal.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"

struct settings {
	int dim, hidden, length, vocab, classes;
};

static enum gp_status add_inputs(struct gp_graph *g, const struct settings *s, int *tokens, int *mask,
				 struct gp_err *err)
{
	const struct gp_type row = {GP_I32, {.ndim = 1, .dim = {s->length}}};
	*tokens = gp_graph_add_input(g, "tokens", &row, err);
	if (*tokens < 0)
		return err->code;
	*mask = gp_graph_add_input(g, "mask", &row, err);
	if (*mask < 0)
		return err->code;
	gp_graph_mark_sequence(g, *tokens);
	gp_graph_mark_sequence(g, *mask);
	return GP_OK;
}

/* What every step of building needs. */
struct build {
	struct gp_graph *g;
	const struct settings *s;
	struct gp_err *err;
};

/* --- blocks; each takes and returns a value, -1 after a failure -------------------------------------------------- */

static bool begin(const struct build *b, const char *block, int in)
{
	return in >= 0 && gp_graph_begin_block(b->g, block, b->err) == GP_OK;
}

/* "PREFIX.0", "PREFIX.1" */
static int linear_relu(const struct build *b, const char *prefix, int in)
{
	char name[GP_NAME_MAX];
	const int x = gp_graph_linear(b->g, gp_model_name(name, "%s.0", prefix), in, b->s->hidden, true, b->err);
	return gp_graph_unary(b->g, GP_OP_RELU, gp_model_name(name, "%s.1", prefix), x, b->err);
}

static int embedding(const struct build *b, int tokens)
{
	if (!begin(b, "embedding", tokens))
		return -1;
	return gp_graph_embedding(b->g, "embedding", tokens, b->s->vocab, b->s->dim, b->err);
}

static int encoder(const struct build *b, int in)
{
	return begin(b, "encoder", in) ? linear_relu(b, "encoder", in) : -1;
}

static int pooling(const struct build *b, int in, int mask)
{
	if (!begin(b, "pooling", in))
		return -1;
	return linear_relu(b, "pooling", gp_graph_masked_mean(b->g, "pooling.mean", in, mask, b->err));
}

static int classifier(const struct build *b, int in)
{
	return begin(b, "classifier", in) ? gp_graph_linear(b->g, "classifier", in, b->s->classes, true, b->err) : -1;
}

static enum gp_status add_layers(struct gp_graph *g, const struct settings *s, struct gp_err *err)
{
	const struct build b = {g, s, err};
	int tokens = -1, mask = -1;
	GP_TRY(add_inputs(g, s, &tokens, &mask, err));
	if (classifier(&b, pooling(&b, encoder(&b, embedding(&b, tokens)), mask)) < 0)
		return err->code;
	return gp_graph_finish(g, err);
}

enum gp_status gp_model_fasttext(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err)
{
	struct settings s = {.dim = 64, .hidden = 64, .length = 128, .vocab = 1000};
	GP_TRY(gp_model_arg_int(a, "dim", 1, 65536, &s.dim, err));
	GP_TRY(gp_model_arg_int(a, "hidden", 1, 65536, &s.hidden, err));
	GP_TRY(gp_model_arg_tokens(a, &s.length, &s.vocab, err));
	GP_TRY(gp_model_arg_classes(a, 2, &s.classes, err));
	GP_TRY(gp_model_args_done(a, err));
	struct gp_graph *g = gp_graph_new_empty("fasttext", err);
	if (!g)
		return err->code;
	if (add_layers(g, &s, err) != GP_OK) {
		gp_graph_free(g);
		return err->code;
	}
	*out = g;
	return GP_OK;
}

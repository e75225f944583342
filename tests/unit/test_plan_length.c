/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks of their own sequence length: a small encoder computes chunks that are
 * as long as their longest row, and the same chunks with all positions. Loss and
 * gradients are the same, with dropout too, since a position draws the same
 * whatever the length; chunks of different lengths may be in flight together; and
 * a length that came before takes no memory. See gp_device_ops.set_length. On a
 * GPU: GP_TEST_DEVICE.
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_rows.h"
#include "common/graph/plan_profile.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"

/* MOST and NARROW: draws of a chunk that is shorter do not begin at the words of a block. WIDE: linear layers whose
 * weight is
 * multiplied as it is (kernels/cpu/onednn/dnn_linear.c). */
enum { BATCH = 3, MOST = 27, NARROW = 22, WIDE = 448, VOCAB = 11, CLASSES = 3, CHUNKS = 4 };
enum { TOKENS, LENGTH };

/* (chunk, sample) */
static const int32_t rows[CHUNKS][BATCH] = {{3, 7, 1}, {16, 5, 9}, {27, 2, 25}, {6, 8, 8}};

static int norm(struct gp_graph *g, const char *name, int in, int residual, float p)
{
	const struct gp_layer_norm_attr attr = {.eps = 1e-5f, .p = p};
	return gp_graph_layer_norm(g, name, in, residual, attr, &err);
}

static struct gp_graph *encoder(float p, int width)
{
	struct gp_graph *g = gp_graph_new_empty("encoder", &err);
	const struct gp_type tokens = {GP_I32, {.ndim = 1, .dim = {MOST}}}, length = {GP_I32, {.ndim = 1, .dim = {1}}};
	int qkv[3];
	gp_graph_mark_sequence(g, gp_graph_add_input(g, "tokens", &tokens, &err));
	assert_int_equal(gp_graph_add_input(g, "length", &length, &err), LENGTH);
	OK(gp_graph_begin_block(g, "all", &err));
	int x = gp_graph_embedding(g, "words", TOKENS, VOCAB, width, &err);
	const struct gp_add_rows_attr places = {.rows = MOST + 2, .first = 2, .step = 1};
	x = norm(g, "norm", gp_graph_add_rows(g, "places", x, places, &err), -1, 0.0f);
	x = gp_graph_append(g, (struct gp_node){.op = GP_OP_DROPOUT, .attr = {{.f = p}}}, "drop", 1, &x, &err);
	for (int i = 0; i < 3; i++)
		qkv[i] = gp_graph_linear(g, (const char *[]){"q", "k", "v"}[i], x, width, true, &err);
	const struct gp_attention_attr attention = {.heads = 2, .p = p};
	int y = gp_graph_attention(g, "attention", qkv, LENGTH, attention, &err);
	x = norm(g, "norm1", gp_graph_linear(g, "o", y, width, true, &err), x, p);
	y = gp_graph_append(g, (struct gp_node){.op = GP_OP_GELU, .attr = {{.i = 0}}}, "act", 1,
			    (const int[]){gp_graph_linear(g, "up", x, 2 * width, true, &err)}, &err);
	x = norm(g, "norm2", gp_graph_linear(g, "down", y, width, true, &err), x, p);
	x = gp_graph_take_row(g, "first", x, 0, &err);
	if (gp_graph_linear(g, "classes", x, CLASSES, true, &err) < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_finish(g, &err));
	assert_int_equal(gp_graph_sequence(g), MOST);
	return g;
}

static int64_t length_of(int chunk)
{
	int32_t most = 0;
	for (int n = 0; n < BATCH; n++)
		most = rows[chunk][n] > most ? rows[chunk][n] : most;
	return gp_sequence_round(MOST, most);
}

/* `positions` to a sample, as many as the slot's chunk has. */
static void fill(struct gp_plan *p, int slot, int chunk, int64_t positions)
{
	int32_t *tokens = p->ops->buffer(p, slot, GP_BUF_INPUT, TOKENS);
	int32_t *length = p->ops->buffer(p, slot, GP_BUF_INPUT, LENGTH);
	for (int n = 0; n < BATCH; n++) {
		for (int64_t s = 0; s < positions; s++)
			tokens[n * positions + s] = s < rows[chunk][n] ? (int32_t)((chunk + 3 * n + 5 * s) % VOCAB) : 1;
		length[n] = rows[chunk][n];
	}
}

static double run_chunk(struct gp_plan *p, int slot, int chunk, bool own)
{
	static const int32_t labels[BATCH] = {2, 0, 1};
	struct gp_loss_result loss;
	const int64_t length = own ? length_of(chunk) : 0;
	p->ops->set_length(p, slot, length);
	fill(p, slot, chunk, length ? length : MOST);
	OK(p->ops->forward(p, slot, GP_TRAIN, (uint64_t)chunk, &err));
	OK(p->ops->loss(p, slot, labels, BATCH, true, 1.0f / BATCH, &loss, &err));
	return loss.loss_sum;
}

/* Two chunks at a time between their forward and their backward. */
static void run(struct gp_plan *p, bool own, double loss[CHUNKS])
{
	for (int c = 0; c < CHUNKS; c += 2) {
		loss[c] = run_chunk(p, 0, c, own);
		loss[c + 1] = run_chunk(p, 1, c + 1, own);
		OK(p->ops->backward(p, 0, &err));
		OK(p->ops->backward(p, 1, &err));
	}
}

static void compare_gradients(struct gp_plan *a, struct gp_plan *b)
{
	const struct gp_graph *g = a->spec.graph;
	for (int i = 0; i < g->params; i++) {
		const size_t n = (size_t)g->param[i].count;
		float *x = gp_calloc(n, sizeof *x), *y = gp_calloc(n, sizeof *y);
		OK(a->ops->grad_get(a, i, x, &err));
		OK(b->ops->grad_get(b, i, y, &err));
		const bool zero = strcmp(g->param[i].name, "k.bias") == 0; /* in mathematics; numbers only nearly */
		const double apart = relative_l2(x, y, n);
		if (!zero && !(apart < 1e-5))
			fail_msg("gradients of %s are %g apart", g->param[i].name, apart);
		gp_free(x);
		gp_free(y);
	}
}

static void same_as_all_positions(float dropout, int width, int threads, enum gp_precision precision)
{
	struct gp_device *dev;
	struct gp_plan *own, *all;
	double a[CHUNKS], b[CHUNKS];
	struct gp_graph *g = encoder(dropout, width);
	struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = 2, .train = true, .seed = 4};
	spec.precision = precision;
	OK(gp_device_open(test_device(), threads, &dev, &err));
	OK(dev->ops->plan_new(dev, &spec, &own, &err));
	OK(dev->ops->plan_new(dev, &spec, &all, &err));
	for (int round = 0; round < 2; round++) {
		run(own, true, a);
		run(all, false, b);
		for (int c = 0; c < CHUNKS; c++)
			if (!(fabs(a[c] - b[c]) <= 1e-6 * fabs(b[c])))
				fail_msg("the loss of chunk %d is %.9g and, with all positions, %.9g", c, a[c], b[c]);
		compare_gradients(own, all);
	}
	dev->ops->plan_free(own);
	dev->ops->plan_free(all);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static void a_chunk_of_its_own_length_computes_the_same(void **state)
{
	(void)state;
	for (int threads = 1; threads <= test_threads(); threads++)
		same_as_all_positions(0.0f, NARROW, threads, GP_PRECISION_FP32);
}

static void dropout_draws_the_same_for_a_position(void **state)
{
	(void)state;
	same_as_all_positions(0.3f, NARROW, test_threads(), GP_PRECISION_FP32);
}

static void large_layers_compute_the_same(void **state)
{
	(void)state;
	same_as_all_positions(0.3f, WIDE, test_threads(), GP_PRECISION_FP32);
}

/* A profile counts the products of the positions that a chunk has; attention's are of each with each. */
static void a_profile_counts_the_chunks_positions(void **state)
{
	(void)state;
	struct gp_device *dev;
	struct gp_plan *p;
	const struct gp_plan_profile *profile;
	struct gp_graph *g = encoder(0.0f, NARROW);
	const struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = 2, .train = true, .seed = 4};
	const double share = (double)length_of(0) / MOST;
	int seen = 0;
	OK(gp_device_open(test_device(), 1, &dev, &err));
	OK(dev->ops->plan_new(dev, &spec, &p, &err));
	OK(gp_plan_profile_begin(p, &profile, &err));
	run_chunk(p, 0, 0, true);
	for (int i = 0; i < g->nodes; i++) {
		const struct gp_node *n = &g->node[i];
		const bool attention = n->op == GP_OP_ATTENTION;
		if (!attention && (n->op != GP_OP_LINEAR || !g->value[n->first_value].sequence))
			continue;
		const double want = 2.0 * (double)n->macs * BATCH * share * (attention ? share : 1.0);
		assert_true(fabs(profile->node[i].flops[0] - want) <= 1e-9 * want);
		seen++;
	}
	assert_int_equal(seen, 7);
	dev->ops->plan_free(p);
	dev->ops->close(dev);
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chunk_of_its_own_length_computes_the_same),
		cmocka_unit_test(dropout_draws_the_same_for_a_position),
		cmocka_unit_test(large_layers_compute_the_same),
		cmocka_unit_test(a_profile_counts_the_chunks_positions),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of plans whose maps lie encoded (kernels/plan/plan_store.h) against
 * those of PyTorch where autograd reads the same decoded values: a small network
 * for pictures and a layer of an encoder, with 8 bits and with bf16. The
 * reference is float64, made by tests/tools/dump_maps.py.
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/codec/codec.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_rows.h"
#include "common/store/safetensors.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"

#define LIMIT 1e-5 /* relative L2, of each parameter */
#define NOISE 1e-4 /* gradients smaller than that part of all of them are sums of which little is left */

/* As in dump_maps.py. */
enum { SEED = 6, STREAM = 1, BATCH = 8, SIDE = 24, IN = 8, MIDDLE = 16, POOL = 4, CLASSES = 5 };
enum { SAMPLES = 3, POSITIONS = 6, FEATURES = 16, HEADS = 2, FFN = 24 };

static struct gp_st_file *dump;

static struct gp_graph *end(struct gp_graph *g, int last)
{
	if (last < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_finish(g, &err));
	return g;
}

static struct gp_graph *build_picture(void)
{
	const struct gp_shape image = {.ndim = 3, .dim = {SIDE, SIDE, IN}};
	struct gp_graph *g = gp_graph_new("picture", &image, &err);
	OK(gp_graph_begin_block(g, "block", &err));
	int x = gp_graph_conv(g, "first", 0, MIDDLE, 1, 1, 0, 1, false, &err);
	x = gp_graph_batch_norm(g, "norm", x, 1e-5f, 0.1f, &err);
	x = gp_graph_unary(g, GP_OP_RELU6, "act", x, &err);
	x = gp_graph_conv(g, "deep", x, MIDDLE, 3, 1, 1, MIDDLE, false, &err);
	x = gp_graph_pool(g, GP_OP_MAX_POOL, "largest", x, POOL, POOL, 0, &err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err);
	return end(g, gp_graph_linear(g, "fc", x, CLASSES, true, &err));
}

static int linear(struct gp_graph *g, const char *name, int in, int out)
{
	return gp_graph_linear(g, name, in, out, true, &err);
}

static int layer_norm(struct gp_graph *g, const char *name, int in, int residual)
{
	return gp_graph_layer_norm(g, name, in, residual, (struct gp_layer_norm_attr){.eps = 1e-5f}, &err);
}

static struct gp_graph *build_encoder(void)
{
	const struct gp_type x = {GP_F32, {.ndim = 2, .dim = {POSITIONS, FEATURES}}};
	const struct gp_type length = {GP_I32, {.ndim = 1, .dim = {1}}};
	struct gp_graph *g = gp_graph_new_empty("encoder", &err);
	assert_int_equal(gp_graph_add_input(g, "x", &x, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "length", &length, &err), 1);
	OK(gp_graph_begin_block(g, "block", &err));
	const int in = layer_norm(g, "n0", 0, -1);
	const int qkv[] = {linear(g, "q", in, FEATURES), linear(g, "k", in, FEATURES), linear(g, "v", in, FEATURES)};
	const int a = gp_graph_attention(g, "a", qkv, 1, (struct gp_attention_attr){.heads = HEADS}, &err);
	const int middle = layer_norm(g, "n1", linear(g, "o", a, FEATURES), in);
	const int wide = gp_graph_gelu(g, "act", linear(g, "f0", middle, FFN), false, &err);
	const int last = layer_norm(g, "n2", linear(g, "f1", wide, FEATURES), middle);
	const int row = gp_graph_take_row(g, "row", last, 0, &err);
	const int pooled = gp_graph_unary(g, GP_OP_TANH, "tanh", linear(g, "pool", row, FEATURES), &err);
	return end(g, linear(g, "fc", pooled, CLASSES));
}

/* --- a plan with the dump's numbers ------------------------------------------------------------------------------- */

struct network {
	const char *name;
	struct gp_graph *(*build)(void);
	int samples;
};

struct bed {
	const char *name; /* of its tensors in the dump */
	struct gp_graph *graph;
	struct gp_device *dev;
	struct gp_plan *plan;
};

/* Caller frees. */
static float *read_tensor(const char *name, const char *key, const char *of, uint64_t count)
{
	char full[2 * GP_NAME_MAX];
	snprintf(full, sizeof full, "%s/%s%s", name, key, of);
	const struct gp_st_tensor *t = gp_st_find(dump, full);
	if (!t || t->count != count)
		fail_msg("the dump has no %s of %llu numbers", full, (unsigned long long)count);
	float *v = gp_calloc(count, sizeof *v);
	assert_non_null(v);
	OK(gp_st_read_f32(t, v, &err));
	return v;
}

static void set_params(const struct bed *b)
{
	for (int i = 0; i < b->graph->params; i++) {
		const struct gp_param *p = &b->graph->param[i];
		if (!p->trained)
			continue;
		float *v = read_tensor(b->name, "param.", p->name, p->count);
		OK(b->plan->ops->param_set(b->plan, i, v, &err));
		gp_free(v);
	}
}

static void fill(const struct bed *b, enum gp_plan_buf which, const char *key, const struct gp_type *type)
{
	const uint64_t count = (uint64_t)b->plan->spec.batch * gp_shape_elements(&type->shape);
	float *v = read_tensor(b->name, key, "", count);
	memcpy(b->plan->ops->buffer(b->plan, 0, which, 0), v, count * sizeof *v);
	gp_free(v);
}

static void fill_input(const struct bed *b)
{
	float *x = b->plan->ops->buffer(b->plan, 0, GP_BUF_INPUT, 0);
	if (b->graph->inputs > 1) {
		int32_t *length = b->plan->ops->buffer(b->plan, 0, GP_BUF_INPUT, 1);
		for (int i = 0; i < SAMPLES; i++)
			length[i] = POSITIONS;
		fill(b, GP_BUF_INPUT, "x", &b->graph->value[0].type);
		return;
	}
	for (uint64_t i = 0; i < BATCH * SIDE * SIDE * IN; i++)
		x[i] = (float)(gp_rng_u32(SEED, STREAM, i) % 9) - 4.0f;
}

static struct bed make_bed(const struct network *n, const char *name, const struct gp_codec_spec *maps, int threads)
{
	struct bed b = {.name = name, .graph = n->build()};
	const struct gp_plan_spec spec = {.graph = b.graph,
					  .batch = n->samples,
					  .slots = 1,
					  .train = true,
					  .grad_inputs = n->samples == SAMPLES,
					  .maps = maps};
	OK(gp_device_open("cpu", threads, &b.dev, &err));
	OK(b.dev->ops->plan_new(b.dev, &spec, &b.plan, &err));
	set_params(&b);
	fill_input(&b);
	OK(b.plan->ops->forward(b.plan, 0, GP_TRAIN, 0, &err));
	fill(&b, GP_BUF_GRAD_OUTPUT, "gy", gp_graph_output_type(b.graph, 0));
	OK(b.plan->ops->backward(b.plan, 0, &err));
	return b;
}

static void drop_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->dev->ops->close(b->dev);
	gp_graph_free(b->graph);
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

struct difference {
	double diff, norm; /* sums of squares */
};

static struct difference difference_of(const float *got, const float *want, uint64_t n)
{
	struct difference d = {0};
	for (uint64_t i = 0; i < n; i++) {
		d.diff += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
		d.norm += (double)want[i] * (double)want[i];
	}
	return d;
}

static struct difference difference_of_param(const struct bed *b, int index)
{
	const struct gp_param *p = &b->graph->param[index];
	float *want = read_tensor(b->name, "grad.", p->name, p->count), *got = gp_calloc(p->count, sizeof *got);
	assert_non_null(got);
	OK(b->plan->ops->grad_get(b->plan, index, got, &err));
	const struct difference d = difference_of(got, want, p->count);
	gp_free(got);
	gp_free(want);
	return d;
}

/* A convolution that does not normalize as it reads, as with lesser instruction sets, has an input that is a map of its own:
 * the gradient of its weights is then of other decoded values than those of the dump. */
static bool is_of_other_values(const struct bed *b, const struct gp_param *p)
{
	struct gp_plan_memory m;
	struct gp_plan_spec spec = b->plan->spec;
	spec.maps = NULL;
	OK(b->dev->ops->plan_estimate(b->dev, &spec, &m, &err));
	const uint64_t map = (uint64_t)BATCH * SIDE * SIDE * MIDDLE * sizeof(float);
	return strcmp(p->name, "deep.weight") == 0 && m.activations > 2 * map;
}

/* A softmax does not change with the bias of the keys: from exact maps that has no gradient but rounding, and from decoded ones
 * little more, a sum whose terms cancel. It counts among all parameters, and not by itself. */
static bool is_remainder(const struct gp_param *p)
{
	return strcmp(p->name, "k.bias") == 0;
}

/* The difference of all parameters together; each is looked at by itself unless `most` is NULL. */
static double compare(const struct bed *b, const double *most)
{
	struct difference all = {0}, one[32];
	assert_true(b->graph->params <= 32);
	for (int i = 0; i < b->graph->params; i++) {
		if (!b->graph->param[i].trained || is_of_other_values(b, &b->graph->param[i]))
			continue;
		one[i] = difference_of_param(b, i);
		all.diff += one[i].diff;
		all.norm += one[i].norm;
	}
	for (int i = 0; most && i < b->graph->params; i++) {
		const struct gp_param *p = &b->graph->param[i];
		if (!p->trained || is_of_other_values(b, p) || is_remainder(p))
			continue;
		const double off = sqrt(one[i].diff) / (sqrt(one[i].norm) + NOISE * sqrt(all.norm));
		if (!(off < *most))
			fail_msg("%s: %s: relative L2 difference %.3g", b->name, p->name, off);
	}
	return sqrt(all.diff / all.norm);
}

static double compare_buffer(const struct bed *b, enum gp_plan_buf which, const char *key, const struct gp_type *type)
{
	const uint64_t count = (uint64_t)b->plan->spec.batch * gp_shape_elements(&type->shape);
	float *want = read_tensor(b->name, key, "", count);
	const double off = relative_l2(b->plan->ops->buffer(b->plan, 0, which, 0), want, count);
	gp_free(want);
	return off;
}

static void check(const struct network *n, const char *name, const struct gp_codec_spec *spec, int threads)
{
	const double limit = LIMIT;
	struct bed b = make_bed(n, name, spec, threads), plain = make_bed(n, name, NULL, threads);
	const double outputs = compare_buffer(&b, GP_BUF_OUTPUT, "y", gp_graph_output_type(b.graph, 0));
	const double all = compare(&b, &limit), without = compare(&plain, NULL);
	print_message("%s, %d threads: outputs %.2e, gradients %.2e (%.2e from exact maps)\n", name, threads, outputs,
		      all, without);
	assert_true(outputs < LIMIT && all < LIMIT);
	assert_true(without > 100 * LIMIT); /* the codec shows */
	if (b.plan->spec.grad_inputs)
		assert_true(compare_buffer(&b, GP_BUF_GRAD_INPUT, "gx", &b.graph->value[0].type) < LIMIT);
	drop_bed(&b);
	drop_bed(&plain);
}

static void gradients_are_those_that_pytorch_has_from_the_decoded_maps(void **state)
{
	(void)state;
	const struct network networks[] = {{"picture", build_picture, BATCH}, {"encoder", build_encoder, SAMPLES}};
	const char *const codecs[][2] = {{"uniform8", "uniform:bits=8"}, {"bf16", "bf16"}};
	OK(gp_st_open("tests/golden/ops/maps.safetensors", &dump, &err));
	for (size_t n = 0; n < 2; n++)
		for (size_t c = 0; c < 2; c++)
			for (int threads = 1; threads < 3; threads++) {
				struct gp_codec_spec spec;
				char name[GP_NAME_MAX];
				snprintf(name, sizeof name, "%s.%s", networks[n].name, codecs[c][0]);
				OK(gp_codec_spec_parse(codecs[c][1], &spec, &err));
				check(&networks[n], name, &spec, threads);
			}
	gp_st_close(dump);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_are_those_that_pytorch_has_from_the_decoded_maps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

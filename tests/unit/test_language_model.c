/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole masked language models (lm=1 of client/models/model_encoder.c) against
 * PyTorch, on 1 and 2 threads: scores, the loss over the labels that there are, and the
 * gradient of every parameter, with all samples in one chunk and each in its own.
 * And their weights in a classifier. Reference:
 * tests/golden/models/language_models.safetensors, made by
 * tests/tools/dump_language_model.py.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "client/models/models.h"
#include "common/base/mem.h"
#include "common/base/threads.h"
#include "common/graph/tie.h"
#include "common/graph/device.h"
#include "common/graph/weights.h"
#include "common/store/safetensors.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"

#define FORWARD_TOLERANCE  1e-5 /* relative L2 */
#define GRADIENT_TOLERANCE 1e-4

enum { POSITIONS = 20, MASKED = 3, WORDS = 40, FEATURES = 16, SAMPLES_MOST = 4 };
#define SIZES ",dim=16,vocab=40,max=24,tokens=20,dropout=0,attention_dropout=0"

static struct gp_st_file *dump;

static const struct network {
	const char *name, *model, *words, *decoder;
	bool tied;
} networks[] = {
	{"roberta2_tied", "roberta:layers=2,heads=2,ffn=32,lm=1" SIZES, "roberta.embeddings.word_embeddings.weight",
	 "lm_head.decoder.weight", true},
	{"bert2", "bert:layers=2,heads=4,ffn=24,lm=1" SIZES, "bert.embeddings.word_embeddings.weight",
	 "cls.predictions.decoder.weight", false},
};
enum { NETWORKS = sizeof networks / sizeof networks[0] };

static struct gp_graph *build(const char *spec)
{
	struct gp_graph *g;
	OK(gp_model_build(spec, NULL, &g, &err));
	return g;
}

/* --- a plan with the dump's parameters and inputs ------------------------------------------------------------------ */

struct bed {
	const struct network *net;
	struct gp_graph *graph;
	struct gp_device *device;
	struct gp_plan *plan;
	int samples, chunk; /* of the dump; of a chunk */
	char place[80];
};

static const struct gp_st_tensor *find(const struct network *net, const char *key, const char *of)
{
	char name[2 * GP_NAME_MAX];
	snprintf(name, sizeof name, "%s/%s%s", net->name, key, of);
	const struct gp_st_tensor *t = gp_st_find(dump, name);
	if (!t)
		fail_msg("the dump has no %s", name);
	return t;
}

/* Caller frees. */
static float *reference(const struct gp_st_tensor *t)
{
	float *v = gp_calloc(t->count, sizeof *v);
	assert_non_null(v);
	OK(gp_st_read_f32(t, v, &err));
	return v;
}

static const int32_t *integers(const struct bed *b, const char *key)
{
	return (const int32_t *)find(b->net, key, "")->data;
}

static void load_params(const struct bed *b)
{
	for (int i = 0; i < b->graph->params; i++) {
		const struct gp_st_tensor *t = find(b->net, "param.", b->graph->param[i].name);
		assert_true(t->count == b->graph->param[i].count);
		float *v = reference(t);
		OK(b->plan->ops->param_set(b->plan, i, v, &err));
		gp_free(v);
	}
}

/* False: this build has no such device. */
static bool open_bed(struct bed *b, const char *device, int threads)
{
	if (gp_device_open(device, threads, &b->device, &err) != GP_OK)
		return false;
	b->graph = build(b->net->model);
	struct gp_plan_spec spec = {.graph = b->graph, .batch = b->chunk, .slots = 1, .train = true, .seed = 3};
	spec.optim = (struct gp_optim){.kind = GP_OPTIM_SGD};
	snprintf(b->place, sizeof b->place, "%s on %s, %d threads, chunks of %d", b->net->name, device, threads,
		 b->chunk);
	OK(b->device->ops->plan_new(b->device, &spec, &b->plan, &err));
	load_params(b);
	return true;
}

static void close_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->device->ops->close(b->device);
	gp_graph_free(b->graph);
}

static void set_inputs(const struct bed *b, int first)
{
	for (int i = 0; i < b->graph->inputs; i++) {
		const size_t each = gp_shape_elements(&b->graph->value[i].type.shape);
		memcpy(b->plan->ops->buffer(b->plan, 0, GP_BUF_INPUT, i),
		       integers(b, b->graph->node[i].name) + (size_t)first * each,
		       (size_t)b->chunk * each * sizeof(int32_t));
	}
}

static int count_labels(const struct bed *b)
{
	int labelled = 0;
	for (int i = 0; i < b->samples * MASKED; i++)
		labelled += integers(b, "labels")[i] != GP_NO_LABEL;
	return labelled;
}

/* --- against PyTorch ----------------------------------------------------------------------------------------------- */

static void expect_close(const struct bed *b, const char *what, double error, double tolerance)
{
	if (!(error < tolerance))
		fail_msg("%s: %s: relative L2 error %.3g", b->place, what, error);
}

static void check_scores(const struct bed *b, int first)
{
	const size_t each = (size_t)MASKED * WORDS;
	float *want = reference(find(b->net, "logits", ""));
	expect_close(b, "scores",
		     relative_l2(b->plan->ops->buffer(b->plan, 0, GP_BUF_OUTPUT, 0), want + (size_t)first * each,
				 (uint64_t)b->chunk * each),
		     FORWARD_TOLERANCE);
	gp_free(want);
}

static void add_chunk(const struct bed *b, int first, float scale, struct gp_loss_result *sum)
{
	struct gp_loss_result r;
	set_inputs(b, first);
	OK(b->plan->ops->forward(b->plan, 0, GP_TRAIN, 0, &err));
	check_scores(b, first);
	OK(b->plan->ops->loss(b->plan, 0, integers(b, "labels") + first * MASKED, b->chunk, true, scale, &r, &err));
	OK(b->plan->ops->backward(b->plan, 0, &err));
	sum->loss_sum += r.loss_sum;
	sum->correct += r.correct;
	sum->labelled += r.labelled;
}

static void check_loss(const struct bed *b, const struct gp_loss_result *got)
{
	float *want = reference(find(b->net, "loss", ""));
	assert_int_equal(got->labelled, count_labels(b));
	assert_int_equal(got->correct, integers(b, "correct")[0]);
	expect_close(b, "loss", fabs(got->loss_sum / (double)got->labelled - (double)*want) / (double)*want,
		     FORWARD_TOLERANCE);
	gp_free(want);
}

static float *gradient_of(const struct bed *b, const char *name)
{
	const int i = gp_graph_find_param(b->graph, name);
	assert_true(i >= 0);
	float *v = gp_calloc(b->graph->param[i].count, sizeof *v);
	assert_non_null(v);
	OK(b->plan->ops->grad_get(b->plan, i, v, &err));
	return v;
}

/* PyTorch has one gradient of a tied table, that of both places. */
static float *whole_gradient(const struct bed *b, const char *name)
{
	float *got = gradient_of(b, name);
	const bool words = strcmp(name, b->net->words) == 0, decoder = strcmp(name, b->net->decoder) == 0;
	if (!b->net->tied || (!words && !decoder))
		return got;
	float *other = gradient_of(b, words ? b->net->decoder : b->net->words);
	for (int i = 0; i < WORDS * FEATURES; i++)
		got[i] += other[i];
	gp_free(other);
	return got;
}

/* A softmax does not change with the bias of the keys, so that its gradient is 0 but for rounding: that of the keys' weights
 * gives it a scale. */
static double scale_of(const struct bed *b, const char *name)
{
	static const float zero[FEATURES * FEATURES];
	const size_t before = strlen(name) - strlen("bias");
	char weight[GP_NAME_MAX];
	if (!strstr(name, "key.bias"))
		return 0;
	snprintf(weight, sizeof weight, "%.*sweight", (int)before, name);
	float *v = reference(find(b->net, "grad.", weight));
	const double norm = relative_l2(v, zero, FEATURES * FEATURES);
	gp_free(v);
	return norm;
}

static void check_gradients(const struct bed *b)
{
	for (int i = 0; i < b->graph->params; i++) {
		const char *name = b->graph->param[i].name;
		const struct gp_st_tensor *t = find(b->net, "grad.", name);
		float *want = reference(t), *got = whole_gradient(b, name);
		const double scale = scale_of(b, name);
		if (scale > 0)
			memset(want, 0, t->count * sizeof *want);
		const double error = relative_l2(got, want, t->count);
		expect_close(b, name, scale > 0 ? error / scale : error, GRADIENT_TOLERANCE);
		gp_free(want);
		gp_free(got);
	}
}

/* The model's own sum of both, on which its optimizer works (common/graph/tie.h). */
static void check_tied_gradient(const struct bed *b)
{
	struct gp_tie tie;
	const struct gp_st_tensor *t = find(b->net, "grad.", b->net->words);
	if (!b->net->tied)
		return;
	OK(gp_tie_find(b->graph, b->plan, b->plan, &tie, &err));
	OK(gp_tie_gradients(&tie, &err));
	float *want = reference(t), *got = gradient_of(b, b->net->words);
	expect_close(b, "the sum of both gradients", relative_l2(got, want, t->count), GRADIENT_TOLERANCE);
	gp_free(want);
	gp_free(got);
}

static void check_network(struct bed *b, const char *device, int threads)
{
	struct gp_loss_result sum = {0};
	if (!open_bed(b, device, threads))
		return;
	const float scale = 1.0f / (float)count_labels(b);
	for (int first = 0; first < b->samples; first += b->chunk)
		add_chunk(b, first, scale, &sum);
	check_loss(b, &sum);
	check_gradients(b);
	check_tied_gradient(b);
	close_bed(b);
}

static void language_models_compute_what_pytorch_does(void **state)
{
	(void)state;
	static const struct {
		const char *device;
		int threads;
	} places[] = {{"cpu", 1}, {"cpu", 2}, {"cuda-emulated", 1}, {"cuda", 1}};
	for (int i = 0; i < NETWORKS; i++)
		for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
			struct bed b = {.net = &networks[i]};
			b.samples = (int)find(b.net, "length", "")->count;
			assert_true(b.samples <= SAMPLES_MOST && count_labels(&b) < b.samples * MASKED);
			b.chunk = b.samples;
			check_network(&b, places[k].device, places[k].threads);
			b.chunk = 1;
			check_network(&b, places[k].device, places[k].threads);
		}
}

/* --- weights and names --------------------------------------------------------------------------------------------- */

static void heads_have_the_names_of_hugging_face(void **state)
{
	(void)state;
	static const struct {
		const char *model, *head[6];
	} cases[] = {
		{"roberta:lm=1,layers=1,dim=8,heads=2,ffn=8,vocab=20",
		 {"lm_head.dense.weight", "lm_head.dense.bias", "lm_head.layer_norm.weight", "lm_head.layer_norm.bias",
		  "lm_head.decoder.weight", "lm_head.decoder.bias"}},
		{"bert:lm=1,layers=1,dim=8,heads=2,ffn=8,vocab=20",
		 {"cls.predictions.transform.dense.weight", "cls.predictions.transform.dense.bias",
		  "cls.predictions.transform.LayerNorm.weight", "cls.predictions.transform.LayerNorm.bias",
		  "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}},
	};
	for (int i = 0; i < 2; i++) {
		struct gp_graph *g = build(cases[i].model);
		for (int k = 0; k < 6; k++)
			assert_string_equal(g->param[g->params - 6 + k].name, cases[i].head[k]);
		assert_string_equal(g->block[g->blocks - 1].name, "lm_head");
		assert_int_equal(gp_graph_find_param(g, "bert.pooler.dense.weight"), -1);
		gp_graph_free(g);
	}
}

static void so_many_positions_are_masked(void **state)
{
	(void)state;
	static const int64_t cases[][2] = {{1, 1}, {6, 1}, {9, 1}, {10, 2}, {20, 3}, {64, 10}, {128, 19}, {512, 77}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_int_equal(gp_model_masked(cases[i][0]), cases[i][1]);
}

/* Positions are no sequence, and a chunk may be shorter than the model. */
static void chunks_may_have_fewer_positions(void **state)
{
	(void)state;
	for (int i = 0; i < NETWORKS; i++) {
		struct gp_graph *g = build(networks[i].model);
		assert_int_equal(gp_graph_sequence(g), POSITIONS);
		assert_string_equal(g->node[g->inputs - 1].name, "positions");
		assert_int_equal(g->value[g->inputs - 1].type.shape.dim[0], MASKED);
		gp_graph_free(g);
	}
}

static void an_option_of_the_other_head_is_refused(void **state)
{
	(void)state;
	struct gp_graph *g;
	assert_int_equal(gp_model_build("roberta:lm=1,classes=3", NULL, &g, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "classes"));
	assert_int_equal(gp_model_build("roberta:lm=2", NULL, &g, &err), GP_USAGE);
	const struct gp_model_options of_data = {.classes = 3};
	OK(gp_model_build("roberta:lm=1,layers=1,dim=8,heads=2,ffn=8,vocab=20", &of_data, &g, &err));
	assert_int_equal(gp_graph_output_shape(g)->dim[1], 20);
	gp_graph_free(g);
}

/* The encoder's values arrive, all of them, and the classifier keeps its own. */
static void check_classifier(const struct gp_weights *lm, const struct gp_weights *drawn, const struct gp_weights *w)
{
	for (int i = 0; i < w->graph->params; i++) {
		const struct gp_param *p = &w->graph->param[i];
		const int k = gp_graph_find_param(lm->graph, p->name);
		assert_true((k >= 0) == (strncmp(p->name, "classifier", 10) != 0 && !strstr(p->name, "pooler")));
		assert_memory_equal(w->value[i], k >= 0 ? lm->value[k] : drawn->value[i], p->count * sizeof(float));
	}
}

static void weights_fit_the_classifier(const char *lm_spec, const char *spec, const char *skip)
{
	char path[] = "/tmp/gp-lm-XXXXXX";
	struct gp_graph *lm_graph = build(lm_spec), *graph = build(spec);
	struct gp_weights *lm, *drawn, *w;
	struct gp_weights_report report;
	close(mkstemp(path));
	OK(gp_weights_new(lm_graph, &lm, &err));
	OK(gp_weights_new(graph, &drawn, &err));
	OK(gp_weights_new(graph, &w, &err));
	gp_weights_init(lm, 5);
	gp_weights_init(drawn, 6);
	gp_weights_init(w, 6);
	OK(gp_weights_save(lm, path, &err));
	OK(gp_weights_load_except(w, path, skip, &report, &err));
	check_classifier(lm, drawn, w);
	unlink(path);
	gp_weights_free(lm);
	gp_weights_free(drawn);
	gp_weights_free(w);
	gp_graph_free(lm_graph);
	gp_graph_free(graph);
}

static void encoders_go_on_in_a_classifier(void **state)
{
	(void)state;
	weights_fit_the_classifier("roberta:layers=2,heads=2,ffn=32,lm=1" SIZES,
				   "roberta:layers=2,heads=2,ffn=32,classes=3" SIZES, "lm_head.*,classifier.*");
	weights_fit_the_classifier("bert:layers=2,heads=2,ffn=32,lm=1" SIZES,
				   "bert:layers=2,heads=2,ffn=32,classes=3" SIZES,
				   "cls.predictions.*,classifier.*,bert.pooler.*");
}

static int open_dump(void **state)
{
	(void)state;
	return gp_st_open("tests/golden/models/language_models.safetensors", &dump, &err);
}

static int close_dump(void **state)
{
	(void)state;
	gp_st_close(dump);
	return 0;
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(language_models_compute_what_pytorch_does),
		cmocka_unit_test(heads_have_the_names_of_hugging_face),
		cmocka_unit_test(so_many_positions_are_masked),
		cmocka_unit_test(chunks_may_have_fewer_positions),
		cmocka_unit_test(an_option_of_the_other_head_is_refused),
		cmocka_unit_test(encoders_go_on_in_a_classifier),
	};
	return cmocka_run_group_tests(tests, open_dump, close_dump);
}

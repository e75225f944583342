/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole encoders (client/models/model_encoder.c) against PyTorch, on 1 and 2
 * threads: hidden values and classes, and the gradient of every parameter; and
 * that what stands behind a text's length has no influence on any bit.
 * Reference: tests/golden/models/encoders.safetensors, made by
 * tests/tools/dump_encoder.py.
 */
#include <math.h>
#include <string.h>

#include "client/models/models.h"
#include "common/base/mem.h"
#include "common/base/threads.h"
#include "common/graph/device.h"
#include "common/graph/graph_part.h"
#include "common/store/safetensors.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"

#define FORWARD_TOLERANCE  1e-5 /* relative L2 */
#define GRADIENT_TOLERANCE 1e-4

enum { POSITIONS = 12, FEATURES = 16, SAMPLES_MOST = 4 };

static struct gp_st_file *dump;

static const struct encoder {
	const char *name, *model;
	bool has_hidden_gradient;
} encoders[] = {
	{"roberta2", "roberta:layers=2,heads=2,ffn=32", true},
	{"bert2", "bert:layers=2,heads=4,ffn=24", true},
	{"roberta12", "roberta:layers=12,heads=4,ffn=24", false},
};
enum { ENCODERS = sizeof encoders / sizeof encoders[0] };

/* --- a plan with the dump's parameters and inputs ------------------------------------------------------------------ */

struct bed {
	const struct encoder *encoder;
	struct gp_graph *graph;
	struct gp_device *device;
	struct gp_plan *plan;
	int samples;
	char place[64];
};

static const struct gp_st_tensor *find(const struct encoder *e, const char *key, const char *of)
{
	char name[2 * GP_NAME_MAX];
	snprintf(name, sizeof name, "%s/%s%s", e->name, key, of);
	const struct gp_st_tensor *t = gp_st_find(dump, name);
	if (!t)
		fail_msg("the dump has no %s", name);
	return t;
}

/* `whole` false: without the classifier. */
static struct gp_graph *build(const struct encoder *e, const char *more, bool whole)
{
	char spec[200];
	struct gp_graph *g, *part;
	snprintf(spec, sizeof spec, "%s,dim=%d,vocab=40,max=20,tokens=%d,classes=3%s", e->model, FEATURES, POSITIONS,
		 more);
	OK(gp_model_build(spec, NULL, &g, &err));
	if (whole)
		return g;
	OK(gp_graph_part(g, 0, g->blocks - 1, &part, &err));
	gp_graph_free(g);
	return part;
}

static void load_params(const struct bed *b)
{
	for (int i = 0; i < b->graph->params; i++) {
		const struct gp_st_tensor *t = find(b->encoder, "param.", b->graph->param[i].name);
		float *v = gp_calloc(b->graph->param[i].count, sizeof *v);
		assert_true(v && t->count == b->graph->param[i].count);
		OK(gp_st_read_f32(t, v, &err));
		OK(b->plan->ops->param_set(b->plan, i, v, &err));
		gp_free(v);
	}
}

/* False: this build has no such device, or it has not all of the ops. */
static bool open_bed(struct bed *b, const char *device, int threads)
{
	struct gp_plan_spec spec = {
		.graph = b->graph, .slots = 1, .train = true, .seed = 3, .grad_inputs = ~(uint64_t)0};
	spec.optim = (struct gp_optim){.kind = GP_OPTIM_SGD};
	b->samples = (int)find(b->encoder, "length", "")->count;
	spec.batch = b->samples;
	snprintf(b->place, sizeof b->place, "%s on %s, %d threads", b->encoder->name, device, threads);
	if (gp_device_open(device, threads, &b->device, &err) != GP_OK)
		return false;
	const enum gp_status status = b->device->ops->plan_new(b->device, &spec, &b->plan, &err);
	if (status == GP_UNSUPPORTED) {
		b->device->ops->close(b->device);
		return false;
	}
	OK(status);
	load_params(b);
	return true;
}

static void close_bed(struct bed *b)
{
	b->device->ops->plan_free(b->plan);
	b->device->ops->close(b->device);
}

static void *buffer(const struct bed *b, enum gp_plan_buf which, int index)
{
	void *at = b->plan->ops->buffer(b->plan, 0, which, index);
	assert_non_null(at);
	return at;
}

static void set_inputs(const struct bed *b)
{
	for (int i = 0; i < b->graph->inputs; i++) {
		const struct gp_st_tensor *t = find(b->encoder, b->graph->node[i].name, "");
		memcpy(buffer(b, GP_BUF_INPUT, i), t->data, t->count * sizeof(int32_t));
	}
}

static void run_step(const struct bed *b, const char *gradient)
{
	OK(b->plan->ops->forward(b->plan, 0, GP_TRAIN, 0, &err));
	OK(gp_st_read_f32(find(b->encoder, gradient, ""), buffer(b, GP_BUF_GRAD_OUTPUT, 0), &err));
	OK(b->plan->ops->backward(b->plan, 0, &err));
}

static float *gradient_of(const struct bed *b, int param)
{
	float *v = gp_calloc(b->graph->param[param].count, sizeof *v);
	assert_non_null(v);
	OK(b->plan->ops->grad_get(b->plan, param, v, &err));
	return v;
}

/* --- against PyTorch ----------------------------------------------------------------------------------------------- */

static float *reference(const struct gp_st_tensor *t)
{
	float *v = gp_calloc(t->count, sizeof *v);
	assert_non_null(v);
	OK(gp_st_read_f32(t, v, &err));
	return v;
}

static void expect_close(const struct bed *b, const char *what, double error, double tolerance)
{
	if (!(error < tolerance))
		fail_msg("%s: %s: relative L2 error %.3g", b->place, what, error);
}

static void check_logits(const struct bed *b)
{
	const struct gp_st_tensor *t = find(b->encoder, "logits", "");
	float *want = reference(t);
	expect_close(b, "logits", relative_l2(buffer(b, GP_BUF_OUTPUT, 0), want, t->count), FORWARD_TOLERANCE);
	gp_free(want);
}

/* Positions of padding are left out: PyTorch computes something there that nobody reads. */
static void check_hidden(const struct bed *b)
{
	const int32_t *length = (const int32_t *)find(b->encoder, "length", "")->data;
	float *want = reference(find(b->encoder, "hidden", "")), *got = buffer(b, GP_BUF_OUTPUT, 0);
	for (int i = 0; i < b->samples; i++) {
		const size_t at = (size_t)i * POSITIONS * FEATURES;
		expect_close(b, "hidden values", relative_l2(got + at, want + at, (uint64_t)length[i] * FEATURES),
			     FORWARD_TOLERANCE);
	}
	gp_free(want);
}

/* A softmax does not change with the bias of the keys, so that its gradient is 0 but for rounding: that of the keys' weights
 * gives it a scale. */
static double scale_of(const struct bed *b, const char *key, const char *name)
{
	static const char bias[] = "key.bias";
	const size_t before = strlen(name) - strlen(bias);
	if (strlen(name) < strlen(bias) || strcmp(name + before, bias) != 0)
		return 0;
	char weight[GP_NAME_MAX];
	snprintf(weight, sizeof weight, "%.*skey.weight", (int)before, name);
	const struct gp_st_tensor *t = find(b->encoder, key, weight);
	float *v = reference(t), zero[FEATURES * FEATURES] = {0};
	assert_true(t->count == sizeof zero / sizeof zero[0]);
	const double norm = relative_l2(v, zero, t->count);
	gp_free(v);
	return norm;
}

static void check_gradients(const struct bed *b, const char *key)
{
	for (int i = 0; i < b->graph->params; i++) {
		const char *name = b->graph->param[i].name;
		const struct gp_st_tensor *t = find(b->encoder, key, name);
		float *want = reference(t), *got = gradient_of(b, i);
		const double scale = scale_of(b, key, name);
		if (scale > 0)
			memset(want, 0, t->count * sizeof *want);
		const double error = relative_l2(got, want, t->count);
		expect_close(b, name, scale > 0 ? error / scale : error, GRADIENT_TOLERANCE);
		gp_free(want);
		gp_free(got);
	}
}

static void check_whole(struct bed *b, const char *device, int threads)
{
	b->graph = build(b->encoder, ",dropout=0,attention_dropout=0", true);
	if (open_bed(b, device, threads)) {
		set_inputs(b);
		run_step(b, "glogits");
		check_logits(b);
		check_gradients(b, "grad.");
		close_bed(b);
	}
	gp_graph_free(b->graph);
}

static void check_without_classifier(struct bed *b, const char *device, int threads)
{
	b->graph = build(b->encoder, ",dropout=0,attention_dropout=0", false);
	if (open_bed(b, device, threads)) {
		set_inputs(b);
		OK(b->plan->ops->forward(b->plan, 0, GP_EVAL, 0, &err));
		check_hidden(b);
		if (b->encoder->has_hidden_gradient) {
			run_step(b, "ghidden");
			check_hidden(b);
			check_gradients(b, "grad_hidden.");
		}
		close_bed(b);
	}
	gp_graph_free(b->graph);
}

static void encoders_compute_what_pytorch_does(void **state)
{
	(void)state;
	static const struct {
		const char *device;
		int threads;
	} places[] = {{"cpu", 1}, {"cpu", 2}, {"cuda-emulated", 1}, {"cuda", 1}};
	for (int i = 0; i < ENCODERS; i++)
		for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
			struct bed b = {.encoder = &encoders[i]};
			check_whole(&b, places[k].device, places[k].threads);
			check_without_classifier(&b, places[k].device, places[k].threads);
		}
}

/* --- padding ------------------------------------------------------------------------------------------------------- */

/* Other tokens and types behind each length. */
static void change_padding(const struct bed *b)
{
	const int32_t *length = buffer(b, GP_BUF_INPUT, 1);
	for (int input = 0; input < b->graph->inputs; input += 2) {
		int32_t *row = buffer(b, GP_BUF_INPUT, input);
		for (int n = 0; n < b->samples * POSITIONS; n++)
			if (n % POSITIONS >= length[n / POSITIONS])
				row[n] = input == 0 ? 2 + (row[n] + 7 * n) % 38 : 1 - row[n];
	}
}

/* The step's logits and gradients, one behind the other. */
static float *step_results(const struct bed *b, size_t *count)
{
	const size_t logits = (size_t)b->samples * 3;
	float *all = gp_calloc(logits + b->graph->param_elements, sizeof *all), *at = all + logits;
	assert_non_null(all);
	run_step(b, "glogits");
	memcpy(all, buffer(b, GP_BUF_OUTPUT, 0), logits * sizeof *all);
	for (int i = 0; i < b->graph->params; i++) {
		OK(b->plan->ops->grad_get(b->plan, i, at, &err));
		at += b->graph->param[i].count;
	}
	*count = (size_t)(at - all);
	return all;
}

/* Two plans: a second step of one would draw other numbers for dropout. */
static float *results_with(const struct encoder *e, bool other_padding, const char *device, size_t *count)
{
	struct bed b = {.encoder = e, .graph = build(e, "", true)};
	float *results = NULL;
	if (open_bed(&b, device, 2)) {
		set_inputs(&b);
		if (other_padding)
			change_padding(&b);
		results = step_results(&b, count);
		close_bed(&b);
	}
	gp_graph_free(b.graph);
	return results;
}

static void what_stands_behind_the_length_changes_no_bit(void **state)
{
	(void)state;
	static const char *const devices[] = {"cpu", "cuda-emulated", "cuda"};
	for (int i = 0; i < ENCODERS; i++)
		for (size_t k = 0; k < sizeof devices / sizeof devices[0]; k++) {
			size_t count = 0, same = 0;
			float *a = results_with(&encoders[i], false, devices[k], &count);
			float *b = results_with(&encoders[i], true, devices[k], &same);
			assert_true((k > 0 || a) && count == same);
			for (size_t n = 0; n < count; n++)
				assert_true(a[n] == b[n]); /* a gradient of 0 may be -0 */
			gp_free(a);
			gp_free(b);
		}
}

enum { ROW = POSITIONS * FEATURES };

static bool is_token(const int32_t *length, int n)
{
	return n % ROW / FEATURES < length[n / ROW];
}

/* Numbers that come over the link in place of tokens; those behind the lengths plus `other`. The tail's gradient is 0 there. */
static void run_body(const struct bed *b, const int32_t *length, float other)
{
	float *in = buffer(b, GP_BUF_INPUT, 1), *grad = buffer(b, GP_BUF_GRAD_OUTPUT, 0);
	memcpy(buffer(b, GP_BUF_INPUT, 0), length, (size_t)b->samples * sizeof *length);
	for (int n = 0; n < b->samples * ROW; n++)
		in[n] = sinf((float)n) + (is_token(length, n) ? 0 : other * cosf((float)n));
	OK(b->plan->ops->forward(b->plan, 0, GP_TRAIN, 0, &err));
	for (int n = 0; n < b->samples * ROW; n++)
		grad[n] = is_token(length, n) ? sinf(0.5f * (float)n) : 0;
	OK(b->plan->ops->backward(b->plan, 0, &err));
}

/* Output and the input's gradient without the rows behind the lengths, and the gradients of parameters. */
static size_t collect_body(const struct bed *b, const int32_t *length, float *out)
{
	const float *copied[] = {buffer(b, GP_BUF_OUTPUT, 0), buffer(b, GP_BUF_GRAD_INPUT, 1)};
	float *at = out;
	for (int k = 0; k < 2; k++)
		for (int n = 0; n < b->samples * ROW; n++)
			if (is_token(length, n))
				*at++ = copied[k][n];
	for (int i = 0; i < b->graph->params; at += b->graph->param[i++].count)
		OK(b->plan->ops->grad_get(b->plan, i, at, &err));
	return (size_t)(at - out);
}

/* A step of a body as a server has it. */
static size_t body_results(const struct encoder *e, float other, float *out)
{
	struct gp_graph *whole = build(e, "", true);
	struct bed b = {.encoder = e};
	const int32_t *length = (const int32_t *)find(e, "length", "")->data;
	OK(gp_graph_part(whole, 1, whole->blocks - 1, &b.graph, &err));
	assert_true(b.graph->inputs == 2 && b.graph->value[0].type.dtype == GP_I32);
	assert_true(open_bed(&b, "cpu", 2));
	run_body(&b, length, other);
	const size_t count = collect_body(&b, length, out);
	close_bed(&b);
	gp_graph_free(b.graph);
	gp_graph_free(whole);
	return count;
}

static void numbers_behind_the_length_change_no_bit_of_a_body(void **state)
{
	(void)state;
	static float a[65536], b[65536];
	for (int i = 0; i < ENCODERS; i++) {
		const size_t count = body_results(&encoders[i], 0, a);
		assert_true(count == body_results(&encoders[i], 1000, b) && count < sizeof a / sizeof a[0]);
		for (size_t n = 0; n < count; n++)
			assert_true(a[n] == b[n]);
	}
}

static int open_dump(void **state)
{
	(void)state;
	return gp_st_open("tests/golden/models/encoders.safetensors", &dump, &err);
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
		cmocka_unit_test(encoders_compute_what_pytorch_does),
		cmocka_unit_test(what_stands_behind_the_length_changes_no_bit),
		cmocka_unit_test(numbers_behind_the_length_change_no_bit_of_a_body),
	};
	return cmocka_run_group_tests(tests, open_dump, close_dump);
}

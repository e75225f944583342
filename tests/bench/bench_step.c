/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_step [--profile] [--undo] [--adamw] [--eval] [--precision fp32|bf16] MODEL SHAPE BATCH CHUNKS THREADS [STEPS]:
 * milliseconds of one training step (forward and backward of every chunk, loss, SGD with momentum) of a whole model on
 * the CPU device, or with --eval of a forward pass of a plan for evaluation, median and best, and the plan's memory.
 * SHAPE is HxWxC, or for a model of texts the number of their tokens, all of which are real. --profile adds a table of
 * times per node, and how long the multiplications of a step take at the highest rate that one of its nodes has
 * reached; --undo makes a plan whose steps can be taken back; --adamw takes that optimizer. torch_step.py and
 * torch_text_step.py beside this file do the same with PyTorch; forward_pair.sh compares forward passes with ONNX
 * Runtime's.
 */
#include <string.h>
#include <time.h>

#include "common/graph/device.h"
#include "kernels/device_registry.h"
#include "common/base/mem.h"
#include "client/models/models.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/plan_profile.h"
#include "common/base/rng.h"
#include "common/base/threads.h"

#define MAX_STEPS 1000

static double now_ms(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

struct bench {
	struct gp_plan *plan;
	int32_t *labels;
	int chunk, chunks;
	bool profile, undo, adamw, eval;
	enum gp_precision precision;
};

static enum gp_status run_pass(const struct bench *b, struct gp_err *err)
{
	for (int c = 0; c < b->chunks; c++)
		GP_TRY(b->plan->ops->forward(b->plan, 0, GP_EVAL, 0, err));
	return GP_OK;
}

static enum gp_status run_step(const struct bench *b, struct gp_err *err)
{
	const struct gp_device_ops *ops = b->plan->ops;
	struct gp_loss_result loss;
	if (b->eval)
		return run_pass(b, err);
	for (int c = 0; c < b->chunks; c++) {
		GP_TRY(ops->forward(b->plan, 0, GP_TRAIN, 0, err));
		GP_TRY(ops->loss(b->plan, 0, b->labels, b->chunk, true, 1.0f / (float)(b->chunk * b->chunks), &loss,
				 err));
		GP_TRY(ops->backward(b->plan, 0, err));
	}
	return ops->optim_step(b->plan, 0.01f, err);
}

static void print_memory(const struct gp_plan *plan)
{
	struct gp_plan_memory m;
	plan->ops->plan_memory(plan, &m);
	printf("memory MB: params %.1f grads %.1f optim %.1f activations %.1f scratch %.1f io %.1f total %.1f, "
	       "peak resident %.1f\n",
	       (double)m.params / 1e6, (double)m.grads / 1e6, (double)m.optim / 1e6, (double)m.activations / 1e6,
	       (double)m.scratch / 1e6, (double)m.io / 1e6, (double)m.total / 1e6,
	       (double)gp_mem_peak_rss_bytes() / 1e6);
}

/* Rows of the table that is read by input `value`: its numbers are below that. Of an input that is no number of a row 1. */
static uint32_t rows_of_input(const struct gp_graph *g, int value)
{
	for (int i = g->inputs; i < g->nodes; i++)
		if (g->node[i].op == GP_OP_EMBEDDING && g->node[i].in[0] == value)
			return (uint32_t)gp_embedding_attr(&g->node[i]).vocab;
	return 1;
}

/* Any row for numbers of rows; lengths and masks say that every token is real. */
static void fill_integers(const struct gp_graph *g, int input, int32_t *x, uint64_t n)
{
	const uint32_t rows = rows_of_input(g, input);
	const int32_t all = strcmp(g->node[input].name, "length") == 0 ? (int32_t)gp_graph_input_shape(g)->dim[0] : 1;
	uint32_t w[4];
	for (uint64_t i = 0; i < n; i++) {
		gp_rng_block(1, gp_rng_stream(GP_RNG_SYNTHETIC, (uint64_t)input), i, w);
		x[i] = rows > 1 ? (int32_t)((uint64_t)w[0] * rows >> 32) : all;
	}
}

static void fill_inputs(const struct bench *b)
{
	const struct gp_graph *g = b->plan->spec.graph;
	for (int input = 0; input < g->inputs; input++) {
		const struct gp_type *type = &g->value[input].type;
		void *x = b->plan->ops->buffer(b->plan, 0, GP_BUF_INPUT, input);
		const uint64_t n = (uint64_t)b->chunk * gp_shape_elements(&type->shape);
		if (type->dtype == GP_I32) {
			fill_integers(g, input, x, n);
			continue;
		}
		for (uint64_t i = 0; i < n; i++)
			((float *)x)[i] = gp_rng_normal(1, gp_rng_stream(GP_RNG_SYNTHETIC, (uint64_t)input), i);
	}
}

/* What no implementation of the same products can go below: their time if all ran as fast as the fastest. */
static void print_floor(const struct gp_graph *g, const struct gp_plan_profile *profile, int steps)
{
	double flops = 0, rate = 0;
	for (int i = 0; i < g->nodes; i++) {
		const struct gp_node_profile *p = &profile->node[i];
		for (int way = 0; way < 2; way++) {
			flops += p->flops[way];
			if (p->calls[way] && p->best_ns[way]) {
				const double r = p->flops[way] / (double)p->calls[way] / (double)p->best_ns[way];
				rate = r > rate ? r : rate;
			}
		}
	}
	if (rate > 0)
		printf("multiplications: %.3f GFLOP per step; the fastest node reached %.1f GFLOP/s, at which they "
		       "take "
		       "%.1f ms\n",
		       flops * 1e-9 / steps, rate, flops * 1e-6 / steps / rate);
}

static enum gp_status run_bench(struct bench *b, int steps, struct gp_err *err)
{
	double ms[MAX_STEPS], cpu_ms[MAX_STEPS];
	fill_inputs(b);
	for (int warm = 0; warm < 2; warm++)
		GP_TRY(run_step(b, err));
	const struct gp_plan_profile *profile = NULL;
	if (b->profile)
		GP_TRY(gp_plan_profile_begin(b->plan, &profile, err));
	for (int s = 0; s < steps; s++) {
		double start = now_ms(CLOCK_MONOTONIC), cpu_start = now_ms(CLOCK_PROCESS_CPUTIME_ID);
		GP_TRY(run_step(b, err));
		ms[s] = now_ms(CLOCK_MONOTONIC) - start;
		cpu_ms[s] = now_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;
	}
	qsort(ms, (size_t)steps, sizeof ms[0], by_value);
	qsort(cpu_ms, (size_t)steps, sizeof cpu_ms[0], by_value);
	printf("ms per %s: median %.2f best %.2f; processor time median %.2f best %.2f\n", b->eval ? "pass" : "step",
	       ms[steps / 2], ms[0], cpu_ms[steps / 2], cpu_ms[0]);
	print_memory(b->plan);
	gp_plan_profile_print(stdout, "step", b->plan, profile);
	if (profile)
		print_floor(b->plan->spec.graph, profile, steps);
	return GP_OK;
}

/* HxWxC, or the number of tokens. */
static enum gp_status read_shape(const char *text, struct gp_shape *out, struct gp_err *err)
{
	long long d[3];
	char more;
	const int n = sscanf(text, "%lldx%lldx%lld%c", &d[0], &d[1], &d[2], &more);
	if ((n != 1 && n != 3) || (n == 1 && strchr(text, 'x')))
		GP_FAIL(err, GP_USAGE, "SHAPE must be HxWxC or a number of tokens, not %s", text);
	out->ndim = n;
	for (int i = 0; i < n; i++)
		out->dim[i] = d[i];
	return GP_OK;
}

static enum gp_status prepare(char **argv, struct gp_device **dev, struct gp_graph **g, struct bench *b,
			      struct gp_err *err)
{
	struct gp_model_options options = {0};
	GP_TRY(read_shape(argv[2], &options.input, err));
	b->chunks = atoi(argv[4]);
	if (b->chunks < 1 || atoi(argv[3]) < b->chunks)
		GP_FAIL(err, GP_USAGE, "CHUNKS must be in 1..BATCH");
	b->chunk = atoi(argv[3]) / b->chunks;
	GP_TRY(gp_model_build(argv[1], &options, g, err));
	GP_TRY(gp_device_open("cpu", atoi(argv[5]), dev, err));
	struct gp_plan_spec spec = {.graph = *g, .batch = b->chunk, .slots = 1, .train = !b->eval, .seed = 1};
	spec.precision = b->precision;
	spec.undo = b->undo;
	if (b->adamw)
		spec.optim = (struct gp_optim){
			.kind = GP_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f, .weight_decay = 0.01f};
	else
		spec.optim = (struct gp_optim){.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 1e-4f};
	GP_TRY((*dev)->ops->plan_new(*dev, &spec, &b->plan, err));
	void *labels;
	GP_TRY(gp_alloc_array(&labels, (size_t)b->chunk, sizeof(int32_t), err));
	b->labels = labels;
	return GP_OK;
}

/* Returns how many arguments they take. */
static int read_flags(int argc, char **argv, struct bench *b)
{
	int i = 1;
	for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
		if (strcmp(argv[i], "--profile") == 0)
			b->profile = true;
		else if (strcmp(argv[i], "--undo") == 0)
			b->undo = true;
		else if (strcmp(argv[i], "--adamw") == 0)
			b->adamw = true;
		else if (strcmp(argv[i], "--eval") == 0)
			b->eval = true;
		else if (strcmp(argv[i], "--precision") == 0 && i + 1 < argc)
			b->precision = strcmp(argv[++i], "bf16") == 0 ? GP_PRECISION_BF16 : GP_PRECISION_FP32;
		else
			return argc; /* usage */
	}
	return i - 1;
}

int main(int argc, char **argv)
{
	struct gp_err err = {0};
	struct gp_device *dev = NULL;
	struct gp_graph *g = NULL;
	struct bench b = {0};
	gp_threads_prepare(argv);
	int flags = read_flags(argc, argv, &b);
	argc -= flags;
	argv += flags;
	if (argc < 6) {
		fprintf(stderr,
			"usage: bench_step [--profile] [--undo] [--adamw] [--eval] [--precision fp32|bf16] MODEL "
			"HxWxC|TOKENS BATCH CHUNKS THREADS [STEPS]\n");
		return 2;
	}
	int steps = argc > 6 ? atoi(argv[6]) : 10;
	steps = steps < 1 ? 1 : steps > MAX_STEPS ? MAX_STEPS : steps;
	enum gp_status status = prepare(argv, &dev, &g, &b, &err);
	if (status == GP_OK)
		status = run_bench(&b, steps, &err);
	if (status != GP_OK)
		gp_err_print(&err, "bench_step");
	if (b.plan)
		b.plan->ops->plan_free(b.plan);
	if (dev)
		dev->ops->close(dev);
	gp_graph_free(g);
	gp_free(b.labels);
	return gp_status_exit(status);
}

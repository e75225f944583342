/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_step [--profile] [--undo] [--precision fp32|bf16] MODEL SHAPE BATCH CHUNKS THREADS [STEPS]: milliseconds of one
 * training step (forward and backward of every chunk, loss, SGD with momentum) of a whole model on the CPU device,
 * median and best, and the plan's memory. SHAPE is HxWxC. --profile adds a table of times per node; --undo makes a plan
 * whose steps can be taken back. torch_step.py beside this file does the same with PyTorch.
 */
#include <string.h>
#include <time.h>

#include "common/graph/device.h"
#include "kernels/device_registry.h"
#include "common/base/mem.h"
#include "client/models/models.h"
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
	bool profile, undo;
	enum gp_precision precision;
};

static enum gp_status run_step(const struct bench *b, struct gp_err *err)
{
	const struct gp_device_ops *ops = b->plan->ops;
	struct gp_loss_result loss;
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

static enum gp_status run_bench(struct bench *b, int steps, struct gp_err *err)
{
	double ms[MAX_STEPS], cpu_ms[MAX_STEPS];
	float *x = b->plan->ops->buffer(b->plan, 0, GP_BUF_INPUT, 0);
	uint64_t n = (uint64_t)b->chunk * gp_shape_elements(gp_graph_input_shape(b->plan->spec.graph));
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(1, gp_rng_stream(GP_RNG_SYNTHETIC, 0), i);
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
	printf("ms per step: median %.2f best %.2f; processor time median %.2f best %.2f\n", ms[steps / 2], ms[0],
	       cpu_ms[steps / 2], cpu_ms[0]);
	print_memory(b->plan);
	gp_plan_profile_print(stdout, "step", b->plan, profile);
	return GP_OK;
}

static enum gp_status prepare(char **argv, struct gp_device **dev, struct gp_graph **g, struct bench *b,
			      struct gp_err *err)
{
	struct gp_model_options options = {.input = {.ndim = 3}};
	long long h, w, c;
	if (sscanf(argv[2], "%lldx%lldx%lld", &h, &w, &c) != 3)
		GP_FAIL(err, GP_USAGE, "SHAPE must be HxWxC, not %s", argv[2]);
	options.input.dim[0] = h;
	options.input.dim[1] = w;
	options.input.dim[2] = c;
	b->chunks = atoi(argv[4]);
	if (b->chunks < 1 || atoi(argv[3]) < b->chunks)
		GP_FAIL(err, GP_USAGE, "CHUNKS must be in 1..BATCH");
	b->chunk = atoi(argv[3]) / b->chunks;
	GP_TRY(gp_model_build(argv[1], &options, g, err));
	GP_TRY(gp_device_open("cpu", atoi(argv[5]), dev, err));
	struct gp_plan_spec spec = {.graph = *g, .batch = b->chunk, .slots = 1, .train = true, .seed = 1};
	spec.precision = b->precision;
	spec.undo = b->undo;
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
			"usage: bench_step [--profile] [--undo] [--precision fp32|bf16] MODEL HxWxC BATCH CHUNKS "
			"THREADS [STEPS]\n");
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_attention POSITIONS WIDTH HEADS SAMPLES THREADS [LENGTH [P [RUNS]]]: times of self-attention on the CPU device,
 * forward and backward, best and median, as GFLOP/s of its products (2 of them forward, 5 backward, as backward computes
 * the scores anew), and beside it oneDNN's SGEMM of (SAMPLES * POSITIONS, F) with (F, F), F = HEADS * WIDTH: the share of
 * its speed that attention reaches. LENGTH: tokens of every sample (default: POSITIONS), of which alone flops are counted;
 * P: dropout (default: 0).
 */
#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_attention.h"
#include "kernels/device_registry.h"

#define MAX_RUNS 1000

struct bench {
	int positions, width, heads, samples, threads, length, runs;
	float p;
	struct gp_device *dev;
	struct gp_graph *graph;
	struct gp_plan *plan;
};

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static int number(int argc, char **argv, int at, int otherwise)
{
	const int n = at < argc ? atoi(argv[at]) : otherwise;
	if (n < 1) {
		fprintf(stderr, "bench_attention POSITIONS WIDTH HEADS SAMPLES THREADS [LENGTH [P [RUNS]]]\n");
		exit(2);
	}
	return n;
}

static struct bench settings_of(int argc, char **argv)
{
	struct bench b = {.positions = number(argc, argv, 1, 0),
			  .width = number(argc, argv, 2, 0),
			  .heads = number(argc, argv, 3, 0),
			  .samples = number(argc, argv, 4, 0),
			  .threads = number(argc, argv, 5, 0)};
	b.length = number(argc, argv, 6, b.positions);
	b.p = argc > 7 ? (float)atof(argv[7]) : 0.0f;
	b.runs = number(argc, argv, 8, 50);
	b.runs = b.runs < MAX_RUNS ? b.runs : MAX_RUNS;
	b.length = b.length < b.positions ? b.length : b.positions;
	return b;
}

static enum gp_status make_plan(struct bench *b, struct gp_err *err)
{
	const struct gp_type row = {GP_F32, {.ndim = 2, .dim = {b->positions, b->heads * b->width}}};
	const struct gp_type length = {GP_I32, {.ndim = 1, .dim = {1}}};
	static const char *const names[] = {"q", "k", "v"};
	int qkv[3];
	b->graph = gp_graph_new_empty("attention", err);
	if (!b->graph)
		return GP_NOMEM;
	for (int i = 0; i < 3; i++)
		qkv[i] = gp_graph_add_input(b->graph, names[i], &row, err);
	const int lengths = gp_graph_add_input(b->graph, "length", &length, err);
	GP_TRY(gp_graph_begin_block(b->graph, "block", err));
	if (gp_graph_attention(b->graph, "attention", qkv, lengths, (struct gp_attention_attr){b->heads, b->p}, err) <
	    0)
		return GP_INVALID;
	GP_TRY(gp_graph_finish(b->graph, err));
	GP_TRY(gp_device_open("cpu", b->threads, &b->dev, err));
	const struct gp_plan_spec spec = {
		.graph = b->graph, .batch = b->samples, .slots = 1, .train = true, .grad_inputs = 7, .seed = 1};
	return b->dev->ops->plan_new(b->dev, &spec, &b->plan, err);
}

static void fill(const struct bench *b, enum gp_plan_buf which, int index)
{
	float *x = b->plan->ops->buffer(b->plan, 0, which, index);
	const uint64_t n = (uint64_t)b->samples * (uint64_t)(b->positions * b->heads * b->width);
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(1, gp_rng_stream(GP_RNG_SYNTHETIC, (uint64_t)which + (uint64_t)index), i);
}

static void print(const struct bench *b, const char *what, double *ms, double flops, double gemm)
{
	qsort(ms, (size_t)b->runs, sizeof ms[0], by_value);
	printf("%-8s best %.3f median %.3f ms, %.1f GFLOP/s", what, ms[0], ms[b->runs / 2], flops / ms[0] * 1e-6);
	if (gemm > 0)
		printf(", %.0f %% of SGEMM's", 100.0 * flops / ms[0] * 1e-6 / gemm);
	printf("\n");
}

/* GFLOP/s. */
static double run_gemm(const struct bench *b)
{
	const int64_t rows = (int64_t)b->samples * b->positions, f = (int64_t)b->heads * b->width;
	const double flops = 2.0 * (double)rows * (double)f * (double)f;
	double ms[MAX_RUNS];
	float *x = gp_calloc((size_t)(rows * f), sizeof *x), *y = gp_calloc((size_t)(rows * f), sizeof *y);
	float *w = gp_calloc((size_t)(f * f), sizeof *w);
	omp_set_num_threads(b->threads);
	for (int i = -2; x && y && w && i < b->runs; i++) {
		const uint64_t begin = gp_now_ns();
		dnnl_sgemm('N', 'N', rows, f, f, 1.0f, x, f, w, f, 0.0f, y, f);
		ms[i < 0 ? 0 : i] = (double)(gp_now_ns() - begin) * 1e-6;
	}
	print(b, "sgemm", ms, flops, 0);
	gp_free(x);
	gp_free(y);
	gp_free(w);
	return flops / ms[0] * 1e-6;
}

static enum gp_status run(const struct bench *b, struct gp_err *err)
{
	double forward[MAX_RUNS], backward[MAX_RUNS];
	const double product = 2.0 * b->samples * b->heads * (double)b->length * b->length * b->width;
	int32_t *length = b->plan->ops->buffer(b->plan, 0, GP_BUF_INPUT, 3);
	for (int i = 0; i < b->samples; i++)
		length[i] = b->length;
	for (int i = 0; i < 3; i++)
		fill(b, GP_BUF_INPUT, i);
	fill(b, GP_BUF_GRAD_OUTPUT, 0);
	for (int i = -2; i < b->runs; i++) {
		const uint64_t begin = gp_now_ns();
		GP_TRY(b->plan->ops->forward(b->plan, 0, GP_TRAIN, 0, err));
		const uint64_t middle = gp_now_ns();
		GP_TRY(b->plan->ops->backward(b->plan, 0, err));
		forward[i < 0 ? 0 : i] = (double)(middle - begin) * 1e-6;
		backward[i < 0 ? 0 : i] = (double)(gp_now_ns() - middle) * 1e-6;
	}
	const double gemm = run_gemm(b);
	print(b, "forward", forward, 2.0 * product, gemm);
	print(b, "backward", backward, 5.0 * product, gemm);
	return GP_OK;
}

int main(int argc, char **argv)
{
	struct gp_err err;
	gp_threads_prepare(argv);
	struct bench b = settings_of(argc, argv);
	const enum gp_status status = make_plan(&b, &err) == GP_OK ? run(&b, &err) : GP_INVALID;
	if (status != GP_OK)
		fprintf(stderr, "bench_attention: %s\n", err.text);
	if (b.plan)
		b.plan->ops->plan_free(b.plan);
	if (b.dev)
		b.dev->ops->close(b.dev);
	gp_graph_free(b.graph);
	return status == GP_OK ? 0 : 1;
}

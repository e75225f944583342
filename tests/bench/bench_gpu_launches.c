/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpu_launches [--cut H:T] [--precision fp32|tf32|bf16] MODEL HxWxC IMAGES: how many kernels, matrix products and
 * copies a server queues for forward and backward of a chunk of IMAGES pictures, for the update, and for the first forward
 * after it (which renews packed weights) beyond another one; and the bytes of every tensor once. Counts alone: nothing
 * is computed on the emulated device, and times are bench_gpu_step's. `blocks` is a kernel's smallest grid and its
 * largest: what is far below a card's multiprocessors leaves it idle. tests/bench/GPU.md has the tables.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/graph/device.h"
#include "kernels/device_registry.h"
#include "client/models/models.h"

#ifdef GP_CUDA_DEVICE
#include "kernels/cuda/runtime/rt.h"
#include "kernels/cuda/runtime/rt_tally.h"
#include "common/graph/graph_part.h"

enum { MOST_ROWS = 200, NAME = 40 };
enum phase { FORWARD, BACKWARD, UPDATE, RENEW, PHASES };

struct row {
	char name[NAME];
	long count[PHASES];
	uint64_t least, most;
};

struct counts {
	struct row row[MOST_ROWS];
	int rows;
	enum phase phase;
	int weight; /* of a piece of work; renewing is what the next forward does not do */
};

struct bench {
	const char *cut, *model;
	enum gp_precision precision;
	long long height, width, channels;
	int images;
	struct gp_device *dev;
	struct gp_graph *whole, *body;
	struct gp_plan *plan;
};

/* --- counting ----------------------------------------------------------------------------------------------------- */

/* "(normalize<T, V, true>)" is normalize. */
static void plain_name(char out[NAME], const char *what)
{
	const char *const from = what + (what[0] == '(');
	const size_t length = strcspn(from, "<)");
	snprintf(out, NAME, "%.*s", (int)(length < NAME - 1 ? length : NAME - 1), from);
}

static struct row *row_of(struct counts *c, const char *what)
{
	char name[NAME];
	plain_name(name, what);
	for (int i = 0; i < c->rows; i++)
		if (strcmp(c->row[i].name, name) == 0)
			return &c->row[i];
	if (c->rows == MOST_ROWS)
		return &c->row[MOST_ROWS - 1];
	struct row *const row = &c->row[c->rows++];
	memcpy(row->name, name, sizeof name);
	row->least = UINT64_MAX;
	return row;
}

static void count(void *arg, const char *what, uint64_t blocks)
{
	struct counts *const c = arg;
	struct row *const row = row_of(c, what);
	row->count[c->phase] += c->weight;
	row->least = blocks < row->least ? blocks : row->least;
	row->most = blocks > row->most ? blocks : row->most;
}

static enum gp_status run_forward(struct bench *b, struct counts *c, enum phase phase, int weight, struct gp_err *err)
{
	c->phase = phase;
	c->weight = weight;
	return b->plan->ops->forward(b->plan, 0, GP_TRAIN, 0, err);
}

/* The profile keeps the plan from making graphs, in which launches could not be seen. The first forward packs weights. */
static enum gp_status run_counted(struct bench *b, struct counts *c, struct gp_err *err)
{
	const struct gp_device_ops *const ops = b->plan->ops;
	const struct gp_plan_profile *profile;
	GP_TRY(ops->profile(b->plan, &profile, err));
	gp_rt_tally(count, c);
	GP_TRY(run_forward(b, c, FORWARD, 0, err));
	GP_TRY(run_forward(b, c, FORWARD, 1, err));
	c->phase = BACKWARD;
	GP_TRY(ops->backward(b->plan, 0, err));
	c->phase = UPDATE;
	GP_TRY(ops->optim_step(b->plan, 0.1f, err));
	GP_TRY(run_forward(b, c, RENEW, 1, err));
	return run_forward(b, c, RENEW, -1, err);
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

static long total_of(const struct row *row)
{
	return row->count[FORWARD] + row->count[BACKWARD] + row->count[UPDATE] + row->count[RENEW];
}

static int by_total(const void *a, const void *b)
{
	const long x = total_of(a), y = total_of(b);
	return x != y ? (x < y) - (x > y) : strcmp(((const struct row *)a)->name, ((const struct row *)b)->name);
}

static void print_rows(struct counts *c)
{
	long sum[PHASES] = {0};
	qsort(c->row, (size_t)c->rows, sizeof c->row[0], by_total);
	puts("| queued | forward | backward | update | renewing | blocks |\n|---|---|---|---|---|---|");
	for (int i = 0; i < c->rows; i++) {
		const struct row *const r = &c->row[i];
		for (int p = 0; p < PHASES; p++)
			sum[p] += r->count[p];
		printf("| %s | %ld | %ld | %ld | %ld |", r->name, r->count[FORWARD], r->count[BACKWARD],
		       r->count[UPDATE], r->count[RENEW]);
		if (r->most)
			printf(" %llu..%llu |\n", (unsigned long long)r->least, (unsigned long long)r->most);
		else
			puts(" |");
	}
	printf("| **all** | **%ld** | **%ld** | **%ld** | **%ld** | |\n", sum[FORWARD], sum[BACKWARD], sum[UPDATE],
	       sum[RENEW]);
}

static enum gp_status print_bytes(struct bench *b, struct gp_err *err)
{
	const struct gp_plan_profile *profile;
	uint64_t bytes[2] = {0, 0};
	GP_TRY(b->plan->ops->profile(b->plan, &profile, err));
	GP_TRY(b->plan->ops->forward(b->plan, 0, GP_TRAIN, 0, err));
	GP_TRY(b->plan->ops->backward(b->plan, 0, err));
	for (int i = 0; i < b->body->nodes; i++)
		for (int way = 0; way < 2; way++)
			bytes[way] += profile->node[i].bytes[way];
	printf("every tensor once: forward %.1f MB, backward %.1f MB\n", (double)bytes[0] / 1e6,
	       (double)bytes[1] / 1e6);
	return GP_OK;
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

static enum gp_status make_plan(struct bench *b, struct gp_err *err)
{
	struct gp_model_options options = {.input = {.ndim = 3, .dim = {b->height, b->width, b->channels}}};
	struct gp_cut cut;
	GP_TRY(gp_model_build(b->model, &options, &b->whole, err));
	GP_TRY(gp_cut_parse(b->whole, b->cut, &cut, err));
	GP_TRY(gp_graph_part(b->whole, cut.head, cut.tail, &b->body, err));
	GP_TRY(gp_device_open(gp_rt_is_emulated() ? "cuda-emulated" : "cuda", 1, &b->dev, err));
	const struct gp_plan_spec spec = {
		.graph = b->body,
		.batch = b->images,
		.slots = 1,
		.train = true,
		.grad_inputs = 1,
		.seed = 1,
		.optim = {.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 1e-4f},
		.precision = b->precision,
		.device_io = true,
	};
	return b->dev->ops->plan_new(b->dev, &spec, &b->plan, err);
}

static enum gp_status run(struct bench *b, struct gp_err *err)
{
	struct counts c = {.phase = FORWARD};
	GP_TRY(make_plan(b, err));
	GP_TRY(run_counted(b, &c, err));
	printf("%s %lldx%lldx%lld, cut %s, %d images, %s\n\n", b->model, b->height, b->width, b->channels, b->cut,
	       b->images, gp_precision_name(b->precision));
	print_rows(&c);
	return print_bytes(b, err);
}

static bool read_option(struct bench *b, const char *name, const char *value)
{
	if (strcmp(name, "--cut") == 0) {
		b->cut = value;
		return true;
	}
	for (int p = 0; strcmp(name, "--precision") == 0 && p < GP_PRECISIONS; p++)
		if (strcmp(gp_precision_name((enum gp_precision)p), value) == 0) {
			b->precision = (enum gp_precision)p;
			return true;
		}
	return false;
}

static bool read_arguments(struct bench *b, int argc, char **argv)
{
	int i = 1;
	for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2)
		if (!read_option(b, argv[i], argv[i + 1]))
			return false;
	if (argc - i != 3)
		return false;
	b->model = argv[i];
	b->images = atoi(argv[i + 2]);
	return sscanf(argv[i + 1], "%lldx%lldx%lld", &b->height, &b->width, &b->channels) == 3 && b->images >= 1;
}

int main(int argc, char **argv)
{
	struct gp_err err = {0};
	struct bench b = {.cut = "1:-1"};
	if (!read_arguments(&b, argc, argv)) {
		fputs("usage: bench_gpu_launches [--cut H:T] [--precision fp32|tf32|bf16] MODEL HxWxC IMAGES\n", stderr);
		return 2;
	}
	const enum gp_status status = run(&b, &err);
	if (status != GP_OK)
		gp_err_print(&err, "bench_gpu_launches");
	gp_rt_tally(NULL, NULL);
	if (b.plan)
		b.plan->ops->plan_free(b.plan);
	if (b.dev)
		b.dev->ops->close(b.dev);
	gp_graph_free(b.body);
	gp_graph_free(b.whole);
	return gp_status_exit(status);
}
#else
int main(void)
{
	puts("this build has no CUDA device: nothing to count");
	return 0;
}
#endif

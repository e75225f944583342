/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpu_step [--device D] [--precision fp32|tf32|bf16] [--cut H:T] [--host-io] MODEL HxWxC BATCH CHUNKS [STEPS]:
 * milliseconds of what a server computes in one training step: forward and backward of every chunk of a model's body,
 * gradient of its input included, and one update by SGD with momentum. What comes in and goes out stays in the device's
 * memory, as with codecs that run there; --host-io copies it from and to the host, as with codecs that do not.
 * tests/tools/torch_gpu_step.py does the same with PyTorch, tests/gpu.sh runs both by turns. HxWxC is of the picture.
 *
 * Calls are queued as the server queues those of a client that keeps up: a chunk's forward before the backward of the
 * one before it, the next call before the last has been waited for. What is timed ends with the update. An idle card takes
 * a while to raise its clocks: steps of the first second are not counted.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/graph/device.h"
#include "common/graph/graph_part.h"
#include "kernels/device_registry.h"
#include "common/base/mem.h"
#include "client/models/models.h"
#include "common/base/rng.h"
#include "common/base/worker.h"
#ifdef GP_CUDA_DEVICE
#include "kernels/cuda/plan/cuda_device.h"
#include "kernels/cuda/runtime/rt.h"
#endif

enum {
	MAX_STEPS = 10000,
	WARM_STEPS = 3,
	WARM_MS = 1000,
	SLOTS = 4 /* two forwards that are queued and two backwards */
};

struct settings {
	const char *device, *cut, *model;
	enum gp_precision precision;
	bool host_io;
	long long height, width, channels;
	int batch, chunks, steps;
};

struct bench {
	struct settings set;
	struct gp_device *dev;
	struct gp_graph *model, *body;
	struct gp_plan *plan;
	int under_way[GP_TASKS_BEGUN], count; /* slots of calls that have not been waited for, oldest first */
};

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* --- options ---------------------------------------------------------------------------------------------------- */

static bool read_precision(const char *text, enum gp_precision *out)
{
	for (int p = 0; p < GP_PRECISIONS; p++)
		if (strcmp(gp_precision_name((enum gp_precision)p), text) == 0) {
			*out = (enum gp_precision)p;
			return true;
		}
	return false;
}

/* How many arguments the flags take, or -1. */
static int read_flags(int argc, char **argv, struct settings *s)
{
	int i = 1;
	for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
		const char *const value = i + 1 < argc ? argv[i + 1] : NULL;
		if (strcmp(argv[i], "--host-io") == 0) {
			s->host_io = true;
			continue;
		}
		if (!value)
			return -1;
		if (strcmp(argv[i], "--device") == 0)
			s->device = value;
		else if (strcmp(argv[i], "--cut") == 0)
			s->cut = value;
		else if (strcmp(argv[i], "--precision") != 0 || !read_precision(value, &s->precision))
			return -1;
		i++;
	}
	return i - 1;
}

static bool read_settings(int argc, char **argv, struct settings *s)
{
	const int flags = read_flags(argc, argv, s);
	if (flags < 0 || argc - flags < 5 || argc - flags > 6)
		return false;
	argv += flags;
	s->model = argv[1];
	s->batch = atoi(argv[3]);
	s->chunks = atoi(argv[4]);
	s->steps = argc - flags > 5 ? atoi(argv[5]) : 20;
	return sscanf(argv[2], "%lldx%lldx%lld", &s->height, &s->width, &s->channels) == 3 && s->chunks >= 1 &&
	       s->batch >= s->chunks && s->batch % s->chunks == 0 && s->steps >= 1 && s->steps <= MAX_STEPS;
}

/* --- the plan --------------------------------------------------------------------------------------------------- */

static enum gp_status make_body(struct bench *b, struct gp_err *err)
{
	struct gp_model_options options = {.input = {.ndim = 3}};
	struct gp_cut cut;
	options.input.dim[0] = b->set.height;
	options.input.dim[1] = b->set.width;
	options.input.dim[2] = b->set.channels;
	GP_TRY(gp_model_build(b->set.model, &options, &b->model, err));
	GP_TRY(gp_cut_parse(b->model, b->set.cut, &cut, err));
	return gp_graph_part(b->model, cut.head, cut.tail, &b->body, err);
}

static enum gp_status make_plan(struct bench *b, struct gp_err *err)
{
	GP_TRY(make_body(b, err));
	GP_TRY(gp_device_open(b->set.device, 1, &b->dev, err));
	const struct gp_plan_spec spec = {
		.graph = b->body,
		.batch = b->set.batch / b->set.chunks,
		.slots = SLOTS,
		.train = true,
		.grad_inputs = 1,
		.seed = 1,
		.optim = {.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 1e-4f},
		.precision = b->set.precision,
		.device_io = !b->set.host_io,
	};
	return b->dev->ops->plan_new(b->dev, &spec, &b->plan, err);
}

static void draw(float *x, uint64_t n, float scale, uint64_t stream)
{
	for (uint64_t i = 0; i < n; i++)
		x[i] = scale * gp_rng_normal(1, stream, i);
}

#ifdef GP_CUDA_DEVICE
/* Device memory has no other way in than through the runtime. */
static enum gp_status copy_to_device(const struct bench *b, float *to, const float *from, uint64_t n,
				     struct gp_err *err)
{
	struct gp_rt_stream *stream;
	const char *const number = strchr(b->dev->name, ':');
	GP_TRY(gp_rt_stream_new(number ? atoi(number + 1) : 0, false, &stream, err));
	gp_rt_copy_up(stream, to, from, n * sizeof *from);
	const enum gp_status status = gp_rt_stream_wait(stream, err);
	gp_rt_stream_free(stream);
	return status;
}
#else
static enum gp_status copy_to_device(const struct bench *b, float *to, const float *from, uint64_t n,
				     struct gp_err *err)
{
	(void)b;
	(void)err;
	memcpy(to, from, n * sizeof *from);
	return GP_OK;
}
#endif

static enum gp_status fill_slot(struct bench *b, int slot, enum gp_plan_buf which, const struct gp_shape *sample,
				float scale, struct gp_err *err)
{
	float *const to = b->plan->ops->buffer(b->plan, slot, which, 0);
	const uint64_t n = gp_shape_elements(sample) * (uint64_t)b->plan->spec.batch;
	void *room = NULL;
	if (b->set.host_io || !b->dev->ops->memory) {
		draw(to, n, scale, (uint64_t)which);
		return GP_OK;
	}
	GP_TRY(gp_alloc_array(&room, n, sizeof(float), err));
	draw(room, n, scale, (uint64_t)which);
	const enum gp_status status = copy_to_device(b, to, room, n, err);
	gp_free(room);
	return status;
}

static enum gp_status fill(struct bench *b, enum gp_plan_buf which, const struct gp_shape *sample, float scale,
			   struct gp_err *err)
{
	for (int s = 0; s < SLOTS; s++)
		GP_TRY(fill_slot(b, s, which, sample, scale, err));
	return GP_OK;
}

/* --- the run ---------------------------------------------------------------------------------------------------- */

static enum gp_status wait_for_oldest(struct bench *b, struct gp_err *err)
{
	const int slot = b->under_way[0];
	memmove(b->under_way, b->under_way + 1, (size_t)--b->count * sizeof b->under_way[0]);
	return b->plan->ops->wait ? b->plan->ops->wait(b->plan, slot, err) : GP_OK;
}

static enum gp_status queue(struct bench *b, int chunk, bool backward, struct gp_err *err)
{
	const struct gp_device_ops *const ops = b->plan->ops;
	const int slot = chunk % SLOTS;
	while (b->count == GP_TASKS_BEGUN)
		GP_TRY(wait_for_oldest(b, err));
	b->under_way[b->count++] = slot;
	return backward ? ops->queue_backward(b->plan, slot, err) : ops->queue_forward(b->plan, slot, GP_TRAIN, 0, err);
}

static enum gp_status run_step(struct bench *b, struct gp_err *err)
{
	for (int c = 0; c <= b->set.chunks; c++) {
		if (c < b->set.chunks)
			GP_TRY(queue(b, c, false, err));
		if (c > 0)
			GP_TRY(queue(b, c - 1, true, err));
	}
	GP_TRY(b->plan->ops->queue_optim_step(b->plan, 1e-4f, err));
	while (b->count > 0)
		GP_TRY(wait_for_oldest(b, err));
	return b->plan->ops->wait ? b->plan->ops->wait(b->plan, GP_SLOT_UPDATE, err) : GP_OK;
}

static enum gp_status warm_up(struct bench *b, struct gp_err *err)
{
	const double begin = now_ms();
	for (int s = 0; s < WARM_STEPS || now_ms() - begin < WARM_MS; s++)
		GP_TRY(run_step(b, err));
	return GP_OK;
}

static void print_result(const struct bench *b, double *ms, int steps)
{
	char title[GP_DEVICE_TITLE];
	struct gp_plan_memory m;
	qsort(ms, (size_t)steps, sizeof ms[0], by_value);
	b->plan->ops->plan_memory(b->plan, &m);
	printf("device: %s\n", gp_device_title(b->dev, title));
	printf("ms per step: median %.3f best %.3f; images per second %.0f; plan %.1f MB\n", ms[steps / 2], ms[0],
	       b->set.batch / ms[steps / 2] * 1e3, (double)m.total / 1e6);
#ifdef GP_CUDA_DEVICE
	if (b->dev->ops == gp_cuda_ops() && gp_cuda_without_graphs(b->plan))
		printf("without graphs: %s\n", gp_cuda_without_graphs(b->plan));
#endif
}

static enum gp_status run_bench(struct bench *b, struct gp_err *err)
{
	double ms[MAX_STEPS];
	GP_TRY(make_plan(b, err));
	GP_TRY(fill(b, GP_BUF_INPUT, gp_graph_input_shape(b->body), 1, err));
	GP_TRY(fill(b, GP_BUF_GRAD_OUTPUT, gp_graph_output_shape(b->body), 1e-3f, err));
	GP_TRY(warm_up(b, err));
	for (int s = 0; s < b->set.steps; s++) {
		const double begin = now_ms();
		GP_TRY(run_step(b, err));
		ms[s] = now_ms() - begin;
	}
	print_result(b, ms, b->set.steps);
	return GP_OK;
}

int main(int argc, char **argv)
{
	struct gp_err err = {0};
	struct bench b = {.set = {.device = "cuda", .cut = "1:-1"}};
	if (!read_settings(argc, argv, &b.set)) {
		fprintf(stderr,
			"usage: bench_gpu_step [--device D] [--precision fp32|tf32|bf16] [--cut H:T] [--host-io] MODEL "
			"HxWxC BATCH CHUNKS [STEPS]\n(CHUNKS divides BATCH; STEPS at most %d)\n",
			MAX_STEPS);
		return 2;
	}
	const enum gp_status status = run_bench(&b, &err);
	if (status != GP_OK)
		gp_err_print(&err, "bench_gpu_step");
	if (b.plan)
		b.plan->ops->plan_free(b.plan);
	if (b.dev)
		b.dev->ops->close(b.dev);
	gp_graph_free(b.body);
	gp_graph_free(b.model);
	return gp_status_exit(status);
}

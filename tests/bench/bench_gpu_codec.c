/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpu_codec [--device N] [--shape NxHxWxC] [--repeats N] [SPEC...]: how long codecs on a GPU take for a tensor
 * that lies there, and what of that is the bus: payloads end in, and come from, the host's memory. The rest is put
 * beside a copy from device memory to device memory: bytes that the format makes a codec touch (the tensor as often as
 * it has to be read, payload, the tensor written) per second, as a share of the bytes per second of the copy, which
 * reads and writes as many as the tensor has. Copies between host and device are timed by events around each.
 *
 * Medians. A codec of which a stage is not on the device is named with "host" and has no share. The last column says
 * what is wanted of the share and whether it is there; only on a real card, and the exit status does not depend on it.
 * What the payloads are is the subject of tests/unit/test_cuda_codec*.c. Figures: GPU.md
 */
#include <stdio.h>

#ifdef GP_CUDA_DEVICE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/rng.h"
#include "kernels/cuda/codec/cuda_codec.h"

enum { MAX_REPEATS = 1000, MAX_COPIES = 256, DRAWN = 1 << 20 };
#define WARM_NS UINT64_C(1000000000)

/*
 * Reads: how often the encoder's kernels go over the tensor, by what they are (CODECS.md, "On a GPU"; GPU.md counts more of
 * them). Level quantizers read a tile once, for the norm and the codes; sortquant twice, as a sample says what to keep
 * aside, and four times from 41 ranks on; topk twice, and then the sectors of 32 bytes with a kept element; block once where
 * blocks are a power of two and nothing is clipped, else twice. hadamard writes a tensor of its own, which is read again.
 * Wanted: share of the copy's speed, 0 = none is promised: kmeans fits on the host between two passes, which is where block's
 * bits are chosen, too, poweriter and block's clip=mse compute, hadamard's tensor is no part of what a decoder is measured
 * by, and ef reads and writes what was lost (counted here with its writes, and with the decoding of what it has sent).
 */
struct subject {
	const char *spec;
	double reads, wanted;
};

static const struct subject subjects[] = {
	{"raw", 0, 0},
	{"fp16", 1, 0.6},
	{"bf16", 1, 0.6},
	{"fp8:format=e5m2", 1, 0.6},
	{"fp8:format=e4m3", 1, 0.6},
	{"s2fp8", 2, 0.6},
	{"uniform:bits=1", 2, 0.6},
	{"uniform:bits=2", 2, 0.6},
	{"uniform:bits=4", 2, 0.6},
	{"uniform:bits=6", 2, 0.6},
	{"uniform:bits=8", 2, 0.6},
	{"uniform:bits=12", 2, 0.6},
	{"smaq:main=6,outlier=8", 2, 0.6},
	{"sortquant:bits=6,split=2", 2, 0.4},
	{"sortquant:bits=9,split=3", 2, 0.4},
	{"sortquant:bits=8,split=5", 4, 0.4},
	{"sortquant:bits=8,split=8", 4, 0.4},
	{"qsgd:bits=4", 1, 0.6},
	{"qsgdinf:bits=4", 1, 0.6},
	{"nuqsgd:bits=4", 1, 0.6},
	{"terngrad", 1, 0.6},
	{"alq:bits=4", 1, 0.6},
	{"amq:bits=4", 1, 0.6},
	{"block", 1, 0.6},
	{"block:bits=3,zero=asym", 1, 0.6},
	{"block:bits=8,size=1024", 1, 0.6},
	{"block:size=100,round=stochastic", 2, 0.6},
	{"block:bits=3,clip=mse", 2, 0},
	{"block:budget=4", 2, 0},
	{"block:zero=asym,dim=channel", 2, 0.6},
	{"block:bits=3,clip=mse,dim=channel", 3, 0},
	{"mxfp8:format=e4m3", 1, 0.6},
	{"mxfp6:format=e3m2", 1, 0.6},
	{"mxfp4", 1, 0.6},
	{"nvfp4", 2, 0.6},
	{"hadamard+block", 3, 0},
	{"topk:ratio=0.01", 2.1, 0.6},
	{"topk:ratio=0.1", 2.6, 0.6},
	{"topk:ratio=0.1+uniform:bits=8", 2.8, 0},
	{"downsample", 1, 0.6},
	{"kmeans:bits=4", 3, 0},
	{"poweriter:rank=8,iters=3", 2, 0},
	{"ef+topk:ratio=0.1", 10.6, 0},
};

struct settings {
	int device, repeats;
	struct gp_shape shape;
};

struct bench {
	struct settings set;
	struct gp_codec_device device;
	struct gp_rt_stream *stream;
	uint64_t n;
	float *x, *y; /* device memory */
	double copy;  /* bytes per second that a copy on the device touches */
};

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof v[0], by_value);
	return v[n / 2];
}

/* --- copies between host and device, timed: the linker puts these in the place of the runtime's (CMakeLists.txt) -- */

static struct {
	struct gp_rt_event *from[MAX_COPIES], *to[MAX_COPIES];
	int count, made;
	bool on;
} copies;

void __real_gp_rt_copy_up(struct gp_rt_stream *s, void *device, const void *host, size_t bytes);
void __real_gp_rt_copy_down(struct gp_rt_stream *s, void *host, const void *device, size_t bytes);
void __wrap_gp_rt_copy_up(struct gp_rt_stream *s, void *device, const void *host, size_t bytes);
void __wrap_gp_rt_copy_down(struct gp_rt_stream *s, void *host, const void *device, size_t bytes);

static bool copy_begins(struct gp_rt_stream *s)
{
	if (!copies.on || copies.count == copies.made)
		return false;
	gp_rt_event_record(copies.from[copies.count], s);
	return true;
}

void __wrap_gp_rt_copy_up(struct gp_rt_stream *s, void *device, const void *host, size_t bytes)
{
	const bool timed = copy_begins(s);
	__real_gp_rt_copy_up(s, device, host, bytes);
	if (timed)
		gp_rt_event_record(copies.to[copies.count++], s);
}

void __wrap_gp_rt_copy_down(struct gp_rt_stream *s, void *host, const void *device, size_t bytes)
{
	const bool timed = copy_begins(s);
	__real_gp_rt_copy_down(s, host, device, bytes);
	if (timed)
		gp_rt_event_record(copies.to[copies.count++], s);
}

static enum gp_status make_events(int device, struct gp_err *err)
{
	for (; copies.made < MAX_COPIES; copies.made++) {
		GP_TRY(gp_rt_event_new_timed(device, &copies.from[copies.made], err));
		GP_TRY(gp_rt_event_new_timed(device, &copies.to[copies.made], err));
	}
	return GP_OK;
}

/* Time that the copies since the last call took; all of them have been waited for. */
static enum gp_status copies_ns(uint64_t *sum, struct gp_err *err)
{
	*sum = 0;
	for (int i = 0; i < copies.count; i++) {
		uint64_t ns = 0;
		GP_TRY(gp_rt_event_ns(copies.from[i], copies.to[i], &ns, err));
		*sum += ns;
	}
	copies.count = 0;
	return GP_OK;
}

/* --- one codec -------------------------------------------------------------------------------------------------- */

/* Medians, in seconds: one way as a whole, and without the bus. */
struct way {
	double whole, inside;
};

struct result {
	struct way encode, decode;
	size_t payload;
};

struct samples {
	double whole[MAX_REPEATS], inside[MAX_REPEATS];
};

static enum gp_status note(struct samples *s, int i, uint64_t begin, struct gp_err *err)
{
	const uint64_t whole = now_ns() - begin;
	uint64_t bus;
	GP_TRY(copies_ns(&bus, err));
	s->whole[i] = (double)whole * 1e-9;
	s->inside[i] = whole > bus ? (double)(whole - bus) * 1e-9 : 1e-9;
	return GP_OK;
}

static struct way medians(struct samples *s, int n)
{
	return (struct way){median(s->whole, n), median(s->inside, n)};
}

/* The first pass each way warms up. */
static enum gp_status time_passes(struct bench *b, struct gp_codec *c, uint8_t *out, struct result *r,
				  struct gp_err *err)
{
	static struct samples enc, dec;
	for (int i = -1; i < b->set.repeats; i++) {
		uint64_t begin = now_ns();
		GP_TRY(gp_codec_encode(c, b->x, (uint64_t)(i + 1), out, gp_codec_bound(c), &r->payload, err));
		GP_TRY(note(&enc, i < 0 ? 0 : i, begin, err));
		begin = now_ns();
		GP_TRY(gp_codec_decode(c, (struct gp_span){out, r->payload}, b->y, err));
		GP_TRY(note(&dec, i < 0 ? 0 : i, begin, err));
	}
	r->encode = medians(&enc, b->set.repeats);
	r->decode = medians(&dec, b->set.repeats);
	return GP_OK;
}

static enum gp_status time_codec(struct bench *b, const struct gp_codec_spec *spec, struct result *r,
				 struct gp_err *err)
{
	const struct gp_codec_options options = {.seed = 1, .device = &b->device};
	struct gp_codec *c;
	uint8_t *out = NULL;
	GP_TRY(gp_codec_open(spec, &b->set.shape, &options, &c, err));
	enum gp_status status = gp_codec_alloc_payload(&b->device, gp_codec_bound(c), &out, err);
	copies.on = true;
	if (status == GP_OK)
		status = time_passes(b, c, out, r, err);
	copies.on = false;
	gp_codec_free_payload(&b->device, out);
	gp_codec_free(c);
	return status;
}

static bool on_device(const struct bench *b, const struct gp_codec_spec *spec)
{
	for (int i = 0; i < spec->stages; i++)
		if (gp_codec_ops_by_id(spec->stage[i].id)->kind != GP_CODEC_BYTES &&
		    !b->device.ops->codec(spec->stage[i].id))
			return false;
	return true;
}

static void print_result(const struct bench *b, const struct subject *s, const struct result *r, bool device)
{
	const double n = (double)b->n, payload = (double)r->payload;
	const double encode = (4 * n * s->reads + payload) / r->encode.inside / b->copy;
	const double decode = (4 * n + payload) / r->decode.inside / b->copy;
	printf("%-35s %6.2f %9.1f %9.1f %9.1f %9.1f", s->spec, 8 * payload / n, r->encode.whole * 1e6,
	       r->encode.inside * 1e6, r->decode.whole * 1e6, r->decode.inside * 1e6);
	if (!device)
		printf("   host   host\n");
	else if (s->reads == 0)
		printf("      -      -\n");
	else if (s->wanted == 0 || gp_rt_is_emulated())
		printf(" %5.0f%% %5.0f%%\n", 100 * encode, 100 * decode);
	else
		printf(" %5.0f%% %5.0f%%  %2.0f%% %s\n", 100 * encode, 100 * decode, 100 * s->wanted,
		       encode >= s->wanted && decode >= s->wanted ? "reached" : "NOT REACHED");
	fflush(stdout);
}

static enum gp_status run_codec(struct bench *b, const struct subject *s, struct gp_err *err)
{
	struct gp_codec_spec spec;
	struct result r = {0};
	GP_TRY(gp_codec_spec_parse(s->spec, &spec, err));
	GP_TRY(time_codec(b, &spec, &r, err));
	print_result(b, s, &r, on_device(b, &spec));
	return GP_OK;
}

/* --- the device ------------------------------------------------------------------------------------------------- */

/* Channels with their own mean and spread, as after a batch norm; drawn once, then repeated. */
static enum gp_status fill(struct bench *b, struct gp_err *err)
{
	const uint64_t drawn = b->n < DRAWN ? b->n : DRAWN;
	void *room;
	GP_TRY(gp_alloc_array(&room, drawn, sizeof(float), err));
	for (uint64_t i = 0; i < drawn; i++)
		((float *)room)[i] =
			gp_rng_normal(1, 1, i) * (0.5f + (float)(i % 32) / 16) + (float)(i % 7) / 4 - 0.75f;
	for (uint64_t i = 0; i < b->n; i += drawn)
		gp_rt_copy_up(b->stream, b->x + i, room, (b->n - i < drawn ? b->n - i : drawn) * sizeof(float));
	const enum gp_status status = gp_rt_stream_wait(b->stream, err);
	gp_free(room);
	return status;
}

/* Timed on the device: the wait is no part of a copy. */
static enum gp_status copy_once(struct bench *b, double *seconds, struct gp_err *err)
{
	struct gp_rt_event *const from = copies.from[0], *const to = copies.to[0];
	uint64_t ns = 0;
	gp_rt_event_record(from, b->stream);
	gp_rt_copy(b->stream, b->y, b->x, b->n * sizeof(float));
	gp_rt_event_record(to, b->stream);
	GP_TRY(gp_rt_stream_wait(b->stream, err));
	GP_TRY(gp_rt_event_ns(from, to, &ns, err));
	*seconds = (double)(ns ? ns : 1) * 1e-9;
	return GP_OK;
}

/* An idle card takes a while to raise its clocks. */
static enum gp_status time_copy(struct bench *b, struct gp_err *err)
{
	double seconds[MAX_REPEATS];
	const uint64_t begin = now_ns();
	do
		GP_TRY(copy_once(b, seconds, err));
	while (now_ns() - begin < WARM_NS);
	for (int i = 0; i < b->set.repeats; i++)
		GP_TRY(copy_once(b, &seconds[i], err));
	b->copy = 8 * (double)b->n / median(seconds, b->set.repeats);
	return GP_OK;
}

static enum gp_status prepare(struct bench *b, struct gp_err *err)
{
	struct gp_rt_info info;
	void *x, *y;
	GP_TRY(gp_rt_open(b->set.device, &info, err));
	GP_TRY(gp_rt_stream_new(b->set.device, false, &b->stream, err));
	GP_TRY(make_events(b->set.device, err));
	gp_cuda_codec_device(b->set.device, &b->device);
	b->n = gp_shape_elements(&b->set.shape);
	GP_TRY(gp_rt_alloc(b->set.device, b->n * sizeof(float), &x, err));
	b->x = x;
	GP_TRY(gp_rt_alloc(b->set.device, b->n * sizeof(float), &y, err));
	b->y = y;
	GP_TRY(fill(b, err));
	GP_TRY(time_copy(b, err));
	printf("device: %s\n", info.name);
	printf("%llu elements; a copy on the device touches %.1f GB/s\n", (unsigned long long)b->n, b->copy * 1e-9);
	printf("%-35s %6s %19s %19s %13s\n", "", "", "encode, us", "decode, us", "share of copy");
	printf("%-35s %6s %9s %9s %9s %9s %6s %6s\n", "codec", "bits", "whole", "device", "whole", "device", "enc",
	       "dec");
	return GP_OK;
}

static void tear_down(struct bench *b)
{
	gp_rt_free(b->set.device, b->x);
	gp_rt_free(b->set.device, b->y);
	for (int i = 0; i < copies.made; i++) {
		gp_rt_event_free(copies.from[i]);
		gp_rt_event_free(copies.to[i]);
	}
	gp_rt_stream_free(b->stream);
}

static enum gp_status run_all(struct bench *b, char **specs, int count, struct gp_err *err)
{
	GP_TRY(prepare(b, err));
	if (count == 0)
		for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++)
			GP_TRY(run_codec(b, &subjects[i], err));
	for (int i = 0; i < count; i++) {
		struct subject s = {.spec = specs[i], .reads = 2};
		for (size_t k = 0; k < sizeof subjects / sizeof subjects[0]; k++)
			if (strcmp(subjects[k].spec, specs[i]) == 0)
				s = subjects[k];
		GP_TRY(run_codec(b, &s, err));
	}
	return GP_OK;
}

static bool read_shape(const char *text, struct gp_shape *out)
{
	long long d[4];
	char end;
	if (sscanf(text, "%lldx%lldx%lldx%lld%c", &d[0], &d[1], &d[2], &d[3], &end) != 4)
		return false;
	out->ndim = 4;
	for (int i = 0; i < 4; i++) {
		if (d[i] < 1 || d[i] > 1 << 20)
			return false;
		out->dim[i] = d[i];
	}
	return gp_shape_elements(out) <= GP_CODEC_MAX_ELEMENTS;
}

/* Where the specs begin, or 0. */
static int read_flags(int argc, char **argv, struct settings *s)
{
	int i = 1;
	for (; i < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
		if (i + 1 >= argc)
			return 0;
		if (strcmp(argv[i], "--device") == 0)
			s->device = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--repeats") == 0)
			s->repeats = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--shape") != 0 || !read_shape(argv[i + 1], &s->shape))
			return 0;
	}
	return s->repeats < 1 || s->repeats > MAX_REPEATS ? 0 : i;
}

int main(int argc, char **argv)
{
	struct gp_err err = {0};
	struct bench b = {.set = {.repeats = 21, .shape = {.ndim = 4, .dim = {256, 112, 112, 32}}}};
	const int first = read_flags(argc, argv, &b.set);
	if (!first) {
		fputs("usage: bench_gpu_codec [--device N] [--shape NxHxWxC] [--repeats N] [SPEC...]\n", stderr);
		return 2;
	}
	const enum gp_status status = run_all(&b, argv + first, argc - first, &err);
	if (status != GP_OK)
		gp_err_print(&err, "bench_gpu_codec");
	tear_down(&b);
	return gp_status_exit(status);
}
#else
int main(void)
{
	fputs("bench_gpu_codec: this build has no CUDA device\n", stderr);
	return 5;
}
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed of every codec on one core: median G elements/s per direction over a
 * (8,32,112,112) activation, as such and as a share of memcpy of the same
 * tensor, which is timed before each codec because a machine's speed drifts.
 * Usage: bench_codec [--json | --undo] [SPEC...]; without SPEC every codec's
 * examples (common/codec/codec.h) and some chains; GP_SIMD chooses the loops.
 * --undo: encoding without and with gp_codec_undo's preparations, by turns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/codec/codec.h"
#include "common/base/rng.h"
#include "kernels/loops/codec_loops.h"
#include "tests/codec_specs.h"

enum { REPEATS = 31 };

/* What is timed, behind the examples of the codecs, when no spec is given. */
static const char *const chains[] = {
	"fp16+zstd",
	"uniform:bits=8+zstd",
	"uniform:bits=6+rans",
	"topk:ratio=0.1+uniform:bits=8",
	"poweriter:rank=16,iters=3+sortquant:bits=6,split=2",
	"downsample:factor=2+uniform:bits=8",
	"hadamard+block:bits=3",
	"hadamard+block:budget=4",
	"hadamard+uniform:bits=8",
};

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static double median_rate(uint64_t ns[REPEATS], uint64_t n)
{
	qsort(ns, REPEATS, sizeof ns[0], ascending);
	return (double)n / (double)ns[REPEATS / 2];
}

static double time_memcpy(const float *x, float *y, uint64_t n)
{
	uint64_t ns[REPEATS];
	for (int i = 0; i < REPEATS; i++) {
		uint64_t begin = now_ns();
		memcpy(y, x, n * sizeof *x);
		__asm__ volatile("" ::"r"(y) : "memory");
		ns[i] = now_ns() - begin;
	}
	return median_rate(ns, n);
}

/* What was measured of a codec. */
struct rates {
	double copy, encode, decode, bits;
};

static void print_rates(const char *spec, const struct rates *r, bool json)
{
	if (json)
		printf("{\"codec\":\"%s\",\"encode_gelem_s\":%.3f,\"decode_gelem_s\":%.3f,\"memcpy_gelem_s\":%.3f,"
		       "\"bits_per_element\":%.3f}\n",
		       spec, r->encode, r->decode, r->copy, r->bits);
	else
		printf("%-44s %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f\n", spec, r->encode, r->decode, r->encode / r->copy,
		       r->decode / r->copy, r->copy, r->bits);
	fflush(stdout);
}

/* REPEATS times there and back. `out` has room for the codec's bound. */
static enum gp_status time_passes(struct gp_codec *c, const float *x, uint64_t n, uint8_t *out, float *y,
				  struct rates *r, struct gp_err *err)
{
	uint64_t enc[REPEATS], dec[REPEATS];
	size_t len = 0;
	for (int i = 0; i < REPEATS; i++) {
		uint64_t begin = now_ns();
		GP_TRY(gp_codec_encode(c, x, (uint64_t)i, out, gp_codec_bound(c), &len, err));
		uint64_t middle = now_ns();
		GP_TRY(gp_codec_decode(c, (struct gp_span){out, len}, y, err));
		enc[i] = middle - begin;
		dec[i] = now_ns() - middle;
	}
	r->encode = median_rate(enc, n);
	r->decode = median_rate(dec, n);
	r->bits = 8.0 * (double)len / (double)n;
	return GP_OK;
}

static enum gp_status time_codec(const char *text, const struct gp_shape *shape, const float *x, float *y, bool json,
				 struct gp_err *err)
{
	struct gp_codec_spec spec;
	struct gp_codec *c;
	const uint64_t n = gp_shape_elements(shape);
	struct rates r = {.copy = time_memcpy(x, y, n)};
	GP_TRY(gp_codec_spec_parse(text, &spec, err));
	GP_TRY(gp_codec_new(&spec, shape, 1, &c, err));
	uint8_t *out = gp_alloc_aligned(gp_codec_bound(c));
	enum gp_status status = out ? time_passes(c, x, n, out, y, &r, err)
				    : gp_err_set(err, GP_NOMEM, 0, __FILE__, __LINE__, "out of memory");
	if (status == GP_OK)
		print_rates(text, &r, json);
	gp_free_aligned(out);
	gp_codec_free(c);
	return status;
}

/* Every pass is a step's only one: as much is kept as ever can be. */
static enum gp_status encode_by_turns(struct gp_codec *const c[2], const float *x, uint8_t *out,
				      uint64_t ns[2][REPEATS], struct gp_err *err)
{
	static const uint32_t sample[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	size_t len;
	for (uint64_t i = 0; i < 2 * REPEATS; i++) {
		const struct gp_codec_pass pass = {.draw = i / 2, .step = i / 2, .sample = sample};
		const uint64_t begin = now_ns();
		GP_TRY(gp_codec_encode_pass(c[i % 2], &pass, x, out, gp_codec_bound(c[0]), &len, err));
		ns[i % 2][i / 2] = now_ns() - begin;
	}
	return GP_OK;
}

static enum gp_status time_undo(const char *text, const struct gp_shape *shape, const float *x, struct gp_err *err)
{
	struct gp_codec_spec spec;
	struct gp_codec_options options = {.seed = 1, .role = GP_CODEC_ENCODES};
	struct gp_codec *c[2] = {0};
	uint64_t ns[2][REPEATS], n = gp_shape_elements(shape);
	uint8_t *out = NULL;
	GP_TRY(gp_codec_spec_parse(text, &spec, err));
	enum gp_status status = gp_codec_open(&spec, shape, &options, &c[0], err);
	options.undo = true;
	if (status == GP_OK)
		status = gp_codec_open(&spec, shape, &options, &c[1], err);
	if (status == GP_OK && !(out = gp_alloc_aligned(gp_codec_bound(c[0]))))
		status = gp_err_set(err, GP_NOMEM, 0, __FILE__, __LINE__, "out of memory");
	if (status == GP_OK)
		status = encode_by_turns(c, x, out, ns, err);
	if (status == GP_OK) {
		const double without = median_rate(ns[0], n), with = median_rate(ns[1], n);
		printf("%-40s %8.3f %8.3f %+7.1f %%\n", spec.text, without, with, 100 * (without / with - 1));
	}
	gp_free_aligned(out);
	gp_codec_free(c[0]);
	gp_codec_free(c[1]);
	return status;
}

static void list_defaults(struct codec_specs *specs, const struct gp_shape *shape)
{
	codec_specs_add_examples(specs, shape);
	for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++)
		codec_specs_add(specs, chains[i]);
}

int main(int argc, char **argv)
{
	const struct gp_shape shape = {.ndim = 4, .dim = {8, 112, 112, 32}};
	const uint64_t n = gp_shape_elements(&shape);
	const bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
	const bool undo = argc > 1 && strcmp(argv[1], "--undo") == 0;
	const int flags = json || undo;
	struct gp_err err = {0};
	float *x = gp_alloc_aligned(n * sizeof *x), *y = gp_alloc_aligned(n * sizeof *y);
	if (!x || !y)
		return EXIT_FAILURE;
	/* Channels with their own mean and spread, as after a batch norm. */
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(1, 1, i) * (0.5f + (float)(i % 32) / 16) + (float)(i % 7) / 4 - 0.75f;
	memset(y, 0, n * sizeof *y);
	if (!json) {
		printf("loops: %s, %llu elements, %d repeats\n", gp_codec_loops_choose()->name, (unsigned long long)n,
		       REPEATS);
		if (undo)
			printf("%-40s %8s %8s %9s\n", "G elements/s, medians", "encode", "undo", "time");
		else
			printf("%-44s %7s %7s %7s %7s %7s %7s\n", "G elements/s, medians", "encode", "decode", "/copy",
			       "/copy", "copy", "bits");
	}
	struct codec_specs specs = {0};
	for (int i = 1 + flags; i < argc; i++)
		codec_specs_add(&specs, argv[i]);
	if (specs.count == 0)
		list_defaults(&specs, &shape);
	int status = EXIT_SUCCESS;
	for (int i = 0; i < specs.count && status == EXIT_SUCCESS; i++)
		if ((undo ? time_undo(specs.text[i], &shape, x, &err)
			  : time_codec(specs.text[i], &shape, x, y, json, &err)) != GP_OK) {
			gp_err_print(&err, "bench_codec");
			status = EXIT_FAILURE;
		}
	gp_free_aligned(x);
	gp_free_aligned(y);
	return status;
}

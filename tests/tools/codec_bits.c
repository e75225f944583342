/* SPDX-License-Identifier: Apache-2.0
 *
 * What every codec makes of some tensors, as hashes: for each example of each codec (tests/codec_specs.h), for a few shapes
 * and kinds of numbers and two steps of two chunks, a line with the hashes of the payload, of what is decoded from it, and
 * of what both ends remember then. Two machines, or instruction sets, whose lines are equal make the same bits.
 * tests/arm64/mixed_ends.sh compares ARM64's with those of this machine.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <xxhash.h>

#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "tests/codec_specs.h"

enum { STEPS = 2, CHUNKS = 2, KINDS = 5, CHANNELS_KIND = 4, CHANNELS_SHAPE = 4, MOST = 40000 };

static const struct gp_shape shapes[] = {
	{.ndim = 4, .dim = {4, 9, 7, 24}}, {.ndim = 3, .dim = {3, 32, 48}},     {.ndim = 2, .dim = {16, 100}},
	{.ndim = 1, .dim = {4001}},        {.ndim = 4, .dim = {1, 24, 16, 32}},
};

/* Kinds: normal, as behind a ReLU, over many magnitudes (subnormal ones, too), with many zeros and equal values, and
 * smooth along a row with a scale for each four channels. */
static void fill(float *x, uint64_t n, int kind, uint64_t draw)
{
	for (uint64_t i = 0; i < n; i++) {
		const float v = gp_rng_normal(11, draw, i);
		x[i] = kind == 0   ? v
		       : kind == 1 ? fmaxf(v, 0)
		       : kind == 2 ? ldexpf(v, (int)(i % 180) - 140)
		       : kind == 3 ? rintf(v)
				   : ldexpf((float)(i / 32 % 16) + v, -(int)(i % 32 / 4));
	}
}

static void print_pass(const char *text, int shape, int kind, struct gp_codec *const end[2], uint64_t draw, uint64_t n)
{
	static float x[MOST], y[MOST];
	struct gp_err err = {0};
	const size_t cap = gp_codec_bound(end[0]);
	const struct gp_codec_pass pass = {.draw = draw, .step = draw / CHUNKS, .chunk = (uint32_t)(draw % CHUNKS)};
	uint8_t *payload = malloc(cap ? cap : 1);
	size_t len = 0;
	gp_require(payload != NULL);
	fill(x, n, kind, draw);
	printf("%s shape %d kind %d pass %" PRIu64 ":", text, shape, kind, draw);
	if (gp_codec_encode_pass(end[0], &pass, x, payload, cap, &len, &err) != GP_OK)
		printf(" %s\n", err.text);
	else if (gp_codec_decode_pass(end[1], &pass, (struct gp_span){payload, len}, y, &err) != GP_OK)
		printf(" decoding: %s\n", err.text);
	else
		printf(" %zu bytes %016" PRIx64 " decoded %016" PRIx64 " remembered %016" PRIx64 " %016" PRIx64 "\n",
		       len, (uint64_t)XXH3_64bits(payload, len), (uint64_t)XXH3_64bits(y, n * sizeof *y),
		       gp_codec_state_hash(end[0]), gp_codec_state_hash(end[1]));
	free(payload);
}

static void print_codec(const char *text, int shape, int kind)
{
	struct gp_codec_spec spec;
	struct gp_codec *end[2] = {NULL, NULL};
	struct gp_err err = {0};
	gp_require(gp_codec_spec_parse(text, &spec, &err) == GP_OK);
	for (int i = 0; i < 2; i++) {
		const struct gp_codec_options options = {
			.seed = 7, .role = i ? GP_CODEC_DECODES : GP_CODEC_ENCODES, .chunks = CHUNKS};
		if (gp_codec_open(&spec, &shapes[shape], &options, &end[i], &err) != GP_OK) {
			printf("%s shape %d: %s\n", text, shape, err.text);
			break;
		}
	}
	for (uint64_t draw = 0; end[1] && draw < STEPS * CHUNKS; draw++)
		print_pass(text, shape, kind, end, draw, gp_shape_elements(&shapes[shape]));
	gp_codec_free(end[0]);
	gp_codec_free(end[1]);
}

int main(void)
{
	for (int shape = 0; shape < (int)(sizeof shapes / sizeof shapes[0]); shape++) {
		struct codec_specs list = {.count = 0};
		codec_specs_add_examples(&list, &shapes[shape]);
		for (int i = 0; i < list.count; i++)
			for (int kind = 0; kind < KINDS; kind++)
				if ((kind == CHANNELS_KIND) ==
				    (shape == CHANNELS_SHAPE)) /* these two are for each other */
					print_codec(list.text[i], shape, kind);
	}
	return fflush(stdout) == 0 ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * `hadamard`: each block of neighbouring elements is multiplied by fixed random
 * signs and becomes its Walsh-Hadamard transform, in which a large element is
 * spread over the whole block; the other end transforms it back. Formula and layout: CODECS.md. The
 * loops: kernels/loops/hadamard_loops.h. Test: tests/unit/test_codec_hadamard.c;
 * fuzz: fuzz_codec_hadamard
 */
#include "common/base/rng.h"
#include "common/codec/codec_impl.h"
#include "kernels/loops/hadamard_loops.h"

enum { SIZE, SEED };
enum { SMALLEST = 8, LEVELS_LEAST = 3, PART = 1 << 20, LINE = 16 };

#define NOT_FINITE UINT32_C(0x7f800000)
#define TOO_LARGE  UINT32_C(0x71800000) /* 2^100: no sum of the way back overflows below it */

struct hadamard {
	uint64_t n;
	int levels; /* a block has 2^levels elements */
	const struct gp_hadamard_loops *loops;
	uint32_t *sign; /* of a block; at a line's begin */
	uint32_t signs[GP_HADAMARD_MOST + LINE];
	float room[GP_HADAMARD_MOST]; /* for a block of which `piece` gives a part */
};

static enum gp_status check(const double *value, struct gp_err *err)
{
	const unsigned size = (unsigned)value[SIZE];
	if (size & (size - 1))
		GP_FAIL(err, GP_USAGE, "size=%u is not allowed; it is a power of two, from %d to %d", size, SMALLEST,
			GP_HADAMARD_MOST);
	return GP_OK;
}

static enum gp_status shapes(const double *value, const struct gp_shape *shape, struct gp_codec_parts *out,
			     struct gp_err *err)
{
	(void)value;
	(void)err;
	*out = (struct gp_codec_parts){.count = 1, .shape = {*shape}};
	return GP_OK;
}

static uint64_t mixes(const double *value)
{
	return (uint64_t)value[SIZE];
}

static void reshape(void *state, const double *value, const struct gp_shape *shape)
{
	(void)value;
	((struct hadamard *)state)->n = gp_shape_elements(shape);
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	(void)setup;
	return sizeof(struct hadamard);
}

static int levels_of(const double *value)
{
	int levels = LEVELS_LEAST;
	while (1 << levels < (int)value[SIZE])
		levels++;
	return levels;
}

/* A level is a pass over a block, besides signs and factor. A quantizer that takes its elements piece by piece may ask
 * for each up to three times: for the range of a sample, for a block's range, and to code it. */
static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	const uint64_t once = gp_codec_work_times(setup->n, 2 + (uint64_t)levels_of(value));
	return gp_codec_work_times(once, setup->encodes ? 3 : 1);
}

static enum gp_status open_hadamard(const double *value, const struct gp_codec_setup *setup, void **state,
				    struct gp_err *err)
{
	void *s;
	GP_TRY(gp_alloc_array(&s, 1, sizeof(struct hadamard), err));
	struct hadamard *h = s;
	h->n = setup->n;
	h->levels = levels_of(value);
	h->sign = h->signs + (-(uintptr_t)h->signs / sizeof h->signs[0]) % LINE;
	for (uint32_t i = 0; i < 1u << h->levels; i++)
		h->sign[i] = gp_rng_u32((uint64_t)value[SEED], gp_rng_stream(GP_RNG_SIGNS, 0), i) & 0x80000000u;
	h->loops = gp_hadamard_loops_choose();
	*state = h;
	return GP_OK;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* The last n elements, fewer than a block has: cut into powers of two, largest first. */
static uint32_t turn_rest(const struct hadamard *h, gp_hadamard_turn *turn, const float *x, size_t n, float *y)
{
	uint32_t top = 0;
	size_t at = 0;
	for (int levels = h->levels - 1; levels >= 0; levels--) {
		const size_t size = (size_t)1 << levels;
		if (!(n & size))
			continue;
		top = larger(top, turn(h->sign + at, levels, x + at, size, y + at));
		at += size;
	}
	return top;
}

/* The whole tensor. Returns the bits of the largest magnitude of y; UINT32_MAX: stopped. */
static uint32_t turn_all(const struct hadamard *h, gp_hadamard_turn *turn, const struct gp_codec_pass *pass,
			 const float *x, float *y)
{
	const uint64_t whole = h->n >> h->levels << h->levels;
	uint32_t top = 0;
	for (uint64_t at = 0; at < whole; at += PART) {
		const size_t here = (size_t)(whole - at < PART ? whole - at : PART);
		if (gp_codec_stopped(pass))
			return UINT32_MAX;
		top = larger(top, turn(h->sign, h->levels, x + at, here, y + at));
	}
	return larger(top, turn_rest(h, turn, x + whole, (size_t)(h->n - whole), y + whole));
}

/* The block whose first element is `at`; the last one may have fewer elements. */
static uint32_t turn_forward(const struct hadamard *h, const float *x, uint64_t at, float *y)
{
	const uint64_t left = h->n - at, size = UINT64_C(1) << h->levels;
	return left < size ? turn_rest(h, h->loops->forward, x + at, (size_t)left, y)
			   : h->loops->forward(h->sign, h->levels, x + at, (size_t)size, y);
}

static bool piece(void *state, const float *x, uint64_t at, size_t n, float *out)
{
	struct hadamard *h = state;
	const uint64_t size = UINT64_C(1) << h->levels, end = at + n;
	uint32_t top = 0;
	while (at < end) {
		const uint64_t begin = at >> h->levels << h->levels, whole = (end - at) >> h->levels << h->levels;
		uint64_t here = whole;
		if (begin == at && whole) {
			top = larger(top, h->loops->forward(h->sign, h->levels, x + at, (size_t)whole, out));
		} else {
			here = begin + size < end ? begin + size - at : end - at;
			top = larger(top, turn_forward(h, x, begin, h->room));
			memcpy(out, h->room + (at - begin), (size_t)here * sizeof *out);
		}
		at += here;
		out += here;
	}
	return top < TOO_LARGE;
}

static enum gp_status check_finite(uint32_t top, struct gp_err *err)
{
	if (top >= NOT_FINITE)
		GP_FAIL(err, GP_PROTO, "a hadamard payload has elements whose sums are not finite");
	return GP_OK;
}

static enum gp_status join_piece(void *state, float *x, uint64_t *done, uint64_t ready, struct gp_err *err)
{
	const struct hadamard *h = state;
	const uint64_t at = *done, whole = ready >> h->levels << h->levels;
	uint32_t top = 0;
	if (whole > at)
		top = h->loops->backward(h->sign, h->levels, x + at, (size_t)(whole - at), x + at);
	*done = whole;
	if (ready == h->n) {
		top = larger(top, turn_rest(h, h->loops->backward, x + whole, (size_t)(ready - whole), x + whole));
		*done = ready;
	}
	return check_finite(top, err);
}

static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	(void)side;
	const struct hadamard *h = state;
	*side_len = 0;
	return turn_all(h, h->loops->forward, pass, x, tensor[0]) < TOO_LARGE;
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	(void)side; /* none: the driver has checked it against the bound */
	const struct hadamard *h = state;
	const uint32_t top = turn_all(h, h->loops->backward, pass, tensor[0], x);
	GP_TRY(gp_codec_check_stop(pass, err));
	return check_finite(top, err);
}

const struct gp_codec_ops gp_codec_hadamard = {
	.id = GP_CODEC_ID_hadamard,
	.kind = GP_CODEC_TRANSFORM,
	.info = {.name = "hadamard",
		 .summary = "Walsh-Hadamard transform of blocks with random signs, which spreads outliers",
		 .examples = GP_EXAMPLES("hadamard", "hadamard:size=8+block:bits=3,size=32", "hadamard+block:bits=4",
					 "hadamard:size=1024,seed=7+uniform:bits=6",
					 "hadamard:size=64+topk:ratio=0.2+fp16", "hadamard:size=16+smaq")},
	.keys = 2,
	.key = {{.name = "size",
		 .min = SMALLEST,
		 .max = GP_HADAMARD_MOST,
		 .initial = 128,
		 .help = "elements in a row, along the channels, that are mixed; a power of two"},
		{.name = "seed", .max = 65535, .help = "which random signs the elements of a block get"}},
	.check = check,
	.mixes = mixes,
	.reshape = reshape,
	.shapes = shapes,
	.bytes = state_bytes,
	.work = work,
	.open = open_hadamard,
	.close = gp_free,
	.split = split,
	.join = join,
	.piece = piece,
	.join_piece = join_piece,
};

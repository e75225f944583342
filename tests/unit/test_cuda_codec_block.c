/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs whose blocks or channels have scales (block, mxfp8, mxfp6, mxfp4,
 * nvfp4), and the transform that goes before them (hadamard), on a GPU (an
 * emulated one, or a card) beside the host's: every size of block, maps of all
 * kinds of channels, tensors whose scales are hard to find, tensors in odd
 * places. What every stage of a device has to keep to: test_cuda_codec.c.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef GP_CUDA_DEVICE
#include "tests/unit/codec_pair.h"

enum { MOST = 20011 };

static float x[MOST];

static void travels(const char *text, const struct gp_shape *shape, enum kind kind, uint64_t seed)
{
	struct pair p = open_pair(text, shape, &(struct gp_codec_options){.seed = seed});
	assert_true(p.n <= MOST);
	fill(x, p.n, kind, seed);
	travel(&p, &(struct gp_codec_pass){.draw = seed}, x);
	close_pair(&p);
}

/* --- blocks ------------------------------------------------------------------------------------------------------ */

/* Scales of both kinds, nothing clipped or the least error; rounded either way. */
static const char *const forms[] = {
	"",
	",zero=asym",
	",scale=e8m0",
	",zero=asym,scale=e8m0",
	",clip=mse",
	",zero=asym,clip=mse",
	",scale=e8m0,clip=mse",
	",round=stochastic",
	",zero=asym,round=stochastic",
	",zero=asym,scale=e8m0,clip=mse,round=stochastic",
};

static void blocks_of_every_size_are_coded_as_on_the_host(void **state)
{
	(void)state;
	static const int sizes[] = {16, 17, 24, 31, 32, 33, 64, 100, 128, 255, 256, 500, 512, 1023, 1024};
	static const int64_t lengths[] = {1, 15, 100, 2048, 5003, MOST};
	char text[128];
	for (int s = 0; s < COUNT(sizes); s++)
		for (int f = 0; f < COUNT(forms); f++)
			for (int l = 0; l < COUNT(lengths); l++) {
				if (left_to_plain_runs(5, s + f + l))
					continue;
				const struct gp_shape shape = {.ndim = 1, .dim = {lengths[l]}};
				snprintf(text, sizeof text, "block:bits=%d,size=%d%s", 2 + (s + f + l) % 7, sizes[s],
					 forms[f]);
				travels(text, &shape, (enum kind)((s + 2 * f + l) % KINDS), (uint64_t)(s + f));
			}
}

/* The unit follows from 64 blocks. One that was not looked at has a scale which is too large for it, in the middle or at
 * the end. */
static void block_that_was_not_sampled_may_have_the_largest_elements(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 1, .dim = {MOST}};
	static const uint64_t places[] = {35, MOST - 1, 16 * 7 + 3};
	static const char *const specs[] = {"block:size=16",
					    "block:size=16,zero=asym",
					    "block:size=17",
					    "block:bits=3,size=16,clip=mse",
					    "block:bits=6,size=32,zero=asym,round=stochastic",
					    "block:bits=2,size=19,zero=asym,clip=mse"};
	for (int i = 0; i < COUNT(specs); i++)
		for (int k = 0; k < COUNT(places); k++) {
			struct pair p = open_pair(specs[i], &shape, &(struct gp_codec_options){.seed = 3});
			fill(x, p.n, TINY, 4);
			x[places[k]] = k == 1 ? -3e7f : 3e7f;
			travel(&p, &(struct gp_codec_pass){.draw = 1}, x);
			assert_true(fabsf(p.y[DEVICE][places[k]]) > 2e7f);
			close_pair(&p);
		}
}

/* Whether the tensor travelled raw, on both sides. */
static bool travels_raw(const char *text, const struct gp_shape *shape)
{
	struct gp_codec_stats stats;
	struct pair p = open_pair(text, shape, &(struct gp_codec_options){.seed = 3});
	travel(&p, &(struct gp_codec_pass){.draw = 1}, x);
	gp_codec_get_stats(p.codec[DEVICE], &stats);
	close_pair(&p);
	return stats.raw_fallbacks > 0;
}

static void tensors_whose_levels_overflow_travel_raw_as_on_the_host(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 2, .dim = {120, 8}};
	static const struct {
		const char *text;
		bool raw[4]; /* of FLT_MAX, of both signs of it, of half of it, of a number that is none */
	} cases[] = {
		{"block", {true, true, false, true}},
		{"block:zero=asym", {true, true, false, true}},
		{"block:size=24,zero=asym,clip=mse", {true, true, false, true}},
		{"block:zero=asym,dim=channel", {true, true, false, true}},
		{"block:clip=mse,dim=channel", {true, true, false, true}},
		{"block:size=16,budget=4", {true, true, false, true}},
		{"block:bits=8,scale=e8m0", {true, true, false, true}},
		{"mxfp8:format=e4m3", {false, false, false, true}},
		{"mxfp8:format=e5m2", {false, false, false, true}},
		{"mxfp6:format=e2m3", {false, false, false, true}},
		{"mxfp4", {false, false, false, true}},
		{"nvfp4", {false, false, false, true}},
	};
	for (int i = 0; i < COUNT(cases); i++)
		for (int k = 0; k < 4; k++) {
			fill(x, 960, BELL, 2);
			x[500] = k == 3 ? NAN : k == 2 ? FLT_MAX / 2 : FLT_MAX;
			x[508] = k == 1 ? -FLT_MAX : x[508];
			if (travels_raw(cases[i].text, &shape) != cases[i].raw[k])
				fail_msg("%s, case %d: not %s", cases[i].text, k, cases[i].raw[k] ? "raw" : "coded");
		}
}

/* --- budgets ----------------------------------------------------------------------------------------------------- */

static void budgets_give_blocks_the_hosts_bits(void **state)
{
	(void)state;
	static const int sizes[] = {16, 24, 64, 128, 200, 1024};
	static const int64_t lengths[] = {1, 7, 100, 2048, 5003, MOST};
	static const char *const budgets[] = {"2", "2.5", "3.77", "4", "6.1", "8"};
	char text[128];
	for (int s = 0; s < COUNT(sizes); s++)
		for (int f = 0; f < COUNT(forms); f++)
			for (int l = 0; l < COUNT(lengths); l++) {
				if (left_to_plain_runs(5, s + f + l))
					continue;
				const struct gp_shape shape = {.ndim = 1, .dim = {lengths[l]}};
				snprintf(text, sizeof text, "block:size=%d%s,budget=%s%s", sizes[s], forms[f],
					 budgets[(s + f + l) % COUNT(budgets)], f % 3 ? "" : "+rans");
				travels(text, &shape, (enum kind)((s + 2 * f + l + 4) % KINDS), (uint64_t)(s + f));
			}
}

static void damaged_widths_are_refused_as_on_the_host(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 1, .dim = {347}};
	refuses_alike("block:size=16,budget=3.3", &shape);
	refuses_alike("block:size=24,zero=asym,scale=e8m0,budget=5", &shape);
	refuses_alike("ef+block:size=64,clip=mse,budget=2.2", &shape);
}

/* --- channels ---------------------------------------------------------------------------------------------------- */

static void maps_of_all_kinds_have_a_scale_for_each_channel(void **state)
{
	(void)state;
	static const struct gp_shape maps[] = {
		{.ndim = 2, .dim = {16, 1}},     {.ndim = 2, .dim = {5003, 1}},
		{.ndim = 3, .dim = {7, 300, 3}}, {.ndim = 4, .dim = {2, 5, 7, 4}},
		{.ndim = 2, .dim = {700, 7}},    {.ndim = 4, .dim = {3, 9, 11, 8}},
		{.ndim = 2, .dim = {400, 12}},   {.ndim = 4, .dim = {2, 17, 13, 32}},
		{.ndim = 2, .dim = {150, 40}},   {.ndim = 2, .dim = {64, 129}},
		{.ndim = 2, .dim = {33, 260}},   {.ndim = 2, .dim = {16, 1024}},
		{.ndim = 2, .dim = {17, 1100}},  {.ndim = 2, .dim = {15, 1000}},
		{.ndim = 1, .dim = {3000}},
	};
	char text[128];
	for (int s = 0; s < COUNT(maps); s++)
		for (int f = 0; f < COUNT(forms); f++) {
			if (left_to_plain_runs(3, s + f))
				continue;
			snprintf(text, sizeof text, "block:bits=%d%s,dim=channel", 2 + (s + f) % 7, forms[f]);
			for (int turn = 0; turn < 2; turn++)
				travels(text, &maps[s], (enum kind)((s + f + 3 * turn) % KINDS), (uint64_t)(s + turn));
		}
}

static void damaged_scales_of_channels_are_refused_as_on_the_host(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 3, .dim = {2, 19, 6}};
	static const char *const specs[] = {"block:dim=channel", "block:bits=3,zero=asym,dim=channel",
					    "block:bits=2,scale=e8m0,dim=channel",
					    "block:bits=7,zero=asym,scale=e8m0,dim=channel"};
	for (int i = 0; i < COUNT(specs); i++)
		refuses_alike(specs[i], &shape);
}

/* --- transforms -------------------------------------------------------------------------------------------------- */

/* Whole blocks, and what the last one has left: all powers of two, some, none. */
static void blocks_are_turned_as_on_the_host(void **state)
{
	(void)state;
	static const int64_t lengths[] = {1, 2, 7, 8, 37, 128, 1023, 2048, 2047 + 2048, 5003, 8192 + 768, MOST};
	static const char *const behind[] = {"",       "+block:bits=3,size=32", "+block:zero=asym,clip=mse", "+mxfp4",
					     "+nvfp4", "+uniform:bits=4"};
	char text[128];
	for (int levels = 3; levels <= 10; levels++)
		for (int l = 0; l < COUNT(lengths); l++) {
			if (left_to_plain_runs(2, levels + l))
				continue;
			const struct gp_shape shape = {.ndim = 1, .dim = {lengths[l]}};
			snprintf(text, sizeof text, "hadamard:size=%d,seed=%d%s", 1 << levels, l,
				 behind[(levels + l) % COUNT(behind)]);
			travels(text, &shape, (enum kind)((levels + 3 * l) % KINDS), (uint64_t)l);
		}
}

/* Up to 2^100 is coded, wherever it is; what is more, or no number, travels raw. */
static void tensors_that_are_too_large_to_be_turned_travel_raw_as_on_the_host(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 1, .dim = {2500}};
	static const float large[] = {0x1p99f, 0x1p105f, FLT_MAX, NAN, -INFINITY};
	for (int i = 0; i < COUNT(large); i++)
		for (int at = 0; at < 2500; at += 833) {
			fill(x, 2500, BELL, 2);
			x[at] = large[i];
			assert_true(travels_raw("hadamard:size=64+uniform:bits=8", &shape) == (i > 0));
		}
}

static void damaged_transforms_are_refused_as_on_the_host(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 2, .dim = {3, 67}};
	refuses_alike("hadamard:size=16", &shape);
	refuses_alike("hadamard:size=32+block:bits=2,size=16", &shape);
	refuses_alike("ef+hadamard:size=8+mxfp8:format=e5m2", &shape);
}

/* --- places ------------------------------------------------------------------------------------------------------ */

/* A tensor that begins at a float, not at 16 bytes. */
static void tensors_may_begin_anywhere(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 2, .dim = {300, 12}};
	static const char *const specs[] = {
		"block",   "block:size=24,clip=mse", "block:zero=asym,dim=channel", "mxfp6:format=e3m2", "nvfp4",
		"hadamard"};
	void *room;
	OK(gp_rt_alloc(memory.device, (300 * 12 + 3) * sizeof(float), &room, &err));
	for (int i = 0; i < COUNT(specs); i++) {
		struct pair p = open_pair(specs[i], &shape, &(struct gp_codec_options){.seed = 3});
		float *const aligned = p.tensor;
		for (int by = 1; by < 4; by++) {
			p.tensor = (float *)room + by;
			fill(x, p.n, WIDE, (uint64_t)by);
			travel(&p, &(struct gp_codec_pass){.draw = 1}, x);
		}
		p.tensor = aligned;
		close_pair(&p);
	}
	gp_rt_free(memory.device, room);
}

int main(void)
{
	if (gp_rt_count() == 0) {
		puts("no GPU here: nothing to test");
		return 77;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_of_every_size_are_coded_as_on_the_host),
		cmocka_unit_test(block_that_was_not_sampled_may_have_the_largest_elements),
		cmocka_unit_test(tensors_whose_levels_overflow_travel_raw_as_on_the_host),
		cmocka_unit_test(budgets_give_blocks_the_hosts_bits),
		cmocka_unit_test(damaged_widths_are_refused_as_on_the_host),
		cmocka_unit_test(maps_of_all_kinds_have_a_scale_for_each_channel),
		cmocka_unit_test(damaged_scales_of_channels_are_refused_as_on_the_host),
		cmocka_unit_test(blocks_are_turned_as_on_the_host),
		cmocka_unit_test(tensors_that_are_too_large_to_be_turned_travel_raw_as_on_the_host),
		cmocka_unit_test(damaged_transforms_are_refused_as_on_the_host),
		cmocka_unit_test(tensors_may_begin_anywhere),
	};
	return cmocka_run_group_tests(tests, open_device, close_device);
}
#else
int main(void)
{
	puts("this build has no CUDA device: nothing to test");
	return 77;
}
#endif

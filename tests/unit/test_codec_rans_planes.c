/* SPDX-License-Identifier: Apache-2.0
 *
 * rans:tables=channel: channels with tables of their own. How their codes lie, which channels go together, what that saves,
 * that anything comes back, and what a payload may not say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"
#include "common/codec/stages/rans_channels.h"
#include "kernels/loops/map_loops.h"
#include "kernels/loops/plane_loops.h"
#include "tests/unit/rans_rig.h"

enum { MOST = 200000 };
static float bell[MOST];

static int make_noise(void **state)
{
	(void)state;
	for (size_t i = 0; i < MOST; i++)
		bell[i] = gp_rng_normal(5, 7, i);
	return 0;
}

/* --- planes ----------------------------------------------------------------------------------------------------- */

static void pixels_become_planes_and_come_back(void **state)
{
	(void)state;
	static const size_t counts[] = {1, 2, 3, 15, 16, 17, 31, 32, 48, 50, 112};
	enum { MOST_CHANNELS = 112, GAP = 3 };
	uint8_t pixels[112 * MOST_CHANNELS], back[112 * MOST_CHANNELS];
	uint8_t planes[MOST_CHANNELS * (112 + GAP)];
	size_t place[MOST_CHANNELS];
	for (size_t i = 0; i < sizeof pixels; i++)
		pixels[i] = (uint8_t)(gp_rng_u32(3, 1, i) >> 24);
	for (size_t a = 0; a < sizeof counts / sizeof counts[0]; a++)
		for (size_t b = 0; b < sizeof counts / sizeof counts[0]; b++) {
			const size_t n = counts[a], channels = counts[b];
			for (size_t c = 0; c < channels; c++) /* in another order, with bytes between them */
				place[c] = (c * 5 + 1) % channels == c || channels % 5 == 0
						   ? c * (n + GAP)
						   : (c * 5 + 1) % channels * (n + GAP);
			memset(planes, 0xa5, sizeof planes);
			gp_planes_split(pixels, n, channels, place, planes);
			size_t kept = 0;
			for (size_t i = 0; i < sizeof planes; i++)
				kept += planes[i] == 0xa5;
			assert_true(kept >= sizeof planes - n * channels);
			for (size_t c = 0; c < channels; c++)
				for (size_t i = 0; i < n; i++)
					assert_int_equal(planes[place[c] + i], pixels[i * channels + c]);
			memset(back, 0, sizeof back);
			gp_planes_join(planes, n, channels, place, back);
			assert_memory_equal(back, pixels, n * channels);
			for (size_t i = n * channels; i < sizeof back; i++)
				assert_int_equal(back[i], 0);
		}
}

/* --- groups ----------------------------------------------------------------------------------------------------- */

/* Every third channel has few values, the others many: two groups, and no channel is lost. */
static void channels_that_are_alike_go_together(void **state)
{
	(void)state;
	enum { CHANNELS = 24, PIXELS = 20000 };
	struct gp_rans_channels c;
	struct gp_err err;
	uint8_t row[CHANNELS];
	assert_int_equal(gp_rans_channels_open(&c, CHANNELS, true, &err), GP_OK);
	for (int pass = 0; pass < 2; pass++) { /* what was counted before is forgotten */
		gp_rans_channels_begin(&c);
		for (size_t i = 0; i < PIXELS; i++) {
			for (size_t k = 0; k < CHANNELS; k++)
				row[k] = (uint8_t)(gp_rng_u32(9, k, i) >> ((int)(k % 3 == 0) == pass ? 30 : 25));
			gp_rans_channels_count(&c, GP_RANS_LEFT, 8, row, CHANNELS);
		}
		gp_rans_channels_plan(&c, GP_RANS_LEFT, 8, PIXELS, 1);
		const struct gp_rans_plan *p = &c.plan[GP_RANS_LEFT];
		const size_t few = pass ? CHANNELS / 3 : CHANNELS - CHANNELS / 3;
		assert_int_equal(p->groups, 2);
		assert_int_equal(p->end[0], few);
		assert_int_equal(p->end[1], CHANNELS);
		unsigned seen = 0;
		for (size_t i = 0; i < CHANNELS; i++) {
			assert_int_equal((int)(p->order[i] % 3 == 0) == pass, i < few);
			seen |= 1u << p->order[i];
		}
		assert_int_equal(seen, (1u << CHANNELS) - 1);
		const double bits = (double)PIXELS * (2.0 * (double)few + 7.0 * (double)(CHANNELS - few));
		assert_true(fabs((double)p->cost / 256 / bits - 1) < 0.02);
	}
	gp_rans_channels_close(&c);
}

/* A table for each of them would be longer than what it saves. */
static void few_pixels_are_one_group(void **state)
{
	(void)state;
	enum { CHANNELS = 1024 };
	struct gp_rans_channels c;
	struct gp_err err;
	static uint8_t row[8 * CHANNELS];
	assert_int_equal(gp_rans_channels_open(&c, CHANNELS, false, &err), GP_OK);
	for (int width = 1; width <= 8; width++) {
		gp_rans_channels_begin(&c);
		for (size_t i = 0; i < sizeof row; i++)
			row[i] = (uint8_t)(gp_rng_u32(9, 0, i) >> (32 - width));
		gp_rans_channels_count(&c, GP_RANS_AS_IS, width, row, sizeof row);
		gp_rans_channels_plan(&c, GP_RANS_AS_IS, width, 8, 1);
		const struct gp_rans_plan *p = &c.plan[GP_RANS_AS_IS];
		assert_int_equal(p->end[p->groups - 1], CHANNELS);
		for (size_t g = 0; g < p->groups; g++)
			assert_true((p->end[g] - (g ? p->end[g - 1] : 0)) * 8 / (8 / width) >= 1024);
	}
	gp_rans_channels_close(&c);
}

/* --- payloads --------------------------------------------------------------------------------------------------- */

/* The codes of a channel are of its own scale, 1 to 1/32; `alike`: of one. */
static void fill(float *x, const struct gp_shape *s, bool alike)
{
	const int64_t c = s->dim[s->ndim - 1];
	for (int64_t i = 0; i < (int64_t)gp_shape_elements(s); i++)
		x[i] = bell[i % MOST] * (alike ? 1 : ldexpf(1, -(int)(i % c % 6)));
}

static void channels_of_their_own_scale_take_fewer_bits(void **state)
{
	(void)state;
	static const struct gp_shape shapes[] = {
		{.ndim = 4, .dim = {2, 64, 48, 32}}, {.ndim = 3, .dim = {4, 1536, 32}}, {.ndim = 2, .dim = {6144, 32}}};
	float *x = malloc(MOST * sizeof *x);
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int bits = 1; bits <= 8; bits++) {
			char with[64], without[64];
			snprintf(with, sizeof with, "uniform:bits=%d+rans:tables=channel", bits);
			snprintf(without, sizeof without, "uniform:bits=%d+rans", bits);
			fill(x, &shapes[i], true);
			assert_in_range(rans_rig_bytes(with, &shapes[i], x), 0,
					rans_rig_bytes(without, &shapes[i], x) + 200);
			fill(x, &shapes[i], false);
			const size_t by_channel = rans_rig_bytes(with, &shapes[i], x);
			const size_t together = rans_rig_bytes(without, &shapes[i], x);
			if (bits >= 4)
				assert_in_range(by_channel, 0, together * (bits < 6 ? 19 : 18) / 20);
			else
				assert_in_range(by_channel, 0, together + together / 20);
		}
	free(x);
}

/* Maps whose channels are smooth, each of its own scale: both keys together save more than each alone. */
static void both_keys_together_save_more(void **state)
{
	(void)state;
	const struct gp_shape map = {.ndim = 4, .dim = {2, 64, 64, 24}};
	const size_t n = (size_t)gp_shape_elements(&map);
	float *x = malloc(n * sizeof *x);
	for (size_t i = 0; i < n; i++) {
		const double column = (double)(i / 24 % 64), row = (double)(i / 24 / 64 % 64), k = (double)(i % 24);
		x[i] = (float)(sin(column / 9 + k) * cos(row / 7 - k)) + ldexpf(bell[i % MOST], -3 - (int)(i % 24 % 6));
	}
	const size_t both = rans_rig_bytes("uniform:bits=8+rans:predict=map,tables=channel", &map, x);
	assert_in_range(both, 0, rans_rig_bytes("uniform:bits=8+rans:predict=map", &map, x) * 19 / 20);
	assert_in_range(both, 0, rans_rig_bytes("uniform:bits=8+rans:tables=channel", &map, x) * 3 / 4);
	free(x);
}

static void whatever_has_no_planes_comes_back_all_the_same(void **state)
{
	(void)state;
	static const struct gp_shape shapes[] = {
		{.ndim = 4, .dim = {1, 1, 1, 8}},     {.ndim = 4, .dim = {3, 7, 5, 8}},
		{.ndim = 4, .dim = {2, 8, 9, 5}},     {.ndim = 4, .dim = {2, 40, 24, 1}},
		{.ndim = 4, .dim = {2, 9, 8, 17}},    {.ndim = 4, .dim = {4, 6, 10, 24}},
		{.ndim = 4, .dim = {1, 4, 1200, 40}}, {.ndim = 3, .dim = {4, 96, 32}},
		{.ndim = 3, .dim = {3, 15, 64}},      {.ndim = 2, .dim = {4, 1280}},
		{.ndim = 2, .dim = {8, 1030}},        {.ndim = 2, .dim = {64, 1024}},
		{.ndim = 1, .dim = {4096}},
	};
	static const char *const quantizers[] = {
		"uniform:bits=8",
		"uniform:bits=3",
		"uniform:bits=1",
		"block:bits=5,size=32",
		"block:size=16,budget=4",
		"mxfp6",
		"nvfp4",
		"ef+uniform:bits=4",
		"raw",
		"topk:ratio=0.5+uniform:bits=8",
		"poweriter:rank=2+uniform:bits=7",
		"sortquant:bits=4,split=2",
		"kmeans:bits=2",
		"smaq",
		"qsgd:bits=4",
	};
	float *x = malloc(200000 * sizeof *x);
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (size_t k = 0; k < sizeof quantizers / sizeof quantizers[0]; k++) {
			char spec[80];
			const int64_t c = shapes[i].dim[shapes[i].ndim - 1];
			for (int64_t e = 0; e < (int64_t)gp_shape_elements(&shapes[i]); e++)
				x[e] = (float)(e / 640 % 7) + ldexpf(bell[e % MOST], -(int)(e % c % 9));
			if (shapes[i].ndim < 3 && strncmp(quantizers[k], "poweriter", 9) == 0)
				continue;
			snprintf(spec, sizeof spec, "%s+rans:tables=channel", quantizers[k]);
			rans_rig_bytes(spec, &shapes[i], x);
			snprintf(spec, sizeof spec, "%s+rans:predict=map,tables=channel", quantizers[k]);
			rans_rig_bytes(spec, &shapes[i], x);
		}
	free(x);
}

/* --- layout ----------------------------------------------------------------------------------------------------- */

enum { IMAGES = 2, H = 24, W = 32, C = 16, PIXELS = IMAGES * H * W, CODES = PIXELS * C, AT = 4 };

static void *open_rans(bool predicts, bool by_channel, const struct gp_shape *shape)
{
	const double values[] = {predicts, by_channel};
	struct gp_err err;
	void *rans;
	const struct gp_codec_setup setup = {
		.shape = *shape, .n = CODES + 2 * AT, .chunks = 1, .encodes = true, .decodes = true};
	assert_int_equal(gp_codec_rans.open(values, &setup, &rans, &err), GP_OK);
	return rans;
}

static const struct gp_shape whole = {.ndim = 4, .dim = {IMAGES, H, W, C}};

/* A payload of CODES codes of 8 bits between four bytes each; those of every fourth channel rise from row to row. */
static size_t make_payload(void *rans, uint8_t *in, uint8_t *out)
{
	const struct gp_codec_codes codes = {AT, CODES, 8};
	size_t len;
	for (size_t i = 0; i < CODES + 2 * AT; i++)
		in[i] = (uint8_t)i;
	for (size_t i = 0; i < CODES; i++) {
		const unsigned noise = gp_rng_u32(4, 4, i) >> (i % 4 == 0 ? 28 : 31);
		in[AT + i] = (uint8_t)(noise + (i % 4 == 1 ? i / (W * C) % H * 20 + i / C % W * 3 : 0));
	}
	gp_codec_rans.tell(rans, &codes, 1);
	assert_true(gp_codec_rans.squeeze(rans, &rans_rig_pass, (struct gp_span){in, CODES + 2 * AT}, out, &len));
	return len;
}

/* What is behind the order of the planes is a body of its own, without keys. */
static void codes_lie_as_the_layout_says(void **state)
{
	(void)state;
	static uint8_t in[CODES + 2 * AT], out[CODES + 200], planes[CODES + 2 * AT], back[CODES + 2 * AT], left[CODES];
	for (int predicts = 0; predicts < 2; predicts++) {
		void *rans = open_rans(predicts, true, &whole), *plain = open_rans(false, false, &whole);
		const size_t len = make_payload(rans, in, out), head = 5 + 2 * C;
		assert_int_equal(out[0], predicts ? 8 + 16 + 32 : 8 + 32);
		assert_int_equal(gp_get_u32(out + 1), AT);
		assert_int_equal(rans_rig_expand(plain, out + head, len - head, planes, sizeof planes), GP_OK);
		assert_memory_equal(planes, in, AT);
		assert_memory_equal(planes + AT + CODES, in + AT + CODES, AT);
		memcpy(left, in + AT, CODES);
		for (size_t y = 0; predicts && y < IMAGES * H; y++)
			gp_map_residuals(in + AT + y * W * C, y % H ? in + AT + (y - 1) * W * C : NULL, W * C, C, 0xff,
					 left + y * W * C);
		for (size_t k = 0; k < C; k++)
			for (size_t i = 0; i < PIXELS; i++) {
				const size_t channel = out[5 + 2 * k] + 256u * out[6 + 2 * k];
				assert_int_equal(planes[AT + k * PIXELS + i], left[i * C + channel]);
			}
		assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_OK);
		assert_memory_equal(back, in, sizeof in);
		gp_codec_rans.close(rans);
		gp_codec_rans.close(plain);
	}
}

static void what_is_said_of_planes_is_checked(void **state)
{
	(void)state;
	static uint8_t in[CODES + 2 * AT], out[CODES + 200], back[CODES + 2 * AT];
	void *rans = open_rans(true, true, &whole);
	const size_t len = make_payload(rans, in, out);
	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(rans_rig_expand(rans, out, cut, back, sizeof back), GP_PROTO);
	static const uint8_t bad[] = {8, 9 + 32, 8 + 64, 8 + 128 + 32, 16, 32, 48, 1};
	const uint8_t first = out[0];
	for (size_t i = 0; i < sizeof bad; i++) {
		out[0] = bad[i];
		assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_PROTO);
	}
	out[0] = 5 + 32; /* other codes, but codes */
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_OK);
	out[0] = first;
	const uint8_t channel = out[5];
	out[5] = C; /* none */
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_PROTO);
	out[5] = out[7]; /* twice */
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_PROTO);
	out[5] = channel;
	out[1] = 2 * AT + 1; /* the last one would be behind the end */
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_PROTO);
	out[1] = AT;
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_OK);
	gp_codec_rans.close(rans);
	rans = open_rans(false, true, &whole); /* foretelling was not agreed on */
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_PROTO);
	gp_codec_rans.close(rans);
	rans = open_rans(true, false, &whole); /* nor were planes */
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_PROTO);
	gp_codec_rans.close(rans);
	const struct gp_shape flat = {.ndim = 1, .dim = {CODES}}; /* one pixel */
	rans = open_rans(true, true, &flat);
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_PROTO);
	gp_codec_rans.close(rans);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pixels_become_planes_and_come_back),
		cmocka_unit_test(channels_that_are_alike_go_together),
		cmocka_unit_test(few_pixels_are_one_group),
		cmocka_unit_test(channels_of_their_own_scale_take_fewer_bits),
		cmocka_unit_test(both_keys_together_save_more),
		cmocka_unit_test(whatever_has_no_planes_comes_back_all_the_same),
		cmocka_unit_test(codes_lie_as_the_layout_says),
		cmocka_unit_test(what_is_said_of_planes_is_checked),
	};
	return cmocka_run_group_tests(tests, make_noise, NULL);
}

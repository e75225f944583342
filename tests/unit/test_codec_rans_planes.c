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

#include "common/base/isa.h"
#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"
#include "common/codec/stages/rans_order.h"
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

static void try_planes(void)
{
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
			for (size_t c = 0; c < channels; c++)
				for (size_t i = 0; i < GAP; i++)
					assert_int_equal(planes[place[c] + n + i], 0xa5);
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

static void pixels_become_planes_and_come_back(void **state)
{
	(void)state;
	static const enum gp_isa limits[] = {GP_ISA_PORTABLE, GP_ISA_AVX2,
					     GP_ISA_AVX512}; /* ends with that of the others */
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
		gp_isa_limit(limits[i]);
		try_planes();
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
			gp_rans_channels_count(&c, GP_RANS_RESIDUALS, 8, row, CHANNELS);
		}
		gp_rans_channels_plan(&c, GP_RANS_RESIDUALS, 8, PIXELS);
		const struct gp_rans_plan *p = &c.plan[GP_RANS_RESIDUALS];
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
		gp_rans_channels_plan(&c, GP_RANS_AS_IS, width, 8);
		const struct gp_rans_plan *p = &c.plan[GP_RANS_AS_IS];
		assert_int_equal(p->groups, 1);
		assert_int_equal(p->end[0], CHANNELS);
	}
	for (size_t i = 0; i < sizeof row; i++)
		row[i] &= 15;
	gp_rans_channels_begin(&c); /* rows that are too short for a symbol of several codes */
	gp_rans_channels_count(&c, GP_RANS_AS_IS, 4, row, CHANNELS);
	gp_rans_channels_plan(&c, GP_RANS_AS_IS, 4, 8);
	assert_true(c.plan[GP_RANS_AS_IS].cost == UINT64_MAX);
	gp_rans_channels_close(&c);
}

/* However a channel's codes are cut into rows. */
static void begun_symbols_go_on_in_the_next_row(void **state)
{
	(void)state;
	enum { CHANNELS = 24, PIXELS = 840 };
	static const size_t rows[] = {1, 3, 5, 7, 8, 35};
	static uint8_t codes[CHANNELS * PIXELS];
	struct gp_rans_channels whole, cut;
	struct gp_err err;
	assert_int_equal(gp_rans_channels_open(&whole, CHANNELS, false, &err), GP_OK);
	assert_int_equal(gp_rans_channels_open(&cut, CHANNELS, false, &err), GP_OK);
	for (int width = 1; width <= 8; width++)
		for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
			const size_t row = rows[r] * CHANNELS;
			for (size_t i = 0; i < sizeof codes; i++)
				codes[i] = (uint8_t)(gp_rng_u32(9, 5, i) >> (32 - width));
			gp_rans_channels_begin(&whole);
			gp_rans_channels_begin(&cut);
			gp_rans_channels_count(&whole, GP_RANS_AS_IS, width, codes, sizeof codes);
			for (size_t at = 0; at < sizeof codes; at += row)
				gp_rans_channels_count(&cut, GP_RANS_AS_IS, width, codes + at, row);
			assert_int_equal(whole.counted[GP_RANS_AS_IS], PIXELS / (8 / width));
			assert_int_equal(cut.counted[GP_RANS_AS_IS], PIXELS / (8 / width));
			assert_memory_equal(whole.counts[GP_RANS_AS_IS], cut.counts[GP_RANS_AS_IS],
					    CHANNELS * 256 * sizeof(uint16_t));
		}
	gp_rans_channels_close(&whole);
	gp_rans_channels_close(&cut);
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
				assert_in_range(by_channel, 0, together + 200);
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

/* A symbol of several codes does not end where such a row does: what is not counted must not seem to cost nothing. */
static void narrow_maps_take_no_more_than_without_planes(void **state)
{
	(void)state;
	static const struct gp_shape shapes[] = {
		{.ndim = 4, .dim = {64, 3, 3, 64}},  {.ndim = 4, .dim = {32, 7, 7, 64}},
		{.ndim = 4, .dim = {32, 8, 4, 64}},  {.ndim = 4, .dim = {256, 1, 1, 64}},
		{.ndim = 4, .dim = {8, 1, 16, 640}}, {.ndim = 4, .dim = {16, 64, 2, 64}}};
	float *x = malloc(MOST * sizeof *x);
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int bits = 1; bits <= 8; bits++)
			for (int smooth = 0; smooth < 2; smooth++) {
				char with[64], without[64];
				fill(x, &shapes[i], true);
				const size_t row = (size_t)(shapes[i].dim[2] * shapes[i].dim[3]);
				for (size_t e = row; smooth && e < (size_t)gp_shape_elements(&shapes[i]); e++)
					x[e] = x[e - row] + x[e] / 32;
				snprintf(with, sizeof with, "uniform:bits=%d+rans:predict=map,tables=channel", bits);
				snprintf(without, sizeof without, "uniform:bits=%d+rans:predict=map", bits);
				assert_in_range(rans_rig_bytes(with, &shapes[i], x), 0,
						rans_rig_bytes(without, &shapes[i], x) + 300);
			}
	free(x);
}

/* Rows of a text, without its padding: one dimension, with the channels of the whole. */
static void rows_of_a_text_have_its_channels(void **state)
{
	(void)state;
	enum { FEATURES = 32 };
	const struct gp_shape text = {.ndim = 3, .dim = {8, 512, FEATURES}};
	static const int64_t counts[] = {2048, 1000, 4096, 8, 1001, 4096, 0, 512};
	struct gp_codec_spec spec;
	struct gp_codec *resized, *fresh;
	struct gp_err err;
	float *x = malloc(2 * 4096 * FEATURES * sizeof *x), *y = x + 4096 * FEATURES;
	fill(x, &text, false);
	assert_int_equal(gp_codec_spec_parse("uniform:bits=6+rans:tables=channel", &spec, &err), GP_OK);
	assert_int_equal(gp_codec_new(&spec, &text, 1, &resized, &err), GP_OK);
	uint8_t *out = malloc(2 * gp_codec_bound(resized)), *expected = out + gp_codec_bound(resized);
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		const struct gp_shape flat = {.ndim = 1, .dim = {counts[i] * FEATURES}};
		const struct gp_shape rows = {.ndim = 2, .dim = {counts[i], FEATURES}};
		size_t len, expected_len, n = (size_t)(counts[i] * FEATURES);
		gp_codec_resize(resized, &flat);
		assert_int_equal(gp_codec_encode(resized, x, 0, out, gp_codec_bound(resized), &len, &err), GP_OK);
		if (n > 0) {
			assert_int_equal(gp_codec_new(&spec, &rows, 1, &fresh, &err), GP_OK);
			const size_t cap = gp_codec_bound(fresh);
			assert_int_equal(gp_codec_encode(fresh, x, 0, expected, cap, &expected_len, &err), GP_OK);
			assert_int_equal(len, expected_len);
			assert_memory_equal(out, expected, len);
			if (counts[i] >= 2048) /* behind the stage's head and length */
				assert_true(out[8] & GP_RANS_PLANES);
			assert_int_equal(gp_codec_decode(fresh, (struct gp_span){out, len}, y, &err), GP_OK);
			gp_codec_free(fresh);
		}
		float *z = malloc((n + 1) * sizeof *z);
		assert_int_equal(gp_codec_decode(resized, (struct gp_span){out, len}, z, &err), GP_OK);
		if (n > 0)
			assert_memory_equal(z, y, n * sizeof *z);
		free(z);
	}
	gp_codec_free(resized);
	free(out);
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
	static const double values[2][2][2] = {{{0, 0}, {0, 1}}, {{1, 0}, {1, 1}}};
	struct gp_err err;
	void *rans;
	const struct gp_codec_setup setup = {
		.shape = *shape, .n = CODES + 2 * AT, .chunks = 1, .encodes = true, .decodes = true};
	assert_int_equal(gp_codec_rans.open(values[predicts][by_channel], &setup, &rans, &err), GP_OK);
	return rans;
}

static const struct gp_shape whole = {.ndim = 4, .dim = {IMAGES, H, W, C}};

/* Code i of `width` bits, packed from the lowest bit of the first byte on (CODECS.md). */
static unsigned code_at(const uint8_t *in, size_t i, int width)
{
	unsigned v = 0;
	for (int b = 0; b < width; b++)
		v |= (unsigned)(in[(i * (size_t)width + (size_t)b) / 8] >> (i * (size_t)width + (size_t)b) % 8 & 1)
		     << b;
	return v;
}

/* A payload of CODES codes between four bytes each; those of every fourth channel rise from row to row, others are noise of up to
 * four bits. Returns the bytes that it becomes; *in_len: what it has. */
static size_t make_payload(void *rans, int width, uint8_t *in, size_t *in_len, uint8_t *out)
{
	const struct gp_codec_codes codes = {AT, CODES, width};
	size_t len;
	*in_len = 2 * AT + (size_t)CODES / 8 * (size_t)width;
	memset(in, 0, *in_len);
	in[0] = in[*in_len - 1] = 0x5a;
	for (size_t i = 0; i < CODES; i++) {
		const unsigned noise = gp_rng_u32(4, 4, i) >> (i % 4 == 0 ? 32 - (width + 1) / 2 : 31);
		const unsigned rises = (unsigned)(i / (W * C) % H * 20 + i / C % W * 3);
		const unsigned code = noise + (i % 4 == 1 ? rises : 0);
		for (int b = 0; b < width; b++)
			in[AT + (i * (size_t)width + (size_t)b) / 8] |=
				(uint8_t)((code >> b & 1) << (i * (size_t)width + (size_t)b) % 8);
	}
	gp_codec_rans.tell(rans, &codes, 1);
	assert_true(gp_codec_rans.squeeze(rans, &rans_rig_pass, (struct gp_span){in, *in_len}, out, &len));
	return len;
}

/* What is behind the order of the planes is a body of its own, without keys. */
static void try_layout(bool predicts, int width)
{
	static uint8_t in[CODES + 2 * AT], out[CODES + 200], planes[CODES + 2 * AT], back[CODES + 2 * AT];
	static uint8_t codes[CODES], residuals[CODES];
	void *rans = open_rans(predicts, true, &whole), *plain = open_rans(false, false, &whole);
	size_t in_len;
	const size_t len = make_payload(rans, width, in, &in_len, out), head = 5 + 2 * C;
	assert_int_equal(out[0] & ~16, width + 32);
	assert_true(predicts || !(out[0] & 16));
	assert_true(!predicts || width < 8 || out[0] & 16);
	assert_int_equal(gp_get_u32(out + 1), AT);
	assert_int_equal(rans_rig_expand(plain, out + head, len - head, planes, in_len), GP_OK);
	assert_memory_equal(planes, in, AT);
	assert_memory_equal(planes + in_len - AT, in + in_len - AT, AT);
	for (size_t i = 0; i < CODES; i++)
		residuals[i] = codes[i] = (uint8_t)code_at(in + AT, i, width);
	for (size_t y = 0; out[0] & 16 && y < IMAGES * H; y++)
		gp_map_residuals(codes + y * W * C, y % H ? codes + (y - 1) * W * C : NULL, W * C, C,
				 (uint8_t)((1 << width) - 1), residuals + y * W * C);
	for (size_t k = 0; k < C; k++)
		for (size_t i = 0; i < PIXELS; i++) {
			const size_t channel = out[5 + 2 * k] + 256u * out[6 + 2 * k];
			assert_int_equal(code_at(planes + AT, k * PIXELS + i, width), residuals[i * C + channel]);
		}
	assert_int_equal(rans_rig_expand(rans, out, len, back, in_len), GP_OK);
	assert_memory_equal(back, in, in_len);
	gp_codec_rans.close(rans);
	gp_codec_rans.close(plain);
}

static void codes_lie_as_the_layout_says(void **state)
{
	(void)state;
	static const int widths[] = {3, 4, 5, 8};
	for (int predicts = 0; predicts < 2; predicts++)
		for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
			try_layout(predicts, widths[i]);
}

/* Whatever a peer changes: a tensor or an error, and nothing that a sanitizer sees. */
static void changed_payloads_are_read_or_refused(void **state)
{
	(void)state;
	static uint8_t in[CODES + 2 * AT], out[CODES + 200], back[CODES + 2 * AT];
	static const int widths[] = {4, 8};
	for (size_t w = 0; w < 2; w++) {
		void *rans = open_rans(true, true, &whole);
		size_t in_len, read = 0, tried = 0;
		const size_t len = make_payload(rans, widths[w], in, &in_len, out);
		for (size_t at = 0; at < len; at += at < 600 ? 1 : 61)
			for (int bit = 0; bit < 8; bit++, tried++) {
				out[at] ^= (uint8_t)(1 << bit);
				const enum gp_status status = rans_rig_expand(rans, out, len, back, in_len);
				assert_true(status == GP_OK || status == GP_PROTO);
				read += status == GP_OK;
				out[at] ^= (uint8_t)(1 << bit);
			}
		assert_true(read > 0 && read < tried);
		assert_int_equal(rans_rig_expand(rans, out, len, back, in_len), GP_OK);
		assert_memory_equal(back, in, in_len);
		gp_codec_rans.close(rans);
	}
}

static void what_is_said_of_planes_is_checked(void **state)
{
	(void)state;
	static uint8_t in[CODES + 2 * AT], out[CODES + 200], back[CODES + 2 * AT];
	void *rans = open_rans(true, true, &whole);
	size_t in_len;
	const size_t len = make_payload(rans, 8, in, &in_len, out);
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
		cmocka_unit_test(begun_symbols_go_on_in_the_next_row),
		cmocka_unit_test(channels_of_their_own_scale_take_fewer_bits),
		cmocka_unit_test(both_keys_together_save_more),
		cmocka_unit_test(narrow_maps_take_no_more_than_without_planes),
		cmocka_unit_test(rows_of_a_text_have_its_channels),
		cmocka_unit_test(whatever_has_no_planes_comes_back_all_the_same),
		cmocka_unit_test(codes_lie_as_the_layout_says),
		cmocka_unit_test(what_is_said_of_planes_is_checked),
		cmocka_unit_test(changed_payloads_are_read_or_refused),
	};
	return cmocka_run_group_tests(tests, make_noise, NULL);
}

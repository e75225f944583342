/* SPDX-License-Identifier: Apache-2.0
 *
 * rans:predict=map: codes of feature maps that their neighbours foretell. What rows
 * become, what that saves, that anything comes back, and what a payload may not say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/base/isa.h"
#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"
#include "kernels/loops/map_loops.h"
#include "tests/unit/rans_rig.h"

enum { MOST = 200000 };
static float bell[MOST];

static int make_noise(void **state)
{
	(void)state;
	for (size_t i = 0; i < MOST; i++)
		bell[i] = gp_rng_normal(5, 6, i);
	return 0;
}

/* What the neighbours foretell, written from CODECS.md. */
static int foretold(const uint8_t *codes, size_t line, size_t channels, size_t y, size_t i)
{
	const uint8_t *at = codes + y * line + i;
	const int left = i < channels ? 0 : at[-(ptrdiff_t)channels], up = y == 0 ? 0 : at[-(ptrdiff_t)line];
	if (y == 0)
		return left;
	if (i < channels)
		return up;
	const int corner = at[-(ptrdiff_t)(line + channels)], sum = left + up - corner;
	const int least = left < up ? left : up, most = left < up ? up : left;
	return sum < least ? least : sum > most ? most : sum;
}

static void try_rows(void)
{
	enum { H = 5, LINE = 280 };
	static const size_t pixels[] = {1, 2, 3, 7, 8, 12, 15, 16, 24, 31, 35, 64, 70, 280};
	uint8_t codes[H * LINE], left_over[H * LINE];
	for (int width = 1; width <= 8; width++)
		for (size_t p = 0; p < sizeof pixels / sizeof pixels[0]; p++) {
			const size_t channels = pixels[p], line = LINE / channels * channels;
			const uint8_t mask = (uint8_t)((1 << width) - 1);
			for (size_t i = 0; i < H * line; i++)
				codes[i] = (uint8_t)(gp_rng_u32(3, p, i) >> 24) & mask;
			for (size_t y = 0; y < H; y++)
				gp_map_residuals(codes + y * line, y ? codes + (y - 1) * line : NULL, line, channels,
						 mask, left_over + y * line);
			for (size_t y = 0; y < H; y++)
				for (size_t i = 0; i < line; i++)
					assert_int_equal(left_over[y * line + i],
							 (codes[y * line + i] - foretold(codes, line, channels, y, i)) &
								 mask);
			for (size_t y = 0; y < H; y++)
				gp_map_restore(left_over + y * line, y ? left_over + (y - 1) * line : NULL, line,
					       channels, mask);
			assert_memory_equal(left_over, codes, H * line);
		}
}

static void rows_become_what_the_layout_says_and_come_back(void **state)
{
	(void)state;
	static const enum gp_isa limits[] = {GP_ISA_PORTABLE, GP_ISA_AVX2, GP_ISA_AVX512}; /* ends with that of the others */
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
		gp_isa_limit(limits[i]);
		try_rows();
	}
}

/* A map that is as smooth as those of pictures are; `rough`: of noise. */
static void fill_map(float *x, const struct gp_shape *s, bool rough)
{
	const int64_t h = s->dim[1], w = s->dim[2], c = s->dim[3];
	for (int64_t i = 0; i < (int64_t)gp_shape_elements(s); i++) {
		const double column = (double)(i / c % w), row = (double)(i / c / w % h), k = (double)(i % c);
		const double smooth = sin(column / 9 + k) * cos(row / 7 - k) + 0.01 * (double)bell[i % MOST];
		x[i] = rough ? bell[i % MOST] : (float)smooth;
	}
}

static void maps_take_fewer_bits_where_pixels_are_like_their_neighbours(void **state)
{
	(void)state;
	const struct gp_shape map = {.ndim = 4, .dim = {2, 24, 24, 32}};
	const size_t n = (size_t)gp_shape_elements(&map);
	float *x = malloc(n * sizeof *x);
	for (int bits = 1; bits <= 8; bits++) {
		char with[64], without[64];
		snprintf(with, sizeof with, "uniform:bits=%d+rans:predict=map", bits);
		snprintf(without, sizeof without, "uniform:bits=%d+rans", bits);
		fill_map(x, &map, true);
		assert_in_range(rans_rig_bytes(with, &map, x), 0, rans_rig_bytes(without, &map, x) + 1);
		fill_map(x, &map, false);
		const size_t foretold_bytes = rans_rig_bytes(with, &map, x), bytes = rans_rig_bytes(without, &map, x);
		assert_in_range(foretold_bytes, 0, bytes * 2 / 3);
	}
	free(x);
}

/* Images of few rows, which are alike from row to row only: whichever rows are looked at say so. */
static void low_images_are_foretold_too(void **state)
{
	(void)state;
	static const int64_t heights[] = {2, 4, 8, 16};
	float *x = malloc(200000 * sizeof *x);
	for (size_t i = 0; i < sizeof heights / sizeof heights[0]; i++) {
		const struct gp_shape map = {.ndim = 4, .dim = {64 / heights[i], heights[i], 64, 32}};
		for (int64_t e = 0; e < (int64_t)gp_shape_elements(&map); e++)
			x[e] = bell[e % (64 * 32) + e / (heights[i] * 64 * 32) * 64 * 32];
		const size_t with = rans_rig_bytes("uniform:bits=8+rans:predict=map", &map, x);
		assert_in_range(with, 0, rans_rig_bytes("uniform:bits=8+rans", &map, x) * 7 / 8);
	}
	free(x);
}

/* Codes of few bits are coded several at a time: channels that go together must not be taken apart. */
static void joined_codes_are_counted_together(void **state)
{
	(void)state;
	const struct gp_shape map = {.ndim = 4, .dim = {2, 32, 32, 16}};
	float *x = malloc(32768 * sizeof *x);
	for (int bits = 1; bits <= 4; bits++) {
		char with[64], without[64];
		for (int64_t e = 0; e < 32768; e++)
			x[e] = bell[e / 16 * 7 % MOST] + (e % 16 % 2 ? 0.5f : 0);
		snprintf(with, sizeof with, "uniform:bits=%d+rans:predict=map", bits);
		snprintf(without, sizeof without, "uniform:bits=%d+rans", bits);
		assert_in_range(rans_rig_bytes(with, &map, x), 0, rans_rig_bytes(without, &map, x) + 8);
	}
	free(x);
}

/* Rows of odd lengths, other numbers of dimensions, quantizers with other codes, and stages before them. */
static void whatever_is_no_map_comes_back_all_the_same(void **state)
{
	(void)state;
	static const struct gp_shape shapes[] = {
		{.ndim = 4, .dim = {1, 1, 1, 8}},     {.ndim = 4, .dim = {3, 7, 5, 8}},
		{.ndim = 4, .dim = {2, 40, 24, 1}},   {.ndim = 4, .dim = {2, 9, 7, 5}},
		{.ndim = 3, .dim = {4, 96, 32}},      {.ndim = 2, .dim = {4, 1280}},
		{.ndim = 4, .dim = {1, 2, 80000, 1}}, {.ndim = 1, .dim = {4096}},
	};
	static const char *const specs[] = {
		"uniform:bits=8+rans:predict=map",
		"block:bits=3,size=32+rans:predict=map",
		"block:size=16,budget=4+rans:predict=map",
		"mxfp6+rans:predict=map",
		"ef+uniform:bits=4+rans:predict=map",
		"raw+rans:predict=map",
		"topk:ratio=0.5+uniform:bits=8+rans:predict=map",
		"hadamard:size=8+uniform:bits=6+rans:predict=map",
		"sortquant:bits=4,split=2+rans:predict=map",
		"kmeans:bits=3+rans:predict=map",
		"smaq+rans:predict=map",
		"qsgd:bits=4+rans:predict=map",
	};
	float *x = malloc(200000 * sizeof *x);
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (size_t k = 0; k < sizeof specs / sizeof specs[0]; k++) {
			for (int64_t e = 0; e < (int64_t)gp_shape_elements(&shapes[i]); e++)
				x[e] = (float)(e / 640 % 7) + bell[e % MOST] / 30;
			rans_rig_bytes(specs[k], &shapes[i], x);
		}
	free(x);
}

static void what_is_said_of_foretold_codes_is_checked(void **state)
{
	(void)state;
	enum { N = 16 * 16 * 8 };
	static const double predicts[] = {1, 0};
	static uint8_t in[N + 4], out[N + 64], back[N + 4];
	struct gp_err err;
	void *rans;
	const struct gp_codec_codes codes = {4, N, 8};
	size_t len;
	struct gp_codec_setup setup = {.shape = {.ndim = 4, .dim = {1, 16, 16, 8}},
				       .n = sizeof in,
				       .chunks = 1,
				       .encodes = true,
				       .decodes = true};
	for (int i = 0; i < N; i++)
		in[4 + i] = (uint8_t)(i / 8 % 16 * 3 + i / 128 * 5);
	assert_int_equal(gp_codec_rans.open(predicts, &setup, &rans, &err), GP_OK);
	gp_codec_rans.tell(rans, &codes, 1);
	assert_true(gp_codec_rans.squeeze(rans, &rans_rig_pass, (struct gp_span){in, sizeof in}, out, &len));
	assert_int_equal(out[0], 8);
	assert_int_equal(gp_get_u32(out + 1), 4);
	assert_int_equal(
		gp_codec_rans.expand(rans, &rans_rig_pass, (struct gp_span){out, len}, back, sizeof back, &err), GP_OK);
	assert_memory_equal(back, in, sizeof in);
	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(rans_rig_expand(rans, out, cut, back, sizeof back), GP_PROTO);
	out[1] = 5; /* their last byte would be behind the end */
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_PROTO);
	gp_put_u32(out + 1, UINT32_MAX);
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_PROTO);
	gp_put_u32(out + 1, 4);
	out[0] = 9;
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_PROTO);
	out[0] = 7; /* other codes, but codes */
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_OK);
	gp_codec_rans.close(rans);
	setup.shape = (struct gp_shape){.ndim = 2, .dim = {16, 128}};
	assert_int_equal(gp_codec_rans.open(predicts, &setup, &rans, &err), GP_OK);
	out[0] = 8;
	assert_int_equal(rans_rig_expand(rans, out, len, back, sizeof back), GP_PROTO);
	gp_codec_rans.close(rans);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_become_what_the_layout_says_and_come_back),
		cmocka_unit_test(maps_take_fewer_bits_where_pixels_are_like_their_neighbours),
		cmocka_unit_test(low_images_are_foretold_too),
		cmocka_unit_test(joined_codes_are_counted_together),
		cmocka_unit_test(whatever_is_no_map_comes_back_all_the_same),
		cmocka_unit_test(what_is_said_of_foretold_codes_is_checked),
	};
	return cmocka_run_group_tests(tests, make_noise, NULL);
}

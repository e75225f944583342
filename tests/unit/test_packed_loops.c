/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops that code blocks and pack in one go: the same scales, zero points, codes
 * and values as the portable ones, bit for bit, for every form, width and number of
 * elements; nothing but these bytes is written or read.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/rng.h"
#include "kernels/loops/mx_format.h"
#include "kernels/loops/packed_loops.h"
#include "kernels/loops/versions.h"

enum { MOST = 4096, NV_BITS = 4, MX_FORMS = GP_MX_FORMATS };

static const struct gp_packed_loops *const loops[] = GP_LOOP_VERSIONS(&gp_packed_loops);

/* What is coded: blocks of all magnitudes, ties, zeros of both signs, numbers too small to be normal. */
enum fill { NORMAL, TIES, SPREAD, TINY, ZEROS, POSITIVE, NOT_FINITE, FILLS };

static float element(enum fill fill, uint64_t i)
{
	const float v = gp_rng_normal(3, (uint64_t)fill, i);
	switch (fill) {
	case NORMAL:
		return v;
	case TIES:
		return rintf(4 * v) / 4;
	case SPREAD:
		return ldexpf(v, (int)(i / 16 % 61) - 30);
	case TINY:
		return ldexpf(rintf(8 * v), -149);
	case ZEROS:
		return i % 2 ? -0.0f : 0.0f;
	case POSITIVE:
		return i / 32 % 3 == 0 ? 0 : fabsf(v) + 3;
	case NOT_FINITE:
		return i % 997 == 5 ? (i % 2 ? NAN : INFINITY) : v;
	case FILLS:
		break;
	}
	return 0;
}

/* Exactly as many bytes as are asked for: what is beyond them is noticed under asan. */
static void *filled(size_t bytes, int byte)
{
	void *p = malloc(bytes ? bytes : 1);
	assert_non_null(p);
	return memset(p, byte, bytes);
}

/* Room with a border behind it, which `unbordered` checks and takes away. */
enum { BORDER = 64, BORDER_BYTE = 0xaa };

static void *bordered(size_t bytes)
{
	return filled(bytes + BORDER, BORDER_BYTE);
}

static void *unbordered(uint8_t *p, size_t bytes)
{
	for (size_t i = 0; i < BORDER; i++)
		assert_int_equal(p[bytes + i], BORDER_BYTE);
	p = realloc(p, bytes ? bytes : 1);
	assert_non_null(p);
	return p;
}

static float *elements(enum fill fill, size_t n)
{
	float *x = filled(n * sizeof *x, 0);
	for (size_t i = 0; i < n; i++)
		x[i] = element(fill, i);
	return x;
}

/* The unit that the codec `block` takes for a tensor with this largest reach. */
static void set_unit(struct gp_block_form *form, uint32_t reach)
{
	float most;
	memcpy(&most, &reach, sizeof most);
	int exponent = 0;
	frexpf(most / gp_block_top(form), &exponent);
	exponent = isfinite(most) && most > 0 ? exponent - 5 : 0;
	exponent = exponent < -100 ? -100 : exponent > 123 ? 123 : exponent;
	form->unit = ldexpf(1, exponent);
	form->by_unit = ldexpf(1, -exponent);
}

/* --- block ------------------------------------------------------------------------------------------------------ */

struct coded {
	uint32_t top;
	uint8_t *scales, *zeros, *packed;
	size_t scale_bytes, blocks, code_bytes;
};

static struct coded encoded(const struct gp_packed_loops *l, const struct gp_block_form *form, const float *x, size_t n)
{
	const size_t blocks = (n + form->size - 1) / form->size;
	struct coded c = {.scale_bytes = blocks * (form->e8m0 ? 1 : 2),
			  .blocks = form->asym ? blocks : 0,
			  .code_bytes = (n * (size_t)form->bits + 7) / 8};
	uint16_t *room = filled(n * sizeof *room, 0x55), *draws = filled(n * sizeof *draws, 0x39);
	c.scales = bordered(c.scale_bytes);
	c.zeros = bordered(c.blocks);
	c.packed = bordered(c.code_bytes);
	c.top = l->encode(form, x, n, draws, c.scales, c.zeros, room, c.packed);
	c.scales = unbordered(c.scales, c.scale_bytes);
	c.zeros = unbordered(c.zeros, c.blocks);
	c.packed = unbordered(c.packed, c.code_bytes);
	free(room);
	free(draws);
	return c;
}

static void free_coded(struct coded *c)
{
	free(c->scales);
	free(c->zeros);
	free(c->packed);
}

static bool decoded(const struct gp_packed_loops *l, const struct gp_block_form *form, const struct coded *c, size_t n,
		    float *y)
{
	uint16_t *room = filled(n * sizeof *room, 0x55);
	const bool fine = l->decode(form, c->scales, c->zeros, c->packed, room, n, y);
	free(room);
	return fine;
}

static void assert_same_codes(const struct coded *a, const struct coded *b)
{
	assert_int_equal(a->top, b->top);
	if (a->top >= 0x7f800000u)
		return;
	assert_memory_equal(a->scales, b->scales, a->scale_bytes);
	assert_memory_equal(a->zeros, b->zeros, a->blocks);
	assert_memory_equal(a->packed, b->packed, a->code_bytes);
}

static void check_block(const struct gp_packed_loops *l, const struct gp_block_form *form, const float *x, size_t n)
{
	float *y = filled(n * sizeof *y, 0), *z = filled(n * sizeof *z, 1);
	struct coded a = encoded(&gp_packed_loops_portable, form, x, n), b = encoded(l, form, x, n);
	assert_same_codes(&a, &b);
	if (a.top < 0x7f800000u) {
		assert_true(decoded(&gp_packed_loops_portable, form, &a, n, y));
		assert_true(decoded(l, form, &a, n, z));
		assert_memory_equal(y, z, n * sizeof *y);
	}
	free_coded(&a);
	free_coded(&b);
	free(y);
	free(z);
}

static struct gp_block_form form_of(int kind, int bits, size_t size)
{
	return (struct gp_block_form){.bits = bits,
				      .size = size,
				      .asym = kind & 1,
				      .e8m0 = kind & 2,
				      .mse = kind == 4,
				      .stochastic = kind == 5,
				      .unit = 1,
				      .by_unit = 1};
}

/* The form of each kind, width and size, over n elements. */
static void check_forms(const struct gp_packed_loops *l, enum fill fill, size_t size, size_t n)
{
	float *x = elements(fill, n);
	for (int bits = 2; bits <= 8; bits++)
		for (int kind = 0; kind < (size == 48 ? 6 : 4); kind++) {
			struct gp_block_form form = form_of(kind, bits, size);
			struct coded c = encoded(&gp_packed_loops_portable, &form, x, n);
			set_unit(&form, c.top);
			free_coded(&c);
			check_block(l, &form, x, n);
		}
	free(x);
}

static void blocks_are_coded_as_by_the_portable_loops(void **state)
{
	(void)state;
	static const size_t sizes[] = {16, 17, 32, 48, 64, 112, 128, 640, 1024};
	static const size_t counts[] = {1, 15, 16, 17, 63, 65, 128, 1000, 1024, 2048, 2065};
	for (enum gp_isa isa = GP_ISA_AVX2; isa <= gp_isa_best(); isa++)
		for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
			for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
				for (enum fill fill = NORMAL; fill < FILLS; fill++)
					check_forms(loops[isa], fill, sizes[s], counts[c]);
}

/* The lowest code has no level without a zero point, wherever it is. */
static void a_code_without_a_level_is_noticed_everywhere(void **state)
{
	(void)state;
	enum { N = 2048 + 37 };
	float y[N];
	for (enum gp_isa isa = GP_ISA_PORTABLE; isa <= gp_isa_best(); isa++)
		for (int bits = 2; bits <= 8; bits++)
			for (int asym = 0; asym < 2; asym++) {
				const struct gp_block_form form = form_of(asym, bits, 128);
				float *x = elements(NORMAL, N);
				struct coded c = encoded(&gp_packed_loops_portable, &form, x, N);
				assert_true(decoded(loops[isa], &form, &c, N, y));
				for (size_t i = 0; i < N; i += i < 2048 ? 1 + i % 7 : 1) {
					struct coded bad = c;
					bad.packed = filled(c.code_bytes, 0);
					memcpy(bad.packed, c.packed, c.code_bytes);
					for (size_t k = i * (size_t)bits; k < (i + 1) * (size_t)bits; k++)
						bad.packed[k / 8] &= (uint8_t) ~(1u << k % 8);
					assert_int_equal(decoded(loops[isa], &form, &bad, N, y), asym);
					free(bad.packed);
				}
				free_coded(&c);
				free(x);
			}
}

/* --- small floating-point numbers ------------------------------------------------------------------------------- */

/* The codes are those of nvfp4 where `whole` is above 0, else those of an MX format. */
static uint32_t small_encoded(const struct gp_packed_loops *l, enum gp_mx_format format, float whole, const float *x,
			      size_t n, uint8_t *scales, uint8_t *packed)
{
	uint16_t *room = filled(n * sizeof *room, 0x55);
	uint32_t top = 0;
	if (whole > 0)
		l->nv_encode(whole, x, n, scales, room, packed);
	else
		top = l->mx_encode(format, x, n, scales, room, packed);
	free(room);
	return top;
}

static bool small_decoded(const struct gp_packed_loops *l, enum gp_mx_format format, float whole, const uint8_t *scales,
			  const uint8_t *packed, size_t n, float *y)
{
	uint16_t *room = filled(n * sizeof *room, 0x55);
	bool fine = true;
	if (whole > 0)
		l->nv_decode(whole, scales, packed, room, n, y);
	else
		fine = l->mx_decode(format, scales, packed, room, n, y);
	free(room);
	return fine;
}

/* The scale that nvfp4 gives to a tensor. */
static float whole_of(enum fill fill, size_t n)
{
	float most = 0;
	for (size_t i = 0; i < n; i++)
		most = fmaxf(most, fabsf(element(fill, i)));
	return isfinite(most) ? fmaxf(most / (6 * 448), GP_NVFP4_LEAST) : 1;
}

static void check_small(const struct gp_packed_loops *l, enum gp_mx_format format, float whole, enum fill fill,
			size_t n)
{
	const size_t size = whole > 0 ? GP_NVFP4_BLOCK : GP_MX_BLOCK, blocks = (n + size - 1) / size;
	const size_t bytes = (n * (size_t)gp_mx_width(format) + 7) / 8;
	float *x = elements(fill, n), *y = filled(n * sizeof *y, 0), *z = filled(n * sizeof *z, 1);
	uint8_t *scales[2] = {bordered(blocks), bordered(blocks)}, *packed[2] = {bordered(bytes), bordered(bytes)};
	const uint32_t a = small_encoded(&gp_packed_loops_portable, format, whole, x, n, scales[0], packed[0]);
	const uint32_t b = small_encoded(l, format, whole, x, n, scales[1], packed[1]);
	assert_int_equal(a, b);
	for (int i = 0; i < 2; i++) {
		scales[i] = unbordered(scales[i], blocks);
		packed[i] = unbordered(packed[i], bytes);
	}
	if (a < 0x7f800000u && fill != NOT_FINITE) {
		assert_memory_equal(scales[0], scales[1], blocks);
		assert_memory_equal(packed[0], packed[1], bytes);
		assert_true(small_decoded(&gp_packed_loops_portable, format, whole, scales[0], packed[0], n, y));
		assert_true(small_decoded(l, format, whole, scales[0], packed[0], n, z));
		assert_memory_equal(y, z, n * sizeof *y);
	}
	for (int i = 0; i < 2; i++) {
		free(scales[i]);
		free(packed[i]);
	}
	free(x);
	free(y);
	free(z);
}

static void small_numbers_are_coded_as_by_the_portable_loops(void **state)
{
	(void)state;
	static const size_t counts[] = {1, 15, 16, 17, 31, 32, 33, 100, 255, 256, 300, 512, 513, 1000, 1024, 1500};
	for (enum gp_isa isa = GP_ISA_AVX2; isa <= gp_isa_best(); isa++)
		for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
			for (enum fill fill = NORMAL; fill < FILLS; fill++) {
				for (int format = 0; format < MX_FORMS; format++)
					check_small(loops[isa], (enum gp_mx_format)format, 0, fill, counts[c]);
				check_small(loops[isa], GP_MX_E2M1, whole_of(fill, counts[c]), fill, counts[c]);
			}
}

/* Every code under every scale, and each number between two neighbours of a format. */
static void every_small_number_has_its_value(void **state)
{
	(void)state;
	enum { N = 512 };
	for (enum gp_isa isa = GP_ISA_AVX2; isa <= gp_isa_best(); isa++)
		for (int f = 0; f < MX_FORMS; f++) {
			const enum gp_mx_format format = (enum gp_mx_format)f;
			const int width = gp_mx_width(format);
			uint8_t packed[N], scales[N / GP_MX_BLOCK];
			float y[N], z[N];
			for (size_t i = 0; i < sizeof packed; i++)
				packed[i] = (uint8_t)((i % 2 ? 0x80 : 0) |
						      (width < 8 ? i % 128 : i / 2 % (size_t)gp_mx_numbers(format)));
			for (int scale = 0; scale <= 254 - gp_mx_emax(format); scale++) {
				memset(scales, scale, sizeof scales);
				assert_true(small_decoded(&gp_packed_loops_portable, format, 0, scales, packed, N, y));
				assert_true(small_decoded(loops[isa], format, 0, scales, packed, N, z));
				assert_memory_equal(y, z, sizeof y);
			}
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_coded_as_by_the_portable_loops),
		cmocka_unit_test(a_code_without_a_level_is_noticed_everywhere),
		cmocka_unit_test(small_numbers_are_coded_as_by_the_portable_loops),
		cmocka_unit_test(every_small_number_has_its_value),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

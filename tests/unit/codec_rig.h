/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of single codecs share: a codec made from its text, a tensor sent
 * through it, tensors of golden files. Not a test by itself.
 */
#ifndef GP_TEST_CODEC_RIG_H
#define GP_TEST_CODEC_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

#include "common/codec/codec.h"
#include "common/store/safetensors.h"

#define GOLDEN "tests/golden/codec/"

/* |y - x| / |x|, Euclidean. */
static inline double relative_error(const float *x, const float *y, size_t n)
{
	double sum = 0, whole = 0;
	for (size_t i = 0; i < n; i++) {
		sum += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
		whole += (double)x[i] * (double)x[i];
	}
	return sqrt(sum / whole);
}

static inline struct gp_codec *shaped_codec(const char *text, const struct gp_shape *shape, uint64_t seed)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c = NULL;
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_new(&spec, shape, seed, &c, &err), GP_OK);
	return c;
}

/* For tensors of one dimension. */
static inline struct gp_codec *row_codec(const char *text, uint64_t n, uint64_t seed)
{
	const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)n}};
	return shaped_codec(text, &shape, seed);
}

/* From x to y. Returns the payload in a block of its own size, which the caller frees; its length to *len (optional). */
static inline uint8_t *roundtrip(const char *text, const float *x, uint64_t n, float *y, size_t *len)
{
	struct gp_err err = {0};
	size_t bytes;
	struct gp_codec *c = row_codec(text, n, 0);
	uint8_t *payload = malloc(gp_codec_bound(c));
	assert_int_equal(gp_codec_encode(c, x, 0, payload, gp_codec_bound(c), &bytes, &err), GP_OK);
	payload = realloc(payload, bytes);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, bytes}, y, &err), GP_OK);
	gp_codec_free(c);
	if (len)
		*len = bytes;
	return payload;
}

/* Caller frees. */
static inline float *read_tensor(const char *file, const char *name, struct gp_shape *shape)
{
	struct gp_err err = {0};
	struct gp_st_file *f;
	assert_int_equal(gp_st_open(file, &f, &err), GP_OK);
	const struct gp_st_tensor *t = gp_st_find(f, name);
	assert_non_null(t);
	float *x = malloc(t->count * sizeof *x);
	assert_int_equal(gp_st_read_f32(t, x, &err), GP_OK);
	*shape = t->shape;
	gp_st_close(f);
	return x;
}

/* Its elements alone. */
static inline float *read_floats(const char *file, const char *name, uint64_t *n)
{
	struct gp_shape shape;
	float *x = read_tensor(file, name, &shape);
	*n = gp_shape_elements(&shape);
	return x;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes. See shape.h. Test: tests/unit/test_shape.c
 */
#include "common/base/shape.h"

#include <string.h>

#include "common/base/mem.h"

/* `least`: what a dimension may be at least, 0 or 1. */
static enum gp_status count(const struct gp_shape *s, int64_t least, uint64_t limit, uint64_t *out, struct gp_err *err)
{
	if (s->ndim < 0 || s->ndim > GP_MAX_DIMS)
		GP_FAIL(err, GP_INVALID, "shape has %d dimensions; at most %d are possible", s->ndim, GP_MAX_DIMS);
	uint64_t n = 1;
	bool zero = false;
	for (int i = 0; i < s->ndim; i++) {
		if (s->dim[i] < least)
			GP_FAIL(err, GP_INVALID, "dimension %d of a shape is %lld; it must %s", i, (long long)s->dim[i],
				least ? "be positive" : "not be negative");
		zero |= s->dim[i] == 0;
		if (s->dim[i] > 0 && (!gp_mul_ok(n, (uint64_t)s->dim[i], &n) || n > limit))
			GP_FAIL(err, GP_INVALID, "a shape has more than the allowed %llu elements",
				(unsigned long long)limit);
	}
	*out = zero ? 0 : n;
	return GP_OK;
}

enum gp_status gp_shape_count(const struct gp_shape *s, uint64_t limit, uint64_t *out, struct gp_err *err)
{
	return count(s, 1, limit, out, err);
}

enum gp_status gp_shape_count_or_zero(const struct gp_shape *s, uint64_t limit, uint64_t *out, struct gp_err *err)
{
	return count(s, 0, limit, out, err);
}

uint64_t gp_shape_elements(const struct gp_shape *s)
{
	uint64_t n = 1;
	for (int i = 0; i < s->ndim; i++)
		n *= (uint64_t)s->dim[i];
	return n;
}

bool gp_shape_equal(const struct gp_shape *a, const struct gp_shape *b)
{
	return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof a->dim[0]) == 0;
}

struct gp_shape gp_shape_batched(const struct gp_shape *sample, int64_t batch)
{
	gp_require(sample->ndim < GP_MAX_DIMS);
	struct gp_shape s = {.ndim = sample->ndim + 1};
	s.dim[0] = batch;
	memcpy(s.dim + 1, sample->dim, (size_t)sample->ndim * sizeof s.dim[0]);
	return s;
}

/* A number without sign or leading zero; *end is what follows it. 0 when there is none. */
static int64_t parse_side(const char *text, const char **end)
{
	int64_t v = 0;
	const char *at = text;
	while (*at >= '0' && *at <= '9' && v <= GP_SHAPE_SIDE_MAX)
		v = 10 * v + (*at++ - '0');
	*end = at;
	return *text == '0' || v > GP_SHAPE_SIDE_MAX ? 0 : v;
}

bool gp_shape_parse_chw(const char *text, struct gp_shape *out)
{
	int64_t side[3];
	const char *at = text;
	for (int i = 0; i < 3; i++) {
		side[i] = parse_side(at, &at);
		if (side[i] == 0 || *at != (i < 2 ? 'x' : '\0'))
			return false;
		at++;
	}
	*out = (struct gp_shape){.ndim = 3, .dim = {side[1], side[2], side[0]}};
	return true;
}

const char *gp_shape_text(const struct gp_shape *s, char *text, size_t size)
{
	size_t used = 0;
	if (size)
		snprintf(text, size, "%s", s->ndim ? "" : "scalar");
	for (int i = 0; i < s->ndim && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "x" : "", (long long)s->dim[i]);
	return text;
}

size_t gp_dtype_bytes(enum gp_dtype dtype)
{
	static const size_t bytes[GP_DTYPES] = {[GP_F32] = sizeof(float), [GP_I32] = sizeof(int32_t)};
	gp_require((unsigned)dtype < GP_DTYPES);
	return bytes[dtype];
}

const char *gp_dtype_name(enum gp_dtype dtype)
{
	static const char *const names[GP_DTYPES] = {[GP_F32] = "f32", [GP_I32] = "i32"};
	return (unsigned)dtype < GP_DTYPES ? names[dtype] : "?";
}

bool gp_type_equal(const struct gp_type *a, const struct gp_type *b)
{
	return a->dtype == b->dtype && gp_shape_equal(&a->shape, &b->shape);
}

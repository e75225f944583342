/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes and element types. Tensors are dense. Activations lie in
 * memory as (N,H,W,C), (N,S,F) or (N,F): channels last, on every device and on
 * the wire. Parameters are exchanged in PyTorch's layouts (O,I/groups,KH,KW).
 *
 * Threads: any (pure functions). Test: tests/unit/test_graph.c
 */
#ifndef GP_SHAPE_H
#define GP_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define GP_MAX_DIMS       5
#define GP_SHAPE_SIDE_MAX 65536

struct gp_shape {
	int ndim; /* 0..GP_MAX_DIMS */
	int64_t dim[GP_MAX_DIMS];
};

/* What the elements of a tensor are. Wire ids: pinned, never reused. */
enum gp_dtype {
	GP_F32 = 0,
	GP_I32 = 1, /* two's complement: token ids, masks, lengths; has no gradient */
	GP_DTYPES
};

struct gp_type {
	enum gp_dtype dtype;
	struct gp_shape shape;
};

/* Bytes of one element: 4. */
size_t gp_dtype_bytes(enum gp_dtype dtype);
const char *gp_dtype_name(enum gp_dtype dtype); /* "f32"; "?" when out of range */
bool gp_type_equal(const struct gp_type *a, const struct gp_type *b);

/* Elements, or GP_INVALID when a dimension is < 1, ndim is out of range or the product passes `limit`. */
enum gp_status gp_shape_count(const struct gp_shape *s, uint64_t limit, uint64_t *count, struct gp_err *err);
/* The same where a dimension may be 0. `limit` then bounds the product of the other dimensions, so that no loop over
 * them takes long. */
enum gp_status gp_shape_count_or_zero(const struct gp_shape *s, uint64_t limit, uint64_t *count, struct gp_err *err);
/* Product of the dimensions of a shape already checked. */
uint64_t gp_shape_elements(const struct gp_shape *s);
bool gp_shape_equal(const struct gp_shape *a, const struct gp_shape *b);
/* `sample` with a batch dimension in front. */
struct gp_shape gp_shape_batched(const struct gp_shape *sample, int64_t batch);
/*
 * "CxHxW", channels first as users of PyTorch write it, to (H,W,C). False for anything but three numbers from 1 to
 * GP_SHAPE_SIDE_MAX; what is possible beyond that is the caller's to check.
 */
bool gp_shape_parse_chw(const char *text, struct gp_shape *out);
/* "8x112x112x32", or "scalar", into text[size]; returns text. */
const char *gp_shape_text(const struct gp_shape *s, char *text, size_t size);

#endif

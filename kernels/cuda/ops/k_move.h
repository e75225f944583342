/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of ops that compute nothing and move elements. Tensors are device
 * memory of `type`.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_ops.c
 */
#ifndef GP_K_MOVE_H
#define GP_K_MOVE_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out (count, columns, rows) is in (count, rows, columns), each matrix transposed. */
void gpk_transpose(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *in, int64_t count, int64_t rows,
		   int64_t columns);

/* `width` columns of `rows` rows from one matrix to another; strides are elements from row to row. from NULL: zeros. */
void gpk_copy_columns(struct gp_rt_stream *s, enum gp_rt_type type, void *to, int64_t to_stride, const void *from,
		      int64_t from_stride, int64_t rows, int64_t width);

/* Every stride-th pixel of (n,h,w,c), between channels of zeros: out (n, ceil(h/stride), ceil(w/stride), out_c). */
struct gpk_shortcut {
	int64_t n, h, w, c, out_c;
	int stride, before;
};
void gpk_shortcut_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *in,
			  const struct gpk_shortcut *g);
void gpk_shortcut_backward(struct gp_rt_stream *s, enum gp_rt_type type, void *dx, const void *dout,
			   const struct gpk_shortcut *g);

#ifdef __cplusplus
}
#endif
#endif

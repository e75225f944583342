/* SPDX-License-Identifier: Apache-2.0
 *
 * What rt.cu has for the files that call CUDA themselves: kernels' launches (gpk.h) and cuBLAS (blas.cu). Only for
 * nvcc's side.
 *
 * Threads: as rt.h has it for functions with a stream. Test: tests/unit/test_cuda_calls.cc
 */
#ifndef GP_NATIVE_H
#define GP_NATIVE_H

#include <cuda_runtime.h>

#include "kernels/cuda/runtime/rt.h"

extern "C" {

/* CUDA's own stream. The calling thread's device is the stream's from here on. */
cudaStream_t gp_rt_native(struct gp_rt_stream *s);
/* To be called after a launch: what was wrong with it is told by the next wait on the stream. */
void gp_rt_launched(struct gp_rt_stream *s);
/* The next wait on the stream says why, as GP_DEVICE; where several things fail, the first. */
void gp_rt_fail(struct gp_rt_stream *s, const char *why);

} // extern "C"
#endif

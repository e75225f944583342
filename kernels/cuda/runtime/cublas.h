/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of cuBLAS that blas.cu calls. The library is large, and
 * most processes of a CUDA build never need it (clients, servers on a CPU), so
 * it is opened when the first handle is made, not when the program starts.
 * Only included by nvcc's side.
 *
 * Threads: any; the library is opened once. Test: tests/unit/test_cuda_library.c
 */
#ifndef GP_CUBLAS_H
#define GP_CUBLAS_H

#include <cublas_v2.h>

#include "kernels/cuda/runtime/rt.h"

#define GP_CUBLAS_CALLS(X)                                                                                             \
	X(cublasCreate_v2)                                                                                             \
	X(cublasSetStream_v2)                                                                                          \
	X(cublasSetWorkspace_v2)                                                                                       \
	X(cublasGemmStridedBatchedEx_64)                                                                               \
	X(cublasGetStatusString)

struct gp_cublas {
#define X(name) decltype(&name) name##_p;
	GP_CUBLAS_CALLS(X)
#undef X
};

/*
 * Opens the library, once per process; any thread. *out is valid for ever. GP_DEVICE, at every call, when it is not
 * there or lacks a function: the text names the file and where to put it. $GP_CUBLAS names another file to open.
 */
enum gp_status gp_cublas_load(const struct gp_cublas **out, struct gp_err *err);

#endif

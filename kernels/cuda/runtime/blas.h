/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products on the device: cuBLAS (blas.cu), or oneDNN's sgemm on
 * the host in emulated builds (emulated_blas.cc), which OpenBLAS would add
 * nothing to. Matrices are row-major, as everywhere in this project.
 *
 * Threads: one thread at a time per handle. Queued on the handle's stream; may
 * be captured. Equal shapes and inputs give equal bits on one kind of device.
 * Test: tests/unit/test_cuda_rt.c
 */
#ifndef GP_BLAS_H
#define GP_BLAS_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "common/graph/device.h"

struct gp_blas;

/* Whether the library can be had, before any memory of a GPU is taken. GP_DEVICE: no, and where it was looked for. */
enum gp_status gp_blas_check(struct gp_err *err);
/* How fp32 operands are read: as they are, rounded to TF32 (10 bits behind the point), or to bf16. Sums are fp32. */
enum gp_status gp_blas_new(struct gp_rt_stream *s, enum gp_precision precision, struct gp_blas **out,
			   struct gp_err *err);
void gp_blas_free(struct gp_blas *b);
/* Bytes of device memory that a handle takes. */
uint64_t gp_blas_bytes(void);

struct gp_matrix {
	const void *data;
	enum gp_rt_type type;
	bool transposed; /* what is read is the transpose of what lies there */
	int64_t stride;  /* elements from row to row of what lies there */
	int64_t between; /* elements from one matrix of a batch to the next */
};

/*
 * c (m,n) = alpha * a (m,k) * b (k,n) + beta * c, `batch` times. a and b have one type; c's rows are `stride` apart;
 * c is not transposed, and its data is written. beta == 0: c is not read. m, n, k >= 1.
 */
void gp_blas_gemm(struct gp_blas *b, int64_t m, int64_t n, int64_t k, float alpha, const struct gp_matrix *a,
		  const struct gp_matrix *bm, float beta, const struct gp_matrix *c, int batch);

#ifdef __cplusplus
}
#endif
#endif

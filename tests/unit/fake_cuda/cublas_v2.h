/* SPDX-License-Identifier: Apache-2.0
 *
 * As much of cuBLAS as kernels/cuda/runtime/blas.cu calls. See cuda_runtime.h beside it.
 *
 * Threads: one. Test: tests/unit/test_cuda_calls.cc
 */
#ifndef GP_FAKE_CUBLAS_H
#define GP_FAKE_CUBLAS_H

#include <cuda_runtime.h>

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_EXECUTION_FAILED = 13 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_TF32 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT };
enum cudaDataType { CUDA_R_32F, CUDA_R_16BF };
struct fake_handle {
	cudaStream_t stream;
	void *workspace;
};
typedef struct fake_handle *cublasHandle_t;

/* The last one that was made. Handles are never freed. */
inline cublasHandle_t fake_newest;

inline cublasStatus_t fake_blas(const char *name)
{
	return fake.call(name) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
inline cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
	static fake_handle room[16];
	static int made;
	fake_newest = *handle = &room[made++];
	return fake_blas("cublasCreate_v2");
}
/* As the library does it: the workspace is its own again. */
inline cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
	handle->stream = stream;
	handle->workspace = NULL;
	return fake_blas("cublasSetStream_v2");
}
inline cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t)
{
	handle->workspace = workspace;
	return fake_blas("cublasSetWorkspace_v2");
}
inline cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t,
						    int64_t, int64_t, const void *, const void *, cudaDataType, int64_t,
						    long long, const void *, cudaDataType, int64_t, long long,
						    const void *, void *, cudaDataType, int64_t, long long, int64_t,
						    cublasComputeType_t, cublasGemmAlgo_t)
{
	return fake_blas("cublasGemmStridedBatchedEx_64");
}
inline const char *cublasGetStatusString(cublasStatus_t)
{
	return "the fake library failed";
}

#endif

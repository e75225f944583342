/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by cuBLAS. Its matrices are column-major: the row-major
 * product c = a b is asked for as c' = b' a'. See blas.h.
 */
#include "kernels/cuda/runtime/blas.h"

#include <stdlib.h>

#include <mutex>
#include <vector>

#include "kernels/cuda/runtime/cublas.h"
#include "kernels/cuda/runtime/native.h"
#include "kernels/cuda/runtime/rt_tally.h"

/* A fixed place: cuBLAS must neither allocate while a graph is captured nor choose other sums from run to run. */
#define WORKSPACE_BYTES (32u << 20)

struct gp_blas {
	const struct gp_cublas *lib;
	struct gp_rt_stream *stream;
	cublasHandle_t handle;
	cublasComputeType_t compute;
	void *workspace;
};

/*
 * cublasDestroy waits until the whole device is idle, for which a session that ends must not make others wait. So handles
 * are kept for the sessions to come: never more than were in use at once.
 */
struct idle_handle {
	int device;
	cublasHandle_t handle;
};

static std::mutex idle_lock;
static std::vector<struct idle_handle> idle_handles;

static bool take_idle(int device, cublasHandle_t *out)
{
	const std::lock_guard<std::mutex> hold(idle_lock);
	for (size_t i = 0; i < idle_handles.size(); i++)
		if (idle_handles[i].device == device) {
			*out = idle_handles[i].handle;
			idle_handles[i] = idle_handles.back();
			idle_handles.pop_back();
			return true;
		}
	return false;
}

/* Where cuBLAS shares this program's CUDA, what fails in it is also the thread's last error, and the next launch that is checked
 * would be blamed for it. */
static bool went_well(cublasStatus_t status)
{
	if (status != CUBLAS_STATUS_SUCCESS)
		cudaGetLastError();
	return status == CUBLAS_STATUS_SUCCESS;
}

/* It leaves its stream, which is about to go, and by that its workspace. One that cannot be kept is given up, not destroyed:
 * its device has failed, or destroying it would make all others wait. */
static void keep_idle(const struct gp_cublas *lib, int device, cublasHandle_t handle)
{
	if (!went_well(lib->cublasSetStream_v2_p(handle, NULL)))
		return;
	const std::lock_guard<std::mutex> hold(idle_lock);
	idle_handles.push_back({device, handle});
}

static cublasComputeType_t compute_of(enum gp_precision precision)
{
	switch (precision) {
	case GP_PRECISION_TF32:
		return CUBLAS_COMPUTE_32F_FAST_TF32;
	case GP_PRECISION_BF16:
		return CUBLAS_COMPUTE_32F_FAST_16BF;
	default:
		return CUBLAS_COMPUTE_32F;
	}
}

extern "C" {

uint64_t gp_blas_bytes(void)
{
	return WORKSPACE_BYTES;
}

enum gp_status gp_blas_check(struct gp_err *err)
{
	const struct gp_cublas *lib;
	return gp_cublas_load(&lib, err);
}

static enum gp_status setup(struct gp_blas *b, struct gp_err *err)
{
	GP_TRY(gp_cublas_load(&b->lib, err));
	GP_TRY(gp_rt_alloc(gp_rt_stream_device(b->stream), WORKSPACE_BYTES, &b->workspace, err));
	cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
	if (!take_idle(gp_rt_stream_device(b->stream), &b->handle))
		status = b->lib->cublasCreate_v2_p(&b->handle);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = b->lib->cublasSetStream_v2_p(b->handle, gp_rt_native(b->stream));
	if (status == CUBLAS_STATUS_SUCCESS)
		status = b->lib->cublasSetWorkspace_v2_p(b->handle, b->workspace, WORKSPACE_BYTES);
	if (!went_well(status))
		GP_FAIL(err, GP_DEVICE, "cuBLAS cannot be used: %s", b->lib->cublasGetStatusString_p(status));
	return GP_OK;
}

enum gp_status gp_blas_new(struct gp_rt_stream *s, enum gp_precision precision, struct gp_blas **out,
			   struct gp_err *err)
{
	gp_rt_native(s);
	struct gp_blas *b = (struct gp_blas *)calloc(1, sizeof *b);
	if (!b)
		GP_FAIL(err, GP_NOMEM, "out of memory for a matrix library's handle");
	b->stream = s;
	b->compute = compute_of(precision);
	const enum gp_status status = setup(b, err);
	if (status != GP_OK)
		gp_blas_free(b);
	else
		*out = b;
	return status;
}

void gp_blas_free(struct gp_blas *b)
{
	if (!b)
		return;
	if (b->handle)
		keep_idle(b->lib, gp_rt_stream_device(b->stream), b->handle);
	gp_rt_free(gp_rt_stream_device(b->stream), b->workspace);
	free(b);
}

static cudaDataType type_of(const struct gp_matrix *m)
{
	return m->type == GP_RT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Sums of bf16 operands are fp32 whatever the mode for fp32 operands. */
static cublasComputeType_t compute_for(const struct gp_blas *b, const struct gp_matrix *a)
{
	return a->type == GP_RT_BF16 ? CUBLAS_COMPUTE_32F : b->compute;
}

void gp_blas_gemm(struct gp_blas *b, int64_t m, int64_t n, int64_t k, float alpha, const struct gp_matrix *a,
		  const struct gp_matrix *bm, float beta, const struct gp_matrix *c, int batch)
{
	gp_rt_tally_note("product", 0);
	gp_rt_native(b->stream);
	const cublasStatus_t status = b->lib->cublasGemmStridedBatchedEx_64_p(
		b->handle, bm->transposed ? CUBLAS_OP_T : CUBLAS_OP_N, a->transposed ? CUBLAS_OP_T : CUBLAS_OP_N, n, m,
		k, &alpha, bm->data, type_of(bm), bm->stride, bm->between, a->data, type_of(a), a->stride, a->between,
		&beta, (void *)c->data, type_of(c), c->stride, c->between, batch, compute_for(b, a),
		CUBLAS_GEMM_DEFAULT);
	if (!went_well(status))
		gp_rt_fail(b->stream, b->lib->cublasGetStatusString_p(status));
}

} // extern "C"

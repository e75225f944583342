/* SPDX-License-Identifier: Apache-2.0
 *
 * As much of the CUDA runtime as kernels/cuda/runtime/{rt,blas}.cu call, without a card: calls do nothing, count, keep
 * the thread's last error as CUDA does, and fail when a test says so. Only for test_cuda_calls.cc, where it stands in
 * for the header of the same name.
 *
 * Threads: one. Test: tests/unit/test_cuda_calls.cc
 */
#ifndef GP_FAKE_CUDA_RUNTIME_H
#define GP_FAKE_CUDA_RUNTIME_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

/* The numbers are CUDA's own. */
enum cudaError_t {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInsufficientDriver = 35,
	cudaErrorDevicesUnavailable = 46,
	cudaErrorECCUncorrectable = 214,
	cudaErrorNvlinkUncorrectable = 220,
	cudaErrorIllegalAddress = 700,
	cudaErrorLaunchTimeout = 702,
	cudaErrorContextIsDestroyed = 709,
	cudaErrorAssert = 710,
	cudaErrorHardwareStackError = 714,
	cudaErrorIllegalInstruction = 715,
	cudaErrorMisalignedAddress = 716,
	cudaErrorInvalidAddressSpace = 717,
	cudaErrorInvalidPc = 718,
	cudaErrorLaunchFailure = 719,
	cudaErrorNotSupported = 801,
	cudaErrorMpsClientTerminated = 810,
	cudaErrorStreamCaptureInvalidated = 901,
	cudaErrorExternalDevice = 911,
	cudaErrorUnknown = 999
};

struct fake_stream {
	bool capturing;
};
typedef struct fake_stream *cudaStream_t;
typedef struct fake_event *cudaEvent_t;
typedef struct fake_graph *cudaGraph_t;
typedef struct fake_exec *cudaGraphExec_t;
typedef struct fake_pool *cudaMemPool_t;
struct cudaDeviceProp {
	char name[256];
	int multiProcessorCount, major, minor;
};
enum cudaMemAllocationType { cudaMemAllocationTypePinned };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone };
enum cudaMemLocationType { cudaMemLocationTypeDevice };
struct cudaMemPoolProps {
	cudaMemAllocationType allocType;
	cudaMemAllocationHandleType handleTypes;
	struct {
		cudaMemLocationType type;
		int id;
	} location;
};
enum cudaMemPoolAttr {
	cudaMemPoolAttrReleaseThreshold,
	cudaMemPoolAttrReservedMemCurrent,
	cudaMemPoolAttrUsedMemCurrent
};
enum cudaDeviceAttr { cudaDevAttrMemoryPoolsSupported };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum : unsigned {
	cudaDeviceScheduleBlockingSync,
	cudaInitDeviceFlagsAreValid,
	cudaHostAllocPortable,
	cudaStreamNonBlocking,
	cudaEventBlockingSync,
	cudaEventDisableTiming
};

/* What a test asks for, and what came of it. */
struct fake_cuda {
	struct failing {
		int from, times; /* the calls that fail: `times` of them from number `from` on, counted from 1 */
		cudaError_t with;
	};
	std::map<std::string, failing> fail;
	std::map<std::string, int> calls;
	cudaError_t last = cudaSuccess;

	cudaError_t call(const char *name)
	{
		const int nth = ++calls[name];
		const auto one = fail.find(name);
		if (one == fail.end() || nth < one->second.from || nth >= one->second.from + one->second.times)
			return cudaSuccess;
		return last = one->second.with;
	}
	/* From the next call on. */
	void let_fail(const char *name, cudaError_t with, int times = 1)
	{
		fail[name] = {calls[name] + 1, times, with};
	}
};
inline fake_cuda fake;

#define FAKE_CALL(name, parameters) /* one that has nothing to give back */                                            \
	inline cudaError_t name parameters                                                                             \
	{                                                                                                              \
		return fake.call(#name);                                                                               \
	}
#define FAKE_GIVES(name, parameters, out, value) /* one that sets *out where it does not fail */                       \
	inline cudaError_t name parameters                                                                             \
	{                                                                                                              \
		const cudaError_t e = fake.call(#name);                                                                \
		if (e == cudaSuccess)                                                                                  \
			*(out) = (value);                                                                              \
		return e;                                                                                              \
	}

inline cudaError_t cudaGetLastError()
{
	const cudaError_t e = fake.last;
	fake.last = cudaSuccess;
	return e;
}
inline const char *cudaGetErrorString(cudaError_t e)
{
	static char text[32];
	snprintf(text, sizeof text, "fake error %d", (int)e);
	return text;
}

FAKE_GIVES(cudaDriverGetVersion, (int *n), n, 13000)
FAKE_GIVES(cudaRuntimeGetVersion, (int *n), n, 13000)
FAKE_GIVES(cudaGetDeviceCount, (int *n), n, 2)
FAKE_GIVES(cudaGetDevice, (int *device), device, -1)
FAKE_CALL(cudaSetDevice, (int))
FAKE_CALL(cudaInitDevice, (int, unsigned, unsigned))
FAKE_GIVES(cudaGetDeviceProperties, (cudaDeviceProp * p, int), p, cudaDeviceProp{})
FAKE_GIVES(cudaDeviceGetAttribute, (int *value, cudaDeviceAttr, int), value, 1)
FAKE_GIVES(cudaDeviceGetStreamPriorityRange, (int *least, int *), least, 0)
FAKE_GIVES(cudaMemGetInfo, (size_t * left, size_t *all), left, *all = 1 << 30)

FAKE_GIVES(cudaMalloc, (void **p, size_t bytes), p, malloc(bytes))
inline cudaError_t cudaFree(void *p)
{
	free(p);
	return fake.call("cudaFree");
}
FAKE_GIVES(cudaHostAlloc, (void **p, size_t bytes, unsigned), p, malloc(bytes))
inline cudaError_t cudaFreeHost(void *p)
{
	free(p);
	return fake.call("cudaFreeHost");
}
FAKE_GIVES(cudaMemPoolCreate, (cudaMemPool_t * pool, const cudaMemPoolProps *), pool, (cudaMemPool_t)&fake)
FAKE_CALL(cudaMemPoolDestroy, (cudaMemPool_t))
FAKE_CALL(cudaMemPoolTrimTo, (cudaMemPool_t, size_t))
FAKE_CALL(cudaMemPoolSetAttribute, (cudaMemPool_t, cudaMemPoolAttr, void *))
FAKE_GIVES(cudaMemPoolGetAttribute, (cudaMemPool_t, cudaMemPoolAttr, void *value), (uint64_t *)value, 0)
FAKE_GIVES(cudaMallocFromPoolAsync, (void **p, size_t bytes, cudaMemPool_t, cudaStream_t), p, malloc(bytes))
inline cudaError_t cudaFreeAsync(void *p, cudaStream_t)
{
	free(p);
	return fake.call("cudaFreeAsync");
}

FAKE_GIVES(cudaStreamCreateWithFlags, (cudaStream_t * s, unsigned), s, new fake_stream())
FAKE_GIVES(cudaStreamCreateWithPriority, (cudaStream_t * s, unsigned, int), s, new fake_stream())
inline cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	delete s;
	return fake.call("cudaStreamDestroy");
}
FAKE_CALL(cudaStreamSynchronize, (cudaStream_t))
FAKE_CALL(cudaStreamWaitEvent, (cudaStream_t, cudaEvent_t, unsigned))
FAKE_CALL(cudaMemcpyAsync, (void *, const void *, size_t, cudaMemcpyKind, cudaStream_t))
FAKE_CALL(cudaMemsetAsync, (void *, int, size_t, cudaStream_t))
FAKE_GIVES(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned), event, (cudaEvent_t)&fake)
FAKE_CALL(cudaEventDestroy, (cudaEvent_t))
FAKE_CALL(cudaEventRecord, (cudaEvent_t, cudaStream_t))
FAKE_CALL(cudaEventSynchronize, (cudaEvent_t))
FAKE_GIVES(cudaEventElapsedTime, (float *ms, cudaEvent_t, cudaEvent_t), ms, 1)
inline cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
	const cudaError_t e = fake.call("cudaStreamBeginCapture");
	s->capturing = e == cudaSuccess;
	return e;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
	const cudaError_t e = fake.call("cudaStreamEndCapture");
	s->capturing = false;
	*graph = e == cudaSuccess ? (cudaGraph_t)&fake : NULL;
	return e;
}
FAKE_GIVES(cudaStreamIsCapturing, (cudaStream_t s, cudaStreamCaptureStatus *status), status,
	   s->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone)
FAKE_CALL(cudaGraphDestroy, (cudaGraph_t))
FAKE_GIVES(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t, unsigned), exec, (cudaGraphExec_t)&fake)
FAKE_CALL(cudaGraphLaunch, (cudaGraphExec_t, cudaStream_t))
FAKE_CALL(cudaGraphExecDestroy, (cudaGraphExec_t))

#endif

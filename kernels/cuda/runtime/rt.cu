/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA runtime behind rt.h.
 *
 * Every call of CUDA that fails leaves its error as the thread's last one, and a kernel's launch is judged by the
 * thread's last error. So whoever handles an error here, or can do nothing about it, also clears it: otherwise the next
 * launch of the thread, which may be another session's on another card, would be taken for the failed one.
 * Test: tests/unit/test_cuda_calls.cc
 */
#include <atomic>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/runtime/native.h"
#include "kernels/cuda/runtime/pinned_pool.h"
#include "kernels/cuda/runtime/rt_tally.h"

extern "C" {
#include "common/base/clock.h"
}

#define DEVICES_WATCHED  64
#define POOL_PROBE_BYTES 256

/* What was queued and not taken, the first of it. */
struct trouble {
	cudaError_t refused;
	char failure[64]; /* of what fails by another library's words: "" is none */
};

struct gp_rt_stream {
	int device;
	cudaStream_t native;
	uint32_t *tickets;
	struct trouble queued;   /* the next wait tells */
	struct trouble captured; /* while it was being captured: the end of the capture tells, and no wait */
};

struct gp_rt_event {
	int device;
	struct gp_rt_stream *on; /* where it was recorded; NULL: never */
	cudaEvent_t native;
};

struct gp_rt_graph {
	cudaGraphExec_t exec;
};

extern "C" {

/* Whether the call did what it should; what it said otherwise is not the thread's last error any more. */
static bool went_well(cudaError_t e)
{
	if (e != cudaSuccess)
		cudaGetLastError();
	return e == cudaSuccess;
}

/* For calls that give back or select: when they fail the card has failed, and the next wait tells that. */
static void expect_well(cudaError_t e)
{
	(void)went_well(e);
}

static void use(int device)
{
	int now = -1;
	if (!went_well(cudaGetDevice(&now)) || now != device)
		expect_well(cudaSetDevice(device));
}

cudaStream_t gp_rt_native(struct gp_rt_stream *s)
{
	use(s->device);
	return s->native;
}

static struct trouble *trouble_of(struct gp_rt_stream *s)
{
	cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	expect_well(cudaStreamIsCapturing(s->native, &status));
	return status == cudaStreamCaptureStatusNone ? &s->queued : &s->captured;
}

static void add_failure(struct trouble *t, const char *why)
{
	if (!t->failure[0])
		snprintf(t->failure, sizeof t->failure, "%s", why);
}

void gp_rt_fail(struct gp_rt_stream *s, const char *why)
{
	add_failure(trouble_of(s), why);
}

/*
 * What takes the whole process's use of a device with it, as cudaError_t; 0: nothing has. CUDA tells it to the thread that
 * waits, and then for every call; whoever places sessions asks from another thread.
 */
static std::atomic<int> lost[DEVICES_WATCHED];

/* Not known to every toolkit that compiles this. */
#define ERROR_CONTAINED          226 /* cudaErrorContained */
#define ERROR_TENSOR_MEMORY_LEAK 721 /* cudaErrorTensorMemoryLeak */

/* Those after which, says CUDA's manual, the process has to end before the device can be used again. */
static bool takes_the_device(cudaError_t e)
{
	switch ((int)e) {
	case cudaErrorIllegalAddress:
	case cudaErrorAssert:
	case cudaErrorExternalDevice:
	case ERROR_CONTAINED:
	case ERROR_TENSOR_MEMORY_LEAK:
	case cudaErrorLaunchFailure:
	case cudaErrorLaunchTimeout:
	case cudaErrorHardwareStackError:
	case cudaErrorIllegalInstruction:
	case cudaErrorMisalignedAddress:
	case cudaErrorInvalidAddressSpace:
	case cudaErrorInvalidPc:
	case cudaErrorECCUncorrectable:
	case cudaErrorNvlinkUncorrectable:
	case cudaErrorContextIsDestroyed:
	case cudaErrorDevicesUnavailable:
	case cudaErrorMpsClientTerminated:
	case cudaErrorUnknown:
		return true;
	default:
		return false;
	}
}

/* The thread's last error goes: the next wait on this thread may be another session's. */
static enum gp_status refuse(cudaError_t e, int device, const char *what, struct gp_err *err)
{
	const enum gp_status code = e == cudaErrorMemoryAllocation ? GP_NOMEM : GP_DEVICE;
	cudaGetLastError();
	if (takes_the_device(e) && device >= 0 && device < DEVICES_WATCHED)
		lost[device] = e;
	GP_FAIL(err, code, "GPU %d: %s: %s", device, what, cudaGetErrorString(e));
}

static void note(struct gp_rt_stream *s, cudaError_t e)
{
	if (e == cudaSuccess)
		return;
	cudaGetLastError();
	struct trouble *const t = trouble_of(s);
	if (t->refused == cudaSuccess)
		t->refused = e;
}

void gp_rt_launched(struct gp_rt_stream *s)
{
	note(s, cudaGetLastError());
}

/* CUDA has one word for a driver that is too old and for none at all. */
static enum gp_status refuse_driver(struct gp_err *err)
{
	int driver = 0, runtime = 0;
	expect_well(cudaDriverGetVersion(&driver));
	expect_well(cudaRuntimeGetVersion(&runtime));
	if (driver == 0)
		GP_FAIL(err, GP_DEVICE, "no GPU can be used: there is no driver (libcuda.so.1)");
	GP_FAIL(err, GP_DEVICE,
		"no GPU can be used: the driver is one for CUDA %d.%d, this program needs one for %d.0, which is "
		"driver %s "
		"or newer",
		driver / 1000, driver % 1000 / 10, runtime / 1000, runtime >= 13000 ? "580" : "525");
}

bool gp_rt_is_emulated(void)
{
	return false;
}

void gp_rt_one_memory(void)
{
}

int gp_rt_count(void)
{
	int n = 0;
	return went_well(cudaGetDeviceCount(&n)) ? n : 0;
}

enum gp_status gp_rt_open(int device, struct gp_rt_info *out, struct gp_err *err)
{
	int n = 0;
	cudaDeviceProp prop;
	size_t unused = 0, all = 0;
	cudaError_t e = cudaGetDeviceCount(&n);
	expect_well(e);
	if (e == cudaErrorInsufficientDriver)
		return refuse_driver(err);
	if (e != cudaSuccess)
		GP_FAIL(err, GP_DEVICE, "no GPU can be used: %s", cudaGetErrorString(e));
	if (device < 0 || device >= n)
		GP_FAIL(err, GP_DEVICE, "there is no GPU %d; there are %d", device, n);
	/* Who waits sleeps: spinning would take a core from the codecs. */
	if ((e = cudaInitDevice(device, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid)) != cudaSuccess ||
	    (e = cudaSetDevice(device)) != cudaSuccess || (e = cudaGetDeviceProperties(&prop, device)) != cudaSuccess ||
	    (e = cudaMemGetInfo(&unused, &all)) != cudaSuccess)
		return refuse(e, device, "cannot be used", err);
	memset(out, 0, sizeof *out);
	snprintf(out->name, sizeof out->name, "%s", prop.name);
	out->memory = all;
	out->free = unused;
	out->multiprocessors = prop.multiProcessorCount;
	out->major = prop.major;
	out->minor = prop.minor;
	return GP_OK;
}

enum gp_status gp_rt_check(int device, struct gp_err *err)
{
	const cudaError_t e = device >= 0 && device < DEVICES_WATCHED ? (cudaError_t)lost[device].load() : cudaSuccess;
	return e == cudaSuccess ? GP_OK : refuse(e, device, "failed", err);
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

/*
 * cudaFree waits until the whole device is idle: a session that ends would stall all others. So memory comes from a pool,
 * which keeps what it is given back for the next session, and lets go of it when nothing of it is in use. Nobody's work
 * is on its stream, and users have waited for theirs before they free: to wait for that stream takes no time.
 */
struct device_pool {
	std::once_flag once;
	cudaMemPool_t pool; /* NULL: the device has none */
	cudaStream_t stream;
};

static struct device_pool pools[DEVICES_WATCHED];

static cudaError_t take_from_pool(const struct device_pool *of, uint64_t bytes, void **out)
{
	cudaError_t e = cudaMallocFromPoolAsync(out, bytes, of->pool, of->stream);
	if (e == cudaSuccess)
		e = cudaStreamSynchronize(of->stream);
	expect_well(e);
	return e;
}

static void give_to_pool(const struct device_pool *of, void *p)
{
	if (went_well(cudaFreeAsync(p, of->stream)))
		expect_well(cudaStreamSynchronize(of->stream));
}

static bool create_pool(struct device_pool *of, int device)
{
	cudaMemPoolProps props = {};
	props.allocType = cudaMemAllocationTypePinned;
	props.handleTypes = cudaMemHandleTypeNone;
	props.location.type = cudaMemLocationTypeDevice;
	props.location.id = device;
	return went_well(cudaStreamCreateWithFlags(&of->stream, cudaStreamNonBlocking)) &&
	       went_well(cudaMemPoolCreate(&of->pool, &props));
}

/* Some virtual cards say that they have pools, make one, and then give nothing out of it. */
static bool gives_memory(const struct device_pool *of)
{
	void *p = NULL;
	if (take_from_pool(of, POOL_PROBE_BYTES, &p) != cudaSuccess)
		return false;
	give_to_pool(of, p);
	return true;
}

static void drop_pool(struct device_pool *of)
{
	if (of->pool)
		expect_well(cudaMemPoolDestroy(of->pool));
	if (of->stream)
		expect_well(cudaStreamDestroy(of->stream));
	of->pool = NULL;
	of->stream = NULL;
}

static void make_pool(struct device_pool *of, int device)
{
	int supported = 0;
	uint64_t keep = UINT64_MAX;
	expect_well(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device));
	if (!supported || !create_pool(of, device) || !gives_memory(of))
		drop_pool(of);
	else
		expect_well(cudaMemPoolSetAttribute(of->pool, cudaMemPoolAttrReleaseThreshold, &keep));
}

/* NULL: memory is taken and freed by cudaMalloc and cudaFree. */
static struct device_pool *pool_of(int device)
{
	if (device < 0 || device >= DEVICES_WATCHED)
		return NULL;
	struct device_pool *of = &pools[device];
	std::call_once(of->once, [=] { make_pool(of, device); });
	return of->pool ? of : NULL;
}

static uint64_t pool_attribute(const struct device_pool *of, cudaMemPoolAttr what)
{
	uint64_t bytes = 0;
	return went_well(cudaMemPoolGetAttribute(of->pool, what, &bytes)) ? bytes : 0;
}

/* Other threads take and give back at the same time. */
static uint64_t kept_bytes(const struct device_pool *of)
{
	const uint64_t used = pool_attribute(of, cudaMemPoolAttrUsedMemCurrent);
	const uint64_t all = pool_attribute(of, cudaMemPoolAttrReservedMemCurrent);
	return all > used ? all - used : 0;
}

enum gp_status gp_rt_memory(int device, uint64_t *total, uint64_t *unused, struct gp_err *err)
{
	size_t left = 0, all = 0;
	use(device);
	const struct device_pool *of = pool_of(device);
	const cudaError_t e = cudaMemGetInfo(&left, &all);
	if (e != cudaSuccess)
		return refuse(e, device, "cannot be used", err);
	*total = all;
	*unused = left;
	if (of)
		*unused += kept_bytes(of);
	return GP_OK;
}

enum gp_status gp_rt_alloc(int device, uint64_t bytes, void **out, struct gp_err *err)
{
	use(device);
	void *p = NULL;
	const struct device_pool *of = pool_of(device);
	cudaError_t e = of ? take_from_pool(of, bytes ? bytes : 1, &p) : cudaMalloc(&p, bytes ? bytes : 1);
	if (of && e == cudaErrorMemoryAllocation && went_well(cudaMemPoolTrimTo(of->pool, 0)))
		e = take_from_pool(of, bytes ? bytes : 1, &p); /* what was kept lay in the wrong pieces */
	if (e != cudaSuccess)
		return refuse(e, device, "no memory", err);
	*out = p;
	return GP_OK;
}

void gp_rt_free(int device, void *p)
{
	use(device);
	const struct device_pool *of = pool_of(device);
	if (!p)
		return;
	if (!of) {
		expect_well(cudaFree(p));
		return;
	}
	give_to_pool(of, p);
	if (pool_attribute(of, cudaMemPoolAttrUsedMemCurrent) == 0)
		expect_well(cudaMemPoolTrimTo(of->pool, 0));
}

/* Without what waits for others, if it does not go with it. */
static cudaError_t take_pinned(int device, uint64_t size, void **out)
{
	void *old;
	cudaError_t e = cudaHostAlloc(out, size, cudaHostAllocPortable);
	if (e != cudaErrorMemoryAllocation)
		return e;
	expect_well(e);
	while ((old = gp_pinned_any(device)))
		expect_well(cudaFreeHost(old));
	return cudaHostAlloc(out, size, cudaHostAllocPortable);
}

static bool is_lost(int device)
{
	return device >= 0 && device < DEVICES_WATCHED && lost[device].load() != cudaSuccess;
}

/* A block that others had is cleared: nothing of theirs may come out of a buffer that was not filled. */
enum gp_status gp_rt_alloc_pinned(int device, uint64_t bytes, void **out, struct gp_err *err)
{
	const uint64_t size = gp_pinned_bytes(bytes);
	void *p = gp_pinned_take(device, size);
	if (p) {
		*out = memset(p, 0, size);
		return GP_OK;
	}
	use(device);
	const cudaError_t e = take_pinned(device, size, &p);
	if (e != cudaSuccess)
		return refuse(e, device, "no pinned memory", err);
	if (!gp_pinned_add(device, p, size)) {
		expect_well(cudaFreeHost(p));
		GP_FAIL(err, GP_NOMEM, "out of memory for pinned memory");
	}
	*out = p;
	return GP_OK;
}

void gp_rt_free_pinned(int device, void *p)
{
	const uint64_t now = gp_now_ns();
	void *old;
	if (!p)
		return;
	use(device);
	if (!gp_pinned_keep(p, now))
		expect_well(cudaFreeHost(p));
	while ((old = is_lost(device) ? gp_pinned_any(device) : gp_pinned_old(-1, now)))
		expect_well(cudaFreeHost(old));
}

/* --- streams ---------------------------------------------------------------------------------------------------- */

/* What there is of it. */
static void free_stream(struct gp_rt_stream *s)
{
	gp_rt_free(s->device, s->tickets);
	if (s->native)
		expect_well(cudaStreamDestroy(s->native));
	free(s);
}

static enum gp_status give_tickets(struct gp_rt_stream *s, struct gp_err *err)
{
	const size_t bytes = GP_RT_TICKETS * sizeof *s->tickets;
	void *room;
	GP_TRY(gp_rt_alloc(s->device, bytes, &room, err));
	s->tickets = (uint32_t *)room;
	const cudaError_t e = cudaMemsetAsync(room, 0, bytes, s->native);
	return e == cudaSuccess ? GP_OK : refuse(e, s->device, "no stream", err);
}

enum gp_status gp_rt_stream_new(int device, bool urgent, struct gp_rt_stream **out, struct gp_err *err)
{
	use(device);
	int least = 0, greatest = 0;
	struct gp_rt_stream *s = (struct gp_rt_stream *)calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for a stream");
	s->device = device;
	expect_well(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	const cudaError_t e =
		cudaStreamCreateWithPriority(&s->native, cudaStreamNonBlocking, urgent ? greatest : least);
	const enum gp_status status = e == cudaSuccess ? give_tickets(s, err) : refuse(e, device, "no stream", err);
	if (status == GP_OK)
		*out = s;
	else
		free_stream(s);
	return status;
}

void gp_rt_stream_free(struct gp_rt_stream *s)
{
	if (!s)
		return;
	expect_well(cudaStreamSynchronize(gp_rt_native(s)));
	free_stream(s);
}

uint32_t *gp_rt_tickets(struct gp_rt_stream *s)
{
	return s->tickets;
}

int gp_rt_stream_device(const struct gp_rt_stream *s)
{
	return s->device;
}

/* What the wait said, or what was refused before it. All of it is told now: nothing is left for the next one. */
static enum gp_status told(int device, struct trouble *t, cudaError_t e, struct gp_err *err)
{
	const struct trouble before = *t;
	*t = {};
	if (e == cudaSuccess)
		e = before.refused;
	if (e != cudaSuccess)
		return refuse(e, device, "failed", err);
	if (before.failure[0])
		GP_FAIL(err, GP_DEVICE, "GPU %d: cuBLAS: %s", device, before.failure);
	return GP_OK;
}

enum gp_status gp_rt_stream_wait(struct gp_rt_stream *s, struct gp_err *err)
{
	return told(s->device, &s->queued, cudaStreamSynchronize(gp_rt_native(s)), err);
}

void gp_rt_copy_up(struct gp_rt_stream *s, void *device, const void *host, size_t bytes)
{
	gp_rt_tally_note("copy", 0);
	note(s, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, gp_rt_native(s)));
}

void gp_rt_copy_down(struct gp_rt_stream *s, void *host, const void *device, size_t bytes)
{
	gp_rt_tally_note("copy", 0);
	note(s, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, gp_rt_native(s)));
}

void gp_rt_copy(struct gp_rt_stream *s, void *to, const void *from, size_t bytes)
{
	gp_rt_tally_note("copy", 0);
	note(s, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, gp_rt_native(s)));
}

void gp_rt_fill(struct gp_rt_stream *s, void *p, int byte, size_t bytes)
{
	gp_rt_tally_note("fill", 0);
	note(s, cudaMemsetAsync(p, byte, bytes, gp_rt_native(s)));
}

/* --- events ----------------------------------------------------------------------------------------------------- */

static enum gp_status new_event(int device, unsigned flags, struct gp_rt_event **out, struct gp_err *err)
{
	use(device);
	struct gp_rt_event *e = (struct gp_rt_event *)calloc(1, sizeof *e);
	if (!e)
		GP_FAIL(err, GP_NOMEM, "out of memory for an event");
	e->device = device;
	/* Who waits sleeps: spinning would take a core from the codecs. */
	const cudaError_t status = cudaEventCreateWithFlags(&e->native, cudaEventBlockingSync | flags);
	if (status != cudaSuccess) {
		free(e);
		return refuse(status, device, "no event", err);
	}
	*out = e;
	return GP_OK;
}

enum gp_status gp_rt_event_new(int device, struct gp_rt_event **out, struct gp_err *err)
{
	return new_event(device, cudaEventDisableTiming, out, err);
}

enum gp_status gp_rt_event_new_timed(int device, struct gp_rt_event **out, struct gp_err *err)
{
	return new_event(device, 0, out, err);
}

void gp_rt_event_free(struct gp_rt_event *e)
{
	if (!e)
		return;
	use(e->device);
	expect_well(cudaEventDestroy(e->native));
	free(e);
}

void gp_rt_event_record(struct gp_rt_event *e, struct gp_rt_stream *s)
{
	note(s, cudaEventRecord(e->native, gp_rt_native(s)));
	e->on = s;
}

static void take_over(struct trouble *t, struct trouble *from)
{
	if (t->refused == cudaSuccess)
		t->refused = from->refused;
	add_failure(t, from->failure);
	*from = {};
}

static void take_over_failure(struct gp_rt_stream *s, struct gp_rt_stream *from)
{
	if (s == from)
		return;
	take_over(&s->queued, &from->queued);
	take_over(&s->captured, &from->captured);
}

void gp_rt_stream_after(struct gp_rt_stream *s, struct gp_rt_event *e)
{
	if (!e->on)
		return;
	note(s, cudaStreamWaitEvent(gp_rt_native(s), e->native, 0));
	take_over_failure(s, e->on);
}

enum gp_status gp_rt_event_wait(struct gp_rt_event *e, struct gp_err *err)
{
	use(e->device);
	return e->on ? told(e->device, &e->on->queued, cudaEventSynchronize(e->native), err)
		     : gp_rt_check(e->device, err);
}

enum gp_status gp_rt_event_ns(struct gp_rt_event *from, struct gp_rt_event *to, uint64_t *ns, struct gp_err *err)
{
	float ms = 0;
	use(from->device);
	const cudaError_t e = cudaEventElapsedTime(&ms, from->native, to->native);
	if (e != cudaSuccess)
		return refuse(e, from->device, "no time between two events", err);
	*ns = (uint64_t)(ms * 1e6);
	return GP_OK;
}

/* --- graphs ----------------------------------------------------------------------------------------------------- */

enum gp_status gp_rt_capture_begin(struct gp_rt_stream *s, struct gp_err *err)
{
	const cudaError_t e = cudaStreamBeginCapture(gp_rt_native(s), cudaStreamCaptureModeThreadLocal);
	return e == cudaSuccess ? GP_OK : refuse(e, s->device, "no graph", err);
}

enum gp_status gp_rt_capture_end(struct gp_rt_stream *s, struct gp_rt_graph **out, struct gp_err *err)
{
	cudaGraph_t graph = NULL;
	struct gp_rt_graph *g = (struct gp_rt_graph *)calloc(1, sizeof *g);
	cudaError_t e = cudaStreamEndCapture(gp_rt_native(s), &graph); /* in any case: the stream is one again */
	if (g && e == cudaSuccess)
		e = cudaGraphInstantiate(&g->exec, graph, 0);
	if (graph)
		expect_well(cudaGraphDestroy(graph));
	enum gp_status status = told(s->device, &s->captured, e, err);
	if (status == GP_OK && !g)
		status = gp_err_set(err, GP_NOMEM, 0, __FILE__, __LINE__, "out of memory for a graph");
	if (status != GP_OK)
		gp_rt_graph_free(g);
	else
		*out = g;
	return status;
}

void gp_rt_graph_launch(struct gp_rt_graph *g, struct gp_rt_stream *s)
{
	gp_rt_tally_note("graph", 0);
	note(s, cudaGraphLaunch(g->exec, gp_rt_native(s)));
}

void gp_rt_graph_free(struct gp_rt_graph *g)
{
	if (g && g->exec)
		expect_well(cudaGraphExecDestroy(g->exec));
	free(g);
}

} // extern "C"

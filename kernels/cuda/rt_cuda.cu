/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA runtime behind rt.h.
 */
#include "kernels/cuda/gpk.h"

#include <stdlib.h>
#include <string.h>

struct gp_rt_stream {
	int device;
	cudaStream_t native;
	char failure[64]; /* of what cannot fail by a CUDA error: "" is none */
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

static void use(int device)
{
	int now = -1;
	if (cudaGetDevice(&now) != cudaSuccess || now != device)
		cudaSetDevice(device);
}

cudaStream_t gp_rt_native(struct gp_rt_stream *s)
{
	use(s->device);
	return s->native;
}

void gp_rt_fail(struct gp_rt_stream *s, const char *why)
{
	if (!s->failure[0])
		snprintf(s->failure, sizeof s->failure, "%s", why);
}

static enum gp_status refuse(cudaError_t e, int device, const char *what, struct gp_err *err)
{
	const enum gp_status code = e == cudaErrorMemoryAllocation ? GP_NOMEM : GP_DEVICE;
	GP_FAIL(err, code, "GPU %d: %s: %s", device, what, cudaGetErrorString(e));
}

/* CUDA has one word for a driver that is too old and for none at all. */
static enum gp_status refuse_driver(struct gp_err *err)
{
	int driver = 0, runtime = 0;
	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	if (driver == 0)
		GP_FAIL(err, GP_DEVICE, "no GPU can be used: there is no driver (libcuda.so.1)");
	GP_FAIL(err, GP_DEVICE, "no GPU can be used: the driver is one for CUDA %d.%d, this program needs %d.%d",
		driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

bool gp_rt_is_emulated(void)
{
	return false;
}

int gp_rt_count(void)
{
	int n = 0;
	return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

enum gp_status gp_rt_open(int device, struct gp_rt_info *out, struct gp_err *err)
{
	int n = 0;
	cudaDeviceProp prop;
	size_t unused = 0, all = 0;
	cudaError_t e = cudaGetDeviceCount(&n);
	if (e == cudaErrorInsufficientDriver)
		return refuse_driver(err);
	if (e != cudaSuccess)
		GP_FAIL(err, GP_DEVICE, "no GPU can be used: %s", cudaGetErrorString(e));
	if (device < 0 || device >= n)
		GP_FAIL(err, GP_DEVICE, "there is no GPU %d; there are %d", device, n);
	if ((e = cudaSetDevice(device)) != cudaSuccess || (e = cudaGetDeviceProperties(&prop, device)) != cudaSuccess ||
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
	use(device);
	const cudaError_t e = cudaGetLastError();
	return e == cudaSuccess ? GP_OK : refuse(e, device, "failed", err);
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

enum gp_status gp_rt_alloc(int device, uint64_t bytes, void **out, struct gp_err *err)
{
	use(device);
	void *p = NULL;
	const cudaError_t e = cudaMalloc(&p, bytes ? bytes : 1);
	if (e != cudaSuccess) {
		cudaGetLastError(); /* not sticky: later work is fine */
		return refuse(e, device, "no memory", err);
	}
	*out = p;
	return GP_OK;
}

void gp_rt_free(int device, void *p)
{
	use(device);
	cudaFree(p);
}

enum gp_status gp_rt_alloc_pinned(int device, uint64_t bytes, void **out, struct gp_err *err)
{
	use(device);
	void *p = NULL;
	const cudaError_t e = cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocPortable);
	if (e != cudaSuccess) {
		cudaGetLastError();
		return refuse(e, device, "no pinned memory", err);
	}
	*out = p;
	return GP_OK;
}

void gp_rt_free_pinned(int device, void *p)
{
	use(device);
	cudaFreeHost(p);
}

/* --- streams ---------------------------------------------------------------------------------------------------- */

enum gp_status gp_rt_stream_new(int device, bool urgent, struct gp_rt_stream **out, struct gp_err *err)
{
	use(device);
	int least = 0, greatest = 0;
	struct gp_rt_stream *s = (struct gp_rt_stream *)calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for a stream");
	s->device = device;
	cudaDeviceGetStreamPriorityRange(&least, &greatest);
	const cudaError_t e =
		cudaStreamCreateWithPriority(&s->native, cudaStreamNonBlocking, urgent ? greatest : least);
	if (e != cudaSuccess) {
		free(s);
		return refuse(e, device, "no stream", err);
	}
	*out = s;
	return GP_OK;
}

void gp_rt_stream_free(struct gp_rt_stream *s)
{
	if (!s)
		return;
	cudaStreamSynchronize(gp_rt_native(s));
	cudaStreamDestroy(s->native);
	free(s);
}

int gp_rt_stream_device(const struct gp_rt_stream *s)
{
	return s->device;
}

/* A launch that was refused is told by cudaGetLastError alone. */
static enum gp_status told(struct gp_rt_stream *s, cudaError_t e, struct gp_err *err)
{
	const cudaError_t last = cudaGetLastError();
	if (e == cudaSuccess)
		e = last;
	if (e != cudaSuccess)
		return refuse(e, s->device, "failed", err);
	if (s->failure[0]) {
		gp_err_set(err, GP_DEVICE, 0, __FILE__, __LINE__, "GPU %d: cuBLAS: %s", s->device, s->failure);
		s->failure[0] = 0;
		return GP_DEVICE;
	}
	return GP_OK;
}

enum gp_status gp_rt_stream_wait(struct gp_rt_stream *s, struct gp_err *err)
{
	return told(s, cudaStreamSynchronize(gp_rt_native(s)), err);
}

void gp_rt_copy_up(struct gp_rt_stream *s, void *device, const void *host, size_t bytes)
{
	cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, gp_rt_native(s));
}

void gp_rt_copy_down(struct gp_rt_stream *s, void *host, const void *device, size_t bytes)
{
	cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, gp_rt_native(s));
}

void gp_rt_copy(struct gp_rt_stream *s, void *to, const void *from, size_t bytes)
{
	cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, gp_rt_native(s));
}

void gp_rt_fill(struct gp_rt_stream *s, void *p, int byte, size_t bytes)
{
	cudaMemsetAsync(p, byte, bytes, gp_rt_native(s));
}

/* --- events ----------------------------------------------------------------------------------------------------- */

enum gp_status gp_rt_event_new(int device, struct gp_rt_event **out, struct gp_err *err)
{
	use(device);
	struct gp_rt_event *e = (struct gp_rt_event *)calloc(1, sizeof *e);
	if (!e)
		GP_FAIL(err, GP_NOMEM, "out of memory for an event");
	e->device = device;
	/* Who waits sleeps: spinning would take a core from the codecs. */
	const cudaError_t status = cudaEventCreateWithFlags(&e->native, cudaEventBlockingSync);
	if (status != cudaSuccess) {
		free(e);
		return refuse(status, device, "no event", err);
	}
	*out = e;
	return GP_OK;
}

void gp_rt_event_free(struct gp_rt_event *e)
{
	if (!e)
		return;
	use(e->device);
	cudaEventDestroy(e->native);
	free(e);
}

void gp_rt_event_record(struct gp_rt_event *e, struct gp_rt_stream *s)
{
	cudaEventRecord(e->native, gp_rt_native(s));
	e->on = s;
}

void gp_rt_stream_after(struct gp_rt_stream *s, struct gp_rt_event *e)
{
	if (e->on)
		cudaStreamWaitEvent(gp_rt_native(s), e->native, 0);
}

enum gp_status gp_rt_event_wait(struct gp_rt_event *e, struct gp_err *err)
{
	use(e->device);
	return e->on ? told(e->on, cudaEventSynchronize(e->native), err) : gp_rt_check(e->device, err);
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
	if (!g)
		GP_FAIL(err, GP_NOMEM, "out of memory for a graph");
	cudaError_t e = cudaStreamEndCapture(gp_rt_native(s), &graph);
	if (e == cudaSuccess)
		e = cudaGraphInstantiate(&g->exec, graph, 0);
	if (graph)
		cudaGraphDestroy(graph);
	enum gp_status status = told(s, e, err);
	if (status != GP_OK)
		gp_rt_graph_free(g);
	else
		*out = g;
	return status;
}

void gp_rt_graph_launch(struct gp_rt_graph *g, struct gp_rt_stream *s)
{
	cudaGraphLaunch(g->exec, gp_rt_native(s));
}

void gp_rt_graph_free(struct gp_rt_graph *g)
{
	if (g && g->exec)
		cudaGraphExecDestroy(g->exec);
	free(g);
}

} // extern "C"

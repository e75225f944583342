/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime of emulated builds. A stream is a list of work that runs when
 * somebody waits for it: host memory that is read without a wait holds what it
 * held before, device memory that is used without the right event is stale,
 * and tests see it. A graph is such a list, run from its launch.
 *
 * One lock covers all of it: one emulated GPU, one thing at a time.
 * GP_FAULT=device:N (fault.h) makes the Nth piece of work fail, as a card would.
 * Test: tests/unit/test_cuda_rt.c
 */
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "kernels/cuda/gpk.h"

extern "C" {
#include "common/fault.h"
#include "common/mem.h"
#include "common/account.h"
}

#define EMULATED_DEVICES 2
#define EMULATED_MEMORY  (uint64_t(4) << 30)

namespace
{

std::recursive_mutex gpu;
uint64_t taken[EMULATED_DEVICES];

typedef std::vector<std::function<void()>> work_list;

struct block_of_memory {
	uint64_t bytes;
	unsigned char pad[248]; /* keeps what follows aligned to 256 bytes */
};
static_assert(sizeof(block_of_memory) == 256, "device memory is aligned to 256 bytes");

enum gp_status check_device(int device, struct gp_err *err)
{
	if (device < 0 || device >= EMULATED_DEVICES)
		GP_FAIL(err, GP_DEVICE, "there is no emulated GPU %d; there are 0..%d", device, EMULATED_DEVICES - 1);
	return GP_OK;
}

} // namespace

struct gp_rt_stream {
	int device;
	bool failed;
	std::deque<std::function<void()>> queued;
	uint64_t count, done; /* pieces of work ever queued, ever run */
	std::shared_ptr<work_list> capture;

	void run_to(uint64_t until)
	{
		while (done < until && !queued.empty()) {
			std::function<void()> work = std::move(queued.front());
			queued.pop_front();
			done++;
			work();
		}
	}
};

struct gp_rt_event {
	int device;
	struct gp_rt_stream *stream; /* NULL: never recorded */
	uint64_t at;
	std::shared_ptr<uint64_t> ns = std::make_shared<uint64_t>(0);
};

struct gp_rt_graph {
	std::shared_ptr<work_list> work;
};

extern "C" {

bool gp_rt_is_emulated(void)
{
	return true;
}

int gp_rt_count(void)
{
	return EMULATED_DEVICES;
}

enum gp_status gp_rt_open(int device, struct gp_rt_info *out, struct gp_err *err)
{
	GP_TRY(check_device(device, err));
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	*out = {};
	strcpy(out->name, "emulated on the CPU");
	out->memory = EMULATED_MEMORY;
	out->free = EMULATED_MEMORY - taken[device];
	out->multiprocessors = 1;
	out->emulated = true;
	return GP_OK;
}

enum gp_status gp_rt_check(int device, struct gp_err *err)
{
	return check_device(device, err);
}

enum gp_status gp_rt_memory(int device, uint64_t *total, uint64_t *unused, struct gp_err *err)
{
	GP_TRY(check_device(device, err));
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	*total = EMULATED_MEMORY;
	*unused = EMULATED_MEMORY - taken[device];
	return GP_OK;
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

enum gp_status gp_rt_alloc(int device, uint64_t bytes, void **out, struct gp_err *err)
{
	GP_TRY(check_device(device, err));
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	if (bytes > EMULATED_MEMORY - taken[device] || gp_fault_hit(GP_FAULT_ALLOC))
		GP_FAIL(err, GP_NOMEM, "emulated GPU %d is out of memory: %llu bytes wanted, %llu free", device,
			(unsigned long long)bytes, (unsigned long long)(EMULATED_MEMORY - taken[device]));
	/* Not a byte more than asked for: a sanitizer sees kernels that go past the end. */
	void *p = nullptr;
	if (posix_memalign(&p, 256, sizeof(block_of_memory) + bytes) != 0)
		GP_FAIL(err, GP_NOMEM, "out of memory for %llu bytes of an emulated GPU", (unsigned long long)bytes);
	static_cast<block_of_memory *>(p)->bytes = bytes;
	taken[device] += bytes;
	*out = static_cast<block_of_memory *>(p) + 1;
	memset(*out, 0xa5, bytes); /* what nobody wrote must not matter */
	return GP_OK;
}

void gp_rt_free(int device, void *p)
{
	if (!p)
		return;
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	block_of_memory *block = static_cast<block_of_memory *>(p) - 1;
	taken[device] -= block->bytes;
	free(block);
}

enum gp_status gp_rt_alloc_pinned(int device, uint64_t bytes, void **out, struct gp_err *err)
{
	GP_TRY(check_device(device, err));
	void *p = gp_alloc_aligned(bytes);
	if (!p)
		GP_FAIL(err, GP_NOMEM, "out of memory for %llu bytes", (unsigned long long)bytes);
	*out = p;
	return GP_OK;
}

void gp_rt_free_pinned(int device, void *p)
{
	(void)device;
	gp_free_aligned(p);
}

/* --- streams ---------------------------------------------------------------------------------------------------- */

enum gp_status gp_rt_stream_new(int device, bool urgent, struct gp_rt_stream **out, struct gp_err *err)
{
	(void)urgent;
	GP_TRY(check_device(device, err));
	gp_rt_stream *s = new (std::nothrow) gp_rt_stream();
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for a stream");
	s->device = device;
	*out = s;
	return GP_OK;
}

void gp_rt_stream_free(struct gp_rt_stream *s)
{
	if (!s)
		return;
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	s->run_to(s->count);
	delete s;
}

int gp_rt_stream_device(const struct gp_rt_stream *s)
{
	return s->device;
}

static enum gp_status report(struct gp_rt_stream *s, struct gp_err *err)
{
	if (!s->failed)
		return GP_OK;
	s->failed = false;
	GP_FAIL(err, GP_DEVICE, "emulated GPU %d failed (GP_FAULT)", s->device);
}

enum gp_status gp_rt_stream_wait(struct gp_rt_stream *s, struct gp_err *err)
{
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	s->run_to(s->count);
	return report(s, err);
}

void gp_rt_copy(struct gp_rt_stream *s, void *to, const void *from, size_t bytes)
{
	if (bytes)
		gpk_emulated_queue(s, [=] { memcpy(to, from, bytes); });
}

void gp_rt_copy_up(struct gp_rt_stream *s, void *device, const void *host, size_t bytes)
{
	gp_rt_copy(s, device, host, bytes);
}

void gp_rt_copy_down(struct gp_rt_stream *s, void *host, const void *device, size_t bytes)
{
	gp_rt_copy(s, host, device, bytes);
}

void gp_rt_fill(struct gp_rt_stream *s, void *p, int byte, size_t bytes)
{
	gpk_emulated_queue(s, [=] { memset(p, byte, bytes); });
}

/* --- events ----------------------------------------------------------------------------------------------------- */

enum gp_status gp_rt_event_new(int device, struct gp_rt_event **out, struct gp_err *err)
{
	GP_TRY(check_device(device, err));
	gp_rt_event *e = new (std::nothrow) gp_rt_event();
	if (!e)
		GP_FAIL(err, GP_NOMEM, "out of memory for an event");
	e->device = device;
	*out = e;
	return GP_OK;
}

void gp_rt_event_free(struct gp_rt_event *e)
{
	delete e;
}

void gp_rt_event_record(struct gp_rt_event *e, struct gp_rt_stream *s)
{
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	std::shared_ptr<uint64_t> ns = e->ns;
	gpk_emulated_queue(s, [ns] { *ns = gp_now_ns(); });
	e->stream = s;
	e->at = s->count;
}

void gp_rt_stream_after(struct gp_rt_stream *s, struct gp_rt_event *e)
{
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	gp_rt_stream *const other = e->stream;
	const uint64_t at = e->at;
	if (other)
		gpk_emulated_queue(s, [other, at] { other->run_to(at); });
}

enum gp_status gp_rt_event_wait(struct gp_rt_event *e, struct gp_err *err)
{
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	if (!e->stream)
		return GP_OK;
	e->stream->run_to(e->at);
	return report(e->stream, err);
}

enum gp_status gp_rt_event_ns(struct gp_rt_event *from, struct gp_rt_event *to, uint64_t *ns, struct gp_err *err)
{
	if (!*from->ns || !*to->ns)
		GP_FAIL(err, GP_INTERNAL, "the time between two events that have not happened");
	*ns = *to->ns - *from->ns;
	return GP_OK;
}

/* --- graphs ----------------------------------------------------------------------------------------------------- */

enum gp_status gp_rt_capture_begin(struct gp_rt_stream *s, struct gp_err *err)
{
	if (s->capture)
		GP_FAIL(err, GP_INTERNAL, "a stream is being captured already");
	s->capture = std::make_shared<work_list>();
	return GP_OK;
}

enum gp_status gp_rt_capture_end(struct gp_rt_stream *s, struct gp_rt_graph **out, struct gp_err *err)
{
	gp_rt_graph *g = new (std::nothrow) gp_rt_graph();
	if (!g)
		GP_FAIL(err, GP_NOMEM, "out of memory for a graph");
	g->work = std::move(s->capture);
	s->capture = nullptr;
	*out = g;
	return GP_OK;
}

/* The work may outlive the graph. */
void gp_rt_graph_launch(struct gp_rt_graph *g, struct gp_rt_stream *s)
{
	std::shared_ptr<work_list> work = g->work;
	gpk_emulated_queue(s, [work] {
		for (const std::function<void()> &one : *work)
			one();
	});
}

void gp_rt_graph_free(struct gp_rt_graph *g)
{
	delete g;
}

} // extern "C"

void gpk_emulated_queue(struct gp_rt_stream *s, std::function<void()> work)
{
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	if (s->capture) {
		s->capture->push_back(std::move(work));
		return;
	}
	if (gp_fault_hit(GP_FAULT_DEVICE)) {
		s->failed = true;
		return;
	}
	s->queued.push_back(std::move(work));
	s->count++;
}

void gpk_emulated_launch(struct gp_rt_stream *s, dim3 grid, dim3 block, size_t shared, std::function<void()> body)
{
	gpk_emulated_queue(s, [=] { gpk_emulated_run(grid, block, shared, body); });
}

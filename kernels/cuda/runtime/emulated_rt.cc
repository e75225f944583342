/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime of emulated builds. A stream is a list of work that runs when
 * somebody waits for it: host memory that is read without a wait holds what it
 * held before, device memory that is used without the right event is stale,
 * and tests see it. A graph is such a list for each stream that was captured;
 * every launch queues them again.
 *
 * So streams run as far apart as events let them. With GP_EMULATE_STREAMS=together
 * in the environment they run as close as they may: whenever one does a piece of
 * work, so does every other; what two do to the same memory then mixes.
 *
 * One lock covers all of it: one emulated GPU, one thing at a time.
 * GP_FAULT=device:N (fault.h) makes the Nth piece of work fail, as a card would; product:N the Nth matrix product, also
 * within a capture, as cuBLAS would. GP_EMULATE_CARD=1: emulate.h.
 * Test: tests/unit/test_cuda_rt.c
 */
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "kernels/cuda/runtime/gpk.h"
#include "kernels/cuda/emulator/emulated_checks.h"

extern "C" {
#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/mem.h"
}

#define EMULATED_DEVICES 2
#define EMULATED_MEMORY  (uint64_t(4) << 30)
#define ABSURD           (uint64_t(1) << 47) /* bytes that a card may refuse as an argument that makes no sense */

namespace
{

std::recursive_mutex gpu;
uint64_t taken[EMULATED_DEVICES];

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

/* A piece of work, or with `after` the wait until that stream has done `at` of its own. */
struct piece {
	std::function<void()> work;
	struct gp_rt_stream *after = nullptr;
	uint64_t at = 0;
	std::shared_ptr<struct gp_rt_stream> kept = nullptr; /* `after`, where a graph owns it */
	int branch = -1;                                     /* in a graph: `after` is this branch's stream */
};

/* What is captured: branch 0 of the stream that began, one more for each that waited for something of it. */
struct captured {
	std::vector<std::vector<piece>> branch;
	std::vector<struct gp_rt_stream *> stream;
	bool invalid = false, failed = false, ended = false;
};

std::vector<struct gp_rt_stream *> streams;

} // namespace

struct gp_rt_stream {
	int device;
	bool failed = false, waits = false; /* waits: its first piece has been taken, and is not done */
	std::deque<piece> queued;
	uint64_t count = 0, done = 0; /* pieces ever queued, ever done */
	std::shared_ptr<captured> capture;
	int branch = 0; /* of the capture */
	uint32_t tickets[GP_RT_TICKETS] = {};

	explicit gp_rt_stream(int on) : device(on)
	{
		streams.push_back(this);
		gpk_memory_born(device, tickets, sizeof tickets);
	}
	~gp_rt_stream()
	{
		gpk_memory_dead(device, tickets);
		streams.erase(std::find(streams.begin(), streams.end(), this));
	}
	void push(piece one)
	{
		queued.push_back(std::move(one));
		count++;
	}
	void run_one();
	void run_to(uint64_t until);
	bool may_run() const
	{
		return !waits && !queued.empty() &&
		       (!queued.front().after || queued.front().after->done >= queued.front().at);
	}
};

struct gp_rt_event {
	int device;
	bool timed;
	struct gp_rt_stream *stream; /* NULL: never recorded */
	uint64_t at;
	std::shared_ptr<captured> capture; /* recorded in one: `at` is a place in its `branch` */
	int branch;
	std::shared_ptr<uint64_t> ns = std::make_shared<uint64_t>(0);
};

struct gp_rt_graph {
	std::shared_ptr<captured> work;
	std::vector<std::shared_ptr<struct gp_rt_stream>> side; /* of the branches behind the first */
};

/* Waits go in circles never: what a piece waits for was queued before it. */
void gp_rt_stream::run_one()
{
	const piece one = std::move(queued.front());
	queued.pop_front();
	waits = true;
	if (one.after)
		one.after->run_to(one.at);
	else
		one.work();
	waits = false;
	done++;
}

static bool run_together(void)
{
	static const char *const how = getenv("GP_EMULATE_STREAMS");
	return how && strcmp(how, "together") == 0;
}

void gp_rt_stream::run_to(uint64_t until)
{
	while (done < until && !queued.empty() && !waits) {
		run_one();
		if (!run_together())
			continue;
		for (gp_rt_stream *other : streams)
			if (other != this && other->may_run())
				other->run_one();
	}
}

extern "C" {

bool gp_rt_is_emulated(void)
{
	return true;
}

void gp_rt_one_memory(void)
{
	gpk_memory_is_one();
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

/* Other programs take and give while somebody asks. */
static uint64_t taken_by_others(void)
{
	static uint64_t asked;
	return gpk_emulates_card() ? (++asked % 3) * 256 : 0;
}

enum gp_status gp_rt_memory(int device, uint64_t *total, uint64_t *unused, struct gp_err *err)
{
	GP_TRY(check_device(device, err));
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	*total = EMULATED_MEMORY;
	*unused = EMULATED_MEMORY - taken[device];
	*unused -= std::min(*unused, taken_by_others());
	return GP_OK;
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

enum gp_status gp_rt_alloc(int device, uint64_t bytes, void **out, struct gp_err *err)
{
	GP_TRY(check_device(device, err));
	gpk_require_no_capture("gp_rt_alloc");
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	if (gpk_emulates_card() && bytes >= ABSURD)
		GP_FAIL(err, GP_DEVICE, "emulated GPU %d: %llu bytes are more than any card has", device,
			(unsigned long long)bytes);
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
	memset(*out, GPK_UNWRITTEN, bytes);
	gpk_memory_born(device, *out, bytes);
	return GP_OK;
}

void gp_rt_free(int device, void *p)
{
	if (!p)
		return;
	gpk_require_no_capture("gp_rt_free");
	gpk_memory_dead(device, p);
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	block_of_memory *block = static_cast<block_of_memory *>(p) - 1;
	taken[device] -= block->bytes;
	free(block);
}

enum gp_status gp_rt_alloc_pinned(int device, uint64_t bytes, void **out, struct gp_err *err)
{
	GP_TRY(check_device(device, err));
	gpk_require_no_capture("gp_rt_alloc_pinned");
	void *p = gp_alloc_aligned(bytes);
	if (!p)
		GP_FAIL(err, GP_NOMEM, "out of memory for %llu bytes", (unsigned long long)bytes);
	memset(p, GPK_UNWRITTEN, bytes);
	gpk_memory_born(GPK_PINNED, p, bytes);
	*out = p;
	return GP_OK;
}

void gp_rt_free_pinned(int device, void *p)
{
	(void)device;
	if (!p)
		return;
	gpk_require_no_capture("gp_rt_free_pinned");
	gpk_memory_dead(GPK_PINNED, p);
	gp_free_aligned(p);
}

/* --- streams ---------------------------------------------------------------------------------------------------- */

enum gp_status gp_rt_stream_new(int device, bool urgent, struct gp_rt_stream **out, struct gp_err *err)
{
	(void)urgent;
	GP_TRY(check_device(device, err));
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	gp_rt_stream *s = new (std::nothrow) gp_rt_stream(device);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for a stream");
	*out = s;
	return GP_OK;
}

void gp_rt_stream_free(struct gp_rt_stream *s)
{
	if (!s)
		return;
	gpk_require_no_capture("gp_rt_stream_free");
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	s->run_to(s->count);
	delete s;
}

uint32_t *gp_rt_tickets(struct gp_rt_stream *s)
{
	return s->tickets;
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
	gpk_require_no_capture("gp_rt_stream_wait");
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	s->run_to(s->count);
	return report(s, err);
}

static void queue_copy(struct gp_rt_stream *s, void *to, const void *from, size_t bytes)
{
	gp_rt_tally_note("copy", 0);
	if (bytes)
		gpk_emulated_queue(s, [=] { memcpy(to, from, bytes); });
}

void gp_rt_copy(struct gp_rt_stream *s, void *to, const void *from, size_t bytes)
{
	gpk_require_device(s->device, to, bytes, "the place", "gp_rt_copy");
	gpk_require_device(s->device, from, bytes, "the source", "gp_rt_copy");
	queue_copy(s, to, from, bytes);
}

void gp_rt_copy_up(struct gp_rt_stream *s, void *device, const void *host, size_t bytes)
{
	gpk_require_device(s->device, device, bytes, "the place", "gp_rt_copy_up");
	gpk_require_host(host, bytes, s->capture != nullptr, "gp_rt_copy_up");
	queue_copy(s, device, host, bytes);
}

void gp_rt_copy_down(struct gp_rt_stream *s, void *host, const void *device, size_t bytes)
{
	gpk_require_host(host, bytes, s->capture != nullptr, "gp_rt_copy_down");
	gpk_require_device(s->device, device, bytes, "the source", "gp_rt_copy_down");
	queue_copy(s, host, device, bytes);
}

void gp_rt_fill(struct gp_rt_stream *s, void *p, int byte, size_t bytes)
{
	gpk_require_device(s->device, p, bytes, "the place", "gp_rt_fill");
	gp_rt_tally_note("fill", 0);
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

enum gp_status gp_rt_event_new_timed(int device, struct gp_rt_event **out, struct gp_err *err)
{
	GP_TRY(gp_rt_event_new(device, out, err));
	(*out)->timed = true;
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
	e->capture = s->capture;
	if (!s->capture)
		return;
	e->branch = s->branch;
	e->at = s->capture->branch[(size_t)s->branch].size();
}

/* A stream that waits for what is captured is captured, too. What was not, cannot be waited for from within. */
static void capture_after(struct gp_rt_stream *s, struct gp_rt_event *e)
{
	if (!e->capture || e->capture->ended || (s->capture && s->capture != e->capture)) {
		(s->capture ? s->capture->invalid : s->failed) = true;
		return;
	}
	if (!s->capture) {
		s->capture = e->capture;
		s->branch = (int)s->capture->branch.size();
		s->capture->branch.emplace_back();
		s->capture->stream.push_back(s);
	}
	piece wait;
	wait.branch = e->branch;
	wait.at = e->at;
	s->capture->branch[(size_t)s->branch].push_back(wait);
}

void gp_rt_stream_after(struct gp_rt_stream *s, struct gp_rt_event *e)
{
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	if (!e->stream)
		return;
	if (e->stream != s) {
		s->failed |= e->stream->failed;
		e->stream->failed = false;
	}
	if (s->capture || e->capture) {
		capture_after(s, e);
		return;
	}
	piece wait;
	wait.after = e->stream;
	wait.at = e->at;
	s->push(std::move(wait));
}

enum gp_status gp_rt_event_wait(struct gp_rt_event *e, struct gp_err *err)
{
	gpk_require_no_capture("gp_rt_event_wait");
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	if (!e->stream)
		return GP_OK;
	e->stream->run_to(e->at);
	return report(e->stream, err);
}

enum gp_status gp_rt_event_ns(struct gp_rt_event *from, struct gp_rt_event *to, uint64_t *ns, struct gp_err *err)
{
	if (!from->timed || !to->timed)
		GP_FAIL(err, GP_INTERNAL, "the time between events that are not timed");
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
	gpk_capture_begins();
	s->capture = std::make_shared<captured>();
	s->capture->branch.emplace_back();
	s->capture->stream.push_back(s);
	s->branch = 0;
	return GP_OK;
}

static bool is_joined(const captured &c, int branch)
{
	for (const piece &one : c.branch[0])
		if (one.branch == branch && one.at == c.branch[(size_t)branch].size())
			return true;
	return false;
}

/* Every stream is one again. */
static std::shared_ptr<captured> end_capture(struct gp_rt_stream *s)
{
	std::shared_ptr<captured> c = s->capture;
	for (gp_rt_stream *one : c->stream)
		one->capture = nullptr;
	c->ended = true;
	for (size_t i = 1; i < c->branch.size(); i++)
		c->invalid = c->invalid || !is_joined(*c, (int)i);
	return c;
}

enum gp_status gp_rt_capture_end(struct gp_rt_stream *s, struct gp_rt_graph **out, struct gp_err *err)
{
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	gpk_capture_ends();
	std::shared_ptr<captured> work = end_capture(s);
	if (work->failed)
		GP_FAIL(err, GP_DEVICE, "emulated GPU %d failed while it was captured (GP_FAULT)", s->device);
	if (work->invalid)
		GP_FAIL(err, GP_DEVICE,
			"emulated GPU %d: a captured stream was not joined, or waited for what was not captured",
			s->device);
	gp_rt_graph *g = new (std::nothrow) gp_rt_graph();
	if (!g)
		GP_FAIL(err, GP_NOMEM, "out of memory for a graph");
	g->work = work;
	for (size_t i = 1; i < work->branch.size(); i++)
		g->side.push_back(std::make_shared<gp_rt_stream>(s->device));
	*out = g;
	return GP_OK;
}

/* The work may outlive the graph. */
void gp_rt_graph_launch(struct gp_rt_graph *g, struct gp_rt_stream *s)
{
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	std::vector<gp_rt_stream *> on = {s};
	std::vector<uint64_t> first = {s->count};
	gp_rt_tally_note("graph", 0);
	if (gp_fault_hit(GP_FAULT_DEVICE)) {
		s->failed = true;
		return;
	}
	for (const std::shared_ptr<gp_rt_stream> &side : g->side) {
		on.push_back(side.get());
		first.push_back(side->count);
	}
	for (size_t i = 0; i < on.size(); i++)
		for (piece one : g->work->branch[i]) {
			if (one.branch >= 0) {
				one.after = on[(size_t)one.branch];
				one.at += first[(size_t)one.branch];
				one.kept = one.branch > 0 ? g->side[(size_t)one.branch - 1] : nullptr;
			}
			on[i]->push(std::move(one));
		}
}

void gp_rt_graph_free(struct gp_rt_graph *g)
{
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	delete g;
}

} // extern "C"

void gpk_emulated_fail(struct gp_rt_stream *s)
{
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	(s->capture ? s->capture->failed : s->failed) = true;
}

void gpk_emulated_queue(struct gp_rt_stream *s, std::function<void()> work)
{
	const std::lock_guard<std::recursive_mutex> hold(gpu);
	piece one;
	one.work = std::move(work);
	if (s->capture) {
		s->capture->branch[(size_t)s->branch].push_back(std::move(one));
		return;
	}
	if (gp_fault_hit(GP_FAULT_DEVICE)) {
		s->failed = true;
		return;
	}
	s->push(std::move(one));
}

void gpk_emulated_launch(struct gp_rt_stream *s, const char *kernel, struct gpk_shape shape,
			 std::vector<const void *> given, std::function<void()> body)
{
	const int device = s->device;
	gpk_emulated_check(kernel, shape);
	gp_rt_tally_note(kernel, (uint64_t)shape.grid.x * shape.grid.y * shape.grid.z);
	if (gp_rt_tallied())
		return;
	gpk_emulated_queue(s, [=] {
		for (const void *p : given)
			if (p)
				gpk_require_device(device, p, 0, "an argument", kernel);
		gpk_emulated_run(kernel, shape, body);
	});
}

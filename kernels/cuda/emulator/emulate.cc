/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a grid of an emulated kernel: fibers and their scheduler. See emulate.h.
 * Test: tests/unit/test_cuda_rt.c
 */
#include "kernels/cuda/runtime/gpk.h"
#include "kernels/cuda/emulator/emulated_checks.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define GPK_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GPK_ASAN 1
#endif
#endif
#ifdef GPK_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)   ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

gpk_emulated_thread gpk_emulated;

#if defined(__x86_64__)
extern "C" void gpk_emulated_switch(void **from, void *to);
asm(R"(
	.text
	.globl gpk_emulated_switch
	.hidden gpk_emulated_switch
	.type gpk_emulated_switch, @function
gpk_emulated_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.size gpk_emulated_switch, .-gpk_emulated_switch
)");
#endif

namespace
{

const unsigned MAX_THREADS = 1024, LANES = 32, WARPS = MAX_THREADS / LANES;
/* A stack is touched as far as it is used. The next one begins an odd number of pages and of cache lines behind it: were
 * that a power of two, the few lines of each would share a set of the caches and of the TLB, and miss at every switch. */
const size_t PAGE = 4096, LINE = 64, STACK_BYTES = 256 * 1024 + PAGE + 17 * LINE;

enum wait { RUNS, AT_BARRIER, AT_EXCHANGE, ENDED };

/* A place to run threads on; `top` is where it stopped. */
struct fiber {
	unsigned char *stack;
	void *top, *fake;
	bool begun;
};

struct thread {
	fiber *on;
	wait waits;
	bool fenced;
	unsigned mask; /* AT_EXCHANGE */
};

const unsigned SHARED_ARRAYS = 32;

/* A thread's copies that are not done yet, oldest first from `first` on. */
const unsigned MAX_COPIES = 128;
struct late_copy {
	uint4 *to;
	const uint4 *from; /* nullptr: zeros */
	unsigned group;
};
struct late_copies {
	late_copy of[MAX_COPIES];
	unsigned first, count, group; /* group: that new ones belong to */
} late[MAX_THREADS];

struct block_state {
	const char *kernel;
	const std::function<void()> *body;
	void *shared[SHARED_ARRAYS]; /* met so far */
	unsigned shared_count;
	size_t shared_bytes, most_shared;
	dim3 dim;
	unsigned threads, begun, ended;
	thread of[MAX_THREADS];
	uint64_t given[MAX_THREADS],
		seen[WARPS][LANES]; /* copied when the warp goes on: a fast lane gives again at once */
	unsigned came[WARPS];       /* whose values are in `seen` */
	unsigned ballot[WARPS];     /* of these, the lowest bits */
	unsigned waiting[WARPS];    /* lanes AT_EXCHANGE, one bit each */
	unsigned named[WARPS];      /* lanes that the masks of all of these name */
	int any;
} block;

/* Threads that go on, one when the one before waits or ends; the scheduler does when none is left. */
struct turns {
	unsigned of[MAX_THREADS];
	unsigned next, count;
} turns;

/* threadIdx of every thread of a block of `dim`. */
struct positions {
	dim3 dim;
	dim3 of[MAX_THREADS];
} positions;

fiber fibers[MAX_THREADS];
fiber *idle[MAX_THREADS];
unsigned idle_count, fiber_count;
void *scheduler_top;
#ifdef GPK_ASAN
void *scheduler_fake;
const void *scheduler_stack;
size_t scheduler_bytes;
#endif
unsigned current; /* thread that runs */
bool reversed;    /* the last thread and the last block go first */

/* The k-th to go of n. */
unsigned nth(unsigned k, unsigned n)
{
	return reversed ? n - 1 - k : k;
}

#if defined(__x86_64__)
void *first_top(fiber *f, void (*entry)())
{
	void **top = reinterpret_cast<void **>(f->stack + STACK_BYTES) - 1;
	top[0] = nullptr; /* entry's return address, 8 below a multiple of 16 as behind a call: it never returns */
	*--top = reinterpret_cast<void *>(entry);
	return top - 6;
}
#else
/* Slow (a system call each), but everywhere. */
ucontext_t contexts[MAX_THREADS + 1];
void gpk_emulated_switch(void **from, void *to)
{
	ucontext_t here;
	*from = &here;
	swapcontext(&here, static_cast<ucontext_t *>(to));
}
void *first_top(fiber *f, void (*entry)())
{
	ucontext_t *c = &contexts[f - fibers];
	getcontext(c);
	c->uc_stack.ss_sp = f->stack;
	c->uc_stack.ss_size = STACK_BYTES;
	c->uc_link = nullptr;
	makecontext(c, entry, 0);
	return c;
}
#endif

[[noreturn]] void stop(const char *why)
{
	gpk_refuse("%s: %s (block %u,%u,%u of %u,%u,%u; %u threads)", block.kernel, why, gpk_emulated.block.x,
		   gpk_emulated.block.y, gpk_emulated.block.z, gpk_emulated.grid_dim.x, gpk_emulated.grid_dim.y,
		   gpk_emulated.grid_dim.z, block.threads);
}

void become(unsigned t)
{
	current = t;
	gpk_emulated.thread = positions.of[t];
	gpk_emulated.lane = t % LANES;
	gpk_emulated.warp = t / LANES;
}

void find_positions(dim3 dim)
{
	if (dim.x == positions.dim.x && dim.y == positions.dim.y && dim.z == positions.dim.z)
		return;
	positions.dim = dim;
	unsigned t = 0;
	for (unsigned z = 0; z < dim.z; z++)
		for (unsigned y = 0; y < dim.y; y++)
			for (unsigned x = 0; x < dim.x; x++)
				positions.of[t++] = dim3(x, y, z);
}

void go_on_as(unsigned t)
{
	become(t);
	block.of[t].waits = RUNS;
	if (block.waiting[t / LANES] & 1u << t % LANES)
		block.waiting[t / LANES] ^= 1u << t % LANES;
}

/* From the fiber of the current thread to that of the next in turn, or to the scheduler; returns when it goes on. */
void leave()
{
	fiber *const self = block.of[current].on;
	fiber *next = nullptr;
	if (turns.next < turns.count) {
		const unsigned t = turns.of[turns.next++];
		next = block.of[t].on;
		go_on_as(t);
	}
#ifdef GPK_ASAN
	__sanitizer_start_switch_fiber(&self->fake, next ? next->stack : scheduler_stack,
				       next ? STACK_BYTES : scheduler_bytes);
#endif
	gpk_emulated_switch(&self->top, next ? next->top : scheduler_top);
#ifdef GPK_ASAN
	__sanitizer_finish_switch_fiber(self->fake, nullptr, nullptr);
#endif
}

/* Thread after thread, as long as none waits; the next user's threads when this fiber is taken again. */
void run_threads()
{
#ifdef GPK_ASAN
	__sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_bytes);
#endif
	for (;;) {
		fiber *const self = block.of[current].on;
		for (;;) {
			(*block.body)();
			block.of[current].waits = ENDED;
			block.ended++;
			if (block.begun == block.threads)
				break;
			const unsigned next = nth(block.begun++, block.threads);
			block.of[next].on = self;
			block.of[next].waits = RUNS;
			become(next);
		}
		idle[idle_count++] = self;
		leave();
	}
}

fiber *take_fiber()
{
	if (idle_count)
		return idle[--idle_count];
	static void *const stacks = mmap(nullptr, MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (stacks == MAP_FAILED)
		stop("no memory for stacks");
	fiber *f = &fibers[fiber_count];
	f->stack = static_cast<unsigned char *>(stacks) + fiber_count++ * STACK_BYTES;
	return f;
}

/* From the scheduler; returns when this thread and those in turn behind it wait or have ended. */
void resume(unsigned t)
{
	fiber *f = block.of[t].on;
	go_on_as(t);
	if (!f->begun) {
		f->begun = true;
		f->top = first_top(f, run_threads);
	}
#ifdef GPK_ASAN
	__sanitizer_start_switch_fiber(&scheduler_fake, f->stack, STACK_BYTES);
#endif
	gpk_emulated_switch(&scheduler_top, f->top);
#ifdef GPK_ASAN
	__sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
#endif
}

void resume_turns()
{
	turns.next = 1;
	resume(turns.of[0]);
	turns.next = turns.count = 0;
}

/* The lanes of a warp that wait for each other, named by one of them; 0 when there are none, or not all have come. */
unsigned ready_lanes(unsigned first)
{
	const unsigned all = ~0u, waiting = block.waiting[first / LANES];
	if (!waiting || (waiting == all && block.named[first / LANES] == all))
		return waiting;
	unsigned came = 0, ended = 0;
	for (unsigned l = 0; l < LANES; l++)
		if (first + l >= block.threads || block.of[first + l].waits == ENDED)
			ended |= 1u << l;
		else if (block.of[first + l].waits == AT_EXCHANGE)
			came |= 1u << l;
	for (unsigned l = 0; l < LANES; l++) {
		if (!(came & 1u << l))
			continue;
		const unsigned mask = block.of[first + l].mask;
		if (mask & ~came & ~ended)
			continue;
		for (unsigned k = 0; k < LANES; k++)
			if (mask & came & 1u << k && block.of[first + k].mask != mask)
				stop("lanes of one warp operation name different lanes");
		return mask & came;
	}
	return 0;
}

/* What a lane gave that was not there nobody knows. */
bool resume_warp(unsigned first)
{
	const unsigned lanes = ready_lanes(first);
	if (!lanes)
		return false;
	const uint64_t *const given = block.given + first;
	unsigned ballot = 0;
	for (unsigned l = 0; l < LANES; l++) {
		block.seen[first / LANES][l] = lanes & 1u << l ? given[l] : ~(uint64_t)0;
		ballot |= (unsigned)(given[l] & 1) << l;
	}
	block.came[first / LANES] = lanes;
	block.ballot[first / LANES] = ballot & lanes;
	block.named[first / LANES] = ~0u;
	for (unsigned l = 0; l < LANES; l++)
		if (block.waiting[first / LANES] & ~lanes & 1u << l)
			block.named[first / LANES] &= block.of[first + l].mask;
	for (unsigned k = 0; k < LANES; k++)
		if (lanes & 1u << nth(k, LANES))
			turns.of[turns.count++] = first + nth(k, LANES);
	resume_turns();
	return true;
}

bool resume_block()
{
	for (unsigned t = 0; t < block.threads; t++)
		if (block.of[t].waits != AT_BARRIER && block.of[t].waits != ENDED)
			return false;
	if (block.ended)
		stop("a barrier that part of the block does not come to");
	for (unsigned k = 0; k < block.threads; k++)
		turns.of[turns.count++] = nth(k, block.threads);
	resume_turns();
	return true;
}

void run_block()
{
	block.begun = block.ended = block.shared_count = 0;
	for (unsigned t = 0; t < block.threads; t++) {
		block.of[t].fenced = false;
		late[t].count = late[t].group = 0;
	}
	for (unsigned w = 0; w < WARPS; w++) {
		block.waiting[w] = 0;
		block.named[w] = ~0u;
	}
	while (block.ended < block.threads) {
		bool moved = false;
		while (block.begun < block.threads) {
			const unsigned t = nth(block.begun++, block.threads);
			block.of[t].on = take_fiber();
			resume(t);
			moved = true;
		}
		const unsigned warps = (block.threads + LANES - 1) / LANES;
		for (unsigned k = 0; k < warps; k++)
			moved |= resume_warp(nth(k, warps) * LANES);
		if (!moved && block.ended < block.threads && !resume_block())
			stop("its threads wait for each other at different places");
	}
}

} // namespace

void gpk_emulated_barrier(void)
{
	block.of[current].waits = AT_BARRIER;
	leave();
}

void gpk_emulated_shared(void *p, size_t bytes)
{
	for (unsigned i = 0; i < block.shared_count; i++)
		if (block.shared[i] == p)
			return;
	if (block.shared_count == SHARED_ARRAYS)
		stop("more arrays in shared memory than are counted");
	block.shared[block.shared_count++] = p;
	block.shared_bytes += bytes;
	if (block.shared_bytes > block.most_shared)
		stop("more shared memory than it gets without GPK_LAUNCH_LARGE, or at all");
	memset(p, GPK_UNWRITTEN, bytes);
}

const uint64_t *gpk_emulated_exchange(unsigned mask, uint64_t value)
{
	const unsigned t = current;
	if (!(mask & 1u << t % LANES))
		stop("a lane is not in the mask of its own warp operation");
	block.given[t] = value;
	block.of[t].mask = mask;
	block.of[t].waits = AT_EXCHANGE;
	block.waiting[t / LANES] |= 1u << t % LANES;
	block.named[t / LANES] &= mask;
	leave();
	return block.seen[t / LANES];
}

void gpk_emulated_copy(uint4 *to, const uint4 *from)
{
	late_copies &l = late[current];
	if (l.count == MAX_COPIES)
		stop("more copies under way than there is room for");
	l.of[(l.first + l.count++) % MAX_COPIES] = {to, from, l.group};
}

void gpk_emulated_copies_end_group(void)
{
	late[current].group++;
}

void gpk_emulated_copies_wait(unsigned left)
{
	late_copies &l = late[current];
	for (; l.count && l.of[l.first].group + left < l.group; l.count--) {
		const late_copy &c = l.of[l.first];
		*c.to = c.from ? *c.from : make_uint4(0, 0, 0, 0);
		l.first = (l.first + 1) % MAX_COPIES;
	}
}

void __threadfence(void)
{
	block.of[current].fenced = true;
}

unsigned atomicInc(unsigned *at, unsigned most)
{
	for (unsigned t = 0; t < block.threads; t++)
		if (!block.of[t].fenced)
			stop("a block counts itself before its threads have fenced off what they wrote");
	return gpk_swap_in(at, *at >= most ? 0 : *at + 1);
}

unsigned __ballot_sync(unsigned mask, int predicate)
{
	gpk_emulated_exchange(mask, predicate != 0);
	return block.ballot[gpk_emulated.warp];
}

int __syncthreads_or(int predicate)
{
	block.any = 0;
	gpk_emulated_barrier();
	block.any |= predicate != 0;
	gpk_emulated_barrier();
	const int any = block.any;
	gpk_emulated_barrier();
	return any;
}

void gpk_emulated_check(const char *kernel, struct gpk_shape shape)
{
	const dim3 g = shape.grid, b = shape.block;
	const size_t threads = (size_t)b.x * b.y * b.z;
	if (threads < 1 || threads > MAX_THREADS || b.x > MAX_THREADS || b.y > MAX_THREADS || b.z > 64)
		gpk_refuse("%s: no card has blocks of %u,%u,%u threads", kernel, b.x, b.y, b.z);
	if (!g.x || !g.y || !g.z || g.x > INT32_MAX || g.y > 65535 || g.z > 65535)
		gpk_refuse("%s: no card has grids of %u,%u,%u blocks", kernel, g.x, g.y, g.z);
	if (shape.shared > shape.most_shared)
		gpk_refuse("%s: %zu bytes of shared memory, more than it gets without GPK_LAUNCH_LARGE, or at all",
			   kernel, shape.shared);
}

bool gpk_emulates_card(void)
{
	static const char *const card = getenv("GP_EMULATE_CARD");
	return card && strcmp(card, "1") == 0;
}

void gpk_emulated_run(const char *kernel, struct gpk_shape shape, const std::function<void()> &body)
{
	static unsigned char room[GPK_SHARED_LARGE_BYTES] __attribute__((aligned(128)));
	static const char *const order = getenv("GP_EMULATE_ORDER");
	const dim3 grid = shape.grid;
	reversed = order && strcmp(order, "reverse") == 0;
	block.kernel = kernel;
	block.most_shared = shape.most_shared;
	block.body = &body;
	block.dim = shape.block;
	block.threads = shape.block.x * shape.block.y * shape.block.z;
	find_positions(shape.block);
	gpk_emulated.grid_dim = grid;
	gpk_emulated.block_dim = shape.block;
	gpk_emulated.room = room;
	ASAN_UNPOISON_MEMORY_REGION(room, sizeof room);
	ASAN_POISON_MEMORY_REGION(room + shape.shared, sizeof room - shape.shared);
	for (unsigned z = 0; z < grid.z; z++)
		for (unsigned y = 0; y < grid.y; y++)
			for (unsigned x = 0; x < grid.x; x++) {
				gpk_emulated.block = dim3(nth(x, grid.x), nth(y, grid.y), nth(z, grid.z));
				memset(room, GPK_UNWRITTEN, shape.shared);
				block.shared_bytes = shape.shared;
				run_block();
			}
}

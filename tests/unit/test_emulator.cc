/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated GPU refuses what a card would refuse: each of these ends a
 * process of its own with a line that says what was wrong. Not a test of kernels:
 * those here are wrong on purpose. Only in builds with GP_CUDA=emulated. See
 * kernels/cuda/emulator/emulated_checks.h.
 */
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}

#include "kernels/cuda/runtime/gpk.h"

namespace
{

#define OK(call) assert_int_equal((call), GP_OK)

struct gp_err err;
struct gp_rt_stream *stream;

void *room(size_t bytes, int device = 0)
{
	void *p = nullptr;
	OK(gp_rt_alloc(device, bytes, &p, &err));
	return p;
}

void wait()
{
	OK(gp_rt_stream_wait(stream, &err));
}

/* What it says, in `text`, when it ends the process by itself. */
void check_refused(void (*what)(void), const char *words)
{
	int ends[2], status = 0;
	char text[4096];
	size_t len = 0;
	assert_int_equal(pipe(ends), 0);
	fflush(stdout);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		signal(SIGABRT, SIG_DFL);
		what();
		_exit(0);
	}
	close(ends[1]);
	for (ssize_t n; (n = read(ends[0], text + len, sizeof text - 1 - len)) > 0;)
		len += (size_t)n;
	text[len] = 0;
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(text, words))
		fail_msg("wanted \"%s\", got status %d and \"%s\"", words, status, text);
}

/* --- launches --------------------------------------------------------------------------------------------------- */

GPK_KERNEL nothing(const float *x)
{
	(void)x;
}

void launch(dim3 grid, dim3 block, size_t shared)
{
	GPK_LAUNCH(stream, nothing, grid, block, shared, (const float *)nullptr);
	wait();
}

void launch_large(size_t shared)
{
	GPK_LAUNCH_LARGE(stream, nothing, 1, 1, shared, (const float *)nullptr);
	wait();
}

void sizes_that_no_card_has_are_refused(void **)
{
	launch(1, 1024, 48 * 1024);
	launch(dim3(1, 1, 65535), dim3(1, 1, 64), 0);
	check_refused([] { launch(1, 1025, 0); }, "nothing: no card has blocks of 1025,1,1");
	check_refused([] { launch(1, dim3(1, 1, 65), 0); }, "blocks of 1,1,65");
	check_refused([] { launch(dim3(1, 65536), 1, 0); }, "grids of 1,65536,1");
	check_refused([] { launch(0x80000000u, 1, 0); }, "grids of 2147483648,1,1");
	check_refused([] { launch(0, 1, 0); }, "grids of 0,1,1");
	check_refused([] { launch(1, 1, 48 * 1024 + 1); }, "49153 bytes of shared memory");
	launch_large(99 * 1024);
	check_refused([] { launch_large(99 * 1024 + 1); }, "101377 bytes of shared memory");
}

GPK_KERNEL two_kinds_of_shared(float *out)
{
	GPK_SHARED(float, held, [1024]);
	GPK_SHARED_DYNAMIC(float, more);
	held[threadIdx.x] = more[threadIdx.x] = 1;
	out[threadIdx.x] = held[threadIdx.x];
}

void shared_memory_of_both_kinds_is_counted_together(void **)
{
	static float *out;
	out = static_cast<float *>(room(32 * sizeof *out));
	GPK_LAUNCH(stream, two_kinds_of_shared, 2, 32, 44 * 1024, out);
	wait();
	check_refused(
		[] {
			GPK_LAUNCH(stream, two_kinds_of_shared, 1, 32, 44 * 1024 + 4, out);
			wait();
		},
		"two_kinds_of_shared: more shared memory than it gets");
	gp_rt_free(0, out);
}

/* --- threads ---------------------------------------------------------------------------------------------------- */

GPK_KERNEL part_comes(float *out)
{
	if (threadIdx.x >= 32)
		return;
	__syncthreads();
	out[threadIdx.x] = 1;
}

GPK_KERNEL lanes_disagree(float *out)
{
	const unsigned mask = threadIdx.x < 16 ? GPK_ALL_LANES : 0xffff0000u;
	out[threadIdx.x] = (float)__ballot_sync(mask, 1);
}

GPK_KERNEL lane_is_missing(float *out)
{
	if (threadIdx.x == 3)
		__syncthreads();
	else
		out[threadIdx.x] = __shfl_sync(GPK_ALL_LANES, 1.0f, 0);
}

GPK_KERNEL misaligned(const float *x, float *out)
{
	*out = reinterpret_cast<const float4 *>(x + 1)->x;
}

void threads_that_do_not_meet_are_refused(void **)
{
	static float *out;
	out = static_cast<float *>(room(64 * sizeof *out));
	check_refused(
		[] {
			GPK_LAUNCH(stream, part_comes, 1, 64, 0, out);
			wait();
		},
		"part_comes: a barrier that part of the block does not come to");
	check_refused(
		[] {
			GPK_LAUNCH(stream, lanes_disagree, 1, 32, 0, out);
			wait();
		},
		"lanes of one warp operation name different lanes");
	check_refused(
		[] {
			GPK_LAUNCH(stream, lane_is_missing, 1, 32, 0, out);
			wait();
		},
		"its threads wait for each other at different places");
	gp_rt_free(0, out);
}

/* 20 lanes of a warp whose others have ended, as a mask of all may name them. */
GPK_KERNEL few_vote(float *out)
{
	if (threadIdx.x >= 20)
		return;
	const unsigned all = __ballot_sync(GPK_ALL_LANES, 1);
	const float from = __shfl_sync(GPK_ALL_LANES, 1.0f, 25);
	if (threadIdx.x == 0) {
		out[0] = (float)__popc(all);
		out[1] = from;
	}
}

void lanes_that_have_ended_neither_vote_nor_give(void **)
{
	float *const out = static_cast<float *>(room(2 * sizeof *out)), got[2];
	GPK_LAUNCH(stream, few_vote, 1, 32, 0, out);
	gp_rt_copy_down(stream, got, out, sizeof got);
	wait();
	assert_true(got[0] == 20);
	assert_true(std::isnan(got[1]));
	gp_rt_free(0, out);
}

/* What a sanitizer finds is its own affair: without one this holds nothing. */
void vectors_at_odd_addresses_are_found_by_the_sanitizer(void **)
{
#if defined(__SANITIZE_ADDRESS__)
	static float *x;
	int status = 0;
	x = static_cast<float *>(room(64));
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		fclose(stderr);
		GPK_LAUNCH(stream, misaligned, 1, 1, 0, x, x);
		wait();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_not_equal(status, 0);
	gp_rt_free(0, x);
#else
	(void)misaligned;
	skip();
#endif
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

GPK_KERNEL reads_what_nobody_wrote(const float *x, float *out)
{
	GPK_SHARED(float, held, [32]);
	GPK_SHARED_DYNAMIC(float, more);
	out[0] = x[0];
	out[1] = held[0];
	out[2] = more[0];
	held[0] = more[0] = 1;
}

void memory_that_nobody_wrote_is_no_number(void **)
{
	float *const x = static_cast<float *>(room(sizeof *x)), *const out =
									static_cast<float *>(room(3 * sizeof *out));
	float got[3];
	GPK_LAUNCH(stream, reads_what_nobody_wrote, 2, 1, 16, x, out);
	gp_rt_copy_down(stream, got, out, sizeof got);
	wait();
	for (float v : got)
		assert_true(std::isnan(v));
	gp_rt_free(0, x);
	gp_rt_free(0, out);
}

float *mine, host[4];

void addresses_of_the_wrong_kind_are_refused(void **)
{
	mine = static_cast<float *>(room(sizeof host));
	check_refused([] { gp_rt_copy_up(stream, host, mine, 4); }, "gp_rt_copy_up: the place");
	check_refused([] { gp_rt_copy_up(stream, mine, mine, 4); }, "it has to be the host's");
	check_refused([] { gp_rt_copy_down(stream, mine, mine, 4); }, "it has to be the host's");
	check_refused([] { gp_rt_copy_down(stream, host, host, 4); }, "gp_rt_copy_down: the source");
	check_refused([] { gp_rt_copy(stream, mine, host, 4); }, "gp_rt_copy: the source");
	check_refused([] { gp_rt_fill(stream, host, 0, 4); }, "gp_rt_fill: the place");
	check_refused([] { gp_rt_copy_up(stream, mine + 2, host, 12); }, "8 bytes before its allocation's end, 12");
	check_refused([] { gp_rt_copy_up(stream, room(16, 1), host, 16); }, "is another GPU's memory");
	check_refused(
		[] {
			GPK_LAUNCH(stream, nothing, 1, 1, 0, host);
			wait();
		},
		"nothing: an argument");
	gp_rt_free(0, mine);
}

void memory_that_is_gone_is_refused(void **)
{
	mine = static_cast<float *>(room(16));
	check_refused(
		[] {
			gp_rt_free(0, mine);
			GPK_LAUNCH(stream, nothing, 1, 1, 0, mine);
			wait();
		},
		"no memory of a GPU");
	check_refused(
		[] {
			gp_rt_free(0, mine);
			gp_rt_copy_up(stream, mine, host, 4);
		},
		"no memory of a GPU");
	check_refused(
		[] {
			gp_rt_free(0, mine);
			gp_rt_free(0, mine);
		},
		"is freed, which is not allocated");
	check_refused([] { gp_rt_free_pinned(0, mine); }, "as if it were another kind of memory");
	check_refused([] { gp_rt_free(1, mine); }, "or of another GPU");
	gp_rt_free(0, mine);
}

/* --- captures --------------------------------------------------------------------------------------------------- */

void calls_that_end_a_capture_are_refused(void **)
{
	static struct gp_rt_event *event;
	static void *pinned;
	struct gp_rt_graph *graph;
	mine = static_cast<float *>(room(16));
	OK(gp_rt_alloc_pinned(0, 16, &pinned, &err));
	OK(gp_rt_event_new(0, &event, &err));
	OK(gp_rt_capture_begin(stream, &err));
	check_refused([] { (void)room(16); }, "gp_rt_alloc: not while this thread captures a graph");
	check_refused([] { gp_rt_free(0, mine); }, "gp_rt_free: not while");
	check_refused([] { (void)gp_rt_alloc_pinned(0, 16, &pinned, &err); }, "gp_rt_alloc_pinned: not while");
	check_refused([] { gp_rt_free_pinned(0, pinned); }, "gp_rt_free_pinned: not while");
	check_refused([] { wait(); }, "gp_rt_stream_wait: not while");
	check_refused([] { (void)gp_rt_event_wait(event, &err); }, "gp_rt_event_wait: not while");
	check_refused([] { gp_rt_stream_free(stream); }, "gp_rt_stream_free: not while");
	check_refused([] { gp_rt_copy_up(stream, mine, host, 16); }, "is not pinned");
	gp_rt_copy_up(stream, mine, pinned, 16);
	OK(gp_rt_capture_end(stream, &graph, &err));
	gp_rt_graph_free(graph);
	gp_rt_event_free(event);
	gp_rt_free_pinned(0, pinned);
	gp_rt_free(0, mine);
}

int open_stream(void **)
{
	OK(gp_rt_stream_new(0, false, &stream, &err));
	return 0;
}

int close_stream(void **)
{
	gp_rt_stream_free(stream);
	return 0;
}

} // namespace

int main()
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_that_no_card_has_are_refused),
		cmocka_unit_test(shared_memory_of_both_kinds_is_counted_together),
		cmocka_unit_test(threads_that_do_not_meet_are_refused),
		cmocka_unit_test(lanes_that_have_ended_neither_vote_nor_give),
		cmocka_unit_test(vectors_at_odd_addresses_are_found_by_the_sanitizer),
		cmocka_unit_test(memory_that_nobody_wrote_is_no_number),
		cmocka_unit_test(addresses_of_the_wrong_kind_are_refused),
		cmocka_unit_test(memory_that_is_gone_is_refused),
		cmocka_unit_test(calls_that_end_a_capture_are_refused),
	};
	return cmocka_run_group_tests(tests, open_stream, close_stream);
}

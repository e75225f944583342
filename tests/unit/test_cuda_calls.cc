/* SPDX-License-Identifier: Apache-2.0
 *
 * What rt.cu and blas.cu make of CUDA's errors, with a CUDA that fails on command (fake_cuda/): an error is told once,
 * by the right wait, and is never left behind as the thread's last one, by which the next launch would be judged. Needs
 * neither a card nor the toolkit; not in the list of tests for cards.
 */
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

extern "C" {
#include <cmocka.h>
}

#include "kernels/cuda/runtime/blas.h"
#include "kernels/cuda/runtime/cublas.h"
#include "kernels/cuda/runtime/native.h"
#include "kernels/cuda/runtime/pinned_pool.h"

enum gp_status gp_cublas_load(const struct gp_cublas **out, struct gp_err *)
{
	static const struct gp_cublas calls = {cublasCreate_v2, cublasSetStream_v2, cublasSetWorkspace_v2,
					       cublasGemmStridedBatchedEx_64, cublasGetStatusString};
	*out = &calls;
	return GP_OK;
}

namespace
{

#define OK(call) assert_int_equal((call), GP_OK)

struct gp_err err;

/* Each test has a device of its own: what is lost stays lost, and a pool is made once. */
int next_device = 10;

struct gp_rt_stream *open_stream(int device)
{
	struct gp_rt_stream *s = nullptr;
	OK(gp_rt_stream_new(device, false, &s, &err));
	return s;
}

/* A launch that CUDA took: it is judged by what others have left behind. */
void expect_a_clean_launch(struct gp_rt_stream *s)
{
	gp_rt_launched(s);
	OK(gp_rt_stream_wait(s, &err));
}

void failed_product_in_a_broken_capture_is_told_by_its_end_alone(void **)
{
	struct gp_rt_stream *const s = open_stream(next_device++);
	struct gp_rt_graph *g = nullptr;
	OK(gp_rt_capture_begin(s, &err));
	gp_rt_fail(s, "no product");
	fake.let_fail("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated);
	assert_int_equal(gp_rt_capture_end(s, &g, &err), GP_DEVICE);
	assert_null(g);
	expect_a_clean_launch(s);
	gp_rt_stream_free(s);
}

/* Otherwise work that was never done would be taken for done: a capture that fails only costs the graph. */
void what_failed_before_a_capture_is_told_by_the_wait_after_it(void **)
{
	const int device = next_device++;
	struct gp_rt_stream *const s = open_stream(device), *const side = open_stream(device);
	struct gp_rt_event *event = nullptr;
	struct gp_rt_graph *g = nullptr;
	char x[4];
	OK(gp_rt_event_new(device, &event, &err));
	fake.let_fail("cudaMemcpyAsync", cudaErrorInvalidValue);
	gp_rt_copy(side, x, x, sizeof x);
	OK(gp_rt_capture_begin(s, &err));
	gp_rt_event_record(event, side);
	gp_rt_stream_after(s, event);
	gp_rt_fail(s, "no product");
	assert_int_equal(gp_rt_capture_end(s, &g, &err), GP_DEVICE);
	assert_non_null(strstr(err.text, "no product"));
	OK(gp_rt_capture_begin(s, &err));
	OK(gp_rt_capture_end(s, &g, &err));
	assert_int_equal(gp_rt_stream_wait(s, &err), GP_DEVICE);
	assert_non_null(strstr(err.text, "fake error 1"));
	expect_a_clean_launch(s);
	gp_rt_graph_free(g);
	gp_rt_event_free(event);
	gp_rt_stream_free(side);
	gp_rt_stream_free(s);
}

void refused_work_and_failed_product_are_told_by_one_wait(void **)
{
	struct gp_rt_stream *const s = open_stream(next_device++);
	char x[4];
	fake.let_fail("cudaMemcpyAsync", cudaErrorInvalidValue);
	gp_rt_copy(s, x, x, sizeof x);
	gp_rt_fail(s, "no product");
	assert_int_equal(gp_rt_stream_wait(s, &err), GP_DEVICE);
	assert_non_null(strstr(err.text, "fake error 1"));
	OK(gp_rt_stream_wait(s, &err));
	gp_rt_fail(s, "no product");
	assert_int_equal(gp_rt_stream_wait(s, &err), GP_DEVICE);
	assert_non_null(strstr(err.text, "no product"));
	OK(gp_rt_stream_wait(s, &err));
	gp_rt_stream_free(s);
}

void allocation_that_fits_after_a_trim_leaves_no_error(void **)
{
	const int device = next_device++;
	struct gp_rt_stream *const s = open_stream(device);
	void *p = nullptr;
	const int trimmed = fake.calls["cudaMemPoolTrimTo"];
	fake.let_fail("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation);
	OK(gp_rt_alloc(device, 100, &p, &err));
	assert_int_equal(fake.calls["cudaMemPoolTrimTo"], trimmed + 1);
	expect_a_clean_launch(s);
	gp_rt_free(device, p);
	gp_rt_stream_free(s);
}

void allocation_that_never_fits_is_refused_and_leaves_no_error(void **)
{
	const int device = next_device++;
	struct gp_rt_stream *const s = open_stream(device);
	void *p = nullptr;
	fake.let_fail("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation, 2);
	assert_int_equal(gp_rt_alloc(device, 100, &p, &err), GP_NOMEM);
	assert_null(p);
	fake.let_fail("cudaHostAlloc", cudaErrorMemoryAllocation, 2);
	assert_int_equal(gp_rt_alloc_pinned(device, 100, &p, &err), GP_NOMEM);
	expect_a_clean_launch(s);
	gp_rt_stream_free(s);
}

uint64_t kept_pinned()
{
	uint64_t used, kept;
	gp_pinned_usage(&used, &kept);
	return kept;
}

/* As sessions do that open and close. */
void take_and_give(int device, int sessions)
{
	static const uint64_t bytes[] = {100, 5000, 3 << 20, 3 << 20, (uint64_t)5 << 20};
	void *p[5];
	for (int n = 0; n < sessions; n++) {
		for (int i = 0; i < 5; i++)
			OK(gp_rt_alloc_pinned(device, bytes[i] - (uint64_t)(n % 3), &p[i], &err));
		for (int i = 0; i < 5; i++) {
			assert_true(n == 0 || ((const char *)p[i])[0] == 0); /* what the last one wrote is gone */
			memset(p[i], 7, 90);
			gp_rt_free_pinned(device, p[i]);
		}
	}
}

void sessions_that_open_and_close_take_pinned_memory_once(void **)
{
	const int device = next_device++, taken = fake.calls["cudaHostAlloc"], given = fake.calls["cudaFreeHost"];
	take_and_give(device, 1);
	assert_int_equal(fake.calls["cudaHostAlloc"], taken + 5);
	take_and_give(device, 20);
	assert_int_equal(fake.calls["cudaHostAlloc"], taken + 5);
	assert_int_equal(fake.calls["cudaFreeHost"], given);
	take_and_give(next_device++, 1); /* another card has its own */
	assert_int_equal(fake.calls["cudaHostAlloc"], taken + 10);
}

void pinned_memory_that_waits_is_bounded(void **)
{
	const int device = next_device++;
	void *p[3], *large;
	for (void *&one : p)
		OK(gp_rt_alloc_pinned(device, GP_PINNED_KEPT_BYTES / 2, &one, &err));
	OK(gp_rt_alloc_pinned(device, GP_PINNED_KEPT_BYTES + 1, &large, &err));
	const int given = fake.calls["cudaFreeHost"];
	gp_rt_free_pinned(device, large); /* more than is ever kept */
	assert_int_equal(fake.calls["cudaFreeHost"], given + 1);
	for (void *const one : p)
		gp_rt_free_pinned(device, one);
	assert_true(kept_pinned() <= GP_PINNED_KEPT_BYTES);
	assert_true(kept_pinned() >= GP_PINNED_KEPT_BYTES / 2);
	assert_true(fake.calls["cudaFreeHost"] > given + 1);
}

void pinned_memory_waits_for_its_time_and_no_longer(void **)
{
	const int device = next_device++;
	char block[8];
	void *others;
	for (int other = 0; other < device; other++)
		while ((others = gp_pinned_any(other)))
			cudaFreeHost(others);
	assert_int_equal(kept_pinned(), 0);
	assert_true(gp_pinned_add(device, block, 4096));
	assert_true(gp_pinned_keep(block, 1000));
	assert_null(gp_pinned_old(device, 1000 + GP_PINNED_KEPT_NS));
	assert_ptr_equal(gp_pinned_old(device, 1001 + GP_PINNED_KEPT_NS), block);
	assert_null(gp_pinned_take(device, 4096));
	assert_false(gp_pinned_keep(block, 1000)); /* it is not known any more */
}

void pinned_memory_that_does_not_fit_takes_the_place_of_what_waits(void **)
{
	const int device = next_device++;
	void *p = nullptr;
	OK(gp_rt_alloc_pinned(device, 100, &p, &err));
	gp_rt_free_pinned(device, p);
	const int given = fake.calls["cudaFreeHost"];
	fake.let_fail("cudaHostAlloc", cudaErrorMemoryAllocation);
	OK(gp_rt_alloc_pinned(device, 1 << 20, &p, &err));
	assert_int_equal(fake.calls["cudaFreeHost"], given + 1);
	assert_int_equal(fake.last, cudaSuccess);
	gp_rt_free_pinned(device, p);
}

void pinned_blocks_are_at_most_an_eighth_larger_than_asked_for(void **)
{
	for (uint64_t bytes = 1; bytes < (uint64_t)1 << 40; bytes += bytes / 5 + 1) {
		const uint64_t size = gp_pinned_bytes(bytes);
		assert_true(size >= bytes && size <= bytes + bytes / 8 + 4096);
		assert_int_equal(gp_pinned_bytes(size), size);
	}
	assert_int_equal(gp_pinned_bytes(0), 4096);
	assert_true(gp_pinned_bytes(UINT64_MAX) == UINT64_MAX);
}

void device_whose_pool_gives_nothing_gives_memory_without_one(void **)
{
	const int device = next_device++, plain = fake.calls["cudaMalloc"], dropped = fake.calls["cudaMemPoolDestroy"];
	void *p = nullptr;
	fake.let_fail("cudaMallocFromPoolAsync", cudaErrorNotSupported, 1000);
	OK(gp_rt_alloc(device, 100, &p, &err));
	assert_int_equal(fake.calls["cudaMalloc"], plain + 1);
	assert_int_equal(fake.calls["cudaMemPoolDestroy"], dropped + 1);
	assert_int_equal(fake.last, cudaSuccess);
	struct gp_rt_stream *const s = open_stream(next_device++);
	fake.let_fail("cudaFree", cudaErrorLaunchFailure);
	gp_rt_free(device, p);
	expect_a_clean_launch(s);
	gp_rt_stream_free(s);
	fake.fail.clear();
}

/* Everything that gives back fails, as it does on a card that was lost; the thread goes on with another one. */
void frees_on_a_lost_card_do_not_reach_another_cards_launch(void **)
{
	static const char *const frees[] = {"cudaFreeAsync",          "cudaFreeHost",         "cudaStreamDestroy",
					    "cudaEventDestroy",       "cudaGraphExecDestroy", "cudaMemPoolTrimTo",
					    "cudaMemPoolGetAttribute"};
	const int device = next_device++;
	struct gp_rt_stream *const other = open_stream(next_device++), *const s = open_stream(device);
	struct gp_rt_event *event = nullptr;
	struct gp_rt_graph *graph = nullptr;
	void *p = nullptr, *pinned = nullptr;
	OK(gp_rt_alloc(device, 100, &p, &err));
	OK(gp_rt_alloc_pinned(device, 100, &pinned, &err));
	OK(gp_rt_event_new(device, &event, &err));
	OK(gp_rt_capture_begin(s, &err));
	OK(gp_rt_capture_end(s, &graph, &err));
	for (const char *name : frees)
		fake.let_fail(name, cudaErrorLaunchFailure, 1000);
	gp_rt_free(device, p);
	expect_a_clean_launch(other);
	gp_rt_free_pinned(device, pinned);
	expect_a_clean_launch(other);
	gp_rt_event_free(event);
	expect_a_clean_launch(other);
	gp_rt_graph_free(graph);
	expect_a_clean_launch(other);
	gp_rt_stream_free(s);
	expect_a_clean_launch(other);
	fake.fail.clear();
	gp_rt_stream_free(other);
}

void devices_that_cannot_be_counted_leave_no_error(void **)
{
	struct gp_rt_info info;
	fake.let_fail("cudaGetDeviceCount", cudaErrorInsufficientDriver, 2);
	assert_int_equal(gp_rt_count(), 0);
	assert_int_equal(fake.last, cudaSuccess);
	assert_int_equal(gp_rt_open(0, &info, &err), GP_DEVICE);
	assert_int_equal(fake.last, cudaSuccess);
}

/* By CUDA's manual the process cannot use the device any more; 226 and 721 are not in every toolkit's header. */
void errors_that_take_the_device_are_told_to_whoever_asks(void **)
{
	static const int lasting[] = {46,  214, 220, 226, 700, 702, 709, 710, 714,
				      715, 716, 717, 718, 719, 721, 810, 911, 999};
	static const int passing[] = {cudaErrorInvalidValue, cudaErrorMemoryAllocation, cudaErrorNotSupported};
	for (const int error : lasting) {
		const int device = next_device++;
		struct gp_rt_stream *const s = open_stream(device);
		fake.let_fail("cudaStreamSynchronize", (cudaError_t)error);
		assert_int_equal(gp_rt_stream_wait(s, &err), GP_DEVICE);
		assert_int_equal(gp_rt_check(device, &err), GP_DEVICE);
		gp_rt_stream_free(s);
	}
	for (const int error : passing) {
		const int device = next_device++;
		struct gp_rt_stream *const s = open_stream(device);
		fake.let_fail("cudaStreamSynchronize", (cudaError_t)error);
		assert_int_not_equal(gp_rt_stream_wait(s, &err), GP_OK);
		OK(gp_rt_check(device, &err));
		gp_rt_stream_free(s);
	}
}

void handle_that_waits_for_its_next_session_has_left_the_last_ones_stream(void **)
{
	const int device = next_device++;
	struct gp_rt_stream *const s = open_stream(device);
	struct gp_blas *blas = nullptr;
	OK(gp_blas_new(s, GP_PRECISION_FP32, &blas, &err));
	const cublasHandle_t handle = fake_newest;
	assert_ptr_equal(handle->stream, gp_rt_native(s));
	assert_non_null(handle->workspace);
	gp_blas_free(blas);
	assert_null(handle->stream);
	assert_null(handle->workspace);
	OK(gp_blas_new(s, GP_PRECISION_FP32, &blas, &err));
	assert_ptr_equal(handle, fake_newest); /* it was taken again, none was made */
	assert_non_null(handle->stream);
	assert_non_null(handle->workspace);
	gp_blas_free(blas);
	gp_rt_stream_free(s);
}

void handle_that_cannot_leave_its_stream_is_not_used_again(void **)
{
	const int device = next_device++;
	struct gp_rt_stream *const s = open_stream(device);
	struct gp_blas *blas = nullptr;
	OK(gp_blas_new(s, GP_PRECISION_FP32, &blas, &err));
	const cublasHandle_t handle = fake_newest;
	fake.let_fail("cublasSetStream_v2", cudaErrorLaunchFailure);
	gp_blas_free(blas);
	expect_a_clean_launch(s);
	OK(gp_blas_new(s, GP_PRECISION_FP32, &blas, &err));
	assert_ptr_not_equal(handle, fake_newest);
	gp_blas_free(blas);
	gp_rt_stream_free(s);
}

} // namespace

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(failed_product_in_a_broken_capture_is_told_by_its_end_alone),
		cmocka_unit_test(what_failed_before_a_capture_is_told_by_the_wait_after_it),
		cmocka_unit_test(refused_work_and_failed_product_are_told_by_one_wait),
		cmocka_unit_test(allocation_that_fits_after_a_trim_leaves_no_error),
		cmocka_unit_test(allocation_that_never_fits_is_refused_and_leaves_no_error),
		cmocka_unit_test(sessions_that_open_and_close_take_pinned_memory_once),
		cmocka_unit_test(pinned_memory_that_waits_is_bounded),
		cmocka_unit_test(pinned_memory_waits_for_its_time_and_no_longer),
		cmocka_unit_test(pinned_memory_that_does_not_fit_takes_the_place_of_what_waits),
		cmocka_unit_test(pinned_blocks_are_at_most_an_eighth_larger_than_asked_for),
		cmocka_unit_test(device_whose_pool_gives_nothing_gives_memory_without_one),
		cmocka_unit_test(frees_on_a_lost_card_do_not_reach_another_cards_launch),
		cmocka_unit_test(devices_that_cannot_be_counted_leave_no_error),
		cmocka_unit_test(errors_that_take_the_device_are_told_to_whoever_asks),
		cmocka_unit_test(handle_that_waits_for_its_next_session_has_left_the_last_ones_stream),
		cmocka_unit_test(handle_that_cannot_leave_its_stream_is_not_used_again),
	};
	return cmocka_run_group_tests(tests, nullptr, nullptr);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU runtime, matrix products and the first kernels, on whatever devices
 * this build has: emulated ones, or cards. Without either there is nothing to
 * test, which the program says. See kernels/cuda/runtime/rt.h.
 */
#include "common/base/fault.h"
#include "kernels/cuda/runtime/blas.h"
#include "tests/unit/test_cuda.h"

static float drawn(uint64_t i)
{
	return 2 * gp_rng_uniform(7, 0, i) - 1;
}

static void copies_go_up_and_come_down(void **state)
{
	(void)state;
	enum { N = 10007 };
	static float x[N], y[N];
	void *const d = device_room(sizeof x);
	for (int i = 0; i < N; i++)
		x[i] = drawn((uint64_t)i);
	gp_rt_copy_up(stream, d, x, sizeof x);
	gp_rt_copy_down(stream, y, d, sizeof y);
	OK(gp_rt_stream_wait(stream, &err));
	assert_memory_equal(x, y, sizeof x);
	gp_rt_free(0, d);
}

static void streams_run_in_the_order_that_events_ask_for(void **state)
{
	(void)state;
	enum { N = 4096 };
	static float x[N], y[N];
	struct gp_rt_stream *other;
	struct gp_rt_event *written;
	void *const d = device_room(sizeof x);
	OK(gp_rt_stream_new(0, true, &other, &err));
	OK(gp_rt_event_new(0, &written, &err));
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < N; i++)
			x[i] = (float)(round * N + i);
		gp_rt_copy_up(stream, d, x, sizeof x);
		gp_rt_event_record(written, stream);
		gp_rt_stream_after(other, written);
		gp_rt_copy_down(other, y, d, sizeof y);
		OK(gp_rt_stream_wait(other, &err));
		assert_memory_equal(x, y, sizeof x);
	}
	gp_rt_stream_free(other);
	gp_rt_event_free(written);
	gp_rt_free(0, d);
}

static void values_convert_to_bf16_and_back(void **state)
{
	(void)state;
	enum { N = 3000 };
	static float x[N], y[N];
	void *const wide = device_room(sizeof x), *const narrow = device_room(sizeof x / 2);
	for (int i = 0; i < N; i++)
		x[i] = drawn((uint64_t)i);
	x[0] = NAN;
	x[1] = INFINITY;
	x[2] = 1.00390625f; /* half-way: to the even 1.0 */
	gp_rt_copy_up(stream, wide, x, sizeof x);
	gpk_convert(stream, GP_RT_BF16, narrow, GP_RT_F32, wide, N);
	gpk_convert(stream, GP_RT_F32, wide, GP_RT_BF16, narrow, N);
	gp_rt_copy_down(stream, y, wide, sizeof y);
	OK(gp_rt_stream_wait(stream, &err));
	assert_true(isnan(y[0]));
	assert_true(isinf(y[1]));
	assert_true(y[2] == 1.0f);
	for (int i = 3; i < N; i++)
		assert_true(fabsf(y[i] - x[i]) <= fabsf(x[i]) / 256);
	gp_rt_free(0, wide);
	gp_rt_free(0, narrow);
}

static void sums_of_squares_are_right_for_any_length(void **state)
{
	(void)state;
	static const int lengths[] = {1, 31, 256, 257, 5000, 700001};
	static float x[700001];
	double want, got;
	float *const d = device_room(sizeof x);
	double *const room = device_room((GPK_SQUARES_ROOM + 1) * sizeof *room);
	for (int i = 0; i < 700001; i++)
		x[i] = drawn((uint64_t)i);
	gp_rt_copy_up(stream, d, x, sizeof x);
	for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
		want = 0;
		for (int i = 0; i < lengths[k]; i++)
			want += (double)x[i] * x[i];
		gpk_squares(stream, d, lengths[k], room + 1, room);
		gp_rt_copy_down(stream, &got, room, sizeof got);
		OK(gp_rt_stream_wait(stream, &err));
		assert_true(fabs(got - want) <= 1e-12 * want);
	}
	gp_rt_free(0, d);
	gp_rt_free(0, room);
}

/* Contents are as at the launch, addresses as when captured. */
static void graph_does_its_work_at_every_launch_and_not_before(void **state)
{
	(void)state;
	enum { N = 64 };
	float x[N], y[N];
	struct gp_rt_graph *graph;
	float *const from = device_room(sizeof x), *const to = device_room(sizeof x);
	gp_rt_fill(stream, to, 0, sizeof x);
	OK(gp_rt_stream_wait(stream, &err));
	OK(gp_rt_capture_begin(stream, &err));
	gpk_convert(stream, GP_RT_F32, to, GP_RT_F32, from, N);
	OK(gp_rt_capture_end(stream, &graph, &err));
	gp_rt_copy_down(stream, y, to, sizeof y);
	OK(gp_rt_stream_wait(stream, &err));
	assert_true(y[0] == 0 && y[N - 1] == 0);
	for (int round = 1; round < 4; round++) {
		for (int i = 0; i < N; i++)
			x[i] = (float)(round * i);
		gp_rt_copy_up(stream, from, x, sizeof x);
		gp_rt_graph_launch(graph, stream);
		gp_rt_copy_down(stream, y, to, sizeof y);
		OK(gp_rt_stream_wait(stream, &err));
		assert_memory_equal(x, y, sizeof x);
	}
	gp_rt_graph_free(graph);
	gp_rt_free(0, from);
	gp_rt_free(0, to);
}

static void timed_events_alone_tell_the_time_between_them(void **state)
{
	(void)state;
	struct gp_rt_event *timed[2], *other;
	uint64_t ns;
	for (int i = 0; i < 2; i++)
		OK(gp_rt_event_new_timed(0, &timed[i], &err));
	OK(gp_rt_event_new(0, &other, &err));
	gp_rt_event_record(timed[0], stream);
	gp_rt_event_record(other, stream);
	gp_rt_event_record(timed[1], stream);
	OK(gp_rt_event_wait(timed[1], &err));
	OK(gp_rt_event_ns(timed[0], timed[1], &ns, &err));
	assert_int_not_equal(gp_rt_event_ns(timed[0], other, &ns, &err), GP_OK);
	for (int i = 0; i < 2; i++)
		gp_rt_event_free(timed[i]);
	gp_rt_event_free(other);
}

/* Two streams that meet twice in a graph: `stream` has something done by `other` and needs what came of it. */
struct forked {
	struct gp_rt_stream *other;
	struct gp_rt_event *begun, *ended;
	float *from, *between, *to;
};

enum { FORKED = 64 };

static struct forked open_forked(void)
{
	struct forked f = {.from = device_room(FORKED * sizeof(float)),
			   .between = device_room(FORKED * sizeof(float)),
			   .to = device_room(FORKED * sizeof(float))};
	OK(gp_rt_stream_new(0, false, &f.other, &err));
	OK(gp_rt_event_new(0, &f.begun, &err));
	OK(gp_rt_event_new(0, &f.ended, &err));
	return f;
}

static void close_forked(struct forked *f)
{
	gp_rt_event_free(f->begun);
	gp_rt_event_free(f->ended);
	gp_rt_stream_free(f->other);
	gp_rt_free(0, f->from);
	gp_rt_free(0, f->between);
	gp_rt_free(0, f->to);
}

/* to = between = from; then from = 0, which comes too early where `joins_late`. */
static void queue_forked(struct forked *f, bool joins_late)
{
	gp_rt_event_record(f->begun, stream);
	gp_rt_stream_after(f->other, f->begun);
	gp_rt_copy(f->other, f->between, f->from, FORKED * sizeof(float));
	gp_rt_event_record(f->ended, f->other);
	if (joins_late)
		gp_rt_fill(stream, f->from, 0, FORKED * sizeof(float));
	gp_rt_stream_after(stream, f->ended);
	gp_rt_copy(stream, f->to, f->between, FORKED * sizeof(float));
	if (!joins_late)
		gp_rt_fill(stream, f->from, 0, FORKED * sizeof(float));
}

static struct gp_rt_graph *capture_forked(struct forked *f, bool joins_late)
{
	struct gp_rt_graph *graph;
	OK(gp_rt_capture_begin(stream, &err));
	queue_forked(f, joins_late);
	OK(gp_rt_capture_end(stream, &graph, &err));
	return graph;
}

/* What comes of x = 1, 2, ... by the graph, or by the same calls without one; a new launch may follow at once. */
static bool forked_is_right(struct forked *f, struct gp_rt_graph *graph, bool joins_late)
{
	enum { LAUNCHES = 3 };
	static float x[LAUNCHES][FORKED], y[LAUNCHES][FORKED];
	for (int i = 0; i < LAUNCHES; i++) {
		for (int k = 0; k < FORKED; k++)
			x[i][k] = (float)(i * FORKED + k + 1);
		gp_rt_copy_up(stream, f->from, x[i], sizeof x[i]);
		if (graph)
			gp_rt_graph_launch(graph, stream);
		else
			queue_forked(f, joins_late);
		gp_rt_copy_down(stream, y[i], f->to, sizeof y[i]);
	}
	OK(gp_rt_stream_wait(stream, &err));
	return memcmp(x, y, sizeof x) == 0;
}

static void a_stream_that_waits_for_a_captured_one_is_in_the_graph(void **state)
{
	(void)state;
	struct forked f = open_forked();
	struct gp_rt_graph *graph = capture_forked(&f, false);
	assert_true(forked_is_right(&f, graph, false));
	assert_true(forked_is_right(&f, NULL, false));
	gp_rt_graph_free(graph);
	close_forked(&f);
}

/* Nobody can count on it on a card; the emulated one does what is not waited for as late as it may. */
static void a_wait_that_was_forgotten_shows_on_the_emulated_device(void **state)
{
	(void)state;
	if (!gp_rt_is_emulated() || getenv("GP_EMULATE_STREAMS"))
		skip();
	struct forked f = open_forked();
	struct gp_rt_graph *graph = capture_forked(&f, true);
	assert_false(forked_is_right(&f, graph, true));
	assert_false(forked_is_right(&f, NULL, true));
	gp_rt_graph_free(graph);
	close_forked(&f);
}

static void a_graph_that_leaves_a_stream_behind_is_refused(void **state)
{
	(void)state;
	struct forked f = open_forked();
	struct gp_rt_graph *graph = NULL;
	OK(gp_rt_capture_begin(stream, &err));
	gp_rt_event_record(f.begun, stream);
	gp_rt_stream_after(f.other, f.begun);
	gp_rt_fill(f.other, f.between, 0, FORKED * sizeof(float));
	assert_int_equal(gp_rt_capture_end(stream, &graph, &err), GP_DEVICE);
	assert_null(graph);
	graph = capture_forked(&f, false); /* both are streams again */
	assert_true(forked_is_right(&f, graph, false));
	gp_rt_graph_free(graph);
	close_forked(&f);
}

static void product(const float *a, bool ta, const float *b, bool tb, int m, int n, int k, float *c, float beta)
{
	for (int i = 0; i < m; i++)
		for (int j = 0; j < n; j++) {
			double sum = 0;
			for (int l = 0; l < k; l++)
				sum += (double)(ta ? a[l * m + i] : a[i * k + l]) * (tb ? b[j * k + l] : b[l * n + j]);
			c[i * n + j] = (float)sum + (beta != 0 ? beta * c[i * n + j] : 0);
		}
}

static void check_gemm(enum gp_precision precision, bool ta, bool tb, float beta, float tolerance)
{
	enum { M = 17, N = 9, K = 33, BATCH = 2 };
	static float a[BATCH * M * K], b[BATCH * K * N], c[BATCH * M * N], want[BATCH * M * N];
	struct gp_blas *blas;
	for (int i = 0; i < BATCH * M * K; i++)
		a[i] = drawn((uint64_t)i);
	for (int i = 0; i < BATCH * K * N; i++)
		b[i] = drawn(5000 + (uint64_t)i);
	for (int i = 0; i < BATCH * M * N; i++)
		c[i] = want[i] = drawn(9000 + (uint64_t)i);
	for (int i = 0; i < BATCH; i++)
		product(a + i * M * K, ta, b + i * K * N, tb, M, N, K, want + i * M * N, beta);
	void *const da = device_room(sizeof a), *const db = device_room(sizeof b), *const dc = device_room(sizeof c);
	const struct gp_matrix ma = {.data = da, .transposed = ta, .stride = ta ? M : K, .between = M * K};
	const struct gp_matrix mb = {.data = db, .transposed = tb, .stride = tb ? K : N, .between = K * N};
	const struct gp_matrix mc = {.data = dc, .stride = N, .between = M * N};
	OK(gp_blas_new(stream, precision, &blas, &err));
	gp_rt_copy_up(stream, da, a, sizeof a);
	gp_rt_copy_up(stream, db, b, sizeof b);
	gp_rt_copy_up(stream, dc, c, sizeof c);
	gp_blas_gemm(blas, M, N, K, 1, &ma, &mb, beta, &mc, BATCH);
	gp_rt_copy_down(stream, c, dc, sizeof c);
	OK(gp_rt_stream_wait(stream, &err));
	for (int i = 0; i < BATCH * M * N; i++)
		assert_true(fabsf(c[i] - want[i]) <= tolerance);
	gp_blas_free(blas);
	gp_rt_free(0, da);
	gp_rt_free(0, db);
	gp_rt_free(0, dc);
}

static void matrix_products_are_right_in_every_layout_and_precision(void **state)
{
	(void)state;
	for (int layout = 0; layout < 4; layout++)
		for (int add = 0; add < 2; add++) {
			check_gemm(GP_PRECISION_FP32, layout & 1, layout & 2, (float)add, 1e-5f);
			check_gemm(GP_PRECISION_TF32, layout & 1, layout & 2, (float)add, 2e-2f);
			check_gemm(GP_PRECISION_BF16, layout & 1, layout & 2, (float)add, 2e-1f);
		}
}

static void device_that_is_not_there_is_refused_by_number(void **state)
{
	(void)state;
	struct gp_rt_info info;
	void *p = NULL;
	assert_int_equal(gp_rt_open(gp_rt_count(), &info, &err), GP_DEVICE);
	assert_int_equal(gp_rt_open(-1, &info, &err), GP_DEVICE);
	const enum gp_status status = gp_rt_alloc(0, UINT64_C(1) << 50, &p, &err);
	assert_true(status == GP_NOMEM || (status == GP_DEVICE && is_like_a_card())); /* or: no such size at all */
	assert_null(p);
}

static void failure_is_told_by_the_stream_that_came_after(void **state)
{
	(void)state;
	if (!gp_rt_is_emulated())
		skip();
	struct forked f = open_forked();
	gp_fault_arm(GP_FAULT_DEVICE, 1);
	gp_rt_fill(f.other, f.to, 0, FORKED * sizeof(float));
	gp_fault_arm(GP_FAULT_DEVICE, 0);
	gp_rt_event_record(f.ended, f.other);
	gp_rt_stream_after(stream, f.ended);
	assert_int_equal(gp_rt_stream_wait(stream, &err), GP_DEVICE);
	OK(gp_rt_stream_wait(stream, &err));
	OK(gp_rt_stream_wait(f.other, &err));
	close_forked(&f);
}

/* Only an emulated device fails on demand. */
static void failure_of_the_device_is_told_at_the_next_wait_and_not_again(void **state)
{
	(void)state;
	if (!gp_rt_is_emulated())
		skip();
	float x = 1;
	void *const d = device_room(sizeof x);
	gp_fault_arm(GP_FAULT_DEVICE, 2);
	gp_rt_copy_up(stream, d, &x, sizeof x);
	gp_rt_copy_down(stream, &x, d, sizeof x);
	assert_int_equal(gp_rt_stream_wait(stream, &err), GP_DEVICE);
	OK(gp_rt_stream_wait(stream, &err));
	gp_fault_arm(GP_FAULT_DEVICE, 0);
	gp_rt_free(0, d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_go_up_and_come_down),
		cmocka_unit_test(streams_run_in_the_order_that_events_ask_for),
		cmocka_unit_test(values_convert_to_bf16_and_back),
		cmocka_unit_test(sums_of_squares_are_right_for_any_length),
		cmocka_unit_test(graph_does_its_work_at_every_launch_and_not_before),
		cmocka_unit_test(timed_events_alone_tell_the_time_between_them),
		cmocka_unit_test(a_stream_that_waits_for_a_captured_one_is_in_the_graph),
		cmocka_unit_test(a_wait_that_was_forgotten_shows_on_the_emulated_device),
		cmocka_unit_test(a_graph_that_leaves_a_stream_behind_is_refused),
		cmocka_unit_test(matrix_products_are_right_in_every_layout_and_precision),
		cmocka_unit_test(device_that_is_not_there_is_refused_by_number),
		cmocka_unit_test(failure_of_the_device_is_told_at_the_next_wait_and_not_again),
		cmocka_unit_test(failure_is_told_by_the_stream_that_came_after),
	};
	return run_on_gpu(tests, open_stream, close_stream);
}

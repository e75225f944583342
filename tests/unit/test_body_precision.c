/* SPDX-License-Identifier: Apache-2.0
 *
 * A body that tries precisions (server/body_precision.c): others have their turns on the device meanwhile, what takes too long
 * is noticed, and a session that ends within a trial leaves nothing behind. The device is the processor, which says that it has
 * tf32.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/clock.h"
#include "common/graph/ops/op_linear.h"
#include "kernels/cpu/plan/cpu_device.h"
#include "kernels/device_registry.h"
#include "server/body_impl.h"

enum { SAMPLES = 2, CHUNKS = 3, WINDOW = 2, DEADLINE_S = 600 };

#define OK(expr)                                                                                                       \
	do {                                                                                                           \
		if ((expr) != GP_OK)                                                                                   \
			fail_msg("%s", err.text);                                                                      \
	} while (0)

/* --- the device --------------------------------------------------------------------------------------------------- */

static struct {
	struct gp_device_ops ops;
	pthread_t compute;
	atomic_int made, made_on_compute, freed;
	atomic_bool holds, waiting, go;         /* the next forward waits; it does; it need not any more */
	atomic_bool other_ran, other_ran_first; /* a task of somebody else; and before the first backward */
	atomic_int backwards;
} device;

static void await(const atomic_bool *flag)
{
	while (!atomic_load(flag))
		usleep(1000);
}

static bool has_tf32(const struct gp_device *dev, enum gp_precision precision)
{
	(void)dev;
	return precision == GP_PRECISION_FP32 || precision == GP_PRECISION_TF32;
}

static enum gp_status make_plan(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **out,
				struct gp_err *err)
{
	GP_TRY(gp_cpu_device_ops.plan_new(dev, spec, out, err));
	(*out)->ops = &device.ops;
	atomic_fetch_add(&device.made, 1);
	atomic_fetch_add(&device.made_on_compute, pthread_equal(pthread_self(), device.compute) != 0);
	return GP_OK;
}

static void free_plan(struct gp_plan *plan)
{
	atomic_fetch_add(&device.freed, 1);
	gp_cpu_device_ops.plan_free(plan);
}

static enum gp_status forward(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw, struct gp_err *err)
{
	if (atomic_exchange(&device.holds, false)) {
		atomic_store(&device.waiting, true);
		await(&device.go);
	}
	return gp_cpu_device_ops.forward(plan, slot, mode, draw, err);
}

static enum gp_status backward(struct gp_plan *plan, int slot, struct gp_err *err)
{
	if (atomic_fetch_add(&device.backwards, 1) == 0)
		atomic_store(&device.other_ran_first, atomic_load(&device.other_ran));
	return gp_cpu_device_ops.backward(plan, slot, err);
}

/* --- the body ------------------------------------------------------------------------------------------------------ */

struct rig {
	uv_loop_t loop;
	struct gp_device *dev;
	struct gp_worker *compute, *build;
	struct gp_channel *ch[2];
	struct gp_body *body;
	int ready, idle, closed, told;
};

static void on_opened(void *arg)
{
	(void)arg;
}

static void on_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	(void)arg;
	(void)status;
	(void)err;
}

static enum gp_status estimated(void *arg, const struct gp_body_need *need, struct gp_body_site *at, struct gp_err *err)
{
	(void)arg;
	(void)at;
	(void)err;
	assert_true(need->host > 0);
	return GP_OK;
}

static void ready(void *arg)
{
	((struct rig *)arg)->ready++;
}

static void failed(void *arg, enum gp_status status, struct gp_err *err)
{
	(void)arg;
	fail_msg("the body failed with status %d: %s", (int)status, err->text);
}

static void idle(void *arg)
{
	((struct rig *)arg)->idle++;
}

static void run_tell(struct gp_task *task)
{
	(void)task;
	device.compute = pthread_self();
}

static void told(struct gp_task *task)
{
	((struct rig *)task->arg)->told++;
}

static void turn_until(struct rig *r, const int *counter, int value)
{
	const uint64_t begin = gp_now_ns();
	while (*counter < value) {
		uv_run(&r->loop, UV_RUN_ONCE);
		if (gp_now_ns() - begin > DEADLINE_S * UINT64_C(1000000000))
			fail_msg("nothing happened for ten minutes");
	}
}

static void turn_until_forward(struct rig *r)
{
	const uint64_t begin = gp_now_ns();
	while (!atomic_load(&device.waiting)) {
		uv_run(&r->loop, UV_RUN_NOWAIT);
		usleep(1000);
		if (gp_now_ns() - begin > DEADLINE_S * UINT64_C(1000000000))
			fail_msg("nothing was tried for ten minutes");
	}
}

static void turn_while_busy(struct rig *r)
{
	while (gp_body_busy(r->body))
		uv_run(&r->loop, UV_RUN_ONCE);
}

static void open_device(struct rig *r)
{
	struct gp_err err;
	OK(gp_device_open("cpu", 1, &r->dev, &err));
	device.ops = gp_cpu_device_ops;
	device.ops.supports = has_tf32;
	device.ops.plan_new = make_plan;
	device.ops.plan_free = free_plan;
	device.ops.forward = forward;
	device.ops.backward = backward;
	r->dev->ops = &device.ops;
}

static void connect_ends(struct rig *r)
{
	const struct gp_channel_cbs cbs = {.opened = on_opened, .ended = on_ended};
	struct gp_conn *conn[2];
	struct gp_err err;
	OK(gp_mem_pair(&r->loop, 0, &conn[0], &conn[1], &err));
	for (int i = 0; i < 2; i++)
		OK(gp_channel_new(&r->loop, conn[i], NULL, &cbs, r, &r->ch[i], &err));
}

static struct gp_body_spec body_spec(void)
{
	const struct gp_shape sample = {.ndim = 1, .dim = {12}};
	struct gp_err err;
	struct gp_body_spec s = {.graph = gp_graph_new("body", &sample, &err),
				 .id = 77,
				 .task_limit_s = 10,
				 .task_s = 1,
				 .session.choose_precision = true,
				 .session.chunk_samples = SAMPLES,
				 .session.window = WINDOW,
				 .session.chunks = CHUNKS};
	OK(gp_graph_begin_block(s.graph, "block", &err));
	assert_true(gp_graph_linear(s.graph, "linear", 0, 12, true, &err) > 0);
	OK(gp_graph_finish(s.graph, &err));
	for (int d = 0; d < GP_DIRECTIONS; d++)
		OK(gp_codec_spec_parse("raw", &s.session.codec[d], &err));
	return s;
}

/* Returns within the first forward of a trial. */
static void rig_init(struct rig *r)
{
	static const struct gp_body_cbs cbs = {.estimated = estimated, .ready = ready, .failed = failed, .idle = idle};
	const struct gp_body_spec spec = body_spec();
	struct gp_task tell = {.run = run_tell, .done = told, .arg = r};
	struct gp_lane lane;
	struct gp_err err;
	memset(r, 0, sizeof *r);
	memset(&device, 0, sizeof device);
	atomic_store(&device.holds, true);
	assert_int_equal(uv_loop_init(&r->loop), 0);
	open_device(r);
	OK(gp_worker_new(&r->loop, "compute", 1, &r->compute, &err));
	OK(gp_worker_new(&r->loop, "build", 1, &r->build, &err));
	gp_lane_init(&lane, r->compute, NULL);
	gp_worker_submit(&lane, &tell, 0);
	turn_until(r, &r->told, 1);
	gp_lane_deinit(&lane);
	connect_ends(r);
	const struct gp_body_workers workers = {.build = r->build, .codec = r->build};
	const struct gp_body_site at = {r->dev, r->compute};
	OK(gp_body_new(&at, &workers, r->ch[0], &spec, &cbs, r, &r->body, &err));
	turn_until_forward(r);
}

static void on_closed(void *arg)
{
	((struct rig *)arg)->closed++;
}

static void rig_deinit(struct rig *r)
{
	gp_body_stop(r->body);
	turn_while_busy(r);
	gp_body_free(r->body);
	assert_int_equal(atomic_load(&device.freed), atomic_load(&device.made));
	for (int i = 0; i < 2; i++)
		gp_channel_close(r->ch[i], false, on_closed, r);
	turn_until(r, &r->closed, 2);
	gp_worker_free(r->compute);
	gp_worker_free(r->build);
	uv_run(&r->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&r->loop), 0);
	r->dev->ops->close(r->dev);
}

/* --- tests --------------------------------------------------------------------------------------------------------- */

static void run_other(struct gp_task *task)
{
	(void)task;
	atomic_store(&device.other_ran, true);
}

static void ignore(struct gp_task *task)
{
	(void)task;
}

/* A plan of a large body is long in the making, and each half of a pass may take as long as --task-time says. */
static void others_have_the_device_between_the_halves_of_a_pass_and_while_plans_are_made(void **state)
{
	(void)state;
	struct gp_task other = {.run = run_other, .done = ignore};
	struct gp_lane lane;
	struct rig r;
	rig_init(&r);
	gp_lane_init(&lane, r.compute, NULL);
	gp_worker_submit(&lane, &other, 0);
	atomic_store(&device.go, true);
	turn_until(&r, &r.ready, 1);
	assert_true(atomic_load(&device.other_ran_first));
	assert_int_equal(atomic_load(&device.made_on_compute), 0);
	assert_int_equal(atomic_load(&device.made), 2 * GP_PRECISION_ROUNDS + 1); /* and that of the session */
	assert_int_equal(atomic_load(&device.freed), 2 * GP_PRECISION_ROUNDS);
	gp_lane_deinit(&lane);
	rig_deinit(&r);
}

static void a_pass_of_a_trial_that_takes_too_long_is_noticed(void **state)
{
	(void)state;
	struct rig r;
	rig_init(&r);
	const uint64_t now = gp_now_ns();
	assert_true(gp_body_overrun(r.body, 0, now).seconds <= 0);
	assert_true(gp_body_overrun(r.body, 0, now + UINT64_C(11000000000)).seconds > 10);
	atomic_store(&device.go, true);
	turn_until(&r, &r.ready, 1);
	assert_true(gp_body_overrun(r.body, 0, now + UINT64_C(11000000000)).seconds <= 0);
	rig_deinit(&r);
}

static void a_session_that_ends_within_a_trial_leaves_no_plan(void **state)
{
	(void)state;
	struct rig r;
	rig_init(&r);
	gp_body_stop(r.body);
	atomic_store(&device.go, true);
	turn_while_busy(&r);
	assert_int_equal(atomic_load(&device.made), 1);
	assert_int_equal(atomic_load(&device.freed), 0);
	assert_true(gp_body_release(r.body)); /* where plans are freed, and not on the loop's thread */
	turn_while_busy(&r);
	assert_int_equal(atomic_load(&device.freed), 1);
	assert_false(gp_body_release(r.body));
	rig_deinit(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(others_have_the_device_between_the_halves_of_a_pass_and_while_plans_are_made),
		cmocka_unit_test(a_pass_of_a_trial_that_takes_too_long_is_noticed),
		cmocka_unit_test(a_session_that_ends_within_a_trial_leaves_no_plan),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

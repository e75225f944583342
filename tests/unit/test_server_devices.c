/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of a server (server/devices.h): where a session is placed, what
 * it may take of a device's own memory, and what a device that fails means for
 * it, for others and for the daemon. The devices are CPUs that say they are
 * cards with a memory of their own, and fail when they are told to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/engine/engine.h"
#include "client/train/run_state.h"
#include "client/models/models.h"
#include "kernels/cpu/plan/cpu_device.h"
#include "tests/unit/server_thread.h"
#include "kernels/device_registry.h"
#include "common/graph/graph_part.h"

enum { CARDS = 2, BATCH = 8, CHUNKS = 4, STEPS = 3 };
#define MIB (UINT64_C(1) << 20)

static void expect_ok(enum gp_status status, const struct gp_err *err)
{
	if (status != GP_OK)
		fail_msg("%s", err->text);
}

/* --- cards ------------------------------------------------------------------------------------------------------- */

static struct card {
	_Atomic uint64_t unused;
	atomic_bool broken, sick, lost; /* the next pass fails; every one does; and no plan will mend it */
	atomic_int forwards;
	atomic_bool no_bf16, no_memory; /* the latter: for a plan, whatever card_memory has said */
	_Atomic uint64_t pinned;        /* bytes of the host's memory that a plan takes besides */
} card[CARDS];

static struct card *card_of(const char *name)
{
	return &card[name[strlen(name) - 1] - '0'];
}

static enum gp_status card_memory(struct gp_device *dev, uint64_t *total, uint64_t *unused, struct gp_err *err)
{
	(void)err;
	*total = 1024 * MIB;
	*unused = atomic_load(&card_of(dev->name)->unused);
	return GP_OK;
}

static enum gp_status card_check(struct gp_device *dev, struct gp_err *err)
{
	if (atomic_load(&card_of(dev->name)->lost))
		GP_FAIL(err, GP_DEVICE, "%s has fallen off the bus", dev->name);
	return GP_OK;
}

static bool card_supports(const struct gp_device *dev, enum gp_precision precision)
{
	return precision != GP_PRECISION_BF16 || !atomic_load(&card_of(dev->name)->no_bf16);
}

/* A plan knows its device by the order in which cards got their tables. */
static enum gp_status forward_on(int index, struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw,
				 struct gp_err *err)
{
	atomic_fetch_add(&card[index].forwards, 1);
	if (atomic_load(&card[index].lost) || atomic_load(&card[index].sick) ||
	    atomic_exchange(&card[index].broken, false))
		GP_FAIL(err, GP_DEVICE, "an illegal address was read");
	return gp_cpu_device_ops.queue_forward(plan, slot, mode, draw, err);
}

static enum gp_status forward_0(struct gp_plan *p, int slot, enum gp_mode mode, uint64_t draw, struct gp_err *err)
{
	return forward_on(0, p, slot, mode, draw, err);
}

static enum gp_status forward_1(struct gp_plan *p, int slot, enum gp_mode mode, uint64_t draw, struct gp_err *err)
{
	return forward_on(1, p, slot, mode, draw, err);
}

static enum gp_status card_plan_new(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **out,
				    struct gp_err *err)
{
	if (atomic_load(&card_of(dev->name)->no_memory))
		GP_FAIL(err, GP_NOMEM, "%s is out of memory", dev->name);
	return gp_cpu_device_ops.plan_new(dev, spec, out, err);
}

static enum gp_status card_estimate(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan_memory *out,
				    struct gp_err *err)
{
	GP_TRY(gp_cpu_device_ops.plan_estimate(dev, spec, out, err));
	out->host = atomic_load(&card_of(dev->name)->pinned);
	return GP_OK;
}

/* A plan knows no card: all cards' plans pin the same. */
static void card_plan_memory(const struct gp_plan *plan, struct gp_plan_memory *out)
{
	gp_cpu_device_ops.plan_memory(plan, out);
	out->host = atomic_load(&card[0].pinned);
}

static struct gp_device_ops card_ops[CARDS];

/* Once: sessions of an earlier server may still be on their way out. */
static void make_card_ops(int index)
{
	struct gp_device_ops *ops = &card_ops[index];
	if (ops->memory)
		return;
	*ops = gp_cpu_device_ops;
	ops->check = card_check;
	ops->supports = card_supports;
	ops->plan_estimate = card_estimate;
	ops->plan_memory = card_plan_memory;
	ops->plan_new = card_plan_new;
	ops->queue_forward = index == 0 ? forward_0 : forward_1;
	ops->memory = card_memory;
}

static void make_card(struct gp_device *dev, int index)
{
	make_card_ops(index);
	dev->ops = &card_ops[index];
	snprintf(dev->name, sizeof dev->name, "card:%d", index);
	strcpy(dev->card, "a test's");
	atomic_store(&card[index].unused, 512 * MIB);
	atomic_store(&card[index].broken, false);
	atomic_store(&card[index].sick, false);
	atomic_store(&card[index].lost, false);
	atomic_store(&card[index].forwards, 0);
	atomic_store(&card[index].no_bf16, false);
	atomic_store(&card[index].no_memory, false);
	atomic_store(&card[index].pinned, 0);
}

/* Without workers and plans: for what is decided before those are asked. */
static void two_cards(struct gp_server_devices *d, struct gp_device dev[CARDS])
{
	memset(d, 0, sizeof *d);
	d->count = CARDS;
	for (int i = 0; i < CARDS; i++) {
		make_card(&dev[i], i);
		d->device[i] = (struct gp_server_device){.dev = &dev[i], .memory_bytes = 512 * MIB};
	}
}

/* --- placing ----------------------------------------------------------------------------------------------------- */

static void a_session_comes_to_the_device_with_the_fewest_and_then_to_the_one_with_most_memory(void **state)
{
	(void)state;
	struct gp_server_devices d;
	struct gp_device dev[CARDS];
	struct gp_server_device *at[5];
	struct gp_err err;
	two_cards(&d, dev);
	expect_ok(gp_server_devices_choose(&d, GP_PRECISION_FP32, 0, &at[0], &err), &err);
	assert_ptr_equal(at[0], &d.device[0]);
	expect_ok(gp_server_devices_choose(&d, GP_PRECISION_FP32, 0, &at[1], &err), &err);
	assert_ptr_equal(at[1], &d.device[1]);
	expect_ok(gp_server_device_reserve(&d, at[0], 0, 100 * MIB, &err), &err);
	expect_ok(gp_server_devices_choose(&d, GP_PRECISION_FP32, 0, &at[2], &err), &err);
	assert_ptr_equal(at[2], &d.device[1]);
	expect_ok(gp_server_devices_choose(&d, GP_PRECISION_FP32, 0, &at[3], &err), &err);
	assert_ptr_equal(at[3], &d.device[0]);
	gp_server_device_leave(at[0], 100 * MIB);
	expect_ok(gp_server_devices_choose(&d, GP_PRECISION_FP32, 0, &at[4], &err), &err);
	assert_ptr_equal(at[4], &d.device[0]);
	assert_int_equal(d.device[0].used_bytes, 0);
}

static void a_device_that_was_tried_that_cannot_or_that_has_failed_gets_none(void **state)
{
	(void)state;
	struct gp_server_devices d;
	struct gp_device dev[CARDS];
	struct gp_server_device *at;
	struct gp_err err;
	two_cards(&d, dev);
	expect_ok(gp_server_devices_choose(&d, GP_PRECISION_FP32, 1, &at, &err), &err);
	assert_ptr_equal(at, &d.device[1]);
	assert_int_equal(gp_server_devices_choose(&d, GP_PRECISION_FP32, 3, &at, &err), GP_BUSY);
	atomic_store(&card[0].no_bf16, true);
	expect_ok(gp_server_devices_choose(&d, GP_PRECISION_BF16, 0, &at, &err), &err);
	assert_ptr_equal(at, &d.device[1]);
	atomic_store(&card[1].no_bf16, true);
	assert_int_equal(gp_server_devices_choose(&d, GP_PRECISION_BF16, 0, &at, &err), GP_UNSUPPORTED);
	assert_non_null(strstr(err.text, "card:0 (a test's), card:1 (a test's)"));
	atomic_store(&card[0].lost, true);
	expect_ok(gp_server_devices_choose(&d, GP_PRECISION_FP32, 0, &at, &err), &err);
	assert_ptr_equal(at, &d.device[1]);
	atomic_store(&card[1].lost, true);
	assert_int_equal(gp_server_devices_choose(&d, GP_PRECISION_FP32, 0, &at, &err), GP_DEVICE);
	assert_non_null(strstr(err.text, "started again"));
}

static void memory_of_a_device_is_promised_once_and_no_more_than_there_is(void **state)
{
	(void)state;
	struct gp_server_devices d;
	struct gp_device dev[CARDS];
	struct gp_err err;
	two_cards(&d, dev);
	struct gp_server_device *at = &d.device[0];
	assert_int_equal(gp_server_device_reserve(&d, at, 0, 513 * MIB, &err), GP_NOMEM);
	assert_non_null(strstr(err.text, "513 MiB"));
	assert_non_null(strstr(err.text, "which has 512 MiB"));
	d.session_bytes = 300 * MIB;
	assert_int_equal(gp_server_device_reserve(&d, at, 0, 301 * MIB, &err), GP_NOMEM);
	assert_non_null(strstr(err.text, "the server allows 300 MiB"));
	expect_ok(gp_server_device_reserve(&d, at, 0, 200 * MIB, &err), &err);
	expect_ok(gp_server_device_reserve(&d, at, 200 * MIB, 300 * MIB, &err), &err);
	assert_int_equal(gp_server_device_reserve(&d, at, 0, 213 * MIB, &err), GP_BUSY);
	assert_non_null(strstr(err.text, "have left 212 MiB"));
	atomic_store(&card[0].unused, 100 * MIB); /* another program */
	assert_int_equal(gp_server_device_reserve(&d, at, 0, 101 * MIB, &err), GP_BUSY);
	assert_non_null(strstr(err.text, "100 MiB of it are free"));
	expect_ok(gp_server_device_reserve(&d, at, 0, 100 * MIB, &err), &err);
	assert_int_equal(at->used_bytes, 400 * MIB);
}

static void a_list_of_devices_that_cannot_be_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *list, *part;
	} cases[] = {
		{"cpu,cpu", "twice"}, {"", "unknown"}, {"cpu,", "unknown"}, {",cpu", "unknown"}, {"cpu,gpu", "gpu"}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_server_devices d;
		struct gp_err err = {0};
		uv_loop_t loop;
		assert_int_equal(uv_loop_init(&loop), 0);
		assert_int_equal(gp_server_devices_open(&d, &loop, cases[i].list, 1, &err), GP_USAGE);
		if (!strstr(err.text, cases[i].part))
			fail_msg("'%s': %s", cases[i].list, err.text);
		assert_int_equal(d.count, 0);
		uv_run(&loop, UV_RUN_DEFAULT);
		assert_int_equal(uv_loop_close(&loop), 0);
	}
}

/* A driver takes memory after the server has counted it: sessions are not promised all that is free. */
static void a_part_of_a_devices_memory_is_promised_to_nobody(void **state)
{
	(void)state;
	struct gp_server_devices d;
	struct gp_err err = {0};
	uint64_t total, unused;
	uv_loop_t loop;
	assert_int_equal(uv_loop_init(&loop), 0);
	const enum gp_status status = gp_server_devices_open(&d, &loop, "cuda-emulated", 1, &err);
	if (status == GP_OK) {
		struct gp_device *dev = d.device[0].dev;
		expect_ok(dev->ops->memory(dev, &total, &unused, &err), &err);
		assert_true(d.device[0].memory_bytes <= unused - unused / 64);
		assert_true(d.device[0].memory_bytes >= unused - unused / 8);
		gp_server_devices_close(&d);
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	if (status != GP_OK)
		skip(); /* this build emulates none */
}

/* --- a server with two cards ------------------------------------------------------------------------------------- */

static void give_cards(struct gp_server *srv)
{
	struct gp_err err;
	struct gp_server_devices *d = &srv->devices;
	for (int i = 0; i < CARDS; i++) {
		struct gp_server_device *at = &d->device[i];
		if (i > 0) {
			expect_ok(gp_device_open("cpu", 1, &at->dev, &err), &err);
			expect_ok(gp_worker_new(srv->loop, "card", 1, &at->compute, &err), &err);
		}
		make_card(at->dev, i);
		at->memory_bytes = 512 * MIB;
	}
	d->count = CARDS;
}

static int setup_with(void **state, uint64_t memory_0, uint64_t memory_1)
{
	const struct gp_server_settings set = server_thread_settings();
	struct server_thread *server = server_thread_prepare(&set);
	give_cards(&server->server);
	server->server.devices.device[0].memory_bytes = memory_0;
	server->server.devices.device[1].memory_bytes = memory_1;
	server_thread_run(server);
	*state = server;
	return 0;
}

static int setup(void **state)
{
	return setup_with(state, 512 * MIB, 512 * MIB);
}

/* No session will ever fit. */
static int setup_second_small(void **state)
{
	return setup_with(state, 512 * MIB, 1);
}

static int setup_both_small(void **state)
{
	return setup_with(state, 2, 1);
}

static int teardown(void **state)
{
	server_thread_stop(*state);
	return 0;
}

struct client {
	struct gp_run_state *run;
	double reconnect_for_s;
	struct gp_graph *graph;
	struct gp_dataset *data;
	struct gp_loader *loader;
	struct gp_engine *engine;
};

static enum gp_status client_open(struct client *c, const struct server_thread *server, struct gp_err *err)
{
	struct gp_dataset_options dataset = {0};
	struct gp_loader_spec ls = {.batch = BATCH, .shuffle = true, .drop_last = true, .seed = 5, .prefetch = 2};
	struct gp_engine_spec spec = {.device = "cpu",
				      .threads = 1,
				      .session.chunk_samples = BATCH / CHUNKS,
				      .session.chunks = CHUNKS,
				      .session.window = 2,
				      .session.seed = 11,
				      .session.optim = {.momentum = 0.9f},
				      .server = server->address,
				      .run = c->run,
				      .connect_timeout_s = 60,
				      .idle_timeout_s = 60,
				      .reconnect_for_s = c->reconnect_for_s};
	expect_ok(gp_dataset_open("synthetic:shape=1x16x16,classes=10,samples=64", GP_SPLIT_TRAIN, &dataset, &c->data,
				  err),
		  err);
	expect_ok(gp_loader_new(c->data, &ls, &c->loader, err), err);
	struct gp_model_options model = {.classes = 10, .input = *gp_dataset_shape(c->data)};
	expect_ok(gp_model_build("cnn", &model, &c->graph, err), err);
	spec.graph = c->graph;
	expect_ok(gp_cut_parse(c->graph, "1:-1", &spec.cut, err), err);
	for (int i = 0; i < 4; i++)
		expect_ok(gp_codec_spec_parse("raw", &spec.session.codec[i], err), err);
	return gp_engine_new_split(&spec, &c->engine, err);
}

static void client_close(struct client *c)
{
	if (c->engine)
		c->engine->ops->free(c->engine);
	gp_loader_free(c->loader);
	gp_dataset_free(c->data);
	gp_graph_free(c->graph);
}

static void until_open(struct client *c, const struct server_thread *server)
{
	struct gp_err err = {0};
	memset(c, 0, sizeof *c);
	expect_ok(client_open(c, server, &err), &err);
}

static enum gp_status client_step(struct client *c, double *loss, struct gp_err *err)
{
	struct gp_batch *batch;
	struct gp_step_result result = {0};
	expect_ok(gp_loader_next(c->loader, &batch, err), err);
	enum gp_status status = c->engine->ops->step(c->engine, batch, NULL, 0.05f, &result, err);
	gp_loader_give_back(c->loader, batch);
	*loss = result.loss_sum;
	return status;
}

static void expect_on(struct client *c, const char *device)
{
	struct gp_engine_figures f;
	c->engine->ops->figures(c->engine, &f);
	assert_string_equal(f.server_device, device);
	assert_true(f.server_device_bytes > 0);
}

static void two_sessions_compute_on_two_devices_and_get_the_same_results(void **state)
{
	struct client c[CARDS];
	struct gp_err err = {0};
	for (int i = 0; i < CARDS; i++)
		until_open(&c[i], *state);
	expect_on(&c[0], "card:0 (a test's)");
	expect_on(&c[1], "card:1 (a test's)");
	for (int step = 0; step < STEPS; step++) {
		double loss[CARDS];
		for (int i = 0; i < CARDS; i++)
			expect_ok(client_step(&c[i], &loss[i], &err), &err);
		assert_true(loss[0] == loss[1]);
	}
	for (int i = 0; i < CARDS; i++) {
		client_close(&c[i]);
		assert_int_equal(atomic_load(&card[i].forwards), STEPS * CHUNKS);
	}
}

static void a_session_goes_where_there_is_room_and_is_told_when_there_is_none(void **state)
{
	struct client c[3] = {0};
	struct gp_err err = {0};
	atomic_store(&card[0].unused, 1);
	until_open(&c[0], *state);
	expect_on(&c[0], "card:1 (a test's)");
	atomic_store(&card[1].unused, 2);
	assert_int_equal(client_open(&c[1], *state, &err), GP_BUSY);
	assert_non_null(strstr(err.text, "of the memory of card:"));
	atomic_store(&card[0].unused, 512 * MIB);
	until_open(&c[2], *state);
	expect_on(&c[2], "card:0 (a test's)");
	for (int i = 0; i < 3; i++)
		client_close(&c[i]);
}

/* The full one may have room later: the client is to come back, whatever the small one, which was asked last, says. */
static void a_full_device_counts_more_than_one_that_is_too_small(void **state)
{
	struct client c = {0}, next;
	struct gp_err err = {0};
	atomic_store(&card[0].unused, 1);
	assert_int_equal(client_open(&c, *state, &err), GP_BUSY);
	assert_non_null(strstr(err.text, "of the memory of card:0, but"));
	client_close(&c);
	atomic_store(&card[0].unused, 512 * MIB);
	until_open(&next, *state);
	expect_on(&next, "card:0 (a test's)");
	client_close(&next);
}

static void a_session_that_is_too_large_for_every_device_is_told_so(void **state)
{
	struct client c = {0};
	struct gp_err err = {0};
	assert_int_equal(client_open(&c, *state, &err), GP_PEER); /* not GP_BUSY, which is worth another try */
	assert_non_null(strstr(err.text, "use smaller chunks"));
	client_close(&c);
}

static uint64_t server_memory_of_a_session(const struct server_thread *server)
{
	struct gp_engine_figures f;
	struct client c;
	until_open(&c, server);
	c.engine->ops->figures(c.engine, &f);
	client_close(&c);
	return f.server_memory_bytes;
}

static void set_limits(const char *path, const char *key, uint64_t bytes)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "anonymous %s=%llu\n", key, (unsigned long long)bytes);
	assert_int_equal(fclose(f), 0);
}

/* --limits; the second session would be on the other card, where there is room. */
static void all_sessions_of_a_name_have_its_memory_of_devices_together(void **state)
{
	char path[] = "/tmp/gp-limits-XXXXXX";
	struct gp_server_settings set = server_thread_settings();
	struct client c[2] = {0};
	struct gp_engine_figures f;
	struct gp_err err = {0};
	const int fd = mkstemp(path);
	assert_true(fd >= 0 && close(fd) == 0);
	until_open(&c[0], *state);
	c[0].engine->ops->figures(c[0].engine, &f);
	client_close(&c[0]);
	const uint64_t limit[] = {f.server_device_bytes * 3 / 2, f.server_device_bytes - 1};
	for (int i = 0; i < 2; i++) {
		set_limits(path, "device-memory", limit[i]);
		set.limits = path;
		struct server_thread *server = server_thread_prepare(&set);
		give_cards(&server->server);
		server_thread_run(server);
		memset(c, 0, sizeof c);
		if (i == 0)
			until_open(&c[0], server);
		assert_int_equal(client_open(&c[1], server, &err), i == 0 ? GP_BUSY : GP_PEER);
		assert_non_null(strstr(err.text, "of the devices' memory"));
		assert_non_null(strstr(err.text, "(--limits)"));
		client_close(&c[1]);
		if (i == 0)
			client_close(&c[0]);
		server_thread_stop(server);
	}
	unlink(path);
}

static void memory_that_a_plan_pins_is_in_the_account_of_the_host(void **state)
{
	const uint64_t plain = server_memory_of_a_session(*state), more = 3 * MIB;
	assert_true(plain > 0);
	for (int i = 0; i < CARDS; i++)
		atomic_store(&card[i].pinned, more);
	assert_int_equal(server_memory_of_a_session(*state), plain + more);
}

static void memory_that_is_gone_after_all_ends_that_opening_alone(void **state)
{
	struct client c, none = {0}, next;
	struct gp_err err = {0};
	double loss, want;
	until_open(&c, *state);
	expect_ok(client_step(&c, &want, &err), &err);
	for (int i = 0; i < CARDS; i++)
		atomic_store(&card[i].no_memory, true);
	assert_int_not_equal(client_open(&none, *state, &err), GP_OK);
	assert_non_null(strstr(err.text, "card:1 is out of memory"));
	expect_ok(client_step(&c, &loss, &err), &err);
	for (int i = 0; i < CARDS; i++)
		atomic_store(&card[i].no_memory, false);
	until_open(&next, *state);
	expect_ok(client_step(&next, &loss, &err), &err);
	assert_true(loss == want);
	client_close(&c);
	client_close(&none);
	client_close(&next);
}

static void a_pass_that_fails_ends_its_own_session_alone(void **state)
{
	struct client c[CARDS], next;
	struct gp_err err = {0};
	double loss, want;
	for (int i = 0; i < CARDS; i++)
		until_open(&c[i], *state);
	expect_ok(client_step(&c[0], &loss, &err), &err);
	atomic_store(&card[0].broken, true);
	assert_int_equal(client_step(&c[0], &loss, &err), GP_DEVICE);
	assert_non_null(strstr(err.text, "card:0 (a test's): an illegal address was read"));
	assert_non_null(strstr(err.text, "only a run with --checkpoint can go on"));
	expect_ok(client_step(&c[1], &want, &err), &err);
	until_open(&next, *state);
	expect_on(&next, "card:0 (a test's)"); /* it works again, and is the emptier one */
	expect_ok(client_step(&next, &loss, &err), &err);
	assert_true(loss == want);
	client_close(&next);
	for (int i = 0; i < CARDS; i++)
		client_close(&c[i]);
}

static void a_device_that_is_lost_gets_no_session_any_more(void **state)
{
	struct client c, next, none = {0};
	struct gp_err err = {0};
	double loss;
	until_open(&c, *state);
	expect_on(&c, "card:0 (a test's)");
	atomic_store(&card[0].lost, true);
	assert_int_equal(client_step(&c, &loss, &err), GP_DEVICE);
	client_close(&c);
	until_open(&next, *state);
	expect_on(&next, "card:1 (a test's)");
	expect_ok(client_step(&next, &loss, &err), &err);
	atomic_store(&card[1].lost, true);
	assert_int_equal(client_step(&next, &loss, &err), GP_DEVICE);
	client_close(&next);
	assert_int_equal(client_open(&none, *state, &err), GP_DEVICE);
	assert_non_null(strstr(err.text, "gpserverd has to be started again"));
	client_close(&none);
}

/* Without a checkpoint yet it begins anew, once. */
static void a_run_with_checkpoints_survives_one_failure_of_the_device_and_not_one_after_another(void **state)
{
	char dir[] = "/tmp/gp_device_XXXXXX", command[64];
	struct client c = {.reconnect_for_s = 60};
	struct gp_err err = {0};
	const struct gp_pairs none = {.count = 0};
	double loss;
	assert_non_null(mkdtemp(dir));
	const struct gp_run_state_options o = {.dir = dir, .every = 100, .total_steps = 1000, .spec = &none};
	expect_ok(gp_run_state_open(&o, &c.run, &err), &err);
	expect_ok(client_open(&c, *state, &err), &err);
	expect_ok(client_step(&c, &loss, &err), &err);
	for (int i = 0; i < CARDS; i++)
		atomic_store(&card[i].broken, true);
	assert_int_equal(client_step(&c, &loss, &err), GP_CANCELED);
	assert_true(c.engine->rewound && c.engine->steps == 0);
	atomic_store(&card[0].broken, false);
	atomic_store(&card[1].broken, false);
	for (int i = 0; i < STEPS; i++)
		expect_ok(client_step(&c, &loss, &err), &err);
	for (int i = 0; i < CARDS; i++)
		atomic_store(&card[i].sick, true);
	assert_int_equal(client_step(&c, &loss, &err), GP_CANCELED);
	assert_int_equal(client_step(&c, &loss, &err), GP_DEVICE);
	assert_non_null(strstr(err.text, "an illegal address was read"));
	client_close(&c);
	gp_run_state_close(c.run);
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session_comes_to_the_device_with_the_fewest_and_then_to_the_one_with_most_memory),
		cmocka_unit_test(a_device_that_was_tried_that_cannot_or_that_has_failed_gets_none),
		cmocka_unit_test(memory_of_a_device_is_promised_once_and_no_more_than_there_is),
		cmocka_unit_test(a_list_of_devices_that_cannot_be_is_refused),
		cmocka_unit_test(a_part_of_a_devices_memory_is_promised_to_nobody),
		cmocka_unit_test_setup_teardown(two_sessions_compute_on_two_devices_and_get_the_same_results, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_session_goes_where_there_is_room_and_is_told_when_there_is_none,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_device_counts_more_than_one_that_is_too_small,
						setup_second_small, teardown),
		cmocka_unit_test_setup_teardown(a_session_that_is_too_large_for_every_device_is_told_so,
						setup_both_small, teardown),
		cmocka_unit_test_setup_teardown(all_sessions_of_a_name_have_its_memory_of_devices_together, setup,
						teardown),
		cmocka_unit_test_setup_teardown(memory_that_a_plan_pins_is_in_the_account_of_the_host, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_that_is_gone_after_all_ends_that_opening_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(a_pass_that_fails_ends_its_own_session_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(a_device_that_is_lost_gets_no_session_any_more, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_run_with_checkpoints_survives_one_failure_of_the_device_and_not_one_after_another, setup,
			teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

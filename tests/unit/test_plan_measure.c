/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gpclient plan` measures here: blocks of a model (client/plan/plan_blocks.h), codecs on captured tensors
 * (client/plan/plan_codecs.h), and a study of several cuts, codecs and numbers of chunks (client/plan/plan_study.h). No test
 * depends on how long anything takes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/engine/crossing.h"
#include "client/measure/link_figures.h"
#include "client/models/models.h"
#include "client/plan/plan_rank.h"
#include "common/base/mem.h"
#include "kernels/device_registry.h"
#include "tests/unit/picture_batch.h"

enum { SAMPLES = 8, IMAGE = 16 * 16 };

struct rig {
	struct gp_graph *graph;
	struct gp_device *device;
	float images[SAMPLES * IMAGE];
	int32_t labels[SAMPLES];
	struct gp_batch batch;
};

static int make_rig(void **state)
{
	static struct rig r;
	struct gp_err err = {0};
	const struct gp_model_options model = {.classes = 10, .input = {.ndim = 3, .dim = {16, 16, 1}}};
	for (int i = 0; i < SAMPLES * IMAGE; i++)
		r.images[i] = sinf((float)i * 0.37f) * cosf((float)(i / IMAGE) + 1);
	for (int i = 0; i < SAMPLES; i++)
		r.labels[i] = i % 10;
	r.batch = picture_batch(r.images, &model.input, r.labels, NULL, SAMPLES);
	*state = &r;
	return gp_model_build("cnn:width=8", &model, &r.graph, &err) == GP_OK &&
			       gp_device_open("cpu", 1, &r.device, &err) == GP_OK
		       ? 0
		       : -1;
}

static int free_rig(void **state)
{
	struct rig *r = *state;
	r->device->ops->close(r->device);
	gp_graph_free(r->graph);
	return 0;
}

static struct gp_plan_blocks measure_blocks(const struct rig *r, int samples, uint64_t memory_bytes)
{
	const struct gp_plan_blocks_spec spec = {.graph = r->graph,
						 .device = r->device,
						 .seed = 1,
						 .seconds = 0,
						 .memory_bytes = memory_bytes,
						 .optim = {.momentum = 0.9f}};
	struct gp_plan_blocks b = {0};
	struct gp_err err = {0};
	if (gp_plan_blocks_measure(&spec, &r->batch, samples, &b, &err) != GP_OK)
		fail_msg("%s", err.text);
	return b;
}

static void every_block_takes_time_in_both_passes(void **state)
{
	const struct rig *r = *state;
	struct gp_plan_blocks b = measure_blocks(r, SAMPLES, 0);
	struct gp_plan_block sum = gp_plan_blocks_sum(&b, 0, b.blocks);
	assert_int_equal(b.blocks, r->graph->blocks);
	assert_int_equal(b.measured, SAMPLES);
	double forward_s = 0, backward_s = 0;
	for (int i = 0; i < b.blocks; i++) {
		assert_true(b.block[i].forward_s > 0 && b.block[i].backward_s > 0);
		forward_s += b.block[i].forward_s;
		backward_s += b.block[i].backward_s;
	}
	assert_true(fabs(sum.forward_s - forward_s) < 1e-12 && fabs(sum.backward_s - backward_s) < 1e-12);
	assert_true(sum.update_s > 0 && b.loss_s > 0);
	gp_plan_blocks_deinit(&b);
}

static void short_memory_measures_fewer_samples(void **state)
{
	struct gp_plan_blocks b = measure_blocks(*state, SAMPLES, 1);
	assert_int_equal(b.samples, SAMPLES);
	assert_int_equal(b.measured, 1);
	gp_plan_blocks_deinit(&b);
}

static void the_median_is_the_middle_one(void **state)
{
	(void)state;
	double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2}, one[] = {7};
	assert_true(gp_plan_median(odd, 3) == 2);
	assert_true(gp_plan_median(even, 4) == 2.5);
	assert_true(gp_plan_median(one, 1) == 7);
	assert_true(gp_plan_median(one, 0) == 0);
}

/* --- codecs ------------------------------------------------------------------------------------------------------- */

static void measure_codecs(struct rig *r, bool first, const char *text, struct gp_plan_coding out[GP_CODED])
{
	const struct gp_capture_spec spec = {
		.graph = r->graph, .cut = {1, r->graph->blocks - 1}, .device = "cpu", .threads = 1, .seed = 3};
	struct gp_codec_spec codec;
	const struct gp_codec_spec *const both[GP_CODED] = {&codec, &codec};
	struct gp_capture tensors;
	struct gp_err err = {0};
	assert_int_equal(gp_codec_spec_parse(text, &codec, &err), GP_OK);
	assert_int_equal(gp_capture_run(&spec, &r->batch, &tensors, &err), GP_OK);
	assert_int_equal(gp_plan_codecs_measure(&tensors, first, both, 0, out, &err), GP_OK);
	gp_capture_deinit(&tensors);
}

static void codecs_are_measured_on_activations_and_gradients(void **state)
{
	struct gp_plan_coding c[GP_CODED];
	for (int first = 0; first < 2; first++) {
		measure_codecs(*state, first, "uniform:bits=8", c);
		for (int k = 0; k < GP_CODED; k++) {
			assert_true(c[k].fits && c[k].elements > 0);
			assert_true(c[k].payload_bytes >= c[k].elements && c[k].payload_bytes < c[k].elements + 64);
			assert_true(c[k].encode_s > 0 && c[k].decode_s > 0);
			assert_true(c[k].rel_err > 0 && c[k].rel_err < 0.1);
		}
	}
	measure_codecs(*state, true, "raw", c);
	assert_true(c[GP_CODED_ACT].rel_err == 0 && c[GP_CODED_ACT].payload_bytes >= 4 * c[GP_CODED_ACT].elements);
}

/* Where the largest of a gradient are is known from its activation. */
static void a_gradient_of_topk_brings_no_indices(void **state)
{
	struct gp_plan_coding c[GP_CODED];
	measure_codecs(*state, true, "topk:ratio=0.25+uniform:bits=8", c);
	assert_true(c[GP_CODED_GRAD].payload_bytes < c[GP_CODED_ACT].payload_bytes);
}

static void a_codec_that_does_not_fit_says_why(void **state)
{
	struct gp_plan_coding c[GP_CODED];
	measure_codecs(*state, false, "poweriter:rank=2+uniform:bits=8", c); /* (N,F) */
	assert_false(c[GP_CODED_ACT].fits);
	assert_true(strlen(c[GP_CODED_ACT].why) > 0);
}

/* --- a study ------------------------------------------------------------------------------------------------------ */

static void add_codec(struct gp_plan_study *s, const char *text)
{
	struct gp_err err = {0};
	assert_int_equal(gp_plan_study_add_codec(s, text, &err), GP_OK);
}

/* Every cut of the model, three codecs, 1 and 4 chunks, over a link so slow that nothing else counts. */
static struct gp_plan_study *make_study(const struct rig *r)
{
	struct gp_plan_study *s = gp_calloc(1, sizeof *s);
	const int blocks = r->graph->blocks;
	struct gp_err err = {0};
	s->world = (struct gp_plan_world){.graph = r->graph,
					  .device = r->device,
					  .session = {.seed = 3, .optim = {.momentum = 0.9f}},
					  .server = {1, 1, 1, 1},
					  .link = {{1e3, 0}, {1e3, 0}},
					  .threads = 1,
					  .server_threads = 1,
					  .server_codec_threads = 1};
	s->batch = SAMPLES;
	assert_int_equal(gp_alloc_array((void **)&s->cut, (size_t)(blocks * blocks), sizeof *s->cut, &err), GP_OK);
	for (int head = 1; head < blocks - 1; head++)
		for (int tail = head + 1; tail < blocks; tail++)
			s->cut[s->cuts++] = (struct gp_cut){head, tail};
	add_codec(s, "raw");
	add_codec(s, "uniform:bits=8");
	add_codec(s, "uniform:bits=1");
	s->chunks[s->chunkings++] = 1;
	s->chunks[s->chunkings++] = 4;
	if (gp_plan_study_measure(s, &r->batch, NULL, NULL, &err) != GP_OK)
		fail_msg("%s", err.text);
	return s;
}

static void free_study(struct gp_plan_study *s)
{
	gp_plan_study_deinit(s);
	gp_free(s);
}

static void wire_bytes_are_those_of_the_frames(void **state)
{
	struct gp_plan_study *s = make_study(*state);
	const struct gp_plan_pick pick = {.cut = 0, .codec = 0, .chunking = 1};
	struct gp_prediction p;
	struct gp_err err = {0};
	struct gp_crossing *cross;
	double up = 0;
	assert_int_equal(gp_plan_study_predict(s, &pick, NULL, &p, &err), GP_OK);
	assert_int_equal(gp_plan_cross(&s->world, &s->cut[0], &cross, &err), GP_OK);
	for (int i = 0; i < cross->list.count; i++)
		if (gp_direction_info[cross->list.flow[i].direction].up)
			up += 4.0 * SAMPLES * (double)gp_shape_elements(&cross->list.flow[i].type.shape);
	gp_crossing_free(cross);
	assert_true(p.payload_bytes[GP_ACT_UP] + p.payload_bytes[GP_GRAD_UP] >= up);
	assert_true(p.wire_up_bytes > up && p.wire_up_bytes < up + 4096);
	assert_true(p.time.time_per_batch_s > p.wire_up_bytes / 1e3 * 0.99);
	assert_int_equal(p.schedule.chunks, 4);
	s->world.link.byte_s = 0.01; /* a byte takes the threads of the link ten times as long as the link */
	assert_int_equal(gp_plan_study_predict(s, &pick, NULL, &p, &err), GP_OK);
	assert_true(p.time.time_per_batch_s > p.wire_up_bytes / 1e2 * 0.99);
	free_study(s);
}

static void a_ranking_has_the_fastest_first_and_strikes_out_what_cannot_be(void **state)
{
	struct gp_plan_study *s = make_study(*state);
	struct gp_plan_limits limits = {.max_error = 0.05, .most = 1000};
	struct gp_plan_ranking r;
	struct gp_err err = {0};
	assert_int_equal(gp_plan_rank(s, &limits, &r, &err), GP_OK);
	assert_int_equal(r.choices, s->cuts * 3 * 2);
	assert_int_equal(r.lossy, s->cuts * 2); /* one bit */
	assert_int_equal(r.possible, r.choices - r.lossy);
	for (int i = 1; i < r.rows; i++)
		assert_true(r.row[i].prediction.time.time_per_batch_s >= r.row[i - 1].prediction.time.time_per_batch_s);
	assert_string_equal(s->codec[r.row[0].pick.codec].text, "uniform:bits=8");
	assert_true(r.row[0].prediction.client_memory_bytes > 0 && r.row[0].prediction.server_memory_bytes > 0);
	gp_plan_ranking_deinit(&r);
	limits.server_bytes = 1;
	assert_int_equal(gp_plan_rank(s, &limits, &r, &err), GP_OK);
	assert_int_equal(r.possible, 0);
	assert_non_null(strstr(r.row[0].struck, "on the server"));
	gp_plan_ranking_deinit(&r);
	free_study(s);
}

static void a_measured_server_is_faster_by_what_it_took(void **state)
{
	struct gp_plan_study *s = make_study(*state);
	const struct gp_plan_pick pick = {.cut = 0, .codec = 1, .chunking = 1};
	struct gp_prediction before, after;
	struct gp_plan_server server = {.limit_bytes = 5};
	struct gp_err err = {0};
	assert_int_equal(gp_plan_study_predict(s, &pick, NULL, &before, &err), GP_OK);
	server.forward_s = before.schedule.body_forward_s / 10;
	server.backward_s = before.schedule.body_backward_s / 4;
	gp_plan_study_serve(s, &server, &pick);
	assert_int_equal(gp_plan_study_predict(s, &pick, NULL, &after, &err), GP_OK);
	assert_true(fabs(after.schedule.body_forward_s / server.forward_s - 1) < 1e-9);
	assert_true(fabs(after.schedule.body_backward_s / server.backward_s - 1) < 1e-9);
	assert_true(s->served && s->world.server.codec == 1);
	free_study(s);
}

/* --- the link ----------------------------------------------------------------------------------------------------- */

static void links_are_read(void **state)
{
	(void)state;
	const struct {
		const char *text;
		double up, down, delay_s;
	} good[] = {{"100mbit", 12.5e6, 12.5e6, 0},
		    {"100mbit,20ms", 12.5e6, 12.5e6, 20e-3},
		    {"100mbit,rtt=20ms", 12.5e6, 12.5e6, 10e-3},
		    {"8mbit,1s,80mbit", 1e6, 1e7, 1},
		    {"up=8mbit,down=80mbit,delay=5ms", 1e6, 1e7, 5e-3},
		    {"unlimited,0", 0, 0, 0}};
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		struct gp_plan_link l;
		struct gp_err err = {0};
		assert_int_equal(gp_plan_link_parse(good[i].text, &l, &err), GP_OK);
		assert_true(l.up.bytes_per_s == good[i].up && l.down.bytes_per_s == good[i].down);
		assert_true(l.up.delay_s == good[i].delay_s && l.down.delay_s == good[i].delay_s);
	}
	struct gp_plan_link l;
	struct gp_err err = {0};
	assert_int_equal(gp_plan_link_parse("1mbit,queue-up=64K,queue-down=1M", &l, &err), GP_OK);
	assert_true(l.up.queue_bytes == 64 * 1024 && l.down.queue_bytes == 1024 * 1024);
}

/* A way that is full and lets a message wait for a second has that second's bytes in front of it, of which gpsplit
 * keeps some. */
static void a_measured_link_has_its_queue(void **state)
{
	(void)state;
	struct gp_link_figures f = {.idle = {.count = 3, .median = 0.02}};
	struct gp_plan_link l;
	struct gp_err err = {0};
	f.way[GP_WAY_UP] = (struct gp_way_figures){.bytes_per_s = 1e7, .loaded = {.count = 3, .median = 1.02}};
	f.way[GP_WAY_DOWN] = (struct gp_way_figures){.bytes_per_s = 2e7, .loaded = {.count = 3, .median = 0.021}};
	assert_int_equal(gp_plan_link_of(&f, false, &l, &err), GP_OK);
	assert_true(l.up.bytes_per_s == 1e7 && l.down.bytes_per_s == 2e7);
	assert_true(l.up.delay_s == 0.01 && l.down.delay_s == 0.01);
	assert_true(l.up.queue_bytes > 0.9e7 && l.up.queue_bytes < 1e7 && l.down.queue_bytes == 0);
	assert_true(l.byte_s == 0);
	f.way[GP_WAY_UP].byte_s = 1e-9;
	f.way[GP_WAY_DOWN].byte_s = 3e-9;
	assert_int_equal(gp_plan_link_of(&f, false, &l, &err), GP_OK);
	assert_true(fabs(l.byte_s - 2e-9) < 1e-15);
	assert_int_equal(gp_plan_link_of(&f, true, &l, &err), GP_OK);
	assert_true(fabs(l.byte_s - 2e-9) < 1e-15); /* what the machine took is not known */
	f.way[GP_WAY_UP].machine_byte_s = 8e-9;
	f.way[GP_WAY_DOWN].machine_byte_s = 12e-9;
	assert_int_equal(gp_plan_link_of(&f, true, &l, &err), GP_OK);
	assert_true(fabs(l.byte_s - 5e-9) < 1e-15);
	assert_int_equal(gp_plan_link_of(&f, false, &l, &err), GP_OK);
	assert_true(fabs(l.byte_s - 2e-9) < 1e-15);
	f.way[GP_WAY_DOWN].bytes_per_s = NAN;
	assert_int_equal(gp_plan_link_of(&f, false, &l, &err), GP_PEER);
}

static void links_that_mean_nothing_are_refused(void **state)
{
	(void)state;
	const char *const bad[] = {"",
				   "fast",
				   "100",
				   "100mbit,20",
				   "0mbit",
				   "-1mbit",
				   ",",
				   "100mbit,",
				   "100mbit,20ms,",
				   "100mbit,1s,1mbit,1",
				   "rtt=20ms",
				   "100mbit,2h",
				   "nan",
				   "100mbit,-1ms",
				   "1e-305bit",
				   "queue-up=64K",
				   "down=4mbit,20mbit"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct gp_plan_link l;
		struct gp_err err = {0};
		if (gp_plan_link_parse(bad[i], &l, &err) != GP_USAGE)
			fail_msg("'%s' was taken", bad[i]);
		assert_non_null(strstr(err.text, "--link"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_block_takes_time_in_both_passes),
		cmocka_unit_test(short_memory_measures_fewer_samples),
		cmocka_unit_test(the_median_is_the_middle_one),
		cmocka_unit_test(codecs_are_measured_on_activations_and_gradients),
		cmocka_unit_test(a_gradient_of_topk_brings_no_indices),
		cmocka_unit_test(a_codec_that_does_not_fit_says_why),
		cmocka_unit_test(wire_bytes_are_those_of_the_frames),
		cmocka_unit_test(a_ranking_has_the_fastest_first_and_strikes_out_what_cannot_be),
		cmocka_unit_test(a_measured_server_is_faster_by_what_it_took),
		cmocka_unit_test(links_are_read),
		cmocka_unit_test(a_measured_link_has_its_queue),
		cmocka_unit_test(links_that_mean_nothing_are_refused),
	};
	return cmocka_run_group_tests_name("plan_measure", tests, make_rig, free_rig);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages that want feature maps, on a GPU (an emulated one, or a card) beside
 * the host's: poweriter's factors, tensors and memory, bit for bit, for matrices
 * of every form, warm and cold, of full and of low rank, tiny and too large;
 * downsample's means. What every stage of a device has to keep to: test_cuda_codec.c.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef GP_CUDA_DEVICE
#include "common/codec/codec_device.h"
#include "common/base/fault.h"
#include "common/base/rng.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "tests/sanitized.h"

#define OK(call)                                                                                                       \
	do {                                                                                                           \
		if ((call) != GP_OK)                                                                                   \
			fail_msg("%s", err.text);                                                                      \
	} while (0)
#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

enum { HOST, DEVICE, ENDS, MOST = 40000 };

static struct gp_err err;
static struct gp_codec_device memory;
static struct gp_rt_stream *stream;
static float x[MOST], y[ENDS][MOST];

static int open_device(void **state)
{
	struct gp_rt_info info;
	(void)state;
	OK(gp_rt_open(0, &info, &err));
	OK(gp_rt_stream_new(0, false, &stream, &err));
	gp_cuda_codec_device(0, &memory);
	return 0;
}

static int close_device(void **state)
{
	(void)state;
	gp_rt_stream_free(stream);
	return 0;
}

struct ends {
	const char *text;
	uint64_t n;
	struct gp_codec *codec[ENDS];
	size_t cap, len[ENDS];
	uint8_t *payload[ENDS];
	float *tensor; /* on the device */
};

static struct ends open_ends(const char *text, const struct gp_shape *shape, struct gp_codec_options options)
{
	struct ends e = {.text = text, .n = (uint64_t)gp_shape_elements(shape)};
	struct gp_codec_spec spec;
	void *tensor;
	assert_true(e.n <= MOST);
	OK(gp_codec_spec_parse(text, &spec, &err));
	for (int k = 0; k < ENDS; k++) {
		options.device = k == DEVICE ? &memory : NULL;
		OK(gp_codec_open(&spec, shape, &options, &e.codec[k], &err));
		e.cap = gp_codec_bound(e.codec[k]);
		e.payload[k] = malloc(e.cap);
	}
	OK(gp_rt_alloc(0, e.n * sizeof(float), &tensor, &err));
	e.tensor = tensor;
	return e;
}

static void close_ends(struct ends *e)
{
	for (int k = 0; k < ENDS; k++) {
		gp_codec_free(e->codec[k]);
		free(e->payload[k]);
	}
	gp_rt_free(0, e->tensor);
}

static enum gp_status decode_at_both(struct ends *e, const struct gp_codec_pass *pass, struct gp_span in)
{
	const enum gp_status status = gp_codec_decode_pass(e->codec[HOST], pass, in, y[HOST], &err);
	assert_int_equal(gp_codec_decode_pass(e->codec[DEVICE], pass, in, e->tensor, &err), status);
	gp_rt_copy_down(stream, y[DEVICE], e->tensor, e->n * sizeof(float));
	OK(gp_rt_stream_wait(stream, &err));
	for (uint64_t i = 0; status == GP_OK && i < e->n; i++)
		if (memcmp(&y[HOST][i], &y[DEVICE][i], sizeof(float)) != 0)
			fail_msg("%s: element %llu is %a on the host, %a on the device", e->text, (unsigned long long)i,
				 (double)y[HOST][i], (double)y[DEVICE][i]);
	return status;
}

static void expect_same_memory(const struct ends *e)
{
	assert_int_equal(gp_codec_state_bytes(e->codec[HOST]), gp_codec_state_bytes(e->codec[DEVICE]));
	assert_true(gp_codec_state_hash(e->codec[HOST]) == gp_codec_state_hash(e->codec[DEVICE]));
}

/* Encodes and decodes x at both ends; payloads, tensors and memories are the same. */
static void travel(struct ends *e, const struct gp_codec_pass *pass)
{
	gp_rt_copy_up(stream, e->tensor, x, e->n * sizeof *x);
	OK(gp_rt_stream_wait(stream, &err));
	OK(gp_codec_encode_pass(e->codec[HOST], pass, x, e->payload[HOST], e->cap, &e->len[HOST], &err));
	OK(gp_codec_encode_pass(e->codec[DEVICE], pass, e->tensor, e->payload[DEVICE], e->cap, &e->len[DEVICE], &err));
	assert_int_equal(e->len[HOST], e->len[DEVICE]);
	for (size_t i = 0; i < e->len[HOST]; i++)
		if (e->payload[HOST][i] != e->payload[DEVICE][i])
			fail_msg("%s: byte %zu of %zu is %02x on the host, %02x on the device", e->text, i,
				 e->len[HOST], e->payload[HOST][i], e->payload[DEVICE][i]);
	OK(decode_at_both(e, pass, (struct gp_span){e->payload[HOST], e->len[HOST]}));
	expect_same_memory(e);
}

/* --- matrices ----------------------------------------------------------------------------------------------------- */

enum kind { FULL, LOW_RANK, CONSTANT, ZEROS, TINY, RELU, KINDS };

static float value_of(enum kind kind, uint64_t seed, uint64_t i, uint64_t columns)
{
	const float g = gp_rng_normal(seed, 0, i), row = gp_rng_normal(seed, 1, i / columns),
		    column = gp_rng_normal(seed, 2, i % columns);
	switch (kind) {
	case LOW_RANK: /* and what fp32 sums hide beside it */
		return row * column + 1e-6f * g;
	case CONSTANT:
		return 0.3f;
	case ZEROS:
		return 0;
	case TINY:
		return 1e-16f * g;
	case RELU:
		return fmaxf(row + g, 0);
	default:
		return g;
	}
}

static void fill(const struct gp_shape *shape, enum kind kind, uint64_t seed)
{
	const uint64_t columns = (uint64_t)shape->dim[shape->ndim - 1], n = (uint64_t)gp_shape_elements(shape);
	for (uint64_t i = 0; i < n; i++)
		x[i] = value_of(kind, seed, i, columns);
}

/* Tall, wide, square; a single number; more rows than are summed at once, with few columns and with many; more samples
 * than one. */
static const struct gp_shape shapes[] = {
	{.ndim = 3, .dim = {1, 1, 1}},     {.ndim = 3, .dim = {2, 5, 3}},      {.ndim = 3, .dim = {3, 4, 19}},
	{.ndim = 4, .dim = {2, 7, 7, 40}}, {.ndim = 4, .dim = {3, 17, 20, 9}}, {.ndim = 3, .dim = {2, 33, 33}},
	{.ndim = 3, .dim = {1, 300, 70}},  {.ndim = 3, .dim = {2, 66, 270}},   {.ndim = 4, .dim = {1, 1, 129, 24}},
};

static void every_form_and_kind(const char *text, int turn)
{
	for (int s = 0; s < COUNT(shapes); s++) {
		struct ends e = open_ends(text, &shapes[s], (struct gp_codec_options){.seed = 21});
		for (int kind = 0; kind < KINDS; kind++)
			for (uint64_t step = 0; step < 2; step++) {
				if (left_to_plain_runs(3, turn + s + kind))
					continue;
				fill(&shapes[s], (enum kind)kind, step);
				travel(&e, &(struct gp_codec_pass){.step = (uint64_t)kind * 2 + step});
			}
		close_ends(&e);
	}
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static void factors_and_tensors_are_the_hosts_for_every_form_of_matrix(void **state)
{
	(void)state;
	every_form_and_kind("poweriter:rank=3,iters=2", 0);
	every_form_and_kind("poweriter:rank=20,iters=1", 1);
}

static void factors_are_quantized_as_the_hosts(void **state)
{
	(void)state;
	every_form_and_kind("poweriter:rank=4,iters=1+sortquant:bits=6,split=2", 2);
	every_form_and_kind("poweriter:rank=2,iters=1+sortquant:bits=4,prune=0.5", 3);
}

/* More rows of V than fit into a block's memory. */
static void iteration_in_the_devices_memory_is_the_same(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 3, .dim = {1, 120, 90}};
	struct ends e = open_ends("poweriter:rank=40,iters=1", &shape, (struct gp_codec_options){.seed = 2});
	for (uint64_t step = 0; step < 2; step++) {
		fill(&shape, FULL, step);
		travel(&e, &(struct gp_codec_pass){.step = step});
	}
	close_ends(&e);
}

static void chunks_begin_where_they_ended_and_evaluations_leave_that_alone(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 3, .dim = {2, 30, 12}};
	struct ends e = open_ends("poweriter:rank=3,iters=1", &shape,
				  (struct gp_codec_options){.seed = 4, .chunks = 3, .undo = true});
	for (uint64_t pass = 0; pass < 12; pass++) {
		const struct gp_codec_pass here = {
			.draw = pass, .step = pass / 3, .chunk = (uint32_t)pass % 3, .eval = pass == 7};
		fill(&shape, pass == 5 ? ZEROS : FULL, pass % 3);
		x[1] = pass == 8 ? NAN : x[1];
		travel(&e, &here);
	}
	for (int k = 0; k < ENDS; k++)
		gp_codec_undo(e.codec[k], 3);
	expect_same_memory(&e);
	fill(&shape, FULL, 40);
	travel(&e, &(struct gp_codec_pass){.step = 3, .chunk = 1});
	close_ends(&e);
}

/* What the device saved is loaded on the host, and the other way round. */
static void memory_saved_at_one_end_is_loaded_at_the_other(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 3, .dim = {2, 12, 25}};
	struct ends e = open_ends("poweriter:rank=2,iters=1", &shape, (struct gp_codec_options){.seed = 4});
	const size_t bytes = gp_codec_state_bytes(e.codec[DEVICE]);
	uint8_t *const saved = malloc(bytes);
	assert_true(bytes > 0);
	for (uint64_t from = 0; from < ENDS; from++) {
		fill(&shape, FULL, from);
		travel(&e, &(struct gp_codec_pass){.step = 2 * from});
		assert_int_equal(gp_codec_state_save(e.codec[from], saved, NULL), GP_OK);
		fill(&shape, RELU, 9);
		travel(&e, &(struct gp_codec_pass){.step = 2 * from + 1});
		for (int k = 0; k < ENDS; k++)
			OK(gp_codec_state_load(e.codec[k], (struct gp_span){saved, bytes}, &err));
		expect_same_memory(&e);
		travel(&e, &(struct gp_codec_pass){.step = 2 * from + 1});
	}
	memset(saved, 0xff, bytes);
	for (int k = 0; k < ENDS; k++)
		assert_int_equal(gp_codec_state_load(e.codec[k], (struct gp_span){saved, bytes}, &err), GP_INVALID);
	expect_same_memory(&e);
	free(saved);
	close_ends(&e);
}

static void sample_that_is_too_large_or_not_finite_sends_its_tensor_raw(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 3, .dim = {3, 20, 6}};
	static const float bad[] = {NAN, INFINITY, 1e25f, 1e38f};
	struct ends e = open_ends("poweriter:rank=2,iters=1", &shape, (struct gp_codec_options){.seed = 4});
	for (int i = 0; i < COUNT(bad); i++) {
		fill(&shape, FULL, 1);
		x[150] = bad[i];
		travel(&e, &(struct gp_codec_pass){.step = (uint64_t)i});
		assert_int_equal(e.len[DEVICE], 4 + 4 * 360);
	}
	fill(&shape, FULL, 1);
	x[150] = 1e23f; /* whose square fp32 does not hold */
	travel(&e, &(struct gp_codec_pass){.step = 9});
	assert_true(e.len[DEVICE] < 4 * 360);
	close_ends(&e);
}

/* Factors may hold anything: what their product gives decides. */
static void damaged_factors_are_refused_as_on_the_host(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 3, .dim = {2, 6, 9}};
	struct ends e = open_ends("poweriter:rank=2,iters=1", &shape, (struct gp_codec_options){.seed = 4});
	const struct gp_codec_pass look = {.eval = true};
	int refused = 0, taken = 0;
	fill(&shape, FULL, 1);
	travel(&e, &look);
	for (size_t i = 0; i < e.len[HOST]; i++)
		for (int k = 0; k < 2; k++) {
			memcpy(e.payload[DEVICE], e.payload[HOST], e.len[HOST]);
			e.payload[DEVICE][i] = k ? 0xff : e.payload[DEVICE][i] ^ 0x40;
			if (decode_at_both(&e, &look, (struct gp_span){e.payload[DEVICE], e.len[HOST]}) == GP_OK)
				taken++;
			else
				refused++;
		}
	assert_true(refused > 10 && taken > 100);
	for (size_t cut = 0; cut < e.len[HOST]; cut++) {
		uint8_t *const room = malloc(cut + 1); /* a byte read behind it is seen */
		memcpy(room, e.payload[HOST], cut);
		assert_int_equal(decode_at_both(&e, &look, (struct gp_span){room, cut}), GP_PROTO);
		free(room);
	}
	close_ends(&e);
}

/* Wherever it fails: an error, never a wrong payload and never a crash. */
static void failing_device_is_told(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 3, .dim = {2, 140, 9}};
	if (!gp_rt_is_emulated())
		skip();
	for (int after = 1, failed = 1; failed; after++) {
		struct ends e = open_ends("poweriter:rank=2,iters=1", &shape, (struct gp_codec_options){.seed = 4});
		const struct gp_codec_pass pass = {.step = 1};
		fill(&shape, FULL, 1);
		OK(gp_codec_encode_pass(e.codec[HOST], &pass, x, e.payload[HOST], e.cap, &e.len[HOST], &err));
		gp_rt_copy_up(stream, e.tensor, x, e.n * sizeof *x);
		OK(gp_rt_stream_wait(stream, &err));
		gp_fault_arm(GP_FAULT_DEVICE, after);
		enum gp_status status = gp_codec_encode_pass(e.codec[DEVICE], &pass, e.tensor, e.payload[DEVICE], e.cap,
							     &e.len[DEVICE], &err);
		if (status == GP_OK)
			status = gp_codec_decode_pass(e.codec[DEVICE], &pass,
						      (struct gp_span){e.payload[HOST], e.len[HOST]}, e.tensor, &err);
		gp_fault_arm(GP_FAULT_DEVICE, 0);
		assert_true(status == GP_DEVICE || (status == GP_OK && after > 8));
		failed = status != GP_OK;
		close_ends(&e);
	}
}

/* --- downsample --------------------------------------------------------------------------------------------------- */

static void means_over_windows_are_the_hosts(void **state)
{
	(void)state;
	static const struct gp_shape maps[] = {
		{.ndim = 4, .dim = {2, 7, 9, 3}}, {.ndim = 4, .dim = {1, 8, 8, 16}},
		{.ndim = 4, .dim = {3, 1, 5, 4}}, {.ndim = 3, .dim = {2, 33, 7}},
		{.ndim = 3, .dim = {1, 2, 1}},    {.ndim = 4, .dim = {1, 40, 30, 20}},
	};
	static const char *const specs[] = {"downsample:factor=2", "downsample:factor=3", "downsample:factor=64",
					    "downsample:factor=2+sortquant:bits=6,split=2",
					    "downsample:factor=2+topk:ratio=0.3"};
	for (int i = 0; i < COUNT(specs); i++)
		for (int s = 0; s < COUNT(maps); s++) {
			struct ends e = open_ends(specs[i], &maps[s], (struct gp_codec_options){.seed = 21});
			for (int kind = 0; kind < KINDS; kind++) {
				fill(&maps[s], (enum kind)kind, 3);
				travel(&e, &(struct gp_codec_pass){.step = (uint64_t)kind});
			}
			x[e.n - 1] = NAN;
			travel(&e, &(struct gp_codec_pass){.step = KINDS});
			x[0] = x[e.n - 1] = 3e38f; /* a sum of some overflows */
			x[1] = 3e38f;
			travel(&e, &(struct gp_codec_pass){.step = KINDS + 1});
			close_ends(&e);
		}
}

int main(void)
{
	if (gp_rt_count() == 0) {
		puts("no GPU here: nothing to test");
		return 77;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(factors_and_tensors_are_the_hosts_for_every_form_of_matrix),
		cmocka_unit_test(factors_are_quantized_as_the_hosts),
		cmocka_unit_test(iteration_in_the_devices_memory_is_the_same),
		cmocka_unit_test(chunks_begin_where_they_ended_and_evaluations_leave_that_alone),
		cmocka_unit_test(memory_saved_at_one_end_is_loaded_at_the_other),
		cmocka_unit_test(sample_that_is_too_large_or_not_finite_sends_its_tensor_raw),
		cmocka_unit_test(damaged_factors_are_refused_as_on_the_host),
		cmocka_unit_test(failing_device_is_told),
		cmocka_unit_test(means_over_windows_are_the_hosts),
	};
	return cmocka_run_group_tests(tests, open_device, close_device);
}
#else
int main(void)
{
	puts("this build has no CUDA device: nothing to test");
	return 77;
}
#endif

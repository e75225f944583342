/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs whose tensors lie on a GPU (an emulated one, or a card) beside the
 * same codecs on the host: the same payloads, tensors, refusals and memories.
 * Where a stage is only promised to be within one level of the host's, its own
 * test says so. Without a device there is nothing to test, which the program
 * says. See kernels/cuda/codec/cuda_codec.h.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef GP_CUDA_DEVICE
#include "common/base/fault.h"
#include "common/store/safetensors.h"
#include "tests/codec_specs.h"
#include "tests/unit/codec_pair.h"

static const struct gp_shape shapes[] = {
	{.ndim = 2, .dim = {1, 1}},    {.ndim = 2, .dim = {2, 3}},    {.ndim = 4, .dim = {2, 5, 7, 9}},
	{.ndim = 2, .dim = {4, 1024}}, {.ndim = 2, .dim = {3, 2731}}, {.ndim = 2, .dim = {1, 20011}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0], MOST = 20011 };

static void travels_alike(const char *text, int turn)
{
	static float x[MOST];
	for (int s = 0; s < SHAPES; s++) {
		struct pair p = open_pair(text, &shapes[s], &(struct gp_codec_options){.seed = 11});
		for (int kind = 0; kind < KINDS; kind++) {
			if (left_to_plain_runs(KINDS, turn + s + kind))
				continue;
			const struct gp_codec_pass pass = {.draw = (uint64_t)kind + 1, .step = (uint64_t)kind};
			fill(x, p.n, (enum kind)kind, (uint64_t)s);
			travel(&p, &pass, x);
		}
		x[p.n / 2] = NAN;
		travel(&p, &(struct gp_codec_pass){.draw = 100, .step = 100}, x);
		x[p.n / 2] = 0;
		x[p.n - 1] = -INFINITY;
		travel(&p, &(struct gp_codec_pass){.draw = 101, .step = 101}, x);
		close_pair(&p);
	}
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

/* Chains beside the examples of the codecs, for the list that is made of each below. */
static const char *const exact_chains[] = {
	"uniform:bits=12+bitshuffle+zstd",
	"topk:ratio=0.7+sortquant:bits=4,split=2",
	"smaq:main=16,outlier=16+zstd",
	"amq:bits=4,bucket=3,update=1+zstd",
	"ef+topk:ratio=0.1+uniform:bits=8",
	"topk:ratio=0.7+uniform:bits=5+rans",
	"topk:ratio=0.3+mxfp8:format=e4m3+zstd",
	"block:bits=3,size=64+rans",
	"nvfp4+rans",
};
static const char *const image_chains[] = {
	"downsample:factor=3+kmeans:bits=3+bitshuffle+zstd",
	"ef+downsample+fp16",
	"downsample+block:zero=asym,dim=channel",
};
static const char *const remembering_chains[] = {
	"ef+alq:bits=3,bucket=64,update=2",      "ef+fp8",
	"ef+block:bits=2,size=16,scale=e8m0",    "ef+mxfp4",
	"ef+sortquant:bits=4,split=2,prune=0.5", "ef+topk:ratio=0.05+zstd",
};
static const char *const mixed_chains[] = {
	"ef+topk:ratio=0.2+bdi",
	"delta:samples=8+fp16+zstd",
	"delta:samples=8+topk:ratio=0.2+kmeans:bits=3",
};

static struct codec_specs exact, /* every stage that sees a tensor works on the device, byte for byte as on the host */
	of_images,               /* the same, of tensors with a height and a width */
	remembering,             /* the same as exact, with a state */
	mixed;                   /* some stage works on the host alone, or on bytes */

static const struct {
	const char *name;
	uint16_t id;
	bool gpu;
} rows[] = {
#define ROW(id, name, gpu) {#name, id, gpu},
	GP_CODECS(ROW)};

static void add_all(struct codec_specs *list, const char *const *text, int count)
{
	for (int i = 0; i < count; i++)
		codec_specs_add(list, text[i]);
}

static bool takes_every_shape(const char *text)
{
	for (int s = 0; s < SHAPES; s++)
		if (!codec_takes(text, &shapes[s]))
			return false;
	return true;
}

static bool remembers(const char *text)
{
	enum { NOTHING = 32 }; /* head and checksum of a state */
	static const struct gp_shape shape = {.ndim = 2, .dim = {4, 300}};
	struct gp_codec_spec spec;
	struct gp_codec *c;
	OK(gp_codec_spec_parse(text, &spec, &err));
	OK(gp_codec_new(&spec, &shape, 1, &c, &err));
	const bool does = gp_codec_state_bytes(c) > NOTHING;
	gp_codec_free(c);
	return does;
}

static void sort_example(const char *text, bool on_gpu)
{
	if (!on_gpu) {
		codec_specs_add(&mixed, text);
	} else if (takes_every_shape(text)) {
		codec_specs_add(&exact, text);
		if (remembers(text))
			codec_specs_add(&remembering, text);
	} else {
		codec_specs_add(&of_images, text);
	}
}

static int make_lists(void **state)
{
	for (int i = 0; i < COUNT(rows); i++)
		for (const char *const *text = gp_codec_info(i)->examples; *text; text++)
			sort_example(*text, rows[i].gpu);
	add_all(&exact, exact_chains, COUNT(exact_chains));
	add_all(&of_images, image_chains, COUNT(image_chains));
	add_all(&remembering, remembering_chains, COUNT(remembering_chains));
	add_all(&mixed, mixed_chains, COUNT(mixed_chains));
	return open_device(state);
}

/* All of them; NULL behind the last. */
static const char *spec_at(int i)
{
	const struct codec_specs *const lists[] = {&exact, &of_images, &remembering, &mixed};
	for (int k = 0; k < COUNT(lists); i -= lists[k++]->count)
		if (i < lists[k]->count)
			return lists[k]->text[i];
	return NULL;
}

static void device_has_the_stages_that_the_table_says(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT(rows); i++)
		assert_int_equal(memory.ops->codec(rows[i].id) != NULL, rows[i].gpu);
}

static void device_has_every_stage_that_is_tested_as_its_own(void **state)
{
	(void)state;
	for (int i = 0; i < exact.count; i++) {
		struct gp_codec_spec spec;
		OK(gp_codec_spec_parse(exact.text[i], &spec, &err));
		for (int s = 0; s < spec.stages; s++) {
			const struct gp_codec_ops *host = gp_codec_ops_by_id(spec.stage[s].id),
						  *ops = memory.ops->codec(spec.stage[s].id);
			if (host->kind == GP_CODEC_BYTES)
				continue;
			assert_non_null(ops);
			assert_true(ops->encode != host->encode || ops->split != host->split);
			assert_true(!ops->regions == !host->regions);
			assert_string_equal(ops->info.name, host->info.name);
		}
	}
	assert_null(memory.ops->codec(0xffff));
}

static void payloads_and_tensors_are_the_hosts(void **state)
{
	(void)state;
	for (int i = 0; i < exact.count; i++)
		travels_alike(exact.text[i], i);
}

static void images_are_coded_as_on_the_host(void **state)
{
	(void)state;
	static const struct gp_shape images[] = {{.ndim = 4, .dim = {2, 9, 10, 8}}, {.ndim = 4, .dim = {1, 5, 4, 3}}};
	static float x[2 * 9 * 10 * 8];
	for (int i = 0; i < of_images.count * COUNT(images); i++) {
		struct pair p = open_pair(of_images.text[i / COUNT(images)], &images[i % COUNT(images)],
					  &(struct gp_codec_options){.seed = 11});
		for (int kind = 0; kind <= KINDS; kind++) {
			if (left_to_plain_runs(4, i + kind))
				continue;
			fill(x, p.n, (enum kind)(kind % KINDS), 3);
			x[p.n - 1] = kind == KINDS ? INFINITY : x[p.n - 1];
			travel(&p, &(struct gp_codec_pass){.step = (uint64_t)kind}, x);
		}
		close_pair(&p);
	}
}

static void second_device_codes_as_the_first(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 2, .dim = {3, 700}};
	static const char *const specs[] = {"uniform:bits=5", "smaq+zstd", "kmeans:bits=2"};
	const struct gp_codec_device first = memory;
	float x[3 * 700];
	if (gp_rt_count() < 2)
		skip();
	gp_rt_stream_free(stream);
	OK(gp_rt_stream_new(1, false, &stream, &err));
	gp_cuda_codec_device(1, &memory);
	for (int i = 0; i < COUNT(specs); i++) {
		struct pair p = open_pair(specs[i], &shape, &(struct gp_codec_options){.seed = 2});
		fill(x, p.n, BELL, 4);
		travel(&p, &(struct gp_codec_pass){.draw = 4}, x);
		close_pair(&p);
	}
	gp_rt_stream_free(stream);
	OK(gp_rt_stream_new(0, false, &stream, &err));
	memory = first;
}

/* What crosses real cuts. */
static void golden_inputs_have_the_hosts_payloads(void **state)
{
	(void)state;
	static const char *const names[] = {"act", "grad", "hidden", "relu6"};
	static const char *const specs[] = {"uniform:bits=8",
					    "fp16",
					    "fp8",
					    "s2fp8",
					    "smaq",
					    "qsgd",
					    "alq",
					    "terngrad",
					    "block",
					    "block:bits=3,clip=mse",
					    "mxfp6:format=e3m2",
					    "mxfp4",
					    "nvfp4"};
	struct gp_st_file *file;
	OK(gp_st_open("tests/golden/codec/inputs.safetensors", &file, &err));
	for (int i = 0; i < COUNT(names); i++) {
		const struct gp_st_tensor *t = gp_st_find(file, names[i]);
		assert_non_null(t);
		const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)t->count}};
		float *x = malloc(t->count * sizeof *x);
		OK(gp_st_read_f32(t, x, &err));
		for (int k = 0; k < COUNT(specs); k++) {
			if (left_to_plain_runs(4, i + k))
				continue;
			struct pair p = open_pair(specs[k], &shape, &(struct gp_codec_options){.seed = 2});
			travel(&p, &(struct gp_codec_pass){.draw = 4}, x);
			close_pair(&p);
		}
		free(x);
	}
	gp_st_close(file);
}

static void chains_with_stages_of_the_host_work_behind_one_copy(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 4, .dim = {4, 6, 6, 10}};
	static float x[4 * 6 * 6 * 10];
	static const uint32_t sample[4] = {3, 1, 0, 7};
	for (int i = 0; i < mixed.count; i++) {
		struct pair p = open_pair(mixed.text[i], &shape, &(struct gp_codec_options){.seed = 3, .chunks = 2});
		for (uint64_t step = 0; step < 6; step++) {
			const struct gp_codec_pass pass = {
				.draw = step, .step = step, .chunk = (uint32_t)step % 2, .sample = sample};
			fill(x, p.n, RELU, step);
			x[7] = step == 3 ? INFINITY : x[7];
			travel(&p, &pass, x);
		}
		close_pair(&p);
	}
}

/* A step that is cut off half-way and done again; then another instance goes on with what was saved. */
static void remembers_alike(const char *text)
{
	enum { CHUNKS = 3, STEPS = 6, UNDONE = 3 };
	static const struct gp_shape shape = {.ndim = 2, .dim = {4, 300}};
	const struct gp_codec_options options = {.seed = 8, .chunks = CHUNKS, .undo = true};
	float x[4 * 300];
	struct pair p = open_pair(text, &shape, &options);
	for (int turn = 0; turn < STEPS + 1; turn++) {
		const uint64_t step = (uint64_t)(turn > UNDONE ? turn - 1 : turn);
		for (uint32_t chunk = 0; chunk < (turn == UNDONE ? 2 : CHUNKS); chunk++) {
			const struct gp_codec_pass pass = {.draw = step * CHUNKS + chunk, .step = step, .chunk = chunk};
			fill(x, p.n, (step + chunk) % 5 == 4 ? ZEROS : BELL, step * CHUNKS + chunk + 1);
			x[11] = step == 2 && chunk == 1 ? NAN : x[11];
			travel(&p, &pass, x);
			travel(&p, &(struct gp_codec_pass){.draw = 77, .chunk = chunk, .eval = true}, x);
		}
		for (int k = 0; k < PLACES && turn == UNDONE; k++)
			gp_codec_undo(p.codec[k], step);
		expect_same_memory(&p);
	}
	struct pair next = open_pair(text, &shape, &options);
	const size_t bytes = gp_codec_state_bytes(p.codec[HOST]);
	assert_int_equal(gp_codec_state_bytes(p.codec[DEVICE]), bytes);
	uint8_t *const saved = malloc(bytes);
	for (int k = 0; k < PLACES; k++) { /* crosswise */
		assert_int_equal(gp_codec_state_save(p.codec[k], saved, NULL), GP_OK);
		OK(gp_codec_state_load(next.codec[1 - k], (struct gp_span){saved, bytes}, &err));
	}
	expect_same_state(&next);
	travel(&next, &(struct gp_codec_pass){.draw = 90, .step = 9, .chunk = 1}, x);
	free(saved);
	close_pair(&next);
	close_pair(&p);
}

static void codecs_remember_what_the_hosts_do_step_by_step_undone_saved_and_loaded(void **state)
{
	(void)state;
	for (int i = 0; i < remembering.count; i++)
		remembers_alike(remembering.text[i]);
}

static void damaged_payloads_are_refused_as_on_the_host(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 3, .dim = {2, 5, 23}};
	for (int i = 0; i < exact.count; i++)
		refuses_alike(exact.text[i], &shape);
	for (int i = 0; i < mixed.count; i++)
		refuses_alike(mixed.text[i], &shape);
}

static void tensor_without_elements_has_an_empty_payload(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 2, .dim = {0, 7}};
	for (int i = 0; i < exact.count; i++) {
		struct pair p = open_pair(exact.text[i], &shape, &(struct gp_codec_options){.seed = 3});
		travel(&p, &(struct gp_codec_pass){0}, NULL);
		assert_int_equal(p.len[DEVICE], 0);
		close_pair(&p);
	}
}

static void estimate_covers_what_opening_takes_of_the_device(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 4, .dim = {4, 20, 20, 40}};
	if (!gp_rt_is_emulated())
		skip();
	const char *text;
	for (int i = 0; (text = spec_at(i)); i++) {
		const struct gp_codec_options options = {.device = &memory, .chunks = 3, .undo = i % 2};
		struct gp_codec_spec spec;
		struct gp_codec *c;
		struct gp_rt_info before, after;
		uint64_t bytes;
		OK(gp_codec_spec_parse(text, &spec, &err));
		OK(gp_codec_bytes_for(&spec, &shape, &options, &bytes, &err));
		OK(gp_rt_open(0, &before, &err));
		OK(gp_codec_open(&spec, &shape, &options, &c, &err));
		OK(gp_rt_open(0, &after, &err));
		assert_true(after.free < before.free);
		if (before.free - after.free > bytes)
			fail_msg("%s takes %llu bytes of the device; %llu were planned", text,
				 (unsigned long long)(before.free - after.free), (unsigned long long)bytes);
		gp_codec_free(c);
		OK(gp_rt_open(0, &after, &err));
		assert_int_equal(before.free, after.free);
	}
}

/* A pass each way, of whose work on the device item `after` fails. Whether any did. */
static bool fails_at(const char *text, const struct gp_shape *shape, const float *x, int after)
{
	struct pair p = open_pair(text, shape, &(struct gp_codec_options){.seed = 3, .undo = true});
	struct gp_codec_pass pass = {.draw = 1};
	encode_both(&p, &pass, x);
	pass.step++;
	gp_fault_arm(GP_FAULT_DEVICE, after);
	enum gp_status status =
		gp_codec_encode_pass(p.codec[DEVICE], &pass, p.tensor, p.payload[DEVICE], p.cap, &p.len[DEVICE], &err);
	const bool in_encode = status != GP_OK;
	if (!in_encode)
		status = gp_codec_decode_pass(p.codec[DEVICE], &pass, (struct gp_span){p.payload[HOST], p.len[HOST]},
					      p.tensor, &err);
	gp_fault_arm(GP_FAULT_DEVICE, 0);
	if (status != GP_OK)
		assert_int_equal(status, GP_DEVICE);
	if (in_encode)
		assert_int_equal(gp_codec_encode_pass(p.codec[DEVICE], &pass, p.tensor, p.payload[DEVICE], p.cap,
						      &p.len[DEVICE], &err),
				 GP_DEVICE);
	close_pair(&p);
	return status != GP_OK;
}

/* Wherever it fails: an error, never a wrong payload and never a crash. */
static void failing_device_is_told_and_ends_the_instance(void **state)
{
	(void)state;
	enum { MOST_WORK = 96 };
	static const struct gp_shape flat = {.ndim = 2, .dim = {4, 600}}, image = {.ndim = 4, .dim = {4, 5, 12, 10}};
	float x[4 * 600];
	const char *text;
	if (!gp_rt_is_emulated())
		skip();
	fill(x, 4 * 600, BELL, 1);
	for (int i = 0; (text = spec_at(i)); i++) {
		const int stride =
			repeats_another_run() ? 5 : 1; /* neighbours in the list are alike, and begin elsewhere */
		int after = 1 + i % stride;
		while (after < MOST_WORK && fails_at(text, codec_takes(text, &flat) ? &flat : &image, x, after))
			after += stride;
		assert_in_range(after, 3, MOST_WORK - 1);
	}
}

/* What was lost lies on the device: what cannot be fetched from there is not taken for a memory, nor is half of one. */
static void memory_that_a_failing_device_holds_is_neither_saved_nor_loaded(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 2, .dim = {4, 600}};
	float x[4 * 600];
	if (!gp_rt_is_emulated())
		skip();
	for (int loads = 0; loads < 2; loads++) {
		struct pair p = open_pair("ef+fp8", &shape, &(struct gp_codec_options){.chunks = 2});
		const size_t bytes = gp_codec_state_bytes(p.codec[DEVICE]);
		uint8_t *const saved = malloc(bytes);
		fill(x, p.n, BELL, 1);
		encode_both(&p, &(struct gp_codec_pass){.draw = 1}, x);
		OK(gp_codec_state_save(p.codec[DEVICE], saved, &err));
		gp_fault_arm(GP_FAULT_DEVICE, 1 + loads);
		assert_int_equal(loads ? gp_codec_state_load(p.codec[DEVICE], (struct gp_span){saved, bytes}, &err)
				       : gp_codec_state_save(p.codec[DEVICE], saved, &err),
				 GP_DEVICE);
		gp_fault_arm(GP_FAULT_DEVICE, 0);
		free(saved);
		close_pair(&p);
	}
}

static void instance_is_not_opened_without_room_and_takes_none(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 4, .dim = {2, 6, 10, 10}};
	struct gp_rt_info before, after;
	if (!gp_rt_is_emulated())
		skip();
	OK(gp_rt_open(0, &before, &err));
	const char *text;
	for (int i = 0; (text = spec_at(i)); i++) {
		const struct gp_codec_options options = {.device = &memory, .has_gradient = true, .undo = true};
		struct gp_codec_spec spec;
		OK(gp_codec_spec_parse(text, &spec, &err));
		for (int at = 1; at < 200; at++) {
			struct gp_codec *c = NULL;
			gp_fault_arm(GP_FAULT_ALLOC, at);
			const enum gp_status status = gp_codec_open(&spec, &shape, &options, &c, &err);
			gp_fault_arm(GP_FAULT_ALLOC, 0);
			assert_true(status == GP_OK || status == GP_NOMEM);
			gp_codec_free(c);
			OK(gp_rt_open(0, &after, &err));
			assert_int_equal(before.free, after.free);
			assert_true(status != GP_OK || at > 3);
			if (status == GP_OK)
				break;
		}
	}
}

int main(void)
{
	if (gp_rt_count() == 0) {
		puts("no GPU here: nothing to test");
		return 77;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_has_the_stages_that_the_table_says),
		cmocka_unit_test(device_has_every_stage_that_is_tested_as_its_own),
		cmocka_unit_test(payloads_and_tensors_are_the_hosts),
		cmocka_unit_test(images_are_coded_as_on_the_host),
		cmocka_unit_test(second_device_codes_as_the_first),
		cmocka_unit_test(golden_inputs_have_the_hosts_payloads),
		cmocka_unit_test(chains_with_stages_of_the_host_work_behind_one_copy),
		cmocka_unit_test(codecs_remember_what_the_hosts_do_step_by_step_undone_saved_and_loaded),
		cmocka_unit_test(damaged_payloads_are_refused_as_on_the_host),
		cmocka_unit_test(tensor_without_elements_has_an_empty_payload),
		cmocka_unit_test(estimate_covers_what_opening_takes_of_the_device),
		cmocka_unit_test(failing_device_is_told_and_ends_the_instance),
		cmocka_unit_test(memory_that_a_failing_device_holds_is_neither_saved_nor_loaded),
		cmocka_unit_test(instance_is_not_opened_without_room_and_takes_none),
	};
	return cmocka_run_group_tests(tests, make_lists, close_device);
}
#else
int main(void)
{
	puts("this build has no CUDA device: nothing to test");
	return 77;
}
#endif

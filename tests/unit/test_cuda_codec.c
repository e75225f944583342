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
#include "common/codec/codec_device.h"
#include "common/base/fault.h"
#include "common/base/rng.h"
#include "common/store/safetensors.h"
#include "kernels/cuda/codec/cuda_codec.h"

#define OK(call)                                                                                                       \
	do {                                                                                                           \
		if ((call) != GP_OK)                                                                                   \
			fail_msg("%s", err.text);                                                                      \
	} while (0)

static struct gp_err err;
static struct gp_codec_device memory;
static struct gp_rt_stream *stream;

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

/* --- a codec on the host and the same on the device --------------------------------------------------------------- */

enum { HOST, DEVICE, PLACES };

struct pair {
	const char *text;
	uint64_t n;
	struct gp_codec *codec[PLACES];
	size_t cap, len[PLACES];
	uint8_t *payload[PLACES];
	float *y[PLACES]; /* on the host */
	float *tensor;    /* on the device */
};

static struct pair open_pair(const char *text, const struct gp_shape *shape, const struct gp_codec_options *options)
{
	struct pair p = {.text = text};
	struct gp_codec_spec spec;
	struct gp_codec_options o = *options;
	void *tensor;
	if (gp_codec_spec_parse(text, &spec, &err) != GP_OK)
		fail_msg("%s: %s", text, err.text);
	p.n = (uint64_t)gp_shape_elements(shape);
	for (int k = 0; k < PLACES; k++) {
		o.device = k == DEVICE ? &memory : NULL;
		OK(gp_codec_open(&spec, shape, &o, &p.codec[k], &err));
	}
	p.cap = gp_codec_bound(p.codec[HOST]);
	assert_int_equal(gp_codec_bound(p.codec[DEVICE]), p.cap);
	for (int k = 0; k < PLACES; k++) {
		OK(gp_codec_alloc_payload(&memory, p.cap + 1, &p.payload[k], &err));
		p.y[k] = malloc(p.n * sizeof(float) + 1);
	}
	OK(gp_rt_alloc(memory.device, p.n * sizeof(float) + 1, &tensor, &err));
	p.tensor = tensor;
	return p;
}

static void close_pair(struct pair *p)
{
	for (int k = 0; k < PLACES; k++) {
		gp_codec_free(p->codec[k]);
		gp_codec_free_payload(&memory, p->payload[k]);
		free(p->y[k]);
	}
	gp_rt_free(memory.device, p->tensor);
}

static void encode_both(struct pair *p, const struct gp_codec_pass *pass, const float *x)
{
	gp_rt_copy_up(stream, p->tensor, x, p->n * sizeof *x);
	OK(gp_rt_stream_wait(stream, &err));
	OK(gp_codec_encode_pass(p->codec[HOST], pass, x, p->payload[HOST], p->cap, &p->len[HOST], &err));
	memset(p->payload[DEVICE], 0xee, p->cap + 1);
	OK(gp_codec_encode_pass(p->codec[DEVICE], pass, p->tensor, p->payload[DEVICE], p->cap, &p->len[DEVICE], &err));
	assert_int_equal(p->payload[DEVICE][p->cap], 0xee);
}

/* Decodes the same bytes on host and device. Both take them or both refuse them. */
static enum gp_status decode_both(struct pair *p, const struct gp_codec_pass *pass, struct gp_span in)
{
	struct gp_err why;
	const enum gp_status status = gp_codec_decode_pass(p->codec[HOST], pass, in, p->y[HOST], &err);
	gp_rt_fill(stream, p->tensor, 0x5a, p->n * sizeof(float));
	OK(gp_rt_stream_wait(stream, &err));
	const enum gp_status other = gp_codec_decode_pass(p->codec[DEVICE], pass, in, p->tensor, &why);
	if (status != other)
		fail_msg("%s: host %d, device %d: %s", p->text, status, other, (status ? &err : &why)->text);
	gp_rt_copy_down(stream, p->y[DEVICE], p->tensor, p->n * sizeof(float));
	OK(gp_rt_stream_wait(stream, &err));
	return status;
}

static void expect_same_payload(const struct pair *p)
{
	if (p->len[HOST] != p->len[DEVICE])
		fail_msg("%s of %llu: %zu bytes on the host, %zu on the device", p->text, (unsigned long long)p->n,
			 p->len[HOST], p->len[DEVICE]);
	for (size_t i = 0; i < p->len[HOST]; i++)
		if (p->payload[HOST][i] != p->payload[DEVICE][i])
			fail_msg("%s of %llu: byte %zu of %zu is %02x on the host, %02x on the device", p->text,
				 (unsigned long long)p->n, i, p->len[HOST], p->payload[HOST][i], p->payload[DEVICE][i]);
}

static void expect_same_tensor(const struct pair *p)
{
	for (uint64_t i = 0; i < p->n; i++)
		if (memcmp(&p->y[HOST][i], &p->y[DEVICE][i], sizeof(float)) != 0)
			fail_msg("%s of %llu: element %llu is %a on the host, %a on the device", p->text,
				 (unsigned long long)p->n, (unsigned long long)i, (double)p->y[HOST][i],
				 (double)p->y[DEVICE][i]);
}

static void expect_same_state(const struct pair *p)
{
	assert_true(gp_codec_state_hash(p->codec[HOST]) == gp_codec_state_hash(p->codec[DEVICE]));
	assert_true(gp_codec_state_shared_hash(p->codec[HOST]) == gp_codec_state_shared_hash(p->codec[DEVICE]));
}

static void expect_same_memory(const struct pair *p)
{
	struct gp_codec_stats stats[PLACES];
	for (int k = 0; k < PLACES; k++)
		gp_codec_get_stats(p->codec[k], &stats[k]);
	assert_memory_equal(&stats[HOST], &stats[DEVICE], sizeof stats[HOST]);
	expect_same_state(p);
}

static void travel(struct pair *p, const struct gp_codec_pass *pass, const float *x)
{
	encode_both(p, pass, x);
	expect_same_payload(p);
	OK(decode_both(p, pass, (struct gp_span){p->payload[HOST], p->len[HOST]}));
	expect_same_tensor(p);
	expect_same_memory(p);
}

/* --- tensors ----------------------------------------------------------------------------------------------------- */

enum kind { BELL, RELU, CONSTANT, ZEROS, SPIKES, TINY, WIDE, KINDS };

static float drawn(uint64_t seed, uint64_t i)
{
	return gp_rng_normal(seed, 0, i);
}

static void fill(float *x, uint64_t n, enum kind kind, uint64_t seed)
{
	for (uint64_t i = 0; i < n; i++) {
		const float v = drawn(seed, i);
		switch (kind) {
		case BELL:
			x[i] = v;
			break;
		case RELU:
			x[i] = v > 0 ? v : 0;
			break;
		case CONSTANT:
			x[i] = 0.7f;
			break;
		case ZEROS:
			x[i] = i % 2 ? -0.0f : 0.0f;
			break;
		case SPIKES:
			x[i] = i % 97 == 5 ? 1000 * v : 0.01f * v;
			break;
		case TINY:
			x[i] = 1e-39f * v;
			break;
		default:
			x[i] = v * exp2f((float)((int)(gp_rng_u32(seed, 1, i) % 20) - 15));
			break;
		}
	}
}

static const struct gp_shape shapes[] = {
	{.ndim = 2, .dim = {1, 1}},    {.ndim = 2, .dim = {2, 3}},    {.ndim = 4, .dim = {2, 5, 7, 9}},
	{.ndim = 2, .dim = {4, 1024}}, {.ndim = 2, .dim = {3, 2731}}, {.ndim = 2, .dim = {1, 20011}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0], MOST = 20011 };

static void travels_alike(const char *text)
{
	static float x[MOST];
	for (int s = 0; s < SHAPES; s++) {
		struct pair p = open_pair(text, &shapes[s], &(struct gp_codec_options){.seed = 11});
		for (int kind = 0; kind < KINDS; kind++) {
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

/* What works on the device, by id, and byte for byte as on the host. */
static const char *const exact[] = {
	"raw",
	"fp16",
	"bf16",
	"fp8:format=e5m2",
	"fp8:format=e4m3",
	"s2fp8",
	"uniform:bits=1",
	"uniform:bits=2",
	"uniform:bits=3",
	"uniform:bits=4",
	"uniform:bits=5",
	"uniform:bits=6",
	"uniform:bits=7",
	"uniform:bits=8",
	"uniform:bits=9",
	"uniform:bits=11",
	"uniform:bits=13",
	"uniform:bits=15",
	"uniform:bits=16",
	"uniform:bits=12+bitshuffle+zstd",
	"sortquant:bits=6,split=2",
	"sortquant:bits=3,split=0",
	"sortquant:bits=8,split=8",
	"sortquant:bits=7,split=4,sample=300",
	"sortquant:bits=5,partitions=3,prune=0.3",
	"topk:ratio=0.1",
	"topk:ratio=0.7+sortquant:bits=4,split=2",
	"smaq",
	"smaq:main=3,outlier=16",
	"smaq:main=8,outlier=8",
	"smaq:main=5,outlier=6",
	"smaq:main=16,outlier=16+zstd",
	"smaq:main=7,outlier=12",
	"qsgd:bits=1,bucket=1",
	"qsgd:bits=4",
	"qsgd:bits=3,bucket=100",
	"qsgd:bits=8,bucket=1048576",
	"qsgd:bits=5,bucket=16",
	"qsgd:bits=6,bucket=17",
	"qsgd:bits=2,bucket=2048",
	"qsgdinf:bits=3,bucket=1024",
	"qsgdinf:bits=2,bucket=7",
	"qsgdinf:bits=4",
	"qsgdinf:bits=7,bucket=33",
	"qsgdinf:bits=8,bucket=20000",
	"nuqsgd:bits=3",
	"nuqsgd:bits=8,bucket=1000",
	"terngrad",
	"terngrad:bucket=5000",
	"terngrad:bucket=32",
	"nuqsgd:bits=8,bucket=256",
	"qsgdinf:bits=8,bucket=16",
	"alq:bits=3,bucket=64,update=2",
	"alq:bits=4,bucket=9000,update=3,fit=normbased",
	"amq:bits=2,bucket=512,update=3",
	"amq:bits=4,bucket=3,update=1+zstd",
	"kmeans:bits=3",
	"ef+uniform:bits=4",
	"ef+topk:ratio=0.1+uniform:bits=8",
};
/* As exact, of tensors with a height and a width. */
static const char *const of_images[] = {
	"downsample",
	"downsample:factor=3+kmeans:bits=3+bitshuffle+zstd",
	"ef+downsample+fp16",
};
/* Those that remember. */
static const char *const remembering[] = {
	"alq:bits=3,bucket=64,update=2",
	"alq:bits=2,bucket=100,update=3,fit=normbased",
	"amq:bits=3,bucket=64,update=3",
	"ef+alq:bits=3,bucket=64,update=2",
	"ef+fp8",
	"ef+sortquant:bits=4,split=2,prune=0.5",
	"ef+topk:ratio=0.05+zstd",
};
/* Some stage works on the host alone, or on bytes. */
static const char *const mixed[] = {
	"bdi",
	"ef+topk:ratio=0.2+bdi",
	"topk:ratio=0.3+bdi",
	"delta:samples=8+fp16+zstd",
	"delta:samples=8+topk:ratio=0.2+kmeans:bits=3",
};
#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

/* All of them; NULL behind the last. */
static const char *spec_at(int i)
{
	static const struct {
		const char *const *text;
		int count;
	} lists[] = {{exact, COUNT(exact)},
		     {of_images, COUNT(of_images)},
		     {remembering, COUNT(remembering)},
		     {mixed, COUNT(mixed)}};
	for (int k = 0; k < COUNT(lists); i -= lists[k++].count)
		if (i < lists[k].count)
			return lists[k].text[i];
	return NULL;
}

static void device_has_every_stage_that_is_tested_as_its_own(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT(exact); i++) {
		struct gp_codec_spec spec;
		OK(gp_codec_spec_parse(exact[i], &spec, &err));
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
	for (int i = 0; i < COUNT(exact); i++)
		travels_alike(exact[i]);
}

static void images_are_coded_as_on_the_host(void **state)
{
	(void)state;
	static const struct gp_shape images[] = {{.ndim = 4, .dim = {2, 9, 10, 8}}, {.ndim = 4, .dim = {1, 5, 4, 3}}};
	static float x[2 * 9 * 10 * 8];
	for (int i = 0; i < COUNT(of_images) * COUNT(images); i++) {
		struct pair p = open_pair(of_images[i / COUNT(images)], &images[i % COUNT(images)],
					  &(struct gp_codec_options){.seed = 11});
		for (int kind = 0; kind <= KINDS; kind++) {
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
	static const char *const specs[] = {"uniform:bits=8", "fp16", "fp8", "s2fp8",
					    "smaq",           "qsgd", "alq", "terngrad"};
	struct gp_st_file *file;
	OK(gp_st_open("tests/golden/codec/inputs.safetensors", &file, &err));
	for (int i = 0; i < COUNT(names); i++) {
		const struct gp_st_tensor *t = gp_st_find(file, names[i]);
		assert_non_null(t);
		const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)t->count}};
		float *x = malloc(t->count * sizeof *x);
		OK(gp_st_read_f32(t, x, &err));
		for (int k = 0; k < COUNT(specs); k++) {
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
	for (int i = 0; i < COUNT(mixed); i++) {
		struct pair p = open_pair(mixed[i], &shape, &(struct gp_codec_options){.seed = 3, .chunks = 2});
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

static void memories_are_the_hosts_step_by_step_undone_saved_and_loaded(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT(remembering); i++)
		remembers_alike(remembering[i]);
}

/* Bytes changed and cut off, every one of the heads: whatever the host says of it. */
static void refuses_alike(const char *text)
{
	static const struct gp_shape shape = {.ndim = 3, .dim = {2, 5, 23}};
	float x[2 * 5 * 23];
	struct pair p = open_pair(text, &shape, &(struct gp_codec_options){.seed = 5});
	fill(x, p.n, BELL, 9);
	encode_both(&p, &(struct gp_codec_pass){.draw = 1}, x);
	uint8_t *const bytes = p.payload[DEVICE];
	const size_t len = p.len[HOST];
	const struct gp_codec_pass look = {.eval = true};
	for (size_t i = 0; i < len; i += 1 + i / 64) {
		memcpy(bytes, p.payload[HOST], len);
		bytes[i] ^= (uint8_t)(1u << gp_rng_u32(1, 2, i) % 8);
		if (decode_both(&p, &look, (struct gp_span){bytes, len}) == GP_OK)
			expect_same_tensor(&p);
		bytes[i] = 0xff;
		if (decode_both(&p, &look, (struct gp_span){bytes, len}) == GP_OK)
			expect_same_tensor(&p);
	}
	/* At the end of a block of its own, so that a byte read behind it is seen. */
	for (size_t cut = 0; cut < len; cut += 1 + cut / 16) {
		uint8_t *const room = malloc(cut + 1);
		memcpy(room, p.payload[HOST], cut);
		if (decode_both(&p, &look, (struct gp_span){room, cut}) == GP_OK)
			expect_same_tensor(&p);
		free(room);
	}
	memcpy(bytes, p.payload[HOST], len);
	OK(decode_both(&p, &look, (struct gp_span){bytes, len}));
	expect_same_tensor(&p);
	close_pair(&p);
}

static void damaged_payloads_are_refused_as_on_the_host(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT(exact); i++)
		refuses_alike(exact[i]);
	for (int i = 0; i < COUNT(mixed); i++)
		refuses_alike(mixed[i]);
}

static void tensor_without_elements_has_an_empty_payload(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 2, .dim = {0, 7}};
	for (int i = 0; i < COUNT(exact); i++) {
		struct pair p = open_pair(exact[i], &shape, &(struct gp_codec_options){.seed = 3});
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
		const bool of_image = strstr(text, "downsample");
		int after = 1;
		while (after < MOST_WORK && fails_at(text, of_image ? &image : &flat, x, after))
			after++;
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
		cmocka_unit_test(device_has_every_stage_that_is_tested_as_its_own),
		cmocka_unit_test(payloads_and_tensors_are_the_hosts),
		cmocka_unit_test(images_are_coded_as_on_the_host),
		cmocka_unit_test(second_device_codes_as_the_first),
		cmocka_unit_test(golden_inputs_have_the_hosts_payloads),
		cmocka_unit_test(chains_with_stages_of_the_host_work_behind_one_copy),
		cmocka_unit_test(memories_are_the_hosts_step_by_step_undone_saved_and_loaded),
		cmocka_unit_test(damaged_payloads_are_refused_as_on_the_host),
		cmocka_unit_test(tensor_without_elements_has_an_empty_payload),
		cmocka_unit_test(estimate_covers_what_opening_takes_of_the_device),
		cmocka_unit_test(failing_device_is_told_and_ends_the_instance),
		cmocka_unit_test(memory_that_a_failing_device_holds_is_neither_saved_nor_loaded),
		cmocka_unit_test(instance_is_not_opened_without_room_and_takes_none),
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

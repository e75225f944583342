/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages that select or fit, on a GPU (an emulated one, or a card) beside the
 * host's: sortquant, topk, pruning and kmeans on tensors that are hard to select from, of sizes
 * around the kernels' tiles and beyond what they sample from; masks from an
 * activation to its gradient; indices that were damaged. What every stage of a
 * device has to keep to: test_cuda_codec.c.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef GP_CUDA_DEVICE
#include "common/codec/codec_device.h"
#include "common/base/rng.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "tests/sanitized.h"

#define OK(call)                                                                                                       \
	do {                                                                                                           \
		if ((call) != GP_OK)                                                                                   \
			fail_msg("%s", err.text);                                                                      \
	} while (0)
#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

enum { MOST = 200003 }; /* from 131072 elements on, a sample says what is kept aside */

static struct gp_err err;
static struct gp_codec_device memory;
static struct gp_rt_stream *stream;
static float x[MOST], y[2][MOST];

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

/* --- one end on the host, one on the device ----------------------------------------------------------------------- */

enum { HOST, DEVICE, ENDS };

struct ends {
	const char *text;
	uint64_t n;
	struct gp_codec *codec[ENDS];
	size_t cap, len[ENDS];
	uint8_t *payload[ENDS];
	float *tensor; /* on the device */
};

/* `activation`: (or NULL) of these ends' gradient. */
static struct ends open_ends(const char *text, const struct gp_shape *shape, struct gp_codec_options options,
			     const struct ends *activation)
{
	struct ends e = {.text = text, .n = (uint64_t)gp_shape_elements(shape)};
	struct gp_codec_spec spec;
	void *tensor;
	OK(gp_codec_spec_parse(text, &spec, &err));
	for (int k = 0; k < ENDS; k++) {
		options.device = k == DEVICE ? &memory : NULL;
		options.activation = activation ? activation->codec[k] : NULL;
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

static void encode_at_both(struct ends *e, const struct gp_codec_pass *pass)
{
	gp_rt_copy_up(stream, e->tensor, x, e->n * sizeof *x);
	OK(gp_rt_stream_wait(stream, &err));
	OK(gp_codec_encode_pass(e->codec[HOST], pass, x, e->payload[HOST], e->cap, &e->len[HOST], &err));
	OK(gp_codec_encode_pass(e->codec[DEVICE], pass, e->tensor, e->payload[DEVICE], e->cap, &e->len[DEVICE], &err));
}

/* Both take the bytes, and have the same tensor of them, or both refuse them. */
static enum gp_status decode_at_both(struct ends *e, const struct gp_codec_pass *pass, struct gp_span in,
				     const char *what)
{
	struct gp_err why;
	const enum gp_status status = gp_codec_decode_pass(e->codec[HOST], pass, in, y[HOST], &err);
	const enum gp_status other = gp_codec_decode_pass(e->codec[DEVICE], pass, in, e->tensor, &why);
	if (status != other)
		fail_msg("%s of %llu, %s: the host says %d, the device %d", e->text, (unsigned long long)e->n, what,
			 status, other);
	if (status != GP_OK)
		return status;
	gp_rt_copy_down(stream, y[DEVICE], e->tensor, e->n * sizeof(float));
	OK(gp_rt_stream_wait(stream, &err));
	for (uint64_t i = 0; i < e->n; i++)
		if (memcmp(&y[HOST][i], &y[DEVICE][i], sizeof(float)) != 0)
			fail_msg("%s of %llu, %s: element %llu is %a on the host, %a on the device", e->text,
				 (unsigned long long)e->n, what, (unsigned long long)i, (double)y[HOST][i],
				 (double)y[DEVICE][i]);
	return GP_OK;
}

static void travel(struct ends *e, const struct gp_codec_pass *pass, const char *what)
{
	encode_at_both(e, pass);
	if (e->len[HOST] != e->len[DEVICE])
		fail_msg("%s of %llu, %s: %zu bytes on the host, %zu on the device", e->text, (unsigned long long)e->n,
			 what, e->len[HOST], e->len[DEVICE]);
	for (size_t i = 0; i < e->len[HOST]; i++)
		if (e->payload[HOST][i] != e->payload[DEVICE][i])
			fail_msg("%s of %llu, %s: byte %zu of %zu is %02x on the host, %02x on the device", e->text,
				 (unsigned long long)e->n, what, i, e->len[HOST], e->payload[HOST][i],
				 e->payload[DEVICE][i]);
	assert_int_equal(decode_at_both(e, pass, (struct gp_span){e->payload[HOST], e->len[HOST]}, what), GP_OK);
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

enum kind {
	NORMAL,
	RELU6,
	CONSTANT,
	ZEROS,
	DENORMAL,
	HUGE_VALUES,
	TWO_VALUES,
	RISING,
	FALLING,
	ONE_CELL,
	RARE,
	MIXED_ZEROS,
	KINDS
};
static const char *const names[KINDS] = {
	"normal",     "relu6",  "constant", "zeros",    "denormal", "huge values",
	"two values", "rising", "falling",  "one cell", "rare",     "mixed zeros",
};

static float value_of(enum kind kind, uint64_t n, uint64_t i)
{
	const float g = gp_rng_normal(5, gp_rng_stream(GP_RNG_INIT, (uint64_t)kind), i);
	switch (kind) {
	case RELU6:
		return fminf(fmaxf(3 * g - 1, 0), 6);
	case CONSTANT:
		return -0.1f;
	case ZEROS:
		return i % 3 ? 0.0f : -0.0f;
	case DENORMAL:
		return g * 1e-40f;
	case HUGE_VALUES:
		return i % 100 ? g * 1e37f : FLT_MAX / 4;
	case TWO_VALUES:
		return g > 0.5f ? 2 : -1;
	case RISING:
		return (float)i - (float)n / 3;
	case FALLING:
		return 1 / (float)(i + 1);
	case ONE_CELL: /* keys differ in the last bits alone */
		return 1 + (float)(gp_rng_u32(1, 2, i) % 4096) * FLT_EPSILON;
	case RARE: /* the ends of the range are where hardly any element is */
		return i % 50021 == 50020 ? -1e20f : i % 20011 == 20010 ? 1e20f : g;
	case MIXED_ZEROS:
		return g > 1 ? g : g < -1 ? -0.0f : 0;
	default:
		return g;
	}
}

static void fill(enum kind kind, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		x[i] = value_of(kind, n, i);
}

static void travels_in_all_kinds(const char *text, uint64_t n)
{
	const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)n}};
	struct ends e = open_ends(text, &shape, (struct gp_codec_options){.seed = 17}, NULL);
	for (int kind = 0; kind < KINDS; kind++) {
		if (left_to_plain_runs(n > 10000 ? 6 : 4, (int)(n % 3) + kind + (int)strlen(text)))
			continue;
		fill((enum kind)kind, n);
		travel(&e, &(struct gp_codec_pass){.draw = (uint64_t)kind}, names[kind]);
	}
	close_ends(&e);
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static const char *const sortquants[] = {
	"sortquant:bits=6,split=2",
	"sortquant:bits=1,split=1",
	"sortquant:bits=3,split=0",
	"sortquant:bits=4,split=5",
	"sortquant:bits=8,split=8",
	"sortquant:bits=12,split=2,sample=64",
	"sortquant:bits=5,split=3,sample=100000",
	"sortquant:bits=2,partitions=5",
	"sortquant:bits=6,partitions=4,prune=0.3",
	"sortquant:bits=7,prune=0.01,sample=50",
};
static const char *const topks[] = {"topk:ratio=0.1", "topk:ratio=0.0005", "topk:ratio=0.4", "topk:ratio=1",
				    "topk:ratio=0.2+sortquant:bits=6,split=2"};
static const char *const codebooks[] = {"kmeans:bits=1", "kmeans:bits=2", "kmeans:bits=5", "kmeans:bits=8"};
static const uint64_t sizes[] = {1, 2, 5, 33, 128, 1000, 1025, 3001};
static const uint64_t large[] = {131072, MOST};

static void partitions_and_codes_are_the_hosts_for_every_kind_of_tensor(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT(sortquants); i++)
		for (int k = 0; k < COUNT(sizes); k++)
			travels_in_all_kinds(sortquants[i], sizes[k]);
}

static void kept_elements_and_indices_are_the_hosts_for_every_kind_of_tensor(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT(topks); i++)
		for (int k = 0; k < COUNT(sizes); k++)
			travels_in_all_kinds(topks[i], sizes[k]);
}

/* Levels are fitted to counts, which are the same however they were made. */
static void codebooks_and_codes_are_the_hosts_for_every_kind_of_tensor(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT(codebooks); i++)
		for (int k = 0; k < COUNT(sizes); k++)
			travels_in_all_kinds(codebooks[i], sizes[k]);
	travels_in_all_kinds("kmeans:bits=4", MOST);
}

static void samples_that_mislead_cost_time_and_nothing_else(void **state)
{
	(void)state;
	for (int k = 0; k < COUNT(large); k++) {
		travels_in_all_kinds("sortquant:bits=6,split=2", large[k]);
		travels_in_all_kinds("sortquant:bits=4,split=4", large[k]);
		travels_in_all_kinds("topk:ratio=0.1", large[k]);
	}
	/* More ranks: 16 of which a sample says where they are, 126 of which it does not. */
	travels_in_all_kinds("sortquant:bits=4,split=3", MOST);
	travels_in_all_kinds("sortquant:bits=1,split=6", large[0]);
}

/* Each width of codes, by how far the kept elements are apart. */
static void distances_of_every_width_are_the_hosts(void **state)
{
	(void)state;
	static const struct gp_shape shape = {.ndim = 1, .dim = {150000}};
	static const char *const ratios[] = {"topk:ratio=0.0001", "topk:ratio=0.001", "topk:ratio=0.005",
					     "topk:ratio=0.03"};
	for (int i = 0; i < COUNT(ratios); i++) {
		struct ends e = open_ends(ratios[i], &shape, (struct gp_codec_options){0}, NULL);
		for (uint64_t clump = 1; clump <= 1000;
		     clump *= 10) { /* kept ones side by side: long distances and short */
			for (uint64_t at = 0; at < e.n; at++)
				x[at] = gp_rng_normal(clump, 3, at / clump) + 0.01f * (float)(at % clump);
			travel(&e, &(struct gp_codec_pass){0}, "clumps");
		}
		close_ends(&e);
	}
}

static void tensor_that_is_not_finite_or_too_wide_travels_raw(void **state)
{
	(void)state;
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	for (int i = 0; i < COUNT(sortquants) + COUNT(topks) + COUNT(codebooks); i++) {
		const int codebook = i - COUNT(sortquants) - COUNT(topks);
		const char *const text = i < COUNT(sortquants) ? sortquants[i]
					 : codebook < 0        ? topks[i - COUNT(sortquants)]
							       : codebooks[codebook];
		const struct gp_shape shape = {.ndim = 1, .dim = {3000}};
		struct ends e = open_ends(text, &shape, (struct gp_codec_options){.seed = 1}, NULL);
		for (uint64_t at = 0; at < 3000; at += 2999)
			for (int k = 0; k < COUNT(bad); k++) {
				fill(NORMAL, 3000);
				x[at] = bad[k];
				travel(&e, &(struct gp_codec_pass){0}, "not finite");
				assert_int_equal(e.len[DEVICE], 4 + 4 * 3000);
			}
		fill(NORMAL, 3000);
		x[7] = FLT_MAX;
		x[8] = -FLT_MAX;
		travel(&e, &(struct gp_codec_pass){0}, "too wide");
		fill(NORMAL, 3000);
		travel(&e, &(struct gp_codec_pass){0}, "finite again");
		close_ends(&e);
	}
}

/* An activation and its gradient by turns, chunk by chunk; what is raw or evaluated leaves no mask, or its old one. */
static void take_turns(const char *gradient)
{
	static const struct gp_shape shape = {.ndim = 2, .dim = {4, 1111}};
	const struct gp_codec_options options = {.seed = 3, .chunks = 2, .has_gradient = true};
	const struct gp_codec_options back = {.seed = 3, .chunks = 2};
	struct ends up = open_ends("topk:ratio=0.1+sortquant:bits=6,split=2", &shape, options, NULL);
	struct ends down = open_ends(gradient, &shape, back, &up);
	size_t with_indices = 0, without = 0;
	for (uint64_t step = 0; step < 12; step++) {
		struct gp_codec_pass pass = {.draw = step, .step = step / 2, .chunk = (uint32_t)step % 2};
		fill((enum kind)(step % 2), up.n);
		x[0] = step == 5 ? NAN : 1;
		pass.eval = step == 8;
		travel(&up, &pass, "activation");
		fill(NORMAL, up.n);
		x[3] = step == 7 ? INFINITY : 0;
		travel(&down, &pass, "gradient");
		if (step == 5 || step == 8)
			with_indices = down.len[DEVICE];
		else if (step != 7)
			without = down.len[DEVICE];
	}
	assert_true(with_indices > without + 100);
	assert_true(gp_codec_state_hash(down.codec[HOST]) == gp_codec_state_hash(down.codec[DEVICE]));
	close_ends(&down);
	close_ends(&up);
}

static void gradient_keeps_the_elements_of_its_activation_as_on_the_host(void **state)
{
	(void)state;
	take_turns("topk:ratio=0.1+sortquant:bits=4,split=1");
	take_turns("ef+topk:ratio=0.1+sortquant:bits=4,split=1");
}

/* Bits and bytes of the indices changed, and cut. */
static void refuses_alike(const char *text, uint64_t n, enum kind kind)
{
	const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)n}};
	struct ends e = open_ends(text, &shape, (struct gp_codec_options){0}, NULL);
	const struct gp_codec_pass look = {.eval = true};
	size_t refused = 0;
	fill(kind, n);
	encode_at_both(&e, &look);
	const size_t len = e.len[HOST];
	for (size_t back = 1; back + 4 <= len; back += 1 + back / 64)
		for (int bit = 0; bit < 8; bit++) {
			memcpy(e.payload[DEVICE], e.payload[HOST], len);
			e.payload[DEVICE][len - back] ^= (uint8_t)(bit < 6 ? 1 << bit : bit == 6 ? 0xff : 0x81);
			refused +=
				decode_at_both(&e, &look, (struct gp_span){e.payload[DEVICE], len}, "damaged") != GP_OK;
		}
	assert_true(refused > 0);
	for (size_t cut = 0; cut < len; cut += 1 + cut / 16) {
		uint8_t *const room = malloc(cut + 1); /* a byte read behind it is seen */
		memcpy(room, e.payload[HOST], cut);
		assert_int_equal(decode_at_both(&e, &look, (struct gp_span){room, cut}, "cut"), GP_PROTO);
		free(room);
	}
	assert_int_equal(decode_at_both(&e, &look, (struct gp_span){e.payload[HOST], len}, "whole"), GP_OK);
	close_ends(&e);
}

static void damaged_indices_are_refused_as_on_the_host(void **state)
{
	(void)state;
	refuses_alike("topk:ratio=0.02", 1500, NORMAL);
	refuses_alike("topk:ratio=0.1+sortquant:bits=3,split=1", 1003, NORMAL);
	refuses_alike("topk:ratio=0.6", 301, RISING);
	refuses_alike("sortquant:bits=4,partitions=3,prune=0.4", 407, NORMAL);
	refuses_alike("kmeans:bits=3", 301, NORMAL);
}

int main(void)
{
	if (gp_rt_count() == 0) {
		puts("no GPU here: nothing to test");
		return 77;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(partitions_and_codes_are_the_hosts_for_every_kind_of_tensor),
		cmocka_unit_test(kept_elements_and_indices_are_the_hosts_for_every_kind_of_tensor),
		cmocka_unit_test(codebooks_and_codes_are_the_hosts_for_every_kind_of_tensor),
		cmocka_unit_test(samples_that_mislead_cost_time_and_nothing_else),
		cmocka_unit_test(distances_of_every_width_are_the_hosts),
		cmocka_unit_test(tensor_that_is_not_finite_or_too_wide_travels_raw),
		cmocka_unit_test(gradient_keeps_the_elements_of_its_activation_as_on_the_host),
		cmocka_unit_test(damaged_indices_are_refused_as_on_the_host),
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

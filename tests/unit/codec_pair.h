/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of codecs on a GPU (an emulated one, or a card): the same codec on
 * the host and on the device, which have to say the same of everything they are
 * given. Not a test by itself.
 *
 * Threads: one.
 */
#ifndef GP_TEST_CODEC_PAIR_H
#define GP_TEST_CODEC_PAIR_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/rng.h"
#include "common/codec/codec_device.h"
#include "common/codec/codec_impl.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "tests/sanitized.h"

#define OK(call)                                                                                                       \
	do {                                                                                                           \
		if ((call) != GP_OK)                                                                                   \
			fail_msg("%s", err.text);                                                                      \
	} while (0)

#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

static struct gp_err err;
static struct gp_codec_device memory;
static struct gp_rt_stream *stream;

static inline int open_device(void **state)
{
	struct gp_rt_info info;
	(void)state;
	OK(gp_rt_open(0, &info, &err));
	OK(gp_rt_stream_new(0, false, &stream, &err));
	gp_cuda_codec_device(0, &memory);
	return 0;
}

static inline int close_device(void **state)
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

static inline struct pair open_pair(const char *text, const struct gp_shape *shape,
				    const struct gp_codec_options *options)
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

static inline void close_pair(struct pair *p)
{
	for (int k = 0; k < PLACES; k++) {
		gp_codec_free(p->codec[k]);
		gp_codec_free_payload(&memory, p->payload[k]);
		free(p->y[k]);
	}
	gp_rt_free(memory.device, p->tensor);
}

static inline void encode_both(struct pair *p, const struct gp_codec_pass *pass, const float *x)
{
	gp_rt_copy_up(stream, p->tensor, x, p->n * sizeof *x);
	OK(gp_rt_stream_wait(stream, &err));
	OK(gp_codec_encode_pass(p->codec[HOST], pass, x, p->payload[HOST], p->cap, &p->len[HOST], &err));
	memset(p->payload[DEVICE], 0xee, p->cap + 1);
	OK(gp_codec_encode_pass(p->codec[DEVICE], pass, p->tensor, p->payload[DEVICE], p->cap, &p->len[DEVICE], &err));
	assert_int_equal(p->payload[DEVICE][p->cap], 0xee);
}

/* Decodes the same bytes on host and device. Both take them or both refuse them. */
static inline enum gp_status decode_both(struct pair *p, const struct gp_codec_pass *pass, struct gp_span in)
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

static inline void expect_same_payload(const struct pair *p)
{
	if (p->len[HOST] != p->len[DEVICE])
		fail_msg("%s of %llu: %zu bytes on the host, %zu on the device", p->text, (unsigned long long)p->n,
			 p->len[HOST], p->len[DEVICE]);
	for (size_t i = 0; i < p->len[HOST]; i++)
		if (p->payload[HOST][i] != p->payload[DEVICE][i])
			fail_msg("%s of %llu: byte %zu of %zu is %02x on the host, %02x on the device", p->text,
				 (unsigned long long)p->n, i, p->len[HOST], p->payload[HOST][i], p->payload[DEVICE][i]);
}

static inline void expect_same_tensor(const struct pair *p)
{
	for (uint64_t i = 0; i < p->n; i++)
		if (memcmp(&p->y[HOST][i], &p->y[DEVICE][i], sizeof(float)) != 0)
			fail_msg("%s of %llu: element %llu is %a on the host, %a on the device", p->text,
				 (unsigned long long)p->n, (unsigned long long)i, (double)p->y[HOST][i],
				 (double)p->y[DEVICE][i]);
}

static inline void expect_same_state(const struct pair *p)
{
	assert_true(gp_codec_state_hash(p->codec[HOST]) == gp_codec_state_hash(p->codec[DEVICE]));
	assert_true(gp_codec_state_shared_hash(p->codec[HOST]) == gp_codec_state_shared_hash(p->codec[DEVICE]));
}

static inline void expect_same_memory(const struct pair *p)
{
	struct gp_codec_stats stats[PLACES];
	for (int k = 0; k < PLACES; k++)
		gp_codec_get_stats(p->codec[k], &stats[k]);
	assert_memory_equal(&stats[HOST], &stats[DEVICE], sizeof stats[HOST]);
	expect_same_state(p);
}

static inline void travel(struct pair *p, const struct gp_codec_pass *pass, const float *x)
{
	encode_both(p, pass, x);
	expect_same_payload(p);
	OK(decode_both(p, pass, (struct gp_span){p->payload[HOST], p->len[HOST]}));
	expect_same_tensor(p);
	expect_same_memory(p);
}

/* --- tensors ----------------------------------------------------------------------------------------------------- */

enum kind { BELL, RELU, CONSTANT, ZEROS, SPIKES, TINY, WIDE, KINDS };

static inline float drawn(uint64_t seed, uint64_t i)
{
	return gp_rng_normal(seed, 0, i);
}

static inline void fill(float *x, uint64_t n, enum kind kind, uint64_t seed)
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

/* --- damaged payloads -------------------------------------------------------------------------------------------- */

/* Bytes changed and cut off, every one of the heads: whatever the host says of it. */
static inline void refuses_alike(const char *text, const struct gp_shape *shape)
{
	struct pair p = open_pair(text, shape, &(struct gp_codec_options){.seed = 5});
	float *const x = malloc(p.n * sizeof *x);
	fill(x, p.n, BELL, 9);
	encode_both(&p, &(struct gp_codec_pass){.draw = 1}, x);
	uint8_t *const bytes = p.payload[DEVICE];
	const size_t len = p.len[HOST];
	const struct gp_codec_pass look = {.eval = true};
	/* Elsewhere than in the plain runs all bytes of the heads, and fewer behind them. */
	const size_t denser = repeats_another_run() ? 1 : 4;
	for (size_t i = 0; i < len; i += 1 + i / (16 * denser)) {
		memcpy(bytes, p.payload[HOST], len);
		bytes[i] ^= (uint8_t)(1u << gp_rng_u32(1, 2, i) % 8);
		if (decode_both(&p, &look, (struct gp_span){bytes, len}) == GP_OK)
			expect_same_tensor(&p);
		bytes[i] = 0xff;
		if (decode_both(&p, &look, (struct gp_span){bytes, len}) == GP_OK)
			expect_same_tensor(&p);
	}
	/* At the end of a block of its own, so that a byte read behind it is seen. */
	for (size_t cut = 0; cut < len; cut += 1 + cut / (4 * denser)) {
		uint8_t *const room = malloc(cut + 1);
		memcpy(room, p.payload[HOST], cut);
		if (decode_both(&p, &look, (struct gp_span){room, cut}) == GP_OK)
			expect_same_tensor(&p);
		free(room);
	}
	memcpy(bytes, p.payload[HOST], len);
	OK(decode_both(&p, &look, (struct gp_span){bytes, len}));
	expect_same_tensor(&p);
	free(x);
	close_pair(&p);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Buckets, norms and codes of the level quantizers as payload bytes, block by
 * block so that draws and codes stay in L1. See level.h; layout: CODECS.md,
 * "Level quantizers". Test: tests/unit/test_codec_level.c
 */
#include "common/codec/stages/level.h"

#include <math.h>

#include "common/base/rng.h"

enum { BLOCK = GP_QUANT_BLOCK };

void gp_level_init(struct gp_level_coder *c, const struct gp_codec_setup *setup, int bits, uint64_t bucket,
		   enum gp_level_norm norm)
{
	memset(c, 0, sizeof *c);
	c->n = setup->n;
	c->bucket = bucket;
	c->seed = setup->seed;
	c->bits = bits;
	c->norm = norm;
	c->codes = gp_codec_loops_choose();
	c->loops = gp_level_loops_choose();
	c->draw = gp_draw_words_choose();
}

void gp_level_set(struct gp_level_coder *c, const float *level, int count)
{
	c->count = count;
	gp_level_table_set(&c->table, c->bits, level, count);
}

uint64_t gp_level_buckets(const struct gp_level_coder *c)
{
	return gp_level_norm_bytes(c->bucket, c->n) / 4;
}

uint64_t gp_level_norm_bytes(uint64_t bucket, uint64_t n)
{
	return 4 * ((n + bucket - 1) / bucket);
}

uint64_t gp_level_bytes(int bits, uint64_t bucket, uint64_t n)
{
	return gp_level_norm_bytes(bucket, n) + (n * (uint64_t)bits + 7) / 8;
}

uint64_t gp_level_work(uint64_t bucket, const struct gp_codec_setup *setup, uint64_t element_ns)
{
	const uint64_t elements = gp_codec_work_times(setup->n, setup->encodes ? element_ns : GP_CODEC_ELEMENT_NS);
	const uint64_t buckets = gp_level_norm_bytes(bucket, setup->n) / 4;
	return gp_codec_work_add(elements, gp_codec_work_times(buckets, setup->encodes ? 60 : 30));
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* At least as large as the largest magnitude, also after rounding: both roundings are monotonic. */
static float norm_of(const struct gp_level_coder *c, const float *x, uint64_t n)
{
	if (c->norm == GP_LEVEL_L2)
		return (float)sqrt(c->loops->squares(x, n));
	const uint32_t u = c->loops->largest(x, n);
	float norm;
	memcpy(&norm, &u, sizeof norm);
	return norm;
}

bool gp_level_write_norms(const struct gp_level_coder *c, const float *x, uint8_t *norms)
{
	bool finite = true;
	for (uint64_t at = 0; at < c->n; at += c->bucket, norms += 4) {
		const float norm = norm_of(c, x + at, c->n - at < c->bucket ? c->n - at : c->bucket);
		finite &= (bool)isfinite(norm);
		gp_put_f32(norms, norm);
	}
	return finite;
}

/* What is left of the bucket that element `at` is in, at most `most`. */
static size_t rest_of_bucket(const struct gp_level_coder *c, uint64_t at, size_t most)
{
	const uint64_t rest = c->bucket - at % c->bucket;
	return rest < most ? rest : most;
}

/* Elements at..at + n - 1. A bucket of zeros is divided by 1. */
static void quantize_block(const struct gp_level_coder *c, const float *x, uint64_t at, size_t n, const uint8_t *norms,
			   const uint16_t *draws, uint16_t *codes)
{
	for (size_t i = 0, count; i < n; i += count) {
		const float norm = gp_get_f32(norms + 4 * ((at + i) / c->bucket));
		count = rest_of_bucket(c, at + i, n - i);
		c->loops->quantize(&c->table, x + at + i, count, norm > 0 ? norm : 1, draws + i, codes + i);
	}
}

/* Element i draws 16 bits: half of word i / 2 of the random words, in memory order. */
bool gp_level_write_codes(const struct gp_level_coder *c, const struct gp_codec_pass *pass, const float *x,
			  uint8_t *norms)
{
	union {
		uint32_t word[BLOCK / 2];
		uint16_t half[BLOCK];
	} draws;
	uint16_t codes[BLOCK];
	const uint64_t stream = gp_rng_stream(GP_RNG_ROUNDING, pass->draw);
	uint8_t *out = norms + gp_level_norm_bytes(c->bucket, c->n);
	for (uint64_t at = 0; at < c->n; at += BLOCK, out += BLOCK / 8 * c->bits) {
		const size_t n = c->n - at < BLOCK ? c->n - at : BLOCK;
		if (gp_codec_stopped(pass))
			return false;
		c->draw(c->seed, stream, at / 8, (n + 7) / 8, draws.word);
		quantize_block(c, x, at, n, norms, draws.half, codes);
		c->codes->pack(codes, n, c->bits, out);
	}
	return true;
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

static enum gp_status check_norms(const struct gp_level_coder *c, const uint8_t *norms, struct gp_err *err)
{
	const uint64_t buckets = gp_level_buckets(c);
	for (uint64_t i = 0; i < buckets; i++) {
		const float norm = gp_get_f32(norms + 4 * i);
		if (!(norm >= 0) || !isfinite(norm))
			GP_FAIL(err, GP_PROTO, "bucket %llu of a payload has the norm %g", (unsigned long long)i,
				(double)norm);
	}
	return GP_OK;
}

static bool codes_have_levels(const struct gp_level_coder *c, const uint16_t *codes, size_t n)
{
	uint16_t top = 0;
	if (c->count == 1 << c->bits)
		return true;
	for (size_t i = 0; i < n; i++)
		top = codes[i] > top ? codes[i] : top;
	return top < c->count;
}

static void dequantize_block(const struct gp_level_coder *c, const uint16_t *codes, uint64_t at, size_t n,
			     const uint8_t *norms, float *x)
{
	for (size_t i = 0, count; i < n; i += count) {
		const float norm = gp_get_f32(norms + 4 * ((at + i) / c->bucket));
		count = rest_of_bucket(c, at + i, n - i);
		c->loops->dequantize(&c->table, codes + i, count, norm, x + at + i);
	}
}

enum gp_status gp_level_check(const struct gp_level_coder *c, struct gp_span in, struct gp_err *err)
{
	const uint64_t expected = gp_level_bytes(c->bits, c->bucket, c->n);
	const int used = (int)(c->n * (uint64_t)c->bits % 8);
	if (in.len != expected)
		GP_FAIL(err, GP_PROTO, "norms and codes of a payload have %zu bytes instead of %llu", in.len,
			(unsigned long long)expected);
	if (used && in.data[in.len - 1] >> used)
		GP_FAIL(err, GP_PROTO, "payload has bits set behind its last code");
	return GP_OK;
}

enum gp_status gp_level_read(const struct gp_level_coder *c, const struct gp_codec_pass *pass, struct gp_span in,
			     float *x, struct gp_err *err)
{
	uint16_t codes[BLOCK];
	GP_TRY(gp_level_check(c, in, err));
	GP_TRY(check_norms(c, in.data, err));
	const uint8_t *packed = in.data + gp_level_norm_bytes(c->bucket, c->n);
	for (uint64_t at = 0; at < c->n; at += BLOCK, packed += BLOCK / 8 * c->bits) {
		const size_t n = c->n - at < BLOCK ? c->n - at : BLOCK;
		GP_TRY(gp_codec_check_stop(pass, err));
		c->codes->unpack(packed, n, c->bits, codes);
		if (!codes_have_levels(c, codes, n))
			GP_FAIL(err, GP_PROTO, "payload has a code without a level");
		dequantize_block(c, codes, at, n, in.data, x);
	}
	return GP_OK;
}

/* --- levels ----------------------------------------------------------------------------------------------------- */

void gp_level_uniform(float *level, int bits)
{
	const int last = (1 << bits) - 1;
	for (int i = 0; i <= last; i++)
		level[i] = (float)(2 * i - last) / (float)last;
}

void gp_level_exponential(float *level, int bits, float multiplier)
{
	const int half = 1 << (bits - 1);
	float power = 1;
	for (int j = 0; j < half; j++, power *= multiplier) {
		level[j] = -power;
		level[2 * half - 1 - j] = power;
	}
}

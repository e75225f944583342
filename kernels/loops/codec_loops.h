/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of the CPU codecs: one table of functions per instruction
 * set. codec_loops_portable.c is the reference; the AVX2 and AVX-512 versions
 * give the same bits for every input, which tests/unit/test_codec_loops.c checks.
 * Nothing here knows payload layouts beyond packed codes (common/CODECS.md).
 *
 * Arithmetic, in fp32, each operation rounded on its own (no contraction):
 *   level = min(rint((x - min) / step), 2^bits - 1)     rint: half to even
 *   value = level * step + min
 * A true division, because the golden cases divide: a product with 1/step
 * lands on the other side of a rounding tie now and then.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_codec_loops.c
 */
#ifndef GP_CODEC_LOOPS_H
#define GP_CODEC_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/isa.h"

#define GP_QUANT_MAX_SPLIT 8
#define GP_SIFT_WINDOWS    4
#define GP_SIFT_SLACK      16
#define GP_QUANT_BLOCK     1024 /* codes handled at a time, between quantizing and packing: stays in L1 */

/* 2^split partitions with 2^bits levels each; a code is partition << bits | level. bits may be 0: a partition is then a
 * level, at min[]. */
struct gp_quant_table {
	int bits, split;
	float min[1 << GP_QUANT_MAX_SPLIT]; /* ascending (encode): x is in the last partition whose min <= x */
	float step[1 << GP_QUANT_MAX_SPLIT];
	float divisor[1 << GP_QUANT_MAX_SPLIT]; /* step, or 1 where step is 0 (encode) */
};

/* The open interval lo..hi of the number line, and what was found so far. */
struct gp_window {
	float lo, hi;
	bool choose;
	uint64_t at_or_below; /* elements <= lo */
	uint64_t inside;
};

struct gp_codec_loops {
	const char *name;
	/* Smallest and largest of x[0..n), n >= 1. False, and no result, when any is NaN or infinite. */
	bool (*range)(const float *x, size_t n, float *min, float *max);
	/* Adds the elements of x to the counts of up to GP_SIFT_WINDOWS disjoint windows, and copies those inside one that
	 * chooses to `chosen`, in order; returns how many. Writes up to chosen[n + GP_SIFT_SLACK). NaN is in no window. */
	size_t (*sift)(const float *x, size_t n, struct gp_window *windows, int count, float *chosen);
	/* x >= min[0] and every quotient below 2^24: holds for what the codecs put into the table. */
	void (*quantize)(const struct gp_quant_table *t, const float *x, size_t n, uint16_t *codes);
	void (*dequantize)(const struct gp_quant_table *t, const uint16_t *codes, size_t n, float *x);
	/* Codes of `width` 1..16 bits, least significant bit first; writes and reads exactly (n * width + 7) / 8 bytes;
	 * the last byte is filled up with zero bits. */
	void (*pack)(const uint16_t *codes, size_t n, int width, uint8_t *out);
	void (*unpack)(const uint8_t *in, size_t n, int width, uint16_t *codes);
	/* IEEE half and bfloat16, little-endian, round to nearest even. False when a result is NaN or infinite; then
	 * `out` is unspecified. */
	bool (*to_fp16)(const float *x, size_t n, uint8_t *out);
	bool (*to_bf16)(const float *x, size_t n, uint8_t *out);
	bool (*from_fp16)(const uint8_t *in, size_t n, float *x);
	bool (*from_bf16)(const uint8_t *in, size_t n, float *x);
};

extern const struct gp_codec_loops gp_codec_loops_portable, gp_codec_loops_avx2, gp_codec_loops_avx512;

/* By gp_isa_wanted. */
const struct gp_codec_loops *gp_codec_loops_choose(void);
/* By name; NULL when unknown or when this processor cannot run it. */
const struct gp_codec_loops *gp_codec_loops_named(const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * `bitshuffle`: equal bits of neighbouring elements next to each other (after
 * Masui et al., "A compression scheme for radio data in high performance
 * computing", Astronomy and Computing 12, 2015). Shortens nothing itself, but
 * a compressing stage finds constant exponents and unused bits. Whether it does
 * is tried on a sample. Layout: CODECS.md. Test: tests/unit/test_codec_bytes.c
 */
#define ZSTD_STATIC_LINKING_ONLY /* a context in memory of ours */
#include <zstd.h>

#include "common/codec/codec_impl.h"
#include "common/codec/codec_sample.h"
#include "kernels/loops/bit_loops.h"

enum { BLOCK = 4096 /* elements */, UNIT_MAX = 4, TRIAL_LEVEL = 1 };

struct bitshuffle {
	int unit;
	const struct gp_bit_loops *loops;
	void *work; /* NULL on an end that only decodes */
	ZSTD_CCtx *trial;
	uint8_t sample[GP_SAMPLE_BYTES], shuffled[GP_SAMPLE_BYTES], packed[GP_SAMPLE_BYTES];
};

static size_t trial_bytes(void)
{
	return ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(TRIAL_LEVEL, GP_SAMPLE_BYTES, 0));
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	return sizeof(struct bitshuffle) + (setup->encodes ? trial_bytes() + 64 : 0);
}

static void close_bitshuffle(void *state)
{
	struct bitshuffle *b = state;
	if (b)
		gp_free_aligned(b->work);
	gp_free(b);
}

static enum gp_status open_bitshuffle(const double *value, const struct gp_codec_setup *setup, void **state,
				      struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct bitshuffle), err));
	struct bitshuffle *b = p;
	b->unit = value[0] > 0 ? (int)value[0] : setup->unit;
	b->loops = gp_bit_loops_choose();
	b->work = setup->encodes ? gp_alloc_aligned(trial_bytes()) : NULL;
	if (setup->encodes && !b->work) {
		close_bitshuffle(b);
		GP_FAIL(err, GP_NOMEM, "out of memory for bitshuffle");
	}
	if (b->work) {
		b->trial = ZSTD_initStaticCCtx(b->work, trial_bytes());
		gp_require(b->trial);
	}
	*state = b;
	return GP_OK;
}

/* --- shuffling -------------------------------------------------------------------------------------------------- */

/* Byte `at` of every element. */
static void gather_bytes(const uint8_t *in, size_t n, int unit, int at, uint8_t *out)
{
	for (size_t i = 0; i < n; i++)
		out[i] = in[i * (size_t)unit + (size_t)at];
}

static void scatter_bytes(const uint8_t *in, size_t n, int unit, int at, uint8_t *out)
{
	for (size_t i = 0; i < n; i++)
		out[i * (size_t)unit + (size_t)at] = in[i];
}

/* A compiler that knows the unit makes vectors of these. */
#define WITH_UNIT(f, in, n, unit, at, out)                                                                             \
	do {                                                                                                           \
		if ((unit) == 4)                                                                                       \
			f(in, n, 4, at, out);                                                                          \
		else if ((unit) == 2)                                                                                  \
			f(in, n, 2, at, out);                                                                          \
		else                                                                                                   \
			f(in, n, unit, at, out);                                                                       \
	} while (0)

/* n elements, a multiple of 8 and at most BLOCK. */
static void shuffle_block(const struct bitshuffle *b, const uint8_t *in, size_t n, uint8_t *out)
{
	uint8_t bytes[BLOCK];
	for (int at = 0; at < b->unit && b->unit > 1; at++) {
		WITH_UNIT(gather_bytes, in, n, b->unit, at, bytes);
		b->loops->split(bytes, n, out + (size_t)at * n);
	}
	if (b->unit == 1)
		b->loops->split(in, n, out);
}

static void unshuffle_block(const struct bitshuffle *b, const uint8_t *in, size_t n, uint8_t *out)
{
	uint8_t bytes[BLOCK];
	for (int at = 0; at < b->unit && b->unit > 1; at++) {
		b->loops->join(in + (size_t)at * n, n, bytes);
		WITH_UNIT(scatter_bytes, bytes, n, b->unit, at, out);
	}
	if (b->unit == 1)
		b->loops->join(in, n, out);
}

/* Whole blocks, one of the multiple of 8 elements that is left, and the last bytes as they are. */
static void each_block(const struct bitshuffle *b, const uint8_t *in, size_t len, uint8_t *out,
		       void (*block)(const struct bitshuffle *b, const uint8_t *in, size_t n, uint8_t *out))
{
	const size_t unit = (size_t)b->unit;
	size_t at = 0;
	for (size_t left = len / unit / 8 * 8; left > 0;) {
		const size_t n = left < BLOCK ? left : BLOCK;
		block(b, in + at, n, out + at);
		at += n * unit;
		left -= n;
	}
	memcpy(out + at, in + at, len - at);
}

/* --- whether it pays -------------------------------------------------------------------------------------------- */

/* Bytes after a fast compression; len where they become no fewer. */
static size_t compressed_size(struct bitshuffle *b, const uint8_t *bytes, size_t len)
{
	const size_t got = ZSTD_compressCCtx(b->trial, b->packed, gp_sample_most(len), bytes, len, TRIAL_LEVEL);
	return ZSTD_isError(got) ? len : got;
}

/* A sample has to become shorter, and shorter than unshuffled, by what a stage has to save. */
static bool pays(struct bitshuffle *b, struct gp_span in)
{
	struct gp_span sample = in;
	if (in.len >= GP_SAMPLE_BYTES) {
		gp_sample_take(in, b->sample);
		sample = (struct gp_span){b->sample, sizeof b->sample};
	}
	each_block(b, sample.data, sample.len, b->shuffled, shuffle_block);
	const size_t shuffled = compressed_size(b, b->shuffled, sample.len);
	return shuffled < sample.len && shuffled <= gp_sample_most(compressed_size(b, sample.data, sample.len));
}

static bool squeeze(void *state, const struct gp_codec_pass *pass, struct gp_span in, uint8_t *out, size_t *len)
{
	(void)pass;
	struct bitshuffle *b = state;
	if (!pays(b, in))
		return false;
	each_block(b, in.data, in.len, out, shuffle_block);
	*len = in.len;
	return true;
}

static enum gp_status expand(void *state, const struct gp_codec_pass *pass, struct gp_span in, uint8_t *out, size_t len,
			     struct gp_err *err)
{
	(void)pass;
	if (in.len != len)
		GP_FAIL(err, GP_PROTO, "bitshuffle: %zu bytes instead of the %zu announced", in.len, len);
	each_block(state, in.data, len, out, unshuffle_block);
	return GP_OK;
}

#define TRIAL_NS UINT64_C(1000000) /* a sample is compressed twice */

static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	return gp_codec_work_add(gp_codec_work_times(setup->n, 2), setup->encodes ? TRIAL_NS : 0);
}

const struct gp_codec_ops gp_codec_bitshuffle = {
	.id = GP_CODEC_ID_bitshuffle,
	.kind = GP_CODEC_BYTES,
	.info = {.name = "bitshuffle",
		 .summary = "bits of equal weight together, for zstd after it",
		 .lossless = true,
		 .examples = GP_EXAMPLES("bitshuffle+zstd", "fp16+bitshuffle+zstd", "uniform+bitshuffle:unit=3+zstd")},
	.keys = 1,
	.key = {{.name = "unit", .max = UNIT_MAX, .help = "bytes of an element; 0: what the quantizer writes"}},
	.rearranges = true,
	.bytes = state_bytes,
	.work = work,
	.open = open_bitshuffle,
	.close = close_bitshuffle,
	.squeeze = squeeze,
	.expand = expand,
};

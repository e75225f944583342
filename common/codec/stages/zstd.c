/* SPDX-License-Identifier: Apache-2.0
 *
 * `zstd`: Zstandard over the payload so far. A sample is tried first, so that
 * bytes that do not compress cost almost nothing. The library works in memory
 * that is set aside at open. Layout: CODECS.md. Test: tests/unit/test_codec_bytes.c
 */
#define ZSTD_STATIC_LINKING_ONLY        /* contexts in memory of ours */
#define ZSTD_DISABLE_DEPRECATE_WARNINGS /* the buffer-less way is the one that takes no more memory in pieces than at once */
#include <zstd.h>

#include "common/codec/codec_impl.h"
#include "common/codec/codec_sample.h"

#define PART_BYTES ((size_t)128 << 10) /* a block of the format, at most */

struct zstd {
	int level;
	ZSTD_CCtx *encoder; /* in `work`; NULL by role */
	ZSTD_DCtx *decoder;
	void *work[2];
	uint8_t sample[GP_SAMPLE_BYTES], packed[GP_SAMPLE_BYTES];
};

/* For every input of up to `most` bytes. The library has parameters of its own for inputs of up to 16, of up to 128 and of
 * up to 256 KiB, of which those for shorter ones may take more memory; within such a range it grows with the input. */
static size_t encoder_bytes(const double *value, uint64_t most)
{
	static const uint64_t ranges[] = {UINT64_C(16) << 10, UINT64_C(128) << 10, UINT64_C(256) << 10, UINT64_MAX};
	size_t bytes = 0;
	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
		const uint64_t longest = most < ranges[i] ? most : ranges[i];
		const size_t here = ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams((int)value[0], longest, 0));
		bytes = here > bytes ? here : bytes;
	}
	return bytes;
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	return sizeof(struct zstd) + (setup->encodes ? encoder_bytes(value, setup->n) + 64 : 0) +
	       (setup->decodes ? ZSTD_estimateDCtxSize() + 64 : 0);
}

static void close_zstd(void *state)
{
	struct zstd *z = state;
	if (!z)
		return;
	gp_free_aligned(z->work[0]);
	gp_free_aligned(z->work[1]);
	gp_free(z);
}

static enum gp_status make_contexts(struct zstd *z, const double *value, const struct gp_codec_setup *setup,
				    struct gp_err *err)
{
	const size_t bytes[2] = {encoder_bytes(value, setup->n), ZSTD_estimateDCtxSize()};
	for (int i = 0; i < 2; i++) {
		if (!(i ? setup->decodes : setup->encodes))
			continue;
		z->work[i] = gp_alloc_aligned(bytes[i]);
		if (!z->work[i])
			GP_FAIL(err, GP_NOMEM, "out of memory for zstd (%zu bytes)", bytes[i]);
	}
	z->encoder = z->work[0] ? ZSTD_initStaticCCtx(z->work[0], bytes[0]) : NULL;
	z->decoder = z->work[1] ? ZSTD_initStaticDCtx(z->work[1], bytes[1]) : NULL;
	gp_require(!z->work[0] == !z->encoder && !z->work[1] == !z->decoder);
	return GP_OK;
}

static enum gp_status open_zstd(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct zstd), err));
	struct zstd *z = p;
	z->level = (int)value[0];
	enum gp_status status = make_contexts(z, value, setup, err);
	if (status != GP_OK) {
		close_zstd(z);
		return status;
	}
	*state = z;
	return GP_OK;
}

/* A block, or what is left; the frame ends with the last. */
static size_t compress_part(struct zstd *z, struct gp_span in, size_t at, uint8_t *out, size_t room)
{
	const size_t left = in.len - at;
	if (left > PART_BYTES)
		return ZSTD_compressContinue(z->encoder, out, room, in.data + at, PART_BYTES);
	return ZSTD_compressEnd(z->encoder, out, room, in.data + at, left);
}

/* True when the result is short enough. The same bytes as from ZSTD_compressCCtx, whose blocks are as long, but in parts:
 * between them it may be stopped. */
static bool compress(struct zstd *z, const struct gp_codec_pass *pass, struct gp_span in, uint8_t *out, size_t *len)
{
	const size_t most = gp_sample_most(in.len);
	const ZSTD_parameters p = ZSTD_getParams(z->level, in.len, 0);
	size_t status = ZSTD_compressBegin_advanced(z->encoder, NULL, 0, p, in.len);
	*len = 0;
	for (size_t at = 0; at < in.len && !ZSTD_isError(status); at += PART_BYTES) {
		if (gp_codec_stopped(pass))
			return false;
		status = compress_part(z, in, at, out + *len, most - *len);
		*len += ZSTD_isError(status) ? 0 : status;
	}
	return !ZSTD_isError(status); /* only "destination too small" ends here, as there is memory for every length */
}

static bool sample_pays(struct zstd *z, const struct gp_codec_pass *pass, struct gp_span in)
{
	size_t ignored;
	gp_sample_take(in, z->sample);
	return compress(z, pass, (struct gp_span){z->sample, sizeof z->sample}, z->packed, &ignored);
}

static bool squeeze(void *state, const struct gp_codec_pass *pass, struct gp_span in, uint8_t *out, size_t *len)
{
	struct zstd *z = state;
	if (in.len >= GP_SAMPLE_FROM && !sample_pays(z, pass, in))
		return false;
	return in.len > 0 && compress(z, pass, in, out, len);
}

/* In one go: a third of a second for each 100 MB. */
static enum gp_status expand(void *state, const struct gp_codec_pass *pass, struct gp_span in, uint8_t *out, size_t len,
			     struct gp_err *err)
{
	(void)pass;
	struct zstd *z = state;
	const size_t got = ZSTD_decompressDCtx(z->decoder, out, len, in.data, in.len);
	if (ZSTD_isError(got))
		GP_FAIL(err, GP_PROTO, "zstd: %s", ZSTD_getErrorName(got));
	if (got != len)
		GP_FAIL(err, GP_PROTO, "zstd: %zu bytes instead of the %zu announced", got, len);
	return GP_OK;
}

/* Nanoseconds for each byte, of what compresses worst. */
static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	static const struct {
		int level, ns;
	} cost[] = {{2, 6}, {4, 15}, {7, 40}, {9, 60}, {12, 150}, {15, 300}, {19, 700}};
	int i = 0;
	while (cost[i].level < (int)value[0])
		i++; /* 19 is the highest that the table of keys lets pass */
	return gp_codec_work_times(setup->n, setup->encodes ? (uint64_t)cost[i].ns : 3);
}

const struct gp_codec_ops gp_codec_zstd = {
	.id = GP_CODEC_ID_zstd,
	.kind = GP_CODEC_BYTES,
	.info = {.name = "zstd",
		 .summary = "Zstandard, skipped for payloads that do not compress",
		 .lossless = true,
		 .examples = GP_EXAMPLES("zstd", "uniform:bits=4+zstd", "fp16+zstd:level=3")},
	.keys = 1,
	.key = {{.name = "level", .min = 1, .max = 19, .initial = 1, .help = "speed against size, as in zstd"}},
	.bytes = state_bytes,
	.work = work,
	.open = open_zstd,
	.close = close_zstd,
	.squeeze = squeeze,
	.expand = expand,
};

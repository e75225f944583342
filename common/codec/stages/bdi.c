/* SPDX-License-Identifier: Apache-2.0
 *
 * `bdi`: base-delta-immediate compression (Pekhimenko et al., PACT 2012) of the
 * elements' bit patterns, with a mask for zeros as their second base. Lossless.
 * A block is what a cache line holds: 16 elements. Layout: CODECS.md.
 * Test: tests/unit/test_codec_bdi.c; fuzz: fuzz_codec_bdi
 */
#include "common/codec/codec_impl.h"

enum {
	LANES = 16,
	RAW = 4,    /* bytes of a delta that needs no base */
	MASKED = 8, /* in a tag: a mask comes first */
	SLACK = 4,  /* short deltas are written four bytes at a time */
};

static uint64_t blocks_of(uint64_t n)
{
	return (n + LANES - 1) / LANES;
}

static uint64_t tag_bytes(uint64_t n)
{
	return (blocks_of(n) + 1) / 2;
}

/* A block takes most when none of its elements is zero and they are raw. */
static uint64_t bound(const double *value, uint64_t n)
{
	(void)value;
	return tag_bytes(n) + 4 * n + SLACK;
}

/* The state is the element count. */
static enum gp_status open_bdi(const double *value, const struct gp_codec_setup *setup, void **state,
			       struct gp_err *err)
{
	(void)value;
	void *s;
	GP_TRY(gp_alloc_array(&s, 1, sizeof setup->n, err));
	memcpy(s, &setup->n, sizeof setup->n);
	*state = s;
	return GP_OK;
}

static void resize(void *state, const double *value, uint64_t n)
{
	(void)value;
	memcpy(state, &n, sizeof n);
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* The elements of a block that are not zero. */
struct block {
	uint32_t mask, count, min, max;
	uint32_t bits[LANES];
};

static inline __attribute__((always_inline)) struct block read_lanes(const float *x, unsigned lanes)
{
	struct block b = {.min = UINT32_MAX};
	for (unsigned i = 0; i < lanes; i++) {
		uint32_t u;
		memcpy(&u, x + i, sizeof u);
		const bool kept = u != 0;
		b.bits[b.count] = u;
		b.count += kept;
		b.mask |= (uint32_t)kept << i;
		b.max = u > b.max ? u : b.max;
		b.min = u - 1 < b.min ? u - 1 : b.min; /* zero wraps round to the largest */
	}
	b.min++;
	return b;
}

/* A full block with a constant number of turns, which the compiler unrolls. */
static struct block read_block(const float *x, unsigned lanes)
{
	return lanes == LANES ? read_lanes(x, LANES) : read_lanes(x, lanes);
}

/* Bytes of a delta. Raw where a base would not pay. */
static uint32_t width_of(const struct block *b)
{
	const uint32_t range = b->max - b->min;
	const uint32_t width = range == 0 ? 0 : range < 1u << 8 ? 1 : range < 1u << 16 ? 2 : range < 1u << 24 ? 3 : RAW;
	return 4 + width * b->count < 4 * b->count ? width : RAW;
}

/* Returns where the block ends; up to SLACK bytes behind it are overwritten. */
static uint8_t *write_block(const struct block *b, uint32_t full, uint8_t *out, uint32_t *tag)
{
	const uint32_t width = width_of(b), base = width == RAW ? 0 : b->min;
	*tag = b->count == 0 ? 0 : (width + 1) | (b->mask == full ? 0 : MASKED);
	if (*tag & MASKED) {
		out[0] = (uint8_t)b->mask;
		out[1] = (uint8_t)(b->mask >> 8);
		out += 2;
	}
	if (b->count > 0 && width != RAW) {
		gp_put_u32(out, base);
		out += 4;
	}
	for (uint32_t i = 0; i < b->count; i++, out += width)
		gp_put_u32(out, b->bits[i] - base);
	return out;
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	(void)pass;
	const uint64_t n = *(const uint64_t *)state;
	uint8_t *at = out + tag_bytes(n);
	memset(out, 0, tag_bytes(n));
	for (uint64_t i = 0; i < n; i += LANES) {
		const unsigned lanes = n - i < LANES ? (unsigned)(n - i) : LANES;
		const struct block b = read_block(x + i, lanes);
		uint32_t tag;
		at = write_block(&b, (1u << lanes) - 1, at, &tag);
		out[i / LANES / 2] |= (uint8_t)(tag << i / LANES % 2 * 4);
	}
	*len = (size_t)(at - out);
	return true;
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

struct reader {
	const uint8_t *at, *end;
};

static bool has(const struct reader *r, uint32_t bytes)
{
	return (size_t)(r->end - r->at) >= bytes;
}

/* `width` bytes at `at`; nothing behind them is read. */
static uint32_t get_exactly(const uint8_t *at, uint32_t width)
{
	uint32_t v = 0;
	for (uint32_t i = 0; i < width; i++)
		v |= (uint32_t)at[i] << 8 * i;
	return v;
}

/* The elements that `mask` names: base and a delta each. The caller knows that the deltas are there; when SLACK bytes
 * follow them, too, four bytes at a time are read. */
static void read_deltas(struct reader *r, uint32_t mask, uint32_t base, uint32_t width, bool slack, float *x)
{
	const uint32_t low = width == RAW ? UINT32_MAX : (1u << 8 * width) - 1;
	for (; mask; mask &= mask - 1, r->at += width) {
		const uint32_t delta = slack ? gp_get_u32(r->at) & low : get_exactly(r->at, width);
		const uint32_t u = base + delta;
		memcpy(x + __builtin_ctz(mask), &u, sizeof u);
	}
}

/* A block that is not all zero. False when a tag, a mask or a length cannot be. */
static bool read_block_at(struct reader *r, uint32_t tag, unsigned lanes, float *x)
{
	const uint32_t width = (tag & (MASKED - 1)) - 1, full = (1u << lanes) - 1;
	uint32_t mask = full, base = 0;
	if (width > RAW)
		return false;
	if (tag & MASKED) {
		if (!has(r, 2))
			return false;
		mask = get_exactly(r->at, 2);
		r->at += 2;
		if (mask == 0 || mask >= full)
			return false;
	}
	const uint32_t deltas = width * (uint32_t)__builtin_popcount(mask);
	if (!has(r, deltas + (width == RAW ? 0 : 4)))
		return false;
	if (width != RAW) {
		base = gp_get_u32(r->at);
		r->at += 4;
	}
	read_deltas(r, mask, base, width, has(r, deltas + SLACK), x);
	return true;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	(void)pass;
	const uint64_t n = *(const uint64_t *)state;
	if (in.len < tag_bytes(n))
		GP_FAIL(err, GP_PROTO, "bdi payload of %zu bytes is shorter than its tags", in.len);
	struct reader r = {in.data + tag_bytes(n), in.data + in.len};
	for (uint64_t i = 0; i < n; i += LANES) {
		const uint32_t tag = in.data[i / LANES / 2] >> i / LANES % 2 * 4 & 15;
		const unsigned lanes = n - i < LANES ? (unsigned)(n - i) : LANES;
		memset(x + i, 0, lanes * sizeof *x);
		if (tag != 0 && !read_block_at(&r, tag, lanes, x + i))
			GP_FAIL(err, GP_PROTO, "bdi payload has a block that cannot be, at element %llu",
				(unsigned long long)i);
	}
	if (r.at != r.end || (blocks_of(n) % 2 && in.data[tag_bytes(n) - 1] >> 4))
		GP_FAIL(err, GP_PROTO, "bdi payload has %zu bytes behind its last block", (size_t)(r.end - r.at));
	return GP_OK;
}

static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	return gp_codec_work_times(setup->n, setup->encodes ? 8 : 6);
}

const struct gp_codec_ops gp_codec_bdi = {
	.id = GP_CODEC_ID_bdi,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "bdi",
		 .summary = "base-delta-immediate blocks with a mask for zeros",
		 .lossless = true,
		 .examples = GP_EXAMPLES("bdi", "bdi+zstd", "topk:ratio=0.3+bdi")},
	.resize = resize,
	.bound = bound,
	.open = open_bdi,
	.work = work,
	.close = gp_free,
	.encode = encode,
	.decode = decode,
};

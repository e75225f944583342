/* SPDX-License-Identifier: Apache-2.0
 *
 * Indices in payloads. See codec_indices.h. Fixed widths with an escape, and not
 * a code of varying width: at 10 % chosen it takes 5.0 bits per index against
 * Golomb's 4.8, and the codec's packing loops do it.
 * Test: tests/unit/test_codec_indices.c; fuzz: fuzz_codec_topk
 */
#include "common/codec/codec_indices.h"

#include <string.h>

enum {
	WIDTH_MIN = 2,
	WIDTH_MAX = 16,
	HISTOGRAM = 1024, /* distances that are counted; longer ones are few */
	BLOCK = 1024,     /* codes: a multiple of 8, so that a block ends with a byte */
};

/* The code that stands for so many elements of which none is chosen. */
static uint32_t escape_of(int width)
{
	return (1u << width) - 1;
}

/* --- bitmap ----------------------------------------------------------------------------------------------------- */

static void write_bitmap(const uint64_t *bits, uint64_t n, uint8_t *out)
{
	memcpy(out, bits, (n + 7) / 8);
}

static void load_bitmap(const uint8_t *in, uint64_t n, uint64_t *bits)
{
	bits[gp_indices_words(n) - 1] = 0;
	memcpy(bits, in, (n + 7) / 8);
}

static enum gp_status read_bitmap(struct gp_span in, uint64_t n, uint64_t chosen, uint64_t *bits, struct gp_err *err)
{
	uint64_t set = 0;
	if (in.len != (n + 7) / 8)
		GP_FAIL(err, GP_PROTO, "bitmap of %llu elements has %zu bytes", (unsigned long long)n, in.len);
	load_bitmap(in.data, n, bits);
	for (size_t i = 0; i < gp_indices_words(n); i++)
		set += (uint64_t)__builtin_popcountll(bits[i]);
	if (set != chosen)
		GP_FAIL(err, GP_PROTO, "bitmap names %llu elements instead of %llu", (unsigned long long)set,
			(unsigned long long)chosen);
	if (n % 64 && bits[n / 64] >> n % 64)
		GP_FAIL(err, GP_PROTO, "bitmap names elements past the last");
	return GP_OK;
}

/* --- distances -------------------------------------------------------------------------------------------------- */

/* How many elements that are not chosen lie before each chosen one, in order. */
struct walk {
	const uint64_t *bits;
	uint64_t word, base, next;
};

static struct walk walk_begin(const uint64_t *bits)
{
	return (struct walk){.bits = bits, .word = bits[0]};
}

/* Called at most as often as there are bits set. */
static inline uint64_t walk_on(struct walk *w)
{
	while (w->word == 0) {
		w->base += 64;
		w->word = w->bits[w->base / 64];
	}
	const uint64_t at = w->base + (uint64_t)__builtin_ctzll(w->word), skipped = at - w->next;
	w->word &= w->word - 1;
	w->next = at + 1;
	return skipped;
}

/* codes[w] gets how many codes of w bits the distances take. */
static void count_codes(const uint64_t *bits, uint64_t chosen, uint64_t codes[WIDTH_MAX + 1])
{
	uint32_t count[HISTOGRAM] = {0};
	struct walk walk = walk_begin(bits);
	for (int w = WIDTH_MIN; w <= WIDTH_MAX; w++)
		codes[w] = chosen;
	for (uint64_t i = 0; i < chosen; i++) {
		const uint64_t skipped = walk_on(&walk);
		if (skipped < HISTOGRAM)
			count[skipped]++;
		for (int w = WIDTH_MIN; skipped >= HISTOGRAM && w <= WIDTH_MAX; w++)
			codes[w] += skipped / escape_of(w);
	}
	for (int w = WIDTH_MIN; w <= WIDTH_MAX; w++)
		for (uint32_t s = escape_of(w); s < HISTOGRAM; s++)
			codes[w] += (uint64_t)count[s] * (s / escape_of(w));
}

/* The width that takes fewest bytes; 0: no less than a bitmap takes. */
static int best_width(const uint64_t *bits, uint64_t n, uint64_t chosen)
{
	uint64_t codes[WIDTH_MAX + 1], least = (n + 7) / 8;
	int best = 0;
	if (chosen >= n / 2) /* at least two bits each */
		return 0;
	count_codes(bits, chosen, codes);
	for (int w = WIDTH_MIN; w <= WIDTH_MAX; w++) {
		const uint64_t bytes = (codes[w] * (uint64_t)w + 7) / 8;
		if (bytes < least) {
			least = bytes;
			best = w;
		}
	}
	return best;
}

struct packer {
	const struct gp_codec_loops *loops;
	int width;
	size_t held;
	uint8_t *out;
	uint16_t code[BLOCK];
};

static void flush(struct packer *p)
{
	p->loops->pack(p->code, p->held, p->width, p->out);
	p->out += (p->held * (size_t)p->width + 7) / 8;
	p->held = 0;
}

static inline void put(struct packer *p, uint32_t code)
{
	p->code[p->held++] = (uint16_t)code;
	if (p->held == BLOCK)
		flush(p);
}

/* Returns where the bytes end. */
static uint8_t *write_distances(const struct gp_codec_loops *loops, const uint64_t *bits, uint64_t chosen, int width,
				uint8_t *out)
{
	const uint32_t escape = escape_of(width);
	struct packer p = {.loops = loops, .width = width, .out = out};
	struct walk walk = walk_begin(bits);
	for (uint64_t i = 0; i < chosen; i++) {
		uint64_t skipped = walk_on(&walk);
		for (; skipped >= escape; skipped -= escape)
			put(&p, escape);
		put(&p, (uint32_t)skipped);
	}
	flush(&p);
	return p.out;
}

/* Where reading has got to. */
struct place {
	uint64_t at, left; /* next element, chosen ones still to come */
};

/* Sets the bits that the codes lead to. *used: how many codes it took to find all elements that are left, or
 * `count`. False: a code leads past the last element. */
static bool follow(struct place *p, const uint16_t *code, size_t count, uint32_t escape, uint64_t n, uint64_t *bits,
		   size_t *used)
{
	size_t i = 0;
	for (; i < count && p->left > 0; i++) {
		const bool chosen = code[i] != escape;
		p->at += code[i];
		if (p->at >= n)
			return false;
		bits[p->at / 64] |= (uint64_t)chosen << p->at % 64;
		p->at += chosen;
		p->left -= chosen;
	}
	*used = i;
	return true;
}

/* Bytes in[0..) hold `codes` codes; what fills up the last byte is zero. */
static bool ends_with(struct gp_span in, uint64_t codes, int width)
{
	const uint64_t bits = codes * (uint64_t)width;
	return in.len == (bits + 7) / 8 && (bits % 8 == 0 || in.data[in.len - 1] >> bits % 8 == 0);
}

static enum gp_status read_distances(const struct gp_codec_loops *loops, struct gp_span in, int width, uint64_t n,
				     uint64_t chosen, uint64_t *bits, struct gp_err *err)
{
	const uint64_t most = (uint64_t)in.len * 8 / (uint64_t)width;
	struct place place = {.left = chosen};
	uint64_t done = 0;
	memset(bits, 0, gp_indices_words(n) * sizeof *bits);
	while (place.left > 0 && done < most) {
		uint16_t code[BLOCK];
		const size_t count = most - done < BLOCK ? most - done : BLOCK;
		size_t used;
		loops->unpack(in.data + done / 8 * (uint64_t)width, count, width, code);
		if (!follow(&place, code, count, escape_of(width), n, bits, &used))
			GP_FAIL(err, GP_PROTO, "indices go past the last element");
		done += used;
	}
	if (place.left > 0 || !ends_with(in, done, width))
		GP_FAIL(err, GP_PROTO, "%zu bytes of indices do not hold %llu", in.len, (unsigned long long)chosen);
	return GP_OK;
}

/* --- either ----------------------------------------------------------------------------------------------------- */

size_t gp_indices_write(const struct gp_codec_loops *loops, const uint64_t *bits, uint64_t n, uint64_t chosen,
			uint8_t *out)
{
	const int width = best_width(bits, n, chosen);
	out[0] = (uint8_t)width;
	if (width)
		return (size_t)(write_distances(loops, bits, chosen, width, out + 1) - out);
	write_bitmap(bits, n, out + 1);
	return gp_indices_bound(n);
}

enum gp_status gp_indices_read(const struct gp_codec_loops *loops, struct gp_span in, uint64_t n, uint64_t chosen,
			       uint64_t *bits, struct gp_err *err)
{
	if (in.len == 0)
		GP_FAIL(err, GP_PROTO, "indices are missing");
	const struct gp_span body = {in.data + 1, in.len - 1};
	const int width = in.data[0];
	if (width == 0)
		return read_bitmap(body, n, chosen, bits, err);
	if (width < WIDTH_MIN || width > WIDTH_MAX)
		GP_FAIL(err, GP_PROTO, "indices of %d bits are not possible", width);
	return read_distances(loops, body, width, n, chosen, bits, err);
}

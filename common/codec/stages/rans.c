/* SPDX-License-Identifier: Apache-2.0
 *
 * `rans`: entropy coding of quantizer codes: a symbol takes as many bits as its
 * frequency in its stretch of the payload asks for, whatever its neighbours are. A
 * stretch becomes a piece of the layout (CODECS.md). Quantizers say where their
 * packed codes lie (gp_codec_ops.codes); all other bytes are symbols of 8 bits. A
 * stretch that a sample shows not to pay is stored, and a payload of which nothing
 * pays goes on without the stage. With predict=map codes of feature maps are
 * foretold before that, with tables=channel each group of channels has stretches of
 * its own (rans_order.h).
 * Test: tests/unit/test_codec_rans.c, test_codec.c
 */
#include "common/codec/codec_impl.h"
#include "common/codec/codec_sample.h"
#include "common/codec/stages/rans_order.h"
#include "common/codec/stages/rans_table.h"
#include "kernels/loops/codec_loops.h"

enum {
	SEGMENT = 1 << 20, /* most symbols of a coded stretch; a multiple of the lanes */
	SHORTEST = 1024,   /* fewest: making a table takes as long as to decode some thousand */
	BLOCK = 4096,      /* symbols between decoding and packing: they stay in L1 */
	SAMPLE_FROM = 1 << 15,
	SAMPLED = 1024, /* symbols counted in each BLOCK of a stretch from SAMPLE_FROM symbols on */
	LIST_SHARE = 8, /* of the symbols of a stretch, 1 in so many may be listed */
	PIECE_HEAD = 4,
	CODED_HEAD = PIECE_HEAD + 8,
	STATE_BYTES = 4 * GP_RANS_LANES,
	WIDTH_BITS = 4, /* of a piece's head; the others are its count */
	SYMBOL_MIN = 5,
	SYMBOL_MAX = 8
};

#define STORED_MOST (UINT32_C(1) << 27)

/* The words as far as loops may read them: in the payload, or, when few are left, in a copy that zeros follow. */
struct words {
	const uint8_t *at, *end; /* what loops are told */
	const uint8_t *last;     /* where the words end */
	bool copied;
	uint8_t copy[4 * GP_RANS_GROUP_BYTES];
};

/* A coded stretch that is read, what it has to give, and how far it is. */
struct stretch {
	size_t count, at; /* symbols */
	int width;
	bool escapes;
	uint8_t escape;
	uint8_t *out, *symbols; /* of the next block: where its codes go, and its symbols before they are packed */
	uint32_t x[GP_RANS_LANES];
	struct words words;
	const uint8_t *listed, *listed_end;
	union gp_rans_lookup lookup;
	uint8_t block[BLOCK];
};

struct rans {
	const struct gp_rans_loops *loops;
	const struct gp_codec_loops *packing;
	size_t most;                                     /* symbols of a coded stretch */
	struct gp_codec_codes codes[GP_CODEC_MAX_CODES]; /* in the payload that comes */
	int count;
	uint8_t *symbols, *words, *listed; /* of a stretch; NULL on an end that only decodes */
	struct gp_rans_table table;
	uint32_t entry[GP_RANS_SYMBOLS];
	uint16_t unpacked[BLOCK];
	struct stretch stretch[2]; /* of the payload that comes */
	int waiting;               /* those of them that were read and are not yet decoded */
	bool predicts, by_channel; /* the keys */
	struct gp_rans_order order;
	int done;                        /* to its codes: GP_RANS_FORETOLD, GP_RANS_PLANES */
	const struct gp_rans_plan *plan; /* of its channels; with GP_RANS_PLANES */
};

enum { PREDICT, TABLES }; /* keys */

/* A body with predict=map or tables=channel begins with a byte: the width of the codes to which something was done, 0 where
 * there are none, and with tables=channel what was done to them. Behind a width follow the place at which they begin, and
 * the order of the planes, if there are any. */
enum { ORDER_NONE = 1, ORDER_HEAD = 1 + 4, ORDER_WIDTH = 15 };

/* --- open ------------------------------------------------------------------------------------------------------- */

static size_t most_symbols(const struct gp_codec_setup *setup)
{
	return setup->n * 8 / SYMBOL_MIN < SEGMENT ? (size_t)(setup->n * 8 / SYMBOL_MIN) : SEGMENT;
}

static size_t list_room(size_t symbols)
{
	return symbols / LIST_SHARE;
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	const size_t most = most_symbols(setup);
	return sizeof(struct rans) + (setup->encodes ? 3 * most + list_room(most) + 64 : 0) +
	       gp_rans_order_bytes(setup, value[PREDICT] > 0, value[TABLES] > 0);
}

static void close_rans(void *state)
{
	struct rans *r = state;
	if (r) {
		gp_free_aligned(r->symbols);
		gp_rans_order_close(&r->order);
	}
	gp_free(r);
}

static enum gp_status allocate(struct rans *r, const struct gp_codec_setup *setup, struct gp_err *err)
{
	GP_TRY(gp_rans_order_open(&r->order, setup, r->predicts, r->by_channel, err));
	if (!setup->encodes)
		return GP_OK;
	r->symbols = gp_alloc_aligned(3 * r->most + list_room(r->most) + 64);
	if (!r->symbols)
		GP_FAIL(err, GP_NOMEM, "out of memory for rans");
	r->words = r->symbols + r->most;
	r->listed = r->words + 2 * r->most;
	return GP_OK;
}

static enum gp_status open_rans(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct rans), err));
	struct rans *r = p;
	r->predicts = value[PREDICT] > 0;
	r->by_channel = value[TABLES] > 0;
	r->loops = gp_rans_loops_choose();
	r->packing = gp_codec_loops_choose();
	r->most = most_symbols(setup);
	const enum gp_status status = allocate(r, setup, err);
	if (status != GP_OK) {
		close_rans(r);
		return status;
	}
	*state = r;
	return GP_OK;
}

static void reshape(void *state, const double *value, const struct gp_shape *shape)
{
	struct rans *r = state;
	(void)value;
	gp_rans_order_reshape(&r->order, shape);
}

static void tell(void *state, const struct gp_codec_codes *codes, int count)
{
	struct rans *r = state;
	r->count = count;
	if (count)
		memcpy(r->codes, codes, (size_t)count * sizeof *codes);
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* What was written of `in`; bytes from `stored` on are to be stored, as far as nothing else has been written. */
struct writer {
	struct rans *r;
	const struct gp_codec_pass *pass;
	struct gp_span in;
	uint8_t *out;
	size_t len, most, stored;
	bool coded;
};

static bool has_room(const struct writer *w, size_t bytes)
{
	return bytes <= w->most - w->len;
}

static void put_head(struct writer *w, int width, size_t count)
{
	gp_put_u32(w->out + w->len, (uint32_t)width | (uint32_t)count << WIDTH_BITS);
	w->len += PIECE_HEAD;
}

/* Everything up to `end` that has not been written. False: no room. */
static bool store(struct writer *w, size_t end)
{
	while (w->stored < end) {
		const size_t bytes = end - w->stored < STORED_MOST ? end - w->stored : STORED_MOST;
		if (!has_room(w, PIECE_HEAD + bytes))
			return false;
		put_head(w, 0, bytes);
		memcpy(w->out + w->len, w->in.data + w->stored, bytes);
		w->len += bytes;
		w->stored += bytes;
	}
	return true;
}

/* `count` symbols, of which a multiple of 8 fill whole bytes. */
static const uint8_t *unpack(struct rans *r, const uint8_t *in, size_t count, int width)
{
	if (width == 8)
		return in;
	for (size_t at = 0; at < count; at += BLOCK, in += BLOCK / 8 * width) {
		const size_t n = count - at < BLOCK ? count - at : BLOCK;
		r->packing->unpack(in, n, width, r->unpacked);
		r->loops->narrow(r->unpacked, n, r->symbols + at);
	}
	return r->symbols;
}

/* What is counted of block b: not the same part of all, so that no period of the data hides the others. */
static const uint8_t *sample_of(const uint8_t *symbols, size_t b)
{
	return symbols + b * BLOCK + (b + b / 4 + b / 16) % (BLOCK / SAMPLED) * SAMPLED;
}

/* Asks memory for it, which no processor foresees. */
static void ask_for_sample(const uint8_t *symbols, size_t b)
{
	const uint8_t *at = sample_of(symbols, b);
	for (size_t i = 0; i < SAMPLED; i += 64)
		__builtin_prefetch(at + i);
}

/* Counts all symbols, or a part of each BLOCK. Returns how many. */
static size_t count_symbols(const uint8_t *symbols, size_t count, uint32_t *counts)
{
	struct gp_rans_counts parts = {0};
	size_t counted = 0;
	if (count < SAMPLE_FROM) {
		gp_rans_count(symbols, count, &parts);
		counted = count;
	}
	for (size_t b = 0; count >= SAMPLE_FROM && b < count / BLOCK; b++, counted += SAMPLED) {
		if (b + 2 < count / BLOCK)
			ask_for_sample(symbols, b + 2);
		gp_rans_count(sample_of(symbols, b), SAMPLED, &parts);
	}
	gp_rans_counts_add(&parts, counts);
	return counted;
}

/* Whether a stretch will pay, from the counts of `counted` of its symbols. */
static bool pays(const struct rans *r, const uint32_t *counts, size_t counted, size_t count, int width)
{
	const uint64_t bits = gp_rans_table_cost(&r->table, counts) / 256 * count / counted;
	const size_t bytes = count / 8 * (size_t)width;
	return CODED_HEAD + GP_RANS_SYMBOLS + STATE_BYTES + bits / 8 <= gp_sample_most(bytes);
}

/* The words and the list of a stretch lie at the end of their rooms. False: too many are listed. */
static bool encode_symbols(const struct rans *r, const uint8_t *symbols, size_t count, struct gp_rans_sink *sink)
{
	const size_t whole = count / GP_RANS_LANES;
	sink->words = r->words + 2 * r->most;
	sink->listed = r->listed + list_room(r->most);
	sink->listed_begin = sink->listed - list_room(count);
	for (int i = 0; i < GP_RANS_LANES; i++)
		sink->x[i] = GP_RANS_LOW;
	return gp_rans_encode_some(r->entry, symbols + whole * GP_RANS_LANES, count % GP_RANS_LANES, sink) &&
	       r->loops->encode(r->entry, symbols, whole, sink);
}

/* Writes a stretch that was encoded and ends before byte `end`, behind what is to be stored before it. */
static bool put_coded(struct writer *w, const struct gp_rans_sink *sink, size_t begin, size_t count, int width)
{
	const struct rans *r = w->r;
	uint8_t table[GP_RANS_TABLE_BYTES];
	const size_t bytes = gp_rans_table_write(&r->table, table);
	const size_t words = (size_t)(r->words + 2 * r->most - sink->words);
	const size_t listed = (size_t)(r->listed + list_room(r->most) - sink->listed);
	if (!store(w, begin) || !has_room(w, CODED_HEAD + bytes + STATE_BYTES + words + listed))
		return false;
	put_head(w, width, count);
	uint8_t *p = w->out + w->len;
	gp_put_u32(p, (uint32_t)(words / 2));
	gp_put_u32(p + 4, (uint32_t)listed);
	memcpy(p + 8, table, bytes);
	p += 8 + bytes;
	for (int i = 0; i < GP_RANS_LANES; i++, p += 4)
		gp_put_u32(p, sink->x[i]);
	memcpy(p, sink->words, words);
	memcpy(p + words, sink->listed, listed);
	w->len = (size_t)(p + words + listed - w->out);
	w->stored = begin + count / 8 * (size_t)width;
	w->coded = true;
	return true;
}

/* False: the payload becomes too long. A stretch that does not pay is left to `store`. */
static bool encode_stretch(struct writer *w, size_t begin, size_t count, int width)
{
	struct rans *r = w->r;
	uint32_t counts[GP_RANS_SYMBOLS];
	struct gp_rans_sink sink;
	const uint8_t *symbols = unpack(r, w->in.data + begin, count, width);
	const size_t counted = count_symbols(symbols, count, counts);
	gp_rans_table_fit(&r->table, counts, counted, width);
	if (!pays(r, counts, counted, count, width))
		return true;
	gp_rans_table_entries(&r->table, r->entry);
	if (!encode_symbols(r, symbols, count, &sink))
		return true;
	return put_coded(w, &sink, begin, count, width);
}

/* `count` symbols from byte `begin` on, in stretches of about equal length. */
static bool encode_range(struct writer *w, size_t begin, uint64_t count, int width)
{
	const uint64_t parts = count / (SEGMENT - GP_RANS_LANES) + 1, whole = count / 8 * 8;
	const uint64_t each = (whole / parts / GP_RANS_LANES + 1) * GP_RANS_LANES;
	for (uint64_t at = 0; at < whole; at += each) {
		const uint64_t n = whole - at < each ? whole - at : each;
		if (gp_codec_stopped(w->pass))
			return false;
		if (n >= SHORTEST && !encode_stretch(w, begin + at / 8 * (uint64_t)width, (size_t)n, width))
			return false;
	}
	return true;
}

/* As many codes as have room in a byte make a symbol. */
static bool encode_codes(struct writer *w, const struct gp_codec_codes *c)
{
	const int joined = SYMBOL_MAX / c->width;
	return encode_range(w, c->at, c->count / (uint64_t)joined, joined * c->width);
}

/* The same for planes. A group ends at a whole byte. */
static bool encode_groups(struct writer *w, const struct gp_codec_codes *c)
{
	const struct rans *r = w->r;
	const uint64_t joined = SYMBOL_MAX / (uint64_t)c->width, symbols = c->count / joined;
	const int width = (int)joined * c->width;
	uint64_t at = 0;
	for (size_t g = 0; g < r->plan->groups; g++) {
		const uint64_t end = r->plan->end[g] * gp_rans_order_pixels(&r->order) / joined;
		const uint64_t n = (g + 1 < r->plan->groups ? end / 8 * 8 : symbols) - at;
		if (!encode_range(w, c->at + at / 8 * (uint64_t)width, n, width))
			return false;
		at += n;
	}
	return true;
}

/* Whether the codes follow `at` and lie in the payload, as a quantizer should have said. */
static bool usable(const struct gp_codec_codes *c, size_t at, size_t len)
{
	return c->width >= 1 && c->width <= SYMBOL_MAX && c->at >= at && c->at <= len &&
	       c->count <= (len - c->at) * 8 / (uint64_t)c->width;
}

/* The codes of the whole tensor, if they are there. */
static const struct gp_codec_codes *codes_of_tensor(const struct rans *r, size_t len)
{
	const uint64_t wanted = gp_rans_order_codes(&r->order);
	for (int i = 0; i < r->count; i++)
		if (wanted > 0 && r->codes[i].count == wanted && usable(&r->codes[i], 0, len))
			return &r->codes[i];
	return NULL;
}

/* Writes what such a body begins with, for which there is room for a byte at least, and lets `in` have the codes as arranged
 * where that pays. Returns the bytes. */
static size_t arrange(struct rans *r, const struct gp_codec_pass *pass, const struct gp_codec_codes *c,
		      struct gp_span *in, uint8_t *out, size_t most)
{
	const size_t planes = r->order.by_channel ? sizeof(uint16_t) * r->order.channels : 0;
	out[0] = 0;
	if (!c || most < ORDER_HEAD + planes)
		return ORDER_NONE;
	r->done = gp_rans_order_arrange(&r->order, pass, c, *in, in, &r->plan);
	if (!r->done)
		return ORDER_NONE;
	out[0] = (uint8_t)(c->width | (r->by_channel ? r->done : 0));
	gp_put_u32(out + 1, (uint32_t)c->at);
	if (!(r->done & GP_RANS_PLANES))
		return ORDER_HEAD;
	for (size_t i = 0; i < r->order.channels; i++) {
		out[ORDER_HEAD + 2 * i] = (uint8_t)r->plan->order[i];
		out[ORDER_HEAD + 2 * i + 1] = (uint8_t)(r->plan->order[i] >> 8);
	}
	return ORDER_HEAD + planes;
}

static bool squeeze(void *state, const struct gp_codec_pass *pass, struct gp_span in, uint8_t *out, size_t *len)
{
	struct rans *r = state;
	const size_t most = gp_sample_most(in.len);
	const struct gp_codec_codes *arranged = codes_of_tensor(r, in.len);
	size_t head = 0, at = 0;
	r->done = 0;
	if (r->predicts || r->by_channel) {
		if (most < ORDER_NONE)
			return false;
		head = arrange(r, pass, arranged, &in, out, most);
	}
	struct writer w = {.r = r, .pass = pass, .in = in, .out = out + head, .most = most - head};
	for (int i = 0; i < r->count; i++) {
		const struct gp_codec_codes *c = &r->codes[i];
		if (!usable(c, at, in.len))
			continue;
		const bool planes = c == arranged && r->done & GP_RANS_PLANES;
		if (!encode_range(&w, at, c->at - at, SYMBOL_MAX) || !(planes ? encode_groups : encode_codes)(&w, c))
			return false;
		at = c->at + (c->count * (uint64_t)c->width + 7) / 8;
	}
	if (at < in.len && !encode_range(&w, at, in.len - at, SYMBOL_MAX))
		return false;
	if (!w.coded || !store(&w, in.len))
		return false;
	*len = head + w.len;
	return true;
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

static void copy_words(struct words *w)
{
	const size_t left = (size_t)(w->last - w->at);
	memset(w->copy, 0, sizeof w->copy);
	memcpy(w->copy, w->at, left);
	w->at = w->copy;
	w->last = w->copy + left;
	w->end = w->last + GP_RANS_GROUP_BYTES;
	w->copied = true;
}

/* n symbols, of which `done` groups have been decoded. False: the words ended before. */
static bool decode_symbols(const struct gp_rans_loops *loops, struct stretch *s, size_t n, size_t done)
{
	const size_t whole = n / GP_RANS_LANES;
	struct words *w = &s->words;
	done += loops->decode(&s->lookup, s->x, &w->at, w->end, whole - done, s->symbols + done * GP_RANS_LANES);
	if (!w->copied && w->end - w->at < GP_RANS_GROUP_BYTES) {
		copy_words(w);
		done += loops->decode(&s->lookup, s->x, &w->at, w->end, whole - done,
				      s->symbols + done * GP_RANS_LANES);
	}
	if (done < whole || w->end - w->at < GP_RANS_GROUP_BYTES)
		return false;
	loops->decode_some(&s->lookup, s->x, &w->at, n % GP_RANS_LANES, s->symbols + whole * GP_RANS_LANES);
	return !w->copied || w->at <= w->last;
}

/* Where the symbols of the next block go; returns how many they are. */
static size_t begin_block(struct stretch *s)
{
	s->symbols = s->width == 8 ? s->out : s->block;
	return s->count - s->at < BLOCK ? s->count - s->at : BLOCK;
}

/* The block behind its first `done` groups, which have been decoded. */
static enum gp_status end_block(struct rans *r, struct stretch *s, size_t n, size_t done, struct gp_err *err)
{
	if (!decode_symbols(r->loops, s, n, done))
		GP_FAIL(err, GP_PROTO, "rans: the words of a piece end before its %zu symbols", s->count);
	if (s->escapes && !r->loops->fill(s->symbols, n, s->escape, &s->listed, s->listed_end))
		GP_FAIL(err, GP_PROTO, "rans: a piece has more escapes than it lists symbols");
	if (s->width != 8) {
		r->loops->widen(s->symbols, n, r->unpacked);
		r->packing->pack(r->unpacked, n, s->width, s->out);
	}
	s->at += n;
	s->out += n / 8 * (size_t)s->width;
	return GP_OK;
}

/* Encoding began with the lowest states and left no word and no symbol over. */
static enum gp_status check_end(const struct stretch *s, struct gp_err *err)
{
	uint32_t other = 0;
	for (int i = 0; i < GP_RANS_LANES; i++)
		other |= s->x[i] ^ GP_RANS_LOW;
	if (other || s->words.at != s->words.last || s->listed != s->listed_end)
		GP_FAIL(err, GP_PROTO, "rans: a piece does not end where its symbols do");
	return GP_OK;
}

/* What is left of a stretch. */
static enum gp_status end_stretch(struct rans *r, struct stretch *s, struct gp_err *err)
{
	while (s->at < s->count) {
		const size_t n = begin_block(s);
		GP_TRY(end_block(r, s, n, 0, err));
	}
	return check_end(s, err);
}

static struct gp_rans_source source_of(struct stretch *s)
{
	return (struct gp_rans_source){&s->lookup, s->x, &s->words.at, s->words.end};
}

/* As far as both have whole blocks. */
static enum gp_status decode_both(struct rans *r, struct stretch *a, struct stretch *b, struct gp_err *err)
{
	while (a->count - a->at >= BLOCK && b->count - b->at >= BLOCK) {
		const struct gp_rans_source first = source_of(a), second = source_of(b);
		begin_block(a);
		begin_block(b);
		const size_t done =
			r->loops->decode_both(&first, &second, BLOCK / GP_RANS_LANES, a->symbols, b->symbols);
		GP_TRY(end_block(r, a, BLOCK, done, err));
		GP_TRY(end_block(r, b, BLOCK, done, err));
	}
	return GP_OK;
}

/* One that was read waits for a second one, where two at a time are faster; what waits is decoded in the end. */
static enum gp_status take_stretch(struct rans *r, struct gp_err *err)
{
	if (++r->waiting == 1 && r->loops->decode_both)
		return GP_OK;
	const int waiting = r->waiting;
	r->waiting = 0;
	if (waiting == 2)
		GP_TRY(decode_both(r, &r->stretch[0], &r->stretch[1], err));
	for (int i = 0; i < waiting; i++)
		GP_TRY(end_stretch(r, &r->stretch[i], err));
	return GP_OK;
}

static enum gp_status read_states(struct stretch *s, struct gp_span *in, struct gp_err *err)
{
	if (in->len < STATE_BYTES)
		GP_FAIL(err, GP_PROTO, "rans: the payload ends within its states");
	for (int i = 0; i < GP_RANS_LANES; i++) {
		s->x[i] = gp_get_u32(in->data + 4 * i);
		if (s->x[i] < GP_RANS_LOW || s->x[i] >= GP_RANS_HIGH)
			GP_FAIL(err, GP_PROTO, "rans: state %d is %u, which is out of range", i, s->x[i]);
	}
	*in = (struct gp_span){in->data + STATE_BYTES, in->len - STATE_BYTES};
	return GP_OK;
}

/* What lies behind the states. */
static enum gp_status take_lists(struct stretch *s, struct gp_span *in, uint64_t words, size_t listed,
				 struct gp_err *err)
{
	if (2 * words + listed > in->len)
		GP_FAIL(err, GP_PROTO, "rans: %llu words and %zu listed symbols are announced, and %zu bytes left",
			(unsigned long long)words, listed, in->len);
	s->words.at = in->data;
	s->words.last = s->words.end = s->listed = in->data + 2 * words;
	s->words.copied = false;
	s->listed_end = s->listed + listed;
	for (size_t i = 0; i < listed; i++)
		if (s->listed[i] >> s->width)
			GP_FAIL(err, GP_PROTO, "rans: %d is listed as a symbol of %d bits", s->listed[i], s->width);
	*in = (struct gp_span){s->listed_end, in->len - (size_t)(s->listed_end - in->data)};
	return GP_OK;
}

/* Reads a coded piece behind its head; what it says of symbols is used later. */
static enum gp_status read_stretch(struct rans *r, struct gp_span *in, struct stretch *s, struct gp_err *err)
{
	if (in->len < CODED_HEAD - PIECE_HEAD)
		GP_FAIL(err, GP_PROTO, "rans: the payload ends within the head of a piece");
	const uint32_t words = gp_get_u32(in->data), listed = gp_get_u32(in->data + 4);
	if (words > s->count || listed > s->count)
		GP_FAIL(err, GP_PROTO, "rans: %u words and %u listed symbols for %zu symbols", words, listed, s->count);
	*in = (struct gp_span){in->data + 8, in->len - 8};
	GP_TRY(gp_rans_table_read(&r->table, in, s->width, err));
	s->escapes = r->table.escapes;
	s->escape = r->table.escape;
	GP_TRY(read_states(s, in, err));
	GP_TRY(take_lists(s, in, words, listed, err));
	r->loops->prepare(r->table.freq, &s->lookup);
	return GP_OK;
}

/* One piece; *used: the bytes it gives, at most `room`. */
static enum gp_status expand_piece(struct rans *r, struct gp_span *in, uint8_t *out, size_t room, size_t *used,
				   struct gp_err *err)
{
	if (in->len < PIECE_HEAD)
		GP_FAIL(err, GP_PROTO, "rans: the payload ends %zu bytes too early", room);
	const uint32_t head = gp_get_u32(in->data), count = head >> WIDTH_BITS;
	const int width = (int)(head % (1u << WIDTH_BITS));
	if (width && (width < SYMBOL_MIN || width > SYMBOL_MAX || count < SHORTEST || count > SEGMENT || count % 8))
		GP_FAIL(err, GP_PROTO, "rans: a piece of %u symbols of %d bits", count, width);
	*used = width ? count / 8 * (size_t)width : count;
	*in = (struct gp_span){in->data + PIECE_HEAD, in->len - PIECE_HEAD};
	if (*used == 0 || *used > room)
		GP_FAIL(err, GP_PROTO, "rans: a piece of %zu bytes where %zu are to come", *used, room);
	if (width) {
		struct stretch *s = &r->stretch[r->waiting];
		s->count = count;
		s->at = 0;
		s->width = width;
		s->out = out;
		GP_TRY(read_stretch(r, in, s, err));
		return take_stretch(r, err);
	}
	if (count > in->len)
		GP_FAIL(err, GP_PROTO, "rans: %u bytes are stored, and %zu left", count, in->len);
	memcpy(out, in->data, count);
	*in = (struct gp_span){in->data + count, in->len - count};
	return GP_OK;
}

/* What such a body begins with is cut off `in`; *width 0: nothing was done to codes of the `len` bytes. */
static enum gp_status read_order(struct rans *r, struct gp_span *in, size_t len, int *width, size_t *at,
				 struct gp_err *err)
{
	const uint64_t codes = gp_rans_order_codes(&r->order);
	if (in->len < ORDER_NONE || (in->data[0] > 0 && in->len < ORDER_HEAD))
		GP_FAIL(err, GP_PROTO,
			"rans: the payload ends before it has said which codes are foretold or by channel");
	*width = in->data[0] & ORDER_WIDTH;
	r->done = in->data[0] & ~ORDER_WIDTH;
	if (*width > SYMBOL_MAX || (*width == 0) != (in->data[0] == 0))
		GP_FAIL(err, GP_PROTO, "rans: the first byte of a body, 0x%02x, has no width of codes", in->data[0]);
	*at = *width > 0 ? gp_get_u32(in->data + 1) : 0;
	const size_t head = *width > 0 ? ORDER_HEAD : ORDER_NONE;
	*in = (struct gp_span){in->data + head, in->len - head};
	if (*width == 0)
		return GP_OK;
	if (!r->by_channel && r->done == 0)
		r->done = GP_RANS_FORETOLD;
	else if (!r->by_channel || r->done == 0)
		GP_FAIL(err, GP_PROTO, "rans: bits 0x%02x of the first byte do not say what was done to the codes",
			r->done);
	const int can = (r->order.predicts ? GP_RANS_FORETOLD : 0) | (r->order.by_channel ? GP_RANS_PLANES : 0);
	if (r->done & ~can)
		GP_FAIL(err, GP_PROTO, "rans: 0x%02x was done to codes of a tensor for which 0x%02x is possible",
			r->done, can);
	if (*at > len || codes / 8 * (uint64_t)*width > len - *at)
		GP_FAIL(err, GP_PROTO, "rans: the codes that are foretold or by channel do not lie in the %zu bytes",
			len);
	return r->done & GP_RANS_PLANES ? gp_rans_order_read(&r->order, in, err) : GP_OK;
}

static enum gp_status expand_pieces(struct rans *r, const struct gp_codec_pass *pass, struct gp_span in, uint8_t *out,
				    size_t len, struct gp_err *err)
{
	size_t used;
	r->waiting = 0;
	for (size_t at = 0; at < len; at += used) {
		GP_TRY(gp_codec_check_stop(pass, err));
		GP_TRY(expand_piece(r, &in, out + at, len - at, &used, err));
	}
	if (in.len > 0)
		GP_FAIL(err, GP_PROTO, "rans: %zu bytes behind the last piece", in.len);
	return r->waiting ? end_stretch(r, &r->stretch[0], err) : GP_OK;
}

static enum gp_status expand(void *state, const struct gp_codec_pass *pass, struct gp_span in, uint8_t *out, size_t len,
			     struct gp_err *err)
{
	struct rans *r = state;
	int width = 0;
	size_t at = 0;
	if (r->predicts || r->by_channel)
		GP_TRY(read_order(r, &in, len, &width, &at, err));
	GP_TRY(expand_pieces(r, pass, in, out, len, err));
	return width > 0 ? gp_rans_order_restore(&r->order, pass, r->done, width, out + at, err) : GP_OK;
}

/* For each byte, which is up to 8/5 symbols, with the portable loops; a table for every SHORTEST symbols included. */
#define BYTE_NS 16

/* Up to 8 codes of a byte, each unpacked, foretold and packed again: pixels of few channels leave little to vectors. */
static uint64_t foretold_ns(const struct gp_codec_setup *setup)
{
	enum { WIDE = 16, WIDE_NS = 32, NARROW_NS = 128 };
	return setup->shape.ndim == 4 && setup->shape.dim[3] < WIDE ? NARROW_NS : WIDE_NS;
}

/* Up to 8 codes of a byte again, each to a plane of its own. */
#define PLANES_NS 64

/* What it takes to find a channel's place among the others, once for codes and once for residuals. */
#define PLAN_NS UINT64_C(8000)

static uint64_t plan_ns(const double *value, const struct gp_codec_setup *setup)
{
	const int64_t last = setup->shape.ndim > 0 ? setup->shape.dim[setup->shape.ndim - 1] : 0;
	if (value[TABLES] <= 0 || !setup->encodes || last < 0)
		return 0;
	const uint64_t channels = last < GP_RANS_CHANNELS_MOST ? (uint64_t)last : GP_RANS_CHANNELS_MOST;
	return channels * PLAN_NS * (value[PREDICT] > 0 ? 2 : 1);
}

static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	const uint64_t arranged = (value[PREDICT] > 0 ? foretold_ns(setup) : 0) + (value[TABLES] > 0 ? PLANES_NS : 0);
	return gp_codec_work_add(gp_codec_work_times(setup->n, BYTE_NS + arranged), plan_ns(value, setup));
}

const struct gp_codec_ops gp_codec_rans = {
	.id = GP_CODEC_ID_rans,
	.kind = GP_CODEC_BYTES,
	.info = {.name = "rans",
		 .summary = "codes in as many bits as their frequency asks for, skipped where that gains nothing",
		 .lossless = true,
		 .examples = GP_EXAMPLES(
			 "uniform:bits=8+rans", "uniform:bits=4+rans", "sortquant:bits=6,split=2+rans", "rans",
			 "ef+topk:ratio=0.5+uniform:bits=8+rans", "smaq+rans", "uniform:bits=3+rans",
			 "uniform:bits=5+rans", "uniform:bits=1+rans", "poweriter:rank=8,iters=3+uniform:bits=7+rans",
			 "uniform:bits=8+rans:predict=map", "block:bits=6,dim=channel,zero=asym+rans:predict=map",
			 "uniform:bits=3+rans:predict=map", "uniform:bits=6+rans:tables=channel",
			 "block:bits=4,size=128+rans:predict=map,tables=channel")},
	.keys = 2,
	.key = {[PREDICT] = {.name = "predict",
			     .max = 1,
			     .words = "none|map",
			     .later = true,
			     .help = "map: codes of a feature map are foretold from the pixels beside and above them"},
		[TABLES] = {.name = "tables",
			    .max = 1,
			    .words = "all|channel",
			    .later = true,
			    .help = "channel: groups of channels that are alike have frequencies of their own"}},
	.bytes = state_bytes,
	.work = work,
	.open = open_rans,
	.close = close_rans,
	.reshape = reshape,
	.tell = tell,
	.squeeze = squeeze,
	.expand = expand,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Entropy coding of codes: what it saves beside the entropy, when it is skipped,
 * that every instruction set writes and reads the same bytes, and payloads that
 * it cannot have written. Loops and tables by themselves: test_codec_rans_loops.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/base/isa.h"
#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"
#include "common/codec/stages/rans_table.h"

enum { MOST = 1200000 };
static float bell[MOST];
static const struct gp_codec_pass once; /* of a codec that nobody stops */

static int make_tensor(void **state)
{
	(void)state;
	for (size_t i = 0; i < MOST; i++)
		bell[i] = gp_rng_normal(5, 6, i);
	return 0;
}

/* --- the stage alone -------------------------------------------------------------------------------------------- */

struct alone {
	struct gp_codec_setup setup;
	void *state;
};

static void open_alone(struct alone *a, size_t most)
{
	struct gp_err err;
	a->setup = (struct gp_codec_setup){.n = most, .chunks = 1, .encodes = true, .decodes = true};
	static const double none[2]; /* of both keys */
	assert_int_equal(gp_codec_rans.open(none, &a->setup, &a->state, &err), GP_OK);
}

/* Bytes that `in` becomes, 0 where the stage would be skipped; they have to come back. */
static size_t squeezed(struct alone *a, struct gp_span in, const struct gp_codec_codes *codes, uint8_t *out)
{
	struct gp_err err;
	size_t len;
	gp_codec_rans.tell(a->state, codes, codes ? 1 : 0);
	if (!gp_codec_rans.squeeze(a->state, &once, in, out, &len))
		return 0;
	uint8_t *back = malloc(in.len);
	if (gp_codec_rans.expand(a->state, &once, (struct gp_span){out, len}, back, in.len, &err) != GP_OK)
		fail_msg("%s", err.text);
	assert_memory_equal(back, in.data, in.len);
	free(back);
	return len;
}

/* n packed codes around the middle of their range, behind `head` bytes; the deviation is 1/`sharp` of it. */
static void make_codes(uint8_t *out, size_t head, size_t n, int width, double sharp)
{
	memset(out, 0xa5, head);
	memset(out + head, 0, (n * (size_t)width + 7) / 8);
	const double middle = (double)(1 << width) / 2;
	for (size_t i = 0; i < n; i++) {
		const double v = middle + middle / sharp * (double)bell[(i * 7 + n) % MOST];
		const unsigned code = v < 0 ? 0 : v >= 2 * middle ? (1u << width) - 1 : (unsigned)v;
		for (int b = 0; b < width; b++) {
			const size_t bit = i * (size_t)width + (size_t)b;
			out[head + bit / 8] |= (uint8_t)((code >> b & 1) << bit % 8);
		}
	}
}

static void codes_of_every_width_and_number_come_back(void **state)
{
	(void)state;
	static const size_t numbers[] = {1, 63, 1023, 1024, 5003, 9000, 33000, 150001, 1100000};
	static const size_t heads[] = {0, 3, 5000};
	enum { ROOM = 1110000 };
	uint8_t *in = malloc(ROOM), *out = malloc(ROOM);
	struct alone a;
	open_alone(&a, ROOM);
	for (int width = 1; width <= 8; width++)
		for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
			for (int k = 0; k < 3; k++) {
				const struct gp_codec_codes codes = {heads[k], numbers[i], width};
				make_codes(in, heads[k], numbers[i], width, width > 2 ? 6 : 1);
				const size_t len = heads[k] + (numbers[i] * (size_t)width + 7) / 8;
				const size_t got = squeezed(&a, (struct gp_span){in, len}, &codes, out);
				assert_true(got < len);
				assert_true(got > 0 || numbers[i] < 60000 || width < 3);
			}
	gp_codec_rans.close(a.state);
	free(in);
	free(out);
}

static void what_is_told_of_codes_may_be_wrong(void **state)
{
	(void)state;
	static const struct gp_codec_codes wrong[] = {{0, 1 << 20, 8}, {90000, 1, 8},     {100, 5, 9},
						      {100, 5, 0},     {100, 5, -1},      {3, 70000, 7},
						      {1, 99999, 6},   {UINT64_MAX, 1, 4}};
	enum { BYTES = 80000 };
	static uint8_t in[BYTES], out[BYTES];
	struct alone a;
	open_alone(&a, BYTES);
	make_codes(in, 0, BYTES, 8, 10);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		assert_true(squeezed(&a, (struct gp_span){in, BYTES}, &wrong[i], out) > 0);
	gp_codec_rans.close(a.state);
}

/* Symbols that no sample has met, or that are too rare for a share, are listed; too many of them, and it is stored. */
static void rare_symbols_are_listed(void **state)
{
	(void)state;
	enum { BYTES = 500000 };
	static uint8_t in[BYTES], out[BYTES];
	struct alone a;
	open_alone(&a, BYTES);
	for (int each = 1; each < 3000; each = each * 3 + 1) {
		for (size_t i = 0; i < BYTES; i++)
			in[i] = i % (size_t)each ? 7 : (uint8_t)gp_rng_u32(4, 4, i);
		const size_t len = squeezed(&a, (struct gp_span){in, BYTES}, NULL, out);
		assert_true(each == 1 ? len == 0 : len > 0 && len < BYTES * 2 / (size_t)each + 30000);
	}
	/* None of the counted parts has any of these. */
	memset(in, 7, sizeof in);
	for (size_t i = 0; i + 4096 < BYTES; i += 4096)
		for (size_t k = 0; k < 4; k++)
			in[i + 1000 + 1024 * k] = (uint8_t)(i / 4096 + k);
	assert_true(squeezed(&a, (struct gp_span){in, BYTES}, NULL, out) > 0);
	gp_codec_rans.close(a.state);
}

static void every_instruction_set_writes_and_reads_the_same_bytes(void **state)
{
	(void)state;
	enum { BYTES = 300000 };
	static uint8_t in[BYTES], out[3][BYTES], back[BYTES];
	for (int width = 1; width <= 8; width++)
		for (int sharp = 1; sharp < 5000; sharp *= 4) {
			const size_t n = (size_t)(BYTES - 100) * 8 / (size_t)width - (size_t)sharp;
			const struct gp_codec_codes codes = {77, n, width};
			struct alone a[3];
			size_t len[3];
			make_codes(in, 77, n, width, sharp);
			for (int k = 0; k < 3; k++) {
				setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
				open_alone(&a[k], BYTES);
				len[k] = squeezed(&a[k], (struct gp_span){in, BYTES}, &codes, out[k]);
				assert_int_equal(len[k], len[0]);
				assert_memory_equal(out[k], out[0], len[0]);
			}
			for (int k = 0; k < 3 && len[0]; k++) {
				struct gp_err err;
				const struct gp_span coded = {out[0], len[0]};
				assert_int_equal(gp_codec_rans.expand(a[k].state, &once, coded, back, BYTES, &err),
						 GP_OK);
				assert_memory_equal(back, in, BYTES);
			}
			for (int k = 0; k < 3; k++)
				gp_codec_rans.close(a[k].state);
		}
	unsetenv("GP_SIMD");
}

/* --- in chains -------------------------------------------------------------------------------------------------- */

struct chain {
	struct gp_codec *c;
	uint8_t *out;
	size_t len;
	uint64_t skipped;
};

static void open_chain(struct chain *h, const char *text, size_t n)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)n}};
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_new(&spec, &shape, 1, &h->c, &err), GP_OK);
	h->out = malloc(gp_codec_bound(h->c));
}

static void close_chain(struct chain *h)
{
	gp_codec_free(h->c);
	free(h->out);
}

static void send(struct chain *h, const float *x, float *y)
{
	struct gp_err err = {0};
	struct gp_codec_stats stats;
	const uint64_t calls = gp_mem_calls();
	assert_int_equal(gp_codec_encode(h->c, x, 1, h->out, gp_codec_bound(h->c), &h->len, &err), GP_OK);
	assert_int_equal(gp_codec_decode(h->c, (struct gp_span){h->out, h->len}, y, &err), GP_OK);
	assert_int_equal(gp_mem_calls(), calls);
	gp_codec_get_stats(h->c, &stats);
	h->skipped = stats.skipped[0] + stats.skipped[1];
}

/* Bits for each of n codes at the end of a payload, if each took what its frequency says. */
static double entropy_of(const uint8_t *codes, size_t n, int width)
{
	size_t count[256] = {0};
	double bits = 0;
	for (size_t i = 0; i < n; i++) {
		const size_t bit = i * (size_t)width;
		const unsigned two = codes[bit / 8] | (bit % 8 + (size_t)width > 8 ? codes[bit / 8 + 1] << 8 : 0);
		count[two >> bit % 8 & ((1u << width) - 1)]++;
	}
	for (int s = 0; s < 256; s++)
		bits += count[s] ? (double)count[s] * log2((double)n / (double)count[s]) : 0;
	return bits / (double)n;
}

/* The payload of `text`+rans against the entropy of what `text` writes. */
static void compare_with_entropy(const char *text, int width, const float *x, size_t n, double most)
{
	char with[64];
	struct chain plain, coded;
	float *y = malloc(n * sizeof *y), *z = malloc(n * sizeof *z);
	snprintf(with, sizeof with, "%s+rans", text);
	open_chain(&plain, text, n);
	open_chain(&coded, with, n);
	send(&plain, x, y);
	send(&coded, x, z);
	assert_memory_equal(y, z, n * sizeof *y);
	const double entropy = entropy_of(plain.out + plain.len - (n * (size_t)width + 7) / 8, n, width);
	const double took = 8 * (double)coded.len / (double)n;
	print_message("%s: entropy %.4f bits, %.4f were taken, %+.2f %%\n", with, entropy, took,
		      100 * (took / entropy - 1));
	assert_int_equal(coded.skipped, 0);
	assert_true(took <= most * entropy);
	close_chain(&plain);
	close_chain(&coded);
	free(y);
	free(z);
}

static void at_most_two_percent_more_than_the_entropy(void **state)
{
	(void)state;
	char text[32];
	for (int bits = 2; bits <= 8; bits++) {
		snprintf(text, sizeof text, "uniform:bits=%d", bits);
		compare_with_entropy(text, bits, bell, 1 << 20, 1.02);
	}
	/* As gradients are: almost all close to zero, and a few far out. */
	float *far = malloc(MOST * sizeof *far);
	for (size_t i = 0; i < MOST; i++)
		far[i] = bell[i] * expf(1.2f * bell[(i + 77) % MOST]);
	compare_with_entropy("uniform:bits=8", 8, far, MOST, 1.02);
	/* A tenth of a bit each: what is beside the codes counts. */
	compare_with_entropy("uniform:bits=4", 4, far, MOST, 1.04);
	free(far);
}

static void constants_and_two_values_take_next_to_nothing(void **state)
{
	(void)state;
	float *x = malloc(MOST * sizeof *x), *y = malloc(MOST * sizeof *y);
	struct chain h;
	open_chain(&h, "uniform:bits=8+rans", MOST);
	for (size_t i = 0; i < MOST; i++)
		x[i] = 3;
	send(&h, x, y);
	assert_memory_equal(x, y, MOST * sizeof *x);
	assert_true(h.len < 3000 && h.skipped == 0);
	for (size_t i = 0; i < MOST; i++)
		x[i] = (float)(gp_rng_u32(1, 1, i) % 2);
	send(&h, x, y);
	assert_memory_equal(x, y, MOST * sizeof *x);
	assert_true(h.len < MOST / 8 + 3000 && h.skipped == 0);
	close_chain(&h);
	free(x);
	free(y);
}

static void what_does_not_compress_is_sent_as_it_is(void **state)
{
	(void)state;
	float *x = malloc(MOST * sizeof *x), *y = malloc(MOST * sizeof *y);
	struct chain h;
	for (size_t i = 0; i < MOST; i++) {
		const uint32_t u = gp_rng_u32(5, 5, i);
		memcpy(&x[i], &u, sizeof u);
	}
	open_chain(&h, "raw+rans", MOST);
	send(&h, x, y);
	assert_int_equal(h.len, 4 * MOST + 4);
	assert_int_equal(h.skipped, 1);
	assert_memory_equal(x, y, MOST * sizeof *x);
	close_chain(&h);
	open_chain(&h, "uniform:bits=8+rans", 100); /* too few */
	send(&h, bell, y);
	assert_int_equal(h.len, 4 + 4 + 8 + 100);
	close_chain(&h);
	free(x);
	free(y);
}

static void codes_are_found_behind_a_stage_that_was_skipped(void **state)
{
	(void)state;
	static const char *const texts[] = {"uniform:bits=6", "uniform:bits=5", "topk:ratio=0.5+uniform:bits=7",
					    "block:bits=3"};
	float *y = malloc(MOST * sizeof *y), *z = malloc(MOST * sizeof *z);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		char direct[64], behind[64];
		struct chain d, b;
		snprintf(direct, sizeof direct, "%s+rans", texts[i]);
		snprintf(behind, sizeof behind, "%s+bitshuffle+rans", texts[i]);
		open_chain(&d, direct, 1 << 18);
		open_chain(&b, behind, 1 << 18);
		send(&d, bell, y);
		send(&b, bell, z);
		assert_memory_equal(y, z, sizeof *y << 18);
		assert_int_equal(d.skipped, 0);
		assert_int_equal(b.skipped, 1); /* bitshuffle */
		assert_in_range(b.len, d.len, d.len + 8);
		close_chain(&b);
		close_chain(&d);
	}
	free(y);
	free(z);
}

/* A quantizer that gives up sends f32; transforms put bytes before the codes, or give two tensors. */
static void codes_are_found_wherever_they_lie(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		double most; /* of what the chain takes without */
	} cases[] = {{"ef+topk:ratio=0.5+uniform:bits=8", 0.9},
		     {"delta:samples=16+uniform:bits=4", 0.6},
		     {"sortquant:bits=6,split=2", 0.98},
		     {"sortquant:bits=6,prune=0.3", 0.98},
		     {"qsgd:bits=4", 0.9},
		     {"kmeans:bits=4", 0.98},
		     {"smaq:main=6,outlier=8", 0.98},
		     {"terngrad", 0.6},
		     {"alq:bits=4", 0.98},
		     {"block:bits=3", 0.8},
		     {"block:bits=6,zero=asym", 0.98},
		     {"mxfp8:format=e4m3", 0.85},
		     {"mxfp6:format=e3m2", 0.95},
		     {"mxfp4", 0.98},
		     {"nvfp4", 0.98},
		     {"bf16", 0.9},
		     {"fp8:format=e4m3", 0.9}};
	float *y = malloc(MOST * sizeof *y), *z = malloc(MOST * sizeof *z);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char with[64];
		struct chain plain, coded;
		snprintf(with, sizeof with, "%s+rans", cases[i].text);
		open_chain(&plain, cases[i].text, 1 << 19);
		open_chain(&coded, with, 1 << 19);
		send(&plain, bell, y);
		send(&coded, bell, z);
		print_message("%s: %.3f of the bytes\n", with, (double)coded.len / (double)plain.len);
		assert_memory_equal(y, z, sizeof *y << 19);
		assert_true((double)coded.len <= cases[i].most * (double)plain.len);
		close_chain(&plain);
		close_chain(&coded);
	}
	free(y);
	free(z);
}

/* --- payloads that the stage cannot have written ---------------------------------------------------------------- */

enum { HOSTILE = 6000, TABLE_AT = 12 };

/* A piece of 6000 bytes and all that is in it. */
static size_t good_piece(struct alone *a, uint8_t *in, uint8_t *out)
{
	open_alone(a, HOSTILE);
	make_codes(in, 0, HOSTILE, 8, 30);
	const size_t len = squeezed(a, (struct gp_span){in, HOSTILE}, NULL, out);
	assert_true(len > 0);
	return len;
}

static enum gp_status expanded(struct alone *a, const uint8_t *bytes, size_t len, size_t most)
{
	static uint8_t back[2 * HOSTILE];
	struct gp_err err;
	uint8_t *exact = malloc(len ? len : 1); /* so that a sanitizer sees what lies behind it */
	memcpy(exact, bytes, len);
	const enum gp_status status =
		gp_codec_rans.expand(a->state, &once, (struct gp_span){exact, len}, back, most, &err);
	free(exact);
	return status;
}

static void cut_and_prolonged_pieces_are_refused(void **state)
{
	(void)state;
	static uint8_t in[HOSTILE], out[2 * HOSTILE];
	struct alone a;
	const size_t len = good_piece(&a, in, out);
	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(expanded(&a, out, cut, HOSTILE), GP_PROTO);
	for (size_t more = 1; more < 10; more++)
		assert_int_equal(expanded(&a, out, len + more, HOSTILE), GP_PROTO);
	assert_int_equal(expanded(&a, out, len, HOSTILE - 1), GP_PROTO);
	assert_int_equal(expanded(&a, out, len, HOSTILE + 1), GP_PROTO);
	gp_codec_rans.close(a.state);
}

static void a_changed_byte_is_refused_or_gives_other_symbols(void **state)
{
	(void)state;
	static uint8_t in[HOSTILE], out[2 * HOSTILE];
	for (int k = 0; k < 3; k++) {
		struct alone a;
		setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
		const size_t len = good_piece(&a, in, out);
		for (size_t i = 0; i < len; i++) {
			const uint8_t kept = out[i];
			out[i] = (uint8_t)(kept ^ 1 << i % 8);
			expanded(&a, out, len, HOSTILE);
			out[i] = (uint8_t)~kept;
			expanded(&a, out, len, HOSTILE);
			out[i] = kept;
		}
		assert_int_equal(expanded(&a, out, len, HOSTILE), GP_OK);
		gp_codec_rans.close(a.state);
	}
	unsetenv("GP_SIMD");
}

/* Two pieces are decoded by turns: 8-bit symbols, and behind them codes of 5 bits, more of the one kind or of the other. */
static void one_of_two_pieces_may_be_wrong(void **state)
{
	(void)state;
	for (int k = 0; k < 3; k++)
		for (size_t head = 1100; head < 9500; head += 8300) {
			const struct gp_codec_codes codes = {head, 14000, 5};
			const size_t len = head + 14000 / 8 * 5;
			struct alone a;
			setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
			open_alone(&a, len);
			uint8_t *both = malloc(len), *coded = malloc(len), *back = malloc(len);
			make_codes(both, head, 14000, 5, 6);
			for (size_t i = 0; i < head; i++)
				both[i] = (uint8_t)(128 + 4 * bell[i]);
			const size_t got = squeezed(&a, (struct gp_span){both, len}, &codes, coded);
			assert_true(got > 0);
			for (size_t i = 0; i < got; i += 3) {
				struct gp_err err;
				uint8_t *exact = malloc(got);
				memcpy(exact, coded, got);
				exact[i] ^= (uint8_t)(1 << i % 8);
				gp_codec_rans.expand(a.state, &once, (struct gp_span){exact, got}, back, len, &err);
				free(exact);
			}
			for (size_t cut = 0; cut < got; cut += 7) {
				struct gp_err err;
				uint8_t *exact = malloc(cut + 1);
				memcpy(exact, coded, cut);
				const struct gp_span part = {exact, cut};
				assert_int_equal(gp_codec_rans.expand(a.state, &once, part, back, len, &err), GP_PROTO);
				free(exact);
			}
			assert_int_equal(squeezed(&a, (struct gp_span){both, len}, &codes, coded), got);
			gp_codec_rans.close(a.state);
			free(both);
			free(coded);
			free(back);
		}
	unsetenv("GP_SIMD");
}

static void lengths_and_states_out_of_range_are_refused(void **state)
{
	(void)state;
	static uint8_t in[HOSTILE], out[2 * HOSTILE], bad[2 * HOSTILE];
	struct alone a;
	struct gp_rans_table t;
	struct gp_err err;
	const size_t len = good_piece(&a, in, out);
	struct gp_span rest = {out + TABLE_AT, len - TABLE_AT};
	assert_int_equal(gp_rans_table_read(&t, &rest, 8, &err), GP_OK);
	const size_t states_at = len - rest.len;
	const struct {
		size_t at;
		uint32_t value;
	} cases[] = {{0, 8 | 1016u << 4},    /* fewer symbols than a coded piece has */
		     {0, 8 | 6001u << 4},    /* not a multiple of 8 */
		     {0, 8 | 2000000u << 4}, /* more than it has */
		     {0, 8},                 /* none */
		     {0, 0},
		     {0, 4 | 6000u << 4}, /* no width that is coded */
		     {0, 9 | 6000u << 4},
		     {0, 0 | 6001u << 4}, /* stored, and more than there is room for */
		     {4, UINT32_MAX},     /* words */
		     {4, 6001},
		     {8, UINT32_MAX}, /* listed */
		     {states_at, GP_RANS_LOW - 1},
		     {states_at + 4 * 63, GP_RANS_HIGH},
		     {states_at + 4 * 31, 0}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		memcpy(bad, out, len);
		gp_put_u32(bad + cases[i].at, cases[i].value);
		if (expanded(&a, bad, len, HOSTILE) != GP_PROTO)
			fail_msg("case %zu was not refused", i);
	}
	gp_codec_rans.close(a.state);
}

/* A listed symbol that has more bits than the codes would overflow into its neighbours. */
static void listed_symbols_have_the_width_of_the_codes(void **state)
{
	(void)state;
	enum { N = 16384, BYTES = N * 5 / 8 };
	static uint8_t in[BYTES], out[BYTES];
	struct alone a;
	const struct gp_codec_codes codes = {0, N, 5};
	open_alone(&a, BYTES);
	memset(in, 0, sizeof in);
	in[0] = 31;
	const size_t len = squeezed(&a, (struct gp_span){in, BYTES}, &codes, out);
	assert_true(len > 0);
	assert_int_equal(out[len - 1], 31);
	out[len - 1] = 32;
	assert_int_equal(expanded(&a, out, len, BYTES), GP_PROTO);
	gp_codec_rans.close(a.state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(codes_of_every_width_and_number_come_back),
		cmocka_unit_test(what_is_told_of_codes_may_be_wrong),
		cmocka_unit_test(rare_symbols_are_listed),
		cmocka_unit_test(every_instruction_set_writes_and_reads_the_same_bytes),
		cmocka_unit_test(at_most_two_percent_more_than_the_entropy),
		cmocka_unit_test(constants_and_two_values_take_next_to_nothing),
		cmocka_unit_test(what_does_not_compress_is_sent_as_it_is),
		cmocka_unit_test(codes_are_found_behind_a_stage_that_was_skipped),
		cmocka_unit_test(codes_are_found_wherever_they_lie),
		cmocka_unit_test(cut_and_prolonged_pieces_are_refused),
		cmocka_unit_test(a_changed_byte_is_refused_or_gives_other_symbols),
		cmocka_unit_test(one_of_two_pieces_may_be_wrong),
		cmocka_unit_test(lengths_and_states_out_of_range_are_refused),
		cmocka_unit_test(listed_symbols_have_the_width_of_the_codes),
	};
	return cmocka_run_group_tests(tests, make_tensor, NULL);
}

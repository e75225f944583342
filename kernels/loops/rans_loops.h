/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of entropy coding with 64 interleaved rANS states (Duda,
 * "Asymmetric numeral systems", 2013; Giesen, "Interleaved entropy coders",
 * 2014). Each instruction set reads and writes the same bytes. The format is
 * that of common/CODECS.md, section rans; its tables are made by
 * common/codec/stages/rans_table.c.
 *
 * A group is 64 symbols, one for each state: symbol i belongs to state i % 64.
 * Frequencies add up to 4096. A state is in [2^15, 2^31) between symbols:
 *   encode s:  while x >= freq << 19: write the word x % 2^16, x = x >> 16
 *              x = (x / freq << 12) + x % freq + start
 *   decode:    s has start <= x % 4096 < start + freq
 *              x = freq * (x >> 12) + x % 4096 - start
 *              while x < 2^15: x = x << 16 | the next word
 * where "while" happens once at most. Encoding runs backwards, over symbols and
 * over words, so that decoding reads both forwards.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_codec_rans_loops.c
 */
#ifndef GP_RANS_LOOPS_H
#define GP_RANS_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_RANS_LANES       64
#define GP_RANS_BITS        12
#define GP_RANS_TOTAL       (1 << GP_RANS_BITS)
#define GP_RANS_LOW         (UINT32_C(1) << 15) /* a state is this at least, and what encoding begins with */
#define GP_RANS_HIGH        (UINT32_C(1) << 31)
#define GP_RANS_GROUP_BYTES (2 * GP_RANS_LANES) /* most bytes of words that a group takes */

/* Below, `entry` and `freq` are 256 numbers, and `x` 64 states.
 *
 * A symbol for encoding: freq (1..4096), bit 13 where the symbol itself is to be listed, start << 20. */
#define GP_RANS_LISTED_AT 13
#define GP_RANS_LISTED    (1 << GP_RANS_LISTED_AT)
#define GP_RANS_START_AT  20

/* One of the 4096 places for decoding: symbol, (freq - 1) << 8, (place - start) << 20. */
#define GP_RANS_FREQ_AT 8
#define GP_RANS_REST_AT 20

/* Numbers of 24 bits, by their bytes, so that permutations in registers look them up (rans_loops_vbmi_avx512.c). */
enum { GP_RANS_PARTS = 3 };
struct gp_rans_parts {
	uint8_t part[GP_RANS_PARTS][256];
};

/* For finding a place's symbol among those that have a frequency, which are numbered in their order. Of 16 places each: a bit
 * for every place where a symbol's range begins, and the number of the last symbol that began before, which is -1 for none.
 * `symbol` and `of` are by number: the symbol itself, and its frequency and start. */
struct gp_rans_ranges {
	uint8_t begins[2][GP_RANS_TOTAL / 16], before[GP_RANS_TOTAL / 16];
	uint8_t symbol[256];
	struct gp_rans_parts of;
};

/* What `decode` looks symbols up in. Each instruction set has one of the two. */
union gp_rans_lookup {
	uint32_t place[GP_RANS_TOTAL];
	struct gp_rans_ranges ranges;
};

/* Both lists grow downwards; these are their lowest bytes so far. */
struct gp_rans_sink {
	uint32_t x[GP_RANS_LANES];
	uint8_t *words;  /* room below for 2 bytes for each symbol to come */
	uint8_t *listed; /* symbols whose entry has GP_RANS_LISTED */
	const uint8_t *listed_begin;
};

/* A piece that is decoded, as `decode` takes it. */
struct gp_rans_source {
	const union gp_rans_lookup *lookup;
	uint32_t *x;
	const uint8_t **words, *end;
};

struct gp_rans_loops {
	/* Encodes `groups` groups, last one first. False: there are more symbols to be listed than room for them. */
	bool (*encode)(const uint32_t *entry, const uint8_t *symbols, size_t groups, struct gp_rans_sink *sink);
	/* For the other two. The frequencies add up to 4096. */
	void (*prepare)(const uint16_t *freq, union gp_rans_lookup *lookup);
	/* Decodes up to `groups` groups, as long as GP_RANS_GROUP_BYTES are left before `end`; returns how many. Any words
	 * and states in range give symbols, and states in range. */
	size_t (*decode)(const union gp_rans_lookup *lookup, uint32_t *x, const uint8_t **words, const uint8_t *end,
			 size_t groups, uint8_t *symbols);
	/* (optional) The same for two pieces, a group of each by turns: a piece's groups wait for each other, and meanwhile those
	 * of the other are decoded. Ends before a group for which one of the two has too few words. */
	size_t (*decode_both)(const struct gp_rans_source *first, const struct gp_rans_source *second, size_t groups,
			      uint8_t *first_symbols, uint8_t *second_symbols);
	/* As `decode`, for n < 64 symbols of one group. GP_RANS_GROUP_BYTES are left. */
	void (*decode_some)(const union gp_rans_lookup *lookup, uint32_t *x, const uint8_t **words, size_t n,
			    uint8_t *symbols);
	/* Puts the next of the list *listed..end where `symbols` has `escape`. False: the list is too short. */
	bool (*fill)(uint8_t *symbols, size_t n, uint8_t escape, const uint8_t **listed, const uint8_t *end);
	/* n codes below 256. */
	void (*narrow)(const uint16_t *codes, size_t n, uint8_t *symbols);
	void (*widen)(const uint8_t *symbols, size_t n, uint16_t *codes);
};

extern const struct gp_rans_loops gp_rans_loops_portable, gp_rans_loops_avx2, gp_rans_loops_avx512;
/* NULL: this processor's AVX-512 has no VBMI, VBMI2 and BITALG. */
const struct gp_rans_loops *gp_rans_loops_vbmi(void);
const struct gp_rans_loops *gp_rans_loops_choose(void);

/* The same in plain C for n <= 64 symbols of one group, and for lookups by place. */
bool gp_rans_encode_some(const uint32_t *entry, const uint8_t *symbols, size_t n, struct gp_rans_sink *sink);
void gp_rans_prepare_places(const uint16_t *freq, union gp_rans_lookup *lookup);
void gp_rans_decode_places(const union gp_rans_lookup *lookup, uint32_t *x, const uint8_t **words, size_t n,
			   uint8_t *symbols);

/* How often each symbol comes: the sum of the parts, in which symbols are counted by turns, so that equal ones in a row do not
 * wait for each other. */
enum { GP_RANS_COUNTS = 4 };
struct gp_rans_counts {
	uint32_t part[GP_RANS_COUNTS][256];
};

void gp_rans_count(const uint8_t *symbols, size_t n, struct gp_rans_counts *counts);
void gp_rans_counts_add(const struct gp_rans_counts *counts, uint32_t *sum);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved rANS in plain C: the reference. See rans_loops.h.
 * Test: tests/unit/test_codec_rans_loops.c
 */
#include "kernels/loops/rans_loops.h"
#include "kernels/loops/rans_loops_avx512.h"
#include "kernels/loops/versions.h"

#include <string.h>

#include "common/base/status.h"

bool gp_rans_encode_some(const uint32_t *entry, const uint8_t *symbols, size_t n, struct gp_rans_sink *sink)
{
	for (size_t i = n; i-- > 0;) {
		const uint32_t e = entry[symbols[i]], freq = e & (GP_RANS_LISTED - 1), start = e >> GP_RANS_START_AT;
		uint32_t x = sink->x[i];
		const unsigned full = x >> (31 - GP_RANS_BITS) >= freq;
		sink->words[-1] = (uint8_t)(x >> 8);
		sink->words[-2] = (uint8_t)x;
		sink->words -= 2 * full;
		x >>= 16 * full;
		sink->x[i] = (x / freq << GP_RANS_BITS) + x % freq + start;
		if (!(e & GP_RANS_LISTED))
			continue;
		if (sink->listed == sink->listed_begin)
			return false;
		*--sink->listed = symbols[i];
	}
	return true;
}

void gp_rans_prepare_places(const uint16_t *freq, union gp_rans_lookup *lookup)
{
	uint32_t *at = lookup->place;
	for (uint32_t s = 0; s < 256; s++) {
		const uint32_t same = s | (freq[s] - 1u) << GP_RANS_FREQ_AT;
		for (uint32_t i = 0; i < freq[s]; i++)
			at[i] = same | i << GP_RANS_REST_AT;
		at += freq[s];
	}
	gp_require(at == lookup->place + GP_RANS_TOTAL);
}

void gp_rans_decode_places(const union gp_rans_lookup *lookup, uint32_t *x, const uint8_t **words, size_t n,
			   uint8_t *symbols)
{
	const uint8_t *p = *words;
	for (size_t i = 0; i < n; i++) {
		const uint32_t e = lookup->place[x[i] % GP_RANS_TOTAL],
			       freq = (e >> GP_RANS_FREQ_AT) % GP_RANS_TOTAL + 1;
		const uint32_t v = freq * (x[i] >> GP_RANS_BITS) + (e >> GP_RANS_REST_AT);
		const unsigned low = v < GP_RANS_LOW;
		const uint32_t word = (uint32_t)p[1] << 8 | p[0];
		x[i] = v << 16 * low | (word & (0 - low)); /* no branch: nobody could foretell it */
		p += 2 * low;
		symbols[i] = (uint8_t)e;
	}
	*words = p;
}

void gp_rans_count(const uint8_t *symbols, size_t n, struct gp_rans_counts *counts)
{
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		uint64_t eight;
		memcpy(&eight, symbols + i, sizeof eight);
		for (int k = 0; k < 8; k++)
			counts->part[k % GP_RANS_COUNTS][eight >> 8 * k & 255]++;
	}
	for (; i < n; i++)
		counts->part[0][symbols[i]]++;
}

void gp_rans_counts_add(const struct gp_rans_counts *counts, uint32_t *sum)
{
	memcpy(sum, counts->part[0], sizeof counts->part[0]);
	for (int k = 1; k < GP_RANS_COUNTS; k++)
		for (int s = 0; s < 256; s++)
			sum[s] += counts->part[k][s];
}

static bool encode(const uint32_t *entry, const uint8_t *symbols, size_t groups, struct gp_rans_sink *sink)
{
	for (size_t g = groups; g-- > 0;)
		if (!gp_rans_encode_some(entry, symbols + g * GP_RANS_LANES, GP_RANS_LANES, sink))
			return false;
	return true;
}

static size_t decode(const union gp_rans_lookup *lookup, uint32_t *x, const uint8_t **words, const uint8_t *end,
		     size_t groups, uint8_t *symbols)
{
	size_t g = 0;
	for (; g < groups && end - *words >= GP_RANS_GROUP_BYTES; g++)
		gp_rans_decode_places(lookup, x, words, GP_RANS_LANES, symbols + g * GP_RANS_LANES);
	return g;
}

static bool fill(uint8_t *symbols, size_t n, uint8_t escape, const uint8_t **listed, const uint8_t *end)
{
	for (size_t i = 0; i < n; i++) {
		if (symbols[i] != escape)
			continue;
		if (*listed == end)
			return false;
		symbols[i] = *(*listed)++;
	}
	return true;
}

static void narrow(const uint16_t *codes, size_t n, uint8_t *symbols)
{
	for (size_t i = 0; i < n; i++)
		symbols[i] = (uint8_t)codes[i];
}

static void widen(const uint8_t *symbols, size_t n, uint16_t *codes)
{
	for (size_t i = 0; i < n; i++)
		codes[i] = symbols[i];
}

const struct gp_rans_loops gp_rans_loops_portable = {.encode = encode,
						     .prepare = gp_rans_prepare_places,
						     .decode = decode,
						     .decode_some = gp_rans_decode_places,
						     .fill = fill,
						     .narrow = narrow,
						     .widen = widen};

#if defined(__x86_64__)
const struct gp_rans_loops *gp_rans_loops_vbmi(void)
{
	const bool has = gp_isa_best() == GP_ISA_AVX512 && __builtin_cpu_supports("avx512vbmi") &&
			 __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512bitalg");
	return has ? &gp_rans_loops_vbmi_avx512 : NULL;
}
#else
const struct gp_rans_loops *gp_rans_loops_vbmi(void)
{
	return NULL;
}
#endif

const struct gp_rans_loops *gp_rans_loops_choose(void)
{
	static const struct gp_rans_loops *const loops[] = GP_LOOP_VERSIONS(&gp_rans_loops);
	const enum gp_isa isa = gp_isa_wanted();
	const struct gp_rans_loops *vbmi = isa == GP_ISA_AVX512 ? gp_rans_loops_vbmi() : NULL;
	return vbmi ? vbmi : loops[isa];
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks and small codes, packed. See saved_bits.h. Test: tests/unit/test_saved_bits.c
 */
#include "kernels/cpu/math/saved_bits.h"

#include "kernels/loops/simd.h"

#define WORD GP_MASK_GRAIN

int gp_bits_for(int64_t count)
{
	int bits = 1;
	while (bits < 32 && (int64_t)1 << bits < count)
		bits *= 2;
	return bits;
}

/* --- masks -------------------------------------------------------------------------------------------------------- */

GP_INLINE uint32_t passes(float out, bool six)
{
	return six ? (uint32_t)(out > 0.0f) & (uint32_t)(out < 6.0f) : (uint32_t)(out > 0.0f);
}

GP_INLINE uint32_t mask_word(const float *out, int64_t n, bool six)
{
	uint32_t word = 0;
	for (int64_t i = 0; i < n; i++)
		word |= passes(out[i], six) << i;
	return word;
}

/* Whole words: a loop of fixed length becomes vectors. */
GP_INLINE uint32_t mask_whole_word(const float *out, bool six)
{
	uint32_t word = 0;
#pragma omp simd reduction(| : word)
	for (int i = 0; i < WORD; i++)
		word |= passes(out[i], six) << i;
	return word;
}

GP_INLINE void mask_range(const float *out, uint32_t *mask, int64_t n, bool six)
{
	int64_t at = 0;
	for (; at + WORD <= n; at += WORD)
		mask[at / WORD] = mask_whole_word(out + at, six);
	if (at < n)
		mask[at / WORD] = mask_word(out + at, n - at, six);
}

GP_INLINE void mask_all_body(const float *out, uint32_t *mask, int64_t n, bool six)
{
	if (six)
		mask_range(out, mask, n, true);
	else
		mask_range(out, mask, n, false);
}
GP_CPU_CLONES(mask_all, (const float *out, uint32_t *mask, int64_t n, bool six), (out, mask, n, six))

GP_INLINE void gradient_all_body(float *dx, const float *dout, const uint32_t *mask, int64_t n)
{
	int64_t at = 0;
	for (; at + WORD <= n; at += WORD) {
		const uint32_t word = mask[at / WORD];
#pragma omp simd
		for (int i = 0; i < WORD; i++)
			dx[at + i] = word >> i & 1 ? dout[at + i] : 0.0f;
	}
	for (; at < n; at++)
		dx[at] = mask[at / WORD] >> at % WORD & 1 ? dout[at] : 0.0f;
}
GP_CPU_CLONES(gradient_all, (float *dx, const float *dout, const uint32_t *mask, int64_t n), (dx, dout, mask, n))

void gp_mask_of(const float *out, uint32_t *mask, int64_t n, bool six)
{
	mask_all(out, mask, n, six);
}

void gp_mask_gradient(float *dx, const float *dout, const uint32_t *mask, int64_t n)
{
	gradient_all(dx, dout, mask, n);
}

/* --- codes -------------------------------------------------------------------------------------------------------- */

GP_INLINE void pack_words(const int32_t *codes, uint32_t *words, int64_t n, const int bits)
{
	const int each = 32 / bits;
	int64_t at = 0;
	for (; at + each <= n; at += each) {
		uint32_t word = 0;
		for (int i = 0; i < each; i++)
			word |= (uint32_t)codes[at + i] << i * bits;
		words[at / each] = word;
	}
	if (at == n)
		return;
	uint32_t word = 0;
	for (int64_t i = at; i < n; i++)
		word |= (uint32_t)codes[i] << (i - at) * bits;
	words[at / each] = word;
}

GP_INLINE void unpack_words(const uint32_t *words, int32_t *codes, int64_t n, const int bits)
{
	const int each = 32 / bits;
	const uint32_t lowest = bits == 32 ? UINT32_MAX : ((uint32_t)1 << bits % 32) - 1;
	for (int64_t at = 0; at < n; at += each) {
		const uint32_t word = words[at / each];
#pragma omp simd
		for (int i = 0; i < each; i++)
			codes[at + i] = (int32_t)(word >> i * bits & lowest);
	}
}

/* The number of bits is a constant of each loop. */
#define BY_BITS(function, to, from, n, bits)                                                                           \
	switch (bits) {                                                                                                \
	case 1:                                                                                                        \
		function(to, from, n, 1);                                                                              \
		break;                                                                                                 \
	case 2:                                                                                                        \
		function(to, from, n, 2);                                                                              \
		break;                                                                                                 \
	case 4:                                                                                                        \
		function(to, from, n, 4);                                                                              \
		break;                                                                                                 \
	case 8:                                                                                                        \
		function(to, from, n, 8);                                                                              \
		break;                                                                                                 \
	case 16:                                                                                                       \
		function(to, from, n, 16);                                                                             \
		break;                                                                                                 \
	default:                                                                                                       \
		function(to, from, n, 32);                                                                             \
		break;                                                                                                 \
	}

GP_INLINE void pack_all_body(const int32_t *codes, uint32_t *words, int64_t n, int bits){
	BY_BITS(pack_words, codes, words, n,
		bits)} GP_CPU_CLONES(pack_all, (const int32_t *codes, uint32_t *words, int64_t n, int bits),
				     (codes, words, n, bits))

	GP_INLINE void unpack_all_body(const uint32_t *words, int32_t *codes, int64_t n, int bits){
		BY_BITS(unpack_words, words, codes, n,
			bits)} GP_CPU_CLONES(unpack_all, (const uint32_t *words, int32_t *codes, int64_t n, int bits),
					     (words, codes, n, bits))

		void gp_bits_pack(const int32_t *codes, uint32_t *words, int64_t n, int bits)
{
	pack_all(codes, words, n, bits);
}

void gp_bits_unpack(const uint32_t *words, int32_t *codes, int64_t n, int bits)
{
	unpack_all(words, codes, n, bits);
}

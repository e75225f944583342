/* SPDX-License-Identifier: Apache-2.0
 *
 * A digest of results, to compare those of processors that no test has together: a test holds it to the number that every
 * one of them gives. What results are made from has to be the same everywhere, too, which excludes functions of the C
 * library's mathematics.
 */
#ifndef GP_TEST_SAME_BITS_H
#define GP_TEST_SAME_BITS_H

#include <stdint.h>
#include <string.h>

#define BITS_BEGIN 0xcbf29ce484222325u

/* FNV-1a over the words of `n` floats, going on from what came before. */
static inline uint64_t bits_of(uint64_t before, const float *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t word;
		memcpy(&word, v + i, sizeof word);
		before = (before ^ word) * 0x100000001b3u;
	}
	return before;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Integers as the wire has them: little-endian, field by field, at any address.
 * Pure functions.
 *
 * Threads: any (pure functions). Tests: tests/unit/test_frame.c,
 * tests/unit/test_protocol_examples.c
 */
#ifndef GP_LITTLE_ENDIAN_H
#define GP_LITTLE_ENDIAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The lowest `bytes` (1 to 8) bytes of v. */
static inline void gp_put_le(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint64_t gp_get_le(const uint8_t *p, int bytes)
{
	uint64_t v = 0;
	for (int i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static inline bool gp_all_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

#endif

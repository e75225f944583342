/* SPDX-License-Identifier: Apache-2.0
 *
 * Which elements of a tensor are chosen: one bit per element in memory, and the
 * cheaper of a bitmap and packed distances in a payload. Layout: CODECS.md,
 * "Indices".
 *
 * Threads: any (pure functions). Test: tests/unit/test_codec_indices.c
 */
#ifndef GP_CODEC_INDICES_H
#define GP_CODEC_INDICES_H

#include "common/base/mem.h"
#include "kernels/loops/codec_loops.h"

static inline size_t gp_indices_words(uint64_t n)
{
	return (n + 63) / 64;
}

/* Most bytes of a payload: those of a bitmap. */
static inline uint64_t gp_indices_bound(uint64_t n)
{
	return 1 + (n + 7) / 8;
}

/* Writes where the `chosen` >= 1 bits are set among n; element i is bit i % 64 of word i / 64. Returns the bytes, at most
 * gp_indices_bound(n). */
size_t gp_indices_write(const struct gp_codec_loops *loops, const uint64_t *bits, uint64_t n, uint64_t chosen,
			uint8_t *out);
/* Total: GP_PROTO for anything but `chosen` different elements of n. Writes gp_indices_words(n) words. */
enum gp_status gp_indices_read(const struct gp_codec_loops *loops, struct gp_span in, uint64_t n, uint64_t chosen,
			       uint64_t *bits, struct gp_err *err);

#endif

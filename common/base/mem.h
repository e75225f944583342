/* SPDX-License-Identifier: Apache-2.0
 *
 * Heap memory: one place that every allocation of ours goes through, so that
 * it can be counted (a steady training step allocates nothing), failed on
 * purpose (GP_FAULT=alloc:N in test builds) and checked for overflow.
 *
 * Threads: any. Test: tests/unit/test_mem.c
 */
#ifndef GP_MEM_H
#define GP_MEM_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* Everywhere numbers are used as they lie in memory: in tensors, payloads, codecs' state, files. What the wire and
 * files have is little-endian, and a length of 64 bits must fit a size_t. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "only for little-endian processors");
static_assert(sizeof(size_t) == 8, "only for 64-bit processors");

/* Borrowed bytes. */
struct gp_span {
	const uint8_t *data;
	size_t len;
};

/* All return NULL when memory is out. Zeroed. `count * size` is checked for overflow. */
void *gp_calloc(size_t count, size_t size);
/* Like realloc; new bytes are not zeroed. On NULL the old block lives on. */
void *gp_realloc(void *p, size_t count, size_t size);
char *gp_strdup(const char *s);
/* 64-byte aligned, not zeroed; free with gp_free_aligned. */
void *gp_alloc_aligned(size_t bytes);
void gp_free(void *p);
void gp_free_aligned(void *p);

/* The same with an error filled in: `out` is untouched on failure. */
enum gp_status gp_alloc_array(void **out, size_t count, size_t size, struct gp_err *err);

/* Calls so far into the functions above, for tests and --json. */
uint64_t gp_mem_calls(void);

/* Peak resident memory of this process in bytes (VmHWM), 0 if unknown. */
uint64_t gp_mem_peak_rss_bytes(void);

/* a * b and a + b, false (and untouched out) on overflow. */
static inline bool gp_mul_ok(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}
static inline bool gp_add_ok(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}

#endif

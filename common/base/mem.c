/* SPDX-License-Identifier: Apache-2.0
 *
 * Counted, fault-injectable heap memory. Test: tests/unit/test_mem.c
 */
#include "common/base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/fault.h"

static atomic_uint_fast64_t mem_calls;

static bool alloc_allowed(void)
{
	atomic_fetch_add_explicit(&mem_calls, 1, memory_order_relaxed);
	return !gp_fault_hit(GP_FAULT_ALLOC);
}

void *gp_calloc(size_t count, size_t size)
{
	uint64_t bytes;
	if (!gp_mul_ok(count, size, &bytes) || !alloc_allowed())
		return NULL;
	return calloc(count ? count : 1, size ? size : 1);
}

void *gp_realloc(void *p, size_t count, size_t size)
{
	uint64_t bytes;
	if (!gp_mul_ok(count, size, &bytes) || !alloc_allowed())
		return NULL;
	return realloc(p, bytes ? bytes : 1);
}

char *gp_strdup(const char *s)
{
	size_t n = strlen(s) + 1;
	char *copy = gp_calloc(n, 1);
	if (copy)
		memcpy(copy, s, n);
	return copy;
}

void *gp_alloc_aligned(size_t bytes)
{
	if (bytes > SIZE_MAX - 64 || !alloc_allowed())
		return NULL;
	size_t rounded = (bytes + 63) & ~(size_t)63;
	return aligned_alloc(64, rounded ? rounded : 64);
}

void gp_free(void *p)
{
	free(p);
}

void gp_free_aligned(void *p)
{
	free(p);
}

enum gp_status gp_alloc_array(void **out, size_t count, size_t size, struct gp_err *err)
{
	void *p = gp_calloc(count, size);
	if (!p)
		GP_FAIL(err, GP_NOMEM, "out of memory (%zu x %zu bytes)", count, size);
	*out = p;
	return GP_OK;
}

uint64_t gp_mem_calls(void)
{
	return atomic_load_explicit(&mem_calls, memory_order_relaxed);
}

uint64_t gp_mem_peak_rss_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	if (!f)
		return 0;
	char line[256];
	unsigned long long kib = 0;
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
			break;
	fclose(f);
	return (uint64_t)kib * 1024;
}

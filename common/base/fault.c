/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault switches of test builds; empty in release. See fault.h.
 */
#include "common/base/fault.h"

#ifdef GP_FAULTS

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint_fast64_t countdown[GP_FAULT_KINDS]; /* 0 = off, 1 = next event fails */
static pthread_once_t read_once = PTHREAD_ONCE_INIT;

/* Reads KIND:N and steps over it. */
static bool parse_one(const char **at, uint64_t nth[GP_FAULT_KINDS])
{
	static const char *const names[GP_FAULT_KINDS] = {
		[GP_FAULT_ALLOC] = "alloc:",     [GP_FAULT_WRITE] = "write:",         [GP_FAULT_FSYNC] = "fsync:",
		[GP_FAULT_SEND] = "send:",       [GP_FAULT_DEVICE] = "device:",       [GP_FAULT_READ] = "read:",
		[GP_FAULT_PRODUCT] = "product:", [GP_FAULT_PRECISION] = "precision:",
	};
	for (int k = 0; k < GP_FAULT_KINDS; k++) {
		const size_t len = strlen(names[k]);
		const char *digits = *at + len;
		if (strncmp(*at, names[k], len) != 0 || strspn(digits, "0123456789") == 0)
			continue;
		nth[k] = strtoull(digits, NULL, 10);
		*at = digits + strspn(digits, "0123456789");
		return nth[k] > 0;
	}
	return false;
}

bool gp_fault_parse(const char *spec, uint64_t nth[GP_FAULT_KINDS])
{
	memset(nth, 0, GP_FAULT_KINDS * sizeof *nth);
	while (parse_one(&spec, nth)) {
		if (*spec == '\0')
			return true;
		if (*spec++ != ',')
			break;
	}
	return false;
}

static void read_environment(void)
{
	uint64_t nth[GP_FAULT_KINDS];
	const char *spec = getenv("GP_FAULT");
	if (!spec || !gp_fault_parse(spec, nth))
		return; /* environment.h tells */
	for (int k = 0; k < GP_FAULT_KINDS; k++)
		atomic_store(&countdown[k], nth[k]);
}

bool gp_fault_hit(enum gp_fault_kind kind)
{
	pthread_once(&read_once, read_environment);
	uint_fast64_t left = atomic_load(&countdown[kind]);
	while (left > 0)
		if (atomic_compare_exchange_weak(&countdown[kind], &left, left - 1))
			return left == 1;
	return false;
}

uint64_t gp_fault_number(enum gp_fault_kind kind)
{
	pthread_once(&read_once, read_environment);
	return atomic_load(&countdown[kind]);
}

void gp_fault_arm(enum gp_fault_kind kind, uint64_t nth)
{
	pthread_once(&read_once, read_environment);
	atomic_store(&countdown[kind], nth);
}

#else
typedef int gp_fault_unused; /* ISO C wants a declaration */
#endif

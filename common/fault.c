/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault switches of test builds; empty in release. See fault.h.
 */
#include "common/fault.h"

#ifdef GP_FAULTS

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint_fast64_t countdown[GP_FAULT_KINDS]; /* 0 = off, 1 = next event fails */
static pthread_once_t read_once = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
	static const char *const names[GP_FAULT_KINDS] = {
	        [GP_FAULT_ALLOC] = "alloc:",
	        [GP_FAULT_WRITE] = "write:",
	        [GP_FAULT_FSYNC] = "fsync:",
	        [GP_FAULT_SEND] = "send:",
	        [GP_FAULT_DEVICE] = "device:",
	};
	const char *spec = getenv("GP_FAULT");
	if (!spec)
		return;
	for (int k = 0; k < GP_FAULT_KINDS; k++) {
		const char *at = strstr(spec, names[k]);
		if (at)
			atomic_store(&countdown[k], strtoull(at + strlen(names[k]), NULL, 10));
	}
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

void gp_fault_arm(enum gp_fault_kind kind, uint64_t nth)
{
	pthread_once(&read_once, read_environment);
	atomic_store(&countdown[kind], nth);
}

#else
typedef int gp_fault_unused; /* ISO C wants a declaration */
#endif

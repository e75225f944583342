/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a program's tests once with each instruction set that has own kernels and that this processor has: AVX2 and AVX-512,
 * or NEON. Where it has none they run once, to skip themselves. Only for processors' kernels: devices are test_device.h's.
 */
#ifndef GP_TEST_EACH_ISA_H
#define GP_TEST_EACH_ISA_H

#include <stdio.h>

#include "common/base/isa.h"

/* `run` returns how many tests failed; so does this, over all of them. */
static inline int each_isa(int (*run)(void))
{
	const enum gp_isa best = gp_isa_best(), first = best < GP_ISA_AVX2 ? best : GP_ISA_AVX2;
	int failed = 0;
	for (enum gp_isa isa = first; isa <= best; isa++) {
		gp_isa_limit(isa);
		fprintf(stderr, "with %s:\n", gp_isa_name(isa));
		failed += run();
	}
	gp_isa_limit(GP_ISA_AVX512);
	return failed;
}

#endif

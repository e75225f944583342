/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a program of tests on a GPU, an emulated one or a card. Builds
 * without a CUDA device have no_gpu.c in place of such a program
 * (tests/CMakeLists.txt), so that it need not ask.
 */
#ifndef GP_TEST_ON_GPU_H
#define GP_TEST_ON_GPU_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/runtime/rt.h"
#include "tests/unit/ok.h"

enum { SKIPPED = 77 }; /* as ctest takes it */

/* A card, or an emulated device that sums, refuses and shares memory as one (GP_EMULATE_CARD, emulate.h). */
static inline bool is_like_a_card(void)
{
	const char *card = getenv("GP_EMULATE_CARD");
	return !gp_rt_is_emulated() || (card && strcmp(card, "1") == 0);
}

static inline int skip_all(const char *why)
{
	printf("%s: nothing to test\n", why);
	return SKIPPED;
}

/* What main returns. A macro as cmocka's own, which counts the table. */
#define run_on_gpu(tests, setup, teardown)                                                                             \
	(gp_rt_count() > 0 ? cmocka_run_group_tests(tests, setup, teardown) : skip_all("no GPU here"))

#endif

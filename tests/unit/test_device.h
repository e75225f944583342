/* SPDX-License-Identifier: Apache-2.0
 *
 * Which device a test of plans runs on: the CPU, unless the environment's
 * GP_TEST_DEVICE names another ("cuda", "cuda-emulated"). So the same program
 * tests every device against the same references.
 */
#ifndef GP_TEST_DEVICE_H
#define GP_TEST_DEVICE_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline const char *test_device(void)
{
	const char *name = getenv("GP_TEST_DEVICE");
	return name ? name : "cpu";
}

/* For what depends on it. */
static inline bool on_cpu(void)
{
	return strcmp(test_device(), "cpu") == 0;
}

/* So many threads are tried. */
static inline int test_threads(void)
{
	return on_cpu() ? 2 : 1;
}

#endif

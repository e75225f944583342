/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests leave out under a sanitizer, which makes them 5 to 20 times
 * slower, on an emulated processor, which does so, too, and in the other order of an emulated GPU's threads
 * (GP_EMULATE_ORDER). Both look for faults in the code that runs; that all
 * combinations give equal results is for the plain runs of the dev preset to
 * show, which leave out nothing. The release preset's leave out nothing of
 * what a GPU computes, and a part of what the same loops on the processor do
 * in dev: left_to_dev().
 *
 * Threads: any.
 */
#ifndef SANITIZED_H
#define SANITIZED_H

#include <stdbool.h>
#include <stdlib.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ || defined GP_TESTS_EMULATED
enum { IS_SANITIZED = true };
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { IS_SANITIZED = true };
#else
enum { IS_SANITIZED = false };
#endif
#else
enum { IS_SANITIZED = false };
#endif

static inline bool repeats_another_run(void)
{
	return IS_SANITIZED || getenv("GP_EMULATE_ORDER");
}

/* For nested loops over i, j and k, given their sum: such a run takes one combination in `every`, the others are left to
 * the plain runs. It still takes each pair of i with j, of i with k and of j with k, where the
 * third loop has at least `every` turns. */
static inline bool left_to_plain_runs(int every, int sum)
{
	return repeats_another_run() && sum % every != 0;
}

/* The same for tests of the processor alone, which the release preset thins out, too. */
static inline bool left_to_dev(int every, int sum)
{
#ifdef NDEBUG
	return sum % every != 0;
#else
	return left_to_plain_runs(every, sum);
#endif
}

#endif

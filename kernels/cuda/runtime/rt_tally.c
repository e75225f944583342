/* SPDX-License-Identifier: Apache-2.0
 *
 * One listener for what is queued. See rt_tally.h.
 */
#include "kernels/cuda/runtime/rt_tally.h"

#include <stddef.h>

static gp_rt_tally_fn listener;
static void *argument;

void gp_rt_tally(gp_rt_tally_fn fn, void *arg)
{
	argument = arg;
	listener = fn;
}

bool gp_rt_tallied(void)
{
	return listener != NULL;
}

void gp_rt_tally_note(const char *what, uint64_t blocks)
{
	if (listener)
		listener(argument, what, blocks);
}

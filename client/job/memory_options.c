/* SPDX-License-Identifier: Apache-2.0
 *
 * The flags that say what a training keeps in memory, and in what form. See
 * job.h. Tests: tests/e2e/bad_input.sh, tests/e2e/recompute.sh
 */
#include "client/job/job.h"

#include <stddef.h>

#include "client/job/compress.h"

#define FIELD(name) offsetof(struct gp_job_settings, name)

static const struct gp_opt memory_rows[] = {
	{.name = "recompute",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(recompute),
	 .group = "Memory",
	 .help = "keep only what crosses from one block of the model to the next, and compute each block a second time "
		 "before its backward pass: less memory, about a third more computing, the same result to the last "
		 "bit"},
	{.name = "compress",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(compress),
	 .value = "WHAT=SPEC,...",
	 .help = "pass parts of the training through a codec: " GP_COMPRESS_CODECS
		 ". Kept encoded: maps = what forward keeps for backward; state = what the optimizer remembers. "
		 "Replaced by what decoding gives: weights = parameters as they are read, while updates change exact "
		 "ones (weights-master=off: there are no exact ones); weight-grads = the gradients of a step; "
		 "grad-maps = the gradients between layers"},
};
const struct gp_opt_rows gp_job_memory_rows = {memory_rows, sizeof memory_rows / sizeof memory_rows[0]};

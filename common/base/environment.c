/* SPDX-License-Identifier: Apache-2.0
 *
 * Environment variables that are no use as they are set. See environment.h.
 */
#include "common/base/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/fault.h"
#include "common/base/isa.h"

static void check_simd(const char *program)
{
	const char *wanted = getenv("GP_SIMD");
	enum gp_isa isa;
	if (wanted && !gp_isa_named(wanted, &isa))
		fprintf(stderr,
			"%s: GP_SIMD=%.40s is none of " GP_ISA_NAMES " that this processor has; its best is used\n",
			program, wanted);
}

static void check_engine(const char *program)
{
	const char *wanted = getenv("GP_ENGINE");
	if (wanted && strcmp(wanted, "own") != 0 && strcmp(wanted, "plain") != 0)
		fprintf(stderr, "%s: GP_ENGINE=%.40s is none of own, plain; it is ignored\n", program, wanted);
}

static void check_fault(const char *program)
{
	const char *wanted = getenv("GP_FAULT");
	uint64_t nth[GP_FAULT_KINDS];
	if (wanted && !gp_fault_parse(wanted, nth))
		fprintf(stderr, "%s: GP_FAULT=%.40s makes nothing fail: %s\n", program, wanted,
			gp_faults_built_in ? "write KIND:N,... with kinds alloc, write, fsync, send, device, read, "
					     "precision and N from "
					     "1"
					   : "this build has no fault switches");
}

void gp_environment_check(const char *program)
{
	check_simd(program);
	check_engine(program);
	check_fault(program);
}

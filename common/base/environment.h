/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment variables that both programs know: GP_SIMD
 * (common/base/isa.h), GP_ENGINE (kernels/README.md) and GP_FAULT
 * (common/base/fault.h). A slip in one of them would otherwise measure or test
 * something else than was asked for, and nobody would know.
 *
 * Threads: the main thread, before others are started. Test: tests/e2e/bad_input.sh
 */
#ifndef GP_ENVIRONMENT_H
#define GP_ENVIRONMENT_H

/* One line on stderr for each that is set to what this build or processor does not know. */
void gp_environment_check(const char *program);

#endif

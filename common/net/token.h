/* SPDX-License-Identifier: Apache-2.0
 *
 * Random bytes that a peer cannot guess: resume tokens and names of runs.
 *
 * Threads: any. Test: tests/unit/test_token.c
 */
#ifndef GP_TOKEN_H
#define GP_TOKEN_H

#include <stddef.h>

#include "common/base/status.h"

#define GP_TOKEN_BYTES  32
#define GP_RUN_ID_BYTES 16

/* From the kernel's generator. GP_IO when there is none. */
enum gp_status gp_random_bytes(void *out, size_t n, struct gp_err *err);
/* Compares in a time that does not depend on where they differ. */
bool gp_secret_equal(const void *a, const void *b, size_t n);

#endif

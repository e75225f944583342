/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax of long rows of scores, such as those of a vocabulary: vectorised, in
 * single precision, with sums of blocks in double; the same bits with every
 * instruction set. Short rows: cpu_loss.c. No plans, no threads.
 *
 * Only for kernels/cpu. Threads: any; arrays are the caller's. Test: tests/unit/test_softmax_rows.c
 */
#ifndef GP_CPU_SOFTMAX_ROWS_H
#define GP_CPU_SOFTMAX_ROWS_H

#include <stdbool.h>
#include <stdint.h>

/* The largest of n numbers, without the NaNs; minus infinity where there is none. */
float gp_softmax_largest(const float *x, int64_t n);
/* The sum of e^(x - most), for `most` at least the largest of them; `out`, which may be NULL, gets each. NaN gives NaN. */
double gp_softmax_exps(float *out, const float *x, int64_t n, float most);
/* x = x factor */
void gp_softmax_scale(float *x, int64_t n, float factor);

#endif

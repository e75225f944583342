/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters of winograd.h with AVX2. Test: tests/unit/test_winograd.c
 */
#include "kernels/cpu/math/winograd_filter_body.h"

const struct gp_wino_filter_kernels gp_wino_filters_avx2 = GP_WINO_FILTER_KERNELS;

/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters of winograd.h with NEON of ARM64. Test: tests/unit/test_winograd.c
 */
#include "kernels/cpu/math/winograd_filter_body.h"

const struct gp_wino_filter_kernels gp_wino_filters_neon = GP_WINO_FILTER_KERNELS;

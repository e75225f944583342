/* SPDX-License-Identifier: Apache-2.0
 *
 * depthwise.h with NEON of ARM64. Test: tests/unit/test_depthwise.c
 */
#include "kernels/cpu/math/depthwise_body.h"

const struct gp_depthwise_kernels gp_depthwise_neon = GP_DEPTHWISE_KERNELS;

/* SPDX-License-Identifier: Apache-2.0
 *
 * bn_loops.h with NEON of ARM64. Test: tests/unit/test_bn_rows.c
 */
#include "kernels/cpu/math/bn_rows_body.h"

GP_BN_PER_ACT(none_neon, CPU_ACT_NONE)
GP_BN_PER_ACT(relu_neon, CPU_ACT_RELU)
GP_BN_PER_ACT(relu6_neon, CPU_ACT_RELU6)

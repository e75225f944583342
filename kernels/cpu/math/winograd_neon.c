/* SPDX-License-Identifier: Apache-2.0
 *
 * Images of winograd.h with NEON of ARM64. Test: tests/unit/test_winograd.c
 */
#include "kernels/cpu/math/winograd_body.h"

const struct gp_wino_image_kernels gp_wino_images_neon = GP_WINO_IMAGE_KERNELS;

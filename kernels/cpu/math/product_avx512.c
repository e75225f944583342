/* SPDX-License-Identifier: Apache-2.0
 *
 * product.h with AVX-512. Test: tests/unit/test_product.c
 */
#include "kernels/cpu/math/product.h"

#include "kernels/cpu/math/product_body.h"

void gp_product_avx512(const struct gp_product *p)
{
	multiply(p);
}

void gp_product_pack_turned_avx512(float *packed, const float *b, int64_t stride, int64_t columns, int64_t inner)
{
	pack_turned(packed, b, stride, columns, inner);
}

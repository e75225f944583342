/* SPDX-License-Identifier: Apache-2.0
 *
 * product.h in plain C, and the choice between the versions. Test: tests/unit/test_product.c
 */
#define GP_LANES_PORTABLE

#include "kernels/cpu/math/product.h"

#include "common/base/isa.h"

#include "kernels/cpu/math/product_body.h"

void gp_product_portable(const struct gp_product *p)
{
	multiply(p);
}

void gp_product_pack_turned_portable(float *packed, const float *b, int64_t stride, int64_t columns, int64_t inner)
{
	pack_turned(packed, b, stride, columns, inner);
}

void gp_product(const struct gp_product *p)
{
	static gp_product_fn *const versions[] = GP_CPU_VERSIONS(gp_product);
	versions[gp_isa()](p);
}

void gp_product_pack_turned(float *packed, const float *b, int64_t stride, int64_t columns, int64_t inner)
{
	static gp_product_pack_fn *const versions[] = GP_CPU_VERSIONS(gp_product_pack_turned);
	versions[gp_isa()](packed, b, stride, columns, inner);
}

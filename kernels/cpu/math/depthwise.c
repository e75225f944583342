/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the version of depthwise.h's rows. Test: tests/unit/test_depthwise.c
 */
#include "kernels/cpu/math/depthwise.h"

#include "kernels/cpu/math/depthwise_kernels.h"
#include "kernels/cpu/math/vec_versions.h"

#define LANES 16 /* of the widest vectors: a cache line */

static const struct gp_depthwise_kernels *kernels(void)
{
	static const struct gp_depthwise_kernels *const versions[] = GP_VEC_VERSIONS(gp_depthwise);
	return versions[gp_isa()];
}

bool gp_depthwise_supported(void)
{
	return gp_vec_supported();
}

int64_t gp_depthwise_lanes(int64_t channels)
{
	return (channels + LANES - 1) / LANES * LANES;
}

void gp_depthwise_forward_row(const struct gp_dw *g, float *y, struct gp_dw_rows x, const float *weight, int64_t oy)
{
	kernels()->forward_row(g, y, x, weight, oy);
}

void gp_depthwise_finished_row(const struct gp_dw *g, float *y, struct gp_dw_rows x, const float *weight,
			       const struct gp_finish *finish, int64_t oy)
{
	kernels()->finished_row(g, y, x, weight, finish, oy);
}

void gp_depthwise_data_row(const struct gp_dw *g, float *dx, struct gp_dw_rows dy, const float *weight, int64_t iy)
{
	kernels()->data_row(g, dx, dy, weight, iy);
}

void gp_depthwise_weights_row(const struct gp_dw *g, float *grad, struct gp_dw_rows x, const float *dy, int64_t oy)
{
	kernels()->weights_row(g, grad, x, dy, oy);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses kinds of tiles and the version of winograd.h's transforms. Test: tests/unit/test_winograd.c
 */
#include "kernels/cpu/math/winograd.h"

#include "kernels/cpu/math/vec_versions.h"
#include "kernels/cpu/math/winograd_kernels.h"
#include "kernels/cpu/math/winograd_sizes.h"

bool gp_wino_supported(void)
{
	return gp_vec_supported();
}

enum gp_wino_kind gp_wino_choose(const struct gp_wino *g, int64_t stride, int64_t pad_bottom, int64_t pad_right)
{
	bool padded_by_one = g->pad_top == 1 && g->pad_left == 1 && pad_bottom == 1 && pad_right == 1;
	if (stride == 2)
		return g->out_h <= 2 && g->out_w <= 2 ? GP_WINO_HALF_2 : GP_WINO_HALF_4;
	if (padded_by_one && g->h == g->w && g->h <= 2)
		return g->h == 1 ? GP_WINO_1 : GP_WINO_2;
	return GP_WINO_4;
}

enum gp_wino_kind gp_wino_backwards(enum gp_wino_kind kind)
{
	if (kind == GP_WINO_HALF_2)
		return GP_WINO_TWICE_2;
	return kind == GP_WINO_HALF_4 ? GP_WINO_TWICE_4 : kind;
}

int64_t gp_wino_points(enum gp_wino_kind kind)
{
	return (int64_t)side_of((int)kind) * side_of((int)kind);
}

int64_t gp_wino_tiles(const struct gp_wino *g)
{
	return g->images * tile_rows(g) * tile_cols(g);
}

/* --- versions --------------------------------------------------------------------------------------------------- */

static const struct gp_wino_image_kernels *images(void)
{
	static const struct gp_wino_image_kernels *const versions[] = GP_VEC_VERSIONS(gp_wino_images);
	return versions[gp_isa()];
}

static const struct gp_wino_filter_kernels *filters(void)
{
	static const struct gp_wino_filter_kernels *const versions[] = GP_VEC_VERSIONS(gp_wino_filters);
	return versions[gp_isa()];
}

void gp_wino_read(const struct gp_wino *g, struct gp_wino_matrices v, const float *x, const float *zeros, int64_t from,
		  int64_t to)
{
	images()->read(g, v, x, zeros, from, to);
}

void gp_wino_read_gradient(const struct gp_wino *g, struct gp_wino_matrices d, const float *dy, const float *zeros,
			   int64_t from, int64_t to)
{
	images()->read_gradient(g, d, dy, zeros, from, to);
}

void gp_wino_write(const struct gp_wino *g, float *y, struct gp_wino_matrices m, int64_t channel, int64_t width,
		   int64_t from, int64_t to)
{
	images()->write(g, y, m, channel, width, from, to);
}

void gp_wino_write_finished(const struct gp_wino *g, float *y, struct gp_wino_matrices m, int64_t channel,
			    int64_t width, int64_t from, int64_t to, const struct gp_finish *finish)
{
	images()->write_finished(g, y, m, channel, width, from, to, finish);
}

void gp_wino_filters(const struct gp_wino *g, struct gp_wino_matrices u, const struct gp_wino_filter *f, int64_t from,
		     int64_t width)
{
	filters()->filters(g, u, f, from, width);
}

void gp_wino_gradient(const struct gp_wino *g, float *grad, struct gp_wino_matrices du, const struct gp_wino_part *part,
		      bool fresh)
{
	filters()->gradient(g, grad, du, part, fresh);
}

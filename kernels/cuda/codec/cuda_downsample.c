/* SPDX-License-Identifier: Apache-2.0
 *
 * `downsample` on a GPU: common/codec/stages/downsample.c's means, bit for bit.
 * Test: tests/unit/test_cuda_codec_poweriter.c
 */
#include "common/codec/stages/downsample.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_windows.h"

struct downsample {
	struct gp_codec_site *site;
	struct gpk_windows windows;
};

static enum gp_status open_downsample(const double *value, const struct gp_codec_setup *setup, void **state,
				      struct gp_err *err)
{
	struct gp_windows w;
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct downsample), err));
	const bool fits = gp_downsample_windows(&setup->shape, (int64_t)value[0], &w);
	gp_require(fits); /* `shapes` has seen it */
	*(struct downsample *)p = (struct downsample){.site = setup->site, .windows = {w.n, w.h, w.w, w.c, w.fh, w.fw}};
	*state = p;
	return GP_OK;
}

static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	const struct downsample *d = state;
	const uint32_t *const bad = d->site->told;
	(void)pass;
	(void)side;
	*side_len = 0;
	gp_rt_fill(d->site->stream, d->site->note, 0, sizeof *bad);
	gpk_windows_mean(d->site->stream, &d->windows, x, tensor[0], d->site->note);
	gp_cuda_codec_tell(d->site, sizeof *bad);
	return gp_cuda_codec_wait(d->site) && !*bad;
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	const struct downsample *d = state;
	(void)pass;
	(void)side; /* none: the driver has checked it against the bound */
	(void)err;
	gpk_windows_spread(d->site->stream, &d->windows, tensor[0], x);
	return GP_OK;
}

const struct gp_codec_ops gp_cuda_codec_downsample = {
	.open = open_downsample,
	.close = gp_free,
	.split = split,
	.join = join,
};

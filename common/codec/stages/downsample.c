/* SPDX-License-Identifier: Apache-2.0
 *
 * `downsample`: each window of factor * factor pixels becomes its mean, which
 * the other end puts in the place of each. That is a projection: what a
 * gradient loses on the way back is what the activation's loss made
 * irrelevant. Layout: CODECS.md. Test: tests/unit/test_codec_downsample.c;
 * fuzz: fuzz_codec_downsample
 */
#include "common/codec/stages/downsample.h"

#include "kernels/loops/codec_loops.h"

struct downsample {
	struct gp_windows windows;
	uint64_t n; /* windows and channels */
	const struct gp_codec_loops *loops;
};

bool gp_downsample_windows(const struct gp_shape *shape, int64_t factor, struct gp_windows *out)
{
	const int64_t *d = shape->dim;
	if (shape->ndim == 4)
		*out = (struct gp_windows){.n = d[0], .h = d[1], .w = d[2], .c = d[3], .fh = factor, .fw = factor};
	else if (shape->ndim == 3)
		*out = (struct gp_windows){.n = d[0], .h = d[1], .w = 1, .c = d[2], .fh = factor, .fw = 1};
	return shape->ndim == 3 || shape->ndim == 4;
}

static enum gp_status shapes(const double *value, const struct gp_shape *shape, struct gp_codec_parts *out,
			     struct gp_err *err)
{
	struct gp_windows p;
	char text[64];
	if (!gp_downsample_windows(shape, (int64_t)value[0], &p))
		GP_FAIL(err, GP_INVALID, "a tensor of shape %s has no height and width, and is no sequence",
			gp_shape_text(shape, text, sizeof text));
	if (p.h * p.w == 1)
		GP_FAIL(err, GP_INVALID, "a tensor of shape %s has nothing to average over",
			gp_shape_text(shape, text, sizeof text));
	struct gp_shape small = *shape;
	small.dim[1] = gp_windows_high(&p);
	if (shape->ndim == 4)
		small.dim[2] = gp_windows_wide(&p);
	*out = (struct gp_codec_parts){.count = 1, .shape = {small}};
	return GP_OK;
}

static void reshape(void *state, const double *value, const struct gp_shape *shape)
{
	struct downsample *d = state;
	const bool fits = gp_downsample_windows(shape, (int64_t)value[0], &d->windows);
	gp_require(fits); /* `shapes` has seen it */
	const struct gp_windows *p = &d->windows;
	d->n = (uint64_t)(p->n * gp_windows_high(p) * gp_windows_wide(p) * p->c);
}

static enum gp_status open_downsample(const double *value, const struct gp_codec_setup *setup, void **state,
				      struct gp_err *err)
{
	void *s;
	GP_TRY(gp_alloc_array(&s, 1, sizeof(struct downsample), err));
	struct downsample *d = s;
	reshape(d, value, &setup->shape);
	d->loops = gp_codec_loops_choose();
	*state = d;
	return GP_OK;
}

/* A sum over something that is not finite is not finite; nor is one that overflows. */
static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	(void)pass;
	(void)side;
	const struct downsample *d = state;
	float min, max;
	gp_windows_mean(&d->windows, x, tensor[0]);
	*side_len = 0;
	return d->loops->range(tensor[0], d->n, &min, &max);
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	(void)pass;
	(void)side; /* none: the driver has checked it against the bound */
	(void)err;
	gp_windows_spread(&((const struct downsample *)state)->windows, tensor[0], x);
	return GP_OK;
}

const struct gp_codec_ops gp_codec_downsample = {
	.id = GP_CODEC_ID_downsample,
	.kind = GP_CODEC_TRANSFORM,
	.info = {.name = "downsample",
		 .summary = "means over windows of an image or a sequence",
		 .examples =
			 GP_EXAMPLES("downsample", "downsample:factor=3+uniform:bits=5", "downsample+topk:ratio=0.2")},
	.keys = 1,
	.key = {{.name = "factor", .min = 2, .max = 64, .initial = 2, .help = "height and width of a window"}},
	.needs_shape = true,
	.reshape = reshape,
	.shapes = shapes,
	.open = open_downsample,
	.close = gp_free,
	.split = split,
	.join = join,
};

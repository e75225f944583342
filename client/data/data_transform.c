/* SPDX-License-Identifier: Apache-2.0
 *
 * From an 8-bit image to the floats a model reads: geometry (pad, resize, crop,
 * flip) and normalisation, (v / 255 - mean) / std by table. Every random choice
 * is drawn from (seed, epoch, sample), see rng.h.
 *
 * Photographs (GP_FIT_CROP) follow torchvision's ImageNet recipe. Training: a
 * box of 8 to 100 % of the area and 3:4 to 4:3, resized to the wanted size.
 * Validation: the shorter side to size * 256/224 (to size itself where the
 * picture is smaller than that), then the centre.
 *
 * Test: tests/unit/test_data_transform.c
 */
#include "client/data/data_internal.h"

#include <math.h>
#include <string.h>

#include "common/base/rng.h"

enum { CROP_ATTEMPTS = 10, DRAWS_PER_SAMPLE = 16 };

static int wanted_dim(const struct gp_dataset_options *options, int axis, int own)
{
	return options->shape.ndim ? (int)options->shape.dim[axis] : own;
}

/* Where the caller wants no shape. `source`: as pictures are stored, 0: each has a size of its own. */
static int own_side(const struct gp_dataset *d, int source)
{
	return d->side ? d->side : source ? source : 224;
}

static enum gp_status check_wanted(const struct gp_dataset *d, const struct gp_dataset_options *options,
				   struct gp_err *err)
{
	const struct gp_shape *w = &options->shape;
	char text[64];
	if (w->ndim == 0)
		return GP_OK;
	gp_shape_text(w, text, sizeof text);
	if (w->ndim != 3)
		GP_FAIL(err, GP_INVALID, "dataset %s holds images (H,W,C), but the model wants samples of shape %s",
			d->class->info.name, text);
	if (w->dim[0] < 1 || w->dim[1] < 1 || w->dim[0] > 4096 || w->dim[1] > 4096)
		GP_FAIL(err, GP_INVALID, "dataset %s: the wanted image of %s is not between 1 and 4096 pixels a side",
			d->class->info.name, text);
	if (w->dim[2] != d->source_channels && !(d->source_channels == 1 && w->dim[2] == 3))
		GP_FAIL(err, GP_INVALID, "dataset %s has %d channel%s, but the model wants %lld; %s",
			d->class->info.name, d->source_channels, d->source_channels == 1 ? "" : "s",
			(long long)w->dim[2],
			d->source_channels == 3 ? "give the model an input of 3 channels"
						: "give the model an input of 1 or 3 channels");
	if (d->side && (d->side != w->dim[0] || d->side != w->dim[1]))
		GP_FAIL(err, GP_INVALID, "dataset %s: size=%d differs from the model's input %s; leave one out",
			d->class->info.name, d->side, text);
	return GP_OK;
}

/* A border, as is usual for 28x28 digits in a 32x32 network, as long as it stays a border. */
static bool can_pad(const struct gp_dataset *d, int height, int width)
{
	int dh = height - d->source_height, dw = width - d->source_width;
	return d->pad_when_near && dh >= 0 && dw >= 0 && dh * 4 <= d->source_height && dw * 4 <= d->source_width;
}

static enum gp_fit choose_fit(const struct gp_dataset *d, int height, int width)
{
	if (d->source_height == 0)
		return GP_FIT_CROP;
	if ((height == d->source_height && width == d->source_width) || can_pad(d, height, width))
		return GP_FIT_PLACE;
	return GP_FIT_RESIZE;
}

/* 2 pixels for 28x28, 4 for 32x32, an eighth of anything larger: the customary sizes. */
static int choose_shift(const struct gp_dataset *d)
{
	int side = d->source_height < d->source_width ? d->source_height : d->source_width;
	int shift = side < 32 ? side / 14 : side / 8;
	return shift < 1 ? 1 : shift;
}

static void fill_tables(struct gp_transform *t, const float mean[3], const float std[3])
{
	for (int c = 0; c < t->channels; c++)
		for (int v = 0; v < 256; v++)
			t->table[c][v] = ((float)v / 255.0f - mean[c]) / std[c];
}

static enum gp_status choose_statistics(struct gp_dataset *d, const struct gp_data_spec *spec,
					const struct gp_preparation *like, struct gp_err *err)
{
	int channels = d->transform.channels;
	if (spec->mean_count > channels || spec->std_count > channels)
		GP_FAIL(err, GP_USAGE, "dataset %s: mean= and std= name three channels, but images have %d",
			d->class->info.name, channels);
	for (int c = 0; c < 3; c++) {
		int source = d->source_channels == 1 ? 0 : c; /* a replicated channel keeps its statistics */
		if (spec->mean_count)
			d->mean[c] = spec->mean[spec->mean_count == 3 ? c : 0];
		else
			d->mean[c] = like ? like->mean[c] : d->mean[source];
		if (spec->std_count)
			d->std[c] = spec->std[spec->std_count == 3 ? c : 0];
		else
			d->std[c] = like ? like->std[c] : d->std[source];
	}
	return GP_OK;
}

static struct gp_dataset_options with_shape_of_like(const struct gp_dataset *d, const struct gp_dataset_options *given)
{
	struct gp_dataset_options o = *given;
	if (o.shape.ndim == 0 && o.like && !d->side)
		o.shape = o.like->shape;
	return o;
}

enum gp_status gp_transform_init(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				 const struct gp_dataset_options *given, struct gp_err *err)
{
	struct gp_transform *t = &d->transform;
	const struct gp_dataset_options own = with_shape_of_like(d, given), *options = &own;
	GP_TRY(check_wanted(d, options, err));
	t->height = wanted_dim(options, 0, own_side(d, d->source_height));
	t->width = wanted_dim(options, 1, own_side(d, d->source_width));
	t->channels = wanted_dim(options, 2, d->source_channels);
	t->fit = choose_fit(d, t->height, t->width);
	t->augment = split == GP_SPLIT_TRAIN && (spec->augment >= 0 ? spec->augment : options->augment);
	t->flip = spec->flip >= 0 ? spec->flip : d->flip;
	t->shift = t->fit == GP_FIT_CROP ? 0 : choose_shift(d);
	GP_TRY(choose_statistics(d, spec, options->like, err));
	fill_tables(t, d->mean, d->std);
	d->tensors = 1;
	d->tensor[0] = (struct gp_tensor_info){
		.name = "image", .type = {GP_F32, {.ndim = 3, .dim = {t->height, t->width, t->channels}}}};
	return GP_OK;
}

static void draw_words(const struct gp_draw *draw, uint32_t at, uint32_t words[4])
{
	gp_rng_block(draw->seed, gp_rng_stream(GP_RNG_AUGMENT, draw->epoch),
		     (uint64_t)draw->sample * DRAWS_PER_SAMPLE + at, words);
}

static int draw_below(uint32_t word, int bound)
{
	return (int)((uint64_t)word * (uint64_t)bound >> 32);
}

static double draw_unit(uint32_t word)
{
	return word * 0x1p-32;
}

/* Where pixels of the output come from: a shifted, perhaps mirrored view; zero outside. */
struct view {
	int dy, dx; /* added to the output position to get the image position */
	bool mirror;
};

static struct view draw_view(const struct gp_transform *t, const struct gp_draw *draw)
{
	uint32_t w[4];
	if (!t->augment)
		return (struct view){0};
	draw_words(draw, 0, w);
	return (struct view){.dy = draw_below(w[0], 2 * t->shift + 1) - t->shift,
			     .dx = draw_below(w[1], 2 * t->shift + 1) - t->shift,
			     .mirror = t->flip && w[2] >> 31};
}

/* `count` pixels, from `src` on with `step` pixels between them, to floats. */
static void normalise_run(const struct gp_transform *t, const uint8_t *src, int channels, int step, int count,
			  float *restrict dst)
{
	const float(*table)[256] = t->table;
	if (channels == 3)
		for (int i = 0; i < count; i++, src += 3 * step, dst += 3) {
			dst[0] = table[0][src[0]];
			dst[1] = table[1][src[1]];
			dst[2] = table[2][src[2]];
		}
	else if (t->channels == 1)
		for (int i = 0; i < count; i++, src += step)
			dst[i] = table[0][*src];
	else
		for (int i = 0; i < count; i++, src += step, dst += 3)
			for (int c = 0; c < 3; c++)
				dst[c] = table[c][*src];
}

static void fill_black(const struct gp_transform *t, float *dst, int count)
{
	for (int i = 0; i < count; i++)
		for (int c = 0; c < t->channels; c++)
			*dst++ = t->table[c][0];
}

/* One output row from image row `src` (NULL: outside) whose position x + left is used for output x. */
static void place_row(const struct gp_transform *t, const struct gp_image *image, const uint8_t *src, int left,
		      bool mirror, float *dst)
{
	int begin = left < 0 ? -left : 0;
	int end = image->width - left < t->width ? image->width - left : t->width;
	if (!src || begin >= end) {
		fill_black(t, dst, t->width);
		return;
	}
	fill_black(t, dst, begin);
	int x = mirror ? image->width - 1 - (begin + left) : begin + left;
	normalise_run(t, src + (size_t)x * (size_t)image->channels, image->channels, mirror ? -1 : 1, end - begin,
		      dst + (size_t)begin * (size_t)t->channels);
	fill_black(t, dst + (size_t)end * (size_t)t->channels, t->width - end);
}

/* The image centred in the output, moved and mirrored by `view`. */
static void place(const struct gp_transform *t, const struct gp_image *image, const struct view *view, float *out)
{
	int top = view->dy - (t->height - image->height) / 2;
	int left = view->dx - (t->width - image->width) / 2;
	for (int y = 0; y < t->height; y++) {
		int from = y + top;
		const uint8_t *row = NULL;
		if (from >= 0 && from < image->height)
			row = image->pixels + (size_t)from * image->stride;
		place_row(t, image, row, left, view->mirror, out);
		out += (size_t)t->width * (size_t)t->channels;
	}
}

/* Resizes the part `box` of the image so that `window` of the result fills the output; then normalises. */
static enum gp_status resize_part(const struct gp_transform *t, const struct gp_image *image,
				  const struct gp_window *box, int full_height, int full_width,
				  const struct gp_window *window, bool mirror, struct gp_data_scratch *scratch,
				  float *out, struct gp_err *err)
{
	struct gp_image part = *image;
	part.pixels += (size_t)box->top * image->stride + (size_t)box->left * (size_t)image->channels;
	part.height = box->height;
	part.width = box->width;
	size_t row = (size_t)t->width * (size_t)image->channels;
	GP_TRY(gp_bytes_reserve(&scratch->resized, (uint64_t)row * (uint64_t)t->height, err));
	GP_TRY(gp_image_resize(&part, full_height, full_width, window, scratch, scratch->resized.data, err));
	struct gp_image resized = {scratch->resized.data, t->height, t->width, image->channels, row};
	place(t, &resized, &(struct view){.mirror = mirror}, out);
	return GP_OK;
}

static enum gp_status resize_whole(const struct gp_transform *t, const struct gp_image *image, const struct view *view,
				   struct gp_data_scratch *scratch, float *out, struct gp_err *err)
{
	/* A shifted copy with black outside, then one resize: the crop happens at the image's own size. The copy
	 * lies in scratch->file, which only families without GP_FIT_RESIZE fill. */
	size_t row = (size_t)image->width * (size_t)image->channels;
	GP_TRY(gp_bytes_reserve(&scratch->file, (uint64_t)row * (uint64_t)image->height, err));
	uint8_t *copy = scratch->file.data;
	memset(copy, 0, row * (size_t)image->height);
	int x0 = view->dx < 0 ? -view->dx : 0;
	int x1 = view->dx > 0 ? image->width - view->dx : image->width;
	for (int y = 0; y < image->height; y++)
		if (y + view->dy >= 0 && y + view->dy < image->height && x1 > x0)
			memcpy(copy + (size_t)y * row + (size_t)(x0 * image->channels),
			       image->pixels + (size_t)(y + view->dy) * image->stride +
				       (size_t)((x0 + view->dx) * image->channels),
			       (size_t)((x1 - x0) * image->channels));
	struct gp_image shifted = {copy, image->height, image->width, image->channels, row};
	struct gp_window box = {0, 0, image->height, image->width}, window = {0, 0, t->height, t->width};
	return resize_part(t, &shifted, &box, t->height, t->width, &window, view->mirror, scratch, out, err);
}

/* The largest centred box with a side ratio between 3:4 and 4:3, for pictures too narrow for the drawn boxes. */
static struct gp_window fallback_box(int height, int width)
{
	int h = height, w = width;
	if (4 * w < 3 * h)
		h = w * 4 / 3;
	else if (3 * w > 4 * h)
		w = h * 4 / 3;
	h = h > height ? height : h < 1 ? 1 : h;
	w = w < 1 ? 1 : w;
	return (struct gp_window){(height - h) / 2, (width - w) / 2, h, w};
}

/* 8 to 100 % of the area; ratio 3/4..1 or its inverse, by a coin. Only sqrt: the same on every machine. */
static struct gp_window draw_box(const struct gp_draw *draw, int height, int width)
{
	uint32_t w[4];
	for (uint32_t attempt = 1; attempt <= CROP_ATTEMPTS; attempt++) {
		draw_words(draw, attempt, w);
		double area = (double)height * width * (0.08 + 0.92 * draw_unit(w[0]));
		double ratio = 0.75 + 0.25 * draw_unit(w[1] << 1);
		if (w[1] >> 31)
			ratio = 1 / ratio;
		int bw = (int)(sqrt(area * ratio) + 0.5), bh = (int)(sqrt(area / ratio) + 0.5);
		if (bw >= 1 && bh >= 1 && bw <= width && bh <= height)
			return (struct gp_window){draw_below(w[2], height - bh + 1), draw_below(w[3], width - bw + 1),
						  bh, bw};
	}
	return fallback_box(height, width);
}

static enum gp_status crop_random(const struct gp_transform *t, const struct gp_image *image,
				  const struct gp_draw *draw, struct gp_data_scratch *scratch, float *out,
				  struct gp_err *err)
{
	uint32_t w[4];
	draw_words(draw, 0, w);
	struct gp_window box = draw_box(draw, image->height, image->width);
	struct gp_window window = {0, 0, t->height, t->width};
	return resize_part(t, image, &box, t->height, t->width, &window, t->flip && w[0] >> 31, scratch, out, err);
}

static enum gp_status crop_centre(const struct gp_transform *t, const struct gp_image *image,
				  struct gp_data_scratch *scratch, float *out, struct gp_err *err)
{
	int aim_h = t->height * 256 / 224, aim_w = t->width * 256 / 224;
	if (image->height < aim_h || image->width < aim_w) {
		aim_h = t->height;
		aim_w = t->width;
	}
	/* One side hits its aim, the other covers it. */
	int full_h = aim_h, full_w = (int)((int64_t)image->width * aim_h / image->height);
	if (full_w < aim_w) {
		full_w = aim_w;
		full_h = (int)((int64_t)image->height * aim_w / image->width);
		full_h = full_h < aim_h ? aim_h : full_h;
	}
	struct gp_window box = {0, 0, image->height, image->width};
	struct gp_window window = {(full_h - t->height) / 2, (full_w - t->width) / 2, t->height, t->width};
	return resize_part(t, image, &box, full_h, full_w, &window, false, scratch, out, err);
}

enum gp_status gp_transform_apply(const struct gp_transform *t, const struct gp_image *image,
				  const struct gp_draw *draw, struct gp_data_scratch *scratch, float *out,
				  struct gp_err *err)
{
	if (t->fit == GP_FIT_CROP)
		return t->augment ? crop_random(t, image, draw, scratch, out, err)
				  : crop_centre(t, image, scratch, out, err);
	struct view view = draw_view(t, draw);
	if (t->fit == GP_FIT_RESIZE)
		return resize_whole(t, image, &view, scratch, out, err);
	place(t, image, &view, out);
	return GP_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic images: every class has its own striped pattern per channel, every
 * sample its own contrast, shift and noise. A small network learns them in a
 * few dozen steps, so a run shows at once whether training works. No files;
 * integer arithmetic, so the pixels are the same on every machine. With tokens=S
 * the samples are tokens instead: data_synthetic_tokens.c.
 * Test: tests/unit/test_data_synthetic.c
 */
#include "client/data/data_internal.h"

#include <string.h>

#include "common/base/rng.h"

struct stripes {
	uint32_t across, down; /* phase per pixel, 2^16 = one period */
	uint32_t phase;
};

struct synthetic {
	uint64_t seed, stream;
	uint32_t classes;
	int noise;             /* 256 = noise as wide as the 8-bit range */
	int64_t samples;       /* of the training split */
	struct gp_shape shape; /* (H,W,C), ndim 0 = not given */
};

static enum gp_status configure_synthetic(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	int64_t seed = 0;
	double noise = 0.5;
	struct gp_text text;
	if (gp_spec_given(spec, "tokens", &text) || gp_spec_given(spec, "vocab", &text) ||
	    (d->row > 0 && !gp_spec_given(spec, "shape", &text))) {
		d->class = &gp_data_synthetic_tokens;
		spec->keys = d->class->info.options;
		return d->class->configure(d, spec, err);
	}
	GP_TRY(gp_alloc_array(&d->self, 1, sizeof(struct synthetic), err));
	struct synthetic *s = d->self;
	s->samples = 10000;
	d->classes = 10;
	GP_TRY(gp_data_read_shape(spec, &s->shape, err));
	d->any_shape = !s->shape.ndim;
	GP_TRY(gp_data_read_classes(spec, &d->classes, err));
	GP_TRY(gp_spec_int(spec, "samples", 1, 100000000, &s->samples, err));
	GP_TRY(gp_spec_real(spec, "noise", 0, 8, &noise, err));
	GP_TRY(gp_spec_int(spec, "seed", 0, INT64_MAX, &seed, err));
	s->noise = (int)(noise * 256 + 0.5);
	s->seed = (uint64_t)seed;
	return GP_OK;
}

static enum gp_status open_synthetic(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				     const struct gp_dataset_options *options, struct gp_err *err)
{
	static const float mean[3] = {0.5f, 0.5f, 0.5f}, std[3] = {0.25f, 0.25f, 0.25f};
	static const struct gp_shape usual = {.ndim = 3, .dim = {32, 32, 3}};
	struct synthetic *s = d->self;
	const struct gp_shape *shape = s->shape.ndim ? &s->shape : options->shape.ndim ? &options->shape : &usual;
	if (shape->ndim != 3 || (shape->dim[2] != 1 && shape->dim[2] != 3) || shape->dim[0] > 4096 ||
	    shape->dim[1] > 4096)
		GP_FAIL(err, GP_INVALID,
			"dataset synthetic makes images of 1 or 3 channels and at most 4096 pixels a side; give "
			"shape=CxHxW");
	int64_t samples = s->samples;
	if (split == GP_SPLIT_VAL)
		samples = samples < 5 ? 1 : samples / 5;
	if (spec->limit && spec->limit < samples)
		samples = spec->limit;
	d->samples = (uint32_t)samples;
	d->source_height = (int)shape->dim[0];
	d->source_width = (int)shape->dim[1];
	d->source_channels = (int)shape->dim[2];
	gp_data_set_statistics(d, mean, std);
	GP_TRY(gp_data_name_classes(d, d->classes, NULL, err));
	s->stream = gp_rng_stream(GP_RNG_SYNTHETIC, split == GP_SPLIT_TRAIN ? 1 : 2);
	s->classes = (uint32_t)d->classes;
	return GP_OK;
}

static void close_synthetic(struct gp_dataset *d)
{
	gp_free(d->self);
}

static int32_t label_of(const struct gp_dataset *d, uint32_t index)
{
	const struct synthetic *s = d->self;
	return (int32_t)(index % s->classes);
}

/* One to four periods each way, by class and channel alone: both splits show the same patterns. */
static struct stripes class_stripes(const struct gp_dataset *d, const struct synthetic *s, uint32_t class,
				    uint32_t channel)
{
	uint32_t w[4];
	gp_rng_block(s->seed, gp_rng_stream(GP_RNG_SYNTHETIC, 0), (uint64_t) class * 4 + channel, w);
	return (struct stripes){.across = ((w[0] >> 30) + 1) * 65536 / (uint32_t)d->source_width,
				.down = ((w[1] >> 30) + 1) * 65536 / (uint32_t)d->source_height,
				.phase = w[2] >> 16};
}

/* A triangle wave of period 2^16 in -128..127. */
static int wave(uint32_t phase)
{
	uint32_t p = phase & 0xffff;
	uint32_t up = p < 0x8000 ? p : 0xffff - p;
	return (int)(up >> 7) - 128;
}

static void draw_channel(const struct gp_dataset *d, const struct stripes *stripes, uint32_t shift, int contrast,
			 uint8_t *pixels)
{
	int channels = d->source_channels;
	for (int y = 0; y < d->source_height; y++) {
		uint32_t phase = stripes->phase + shift + stripes->down * (uint32_t)y;
		for (int x = 0; x < d->source_width; x++, phase += stripes->across, pixels += channels)
			*pixels = (uint8_t)(128 + wave(phase) * contrast / 256);
	}
}

/* Block 0 of a sample decides shift and contrast, the others are noise, a byte per value. */
static void add_noise(const struct synthetic *s, uint64_t first_block, uint8_t *pixels, size_t count)
{
	for (size_t i = 0; i < count; i += 16) {
		uint32_t w[4];
		gp_rng_block(s->seed, s->stream, first_block + 1 + i / 16, w);
		size_t n = count - i < 16 ? count - i : 16;
		for (size_t k = 0; k < n; k++) {
			int noise = ((int)(w[k / 4] >> (8 * (k % 4)) & 255) - 128) * s->noise / 256;
			int v = pixels[i + k] + noise;
			pixels[i + k] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
		}
	}
}

static enum gp_status read_synthetic(const struct gp_dataset *d, uint32_t index, struct gp_data_scratch *scratch,
				     struct gp_image *out, struct gp_err *err)
{
	const struct synthetic *s = d->self;
	size_t row = (size_t)d->source_width * (size_t)d->source_channels, bytes = row * (size_t)d->source_height;
	GP_TRY(gp_bytes_reserve(&scratch->pixels, bytes, err));
	uint8_t *pixels = scratch->pixels.data;
	uint64_t first_block = (uint64_t)index * (2 + bytes / 16);
	uint32_t w[4];
	gp_rng_block(s->seed, s->stream, first_block, w);
	int contrast = 128 + (int)(w[0] >> 25); /* 50 to 100 % */
	for (int c = 0; c < d->source_channels; c++) {
		struct stripes stripes = class_stripes(d, s, index % s->classes, (uint32_t)c);
		draw_channel(d, &stripes, w[1] >> 19, contrast, pixels + c); /* shifted by up to an eighth */
	}
	if (s->noise)
		add_noise(s, first_block, pixels, bytes);
	*out = (struct gp_image){pixels, d->source_height, d->source_width, d->source_channels, row};
	return GP_OK;
}

const struct gp_dataset_class gp_data_synthetic = {
	.info = {.name = "synthetic",
		 .summary = "striped patterns with noise, made on the fly; the shape defaults to the model's input",
		 .options = "shape=3x32x32,classes=10,samples=10000,noise=0.5,seed=0,limit=N,"
			    "part=I/N,dirichlet=A,part-seed=0,augment=0|1,flip=0|1, or tokens=128,vocab=1000,classes=2,"
			    "samples=10000,noise=0.5,seed=0,limit=N,part=I/N,dirichlet=A,part-seed=0"},
	.configure = configure_synthetic,
	.open = open_synthetic,
	.close = close_synthetic,
	.read = read_synthetic,
	.label = label_of,
};

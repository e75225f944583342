/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures given by their paths, without labels: what `gpclient infer` reads.
 * They are brought to the form in which another dataset, `like`, delivers its
 * own, and then go through that one's transform. "pictures:..." is a `like`
 * for when no training data is at hand: ImageNet's preparation, no images.
 * Test: tests/unit/test_data_files.c
 */
#include <string.h>
#include <sys/stat.h>

#include "client/data/data_internal.h"

enum { IMAGENET_CLASSES = 1000 };

static void close_pictures(struct gp_dataset *d)
{
	if (d->self)
		gp_names_deinit(d->self);
	gp_free(d->self);
}

/* shape=: as those of a data set whose pictures all have that one, such as 28x28 digits. */
static enum gp_status read_source(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	struct gp_shape source = {0};
	struct gp_text text;
	GP_TRY(gp_data_read_shape(spec, &source, err));
	d->source_channels = 3;
	if (source.ndim == 0)
		return GP_OK;
	if (gp_spec_given(spec, "size", &text))
		GP_FAIL(err, GP_USAGE,
			"dataset pictures: size= is of pictures of all sizes, shape= where they have one; give one");
	d->source_height = (int)source.dim[0];
	d->source_width = (int)source.dim[1];
	d->source_channels = (int)source.dim[2];
	d->pad_when_near = source.dim[2] == 1; /* as data_idx.c does */
	return GP_OK;
}

static enum gp_status configure_pictures(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	d->classes = IMAGENET_CLASSES;
	GP_TRY(gp_data_read_side(spec, &d->side, err));
	GP_TRY(read_source(d, spec, err));
	d->any_shape = !d->side && !d->source_height;
	return gp_data_read_classes(spec, &d->classes, err);
}

static enum gp_status open_pictures(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				    const struct gp_dataset_options *options, struct gp_err *err)
{
	static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
	(void)spec;
	(void)options;
	if (split == GP_SPLIT_TRAIN)
		GP_FAIL(err, GP_INVALID,
			"dataset pictures has no images of its own; it says how `gpclient infer` prepares some");
	gp_data_set_statistics(d, mean, std);
	return gp_data_name_classes(d, d->classes, NULL, err);
}

/* Rec. 601 luma in 16 bits of fraction, PIL's convert("L"); one byte per pixel, in place. */
static void make_grey(struct gp_image *image, uint8_t *pixels)
{
	uint8_t *to = pixels;
	for (int y = 0; y < image->height; y++) {
		const uint8_t *p = pixels + (size_t)y * image->stride;
		for (int x = 0; x < image->width; x++, p += 3)
			*to++ = (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
	}
	*image = (struct gp_image){pixels, image->height, image->width, 1, (size_t)image->width};
}

/* Scaled until both sides reach the wanted size, cut about the centre. Into scratch->resized. */
static enum gp_status cover(const struct gp_dataset *d, struct gp_data_scratch *scratch, struct gp_image *image,
			    struct gp_err *err)
{
	int height = d->source_height, width = d->source_width;
	int full_h = height, full_w = (int)((int64_t)image->width * height / image->height);
	if (full_w < width) {
		full_w = width;
		full_h = (int)((int64_t)image->height * width / image->width);
		full_h = full_h < height ? height : full_h;
	}
	const struct gp_window window = {(full_h - height) / 2, (full_w - width) / 2, height, width};
	size_t row = (size_t)width * (size_t)image->channels;
	GP_TRY(gp_bytes_reserve(&scratch->resized, (uint64_t)row * (uint64_t)height, err));
	GP_TRY(gp_image_resize(image, full_h, full_w, &window, scratch, scratch->resized.data, err));
	*image = (struct gp_image){scratch->resized.data, height, width, image->channels, row};
	return GP_OK;
}

static enum gp_status read_file(const struct gp_dataset *d, uint32_t index, struct gp_data_scratch *scratch,
				struct gp_image *out, struct gp_err *err)
{
	struct gp_image image;
	GP_TRY(gp_picture_read(gp_dataset_file(d, index), scratch, &image, err));
	if (d->source_channels == 1)
		make_grey(&image, scratch->pixels.data);
	if (d->source_height && (image.height != d->source_height || image.width != d->source_width))
		GP_TRY(cover(d, scratch, &image, err));
	*out = image;
	return GP_OK;
}

static void path_of(const struct gp_dataset *d, uint32_t index, char path[GP_PICTURE_PATH])
{
	snprintf(path, GP_PICTURE_PATH, "%s", gp_dataset_file(d, index));
}

static int32_t no_label(const struct gp_dataset *d, uint32_t index)
{
	(void)d;
	(void)index;
	return 0;
}

const struct gp_dataset_class gp_data_pictures = {
	.info = {.name = "pictures",
		 .summary = "for infer, without a dataset: how pictures are prepared",
		 .options = "size=224,shape=CxHxW,classes=1000,mean=R/G/B,std=R/G/B"},
	.configure = configure_pictures,
	.open = open_pictures,
	.close = close_pictures,
	.read = read_file,
	.label = no_label,
	.path = path_of,
};

static enum gp_status too_long(const char *path, struct gp_err *err)
{
	GP_FAIL(err, GP_INVALID, "a path of more than %d characters: %.60s...", GP_PICTURE_PATH - 1, path);
}

static enum gp_status add_folder(struct gp_names *files, const char *folder, struct gp_err *err)
{
	struct gp_names inside = {0};
	char path[GP_PICTURE_PATH];
	enum gp_status status = gp_folder_list(folder, false, &inside, err);
	if (status == GP_OK && inside.count == 0)
		status = gp_err_set(err, GP_INVALID, 0, __FILE__, __LINE__,
				    "no *.jpg, *.jpeg or *.png in %s (folders in it are not searched)", folder);
	for (size_t i = 0; status == GP_OK && i < inside.count; i++) {
		const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
		int n = snprintf(path, sizeof path, "%s%s%s", folder, slash, inside.name[i]);
		if ((size_t)n < sizeof path)
			status = gp_names_add(files, path, err);
		else
			status = too_long(path, err);
	}
	gp_names_deinit(&inside);
	return status;
}

static enum gp_status add_path(struct gp_names *files, const char *path, struct gp_err *err)
{
	struct stat st;
	if (strlen(path) >= GP_PICTURE_PATH)
		return too_long(path, err);
	if (stat(path, &st) != 0)
		GP_FAIL(err, GP_INVALID, "no file or folder %s", path);
	return S_ISDIR(st.st_mode) ? add_folder(files, path, err) : gp_names_add(files, path, err);
}

static enum gp_status find_files(struct gp_dataset *d, const char *const *path, int count, struct gp_err *err)
{
	GP_TRY(gp_alloc_array(&d->self, 1, sizeof(struct gp_names), err));
	struct gp_names *files = d->self;
	for (int i = 0; i < count; i++)
		GP_TRY(add_path(files, path[i], err));
	if (files->count == 0 || files->count > UINT32_MAX)
		GP_FAIL(err, GP_INVALID, "%zu pictures: one at least", files->count);
	d->samples = (uint32_t)files->count;
	return GP_OK;
}

enum gp_status gp_dataset_from_files(const struct gp_dataset *like, const char *const *path, int count,
				     struct gp_dataset **out, struct gp_err *err)
{
	if (!gp_dataset_has_pictures(like))
		GP_FAIL(err, GP_INVALID, "dataset %s has no pictures but %s: no picture can be prepared like them",
			like->class->info.name, like->tensor[0].name);
	struct gp_dataset *d = gp_calloc(1, sizeof *d);
	if (!d)
		GP_FAIL(err, GP_NOMEM, "out of memory for a dataset");
	*d = *like;
	d->class = &gp_data_pictures;
	d->self = NULL;
	d->class_names = NULL;
	d->kept = NULL;
	d->transform.augment = false;
	enum gp_status status = gp_data_name_classes(d, like->classes, NULL, err);
	if (status == GP_OK) {
		memcpy(d->class_names, like->class_names, (size_t)like->classes * sizeof *d->class_names);
		status = find_files(d, path, count, err);
	}
	if (status != GP_OK) {
		gp_dataset_free(d);
		return status;
	}
	*out = d;
	return GP_OK;
}

const char *gp_dataset_file(const struct gp_dataset *d, uint32_t index)
{
	const struct gp_names *files = d->self;
	gp_require(d->class == &gp_data_pictures && files && index < files->count);
	return files->name[index];
}

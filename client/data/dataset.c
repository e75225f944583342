/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets: the registry, opening by text, and what all families share (pictures
 * in memory, class names). Files and formats are in data_NAME.c, batches in
 * data_loader.c. Test: tests/unit/test_data_spec.c
 */
#include "client/data/data_internal.h"

#include <string.h>

#include "common/base/mem.h"

static const struct gp_dataset_class *const classes[] = {
	&gp_data_fashion_mnist, &gp_data_idx,      &gp_data_cifar10,    &gp_data_cifar100, &gp_data_folder,
	&gp_data_synthetic,     &gp_data_pictures, &gp_data_glue_cola,  &gp_data_glue_rte, &gp_data_glue_sst2,
	&gp_data_glue_stsb,     &gp_data_tsv,      &gp_data_plain_text,
};
enum { CLASSES = sizeof classes / sizeof classes[0] };

const struct gp_dataset_info *gp_dataset_info(int index)
{
	return index >= 0 && index < CLASSES ? &classes[index]->info : NULL;
}

static enum gp_status find_class(const struct gp_spec *s, const struct gp_dataset_class **out, struct gp_err *err)
{
	const char *names[CLASSES];
	for (int i = 0; i < CLASSES; i++) {
		names[i] = classes[i]->info.name;
		if (gp_text_is(s->name, names[i])) {
			*out = classes[i];
			return GP_OK;
		}
	}
	if (s->name.len > 0 && memchr(s->name.at, '/', s->name.len)) {
		char shown[GP_SHOWN];
		gp_text_shown(s->name, shown);
		GP_FAIL(err, GP_USAGE, "'%s' is a path, and a dataset begins with its kind: folder:%s for pictures",
			shown, shown);
	}
	return gp_spec_unknown(s, "dataset", names, CLASSES, err);
}

static enum gp_status open_class(struct gp_dataset *d, struct gp_spec *s, enum gp_split split,
				 const struct gp_dataset_options *options, struct gp_err *err)
{
	struct gp_data_spec spec;
	GP_TRY(gp_data_spec_read(d, s, &spec, err));
	GP_TRY(d->class->open(d, &spec, split, options, err));
	GP_TRY(gp_data_part_check(d, &spec.part, err));
	if (split == GP_SPLIT_TRAIN && !d->class->takes_part)
		GP_TRY(gp_data_part_take(d, &spec.part, err));
	return d->class->read ? gp_transform_init(d, &spec, split, options, err) : GP_OK;
}

enum gp_status gp_dataset_open(const char *text, enum gp_split split, const struct gp_dataset_options *options,
			       struct gp_dataset **out, struct gp_err *err)
{
	const struct gp_dataset_class *class = NULL;
	struct gp_spec spec;
	gp_spec_begin(&spec, gp_text_of(text));
	GP_TRY(find_class(&spec, &class, err));
	struct gp_dataset *d = gp_calloc(1, sizeof *d);
	if (!d)
		GP_FAIL(err, GP_NOMEM, "out of memory while opening dataset %s", class->info.name);
	d->class = class;
	d->row = options->row;
	d->row_values = options->row_values;
	const enum gp_status status = open_class(d, &spec, split, options, err);
	if (status != GP_OK) {
		gp_dataset_free(d);
		return status;
	}
	*out = d;
	return GP_OK;
}

enum gp_status gp_data_spec_open(const char *text, struct gp_dataset *d, struct gp_data_spec *out, struct gp_err *err)
{
	struct gp_spec spec;
	gp_spec_begin(&spec, gp_text_of(text));
	GP_TRY(find_class(&spec, &d->class, err));
	const enum gp_status status = gp_data_spec_read(d, &spec, out, err);
	if (status != GP_OK)
		d->class->close(d);
	return status;
}

bool gp_dataset_takes_any_shape(const char *text)
{
	struct gp_dataset d = {0};
	struct gp_data_spec parsed;
	struct gp_err err;
	if (gp_data_spec_open(text, &d, &parsed, &err) != GP_OK)
		return false;
	d.class->close(&d);
	return d.any_shape;
}

void gp_dataset_free(struct gp_dataset *d)
{
	if (!d)
		return;
	d->class->close(d);
	gp_free(d->class_names);
	gp_free(d->kept);
	gp_free(d);
}

bool gp_dataset_has_pairs(const struct gp_dataset *d)
{
	return d->pairs;
}

uint64_t gp_dataset_tokenizer(const struct gp_dataset *d)
{
	return d->tokenizer;
}

uint32_t gp_dataset_samples(const struct gp_dataset *d)
{
	return d->samples;
}

int gp_dataset_classes(const struct gp_dataset *d)
{
	return d->classes;
}

bool gp_dataset_has_values(const struct gp_dataset *d)
{
	return d->values;
}

int gp_dataset_labels(const struct gp_dataset *d)
{
	return d->labels;
}

bool gp_dataset_has_pictures(const struct gp_dataset *d)
{
	return d->class->read != NULL;
}

bool gp_dataset_augments(const struct gp_dataset *d)
{
	return gp_dataset_has_pictures(d) && d->transform.augment;
}

void gp_dataset_preparation(const struct gp_dataset *d, struct gp_preparation *out)
{
	*out = (struct gp_preparation){0};
	if (!d->class->read)
		return;
	out->shape = *gp_dataset_shape(d);
	if (d->transform.fit != GP_FIT_CROP)
		out->source =
			(struct gp_shape){.ndim = 3, .dim = {d->source_height, d->source_width, d->source_channels}};
	memcpy(out->mean, d->mean, sizeof out->mean);
	memcpy(out->std, d->std, sizeof out->std);
}

const struct gp_shape *gp_dataset_shape(const struct gp_dataset *d)
{
	return &d->tensor[0].type.shape;
}

int gp_dataset_tensors(const struct gp_dataset *d)
{
	return d->tensors;
}

const struct gp_tensor_info *gp_dataset_tensor_info(const struct gp_dataset *d)
{
	return d->tensor;
}

const char *gp_dataset_class_name(const struct gp_dataset *d, int label)
{
	return label >= 0 && label < d->classes ? d->class_names[label] : "?";
}

enum gp_status gp_data_name_classes(struct gp_dataset *d, int count, const char *const *names, struct gp_err *err)
{
	void *memory;
	GP_TRY(gp_alloc_array(&memory, (size_t)count, GP_CLASS_NAME, err));
	d->class_names = memory;
	d->classes = count;
	for (int i = 0; i < count; i++)
		if (names && names[i])
			snprintf(d->class_names[i], GP_CLASS_NAME, "%s", names[i]);
		else
			snprintf(d->class_names[i], GP_CLASS_NAME, "class %d", i);
	return GP_OK;
}

void gp_data_set_statistics(struct gp_dataset *d, const float mean[3], const float std[3])
{
	memcpy(d->mean, mean, sizeof d->mean);
	memcpy(d->std, std, sizeof d->std);
}

enum gp_status gp_memory_images_read(const struct gp_dataset *d, uint32_t index, struct gp_data_scratch *scratch,
				     struct gp_image *out, struct gp_err *err)
{
	(void)scratch;
	(void)err;
	const struct gp_memory_images *images = d->self;
	size_t row = (size_t)d->source_width * (size_t)d->source_channels;
	*out = (struct gp_image){
		.pixels = images->pixels + index * row * (size_t)d->source_height,
		.height = d->source_height,
		.width = d->source_width,
		.channels = d->source_channels,
		.stride = row,
	};
	return GP_OK;
}

int32_t gp_memory_images_label(const struct gp_dataset *d, uint32_t index)
{
	const struct gp_memory_images *images = d->self;
	return images->labels[index];
}

void gp_memory_images_close(struct gp_dataset *d)
{
	struct gp_memory_images *images = d->self;
	if (!images)
		return;
	gp_free(images->pixels);
	gp_free(images->labels);
	gp_free(images);
}

enum gp_status gp_dataset_load(const struct gp_dataset *d, const struct gp_draw *draw, struct gp_data_scratch *scratch,
			       void *const *tensor, void *label, struct gp_err *err)
{
	struct gp_image source;
	const uint32_t index = gp_dataset_source(d, draw->sample);
	if (d->class->draw)
		return d->class->draw(d, index, draw, tensor, label, err);
	if (d->class->read) {
		GP_TRY(d->class->read(d, index, scratch, &source, err));
		GP_TRY(gp_transform_apply(&d->transform, &source, draw, scratch, tensor[0], err));
	} else {
		GP_TRY(d->class->write(d, index, scratch, tensor, err));
	}
	if (d->values)
		*(float *)label = d->class->value(d, index);
	else
		*(int32_t *)label = d->class->label(d, index);
	return GP_OK;
}

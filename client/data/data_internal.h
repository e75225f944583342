/* SPDX-License-Identifier: Apache-2.0
 *
 * What the dataset files share; users see dataset.h. The way of a picture: a
 * family (data_idx.c, data_cifar.c, data_folder.c, data_synthetic.c, data_files.c)
 * hands out an 8-bit image, data_transform.c cuts, flips, fits and normalises it.
 * Other families (data_synthetic_tokens.c) write the tensors of a sample
 * themselves. data_loader.c does so for whole batches on its thread.
 *
 * An open dataset is read-only: several loaders may share it, each brings its
 * own scratch.
 *
 * Threads: any, with a scratch of its own.
 * Tests: tests/unit/test_data_*.c
 */
#ifndef GP_DATA_INTERNAL_H
#define GP_DATA_INTERNAL_H

#include "client/data/data_image.h"
#include "client/data/data_part.h"
#include "client/data/dataset.h"
#include "common/base/spec.h"

#define GP_DATA_DIR_ROOM 512
#define GP_PICTURE_PATH  1024

/* What a dataset text says, but for what its family alone takes. */
struct gp_data_spec {
	char dir[GP_DATA_DIR_ROOM]; /* "" = not given */
	int64_t limit;              /* 0 = all samples */
	struct gp_data_part part;
	int augment; /* -1 = as the caller wants */
	int flip;    /* -1 = as the family wants */
	int mean_count, std_count;
	float mean[3], std[3];
};

/* Geometry and normalisation of one open dataset, fixed at opening. */
struct gp_transform {
	enum gp_fit {
		GP_FIT_PLACE,  /* same size or zero border: pixels are copied */
		GP_FIT_RESIZE, /* the whole image is resized */
		GP_FIT_CROP,   /* photographs of any size: scaled to cover, then cut */
	} fit;
	int height, width, channels; /* as delivered */
	bool augment, flip;
	int shift;           /* random crop with this much padding, not for GP_FIT_CROP */
	float table[3][256]; /* 8-bit value to normalised value per delivered channel */
};

/* Names random draws. */
struct gp_draw {
	uint64_t seed;
	uint32_t epoch, sample;
};

struct gp_bad_samples;

struct gp_dataset_class {
	struct gp_dataset_info info;
	enum gp_spec_arg dir; /* of the folder: NAME:DIR */
	bool takes_part;      /* `open` leaves the samples of spec->part alone; else they are left out behind it */
	/* (optional) reads the keys that only this family has, into `self`, `side` or `classes`; before open. It may hand
	 * over to another class, with `spec->keys`. NULL: there are none. */
	enum gp_status (*configure)(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err);
	/* Fills samples, classes, names, and source and mean/std or tensors of `d`; on failure, as on one
	 * of `configure`, `close` is called with what is there. */
	enum gp_status (*open)(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
			       const struct gp_dataset_options *options, struct gp_err *err);
	void (*close)(struct gp_dataset *d);
	/* Pictures: the 8-bit image, which lives in the dataset or in `scratch` until the next call. The tensor "image" is
	 * made of it by gp_transform. NULL: `write` has the samples. */
	enum gp_status (*read)(const struct gp_dataset *d, uint32_t index, struct gp_data_scratch *scratch,
			       struct gp_image *out, struct gp_err *err);
	/* Other samples: each tensor of d->tensor, as the model reads it. NULL: `read` or `draw` has the samples. */
	enum gp_status (*write)(const struct gp_dataset *d, uint32_t index, struct gp_data_scratch *scratch,
				void *const *tensor, struct gp_err *err);
	/* (optional) In place of `write`, of samples of which something is drawn anew in each epoch: each tensor, and
	 * d->labels labels. */
	enum gp_status (*draw)(const struct gp_dataset *d, uint32_t index, const struct gp_draw *draw,
			       void *const *tensor, int32_t *labels, struct gp_err *err);
	int32_t (*label)(const struct gp_dataset *d, uint32_t index);
	/* (optional) The value to predict, where d->values says that labels are such. */
	float (*value)(const struct gp_dataset *d, uint32_t index);
	/* (optional) How long a sample is, for data_bucket.h. */
	uint32_t (*length)(const struct gp_dataset *d, uint32_t index);
	/* (optional) Samples that lie each in a file of its own: which. */
	void (*path)(const struct gp_dataset *d, uint32_t index, char path[GP_PICTURE_PATH]);
	/* (optional) Data that lies in a few files: reads file number `file` of the split by itself and writes its name into
	 * `path`, which stays "" past the last one. GP_INVALID and GP_IO say what is wrong with it. */
	enum gp_status (*check_file)(const struct gp_data_spec *spec, enum gp_split split, int file,
				     char path[GP_PICTURE_PATH], struct gp_err *err);
	/* (optional) Data whose samples are lines of a file: lists the bad ones of the split; `d` is configured, not open.
	 * GP_INVALID, GP_IO: the file itself is bad. */
	enum gp_status (*check_lines)(const struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				      struct gp_bad_samples *out, struct gp_err *err);
};

#define GP_CLASS_NAME 64

struct gp_dataset {
	const struct gp_dataset_class *class;
	void *self; /* the family's own */
	uint32_t samples;
	/* By sample, its number in the family's data (gp_data_part_take, gp_dataset_leave_out); NULL: the same. */
	uint32_t *kept;
	int classes;
	char (*class_names)[GP_CLASS_NAME]; /* `classes` of them */
	/* Pictures: what the family delivers before the transform; height 0: every image has its own size. */
	int source_height, source_width, source_channels;
	int side;           /* what the text wants; 0: nothing, and pictures that have each its own size become 224 */
	bool any_shape;     /* pictures are made or cut in whatever shape is asked for, and the text asks for none */
	bool pad_when_near; /* GP_FIT_PLACE instead of a resize when the wanted size is only a little larger */
	bool flip;          /* mirrored images keep their meaning */
	float mean[3], std[3];
	int64_t row, row_values; /* gp_dataset_options, for `configure` */
	uint64_t tokenizer;      /* gp_dataset_tokenizer */
	bool pairs;              /* gp_dataset_has_pairs */
	int bucket;  /* > 1: batches among which samples are ordered by length (data_bucket.h); 0: they are not */
	bool values; /* gp_dataset_has_values: d->class->value, and one class */
	int labels;  /* gp_dataset_labels, of d->class->draw; 0: one, of d->class->label or value */
	int tensors;
	struct gp_tensor_info tensor[GP_DATA_TENSORS];
	struct gp_transform transform; /* of pictures */
};

/* The number by which the family's functions know a sample. */
static inline uint32_t gp_dataset_source(const struct gp_dataset *d, uint32_t sample)
{
	return d->kept ? d->kept[sample] : sample;
}

/* Images of one size in memory, for data_idx.c and data_cifar.c. */
struct gp_memory_images {
	uint8_t *pixels; /* (count,H,W,C) */
	uint8_t *labels;
	uint32_t count;
};

extern const struct gp_dataset_class gp_data_fashion_mnist, gp_data_idx, gp_data_cifar10, gp_data_cifar100,
	gp_data_folder, gp_data_synthetic, gp_data_synthetic_tokens, gp_data_pictures, gp_data_glue_cola,
	gp_data_glue_rte, gp_data_glue_sst2, gp_data_glue_stsb, gp_data_tsv, gp_data_plain_text;

/* Reads the text behind the name: d->class is known, d->self becomes what `configure` makes. GP_USAGE names the key. */
enum gp_status gp_data_spec_read(struct gp_dataset *d, struct gp_spec *s, struct gp_data_spec *out, struct gp_err *err);
/* The same for a whole text: finds d->class of the zeroed `d`, too. Its `close` is to be called after success. */
enum gp_status gp_data_spec_open(const char *text, struct gp_dataset *d, struct gp_data_spec *out, struct gp_err *err);
/* Keys that several families have, for `configure`: size=, shape= (as (H,W,C)), classes=. Each value keeps what it
 * holds when its key is not given. */
enum gp_status gp_data_read_side(struct gp_spec *s, int *side, struct gp_err *err);
enum gp_status gp_data_read_shape(struct gp_spec *s, struct gp_shape *shape, struct gp_err *err);
enum gp_status gp_data_read_classes(struct gp_spec *s, int *classes, struct gp_err *err);

enum gp_status gp_memory_images_read(const struct gp_dataset *d, uint32_t index, struct gp_data_scratch *scratch,
				     struct gp_image *out, struct gp_err *err);
int32_t gp_memory_images_label(const struct gp_dataset *d, uint32_t index);
void gp_memory_images_close(struct gp_dataset *d);

/* Allocates d->class_names; names[i] NULL or names NULL: "class 7". */
enum gp_status gp_data_name_classes(struct gp_dataset *d, int classes, const char *const *names, struct gp_err *err);
void gp_data_set_statistics(struct gp_dataset *d, const float mean[3], const float std[3]);

/* IDX files, plain or gzip (also for the fuzz target). `limit` images at most are read, 0 = all. */
enum gp_status gp_idx_read_images(const char *path, uint32_t limit, uint8_t **pixels, uint32_t *declared,
				  uint32_t *count, int *height, int *width, struct gp_err *err);
enum gp_status gp_idx_read_labels(const char *path, uint8_t **labels, uint32_t *count, struct gp_err *err);
/* Appends the records of a CIFAR binary file; `label_bytes` 1 or 2 (the last one counts). */
enum gp_status gp_cifar_append(const char *path, int label_bytes, int classes, uint32_t limit,
			       struct gp_memory_images *images, struct gp_err *err);

/* Picture files: sorted names, folders of them, and reading one (data_picture.c). */
struct gp_names { /* start with {0} */
	char **name;
	size_t count, room;
};
void gp_names_deinit(struct gp_names *n);
enum gp_status gp_names_add(struct gp_names *n, const char *name, struct gp_err *err);
/* Whether the name is among these, which are sorted as gp_folder_list makes them. */
bool gp_names_have(const struct gp_names *n, const char *name);
/* DIR/NAME, or DIR itself when NAME is empty. */
bool gp_is_folder(const char *dir, const char *name);
/* Entries of `path` that are folders, or *.jpg, *.jpeg and *.png; sorted; hidden ones are left out. */
enum gp_status gp_folder_list(const char *path, bool folders, struct gp_names *out, struct gp_err *err);
enum gp_status gp_picture_read(const char *path, struct gp_data_scratch *scratch, struct gp_image *out,
			       struct gp_err *err);
/* Whether beginning, size and end of the file are those of a whole JPEG or PNG (data_look.c). Where not, it may still be
 * one: gp_picture_read has the last word. */
bool gp_picture_looks_whole(const char *path);

/* Makes the tensor "image" and d->transform from what a family of pictures filled in. */
enum gp_status gp_transform_init(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				 const struct gp_dataset_options *options, struct gp_err *err);
/* One image to (H,W,C) floats. */
enum gp_status gp_transform_apply(const struct gp_transform *t, const struct gp_image *image,
				  const struct gp_draw *draw, struct gp_data_scratch *scratch, float *out,
				  struct gp_err *err);

/* Reads, transforms and labels sample draw->sample, into one room for each of its tensors. `label`: gp_dataset_labels of
 * int32_t, or a float where labels are values. */
enum gp_status gp_dataset_load(const struct gp_dataset *d, const struct gp_draw *draw, struct gp_data_scratch *scratch,
			       void *const *tensor, void *label, struct gp_err *err);

#endif

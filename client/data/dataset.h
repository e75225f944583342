/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets: samples of named, typed tensors (image, or tokens with mask, length
 * and types) with a label, read on demand, and a loader that makes batches of them on a
 * background thread. A sample is kept as it is stored, pictures as 8 bits, and becomes what
 * a model reads when its batch is made. Results are a pure function of (spec,
 * seed, epoch, index): the same on any machine and thread count.
 *
 * To add a dataset:
 *   - data_NAME.c with a const vtable (data_internal.h, where it is declared);
 *   - a row in dataset.c;
 *   - its name where users look: the help of --data (client/job/job_options.c), the
 *     table of client/README.md, and above gp_dataset_open here.
 *     tests/unit/test_data_spec.c looks for it in the first two.
 *
 * Threads: any may use an open dataset, which is read-only. A loader is used by
 * one, while a thread of its own makes batches ahead.
 * Tests: tests/unit/test_data_*.c
 */
#ifndef GP_DATASET_H
#define GP_DATASET_H

#include "common/base/shape.h"

enum gp_split { GP_SPLIT_TRAIN, GP_SPLIT_VAL };

struct gp_dataset;

/* How pictures become what a model reads: `source`, where they all have one size, else cut (dataset.h: gp_dataset_open);
 * to `shape`; (v / 255 - mean) / std. */
struct gp_preparation {
	struct gp_shape shape;  /* (H,W,C) as delivered; ndim 0: no pictures */
	struct gp_shape source; /* (H,W,C) as stored; ndim 0: each has its own size */
	float mean[3], std[3];  /* of each delivered channel, on the scale 0..1 */
};

struct gp_dataset_options { /* what the caller knows before opening */
	struct gp_shape
		shape; /* wanted picture (H,W,C), ndim 0 = the dataset's own; pictures are resized / padded to it */
	bool augment;  /* training-time random crop + flip of pictures */
	const char *tokenizer; /* the folder of the tokenizer of texts; NULL: none */
	int64_t tokens;        /* a text's where the data set's text says no max=: what the model takes; 0: 128 */
	/* What the model reads where it reads rows of tokens: how many, and below which number; 0: something else. "synthetic"
	 * is texts of this form then, unless its text asks for a form. */
	int64_t row, row_values;
	const char *token_cache; /* (optional) the folder where tokens of texts are kept: text_cache.h */
	int64_t threads;         /* that tokenize, at most; 0: one for each processor */
	/* (optional) Told, on the caller's thread, how many texts of how many have become tokens. */
	void (*progress)(void *arg, uint32_t done, uint32_t of);
	void *progress_arg;
	/* (optional) its shape, mean and std count where neither the text nor `shape` says. */
	const struct gp_preparation *like;
};

#define GP_DATA_TENSORS 4    /* of a sample, beside its label */
#define GP_LABEL_NONE   (-1) /* in a list of labels: a place without one; GP_NO_LABEL of devices (batch_labels.c) */

/* One tensor of a sample, as a model reads it: "image" f32 (H,W,C), normalised; "tokens" i32 (S); "mask" i32 (S), 1 where
 * there is a token and 0 where the sample is filled up; "length" i32 (1), how many tokens there are; "types" i32 (S), 1 for
 * the second text of a pair; "positions" i32 (P), where the masked tokens stand. */
struct gp_tensor_info {
	const char *name;
	struct gp_type type; /* of one sample, without batch */
	int64_t values; /* integers are within [0, values): the size of the vocabulary; 0: unknown, or not integers */
};

/* Bytes of one sample's tensor. */
static inline size_t gp_tensor_bytes(const struct gp_tensor_info *t)
{
	return gp_shape_elements(&t->type.shape) * gp_dtype_bytes(t->type.dtype);
}

/*
 * "fashion-mnist[:DIR]", "idx:DIR", "cifar10:DIR[,size=96]", "cifar100:DIR[,size=96]", "folder:DIR[,size=128]",
 * "synthetic:shape=3x32x32,classes=10,...", "synthetic:tokens=128,vocab=1000,classes=2,...", "synthetic" (the
 * form that `options` want),
 * "pictures:size=224,classes=1000", "pictures:shape=1x28x28,..." (no images, only how to prepare some for
 * gp_dataset_from_files; shape: that of the training data, where all have one); gp_dataset_info lists the options. Texts:
 * "glue-cola:DIR", "glue-rte:DIR", "glue-sst2:DIR", "glue-stsb:DIR" and
 * "tsv:FILE,text=COLUMN[,pair=COLUMN],label=COLUMN[,regression][,val=FILE]"; with masked words to guess:
 * "text:FILE[,val=FILE]". All take limit=N (the first N samples; of a folder: classes in turn) and
 * part=I/N[,dirichlet=A][,part-seed=S] (data_part.h), those of pictures also augment=0|1, flip=0|1, mean= and std= (one number or
 * a/b/c on the scale 0..1). The form of the text: common/base/spec.h.
 *
 * Training on pictures is augmented, if the caller or the text wants it: random crop with padding (2 pixels for 28x28,
 * 4 for 32x32) and flip; pictures of a folder: a box of 8 to 100 % of the area, resized. A grey dataset fills a
 * 3-channel input. GP_USAGE: the text; GP_INVALID: the files.
 */
enum gp_status gp_dataset_open(const char *spec, enum gp_split split, const struct gp_dataset_options *options,
			       struct gp_dataset **out, struct gp_err *err);
/* Whether that dataset makes pictures of whatever shape it is asked for, and its text asks for none. Opens nothing; false
 * for a text that is wrong. */
bool gp_dataset_takes_any_shape(const char *spec);
void gp_dataset_free(struct gp_dataset *d);
/* Equal for tokenizers that make the same tokens of every text; 0: the samples are no texts. */
uint64_t gp_dataset_tokenizer(const struct gp_dataset *d);
/* Whether a sample is two texts, with a separator of the tokenizer's between them. */
bool gp_dataset_has_pairs(const struct gp_dataset *d);
uint32_t gp_dataset_samples(const struct gp_dataset *d);
int gp_dataset_classes(const struct gp_dataset *d); /* 1 of values to predict */
/* Whether labels are values to predict (regression), f32; else they are numbers of classes, i32. */
bool gp_dataset_has_values(const struct gp_dataset *d);
/* How many labels a sample has, each the number of a class or GP_LABEL_NONE: more than 0 where it has a list of them, as a
 * masked text has. 0: one number of a class, or one value. */
int gp_dataset_labels(const struct gp_dataset *d);
/* The tensors of a sample, 1 to GP_DATA_TENSORS; they live as long as the dataset. */
int gp_dataset_tensors(const struct gp_dataset *d);
const struct gp_tensor_info *gp_dataset_tensor_info(const struct gp_dataset *d);
const struct gp_shape *gp_dataset_shape(const struct gp_dataset *d);      /* of the first one */
const char *gp_dataset_class_name(const struct gp_dataset *d, int label); /* never NULL */

/*
 * The pictures (JPEG, PNG) at `path`, files or folders of them, as a dataset without labels (all 0), prepared like the
 * validation images of `like` and with its classes. Where those have one size, another is first scaled to cover it and cut
 * about the centre; where they are grey, colours become grey. `like` may be freed. GP_INVALID names what is not there.
 */
enum gp_status gp_dataset_from_files(const struct gp_dataset *like, const char *const *path, int count,
				     struct gp_dataset **out, struct gp_err *err);
struct gp_table; /* text_table.h */
/*
 * The texts of a table, whose labels are not looked at (all 0), as a dataset: tokens by the tokenizer of that folder, `max`
 * of them at most. Classes are those of `like`; NULL: there are `classes` without names, or none. The table may be freed.
 */
enum gp_status gp_dataset_from_texts(const struct gp_table *table, const char *tokenizer, int64_t max,
				     const struct gp_dataset *like, int classes, int64_t threads,
				     struct gp_dataset **out, struct gp_err *err);
/* Fills in *out, zeros where samples are no pictures. */
void gp_dataset_preparation(const struct gp_dataset *d, struct gp_preparation *out);
/* Whether samples are pictures, so that others can be prepared like them. */
bool gp_dataset_has_pictures(const struct gp_dataset *d);
/* Whether samples are pictures that are cropped and mirrored at random. */
bool gp_dataset_augments(const struct gp_dataset *d);
/* Path of a picture of such a dataset. */
const char *gp_dataset_file(const struct gp_dataset *d, uint32_t index);

struct gp_loader_spec {
	int batch;
	bool shuffle,
		drop_last; /* without drop_last a short last batch is zero-padded and `valid` says how many are real */
	uint64_t seed;
	int prefetch; /* batches decoded ahead, >= 1; at most prefetch + 1 may be out at a time */
	/* (optional) Told, on the loader's thread and before its batch is handed out, of a sample that cannot be read, which
	 * is then all zeros, of class 0. NULL: such a sample ends the loading. */
	void (*on_bad)(void *arg, uint32_t sample, const struct gp_err *why);
	void *on_bad_arg;
};

/* Owned by the loader; valid until given back. Everything behind `valid` is zero. */
struct gp_batch {
	int tensors;
	const struct gp_tensor_info *info; /* of each, as the dataset has them */
	void *data[GP_DATA_TENSORS];       /* (batch, a sample of info[i]) */
	struct gp_tensor_info label_info;  /* "label": a scalar, i32 where it is the number of a class; or i32 (P) */
	void *label;                       /* (batch, labels of a sample) */
	uint32_t *samples;                 /* (batch): number of each in the data set */
	int valid;                         /* real samples, the first ones */
	int room;                          /* samples in each of the arrays above: the loader's batch */
	uint32_t epoch;
	uint32_t index; /* batch number within the epoch */
};

/* Labels of a sample: 1, or the P of label_info. */
static inline size_t gp_batch_labels_each(const struct gp_batch *b)
{
	return (size_t)gp_shape_elements(&b->label_info.type.shape);
}

/* The labels from sample `first` on, of 4 bytes each: int32_t or float as label_info says. For a device's `loss`. */
static inline const void *gp_batch_labels(const struct gp_batch *b, size_t first)
{
	return (const uint8_t *)b->label + first * gp_tensor_bytes(&b->label_info);
}

/* (batch): the samples' classes. */
static inline const int32_t *gp_batch_classes(const struct gp_batch *b)
{
	gp_require(b->label_info.type.dtype == GP_I32);
	return b->label;
}

struct gp_loader;

/* `d` must outlive the loader and its batches; several loaders may share it. Batches come in order, epoch after epoch. */
enum gp_status gp_loader_new(struct gp_dataset *d, const struct gp_loader_spec *spec, struct gp_loader **out,
			     struct gp_err *err);
void gp_loader_free(struct gp_loader *l);
uint32_t gp_loader_batches_per_epoch(const struct gp_loader *l);
/* Starts (again) at that epoch and batch. Call before the first next, or to rewind. */
enum gp_status gp_loader_seek(struct gp_loader *l, uint32_t epoch, uint32_t index, struct gp_err *err);
/* Blocks until the next batch is ready; a read or decode error names the file. Give every batch back. Allocates nothing. */
enum gp_status gp_loader_next(struct gp_loader *l, struct gp_batch **out, struct gp_err *err);
void gp_loader_give_back(struct gp_loader *l, struct gp_batch *b);

struct gp_dataset_info {
	const char *name, *summary, *options;
};
const struct gp_dataset_info *gp_dataset_info(int index);

#endif

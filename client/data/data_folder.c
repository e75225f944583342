/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of pictures, one subfolder per class: DIR/train/CLASS/NAME.jpg and
 * DIR/val/CLASS/NAME.jpg (or DIR/test). Classes are the sorted folder names of
 * train, as in torchvision's ImageFolder. Names are kept in memory, pictures
 * are read and decoded when they are needed, on the loader's thread.
 * Test: tests/unit/test_data_folder.c
 */
#include "client/data/data_internal.h"

#include <string.h>

enum { CLASSES_MAX = 100000 };
#define FILES_MAX ((size_t)1 << 28)

struct entry {
	uint32_t label;
	uint32_t file; /* index into that class's names */
};

struct folder {
	char split[600]; /* DIR/train */
	struct gp_names classes;
	struct gp_names *files; /* per class */
	struct entry *entries;
};

static enum gp_status find_split(const char *dir, enum gp_split split, char *path, size_t size, struct gp_err *err)
{
	static const char *const names[2][2] = {{"train", "train"}, {"val", "test"}};
	if (!gp_is_folder(dir, ""))
		GP_FAIL(err, GP_INVALID, "no folder %s; give one with train/CLASS/*.jpg and val/CLASS/*.jpg", dir);
	for (int i = 0; i < 2; i++)
		if (gp_is_folder(dir, names[split][i])) {
			snprintf(path, size, "%s/%s", dir, names[split][i]);
			return GP_OK;
		}
	GP_FAIL(err, GP_INVALID, "no folder %s in %s; pictures are expected as %s/%s/CLASS/*.jpg or *.png",
		split == GP_SPLIT_TRAIN ? "train" : "val or test", dir, dir, names[split][0]);
}

static enum gp_status list_classes(struct gp_dataset *d, const char *dir, struct folder *f, struct gp_err *err)
{
	char train[600];
	GP_TRY(find_split(dir, GP_SPLIT_TRAIN, train, sizeof train, err));
	GP_TRY(gp_folder_list(train, true, &f->classes, err));
	if (f->classes.count == 0)
		GP_FAIL(err, GP_INVALID, "no class folders in %s; pictures are expected as %s/CLASS/*.jpg or *.png",
			train, train);
	if (f->classes.count > CLASSES_MAX)
		GP_FAIL(err, GP_INVALID, "%s has %zu class folders; at most %d are possible", train, f->classes.count,
			CLASSES_MAX);
	return gp_data_name_classes(d, (int)f->classes.count, (const char *const *)f->classes.name, err);
}

/* A validation folder with a class that training does not know would be counted under a wrong label. */
static enum gp_status check_known_classes(const struct folder *f, struct gp_err *err)
{
	struct gp_names here = {0};
	enum gp_status status = gp_folder_list(f->split, true, &here, err);
	for (size_t i = 0; status == GP_OK && i < here.count; i++)
		if (!gp_names_have(&f->classes, here.name[i]))
			status = gp_err_set(err, GP_INVALID, 0, __FILE__, __LINE__,
					    "class folder %s/%s has no counterpart in train; rename or remove it",
					    f->split, here.name[i]);
	gp_names_deinit(&here);
	return status;
}

static enum gp_status list_files(struct folder *f, enum gp_split split, size_t *total, struct gp_err *err)
{
	char path[GP_PICTURE_PATH];
	*total = 0;
	for (size_t c = 0; c < f->classes.count; c++) {
		const char *class = f->classes.name[c];
		if (split == GP_SPLIT_VAL && !gp_is_folder(f->split, class))
			continue; /* a class need not be in the validation set */
		snprintf(path, sizeof path, "%s/%s", f->split, class);
		GP_TRY(gp_folder_list(path, false, &f->files[c], err));
		if (f->files[c].count == 0)
			GP_FAIL(err, GP_INVALID, "no *.jpg, *.jpeg or *.png in class folder %s; add some or remove it",
				path);
		*total += f->files[c].count;
		if (*total > FILES_MAX)
			GP_FAIL(err, GP_INVALID, "%s holds more than %zu pictures", f->split, FILES_MAX);
	}
	if (*total == 0)
		GP_FAIL(err, GP_INVALID, "no pictures in %s", f->split);
	return GP_OK;
}

/* Class after class, as torchvision orders them. */
static void order_by_class(struct folder *f, struct entry *entries)
{
	for (uint32_t c = 0; c < f->classes.count; c++)
		for (uint32_t i = 0; i < f->files[c].count; i++)
			*entries++ = (struct entry){c, i};
}

/* With a limit: one of each class in turn, else the first N would all be of one class. */
static void order_in_turn(struct folder *f, struct entry *entries, size_t limit)
{
	size_t n = 0;
	for (uint32_t i = 0; n < limit; i++)
		for (uint32_t c = 0; c < f->classes.count && n < limit; c++)
			if (i < f->files[c].count)
				entries[n++] = (struct entry){c, i};
}

static enum gp_status scan(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
			   struct gp_err *err)
{
	struct folder *f = d->self;
	void *memory;
	size_t total;
	GP_TRY(find_split(spec->dir, split, f->split, sizeof f->split, err));
	GP_TRY(list_classes(d, spec->dir, f, err));
	GP_TRY(check_known_classes(f, err));
	GP_TRY(gp_alloc_array(&memory, f->classes.count, sizeof *f->files, err));
	f->files = memory;
	GP_TRY(list_files(f, split, &total, err));
	size_t samples = spec->limit && (uint64_t)spec->limit < total ? (size_t)spec->limit : total;
	GP_TRY(gp_alloc_array(&memory, samples, sizeof *f->entries, err));
	f->entries = memory;
	if (samples < total)
		order_in_turn(f, f->entries, samples);
	else
		order_by_class(f, f->entries);
	d->samples = (uint32_t)samples;
	return GP_OK;
}

static enum gp_status configure_folder(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	return gp_data_read_side(spec, &d->side, err);
}

static enum gp_status open_folder(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				  const struct gp_dataset_options *options, struct gp_err *err)
{
	static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
	(void)options;
	d->source_channels = 3;
	d->flip = true;
	gp_data_set_statistics(d, mean, std);
	GP_TRY(gp_alloc_array(&d->self, 1, sizeof(struct folder), err));
	return scan(d, spec, split, err);
}

static void close_folder(struct gp_dataset *d)
{
	struct folder *f = d->self;
	if (!f)
		return;
	for (size_t c = 0; f->files && c < f->classes.count; c++)
		gp_names_deinit(&f->files[c]);
	gp_free(f->files);
	gp_names_deinit(&f->classes);
	gp_free(f->entries);
	gp_free(f);
}

static void path_of(const struct gp_dataset *d, uint32_t index, char path[GP_PICTURE_PATH])
{
	const struct folder *f = d->self;
	const struct entry *e = &f->entries[index];
	snprintf(path, GP_PICTURE_PATH, "%s/%s/%s", f->split, f->classes.name[e->label],
		 f->files[e->label].name[e->file]);
}

static enum gp_status read_picture(const struct gp_dataset *d, uint32_t index, struct gp_data_scratch *scratch,
				   struct gp_image *out, struct gp_err *err)
{
	char path[GP_PICTURE_PATH];
	path_of(d, index, path);
	return gp_picture_read(path, scratch, out, err);
}

static int32_t label_of(const struct gp_dataset *d, uint32_t index)
{
	const struct folder *f = d->self;
	return (int32_t)f->entries[index].label;
}

const struct gp_dataset_class gp_data_folder = {
	.info = {.name = "folder",
		 .summary = "pictures (JPEG, PNG) as DIR/train/CLASS/* and DIR/val/CLASS/* (or DIR/test)",
		 .options = "DIR,size=224,limit=N,part=I/N,dirichlet=A,part-seed=0,augment=0|1,flip=0|1,mean=R/G/"
			    "B,std=R/G/B"},
	.dir = GP_SPEC_ARG_NEEDED,
	.configure = configure_folder,
	.open = open_folder,
	.close = close_folder,
	.read = read_picture,
	.label = label_of,
	.path = path_of,
};

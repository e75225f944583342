/* SPDX-License-Identifier: Apache-2.0
 *
 * CIFAR-10 and CIFAR-100 in their binary form: records of one label byte
 * (CIFAR-100: coarse, then fine; the fine one is used) and 3072 bytes of
 * planes R, G, B. Kept in memory as (N,32,32,3); with size=N each is resized
 * when its batch is made (data_transform.c).
 * Test: tests/unit/test_data_cifar.c; fuzz: fuzz_cifar.c
 */
#include "client/data/data_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE = 32, PLANE = SIDE * SIDE, PIXELS = 3 * PLANE, BATCH_FILES = 5 };
#define CIFAR_BYTES_MAX ((uint64_t)1 << 30) /* per file; the originals have 30 and 154 MB */

static void interleave(const uint8_t *planes, uint8_t *pixels)
{
	for (int i = 0; i < PLANE; i++)
		for (int c = 0; c < 3; c++)
			pixels[3 * i + c] = planes[c * PLANE + i];
}

static enum gp_status read_records(const char *path, FILE *f, int label_bytes, int classes, uint32_t count,
				   struct gp_memory_images *images, struct gp_err *err)
{
	uint8_t record[2 + PIXELS];
	size_t size = (size_t)label_bytes + PIXELS;
	for (uint32_t i = 0; i < count; i++) {
		if (fread(record, 1, size, f) != size)
			GP_FAIL(err, GP_INVALID, "%s ends too early, in record %u; fetch the file again", path, i);
		uint8_t label = record[label_bytes - 1];
		if (label >= classes)
			GP_FAIL(err, GP_INVALID, "%s: label %u of record %u is out of range (0..%d)", path, label, i,
				classes - 1);
		images->labels[images->count] = label;
		interleave(record + label_bytes, images->pixels + (size_t)images->count * PIXELS);
		images->count++;
	}
	return GP_OK;
}

static enum gp_status count_records(const char *path, FILE *f, int label_bytes, uint32_t *count, struct gp_err *err)
{
	struct stat st;
	uint64_t record = (uint64_t)label_bytes + PIXELS;
	if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode))
		GP_FAIL(err, GP_INVALID, "%s is not a regular file", path);
	uint64_t size = (uint64_t)st.st_size;
	if (size == 0)
		GP_FAIL(err, GP_INVALID, "%s is empty; fetch the file again", path);
	if (size % record)
		GP_FAIL(err, GP_INVALID, "%s has %llu bytes, not a multiple of %llu: truncated or not a CIFAR-%s file",
			path, (unsigned long long)size, (unsigned long long)record, label_bytes == 1 ? "10" : "100");
	if (size > CIFAR_BYTES_MAX)
		GP_FAIL(err, GP_INVALID, "%s has %llu bytes; at most %llu are read", path, (unsigned long long)size,
			(unsigned long long)CIFAR_BYTES_MAX);
	*count = (uint32_t)(size / record);
	return GP_OK;
}

static enum gp_status grow(struct gp_memory_images *images, uint32_t more, struct gp_err *err)
{
	size_t total = (size_t)images->count + more;
	uint8_t *pixels = gp_realloc(images->pixels, total, PIXELS);
	if (pixels)
		images->pixels = pixels;
	uint8_t *labels = pixels ? gp_realloc(images->labels, total, 1) : NULL;
	if (!labels)
		GP_FAIL(err, GP_NOMEM, "out of memory for %zu images", total);
	images->labels = labels;
	return GP_OK;
}

enum gp_status gp_cifar_append(const char *path, int label_bytes, int classes, uint32_t limit,
			       struct gp_memory_images *images, struct gp_err *err)
{
	uint32_t count = 0;
	FILE *f = fopen(path, "rb");
	if (!f)
		return gp_err_set(err, GP_INVALID, errno, __FILE__, __LINE__, "cannot open %s: %s", path,
				  strerror(errno));
	enum gp_status status = count_records(path, f, label_bytes, &count, err);
	if (status == GP_OK) {
		if (limit && limit - images->count < count)
			count = limit - images->count;
		status = grow(images, count, err);
	}
	if (status == GP_OK)
		status = read_records(path, f, label_bytes, classes, count, images, err);
	fclose(f);
	return status;
}

static enum gp_status configure_cifar(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	return gp_data_read_side(spec, &d->side, err);
}

static enum gp_status new_source(struct gp_dataset *d, struct gp_err *err)
{
	d->source_height = d->source_width = SIDE;
	d->source_channels = 3;
	d->flip = true;
	return gp_alloc_array(&d->self, 1, sizeof(struct gp_memory_images), err);
}

static bool exists(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0;
}

static enum gp_status read_batches(struct gp_dataset *d, const struct gp_data_spec *spec, struct gp_err *err)
{
	char path[600];
	struct gp_memory_images *images = d->self;
	int found = 0;
	for (int i = 1; i <= BATCH_FILES; i++) {
		snprintf(path, sizeof path, "%s/data_batch_%d.bin", spec->dir, i);
		if (!exists(path))
			continue;
		found++;
		if (!spec->limit || images->count < spec->limit)
			GP_TRY(gp_cifar_append(path, 1, 10, (uint32_t)spec->limit, images, err));
	}
	if (!found)
		GP_FAIL(err, GP_INVALID,
			"no data_batch_1.bin to data_batch_5.bin in %s; give the folder cifar-10-batches-bin",
			spec->dir);
	return GP_OK;
}

static enum gp_status open_cifar10(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				   const struct gp_dataset_options *options, struct gp_err *err)
{
	static const char *const names[] = {"airplane", "automobile", "bird",  "cat",  "deer",
					    "dog",      "frog",       "horse", "ship", "truck"};
	static const float mean[3] = {0.4914f, 0.4822f, 0.4465f}, std[3] = {0.2470f, 0.2435f, 0.2616f};
	char path[600];
	(void)options;
	GP_TRY(new_source(d, err));
	gp_data_set_statistics(d, mean, std);
	GP_TRY(gp_data_name_classes(d, 10, names, err));
	struct gp_memory_images *images = d->self;
	if (split == GP_SPLIT_TRAIN) {
		GP_TRY(read_batches(d, spec, err));
	} else {
		snprintf(path, sizeof path, "%s/test_batch.bin", spec->dir);
		GP_TRY(gp_cifar_append(path, 1, 10, (uint32_t)spec->limit, images, err));
	}
	d->samples = images->count;
	return GP_OK;
}

/* fine_label_names.txt lies beside the data; without it classes are numbered. */
static void read_class_names(struct gp_dataset *d, const char *dir)
{
	char path[600], line[GP_CLASS_NAME];
	snprintf(path, sizeof path, "%s/fine_label_names.txt", dir);
	FILE *f = fopen(path, "r");
	if (!f)
		return;
	for (int i = 0; i < d->classes && fgets(line, sizeof line, f); i++) {
		line[strcspn(line, "\r\n")] = '\0';
		if (line[0])
			strcpy(d->class_names[i], line);
	}
	fclose(f);
}

static enum gp_status open_cifar100(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				    const struct gp_dataset_options *options, struct gp_err *err)
{
	static const float mean[3] = {0.5071f, 0.4865f, 0.4409f}, std[3] = {0.2673f, 0.2564f, 0.2762f};
	char path[600];
	(void)options;
	GP_TRY(new_source(d, err));
	gp_data_set_statistics(d, mean, std);
	GP_TRY(gp_data_name_classes(d, 100, NULL, err));
	read_class_names(d, spec->dir);
	struct gp_memory_images *images = d->self;
	snprintf(path, sizeof path, "%s/%s.bin", spec->dir, split == GP_SPLIT_TRAIN ? "train" : "test");
	GP_TRY(gp_cifar_append(path, 2, 100, (uint32_t)spec->limit, images, err));
	d->samples = images->count;
	return GP_OK;
}

/* Every record of a file, into memory that is freed again. */
static enum gp_status check_records(const char *path, int label_bytes, int classes, struct gp_err *err)
{
	struct gp_memory_images images = {0};
	const enum gp_status status = gp_cifar_append(path, label_bytes, classes, 0, &images, err);
	gp_free(images.pixels);
	gp_free(images.labels);
	return status;
}

/* Training files that are not there are left alone, as in read_batches, unless all are missing: then the first one is. */
static enum gp_status check_cifar10(const struct gp_data_spec *spec, enum gp_split split, int file,
				    char path[GP_PICTURE_PATH], struct gp_err *err)
{
	const bool train = split == GP_SPLIT_TRAIN;
	int at = -1;
	for (int i = 1; train && i <= BATCH_FILES && at < file; i++) {
		snprintf(path, GP_PICTURE_PATH, "%s/data_batch_%d.bin", spec->dir, i);
		at += exists(path);
	}
	if (train && at < 0 && file == 0)
		snprintf(path, GP_PICTURE_PATH, "%s/data_batch_1.bin", spec->dir);
	else if (!train && file == 0)
		snprintf(path, GP_PICTURE_PATH, "%s/test_batch.bin", spec->dir);
	else if (!train || at < file)
		path[0] = '\0';
	return path[0] ? check_records(path, 1, 10, err) : GP_OK;
}

static enum gp_status check_cifar100(const struct gp_data_spec *spec, enum gp_split split, int file,
				     char path[GP_PICTURE_PATH], struct gp_err *err)
{
	if (file > 0)
		return GP_OK;
	snprintf(path, GP_PICTURE_PATH, "%s/%s.bin", spec->dir, split == GP_SPLIT_TRAIN ? "train" : "test");
	return check_records(path, 2, 100, err);
}

const struct gp_dataset_class gp_data_cifar10 = {
	.info = {.name = "cifar10",
		 .summary = "CIFAR-10, binary version: data_batch_1.bin .. data_batch_5.bin (those there are), "
			    "test_batch.bin",
		 .options = "DIR,size=32,limit=N,part=I/N,dirichlet=A,part-seed=0,augment=0|1,flip=0|1,mean=R/G/"
			    "B,std=R/G/B"},
	.dir = GP_SPEC_ARG_NEEDED,
	.configure = configure_cifar,
	.open = open_cifar10,
	.close = gp_memory_images_close,
	.read = gp_memory_images_read,
	.label = gp_memory_images_label,
	.check_file = check_cifar10,
};

const struct gp_dataset_class gp_data_cifar100 = {
	.info = {.name = "cifar100",
		 .summary = "CIFAR-100, binary version: train.bin, test.bin; the 100 fine classes",
		 .options = "DIR,size=32,limit=N,part=I/N,dirichlet=A,part-seed=0,augment=0|1,flip=0|1,mean=R/G/"
			    "B,std=R/G/B"},
	.dir = GP_SPEC_ARG_NEEDED,
	.configure = configure_cifar,
	.open = open_cifar100,
	.close = gp_memory_images_close,
	.read = gp_memory_images_read,
	.label = gp_memory_images_label,
	.check_file = check_cifar100,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * IDX files (MNIST, Fashion-MNIST and their kin), plain or gzip: big-endian
 * magic 0x00000803 (images: count, height, width) or 0x00000801 (labels:
 * count), then bytes. Kept in memory as they are.
 * Test: tests/unit/test_data_idx.c; fuzz: fuzz_idx.c
 */
#include "client/data/data_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { IMAGE_MAGIC = 0x00000803, LABEL_MAGIC = 0x00000801, SIDE_MAX = 4096, IDX_CLASSES_MAX = 256 };
/* Deflate cannot expand further, so a header that claims more than this is wrong before a byte is allocated. */
enum { DEFLATE_RATIO_MAX = 1032 };
#define IDX_BYTES_MAX ((uint64_t)4 << 30)

struct idx_file {
	const char *path;
	gzFile gz;
	uint64_t content_max; /* bytes that can be in it at most */
};

static const char fashion_mnist_dir[] = "/usr/share/datasets/fashion-mnist"; /* of the Debian package */

static enum gp_status open_failed(const char *path, struct gp_err *err)
{
	return gp_err_set(err, GP_INVALID, errno, __FILE__, __LINE__, "cannot open %s: %s", path, strerror(errno));
}

static enum gp_status idx_open(const char *path, struct idx_file *f, struct gp_err *err)
{
	struct stat st;
	if (stat(path, &st) != 0)
		return open_failed(path, err);
	if (!S_ISREG(st.st_mode))
		GP_FAIL(err, GP_INVALID, "%s is not a regular file", path);
	gzFile gz = gzopen(path, "rb");
	if (!gz)
		return open_failed(path, err);
	gzbuffer(gz, 1 << 17);
	uint64_t size = (uint64_t)st.st_size;
	*f = (struct idx_file){.path = path, .gz = gz, .content_max = gzdirect(gz) ? size : size * DEFLATE_RATIO_MAX};
	return GP_OK;
}

static enum gp_status idx_damaged(const struct idx_file *f, struct gp_err *err)
{
	int code;
	const char *text = gzerror(f->gz, &code);
	size_t prefix = strlen(f->path); /* zlib says "PATH: what" */
	if (strncmp(text, f->path, prefix) == 0 && strncmp(text + prefix, ": ", 2) == 0)
		text += prefix + 2;
	if (code != Z_OK && code != Z_BUF_ERROR)
		GP_FAIL(err, GP_INVALID, "%s: damaged gzip data (%s); fetch the file again", f->path, text);
	GP_FAIL(err, GP_INVALID, "%s ends too early; fetch the file again", f->path);
}

static enum gp_status idx_read(const struct idx_file *f, uint8_t *to, uint64_t size, struct gp_err *err)
{
	while (size) {
		unsigned part = size < 1u << 30 ? (unsigned)size : 1u << 30;
		int n = gzread(f->gz, to, part);
		if (n <= 0)
			return idx_damaged(f, err);
		to += n;
		size -= (uint64_t)n;
	}
	return GP_OK;
}

/* Reading past the end also makes zlib check the file's checksum. */
static enum gp_status idx_expect_end(const struct idx_file *f, struct gp_err *err)
{
	uint8_t byte;
	int n = gzread(f->gz, &byte, 1);
	if (n < 0)
		return idx_damaged(f, err);
	if (n > 0)
		GP_FAIL(err, GP_INVALID, "%s is longer than its header says; is it an IDX file?", f->path);
	return GP_OK;
}

static uint32_t big_endian(const uint8_t *b)
{
	return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static enum gp_status idx_header(const struct idx_file *f, uint32_t magic, uint32_t *dims, int ndim, struct gp_err *err)
{
	uint8_t bytes[16];
	GP_TRY(idx_read(f, bytes, 4, err));
	uint32_t found = big_endian(bytes);
	if (found != magic)
		GP_FAIL(err, GP_INVALID, "%s: magic number 0x%08x instead of 0x%08x; it is not an IDX file of %s",
			f->path, found, magic, magic == IMAGE_MAGIC ? "images" : "labels");
	GP_TRY(idx_read(f, bytes, 4 * (uint64_t)ndim, err));
	for (int i = 0; i < ndim; i++)
		dims[i] = big_endian(bytes + 4 * i);
	return GP_OK;
}

/* `bytes` declared by the header against what the file can hold. */
static enum gp_status check_declared(const struct idx_file *f, uint64_t bytes, struct gp_err *err)
{
	if (bytes > IDX_BYTES_MAX)
		GP_FAIL(err, GP_INVALID, "%s: its header declares %llu bytes; at most %llu are read", f->path,
			(unsigned long long)bytes, (unsigned long long)IDX_BYTES_MAX);
	if (bytes > f->content_max)
		GP_FAIL(err, GP_INVALID, "%s ends too early: its header declares %llu bytes; fetch the file again",
			f->path, (unsigned long long)bytes);
	return GP_OK;
}

static enum gp_status check_image_header(const struct idx_file *f, const uint32_t dims[3], struct gp_err *err)
{
	if (dims[0] == 0)
		GP_FAIL(err, GP_INVALID, "%s holds no images", f->path);
	if (dims[1] < 1 || dims[2] < 1 || dims[1] > SIDE_MAX || dims[2] > SIDE_MAX)
		GP_FAIL(err, GP_INVALID, "%s: images of %u x %u pixels; 1 to %d a side are possible", f->path, dims[1],
			dims[2], SIDE_MAX);
	return check_declared(f, (uint64_t)dims[0] * dims[1] * dims[2], err);
}

static enum gp_status read_images(const struct idx_file *f, uint32_t limit, uint8_t **pixels, uint32_t dims[3],
				  uint32_t *count, struct gp_err *err)
{
	void *memory;
	GP_TRY(idx_header(f, IMAGE_MAGIC, dims, 3, err));
	GP_TRY(check_image_header(f, dims, err));
	uint32_t n = limit && limit < dims[0] ? limit : dims[0];
	uint64_t bytes = (uint64_t)n * dims[1] * dims[2];
	GP_TRY(gp_alloc_array(&memory, bytes, 1, err));
	enum gp_status status = idx_read(f, memory, bytes, err);
	if (status == GP_OK && n == dims[0])
		status = idx_expect_end(f, err);
	if (status != GP_OK) {
		gp_free(memory);
		return status;
	}
	*pixels = memory;
	*count = n;
	return GP_OK;
}

enum gp_status gp_idx_read_images(const char *path, uint32_t limit, uint8_t **pixels, uint32_t *declared,
				  uint32_t *count, int *height, int *width, struct gp_err *err)
{
	struct idx_file f;
	uint32_t dims[3];
	GP_TRY(idx_open(path, &f, err));
	enum gp_status status = read_images(&f, limit, pixels, dims, count, err);
	gzclose(f.gz);
	if (status != GP_OK)
		return status;
	*declared = dims[0];
	*height = (int)dims[1];
	*width = (int)dims[2];
	return GP_OK;
}

static enum gp_status read_labels(const struct idx_file *f, uint8_t **labels, uint32_t *count, struct gp_err *err)
{
	void *memory;
	uint32_t n;
	GP_TRY(idx_header(f, LABEL_MAGIC, &n, 1, err));
	GP_TRY(check_declared(f, n, err));
	GP_TRY(gp_alloc_array(&memory, n, 1, err));
	enum gp_status status = idx_read(f, memory, n, err);
	if (status == GP_OK)
		status = idx_expect_end(f, err);
	if (status != GP_OK) {
		gp_free(memory);
		return status;
	}
	*labels = memory;
	*count = n;
	return GP_OK;
}

enum gp_status gp_idx_read_labels(const char *path, uint8_t **labels, uint32_t *count, struct gp_err *err)
{
	struct idx_file f;
	GP_TRY(idx_open(path, &f, err));
	enum gp_status status = read_labels(&f, labels, count, err);
	gzclose(f.gz);
	return status;
}

/* DIR/NAME or DIR/NAME.gz, whichever is there. */
static enum gp_status find_file(const char *dir, const char *name, bool packaged, char *path, size_t size,
				struct gp_err *err)
{
	struct stat st;
	snprintf(path, size, "%s/%s", dir, name);
	if (stat(path, &st) == 0)
		return GP_OK;
	snprintf(path, size, "%s/%s.gz", dir, name);
	if (stat(path, &st) == 0)
		return GP_OK;
	if (packaged)
		GP_FAIL(err, GP_INVALID,
			"no %s[.gz] in %s: install the package dataset-fashion-mnist or give the folder: "
			"fashion-mnist:DIR",
			name, dir);
	if (stat(dir, &st) != 0)
		return open_failed(dir, err);
	GP_FAIL(err, GP_INVALID, "no %s[.gz] in %s; give the folder that holds the four IDX files", name, dir);
}

static enum gp_status largest_label(const char *dir, const char *name, int *largest, struct gp_err *err)
{
	char path[600];
	uint8_t *labels;
	uint32_t count;
	GP_TRY(find_file(dir, name, false, path, sizeof path, err));
	GP_TRY(gp_idx_read_labels(path, &labels, &count, err));
	for (uint32_t i = 0; i < count; i++)
		if (labels[i] > *largest)
			*largest = labels[i];
	gp_free(labels);
	return GP_OK;
}

/* The number of classes comes from both label files, so that both splits agree on it; one of them may be missing. */
static enum gp_status count_classes(struct gp_dataset *d, const char *dir, struct gp_err *err)
{
	static const char *const names[] = {"train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"};
	struct gp_err ignored;
	int largest = 1;
	for (int i = 0; i < 2; i++)
		largest_label(dir, names[i], &largest, &ignored);
	return gp_data_name_classes(d, largest + 1, NULL, err);
}

static enum gp_status check_labels(const struct gp_dataset *d, const char *path, const uint8_t *labels, uint32_t count,
				   struct gp_err *err)
{
	for (uint32_t i = 0; i < count; i++)
		if (labels[i] >= d->classes)
			GP_FAIL(err, GP_INVALID, "%s: label %u of sample %u is out of range (0..%d)", path, labels[i],
				i, d->classes - 1);
	return GP_OK;
}

static enum gp_status open_split(struct gp_dataset *d, const char *dir, bool packaged, const char *prefix,
				 uint32_t limit, struct gp_err *err)
{
	char images_path[600], labels_path[600], name[64];
	uint32_t declared, labels;
	struct gp_memory_images *images = d->self;
	snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
	GP_TRY(find_file(dir, name, packaged, images_path, sizeof images_path, err));
	snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
	GP_TRY(find_file(dir, name, packaged, labels_path, sizeof labels_path, err));
	GP_TRY(gp_idx_read_images(images_path, limit, &images->pixels, &declared, &images->count, &d->source_height,
				  &d->source_width, err));
	GP_TRY(gp_idx_read_labels(labels_path, &images->labels, &labels, err));
	if (labels != declared)
		GP_FAIL(err, GP_INVALID, "%s holds %u images, but %s holds %u labels; they do not belong together",
			images_path, declared, labels_path, labels);
	d->samples = images->count;
	d->source_channels = 1;
	return check_labels(d, labels_path, images->labels, images->count, err);
}

static enum gp_status new_source(struct gp_dataset *d, struct gp_err *err)
{
	static const float mean[3] = {0.2860f, 0.2860f, 0.2860f}, std[3] = {0.3530f, 0.3530f, 0.3530f};
	gp_data_set_statistics(d, mean, std);
	d->pad_when_near = true;
	return gp_alloc_array(&d->self, 1, sizeof(struct gp_memory_images), err);
}

static const char *split_prefix(enum gp_split split)
{
	return split == GP_SPLIT_TRAIN ? "train" : "t10k";
}

static enum gp_status open_idx(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
			       const struct gp_dataset_options *options, struct gp_err *err)
{
	(void)options;
	GP_TRY(new_source(d, err));
	GP_TRY(count_classes(d, spec->dir, err));
	return open_split(d, spec->dir, false, split_prefix(split), (uint32_t)spec->limit, err);
}

static enum gp_status open_fashion_mnist(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
					 const struct gp_dataset_options *options, struct gp_err *err)
{
	static const char *const names[] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
					    "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
	(void)options;
	bool packaged = !spec->dir[0];
	GP_TRY(new_source(d, err));
	GP_TRY(gp_data_name_classes(d, 10, names, err));
	d->flip = true;
	return open_split(d, packaged ? fashion_mnist_dir : spec->dir, packaged, split_prefix(split),
			  (uint32_t)spec->limit, err);
}

/* Pixels or labels, whichever the name says. */
static enum gp_status check_content(const char *path, bool images, struct gp_err *err)
{
	uint8_t *bytes = NULL;
	uint32_t declared, count;
	int height, width;
	const enum gp_status status =
		images ? gp_idx_read_images(path, 0, &bytes, &declared, &count, &height, &width, err)
		       : gp_idx_read_labels(path, &bytes, &count, err);
	if (status == GP_OK)
		gp_free(bytes);
	return status;
}

static enum gp_status check_idx(const struct gp_data_spec *spec, enum gp_split split, int file,
				char path[GP_PICTURE_PATH], struct gp_err *err)
{
	char name[64];
	if (file > 1)
		return GP_OK;
	const bool packaged = !spec->dir[0];
	const char *const dir = packaged ? fashion_mnist_dir : spec->dir;
	snprintf(name, sizeof name, "%s-%s-ubyte", split_prefix(split), file == 0 ? "images-idx3" : "labels-idx1");
	snprintf(path, GP_PICTURE_PATH, "%s/%s", dir, name);
	GP_TRY(find_file(dir, name, packaged, path, GP_PICTURE_PATH, err));
	return check_content(path, file == 0, err);
}

/* Digits and letters change their meaning when mirrored, so plain idx does not flip unless told to. */
const struct gp_dataset_class gp_data_idx = {
	.info = {.name = "idx",
		 .summary = "IDX files as of MNIST (train-images-idx3-ubyte[.gz] and so on)",
		 .options = "DIR,limit=N,part=I/N,dirichlet=A,part-seed=0,augment=0|1,flip=0|1,mean=0.286,std=0.353"},
	.dir = GP_SPEC_ARG_NEEDED,
	.open = open_idx,
	.close = gp_memory_images_close,
	.read = gp_memory_images_read,
	.label = gp_memory_images_label,
	.check_file = check_idx,
};

const struct gp_dataset_class gp_data_fashion_mnist = {
	.info = {.name = "fashion-mnist",
		 .summary = "Fashion-MNIST, 28x28 grey, 10 classes; the folder of package dataset-fashion-mnist or DIR",
		 .options = "[DIR],limit=N,part=I/N,dirichlet=A,part-seed=0,augment=0|1,flip=0|1,mean=0.286,std=0.353"},
	.dir = GP_SPEC_ARG_OPTIONAL,
	.open = open_fashion_mnist,
	.close = gp_memory_images_close,
	.read = gp_memory_images_read,
	.label = gp_memory_images_label,
	.check_file = check_idx,
};

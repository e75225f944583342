/* SPDX-License-Identifier: Apache-2.0
 *
 * export_pictures DATA DIR: writes the validation images of a dataset to DIR as
 * NNNN-LABEL.png, and the first one as first.jpg, for e2e/eval_infer.sh.
 */
#include <png.h>
#include <string.h>
#include <turbojpeg.h>

#include "client/data/data_internal.h"

static bool write_png(const char *path, const struct gp_image *image)
{
	png_image png = {.version = PNG_IMAGE_VERSION,
			 .width = (png_uint_32)image->width,
			 .height = (png_uint_32)image->height,
			 .format = image->channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
	return png_image_write_to_file(&png, path, 0, image->pixels, (png_int_32)image->stride, NULL);
}

static bool write_jpeg(const char *path, const struct gp_image *image)
{
	bool grey = image->channels == 1;
	unsigned char *bytes = NULL;
	unsigned long size = 0;
	tjhandle jpeg = tjInitCompress();
	FILE *f = fopen(path, "wb");
	bool good =
		jpeg && f &&
		tjCompress2(jpeg, image->pixels, image->width, (int)image->stride, image->height,
			    grey ? TJPF_GRAY : TJPF_RGB, &bytes, &size, grey ? TJSAMP_GRAY : TJSAMP_444, 95, 0) == 0 &&
		fwrite(bytes, 1, size, f) == size;
	if (f && fclose(f) != 0)
		good = false;
	tjFree(bytes);
	if (jpeg)
		tjDestroy(jpeg);
	return good;
}

static enum gp_status export_one(const struct gp_dataset *d, uint32_t index, const char *dir,
				 struct gp_data_scratch *scratch, struct gp_err *err)
{
	struct gp_image image;
	char path[1024];
	GP_TRY(d->class->read(d, index, scratch, &image, err));
	snprintf(path, sizeof path, "%s/%04u-%d.png", dir, index, (int)d->class->label(d, index));
	if (!write_png(path, &image))
		GP_FAIL(err, GP_IO, "cannot write %.200s", path);
	snprintf(path, sizeof path, "%s/first.jpg", dir);
	if (index == 0 && !write_jpeg(path, &image))
		GP_FAIL(err, GP_IO, "cannot write %.200s", path);
	return GP_OK;
}

int main(int argc, char **argv)
{
	struct gp_dataset *d = NULL;
	struct gp_dataset_options options = {0};
	struct gp_data_scratch scratch = {0};
	struct gp_err err = {0};
	if (argc != 3)
		return fprintf(stderr, "usage: export_pictures DATA DIR\n"), 2;
	enum gp_status status = gp_dataset_open(argv[1], GP_SPLIT_VAL, &options, &d, &err);
	for (uint32_t i = 0; status == GP_OK && i < gp_dataset_samples(d); i++)
		status = export_one(d, i, argv[2], &scratch, &err);
	if (status != GP_OK)
		gp_err_print(&err, "export_pictures");
	gp_data_scratch_deinit(&scratch);
	gp_dataset_free(d);
	return gp_status_exit(status);
}

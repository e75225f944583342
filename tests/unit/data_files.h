/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of datasets: a temporary folder, small files in it, and
 * opening with an expected message.
 */
#ifndef DATA_FILES_H
#define DATA_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <zlib.h>

#include "client/data/data_internal.h"

static char data_dir[64];

static int make_data_dir(void **state)
{
	(void)state;
	strcpy(data_dir, "/tmp/gpsplit-test-XXXXXX");
	return mkdtemp(data_dir) ? 0 : -1;
}

static int remove_data_dir(void **state)
{
	char command[128];
	(void)state;
	snprintf(command, sizeof command, "rm -rf '%s'", data_dir);
	return system(command);
}

__attribute__((unused)) static const char *data_path(const char *name)
{
	static char path[256];
	snprintf(path, sizeof path, "%s/%s", data_dir, name);
	return path;
}

__attribute__((unused)) static void write_data_file(const char *name, const void *bytes, size_t size)
{
	FILE *f = fopen(data_path(name), "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, size, f), size);
	assert_int_equal(fclose(f), 0);
}

__attribute__((unused)) static void write_data_file_gz(const char *name, const void *bytes, unsigned size)
{
	gzFile f = gzopen(data_path(name), "wb9");
	assert_non_null(f);
	assert_int_equal(gzwrite(f, bytes, size), size);
	assert_int_equal(gzclose(f), Z_OK);
}

/* "cifar10:" + folder + rest */
__attribute__((unused)) static const char *data_spec(const char *name, const char *rest)
{
	static char spec[256];
	snprintf(spec, sizeof spec, "%s:%s%s", name, data_dir, rest);
	return spec;
}

__attribute__((unused)) static struct gp_dataset *open_data(const char *spec, enum gp_split split,
							    const struct gp_dataset_options *options)
{
	struct gp_dataset *d = NULL;
	struct gp_err err = {0};
	enum gp_status status = gp_dataset_open(spec, split, options, &d, &err);
	if (status != GP_OK)
		fail_msg("%s: %s", spec, err.text);
	return d;
}

/* The folder's name in a message is replaced by DIR before comparing. */
__attribute__((unused)) static void assert_message(const struct gp_err *err, const char *wanted)
{
	char text[GP_ERR_TEXT];
	size_t n = 0, len = strlen(data_dir);
	for (const char *c = err->text; *c; c++) {
		if (len && strncmp(c, data_dir, len) == 0) {
			memcpy(text + n, "DIR", 3);
			n += 3;
			c += len - 1;
		} else {
			text[n++] = *c;
		}
	}
	text[n] = '\0';
	assert_string_equal(text, wanted);
}

__attribute__((unused)) static void assert_open_fails(const char *spec, enum gp_split split, enum gp_status code,
						      const char *wanted)
{
	struct gp_dataset *d = NULL;
	struct gp_dataset_options options = {0};
	struct gp_err err = {0};
	assert_int_equal(gp_dataset_open(spec, split, &options, &d, &err), code);
	assert_null(d);
	assert_message(&err, wanted);
}

/* The picture of sample `index` as the loader would deliver it in epoch `epoch` under seed 1. */
__attribute__((unused)) static int32_t load_sample(const struct gp_dataset *d, uint32_t epoch, uint32_t index,
						   float *image)
{
	struct gp_data_scratch scratch = {0};
	struct gp_draw draw = {1, epoch, index};
	struct gp_err err = {0};
	int32_t label = -1;
	if (gp_dataset_load(d, &draw, &scratch, (void *[]){image}, &label, &err) != GP_OK)
		fail_msg("%s", err.text);
	gp_data_scratch_deinit(&scratch);
	return label;
}

#endif

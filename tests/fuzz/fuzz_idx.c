/* SPDX-License-Identifier: Apache-2.0
 *
 * Any file, plain or gzip, gives the images or labels that its header declares,
 * or an error. Input: a byte (odd: labels; bit 1: with a limit), then the file.
 */
#include "tests/fuzz/memory_file.h"

#include "client/data/data_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool what)
{
	if (!what)
		abort();
}

/* Touches every byte, for the sanitizer. */
static void read_all(const uint8_t *bytes, size_t size)
{
	volatile uint8_t sum = 0;
	for (size_t i = 0; i < size; i++)
		sum = (uint8_t)(sum + bytes[i]);
}

static void try_images(const char *path, uint32_t limit)
{
	uint8_t *pixels = NULL;
	uint32_t declared = 0, count = 0;
	int height = 0, width = 0;
	struct gp_err err = {0};
	enum gp_status status = gp_idx_read_images(path, limit, &pixels, &declared, &count, &height, &width, &err);
	must((status == GP_OK) == (pixels != NULL));
	must(status == GP_OK || err.text[0]);
	if (status == GP_OK) {
		must(count >= 1 && count <= declared && (!limit || count <= limit));
		read_all(pixels, (size_t)count * (size_t)height * (size_t)width);
	}
	gp_free(pixels);
}

static void try_labels(const char *path)
{
	uint8_t *labels = NULL;
	uint32_t count = 0;
	struct gp_err err = {0};
	enum gp_status status = gp_idx_read_labels(path, &labels, &count, &err);
	must((status == GP_OK) == (labels != NULL));
	if (status == GP_OK)
		read_all(labels, count);
	gp_free(labels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[32];
	if (size < 1)
		return 0;
	int fd = memory_file(data + 1, size - 1, path);
	if (data[0] & 1)
		try_labels(path);
	else
		try_images(path, data[0] & 2 ? 2 : 0);
	close(fd);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Any file gives whole records with labels in range, or an error. Input: a byte
 * (odd: CIFAR-100; bit 1: with a limit), then the file.
 */
#include "tests/fuzz/memory_file.h"

#include "client/data/data_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[32];
	if (size < 1)
		return 0;
	int label_bytes = data[0] & 1 ? 2 : 1, classes = data[0] & 1 ? 100 : 10;
	uint32_t limit = data[0] & 2 ? 1 : 0;
	struct gp_memory_images images = {0};
	struct gp_err err = {0};
	int fd = memory_file(data + 1, size - 1, path);
	enum gp_status status = gp_cifar_append(path, label_bytes, classes, limit, &images, &err);
	if (status == GP_OK ? images.count < 1 || (limit && images.count > limit) : !err.text[0])
		abort();
	for (uint32_t i = 0; i < images.count; i++)
		if (images.labels[i] >= classes)
			abort();
	gp_free(images.pixels);
	gp_free(images.labels);
	close(fd);
	return 0;
}

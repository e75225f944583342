/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any file gives as many names as the model has outputs, or one line
 * of error and nothing left allocated (client/engine/labels.h). Input: one byte, the
 * outputs; then the file.
 */
#include "tests/fuzz/memory_file.h"

#include <string.h>

#include "client/engine/labels.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gp_labels l;
	struct gp_err err = {0};
	char path[32];
	if (size < 1)
		return 0;
	const int fd = memory_file(data + 1, size - 1, path), outputs = 1 + data[0];
	if (gp_labels_read(&l, path, outputs, &err) == GP_OK) {
		gp_require(l.count == outputs);
		for (int i = 0; i < outputs; i++)
			gp_require(l.name[i] && strlen(l.name[i]) <= 256);
	} else {
		gp_require(err.code == GP_INVALID && err.text[0] && !l.name && l.count == 0);
	}
	gp_labels_deinit(&l);
	close(fd);
	return 0;
}

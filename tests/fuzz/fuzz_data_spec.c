/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text behind a dataset's name is a spec with its values in range, or a usage
 * error of one line.
 */
#include <stdlib.h>
#include <string.h>

#include "client/data/data_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct gp_dataset_class *const classes[] = {&gp_data_fashion_mnist, &gp_data_folder,
								 &gp_data_synthetic};
	for (int i = 0; i < 3; i++) {
		struct gp_dataset d = {.class = classes[i]};
		struct gp_data_spec spec;
		struct gp_spec s;
		struct gp_err err = {0};
		char *text = malloc(size + 2);
		gp_require(text);
		snprintf(text, 2, ":");
		memcpy(text + 1, data, size);
		gp_spec_begin(&s, (struct gp_text){text, size + 1});
		const enum gp_status status = gp_data_spec_read(&d, &s, &spec, &err);
		gp_require(status == GP_OK || (status == GP_USAGE && err.text[0] && !strpbrk(err.text, "\r\n\033")));
		if (status == GP_OK)
			gp_require(spec.limit >= 0 && spec.mean_count <= 3 && d.side >= 0 && d.side <= 4096 &&
				   d.classes >= 0);
		d.class->close(&d);
		free(text);
	}
	return 0;
}

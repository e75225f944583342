/* SPDX-License-Identifier: Apache-2.0
 *
 * Any dataset text is a spec with its values in range, or a usage error.
 */
#include <stdlib.h>
#include <string.h>

#include "client/data/data_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct gp_dataset_class *const classes[] = {&gp_data_fashion_mnist, &gp_data_folder,
								 &gp_data_synthetic};
	char *text = strndup((const char *)data, size);
	for (int i = 0; i < 3; i++) {
		struct gp_data_spec s;
		struct gp_err err = {0};
		enum gp_status status = gp_data_spec_parse(classes[i], text, &s, &err);
		if (status != GP_OK ? status != GP_USAGE || !err.text[0]
				    : s.limit < 0 || s.mean_count > 3 || s.noise < 0 || s.size < 0 || s.size > 4096)
			abort();
	}
	free(text);
	return 0;
}

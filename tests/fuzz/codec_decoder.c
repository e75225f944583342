/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of the codec that FUZZ_CODEC names, with each of its examples
 * (info.examples in common/codec/codec.h). CMake builds this file once for each
 * codec of common/codec/codec_table.h, as fuzz_codec_NAME. Property and input:
 * codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const *examples(int *count)
{
	int i = 0;
	while (gp_codec_info(i) && strcmp(gp_codec_info(i)->name, FUZZ_CODEC) != 0)
		i++;
	gp_require(gp_codec_info(i));
	const char *const *specs = gp_codec_info(i)->examples;
	for (*count = 0; specs[*count];)
		(*count)++;
	return specs;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const *specs;
	static int count;
	if (!specs)
		specs = examples(&count);
	return codec_fuzz(specs, count, data, size);
}

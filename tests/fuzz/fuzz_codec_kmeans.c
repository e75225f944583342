/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of kmeans. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"kmeans:bits=4", "kmeans:bits=1", "kmeans:bits=8"};
	return codec_fuzz(specs, 3, data, size);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of zstd, alone and in chains. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"zstd", "uniform:bits=4+zstd", "fp16+zstd:level=3"};
	return codec_fuzz(specs, 3, data, size);
}

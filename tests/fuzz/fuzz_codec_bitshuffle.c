/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of bitshuffle, with the zstd that follows it. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"bitshuffle+zstd", "fp16+bitshuffle+zstd", "uniform+bitshuffle:unit=3+zstd"};
	return codec_fuzz(specs, 3, data, size);
}

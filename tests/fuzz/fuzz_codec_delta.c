/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of delta. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"delta:samples=20+uniform:bits=2", "delta:samples=3+fp16+zstd"};
	return codec_fuzz(specs, 2, data, size);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of ef. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"ef+uniform:bits=2", "ef+sortquant:bits=2,split=1+zstd"};
	return codec_fuzz(specs, 2, data, size);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of nuqsgd. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"nuqsgd:bits=3,bucket=16", "nuqsgd:bits=7,bucket=100"};
	return codec_fuzz(specs, 2, data, size);
}

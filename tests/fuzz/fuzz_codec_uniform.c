/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of uniform. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"uniform:bits=8", "uniform:bits=3", "uniform:bits=16", "uniform:bits=1"};
	return codec_fuzz(specs, 4, data, size);
}

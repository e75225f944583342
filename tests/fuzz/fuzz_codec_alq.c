/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of alq. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"alq", "alq:bits=2,bucket=9,fit=normbased", "alq:bits=7,bucket=64"};
	return codec_fuzz(specs, 3, data, size);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of qsgdinf. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"qsgdinf:bits=4,bucket=16", "qsgdinf:bits=5,bucket=1000"};
	return codec_fuzz(specs, 2, data, size);
}

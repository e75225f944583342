/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of sortquant. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"sortquant:bits=6,split=2", "sortquant:bits=5,partitions=5",
					    "sortquant:bits=6,partitions=4,prune=0.3", "sortquant:bits=2,split=8"};
	return codec_fuzz(specs, 4, data, size);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of poweriter, before raw, before a quantizer and behind a memory.
 * Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"poweriter:rank=2,iters=1", "poweriter:rank=3,iters=1+uniform:bits=4",
					    "ef+poweriter:rank=1,iters=1+fp16"};
	return codec_fuzz(specs, 3, data, size);
}

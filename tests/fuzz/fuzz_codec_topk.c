/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of topk, alone and in chains. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"topk:ratio=0.1", "topk:ratio=0.5", "topk:ratio=0.2+uniform:bits=8",
					    "ef+topk:ratio=0.01"};
	return codec_fuzz(specs, 4, data, size);
}

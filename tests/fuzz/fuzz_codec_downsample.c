/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of downsample, alone and in chains. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"downsample", "downsample:factor=3+uniform:bits=5",
					    "downsample+topk:ratio=0.2"};
	return codec_fuzz(specs, 3, data, size);
}

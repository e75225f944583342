/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of raw, fp16 and bf16. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"raw", "fp16", "bf16"};
	return codec_fuzz(specs, 3, data, size);
}

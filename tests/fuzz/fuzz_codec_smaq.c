/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of smaq. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"smaq:main=6,outlier=8", "smaq:main=3,outlier=16", "smaq:main=5,outlier=5"};
	return codec_fuzz(specs, 3, data, size);
}

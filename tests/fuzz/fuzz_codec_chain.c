/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoders of chains: wrappers, transforms, quantizers and byte stages in
 * each other. Property and input: codec_fuzz.h.
 */
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const specs[] = {"poweriter:rank=2+sortquant:bits=6,split=2+zstd",
					    "topk:ratio=0.25+uniform:bits=8",
					    "ef+topk:ratio=0.1+fp16+bitshuffle+zstd",
					    "delta:samples=16+uniform:bits=4+zstd",
					    "downsample:factor=2+kmeans:bits=3+bitshuffle+zstd",
					    "ef+poweriter:rank=2+fp8",
					    "ef+topk:ratio=0.5+uniform:bits=8+rans",
					    "poweriter:rank=2+uniform:bits=4+rans",
					    "delta:samples=16+uniform:bits=5+bitshuffle+rans",
					    "ef+block:bits=4,zero=asym+zstd",
					    "topk:ratio=0.25+nvfp4",
					    "ef+hadamard:size=16+block:bits=3,size=32+rans",
					    "hadamard:size=64,seed=3+topk:ratio=0.25+fp16",
					    "hadamard:size=32+block:size=16,budget=3+rans"};
	return codec_fuzz(specs, sizeof specs / sizeof specs[0], data, size);
}

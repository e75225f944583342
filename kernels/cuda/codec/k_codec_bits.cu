/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed codes from and to 16-bit ones. See k_codec_bits.h.
 * Test: tests/unit/test_cuda_codec_kernels.c
 */
#include "kernels/cuda/codec/k_codec_bits.h"

#include "kernels/cuda/codec/gpk_codec.h"

GPK_KERNEL pack(const uint16_t *codes, int64_t n, int width, uint8_t *packed)
{
	GPK_CODEC_ROOM(room);
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		const int64_t at = tile * GPK_CODEC_TILE + threadIdx.x * GPK_CODEC_GROUP;
		unsigned code[8] = {0};
		if (at + 8 <= n) {
			const uint4 all = *reinterpret_cast<const uint4 *>(codes + at);
			const unsigned pair[4] = {all.x, all.y, all.z, all.w};
			for (int i = 0; i < 8; i++)
				code[i] = pair[i / 2] >> (i % 2 * 16) & 0xffffu;
		} else {
			for (int i = 0; i < 8; i++)
				code[i] = at + i < n ? codes[at + i] : 0;
		}
		gpk_store_codes(packed, width, tile, n, code, room);
	}
}

GPK_KERNEL unpack(const uint8_t *packed, int64_t n, int width, uint16_t *codes)
{
	GPK_CODEC_ROOM(room);
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		gpk_load_codes(packed, width, tile, n, room);
		for (int half = 0; half < 2; half++) {
			const int local = half * (GPK_CODEC_TILE / 2) + (int)threadIdx.x * 4;
			const int64_t at = tile * GPK_CODEC_TILE + local;
			unsigned code[4];
			gpk_codes4(room, width, local, code);
			if (at + 4 <= n)
				*reinterpret_cast<uint2 *>(codes + at) =
					make_uint2(code[0] | code[1] << 16, code[2] | code[3] << 16);
			else
				for (int i = 0; i < 4 && at + i < n; i++)
					codes[at + i] = (uint16_t)code[i];
		}
		__syncthreads();
	}
}

extern "C" void gpk_pack_codes(struct gp_rt_stream *s, const uint16_t *codes, int64_t n, int width, uint8_t *packed)
{
	if (n > 0)
		GPK_LAUNCH(s, pack, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, codes, n, width, packed);
}

extern "C" void gpk_unpack_codes(struct gp_rt_stream *s, const uint8_t *packed, int64_t n, int width, uint16_t *codes)
{
	if (n > 0)
		GPK_LAUNCH(s, unpack, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, packed, n, width, codes);
}

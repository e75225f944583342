/* SPDX-License-Identifier: Apache-2.0
 *
 * Number formats: one pass, twice four elements of a thread at a time. The
 * arithmetic is in gpk_format.h. See k_codec_format.h.
 * Test: tests/unit/test_cuda_codec.c
 */
#include "kernels/cuda/codec/k_codec_format.h"

#include "kernels/cuda/codec/gpk_format.h"

#define QUADS 2 /* of a thread, all of which it asks for before it looks at the first */

/* --- fp16, bf16, fp8 --------------------------------------------------------------------------------------------- */

/* Four patterns of `bytes` each, the first in the low bits. */
GPK_DEVICE void put4(uint8_t *out, int64_t at, int bytes, const uint32_t pattern[4])
{
	if (bytes == 2)
		reinterpret_cast<uint2 *>(out)[at / 4] = make_uint2((pattern[0] & 0xffffu) | pattern[1] << 16,
								    (pattern[2] & 0xffffu) | pattern[3] << 16);
	else
		reinterpret_cast<uint32_t *>(out)[at / 4] =
			pattern[0] | pattern[1] << 8 | pattern[2] << 16 | pattern[3] << 24;
}

GPK_DEVICE void get4(const uint8_t *in, int64_t at, int bytes, uint32_t pattern[4])
{
	if (bytes == 2) {
		const uint2 all = reinterpret_cast<const uint2 *>(in)[at / 4];
		pattern[0] = all.x & 0xffffu;
		pattern[1] = all.x >> 16;
		pattern[2] = all.y & 0xffffu;
		pattern[3] = all.y >> 16;
		return;
	}
	const uint32_t all = reinterpret_cast<const uint32_t *>(in)[at / 4];
	for (int i = 0; i < 4; i++)
		pattern[i] = all >> (8 * i) & 0xffu;
}

/* Where a thread's first quadruple lies; the others follow at the distance of the grid. */
GPK_DEVICE int64_t first_quad(void)
{
	return ((int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x) * 4;
}

GPK_DEVICE int64_t quad_step(void)
{
	return (int64_t)gridDim.x * GPK_CODEC_THREADS * 4;
}

template <typename Format> GPK_KERNEL to_format(const float *x, int64_t n, uint8_t *out, uint32_t *bad)
{
	const int64_t step = quad_step();
	uint32_t raised = 0;
	for (int64_t at = first_quad(); at < n; at += QUADS * step) {
		float v[QUADS][4];
		GPK_UNROLL
		for (int q = 0; q < QUADS; q++)
			gpk_load4(x, at + q * step, n, 0, v[q]);
		GPK_UNROLL
		for (int q = 0; q < QUADS; q++) {
			uint32_t pattern[4];
			for (int i = 0; i < 4; i++)
				pattern[i] = Format::to(v[q][i], &raised);
			if (at + q * step < n)
				put4(out, at + q * step, Format::bytes, pattern);
		}
	}
	gpk_flag(bad, raised);
}

template <typename Format> GPK_KERNEL from_format(const uint8_t *in, int64_t n, float *x, uint32_t *bad)
{
	const int64_t step = quad_step();
	uint32_t raised = 0;
	for (int64_t at = first_quad(); at < n; at += QUADS * step) {
		uint32_t pattern[QUADS][4] = {};
		GPK_UNROLL
		for (int q = 0; q < QUADS; q++)
			if (at + q * step < n)
				get4(in, at + q * step, Format::bytes, pattern[q]);
		GPK_UNROLL
		for (int q = 0; q < QUADS; q++) {
			const int64_t here = at + q * step;
			float v[4];
			for (int i = 0; i < 4; i++) {
				uint32_t refused = 0;
				v[i] = Format::from(pattern[q][i], &refused);
				raised |= here + i < n ? refused : 0;
			}
			gpk_store4(x, here, n, v);
		}
	}
	gpk_flag(bad, raised);
}

/* One round of a thread. */
static unsigned format_blocks(int64_t n)
{
	return gpk_blocks(n, GPK_CODEC_THREADS * 4 * QUADS, GPK_CODEC_MOST_BLOCKS);
}

extern "C" void gpk_format_encode(struct gp_rt_stream *s, enum gpk_format format, const float *x, int64_t n,
				  uint8_t *out, uint32_t *bad)
{
	const unsigned blocks = format_blocks(n);
	switch (format) {
	case GPK_FP16:
		GPK_LAUNCH(s, to_format<fp16>, blocks, GPK_CODEC_THREADS, 0, x, n, out, bad);
		break;
	case GPK_BF16:
		GPK_LAUNCH(s, to_format<bf16>, blocks, GPK_CODEC_THREADS, 0, x, n, out, bad);
		break;
	case GPK_E5M2:
		GPK_LAUNCH(s, to_format<e5m2>, blocks, GPK_CODEC_THREADS, 0, x, n, out, bad);
		break;
	default:
		GPK_LAUNCH(s, to_format<e4m3>, blocks, GPK_CODEC_THREADS, 0, x, n, out, bad);
	}
}

extern "C" void gpk_format_decode(struct gp_rt_stream *s, enum gpk_format format, const uint8_t *in, int64_t n,
				  float *x, uint32_t *bad)
{
	const unsigned blocks = format_blocks(n);
	switch (format) {
	case GPK_FP16:
		GPK_LAUNCH(s, from_format<fp16>, blocks, GPK_CODEC_THREADS, 0, in, n, x, bad);
		break;
	case GPK_BF16:
		GPK_LAUNCH(s, from_format<bf16>, blocks, GPK_CODEC_THREADS, 0, in, n, x, bad);
		break;
	case GPK_E5M2:
		GPK_LAUNCH(s, from_format<e5m2>, blocks, GPK_CODEC_THREADS, 0, in, n, x, bad);
		break;
	default:
		GPK_LAUNCH(s, from_format<e4m3>, blocks, GPK_CODEC_THREADS, 0, in, n, x, bad);
	}
}

/* --- s2fp8 ------------------------------------------------------------------------------------------------------- */

/* Sixteen threads have GP_LOG_BLOCK elements: each those of one of the host's lanes, in its order. */
GPK_KERNEL sum_logs(const float *x, int64_t n, struct gpk_log_sum *room)
{
	GPK_SHARED(struct gpk_log_sum, part, [GPK_CODEC_THREADS / GP_LOG_LANES]);
	const int64_t step = (int64_t)gridDim.x * (GPK_CODEC_THREADS / GP_LOG_LANES) * GP_LOG_BLOCK;
	const int lane = (int)threadIdx.x % GP_LOG_LANES, team = (int)threadIdx.x / GP_LOG_LANES;
	struct gpk_log_sum sum = {1, 0, 0, 0};
	int64_t first = (int64_t)blockIdx.x * (GPK_CODEC_THREADS / GP_LOG_LANES) * GP_LOG_BLOCK;
	for (; first < n; first += step) {
		const int64_t at = first + team * GP_LOG_BLOCK, end = at + GP_LOG_BLOCK < n ? at + GP_LOG_BLOCK : n;
		const struct gpk_log_sum one = join_lanes(add_lane(x, at + lane, end));
		add_sum(&sum, &one);
	}
	if (lane == 0)
		part[team] = sum;
	join_parts(part, GPK_CODEC_THREADS / GP_LOG_LANES);
	if (threadIdx.x == 0)
		room[blockIdx.x] = part[0];
}

/* One block. */
GPK_KERNEL measure(const struct gpk_log_sum *room, int parts, int64_t n, float *head, uint32_t *bad)
{
	GPK_SHARED(struct gpk_log_sum, part, [GPK_CODEC_THREADS]);
	struct gpk_log_sum sum = {1, 0, 0, 0};
	for (int b = (int)threadIdx.x; b < parts; b += GPK_CODEC_THREADS)
		add_sum(&sum, &room[b]);
	part[threadIdx.x] = sum;
	join_parts(part, GPK_CODEC_THREADS);
	if (threadIdx.x)
		return;
	if (part[0].largest < 0x7f800000u)
		put_parameters(&part[0], n, head);
	else
		*bad = 1;
}

extern "C" void gpk_s2fp8_measure(struct gp_rt_stream *s, const float *x, int64_t n, struct gpk_log_sum *room,
				  float *head, uint32_t *bad)
{
	const int each = GPK_CODEC_THREADS / GP_LOG_LANES * GP_LOG_BLOCK;
	const unsigned parts = gpk_blocks(n, each, GPK_LOG_PARTS);
	GPK_LAUNCH(s, sum_logs, parts, GPK_CODEC_THREADS, 0, x, n, room);
	GPK_LAUNCH(s, measure, 1, GPK_CODEC_THREADS, 0, room, (int)parts, n, head, bad);
}

GPK_KERNEL to_s2fp8(const float *x, int64_t n, const float *head, uint8_t *out)
{
	const int64_t step = (int64_t)gridDim.x * GPK_CODEC_THREADS * 4;
	const float alpha = head[0], beta = head[1];
	for (int64_t at = ((int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x) * 4; at < n; at += step) {
		float v[4];
		uint32_t pattern[4];
		gpk_load4(x, at, n, 0, v);
		for (int i = 0; i < 4; i++)
			pattern[i] = squeeze(v[i], alpha, beta);
		put4(out, at, 1, pattern);
	}
}

extern "C" void gpk_s2fp8_encode(struct gp_rt_stream *s, const float *x, int64_t n, const float *head, uint8_t *out)
{
	GPK_LAUNCH(s, to_s2fp8, format_blocks(n), GPK_CODEC_THREADS, 0, x, n, head, out);
}

struct table128 {
	float value[128];
};

GPK_KERNEL from_s2fp8(const uint8_t *in, int64_t n, struct table128 given, float *x, uint32_t *bad)
{
	GPK_SHARED(float, table, [128]);
	const int64_t step = (int64_t)gridDim.x * GPK_CODEC_THREADS * 4;
	uint32_t raised = 0;
	if (threadIdx.x < 128)
		table[threadIdx.x] = given.value[threadIdx.x];
	__syncthreads();
	for (int64_t at = ((int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x) * 4; at < n; at += step) {
		float v[4];
		uint32_t pattern[4];
		get4(in, at, 1, pattern);
		for (int i = 0; i < 4; i++) {
			const uint32_t magnitude = pattern[i] & 0x7fu;
			raised |= magnitude >= 0x7cu && at + i < n;
			v[i] = __uint_as_float(__float_as_uint(table[magnitude]) | (pattern[i] & 0x80u) << 24);
		}
		gpk_store4(x, at, n, v);
	}
	gpk_flag(bad, raised);
}

extern "C" void gpk_s2fp8_decode(struct gp_rt_stream *s, const uint8_t *in, int64_t n, const float table[128], float *x,
				 uint32_t *bad)
{
	struct table128 given;
	memcpy(given.value, table, sizeof given.value);
	GPK_LAUNCH(s, from_s2fp8, format_blocks(n), GPK_CODEC_THREADS, 0, in, n, given, x, bad);
}

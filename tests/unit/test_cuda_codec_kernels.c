/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs' kernels that no chain runs by itself: packed codes from and to
 * memory. See kernels/cuda/codec/k_codec_bits.h; chains: test_cuda_codec.c.
 */
#include "kernels/loops/codec_loops.h"
#include "kernels/cuda/codec/k_codec_bits.h"
#include "tests/unit/test_cuda.h"

enum { MOST = 20011, SLACK = 32, WIDEST = 16 };

static void check_packing(int n, int width)
{
	static uint16_t codes[MOST], back[MOST];
	static uint8_t want[2 * MOST], got[2 * MOST];
	const size_t bytes = ((size_t)n * (size_t)width + 7) / 8;
	void *device_codes, *device_packed;
	for (int i = 0; i < n; i++)
		codes[i] = (uint16_t)(gp_rng_u32(3, (uint64_t)width, (uint64_t)i) & ((1u << width) - 1));
	gp_codec_loops_portable.pack(codes, (size_t)n, width, want);
	OK(gp_rt_alloc(0, sizeof codes, &device_codes, &err));
	OK(gp_rt_alloc(0, bytes + SLACK, &device_packed, &err));
	gp_rt_copy_up(stream, device_codes, codes, (size_t)n * sizeof *codes);
	gp_rt_fill(stream, device_packed, 0xff, bytes + SLACK);
	gpk_pack_codes(stream, device_codes, n, width, device_packed);
	gp_rt_copy_down(stream, got, device_packed, bytes);
	gp_rt_fill(stream, device_codes, 0xff, sizeof codes);
	gpk_unpack_codes(stream, device_packed, n, width, device_codes);
	gp_rt_copy_down(stream, back, device_codes, (size_t)n * sizeof *codes);
	OK(gp_rt_stream_wait(stream, &err));
	assert_memory_equal(want, got, bytes);
	assert_memory_equal(codes, back, (size_t)n * sizeof *codes);
	gp_rt_free(0, device_codes);
	gp_rt_free(0, device_packed);
}

static void codes_are_packed_as_on_the_host_in_every_width(void **state)
{
	(void)state;
	static const int lengths[] = {1, 7, 8, 9, 255, 2047, 2048, 2049, 4096, MOST};
	for (int width = 1; width <= WIDEST; width++)
		for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++)
			check_packing(lengths[k], width);
}

static void nothing_is_packed_of_nothing(void **state)
{
	(void)state;
	void *p;
	uint32_t word = 0x12345678, after = 0;
	OK(gp_rt_alloc(0, 64, &p, &err));
	gp_rt_copy_up(stream, p, &word, sizeof word);
	gpk_pack_codes(stream, p, 0, 5, p);
	gpk_unpack_codes(stream, p, 0, 5, p);
	gp_rt_copy_down(stream, &after, p, sizeof after);
	OK(gp_rt_stream_wait(stream, &err));
	assert_int_equal(after, word);
	gp_rt_free(0, p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(codes_are_packed_as_on_the_host_in_every_width),
		cmocka_unit_test(nothing_is_packed_of_nothing),
	};
	return run_on_gpu(tests, open_stream, close_stream);
}

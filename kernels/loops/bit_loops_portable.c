/* SPDX-License-Identifier: Apache-2.0
 *
 * Bit planes in plain C: the reference. See bit_loops.h.
 * Test: tests/unit/test_codec_bytes.c
 */
#include "kernels/loops/bit_loops.h"

#include "kernels/loops/codec_loops.h"
#include "kernels/loops/versions.h"

void gp_bit_split_rest(const uint8_t *bytes, size_t from, size_t n, uint8_t *planes)
{
	for (size_t i = from; i < n; i += 8)
		for (int k = 0; k < 8; k++) {
			unsigned plane = 0;
			for (int j = 0; j < 8; j++)
				plane |= (bytes[i + (size_t)j] >> k & 1u) << j;
			planes[(size_t)k * (n / 8) + i / 8] = (uint8_t)plane;
		}
}

void gp_bit_join_rest(const uint8_t *planes, size_t from, size_t n, uint8_t *bytes)
{
	for (size_t i = from; i < n; i++) {
		unsigned byte = 0;
		for (int k = 0; k < 8; k++)
			byte |= (planes[(size_t)k * (n / 8) + i / 8] >> i % 8 & 1u) << k;
		bytes[i] = (uint8_t)byte;
	}
}

static void split(const uint8_t *bytes, size_t n, uint8_t *planes)
{
	gp_bit_split_rest(bytes, 0, n, planes);
}

static void join(const uint8_t *planes, size_t n, uint8_t *bytes)
{
	gp_bit_join_rest(planes, 0, n, bytes);
}

const struct gp_bit_loops gp_bit_loops_portable = {.split = split, .join = join};

const struct gp_bit_loops *gp_bit_loops_choose(void)
{
	static const struct gp_bit_loops *const loops[] = GP_LOOP_VERSIONS(&gp_bit_loops);
	return loops[gp_isa_wanted()];
}

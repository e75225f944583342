/* SPDX-License-Identifier: Apache-2.0
 *
 * Random words in plain C, and the choice between the versions. See draw_loops.h.
 * Test: tests/unit/test_draw_loops.c
 */
#include "kernels/loops/draw_loops.h"

#include "common/base/rng.h"
#include "kernels/loops/versions.h"
#include "kernels/loops/codec_loops.h"

void gp_draw_words_portable(uint64_t seed, uint64_t stream, uint64_t first, size_t blocks, uint32_t *out)
{
	for (size_t i = 0; i < blocks; i++)
		gp_rng_block(seed, stream, first + i, out + 4 * i);
}

gp_draw_words *gp_draw_words_choose(void)
{
	static gp_draw_words *const words[] = GP_LOOP_VERSIONS(gp_draw_words);
	return words[gp_isa_wanted()];
}

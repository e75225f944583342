/* SPDX-License-Identifier: Apache-2.0
 *
 * Which codec loops run: the best that the processor has, or what GP_SIMD
 * asks for. See codec_loops.h. Test: tests/unit/test_codec_loops.c
 */
#include "kernels/loops/codec_loops.h"

#include <stddef.h>

#include "kernels/loops/versions.h"

static const struct gp_codec_loops *const known[] = GP_LOOP_VERSIONS(&gp_codec_loops);

const struct gp_codec_loops *gp_codec_loops_named(const char *name)
{
	enum gp_isa isa;
	return gp_isa_named(name, &isa) ? known[isa] : NULL;
}

const struct gp_codec_loops *gp_codec_loops_choose(void)
{
	return known[gp_isa_wanted()];
}

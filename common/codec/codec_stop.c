/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a pass is to end before it is through: asked by stages between the parts
 * of what may take long. See gp_codec_stopped in codec_impl.h.
 * Test: tests/unit/test_codec_stop.c
 */
#include "common/codec/codec_impl.h"

bool gp_codec_stopped(const struct gp_codec_pass *pass)
{
	return gp_stop_is_set(pass->stop);
}

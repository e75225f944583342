/* SPDX-License-Identifier: Apache-2.0
 */
#include "common/base/loop.h"

void gp_loop_turn(uv_loop_t *loop)
{
	uv_update_time(loop);
	uv_run(loop, uv_backend_timeout(loop) == 0 ? UV_RUN_NOWAIT : UV_RUN_ONCE);
}

/* SPDX-License-Identifier: Apache-2.0
 */
#include "common/base/loop.h"

enum gp_status gp_loop_init(uv_loop_t *loop, struct gp_err *err)
{
	const int code = uv_loop_init(loop);
	if (code != 0)
		GP_FAIL(err, GP_IO, "cannot make an event loop: %s", uv_strerror(code));
	return GP_OK;
}

void gp_loop_turn(uv_loop_t *loop)
{
	uv_update_time(loop);
	uv_run(loop, uv_backend_timeout(loop) == 0 ? UV_RUN_NOWAIT : UV_RUN_ONCE);
}

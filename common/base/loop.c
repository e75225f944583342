/* SPDX-License-Identifier: Apache-2.0
 */
#include "common/base/loop.h"

static int make_signal_pipe(uv_loop_t *loop)
{
	uv_signal_t first;
	const int code = uv_signal_init(loop, &first);
	if (code != 0)
		return code;
	uv_close((uv_handle_t *)&first, NULL);
	uv_run(loop, UV_RUN_NOWAIT);
	return 0;
}

enum gp_status gp_loop_init(uv_loop_t *loop, struct gp_err *err)
{
	int code = uv_loop_init(loop);
	if (code == 0 && (code = make_signal_pipe(loop)) != 0)
		uv_loop_close(loop);
	if (code != 0)
		GP_FAIL(err, GP_IO, "cannot make an event loop: %s", uv_strerror(code));
	return GP_OK;
}

void gp_loop_turn(uv_loop_t *loop)
{
	uv_update_time(loop);
	uv_run(loop, uv_backend_timeout(loop) == 0 ? UV_RUN_NOWAIT : UV_RUN_ONCE);
}

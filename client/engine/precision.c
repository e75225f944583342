/* SPDX-License-Identifier: Apache-2.0
 *
 * See precision.h. Test: tests/unit/test_client_precision.c
 */
#include "client/engine/precision.h"

#include "common/base/log.h"
#include "kernels/device_registry.h"

static enum gp_status settle_local(const struct gp_client_precision *p, enum gp_precision *out, struct gp_err *err)
{
	const bool follows = p->choice == GP_CLIENT_PRECISION_AUTO, tried = p->body == GP_PRECISION_AUTO;
	const enum gp_precision wanted = (enum gp_precision)(p->choice - 1), body = (enum gp_precision)p->body;
	if (!follows && (tried || wanted != body))
		GP_FAIL(err, GP_USAGE,
			"--client-precision %s: a local run computes everything in --precision, which is %s",
			gp_precision_name(wanted), tried ? "auto" : gp_precision_name(body));
	*out = tried ? GP_PRECISION_FP32 : body;
	return GP_OK;
}

/* Whether the device can; `why` it cannot. */
static enum gp_status ask_device(const struct gp_client_precision *p, enum gp_precision wanted, bool *can,
				 struct gp_err *why, struct gp_err *err)
{
	struct gp_device *dev;
	*can = wanted == GP_PRECISION_FP32; /* every device can */
	if (*can)
		return GP_OK;
	GP_TRY(gp_device_open(p->device, p->threads, &dev, err));
	*can = gp_device_check_precision(dev, wanted, why) == GP_OK;
	dev->ops->close(dev);
	return GP_OK;
}

enum gp_status gp_client_precision_settle(const struct gp_client_precision *p, enum gp_precision *out, bool *tries,
					  struct gp_err *err)
{
	const bool choose = p->choice == GP_CLIENT_PRECISION_AUTO;
	const enum gp_precision wanted = (enum gp_precision)(choose ? p->body : p->choice - 1);
	struct gp_err why;
	bool can;
	*tries = !p->local && choose && p->body == GP_PRECISION_AUTO;
	if (p->local)
		return settle_local(p, out, err);
	if (*tries) {
		*out = GP_PRECISION_FP32;
		return GP_OK;
	}
	GP_TRY(ask_device(p, wanted, &can, &why, err));
	if (!can && !choose) {
		*err = why;
		return gp_err_prefix(err, "--client-precision");
	}
	if (!can)
		gp_log(main, GP_LOG_INFO, "head and tail in fp32, the body in %s: %s", gp_precision_name(wanted),
		       why.text);
	*out = can ? wanted : GP_PRECISION_FP32;
	return GP_OK;
}

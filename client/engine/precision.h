/* SPDX-License-Identifier: Apache-2.0
 *
 * What each side of a split model computes in: --precision is the body's, on
 * the server; --client-precision that of head and tail, here. Each device has
 * its own: a GPU behind an edge processor computes in tf32, the processor in
 * fp32. A local run has one side and one precision. Not here: whether the server
 * can (client_session.c), how a device computes in one (common/graph/device.h).
 *
 * Threads: the caller's; may open a device and close it again. Test:
 * tests/unit/test_client_precision.c
 */
#ifndef GP_CLIENT_PRECISION_H
#define GP_CLIENT_PRECISION_H

#include "common/graph/device.h"

/* As --precision has them, in the order of enum gp_precision; `auto`: the fastest, which whoever computes tries first. */
#define GP_PRECISION_CHOICES "fp32|bf16|tf32|auto"
enum { GP_PRECISION_AUTO = GP_PRECISIONS };

/* As --client-precision has them; each but the first is a precision, in the order of enum gp_precision. */
#define GP_CLIENT_PRECISION_CHOICES "auto|fp32|bf16|tf32"
enum { GP_CLIENT_PRECISION_AUTO };

struct gp_client_precision {
	const char *device; /* of this side, as gp_device_open takes it */
	int threads;
	bool local;
	int body;   /* index into GP_PRECISION_CHOICES */
	int choice; /* index into GP_CLIENT_PRECISION_CHOICES */
};

/*
 * What this side computes in: what was chosen; by `auto` the body's where the device can, else fp32, which the log tells;
 * and beside a body whose precision is `auto`, too, *tries: the fastest, which its engine finds, and *out is fp32 until then.
 * Opens the device and closes it again where it has to be asked. GP_USAGE: a local run was given two. GP_DEVICE: the
 * device cannot be opened, or cannot compute in what was chosen; a local run's plan says so itself.
 */
enum gp_status gp_client_precision_settle(const struct gp_client_precision *p, enum gp_precision *out, bool *tries,
					  struct gp_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of a server: what --device names, one compute worker for each,
 * where a session is placed, and the account of a device's own memory. What
 * computes there is behind common/graph/device.h.
 *
 * A device's worker is one thread. Of the sessions (common/base/worker.h) that one
 * goes next which has used least time for its share, on the device and in codecs,
 * as measured around its tasks.
 *
 * Threads: loop thread. Test: tests/unit/test_server_devices.c
 */
#ifndef GP_SERVER_DEVICES_H
#define GP_SERVER_DEVICES_H

#include "common/graph/device.h"
#include "common/base/worker.h"

#define GP_SERVER_DEVICES_MAX  16
#define GP_SERVER_DEVICES_TEXT 512

struct gp_server_device {
	struct gp_device *dev;
	struct gp_worker *compute;
	uint64_t memory_bytes; /* the device's own memory that sessions may have; 0: plans live in the host's */
	uint64_t used_bytes;   /* what sessions here were promised of it */
	int sessions;          /* sessions placed here */
	bool lost;             /* it has failed for good, and the log has said so */
};

struct gp_server_devices {
	struct gp_server_device device[GP_SERVER_DEVICES_MAX];
	int count;
	uint64_t session_bytes; /* most of a device's own memory that one session may take; 0: all that sessions may */
};

/* `spec`: "cpu", "auto", or GPUs with commas between: "cuda:0,cuda:1". GP_USAGE: what is wrong with it; GP_DEVICE: one
 * cannot be had. On failure nothing is left open. */
enum gp_status gp_server_devices_open(struct gp_server_devices *d, uv_loop_t *loop, const char *spec, int threads,
				      struct gp_err *err);
/* Joins the workers, after every session has left. Safe on a zeroed struct. */
void gp_server_devices_close(struct gp_server_devices *d);
/* "cuda:0 (NVIDIA H200), cuda:1 (NVIDIA H200)"; returns text. */
const char *gp_server_devices_text(const struct gp_server_devices *d, char text[GP_SERVER_DEVICES_TEXT]);
/* Whether any of them has memory of its own. */
bool gp_server_devices_apart(const struct gp_server_devices *d);
/* That of the slowest: a session may come to any of them. */
struct gp_speed gp_server_devices_speed(const struct gp_server_devices *d);
/* Whether any of them computes in this precision. */
bool gp_server_devices_support(const struct gp_server_devices *d, enum gp_precision precision);

/* Chooses the device for a session, which is then placed there: the one with the fewest sessions; where several have as
 * few, the one with most memory left. `tried`: device i is left out when bit i is set. GP_UNSUPPORTED: none computes in
 * that precision; GP_DEVICE: those that would have failed; GP_BUSY: all were tried. It leaves by gp_server_device_leave. */
enum gp_status gp_server_devices_choose(struct gp_server_devices *d, enum gp_precision precision, uint32_t tried,
					struct gp_server_device **out, struct gp_err *err);
static inline uint32_t gp_server_device_bit(const struct gp_server_devices *d, const struct gp_server_device *at)
{
	return UINT32_C(1) << (at - d->device);
}
/* Sets `bytes` of the device's memory aside for a session that has `had` so far. GP_NOMEM: it can never have them;
 * GP_BUSY: not now. */
enum gp_status gp_server_device_reserve(struct gp_server_devices *d, struct gp_server_device *at, uint64_t had,
					uint64_t bytes, struct gp_err *err);
/* A session leaves the device and gives back the `had` bytes that it had been promised. */
void gp_server_device_leave(struct gp_server_device *at, uint64_t had);
/* A session's task has ended with GP_DEVICE. If the device is lost with that, no session is placed there any more. */
void gp_server_device_failed(struct gp_server_device *at);

#endif

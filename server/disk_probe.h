/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a folder can be written to, found out by writing to it every GP_DISK_PROBE_S seconds, on a thread that nobody waits
 * for: a disk that hangs holds up neither the loop nor whoever asks.
 *
 * Threads: new and free are one caller's; gp_disk_probe_is_well any. Test: tests/unit/test_server_metrics.c
 */
#ifndef GP_DISK_PROBE_H
#define GP_DISK_PROBE_H

#include "common/base/status.h"

#define GP_DISK_PROBE_S      10
#define GP_DISK_PROBE_LATE_S 30 /* a write that takes so long has failed */

struct gp_disk_probe;

enum gp_status gp_disk_probe_new(const char *folder, struct gp_disk_probe **out, struct gp_err *err);
/* Leaves a write that hangs to its thread, which frees the rest; NULL is fine. */
void gp_disk_probe_free(struct gp_disk_probe *p);
/* By the last write that ended, or one that does not end. True before the first. */
bool gp_disk_probe_is_well(const struct gp_disk_probe *p, uint64_t now_ns);

#endif

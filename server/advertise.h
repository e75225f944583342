/* SPDX-License-Identifier: Apache-2.0
 *
 * The other servers that this one names to clients which it has no room for, or sends away because it stops: --advertise.
 * PROTOCOL.md section 5.5. Whether a client goes there is its own decision (client/job/security.h).
 *
 * Threads: the loop thread. Test: tests/unit/test_advertise.c, tests/e2e/servers.sh
 */
#ifndef GP_ADVERTISE_H
#define GP_ADVERTISE_H

#include "common/wire/control.h"

#define GP_ADVERTISE_TEXT 272

struct gp_advertise {
	char text[GP_ERROR_SERVERS][GP_ADVERTISE_TEXT];
	int count;
};

/* "HOST:PORT[,HOST:PORT]...", NULL: none. GP_USAGE says what is wrong with it. */
enum gp_status gp_advertise_parse(struct gp_advertise *a, const char *text, struct gp_err *err);
/* Fills `out` for gp_control_send_elsewhere; returns how many there are. */
size_t gp_advertise_names(const struct gp_advertise *a, const char *out[GP_ERROR_SERVERS]);

#endif

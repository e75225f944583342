/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program and the service manager that started it tell each other, as
 * systemd's manual pages sd_notify(3), sd_watchdog_enabled(3) and
 * sd_listen_fds(3) document it: datagrams to the socket that NOTIFY_SOCKET
 * names, and sockets that were opened beforehand (socket activation). Without
 * these variables, as in a terminal or a container, nothing is sent and nothing
 * is found. systemd's library is not used: the protocol is these few lines,
 * and the library would bring compression and cryptography into the process.
 *
 * Threads: any; an object belongs to one at a time. Test: tests/unit/test_notify.c
 */
#ifndef GP_NOTIFY_H
#define GP_NOTIFY_H

#include "common/base/status.h"

#define GP_NOTIFY_FIRST_SOCKET 3 /* descriptors that were handed over begin here */
#define GP_NOTIFY_TEXT         512

struct gp_notify {
	int fd;               /* -1: nobody is to be told */
	uint64_t watchdog_us; /* say WATCHDOG=1 more often than this, or be killed; 0: there is no watchdog */
};

/* From the environment. GP_INVALID where NOTIFY_SOCKET is set to what is no socket's name, or nobody listens there; *n then
 * is one that tells nobody. */
enum gp_status gp_notify_open(struct gp_notify *n, struct gp_err *err);
void gp_notify_close(struct gp_notify *n);

/* Lines such as "READY=1\nSTATUS=2 sessions". Never waits: what the service manager has no room for is lost, and false comes
 * back, as it does where nobody is to be told. Texts of more than GP_NOTIFY_TEXT bytes are cut off. */
bool gp_notify_send(const struct gp_notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* How many sockets this process was handed (LISTEN_FDS, if LISTEN_PID is this process). 0: none. */
int gp_notify_sockets(void);

#endif

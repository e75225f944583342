/* SPDX-License-Identifier: Apache-2.0
 *
 * gpserverd as a service: it tells the service manager when it takes
 * connections, what it is doing and that it stops, feeds its watchdog from a
 * timer of the loop (a loop that stands still is noticed), and takes the
 * listening socket that was opened for it. Without a service manager all of
 * this does nothing. The protocol is common/base/notify.h's.
 *
 * Threads: loop thread. Test: tests/e2e/service.sh
 */
#ifndef GP_SERVER_SERVICE_H
#define GP_SERVER_SERVICE_H

#include "common/base/notify.h"
#include "server/server.h"

#define GP_SERVICE_ADDRESS 80

struct gp_service {
	struct gp_notify notify;
	const struct gp_server *srv;
	uv_timer_t timer;
	bool runs, stopping;
	char address[GP_SERVICE_ADDRESS]; /* of a socket that was handed over */
	char told[GP_NOTIFY_TEXT];        /* the last status */
};

/*
 * Before the server starts: looks for the service manager and for a socket of its, whose descriptor and address are put into
 * `set` in place of --listen. GP_INVALID: what was handed over is not one TCP socket that listens. *s must live as long as
 * `set` is used.
 */
enum gp_status gp_service_open(struct gp_service *s, struct gp_server_settings *set, struct gp_err *err);
/* The server takes connections: tells so, and from here on its status from time to time. */
void gp_service_ready(struct gp_service *s, const struct gp_server *srv);
/* Before and after settings are read again. */
void gp_service_reloading(const struct gp_service *s);
void gp_service_reloaded(const struct gp_service *s);
/* The server stops, which may take so long. The watchdog is fed until gp_service_close. */
void gp_service_stopping(struct gp_service *s, double seconds);
/* Fine where nothing was begun. The loop has to run once more. */
void gp_service_close(struct gp_service *s);

#endif

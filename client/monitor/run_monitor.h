/* SPDX-License-Identifier: Apache-2.0
 *
 * `train --metrics`: figures of the training under way over HTTP.
 *
 *     /metrics   Prometheus' text (run_metrics.h)
 *     /healthz   200 while the training's thread gives signs of life, else 503
 *     /          what there is, in words
 *
 * The training reports what it does; the site's thread works on a copy, so that neither waits for the other except for the time
 * of the copy. The training's thread gives a sign of life with each report, and four times a second while it waits for a
 * server. After the first step it counts as dead when it has been silent for GP_RUN_SILENT_S and for ten times its longest
 * step; before that, reading data may take any time.
 *
 * Who may read: common/http/metrics_site.h. The server has figures of its own (server/metrics_http.h).
 *
 * Threads: the training's; calls with a NULL monitor do nothing. Test: tests/unit/test_run_monitor.c,
 * tests/e2e/client_metrics.sh
 */
#ifndef GP_RUN_MONITOR_H
#define GP_RUN_MONITOR_H

#include "client/trace/bound_by.h"
#include "common/http/metrics_site.h"
#include "common/wire/account.h"

#define GP_RUN_SILENT_S 60.0
#define GP_RUN_RATE_S   30.0 /* rates are of the last seconds */

/* What a training does. */
enum gp_run_stage { GP_RUN_PREPARES, GP_RUN_OPENS, GP_RUN_TRAINS, GP_RUN_EVALUATES, GP_RUN_ENDS, GP_RUN_STAGES };

/* The link of a split training, over all its connections. */
struct gp_run_link {
	struct gp_account account;
	struct gp_tcp_figures tcp;
	uint32_t rtt_us; /* 0: not known */
	uint32_t reconnects;
	int window; /* chunks in flight at once, at most */
	bool linked;
};

/* What the trainer knows behind a step. NaN: there is none. */
struct gp_run_step {
	uint64_t step;                /* done, of the whole run */
	uint64_t epoch;               /* counted from 1 */
	double loss, acc;             /* of the newest step */
	double epoch_loss, epoch_acc; /* over the epoch so far */
	double lr, grad_norm, seconds;
	struct gp_bound_by bound_by; /* of all steps here */
	uint64_t compute_ns, memory_bytes;
	uint64_t server_memory_bytes, server_device_bytes; /* 0: not known */
	uint64_t raw_fallbacks;
	uint64_t checkpoints, checkpoint_failures;
};

struct gp_run_figures {
	enum gp_run_stage stage;
	bool split;         /* there is a link, and `link` means something */
	int64_t started_ms; /* of the clock on the wall */
	uint64_t told_ns;   /* last sign of life, by gp_now_ns */
	uint64_t total_steps, epochs;
	uint64_t steps_here; /* in this process */
	double longest_s;    /* of its steps */
	struct gp_run_step at;
	struct gp_run_link link;
	uint64_t evaluations;
	double evaluation_s;                      /* all of them */
	double val_loss, val_acc;                 /* NaN: there was none */
	double steps_per_s, up_per_s, down_per_s; /* lately; NaN: not known yet */
};

struct gp_run_monitor;

/* `set`: address, files and names of options; what it answers is filled in here. The port is open when this returns. */
enum gp_status gp_run_monitor_new(const struct gp_metrics_site_settings *set, struct gp_run_monitor **out,
				  struct gp_err *err);
void gp_run_monitor_free(struct gp_run_monitor *m);
/* "http://127.0.0.1:9441/"; returns `out`. */
const char *gp_run_monitor_url(const struct gp_run_monitor *m, char out[GP_METRICS_SITE_URL]);

void gp_run_monitor_plan(struct gp_run_monitor *m, uint64_t total_steps, uint64_t epochs, bool split);
void gp_run_monitor_stage(struct gp_run_monitor *m, enum gp_run_stage stage);
void gp_run_monitor_step(struct gp_run_monitor *m, const struct gp_run_step *step);
void gp_run_monitor_link(struct gp_run_monitor *m, const struct gp_run_link *link);
void gp_run_monitor_evaluated(struct gp_run_monitor *m, double loss, double acc, double seconds);
/* Nothing new, but it lives. */
void gp_run_monitor_beat(struct gp_run_monitor *m);

/* Any thread. */
void gp_run_monitor_read(struct gp_run_monitor *m, struct gp_run_figures *out);
bool gp_run_is_alive(const struct gp_run_figures *f, uint64_t now_ns);
const char *gp_run_stage_name(enum gp_run_stage stage); /* "trains" */

#endif

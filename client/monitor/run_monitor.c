/* SPDX-License-Identifier: Apache-2.0
 *
 * See run_monitor.h. Test: tests/unit/test_run_monitor.c, tests/e2e/client_metrics.sh
 */
#include "client/monitor/run_monitor.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

#include "client/monitor/run_metrics.h"
#include "common/base/rate.h"
#include "common/metrics/metric_text.h"

#define SLOW_STEPS 10 /* as long as so many of the longest: it is dead */

/* The series of a run's gp_rate. */
enum { STEPS, UP, DOWN };

struct gp_run_monitor {
	struct gp_metrics_site *site;
	pthread_mutex_t mutex; /* around all that follows */
	struct gp_run_figures now;
	struct gp_rate rate;
};

/* --- what is answered -------------------------------------------------------------------------------------------- */

static void answer_metrics(void *arg, struct gp_http_reply *out)
{
	struct gp_metric_text t = {0};
	struct gp_run_figures f;
	struct gp_err err;
	gp_run_monitor_read(arg, &f);
	gp_run_metrics_write(&f, &t);
	if (gp_metric_text_check(&t, &err) != GP_OK) {
		gp_metric_text_deinit(&t);
		gp_http_reply_text(out, 503, "out of memory\n");
		return;
	}
	*out = (struct gp_http_reply){.status = 200, .type = GP_METRIC_TEXT_TYPE, .body = t.text, .length = t.length};
}

static void answer_health(void *arg, struct gp_http_reply *out)
{
	struct gp_run_figures f;
	gp_run_monitor_read(arg, &f);
	const bool alive = gp_run_is_alive(&f, gp_now_ns());
	gp_http_reply_text(out, alive ? 200 : 503, alive ? "alive\n" : "the training's thread does not answer\n");
}

static void answer_words(void *arg, struct gp_http_reply *out)
{
	(void)arg;
	gp_http_reply_text(out, 200,
			   "gpclient " GP_VERSION "\n"
			   "/metrics  figures of the training under way, for Prometheus\n"
			   "/healthz  whether it is alive\n");
}

static const struct gp_metrics_route routes[] = {
	{"/metrics", true, answer_metrics},
	{"/healthz", false, answer_health},
	{"/", false, answer_words},
};

/* --- life -------------------------------------------------------------------------------------------------------- */

static int64_t wall_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void note_rate(struct gp_run_monitor *m)
{
	const struct gp_run_figures *f = &m->now;
	const struct gp_run_link *l = &f->link;
	const uint64_t value[GP_RATE_SERIES] = {[STEPS] = f->steps_here,
						[UP] = l->tcp.valid ? l->tcp.bytes_acked : l->account.sent.wire_bytes,
						[DOWN] = l->tcp.valid ? l->tcp.bytes_received
								      : l->account.received.wire_bytes};
	gp_rate_note(&m->rate, gp_now_ns(), value);
}

enum gp_status gp_run_monitor_new(const struct gp_metrics_site_settings *set, struct gp_run_monitor **out,
				  struct gp_err *err)
{
	struct gp_run_monitor *m;
	GP_TRY(gp_alloc_array((void **)&m, 1, sizeof *m, err));
	struct gp_metrics_site_settings site = *set;
	site.route = routes;
	site.routes = sizeof routes / sizeof routes[0];
	site.arg = m;
	pthread_mutex_init(&m->mutex, NULL);
	gp_rate_init(&m->rate, GP_RUN_RATE_S);
	m->now = (struct gp_run_figures){.started_ms = wall_ms(),
					 .told_ns = gp_now_ns(),
					 .val_loss = NAN,
					 .val_acc = NAN,
					 .at = {.loss = NAN,
						.acc = NAN,
						.epoch_loss = NAN,
						.epoch_acc = NAN,
						.lr = NAN,
						.grad_norm = NAN,
						.seconds = NAN}};
	const enum gp_status status = gp_metrics_site_start(&site, &m->site, err);
	if (status != GP_OK)
		gp_run_monitor_free(m);
	else
		*out = m;
	return status;
}

void gp_run_monitor_free(struct gp_run_monitor *m)
{
	if (!m)
		return;
	gp_metrics_site_stop(m->site);
	pthread_mutex_destroy(&m->mutex);
	gp_free(m);
}

const char *gp_run_monitor_url(const struct gp_run_monitor *m, char out[GP_METRICS_SITE_URL])
{
	return gp_metrics_site_url(m->site, out);
}

/* --- what is told ------------------------------------------------------------------------------------------------ */

/* False: nobody listens. */
static bool begin(struct gp_run_monitor *m)
{
	if (!m)
		return false;
	pthread_mutex_lock(&m->mutex);
	m->now.told_ns = gp_now_ns();
	return true;
}

static void end(struct gp_run_monitor *m)
{
	pthread_mutex_unlock(&m->mutex);
}

void gp_run_monitor_plan(struct gp_run_monitor *m, uint64_t total_steps, uint64_t epochs, bool split)
{
	if (!begin(m))
		return;
	m->now.total_steps = total_steps;
	m->now.epochs = epochs;
	m->now.split = split;
	end(m);
}

void gp_run_monitor_stage(struct gp_run_monitor *m, enum gp_run_stage stage)
{
	if (!begin(m))
		return;
	m->now.stage = stage;
	end(m);
}

void gp_run_monitor_step(struct gp_run_monitor *m, const struct gp_run_step *step)
{
	if (!begin(m))
		return;
	const uint64_t raw = m->now.at.raw_fallbacks; /* codecs that change forget theirs */
	m->now.at = *step;
	m->now.at.raw_fallbacks = raw > step->raw_fallbacks ? raw : step->raw_fallbacks;
	m->now.steps_here++;
	if (step->seconds > m->now.longest_s)
		m->now.longest_s = step->seconds;
	note_rate(m);
	end(m);
}

void gp_run_monitor_link(struct gp_run_monitor *m, const struct gp_run_link *link)
{
	if (!begin(m))
		return;
	m->now.link = *link;
	note_rate(m);
	end(m);
}

void gp_run_monitor_evaluated(struct gp_run_monitor *m, double loss, double acc, double seconds)
{
	if (!begin(m))
		return;
	m->now.evaluations++;
	m->now.evaluation_s += seconds;
	m->now.val_loss = loss;
	m->now.val_acc = acc;
	end(m);
}

void gp_run_monitor_beat(struct gp_run_monitor *m)
{
	if (begin(m))
		end(m);
}

/* --- what is read ------------------------------------------------------------------------------------------------ */

void gp_run_monitor_read(struct gp_run_monitor *m, struct gp_run_figures *out)
{
	pthread_mutex_lock(&m->mutex);
	*out = m->now;
	out->steps_per_s = gp_rate_per_s(&m->rate, STEPS);
	out->up_per_s = gp_rate_per_s(&m->rate, UP);
	out->down_per_s = gp_rate_per_s(&m->rate, DOWN);
	pthread_mutex_unlock(&m->mutex);
}

bool gp_run_is_alive(const struct gp_run_figures *f, uint64_t now_ns)
{
	const bool steps = f->stage == GP_RUN_TRAINS || f->stage == GP_RUN_EVALUATES;
	const double silent_s = now_ns > f->told_ns ? (double)(now_ns - f->told_ns) * 1e-9 : 0.0;
	return !steps || f->steps_here == 0 || silent_s < fmax(GP_RUN_SILENT_S, SLOW_STEPS * f->longest_s);
}

const char *gp_run_stage_name(enum gp_run_stage stage)
{
	static const char *const names[GP_RUN_STAGES] = {[GP_RUN_PREPARES] = "prepares",
							 [GP_RUN_OPENS] = "opens",
							 [GP_RUN_TRAINS] = "trains",
							 [GP_RUN_EVALUATES] = "evaluates",
							 [GP_RUN_ENDS] = "ends"};
	return names[stage];
}

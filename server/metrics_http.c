/* SPDX-License-Identifier: Apache-2.0
 *
 * See metrics_http.h. Test: tests/e2e/metrics.sh
 */
#include "server/metrics_http.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/http/metrics_site.h"
#include "common/metrics/metric_text.h"
#include "server/metrics_show.h"
#include "server/page.h"
#include "server/server.h"

/* A text that answers are sent from, without a copy for each: half a megabyte with 64 sessions, whose fresh pages would cost
 * as much as writing it. On the thread that answers. */
struct shared_text {
	char *text;
	size_t length, room;
	int readers;   /* answers under way */
	bool outdated; /* there is a newer one: the last reader frees it */
};

/* What was written of the newest snapshot, for all who ask before there is another one. */
struct written {
	uint64_t number; /* of the snapshot; 0: none */
	struct shared_text *shared;
};

struct gp_metrics_http {
	struct gp_metrics_site *site;
	char policy[GP_PAGE_POLICY_BYTES];
	/* of the thread that answers */
	struct gp_metrics *metrics;
	struct written text, json;
};

/* --- answers ----------------------------------------------------------------------------------------------------- */

static void free_shared(struct shared_text *x)
{
	if (x)
		gp_free(x->text);
	gp_free(x);
}

static void on_sent(void *arg)
{
	struct shared_text *x = arg;
	x->readers--;
	if (x->readers == 0 && x->outdated)
		free_shared(x);
}

/* The one before, if nobody reads it any more; else a new one. NULL: out of memory. */
static struct shared_text *text_to_write(struct written *w)
{
	struct shared_text *x = w->shared;
	if (x && x->readers == 0)
		return x;
	if (x)
		x->outdated = true;
	w->shared = gp_calloc(1, sizeof *x);
	return w->shared;
}

static void write_text(struct shared_text *x, const struct gp_metrics_snapshot *s)
{
	struct gp_metric_text t = {.text = x->text, .room = x->room};
	struct gp_err err;
	gp_metrics_show_text(s, &t);
	if (gp_metric_text_check(&t, &err) != GP_OK)
		gp_metric_text_deinit(&t);
	x->text = t.text; /* with its room, for the next one */
	x->length = t.length;
	x->room = t.room;
}

static void write_json(struct shared_text *x, const struct gp_metrics_snapshot *s)
{
	gp_free(x->text);
	x->text = gp_metrics_show_json(s, gp_now_ns(), &x->length);
}

/* A loop that stands still tells nothing new, but that it does: its age, and whether it is alive. */
static bool is_current(const struct written *w, const struct gp_metrics_snapshot *s)
{
	const uint64_t age = gp_now_ns() - s->at_ns;
	return w->shared && w->shared->text && w->number == s->number &&
	       age < 2 * GP_METRICS_PUBLISH_MS * UINT64_C(1000000);
}

static void reply_written(struct gp_metrics_http *h, struct written *w,
			  void (*write)(struct shared_text *x, const struct gp_metrics_snapshot *s), const char *type,
			  struct gp_http_reply *out)
{
	const struct gp_metrics_snapshot *s = gp_metrics_read(h->metrics);
	if (!is_current(w, s)) {
		struct shared_text *fresh = text_to_write(w);
		w->number = s->number;
		if (fresh)
			write(fresh, s);
	}
	struct shared_text *x = w->shared;
	if (!x || !x->text) {
		gp_http_reply_text(out, 503, "out of memory\n");
		return;
	}
	x->readers++;
	*out = (struct gp_http_reply){
		.status = 200, .type = type, .body = x->text, .length = x->length, .sent = on_sent, .body_of = x};
}

static void answer_page(void *arg, struct gp_http_reply *out)
{
	const struct gp_metrics_http *h = arg;
	char *copy = gp_realloc(NULL, gp_page_html_bytes, 1);
	if (!copy) {
		gp_http_reply_text(out, 503, "out of memory\n");
		return;
	}
	memcpy(copy, gp_page_html, gp_page_html_bytes);
	*out = (struct gp_http_reply){.status = 200,
				      .type = "text/html; charset=utf-8",
				      .policy = h->policy,
				      .body = copy,
				      .length = gp_page_html_bytes};
}

static void answer_health(void *arg, struct gp_http_reply *out)
{
	struct gp_metrics_http *h = arg;
	const bool alive = gp_metrics_is_alive(gp_metrics_read(h->metrics), gp_now_ns());
	gp_http_reply_text(out, alive ? 200 : 503, alive ? "alive\n" : "the loop thread does not answer\n");
}

static void answer_ready(void *arg, struct gp_http_reply *out)
{
	struct gp_metrics_http *h = arg;
	const struct gp_metrics_snapshot *s = gp_metrics_read(h->metrics);
	const char *why = gp_metrics_is_alive(s, gp_now_ns()) ? gp_metrics_unready(s) : "loop";
	char text[64];
	snprintf(text, sizeof text, why ? "not ready: %s\n" : "ready\n", why);
	gp_http_reply_text(out, why ? 503 : 200, text);
}

static void answer_metrics(void *arg, struct gp_http_reply *out)
{
	struct gp_metrics_http *h = arg;
	reply_written(h, &h->text, write_text, GP_METRIC_TEXT_TYPE, out);
}

static void answer_sessions(void *arg, struct gp_http_reply *out)
{
	struct gp_metrics_http *h = arg;
	reply_written(h, &h->json, write_json, "application/json", out);
}

static const struct gp_metrics_route routes[] = {
	{"/metrics", true, answer_metrics}, {"/sessions", true, answer_sessions},
	{"/healthz", false, answer_health}, {"/readyz", false, answer_ready},
	{"/", false, answer_page},
};

/* --- from the loop ----------------------------------------------------------------------------------------------- */

static struct gp_metrics_site_settings settings_of(const struct gp_server_settings *set, void *arg)
{
	return (struct gp_metrics_site_settings){.address = set->metrics,
						 .cert = set->tls_cert,
						 .key = set->tls_key,
						 .ca = set->tls_client_ca,
						 .tokens = set->tokens,
						 .insecure = set->insecure,
						 .tls_options = "--tls-cert and --tls-key",
						 .proof_options = "--tokens or --tls-client-ca",
						 .insecure_option = "--insecure",
						 .what = "names and figures of clients",
						 .route = routes,
						 .routes = sizeof routes / sizeof routes[0],
						 .arg = arg};
}

enum gp_status gp_metrics_http_check(const struct gp_server_settings *set, struct gp_err *err)
{
	const struct gp_metrics_site_settings site = settings_of(set, NULL);
	return set->metrics ? gp_metrics_site_check(&site, err) : GP_OK;
}

enum gp_status gp_metrics_http_start(struct gp_metrics *m, const struct gp_server_settings *set,
				     struct gp_metrics_http **out, struct gp_err *err)
{
	struct gp_metrics_http *h;
	GP_TRY(gp_alloc_array((void **)&h, 1, sizeof *h, err));
	const struct gp_metrics_site_settings site = settings_of(set, h);
	h->metrics = m;
	gp_page_policy(h->policy);
	const enum gp_status status = gp_metrics_site_start(&site, &h->site, err);
	if (status != GP_OK)
		gp_metrics_http_stop(h);
	else
		*out = h;
	return status;
}

enum gp_status gp_metrics_http_reload(struct gp_metrics_http *h, struct gp_err *err)
{
	return h ? gp_metrics_site_reload(h->site, err) : GP_OK;
}

const char *gp_metrics_http_url(const struct gp_metrics_http *h, char out[GP_METRICS_SITE_URL])
{
	return gp_metrics_site_url(h->site, out);
}

void gp_metrics_http_stop(struct gp_metrics_http *h)
{
	if (!h)
		return;
	gp_metrics_site_stop(h->site); /* nobody reads any more */
	free_shared(h->text.shared);
	free_shared(h->json.shared);
	gp_free(h);
}

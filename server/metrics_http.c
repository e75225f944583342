/* SPDX-License-Identifier: Apache-2.0
 *
 * See metrics_http.h. Test: tests/e2e/metrics.sh
 */
#include "server/metrics_http.h"

#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/http/http_server.h"
#include "common/http/metric_text.h"
#include "common/net/conn.h"
#include "common/net/token_file.h"
#include "server/metrics_snapshot.h"
#include "server/metrics_show.h"
#include "server/page.h"
#include "server/server.h"

#define OPTION       "--metrics"
#define WRONG_TOKENS 60 /* of one address, in a minute */
#define RETRY_S      10
#define TEXT_TYPE    "text/plain; charset=utf-8"

/* What was written of the newest snapshot, for all who ask before there is another one. */
struct written {
	uint64_t number; /* of the snapshot; 0: none */
	char *text;
	size_t length;
};

struct gp_metrics_http {
	const struct gp_server_settings *set;
	struct gp_http_server *server;
	char host[256], policy[GP_PAGE_POLICY_BYTES];
	bool loopback, wants_token, wants_certificate;
	pthread_mutex_t mutex;        /* around `tokens` */
	struct gp_token_file *tokens; /* NULL: none are asked for */
	/* of the thread that answers */
	struct gp_metrics *metrics;
	struct gp_visitors *visitors; /* wrong tokens */
	struct written text, json;
};

/* --- who may read ------------------------------------------------------------------------------------------------ */

static bool finds_token(struct gp_metrics_http *h, struct gp_span token)
{
	char name[GP_CLIENT_NAME_BYTES];
	pthread_mutex_lock(&h->mutex);
	const bool found =
		token.len > 0 && token.len <= GP_CLIENT_TOKEN_MAX && gp_token_file_find(h->tokens, token, name);
	pthread_mutex_unlock(&h->mutex);
	return found;
}

static int check_token(struct gp_metrics_http *h, const struct gp_http_request *q)
{
	const struct gp_visitor_key address = gp_visitor_of_address(q->peer);
	if (!gp_visitors_may_try_token(h->visitors, address, gp_now_ns()))
		return 429;
	if (finds_token(h, q->token))
		return 0;
	if (q->token.len > 0)
		gp_visitors_wrong_token(h->visitors, address, gp_now_ns());
	return 401;
}

/* 0, or the status of HTTP with which it is refused. */
static int admit(struct gp_metrics_http *h, const struct gp_http_request *q)
{
	if (h->wants_certificate && !q->certified)
		return 403;
	return h->wants_token ? check_token(h, q) : 0;
}

/* --- answers ----------------------------------------------------------------------------------------------------- */

static void say(struct gp_http_reply *out, int status, const char *text)
{
	out->status = status;
	out->type = TEXT_TYPE;
	out->body = gp_strdup(text);
	out->length = out->body ? strlen(text) : 0;
}

static void refuse(struct gp_http_reply *out, int status)
{
	if (status == 429)
		out->retry_s = RETRY_S;
	say(out, status,
	    status == 401   ? "this wants a token of the server's: Authorization: Bearer TOKEN\n"
	    : status == 403 ? "this wants a client certificate of the server's CA\n"
			    : "too many wrong tokens came from your address\n");
}

static void write_text(struct written *w, const struct gp_metrics_snapshot *s)
{
	struct gp_metric_text t = {0};
	struct gp_err err;
	gp_metrics_show_text(s, &t);
	if (gp_metric_text_check(&t, &err) != GP_OK) {
		gp_metric_text_deinit(&t);
		return;
	}
	w->text = t.text; /* taken over */
	w->length = t.length;
}

static void write_json(struct written *w, const struct gp_metrics_snapshot *s)
{
	w->text = gp_metrics_show_json(s, gp_now_ns(), &w->length);
}

/* A loop that stands still tells nothing new, but that it does: its age, and whether it is alive. */
static bool is_current(const struct written *w, const struct gp_metrics_snapshot *s)
{
	const uint64_t age = gp_now_ns() - s->at_ns;
	return w->text && w->number == s->number && age < 2 * GP_METRICS_PUBLISH_MS * UINT64_C(1000000);
}

static void reply_written(struct gp_metrics_http *h, struct written *w,
			  void (*write)(struct written *w, const struct gp_metrics_snapshot *s), const char *type,
			  struct gp_http_reply *out)
{
	const struct gp_metrics_snapshot *s = gp_metrics_read(h->metrics);
	if (!is_current(w, s)) {
		gp_free(w->text);
		*w = (struct written){.number = s->number};
		write(w, s);
	}
	char *copy = w->text ? gp_realloc(NULL, w->length, 1) : NULL;
	if (!copy) {
		say(out, 503, "out of memory\n");
		return;
	}
	memcpy(copy, w->text, w->length);
	*out = (struct gp_http_reply){.status = 200, .type = type, .body = copy, .length = w->length};
}

static void reply_page(const struct gp_metrics_http *h, struct gp_http_reply *out)
{
	char *copy = gp_realloc(NULL, gp_page_html_bytes, 1);
	if (!copy) {
		say(out, 503, "out of memory\n");
		return;
	}
	memcpy(copy, gp_page_html, gp_page_html_bytes);
	*out = (struct gp_http_reply){.status = 200,
				      .type = "text/html; charset=utf-8",
				      .policy = h->policy,
				      .body = copy,
				      .length = gp_page_html_bytes};
}

static void reply_health(struct gp_metrics_http *h, struct gp_http_reply *out)
{
	const bool alive = gp_metrics_is_alive(gp_metrics_read(h->metrics), gp_now_ns());
	say(out, alive ? 200 : 503, alive ? "alive\n" : "the loop thread does not answer\n");
}

static void reply_ready(struct gp_metrics_http *h, struct gp_http_reply *out)
{
	const struct gp_metrics_snapshot *s = gp_metrics_read(h->metrics);
	const char *why = gp_metrics_is_alive(s, gp_now_ns()) ? gp_metrics_unready(s) : "loop";
	char text[64];
	snprintf(text, sizeof text, why ? "not ready: %s\n" : "ready\n", why);
	say(out, why ? 503 : 200, text);
}

static void answer_admitted(struct gp_metrics_http *h, const struct gp_http_request *q, bool text,
			    struct gp_http_reply *out)
{
	const int refused = admit(h, q);
	if (refused)
		refuse(out, refused);
	else if (text)
		reply_written(h, &h->text, write_text, GP_METRIC_TEXT_TYPE, out);
	else
		reply_written(h, &h->json, write_json, "application/json", out);
}

static void answer(void *arg, const struct gp_http_request *q, struct gp_http_reply *out)
{
	struct gp_metrics_http *h = arg;
	if (strcmp(q->path, "/metrics") == 0)
		answer_admitted(h, q, true, out);
	else if (strcmp(q->path, "/sessions") == 0)
		answer_admitted(h, q, false, out);
	else if (strcmp(q->path, "/healthz") == 0)
		reply_health(h, out);
	else if (strcmp(q->path, "/readyz") == 0)
		reply_ready(h, out);
	else if (strcmp(q->path, "/") == 0)
		reply_page(h, out);
}

/* --- from the loop ----------------------------------------------------------------------------------------------- */

enum gp_status gp_metrics_http_check(const struct gp_server_settings *set, struct gp_err *err)
{
	char host[256];
	uint16_t port;
	if (!set->metrics)
		return GP_OK;
	if (gp_addr_parse(set->metrics, host, &port, err) != GP_OK)
		return gp_err_prefix(err, OPTION);
	if (gp_addr_is_loopback(host))
		return GP_OK;
	if (set->tokens && !set->tls_cert)
		GP_FAIL(err, GP_USAGE,
			OPTION " %s: tokens would cross the network in the clear; give --tls-cert and --tls-key",
			set->metrics);
	if (set->insecure)
		return GP_OK;
	if (!set->tls_cert)
		GP_FAIL(err, GP_USAGE,
			OPTION
			" %s: anyone who reaches this address could read names and figures of clients; give "
			"--tls-cert, --tls-key and --tokens or --tls-client-ca, or an address of loopback, or say "
			"--insecure on a network you trust",
			set->metrics);
	if (!set->tls_client_ca && !set->tokens)
		GP_FAIL(err, GP_USAGE,
			OPTION
			" %s: TLS hides what crosses, but anyone could read it; give --tokens or --tls-client-ca, or "
			"say --insecure on a network you trust",
			set->metrics);
	return GP_OK;
}

static enum gp_status load_tokens(const struct gp_metrics_http *h, struct gp_token_file **out, struct gp_err *err)
{
	*out = NULL;
	if (!h->wants_token)
		return GP_OK;
	return gp_token_file_load(h->set->tokens, out, err);
}

static enum gp_status start_server(struct gp_metrics_http *h, struct gp_err *err)
{
	const struct gp_server_settings *set = h->set;
	struct gp_http_settings http = {.name = OPTION, .host = h->host, .answer = answer, .arg = h};
	const struct gp_visitor_limits limits = {.wrong_tokens = WRONG_TOKENS};
	GP_TRY(gp_addr_parse(set->metrics, h->host, &http.port, err));
	h->loopback = http.loopback = gp_addr_is_loopback(h->host);
	if (!h->loopback) {
		h->wants_token = set->tokens;
		h->wants_certificate = set->tls_client_ca;
		http.cert = set->tls_cert;
		http.key = set->tls_key;
		http.ca = set->tls_client_ca;
	}
	GP_TRY(load_tokens(h, &h->tokens, err));
	GP_TRY(gp_visitors_new(&limits, NULL, NULL, &h->visitors, err));
	return gp_http_server_start(&http, &h->server, err);
}

enum gp_status gp_metrics_http_start(struct gp_metrics *m, const struct gp_server_settings *set,
				     struct gp_metrics_http **out, struct gp_err *err)
{
	struct gp_metrics_http *h;
	GP_TRY(gp_alloc_array((void **)&h, 1, sizeof *h, err));
	h->set = set;
	h->metrics = m;
	pthread_mutex_init(&h->mutex, NULL);
	gp_page_policy(h->policy);
	const enum gp_status status = start_server(h, err);
	if (status != GP_OK)
		gp_metrics_http_stop(h);
	else
		*out = h;
	return status;
}

enum gp_status gp_metrics_http_reload(struct gp_metrics_http *h, struct gp_err *err)
{
	struct gp_token_file *fresh;
	if (!h)
		return GP_OK;
	GP_TRY(load_tokens(h, &fresh, err));
	const enum gp_status status = gp_http_server_reload(h->server, err);
	if (status != GP_OK) {
		gp_token_file_free(fresh);
		return status;
	}
	pthread_mutex_lock(&h->mutex);
	struct gp_token_file *old = h->tokens;
	h->tokens = fresh;
	pthread_mutex_unlock(&h->mutex);
	gp_token_file_free(old);
	return GP_OK;
}

const char *gp_metrics_http_url(const struct gp_metrics_http *h, char out[320])
{
	char at[300];
	gp_addr_format(h->host, gp_http_server_port(h->server), at, sizeof at);
	snprintf(out, 320, "%s://%s/", !h->loopback && h->set->tls_cert ? "https" : "http", at);
	return out;
}

void gp_metrics_http_stop(struct gp_metrics_http *h)
{
	if (!h)
		return;
	gp_http_server_stop(h->server);
	gp_visitors_free(h->visitors);
	gp_token_file_free(h->tokens);
	pthread_mutex_destroy(&h->mutex);
	gp_free(h->text.text);
	gp_free(h->json.text);
	gp_free(h);
}

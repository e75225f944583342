/* SPDX-License-Identifier: Apache-2.0
 *
 * See metrics_site.h. Test: tests/unit/test_metrics_site.c, tests/e2e/metrics.sh
 */
#include "common/http/metrics_site.h"

#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/net/conn.h"
#include "common/net/token_file.h"
#include "common/net/visitors.h"

#define OPTION       "--metrics"
#define WRONG_TOKENS 60 /* of one address, in a minute */
#define RETRY_S      10

struct gp_metrics_site {
	struct gp_metrics_site_settings set;
	struct gp_http_server *server;
	char host[256];
	bool loopback, wants_token, wants_certificate;
	pthread_mutex_t mutex;        /* around `tokens` */
	struct gp_token_file *tokens; /* NULL: none are asked for */
	struct gp_visitors *visitors; /* of the thread that answers: wrong tokens */
};

/* --- who may read ------------------------------------------------------------------------------------------------ */

static bool finds_token(struct gp_metrics_site *s, struct gp_span token)
{
	char name[GP_CLIENT_NAME_BYTES];
	pthread_mutex_lock(&s->mutex);
	const bool found =
		token.len > 0 && token.len <= GP_CLIENT_TOKEN_MAX && gp_token_file_find(s->tokens, token, name);
	pthread_mutex_unlock(&s->mutex);
	return found;
}

static int check_token(struct gp_metrics_site *s, const struct gp_http_request *q)
{
	const struct gp_visitor_key address = gp_visitor_of_address(q->peer);
	if (!gp_visitors_may_try_token(s->visitors, address, gp_now_ns()))
		return 429;
	if (finds_token(s, q->token))
		return 0;
	if (q->token.len > 0)
		gp_visitors_wrong_token(s->visitors, address, gp_now_ns());
	return 401;
}

/* 0, or the status of HTTP with which it is refused. */
static int admit(struct gp_metrics_site *s, const struct gp_http_request *q)
{
	if (s->wants_certificate && !q->certified)
		return 403;
	return s->wants_token ? check_token(s, q) : 0;
}

static void refuse(struct gp_http_reply *out, int status)
{
	if (status == 429)
		out->retry_s = RETRY_S;
	gp_http_reply_text(out, status,
			   status == 401   ? "a token is needed: Authorization: Bearer TOKEN\n"
			   : status == 403 ? "a client certificate is needed, from the CA that this program was given\n"
					   : "too many wrong tokens came from your address\n");
}

static void answer(void *arg, const struct gp_http_request *q, struct gp_http_reply *out)
{
	struct gp_metrics_site *s = arg;
	for (int i = 0; i < s->set.routes; i++) {
		const struct gp_metrics_route *r = &s->set.route[i];
		if (strcmp(q->path, r->path) != 0)
			continue;
		const int refused = r->guarded ? admit(s, q) : 0;
		if (refused)
			refuse(out, refused);
		else
			r->answer(s->set.arg, out);
		return;
	}
}

/* --- settings ---------------------------------------------------------------------------------------------------- */

static enum gp_status check_remote(const struct gp_metrics_site_settings *set, struct gp_err *err)
{
	char otherwise[96] = "";
	if (set->tokens && !set->cert)
		GP_FAIL(err, GP_USAGE, OPTION " %s: tokens would cross the network in the clear; give %s", set->address,
			set->tls_options);
	if (set->insecure)
		return GP_OK;
	if (set->insecure_option)
		snprintf(otherwise, sizeof otherwise, ", or say %s on a network you trust", set->insecure_option);
	if (!set->cert)
		GP_FAIL(err, GP_USAGE,
			OPTION " %s: anyone who reaches this address could read %s; give %s, and %s; or an address of "
			       "loopback%s",
			set->address, set->what, set->tls_options, set->proof_options, otherwise);
	if (!set->ca && !set->tokens)
		GP_FAIL(err, GP_USAGE, OPTION " %s: TLS hides what crosses, but anyone could read it; give %s%s",
			set->address, set->proof_options, otherwise);
	return GP_OK;
}

enum gp_status gp_metrics_site_check(const struct gp_metrics_site_settings *set, struct gp_err *err)
{
	char host[256];
	uint16_t port;
	if (gp_addr_parse(set->address, host, &port, err) != GP_OK)
		return gp_err_prefix(err, OPTION);
	if (!set->cert != !set->key)
		GP_FAIL(err, GP_USAGE, "%s belong together", set->tls_options);
	return gp_addr_is_loopback(host) ? GP_OK : check_remote(set, err);
}

bool gp_metrics_site_is_open(const struct gp_metrics_site_settings *set)
{
	char host[256];
	uint16_t port;
	struct gp_err ignored;
	return gp_addr_parse(set->address, host, &port, &ignored) == GP_OK && gp_addr_is_loopback(host);
}

/* --- life -------------------------------------------------------------------------------------------------------- */

static enum gp_status load_tokens(const struct gp_metrics_site *s, struct gp_token_file **out, struct gp_err *err)
{
	*out = NULL;
	return s->wants_token ? gp_token_file_load(s->set.tokens, out, err) : GP_OK;
}

static enum gp_status start_server(struct gp_metrics_site *s, struct gp_err *err)
{
	const struct gp_metrics_site_settings *set = &s->set;
	struct gp_http_settings http = {.name = OPTION, .host = s->host, .answer = answer, .arg = s};
	const struct gp_visitor_limits limits = {.wrong_tokens = WRONG_TOKENS};
	GP_TRY(gp_addr_parse(set->address, s->host, &http.port, err));
	s->loopback = http.loopback = gp_addr_is_loopback(s->host);
	if (!s->loopback) {
		s->wants_token = set->tokens;
		s->wants_certificate = set->ca;
		http.cert = set->cert;
		http.key = set->key;
		http.ca = set->ca;
	}
	GP_TRY(load_tokens(s, &s->tokens, err));
	GP_TRY(gp_visitors_new(&limits, NULL, NULL, &s->visitors, err));
	return gp_http_server_start(&http, &s->server, err);
}

enum gp_status gp_metrics_site_start(const struct gp_metrics_site_settings *set, struct gp_metrics_site **out,
				     struct gp_err *err)
{
	struct gp_metrics_site *s;
	GP_TRY(gp_metrics_site_check(set, err));
	GP_TRY(gp_alloc_array((void **)&s, 1, sizeof *s, err));
	s->set = *set;
	pthread_mutex_init(&s->mutex, NULL);
	const enum gp_status status = start_server(s, err);
	if (status != GP_OK)
		gp_metrics_site_stop(s);
	else
		*out = s;
	return status;
}

enum gp_status gp_metrics_site_reload(struct gp_metrics_site *s, struct gp_err *err)
{
	struct gp_token_file *fresh;
	GP_TRY(load_tokens(s, &fresh, err));
	pthread_mutex_lock(&s->mutex);
	struct gp_token_file *old = s->tokens;
	s->tokens = fresh;
	pthread_mutex_unlock(&s->mutex);
	gp_token_file_free(old);
	return gp_http_server_reload(s->server,
				     err); /* a token that was taken out is of no use, whatever becomes of this */
}

const char *gp_metrics_site_url(const struct gp_metrics_site *s, char out[GP_METRICS_SITE_URL])
{
	char at[300];
	gp_addr_format(s->host, gp_http_server_port(s->server), at, sizeof at);
	snprintf(out, GP_METRICS_SITE_URL, "%s://%s/", !s->loopback && s->set.cert ? "https" : "http", at);
	return out;
}

void gp_metrics_site_stop(struct gp_metrics_site *s)
{
	if (!s)
		return;
	gp_http_server_stop(s->server);
	gp_visitors_free(s->visitors);
	gp_token_file_free(s->tokens);
	pthread_mutex_destroy(&s->mutex);
	gp_free(s);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See bench_words.h. Test: tests/e2e/bench.sh
 */
#include "client/commands/bench_words.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/net/conn.h"

bool gp_bench_is_one_of(const char *name, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(name, *list) == 0)
			return true;
	return false;
}

/* An option of bench itself, with or without "no-". */
static bool is_in(const struct gp_opt_table *table, const char *name)
{
	const char *bare = strncmp(name, "no-", 3) == 0 ? name + 3 : name;
	for (int i = 0; i < table->count; i++)
		if (strcmp(table->opt[i].name, name) == 0 || strcmp(table->opt[i].name, bare) == 0)
			return true;
	return false;
}

/* What stands behind --: options of train, but not those that a bench decides, and not those that it has to know of. */
enum gp_status gp_bench_words_check(const struct gp_opt_table *table, const struct gp_options_result *given,
				    struct gp_err *err)
{
	static const char *const own[] = {"server",
					  "local",
					  "cut",
					  "codec",
					  "codec-act-up",
					  "codec-act-down",
					  "codec-grad-up",
					  "codec-grad-down",
					  "chunks",
					  "steps",
					  "epochs",
					  "eval",
					  "no-eval",
					  "log-json",
					  "trace",
					  "metrics",
					  "resume",
					  "checkpoint",
					  "json",
					  "config",
					  "save",
					  "help",
					  NULL};
	for (int i = 0; i < given->positionals; i++) {
		const char *word = given->positional[i];
		char name[32], shown[GP_SHOWN];
		if (i == 0 && strncmp(word, "--", 2) != 0)
			GP_FAIL(err, GP_USAGE, "unexpected argument '%s'; options of train follow behind --",
				gp_text_shown(gp_text_of(word), shown));
		if (strncmp(word, "--", 2) != 0)
			continue;
		snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
		if (gp_bench_is_one_of(name, own))
			GP_FAIL(err, GP_USAGE,
				"--%s behind --: gpclient bench decides it for each row, or rows cannot share it",
				name);
		if (is_in(table, name))
			GP_FAIL(err, GP_USAGE, "--%s behind --: give it before --, so that the bench knows of it",
				name);
	}
	return GP_OK;
}

/* Options that train does not have, or that rows get from elsewhere. */
static bool is_own(const char *name)
{
	static const char *const own[] = {"codecs", "cut",   "chunks",  "links",    "steps",     "skip",
					  "rounds", "train", "results", "predict",  "plan-time", "same-machine",
					  "server", "json",  "config",  "progress", NULL};
	return gp_bench_is_one_of(name, own);
}

static enum gp_status check_room(const struct gp_bench_words *w, struct gp_err *err)
{
	if (w->count == GP_BENCH_WORDS)
		GP_FAIL(err, GP_USAGE, "more than %d options", GP_BENCH_WORDS);
	return GP_OK;
}

static enum gp_status add_word(struct gp_bench_words *w, const char *name, const char *value, struct gp_err *err)
{
	const size_t size = strlen(name) + strlen(value) + sizeof "--=";
	GP_TRY(check_room(w, err));
	GP_TRY(gp_alloc_array((void **)&w->word[w->count], size, 1, err));
	snprintf(w->word[w->count++], size, "--%s=%s", name, value);
	return GP_OK;
}

static enum gp_status add_option(struct gp_bench_words *w, const struct gp_opt_table *table, const struct gp_opt *o,
				 const struct gp_job_settings *settings, struct gp_err *err)
{
	char text[512];
	if (o->type == GP_OPT_TEXT) /* of any length */
		return add_word(w, o->name, *(const char *const *)((const char *)settings + o->offset), err);
	gp_options_text(table, settings, o->name, text, sizeof text);
	return add_word(w, o->name, text, err);
}

/* Through a simulated link the client connects to this machine: the certificate's name is still the server's. */
static enum gp_status add_tls_name(struct gp_bench_words *w, const struct gp_job_settings *settings, struct gp_err *err)
{
	const struct gp_client_security_files *s = &settings->security;
	char host[256];
	uint16_t port;
	if ((!s->tls && !s->ca) || s->name)
		return GP_OK;
	GP_TRY(gp_addr_parse_remote(settings->server, host, &port, err));
	return add_word(w, "tls-name", host, err);
}

enum gp_status gp_bench_words_make(struct gp_bench_words *w, const struct gp_opt_table *table,
				   const struct gp_job_settings *settings, const struct gp_options_result *given,
				   struct gp_err *err)
{
	for (int i = 0; i < table->count; i++)
		if (given->given[i] && !is_own(table->opt[i].name))
			GP_TRY(add_option(w, table, &table->opt[i], settings, err));
	GP_TRY(add_tls_name(w, settings, err));
	for (int i = 0; i < given->positionals; i++) {
		GP_TRY(check_room(w, err));
		w->word[w->count] = gp_strdup(given->positional[i]);
		if (!w->word[w->count++])
			GP_FAIL(err, GP_NOMEM, "out of memory for the options");
	}
	return GP_OK;
}

void gp_bench_words_deinit(struct gp_bench_words *w)
{
	for (int i = 0; i < w->count; i++)
		gp_free(w->word[i]);
	*w = (struct gp_bench_words){0};
}

/* Where something is, who may use it, and how long to wait for it make no other sweep. */
static bool decides(const char *name)
{
	static const char *const elsewhere[] = {"token-cache",  "tls",           "tls-ca",     "tls-name",
						"tls-cert",     "tls-key",       "token-file", "connect-timeout",
						"idle-timeout", "reconnect-for", "log",        NULL};
	static const char *const too[] = {"server", "steps", "skip", "train", NULL};
	return gp_bench_is_one_of(name, too) || (!is_own(name) && !gp_bench_is_one_of(name, elsewhere));
}

json_t *gp_bench_words_settings(const struct gp_opt_table *table, const struct gp_job_settings *settings,
				const struct gp_options_result *given)
{
	json_t *o = json_object();
	char name[64], text[1024], behind[2048] = "";
	for (int i = 0; i < table->count; i++) {
		if (!decides(table->opt[i].name))
			continue;
		gp_options_text(table, settings, table->opt[i].name, text, sizeof text);
		snprintf(name, sizeof name, "--%s", table->opt[i].name);
		json_object_set_new(o, name, gp_job_text_json(text));
	}
	for (int i = 0; i < given->positionals; i++)
		gp_text_append(behind, sizeof behind, "%s%s", i ? " " : "", given->positional[i]);
	json_object_set_new(o, "--", gp_job_text_json(behind));
	return o;
}

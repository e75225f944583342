/* SPDX-License-Identifier: Apache-2.0
 *
 * See run_log.h. Tests: tests/unit/test_run_log.c, tests/e2e/json_keys.sh
 */
#include "client/log/run_log.h"

#include <string.h>

#include "client/job/compress.h"
#include "client/log/figures.h"
#include "common/wire/control.h"

#define LEFT_OUT         "(left out)"
#define RUN_DIGITS_SHOWN 8 /* all of them would open the run's checkpoints */

static const char *const secret[] = {"--token-file", "--tls-key", "--metrics-key", "--metrics-tokens"};

/* Returns where the value of `arg` begins that is not to be shown: behind its "=", or at its end where the next argument is
 * the value. NULL: there is none. */
static const char *secret_value(const char *arg)
{
	for (size_t i = 0; i < sizeof secret / sizeof secret[0]; i++) {
		const size_t len = strlen(secret[i]);
		if (strncmp(arg, secret[i], len) == 0 && (arg[len] == '=' || arg[len] == '\0'))
			return arg + len + (arg[len] == '=');
	}
	return NULL;
}

/* Bytes that are no UTF-8, as a file name may have, become '?'. */
static json_t *text_json(const char *text)
{
	char plain[1024];
	json_t *whole = json_string(text);
	return whole ? whole : json_string(gp_text_sanitize(text, plain, sizeof plain));
}

static json_t *shown_part(const char *arg, const char *hidden)
{
	char text[64];
	snprintf(text, sizeof text, "%.*s" LEFT_OUT, (int)(hidden - arg), arg);
	return json_string(text);
}

json_t *gp_run_log_command(int argc, char **argv)
{
	json_t *list = json_array();
	bool hide = false;
	for (int i = 0; i < argc; i++) {
		const char *hidden = hide ? NULL : secret_value(argv[i]);
		if (hide)
			json_array_append_new(list, json_string(LEFT_OUT));
		else if (hidden && hidden[-1] == '=')
			json_array_append_new(list, shown_part(argv[i], hidden));
		else
			json_array_append_new(list, text_json(argv[i]));
		hide = hidden && hidden[-1] != '=';
	}
	return list;
}

static json_t *run_json(const struct gp_run_state *run)
{
	char hex[GP_RUN_ID_HEX];
	if (!run)
		return json_null();
	gp_run_id_text(gp_run_state_id(run), hex);
	return json_stringn(hex, RUN_DIGITS_SHOWN);
}

static json_t *codecs_json(const struct gp_job *j)
{
	json_t *all = json_object();
	for (int d = 0; d < GP_DIRECTIONS; d++)
		json_object_set_new(
			all, gp_direction_info[d].name,
			json_string(j->codec_auto[d].on ? j->codec_auto[d].text : j->session.codec[d].text));
	return all;
}

static json_t *compress_json(const struct gp_job *j)
{
	char text[GP_COMPRESS_TEXT];
	return gp_compress_text(&j->session, text)[0] ? json_string(text) : json_null();
}

enum gp_status gp_run_log_head(struct gp_json_log *l, const struct gp_run_log_head *head, struct gp_err *err)
{
	const struct gp_job *j = head->job;
	const struct gp_job_settings *s = j->set;
	char up[GP_INSERT_TEXT], down[GP_INSERT_TEXT];
	if (!l)
		return GP_OK;
	json_t *o = json_pack(
		"{s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:o, s:I, s:I, s:I, s:s, s:b, s:o, s:I, s:I, s:o}", "version",
		GP_VERSION, "run", run_json(head->run), "server", s->local ? json_null() : text_json(s->server),
		"model", text_json(s->model), "data", text_json(s->data), "cut",
		s->local ? json_null() : json_pack("[i, i]", j->cut.head, j->cut.tail), "insert_up",
		gp_insert_spec_text(&j->insertion.end[GP_INSERT_UP].spec, up), "insert_down",
		gp_insert_spec_text(&j->insertion.end[GP_INSERT_DOWN].spec, down), "codecs",
		s->local ? json_null() : codecs_json(j), "batch", (json_int_t)s->batch, "chunks", (json_int_t)s->chunks,
		"seed", (json_int_t)s->seed, "precision",
		s->precision == GP_PRECISION_AUTO ? "auto" : gp_precision_name((enum gp_precision)s->precision),
		"recompute", s->recompute, "compress", compress_json(j), "total_steps", (json_int_t)head->total_steps,
		"steps_per_epoch", (json_int_t)head->steps_per_epoch, "command",
		gp_run_log_command(head->argc, head->argv));
	return gp_json_log_write(l, "header", o, err);
}

void gp_run_log_error(struct gp_json_log *l, int exit_status, const struct gp_err *why, uint64_t steps)
{
	struct gp_err ignored;
	if (l)
		gp_json_log_write(l, "error",
				  json_pack("{s:I, s:i, s:o}", "step", (json_int_t)steps, "status", exit_status,
					    "message", text_json(why->text)),
				  &ignored);
}

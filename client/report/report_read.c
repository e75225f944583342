/* SPDX-License-Identifier: Apache-2.0
 *
 * See report_read.h. Test: tests/unit/test_report.c
 */
#include "client/report/report_read.h"

#include <errno.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/wire/control.h"

struct reader {
	FILE *file;
	const char *path;
	struct gp_report_run *run;
	char *text; /* of the line */
	size_t length, room;
	bool whole;                /* the line has its end */
	unsigned long long line;   /* its number */
	unsigned long long broken; /* line before it that is no JSON; 0: none */
	char why[128];
};

static enum gp_status make_room(struct reader *r, struct gp_err *err)
{
	if (r->length < r->room)
		return GP_OK;
	const size_t room = r->room ? 2 * r->room : 65536;
	char *text = room <= 2 * (size_t)GP_REPORT_LINE_MOST ? gp_realloc(r->text, room, 1) : NULL;
	if (!text)
		GP_FAIL(err, GP_NOMEM, "%s:%llu: out of memory for a line of %zu bytes", r->path, r->line, r->length);
	r->text = text;
	r->room = room;
	return GP_OK;
}

/* The line without its end; *more is false at the end of the file. */
static enum gp_status next_line(struct reader *r, bool *more, struct gp_err *err)
{
	int c;
	r->length = 0;
	r->line++;
	while ((c = getc_unlocked(r->file)) != EOF && c != '\n') {
		if (r->length == GP_REPORT_LINE_MOST)
			GP_FAIL(err, GP_INVALID,
				"%s:%llu: the line is longer than %u MiB: this is no log of gpclient train --log-json",
				r->path, r->line, GP_REPORT_LINE_MOST >> 20);
		GP_TRY(make_room(r, err));
		r->text[r->length++] = (char)c;
	}
	if (ferror(r->file))
		GP_FAIL(err, GP_INVALID, "cannot read %s: %s", r->path, strerror(errno));
	r->whole = c == '\n';
	*more = r->whole || r->length > 0;
	return GP_OK;
}

static enum gp_status refuse(const struct reader *r, unsigned long long line, const char *why, struct gp_err *err)
{
	GP_FAIL(err, GP_INVALID,
		"%s:%llu: %s: give a log of gpclient train --log-json; a line that something else has written there "
		"may be removed",
		r->path, line, why);
}

/* What stands before this line broke off: fine where a process began anew behind it. */
static enum gp_status pass_broken(struct reader *r, const json_t *line, struct gp_err *err)
{
	if (r->broken == 0)
		return GP_OK;
	if (!gp_report_is_event(line, "header"))
		return refuse(r, r->broken, r->why, err);
	gp_report_run_notice(r->run, "line %llu breaks off, where the run was resumed: it is left out", r->broken);
	r->broken = 0;
	return GP_OK;
}

/* A second line that is no JSON settles that the first one has not broken off at the end of a process. */
static enum gp_status note_broken(struct reader *r, const json_error_t *e, struct gp_err *err)
{
	char text[81]; /* it quotes the line, and a terminal obeys control characters */
	if (r->broken > 0)
		return refuse(r, r->broken, r->why, err);
	r->broken = r->line;
	snprintf(r->why, sizeof r->why, "this is no JSON (%s)", gp_text_sanitize(e->text, text, sizeof text));
	return GP_OK;
}

static enum gp_status check_marks(const struct reader *r, struct gp_err *err)
{
	size_t marks = 0;
	for (size_t i = 0; i < r->length; i++)
		marks += r->text[i] == ',' || r->text[i] == ':' || r->text[i] == '[' || r->text[i] == '{';
	return marks <= GP_REPORT_LINE_MARKS ? GP_OK : refuse(r, r->line, "the line has too many values", err);
}

static enum gp_status take_line(struct reader *r, struct gp_err *err)
{
	json_error_t e;
	if (strspn(r->text, " \t\r") == r->length)
		return GP_OK; /* nobody's line */
	GP_TRY(check_marks(r, err));
	json_t *line = json_loadb(r->text, r->length, 0, &e);
	if (!line)
		return note_broken(r, &e, err);
	enum gp_status status = pass_broken(r, line, err);
	if (status == GP_OK) {
		status = gp_report_event(r->run, line, err);
		if (status == GP_INVALID) {
			const struct gp_err why = *err;
			status = refuse(r, r->line, why.text, err);
		}
	}
	json_decref(line);
	return status;
}

/* The end of the file. */
static enum gp_status end(struct reader *r, struct gp_err *err)
{
	if (r->broken > 0 && r->broken + 1 == r->line && !r->whole)
		gp_report_run_notice(r->run,
				     "line %llu, the last one, breaks off, as where a run was killed: it is left out",
				     r->broken);
	else if (r->broken > 0)
		return refuse(r, r->broken, r->why, err);
	if (r->run->events == 0)
		GP_FAIL(err, GP_INVALID, "%s holds no event of a run: give a log of gpclient train --log-json",
			r->path);
	return GP_OK;
}

static enum gp_status read_all(struct reader *r, struct gp_err *err)
{
	bool more = true, whole = true;
	for (;;) {
		whole = r->whole;
		GP_TRY(next_line(r, &more, err));
		if (!more)
			break;
		GP_TRY(make_room(r, err));
		r->text[r->length] = '\0';
		GP_TRY(take_line(r, err));
	}
	r->whole = whole;
	return end(r, err);
}

enum gp_status gp_report_read(const char *path, struct gp_report_run *run, struct gp_err *err)
{
	struct reader r = {.path = path, .run = run};
	r.file = fopen(path, "re");
	if (!r.file)
		GP_FAIL(err, GP_INVALID, "cannot open %s: %s", path, strerror(errno));
	const enum gp_status status = read_all(&r, err);
	fclose(r.file);
	gp_free(r.text);
	return status;
}

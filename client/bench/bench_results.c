/* SPDX-License-Identifier: Apache-2.0
 *
 * See bench_results.h. Test: tests/unit/test_bench_results.c
 */
#include "client/bench/bench_results.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/log/figures.h"
#include "common/base/durable.h"
#include "common/base/mem.h"
#include "common/base/text.h"

#define FILE_MOST  (64 << 20)
#define ROUND_MOST 1000000
#define STEPS_MOST 1000000000

static const char *const names[GP_BENCH_FIGURES] = {
	[GP_BENCH_TIME] = "time_per_batch_s",
	[GP_BENCH_LOWEST] = "lowest_s",
	[GP_BENCH_RATE] = "rate",
	[GP_BENCH_UP_BYTES_S] = "up_bytes_per_s",
	[GP_BENCH_DOWN_BYTES_S] = "down_bytes_per_s",
	[GP_BENCH_WIRE_UP_BYTES] = "wire_up_bytes",
	[GP_BENCH_WIRE_DOWN_BYTES] = "wire_down_bytes",
	[GP_BENCH_COMPUTE] = "compute_s",
	[GP_BENCH_BODY] = "body_s",
	[GP_BENCH_ENCODE] = "encode_s",
	[GP_BENCH_WIRE] = "wire_s",
	[GP_BENCH_WAIT] = "wait_s",
	[GP_BENCH_DECODE] = "decode_s",
	[GP_BENCH_ACCURACY] = "val_acc",
	[GP_BENCH_LOSS] = "val_loss",
};

const char *gp_bench_figure_name(enum gp_bench_figure f)
{
	return names[f];
}

/* --- lines, read -------------------------------------------------------------------------------------------------- */

static bool read_text(const json_t *o, const char *name, char *out, size_t size)
{
	const json_t *value = json_object_get(o, name);
	const char *text = json_string_value(value);
	if (!text || json_string_length(value) >= size || strlen(text) != json_string_length(value))
		return false;
	memcpy(out, text, json_string_length(value) + 1);
	gp_hide_control_characters(out);
	return true;
}

static bool read_whole(const json_t *o, const char *name, json_int_t least, json_int_t most, int *out)
{
	const json_t *value = json_object_get(o, name);
	const json_int_t n = json_integer_value(value);
	if (!json_is_integer(value) || n < least || n > most)
		return false;
	*out = (int)n;
	return true;
}

/* Null is NAN. */
static bool read_number(const json_t *o, const char *name, double *out)
{
	const json_t *value = json_object_get(o, name);
	*out = json_is_number(value) ? json_number_value(value) : NAN;
	return json_is_null(value) || (json_is_number(value) && *out >= 0);
}

static bool read_key(const json_t *o, struct gp_bench_key *key)
{
	return read_text(o, "link", key->link, sizeof key->link) && read_text(o, "cut", key->cut, sizeof key->cut) &&
	       read_text(o, "codec", key->codec, sizeof key->codec) &&
	       read_whole(o, "chunks", 1, 1 << 20, &key->chunks);
}

static bool read_run(const json_t *o, struct gp_bench_run *run)
{
	bool fits = read_key(o, &run->key) && read_whole(o, "round", 1, ROUND_MOST, &run->round) &&
		    read_whole(o, "steps", 1, STEPS_MOST, &run->steps) &&
		    read_text(o, "bound_by", run->bound_by, sizeof run->bound_by);
	for (int f = 0; fits && f < GP_BENCH_FIGURES; f++)
		fits = read_number(o, names[f], &run->figure[f]);
	return fits && run->figure[GP_BENCH_TIME] > 0 && run->figure[GP_BENCH_LOWEST] > 0;
}

static bool read_failure(const json_t *o, struct gp_bench_run *run)
{
	return read_key(o, &run->key) && read_whole(o, "round", 1, ROUND_MOST, &run->round) &&
	       read_text(o, "why", run->why, sizeof run->why) && run->why[0];
}

static bool read_prediction(const json_t *o, struct gp_bench_prediction *p)
{
	if (!read_key(o, &p->key) || !read_text(o, "why", p->why, sizeof p->why) ||
	    !read_text(o, "bound_by", p->bound_by, sizeof p->bound_by) ||
	    !read_number(o, names[GP_BENCH_TIME], &p->time_s))
		return false;
	return p->why[0] || p->time_s > 0;
}

/* --- keeping ------------------------------------------------------------------------------------------------------ */

static enum gp_status keep_run(struct gp_bench_results *r, const struct gp_bench_run *run, struct gp_err *err)
{
	struct gp_bench_run *grown = gp_realloc(r->run, (size_t)r->runs + 1, sizeof *grown);
	if (!grown)
		GP_FAIL(err, GP_NOMEM, "out of memory for the results");
	r->run = grown;
	r->run[r->runs++] = *run;
	return GP_OK;
}

static enum gp_status keep_prediction(struct gp_bench_results *r, const struct gp_bench_prediction *p,
				      struct gp_err *err)
{
	struct gp_bench_prediction *grown = gp_realloc(r->prediction, (size_t)r->predictions + 1, sizeof *grown);
	if (!grown)
		GP_FAIL(err, GP_NOMEM, "out of memory for the results");
	r->prediction = grown;
	r->prediction[r->predictions++] = *p;
	return GP_OK;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static enum gp_status damaged(const struct gp_bench_results *r, const char *what, struct gp_err *err)
{
	GP_FAIL(err, GP_INVALID, "--results: %s:%d %s; it stays as it is: take the line out, or give another name",
		r->path, r->line, what);
}

static enum gp_status foreign(const struct gp_bench_results *r, struct gp_err *err)
{
	GP_FAIL(err, GP_INVALID,
		"--results: %s holds something else than results of gpclient bench; it stays as it is: give another "
		"name",
		r->path);
}

static enum gp_status differs(const struct gp_bench_results *r, const char *name, const json_t *had,
			      const json_t *wanted, struct gp_err *err)
{
	const char *before = json_string_value(had), *now = json_string_value(wanted);
	char shown_before[GP_SHOWN], shown_now[GP_SHOWN];
	gp_text_shown(gp_text_of(before ? before : ""), shown_before);
	gp_text_shown(gp_text_of(now ? now : ""), shown_now);
	GP_FAIL(err, GP_INVALID,
		"--results: %s is of another sweep: its %s is '%s', and not '%s'; it stays as it is: give another name",
		r->path, name, shown_before, shown_now);
}

static enum gp_status compare_settings(const struct gp_bench_results *r, json_t *had, json_t *wanted,
				       struct gp_err *err)
{
	const char *name;
	json_t *value;
	char shown[GP_SHOWN];
	json_object_foreach(wanted, name, value)
	{
		if (!json_equal(json_object_get(had, name), value))
			return differs(r, name, json_object_get(had, name), value, err);
	}
	json_object_foreach(had, name, value)
	{
		if (!json_object_get(wanted, name))
			return differs(r, gp_text_shown(gp_text_of(name), shown), value, NULL, err);
	}
	return GP_OK;
}

/* `alone`: no row follows. */
static enum gp_status take_sweep(struct gp_bench_results *r, const json_t *line, json_t *settings, bool alone,
				 struct gp_err *err)
{
	json_t *had = json_object_get(line, "settings");
	int format;
	if (!json_is_object(had) || !read_whole(line, "format", 1, 1 << 20, &format))
		return foreign(r, err);
	if (format != 1)
		GP_FAIL(err, GP_INVALID, "--results: %s is of a newer gpclient (format %d); give another name", r->path,
			format);
	const enum gp_status status = compare_settings(r, had, settings, err);
	if (status == GP_OK || !alone)
		return status;
	r->line = 0;
	return GP_OK;
}

static enum gp_status take_row(struct gp_bench_results *r, const json_t *line, const char *event, struct gp_err *err)
{
	struct gp_bench_run run = {0};
	struct gp_bench_prediction p = {0};
	if (strcmp(event, "run") == 0 && read_run(line, &run))
		return keep_run(r, &run, err);
	if (strcmp(event, "failure") == 0 && read_failure(line, &run))
		return keep_run(r, &run, err);
	if (strcmp(event, "prediction") == 0 && read_prediction(line, &p))
		return keep_prediction(r, &p, err);
	return damaged(r, "is no row of gpclient bench", err);
}

static enum gp_status take_line(struct gp_bench_results *r, const char *text, size_t length, json_t *settings,
				bool alone, struct gp_err *err)
{
	json_t *line = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
	const char *event = json_string_value(json_object_get(line, "event"));
	enum gp_status status;
	r->line++;
	if (r->line == 1)
		status = event && strcmp(event, "sweep") == 0 ? take_sweep(r, line, settings, alone, err)
							      : foreign(r, err);
	else
		status = event ? take_row(r, line, event, err) : damaged(r, "is damaged", err);
	json_decref(line);
	return status;
}

/* `whole`: the bytes of whole lines. */
static enum gp_status take_lines(struct gp_bench_results *r, const char *text, size_t length, json_t *settings,
				 size_t *whole, struct gp_err *err)
{
	size_t at = 0;
	for (const char *end; (end = memchr(text + at, '\n', length - at)) != NULL; at = (size_t)(end - text) + 1) {
		const bool alone = at == 0 && !memchr(end + 1, '\n', length - (size_t)(end + 1 - text));
		GP_TRY(take_line(r, text + at, (size_t)(end - text) - at, settings, alone, err));
	}
	*whole = r->line > 0 ? at : 0;
	/* A first line that was cut short begins as ours do, or the file is somebody's. */
	static const char begin[] = "{\"event\": \"sweep\"";
	const size_t shown = length < sizeof begin - 1 ? length : sizeof begin - 1;
	return at == 0 && memcmp(text, begin, shown) != 0 ? foreign(r, err) : GP_OK;
}

static enum gp_status read_file(struct gp_bench_results *r, json_t *settings, struct gp_err *err)
{
	struct stat st;
	char *text;
	size_t whole = 0;
	if (fstat(r->fd, &st) != 0 || !S_ISREG(st.st_mode))
		GP_FAIL(err, GP_INVALID, "--results: %s is no file that results can be kept in", r->path);
	if (st.st_size > FILE_MOST)
		return foreign(r, err);
	GP_TRY(gp_alloc_array((void **)&text, (size_t)st.st_size + 1, 1, err));
	enum gp_status status = gp_read_all(r->fd, text, (uint64_t)st.st_size, r->path, err);
	if (status == GP_OK)
		status = take_lines(r, text, (size_t)st.st_size, settings, &whole, err);
	gp_free(text);
	if (status == GP_OK && (ftruncate(r->fd, (off_t)whole) != 0 || lseek(r->fd, 0, SEEK_END) < 0))
		return gp_fail_os(err, GP_IO, "write", r->path);
	return status;
}

/* Takes the line. What a full disk has cut short is taken back. */
static enum gp_status write_line(struct gp_bench_results *r, json_t *line, struct gp_err *err)
{
	char *text = line && r->path ? json_dumps(line, 0) : NULL;
	const bool made = line && (text || !r->path);
	json_decref(line);
	if (!made)
		GP_FAIL(err, GP_NOMEM, "out of memory for the results");
	if (!r->path)
		return GP_OK;
	const size_t length = strlen(text);
	const off_t before = lseek(r->fd, 0, SEEK_END);
	text[length] = '\n'; /* in place of the NUL: the bytes are counted */
	enum gp_status status = gp_write_all(r->fd, text, length + 1, r->path, err);
	free(text);
	if (status == GP_OK)
		status = gp_sync_fd(r->fd, r->path, err);
	else if (before >= 0 && ftruncate(r->fd, before) != 0)
		return status;
	return status;
}

static enum gp_status begin_file(struct gp_bench_results *r, json_t *settings, struct gp_err *err)
{
	return write_line(r,
			  json_pack("{s:s, s:i, s:s, s:O}", "event", "sweep", "format", 1, "version", GP_VERSION,
				    "settings", settings),
			  err);
}

static enum gp_status open_file(struct gp_bench_results *r, json_t *settings, struct gp_err *err)
{
	r->fd = open(r->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
	if (r->fd < 0)
		GP_FAIL(err, GP_INVALID, "--results: cannot open %s: %s", r->path, strerror(errno));
	if (flock(r->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
		GP_FAIL(err, GP_INVALID, "--results: another gpclient bench is writing to %s", r->path);
	GP_TRY(read_file(r, settings, err));
	return r->line == 0 ? begin_file(r, settings, err) : GP_OK;
}

enum gp_status gp_bench_results_open(struct gp_bench_results *r, const char *path, json_t *settings, struct gp_err *err)
{
	*r = (struct gp_bench_results){.fd = -1};
	if (!path)
		return GP_OK;
	if (!*path)
		GP_FAIL(err, GP_USAGE, "--results needs the name of a file");
	r->path = gp_strdup(path);
	if (!r->path)
		GP_FAIL(err, GP_NOMEM, "out of memory for the results");
	const enum gp_status status = open_file(r, settings, err);
	if (status != GP_OK)
		gp_bench_results_close(r);
	return status;
}

void gp_bench_results_close(struct gp_bench_results *r)
{
	if (r->path && r->fd >= 0)
		close(r->fd);
	gp_free(r->path);
	gp_free(r->run);
	gp_free(r->prediction);
	*r = (struct gp_bench_results){.fd = -1};
}

/* --- lines, written ----------------------------------------------------------------------------------------------- */

static json_t *line_of(const char *event, const struct gp_bench_key *key)
{
	return json_pack("{s:s, s:s, s:s, s:i, s:s}", "event", event, "link", key->link, "cut", key->cut, "chunks",
			 key->chunks, "codec", key->codec);
}

static json_t *text_json(const char *text)
{
	json_t *o = json_string(text);
	return o ? o : json_string("what was said is no text");
}

enum gp_status gp_bench_results_add_run(struct gp_bench_results *r, const struct gp_bench_run *run, struct gp_err *err)
{
	json_t *line = line_of(run->why[0] ? "failure" : "run", &run->key);
	json_object_set_new(line, "round", json_integer(run->round));
	if (run->why[0]) {
		json_object_set_new(line, "why", text_json(run->why));
	} else {
		json_object_set_new(line, "steps", json_integer(run->steps));
		json_object_set_new(line, "bound_by", json_string(run->bound_by));
		for (int f = 0; f < GP_BENCH_FIGURES; f++)
			json_object_set_new(line, names[f], gp_json_number(run->figure[f]));
	}
	GP_TRY(write_line(r, line, err));
	return keep_run(r, run, err);
}

enum gp_status gp_bench_results_add_prediction(struct gp_bench_results *r, const struct gp_bench_prediction *p,
					       struct gp_err *err)
{
	json_t *line = line_of("prediction", &p->key);
	json_object_set_new(line, names[GP_BENCH_TIME], gp_json_number(p->time_s));
	json_object_set_new(line, "bound_by", json_string(p->bound_by));
	json_object_set_new(line, "why", text_json(p->why));
	GP_TRY(write_line(r, line, err));
	return keep_prediction(r, p, err);
}

/* --- looking up --------------------------------------------------------------------------------------------------- */

static const struct gp_bench_run *find(const struct gp_bench_results *r, const struct gp_bench_key *key, int round,
				       bool failed)
{
	for (int i = r->runs - 1; i >= 0; i--)
		if (r->run[i].round == round && (r->run[i].why[0] != '\0') == failed &&
		    gp_bench_key_same(&r->run[i].key, key))
			return &r->run[i];
	return NULL;
}

const struct gp_bench_run *gp_bench_results_done(const struct gp_bench_results *r, const struct gp_bench_key *key,
						 int round)
{
	return find(r, key, round, false);
}

const struct gp_bench_run *gp_bench_results_failed(const struct gp_bench_results *r, const struct gp_bench_key *key,
						   int round)
{
	return find(r, key, round, true);
}

const struct gp_bench_prediction *gp_bench_results_predicted(const struct gp_bench_results *r,
							     const struct gp_bench_key *key)
{
	for (int i = r->predictions - 1; i >= 0; i--)
		if (gp_bench_key_same(&r->prediction[i].key, key))
			return &r->prediction[i];
	return NULL;
}

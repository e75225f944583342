/* SPDX-License-Identifier: Apache-2.0
 *
 * What each event of a log tells a report. See report_run.h. Keys: client/JSON.md.
 * Test: tests/unit/test_report.c
 */
#include "client/report/report_run.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "client/report/report_html.h"
#include "common/base/mem.h"
#include "common/wire/direction.h"

static_assert((int)GP_REPORT_DIRECTIONS == (int)GP_DIRECTIONS, "a report has all directions");

/* --- values ------------------------------------------------------------------------------------------------------ */

static double number(const json_t *o, const char *key)
{
	const json_t *value = json_object_get(o, key);
	return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Cut off where a character ends. */
static void copy_text(char *out, size_t size, const char *text)
{
	size_t length = text ? strlen(text) : 0;
	if (length >= size)
		for (length = size - 1; length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80;)
			length--;
	if (length > 0)
		memcpy(out, text, length);
	out[length] = '\0';
}

static void read_text(const json_t *o, const char *key, char *out, size_t size)
{
	copy_text(out, size, json_string_value(json_object_get(o, key)));
}

#define READ_TEXT(object, key, field) read_text(object, key, field, sizeof(field))

static enum gp_status read_step(const json_t *o, uint64_t *out, struct gp_err *err)
{
	const json_t *step = json_object_get(o, "step");
	if (!json_is_integer(step) || json_integer_value(step) < 0)
		GP_FAIL(err, GP_INVALID, "the event has no number of steps as its \"step\"");
	*out = (uint64_t)json_integer_value(step);
	return GP_OK;
}

/* -1: none. */
static int direction_of(const json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "direction"));
	for (int d = 0; name && d < GP_DIRECTIONS; d++)
		if (strcmp(name, gp_direction_info[d].name) == 0)
			return d;
	return -1;
}

static struct gp_series_place place_of(const struct gp_report_run *r, uint64_t step)
{
	return (struct gp_series_place){.step = step, .time_s = r->time_s, .bytes = r->up_bytes + r->down_bytes};
}

/* --- the run ----------------------------------------------------------------------------------------------------- */

/* What the log says of `auto` is all of it, ladder included (codec_auto.h); a label has what a user most likely gave. */
static void shorten_auto(char *codec, size_t size)
{
	static const char all[] = "auto:budget=";
	double budget;
	if (strncmp(codec, all, sizeof all - 1) != 0 || sscanf(codec + sizeof all - 1, "%lf", &budget) != 1)
		return;
	if (strstr(codec, ",script="))
		snprintf(codec, size, "auto:script");
	else if (budget > 0)
		snprintf(codec, size, "auto:budget=%g", budget);
	else
		snprintf(codec, size, "auto");
}

static void read_codecs(const json_t *o, struct gp_report_head *h)
{
	const json_t *codecs = json_object_get(o, "codecs");
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		READ_TEXT(codecs, gp_direction_info[d].name, h->codec[d]);
		shorten_auto(h->codec[d], sizeof h->codec[d]);
	}
}

static void read_cut(const json_t *o, struct gp_report_head *h)
{
	const json_t *cut = json_object_get(o, "cut");
	if (json_array_size(cut) == 2)
		snprintf(h->cut, sizeof h->cut, "%lld:%lld", (long long)json_integer_value(json_array_get(cut, 0)),
			 (long long)json_integer_value(json_array_get(cut, 1)));
	else
		read_text(o, "cut", h->cut, sizeof h->cut);
}

static enum gp_status on_header(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	struct gp_report_head *h = &r->head;
	char begun[sizeof h->begun];
	(void)err;
	memcpy(begun, h->begun, sizeof begun);
	*h = (struct gp_report_head){.batch = number(o, "batch"),
				     .chunks = number(o, "chunks"),
				     .seed = number(o, "seed"),
				     .total_steps = number(o, "total_steps"),
				     .local = !json_is_string(json_object_get(o, "server")),
				     .recompute = json_is_true(json_object_get(o, "recompute"))};
	READ_TEXT(o, "model", h->model);
	READ_TEXT(o, "data", h->data);
	READ_TEXT(o, "server", h->server);
	READ_TEXT(o, "precision", h->precision);
	READ_TEXT(o, "version", h->version);
	READ_TEXT(o, "time", h->begun);
	READ_TEXT(o, "compress", h->compress);
	READ_TEXT(o, "insert_up", h->insert_up);
	READ_TEXT(o, "insert_down", h->insert_down);
	r->median_s = NAN; /* of another process */
	if (begun[0])      /* of the first process */
		memcpy(h->begun, begun, sizeof begun);
	read_codecs(o, h);
	read_cut(o, h);
	r->processes++;
	r->state = GP_RUN_UNFINISHED;
	r->message[0] = '\0';
	return GP_OK;
}

/* Steps behind it are to be repeated. */
static enum gp_status on_resume(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	uint64_t step;
	GP_TRY(read_step(o, &step, err));
	r->steps = step;
	gp_series_cut(&r->step, step);
	gp_series_cut(&r->eval, step);
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		gp_series_cut(&r->codec_error[d], step);
		gp_series_cut(&r->privacy[d], step);
	}
	return GP_OK;
}

static void add_known(double *sum, double more)
{
	if (isfinite(more))
		*sum = isnan(*sum) ? more : *sum + more;
}

static void read_link(const json_t *o, double *figure)
{
	static const char *const stage[] = {"encode_s", "queue_s", "wire_s", "decode_s", "wait_s"};
	const json_t *link = json_object_get(o, "link");
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const json_t *kind = json_object_get(link, gp_direction_info[d].name);
		for (int i = 0; i < GP_STEP_STAGES - 1; i++)
			add_known(&figure[GP_STEP_ENCODE + i], number(kind, stage[i]));
		figure[GP_STEP_PAYLOAD + d] = number(kind, "payload_bytes");
		figure[GP_STEP_UNCOMPRESSED + d] = number(kind, "uncompressed_bytes");
	}
}

static void read_step_figures(const json_t *o, double *figure)
{
	static const char *const key[] = {
		[GP_STEP_LOSS] = "loss",
		[GP_STEP_ACC] = "acc",
		[GP_STEP_SECONDS] = "seconds",
		[GP_STEP_LR] = "lr",
		[GP_STEP_NORM] = "grad_norm",
		[GP_STEP_RTT_S] = "rtt_us",
		[GP_STEP_UP_RATE] = "up_bytes_per_s",
		[GP_STEP_DOWN_RATE] = "down_bytes_per_s",
		[GP_STEP_UP_BYTES] = "wire_up_bytes",
		[GP_STEP_DOWN_BYTES] = "wire_down_bytes",
		[GP_STEP_COMPUTE] = "compute_s",
	};
	const json_t *bound = json_object_get(o, "bound_by");
	for (int i = 0; i < GP_STEP_FIGURES; i++)
		figure[i] = i <= GP_STEP_COMPUTE ? number(o, key[i]) : NAN;
	figure[GP_STEP_RTT_S] *= 1e-6;
	for (int i = 0; i < GP_BOUND_COUNT; i++)
		figure[GP_STEP_BOUND + i] = number(bound, gp_bound_name((enum gp_bound)i));
	read_link(o, figure);
}

static enum gp_status on_step(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	double figure[GP_STEP_FIGURES];
	uint64_t step;
	GP_TRY(read_step(o, &step, err));
	read_step_figures(o, figure);
	add_known(&r->up_bytes, figure[GP_STEP_UP_BYTES]);
	add_known(&r->down_bytes, figure[GP_STEP_DOWN_BYTES]);
	const struct gp_series_place at = place_of(r, step);
	gp_series_add(&r->step, &at, figure);
	r->steps = step;
	return GP_OK;
}

static void read_scores(struct gp_report_run *r, const json_t *o)
{
	r->val_acc = number(o, "val_acc");
	r->val_pearson = number(o, "val_pearson");
	r->val_perplexity = number(o, "val_perplexity");
}

static enum gp_status on_eval(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	const double figure[GP_EVAL_FIGURES] = {
		[GP_EVAL_LOSS] = number(o, "val_loss"),
		[GP_EVAL_ACC] = number(o, "val_acc"),
		[GP_EVAL_MCC] = number(o, "val_mcc"),
		[GP_EVAL_PEARSON] = number(o, "val_pearson"),
		[GP_EVAL_PERPLEXITY] = number(o, "val_perplexity"),
	};
	uint64_t step;
	GP_TRY(read_step(o, &step, err));
	const struct gp_series_place at = place_of(r, step);
	gp_series_add(&r->eval, &at, figure);
	read_scores(r, o);
	return GP_OK;
}

static enum gp_status on_end(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	const json_t *report = json_object_get(o, "report");
	(void)err;
	r->state = json_is_true(json_object_get(report, "stopped")) ? GP_RUN_STOPPED : GP_RUN_DONE;
	r->median_s = number(report, "time_per_batch_s");
	READ_TEXT(report, "precision", r->head.precision); /* the header's may be "auto" */
	if (isfinite(number(report, "val_loss")))
		read_scores(r, report);
	return GP_OK;
}

static enum gp_status on_error(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	(void)err;
	r->state = GP_RUN_FAILED;
	READ_TEXT(o, "message", r->message);
	return GP_OK;
}

/* --- codecs and privacy ------------------------------------------------------------------------------------------ */

static enum gp_status add_of_direction(struct gp_report_run *r, struct gp_series list[], int figures, const json_t *o,
				       const double *figure, struct gp_err *err)
{
	const int d = direction_of(o);
	uint64_t step;
	GP_TRY(read_step(o, &step, err));
	if (d < 0)
		GP_FAIL(err, GP_INVALID, "the event has no \"direction\"");
	if (list[d].figures == 0)
		GP_TRY(gp_series_init(&list[d], figures, err));
	const struct gp_series_place at = place_of(r, step);
	gp_series_add(&list[d], &at, figure);
	return GP_OK;
}

static enum gp_status on_codec_error(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	const double figure[GP_CODEC_ERROR_FIGURES] = {number(o, "rel_err"), number(o, "cosine")};
	return add_of_direction(r, r->codec_error, GP_CODEC_ERROR_FIGURES, o, figure, err);
}

static enum gp_status on_privacy(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	const double figure[GP_PRIVACY_FIGURES] = {number(o, "distance_correlation"), number(o, "label_correlation")};
	return add_of_direction(r, r->privacy, GP_PRIVACY_FIGURES, o, figure, err);
}

static enum gp_status on_codec(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	uint64_t step;
	GP_TRY(read_step(o, &step, err));
	if (!r->decision)
		GP_TRY(gp_alloc_array((void **)&r->decision, GP_REPORT_DECISIONS, sizeof *r->decision, err));
	if (r->decisions == GP_REPORT_DECISIONS) {
		r->decisions_left_out++;
		return GP_OK;
	}
	struct gp_report_decision *d = &r->decision[r->decisions++];
	d->step = step;
	READ_TEXT(o, "direction", d->direction);
	READ_TEXT(o, "from", d->from);
	READ_TEXT(o, "to", d->to);
	READ_TEXT(o, "reason", d->reason);
	return GP_OK;
}

static enum gp_status on_attack(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	const json_t *pictures = json_object_get(o, "pictures");
	(void)err;
	if (r->attacks == GP_REPORT_ATTACKS) {
		r->attacks_left_out++;
		return GP_OK;
	}
	struct gp_report_attack *a = &r->attack[r->attacks++];
	*a = (struct gp_report_attack){.psnr_db = number(o, "psnr_db"),
				       .mean_picture_psnr_db = number(o, "mean_picture_psnr_db"),
				       .distance_correlation = number(o, "distance_correlation")};
	READ_TEXT(o, "model", a->model);
	READ_TEXT(o, "cut", a->cut);
	READ_TEXT(o, "codec", a->codec);
	for (size_t i = 0; i < json_array_size(pictures) && a->pictures < GP_REPORT_PICTURES; i++) {
		json_t *original = json_object_get(json_array_get(pictures, i), "original");
		json_t *restored = json_object_get(json_array_get(pictures, i), "restored");
		if (!gp_html_is_picture(json_string_value(original)) ||
		    !gp_html_is_picture(json_string_value(restored))) {
			gp_report_run_notice(
				r, "pictures of an attack are left out: they are no PNG in base64, or too large");
			continue;
		}
		a->original[a->pictures] = json_incref(original);
		a->restored[a->pictures++] = json_incref(restored);
	}
	return GP_OK;
}

/* --- histograms -------------------------------------------------------------------------------------------------- */

static struct gp_report_histogram *histogram_of(struct gp_report_run *r, const char *what, const char *of)
{
	for (int i = 0; i < r->histograms; i++)
		if (strcmp(r->histogram[i].what, what) == 0 && strcmp(r->histogram[i].of, of) == 0)
			return &r->histogram[i];
	return NULL;
}

/* False: there is nothing to draw. */
static bool read_bins(const json_t *o, struct gp_report_bins *b)
{
	const json_t *counts = json_object_get(o, "counts");
	double all = fmax(number(o, "below"), 0) + fmax(number(o, "above"), 0);
	b->count = (int)json_array_size(counts);
	b->low = number(o, "low");
	b->high = number(o, "high");
	b->mean = number(o, "mean");
	b->std = number(o, "std");
	b->smallest = number(o, "smallest");
	b->largest = number(o, "largest");
	if (json_array_size(counts) > GP_REPORT_BINS || !(b->high > b->low) || !isfinite(b->high - b->low))
		return false;
	for (int i = 0; i < b->count; i++)
		all += fmax(json_number_value(json_array_get(counts, (size_t)i)), 0);
	if (!(all > 0) || !isfinite(all))
		return false;
	for (int i = 0; i < b->count; i++)
		b->share[i] = (float)(fmax(json_number_value(json_array_get(counts, (size_t)i)), 0) / all);
	b->below = fmax(number(o, "below"), 0) / all;
	b->above = fmax(number(o, "above"), 0) / all;
	return b->count > 0;
}

static enum gp_status on_histogram(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	struct gp_report_histogram new = {0};
	GP_TRY(read_step(o, &new.newest.step, err));
	READ_TEXT(o, "what", new.what);
	READ_TEXT(o, "of", new.of);
	if (!r->histogram)
		GP_TRY(gp_alloc_array((void **)&r->histogram, GP_REPORT_HISTOGRAMS, sizeof *r->histogram, err));
	if (!read_bins(o, &new.newest))
		return GP_OK;
	struct gp_report_histogram *h = histogram_of(r, new.what, new.of);
	if (h) {
		h->newest = new.newest;
	} else if (r->histograms < GP_REPORT_HISTOGRAMS) {
		new.first = new.newest;
		r->histogram[r->histograms++] = new;
	}
	return GP_OK;
}

/* --- the timeline of a step -------------------------------------------------------------------------------------- */

static bool stage_of(const char *name, enum gp_interval_stage *out)
{
	for (int i = 0; name && i < GP_AT_STAGES; i++)
		if (strcmp(name, gp_interval_stage_name((enum gp_interval_stage)i)) == 0) {
			*out = (enum gp_interval_stage)i;
			return true;
		}
	return false;
}

static void add_interval(struct gp_report_timeline *t, const json_t *o)
{
	struct gp_report_interval i = {
		.begin_s = number(o, "begin_s"), .end_s = number(o, "end_s"), .bytes = number(o, "bytes")};
	const double chunk = number(o, "chunk");
	i.chunk = chunk >= 0 && chunk < 1e6 ? (int)chunk : -1;
	if (stage_of(json_string_value(json_object_get(o, "stage")), &i.stage) && i.end_s >= i.begin_s &&
	    fabs(i.begin_s) < 1e9 && fabs(i.end_s) < 1e9)
		t->interval[t->count++] = i;
}

static enum gp_status on_timeline(struct gp_report_run *r, const json_t *o, struct gp_err *err)
{
	const json_t *intervals = json_object_get(o, "intervals");
	struct gp_report_timeline *t = &r->timeline;
	uint64_t step;
	GP_TRY(read_step(o, &step, err));
	if (!t->interval)
		GP_TRY(gp_alloc_array((void **)&t->interval, GP_REPORT_INTERVALS, sizeof *t->interval, err));
	const double seconds = number(o, "seconds");
	if (t->count > 0 && seconds > 2 * gp_series_mean_of_all(&r->step, GP_STEP_SECONDS))
		return GP_OK; /* not one that something else on the machine has held up */
	t->step = step;
	t->seconds = seconds;
	t->count = 0;
	for (size_t i = 0; i < json_array_size(intervals) && t->count < GP_REPORT_INTERVALS; i++)
		add_interval(t, json_array_get(intervals, i));
	return GP_OK;
}

/* --- events ------------------------------------------------------------------------------------------------------ */

static const struct {
	const char *name;
	enum gp_status (*read)(struct gp_report_run *r, const json_t *o, struct gp_err *err);
} known[] = {
	{"header", on_header},   {"resume", on_resume}, {"step", on_step},           {"eval", on_eval},
	{"end", on_end},         {"error", on_error},   {"codec", on_codec},         {"codec_error", on_codec_error},
	{"privacy", on_privacy}, {"attack", on_attack}, {"histogram", on_histogram}, {"timeline", on_timeline},
};

bool gp_report_is_event(const json_t *line, const char *name)
{
	const char *event = json_string_value(json_object_get(line, "event"));
	return event && strcmp(event, name) == 0;
}

/* A process's clock begins anew. */
static void note_time(struct gp_report_run *r, const json_t *line)
{
	const double elapsed = number(line, "elapsed_s");
	if (gp_report_is_event(line, "header"))
		r->earlier_s = r->time_s;
	if (elapsed >= 0 && elapsed < 1e12)
		r->time_s = fmax(r->time_s, r->earlier_s + elapsed);
}

enum gp_status gp_report_event(struct gp_report_run *r, const json_t *line, struct gp_err *err)
{
	if (!json_is_string(json_object_get(line, "event")))
		GP_FAIL(err, GP_INVALID, "it is no JSON object with the key \"event\"");
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		if (!gp_report_is_event(line, known[i].name))
			continue;
		note_time(r, line);
		r->events++;
		return known[i].read(r, line, err);
	}
	return GP_OK;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

enum gp_status gp_report_run_init(struct gp_report_run *r, const char *name, struct gp_err *err)
{
	*r = (struct gp_report_run){
		.up_bytes = 0, .median_s = NAN, .val_acc = NAN, .val_pearson = NAN, .val_perplexity = NAN};
	copy_text(r->name, sizeof r->name, name);
	GP_TRY(gp_series_init(&r->step, GP_STEP_FIGURES, err));
	const enum gp_status status = gp_series_init(&r->eval, GP_EVAL_FIGURES, err);
	if (status != GP_OK)
		gp_series_deinit(&r->step);
	return status;
}

static void drop_pictures(struct gp_report_attack *a)
{
	for (int i = 0; i < a->pictures; i++) {
		json_decref(a->original[i]);
		json_decref(a->restored[i]);
	}
}

void gp_report_run_deinit(struct gp_report_run *r)
{
	gp_series_deinit(&r->step);
	gp_series_deinit(&r->eval);
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		gp_series_deinit(&r->codec_error[d]);
		gp_series_deinit(&r->privacy[d]);
	}
	for (int i = 0; i < r->attacks; i++)
		drop_pictures(&r->attack[i]);
	gp_free(r->decision);
	gp_free(r->histogram);
	gp_free(r->timeline.interval);
	*r = (struct gp_report_run){0};
}

void gp_report_run_notice(struct gp_report_run *r, const char *fmt, ...)
{
	char text[GP_REPORT_TEXT];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	for (int i = 0; i < r->notices; i++)
		if (strcmp(r->notice[i], text) == 0)
			return;
	if (r->notices < GP_REPORT_NOTICES)
		memcpy(r->notice[r->notices++], text, sizeof text);
}

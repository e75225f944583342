/* SPDX-License-Identifier: Apache-2.0
 *
 * See bench_table.h. Test: tests/unit/test_bench_table.c
 */
#include "client/bench/bench_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/log/figures.h"
#include "common/base/mem.h"

#define ORIGIN_CLAIM 0.30 /* of the time, from pipelining over 1 Gbit/s */

/* --- taking rounds together --------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* The middle one of those that were measured, or with `lowest` the least of them. */
static double middle(const struct gp_bench_run *const *run, int runs, int f, bool lowest, double *room)
{
	int n = 0;
	for (int i = 0; i < runs; i++)
		if (isfinite(run[i]->figure[f]))
			room[n++] = run[i]->figure[f];
	qsort(room, (size_t)n, sizeof *room, by_size);
	if (n == 0)
		return NAN;
	return lowest ? room[0] : n % 2 ? room[n / 2] : (room[n / 2 - 1] + room[n / 2]) / 2;
}

static void take_together(const struct gp_bench_results *results, int rounds, struct gp_bench_row *row,
			  const struct gp_bench_run **run, double *room)
{
	row->bound_by = row->why = "";
	for (int round = 1; round <= rounds; round++) {
		const struct gp_bench_run *done = gp_bench_results_done(results, &row->key, round);
		const struct gp_bench_run *failed = gp_bench_results_failed(results, &row->key, round);
		if (done) {
			run[row->rounds++] = done;
			row->steps += done->steps;
			row->bound_by = done->bound_by;
		} else if (failed) {
			row->why = failed->why;
		}
	}
	for (int f = 0; f < GP_BENCH_FIGURES; f++)
		row->figure[f] = middle(run, row->rounds, f, f == GP_BENCH_LOWEST, room);
}

static const struct gp_bench_row *find(const struct gp_bench_table *t, const struct gp_bench_key *key)
{
	for (int i = 0; i < t->rows; i++)
		if (gp_bench_key_same(&t->row[i].key, key))
			return &t->row[i];
	return NULL;
}

static void compare(const struct gp_bench_table *t, const struct gp_bench_results *results, struct gp_bench_row *row)
{
	struct gp_bench_key raw = row->key;
	snprintf(raw.codec, sizeof raw.codec, "raw");
	const struct gp_bench_row *base = find(t, &raw);
	const double time = row->figure[GP_BENCH_TIME];
	row->speed_up = base ? base->figure[GP_BENCH_TIME] / time : NAN;
	row->prediction = gp_bench_results_predicted(results, &row->key);
	row->off = row->prediction && !row->prediction->why[0] ? row->prediction->time_s / time - 1 : NAN;
}

enum gp_status gp_bench_table_make(const struct gp_bench_sweep *s, const struct gp_bench_results *results, int rounds,
				   struct gp_bench_table *out, struct gp_err *err)
{
	struct gp_bench_table t = {.rows = gp_bench_count(s)};
	const struct gp_bench_run **run = NULL;
	double *room = NULL;
	enum gp_status status = gp_alloc_array((void **)&t.row, (size_t)t.rows, sizeof *t.row, err);
	status = status == GP_OK ? gp_alloc_array((void **)&run, (size_t)rounds, sizeof *run, err) : status;
	status = status == GP_OK ? gp_alloc_array((void **)&room, (size_t)rounds, sizeof *room, err) : status;
	for (int i = 0; status == GP_OK && i < t.rows; i++) {
		gp_bench_key_of(s, i, &t.row[i].key);
		take_together(results, rounds, &t.row[i], run, room);
	}
	for (int i = 0; status == GP_OK && i < t.rows; i++)
		compare(&t, results, &t.row[i]);
	gp_free(run);
	gp_free(room);
	if (status == GP_OK)
		*out = t;
	else
		gp_free(t.row);
	return status;
}

void gp_bench_table_deinit(struct gp_bench_table *t)
{
	gp_free(t->row);
	*t = (struct gp_bench_table){0};
}

/* --- text --------------------------------------------------------------------------------------------------------- */

/* Short texts by value, so that several fit into one printf. */
struct text {
	char s[48];
};

static struct text number_text(const char *format, double x)
{
	struct text t = {"-"};
	if (isfinite(x))
		snprintf(t.s, sizeof t.s, format, x);
	return t;
}

static struct text seconds_text(double s)
{
	return s < 0.0995 ? number_text("%.3g ms", s * 1e3) : number_text("%.3g s", s);
}

static bool has_accuracy(const struct gp_bench_table *t)
{
	for (int i = 0; i < t->rows; i++)
		if (isfinite(t->row[i].figure[GP_BENCH_ACCURACY]))
			return true;
	return false;
}

static int codec_width(const struct gp_bench_table *t)
{
	size_t most = strlen("method");
	for (int i = 0; i < t->rows; i++)
		most = strlen(t->row[i].key.codec) > most ? strlen(t->row[i].key.codec) : most;
	return (int)most;
}

static void print_head(const struct gp_bench_table *t, int width, FILE *to)
{
	fprintf(to, "%-*s %6s %7s", width, "method", "chunks", "rate");
	if (has_accuracy(t))
		fprintf(to, " %8s", "accuracy");
	fprintf(to, " %8s %8s %9s %9s %9s %9s %9s %9s %9s %8s %9s %6s  %s\n", "MB/s up", "down", "compute", "encode",
		"wire", "wait", "decode", "total", "lowest", "speed-up", "predicted", "off", "bound by");
}

static void print_figures(const struct gp_bench_row *r, bool accuracy, FILE *to)
{
	const double *f = r->figure;
	const bool predicted = r->prediction && !r->prediction->why[0];
	fprintf(to, " %7s", number_text("%.4f", f[GP_BENCH_RATE]).s);
	if (accuracy)
		fprintf(to, " %8s", number_text("%.2f %%", 100 * f[GP_BENCH_ACCURACY]).s);
	fprintf(to, " %8s %8s %9s %9s %9s %9s %9s %9s %9s %8s %9s %6s  %s\n",
		number_text("%.2f", 1e-6 * f[GP_BENCH_UP_BYTES_S]).s,
		number_text("%.2f", 1e-6 * f[GP_BENCH_DOWN_BYTES_S]).s, seconds_text(f[GP_BENCH_COMPUTE]).s,
		seconds_text(f[GP_BENCH_ENCODE]).s, seconds_text(f[GP_BENCH_WIRE]).s, seconds_text(f[GP_BENCH_WAIT]).s,
		seconds_text(f[GP_BENCH_DECODE]).s, seconds_text(f[GP_BENCH_TIME]).s,
		seconds_text(f[GP_BENCH_LOWEST]).s, number_text("%.2f", r->speed_up).s,
		predicted ? seconds_text(r->prediction->time_s).s : "-", number_text("%+.0f %%", 100 * r->off).s,
		r->bound_by[0] ? r->bound_by : "-");
}

static bool same_place(const struct gp_bench_key *a, const struct gp_bench_key *b)
{
	return strcmp(a->link, b->link) == 0 && strcmp(a->cut, b->cut) == 0;
}

void gp_bench_table_print(const struct gp_bench_table *t, FILE *to)
{
	const int width = codec_width(t);
	for (int i = 0; i < t->rows; i++) {
		const struct gp_bench_row *r = &t->row[i];
		if (i == 0 || !same_place(&r->key, &t->row[i - 1].key)) {
			fprintf(to, "%slink %s, cut %s\n", i ? "\n" : "", r->key.link, r->key.cut);
			print_head(t, width, to);
		}
		fprintf(to, "%-*s %6d", width, r->key.codec, r->key.chunks);
		if (r->rounds > 0)
			print_figures(r, has_accuracy(t), to);
		else
			fprintf(to, " %s%s\n", r->why[0] ? "failed: " : "has not run", r->why);
	}
}

/* --- chunks against chunks ---------------------------------------------------------------------------------------- */

struct gain {
	const struct gp_bench_row *few, *many;
	double less; /* time, as a part of that with few chunks */
};

static int extreme_chunks(const struct gp_bench_sweep *s, bool most)
{
	int found = s->chunks[0];
	for (int i = 1; i < s->chunkings; i++)
		if (most ? s->chunks[i] > found : s->chunks[i] < found)
			found = s->chunks[i];
	return found;
}

/* False: this row has not the most chunks, or one of the two did not run. */
static bool find_gain(const struct gp_bench_sweep *s, const struct gp_bench_table *t, int row, struct gain *out)
{
	struct gp_bench_key key = t->row[row].key;
	if (s->chunkings < 2 || key.chunks != extreme_chunks(s, true))
		return false;
	key.chunks = extreme_chunks(s, false);
	out->many = &t->row[row];
	out->few = find(t, &key);
	if (!out->few || out->few->rounds == 0 || out->many->rounds == 0)
		return false;
	out->less = 1 - out->many->figure[GP_BENCH_TIME] / out->few->figure[GP_BENCH_TIME];
	return true;
}

static void print_gains_of_link(const struct gp_bench_sweep *s, const struct gp_bench_table *t, int link, FILE *to)
{
	struct gain g;
	int found = 0;
	for (int i = 0; i < t->rows; i++) {
		if (strcmp(t->row[i].key.link, s->link[link].text) != 0 || !find_gain(s, t, i, &g))
			continue;
		if (found++ == 0)
			fprintf(to, "pipelining over %s: time of a batch in %d chunks against %d:", s->link[link].text,
				g.many->key.chunks, g.few->key.chunks);
		fprintf(to, "%s %s", found > 1 ? "," : "", g.many->key.codec);
		if (s->cuts > 1)
			fprintf(to, " at %s", g.many->key.cut);
		fprintf(to, " %+.0f %%", -100 * g.less);
	}
	if (found > 0)
		fprintf(to, "\n");
}

void gp_bench_chunks_print(const struct gp_bench_sweep *s, const struct gp_bench_table *t, FILE *to)
{
	struct gain g;
	bool any = false;
	for (int i = 0; i < t->rows; i++)
		any = any || find_gain(s, t, i, &g);
	if (!any)
		return;
	for (int l = 0; l < s->links; l++)
		print_gains_of_link(s, t, l, to);
	fprintf(to,
		"(for comparison: the authors of Epipe, a split-learning library, report %.0f %% from pipelining over "
		"1 Gbit/s)\n",
		-100 * ORIGIN_CLAIM);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *text)
{
	return text && text[0] ? json_string(text) : json_null();
}

static json_t *key_json(const struct gp_bench_key *k)
{
	return json_pack("{s:s, s:s, s:i, s:s}", "link", k->link, "cut", k->cut, "chunks", k->chunks, "codec",
			 k->codec);
}

static json_t *row_json(const struct gp_bench_row *r)
{
	json_t *o = key_json(&r->key);
	const bool predicted = r->prediction && !r->prediction->why[0];
	json_object_set_new(o, "rounds", json_integer(r->rounds));
	json_object_set_new(o, "steps", json_integer(r->steps));
	for (int f = 0; f < GP_BENCH_FIGURES; f++)
		json_object_set_new(o, gp_bench_figure_name((enum gp_bench_figure)f), gp_json_number(r->figure[f]));
	json_object_set_new(o, "bound_by", text_or_null(r->bound_by));
	json_object_set_new(o, "speed_up", gp_json_number(r->speed_up));
	json_object_set_new(o, "predicted_s", gp_json_number(predicted ? r->prediction->time_s : NAN));
	json_object_set_new(o, "predicted_bound_by", text_or_null(predicted ? r->prediction->bound_by : ""));
	json_object_set_new(o, "predicted_off", gp_json_number(r->off));
	json_object_set_new(o, "not_predicted", text_or_null(r->prediction ? r->prediction->why : ""));
	json_object_set_new(o, "failed", text_or_null(r->why));
	return o;
}

static json_t *gain_json(const struct gain *g)
{
	json_t *o = key_json(&g->many->key);
	json_object_set_new(o, "against_chunks", json_integer(g->few->key.chunks));
	json_object_set_new(o, "less_time", gp_json_number(g->less));
	return o;
}

json_t *gp_bench_table_json(const struct gp_bench_sweep *s, const struct gp_bench_table *t)
{
	json_t *rows = json_array(), *gains = json_array();
	struct gain g;
	for (int i = 0; i < t->rows; i++) {
		json_array_append_new(rows, row_json(&t->row[i]));
		if (find_gain(s, t, i, &g))
			json_array_append_new(gains, gain_json(&g));
	}
	return json_pack("{s:o, s:o}", "rows", rows, "pipelining", gains);
}

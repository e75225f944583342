/* SPDX-License-Identifier: Apache-2.0
 *
 * A comparison of codecs as JSON (client/JSON.md) and as text. See codec_compare.h.
 * Test: tests/unit/test_cmd_codec.c, test_cmd_codec_bits.c
 */
#include "client/commands/codec_compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/commands/cmd_codec.h"
#include "client/job/job.h"

/* Where the user named no codecs: rows of a table with at most the bits that were asked for, rows above them, and rows of
 * the order for a link. */
#define SHOWN_WITHIN 16
#define SHOWN_ABOVE  4
#define SHOWN_PLACES 24

/* --- as JSON ---------------------------------------------------------------------------------------------------- */

static json_t *finite_json(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

static const char *codec_name(const struct gp_comparison *c, int index)
{
	return index == GP_RANK_RAW ? "raw" : c->spec[index].text;
}

static json_t *cell_json(const struct gp_comparison *c, const struct gp_compared_cell *cell, int codec)
{
	const struct gp_rank_range *r = &cell->range;
	if (!cell->fits)
		return json_pack("{s:s, s:s}", "codec", c->spec[codec].text, "error", cell->why);
	json_t *o = gp_codec_trip_json(&c->spec[codec], &cell->trip);
	json_object_set_new(o, "lossless", json_boolean(gp_codec_spec_lossless(&c->spec[codec])));
	json_object_set_new(o, "pays", json_boolean(r->pays));
	json_object_set_new(o, "pays_above_bps", r->pays ? json_real(r->above) : json_null());
	json_object_set_new(o, "pays_below_bps", r->pays ? finite_json(r->below) : json_null());
	json_object_set_new(o, "pays_against", json_string(codec_name(c, r->against)));
	return o;
}

static json_t *spec_json(const struct gp_comparison *c, int codec)
{
	return codec < 0 ? json_null() : json_string(c->spec[codec].text);
}

static json_t *column_json(const struct gp_comparison *c, const struct gp_compared_column *column)
{
	json_t *rows = json_array(), *shape = json_array();
	for (int i = 0; i < column->shape.ndim; i++)
		json_array_append_new(shape, json_integer(column->shape.dim[i]));
	for (int i = 0; i < c->codecs; i++)
		json_array_append_new(rows, cell_json(c, &column->cell[column->order[i]], column->order[i]));
	json_t *o =
		json_pack("{s:o, s:o, s:o}", "tensor", gp_job_text_json(column->name), "shape", shape, "codecs", rows);
	json_object_set_new(o, "positions", column->positions > 0 ? json_integer(column->positions) : json_null());
	if (c->set.bits > 0)
		json_object_set_new(o, "best_at_bits", spec_json(c, column->within ? column->order[0] : -1));
	return o;
}

static json_t *place_json(const struct gp_comparison *c, const struct gp_compared_place *p)
{
	const struct gp_rank_time *t = &p->time;
	if (p->unfit)
		return json_pack("{s:s, s:s}", "codec", c->spec[p->codec].text, "does_not_fit", p->unfit->name);
	return json_pack("{s:s, s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:b}", "codec", c->spec[p->codec].text,
			 "time_per_chunk_s", t->seconds, "bound_by", gp_rank_bound_name[t->bound], "up_s", t->up_s,
			 "down_s", t->down_s, "codec_s", t->codec_s, "delay_s", t->delay_s, "rel_err", p->error,
			 "lossless", gp_codec_spec_lossless(&c->spec[p->codec]));
}

static void add_link_json(const struct gp_comparison *c, json_t *o)
{
	const int best = c->recommended;
	json_t *list = json_array();
	for (int i = 0; i < c->codecs; i++)
		json_array_append_new(list, place_json(c, &c->place[i]));
	json_object_set_new(o, "link",
			    json_pack("{s:f, s:f, s:i}", "rate_bps", c->link.bps, "delay_s", c->link.delay_s, "window",
				      c->link.window));
	json_object_set_new(o, "raw_time_per_chunk_s", json_real(c->raw.seconds));
	json_object_set_new(o, "ranking", list);
	json_object_set_new(o, "recommended",
			    best < 0            ? json_null()
			    : best == c->codecs ? json_string("raw")
						: json_string(c->spec[c->place[best].codec].text));
	json_object_set_new(o, "why", json_string(c->sentence));
}

/* A tensor that was named alone stands in the object itself, several in a list. */
enum gp_status gp_comparison_print_json(const struct gp_comparison *c, struct gp_err *err)
{
	const bool alone = c->set.tensor && c->tensors == 1;
	json_t *o = alone ? column_json(c, &c->column[0]) : json_object(), *list = json_array(),
	       *directions = json_object();
	json_object_set_new(o, "in", gp_job_text_json(c->set.in));
	for (int t = 0; t < c->tensors && !alone; t++)
		json_array_append_new(list, column_json(c, &c->column[t]));
	if (!alone)
		json_object_set(o, "tensors", list);
	json_decref(list);
	if (c->set.bits > 0) {
		json_object_set_new(o, "bits", json_real(c->set.bits));
		json_object_set_new(o, "best", spec_json(c, c->best[GP_COMPARED_ALL]));
		for (int d = 0; d < GP_DIRECTIONS; d++)
			if (gp_comparison_has(c, d))
				json_object_set_new(directions, gp_direction_info[d].name, spec_json(c, c->best[d]));
		json_object_set(o, "best_of", directions);
	}
	json_decref(directions);
	if (c->link.bps > 0)
		add_link_json(c, o);
	return gp_job_print_json(o, err);
}

/* --- as text ---------------------------------------------------------------------------------------------------- */

static const char *asked_name(const struct gp_comparison *c, int index)
{
	return index == GP_RANK_RAW ? "raw" : c->asked[index];
}

/* What the text shows of a column, by place in its order. */
struct shown {
	bool row[GP_COMPARED_CODECS];
	int width;                /* of the longest name */
	int within, above, unfit; /* that it leaves out */
};

/* All that the user named. Else the best within the bits and the shortest above, without those that decode to the same as the
 * one before them, as with other keys of `rans`: within the bits that one is shorter. And the one that is best in all tensors. */
static void choose_shown(const struct gp_comparison *c, const struct gp_compared_column *column, struct shown *s)
{
	const struct gp_trip *before = NULL;
	int left = c->named ? c->codecs : SHOWN_WITHIN;
	*s = (struct shown){.width = (int)strlen("codec")};
	for (int i = 0; i < c->codecs; i++) {
		const int codec = column->order[i], width = (int)strlen(c->asked[codec]);
		const struct gp_compared_cell *cell = &column->cell[codec];
		const struct gp_trip *t = &cell->trip;
		if (i == column->within && !c->named) {
			before = NULL;
			left = SHOWN_ABOVE;
		}
		const bool same = before && t->rel_err == before->rel_err && t->max_err == before->max_err;
		s->row[i] = c->named || (cell->fits && !same && left > 0);
		left -= s->row[i];
		s->row[i] |= codec == c->best[GP_COMPARED_ALL];
		before = t;
		if (s->row[i])
			s->width = width > s->width ? width : s->width;
		else
			*(!cell->fits ? &s->unfit : i < column->within ? &s->within : &s->above) += 1;
	}
}

/* "1.2 Gbit/s (then fp16)", "3 Mbit/s to 1.2 Gbit/s (then raw)", "never (fp16)". */
static const char *range_text(const struct gp_comparison *c, const struct gp_rank_range *r, char *text, size_t size)
{
	char above[32], below[32];
	gp_codec_rate_text(r->above, above, sizeof above);
	gp_codec_rate_text(r->below, below, sizeof below);
	if (!r->pays && !c->named)
		snprintf(text, size, "never");
	else if (!r->pays && r->against == GP_RANK_RAW)
		snprintf(text, size, "never (no shorter than raw)");
	else if (!r->pays)
		snprintf(text, size, "never (%s is faster)", asked_name(c, r->against));
	else if (isinf(r->below))
		snprintf(text, size, r->above > 0 ? "any rate above %s" : "any rate", above);
	else if (!c->named) /* the others are seldom in the table */
		snprintf(text, size, "%s%s%s", r->above > 0 ? above : "", r->above > 0 ? " to " : "", below);
	else
		snprintf(text, size, "%s%s%s (then %s)", r->above > 0 ? above : "", r->above > 0 ? " to " : "", below,
			 asked_name(c, r->against));
	return text;
}

static void print_cell(const struct gp_comparison *c, const struct gp_compared_cell *cell, int codec, int width)
{
	const struct gp_trip *t = &cell->trip;
	char range[GP_CODEC_SPEC_MAX + 96], skipped[80], error[32];
	if (!cell->fits) {
		printf("%-*s does not fit: %s\n", width, c->asked[codec], cell->why);
		return;
	}
	snprintf(error, sizeof error, "%.3g", t->rel_err);
	printf("%-*s %9.3f %9s %9.3g %9.6f %8.3f %8.3f  %s%s%s\n", width, c->asked[codec], gp_trip_bits(t),
	       gp_codec_spec_lossless(&c->spec[codec]) ? "lossless" : error, t->max_err, t->cosine,
	       gp_trip_encode_rate(t), gp_trip_decode_rate(t), range_text(c, &cell->range, range, sizeof range),
	       t->fell_back ? " (sent as raw)" : "",
	       gp_codec_skipped_text(&c->spec[codec], t, skipped, sizeof skipped));
}

/* The first codec of the order has the least error of those within the bits, or else, where there is none, the fewest. */
static void print_best(const struct gp_comparison *c, const struct gp_compared_column *column)
{
	const int first = column->order[0];
	const struct gp_trip *t = &column->cell[first].trip;
	if (column->within)
		printf("Best of %d with at most %g bits per element: %s, %.3f bits, relative error %.3g\n\n",
		       column->within, c->set.bits, c->asked[first], gp_trip_bits(t), t->rel_err);
	else if (column->cell[first].fits)
		printf("None has at most %g bits per element; the shortest is %s, %.3f bits\n\n", c->set.bits,
		       c->asked[first], gp_trip_bits(t));
	else
		printf("None fits: %s\n\n", column->cell[first].why);
}

static void print_best_together(const struct gp_comparison *c)
{
	const int best = c->best[GP_COMPARED_ALL];
	if (best < 0) {
		printf("In all tensors together none that fits has at most %g bits per element.\n", c->set.bits);
		return;
	}
	const struct gp_best_row row = gp_comparison_together(c, best, GP_COMPARED_ALL);
	printf("Best one for all tensors together: %s, %.3f bits per element on average, relative error "
	       "at most %.3g in each.\n",
	       c->asked[best], row.bits, row.error);
}

/* Each direction with the best for it; nothing where the tensors are of none. */
static void print_best_of_directions(const struct gp_comparison *c)
{
	int left = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		left += c->best[d] >= 0;
	if (left > 0)
		printf("Best for each direction with at most %g bits per element, as flags of 'gpclient train':\n",
		       c->set.bits);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		if (c->best[d] >= 0)
			printf("    --%s %s%s\n", gp_job_codec_flags[d], c->asked[c->best[d]], --left > 0 ? " \\" : "");
	for (int d = 0; d < GP_DIRECTIONS; d++)
		if (c->best[d] >= 0 && strncmp(c->asked[c->best[d]], "delta", 5) == 0)
			printf("What delta takes in %s is only true for samples that come again with the same "
			       "values.\n",
			       gp_direction_info[d].name);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		if (gp_comparison_has(c, d) && c->best[d] < 0)
			printf("In %s none that fits has at most %g bits per element.\n", gp_direction_info[d].name,
			       c->set.bits);
}

static void print_left_out(const struct gp_comparison *c, const struct shown *s)
{
	if (c->named || s->within + s->above + s->unfit == 0)
		return;
	printf("-- not shown: %d more with at most %g bits, %d with more", s->within, c->set.bits, s->above);
	if (s->unfit > 0)
		printf(", %d that do not fit", s->unfit);
	printf(" (--json has all)\n");
}

static void print_column(const struct gp_comparison *c, const struct gp_compared_column *column)
{
	struct shown shown;
	bool within = true;
	char shape[80];
	choose_shown(c, column, &shown);
	printf("%s (%s", column->name, gp_shape_text(&column->shape, shape, sizeof shape));
	if (column->positions > 0)
		printf("; without padding: %lld of %lld positions", (long long)column->positions,
		       (long long)(column->shape.dim[0] * column->shape.dim[1]));
	printf(")\n");
	printf("%-*s %9s %9s %9s %9s %8s %8s  %s\n", shown.width, "codec", "bits/el.", "rel. err", "max. err", "cosine",
	       "encode", "decode", "pays below");
	for (int i = 0; i < c->codecs; i++) {
		const struct gp_compared_cell *cell = &column->cell[column->order[i]];
		if (!shown.row[i])
			continue;
		if (c->set.bits > 0 && i >= column->within && within && column->within > 0 && cell->fits)
			printf("-- with more than %g bits per element, all bytes of the payload counted:\n",
			       c->set.bits);
		within = i < column->within;
		print_cell(c, cell, column->order[i], shown.width);
	}
	print_left_out(c, &shown);
	if (c->set.bits > 0)
		print_best(c, column);
}

static void print_place(const struct gp_comparison *c, const struct gp_compared_place *p, int width)
{
	char time[32], up[32], down[32], codec[32], error[32];
	if (p->unfit) {
		printf("%-*s does not fit %s\n", width, c->asked[p->codec], p->unfit->name);
		return;
	}
	printf("%-*s %9s  %-9s %9s %9s %9s %9s\n", width, c->asked[p->codec],
	       gp_comparison_time_text(p->time.seconds, time), gp_rank_bound_name[p->time.bound],
	       gp_comparison_time_text(p->time.up_s, up), gp_comparison_time_text(p->time.down_s, down),
	       gp_comparison_time_text(p->time.codec_s, codec),
	       gp_codec_spec_lossless(&c->spec[p->codec]) ? "lossless" : gp_comparison_lossy_text(p->error, error));
}

/* All that the user named; else the fastest that lose little enough, the recommended one, and, where there is none, the most
 * exact. */
static void choose_places(const struct gp_comparison *c, struct shown *s)
{
	const struct gp_compared_place *exact = c->recommended < 0 ? gp_comparison_most_exact(c) : NULL;
	int left = c->named ? c->codecs : SHOWN_PLACES;
	*s = (struct shown){.width = (int)strlen("codec")};
	for (int i = 0; i < c->codecs; i++) {
		const struct gp_compared_place *p = &c->place[i];
		const int width = (int)strlen(c->asked[p->codec]);
		s->row[i] = c->named || i == c->recommended || p == exact ||
			    (!p->unfit && p->error <= c->set.max_error && left > 0);
		left -= s->row[i];
		s->above += !s->row[i];
		if (s->row[i] && width > s->width)
			s->width = width;
	}
}

static void print_link(const struct gp_comparison *c)
{
	char rate[32], delay[32], raw[32];
	struct shown shown;
	choose_places(c, &shown);
	printf("\nA chunk, in a row of many, on a link of %s with %s each way (uncompressed: %s, %s):\n",
	       gp_codec_rate_text(c->link.bps, rate, sizeof rate), gp_comparison_time_text(c->link.delay_s, delay),
	       gp_comparison_time_text(c->raw.seconds, raw), gp_rank_bound_name[c->raw.bound]);
	printf("%-*s %9s  %-9s %9s %9s %9s %9s\n", shown.width, "codec", "time", "bound by", "up", "down", "coding",
	       "rel. err");
	for (int i = 0; i < c->codecs; i++)
		if (shown.row[i])
			print_place(c, &c->place[i], shown.width);
	if (shown.above > 0)
		printf("-- not shown: %d that are slower, do not fit, or whose error is above %g (--json has all)\n",
		       shown.above, c->set.max_error);
	printf("The time is the longest of sending up, sending down, coding at one end, and the way of a chunk alone, "
	       "with\n"
	       "all delays, over the %d chunks in flight. What head, body and tail compute comes where it is "
	       "longer.\n%s\n"
	       "What an error does to the accuracy only a training tells.\n",
	       GP_COMPARED_WINDOW, c->sentence);
}

void gp_comparison_print(const struct gp_comparison *c)
{
	for (int t = 0; t < c->tensors; t++)
		print_column(c, &c->column[t]);
	printf("Errors: relative L2 and largest. Speed: G elements/s on one thread of this machine. Pays below: the "
	       "link rate\n"
	       "below which it is faster than the others that lose no more, and than none%s.\n",
	       c->named ? ", and which is faster above" : "");
	if (c->set.bits > 0 && c->tensors > 1)
		print_best_together(c);
	if (c->set.bits > 0)
		print_best_of_directions(c);
	if (c->link.bps > 0)
		print_link(c);
}

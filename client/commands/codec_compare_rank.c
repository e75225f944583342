/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows from a comparison of codecs: which pays where (codec_rank.h), which is best (codec_best.h), and the
 * recommendation for a link. See codec_compare.h. Test: tests/unit/test_cmd_codec.c, test_cmd_codec_bits.c
 */
#include "client/commands/codec_compare.h"

#include <math.h>
#include <stdio.h>

#define ALIKE 1.05 /* times this near are no reason to lose more */

bool gp_comparison_goes_up(int direction)
{
	return direction < 0 || gp_direction_info[direction].up;
}

static void find_ranges(struct gp_comparison *c, struct gp_compared_column *column)
{
	struct gp_rank_row row[GP_COMPARED_CODECS];
	for (int i = 0; i < c->codecs; i++) {
		const struct gp_trip *t = &column->cell[i].trip;
		row[i] = (struct gp_rank_row){column->cell[i].fits, 8.0 * (double)t->payload_bytes,
					      (double)(t->encode_ns + t->decode_ns) * 1e-9, t->rel_err};
	}
	for (int i = 0; i < c->codecs; i++)
		if (column->cell[i].fits)
			column->cell[i].range = gp_rank_find(row, c->codecs, i, column->raw_bits);
}

/* `codec` -1: none. */
static struct gp_rank_chunk chunk_with(const struct gp_comparison *c, int codec)
{
	struct gp_rank_chunk chunk = {.up_bits = c->plain_bits[true], .down_bits = c->plain_bits[false]};
	bool way[GP_DIRECTIONS + 1] = {false};
	for (int t = 0; t < c->tensors; t++) {
		const struct gp_compared_column *column = &c->column[t];
		const struct gp_trip *trip = codec >= 0 ? &column->cell[codec].trip : NULL;
		const double bits = trip ? 8.0 * (double)trip->payload_bytes : column->raw_bits;
		const bool up = gp_comparison_goes_up(column->direction);
		*(up ? &chunk.up_bits : &chunk.down_bits) += bits;
		if (trip) {
			chunk.here_s += (double)(up ? trip->encode_ns : trip->decode_ns) * 1e-9;
			chunk.there_s += (double)(up ? trip->decode_ns : trip->encode_ns) * 1e-9;
		}
		chunk.ways += !way[column->direction + 1];
		way[column->direction + 1] = true;
	}
	return chunk;
}

static void find_place(struct gp_comparison *c, int codec, struct gp_compared_place *p)
{
	*p = (struct gp_compared_place){.codec = codec};
	for (int t = 0; t < c->tensors; t++) {
		const struct gp_compared_cell *cell = &c->column[t].cell[codec];
		if (!cell->fits && !p->unfit)
			p->unfit = &c->column[t];
		p->error = fmax(p->error, cell->trip.rel_err);
	}
	const struct gp_rank_chunk chunk = chunk_with(c, codec);
	p->time = gp_rank_chunk_time(&chunk, &c->link);
}

/* The fastest first; those that do not fit last, as they were given. */
static bool comes_before(const struct gp_compared_place *a, const struct gp_compared_place *b)
{
	return a->unfit || b->unfit ? !a->unfit && b->unfit : a->time.seconds < b->time.seconds;
}

static void sort_places(struct gp_comparison *c)
{
	for (int i = 0; i < c->codecs; i++) {
		struct gp_compared_place p;
		int at = i;
		find_place(c, i, &p);
		for (; at > 0 && comes_before(&p, &c->place[at - 1]); at--)
			c->place[at] = c->place[at - 1];
		c->place[at] = p;
	}
}

static bool is_allowed(const struct gp_comparison *c, const struct gp_compared_place *p)
{
	return !p->unfit && p->error <= c->set.max_error;
}

/* The first of those that lose little enough; `codecs`: there is none. */
static int find_fastest(const struct gp_comparison *c)
{
	int i = 0;
	while (i < c->codecs && !is_allowed(c, &c->place[i]))
		i++;
	return i;
}

/* The fastest, or one as fast that loses less. */
static int find_best(const struct gp_comparison *c, int fastest)
{
	int best = fastest;
	for (int i = fastest + 1; i < c->codecs; i++)
		if (is_allowed(c, &c->place[i]) && c->place[i].error < c->place[best].error &&
		    c->place[i].time.seconds <= ALIKE * c->place[fastest].time.seconds)
			best = i;
	return best;
}

const char *gp_comparison_time_text(double s, char text[32])
{
	snprintf(text, 32,
		 s < 1e-3 ? "%.3g us"
		 : s < 1  ? "%.3g ms"
			  : "%.3g s",
		 s < 1e-3 ? s * 1e6
		 : s < 1  ? s * 1e3
			  : s);
	return text;
}

const char *gp_comparison_lossy_text(double error, char text[32])
{
	snprintf(text, 32, error > 0 ? "%.3g" : "none", error);
	return text;
}

static void recommend_raw(struct gp_comparison *c)
{
	char raw[32];
	c->recommended = c->codecs;
	snprintf(c->sentence, sizeof c->sentence,
		 "Recommended: raw. A chunk takes %s (%s) without any codec, and none with a relative error of at most "
		 "%g makes it shorter by more than 5 %%.",
		 gp_comparison_time_text(c->raw.seconds, raw), gp_rank_bound_name[c->raw.bound], c->set.max_error);
}

const struct gp_compared_place *gp_comparison_most_exact(const struct gp_comparison *c)
{
	const struct gp_compared_place *least = NULL;
	for (int i = 0; i < c->codecs; i++)
		if (!c->place[i].unfit && (!least || c->place[i].error < least->error))
			least = &c->place[i];
	return least;
}

/* All errors are above what was asked for: the least is named. */
static void recommend_none(struct gp_comparison *c)
{
	const struct gp_compared_place *least = gp_comparison_most_exact(c);
	char error[32];
	c->recommended = -1;
	if (least)
		snprintf(c->sentence, sizeof c->sentence,
			 "Recommended: none. All codecs in the list have a relative error above %g (--max-error) in a "
			 "tensor; the most exact is %s with %s.",
			 c->set.max_error, c->asked[least->codec], gp_comparison_lossy_text(least->error, error));
	else
		snprintf(c->sentence, sizeof c->sentence,
			 "Recommended: none. No codec in the list fits all tensors; each direction can have one of its "
			 "own (--codec-act-up and so on).");
}

static void recommend(struct gp_comparison *c)
{
	char time[32], raw[32], error[32];
	const int fastest = find_fastest(c);
	if (fastest == c->codecs) {
		recommend_none(c);
		return;
	}
	const int best = c->recommended = find_best(c, fastest);
	const struct gp_compared_place *p = &c->place[best];
	if (p->time.seconds * ALIKE >= c->raw.seconds) {
		recommend_raw(c);
		return;
	}
	snprintf(c->sentence, sizeof c->sentence,
		 "Recommended: %s. Of the codecs with a relative error of at most %g it is %s: %s for a chunk (bound "
		 "by: %s) in place of %s uncompressed; its error: %s.",
		 c->asked[p->codec], c->set.max_error,
		 best > fastest ? "as fast as any, within 5 %, and the most exact of those"
				: "the fastest on this link",
		 gp_comparison_time_text(p->time.seconds, time), gp_rank_bound_name[p->time.bound],
		 gp_comparison_time_text(c->raw.seconds, raw), gp_comparison_lossy_text(p->error, error));
}

/* The order in which a tensor's codecs are shown: as they were given, or the best at so many bits first. */
static void sort_column(const struct gp_comparison *c, struct gp_compared_column *column)
{
	struct gp_best_row row[GP_COMPARED_CODECS];
	for (int i = 0; i < c->codecs; i++) {
		const struct gp_compared_cell *cell = &column->cell[i];
		column->order[i] = i;
		row[i] = (struct gp_best_row){cell->fits, gp_trip_bits(&cell->trip), cell->trip.rel_err};
	}
	if (c->set.bits > 0)
		column->within = gp_best_order(row, c->codecs, c->set.bits, column->order);
}

static bool is_of(const struct gp_compared_column *column, int direction)
{
	return direction == GP_COMPARED_ALL || column->direction == direction;
}

bool gp_comparison_has(const struct gp_comparison *c, int direction)
{
	for (int t = 0; t < c->tensors; t++)
		if (is_of(&c->column[t], direction) && c->column[t].raw_bits > 0)
			return true;
	return false;
}

struct gp_best_row gp_comparison_together(const struct gp_comparison *c, int codec, int direction)
{
	struct gp_best_row row = {.fits = true};
	double elements = 0;
	for (int t = 0; t < c->tensors; t++) {
		const struct gp_compared_cell *cell = &c->column[t].cell[codec];
		if (!is_of(&c->column[t], direction))
			continue;
		row.fits &= cell->fits;
		row.bits += 8.0 * (double)cell->trip.payload_bytes;
		row.error = fmax(row.error, cell->trip.rel_err);
		elements += (double)cell->trip.elements;
	}
	row.bits = elements > 0 ? row.bits / elements : 0;
	return row;
}

static int find_best_together(const struct gp_comparison *c, int direction)
{
	struct gp_best_row row[GP_COMPARED_CODECS];
	int order[GP_COMPARED_CODECS];
	for (int i = 0; i < c->codecs; i++)
		row[i] = gp_comparison_together(c, i, direction);
	return gp_best_order(row, c->codecs, c->set.bits, order) > 0 ? order[0] : -1;
}

void gp_comparison_evaluate(struct gp_comparison *c)
{
	for (int t = 0; t < c->tensors; t++) {
		find_ranges(c, &c->column[t]);
		sort_column(c, &c->column[t]);
	}
	for (int d = 0; c->set.bits > 0 && d <= GP_DIRECTIONS; d++)
		c->best[d] = gp_comparison_has(c, d) ? find_best_together(c, d) : -1;
	if (c->link.bps <= 0)
		return;
	const struct gp_rank_chunk raw = chunk_with(c, -1);
	c->raw = gp_rank_chunk_time(&raw, &c->link);
	sort_places(c);
	recommend(c);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient codec compare: tensors of a file through several codecs, a table for
 * each tensor and, for a given link, an order of the codecs and a
 * recommendation; for a given number of bits, the best. What is measured:
 * codec_trip.h; what pays where: codec_rank.h; what is best: codec_best.h.
 * Test: tests/unit/test_cmd_codec.c
 */
#include "client/commands/cmd_codec.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "client/codecs/codec_best.h"
#include "client/codecs/codec_rank.h"
#include "client/codecs/codec_specs.h"
#include "client/job/job.h"
#include "common/wire/direction.h"

#define PROGRAM "gpclient codec"

enum { CODECS_MAX = 64, TENSORS_MAX = 32, NAME_ROOM = 128, WINDOW = 4 /* of train */ };
#define ALIKE 1.05 /* times this near are no reason to lose more */

struct settings {
	const char *codecs, *in, *tensor, *link;
	double max_error, bits; /* bits 0: none were given */
	int64_t warmup;
	bool json, channels_last;
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt options[] = {
	{.name = "in", .type = GP_OPT_TEXT, .offset = FIELD(in), .value = "FILE", .help = "safetensors file to read"},
	{.name = "tensor",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(tensor),
	 .value = "NAME,...",
	 .help = "tensors of the file; default: all. Those of 4 dimensions are (N,C,H,W), coded as (N,H,W,C)"},
	{.name = "codecs",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codecs),
	 .value = "A,B,...",
	 .help = "specs, separated by commas, semicolons or spaces; default, with --bits alone: a list of some fifty "
		 "chains"},
	{.name = "bits",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(bits),
	 .value = "B",
	 .initial = "0",
	 .min = 0,
	 .max = 32,
	 .help = "name the codec with the least relative error of those that have at most B bits per element, and "
		 "begin the tables with these; 0 = do not"},
	{.name = "link",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(link),
	 .value = "RATE[,DELAY]",
	 .help = "rank the codecs for such a link, as in 100mbit,20ms (each way), and recommend one"},
	{.name = "max-error",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(max_error),
	 .value = "X",
	 .initial = "0.1",
	 .min = 0,
	 .max = 1e6,
	 .help = "recommend none whose relative error is above X in one of the tensors"},
	{.name = "warmup",
	 .type = GP_OPT_INT,
	 .offset = FIELD(warmup),
	 .value = "N",
	 .initial = "8",
	 .min = 0,
	 .max = 1000,
	 .help = "passes before the one that is measured, for codecs that remember (ef, delta, poweriter)"},
	{.name = "channels-last",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(channels_last),
	 .help = "a tensor of 4 dimensions is (N,H,W,C) in the file, not (N,C,H,W)"},
	{.name = "json", .type = GP_OPT_FLAG, .offset = FIELD(json), .help = "print one JSON object"},
};

static const struct gp_opt_table table = {
	.command = PROGRAM " compare",
	.synopsis = "--in FILE [--tensor NAME,...] [--codecs A,B,...] [--bits B] [--link RATE,DELAY] [--json]",
	.about = "Sends tensors, such as 'gpclient capture' writes, through each codec. Prints bits per element, "
		 "errors,\n"
		 "speed on this machine (one thread) and the link rate below which the codec is faster than every "
		 "other\n"
		 "in the list that loses no more, and than none. With --link, a chunk's time with each codec in all\n"
		 "directions, and which one is recommended. Specs may also follow as arguments of their own.\n"
		 "With --bits B, names the codec with the least relative error among those that have at most B bits\n"
		 "per element, for each tensor and for all together. Every byte of the payload counts, also its few\n"
		 "bytes of heads: with --bits 4, uniform:bits=4 is a little above. Give --codecs, --bits or both;\n"
		 "without --codecs, some fifty chains are tried.\n"
		 "A comma before KEY= belongs to the spec: uniform:bits=8,sortquant:bits=6,split=2 are two codecs.",
	.examples = "  gpclient codec compare --in acts.safetensors --link 100mbit,20ms \\\n"
		    "      --codecs fp16,uniform:bits=8,sortquant:bits=6,split=2,kmeans:bits=4\n"
		    "  gpclient codec compare --in acts.safetensors --bits 4.25\n",
	.positional = "SPEC",
	.opt = options,
	.count = sizeof options / sizeof options[0],
};

/* One codec on one tensor. */
struct cell {
	bool fits;
	struct gp_trip trip;
	char why[GP_ERR_TEXT]; /* it does not fit */
	struct gp_rank_range range;
};

struct column {
	char name[NAME_ROOM];
	int direction; /* enum gp_direction, or -1: another tensor */
	struct gp_shape shape;
	double raw_bits;
	struct cell cell[CODECS_MAX];
	int order[CODECS_MAX]; /* in which codecs are shown */
	int within;            /* --bits B: how many codecs, the first of `order`, have at most B bits per element */
};

/* One codec over all tensors, on the link. */
struct place {
	int codec;
	const struct column *unfit; /* the first tensor that it does not fit; NULL: it fits all */
	struct gp_rank_time time;
	double error; /* the largest */
};

struct comparison {
	struct settings set;
	int codecs, tensors;
	struct gp_codec_spec spec[CODECS_MAX];
	char asked[CODECS_MAX][GP_CODEC_SPEC_MAX]; /* as they were written: with every key, tables would be too wide */
	struct column column[TENSORS_MAX];
	double plain_bits[2];     /* of integers, which cross as they are: down, up */
	struct gp_rank_link link; /* bps 0: none was given */
	struct place place[CODECS_MAX];
	struct gp_rank_time raw; /* without any codec */
	int recommended;         /* of `place`; -1: none; `codecs`: raw */
	char sentence[640];
	int best; /* --bits: in all tensors together; -1: none */
};

/* --- what is asked ---------------------------------------------------------------------------------------------- */

static enum gp_status add_spec(void *arg, const char *text, struct gp_err *err)
{
	struct comparison *c = arg;
	if (c->codecs == CODECS_MAX)
		GP_FAIL(err, GP_USAGE, "--codecs: at most %d can be compared at once", CODECS_MAX);
	snprintf(c->asked[c->codecs], sizeof c->asked[c->codecs], "%s", text);
	if (gp_codec_spec_parse(text, &c->spec[c->codecs], err) != GP_OK)
		return gp_err_prefix(err, "--codecs: %s", text);
	c->codecs++;
	return GP_OK;
}

static enum gp_status add_specs(struct comparison *c, const char *text, struct gp_err *err)
{
	return gp_codec_specs_each(text, "--codecs", add_spec, c, err);
}

/* The list that is tried where the user names no codec. */
static enum gp_status add_chains(struct comparison *c, struct gp_err *err)
{
	char text[GP_CODEC_SPEC_MAX];
	for (int i = 0; gp_best_chain(c->set.bits, i, text, sizeof text); i++)
		GP_TRY(add_spec(c, text, err));
	return GP_OK;
}

static enum gp_status read_specs(struct comparison *c, const struct gp_options_result *r, struct gp_err *err)
{
	const bool listed = c->set.codecs || r->positionals > 0;
	if (c->set.in && !listed && c->set.bits > 0)
		return add_chains(c, err);
	if (!c->set.in || !listed)
		GP_FAIL(err, GP_USAGE, "compare needs --%s; see `" PROGRAM " compare --help`",
			c->set.in ? "codecs A,B,... or --bits B (above 0)" : "in FILE");
	if (c->set.codecs)
		GP_TRY(add_specs(c, c->set.codecs, err));
	for (int i = 0; i < r->positionals; i++)
		GP_TRY(add_specs(c, r->positional[i], err));
	if (c->codecs == 0)
		GP_FAIL(err, GP_USAGE, "--codecs names no codec");
	return GP_OK;
}

/* A number alone may be meant in any unit. */
static bool has_unit(const char *text)
{
	const size_t len = strlen(text);
	return len > 0 && isalpha((unsigned char)text[len - 1]);
}

/* RATE or RATE,DELAY. */
static enum gp_status read_link(struct comparison *c, struct gp_err *err)
{
	char rate[64] = "";
	const char *comma = c->set.link ? strchr(c->set.link, ',') : NULL;
	c->link = (struct gp_rank_link){.window = WINDOW};
	if (!c->set.link)
		return GP_OK;
	snprintf(rate, sizeof rate, "%.*s", comma ? (int)(comma - c->set.link) : 63, c->set.link);
	if (!gp_parse_rate(rate, &c->link.bps) || c->link.bps <= 0 ||
	    (comma && (!gp_parse_time(comma + 1, &c->link.delay_s) || c->link.delay_s < 0)))
		GP_FAIL(err, GP_USAGE, "--link '%.60s' is not RATE or RATE,DELAY, as in 100mbit,20ms", c->set.link);
	if (!has_unit(rate) || (comma && c->link.delay_s > 0 && !has_unit(comma + 1)))
		GP_FAIL(err, GP_USAGE, "--link '%.60s' lacks a unit: a rate is as in 100mbit, a delay as in 20ms",
			c->set.link);
	return GP_OK;
}

/* --- measuring -------------------------------------------------------------------------------------------------- */

/* By the names that `capture` gives: "act_up", "act_up.mask". */
static int direction_of(const char *name)
{
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const size_t n = strlen(gp_direction_info[d].name);
		if (strncmp(name, gp_direction_info[d].name, n) == 0 && (name[n] == '\0' || name[n] == '.'))
			return d;
	}
	return -1;
}

static bool goes_up(int direction)
{
	return direction < 0 || gp_direction_info[direction].up;
}

/* What `train` refuses is refused here, too; there, the number of samples comes from the data. */
static enum gp_status try_codec(struct gp_trip_tensor *t, const struct gp_codec_spec *spec, int direction, int warmup,
				struct gp_trip *out, struct gp_err *err)
{
	struct gp_codec_spec filled = *spec;
	const int64_t samples = t->shape.ndim > 0 ? t->shape.dim[0] : 1;
	if (strncmp(spec->text, "delta", 5) == 0 && !goes_up(direction))
		GP_FAIL(err, GP_INVALID, "delta works up the link only");
	if (samples > 0 && samples <= 1 << 24)
		GP_TRY(gp_codec_spec_set_samples(&filled, (uint32_t)samples, err));
	return gp_trip_run(t, &filled, warmup, out, err);
}

static enum gp_status measure(struct comparison *c, const char *name, struct gp_err *err)
{
	struct column *column = &c->column[c->tensors];
	struct gp_trip_tensor t;
	GP_TRY(gp_trip_open(c->set.in, name, c->set.channels_last, &t, err));
	snprintf(column->name, sizeof column->name, "%s", name);
	column->direction = direction_of(name);
	column->shape = t.tensor->shape;
	column->raw_bits = 32.0 * (double)t.tensor->count;
	c->tensors++;
	enum gp_status status = GP_OK;
	for (int i = 0; i < c->codecs && status == GP_OK; i++) {
		struct cell *cell = &column->cell[i];
		struct gp_err why = {0};
		const enum gp_status tried =
			try_codec(&t, &c->spec[i], column->direction, (int)c->set.warmup, &cell->trip, &why);
		cell->fits = tried == GP_OK;
		snprintf(cell->why, sizeof cell->why, "%s", cell->fits ? "" : why.text);
		if (tried == GP_NOMEM) {
			*err = why;
			status = tried;
		}
	}
	gp_trip_close(&t);
	return status;
}

static enum gp_status measure_named(struct comparison *c, struct gp_err *err)
{
	struct gp_text rest = gp_text_of(c->set.tensor), part;
	char name[NAME_ROOM];
	while (gp_text_cut(&rest, ',', &part)) {
		if (c->tensors == TENSORS_MAX || !gp_text_copy(part, name, sizeof name))
			GP_FAIL(err, GP_USAGE, "--tensor takes %d names of at most %d characters", TENSORS_MAX,
				NAME_ROOM - 1);
		GP_TRY(measure(c, name, err));
	}
	return GP_OK;
}

static bool holds_reals(const struct gp_st_tensor *t)
{
	return t->dtype == GP_ST_F32 || t->dtype == GP_ST_F16 || t->dtype == GP_ST_BF16 || t->dtype == GP_ST_F64;
}

/* Those of one direction, or, -1, of none. */
static enum gp_status measure_direction(struct comparison *c, const struct gp_st_file *f, int direction,
					struct gp_err *err)
{
	for (int i = 0; i < gp_st_count(f); i++) {
		const struct gp_st_tensor *t = gp_st_at(f, i);
		if (direction_of(t->name) != direction)
			continue;
		if (!holds_reals(t)) {
			c->plain_bits[goes_up(direction)] += 8.0 * (double)t->bytes;
			continue;
		}
		if (c->tensors == TENSORS_MAX || strlen(t->name) >= NAME_ROOM)
			GP_FAIL(err, GP_USAGE, "%s has more than %d tensors; name some with --tensor", c->set.in,
				TENSORS_MAX);
		GP_TRY(measure(c, t->name, err));
	}
	return GP_OK;
}

static enum gp_status measure_all_of(struct comparison *c, const struct gp_st_file *f, struct gp_err *err)
{
	for (int d = 0; d < GP_DIRECTIONS; d++)
		GP_TRY(measure_direction(c, f, d, err));
	GP_TRY(measure_direction(c, f, -1, err));
	if (c->tensors == 0)
		GP_FAIL(err, GP_INVALID, "%s has no tensor of real numbers", c->set.in);
	return GP_OK;
}

static enum gp_status measure_all(struct comparison *c, struct gp_err *err)
{
	struct gp_st_file *f;
	if (c->set.tensor)
		return measure_named(c, err);
	GP_TRY(gp_st_open(c->set.in, &f, err));
	const enum gp_status status = measure_all_of(c, f, err);
	gp_st_close(f);
	return status;
}

/* A codec that fits nowhere is a line in the table; when none fits anywhere there is nothing to show. */
static enum gp_status expect_one(const struct comparison *c, struct gp_err *err)
{
	for (int t = 0; t < c->tensors; t++)
		for (int i = 0; i < c->codecs; i++)
			if (c->column[t].cell[i].fits)
				return GP_OK;
	GP_FAIL(err, GP_INVALID, "%s: no codec fits; %s on %s: %s", c->set.in, c->spec[0].text, c->column[0].name,
		c->column[0].cell[0].why);
}

/* --- what it says ----------------------------------------------------------------------------------------------- */

static void find_ranges(struct comparison *c, struct column *column)
{
	struct gp_rank_row row[CODECS_MAX];
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
static struct gp_rank_chunk chunk_with(const struct comparison *c, int codec)
{
	struct gp_rank_chunk chunk = {.up_bits = c->plain_bits[true], .down_bits = c->plain_bits[false]};
	bool way[GP_DIRECTIONS + 1] = {false};
	for (int t = 0; t < c->tensors; t++) {
		const struct column *column = &c->column[t];
		const struct gp_trip *trip = codec >= 0 ? &column->cell[codec].trip : NULL;
		const double bits = trip ? 8.0 * (double)trip->payload_bytes : column->raw_bits;
		const bool up = goes_up(column->direction);
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

static void find_place(struct comparison *c, int codec, struct place *p)
{
	*p = (struct place){.codec = codec};
	for (int t = 0; t < c->tensors; t++) {
		const struct cell *cell = &c->column[t].cell[codec];
		if (!cell->fits && !p->unfit)
			p->unfit = &c->column[t];
		p->error = fmax(p->error, cell->trip.rel_err);
	}
	const struct gp_rank_chunk chunk = chunk_with(c, codec);
	p->time = gp_rank_chunk_time(&chunk, &c->link);
}

/* The fastest first; those that do not fit last, as they were given. */
static bool comes_before(const struct place *a, const struct place *b)
{
	return a->unfit || b->unfit ? !a->unfit && b->unfit : a->time.seconds < b->time.seconds;
}

static void sort_places(struct comparison *c)
{
	for (int i = 0; i < c->codecs; i++) {
		struct place p;
		int at = i;
		find_place(c, i, &p);
		for (; at > 0 && comes_before(&p, &c->place[at - 1]); at--)
			c->place[at] = c->place[at - 1];
		c->place[at] = p;
	}
}

static bool is_allowed(const struct comparison *c, const struct place *p)
{
	return !p->unfit && p->error <= c->set.max_error;
}

/* The first of those that lose little enough; `codecs`: there is none. */
static int find_fastest(const struct comparison *c)
{
	int i = 0;
	while (i < c->codecs && !is_allowed(c, &c->place[i]))
		i++;
	return i;
}

/* The fastest, or one as fast that loses less. */
static int find_best(const struct comparison *c, int fastest)
{
	int best = fastest;
	for (int i = fastest + 1; i < c->codecs; i++)
		if (is_allowed(c, &c->place[i]) && c->place[i].error < c->place[best].error &&
		    c->place[i].time.seconds <= ALIKE * c->place[fastest].time.seconds)
			best = i;
	return best;
}

static const char *time_text(double s, char text[32])
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

static const char *lossy_text(double error, char text[32])
{
	snprintf(text, 32, error > 0 ? "%.3g" : "none", error);
	return text;
}

static void recommend_raw(struct comparison *c)
{
	char raw[32];
	c->recommended = c->codecs;
	snprintf(c->sentence, sizeof c->sentence,
		 "Recommended: raw. A chunk takes %s (%s) without any codec, and none with a relative error of at most "
		 "%g makes it shorter by more than 5 %%.",
		 time_text(c->raw.seconds, raw), gp_rank_bound_name[c->raw.bound], c->set.max_error);
}

/* All errors are above what was asked for: the least is named. */
static void recommend_none(struct comparison *c)
{
	const struct place *least = NULL;
	char error[32];
	c->recommended = -1;
	for (int i = 0; i < c->codecs; i++)
		if (!c->place[i].unfit && (!least || c->place[i].error < least->error))
			least = &c->place[i];
	if (least)
		snprintf(c->sentence, sizeof c->sentence,
			 "Recommended: none. All codecs in the list have a relative error above %g (--max-error) in a "
			 "tensor; the most exact is %s with %s.",
			 c->set.max_error, c->asked[least->codec], lossy_text(least->error, error));
	else
		snprintf(c->sentence, sizeof c->sentence,
			 "Recommended: none. No codec in the list fits all tensors; each direction can have one of its "
			 "own (--codec-act-up and so on).");
}

static void recommend(struct comparison *c)
{
	char time[32], raw[32], error[32];
	const int fastest = find_fastest(c);
	if (fastest == c->codecs) {
		recommend_none(c);
		return;
	}
	const int best = c->recommended = find_best(c, fastest);
	const struct place *p = &c->place[best];
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
		 time_text(p->time.seconds, time), gp_rank_bound_name[p->time.bound], time_text(c->raw.seconds, raw),
		 lossy_text(p->error, error));
}

/* The order in which a tensor's codecs are shown: as they were given, or the best at so many bits first. */
static void sort_column(const struct comparison *c, struct column *column)
{
	struct gp_best_row row[CODECS_MAX];
	for (int i = 0; i < c->codecs; i++) {
		const struct cell *cell = &column->cell[i];
		column->order[i] = i;
		row[i] = (struct gp_best_row){cell->fits, gp_trip_bits(&cell->trip), cell->trip.rel_err};
	}
	if (c->set.bits > 0)
		column->within = gp_best_order(row, c->codecs, c->set.bits, column->order);
}

/* Over all tensors: the bits of all payloads for the elements of all, and the largest error. */
static struct gp_best_row together(const struct comparison *c, int codec)
{
	struct gp_best_row row = {.fits = true};
	double elements = 0;
	for (int t = 0; t < c->tensors; t++) {
		const struct cell *cell = &c->column[t].cell[codec];
		row.fits &= cell->fits;
		row.bits += 8.0 * (double)cell->trip.payload_bytes;
		row.error = fmax(row.error, cell->trip.rel_err);
		elements += (double)cell->trip.elements;
	}
	row.bits = elements > 0 ? row.bits / elements : 0;
	return row;
}

static void find_best_together(struct comparison *c)
{
	struct gp_best_row row[CODECS_MAX];
	int order[CODECS_MAX];
	for (int i = 0; i < c->codecs; i++)
		row[i] = together(c, i);
	c->best = gp_best_order(row, c->codecs, c->set.bits, order) > 0 ? order[0] : -1;
}

static void evaluate(struct comparison *c)
{
	for (int t = 0; t < c->tensors; t++) {
		find_ranges(c, &c->column[t]);
		sort_column(c, &c->column[t]);
	}
	if (c->set.bits > 0)
		find_best_together(c);
	if (c->link.bps <= 0)
		return;
	const struct gp_rank_chunk raw = chunk_with(c, -1);
	c->raw = gp_rank_chunk_time(&raw, &c->link);
	sort_places(c);
	recommend(c);
}

/* --- as JSON ---------------------------------------------------------------------------------------------------- */

static json_t *finite_json(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

static const char *codec_name(const struct comparison *c, int index)
{
	return index == GP_RANK_RAW ? "raw" : c->spec[index].text;
}

static json_t *cell_json(const struct comparison *c, const struct cell *cell, int codec)
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

static json_t *spec_json(const struct comparison *c, int codec)
{
	return codec < 0 ? json_null() : json_string(c->spec[codec].text);
}

static json_t *column_json(const struct comparison *c, const struct column *column)
{
	json_t *rows = json_array(), *shape = json_array();
	for (int i = 0; i < column->shape.ndim; i++)
		json_array_append_new(shape, json_integer(column->shape.dim[i]));
	for (int i = 0; i < c->codecs; i++)
		json_array_append_new(rows, cell_json(c, &column->cell[column->order[i]], column->order[i]));
	json_t *o =
		json_pack("{s:o, s:o, s:o}", "tensor", gp_job_text_json(column->name), "shape", shape, "codecs", rows);
	if (c->set.bits > 0)
		json_object_set_new(o, "best_at_bits", spec_json(c, column->within ? column->order[0] : -1));
	return o;
}

static json_t *place_json(const struct comparison *c, const struct place *p)
{
	const struct gp_rank_time *t = &p->time;
	if (p->unfit)
		return json_pack("{s:s, s:s}", "codec", c->spec[p->codec].text, "does_not_fit", p->unfit->name);
	return json_pack("{s:s, s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:b}", "codec", c->spec[p->codec].text,
			 "time_per_chunk_s", t->seconds, "bound_by", gp_rank_bound_name[t->bound], "up_s", t->up_s,
			 "down_s", t->down_s, "codec_s", t->codec_s, "delay_s", t->delay_s, "rel_err", p->error,
			 "lossless", gp_codec_spec_lossless(&c->spec[p->codec]));
}

static void add_link_json(const struct comparison *c, json_t *o)
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
static enum gp_status print_all_json(const struct comparison *c, struct gp_err *err)
{
	const bool alone = c->set.tensor && c->tensors == 1;
	json_t *o = alone ? column_json(c, &c->column[0]) : json_object(), *list = json_array();
	json_object_set_new(o, "in", gp_job_text_json(c->set.in));
	for (int t = 0; t < c->tensors && !alone; t++)
		json_array_append_new(list, column_json(c, &c->column[t]));
	if (!alone)
		json_object_set(o, "tensors", list);
	json_decref(list);
	if (c->set.bits > 0) {
		json_object_set_new(o, "bits", json_real(c->set.bits));
		json_object_set_new(o, "best", spec_json(c, c->best));
	}
	if (c->link.bps > 0)
		add_link_json(c, o);
	return gp_job_print_json(o, err);
}

/* --- as text ---------------------------------------------------------------------------------------------------- */

static const char *asked_name(const struct comparison *c, int index)
{
	return index == GP_RANK_RAW ? "raw" : c->asked[index];
}

static int widest(const struct comparison *c)
{
	size_t width = strlen("codec");
	for (int i = 0; i < c->codecs; i++)
		width = strlen(c->asked[i]) > width ? strlen(c->asked[i]) : width;
	return (int)width;
}

/* "1.2 Gbit/s (then fp16)", "3 Mbit/s to 1.2 Gbit/s (then raw)", "never (fp16)". */
static const char *range_text(const struct comparison *c, const struct gp_rank_range *r, char *text, size_t size)
{
	char above[32], below[32];
	gp_codec_rate_text(r->above, above, sizeof above);
	gp_codec_rate_text(r->below, below, sizeof below);
	if (!r->pays && r->against == GP_RANK_RAW)
		snprintf(text, size, "never (no shorter than raw)");
	else if (!r->pays)
		snprintf(text, size, "never (%s is faster)", asked_name(c, r->against));
	else if (isinf(r->below))
		snprintf(text, size, r->above > 0 ? "any rate above %s" : "any rate", above);
	else
		snprintf(text, size, "%s%s%s (then %s)", r->above > 0 ? above : "", r->above > 0 ? " to " : "", below,
			 asked_name(c, r->against));
	return text;
}

static void print_cell(const struct comparison *c, const struct cell *cell, int codec, int width)
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
static void print_best(const struct comparison *c, const struct column *column)
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
		printf("None fits\n\n");
}

static void print_best_together(const struct comparison *c)
{
	if (c->best < 0) {
		printf("In all tensors together none has at most %g bits per element.\n", c->set.bits);
		return;
	}
	const struct gp_best_row row = together(c, c->best);
	printf("Best in all tensors together: %s, %.3f bits per element, relative error at most %.3g.\n",
	       c->asked[c->best], row.bits, row.error);
}

static void print_column(const struct comparison *c, const struct column *column, int width)
{
	char shape[80];
	printf("%s (%s)\n", column->name, gp_shape_text(&column->shape, shape, sizeof shape));
	printf("%-*s %9s %9s %9s %9s %8s %8s  %s\n", width, "codec", "bits/el.", "rel. err", "max. err", "cosine",
	       "encode", "decode", "pays below");
	for (int i = 0; i < c->codecs; i++) {
		const struct cell *cell = &column->cell[column->order[i]];
		if (c->set.bits > 0 && i == column->within && i > 0 && cell->fits)
			printf("-- with more than %g bits per element, all bytes of the payload counted:\n",
			       c->set.bits);
		print_cell(c, cell, column->order[i], width);
	}
	if (c->set.bits > 0)
		print_best(c, column);
}

static void print_place(const struct comparison *c, const struct place *p, int width)
{
	char time[32], up[32], down[32], codec[32], error[32];
	if (p->unfit) {
		printf("%-*s does not fit %s\n", width, c->asked[p->codec], p->unfit->name);
		return;
	}
	printf("%-*s %9s  %-9s %9s %9s %9s %9s\n", width, c->asked[p->codec], time_text(p->time.seconds, time),
	       gp_rank_bound_name[p->time.bound], time_text(p->time.up_s, up), time_text(p->time.down_s, down),
	       time_text(p->time.codec_s, codec),
	       gp_codec_spec_lossless(&c->spec[p->codec]) ? "lossless" : lossy_text(p->error, error));
}

static void print_link(const struct comparison *c, int width)
{
	char rate[32], delay[32], raw[32];
	printf("\nA chunk, in a row of many, on a link of %s with %s each way (uncompressed: %s, %s):\n",
	       gp_codec_rate_text(c->link.bps, rate, sizeof rate), time_text(c->link.delay_s, delay),
	       time_text(c->raw.seconds, raw), gp_rank_bound_name[c->raw.bound]);
	printf("%-*s %9s  %-9s %9s %9s %9s %9s\n", width, "codec", "time", "bound by", "up", "down", "coding",
	       "rel. err");
	for (int i = 0; i < c->codecs; i++)
		print_place(c, &c->place[i], width);
	printf("The time is the longest of sending up, sending down, coding at one end, and the way of a chunk alone, "
	       "with\n"
	       "all delays, over the %d chunks in flight. What head, body and tail compute comes where it is "
	       "longer.\n%s\n"
	       "What an error does to the accuracy only a training tells.\n",
	       WINDOW, c->sentence);
}

static void print_all(const struct comparison *c)
{
	const int width = widest(c);
	for (int t = 0; t < c->tensors; t++)
		print_column(c, &c->column[t], width);
	printf("Errors: relative L2 and largest. Speed: G elements/s on one thread of this machine. Pays below: the "
	       "link rate\n"
	       "below which it is faster than the others that lose no more, and than none, and which is faster "
	       "above.\n");
	if (c->set.bits > 0 && c->tensors > 1)
		print_best_together(c);
	if (c->link.bps > 0)
		print_link(c, width);
}

static enum gp_status compare(struct comparison *c, const struct gp_options_result *r, struct gp_err *err)
{
	GP_TRY(read_specs(c, r, err));
	GP_TRY(read_link(c, err));
	GP_TRY(measure_all(c, err));
	GP_TRY(expect_one(c, err));
	evaluate(c);
	if (c->set.json)
		return print_all_json(c, err);
	print_all(c);
	return GP_OK;
}

enum gp_status gp_codec_compare(int argc, char **argv, struct gp_options_result *r, struct gp_err *err)
{
	struct settings s = {0};
	void *memory;
	GP_TRY(gp_options_parse(&table, argc, argv, &s, r, err));
	if (r->help)
		return GP_OK;
	GP_TRY(gp_alloc_array(&memory, 1, sizeof(struct comparison), err));
	struct comparison *c = memory;
	c->set = s;
	const enum gp_status status = compare(c, r, err);
	gp_free(c);
	return status;
}

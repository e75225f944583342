/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient codec compare: tensors of a file through several codecs, a table for
 * each tensor and, for a given link, an order of the codecs and a
 * recommendation; for a given number of bits, the best. Options and measuring
 * (codec_trip.h); the rest: codec_compare.h.
 * Test: tests/unit/test_cmd_codec.c, test_cmd_codec_bits.c
 */
#include "client/commands/cmd_codec.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "client/codecs/codec_specs.h"
#include "client/commands/codec_compare.h"
#include "client/job/job.h"

#define PROGRAM "gpclient codec"

#define MOMENT_NS        2000000000u /* without a word */
#define PLAIN_PROGRESS_S 10          /* between two lines in a file */
#define BRIEF_NS         5000000u    /* least time of measuring each of 340 chains, where the user names none */

#define FIELD(name) offsetof(struct gp_comparison_settings, name)

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
	 .help = "specs, separated by commas, semicolons or spaces; default, with --bits alone: all chains of a "
		 "list of about 340"},
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
	 .help = "passes before the one that is measured, for codecs that remember (ef, delta, poweriter, alq, amq)"},
	{.name = "channels-last",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(channels_last),
	 .help = "a tensor of 4 dimensions is (N,H,W,C) in the file, not (N,C,H,W)"},
	{.name = "padding",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(padding),
	 .help = "with the padding of texts, as 'train --pad max' sends them; else it is left out where FILE has their "
		 "lengths, as capture writes them"},
	{.name = "json", .type = GP_OPT_FLAG, .offset = FIELD(json), .help = "print one JSON object"},
};

static const struct gp_opt_table table = {
	.command = PROGRAM " compare",
	.synopsis = "--in FILE [--tensor NAME,...] [--codecs A,B,...] [--bits B] [--link RATE,DELAY] [--json]",
	.about = "Sends tensors, such as 'gpclient capture' writes, through each codec. Prints bits per element,\n"
		 "errors, speed on this machine (one thread) and the link rate below which the codec is faster\n"
		 "than every other in the list that loses no more, and than none. With --link, also a chunk's time\n"
		 "with each codec in all directions, and which codec is recommended. Specs may also follow as\n"
		 "arguments of their own.\n"
		 "With --bits B, names the codec with the least relative error among those that have at most B\n"
		 "bits per element, for each tensor; and for all together the one whose largest error in a tensor\n"
		 "is least among those with at most B bits on average over all elements. Every byte of the\n"
		 "payload counts, also its header of a few bytes: with --bits 4, uniform:bits=4 is a little above.\n"
		 "Give --codecs, --bits or both; without --codecs, about 340 chains are tried, and\n"
		 "the tables show the best of them (--json: all); their speeds are rough, as each is measured for\n"
		 "a moment only. With --bits and a file of 'gpclient capture' it also names the best codec for each\n"
		 "direction, as flags for 'gpclient train'.\n"
		 "A comma before KEY= belongs to the spec: uniform:bits=8,sortquant:bits=6,split=2 are two codecs.",
	.examples = "  gpclient codec compare --in acts.safetensors --link 100mbit,20ms \\\n"
		    "      --codecs fp16,uniform:bits=8,sortquant:bits=6,split=2,kmeans:bits=4\n"
		    "  gpclient codec compare --in acts.safetensors --bits 4.25\n",
	.positional = "SPEC",
	.opt = options,
	.count = sizeof options / sizeof options[0],
};

/* --- what is asked ---------------------------------------------------------------------------------------------- */

static enum gp_status add_spec(void *arg, const char *text, struct gp_err *err)
{
	struct gp_comparison *c = arg;
	if (c->codecs == GP_COMPARED_CODECS)
		GP_FAIL(err, GP_USAGE, "--codecs: at most %d can be compared at once", GP_COMPARED_CODECS);
	snprintf(c->asked[c->codecs], sizeof c->asked[c->codecs], "%s", text);
	if (gp_codec_spec_parse(text, &c->spec[c->codecs], err) != GP_OK)
		return gp_err_prefix(err, "--codecs: %s", text);
	c->codecs++;
	return GP_OK;
}

static enum gp_status add_specs(struct gp_comparison *c, const char *text, struct gp_err *err)
{
	return gp_codec_specs_each(text, "--codecs", add_spec, c, err);
}

static bool is_asked(const struct gp_comparison *c, const char *text)
{
	for (int i = 0; i < c->codecs; i++)
		if (strcmp(c->asked[i], text) == 0)
			return true;
	return false;
}

/* The list that is tried where the user names no codec. With many bits several chains have the largest budget. */
static enum gp_status add_chains(struct gp_comparison *c, struct gp_err *err)
{
	char text[GP_CODEC_SPEC_MAX];
	for (int i = 0; gp_best_chain(c->set.bits, i, text, sizeof text); i++)
		if (!is_asked(c, text))
			GP_TRY(add_spec(c, text, err));
	return GP_OK;
}

static enum gp_status read_specs(struct gp_comparison *c, const struct gp_options_result *r, struct gp_err *err)
{
	c->named = c->set.codecs || r->positionals > 0;
	if (c->set.in && !c->named && c->set.bits > 0)
		return add_chains(c, err);
	if (!c->set.in || !c->named)
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
static enum gp_status read_link(struct gp_comparison *c, struct gp_err *err)
{
	char rate[64] = "";
	const char *comma = c->set.link ? strchr(c->set.link, ',') : NULL;
	c->link = (struct gp_rank_link){.window = GP_COMPARED_WINDOW};
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

/* The lengths of texts that `capture` has written: "act_up.length". */
static const struct gp_st_tensor *find_lengths(const struct gp_st_file *f)
{
	static const char end[] = ".length";
	for (int i = 0; i < gp_st_count(f); i++) {
		const struct gp_st_tensor *t = gp_st_at(f, i);
		const size_t len = strlen(t->name);
		if (direction_of(t->name) >= 0 && len >= sizeof end &&
		    strcmp(t->name + len - (sizeof end - 1), end) == 0)
			return t;
	}
	return NULL;
}

static enum gp_status drop_padding(const struct gp_comparison *c, struct gp_trip_tensor *t,
				   struct gp_compared_column *column, struct gp_err *err)
{
	const struct gp_st_tensor *length = c->set.padding || column->direction < 0 ? NULL : find_lengths(t->file);
	bool dropped = false;
	if (length)
		GP_TRY(gp_trip_drop_padding(t, length, &dropped, err));
	if (!dropped)
		return GP_OK;
	column->positions = t->rows.shape.dim[0];
	column->raw_bits = 32.0 * (double)t->rows.count;
	return GP_OK;
}

/* What `train` refuses is refused here, too; there, the number of samples comes from the data. */
static enum gp_status try_codec(const struct gp_comparison *c, int codec, struct gp_trip_tensor *t, int direction,
				struct gp_trip *out, struct gp_err *err)
{
	const struct gp_codec_spec *const spec = &c->spec[codec];
	struct gp_codec_spec filled = *spec;
	const int64_t samples = t->shape.ndim > 0 ? t->shape.dim[0] : 1;
	if (strncmp(spec->text, "delta", 5) == 0 && !gp_comparison_goes_up(direction))
		GP_FAIL(err, GP_INVALID, "delta works up the link only");
	if (samples > 0 && samples <= 1 << 24)
		GP_TRY(gp_codec_spec_set_samples(&filled, (uint32_t)samples, err));
	return gp_trip_run(t, &filled, (int)c->set.warmup, c->named ? GP_TRIP_MEASURE_NS : BRIEF_NS, out, err);
}

/* The chain of the list that does the same work: for a tensor that is no map, the one without `predict=map`, which has been
 * measured before. -1: there is none. */
static int twin_of(const struct gp_comparison *c, int codec, const struct gp_shape *shape)
{
	static const char key[] = "predict=map";
	char text[GP_CODEC_SPEC_MAX];
	const char *at = strstr(c->asked[codec], key);
	if (c->named || shape->ndim == 4 || !at)
		return -1;
	const char *rest = at + sizeof key - 1;
	const int begin = (int)(at - c->asked[codec]);
	if (*rest == ',')
		snprintf(text, sizeof text, "%.*s%s", begin, c->asked[codec], rest + 1);
	else
		snprintf(text, sizeof text, "%.*s", begin - 1, c->asked[codec]);
	for (int i = 0; i < codec; i++)
		if (strcmp(c->asked[i], text) == 0)
			return i;
	return -1;
}

/* Nothing in the first two seconds. */
static void show_progress(struct gp_comparison *c, const char *tensor, int codec)
{
	const uint64_t now = gp_now_ns();
	char text[GP_COMPARED_NAME + GP_CODEC_SPEC_MAX + 64];
	if (now - c->begun_ns < MOMENT_NS || !gp_progress_due(&c->progress, now))
		return;
	snprintf(text, sizeof text, "%s: codec %d of %d, %s", tensor, codec + 1, c->codecs, c->asked[codec]);
	gp_progress_update(&c->progress, now, text);
}

static enum gp_status measure(struct gp_comparison *c, const char *name, struct gp_err *err)
{
	struct gp_compared_column *column = &c->column[c->tensors];
	struct gp_trip_tensor t;
	GP_TRY(gp_trip_open(c->set.in, name, c->set.channels_last, &t, err));
	snprintf(column->name, sizeof column->name, "%s", name);
	column->direction = direction_of(name);
	column->shape = t.tensor->shape;
	column->raw_bits = 32.0 * (double)t.tensor->count;
	c->tensors++;
	enum gp_status status = drop_padding(c, &t, column, err);
	for (int i = 0; i < c->codecs && status == GP_OK; i++) {
		struct gp_compared_cell *cell = &column->cell[i];
		const int twin = twin_of(c, i, &t.shape);
		struct gp_err why = {0};
		show_progress(c, name, i);
		const enum gp_status tried = try_codec(c, i, &t, column->direction, &cell->trip, &why);
		cell->fits = tried == GP_OK;
		if (cell->fits && twin >= 0) { /* chance is not to tell them apart */
			cell->trip.encode_ns = column->cell[twin].trip.encode_ns;
			cell->trip.decode_ns = column->cell[twin].trip.decode_ns;
		}
		snprintf(cell->why, sizeof cell->why, "%s", cell->fits ? "" : why.text);
		if (tried == GP_NOMEM) {
			*err = why;
			status = tried;
		}
	}
	gp_trip_close(&t);
	return status;
}

static enum gp_status measure_named(struct gp_comparison *c, struct gp_err *err)
{
	struct gp_text rest = gp_text_of(c->set.tensor), part;
	char name[GP_COMPARED_NAME];
	while (gp_text_cut(&rest, ',', &part)) {
		if (c->tensors == GP_COMPARED_TENSORS || !gp_text_copy(part, name, sizeof name))
			GP_FAIL(err, GP_USAGE, "--tensor takes %d names of at most %d characters", GP_COMPARED_TENSORS,
				GP_COMPARED_NAME - 1);
		GP_TRY(measure(c, name, err));
	}
	return GP_OK;
}

/* By its type in the file: one with more dimensions than can be read is GP_ST_OTHER here. */
static bool is_real(const struct gp_st_tensor *t)
{
	static const char *const real[] = {"F32", "F16", "BF16", "F64"};
	for (size_t i = 0; i < sizeof real / sizeof real[0]; i++)
		if (strcmp(t->type, real[i]) == 0)
			return true;
	return false;
}

/* Before any is measured. */
static enum gp_status check_tensors(const struct gp_comparison *c, const struct gp_st_file *f, struct gp_err *err)
{
	int reals = 0;
	for (int i = 0; i < gp_st_count(f); i++) {
		const struct gp_st_tensor *t = gp_st_at(f, i);
		if (!is_real(t))
			continue;
		if (t->dims > GP_MAX_DIMS)
			GP_FAIL(err, GP_INVALID,
				"%s: tensor '%.60s' has %d dimensions, and %d can be read; name others with --tensor",
				c->set.in, t->name, t->dims, GP_MAX_DIMS);
		if (strlen(t->name) >= GP_COMPARED_NAME)
			GP_FAIL(err, GP_INVALID, "%s: the name of a tensor has more than %d bytes: '%.40s...'",
				c->set.in, GP_COMPARED_NAME - 1, t->name);
		reals++;
	}
	if (reals > GP_COMPARED_TENSORS)
		GP_FAIL(err, GP_USAGE,
			"%s has %d tensors of real numbers, and %d can be compared at once; name some with --tensor",
			c->set.in, reals, GP_COMPARED_TENSORS);
	return GP_OK;
}

/* Those of one direction, or, -1, of none. */
static enum gp_status measure_direction(struct gp_comparison *c, const struct gp_st_file *f, int direction,
					struct gp_err *err)
{
	for (int i = 0; i < gp_st_count(f); i++) {
		const struct gp_st_tensor *t = gp_st_at(f, i);
		if (direction_of(t->name) != direction)
			continue;
		if (!is_real(t)) {
			c->plain_bits[gp_comparison_goes_up(direction)] += 8.0 * (double)t->bytes;
			continue;
		}
		GP_TRY(measure(c, t->name, err));
	}
	return GP_OK;
}

static enum gp_status measure_all_of(struct gp_comparison *c, const struct gp_st_file *f, struct gp_err *err)
{
	GP_TRY(check_tensors(c, f, err));
	for (int d = 0; d < GP_DIRECTIONS; d++)
		GP_TRY(measure_direction(c, f, d, err));
	GP_TRY(measure_direction(c, f, -1, err));
	if (c->tensors == 0)
		GP_FAIL(err, GP_INVALID, "%s has no tensor of real numbers", c->set.in);
	return GP_OK;
}

static enum gp_status measure_all(struct gp_comparison *c, struct gp_err *err)
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
static enum gp_status expect_one(const struct gp_comparison *c, struct gp_err *err)
{
	for (int t = 0; t < c->tensors; t++)
		for (int i = 0; i < c->codecs; i++)
			if (c->column[t].cell[i].fits)
				return GP_OK;
	GP_FAIL(err, GP_INVALID, "%s: no codec fits; %s on %s: %s", c->set.in, c->spec[0].text, c->column[0].name,
		c->column[0].cell[0].why);
}

static enum gp_status compare(struct gp_comparison *c, const struct gp_options_result *r, struct gp_err *err)
{
	GP_TRY(read_specs(c, r, err));
	GP_TRY(read_link(c, err));
	gp_progress_init(&c->progress, stderr, PLAIN_PROGRESS_S);
	c->begun_ns = gp_now_ns();
	const enum gp_status measured = measure_all(c, err);
	gp_progress_clear(&c->progress);
	GP_TRY(measured);
	GP_TRY(expect_one(c, err));
	gp_comparison_evaluate(c);
	if (c->set.json)
		return gp_comparison_print_json(c, err);
	gp_comparison_print(c);
	return GP_OK;
}

enum gp_status gp_codec_compare(int argc, char **argv, struct gp_options_result *r, struct gp_err *err)
{
	struct gp_comparison_settings s = {0};
	void *memory;
	GP_TRY(gp_options_parse(&table, argc, argv, &s, r, err));
	if (r->help)
		return GP_OK;
	GP_TRY(gp_alloc_array(&memory, 1, sizeof(struct gp_comparison), err));
	struct gp_comparison *c = memory;
	c->set = s;
	const enum gp_status status = compare(c, r, err);
	gp_free(c);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See codec_auto.h. Test: tests/unit/test_codec_auto.c, tests/e2e/codec_auto.sh
 */
#include "client/codecs/codec_auto.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/value.h"

#define EVERY_INITIAL 10
/* None with entropy codes: they take a core longer than a fast link takes the bytes that they save. */
#define LADDER                                                                                                         \
	"raw|bf16|block:bits=8,size=64|block:bits=6,size=64|hadamard:size=64+block:bits=5,size=64|"                    \
	"hadamard:size=64+block:bits=4,size=64|hadamard:size=64+block:bits=3,size=64,clip=mse"
#define FIRST_BITS 9.0 /* per element: a run begins with the first rung that needs no more */

bool gp_codec_auto_is(const char *text)
{
	return strncmp(text, "auto", 4) == 0 && (text[4] == '\0' || text[4] == ':');
}

static enum gp_status bad_value(const char *key, struct gp_text value, const char *why, struct gp_err *err)
{
	char shown[GP_SHOWN];
	GP_FAIL(err, GP_USAGE, "auto: %s=%s %s", key, gp_text_shown(value, shown), why);
}

static enum gp_status read_number(const char *key, struct gp_text text, const struct gp_value_form *form,
				  union gp_value *v, struct gp_err *err)
{
	char why[GP_VALUE_WHY];
	if (!gp_value_parse(form, text, v, why))
		GP_FAIL(err, GP_USAGE, "auto: %s: %s", key, why);
	return GP_OK;
}

/* "STEP@RUNG". */
static enum gp_status read_change(struct gp_codec_auto *a, struct gp_text text, struct gp_err *err)
{
	static const struct gp_value_form step = {.type = GP_VALUE_INT, .min = 0, .max = 1e9};
	static const struct gp_value_form rung = {.type = GP_VALUE_INT, .min = 0, .max = GP_LADDER_RUNGS - 1};
	struct gp_text first, rest = text;
	union gp_value s, r;
	if (!gp_text_cut(&rest, '@', &first) || !rest.at)
		return bad_value("script", text, "is not STEP@CODEC/STEP@CODEC/..., as 0@2/40@5", err);
	GP_TRY(read_number("script", first, &step, &s, err));
	GP_TRY(read_number("script", rest, &rung, &r, err));
	if (a->scripted == GP_AUTO_SCRIPT)
		return bad_value("script", text, "is one change more than there may be", err);
	if (a->scripted > 0 && (uint64_t)s.whole <= a->script[a->scripted - 1].step)
		return bad_value("script", text, "does not come behind the change before it", err);
	a->script[a->scripted].step = (uint64_t)s.whole;
	a->script[a->scripted++].rung = (int)r.whole;
	return GP_OK;
}

static enum gp_status read_script(struct gp_codec_auto *a, struct gp_text text, struct gp_err *err)
{
	struct gp_text piece;
	while (gp_text_cut(&text, '/', &piece))
		GP_TRY(read_change(a, piece, err));
	return GP_OK;
}

static enum gp_status read_key(struct gp_codec_auto *a, struct gp_text pair, struct gp_err *err)
{
	static const struct gp_value_form budget = {.type = GP_VALUE_REAL, .min = 1e-6, .max = 1};
	static const struct gp_value_form every = {.type = GP_VALUE_INT, .min = 1, .max = 1e6};
	char shown[GP_SHOWN];
	struct gp_text key, value = pair;
	union gp_value v;
	gp_text_cut(&value, '=', &key);
	if (!value.at)
		GP_FAIL(err, GP_USAGE, "auto: '%s' is not KEY=VALUE", gp_text_shown(pair, shown));
	if (gp_text_is(key, "script"))
		return read_script(a, value, err);
	if (gp_text_is(key, "budget")) {
		GP_TRY(read_number("budget", value, &budget, &v, err));
		a->budget = v.real;
		return GP_OK;
	}
	if (!gp_text_is(key, "every"))
		GP_FAIL(err, GP_USAGE, "auto: there is no key '%s'; there are budget, every, script and, last, ladder",
			gp_text_shown(key, shown));
	GP_TRY(read_number("every", value, &every, &v, err));
	a->every = (uint32_t)v.whole;
	return GP_OK;
}

/* It may have commas itself: it is the last key. */
static bool begins_ladder(struct gp_text rest)
{
	return rest.len >= 7 && memcmp(rest.at, "ladder=", 7) == 0;
}

static enum gp_status read_keys(struct gp_codec_auto *a, struct gp_text rest, struct gp_err *err)
{
	struct gp_text pair;
	while (rest.at && !begins_ladder(rest) && gp_text_cut(&rest, ',', &pair))
		GP_TRY(read_key(a, pair, err));
	if (gp_codec_ladder_parse(rest.at ? rest.at + 7 : LADDER, &a->ladder, err) != GP_OK)
		return gp_err_prefix(err, "auto: ladder");
	return GP_OK;
}

/* Bits per element of a tensor like any other. */
static enum gp_status find_bits(const struct gp_codec_spec *spec, double *bits, struct gp_err *err)
{
	enum { ELEMENTS = 16 * 16 * 64 };
	const struct gp_shape shape = {.ndim = 4, .dim = {1, 16, 16, 64}};
	struct gp_codec *c;
	void *room;
	size_t len = 0;
	GP_TRY(gp_codec_new(spec, &shape, 0, &c, err));
	enum gp_status status = gp_alloc_array(&room, ELEMENTS * sizeof(float) + gp_codec_bound(c), 1, err);
	if (status == GP_OK) {
		float *x = room;
		for (int i = 0; i < ELEMENTS; i++)
			x[i] = (float)((i * 7919) % 4001 - 2000);
		status = gp_codec_encode(c, x, 0, (uint8_t *)(x + ELEMENTS), gp_codec_bound(c), &len, err);
		gp_free(room);
	}
	gp_codec_free(c);
	*bits = 8.0 * (double)len / ELEMENTS;
	return status;
}

static enum gp_status find_first(struct gp_codec_auto *a, struct gp_err *err)
{
	struct gp_codec_spec spec;
	double bits = INFINITY;
	a->first = a->scripted > 0 ? gp_codec_auto_scripted(a, 0) : 0;
	for (int i = 0; a->scripted == 0 && bits > FIRST_BITS && i < a->ladder.rungs; i++) {
		gp_codec_ladder_rung(&a->ladder, i, &spec);
		GP_TRY(find_bits(&spec, &bits, err));
		a->first = i;
	}
	return GP_OK;
}

static enum gp_status check_script(const struct gp_codec_auto *a, struct gp_err *err)
{
	for (int i = 0; i < a->scripted; i++)
		if (a->script[i].rung >= a->ladder.rungs)
			GP_FAIL(err, GP_USAGE, "auto: script: there is no codec %d among the %d of the ladder, from 0",
				a->script[i].rung, a->ladder.rungs);
	return GP_OK;
}

static void write_text(struct gp_codec_auto *a)
{
	snprintf(a->text, sizeof a->text, "auto:budget=%.9g,every=%u", a->budget, a->every);
	for (int i = 0; i < a->scripted; i++)
		gp_text_append(a->text, sizeof a->text, "%s%" PRIu64 "@%d", i ? "/" : ",script=", a->script[i].step,
			       a->script[i].rung);
	gp_text_append(a->text, sizeof a->text, ",ladder=%s", a->ladder.text);
}

enum gp_status gp_codec_auto_parse(const char *text, struct gp_codec_auto *out, struct gp_err *err)
{
	struct gp_codec_auto a = {.on = true, .every = EVERY_INITIAL};
	GP_TRY(read_keys(&a, text[4] ? gp_text_of(text + 5) : (struct gp_text){0}, err));
	GP_TRY(check_script(&a, err));
	GP_TRY(find_first(&a, err));
	write_text(&a);
	*out = a;
	return GP_OK;
}

enum gp_status gp_codec_auto_refuse(const char *text, struct gp_err *err)
{
	if (gp_codec_auto_is(text))
		GP_FAIL(err, GP_USAGE, "auto chooses a codec while training; name the codec here");
	return GP_OK;
}

int gp_codec_auto_scripted(const struct gp_codec_auto *a, uint64_t steps)
{
	int rung = a->scripted > 0 ? a->script[0].rung : a->first;
	for (int i = 0; i < a->scripted && a->script[i].step <= steps; i++)
		rung = a->script[i].rung;
	return rung;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See codec_ladder.h. Test: tests/unit/test_codec_ladder.c
 */
#include "common/codec/codec_ladder.h"

#include <string.h>

#include "common/base/text.h"
#include "common/codec/codec_impl.h"

/* The piece between two '|'; false: there are fewer. */
static bool find_piece(const char *text, int i, struct gp_text *out)
{
	struct gp_text rest = gp_text_of(text);
	for (int k = 0; gp_text_cut(&rest, '|', out); k++)
		if (k == i)
			return true;
	return false;
}

/* A stage that remembers something of a tensor for the next one, or whose choice its gradient reuses. */
static bool remembers(const struct gp_codec_spec *spec, const char **what)
{
	for (int i = 0; i < spec->stages; i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_by_id(spec->stage[i].id);
		*what = ops->info.name;
		if (ops->regions || ops->masks)
			return true;
	}
	return false;
}

static enum gp_status read_rung(struct gp_text piece, struct gp_codec_spec *out, struct gp_err *err)
{
	char text[GP_CODEC_SPEC_MAX];
	const char *what;
	if (!gp_text_copy(piece, text, sizeof text))
		GP_FAIL(err, GP_USAGE, "a codec spec is longer than %d characters", GP_CODEC_SPEC_MAX - 1);
	GP_TRY(gp_codec_spec_parse(text, out, err));
	if (remembers(out, &what))
		GP_FAIL(err, GP_USAGE, "%s remembers what it has coded: it cannot be changed to and from", what);
	return GP_OK;
}

static enum gp_status check_rungs(struct gp_codec_ladder *l, struct gp_err *err)
{
	struct gp_codec_spec spec;
	struct gp_text piece;
	for (; find_piece(l->text, l->rungs, &piece); l->rungs++) {
		if (l->rungs == GP_LADDER_RUNGS)
			GP_FAIL(err, GP_USAGE, "more than %d codecs", GP_LADDER_RUNGS);
		if (read_rung(piece, &spec, err) != GP_OK)
			return gp_err_prefix(err, "codec %d", l->rungs + 1);
		if (gp_codec_ladder_find(l, &spec) >= 0)
			GP_FAIL(err, GP_USAGE, "codec %d, %s, comes twice", l->rungs + 1, spec.text);
	}
	if (l->rungs < 2)
		GP_FAIL(err, GP_USAGE, "one codec alone: there is nothing to choose from");
	return GP_OK;
}

enum gp_status gp_codec_ladder_parse(const char *text, struct gp_codec_ladder *out, struct gp_err *err)
{
	struct gp_codec_ladder l = {0};
	const size_t len = strnlen(text, GP_LADDER_TEXT);
	if (len == GP_LADDER_TEXT)
		GP_FAIL(err, GP_USAGE, "a list of codecs is longer than %d characters", GP_LADDER_TEXT - 1);
	memcpy(l.text, text, len);
	GP_TRY(check_rungs(&l, err));
	*out = l;
	return GP_OK;
}

void gp_codec_ladder_rung(const struct gp_codec_ladder *l, int i, struct gp_codec_spec *out)
{
	struct gp_text piece;
	struct gp_err err;
	gp_require(i >= 0 && i < l->rungs && find_piece(l->text, i, &piece));
	gp_require(read_rung(piece, out, &err) == GP_OK);
}

const char *gp_codec_ladder_name(const struct gp_codec_ladder *l, int i, char text[GP_CODEC_SPEC_MAX])
{
	struct gp_text piece;
	gp_require(i >= 0 && i < l->rungs && find_piece(l->text, i, &piece));
	gp_require(gp_text_copy(piece, text, GP_CODEC_SPEC_MAX));
	return text;
}

int gp_codec_ladder_find(const struct gp_codec_ladder *l, const struct gp_codec_spec *spec)
{
	struct gp_codec_spec rung;
	for (int i = 0; i < l->rungs; i++) {
		gp_codec_ladder_rung(l, i, &rung);
		if (strcmp(rung.text, spec->text) == 0)
			return i;
	}
	return -1;
}

enum gp_codec_lengths gp_codec_ladder_lengths(const struct gp_codec_ladder *l)
{
	enum gp_codec_lengths all = GP_CODEC_ELEMENTS;
	struct gp_codec_spec rung;
	for (int i = 0; i < l->rungs; i++) {
		gp_codec_ladder_rung(l, i, &rung);
		const enum gp_codec_lengths one = gp_codec_spec_lengths(&rung);
		if (one == GP_CODEC_ONE_SHAPE || all == GP_CODEC_ONE_SHAPE)
			all = GP_CODEC_ONE_SHAPE;
		else if (one == GP_CODEC_SEQUENCES)
			all = one;
	}
	return all;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See bench_rows.h. Test: tests/unit/test_bench_rows.c
 */
#include "client/bench/bench_rows.h"

#include <string.h>

#include "client/codecs/codec_auto.h"
#include "client/codecs/codec_specs.h"
#include "common/base/text.h"
#include "common/base/value.h"

/* Calls `add` with each item of a list that commas separate. */
static enum gp_status each_item(struct gp_bench_sweep *s, const char *flag, const char *list,
				enum gp_status (*add)(struct gp_bench_sweep *s, const char *item, struct gp_err *err),
				struct gp_err *err)
{
	struct gp_text rest = gp_text_of(list), piece;
	char item[GP_BENCH_LINK_TEXT], shown[GP_SHOWN];
	while (gp_text_cut(&rest, ',', &piece)) {
		for (; piece.len > 0 && piece.at[0] == ' '; piece.len--)
			piece.at++;
		while (piece.len > 0 && piece.at[piece.len - 1] == ' ')
			piece.len--;
		if (piece.len == 0)
			GP_FAIL(err, GP_USAGE, "%s '%.60s' has an empty item; items are separated by commas", flag,
				list);
		if (!gp_text_copy(piece, item, sizeof item))
			GP_FAIL(err, GP_USAGE, "%s: '%s' is too long", flag, gp_text_shown(piece, shown));
		GP_TRY(add(s, item, err));
	}
	return GP_OK;
}

static enum gp_status check_room(const char *flag, int count, int most, struct gp_err *err)
{
	if (count >= most)
		GP_FAIL(err, GP_USAGE, "%s: at most %d can be compared at once", flag, most);
	return GP_OK;
}

static enum gp_status add_link(struct gp_bench_sweep *s, const char *item, struct gp_err *err)
{
	struct gp_bench_link l = {.as_is = strcmp(item, GP_BENCH_AS_IS) == 0};
	char spec[GP_BENCH_LINK_TEXT];
	GP_TRY(check_room("--links", s->links, GP_BENCH_LINKS, err));
	snprintf(l.text, sizeof l.text, "%s", item);
	snprintf(spec, sizeof spec, "%s", item);
	for (char *c = spec; *c; c++)
		if (*c == '/')
			*c = ',';
	if (!l.as_is && gp_plan_link_parse(spec, &l.shape, err) != GP_OK)
		GP_FAIL(err, GP_USAGE,
			"--links: '%s' is neither " GP_BENCH_AS_IS
			" nor RATE[/DELAY[/DOWN]], as in 1gbit, 100mbit/20ms or 50mbit/rtt=40ms/down=10mbit",
			item);
	for (int i = 0; i < s->links; i++)
		if (strcmp(s->link[i].text, item) == 0)
			GP_FAIL(err, GP_USAGE, "--links: '%s' is given twice", item);
	s->link[s->links++] = l;
	return GP_OK;
}

static enum gp_status add_cut(struct gp_bench_sweep *s, const char *item, struct gp_err *err)
{
	GP_TRY(check_room("--cut", s->cuts, GP_BENCH_CUTS, err));
	if (strlen(item) >= GP_BENCH_CUT_TEXT)
		GP_FAIL(err, GP_USAGE, "--cut: '%s' is no cut, such as 1:-1", item);
	for (int i = 0; i < s->cuts; i++)
		if (strcmp(s->cut[i], item) == 0)
			GP_FAIL(err, GP_USAGE, "--cut: '%s' is given twice", item);
	snprintf(s->cut[s->cuts++], GP_BENCH_CUT_TEXT, "%s", item);
	return GP_OK;
}

static enum gp_status add_chunks(struct gp_bench_sweep *s, const char *item, struct gp_err *err)
{
	int64_t n;
	GP_TRY(check_room("--chunks", s->chunkings, GP_BENCH_CHUNKINGS, err));
	if (!gp_parse_i64(item, &n) || n < 1 || n > 1 << 20)
		GP_FAIL(err, GP_USAGE, "--chunks: '%s' is no number of chunks; give numbers separated by commas: 1,8",
			item);
	for (int i = 0; i < s->chunkings; i++)
		if (s->chunks[i] == n)
			GP_FAIL(err, GP_USAGE, "--chunks: %d is given twice", (int)n);
	s->chunks[s->chunkings++] = (int)n;
	return GP_OK;
}

static enum gp_status add_codec(void *arg, const char *text, struct gp_err *err)
{
	struct gp_bench_sweep *s = arg;
	struct gp_codec_spec spec;
	GP_TRY(check_room("--codecs", s->codecs, GP_BENCH_CODECS, err));
	if (gp_codec_auto_refuse(text, err) != GP_OK || gp_codec_spec_parse(text, &spec, err) != GP_OK)
		return gp_err_prefix(err, "--codecs: %s", text);
	for (int i = 0; i < s->codecs; i++)
		if (strcmp(s->codec[i], text) == 0)
			GP_FAIL(err, GP_USAGE, "--codecs: %s is given twice", text);
	snprintf(s->codec[s->codecs++], GP_CODEC_SPEC_MAX, "%s", text);
	return GP_OK;
}

enum gp_status gp_bench_read_links(struct gp_bench_sweep *s, const char *list, struct gp_err *err)
{
	return each_item(s, "--links", list, add_link, err);
}

enum gp_status gp_bench_read_cuts(struct gp_bench_sweep *s, const char *list, struct gp_err *err)
{
	return each_item(s, "--cut", list, add_cut, err);
}

enum gp_status gp_bench_read_chunks(struct gp_bench_sweep *s, const char *list, int64_t batch, struct gp_err *err)
{
	GP_TRY(each_item(s, "--chunks", list, add_chunks, err));
	for (int i = 0; i < s->chunkings; i++)
		if (batch % s->chunks[i] != 0)
			GP_FAIL(err, GP_USAGE, "--chunks: a batch of %lld cannot be cut into %d chunks of equal size",
				(long long)batch, s->chunks[i]);
	return GP_OK;
}

enum gp_status gp_bench_read_codecs(struct gp_bench_sweep *s, const char *list, struct gp_err *err)
{
	GP_TRY(gp_codec_specs_each(list, "--codecs", add_codec, s, err));
	if (s->codecs == 0)
		GP_FAIL(err, GP_USAGE, "--codecs names no codec");
	return GP_OK;
}

int gp_bench_count(const struct gp_bench_sweep *s)
{
	return s->links * s->cuts * s->chunkings * s->codecs;
}

struct gp_bench_place gp_bench_place_of(const struct gp_bench_sweep *s, int row)
{
	struct gp_bench_place p;
	p.codec = row % s->codecs;
	row /= s->codecs;
	p.chunking = row % s->chunkings;
	row /= s->chunkings;
	p.cut = row % s->cuts;
	p.link = row / s->cuts;
	return p;
}

void gp_bench_key_of(const struct gp_bench_sweep *s, int row, struct gp_bench_key *out)
{
	const struct gp_bench_place p = gp_bench_place_of(s, row);
	*out = (struct gp_bench_key){.chunks = s->chunks[p.chunking]};
	memcpy(out->link, s->link[p.link].text, sizeof out->link);
	memcpy(out->cut, s->cut[p.cut], sizeof out->cut);
	memcpy(out->codec, s->codec[p.codec], sizeof out->codec);
}

bool gp_bench_key_same(const struct gp_bench_key *a, const struct gp_bench_key *b)
{
	return a->chunks == b->chunks && strcmp(a->link, b->link) == 0 && strcmp(a->cut, b->cut) == 0 &&
	       strcmp(a->codec, b->codec) == 0;
}

int gp_bench_turn(int rows, int round, int turn)
{
	return round % 2 == 1 ? turn : rows - 1 - turn;
}

const char *gp_bench_key_text(const struct gp_bench_key *k, char text[GP_BENCH_KEY_TEXT])
{
	snprintf(text, GP_BENCH_KEY_TEXT, "%s in %d chunk%s, cut %s, link %s", k->codec, k->chunks,
		 k->chunks == 1 ? "" : "s", k->cut, k->link);
	return text;
}

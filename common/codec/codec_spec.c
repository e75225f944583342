/* SPDX-License-Identifier: Apache-2.0
 *
 * Codec specs: "name:key=value,...+name:..." to struct gp_codec_spec and its
 * canonical text. Runs on text from a peer: bounded, no allocation, and error
 * texts only quote characters that passed the alphabet check. Does not know
 * any codec: ranges and rules come from the table in codec_registry.c, the
 * order of stages from codec_order.c.
 * Grammar: CODECS.md. Test: tests/unit/test_codec_spec.c; fuzz: tests/fuzz/fuzz_codec_spec.c
 */
#include "common/codec/codec_impl.h"

#define NAME_MAX_CHARS 24

/* A bounded piece of the text being parsed. */
struct piece {
	const char *at;
	size_t len;
};

/* Cuts everything before `separator` (or the rest) off `rest`. False when nothing was left to cut. */
static bool next_piece(struct piece *rest, char separator, struct piece *out)
{
	if (!rest->at)
		return false;
	const char *end = memchr(rest->at, separator, rest->len);
	*out = (struct piece){rest->at, end ? (size_t)(end - rest->at) : rest->len};
	*rest = end ? (struct piece){end + 1, rest->len - out->len - 1} : (struct piece){NULL, 0};
	return true;
}

static bool copy_name(struct piece p, char name[NAME_MAX_CHARS])
{
	if (p.len == 0 || p.len >= NAME_MAX_CHARS)
		return false;
	memcpy(name, p.at, p.len);
	name[p.len] = '\0';
	return true;
}

/* Levenshtein distance of two short words. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t row[NAME_MAX_CHARS], n = strlen(b);
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];
		row[0] = i + 1;
		for (size_t j = 0; j < n; j++) {
			size_t best = diagonal + (a[i] != b[j]);
			diagonal = row[j + 1];
			best = diagonal + 1 < best ? diagonal + 1 : best;
			row[j + 1] = row[j] + 1 < best ? row[j] + 1 : best;
		}
	}
	return row[n];
}

/* `word` unless it is further than one edit in three characters from `wanted`, or further than the best so far. */
static void keep_nearer(const char *wanted, const char *word, const char **nearest, size_t *distance)
{
	const size_t d = edit_distance(wanted, word), len = strlen(wanted), most = len < 6 ? 1 : len / 3;
	if (d <= most && d < len && d < *distance) {
		*distance = d;
		*nearest = word;
	}
}

static enum gp_status unknown_codec(int stage, const char *name, struct gp_err *err)
{
	char known[240] = "";
	const char *nearest = NULL;
	size_t distance = SIZE_MAX;
	for (int i = 0; gp_codec_ops_at(i); i++) {
		const char *word = gp_codec_ops_at(i)->info.name;
		gp_codec_append(known, sizeof known, "%s%s", i ? ", " : "", word);
		keep_nearer(name, word, &nearest, &distance);
	}
	if (nearest)
		GP_FAIL(err, GP_USAGE, "codec stage %d: no codec \"%s\"; did you mean \"%s\"? (known: %s)", stage, name,
			nearest, known);
	GP_FAIL(err, GP_USAGE, "codec stage %d: no codec \"%s\" (known: %s)", stage, name, known);
}

static enum gp_status unknown_key(int stage, const struct gp_codec_ops *ops, const char *name, struct gp_err *err)
{
	char keys[160];
	const char *codec = ops->info.name, *nearest = NULL;
	size_t distance = SIZE_MAX;
	for (int i = 0; i < ops->keys; i++)
		keep_nearer(name, ops->key[i].name, &nearest, &distance);
	if (!ops->keys)
		GP_FAIL(err, GP_USAGE, "codec stage %d (%s): key \"%s\" is not known; it takes no keys", stage, codec,
			name);
	gp_codec_ops_keys_text(ops, keys, sizeof keys);
	if (nearest)
		GP_FAIL(err, GP_USAGE, "codec stage %d (%s): no key \"%s\"; did you mean \"%s\"? (keys: %s)", stage,
			codec, name, nearest, keys);
	GP_FAIL(err, GP_USAGE, "codec stage %d (%s): no key \"%s\" (keys: %s)", stage, codec, name, keys);
}

static int find_key(const struct gp_codec_ops *ops, const char *name)
{
	for (int i = 0; i < ops->keys; i++)
		if (strcmp(ops->key[i].name, name) == 0)
			return i;
	return -1;
}

/* One "key=value". `seen` has a bit per key already given. */
static enum gp_status parse_key(int stage, const struct gp_codec_ops *ops, struct piece text, unsigned *seen,
				double *value, struct gp_err *err)
{
	struct piece key, rest = text;
	char name[NAME_MAX_CHARS];
	const char *codec = ops->info.name;
	if (!next_piece(&rest, '=', &key) || !rest.at || !copy_name(key, name))
		GP_FAIL(err, GP_USAGE, "codec stage %d (%s): \"%.*s\" is not of the form key=value", stage, codec,
			(int)text.len, text.at);
	int index = find_key(ops, name);
	if (index < 0)
		return unknown_key(stage, ops, name, err);
	if (*seen & 1u << index)
		GP_FAIL(err, GP_USAGE, "codec stage %d (%s): key \"%s\" is given twice", stage, codec, name);
	const struct gp_codec_key *k = &ops->key[index];
	double v;
	char allowed[96];
	if (!gp_codec_key_parse(k, rest.at, rest.len, &v))
		GP_FAIL(err, GP_USAGE, "codec stage %d (%s): %s=%.*s is not allowed; %s is %s", stage, codec, name,
			(int)rest.len, rest.at, name, gp_codec_key_allowed(k, allowed, sizeof allowed));
	*seen |= 1u << index;
	value[index] = v;
	return GP_OK;
}

static enum gp_status parse_stage(int number, struct piece text, struct gp_codec_stage_spec *out, struct gp_err *err)
{
	struct piece word, key, rest = text;
	char name[NAME_MAX_CHARS];
	if (!next_piece(&rest, ':', &word) || !copy_name(word, name))
		GP_FAIL(err, GP_USAGE, "codec stage %d: \"%.*s\" does not begin with a codec's name", number,
			(int)(text.len < 40 ? text.len : 40), text.at);
	const struct gp_codec_ops *ops = gp_codec_ops_by_name(name);
	if (!ops)
		return unknown_codec(number, name, err);
	*out = (struct gp_codec_stage_spec){.id = ops->id};
	for (int i = 0; i < ops->keys; i++)
		out->value[i] = ops->key[i].initial;
	unsigned seen = 0;
	while (next_piece(&rest, ',', &key))
		GP_TRY(parse_key(number, ops, key, &seen, out->value, err));
	if (ops->check && ops->check(out->value, err) != GP_OK)
		return gp_err_prefix(err, "codec stage %d (%s)", number, name);
	return GP_OK;
}

static enum gp_status write_canonical(struct gp_codec_spec *spec, struct gp_err *err)
{
	char text[2 * GP_CODEC_SPEC_MAX] = "", value[GP_CODEC_KEY_TEXT];
	for (int i = 0; i < spec->stages; i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_by_id(spec->stage[i].id);
		gp_codec_append(text, sizeof text, "%s%s", i ? "+" : "", ops->info.name);
		for (int k = 0; k < ops->keys; k++)
			gp_codec_append(text, sizeof text, "%c%s=%s", k ? ',' : ':', ops->key[k].name,
					gp_codec_key_print(&ops->key[k], spec->stage[i].value[k], value));
	}
	if (strlen(text) >= sizeof spec->text)
		GP_FAIL(err, GP_USAGE, "codec spec is longer than %d characters when written out",
			GP_CODEC_SPEC_MAX - 1);
	memcpy(spec->text, text, strlen(text) + 1);
	return GP_OK;
}

/* Only these may appear, so that no text from a peer can damage a log. */
static enum gp_status check_alphabet(const char *text, size_t len, struct gp_err *err)
{
	size_t good = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_.:=,+-");
	if (good < len)
		GP_FAIL(err, GP_USAGE, "codec spec: character %zu (0x%02x) is not one of a-z 0-9 _ . : = , + -",
			good + 1, (unsigned)(unsigned char)text[good]);
	return GP_OK;
}

enum gp_status gp_codec_spec_parse(const char *text, struct gp_codec_spec *out, struct gp_err *err)
{
	size_t len = strnlen(text, GP_CODEC_SPEC_MAX);
	if (len == 0)
		GP_FAIL(err, GP_USAGE, "codec spec is empty; write for example \"raw\" or \"uniform:bits=8\"");
	if (len == GP_CODEC_SPEC_MAX)
		GP_FAIL(err, GP_USAGE, "codec spec is longer than %d characters", GP_CODEC_SPEC_MAX - 1);
	GP_TRY(check_alphabet(text, len, err));
	struct gp_codec_spec spec = {0};
	struct piece stage, rest = {text, len};
	while (next_piece(&rest, '+', &stage)) {
		if (spec.stages == GP_CODEC_MAX_STAGES)
			GP_FAIL(err, GP_USAGE, "codec spec has more than %d stages", GP_CODEC_MAX_STAGES);
		GP_TRY(parse_stage(spec.stages + 1, stage, &spec.stage[spec.stages], err));
		spec.stages++;
	}
	GP_TRY(gp_codec_order_check(&spec, err));
	GP_TRY(write_canonical(&spec, err));
	*out = spec;
	return GP_OK;
}

bool gp_codec_spec_lossless(const struct gp_codec_spec *spec)
{
	for (int i = 0; i < spec->stages; i++)
		if (!gp_codec_ops_by_id(spec->stage[i].id)->info.lossless)
			return false;
	return true;
}

enum gp_status gp_codec_spec_set_samples(struct gp_codec_spec *spec, uint32_t samples, struct gp_err *err)
{
	struct gp_codec_spec changed = *spec;
	for (int i = 0; i < spec->stages; i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_by_id(spec->stage[i].id);
		const int k = find_key(ops, "samples");
		if (k < 0 || spec->stage[i].value[k] != 0)
			continue;
		if (samples < 1 || (double)samples > ops->key[k].max)
			GP_FAIL(err, GP_INVALID,
				"codec stage %d (%s): a data set of %u samples is too large to remember", i + 1,
				ops->info.name, samples);
		changed.stage[i].value[k] = samples;
	}
	GP_TRY(write_canonical(&changed, err));
	*spec = changed;
	return GP_OK;
}

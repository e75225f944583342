/* SPDX-License-Identifier: Apache-2.0
 *
 * Codec specs: "name:key=value,...+name:..." to struct gp_codec_spec and its
 * canonical text. A stage is read by common/base/spec.h; here is what makes a
 * chain of them. Runs on text from a peer: bounded, no allocation, and error
 * texts only quote characters that passed the alphabet check. Does not know
 * any codec: ranges and rules come from the table in codec_table.h, the
 * order of stages from codec_order.c.
 * Grammar: CODECS.md. Test: tests/unit/test_codec_spec.c; fuzz: tests/fuzz/fuzz_codec_spec.c
 */
#include "common/base/spec.h"
#include "common/codec/codec_impl.h"

enum { NAMES_MAX = 64 };

static enum gp_status unknown_codec(const struct gp_spec *s, struct gp_err *err)
{
	const char *names[NAMES_MAX];
	int count = 0;
	for (; count < NAMES_MAX && gp_codec_ops_at(count); count++)
		names[count] = gp_codec_ops_at(count)->info.name;
	return gp_spec_unknown(s, "codec", names, count, err);
}

static int find_key(const struct gp_codec_ops *ops, const char *name)
{
	for (int i = 0; i < ops->keys; i++)
		if (strcmp(ops->key[i].name, name) == 0)
			return i;
	return -1;
}

static const struct gp_codec_ops *find_codec(struct gp_text name)
{
	for (int i = 0; gp_codec_ops_at(i); i++)
		if (gp_text_is(name, gp_codec_ops_at(i)->info.name))
			return gp_codec_ops_at(i);
	return NULL;
}

static enum gp_status read_keys(struct gp_spec *s, const struct gp_codec_ops *ops, double *value, struct gp_err *err)
{
	for (int i = 0; i < ops->keys; i++) {
		const struct gp_codec_key *key = &ops->key[i];
		const struct gp_value_form form = gp_codec_key_form(key);
		union gp_value v = {.real = key->initial};
		if (key->words)
			v.choice = (int)key->initial;
		GP_TRY(gp_spec_value(s, key->name, &form, &v, err));
		value[i] = key->words ? v.choice : v.real;
	}
	return gp_spec_done(s, err);
}

static enum gp_status parse_stage(int number, struct gp_text text, struct gp_codec_stage_spec *out, struct gp_err *err)
{
	struct gp_spec s;
	char where[48], keys[256];
	gp_spec_begin(&s, text);
	const struct gp_codec_ops *ops = find_codec(s.name);
	if (!ops) {
		unknown_codec(&s, err);
		return gp_err_prefix(err, "codec stage %d", number);
	}
	snprintf(where, sizeof where, "codec stage %d (%s)", number, ops->info.name);
	GP_TRY(gp_spec_pairs(&s, where, GP_SPEC_NO_ARG, gp_codec_ops_keys_text(ops, keys, sizeof keys), err));
	*out = (struct gp_codec_stage_spec){.id = ops->id};
	GP_TRY(read_keys(&s, ops, out->value, err));
	if (ops->check && ops->check(out->value, err) != GP_OK)
		return gp_err_prefix(err, "%s", where);
	return GP_OK;
}

static enum gp_status write_canonical(struct gp_codec_spec *spec, struct gp_err *err)
{
	char text[2 * GP_CODEC_SPEC_MAX] = "", value[GP_SHOWN];
	for (int i = 0; i < spec->stages; i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_by_id(spec->stage[i].id);
		int written = 0;
		gp_text_append(text, sizeof text, "%s%s", i ? "+" : "", ops->info.name);
		for (int k = 0; k < ops->keys; k++)
			if (!ops->key[k].later || spec->stage[i].value[k] != ops->key[k].initial)
				gp_text_append(text, sizeof text, "%c%s=%s", written++ ? ',' : ':', ops->key[k].name,
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
	if (good < len && text[good] == ' ')
		GP_FAIL(err, GP_USAGE,
			"codec spec: character %zu is a blank; write it without, as in sortquant:bits=6,split=2",
			good + 1);
	if (good < len && text[good] >= 'A' && text[good] <= 'Z')
		GP_FAIL(err, GP_USAGE, "codec spec: character %zu is '%c'; names and keys are in lower case", good + 1,
			text[good]);
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
	struct gp_text stage, rest = {text, len};
	while (gp_text_cut(&rest, '+', &stage)) {
		if (spec.stages == GP_CODEC_MAX_STAGES)
			GP_FAIL(err, GP_USAGE, "codec spec has more than %d stages", GP_CODEC_MAX_STAGES);
		if (stage.len == 0)
			GP_FAIL(err, GP_USAGE, "codec spec: stage %d is missing, before or behind a '+'",
				spec.stages + 1);
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

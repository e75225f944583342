/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing of --insert. See insert_spec.h. Test: tests/unit/test_insert_spec.c
 */
#include "client/insert/insert_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/spec.h"
#include "common/graph/decay.h"

#define MOST_CHANNELS 65536
#define MOST_KERNEL   256

const char *const gp_insert_end_name[GP_INSERT_ENDS] = {"up", "down"};

/* For MobileNetV2 at mobilenetv2:cuts=fine --cut 1:-2: 32 channels of 112x112 go up, 1280 of 7x7 come down. The names are
 * of the origin's tables; rate-070 has that rate in its table of accuracies, where flop-2 has .097. */
static const struct preset {
	const char *name, *spec[GP_INSERT_ENDS];
} presets[] = {
	{"origin-0", {"conv:out=20,k=3,s=3", "conv:out=320,k=1,s=1"}},
	{"origin-1", {"conv:out=32,k=4,s=4", "conv:out=240,k=1,s=1"}},
	{"origin-2", {"conv:out=8,k=4,s=4", "conv:out=100,k=1,s=1"}},
	{"origin-3", {"conv:out=16,k=4,s=4", "conv:out=220,k=1,s=1"}},
	{"origin-4", {"conv:out=32,k=4,s=4/conv:out=16,k=1,s=1", "conv:out=400,k=1,s=1/conv:out=180,k=1,s=1"}},
	{"origin-5", {"conv:out=32,k=4,s=4/conv:out=4,k=1,s=1", "conv:out=400,k=1,s=1/conv:out=100,k=1,s=1"}},
	{"origin-6", {"conv:out=32,k=8,s=8/conv:out=16,k=1,s=1", "conv:out=300,k=1,s=1/conv:out=50,k=1,s=1"}},
	{"origin-7", {"conv:out=32,k=8,s=8/conv:out=8,k=1,s=1", "conv:out=300,k=1,s=1/conv:out=30,k=1,s=1"}},
	{"flop-2", {"conv:out=20,k=3,s=3", "conv:out=360,k=1,s=1"}},
	{"flop-3", {"conv:out=32,k=4,s=4/conv:out=20,k=1,s=1", "conv:out=380,k=1,s=1/conv:out=40,k=1,s=1"}},
	{"rate-070", {"conv:out=20,k=3,s=3", "conv:out=104,k=1,s=1"}},
};
#define PRESETS ((int)(sizeof presets / sizeof presets[0]))

/* In the order of enum gp_insert_kind. */
static const char *const kinds[] = {"conv", "linear", "decay", "bottleneck"};
static const char *const kind_keys[] = {"out=N,k=K,s=S,p=0,bn=0,act=none|relu|relu6,bias=1,start=random|pca",
					"rank=R,dim=feature|sequence,start=random|identity|pca",
					"rate=X,every=N,times=N,dim=feature|sequence,l1=0.0001",
					"dim=D,hidden=4*D,act=gelu|relu|relu6,start=identity|random|pca"};
#define KINDS ((int)(sizeof kinds / sizeof kinds[0]))

static const char act_choices[] = "none|relu|relu6|gelu", dim_choices[] = "feature|sequence",
		  start_choices[] = "random|identity|pca";
/* Those of conv and of bottleneck, which need not know all. */
static const char conv_acts[] = "none|relu|relu6", conv_starts[] = "random|pca", bottleneck_acts[] = "gelu|relu|relu6";
static const enum gp_insert_start conv_start[] = {GP_INSERT_RANDOM, GP_INSERT_PCA};
static const enum gp_insert_act bottleneck_act[] = {GP_INSERT_GELU, GP_INSERT_RELU, GP_INSERT_RELU6};

bool gp_insert_preset(int index, const char **name, const char *spec[GP_INSERT_ENDS])
{
	if (index < 0 || index >= PRESETS)
		return false;
	*name = presets[index].name;
	memcpy(spec, presets[index].spec, sizeof presets[index].spec);
	return true;
}

/* --- one set ---------------------------------------------------------------------------------------------------- */

/* `keys` as in kind_keys. */
static bool has_key(const char *keys, struct gp_text key)
{
	struct gp_text rest = gp_text_of(keys), item, name;
	while (gp_text_cut(&rest, ',', &item))
		if (gp_text_cut(&item, '=', &name) && gp_text_same(name, key))
			return true;
	return false;
}

/* Says that `key` is missing, and names a given key that does not exist: it may be a slip for the missing one. */
static enum gp_status refuse_missing(const struct gp_spec *s, const char *key, struct gp_err *err)
{
	char shown[GP_SHOWN];
	for (int i = 0; i < s->pairs; i++) {
		if (has_key(s->keys, s->pair[i].key))
			continue;
		if (gp_nearest_name(gp_text_shown(s->pair[i].key, shown), &key, 1))
			GP_FAIL(err, GP_USAGE, "%s: no key '%s'; did you mean '%s'? (keys: %s)", s->where, shown, key,
				s->keys);
		GP_FAIL(err, GP_USAGE, "%s: no key '%s', and %s= is missing (keys: %s)", s->where, shown, key, s->keys);
	}
	GP_FAIL(err, GP_USAGE, "%s: %s= is missing (keys: %s)", s->where, key, s->keys);
}

static enum gp_status need(struct gp_spec *s, const char *key, int most, int *out, struct gp_err *err)
{
	struct gp_text given;
	int64_t v = 0;
	if (!gp_spec_given(s, key, &given))
		return refuse_missing(s, key, err);
	GP_TRY(gp_spec_int(s, key, 1, most, &v, err));
	*out = (int)v;
	return GP_OK;
}

/* Elsewhere a convolution and its mirror are not a linear map of each patch by itself. */
static enum gp_status check_conv_start(const struct gp_spec *s, const struct gp_insert_set *set, struct gp_err *err)
{
	const bool patches = set->kernel == set->stride && set->pad == 0;
	if (set->start == GP_INSERT_PCA && (!patches || set->batch_norm || set->act != GP_INSERT_NO_ACT))
		GP_FAIL(err, GP_USAGE,
			"%s: start=pca is for patches side by side that nothing but the convolution changes: it needs "
			"s=k, p=0, bn=0 and act=none",
			s->where);
	return GP_OK;
}

static enum gp_status read_conv(struct gp_spec *s, struct gp_insert_set *set, struct gp_err *err)
{
	int64_t pad = 0;
	int act = GP_INSERT_NO_ACT, start = 0;
	set->bias = true;
	GP_TRY(need(s, "out", MOST_CHANNELS, &set->out, err));
	GP_TRY(need(s, "k", MOST_KERNEL, &set->kernel, err));
	GP_TRY(need(s, "s", MOST_KERNEL, &set->stride, err));
	GP_TRY(gp_spec_int(s, "p", 0, MOST_KERNEL, &pad, err));
	GP_TRY(gp_spec_bool(s, "bn", &set->batch_norm, err));
	GP_TRY(gp_spec_choice(s, "act", conv_acts, &act, err));
	GP_TRY(gp_spec_bool(s, "bias", &set->bias, err));
	GP_TRY(gp_spec_choice(s, "start", conv_starts, &start, err));
	set->pad = (int)pad;
	set->act = (enum gp_insert_act)act;
	set->start = conv_start[start];
	if (set->pad >= set->kernel)
		GP_FAIL(err, GP_USAGE, "%s: p=%d must be below k=%d", s->where, set->pad, set->kernel);
	return check_conv_start(s, set, err);
}

static enum gp_status read_dim(struct gp_spec *s, struct gp_insert_set *set, struct gp_err *err)
{
	int dim = GP_INSERT_FEATURE;
	GP_TRY(gp_spec_choice(s, "dim", dim_choices, &dim, err));
	set->dim = (enum gp_insert_dim)dim;
	return GP_OK;
}

/* Whether something is left of it in the end depends on what it is put at: gp_decays_check. */
static enum gp_status read_decay(struct gp_spec *s, struct gp_insert_set *set, struct gp_err *err)
{
	struct gp_text given;
	double l1 = 1e-4;
	set->start = GP_INSERT_IDENTITY;
	if (!gp_spec_given(s, "rate", &given))
		return refuse_missing(s, "rate", err);
	GP_TRY(gp_spec_real(s, "rate", 0, 1, &set->rate, err));
	if (!(set->rate > 0.0 && set->rate < 1.0))
		GP_FAIL(err, GP_USAGE, "%s: rate=%g must lie between 0 and 1", s->where, set->rate);
	GP_TRY(need(s, "every", GP_DECAY_EVERY_MAX, &set->every, err));
	GP_TRY(need(s, "times", GP_DECAY_CHANGES_MAX, &set->times, err));
	GP_TRY(gp_spec_real(s, "l1", 0, 1e6, &l1, err));
	set->l1 = (float)l1;
	return read_dim(s, set, err);
}

static enum gp_status read_linear(struct gp_spec *s, struct gp_insert_set *set, struct gp_err *err)
{
	int start = GP_INSERT_RANDOM;
	GP_TRY(need(s, "rank", MOST_CHANNELS, &set->rank, err));
	GP_TRY(read_dim(s, set, err));
	GP_TRY(gp_spec_choice(s, "start", start_choices, &start, err));
	set->start = (enum gp_insert_start)start;
	return GP_OK;
}

/* The branch is four times as wide as what crosses, as a transformer's feed-forward layers are. */
static enum gp_status read_bottleneck(struct gp_spec *s, struct gp_insert_set *set, struct gp_err *err)
{
	int start = GP_INSERT_IDENTITY, act = 0;
	GP_TRY(need(s, "dim", MOST_CHANNELS, &set->rank, err));
	int64_t hidden = set->rank < MOST_CHANNELS / 4 ? 4 * (int64_t)set->rank : MOST_CHANNELS;
	GP_TRY(gp_spec_int(s, "hidden", 1, MOST_CHANNELS, &hidden, err));
	GP_TRY(gp_spec_choice(s, "act", bottleneck_acts, &act, err));
	GP_TRY(gp_spec_choice(s, "start", start_choices, &start, err));
	set->hidden = (int)hidden;
	set->dim = GP_INSERT_FEATURE;
	set->act = bottleneck_act[act];
	set->start = (enum gp_insert_start)start;
	return GP_OK;
}

static bool is_preset(struct gp_text name)
{
	for (int i = 0; i < PRESETS; i++)
		if (gp_text_is(name, presets[i].name))
			return true;
	return false;
}

static enum gp_status read_set(struct gp_text text, const char *flag, struct gp_insert_set *set, struct gp_err *err)
{
	static enum gp_status (*const readers[])(struct gp_spec *, struct gp_insert_set *, struct gp_err *) = {
		read_conv, read_linear, read_decay, read_bottleneck};
	struct gp_spec s;
	char where[sizeof s.where];
	int kind = 0;
	gp_spec_begin(&s, text);
	while (kind < KINDS && !gp_text_is(s.name, kinds[kind]))
		kind++;
	if (kind == KINDS && s.name.len == 0)
		GP_FAIL(err, GP_USAGE, "--%s: the name of an insertion is missing (%s)", flag, GP_INSERT_CHOICES);
	if (kind == KINDS && (gp_text_is(s.name, "none") || is_preset(s.name)))
		GP_FAIL(err, GP_USAGE, "--%s: %.*s takes no keys and no other sets", flag, GP_TEXT_ARG(s.name));
	if (kind == KINDS) {
		gp_spec_unknown(&s, "insertion", kinds, KINDS, err);
		return gp_err_prefix(err, "--%s", flag);
	}
	snprintf(where, sizeof where, "--%s: %s", flag, kinds[kind]);
	*set = (struct gp_insert_set){.kind = (enum gp_insert_kind)kind};
	GP_TRY(gp_spec_pairs(&s, where, GP_SPEC_NO_ARG, kind_keys[kind], err));
	GP_TRY(readers[kind](&s, set, err));
	return gp_spec_done(&s, err);
}

/* --- a spec ----------------------------------------------------------------------------------------------------- */

static const struct preset *find_preset(const char *text)
{
	for (int i = 0; i < PRESETS; i++)
		if (strcmp(text, presets[i].name) == 0)
			return &presets[i];
	return NULL;
}

/* A name that is no kind and has no keys was meant for a preset. */
static enum gp_status refuse_name(const char *text, const char *flag, struct gp_err *err)
{
	const char *names[PRESETS + KINDS + 1];
	struct gp_spec s;
	int count = 0;
	gp_spec_begin(&s, gp_text_of(text));
	names[count++] = "none";
	for (int i = 0; i < KINDS; i++)
		names[count++] = kinds[i];
	for (int i = 0; i < PRESETS; i++)
		names[count++] = presets[i].name;
	gp_spec_unknown(&s, "insertion", names, count, err);
	return gp_err_prefix(err, "--%s", flag);
}

static bool is_kind(const char *text)
{
	for (int i = 0; i < KINDS; i++)
		if (strcmp(text, kinds[i]) == 0)
			return true;
	return false;
}

static bool has_kind(const struct gp_insert_spec *s, enum gp_insert_kind kind)
{
	for (int i = 0; i < s->sets; i++)
		if (s->set[i].kind == kind)
			return true;
	return false;
}

/* A rank that shrinks reaches the decoder through layers with one input (gp_decays_check). */
static enum gp_status check_together(const struct gp_insert_spec *s, const char *flag, struct gp_err *err)
{
	if (has_kind(s, GP_INSERT_BOTTLENECK) && has_kind(s, GP_INSERT_DECAY))
		GP_FAIL(err, GP_USAGE,
			"--%s: bottleneck and decay do not go together at one cut: bottleneck needs a fixed rank "
			"before it and behind it, such as that of linear",
			flag);
	for (int i = 0; i + 1 < s->sets; i++)
		for (int k = i + 1; k < s->sets; k++)
			if (s->set[i].kind == GP_INSERT_DECAY && s->set[k].kind != GP_INSERT_CONV &&
			    s->set[i].dim == s->set[k].dim)
				GP_FAIL(err, GP_USAGE,
					"--%s: no set along the same dimension can stand behind a decay, whose rank "
					"changes: put decay last, or give the other one dim=%s",
					flag, s->set[i].dim == GP_INSERT_FEATURE ? "sequence" : "feature");
	return GP_OK;
}

enum gp_status gp_insert_spec_parse(const char *text, const char *flag, enum gp_insert_end end,
				    struct gp_insert_spec *out, struct gp_err *err)
{
	const struct preset *p = find_preset(text);
	struct gp_text rest = gp_text_of(p ? p->spec[end] : text), piece;
	struct gp_insert_spec s = {0};
	char settled[GP_INSERT_TEXT];
	if (strcmp(text, "none") == 0) {
		*out = s;
		return GP_OK;
	}
	if (!p && !is_kind(text) && !strpbrk(text, ":,/"))
		return refuse_name(text, flag, err);
	while (gp_text_cut(&rest, '/', &piece)) {
		if (s.sets == GP_INSERT_SETS)
			GP_FAIL(err, GP_USAGE, "--%s: more than %d sets", flag, GP_INSERT_SETS);
		GP_TRY(read_set(piece, flag, &s.set[s.sets++], err));
	}
	GP_TRY(check_together(&s, flag, err));
	gp_require(strlen(gp_insert_spec_text(&s, settled)) < GP_INSERT_TEXT - 1);
	*out = s;
	return GP_OK;
}

static bool sets_alike(const struct gp_insert_set *a, const struct gp_insert_set *b)
{
	const bool linear[] = {a->kind == GP_INSERT_LINEAR || a->kind == GP_INSERT_DECAY,
			       b->kind == GP_INSERT_LINEAR || b->kind == GP_INSERT_DECAY};
	if (linear[0] || linear[1])
		return linear[0] && linear[1] && a->dim == b->dim;
	return a->kind == b->kind && a->out == b->out && a->kernel == b->kernel && a->stride == b->stride &&
	       a->pad == b->pad && a->batch_norm == b->batch_norm && a->bias == b->bias && a->act == b->act &&
	       a->hidden == b->hidden;
}

bool gp_insert_specs_alike(const struct gp_insert_spec *a, const struct gp_insert_spec *b)
{
	bool alike = a->sets == b->sets;
	for (int i = 0; i < a->sets && alike; i++)
		alike = sets_alike(&a->set[i], &b->set[i]);
	return alike;
}

/* --- text ------------------------------------------------------------------------------------------------------- */

static struct gp_text choice_at(const char *choices, int index)
{
	struct gp_text rest = gp_text_of(choices), piece = rest;
	for (int i = 0; i <= index; i++)
		gp_text_cut(&rest, '|', &piece);
	return piece;
}

/* With as few digits as give the same number again. */
static const char *real_text(double x, bool single, char text[32])
{
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(text, 32, "%.*g", digits, x);
		const double back = strtod(text, NULL);
		if (single ? (float)back == (float)x : back == x)
			break;
	}
	return text;
}

static void append_decay(const struct gp_insert_set *set, char text[GP_INSERT_TEXT])
{
	char rate[32], l1[32];
	gp_text_append(text, GP_INSERT_TEXT, "rate=%s,every=%d,times=%d,l1=%s,dim=%.*s",
		       real_text(set->rate, false, rate), set->every, set->times, real_text((double)set->l1, true, l1),
		       GP_TEXT_ARG(choice_at(dim_choices, (int)set->dim)));
}

static void append_conv(const struct gp_insert_set *set, char text[GP_INSERT_TEXT])
{
	gp_text_append(text, GP_INSERT_TEXT, "out=%d,k=%d,s=%d", set->out, set->kernel, set->stride);
	if (set->pad)
		gp_text_append(text, GP_INSERT_TEXT, ",p=%d", set->pad);
	if (set->batch_norm)
		gp_text_append(text, GP_INSERT_TEXT, ",bn=1");
	if (set->act)
		gp_text_append(text, GP_INSERT_TEXT, ",act=%.*s", GP_TEXT_ARG(choice_at(act_choices, (int)set->act)));
	if (!set->bias)
		gp_text_append(text, GP_INSERT_TEXT, ",bias=0");
}

static void append_linear(const struct gp_insert_set *set, char text[GP_INSERT_TEXT])
{
	gp_text_append(text, GP_INSERT_TEXT, "rank=%d,dim=%.*s", set->rank,
		       GP_TEXT_ARG(choice_at(dim_choices, (int)set->dim)));
}

/* Left out where it is random. */
static void append_start(const struct gp_insert_set *set, char text[GP_INSERT_TEXT])
{
	if (set->start)
		gp_text_append(text, GP_INSERT_TEXT, ",start=%.*s",
			       GP_TEXT_ARG(choice_at(start_choices, (int)set->start)));
}

static void append_bottleneck(const struct gp_insert_set *set, char text[GP_INSERT_TEXT])
{
	gp_text_append(text, GP_INSERT_TEXT, "dim=%d,hidden=%d,act=%.*s,start=%.*s", set->rank, set->hidden,
		       GP_TEXT_ARG(choice_at(act_choices, (int)set->act)),
		       GP_TEXT_ARG(choice_at(start_choices, (int)set->start)));
}

/* What is a default that will stay one is left out: no padding, no batch norm, no activation, a bias, a random start. */
static void append_set(const struct gp_insert_set *set, char text[GP_INSERT_TEXT])
{
	static void (*const writers[])(const struct gp_insert_set *, char[GP_INSERT_TEXT]) = {
		append_conv, append_linear, append_decay, append_bottleneck};
	gp_text_append(text, GP_INSERT_TEXT, "%s:", kinds[set->kind]);
	writers[set->kind](set, text);
	if (set->kind == GP_INSERT_CONV || set->kind == GP_INSERT_LINEAR)
		append_start(set, text);
}

const char *gp_insert_spec_text(const struct gp_insert_spec *s, char text[GP_INSERT_TEXT])
{
	text[0] = '\0';
	if (s->sets == 0)
		gp_text_append(text, GP_INSERT_TEXT, "none");
	for (int i = 0; i < s->sets; i++) {
		gp_text_append(text, GP_INSERT_TEXT, "%s", i ? "/" : "");
		append_set(&s->set[i], text);
	}
	return text;
}

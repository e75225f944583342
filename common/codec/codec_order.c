/* SPDX-License-Identifier: Apache-2.0
 *
 * Which chains make sense: wrapper? transform* quantizer byte-stage*, and some
 * rules between stages. Each refusal says which stage, after what, and why.
 * Knows kinds and flags, no codec. Grammar: CODECS.md, section Spec.
 * Test: tests/unit/test_codec_spec.c; fuzz: tests/fuzz/fuzz_codec_spec.c
 */
#include "common/codec/codec_impl.h"

static const struct gp_codec_ops *ops_of(const struct gp_codec_spec *spec, int stage)
{
	return gp_codec_ops_by_id(spec->stage[stage].id);
}

/* Why `ops` cannot come directly after `before`; NULL when it can. */
static const char *objection(const struct gp_codec_ops *before, const struct gp_codec_ops *ops)
{
	if (ops->kind == GP_CODEC_WRAPPER)
		return before->kind == GP_CODEC_WRAPPER
			       ? "both remember what the other end has, so errors would count twice"
			       : "it remembers whole tensors, so it comes first";
	if (ops->kind == GP_CODEC_TRANSFORM && before->kind == GP_CODEC_TRANSFORM)
		return before->last_because;
	if (ops->kind == GP_CODEC_QUANTIZER && before->kind == GP_CODEC_QUANTIZER)
		return "a chain has one quantizer";
	if (ops->kind < GP_CODEC_BYTES && before->kind > ops->kind)
		return before->kind == GP_CODEC_BYTES ? "it needs a tensor, and there are only bytes by then"
						      : "it needs a tensor, and the quantizer has made bytes of it";
	if (ops->kind == GP_CODEC_BYTES && before->kind == GP_CODEC_BYTES && ops->rearranges && !before->rearranges)
		return "compressed bytes gain nothing from being rearranged";
	if (ops->kind == GP_CODEC_BYTES && before->kind == GP_CODEC_BYTES && !ops->rearranges && !before->rearranges)
		return "compressed bytes do not compress again";
	return NULL;
}

static enum gp_status check_pairs(const struct gp_codec_spec *spec, struct gp_err *err)
{
	for (int i = 1; i < spec->stages; i++) {
		const struct gp_codec_ops *before = ops_of(spec, i - 1), *ops = ops_of(spec, i);
		const char *why = objection(before, ops);
		if (why)
			GP_FAIL(err, GP_USAGE, "codec stage %d (%s) cannot follow %s: %s", i + 1, ops->info.name,
				before->info.name, why);
	}
	return GP_OK;
}

static enum gp_status check_twice(const struct gp_codec_spec *spec, struct gp_err *err)
{
	for (int i = 1; i < spec->stages; i++)
		for (int k = 0; k < i; k++)
			if (spec->stage[i].id == spec->stage[k].id)
				GP_FAIL(err, GP_USAGE,
					"codec stage %d (%s): the same stage twice does no more than once", i + 1,
					ops_of(spec, i)->info.name);
	return GP_OK;
}

static enum gp_status check_last(const struct gp_codec_spec *spec, struct gp_err *err)
{
	const struct gp_codec_ops *last = ops_of(spec, spec->stages - 1);
	if (last->kind == GP_CODEC_BYTES && last->rearranges)
		GP_FAIL(err, GP_USAGE,
			"codec stage %d (%s) shortens nothing by itself: "
			"let a compressing stage follow, such as zstd or rans",
			spec->stages, last->info.name);
	return GP_OK;
}

/* A wrapper corrects or exploits what the rest does to a tensor: with a lossless rest there is nothing to keep. */
static enum gp_status check_wrapper(const struct gp_codec_spec *spec, struct gp_err *err)
{
	const struct gp_codec_ops *first = ops_of(spec, 0);
	bool lossy = false;
	for (int i = 1; i < spec->stages; i++)
		lossy |= !ops_of(spec, i)->info.lossless;
	if (first->kind == GP_CODEC_WRAPPER && !lossy)
		GP_FAIL(err, GP_USAGE, "codec stage 1 (%s) needs a lossy stage after it: nothing is lost in this chain",
			first->info.name);
	return GP_OK;
}

static enum gp_status add_raw(struct gp_codec_spec *spec, struct gp_err *err)
{
	int at = 0;
	while (at < spec->stages && ops_of(spec, at)->kind < GP_CODEC_QUANTIZER)
		at++;
	if (at < spec->stages && ops_of(spec, at)->kind == GP_CODEC_QUANTIZER)
		return GP_OK;
	if (spec->stages == GP_CODEC_MAX_STAGES)
		GP_FAIL(err, GP_USAGE, "codec spec has more than %d stages, with the raw that is implied",
			GP_CODEC_MAX_STAGES);
	for (int i = spec->stages; i > at; i--)
		spec->stage[i] = spec->stage[i - 1];
	spec->stage[at] = (struct gp_codec_stage_spec){.id = gp_codec_ops_by_name("raw")->id};
	spec->stages++;
	return GP_OK;
}

enum gp_status gp_codec_order_check(struct gp_codec_spec *spec, struct gp_err *err)
{
	GP_TRY(check_pairs(spec, err));
	GP_TRY(check_twice(spec, err));
	GP_TRY(check_last(spec, err));
	GP_TRY(add_raw(spec, err));
	return check_wrapper(spec, err);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See norm_mode.h. Test: tests/unit/test_norm_mode.c
 */
#include "client/job/norm_mode.h"

#include <stdio.h>

#include "common/base/spec.h"

static const char *const names[GP_BN_MODES] = {
	[GP_BN_CHUNK] = "chunk", [GP_BN_DEFERRED] = "deferred", [GP_BN_RUNNING] = "running", [GP_BN_RENORM] = "renorm"};

/* The limits that Ioffe 2017 ends with. */
#define DEFAULT_R 3.0
#define DEFAULT_D 5.0

static enum gp_status find_name(const struct gp_spec *s, int *mode, struct gp_err *err)
{
	for (*mode = 0; *mode < GP_BN_MODES; (*mode)++)
		if (gp_text_is(s->name, names[*mode]))
			return GP_OK;
	return gp_spec_unknown(s, "mode of batch norm", names, GP_BN_MODES, err);
}

static enum gp_status parse(const char *text, struct gp_bn_attr *out, struct gp_err *err)
{
	struct gp_spec s;
	int mode;
	double r = DEFAULT_R, d = DEFAULT_D;
	int64_t warmup = 0;
	gp_spec_begin(&s, gp_text_of(text));
	GP_TRY(find_name(&s, &mode, err));
	const bool renorm = mode == GP_BN_RENORM;
	GP_TRY(gp_spec_pairs(&s, names[mode], GP_SPEC_NO_ARG, renorm ? "r=3,d=5,warmup=STEPS" : "", err));
	if (renorm) {
		GP_TRY(gp_spec_real(&s, "r", 1, 1e6, &r, err));
		GP_TRY(gp_spec_real(&s, "d", 0, 1e6, &d, err));
		GP_TRY(gp_spec_int(&s, "warmup", 0, INT32_MAX, &warmup, err));
	}
	GP_TRY(gp_spec_done(&s, err));
	*out = (struct gp_bn_attr){.mode = mode};
	if (renorm) {
		out->r_max = (float)r;
		out->d_max = (float)d;
		out->warmup = (int32_t)warmup;
	}
	return GP_OK;
}

enum gp_status gp_norm_mode_parse(const char *text, struct gp_bn_attr *out, struct gp_err *err)
{
	return parse(text, out, err) == GP_OK ? GP_OK : gp_err_prefix(err, "--batch-norm");
}

const char *gp_norm_mode_text(const struct gp_bn_attr *mode, char text[GP_NORM_MODE_TEXT])
{
	if (mode->mode == GP_BN_RENORM)
		snprintf(text, GP_NORM_MODE_TEXT, "renorm:r=%.9g,d=%.9g,warmup=%d", (double)mode->r_max,
			 (double)mode->d_max, (int)mode->warmup);
	else
		snprintf(text, GP_NORM_MODE_TEXT, "%s", names[mode->mode]);
	return text;
}

bool gp_norm_mode_suffers(const struct gp_graph *g, int samples)
{
	if (samples >= GP_NORM_FEW_SAMPLES)
		return false;
	for (int i = g->inputs; i < g->nodes; i++)
		if (gp_bn_moves(g, &g->node[i]) && gp_bn_attr(&g->node[i]).mode == GP_BN_CHUNK)
			return true;
	return false;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs against the tensors at the cuts. See codec_fit.h.
 */
#include "client/codecs/codec_fit.h"

#include "client/engine/crossing.h"

static enum gp_status check_flow(const struct gp_job *j, const struct gp_flow_spec *f, struct gp_err *err)
{
	const char *const own = j->set->codec_dir[f->direction], *const flag = gp_job_codec_flags[f->direction];
	const char *const name = gp_direction_info[f->direction].name;
	char shape[80];
	uint64_t bytes;
	struct gp_codec_spec codec = *f->codec;
	enum gp_status status = gp_codec_bound_for(&codec, &f->type.shape, &bytes, err);
	for (int i = 0; status == GP_OK && f->ladder && i < f->ladder->rungs; i++) {
		gp_codec_ladder_rung(f->ladder, i, &codec);
		status = gp_codec_bound_for(&codec, &f->type.shape, &bytes, err);
	}
	if (status == GP_OK)
		return GP_OK;
	gp_shape_text(&f->type.shape, shape, sizeof shape);
	if (own)
		return gp_err_prefix(err, "--%s %s does not fit %s (%s)", flag, own, name, shape);
	return gp_err_prefix(err, "--codec %s does not fit %s (%s), for which --%s chooses another", j->set->codec,
			     name, shape, flag);
}

enum gp_status gp_codecs_fit(const struct gp_job *j, struct gp_err *err)
{
	struct gp_session_spec session = j->session;
	struct gp_crossing *cross;
	GP_TRY(gp_crossing_find(j->graph, &j->cut, &session, &cross, err));
	enum gp_status status = GP_OK;
	for (int i = 0; status == GP_OK && i < cross->list.count; i++)
		status = check_flow(j, &cross->list.flow[i], err);
	gp_crossing_free(cross);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether padding is left out. See padding.h. Test: tests/unit/test_padding.c, tests/e2e/padding.sh
 */
#include "client/engine/padding.h"

#include "client/engine/batch_map.h"
#include "client/engine/crossing.h"
#include "common/base/log.h"
#include "common/codec/codec_store.h"

static enum gp_status check_model(const struct gp_job *j, struct gp_err *err)
{
	const struct gp_node *reader = gp_graph_padding_reader(j->graph);
	if (reader)
		GP_FAIL(err, GP_INVALID,
			"node '%s' (%s) of the model reads the padding, because nothing tells it how long a text is: "
			"every text has to be padded to the same length (--pad max)",
			reader->name, gp_op_name(reader->op));
	return GP_OK;
}

static enum gp_status find_crossing(const struct gp_job *j, bool lengths, struct gp_err *err)
{
	struct gp_session_spec session = j->session;
	struct gp_crossing *cross;
	session.lengths = lengths;
	GP_TRY(gp_crossing_find(j->graph, &j->cut, &session, &cross, err));
	gp_crossing_free(cross);
	return GP_OK;
}

/* An impossible cut is reported elsewhere. */
static enum gp_status check_codecs(const struct gp_job *j, struct gp_err *err)
{
	struct gp_err ignored;
	if (j->set->local || find_crossing(j, false, &ignored) != GP_OK)
		return GP_OK;
	return find_crossing(j, true, err);
}

/* Rows that do not travel are zeros at one end, and computed at the other: who decodes values by a scale of them all would find
 * others there than where nothing is cut. */
static enum gp_status check_compression(const struct gp_job *j, struct gp_err *err)
{
	static const char *const names[] = {"maps", "grad-maps"};
	const struct gp_codec_spec *const spec[] = {&j->session.maps, &j->session.coded[GP_STRUCT_GRAD_MAPS]};
	for (int i = 0; i < 2; i++)
		if (spec[i]->stages > 0 && gp_store_has_scale(spec[i]))
			GP_FAIL(err, GP_INVALID,
				"--compress %s=%s has one scale for many values, those of padding included, so every "
				"text must be padded to the same length: --pad max",
				names[i], spec[i]->text);
	return GP_OK;
}

enum gp_status gp_padding_settle(struct gp_job *j, const struct gp_dataset *d, struct gp_err *err)
{
	struct gp_batch_map map;
	struct gp_err why;
	j->drop_padding = false;
	GP_TRY(gp_batch_map_make(j->graph, gp_dataset_tensor_info(d), gp_dataset_tensors(d), &map, err));
	if (gp_dataset_has_pictures(d) && j->set->pad != GP_PAD_AUTO)
		gp_log(data, GP_LOG_WARN,
		       "--pad is about texts of different lengths; --data %s has pictures, so it does nothing",
		       j->set->data);
	if (map.positions == 0 || j->set->pad == GP_PAD_MAX)
		return GP_OK;
	enum gp_status status = check_model(j, &why);
	if (status == GP_OK)
		status = check_codecs(j, &why);
	if (status == GP_OK)
		status = check_compression(j, &why);
	j->drop_padding = status == GP_OK;
	if (status == GP_OK)
		return GP_OK;
	if (j->set->pad == GP_PAD_DROP) {
		*err = why;
		return status;
	}
	gp_log(data, GP_LOG_WARN, "padding is not left out: %s", why.text);
	return GP_OK;
}

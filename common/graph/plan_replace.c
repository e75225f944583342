/* SPDX-License-Identifier: Apache-2.0
 *
 * One plan in place of another. See plan_replace.h. Test: tests/unit/test_decay.c
 */
#include "common/graph/plan_replace.h"

#include "common/codec/codec_store.h"
#include "common/graph/snapshot.h"

enum gp_status gp_plan_renew(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **plan,
			     struct gp_err *err)
{
	dev->ops->plan_free(*plan);
	*plan = NULL;
	return dev->ops->plan_new(dev, spec, plan, err);
}

static enum gp_status move(struct gp_device *dev, const struct gp_plan_spec *spec, const struct gp_snapshot *s,
			   struct gp_plan **plan, struct gp_err *err)
{
	const uint64_t updates = dev->ops->optim_count_get(*plan);
	struct gp_plan_spec given = *spec;
	given.params_given = true;
	GP_TRY(gp_plan_renew(dev, &given, plan, err));
	return gp_snapshot_move_plan(s, updates, *plan, err);
}

enum gp_status gp_plan_replace(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **plan,
			       struct gp_err *err)
{
	struct gp_snapshot s = {0};
	enum gp_status status = gp_snapshot_add_plan(&s, *plan, err);
	if (status == GP_OK)
		status = move(dev, spec, &s, plan, err);
	gp_snapshot_deinit(&s);
	return status;
}

/* The largest array passes once more through a buffer; encoded state through two, and into a code of its own. */
uint64_t gp_plan_replace_bytes(const struct gp_graph *g, const struct gp_codec_spec *state)
{
	const uint64_t floats = g->param_elements * sizeof(float);
	const uint64_t sum = gp_snapshot_plan_bytes(g, state) + floats;
	return state ? sum + 2 * floats + gp_store_coder_bytes(state) : sum;
}

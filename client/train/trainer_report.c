/* SPDX-License-Identifier: Apache-2.0
 *
 * The figures of a training that is over, as JSON. See trainer.h; keys: client/JSON.md. Test: tests/e2e/json_keys.sh
 */
#include "client/train/trainer.h"

#include "client/log/figures.h"

/* What the kind has no use for is null. */
static json_t *optimizer_json(const struct gp_train_report *r)
{
	static const char *const name[] = {"sgd", "adam", "adamw"};
	const struct gp_optim *o = &r->optim;
	const bool adam = o->kind != GP_OPTIM_SGD;
	json_t *json = json_pack("{s:s, s:f, s:i, s:o, s:o, s:o}", "name", name[o->kind], "weight_decay",
				 (double)o->weight_decay, "without_decay", r->without_decay, "momentum",
				 adam ? json_null() : json_real((double)o->momentum), "eps",
				 adam ? json_real((double)o->eps) : json_null(), "betas",
				 adam ? json_pack("[f, f]", o->beta1, o->beta2) : json_null());
	if (json)
		json_object_set_new(json, "no_decay", r->no_decay ? json_string(r->no_decay) : json_null());
	return json;
}

json_t *gp_train_report_json(const struct gp_train_report *r)
{
	json_t *o = json_pack(
		"{s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:s, s:b, s:I, s:I, s:o}", "steps", (json_int_t)r->steps,
		"steps_here", (json_int_t)r->steps_here, "clipped_steps", (json_int_t)r->clipped_steps, "seconds",
		r->seconds, "time_per_batch_s", r->steps_here > 0 ? json_real(r->time_per_batch_s) : json_null(),
		"loss", gp_json_number(r->loss), "train_acc", gp_json_number(r->train_acc), "param_sha256",
		r->param_sha256, "stopped", r->stopped, "checkpoints_written", (json_int_t)r->checkpoints.written,
		"checkpoints_failed", (json_int_t)r->checkpoints.failed, "checkpoint_step",
		r->checkpoints.newest > 0 ? json_integer((json_int_t)r->checkpoints.newest) : json_null());
	o = gp_scores_json(o, &r->val);
	if (o)
		json_object_set_new(o, "samples_left_out", json_integer(r->left_out));
	if (o)
		json_object_set_new(o, "batch_norm", json_string(r->batch_norm));
	if (o)
		json_object_set_new(o, "recompute", json_boolean(r->recompute));
	if (o)
		json_object_set_new(o, "compress", r->compress[0] ? json_string(r->compress) : json_null());
	if (o)
		json_object_set_new(o, "bound_by", gp_bound_by_json(&r->bound_by, r->figures.flows != NULL));
	if (o)
		json_object_set_new(o, "optimizer", optimizer_json(r));
	if (o)
		json_object_set_new(o, "privacy", gp_privacy_json(&r->privacy, r->privacy_measured, r->privacy_s));
	return gp_figures_json(o, &r->figures, &r->train_account, r->steps_here);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See recalibrate.h. Test: tests/e2e/recalibrate.sh
 */
#include "client/train/recalibrate.h"

#include <string.h>

struct showing {
	struct gp_progress *p;
	struct gp_run_monitor *monitor;
	const volatile sig_atomic_t *stop;
	uint32_t batches;
};

static bool show(void *arg, uint32_t done)
{
	const struct showing *s = arg;
	char text[96];
	snprintf(text, sizeof text, "taking the statistics of batch norms anew: batch %u/%u", done, s->batches);
	gp_progress_update(s->p, gp_now_ns(), text);
	gp_run_monitor_beat(s->monitor);
	return !s->stop || !*s->stop;
}

enum gp_status gp_recalibrate(struct gp_engine *e, struct gp_loader *train, uint32_t batches, struct gp_progress *p,
			      struct gp_run_monitor *monitor, const volatile sig_atomic_t *stop, struct gp_err *err)
{
	struct showing s = {p, monitor, stop, batches};
	const struct gp_engine_watch watch = {show, &s};
	GP_TRY(gp_loader_seek(train, 0, 0, err));
	return e->ops->calibrate(e, train, batches, &watch, err);
}

enum gp_status gp_recalibration_open(struct gp_recalibration *r, const struct gp_job *j, struct gp_left_out *out,
				     struct gp_err *err)
{
	GP_TRY(gp_job_open_data(j, GP_SPLIT_TRAIN, false, &r->data, err));
	GP_TRY(gp_leave_out_bad(j->set, GP_SPLIT_TRAIN, r->data, out, err));
	if (gp_dataset_samples(r->data) < (uint32_t)j->set->batch)
		GP_FAIL(err, GP_INVALID,
			"--data %s has %u training samples, fewer than one batch of %lld for --recalibrate",
			j->set->data, gp_dataset_samples(r->data), (long long)j->set->batch);
	return gp_job_open_loader(j, r->data, GP_SPLIT_TRAIN, &r->loader, err);
}

/* What the file of --init says stays true, but for the preparation of pictures: that is what the statistics were taken
 * with. */
static enum gp_status describe(const struct gp_recalibration *r, const struct gp_job *j, struct gp_saved_model *out,
			       struct gp_err *err)
{
	const struct gp_saved_model *then = &j->saved;
	GP_TRY(gp_saved_model_describe(j->model, r->data, j->set->data, out, err));
	gp_saved_model_add_insertion(out, j->graph, &j->cut, &j->insertion);
	if (then->labels) {
		json_decref(out->labels);
		out->labels = json_incref(then->labels);
	}
	if (then->data[0])
		memcpy(out->data, then->data, sizeof out->data);
	memcpy(out->run, then->run, sizeof out->run);
	out->steps = then->steps;
	return GP_OK;
}

static enum gp_status save(const struct gp_recalibration *r, const struct gp_job *j, struct gp_err *err)
{
	struct gp_saved_model description;
	struct gp_saved_pairs pairs;
	GP_TRY(describe(r, j, &description, err));
	enum gp_status status = gp_saved_pairs_make(&description, &pairs, err);
	if (status == GP_OK)
		status = gp_weights_save_with(j->init, j->set->recalibrated, pairs.pair, pairs.count, err);
	gp_saved_pairs_deinit(&pairs);
	gp_saved_model_deinit(&description);
	return status;
}

enum gp_status gp_recalibration_run(struct gp_recalibration *r, struct gp_job *j, struct gp_progress *p,
				    struct gp_err *err)
{
	GP_TRY(gp_recalibrate(j->engine, r->loader, (uint32_t)j->set->recalibrate, p, NULL, NULL, err));
	GP_TRY(j->engine->ops->get_weights(j->engine, j->init, err));
	return j->set->recalibrated ? save(r, j, err) : GP_OK;
}

void gp_recalibration_deinit(struct gp_recalibration *r)
{
	gp_loader_free(r->loader);
	gp_dataset_free(r->data);
	*r = (struct gp_recalibration){0};
}

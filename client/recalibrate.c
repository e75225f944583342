/* SPDX-License-Identifier: Apache-2.0
 *
 * See recalibrate.h. Test: tests/e2e/recalibrate.sh
 */
#include "client/recalibrate.h"

enum gp_status gp_recalibrate(struct gp_engine *e, struct gp_loader *train, uint32_t batches, struct gp_err *err)
{
	GP_TRY(gp_loader_seek(train, 0, 0, err));
	return e->ops->calibrate(e, train, batches, err);
}

enum gp_status gp_recalibration_open(struct gp_recalibration *r, const struct gp_job *j, struct gp_err *err)
{
	GP_TRY(gp_job_open_data(j, GP_SPLIT_TRAIN, false, &r->data, err));
	if (gp_dataset_samples(r->data) < (uint32_t)j->set->batch)
		GP_FAIL(err, GP_INVALID,
			"--data %s has %u training samples, fewer than one batch of %lld for --recalibrate",
			j->set->data, gp_dataset_samples(r->data), (long long)j->set->batch);
	return gp_job_open_loader(j, r->data, GP_SPLIT_TRAIN, &r->loader, err);
}

enum gp_status gp_recalibration_run(struct gp_recalibration *r, struct gp_job *j, struct gp_err *err)
{
	GP_TRY(gp_recalibrate(j->engine, r->loader, (uint32_t)j->set->recalibrate, err));
	GP_TRY(j->engine->ops->get_weights(j->engine, j->init, err));
	return j->set->recalibrated ? gp_weights_save(j->init, j->set->recalibrated, err) : GP_OK;
}

void gp_recalibration_deinit(struct gp_recalibration *r)
{
	gp_loader_free(r->loader);
	gp_dataset_free(r->data);
	*r = (struct gp_recalibration){0};
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * --recalibrate N: running statistics of batch norms taken anew from N batches
 * of training samples, with the weights as they are ("precise batch norm"):
 * the first N of the order that the seed draws. Every chunk is normalized by its
 * own statistics, and the running ones become those of all samples, whatever the
 * model's mode of batch norm is; frozen norms keep theirs. The same bits split
 * and local.
 *
 * Threads: the main thread. Test: tests/e2e/recalibrate.sh
 */
#ifndef GP_RECALIBRATE_H
#define GP_RECALIBRATE_H

#include "client/train/bad_data.h"
#include "client/job/job.h"
#include "client/log/progress.h"
#include "client/monitor/run_monitor.h"

/* From the loader's beginning on, which is left where it is then. Shows how far it is, and tells the monitor
 * (optional) with each batch that the run goes on; ends when *stop (optional) is set, with
 * the statistics of at least one batch. */
enum gp_status gp_recalibrate(struct gp_engine *e, struct gp_loader *train, uint32_t batches, struct gp_progress *p,
			      struct gp_run_monitor *monitor, const volatile sig_atomic_t *stop, struct gp_err *err);

/* What eval needs for it. Zeroed to begin with. */
struct gp_recalibration {
	struct gp_dataset *data;
	struct gp_loader *loader;
};
/* The training samples of a job with --recalibrate, without the bad ones, which are added to `out`. Before gp_job_build. */
enum gp_status gp_recalibration_open(struct gp_recalibration *r, const struct gp_job *j, struct gp_left_out *out,
				     struct gp_err *err);
/* Takes statistics anew; the job's weights, which a server that begins anew is given, have them from then on. Saves those
 * where --save says so, with the description of their model. */
enum gp_status gp_recalibration_run(struct gp_recalibration *r, struct gp_job *j, struct gp_progress *p,
				    struct gp_err *err);
/* After gp_job_deinit. */
void gp_recalibration_deinit(struct gp_recalibration *r);

#endif

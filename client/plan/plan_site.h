/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the parts of a prediction are measured, for `gpclient plan` and for a cut of `gpclient bench`: a job (data,
 * model, device) and the study (plan_study.h) that they go to. What both commands do alike: opening it, measuring the
 * link, the server and this side. Not here: what is predicted from it.
 *
 * Life: zeroed, then `set`, `optim` and `tell` are filled in; gp_job_begin; codecs, cuts and chunks go into the study;
 * gp_plan_site_open, gp_plan_site_settle, then what is to be measured; gp_plan_site_deinit in any case.
 *
 * Threads: the main thread. Test: tests/e2e/plan.sh, tests/e2e/bench.sh
 */
#ifndef GP_PLAN_SITE_H
#define GP_PLAN_SITE_H

#include "client/job/job.h"
#include "client/plan/plan_study.h"

/* --same-machine, in the order of its choices: whether both ends share the processors of this machine. */
enum gp_plan_same_machine { GP_SAME_MACHINE_AUTO, GP_SAME_MACHINE_YES, GP_SAME_MACHINE_NO };
/* For a row that is `like` it (struct gp_opt), with an offset and a text of its own. */
extern const struct gp_opt_rows gp_plan_same_machine_rows;
/* `server`: HOST:PORT, or NULL; on loopback it is auto's yes. */
bool gp_plan_is_same_machine(int choice, const char *server);

/* What a prediction needs to know of the optimizer. */
struct gp_optim gp_plan_optim_of(int optimizer, double momentum, double clip_norm);

struct gp_plan_site {
	struct gp_job_settings set; /* its batch and window are those of the measured server while that is measured */
	struct gp_optim optim;
	struct gp_job job;
	struct gp_dataset *data;
	struct gp_loader *loader;
	struct gp_device *device;
	struct gp_plan_study study;
	void (*tell)(void *arg, const char *what, int done, int of); /* hears what is measured next */
	void *arg;
};

/* Data, with a batch of it at least, and model. */
enum gp_status gp_plan_site_open(struct gp_plan_site *s, struct gp_err *err);
/* The device and the study's world, with a server that is as fast as this machine, and the times to measure for: about
 * `seconds` for the blocks of each size of a chunk. */
enum gp_status gp_plan_site_settle(struct gp_plan_site *s, int same_machine, double seconds, struct gp_err *err);
/* The choice whose steps a server is to do: chunks as small as there are, the cut of the job, and with a codec that
 * computes, where there is one. */
struct gp_plan_pick gp_plan_site_reference(const struct gp_plan_site *s);
enum gp_status gp_plan_site_measure_link(struct gp_plan_site *s, double seconds, struct gp_plan_link *out,
					 struct gp_err *err);
/* For a link that is given: what moving bytes takes of this machine's processors, where the link is so fast that it
 * matters and the server measures links. */
void gp_plan_site_measure_moving(struct gp_plan_site *s, struct gp_plan_link *link);
/* A few steps of a training with that choice. The server is waited for no longer than job.patience_s at a time. */
enum gp_status gp_plan_site_measure_server(struct gp_plan_site *s, const struct gp_plan_pick *pick,
					   struct gp_plan_server *out, struct gp_err *err);
/* Making batches, blocks and codecs. */
enum gp_status gp_plan_site_measure_here(struct gp_plan_site *s, struct gp_err *err);
/* Behind both: the study's world gets the server as it was measured for that choice. */
void gp_plan_site_serve(struct gp_plan_site *s, const struct gp_plan_server *server, const struct gp_plan_pick *pick);
/* Safe on a zeroed struct. */
void gp_plan_site_deinit(struct gp_plan_site *s);

#endif

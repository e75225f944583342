/* SPDX-License-Identifier: Apache-2.0
 *
 * --precision auto: which of the precisions that a device has is the fastest for
 * the plans that it is to have, found by trying: a chunk goes forward and back
 * through a plan of each, and the fastest pass counts, because what others do on the
 * machine only ever makes one slower. fp32 is what is taken where no other saves at
 * least 5 %.
 *
 * Trials leave nothing behind. A choice differs from machine to machine and from day
 * to day: whoever makes one has to keep it (client/job/job_precision.h).
 *
 * Threads: the one that the device computes on, or any while no plan of it runs.
 * Test: tests/unit/test_precision_trial.c
 */
#ifndef GP_PRECISION_TRIAL_H
#define GP_PRECISION_TRIAL_H

#include "common/graph/device.h"

/* A disturbance that lasts longer than all passes of one precision has passed until the next round, mostly. */
#define GP_PRECISION_ROUNDS 2

struct gp_precision_trial {
	double pass_s[GP_PRECISIONS]; /* the fastest so far; 0: not tried */
};

/* What the plan of a trial is like: no memory of it but what each chunk and each parameter need. */
struct gp_plan_spec gp_precision_trial_spec(const struct gp_plan_spec *spec, enum gp_precision precision);
/*
 * Tries one precision that the device supports, with plans like `spec`, one after the other. Up to 20 passes of each plan,
 * besides one that is not counted, and only one where it takes half a second.
 */
enum gp_status gp_precision_try(struct gp_device *dev, const struct gp_plan_spec *spec, int plans,
				enum gp_precision precision, struct gp_precision_trial *trial, struct gp_err *err);
/* The first one from `from` on that the device supports and that a trial is about; GP_PRECISIONS: there is none. */
enum gp_precision gp_precision_next(const struct gp_device *dev, int from);
/* By what was tried. */
enum gp_precision gp_precision_fastest(const struct gp_precision_trial *trial);
/* All of it. Nothing is tried where the device has fp32 alone. */
enum gp_status gp_precision_choose(struct gp_device *dev, const struct gp_plan_spec *spec, int plans,
				   struct gp_precision_trial *trial, enum gp_precision *out, struct gp_err *err);
/* "fp32 31.2 ms, bf16 22.5 ms"; "" where nothing was tried. Returns text. */
#define GP_PRECISION_TRIAL_TEXT 96
const char *gp_precision_trial_text(const struct gp_precision_trial *trial, char text[GP_PRECISION_TRIAL_TEXT]);

#endif

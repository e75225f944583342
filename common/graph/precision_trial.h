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

/* One plan that is timed pass by pass, by whoever has to let others use the device between. */
struct gp_precision_probe {
	struct gp_plan *plan; /* NULL: none */
	bool backward;        /* a pass has had its forward */
	int passes;           /* that are over; the first does not count */
	double pass_s;        /* of the pass under way */
	double sum_s, best_s; /* of those that count; best_s 0: none has */
};

/* Makes the plan, which takes as long as any: the device need not be held for it. On failure there is none. */
enum gp_status gp_precision_probe_begin(struct gp_precision_probe *p, struct gp_device *dev,
					const struct gp_plan_spec *spec, enum gp_precision precision,
					struct gp_err *err);
/* Whether another step is of use: up to 20 passes, besides one that does not count, and only one where it takes a tenth
 * of a second. */
bool gp_precision_probe_goes_on(const struct gp_precision_probe *p);
/* Half a pass: forward, or backward of what is trained. */
enum gp_status gp_precision_probe_step(struct gp_precision_probe *p, struct gp_err *err);
/* Frees the plan, if there is one. */
void gp_precision_probe_end(struct gp_precision_probe *p);
/* What all plans together took in a precision, by their fastest passes. */
void gp_precision_note(struct gp_precision_trial *trial, enum gp_precision precision, double pass_s);

/* Tries one precision that the device supports, with plans like `spec`, one after the other, without a pause. */
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
